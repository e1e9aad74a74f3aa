//! Routes of this cluster whose Node does not exist.
//!
//! The clouds are listed before the cluster here, too: a Node is older than its routes. A route without the cluster's mark counts
//! only within `--cluster-cidr`.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::{Cloud, Clouds, Error};
use bowline_core::routes::{Brake, BrakeDecision, HoldReason, Nodes, RouteContext, RouteTable, orphans};
use bowline_core::{ClusterName, Node, NodeName, ProviderId, Route};
use bowline_kube::{Cluster, WriteError};
use bowline_settings::reach;
use ipnet::IpNet;

use super::Outcome;
use crate::progress;

/// A route without a Node.
pub(super) struct OrphanedRoute {
    pub(super) cloud: Cloud,
    pub(super) route: Route,
    /// Why the brake holds it back.
    pub(super) hold: Option<HoldReason>,
    pub(super) outcome: Outcome,
}

/// Orphaned routes of all clouds.
#[derive(Default)]
pub(super) struct OrphanedRoutes {
    pub(super) orphans: Vec<OrphanedRoute>,
    /// Clouds whose routes could not be listed.
    pub(super) failed: Vec<(Arc<str>, Error)>,
}

/// Finds orphaned routes; `None` if no cloud supports routes.
pub(super) async fn find(
    clouds: &Clouds,
    cluster: &Cluster,
    name: &ClusterName,
    cluster_cidrs: &[IpNet],
    max_share: f64,
) -> anyhow::Result<Option<OrphanedRoutes>> {
    let (mut tables, mut failed) = (Vec::new(), Vec::new());
    for cloud in clouds.iter().filter(|cloud| cloud.has_routes()) {
        match progress::in_cloud(cloud.name(), "listing routes", cloud.layers().list_routes(name)).await {
            Ok(routes) => tables.push((cloud.clone(), RouteTable::from_iter(routes))),
            Err(error) => failed.push((cloud.name().clone(), error)),
        }
    }
    if tables.is_empty() && failed.is_empty() {
        return Ok(None);
    }
    let nodes = progress::during("listing Nodes", cluster.list_nodes()).await;
    let nodes = nodes.context("cannot list Nodes, so no orphaned routes can be determined")?;
    let nodes = NodeIndex::new(&nodes);
    let uid = reach::cluster_uid(cluster).await?;
    let orphans = tables.iter().flat_map(|(cloud, table)| {
        orphaned_routes(
            cloud,
            &RouteContext { table, nodes: &nodes, ranges: cluster_cidrs, cluster_uid: uid.as_deref() },
            nodes.by_name.len(),
            max_share,
        )
    });
    Ok(Some(OrphanedRoutes { orphans: orphans.collect(), failed }))
}

/// Routes of a cloud without a Node. The user confirms the number of deletions; but a cluster without any Node is too likely the
/// wrong one, so the brake holds its routes back.
fn orphaned_routes(cloud: &Cloud, context: &RouteContext<'_>, nodes: usize, max_share: f64) -> Vec<OrphanedRoute> {
    let orphans = orphans(context);
    let hold = match Brake::new(max_share).check(orphans.len(), context.responsible_count(), nodes) {
        BrakeDecision::Hold(reason) => Some(reason),
        BrakeDecision::Allow | BrakeDecision::Confirm => None,
    };
    let orphan = |route| OrphanedRoute { cloud: cloud.clone(), route, hold: hold.clone(), outcome: Outcome::Listed };
    orphans.into_iter().map(|stray| orphan(stray.route)).collect()
}

/// Deletes the route, unless the brake holds it back or its Node exists.
pub(super) async fn delete(orphan: &OrphanedRoute, cluster: &Cluster, name: &ClusterName) -> Outcome {
    if let Some(reason) = &orphan.hold {
        return Outcome::HeldBack(reason.to_string());
    }
    match has_node(&orphan.route, cluster).await {
        Ok(true) => Outcome::Owned,
        Ok(false) => match orphan.cloud.layers().delete_route(name, &orphan.route).await {
            Ok(()) => Outcome::Deleted,
            Err(error) => Outcome::Failed(error.to_string()),
        },
        Err(error) => Outcome::Failed(format!("cannot read its Node: {error}")),
    }
}

/// Whether the Node exists now, whatever the earlier list contained.
async fn has_node(route: &Route, cluster: &Cluster) -> Result<bool, WriteError> {
    match (&route.node, &route.provider_id) {
        (Some(name), _) => Ok(cluster.node(name).await?.is_some()),
        (None, Some(id)) => Ok(NodeIndex::new(&cluster.list_nodes().await?).by_provider_id(id).is_some()),
        (None, None) => Ok(false),
    }
}

/// Nodes of the cluster, indexed.
struct NodeIndex {
    by_name: HashMap<NodeName, Arc<Node>>,
    by_id: HashMap<ProviderId, Arc<Node>>,
}

impl NodeIndex {
    fn new(nodes: &[Arc<Node>]) -> NodeIndex {
        let by_provider_id = nodes.iter().filter_map(|node| Some((node.provider_id.clone()?, node.clone())));
        NodeIndex {
            by_name: nodes.iter().map(|node| (node.name.clone(), node.clone())).collect(),
            by_id: by_provider_id.collect(),
        }
    }
}

impl Nodes for NodeIndex {
    fn by_name(&self, name: &NodeName) -> Option<Arc<Node>> {
        self.by_name.get(name).cloned()
    }

    fn by_provider_id(&self, id: &ProviderId) -> Option<Arc<Node>> {
        self.by_id.get(id).cloned()
    }

    /// An existing Node keeps its routes, whichever manager is responsible for it.
    fn is_managed(&self, _: &Node) -> bool {
        true
    }
}
