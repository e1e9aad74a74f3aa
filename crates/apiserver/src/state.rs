//! State shared by all requests.

use std::sync::Arc;

use tokio::sync::watch;

use crate::auth::Auth;
use crate::connections::Connections;
use crate::faults::Faults;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::metrics::Requests;
use crate::options::Options;
use crate::resources::service::Pools;
use crate::store::Store;

/// The state of the server.
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) pools: Pools,
    pub(crate) auth: Auth,
    pub(crate) faults: Faults,
    /// Recorded only if the debug endpoints are enabled.
    pub(crate) journal: Journal,
    pub(crate) requests: Requests,
    pub(crate) connections: Arc<Connections>,
    pub(crate) limits: Limits,
    /// Incremented to close all watches.
    pub(crate) watch_cuts: watch::Sender<u64>,
    /// `host:port` at which clients reach the server.
    pub(crate) address: String,
}

impl State {
    /// The state of an empty server that clients reach at `address`.
    pub(crate) fn new(options: Options, address: String) -> State {
        State {
            store: Store::new(),
            pools: Pools::new(options.service_cidr, options.node_ports),
            auth: Auth::new(&options),
            faults: Faults::default(),
            journal: Journal::default(),
            requests: Requests::default(),
            connections: Arc::new(Connections::new(options.connections)),
            limits: Limits::default(),
            watch_cuts: watch::Sender::new(0),
            address,
            options,
        }
    }

    /// Closes all watches gracefully.
    pub(crate) fn cut_watches(&self) {
        self.watch_cuts.send_modify(|cuts| *cuts += 1);
    }
}
