//! Background loops of a provider: work in the cloud that follows the Nodes and Services of a cluster and belongs to no single
//! one of them, such as tags on machines, a firewall for node ports, or BGP sessions.
//!
//! ```text
//!  start, period, change of a Node or Service ──► snapshot ──► sync(&snapshot) ──► calls to the cloud
//!            ▲                                                       │
//!            └────────── period, or back-off ◄── status, metrics ◄───┴──► annotations of Nodes
//! ```
//!
//! A provider writes `sync`; the controller `provider-loops` does the rest. It runs each loop only while this process leads, one
//! run at a time, restarts it after an error or a panic, and stops it at shutdown.
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

/// Nodes and Services at the start of a run, from the manager's watches.
#[derive(Debug, Clone)]
pub struct ClusterSnapshot {
    /// Cluster name, as recorded on every cloud resource that this cluster owns.
    pub name: ClusterName,
    /// Nodes with a provider ID of this cloud, by name. Those that no cloud controller manager may touch are left out.
    pub nodes: Vec<Arc<Node>>,
    /// Services by namespace and name, of all types. Those whose load balancer another cloud provides are left out.
    pub services: Vec<Arc<Service>>,
    /// Nothing may be written. Writing calls fail with [`Cancelled`](crate::ErrorKind::Cancelled) then, which ends the run and is
    /// no failure; a loop that wants to report more looks here first.
    pub dry_run: bool,
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopOutcome {
    /// A few words for `/statusz` and the log: `tagged 3 machines`. No secrets.
    pub summary: String,
    /// Annotations to write, by Node, by the rules of [`node_annotations`](bowline_core::node_annotations). Nodes that are not in
    /// the snapshot are ignored.
    pub annotations: BTreeMap<NodeName, AnnotationValues>,
}

impl LoopOutcome {
    /// Outcome without annotations.
    pub fn new(summary: impl Into<String>) -> LoopOutcome {
        LoopOutcome { summary: summary.into(), annotations: BTreeMap::new() }
    }
}

/// A background loop, from [`CloudProvider::loops`](crate::CloudProvider::loops).
///
/// Rules, each with a conformance case of the same name:
/// - `loops_are_declared`: names are distinct and not empty, periods are not zero, and both are the same each time.
/// - `loops_follow_the_cluster`: a run brings the cloud to what the snapshot asks for, also after Nodes have come and gone.
/// - `loops_are_repeatable`: a second run writes nothing and returns the same annotations, also after a restart.
/// - `loops_write_nothing_foreign`: a run changes nothing that belongs to another cluster or to the user.
/// - `loop_errors_have_a_kind`: a run that the cloud fails is an error of the right kind, and no outcome.
/// - `loops_survive_every_crash`: a run that ended after any of its calls is completed by the next one.
#[async_trait]
pub trait ProviderLoop: Send + Sync {
    /// Name in metrics, logs and on `/statusz`, unlike that of the provider's other loops: lower case, words joined by `-`.
    fn name(&self) -> &str;

    /// Longest pause between two runs. A run also follows a change of a Node or Service.
    fn period(&self) -> Duration;

    /// Compares the cloud with the snapshot and writes the differences. It may be dropped at any `await`.
    async fn sync(&self, cluster: &ClusterSnapshot) -> Result<LoopOutcome>;
}
