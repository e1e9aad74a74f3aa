//! Our condition on a Service: its balancer is as wanted, or what is in the way of that and when the next try is.

use std::time::Duration;

use bowline_core::service::Condition;
use bowline_core::well_known::LOAD_BALANCER_READY;
use bowline_core::{LoadBalancerState, Service};
use jiff::Timestamp;

use super::trouble::Trouble;
use super::waiting::For;

/// How often a balancer that does not work is looked at.
pub(super) const AILING: Duration = Duration::from_secs(30);

/// The reason of a condition and an Event: ports that do not work although all is made.
pub(super) const PORTS_FAILED: &str = "PortsFailed";

/// All is made that was to be made. That some of it does not work is a problem all the same.
pub(crate) fn ready(errors: &[String], now: Timestamp) -> Condition {
    if errors.is_empty() {
        condition("True", "Ensured", "The load balancer is as the Service wants it.".to_owned(), now)
    } else {
        let next = format!("It is looked at again every {} s.", AILING.as_secs());
        condition("False", PORTS_FAILED, format!("{} {next}", not_all_work(errors)), now)
    }
}

/// For people.
pub(super) fn not_all_work(errors: &[String]) -> String {
    format!("Not all ports work: {}.", errors.join("; "))
}

/// What does not work: the provider's words, or else those of the status.
pub(crate) fn errors(state: &LoadBalancerState) -> Vec<String> {
    if !state.errors.is_empty() {
        return state.errors.clone();
    }
    let ports = state.status.ingress.iter().flat_map(|ingress| &ingress.ports);
    ports.filter_map(|port| Some(format!("port {}/{}: {}", port.port, port.protocol, port.error.as_ref()?))).collect()
}

/// Whether the Service's condition need not change for this: a cloud that is at work on a balancer is no reason to take back
/// that it is ready, nor to write down each of its steps.
pub(super) fn is_said(service: &Service, trouble: &Trouble) -> bool {
    let now = service.condition(LOAD_BALANCER_READY);
    trouble.is_calm() && now.is_some_and(|now| now.status == "True" || now.reason == trouble.reason())
}

/// Something is in the way: what, and when the next try is.
pub(crate) fn blocked(trouble: &Trouble, delay: Option<Duration>, now: Timestamp) -> Condition {
    let message = trouble.message();
    let next = match delay {
        // The cloud is asked every few moments; to write that down each time would be a write each time.
        Some(_) if trouble.is_calm() => "It is looked at again as the cloud advises.".to_owned(),
        Some(delay) => format!("Next try at {}.", in_seconds(now.saturating_add(delay).unwrap_or(Timestamp::MAX))),
        None if For::of(trouble).is_some() => "It rests until what is in the way is gone.".to_owned(),
        None => "It rests until the Service or the nodes change.".to_owned(),
    };
    let end = if message.ends_with('.') { "" } else { "." };
    condition("False", &trouble.reason(), format!("{message}{end} {next}"), now)
}

fn condition(status: &str, reason: &str, message: String, now: Timestamp) -> Condition {
    Condition {
        kind: LOAD_BALANCER_READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: in_seconds(now),
    }
}

/// The time in whole seconds, as Kubernetes writes it.
fn in_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or_default().to_string()
}
