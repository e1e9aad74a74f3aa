//! Desired state of a Service in terms of this cloud.

use std::net::IpAddr;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use bowline_core::annotations::{HEALTH_CHECK_INTERVAL, IDLE_TIMEOUT};
use bowline_core::service::default_load_balancer_name;
use bowline_core::{DesiredLoadBalancer, IpFamily, LoadBalancerSpec, PortSpec, Protocol, SessionAffinity};

use crate::calls::{AddressRequest, Query};
use crate::records::{BalancerCheck, BalancerSettings, Listener, family_of};

/// Default health check interval.
const CHECK_INTERVAL_MILLIS: u64 = 3000;

/// Minimum duration that this cloud supports.
const MIN_DURATION: Duration = Duration::from_millis(1);
/// Maximum duration that this cloud supports.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// Reason why this cloud cannot provide the desired state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DesiredError {
    /// The cloud does not support it.
    #[error("{0}")]
    Unsupported(String),
    /// The desired state is invalid.
    #[error("{0}")]
    Invalid(String),
}

impl DesiredError {
    pub(super) fn to_error(&self, operation: &str) -> Error {
        let kind = match self {
            DesiredError::Unsupported(_) => ErrorKind::Unsupported,
            DesiredError::Invalid(_) => ErrorKind::InvalidConfig,
        };
        Error::new(kind, operation, self.to_string())
    }
}

/// Query for the resources of the Service and for conflicts. A deletion has no conflicts.
pub(super) fn query(desired: &DesiredLoadBalancer) -> Result<Query, DesiredError> {
    let Some(spec) = &desired.spec else {
        return Ok(Query { key: desired.key.clone(), name: None, adopt: None, addresses: Vec::new() });
    };
    Ok(Query {
        key: desired.key.clone(),
        name: Some(default_load_balancer_name(&desired.key.uid)),
        adopt: desired.settings.adopt.clone(),
        addresses: addresses(desired, spec)?,
    })
}

/// One address per family.
fn addresses(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Result<Vec<AddressRequest>, DesiredError> {
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
        return Err(DesiredError::Invalid(format!(
            "the requested address {ip} has none of the IP families of the Service"
        )));
    }
    let address = |family| AddressRequest {
        family,
        internal: desired.settings.internal,
        share_group: desired.settings.share_group.clone(),
        ip: requested.filter(|ip| family_of(ip) == family),
    };
    Ok(families.into_iter().map(address).collect())
}

fn requested(spec: &LoadBalancerSpec) -> Result<Option<IpAddr>, DesiredError> {
    let Some(text) = spec.requested_address.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    let invalid = |_| DesiredError::Invalid(format!("the requested address {text:?} is not an IP address"));
    text.parse().map(Some).map_err(invalid)
}

/// Settings of the load balancer.
pub(super) fn settings(
    desired: &DesiredLoadBalancer,
    spec: &LoadBalancerSpec,
) -> Result<BalancerSettings, DesiredError> {
    let settings = &desired.settings;
    // Sorted, so that another order is not a change.
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

fn listener(port: &PortSpec) -> Result<Listener, DesiredError> {
    let PortSpec { protocol, port, node_port, .. } = *port;
    if protocol == Protocol::Sctp {
        return Err(DesiredError::Unsupported(format!("port {port}: this cloud supports TCP and UDP, not SCTP")));
    }
    let missing =
        || DesiredError::Unsupported(format!("port {port}: this cloud requires a node port, and the port has none"));
    Ok(Listener { protocol, port, node_port: node_port.ok_or_else(missing)? })
}

/// Health check: path and port of the annotations, or the health check node port with the policy Local, or a TCP connection to
/// the node port.
fn health_check(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Result<BalancerCheck, DesiredError> {
    let (settings, own) = (&desired.settings, spec.health_check.as_ref());
    let interval = millis(HEALTH_CHECK_INTERVAL.key, settings.health_check_interval)?;
    Ok(BalancerCheck {
        path: settings.health_check_path.clone().or_else(|| own.map(|own| own.path.clone())),
        port: settings.health_check_port.or_else(|| own.map(|own| own.port)),
        interval_millis: interval.unwrap_or(CHECK_INTERVAL_MILLIS),
    })
}

/// Duration in milliseconds, if the cloud supports it.
fn millis(annotation: &str, time: Option<Duration>) -> Result<Option<u64>, DesiredError> {
    let Some(time) = time else { return Ok(None) };
    if !(MIN_DURATION..=MAX_DURATION).contains(&time) {
        return Err(DesiredError::Invalid(format!(
            "{annotation}: this cloud supports durations from 1ms to 8760h (one year)"
        )));
    }
    Ok(u64::try_from(time.as_millis()).ok())
}
