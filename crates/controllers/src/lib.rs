//! The controllers. Each observes through `bowline-kube` and `bowline-cloud`, plans with a pure function of `bowline-core`,
//! applies the plan and reports the result.
//!
//! | folder | controller |
//! |---|---|
//! | [`node`] | `cloud-node-controller`: initialises Nodes, keeps addresses fresh, mirrors labels |
//! | [`node_lifecycle`] | `cloud-node-lifecycle-controller`: taints Nodes of stopped machines, deletes Nodes of deleted machines |
//! | [`node_ipam`] | `node-ipam-controller`: allocates pod CIDRs to Nodes |
//! | [`route`] | `node-route-controller`: creates a route to each pod CIDR |
//! | [`service`] | `service-lb-controller`: load balancers for Services |
//! | [`provider_loops`] | `provider-loop-controller`: runs the background loops of providers |
//!
//! [`forecast`] returns what the controllers would do, and changes nothing. [`console`] shows what they do.

mod activity;
mod backlog;
pub mod console;
pub mod forecast;
mod gate;
mod lanes;
pub mod manager;
pub mod node;
pub mod node_ipam;
pub mod node_lifecycle;
mod outcome;
mod panics;
mod pause;
mod permissions;
pub mod provider_loops;
mod reports;
pub mod route;
pub mod secrets;
pub mod service;
mod spans;
mod start;

use bowline_cloud::Clouds;
use bowline_core::{Node, Service};
use bowline_kube::{Cluster, EventSink, Notes, Store};
use bowline_runtime::{Clock, Metric, QueueMetrics, StatusBoard};

pub use activity::RunningControllers;
pub use gate::Gate;
pub use permissions::Permissions;
pub use start::start;

/// Dependencies that all controllers share.
#[derive(Clone)]
pub struct Context {
    /// API server, with the controller's client.
    pub cluster: Cluster,
    /// API server, with the client of the process.
    pub process: Cluster,
    /// Notes for the next leader.
    pub notes: Notes,
    /// Watch cache of Nodes.
    pub nodes: Store<Node>,
    /// Watch cache of Services.
    pub services: Store<Service>,
    /// Configured clouds.
    pub clouds: Clouds,
    /// Sink for Events.
    pub events: EventSink,
    /// Clock.
    pub clock: Clock,
    /// Registry of all metrics.
    pub metrics: prometheus::Registry,
    /// Metrics of the work queues.
    pub queues: QueueMetrics,
    /// Gauge of running controllers.
    pub running: RunningControllers,
    /// Status board of the process.
    pub board: StatusBoard,
    /// Contributions of the controllers to the console's document.
    pub console: console::Parts,
}

/// Metrics of all controllers.
pub const METRICS: &[&[Metric]] = &[
    activity::METRICS,
    node::METRICS,
    node_lifecycle::METRICS,
    node_ipam::METRICS,
    route::METRICS,
    service::METRICS,
    provider_loops::METRICS,
];

impl Context {
    /// Returns the context for a controller that writes objects and Events with this client.
    fn through(&self, client: kube::Client) -> Context {
        let (cluster, events) =
            (self.cluster.clone().with_client(client.clone()), self.events.clone().with_client(client));
        Context { cluster, events, ..self.clone() }
    }
}
