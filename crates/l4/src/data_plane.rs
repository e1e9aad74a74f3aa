//! All load balancers by name, and removed listeners that are draining.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{self, Instant};

use crate::connection_limit::ConnectionLimit;
use crate::load_balancer::{Listener, LoadBalancer, Shared};
use crate::validate::{self, ConfigError, MAX_DURATION};
use crate::workers::Workers;
use crate::{Limits, LoadBalancerConfig, LoadBalancerStatus, open_files};

/// Interval of the sweep that enforces idle and drain timeouts. Connections may last this much longer than configured.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Upper bound of the connection limit, so that the semaphore can count it.
const MAX_CONNECTIONS: usize = u32::MAX as usize >> 3;

/// A set of load balancers. Clones share the same data plane; dropping the last one closes everything.
#[derive(Clone)]
pub struct DataPlane {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Handle,
    shared: Shared,
    /// Serialises updates.
    update: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    load_balancers: BTreeMap<String, LoadBalancer>,
    draining: Vec<Draining>,
}

/// A removed listener, and the end of its drain timeout.
struct Draining {
    listener: Listener,
    until: Instant,
}

impl DataPlane {
    /// Creates a data plane without load balancers.
    ///
    /// Must be called on a Tokio runtime, which runs everything that does not run on the threads of [`Limits::threads`]. Raises
    /// the process's soft limit of open files to the hard limit.
    pub fn new(limits: Limits) -> DataPlane {
        open_files::raise_limit();
        let runtime = Handle::current();
        let workers = Workers::start(limits.threads, &runtime);
        let connection_limit = Arc::new(ConnectionLimit::new(max_connections(&limits), limits.evict_idle_after));
        let shared = Shared { limits, workers, connection_limit };
        let (update, state) = (tokio::sync::Mutex::default(), Mutex::default());
        let inner = Arc::new(Inner { runtime, shared, update, state });
        inner.runtime.spawn(sweep(Arc::downgrade(&inner)));
        DataPlane { inner }
    }

    /// Creates or updates the load balancer of this name. Sockets are bound when this returns; the returned status reports those
    /// that could not be.
    pub async fn set(&self, name: &str, config: LoadBalancerConfig) -> Result<LoadBalancerStatus, ConfigError> {
        validate::load_balancer(&config)?;
        let _update = self.inner.update.lock().await;
        let removed = match self.inner.state().load_balancers.get_mut(name) {
            Some(load_balancer) => load_balancer.take_removed(&config),
            None => Vec::new(),
        };
        self.inner.drain(removed, config.drain).await;
        Ok(self.inner.apply(name, config))
    }

    /// Removes the load balancer of this name, if it exists. Its sockets are closed when this returns; established connections
    /// drain in the background for at most `drain`.
    pub async fn remove(&self, name: &str, drain: Duration) {
        let _update = self.inner.update.lock().await;
        let removed = self.inner.state().load_balancers.remove(name);
        if let Some(load_balancer) = removed {
            self.inner.drain(load_balancer.take_all(), drain).await;
        }
    }

    /// Returns the status of a load balancer.
    pub fn status(&self, name: &str) -> Option<LoadBalancerStatus> {
        self.inner.state().load_balancers.get(name).map(LoadBalancer::status)
    }

    /// Returns the names of all load balancers, sorted.
    pub fn names(&self) -> Vec<String> {
        self.inner.state().load_balancers.keys().cloned().collect()
    }

    /// Removes all load balancers, waits for at most `timeout` until their connections end, and closes the rest.
    pub async fn shutdown(&self, timeout: Duration) {
        let _update = self.inner.update.lock().await;
        let load_balancers = std::mem::take(&mut self.inner.state().load_balancers);
        let listeners = load_balancers.into_values().flat_map(LoadBalancer::take_all).collect();
        self.inner.drain(listeners, timeout).await;
        let connection_limit = &self.inner.shared.connection_limit;
        if time::timeout(timeout.min(MAX_DURATION), connection_limit.wait_until_empty()).await.is_err() {
            self.inner.state().draining.clear();
            connection_limit.wait_until_empty().await;
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the sockets of these listeners and lets their connections drain for at most `drain`.
    async fn drain(&self, mut listeners: Vec<Listener>, drain: Duration) {
        let until = Instant::now() + drain.min(MAX_DURATION);
        let tasks: Vec<_> = listeners.iter_mut().flat_map(Listener::stop).collect();
        // Before the first await, so that they drain even if the caller drops this future.
        self.state().draining.extend(listeners.into_iter().map(|listener| Draining { listener, until }));
        for task in tasks {
            // A task that was cancelled has closed its socket as well.
            let _ = task.await;
        }
        self.state().sweep(Instant::now());
    }

    fn apply(&self, name: &str, config: LoadBalancerConfig) -> LoadBalancerStatus {
        // Health checks are spawned on the runtime of the data plane, whichever runtime calls this.
        let _entered = self.runtime.enter();
        let mut state = self.state();
        let mut load_balancer = state.load_balancers.remove(name).unwrap_or_else(LoadBalancer::new);
        load_balancer.apply(config, &self.shared, |binding| {
            state.load_balancers.iter().find(|(_, other)| other.listens_on(binding)).map(|(name, _)| name.clone())
        });
        // Closes the connections of removed targets that have no drain timeout.
        load_balancer.sweep(Instant::now());
        let status = load_balancer.status();
        state.load_balancers.insert(name.to_owned(), load_balancer);
        status
    }
}

impl State {
    fn sweep(&mut self, now: Instant) {
        self.load_balancers.values().for_each(|load_balancer| load_balancer.sweep(now));
        self.draining.retain(|draining| {
            draining.listener.frontend.pool().sweep(now);
            draining.listener.sweep(now);
            draining.until > now && !draining.listener.frontend.connections.is_empty()
        });
    }
}

/// Returns the smallest of the configured limit, the number that the open-files limit allows, and [`MAX_CONNECTIONS`].
fn max_connections(limits: &Limits) -> usize {
    let possible = open_files::max_connections().unwrap_or(usize::MAX);
    if possible < limits.connections {
        tracing::info!(limit = limits.connections, possible, "the open-files limit lowers the connection limit");
    }
    limits.connections.min(possible).min(MAX_CONNECTIONS)
}

/// Sweeps until the data plane is dropped.
async fn sweep(inner: Weak<Inner>) {
    loop {
        time::sleep(SWEEP_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.state().sweep(Instant::now());
    }
}
