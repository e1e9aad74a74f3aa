//! The condition `bowline.dev/LoadBalancerReady` of a Service.

use std::time::Duration;

use jiff::Timestamp;

use super::Condition;
use crate::LoadBalancerState;
use crate::well_known::LOAD_BALANCER_READY;

/// Interval at which a load balancer with failed ports is observed again.
pub const FAILED_PORTS_PERIOD: Duration = Duration::from_secs(30);

/// Reason of the condition and of the Event for ports that do not work although the load balancer is in the desired state.
pub const PORTS_FAILED: &str = "PortsFailed";

/// Returns the condition of a Service whose load balancer is in the desired state. Failed ports make it `False` nevertheless.
pub fn ready_condition(failed_ports: &[String], now: Timestamp) -> Condition {
    if failed_ports.is_empty() {
        condition("True", "Ensured", "The load balancer is in the desired state.".to_owned(), now)
    } else {
        let next = format!("The load balancer is checked again every {} s.", FAILED_PORTS_PERIOD.as_secs());
        condition("False", PORTS_FAILED, format!("{} {next}", failed_ports_message(failed_ports)), now)
    }
}

/// Returns the condition of a Service whose load balancer is not in the desired state.
pub fn not_ready_condition(reason: &str, message: String, now: Timestamp) -> Condition {
    condition("False", reason, message, now)
}

/// Returns the condition of a Service whose load balancer is not managed.
pub fn unmanaged_condition(now: Timestamp) -> Condition {
    condition("Unknown", "Unmanaged", "The load balancer is not managed.".to_owned(), now)
}

/// Returns the message about failed ports.
pub fn failed_ports_message(failed_ports: &[String]) -> String {
    format!("Not all ports work: {}.", failed_ports.join("; "))
}

/// Returns a message for each failed port: from the provider, or else from the status.
pub fn failed_ports(state: &LoadBalancerState) -> Vec<String> {
    if !state.errors.is_empty() {
        return state.errors.clone();
    }
    let ports = state.status.ingress.iter().flat_map(|ingress| &ingress.ports);
    ports.filter_map(|port| Some(format!("port {}/{}: {}", port.port, port.protocol, port.error.as_ref()?))).collect()
}

/// Formats a time as Kubernetes does, in whole seconds.
pub fn format_timestamp(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or_default().to_string()
}

fn condition(status: &str, reason: &str, message: String, now: Timestamp) -> Condition {
    Condition {
        kind: LOAD_BALANCER_READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: format_timestamp(now),
    }
}
