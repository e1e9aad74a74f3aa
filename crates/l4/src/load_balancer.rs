//! One load balancer. A new configuration keeps unchanged listeners, opens new ones and closes removed ones.

use std::collections::{HashMap, HashSet};
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bind::{self, Binding};
use crate::connection_limit::ConnectionLimit;
use crate::filter::SourceFilter;
use crate::frontend::{Frontend, Settings};
use crate::health::HealthChecks;
use crate::pool::Pool;
use crate::tcp::Acceptor;
use crate::workers::Workers;
use crate::{Limits, ListenerConfig, ListenerStatus, LoadBalancerConfig, LoadBalancerStatus, Transport, udp};

/// State that all load balancers of a data plane share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) workers: Workers,
    pub(crate) connection_limit: Arc<ConnectionLimit>,
}

/// One load balancer.
pub(crate) struct LoadBalancer {
    /// Unique in this process.
    id: u64,
    config: LoadBalancerConfig,
    /// One pool for each port, shared by all addresses: the connections and the health of a target do not depend on the address.
    pools: HashMap<(Transport, u16), Arc<Pool>>,
    listeners: HashMap<Binding, Listener>,
    checks: HealthChecks,
}

/// A frontend and the state of its socket.
pub(crate) struct Listener {
    pub(crate) frontend: Arc<Frontend>,
    state: ListenerState,
}

enum ListenerState {
    Listening(Vec<JoinHandle<()>>),
    NotListening(String),
}

impl LoadBalancer {
    /// Creates a load balancer without listeners.
    pub(crate) fn new() -> LoadBalancer {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let drain = std::time::Duration::ZERO;
        LoadBalancer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            config: LoadBalancerConfig { addresses: Vec::new(), listeners: Vec::new(), allow: Vec::new(), drain },
            pools: HashMap::new(),
            listeners: HashMap::new(),
            checks: HealthChecks::new(),
        }
    }

    /// Removes and returns the listeners that are not in this configuration.
    pub(crate) fn take_removed(&mut self, config: &LoadBalancerConfig) -> Vec<Listener> {
        let bindings: HashSet<Binding> = bindings(config).map(|(binding, _)| binding).collect();
        let removed = self.listeners.extract_if(|binding, _| !bindings.contains(binding));
        removed.map(|(_, listener)| listener).collect()
    }

    /// Returns all listeners.
    pub(crate) fn take_all(self) -> Vec<Listener> {
        self.listeners.into_values().collect()
    }

    /// Applies a configuration; removed listeners were taken out before. `holder` returns the name of another load balancer that
    /// listens on a binding.
    pub(crate) fn apply(
        &mut self,
        config: LoadBalancerConfig,
        shared: &Shared,
        holder: impl Fn(Binding) -> Option<String>,
    ) {
        self.checks.set(&config.listeners);
        self.set_pools(&config, shared.limits.affinity_entries);
        let filter = Arc::new(SourceFilter::new(&config.allow));
        for (binding, listener) in bindings(&config) {
            let Some(pool) = self.pools.get(&(binding.transport, binding.port)) else { continue };
            let settings = settings(listener, pool, &filter);
            match self.listeners.get_mut(&binding) {
                Some(listener) => listener.frontend.set_settings(settings),
                None => drop(self.listeners.insert(binding, Listener::new(binding, self.id, settings))),
            }
        }
        for (binding, listener) in &mut self.listeners {
            listener.listen(*binding, shared, &holder);
        }
        self.config = config;
    }

    fn set_pools(&mut self, config: &LoadBalancerConfig, affinity_entries: usize) {
        let ports: HashSet<_> = config.listeners.iter().map(|listener| (listener.transport, listener.port)).collect();
        self.pools.retain(|port, _| ports.contains(port));
        for listener in &config.listeners {
            let pool = self.pools.entry((listener.transport, listener.port));
            let pool = pool.or_insert_with(|| Arc::new(Pool::new(listener, affinity_entries)));
            let check = listener.health.as_ref();
            pool.set(listener, config.drain, |target| self.checks.state(check, target));
        }
    }

    /// Returns whether this load balancer listens on the binding.
    pub(crate) fn listens_on(&self, binding: Binding) -> bool {
        self.listeners.get(&binding).is_some_and(Listener::is_listening)
    }

    /// Closes connections whose idle or drain timeout has expired.
    pub(crate) fn sweep(&self, now: Instant) {
        self.pools.values().for_each(|pool| pool.sweep(now));
        self.listeners.values().for_each(|listener| listener.sweep(now));
    }

    /// Returns the status of all listeners.
    pub(crate) fn status(&self) -> LoadBalancerStatus {
        let listeners =
            bindings(&self.config).filter_map(|(binding, _)| Some(self.listeners.get(&binding)?.status(binding)));
        LoadBalancerStatus { listeners: listeners.collect() }
    }
}

impl Listener {
    fn new(binding: Binding, owner: u64, settings: Settings) -> Listener {
        let frontend = Arc::new(Frontend::new(binding.socket_address(), owner, settings));
        Listener { frontend, state: ListenerState::NotListening(String::new()) }
    }

    /// Binds the socket, unless it is bound already.
    fn listen(&mut self, binding: Binding, shared: &Shared, holder: &impl Fn(Binding) -> Option<String>) {
        if self.is_listening() {
            return;
        }
        let opened = match binding.transport {
            Transport::Tcp => listen_tcp(&self.frontend, shared),
            Transport::Udp => listen_udp(&self.frontend, shared),
        };
        self.state = match opened {
            Ok(tasks) => ListenerState::Listening(tasks),
            Err(error) => ListenerState::NotListening(match holder(binding) {
                Some(other) => {
                    format!("address in use: load balancer {other:?} listens on {}", binding.socket_address())
                }
                None => bind::to_message(binding, &error),
            }),
        };
    }

    fn is_listening(&self) -> bool {
        matches!(self.state, ListenerState::Listening(_))
    }

    /// Stops accepting connections. The socket is closed once the returned tasks have ended.
    pub(crate) fn stop(&mut self) -> Vec<JoinHandle<()>> {
        self.frontend.stop.cancel();
        match std::mem::replace(&mut self.state, ListenerState::NotListening(String::new())) {
            ListenerState::Listening(tasks) => tasks,
            ListenerState::NotListening(_) => Vec::new(),
        }
    }

    /// Closes connections whose idle timeout has expired or whose target was removed.
    pub(crate) fn sweep(&self, now: Instant) {
        let idled = self.frontend.connections.sweep(now);
        self.frontend.counters.idled.add(idled);
    }

    fn status(&self, binding: Binding) -> ListenerStatus {
        let error = match &self.state {
            ListenerState::Listening(_) => None,
            ListenerState::NotListening(why) => Some(why.clone()),
        };
        let (counters, targets) = (self.frontend.counters.read(), self.frontend.pool().statuses());
        ListenerStatus {
            address: binding.address,
            transport: binding.transport,
            port: binding.port,
            error,
            counters,
            targets,
        }
    }
}

/// Closes the socket and all connections.
impl Drop for Listener {
    fn drop(&mut self) {
        self.frontend.stop.cancel();
        self.frontend.connections.close();
    }
}

/// Binds a TCP listener. All workers accept from the same accept queue.
fn listen_tcp(frontend: &Arc<Frontend>, shared: &Shared) -> Result<Vec<JoinHandle<()>>> {
    let listener = bind::tcp(frontend.address)?;
    let workers = shared.workers.all();
    let mut acceptors = Vec::new();
    for worker in workers.iter() {
        // Registers the socket with the runtime of the worker.
        let _entered = worker.runtime.enter();
        let listener = TcpListener::from_std(listener.try_clone()?)?;
        let (frontend, connection_limit, workers) =
            (Arc::clone(frontend), Arc::clone(&shared.connection_limit), Arc::clone(workers));
        acceptors.push(Acceptor { listener, frontend, connection_limit, workers, worker: worker.clone() });
    }
    let spawn = |acceptor: Acceptor| acceptor.worker.runtime.clone().spawn(acceptor.serve());
    Ok(acceptors.into_iter().map(spawn).collect())
}

/// Binds a UDP socket. One worker handles all flows of a socket.
fn listen_udp(frontend: &Arc<Frontend>, shared: &Shared) -> Result<Vec<JoinHandle<()>>> {
    let socket = bind::udp(frontend.address)?;
    let Some(worker) = shared.workers.by_number(usize::from(frontend.address.port())) else { return Ok(Vec::new()) };
    let _entered = worker.runtime.enter();
    let socket = UdpSocket::from_std(socket)?;
    let task = udp::serve(socket, Arc::clone(frontend), shared.limits.flows, frontend.stop.clone());
    Ok(vec![worker.runtime.spawn(task)])
}

/// Returns every listener at each address, in order.
fn bindings(config: &LoadBalancerConfig) -> impl Iterator<Item = (Binding, &ListenerConfig)> {
    config.addresses.iter().flat_map(|address| {
        let at = |listener: &ListenerConfig| Binding {
            address: *address,
            transport: listener.transport,
            port: listener.port,
        };
        config.listeners.iter().map(move |listener| (at(listener), listener))
    })
}

fn settings(listener: &ListenerConfig, pool: &Arc<Pool>, filter: &Arc<SourceFilter>) -> Settings {
    Settings {
        pool: Arc::clone(pool),
        filter: Arc::clone(filter),
        proxy_protocol: listener.proxy_protocol,
        idle_timeout: listener.idle_timeout,
        connect_timeout: listener.connect_timeout,
    }
}
