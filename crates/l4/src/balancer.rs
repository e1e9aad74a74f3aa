//! One balancer: what is the same in a new configuration goes on, what is new is opened, what is gone is closed.

use std::collections::{HashMap, HashSet};
use std::io::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bind::{self, Spot};
use crate::crowd::Crowd;
use crate::filter::SourceFilter;
use crate::frontend::{Frontend, Rules};
use crate::health::HealthChecks;
use crate::pool::Pool;
use crate::tcp::Acceptor;
use crate::workers::Workers;
use crate::{BalancerConfig, BalancerStatus, Limits, ListenerConfig, ListenerStatus, Transport, udp};

/// What all balancers of a data plane share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) workers: Workers,
    /// Room for TCP connections.
    pub(crate) crowd: Arc<Crowd>,
}

/// One balancer.
pub(crate) struct Balancer {
    /// Unique in this process.
    id: u64,
    config: BalancerConfig,
    /// One for each port, shared by all addresses: a target's connections and health are the same at each.
    pools: HashMap<(Transport, u16), Arc<Pool>>,
    doors: HashMap<Spot, Door>,
    checks: HealthChecks,
}

/// A frontend and whether it is open.
pub(crate) struct Door {
    pub(crate) frontend: Arc<Frontend>,
    state: DoorState,
}

enum DoorState {
    Open(Vec<JoinHandle<()>>),
    Shut(String),
}

impl Balancer {
    /// One that listens nowhere yet.
    pub(crate) fn new() -> Balancer {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let drain = std::time::Duration::ZERO;
        Balancer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            config: BalancerConfig { addresses: Vec::new(), listeners: Vec::new(), allow: Vec::new(), drain },
            pools: HashMap::new(),
            doors: HashMap::new(),
            checks: HealthChecks::new(),
        }
    }

    /// Takes out what this configuration does not want any more.
    pub(crate) fn take_unwanted(&mut self, config: &BalancerConfig) -> Vec<Door> {
        let wanted: HashSet<Spot> = spots(config).map(|(spot, _)| spot).collect();
        let unwanted = self.doors.extract_if(|spot, _| !wanted.contains(spot));
        unwanted.map(|(_, door)| door).collect()
    }

    /// Takes everything out.
    pub(crate) fn take_all(self) -> Vec<Door> {
        self.doors.into_values().collect()
    }

    /// From now on it is like this; what is unwanted was taken out before. `holder` names the other balancer at a spot.
    pub(crate) fn apply(&mut self, config: BalancerConfig, shared: &Shared, holder: impl Fn(Spot) -> Option<String>) {
        self.checks.set(&config.listeners);
        self.set_pools(&config, shared.limits.affinity_entries);
        let filter = Arc::new(SourceFilter::new(&config.allow));
        for (spot, listener) in spots(&config) {
            let Some(pool) = self.pools.get(&(spot.transport, spot.port)) else { continue };
            let rules = rules(listener, pool, &filter);
            match self.doors.get_mut(&spot) {
                Some(door) => door.frontend.set_rules(rules),
                None => drop(self.doors.insert(spot, Door::new(spot, self.id, rules))),
            }
        }
        for (spot, door) in &mut self.doors {
            door.open(*spot, shared, &holder);
        }
        self.config = config;
    }

    fn set_pools(&mut self, config: &BalancerConfig, affinity_entries: usize) {
        let ports: HashSet<_> = config.listeners.iter().map(|listener| (listener.transport, listener.port)).collect();
        self.pools.retain(|port, _| ports.contains(port));
        for listener in &config.listeners {
            let pool = self.pools.entry((listener.transport, listener.port));
            let pool = pool.or_insert_with(|| Arc::new(Pool::new(listener, affinity_entries)));
            let check = listener.health.as_ref();
            pool.set(listener, config.drain, |target| self.checks.verdict(check, target));
        }
    }

    /// Whether it listens there.
    pub(crate) fn holds(&self, spot: Spot) -> bool {
        self.doors.get(&spot).is_some_and(Door::is_open)
    }

    /// Ends what has had its time.
    pub(crate) fn sweep(&self, now: Instant) {
        self.pools.values().for_each(|pool| pool.sweep(now));
        self.doors.values().for_each(|door| door.sweep(now));
    }

    /// How it is doing.
    pub(crate) fn status(&self) -> BalancerStatus {
        let listeners = spots(&self.config).filter_map(|(spot, _)| Some(self.doors.get(&spot)?.status(spot)));
        BalancerStatus { listeners: listeners.collect() }
    }
}

impl Door {
    fn new(spot: Spot, owner: u64, rules: Rules) -> Door {
        let frontend = Arc::new(Frontend::new(spot.socket_address(), owner, rules));
        Door { frontend, state: DoorState::Shut(String::new()) }
    }

    /// Tries to listen, if it does not yet.
    fn open(&mut self, spot: Spot, shared: &Shared, holder: &impl Fn(Spot) -> Option<String>) {
        if self.is_open() {
            return;
        }
        let opened = match spot.transport {
            Transport::Tcp => open_tcp(&self.frontend, shared),
            Transport::Udp => open_udp(&self.frontend, shared),
        };
        self.state = match opened {
            Ok(tasks) => DoorState::Open(tasks),
            Err(error) => DoorState::Shut(match holder(spot) {
                Some(other) => format!("address in use: balancer {other:?} listens on {}", spot.socket_address()),
                None => bind::explain(spot, &error),
            }),
        };
    }

    fn is_open(&self) -> bool {
        matches!(self.state, DoorState::Open(_))
    }

    /// Nothing new is let in from now on. Nothing listens any more when these tasks have ended.
    pub(crate) fn shut(&mut self) -> Vec<JoinHandle<()>> {
        self.frontend.stop.cancel();
        match std::mem::replace(&mut self.state, DoorState::Shut(String::new())) {
            DoorState::Open(tasks) => tasks,
            DoorState::Shut(_) => Vec::new(),
        }
    }

    /// Ends what has had its time.
    pub(crate) fn sweep(&self, now: Instant) {
        let idled = self.frontend.connections.sweep(now);
        self.frontend.counters.idled.add(idled);
    }

    fn status(&self, spot: Spot) -> ListenerStatus {
        let error = match &self.state {
            DoorState::Open(_) => None,
            DoorState::Shut(why) => Some(why.clone()),
        };
        let (counters, targets) = (self.frontend.counters.read(), self.frontend.pool().statuses());
        ListenerStatus { address: spot.address, transport: spot.transport, port: spot.port, error, counters, targets }
    }
}

/// Ends everything.
impl Drop for Door {
    fn drop(&mut self) {
        self.frontend.stop.cancel();
        self.frontend.connections.close();
    }
}

/// Every worker accepts from the same queue of the kernel.
fn open_tcp(frontend: &Arc<Frontend>, shared: &Shared) -> Result<Vec<JoinHandle<()>>> {
    let listener = bind::tcp(frontend.address)?;
    let crew = shared.workers.all();
    let mut acceptors = Vec::new();
    for here in crew.iter() {
        // From here the socket is watched by the runtime of the worker.
        let _entered = here.runtime.enter();
        let listener = TcpListener::from_std(listener.try_clone()?)?;
        let (frontend, crowd, crew) = (Arc::clone(frontend), Arc::clone(&shared.crowd), Arc::clone(crew));
        acceptors.push(Acceptor { listener, frontend, crowd, crew, here: here.clone() });
    }
    let spawn = |acceptor: Acceptor| acceptor.here.runtime.clone().spawn(acceptor.serve());
    Ok(acceptors.into_iter().map(spawn).collect())
}

/// One worker carries all flows of a socket.
fn open_udp(frontend: &Arc<Frontend>, shared: &Shared) -> Result<Vec<JoinHandle<()>>> {
    let socket = bind::udp(frontend.address)?;
    let Some(worker) = shared.workers.one(usize::from(frontend.address.port())) else { return Ok(Vec::new()) };
    let _entered = worker.runtime.enter();
    let socket = UdpSocket::from_std(socket)?;
    let task = udp::serve(socket, Arc::clone(frontend), shared.limits.flows, frontend.stop.clone());
    Ok(vec![worker.runtime.spawn(task)])
}

/// Every listener at each address, in order.
fn spots(config: &BalancerConfig) -> impl Iterator<Item = (Spot, &ListenerConfig)> {
    config.addresses.iter().flat_map(|address| {
        let at =
            |listener: &ListenerConfig| Spot { address: *address, transport: listener.transport, port: listener.port };
        config.listeners.iter().map(move |listener| (at(listener), listener))
    })
}

fn rules(listener: &ListenerConfig, pool: &Arc<Pool>, filter: &Arc<SourceFilter>) -> Rules {
    Rules {
        pool: Arc::clone(pool),
        filter: Arc::clone(filter),
        proxy_protocol: listener.proxy_protocol,
        idle_timeout: listener.idle_timeout,
        connect_timeout: listener.connect_timeout,
    }
}
