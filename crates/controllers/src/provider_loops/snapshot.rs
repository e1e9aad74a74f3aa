//! Input of a run, for the controller and for forecasts.

use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds, ClusterSnapshot, LabelValues};
use bowline_core::node_annotations::{self, AnnotationChange, AnnotationValues};
use bowline_core::{ClusterName, Node, NodeName, ProviderId, Service, ServiceType};

use crate::service::Routing;

/// Selects the Nodes and Services for the loops of this cloud, from all of the cluster.
pub(crate) fn snapshot(
    cloud: &Cloud,
    clouds: &Clouds,
    routing: &Routing,
    cluster: &ClusterName,
    mut nodes: Vec<Arc<Node>>,
    mut services: Vec<Arc<Service>>,
) -> ClusterSnapshot {
    let is_ours = |id: &ProviderId| clouds.owner(id).is_some_and(|owner| owner.name() == cloud.name());
    nodes.retain(|node| node.provider_id.as_ref().is_some_and(is_ours));
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let (paused, nodes) = nodes.into_iter().partition(|node| node.is_paused());
    services.retain(|service| {
        let provider = routing.cloud(service).filter(|_| service.kind == ServiceType::LoadBalancer);
        provider.is_none_or(|provider| provider.name() == cloud.name())
    });
    services.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    ClusterSnapshot { name: cluster.clone(), nodes, paused, services }
}

/// Finds a Node of the snapshot.
pub(crate) fn node_of<'a>(cluster: &'a ClusterSnapshot, name: &NodeName) -> Option<&'a Arc<Node>> {
    let index = cluster.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
    cluster.nodes.get(index)
}

/// Compares the annotations of a Node with those that a loop returned.
pub(crate) fn annotation_change(node: &Node, values: &AnnotationValues) -> AnnotationChange {
    node_annotations::decide(node, values.iter().map(|(key, value)| (key, value.as_ref())))
}

/// Returns the labels of a loop that the Node does not have yet.
pub(crate) fn label_change(node: &Node, labels: &LabelValues) -> LabelValues {
    let differs = |(key, value): &(&String, &String)| node.labels.get(*key) != Some(*value);
    labels.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
}
