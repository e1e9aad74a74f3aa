//! What is written to a Service: a finalizer, the balancer's status, our condition. Never its spec.

use super::{Condition, Service};
use crate::LoadBalancerStatus;

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
        let _ = service;
        todo!()
    }

    /// With our finalizer removed, if the Service has it (S19).
    pub fn without_finalizer(self, service: &Service) -> ServiceChange {
        let _ = service;
        todo!()
    }

    /// With this status, if the Service has another (S20, S21).
    pub fn with_status(self, service: &Service, status: &LoadBalancerStatus) -> ServiceChange {
        let _ = (service, status);
        todo!()
    }

    /// With this condition, if the Service's differs in more than its time; the time of the last transition is kept if the
    /// status stays.
    pub fn with_condition(self, service: &Service, condition: Condition) -> ServiceChange {
        let _ = (service, condition);
        todo!()
    }

    /// Without the condition of this type, if the Service has one.
    pub fn without_condition(self, service: &Service, kind: &str) -> ServiceChange {
        let _ = (service, kind);
        todo!()
    }
}

/// The same to whoever reads it (H9, SVC-19): an address without mode is one of mode VIP, as the API server has it.
pub fn status_equal(one: &LoadBalancerStatus, other: &LoadBalancerStatus) -> bool {
    let _ = (one, other);
    todo!()
}
