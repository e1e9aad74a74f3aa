//! What is to be done about a Service: decided once, for a pass that does it and for a forecast that only tells of it.
//!
//! ```text
//!  Service ──need──┬─► a balancer: targets ──► wish ──► (the cloud) ──► ensured: what the Service is told
//!                  ├─► none: cleanup_settings, clouds_to_clean ──► (the clouds) ──► removed: the same
//!                  └─► nothing: it is not ours
//! ```

use std::sync::Arc;

use bowline_cloud::{Cloud, Clouds, Error, ErrorKind};
use bowline_core::annotations::{DeletionPolicy, LoadBalancerSettings, Mistake};
use bowline_core::service::{self, Choice, Condition, Reading, Scope, ServiceChange, TargetRules};
use bowline_core::well_known::LOAD_BALANCER_READY;
use bowline_core::{
    ClusterName, DesiredLoadBalancer, LoadBalancerState, LoadBalancerStatus, Node, Service, ServiceType, TargetSet,
};

use super::routing::Routing;
use super::trouble::{Cause, Task, Trouble};

/// What a Service calls for.
pub(crate) enum Need<'a> {
    /// A balancer in this cloud.
    Balancer(&'a Cloud),
    /// That no balancer is left.
    Cleanup,
    /// Nothing for now: an operator has paused it.
    Paused,
    /// Nothing: it is not ours, or has never had a balancer.
    Nothing,
}

/// What this Service calls for; `is_held` if a balancer was begun for it.
pub(crate) fn need<'a>(service: &Service, routing: &'a Routing, is_held: bool) -> Need<'a> {
    let cloud = routing.cloud(service).filter(|_| service::wants_load_balancer(service, routing.scope()));
    match cloud {
        Some(_) if service.is_paused() => Need::Paused,
        // Not for a Service that is going, finalizer or not (SVC-15).
        Some(cloud) if !service.deleting => Need::Balancer(cloud),
        None if !is_held && !service::needs_cleanup(service, routing.scope()) => Need::Nothing,
        _ if service.is_paused() => Need::Paused,
        _ => Need::Cleanup,
    }
}

// ---- a balancer is wanted

/// The Nodes behind a balancer in this cloud (SVC-23); `has_time` says of one that is leaving whether it may still finish.
pub(crate) fn targets(
    nodes: &[Arc<Node>],
    cloud: &Cloud,
    rules: TargetRules,
    settings: &LoadBalancerSettings,
    has_time: impl Fn(&Node) -> bool,
    before: &TargetSet,
) -> Choice {
    let can_drain = can_drain(cloud);
    let is_local = |node: &Node| node.provider_id.as_ref().is_some_and(|id| cloud.layers().owns(id));
    let drains = |node: &Node| can_drain && has_time(node);
    service::targets(nodes, rules, settings.target_nodes.as_ref(), is_local, drains, before)
}

/// Rules for the targets of this Service: the kind of load balancer that it requests may have a limit.
pub(crate) fn target_rules(
    cloud: &Cloud,
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
    rules: TargetRules,
) -> TargetRules {
    let desired = service::desired_cleanup(cluster, service, settings);
    TargetRules { max: cloud.layers().max_targets(&desired), ..rules }
}

/// Whether any load balancers of this cloud drain connections before a target goes. Other kinds leave such a target out.
pub(crate) fn can_drain(cloud: &Cloud) -> bool {
    let kinds = cloud.layers().capabilities().load_balancers.iter().flat_map(|balancers| &balancers.kinds);
    kinds.into_iter().any(|kind| kind.drain)
}

/// What the annotations of a Service with this reading say in the words that all clouds share, its own cloud's included; or
/// all that is wrong with them.
pub(crate) fn settings(
    cloud: &Cloud,
    service: &Service,
    reading: Reading,
) -> Result<LoadBalancerSettings, Vec<Mistake>> {
    let with_its_own = |common| cloud.layers().load_balancer_settings(&service.annotations, common);
    reading.settings.map_or_else(
        |mut mistakes| {
            mistakes.extend(reading.cleanup.and_then(with_its_own).err().unwrap_or_default());
            mistakes.dedup();
            Err(mistakes)
        },
        with_its_own,
    )
}

/// What is wished of the cloud, if the Service is in order and the cloud can do all of it, as far as that can be said
/// without asking.
pub(crate) fn desired(
    cloud: &Cloud,
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
    targets: TargetSet,
) -> Result<DesiredLoadBalancer, Trouble> {
    let desired = service::desired(cluster, service, settings, targets).map_err(mistaken)?;
    cloud.layers().check_load_balancer(&desired).map_err(Trouble::cloud(Task::Ensure))?;
    Ok(desired)
}

/// The Service itself is in the way of its balancer.
pub(crate) fn mistaken(mistakes: Vec<Mistake>) -> Trouble {
    Trouble { task: Task::Ensure, cause: Cause::Mistakes(mistakes) }
}

/// What the cloud has, when all is done that was to be done.
pub(crate) fn made(state: Option<LoadBalancerState>) -> Result<LoadBalancerState, Trouble> {
    let missing = || Error::new(ErrorKind::Unexpected, "observe load balancer", "there is none after it was made");
    state.ok_or_else(missing).map_err(Trouble::cloud(Task::Ensure))
}

/// What is written to a Service whose balancer is as wanted.
pub(crate) fn ensured(service: &Service, status: &LoadBalancerStatus, ready: Condition) -> ServiceChange {
    let change = ServiceChange::default().with_status(service, status);
    // A Service that is as wanted and never was in trouble is not written to for the sake of a condition.
    if change.is_empty() && service.condition(LOAD_BALANCER_READY).is_none() {
        return change;
    }
    change.with_condition(service, ready)
}

/// The user's word on how nodes treat the address goes before the provider's.
pub(crate) fn with_ip_mode(mut status: LoadBalancerStatus, settings: &LoadBalancerSettings) -> LoadBalancerStatus {
    if let Some(mode) = settings.ip_mode {
        status
            .ingress
            .iter_mut()
            .filter(|ingress| ingress.ip.is_some())
            .for_each(|ingress| ingress.ip_mode = Some(mode));
    }
    status
}

// ---- no balancer is wanted

/// What the annotations of a Service that is to have no balancer say. A slip in one that does not count now is no reason to
/// keep the balancer; one in the policy is.
pub(crate) fn cleanup_settings(service: &Service) -> Result<LoadBalancerSettings, Trouble> {
    let held_back = |cause| Trouble { task: Task::Delete, cause };
    let settings = service::read(service).cleanup;
    let settings = settings.map_err(|mistakes| held_back(Cause::UnclearPolicy(mistakes)))?;
    if settings.policy == DeletionPolicy::Protect {
        return Err(held_back(Cause::Protected));
    }
    Ok(settings)
}

/// The clouds that may have a balancer for this Service, as far as the Service says. Its class, which says which, is gone
/// once its type is another.
pub(crate) fn clouds_to_clean(service: &Service, routing: &Routing, clouds: &Clouds) -> Vec<Cloud> {
    match service.kind {
        ServiceType::LoadBalancer => routing.cloud(service).cloned().into_iter().collect(),
        _ => clouds.iter().filter(|cloud| cloud.has_load_balancers()).cloned().collect(),
    }
}

/// What is written to a Service before its balancer goes: one that stays no longer says where that is. A balancer that is
/// wished again before all is done, or after a crash, is not looked for where there is none then.
pub(crate) fn notes_off(service: &Service, state: Option<&LoadBalancerState>) -> ServiceChange {
    match state {
        Some(state) if !service.deleting => ServiceChange::default().without_annotations(service, &state.annotations),
        _ => ServiceChange::default(),
    }
}

/// What is written to a Service of which nothing is left in the clouds; `existed` if something was there just now, and
/// `is_held` if a balancer was begun for it. `None` if all of it is somebody else's to write.
pub(crate) fn removed(service: &Service, scope: &Scope, existed: bool, is_held: bool) -> Option<ServiceChange> {
    if !existed && !is_held && may_be_anothers(service, scope) {
        return None;
    }
    // Also of a Service that is going: it stays for as long as somebody else's finalizer holds it.
    let change = ServiceChange::default().without_finalizer(service);
    let change = change.with_status(service, &LoadBalancerStatus::default());
    Some(change.without_condition(service, LOAD_BALANCER_READY))
}

/// Nothing says that the finalizer, which all managers share, is ours: Services without a class are somebody else's, and
/// the class that would have told is gone with the type.
fn may_be_anothers(service: &Service, scope: &Scope) -> bool {
    !scope.unset && service.class.is_none() && service.condition(LOAD_BALANCER_READY).is_none()
}
