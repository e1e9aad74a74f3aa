//! The sockets behind the records.
//!
//! A change of a balancer's record is carried over to the data plane whole: what the record says now is what is set. So it
//! does not matter how many changes there were, and after a restart all are set up as they were.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_core::annotations::ProxyProtocol;
use bowline_core::{AddressType, Protocol};
use bowline_l4::{
    BalancerConfig, BalancerStatus, DataPlane, HealthCheck, HealthProbe, Limits, ListenerConfig, Target, Transport,
};
use tokio::runtime::Handle;

use crate::balancers::{Balancer, BalancerCheck, BalancerSettings, BalancerTarget, Listener, ListenerError};
use crate::cloud::{CloudError, LocalCloud, World};

/// How long connections of a balancer, a listener or a target that is gone may go on.
const DRAIN: Duration = Duration::from_secs(10);

/// After this long a port that cannot be listened on is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The longest that a target may take to say whether it works.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// One answer makes a target healthy, two failures in a row make it unhealthy.
const RISE: u32 = 1;
const FALL: u32 = 2;

/// A data plane, and what it was not able to do.
pub(crate) struct Sockets {
    plane: DataPlane,
    home: Handle,
    /// One change at a time, so that an older record never replaces a newer one.
    turn: tokio::sync::Mutex<()>,
    /// Balancers that make no sense to the data plane, and why.
    refused: Mutex<BTreeMap<String, String>>,
    /// Balancers that are set again in a moment.
    retrying: Mutex<HashSet<String>>,
    /// Nothing is to listen any more.
    closed: AtomicBool,
}

impl Sockets {
    /// On the runtime on which this is called.
    pub(crate) fn open() -> Result<Sockets, CloudError> {
        let home = Handle::try_current().map_err(|_| {
            CloudError::Invalid("a cloud with a data plane must be opened on a Tokio runtime".to_owned())
        })?;
        let plane = DataPlane::new(Limits::default());
        let turn = tokio::sync::Mutex::default();
        let (refused, retrying, closed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Ok(Sockets { plane, home, turn, refused, retrying, closed })
    }

    /// What a balancer cannot listen on.
    pub(crate) fn errors(&self, balancer: &Balancer, addresses: impl Iterator<Item = IpAddr>) -> Vec<ListenerError> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).get(&balancer.id).cloned();
        match refused {
            Some(message) => addresses.flat_map(|ip| refused_everywhere(balancer, ip, &message)).collect(),
            None => self.plane.status(&balancer.id).map(listener_errors).unwrap_or_default(),
        }
    }

    fn remember(&self, id: &str, outcome: Result<(), String>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(()) => drop(refused.remove(id)),
            Err(message) => {
                tracing::warn!(balancer = id, %message, "a balancer cannot carry traffic");
                refused.insert(id.to_owned(), message);
            }
        }
    }
}

fn refused_everywhere(balancer: &Balancer, ip: IpAddr, message: &str) -> Vec<ListenerError> {
    let listeners = balancer.settings.listeners.iter();
    let error = |listener: &Listener| ListenerError {
        ip,
        protocol: listener.protocol,
        port: listener.port,
        message: message.to_owned(),
    };
    listeners.map(error).collect()
}

fn listener_errors(status: BalancerStatus) -> Vec<ListenerError> {
    let failed = status.listeners.into_iter().filter_map(|listener| {
        let protocol = if listener.transport == Transport::Tcp { Protocol::Tcp } else { Protocol::Udp };
        Some(ListenerError { ip: listener.address, protocol, port: listener.port, message: listener.error? })
    });
    failed.collect()
}

impl LocalCloud {
    /// How a balancer is doing: listeners, targets, their health, counters. `None` without a data plane.
    pub fn balancer_status(&self, id: &str) -> Option<BalancerStatus> {
        self.shared.sockets.as_ref()?.plane.status(id)
    }

    /// Returns once the data plane has all balancers as they are now, and the kernel was told of all routes, as they soon
    /// are after every change anyway.
    pub async fn ready(&self) {
        self.forward().await;
        for id in self.all_balancer_ids() {
            self.carry_over(&id).await;
        }
    }

    /// Closes the data plane: nothing listens any more, and connections may go on for at most `patience`. The records stay,
    /// and so do routes of the kernel.
    pub async fn close(&self, patience: Duration) {
        if let Some(kernel) = &self.shared.kernel {
            kernel.close().await;
        }
        if let Some(sockets) = &self.shared.sockets {
            let _turn = sockets.turn.lock().await;
            sockets.closed.store(true, Ordering::SeqCst);
            sockets.plane.shutdown(patience).await;
        }
    }

    /// Carries over a change, and is not cut off if the one who waits for it goes away.
    pub(crate) async fn serve(&self, id: &str) {
        if let Some(sockets) = &self.shared.sockets {
            let (cloud, id) = (self.clone(), id.to_owned());
            // It ends early only if the runtime ends.
            let _ = sockets.home.spawn(async move { cloud.carry_over(&id).await }).await;
        }
    }

    /// Carries over changes, some time soon.
    pub(crate) fn serve_soon(&self, ids: Vec<String>) {
        let Some(sockets) = self.shared.sockets.as_ref().filter(|_| !ids.is_empty()) else { return };
        let cloud = self.clone();
        sockets.home.spawn(async move {
            for id in ids {
                cloud.carry_over(&id).await;
            }
        });
    }

    /// The IDs of all balancers.
    pub(crate) fn all_balancer_ids(&self) -> Vec<String> {
        self.read(|world| world.balancers.balancers().map(|balancer| balancer.id.clone()).collect())
    }

    async fn carry_over(&self, id: &str) {
        let Some(sockets) = &self.shared.sockets else { return };
        let _turn = sockets.turn.lock().await;
        if sockets.closed.load(Ordering::SeqCst) {
            return;
        }
        let outcome = match self.read(|world| config(world, id)) {
            Some(config) => sockets.plane.set(id, config).await.map_err(|error| error.to_string()),
            None => {
                sockets.plane.remove(id, DRAIN).await;
                Ok(BalancerStatus::default())
            }
        };
        let silent = |status: &BalancerStatus| status.listeners.iter().any(|listener| listener.error.is_some());
        if outcome.as_ref().is_ok_and(silent) {
            self.serve_again(sockets, id);
        }
        sockets.remember(id, outcome.map(drop));
    }

    /// What keeps a balancer from listening may go away by itself: another program that has the port, an address that is
    /// not there yet, a missing right.
    fn serve_again(&self, sockets: &Sockets, id: &str) {
        if !sockets.retrying.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned()) {
            return;
        }
        let (shared, id) = (Arc::downgrade(&self.shared), id.to_owned());
        sockets.home.spawn(async move {
            tokio::time::sleep(RETRY).await;
            let Some(shared) = shared.upgrade() else { return };
            if let Some(sockets) = &shared.sockets {
                sockets.retrying.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            }
            LocalCloud { shared }.carry_over(&id).await;
        });
    }
}

// ---- from records to the data plane's words

/// What the data plane has to know of a balancer; `None` if there is none.
fn config(world: &World, id: &str) -> Option<BalancerConfig> {
    let balancer = world.balancers.balancer(id).ok()?;
    let hosts = hosts(world, &balancer.targets);
    Some(BalancerConfig {
        addresses: world.balancers.addresses_of(balancer).map(|address| address.ip).collect(),
        listeners: balancer.settings.listeners.iter().map(|one| listener(&balancer.settings, one, &hosts)).collect(),
        allow: balancer.settings.source_ranges.clone(),
        drain: DRAIN,
    })
}

/// Where targets are reached, each place once, and whether they are leaving.
fn hosts(world: &World, targets: &[BalancerTarget]) -> Vec<(IpAddr, bool)> {
    let mut seen = HashSet::new();
    let reached = targets.iter().filter_map(|target| Some((host(world, target)?, target.draining)));
    reached.filter(|(ip, _)| seen.insert(*ip)).collect()
}

fn host(world: &World, target: &BalancerTarget) -> Option<IpAddr> {
    target.addresses.first().copied().or_else(|| {
        let machine = world.fleet.get(target.machine.as_deref()?).ok()?;
        let internal = machine.spec.addresses.iter().filter(|address| address.kind == AddressType::InternalIP);
        internal.filter_map(|address| address.address.parse().ok()).next()
    })
}

fn listener(settings: &BalancerSettings, listener: &Listener, hosts: &[(IpAddr, bool)]) -> ListenerConfig {
    let transport = if listener.protocol == Protocol::Udp { Transport::Udp } else { Transport::Tcp };
    let target = |(ip, draining): &(IpAddr, bool)| Target {
        draining: *draining,
        ..Target::new(SocketAddr::new(*ip, listener.node_port))
    };
    let usual = ListenerConfig::new(transport, listener.port, hosts.iter().map(target).collect());
    ListenerConfig {
        affinity: settings.affinity_seconds.map(|seconds| Duration::from_secs(seconds.max(1).into())),
        health: settings.health_check.as_ref().and_then(|check| health(check, transport)),
        proxy_protocol: settings.proxy_protocol.filter(|_| transport == Transport::Tcp).map(proxy_protocol),
        idle_timeout: settings.idle_timeout_millis.map_or(usual.idle_timeout, Duration::from_millis),
        ..usual
    }
}

/// A UDP port itself cannot be asked.
fn health(check: &BalancerCheck, transport: Transport) -> Option<HealthCheck> {
    if transport == Transport::Udp && check.port.is_none() {
        return None;
    }
    let interval = Duration::from_millis(check.interval_millis);
    Some(HealthCheck {
        probe: check.path.clone().map_or(HealthProbe::Tcp, |path| HealthProbe::Http { path }),
        port: check.port,
        interval,
        timeout: interval.min(CHECK_TIMEOUT),
        rise: RISE,
        fall: FALL,
    })
}

fn proxy_protocol(version: ProxyProtocol) -> bowline_l4::ProxyProtocol {
    match version {
        ProxyProtocol::V1 => bowline_l4::ProxyProtocol::V1,
        ProxyProtocol::V2 => bowline_l4::ProxyProtocol::V2,
    }
}
