//! What a wish means in terms of this cloud.

use std::net::IpAddr;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use bowline_core::annotations::{HEALTH_CHECK_INTERVAL, IDLE_TIMEOUT};
use bowline_core::service::default_load_balancer_name;
use bowline_core::{DesiredLoadBalancer, IpFamily, LoadBalancerSpec, PortSpec, Protocol, SessionAffinity};

use crate::balancers::{AddressWish, Asking, BalancerCheck, BalancerSettings, Listener, family_of};

/// The pause between two health checks where the user does not say.
const CHECK_INTERVAL_MILLIS: u64 = 3000;

/// The times that this cloud can keep.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why a wish cannot be fulfilled by this cloud, whatever it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Impossible {
    /// The cloud does not do that.
    #[error("{0}")]
    Unsupported(String),
    /// The wish makes no sense.
    #[error("{0}")]
    Invalid(String),
}

impl Impossible {
    pub(super) fn explain(&self, operation: &str) -> Error {
        let kind = match self {
            Impossible::Unsupported(_) => ErrorKind::Unsupported,
            Impossible::Invalid(_) => ErrorKind::InvalidConfig,
        };
        Error::new(kind, operation, self.to_string())
    }
}

/// Who asks, and what stands in the way of what. For a balancer that is to go nothing can be in the way.
pub(super) fn asking(desired: &DesiredLoadBalancer) -> Result<Asking, Impossible> {
    let Some(spec) = &desired.spec else {
        return Ok(Asking { key: desired.key.clone(), name: None, adopt: None, addresses: Vec::new() });
    };
    Ok(Asking {
        key: desired.key.clone(),
        name: Some(default_load_balancer_name(&desired.key.uid)),
        adopt: desired.settings.adopt.clone(),
        addresses: addresses(desired, spec)?,
    })
}

/// One address of each family.
fn addresses(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Result<Vec<AddressWish>, Impossible> {
    let requested = requested(spec)?;
    let mut families = spec.ip_families.clone();
    if families.is_empty() {
        families.push(requested.as_ref().map_or(IpFamily::IPv4, family_of));
    }
    let mut seen = Vec::new();
    families.retain(|family| {
        !seen.contains(family) && {
            seen.push(*family);
            true
        }
    });
    if let Some(ip) = requested.filter(|ip| !families.contains(&family_of(ip))) {
        return Err(Impossible::Invalid(format!(
            "the address {ip} that is asked for is of none of the Service's families"
        )));
    }
    let address = |family| AddressWish {
        family,
        internal: desired.settings.internal,
        share_group: desired.settings.share_group.clone(),
        ip: requested.filter(|ip| family_of(ip) == family),
    };
    Ok(families.into_iter().map(address).collect())
}

fn requested(spec: &LoadBalancerSpec) -> Result<Option<IpAddr>, Impossible> {
    let Some(text) = spec.requested_address.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    let invalid = |_| Impossible::Invalid(format!("the address {text:?} that is asked for is not an IP address"));
    text.parse().map(Some).map_err(invalid)
}

/// What the balancer is to do.
pub(super) fn settings(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Result<BalancerSettings, Impossible> {
    let settings = &desired.settings;
    // Their order means nothing, so another order must not look like a change.
    let mut listeners = spec.ports.iter().map(listener).collect::<Result<Vec<_>, _>>()?;
    listeners.sort_by_key(|listener| (listener.port, listener.protocol));
    let mut source_ranges = spec.source_ranges.clone();
    source_ranges.sort_unstable();
    source_ranges.dedup();
    Ok(BalancerSettings {
        internal: settings.internal,
        listeners,
        source_ranges,
        affinity_seconds: match spec.session_affinity {
            SessionAffinity::None => None,
            SessionAffinity::ClientIp { timeout_seconds } => Some(timeout_seconds),
        },
        health_check: Some(health_check(desired, spec)?),
        proxy_protocol: settings.proxy_protocol,
        idle_timeout_millis: millis(IDLE_TIMEOUT.key, settings.idle_timeout)?,
    })
}

fn listener(port: &PortSpec) -> Result<Listener, Impossible> {
    let PortSpec { protocol, port, node_port, .. } = *port;
    if protocol == Protocol::Sctp {
        return Err(Impossible::Unsupported(format!("port {port}: this cloud balances TCP and UDP, not SCTP")));
    }
    let missing =
        || Impossible::Unsupported(format!("port {port}: this cloud balances to node ports, and there is none"));
    Ok(Listener { protocol, port, node_port: node_port.ok_or_else(missing)? })
}

/// With the policy Local the node itself says whether it wants traffic, unless the user names another to ask. Without
/// either a node whose port takes no connection gets none.
fn health_check(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Result<BalancerCheck, Impossible> {
    let (settings, own) = (&desired.settings, spec.health_check.as_ref());
    let interval = millis(HEALTH_CHECK_INTERVAL.key, settings.health_check_interval)?;
    Ok(BalancerCheck {
        path: settings.health_check_path.clone().or_else(|| own.map(|own| own.path.clone())),
        port: settings.health_check_port.or_else(|| own.map(|own| own.port)),
        interval_millis: interval.unwrap_or(CHECK_INTERVAL_MILLIS),
    })
}

/// A time that the cloud can keep.
fn millis(annotation: &str, time: Option<Duration>) -> Result<Option<u64>, Impossible> {
    let Some(time) = time else { return Ok(None) };
    if !(SHORTEST..=LONGEST).contains(&time) {
        return Err(Impossible::Invalid(format!(
            "{annotation}: this cloud keeps times from 1ms to 8760h, which is a year"
        )));
    }
    Ok(u64::try_from(time.as_millis()).ok())
}
