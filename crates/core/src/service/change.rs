//! What is written to a Service: a finalizer, the balancer's status, our condition. Never its spec.

use super::{Condition, Service};
use crate::{Ingress, IpMode, LoadBalancerStatus, PortStatus};

/// What changes, all of it in one request to the `status` subresource (W-6 to W-8).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceChange {
    /// Our finalizer.
    pub finalizer: Option<FinalizerChange>,
    /// The whole new `status.loadBalancer`.
    pub status: Option<LoadBalancerStatus>,
    /// Our condition.
    pub condition: Option<ConditionChange>,
}

/// What happens to our finalizer; those of others stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerChange {
    /// It is put last.
    Add,
    /// It is taken away.
    Remove,
}

/// What happens to our condition; those of others stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionChange {
    /// It is like this from now on.
    Set(Condition),
    /// The condition of this type is taken away.
    Remove(String),
}

impl ServiceChange {
    /// Nothing is to be written.
    pub fn is_empty(&self) -> bool {
        *self == ServiceChange::default()
    }

    /// Adds our finalizer, unless the Service has it (S18).
    pub fn add_finalizer(service: &Service) -> ServiceChange {
        let finalizer = (!service.has_finalizer()).then_some(FinalizerChange::Add);
        ServiceChange { finalizer, ..ServiceChange::default() }
    }

    /// With our finalizer removed, if the Service has it (S19).
    pub fn without_finalizer(mut self, service: &Service) -> ServiceChange {
        self.finalizer = service.has_finalizer().then_some(FinalizerChange::Remove);
        self
    }

    /// With this status, if the Service has another (S20, S21).
    pub fn with_status(mut self, service: &Service, status: &LoadBalancerStatus) -> ServiceChange {
        self.status = (!status_equal(&service.status, status)).then(|| status.clone());
        self
    }

    /// With this condition, if the Service's differs in more than its time; the time of the last transition is kept if the
    /// status stays. What was to become of another condition is forgotten: one change is about one of them.
    pub fn with_condition(mut self, service: &Service, mut condition: Condition) -> ServiceChange {
        let now = service.condition(&condition.kind);
        if let Some(now) = now.filter(|now| now.status == condition.status) {
            condition.last_transition_time.clone_from(&now.last_transition_time);
        }
        self.condition = (now != Some(&condition)).then_some(ConditionChange::Set(condition));
        self
    }

    /// Without the condition of this type, if the Service has one. What was to become of another condition is forgotten.
    pub fn without_condition(mut self, service: &Service, kind: &str) -> ServiceChange {
        self.condition = service.condition(kind).map(|_| ConditionChange::Remove(kind.to_owned()));
        self
    }
}

/// The same to whoever reads it (H9, SVC-19): an address without mode is one of mode VIP, as the API server has it.
pub fn status_equal(one: &LoadBalancerStatus, other: &LoadBalancerStatus) -> bool {
    one.ingress.iter().map(seen).eq(other.ingress.iter().map(seen))
}

/// An entry as its readers see it. To them, an empty text is none.
fn seen(entry: &Ingress) -> (Option<&str>, Option<&str>, Option<IpMode>, &[PortStatus]) {
    let ip = entry.ip.as_deref().filter(|ip| !ip.is_empty());
    let hostname = entry.hostname.as_deref().filter(|hostname| !hostname.is_empty());
    let mode = entry.ip_mode.or(ip.map(|_| IpMode::Vip));
    (ip, hostname, mode, &entry.ports)
}
