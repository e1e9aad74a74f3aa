//! Routes of this cluster whose Node is gone.
//!
//! The clouds are asked before the cluster here, too: a Node is older than the routes to it. What carries no mark of the
//! cluster counts only within `--cluster-cidr`.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::{Cloud, Clouds, Error};
use bowline_core::routes::{Brake, BrakeDecision, HoldReason, Nodes, Scene, Table, orphans};
use bowline_core::{ClusterName, Node, NodeName, ProviderId, Route};
use bowline_kube::{Cluster, WriteError};
use bowline_settings::reach;
use ipnet::IpNet;

use super::Outcome;

/// A route without a Node.
pub(super) struct LostRoute {
    pub(super) cloud: Cloud,
    pub(super) route: Route,
    /// Why it would stay.
    pub(super) doubt: Option<HoldReason>,
    pub(super) outcome: Outcome,
}

/// What was found.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) lost: Vec<LostRoute>,
    /// The clouds that did not say what they have.
    pub(super) silent: Vec<(Arc<str>, Error)>,
}

/// `None` if no cloud has routes.
pub(super) async fn find(
    clouds: &Clouds,
    cluster: &Cluster,
    name: &ClusterName,
    ranges: &[IpNet],
    max_share: f64,
) -> anyhow::Result<Option<Routes>> {
    let (mut tables, mut silent) = (Vec::new(), Vec::new());
    for cloud in clouds.iter().filter(|cloud| cloud.has_routes()) {
        match cloud.layers().list_routes(name).await {
            Ok(routes) => tables.push((cloud.clone(), Table::from_iter(routes))),
            Err(error) => silent.push((cloud.name().clone(), error)),
        }
    }
    if tables.is_empty() && silent.is_empty() {
        return Ok(None);
    }
    let nodes = cluster.list_nodes().await.context("cannot list Nodes, so no route is taken for an orphan")?;
    let nodes = Listed::new(&nodes);
    let uid = reach::cluster_uid(cluster).await?;
    let lost = tables.iter().flat_map(|(cloud, table)| {
        lost(
            cloud,
            &Scene { table, nodes: &nodes, ranges, cluster_uid: uid.as_deref() },
            nodes.by_name.len(),
            max_share,
        )
    });
    Ok(Some(Routes { lost: lost.collect(), silent }))
}

/// The routes of a cloud that lead to no Node. Whether many may go, somebody has been asked; but that there are no Nodes at
/// all is too likely to be a mistake.
fn lost(cloud: &Cloud, scene: &Scene<'_>, nodes: usize, max_share: f64) -> Vec<LostRoute> {
    let orphans = orphans(scene);
    let doubt = match Brake::new(max_share).judge(orphans.len(), scene.responsibilities(), nodes) {
        BrakeDecision::Hold(doubt) => Some(doubt),
        BrakeDecision::Go | BrakeDecision::Ask => None,
    };
    let lost = |route| LostRoute { cloud: cloud.clone(), route, doubt: doubt.clone(), outcome: Outcome::Listed };
    orphans.into_iter().map(|stray| lost(stray.route)).collect()
}

/// Removes it, unless there is doubt, or its Node is there after all.
pub(super) async fn remove(lost: &LostRoute, cluster: &Cluster, name: &ClusterName) -> Outcome {
    if let Some(doubt) = &lost.doubt {
        return Outcome::HeldBack(doubt.to_string());
    }
    match has_node(&lost.route, cluster).await {
        Ok(true) => Outcome::Owned,
        Ok(false) => match lost.cloud.layers().delete_route(name, &lost.route).await {
            Ok(()) => Outcome::Deleted,
            Err(error) => Outcome::Failed(error.to_string()),
        },
        Err(error) => Outcome::Failed(format!("cannot tell whether its Node is there: {error}")),
    }
}

/// Whether the Node is there, asked now and not remembered from the list.
async fn has_node(route: &Route, cluster: &Cluster) -> Result<bool, WriteError> {
    match (&route.node, &route.provider_id) {
        (Some(name), _) => Ok(cluster.node(name).await?.is_some()),
        (None, Some(id)) => Ok(Listed::new(&cluster.list_nodes().await?).with_id(id).is_some()),
        (None, None) => Ok(false),
    }
}

/// The Nodes of a list.
struct Listed {
    by_name: HashMap<NodeName, Arc<Node>>,
    by_id: HashMap<ProviderId, Arc<Node>>,
}

impl Listed {
    fn new(nodes: &[Arc<Node>]) -> Listed {
        let with_id = nodes.iter().filter_map(|node| Some((node.provider_id.clone()?, node.clone())));
        Listed {
            by_name: nodes.iter().map(|node| (node.name.clone(), node.clone())).collect(),
            by_id: with_id.collect(),
        }
    }
}

impl Nodes for Listed {
    fn named(&self, name: &NodeName) -> Option<Arc<Node>> {
        self.by_name.get(name).cloned()
    }

    fn with_id(&self, id: &ProviderId) -> Option<Arc<Node>> {
        self.by_id.get(id).cloned()
    }

    /// A Node that is there keeps its routes, whosever it is.
    fn is_ours(&self, _: &Node) -> bool {
        true
    }
}
