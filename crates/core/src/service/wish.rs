//! From a Service to what is wished of a cloud.

use crate::annotations::{LoadBalancerSettings, Mistake, Unknown};
use crate::{ClusterName, HealthCheck, LoadBalancerWish, TargetNode};

use super::Service;

/// What a Service's annotations say.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The settings, or all that is wrong with them.
    pub settings: Result<LoadBalancerSettings, Vec<Mistake>>,
    /// Keys with our prefix that mean nothing here: worth a warning each.
    pub unknown: Vec<Unknown>,
}

/// Reads the annotations of a Service and its source ranges.
pub fn read(service: &Service) -> Reading {
    let _ = service;
    todo!()
}

/// What is wished for a Service that wants a balancer, with these settings and targets. Source ranges that leave everybody
/// in are none. The error says what is wrong with the Service itself.
pub fn wish(
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
    targets: Vec<TargetNode>,
) -> Result<LoadBalancerWish, Vec<Mistake>> {
    let _ = (cluster, service, settings, targets);
    todo!()
}

/// What is wished for a Service that is to have no balancer any more.
pub fn cleanup_wish(cluster: &ClusterName, service: &Service, settings: &LoadBalancerSettings) -> LoadBalancerWish {
    let _ = (cluster, service, settings);
    todo!()
}

/// The policy is Local, on a Service that has node ports at all (H5, H6).
pub fn wants_only_local_traffic(service: &Service) -> bool {
    let _ = service;
    todo!()
}

/// How a node says whether it wants traffic (H7).
pub fn health_check(service: &Service) -> Option<HealthCheck> {
    let _ = service;
    todo!()
}

/// The name that the Go library gives a balancer by default (H10): `a` and the UID without dashes, cut to 32 characters.
pub fn default_balancer_name(uid: &str) -> String {
    let _ = uid;
    todo!()
}
