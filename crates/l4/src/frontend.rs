//! A frontend: one address and port for clients, with settings that may change at any time, and counters.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::connections::Connections;
use crate::filter::SourceFilter;
use crate::pool::Pool;
use crate::{Counters, ProxyProtocol};

/// One address and port for clients.
pub(crate) struct Frontend {
    /// Address and port that clients connect to.
    pub(crate) address: SocketAddr,
    /// ID of the load balancer.
    pub(crate) owner: u64,
    /// Traffic counters.
    pub(crate) counters: FrontendCounters,
    /// Cancelled to stop accepting connections and flows.
    pub(crate) stop: CancellationToken,
    /// Open TCP connections.
    pub(crate) connections: Connections,
    settings: RwLock<Arc<Settings>>,
}

/// Settings of new connections and flows.
pub(crate) struct Settings {
    /// Targets of the traffic.
    pub(crate) pool: Arc<Pool>,
    /// Allowed clients.
    pub(crate) filter: Arc<SourceFilter>,
    /// PROXY protocol header to send to targets.
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    /// Maximum time without a byte in either direction.
    pub(crate) idle_timeout: Duration,
    /// Timeout for connecting to one target.
    pub(crate) connect_timeout: Duration,
}

/// Traffic counters of a frontend.
#[derive(Default)]
pub(crate) struct FrontendCounters {
    pub(crate) accepted: Count,
    pub(crate) open: Count,
    pub(crate) denied: Count,
    pub(crate) failed: Count,
    pub(crate) idled: Count,
    pub(crate) displaced: Count,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
}

/// A counter shared by threads.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Frontend {
    /// Creates a frontend without connections.
    pub(crate) fn new(address: SocketAddr, owner: u64, settings: Settings) -> Frontend {
        Frontend {
            address,
            owner,
            counters: FrontendCounters::default(),
            stop: CancellationToken::new(),
            connections: Connections::default(),
            settings: RwLock::new(Arc::new(settings)),
        }
    }

    /// Returns the current settings.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the current pool.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.settings().pool)
    }

    /// Returns the current source filter.
    pub(crate) fn filter(&self) -> Arc<SourceFilter> {
        Arc::clone(&self.settings().filter)
    }

    /// Returns the current idle timeout.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.settings().idle_timeout
    }

    /// Replaces the settings; existing connections keep theirs.
    pub(crate) fn set_settings(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

impl FrontendCounters {
    /// Returns the current values.
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
