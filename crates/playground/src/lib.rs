//! API server, local cloud, simulated kubelets and the controllers in one process, with a tour.

mod claim;
mod kubelet;
mod machines;
mod node_monitor;
mod scheduler;
mod time;
mod view;

use std::net::SocketAddr;

use bowline_apiserver::ApiServer;
use bowline_local::LocalCloud;

/// How the playground is set up.
#[derive(Debug, Clone)]
pub struct PlaygroundOptions {
    /// How many machines and Nodes there are at the start.
    pub nodes: usize,
    /// Where the API server listens.
    pub listen: SocketAddr,
    /// Where the local cloud's HTTP API listens.
    pub cloud_listen: SocketAddr,
}

/// A playground that runs.
pub struct Playground {
    /// The API server.
    pub server: ApiServer,
    /// The cloud.
    pub cloud: LocalCloud,
}
