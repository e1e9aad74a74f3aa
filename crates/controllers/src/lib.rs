//! The control loops. Each observes through `bowline-kube` and `bowline-cloud`, lets a pure function of `bowline-core`
//! decide, and applies the value it gets.
//!
//! | folder | controller |
//! |---|---|
//! | [`node`] | `cloud-node-controller`: initialises Nodes, keeps addresses fresh, mirrors labels |
//! | [`node_lifecycle`] | `cloud-node-lifecycle-controller`: taints Nodes of stopped machines, deletes those of vanished ones |
//! | [`node_ipam`] | `node-ipam-controller`: gives Nodes their pod ranges |
//! | [`route`] | `node-route-controller`: leads pod ranges to Nodes |
//! | [`service`] | `service-lb-controller`: load balancers for Services |
//! | [`provider_loops`] | `provider-loop-controller`: runs the background loops of providers |
//!
//! [`forecast`] tells what all of them would do, and does nothing.

mod activity;
mod backlog;
mod complaints;
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

/// What every controller works with.
#[derive(Clone)]
pub struct Context {
    /// The API server, for writing.
    pub cluster: Cluster,
    /// The API server, under the name of the process.
    pub process: Cluster,
    /// Notes for the next leader.
    pub notes: Notes,
    /// The Nodes, as they were last heard of.
    pub nodes: Store<Node>,
    /// The Services, as they were last heard of.
    pub services: Store<Service>,
    /// The clouds.
    pub clouds: Clouds,
    /// Where Events go.
    pub events: EventSink,
    /// The time.
    pub clock: Clock,
    /// Where metrics are registered.
    pub metrics: prometheus::Registry,
    /// The metrics of queues.
    pub queues: QueueMetrics,
    /// Which controllers run.
    pub running: RunningControllers,
    /// Where the controller and its parts can be looked at.
    pub board: StatusBoard,
}

/// What the controllers count.
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
    /// The same, for a controller that writes and speaks through this client.
    fn through(&self, client: kube::Client) -> Context {
        let (cluster, events) = (self.cluster.clone().through(client.clone()), self.events.clone().through(client));
        Context { cluster, events, ..self.clone() }
    }
}
