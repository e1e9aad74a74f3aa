//! What all requests share.

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

/// The server's memory.
pub(crate) struct State {
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) pools: Pools,
    pub(crate) auth: Auth,
    pub(crate) faults: Faults,
    /// Kept only where it can be read.
    pub(crate) journal: Journal,
    pub(crate) requests: Requests,
    pub(crate) connections: Arc<Connections>,
    pub(crate) limits: Limits,
    /// Counted up to end all watches.
    pub(crate) watch_cuts: watch::Sender<u64>,
    /// `host:port` clients reach the server by.
    pub(crate) address: String,
}

impl State {
    /// An empty server that clients reach at `address`.
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

    /// Ends all watches, cleanly.
    pub(crate) fn cut_watches(&self) {
        self.watch_cuts.send_modify(|cuts| *cuts += 1);
    }
}
