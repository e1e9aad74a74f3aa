//! Background loops of a provider: work in the cloud that depends on the cluster as a whole and not on a single Node or Service,
//! such as tags on machines, a firewall for node ports, or BGP sessions.
//!
//! ```text
//!  start, period, change of a Node or Service ──► snapshot ──► sync(&snapshot) ──► calls to the cloud
//!            ▲                                                       │
//!            └────────── period, or back-off ◄── status, metrics ◄───┴──► annotations of Nodes
//! ```
//!
//! A provider implements `sync`. The controller `provider-loops` runs each loop only while this process is the leader, one run at a
//! time, retries it after an error or a panic, and stops it at shutdown.
//!
//! ```
//! use std::time::Duration;
//!
//! use async_trait::async_trait;
//! use bowline_cloud::{ClusterSnapshot, LoopOutcome, ProviderLoop, Result};
//! # struct Client;
//! # impl Client {
//! #     async fn tagged(&self, tag: &str) -> Result<Vec<String>> { let _ = tag; Ok(Vec::new()) }
//! #     async fn tag(&self, id: &str, tag: &str) -> Result<()> { let _ = (id, tag); Ok(()) }
//! # }
//!
//! /// Tags the machines of the cluster.
//! struct Tags(Client);
//!
//! #[async_trait]
//! impl ProviderLoop for Tags {
//!     fn name(&self) -> &str {
//!         "tags"
//!     }
//!
//!     fn period(&self) -> Duration {
//!         Duration::from_secs(300)
//!     }
//!
//!     async fn sync(&self, cluster: &ClusterSnapshot) -> Result<LoopOutcome> {
//!         let tag = format!("k8s:{}", cluster.name);
//!         let tagged = self.0.tagged(&tag).await?;
//!         let ids = cluster.nodes.iter().filter_map(|node| node.provider_id.as_ref()?.rest());
//!         let missing: Vec<_> = ids.filter(|id| !tagged.iter().any(|tagged| tagged == id)).collect();
//!         for id in &missing {
//!             self.0.tag(id, &tag).await?;
//!         }
//!         Ok(LoopOutcome::new(format!("tagged {} machines", missing.len())))
//!     }
//! }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::node_annotations::AnnotationValues;
use bowline_core::{ClusterName, Node, NodeName, Service};

use crate::Result;

/// Nodes and Services at the start of a run, from the manager's caches.
#[derive(Debug, Clone)]
pub struct ClusterSnapshot {
    /// Cluster name, as recorded on every cloud resource that this cluster owns.
    pub name: ClusterName,
    /// Nodes with a provider ID of this cloud, sorted by name, without those that are excluded from cloud controller managers.
    pub nodes: Vec<Arc<Node>>,
    /// Services of all types, sorted by namespace and name, without those whose load balancer another cloud provides.
    pub services: Vec<Arc<Service>>,
    /// The loop must not write. Write calls fail with [`Cancelled`](crate::ErrorKind::Cancelled), which ends the run and does not
    /// count as a failure. A loop that reports what it would do checks this first.
    pub dry_run: bool,
}

/// Result of a successful run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopOutcome {
    /// Short summary for `/statusz` and the log: `tagged 3 machines`. No secrets.
    pub summary: String,
    /// Annotations to write to Nodes, by the rules of [`node_annotations`](bowline_core::node_annotations). Nodes that are not in
    /// the snapshot are ignored.
    pub annotations: BTreeMap<NodeName, AnnotationValues>,
}

impl LoopOutcome {
    /// Creates an outcome without annotations.
    pub fn new(summary: impl Into<String>) -> LoopOutcome {
        LoopOutcome { summary: summary.into(), annotations: BTreeMap::new() }
    }
}

/// A background loop, from [`CloudProvider::loops`](crate::CloudProvider::loops).
///
/// Rules, each with a conformance case of the same name:
/// - `loops_are_declared`: names are unique and not empty, periods are not zero, and neither changes.
/// - `loops_follow_the_cluster`: a run brings the cloud to the state that the snapshot requires, also after Nodes were added and
///   removed.
/// - `loops_are_repeatable`: a second run writes nothing and returns the same annotations, also after a restart.
/// - `loops_write_nothing_foreign`: a run changes no resource of another cluster or of the user.
/// - `loop_errors_have_a_kind`: a run that fails because of the cloud is an error of the corresponding kind.
/// - `loops_survive_every_crash`: if a run is interrupted after any of its calls, the next run completes it.
#[async_trait]
pub trait ProviderLoop: Send + Sync {
    /// Returns the name in metrics, logs and on `/statusz`: unique within the provider, lower case, words joined by `-`.
    fn name(&self) -> &str;

    /// Returns the maximum time between two runs. A change of a Node or Service also triggers a run.
    fn period(&self) -> Duration;

    /// Compares the cloud with the snapshot and writes the differences. The future may be dropped at any `await`.
    async fn sync(&self, cluster: &ClusterSnapshot) -> Result<LoopOutcome>;
}
