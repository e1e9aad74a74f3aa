//! Data plane of load balancers: sockets that forward traffic.
//!
//! Every change of a load balancer configures the data plane from the complete current record. The number of changes therefore does
//! not matter, and a restart restores all load balancers.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_agent_client::{Balancer, BalancerCheck, BalancerSettings, BalancerTarget, Listener, ListenerError};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{AddressType, Protocol};
use bowline_l4::{
    DataPlane, HealthCheck, HealthProbe, Limits, ListenerConfig, LoadBalancerConfig, LoadBalancerStatus, Target,
    Transport,
};
use tokio::runtime::Handle;

use crate::cloud::{CloudError, LocalCloud, World};

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

/// Data plane and its errors.
pub(crate) struct Sockets {
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
    /// Opens the data plane on the current runtime.
    pub(crate) fn open() -> Result<Sockets, CloudError> {
        let runtime = Handle::try_current().map_err(|_| {
            CloudError::Invalid("a cloud with a data plane must be opened on a Tokio runtime".to_owned())
        })?;
        let plane = DataPlane::new(Limits::default());
        let update_lock = tokio::sync::Mutex::default();
        let (rejected, retrying, closed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Ok(Sockets { plane, runtime, update_lock, rejected, retrying, closed })
    }

    /// Listeners of a load balancer that failed.
    pub(crate) fn errors(&self, balancer: &Balancer, addresses: impl Iterator<Item = IpAddr>) -> Vec<ListenerError> {
        let rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner).get(&balancer.id).cloned();
        match rejected {
            Some(message) => addresses.flat_map(|ip| error_for_all_listeners(balancer, ip, &message)).collect(),
            None => self.plane.status(&balancer.id).map(listener_errors).unwrap_or_default(),
        }
    }

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

impl LocalCloud {
    /// Status of a load balancer: listeners, targets, health and counters. `None` without a data plane.
    pub fn balancer_status(&self, id: &str) -> Option<LoadBalancerStatus> {
        self.shared.sockets.as_ref()?.plane.status(id)
    }

    /// Waits until the data plane has all load balancers and the kernel all routes, which otherwise happens in the background after
    /// every change.
    pub async fn ready(&self) {
        self.sync_kernel_routes().await;
        for id in self.all_balancer_ids() {
            self.update_data_plane(&id).await;
        }
    }

    /// Closes all listeners, and connections after at most `grace`. Records and kernel routes stay.
    pub async fn close(&self, grace: Duration) {
        if let Some(kernel) = &self.shared.kernel {
            kernel.close().await;
        }
        if let Some(sockets) = &self.shared.sockets {
            let _lock = sockets.update_lock.lock().await;
            sockets.closed.store(true, Ordering::SeqCst);
            sockets.plane.shutdown(grace).await;
        }
    }

    /// Updates the data plane in a task, so that it completes if the caller is cancelled.
    pub(crate) async fn update_load_balancer(&self, id: &str) {
        if let Some(sockets) = &self.shared.sockets {
            let (cloud, id) = (self.clone(), id.to_owned());
            // Fails only if the runtime shuts down.
            let _ = sockets.runtime.spawn(async move { cloud.update_data_plane(&id).await }).await;
        }
    }

    /// Updates the data plane in the background.
    pub(crate) fn spawn_updates(&self, ids: Vec<String>) {
        let Some(sockets) = self.shared.sockets.as_ref().filter(|_| !ids.is_empty()) else { return };
        let cloud = self.clone();
        sockets.runtime.spawn(async move {
            for id in ids {
                cloud.update_data_plane(&id).await;
            }
        });
    }

    /// IDs of all load balancers.
    pub(crate) fn all_balancer_ids(&self) -> Vec<String> {
        self.read(|world| world.balancers.balancers().map(|balancer| balancer.id.clone()).collect())
    }

    async fn update_data_plane(&self, id: &str) {
        let Some(sockets) = &self.shared.sockets else { return };
        let _lock = sockets.update_lock.lock().await;
        if sockets.closed.load(Ordering::SeqCst) {
            return;
        }
        let result = match self.read(|world| config(world, id)) {
            Some(config) => sockets.plane.set(id, config).await.map_err(|error| error.to_string()),
            None => {
                sockets.plane.remove(id, DRAIN).await;
                Ok(LoadBalancerStatus::default())
            }
        };
        let has_errors = |status: &LoadBalancerStatus| status.listeners.iter().any(|listener| listener.error.is_some());
        if result.as_ref().is_ok_and(has_errors) {
            self.schedule_retry(sockets, id);
        }
        sockets.record(id, result.map(drop));
    }

    /// Retries later: the cause may disappear, for instance another program that uses the port, an address that is not assigned
    /// yet, or a missing permission.
    fn schedule_retry(&self, sockets: &Sockets, id: &str) {
        if !sockets.retrying.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned()) {
            return;
        }
        let (shared, id) = (Arc::downgrade(&self.shared), id.to_owned());
        sockets.runtime.spawn(async move {
            tokio::time::sleep(RETRY).await;
            let Some(shared) = shared.upgrade() else { return };
            if let Some(sockets) = &shared.sockets {
                sockets.retrying.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            }
            LocalCloud { shared }.update_data_plane(&id).await;
        });
    }
}

// ---- configuration of the data plane

/// Configuration of a load balancer; `None` if it does not exist.
fn config(world: &World, id: &str) -> Option<LoadBalancerConfig> {
    let balancer = world.balancers.balancer(id).ok()?;
    let hosts = hosts(world, &balancer.targets);
    Some(LoadBalancerConfig {
        addresses: world.balancers.addresses_of(balancer).map(|address| address.ip).collect(),
        listeners: balancer.settings.listeners.iter().map(|item| listener(&balancer.settings, item, &hosts)).collect(),
        allow: balancer.settings.source_ranges.clone(),
        drain: DRAIN,
    })
}

/// Addresses of the targets without duplicates, and whether they are draining.
fn hosts(world: &World, targets: &[BalancerTarget]) -> Vec<(IpAddr, bool)> {
    let mut seen = HashSet::new();
    let addresses = targets.iter().filter_map(|target| Some((host(world, target)?, target.draining)));
    addresses.filter(|(ip, _)| seen.insert(*ip)).collect()
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
