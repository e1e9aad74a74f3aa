//! Services that own, or may own, a load balancer.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bowline_cloud::Cloud;
use bowline_core::annotations;
use bowline_core::service::{self, ServiceType};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, Service};

/// The Services of a cluster that own, or may own, a load balancer in this cloud.
pub(super) struct Owners<'a> {
    cloud: &'a Cloud,
    owners: Vec<DesiredLoadBalancer>,
}

impl<'a> Owners<'a> {
    pub(super) fn of(cloud: &'a Cloud, cluster: &ClusterName, services: &[Arc<Service>]) -> Owners<'a> {
        Owners { cloud, owners: services.iter().filter_map(|service| owner(cloud, cluster, service)).collect() }
    }

    /// Whether one of them owns this key.
    pub(super) fn contain(&self, key: &LoadBalancerKey) -> bool {
        self.owners.iter().any(|owner| self.cloud.layers().is_load_balancer_owner(key, owner))
    }
}

/// The load balancer of a Service that may own one; errors in its annotations do not matter. The class is ignored: after a change
/// of a flag, a manager may be responsible for it. A Service with an unmanaged load balancer owns it whatever its type.
fn owner(cloud: &Cloud, cluster: &ClusterName, service: &Service) -> Option<DesiredLoadBalancer> {
    let (common, _) = annotations::read_leniently(&service.annotations);
    let settings = cloud.layers().load_balancer_settings(&service.annotations, common.clone()).unwrap_or(common);
    let may_own = service.kind == ServiceType::LoadBalancer || service.has_finalizer() || settings.unmanaged;
    may_own.then(|| service::desired_cleanup(cluster, service, &settings))
}
