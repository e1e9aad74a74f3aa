//! Health check of the instances.
//!
//! ```text
//!  externalTrafficPolicy Local: health check node port ┐
//!  mode Shared: kube-proxy                             ├──► start values ──► annotations ──► HTTP:30080/healthz
//!  otherwise: first node port                          ┘
//! ```

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::annotations::{Annotation, Parsed};
use bowline_core::{FieldChange, FieldChanges, TrafficPolicy, Warning};

use super::super::Inputs;
use super::super::annotations as keys;
use super::ignored;
use crate::api::elb::{HealthCheck, Listener};

/// Value of `ClusterServiceLoadBalancerHealthProbeMode` for the health check of kube-proxy.
const SHARED: &str = "Shared";

/// Value of the annotation for the node port.
const TRAFFIC_PORT: &str = "traffic-port";

/// Default timeout in seconds.
const TIMEOUT: i32 = 5;

/// Target of the health check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    protocol: String,
    port: i64,
    path: String,
}

/// Reason why the annotations give no health check.
enum Invalid {
    Port(String),
    Numbers(String),
}

/// Returns the desired health check.
pub(super) fn desired(
    inputs: &Inputs<'_>,
    listeners: &[Listener],
    observed: Option<&HealthCheck>,
) -> Result<HealthCheck> {
    let start = start(inputs, node_port(listeners, observed));
    let node_port = start.port;
    build(inputs, start).map_err(|invalid| to_error(inputs, node_port, invalid))
}

/// Returns the node port to check: the observed one as long as a listener uses it, so that the order of the ports changes nothing,
/// otherwise the first.
// upstream: always the first.
fn node_port(listeners: &[Listener], observed: Option<&HealthCheck>) -> u16 {
    let observed = observed.and_then(|check| port_of(&check.target));
    let is_used = |port: &u16| listeners.iter().any(|listener| listener.instance_port == *port);
    let first = || listeners.first().map(|listener| listener.instance_port).unwrap_or_default();
    observed.filter(is_used).unwrap_or_else(first)
}

/// Returns the port of a target such as `HTTP:30080/healthz`.
fn port_of(target: &str) -> Option<u16> {
    let (_, rest) = target.split_once(':')?;
    rest.split('/').next()?.parse().ok()
}

/// Returns the target without annotations for the health check.
fn start(inputs: &Inputs<'_>, node_port: u16) -> Target {
    let target = |protocol: &str, port: u16, path: &str| Target {
        protocol: protocol.to_owned(),
        port: port.into(),
        path: path.to_owned(),
    };
    let local = local_check(inputs);
    let is_traffic_port = inputs.values.text(&keys::HEALTH_CHECK_PORT) == Some(TRAFFIC_PORT);
    let backend = inputs.values.text(&keys::BACKEND_PROTOCOL).unwrap_or_default().to_lowercase();
    match local {
        Some((_, path)) if is_traffic_port => target("HTTP", node_port, path),
        Some((port, path)) => target("HTTP", port, path),
        None if inputs.config.health_probe_mode == SHARED => {
            target("HTTP", inputs.config.health_probe_port, &inputs.config.health_probe_path)
        }
        None if ["https", "ssl"].contains(&backend.as_str()) => target("SSL", node_port, ""),
        None => target("TCP", node_port, ""),
    }
}

/// Returns port and path of the health check of a Service with `externalTrafficPolicy: Local`.
fn local_check<'a>(inputs: &Inputs<'a>) -> Option<(u16, &'a str)> {
    let is_local = inputs.spec.traffic_policy == TrafficPolicy::Local;
    let check = inputs.spec.health_check.as_ref().filter(|check| is_local && check.port != 0)?;
    Some((check.port, &check.path))
}

fn build(inputs: &Inputs<'_>, start: Target) -> std::result::Result<HealthCheck, Invalid> {
    let Target { protocol, port, path } = overridden(inputs, start).map_err(Invalid::Port)?;
    let settings = inputs.settings;
    let interval =
        settings.health_check_interval.map_or(10, |interval| i32::try_from(interval.as_secs()).unwrap_or(i32::MAX));
    let number = |annotation| number(inputs, annotation).map_err(Invalid::Numbers);
    // The order is that of upstream: it decides which of several invalid values is reported.
    let healthy_threshold = number(&keys::HEALTHY_THRESHOLD)?.unwrap_or(2);
    let unhealthy_threshold = number(&keys::UNHEALTHY_THRESHOLD)?.unwrap_or(6);
    let timeout = number(&keys::HEALTH_CHECK_TIMEOUT)?;
    let interval = number(&keys::HEALTH_CHECK_INTERVAL)?.unwrap_or(interval);
    // AWS requires a timeout below the interval.
    // upstream: the default is 5 whatever the interval is.
    let timeout = timeout.unwrap_or_else(|| TIMEOUT.min(interval.saturating_sub(1)).max(2));
    let target = format!("{protocol}:{port}{path}");
    validated(HealthCheck { target, interval, timeout, unhealthy_threshold, healthy_threshold })
}

/// Applies the annotations for protocol, port and path, and the common ones where those are missing.
fn overridden(inputs: &Inputs<'_>, start: Target) -> std::result::Result<Target, String> {
    let (values, settings) = (inputs.values, inputs.settings);
    let common_path = settings.health_check_path.as_deref();
    let protocol = match values.text(&keys::HEALTH_CHECK_PROTOCOL) {
        Some(protocol) => protocol.to_owned(),
        None if common_path.is_some() && !is_http(&start.protocol) => "HTTP".to_owned(),
        None => start.protocol,
    };
    let port = match values.0.get(keys::HEALTH_CHECK_PORT.key).map(String::as_str) {
        Some(TRAFFIC_PORT) => start.port,
        Some(text) => integer(text)?,
        None => settings.health_check_port.map_or(start.port, i64::from),
    };
    let annotated = values.text(&keys::HEALTH_CHECK_PATH);
    let paths = [annotated, common_path, Some(&start.path), Some("/")];
    let path = paths.into_iter().flatten().find(|path| !path.is_empty() && is_http(&protocol));
    Ok(Target { path: path.unwrap_or_default().to_owned(), protocol, port })
}

fn is_http(protocol: &str) -> bool {
    ["http", "https"].iter().any(|it| protocol.eq_ignore_ascii_case(it))
}

fn number(inputs: &Inputs<'_>, annotation: &Annotation<Parsed<i64>>) -> std::result::Result<Option<i32>, String> {
    let Some(text) = inputs.values.0.get(annotation.key) else { return Ok(None) };
    let invalid = |why| format!("failed parsing health check annotation value: {why}");
    let number = integer(text).map_err(invalid)?;
    i32::try_from(number).map(Some).map_err(|_| invalid(number_error(text, "value out of range")))
}

/// Parses a number as Go's `strconv.ParseInt` does.
fn integer(text: &str) -> std::result::Result<i64, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        PosOverflow | NegOverflow => number_error(text, "value out of range"),
        _ => number_error(text, "invalid syntax"),
    })
}

fn number_error(text: &str, why: &str) -> String {
    format!("strconv.ParseInt: parsing {text:?}: {why}")
}

/// Rejects numbers below the minimum of AWS.
fn validated(check: HealthCheck) -> std::result::Result<HealthCheck, Invalid> {
    let minimums = [
        ("HealthyThreshold", check.healthy_threshold, 2),
        ("Interval", check.interval, 5),
        ("Timeout", check.timeout, 2),
        ("UnhealthyThreshold", check.unhealthy_threshold, 2),
    ];
    let too_small = minimums.iter().filter(|(_, number, minimum)| number < minimum);
    let errors: Vec<_> = too_small.map(|(field, _, minimum)| format!("{field} must be at least {minimum}")).collect();
    if errors.is_empty() {
        return Ok(check);
    }
    let errors = errors.join("; ");
    Err(Invalid::Numbers(format!(
        "some of the load balancer health check parameters are invalid: HealthCheck validation errors: {errors}"
    )))
}

/// Creates the error with upstream's text.
fn to_error(inputs: &Inputs<'_>, node_port: i64, invalid: Invalid) -> Error {
    let name = inputs.name;
    let (operation, message) = match invalid {
        Invalid::Port(message) => (keys::HEALTH_CHECK_PORT.key.to_owned(), message),
        Invalid::Numbers(message) => {
            (format!("cannot update health check for load balancer {name:?}"), format!("{message:?}"))
        }
    };
    if local_check(inputs).is_none() {
        return Error::new(ErrorKind::InvalidConfig, operation, message);
    }
    let whole = format!("{operation}: {message}");
    let operation = format!("Failed to ensure health check for localized service {name} on node port {node_port}");
    Error::new(ErrorKind::InvalidConfig, operation, format!("{whole:?}"))
}

/// Returns what has to be changed. The protocol is compared without regard to case.
// upstream: with regard to case.
pub(super) fn changes(observed: Option<&HealthCheck>, desired: &HealthCheck) -> Vec<FieldChange> {
    let mut changes = FieldChanges::default();
    let Some(observed) = observed else {
        changes.set("health check", &desired.target);
        return changes.into_vec();
    };
    if !is_same_target(&observed.target, &desired.target) {
        changes.compare("health check", &observed.target, &desired.target);
    }
    changes.compare("health check interval", &observed.interval, &desired.interval);
    changes.compare("health check timeout", &observed.timeout, &desired.timeout);
    changes.compare("unhealthy threshold", &observed.unhealthy_threshold, &desired.unhealthy_threshold);
    changes.compare("healthy threshold", &observed.healthy_threshold, &desired.healthy_threshold);
    changes.into_vec()
}

fn is_same_target(a: &str, b: &str) -> bool {
    match (a.split_once(':'), b.split_once(':')) {
        (Some((a, rest_a)), Some((b, rest_b))) => a.eq_ignore_ascii_case(b) && rest_a == rest_b,
        _ => a == b,
    }
}

/// Returns a warning about a path without an HTTP health check.
pub(super) fn warning(inputs: &Inputs<'_>, check: &HealthCheck) -> Option<Warning> {
    let annotated = inputs.values.text(&keys::HEALTH_CHECK_PATH).filter(|path| !path.is_empty());
    let key = annotated.map(|_| keys::HEALTH_CHECK_PATH.key);
    let common = inputs.settings.health_check_path.as_ref().map(|_| bowline_core::annotations::HEALTH_CHECK_PATH.key);
    let key = key.or(common)?;
    let protocol = check.target.split(':').next().unwrap_or_default();
    let message = || {
        let set = keys::HEALTH_CHECK_PROTOCOL.key;
        format!("{key} has no effect: the protocol of the health check is {protocol}; set {set} to HTTP or HTTPS")
    };
    (!is_http(protocol)).then(|| ignored(message()))
}

#[cfg(test)]
mod tests;
