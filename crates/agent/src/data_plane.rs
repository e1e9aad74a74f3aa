//! Data plane of load balancers: sockets that forward traffic.
//!
//! ```text
//!  Records (the local cloud, an agent) ──► configuration of one load balancer ──► Sockets ──► bowline-l4
//!                                          as of now, None if it is deleted          └──► errors of listeners, retries
//! ```
//!
//! Every change of a load balancer configures the data plane from the complete current record. The number of changes therefore
//! does not matter, and a restart restores all load balancers.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_agent_client::{Balancer, BalancerCheck, BalancerSettings, BalancerTarget, Listener, ListenerError};
use bowline_core::Protocol;
use bowline_core::annotations::ProxyProtocol;
use bowline_l4::{
    DataPlane, HealthCheck, HealthProbe, Limits, ListenerConfig, LoadBalancerConfig, LoadBalancerStatus, Target,
    Transport,
};
use tokio::runtime::Handle;

use crate::balancers::Balancers;

/// Drain timeout of the connections of a removed load balancer, listener or target.
const DRAIN: Duration = Duration::from_secs(10);

/// Pause before a failed listener is retried.
const RETRY: Duration = Duration::from_secs(2);

/// Maximum timeout of a health check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of successful health checks that make a target healthy.
const RISE: u32 = 1;
/// Number of failed health checks that make a target unhealthy.
const FALL: u32 = 2;

/// Source of the records that the data plane forwards traffic for. Each update reads the current state, so a missed or repeated
/// update does no harm.
pub trait Records: Send + Sync + 'static {
    /// Returns the current configuration of a load balancer, from [`load_balancer_config`]; `None` if it has no sockets: it
    /// does not exist, or another agent forwards its traffic.
    fn config(&self, id: &str) -> Option<LoadBalancerConfig>;
}

/// Data plane and its errors. Clones share it.
#[derive(Clone)]
pub struct Sockets {
    shared: Arc<Shared>,
}

struct Shared {
    plane: DataPlane,
    runtime: Handle,
    /// Serializes changes, so that an older record never replaces a newer one.
    update_lock: tokio::sync::Mutex<()>,
    /// Load balancers that the data plane rejects, with the error.
    rejected: Mutex<BTreeMap<String, String>>,
    /// Load balancers with a scheduled retry.
    retrying: Mutex<HashSet<String>>,
    /// The data plane is shut down.
    closed: AtomicBool,
}

impl Sockets {
    /// Creates a data plane without load balancers, whose tasks run on this runtime.
    pub fn new(runtime: Handle) -> Sockets {
        let plane = DataPlane::new(Limits::default());
        let update_lock = tokio::sync::Mutex::default();
        let (rejected, retrying, closed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Sockets { shared: Arc::new(Shared { plane, runtime, update_lock, rejected, retrying, closed }) }
    }

    /// Status of a load balancer: listeners, targets, health and counters.
    pub fn status(&self, id: &str) -> Option<LoadBalancerStatus> {
        self.shared.plane.status(id)
    }

    /// Listeners of a load balancer that failed.
    pub fn errors(&self, balancer: &Balancer, addresses: impl Iterator<Item = IpAddr>) -> Vec<ListenerError> {
        let rejected = self.shared.rejected.lock().unwrap_or_else(PoisonError::into_inner).get(&balancer.id).cloned();
        match rejected {
            Some(message) => addresses.flat_map(|ip| error_for_all_listeners(balancer, ip, &message)).collect(),
            None => self.status(&balancer.id).map(listener_errors).unwrap_or_default(),
        }
    }

    /// Updates a load balancer from its record.
    pub async fn update<R: Records>(&self, records: &Arc<R>, id: &str) {
        let shared = &*self.shared;
        let _lock = shared.update_lock.lock().await;
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        let result = match records.config(id) {
            Some(config) => shared.plane.set(id, config).await.map_err(|error| error.to_string()),
            None => {
                shared.plane.remove(id, DRAIN).await;
                Ok(LoadBalancerStatus::default())
            }
        };
        let has_errors = |status: &LoadBalancerStatus| status.listeners.iter().any(|listener| listener.error.is_some());
        if result.as_ref().is_ok_and(has_errors) {
            self.schedule_retry(records, id);
        }
        shared.record(id, result.map(drop));
    }

    /// Updates a load balancer in a task, so that the update completes if the caller is cancelled.
    pub async fn update_in_task<R: Records>(&self, records: &Arc<R>, id: &str) {
        let (sockets, records, id) = (self.clone(), records.clone(), id.to_owned());
        // Fails only if the runtime shuts down.
        let _ = self.shared.runtime.spawn(async move { sockets.update(&records, &id).await }).await;
    }

    /// Updates load balancers in the background.
    pub fn spawn_updates<R: Records>(&self, records: &Arc<R>, ids: Vec<String>) {
        if ids.is_empty() {
            return;
        }
        let (sockets, records) = (self.clone(), records.clone());
        self.shared.runtime.spawn(async move {
            for id in ids {
                sockets.update(&records, &id).await;
            }
        });
    }

    /// Closes all listeners, and connections after at most `grace`.
    pub async fn close(&self, grace: Duration) {
        let _lock = self.shared.update_lock.lock().await;
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.plane.shutdown(grace).await;
    }

    /// Retries later: the cause may disappear, for instance another program that uses the port, an address that is not assigned
    /// yet, or a missing permission. Ends when the records or the sockets are dropped.
    fn schedule_retry<R: Records>(&self, records: &Arc<R>, id: &str) {
        if !self.shared.retrying.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned()) {
            return;
        }
        let (shared, records, id) = (Arc::downgrade(&self.shared), Arc::downgrade(records), id.to_owned());
        self.shared.runtime.spawn(async move {
            tokio::time::sleep(RETRY).await;
            let (Some(shared), Some(records)) = (shared.upgrade(), records.upgrade()) else { return };
            shared.retrying.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            Sockets { shared }.update(&records, &id).await;
        });
    }
}

impl Shared {
    fn record(&self, id: &str, result: Result<(), String>) {
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => drop(rejected.remove(id)),
            Err(message) => {
                tracing::warn!(balancer = id, %message, "the data plane rejected a load balancer");
                rejected.insert(id.to_owned(), message);
            }
        }
    }
}

fn error_for_all_listeners(balancer: &Balancer, ip: IpAddr, message: &str) -> Vec<ListenerError> {
    let listeners = balancer.settings.listeners.iter();
    let error = |listener: &Listener| ListenerError {
        ip,
        protocol: listener.protocol,
        port: listener.port,
        message: message.to_owned(),
    };
    listeners.map(error).collect()
}

fn listener_errors(status: LoadBalancerStatus) -> Vec<ListenerError> {
    let failed = status.listeners.into_iter().filter_map(|listener| {
        let protocol = if listener.transport == Transport::Tcp { Protocol::Tcp } else { Protocol::Udp };
        Some(ListenerError { ip: listener.address, protocol, port: listener.port, message: listener.error? })
    });
    failed.collect()
}

// ---- configuration of the data plane

/// Configuration of a load balancer; `None` if it does not exist. `host` returns the address of a target, if it has one;
/// agents pass [`target_host`].
pub fn load_balancer_config(
    balancers: &Balancers,
    id: &str,
    host: impl Fn(&BalancerTarget) -> Option<IpAddr>,
) -> Option<LoadBalancerConfig> {
    let balancer = balancers.balancer(id).ok()?;
    let hosts = hosts(&balancer.targets, host);
    Some(LoadBalancerConfig {
        addresses: balancers.addresses_of(balancer).map(|address| address.ip).collect(),
        listeners: balancer.settings.listeners.iter().map(|item| listener(&balancer.settings, item, &hosts)).collect(),
        allow: balancer.settings.source_ranges.clone(),
        drain: DRAIN,
    })
}

/// First address of a target.
pub fn target_host(target: &BalancerTarget) -> Option<IpAddr> {
    target.addresses.first().copied()
}

/// Addresses of the targets without duplicates, and whether they are draining.
fn hosts(targets: &[BalancerTarget], host: impl Fn(&BalancerTarget) -> Option<IpAddr>) -> Vec<(IpAddr, bool)> {
    let mut seen = HashSet::new();
    let addresses = targets.iter().filter_map(|target| Some((host(target)?, target.draining)));
    addresses.filter(|(ip, _)| seen.insert(*ip)).collect()
}

fn listener(settings: &BalancerSettings, listener: &Listener, hosts: &[(IpAddr, bool)]) -> ListenerConfig {
    let transport = if listener.protocol == Protocol::Udp { Transport::Udp } else { Transport::Tcp };
    let target = |(ip, draining): &(IpAddr, bool)| Target {
        draining: *draining,
        ..Target::new(SocketAddr::new(*ip, listener.node_port))
    };
    let default = ListenerConfig::new(transport, listener.port, hosts.iter().map(target).collect());
    ListenerConfig {
        affinity: settings.affinity_seconds.map(|seconds| Duration::from_secs(seconds.max(1).into())),
        health: settings.health_check.as_ref().and_then(|check| health(check, transport)),
        proxy_protocol: settings.proxy_protocol.filter(|_| transport == Transport::Tcp).map(proxy_protocol),
        idle_timeout: settings.idle_timeout_millis.map_or(default.idle_timeout, Duration::from_millis),
        ..default
    }
}

/// Health check of a listener. A UDP port itself cannot be checked.
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
