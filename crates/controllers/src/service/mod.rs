//! The service-lb-controller (SVC-1 to SVC-28): a balancer for every Service that wants one, and none for any other.
//!
//! The unit of work is the balancer. One pass over one of them:
//!
//! ```text
//!  Service, Nodes ──decide──► wish ──► finalizer, if missing ──► observe ──► plan ──► apply, step by step ──► status
//!                               │                                              └─ empty: nothing is written
//!                               └─ nothing is wanted: observe ──► plan ──► apply ──► status and finalizer, in one patch
//! ```
//!
//! * **Crash-safe.** The finalizer is there before the cloud is first asked, and goes last. Every pass starts from what the
//!   cloud has, so it may be cut off anywhere and begin again.
//! * **In parallel.** Passes over different balancers run side by side, `--concurrent-service-syncs` of them writing at once;
//!   twice over the same balancer never, even if two Services share it.
//! * **In turn.** New and changed Services go before refreshes, and namespaces take turns.
//! * **Gathered.** Nodes that come and go make one refresh of every balancer, a moment after the last of them.

mod routing;

use std::time::Duration;

use bowline_core::ClusterName;
use bowline_core::service::NodeSet;

pub use routing::{DefaultCloud, Routing, RoutingError};

/// The canonical name, in flags and health checks.
pub const NAME: &str = "service-lb-controller";

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-name`: what is made in a cloud is marked with it.
    pub cluster: ClusterName,
    /// `--concurrent-service-syncs`: balancers that are written at once.
    pub concurrency: usize,
    /// `--load-balancer-nodes`: which Nodes become targets, and when.
    pub nodes: NodeSet,
    /// `--load-balancer-drain-period`: how long a Node that is leaving keeps its connections, where the cloud can drain;
    /// zero takes it out when something else calls for an update, as the Go managers do.
    pub drain: Duration,
    /// `--load-balancer-node-gather-period`: new Nodes are taken in once none has come for this long.
    pub gather: Duration,
    /// `--load-balancer-classes`: Services of the class `bowline.dev/<cloud>` are taken, too, by that cloud.
    pub classes: bool,
    /// `--load-balancer-default-cloud`: who takes Services without a class.
    pub default_cloud: DefaultCloud,
    /// `--load-balancer-refresh-period`: how often a balancer that nothing happens to is compared with the cloud; zero
    /// never.
    pub refresh: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cluster: ClusterName::from("kubernetes"),
            concurrency: 16,
            nodes: NodeSet::Initialized,
            drain: Duration::from_secs(30),
            gather: Duration::from_secs(3),
            classes: true,
            default_cloud: DefaultCloud::First,
            refresh: Duration::from_secs(600),
        }
    }
}
