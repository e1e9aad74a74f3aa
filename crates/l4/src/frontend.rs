//! One address and port at which clients arrive: its rules, which may change at any time, and its counters.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::connections::Connections;
use crate::filter::SourceFilter;
use crate::pool::Pool;
use crate::{Counters, ProxyProtocol};

/// One address and port.
pub(crate) struct Frontend {
    /// Where clients arrive.
    pub(crate) address: SocketAddr,
    /// The load balancer that it belongs to.
    pub(crate) owner: u64,
    /// What went through.
    pub(crate) counters: Tally,
    /// Cancelled when nothing new is let in any more.
    pub(crate) stop: CancellationToken,
    /// The TCP connections that are open.
    pub(crate) connections: Connections,
    rules: RwLock<Arc<Rules>>,
}

/// What holds for connections and flows that begin now.
pub(crate) struct Rules {
    /// Who takes the traffic.
    pub(crate) pool: Arc<Pool>,
    /// Who may connect.
    pub(crate) filter: Arc<SourceFilter>,
    /// What is sent to a target first.
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    /// How long nothing may happen.
    pub(crate) idle_timeout: Duration,
    /// How long connecting to one target may take.
    pub(crate) connect_timeout: Duration,
}

/// The counters of a frontend.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) accepted: Count,
    pub(crate) open: Count,
    pub(crate) denied: Count,
    pub(crate) failed: Count,
    pub(crate) idled: Count,
    pub(crate) displaced: Count,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
}

/// A number that many threads count.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Frontend {
    /// One at which nobody has arrived yet.
    pub(crate) fn new(address: SocketAddr, owner: u64, rules: Rules) -> Frontend {
        Frontend {
            address,
            owner,
            counters: Tally::default(),
            stop: CancellationToken::new(),
            connections: Connections::default(),
            rules: RwLock::new(Arc::new(rules)),
        }
    }

    /// What holds now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who takes the traffic now.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.rules().pool)
    }

    /// Who may connect now.
    pub(crate) fn filter(&self) -> Arc<SourceFilter> {
        Arc::clone(&self.rules().filter)
    }

    /// How long nothing may happen.
    pub(crate) fn idle(&self) -> Duration {
        self.rules().idle_timeout
    }

    /// From now on these hold.
    pub(crate) fn set_rules(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}

impl Tally {
    /// What was counted so far.
    pub(crate) fn read(&self) -> Counters {
        Counters {
            accepted: self.accepted.get(),
            open: self.open.get(),
            denied: self.denied.get(),
            failed: self.failed.get(),
            idled: self.idled.get(),
            displaced: self.displaced.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }
}

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
