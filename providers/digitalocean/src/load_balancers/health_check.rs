//! Health check of the Nodes.

use bowline_core::annotations::{Annotation, LoadBalancerSettings, Parsed};
use bowline_core::{LoadBalancerSpec, Protocol};

use super::annotations::{self as keys, Values};
use crate::api::HealthCheck;

/// Port of kube-proxy's health check, and its path.
pub(crate) const KUBE_PROXY_PORT: u16 = 10256;
const KUBE_PROXY_PATH: &str = "/healthz";

/// Builds the health check: that of kube-proxy, unless annotations override it.
pub(super) fn build(
    values: Values<'_>,
    settings: &LoadBalancerSettings,
    spec: &LoadBalancerSpec,
    service: &str,
) -> Result<HealthCheck, String> {
    let target = if values.0.contains_key(keys::OVERRIDE_HEALTH_CHECK.key) {
        overridden(values, spec, service)?
    } else {
        common(settings, spec)
    };
    let number = |annotation: &Annotation<Parsed<i64>>, what: &str, default: i64| {
        let error = |why| format!("failed to parse health check {what} annotation {:?}: {why}", annotation.key);
        values.get(annotation).map_err(error).map(|number| number.unwrap_or(default))
    };
    let interval =
        settings.health_check_interval.map_or(3, |interval| i64::try_from(interval.as_secs()).unwrap_or(i64::MAX));
    Ok(HealthCheck {
        check_interval_seconds: number(&keys::HEALTH_CHECK_INTERVAL, "interval", interval)?,
        response_timeout_seconds: number(&keys::HEALTH_CHECK_TIMEOUT, "response timeout", 5)?,
        unhealthy_threshold: number(&keys::UNHEALTHY_THRESHOLD, "unhealthy threshold", 3)?,
        healthy_threshold: number(&keys::HEALTHY_THRESHOLD, "healthy threshold", 5)?,
        ..target
    })
}

/// Returns kube-proxy's health check, with the port and path of the common annotations.
fn common(settings: &LoadBalancerSettings, spec: &LoadBalancerSpec) -> HealthCheck {
    let own = spec.health_check.as_ref().map_or(KUBE_PROXY_PORT, |check| check.port);
    let (port, path) = (settings.health_check_port.unwrap_or(own), settings.health_check_path.as_deref());
    HealthCheck {
        protocol: "http".to_owned(),
        port: port.into(),
        path: path.unwrap_or(KUBE_PROXY_PATH).to_owned(),
        proxy_protocol: Some(false),
        ..HealthCheck::default()
    }
}

fn overridden(values: Values<'_>, spec: &LoadBalancerSpec, service: &str) -> Result<HealthCheck, String> {
    let path = values.text(&keys::HEALTH_CHECK_PATH).unwrap_or_default();
    let port = node_port(values, spec, service)?;
    let protocol = match values.text(&keys::HEALTH_CHECK_PROTOCOL) {
        None if path.is_empty() => "tcp",
        None => "http",
        Some(protocol @ ("tcp" | "http" | "https")) => protocol,
        Some(other) => {
            let key = keys::HEALTH_CHECK_PROTOCOL.key;
            return Err(format!("invalid protocol {other:?} specified in annotation {key:?}"));
        }
    };
    let (protocol, path) = (protocol.to_owned(), path.to_owned());
    Ok(HealthCheck { protocol, port: port.into(), path, ..HealthCheck::default() })
}

/// Returns the node port of the annotated port of the Service, or of its first TCP port.
fn node_port(values: Values<'_>, spec: &LoadBalancerSpec, service: &str) -> Result<u16, String> {
    let ports =
        values.get(&keys::HEALTH_CHECK_PORT).map_err(|why| format!("failed to get health check port: {why}"))?;
    let found = match ports.as_deref() {
        None => {
            let first = spec.ports.iter().find(|port| port.protocol == Protocol::Tcp);
            first.ok_or("no health check port of protocol TCP found")?
        }
        Some([number]) => {
            let found = spec.ports.iter().find(|port| i64::from(port.port) == *number);
            let missing = || format!("specified health check port {number} does not exist on service {service}");
            let found = found.ok_or_else(missing)?;
            if found.protocol == Protocol::Udp {
                return Err(format!("health check port: {number}, cannot be of protocol type UDP"));
            }
            found
        }
        Some(several) => {
            let list = several.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let key = keys::HEALTH_CHECK_PORT.key;
            return Err(format!("annotation {key} only supports a single port, but found multiple: [{list}]"));
        }
    };
    Ok(found.node_port.unwrap_or_default())
}
