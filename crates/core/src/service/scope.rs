//! Which Services are ours, and when something about them has to be done.

use std::collections::BTreeSet;

use super::{Service, ServiceType};

/// Whose Services these are: by their class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Those without a class.
    pub unset: bool,
    /// Those with one of these classes.
    pub classes: BTreeSet<String>,
}

impl Scope {
    /// Services without a class only, as the Go managers have it.
    pub fn upstream() -> Scope {
        Scope { unset: true, classes: BTreeSet::new() }
    }

    /// A Service of this class is ours.
    pub fn takes(&self, class: Option<&str>) -> bool {
        class.map_or(self.unset, |class| self.classes.contains(class))
    }
}

/// The Service is to have a balancer of ours: the type is LoadBalancer, and the class is in scope.
pub fn wants_balancer(service: &Service, scope: &Scope) -> bool {
    service.kind == ServiceType::LoadBalancer && scope.takes(service.class.as_deref())
}

/// The Service has our finalizer, and is being deleted or has another type. One of a class that is not ours belongs to
/// somebody else, finalizer or not.
pub fn needs_cleanup(service: &Service, scope: &Scope) -> bool {
    let unwanted = service.deleting || service.kind != ServiceType::LoadBalancer;
    service.has_finalizer() && unwanted && may_have_been_ours(service, scope)
}

/// The API server takes the class away together with the type. So one without either may have been of a class of ours,
/// even where Services without a class are not.
fn may_have_been_ours(service: &Service, scope: &Scope) -> bool {
    let class_is_lost = service.class.is_none() && service.kind != ServiceType::LoadBalancer;
    class_is_lost || scope.takes(service.class.as_deref())
}

/// Something has changed that a balancer is made of (SVC-8, SVC-9).
pub fn needs_update(old: &Service, new: &Service, scope: &Scope) -> bool {
    match (wants_balancer(old, scope), wants_balancer(new, scope)) {
        (false, false) => false,
        (true, true) => ingredients(old) != ingredients(new),
        _ => true,
    }
}

/// All that a balancer is made of. The class decides in which cloud; it differs between two Services that want a balancer
/// only where classes of ours are known.
// upstream: which families there are does not matter, only how many.
fn ingredients(service: &Service) -> impl PartialEq + '_ {
    (
        (&service.uid, &service.class, &service.annotations),
        (&service.ports, service.ip_families.len(), &service.external_ips, &service.load_balancer_ip),
        (&service.source_ranges, service.session_affinity, service.traffic_policy, service.health_check_node_port),
    )
}
