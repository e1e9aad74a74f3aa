//! Desired state and plan of a load balancer. Nothing in here awaits, so that a sync and a forecast share all decisions.
//!
//! ```text
//!  Service ──need──┬─► LoadBalancer: select_targets ──► desired ──► (observe) ──► Planned ──► (apply) ──► ensured_change
//!                  ├─► Cleanup: cleanup_settings, clouds_to_clean ──► (observe, apply) ──► deleted_change
//!                  ├─► Unmanaged: unmanaged_change
//!                  └─► Paused, Nothing
//! ```
//!
//! An [`Execution`] follows a plan over several syncs: a cloud may take a while over a step, and no worker waits for it. The sync
//! ends, and a later one continues where it ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Cloud, Clouds, Error, ErrorKind, Guard, Moment};
use bowline_core::annotations::{self, DeletionPolicy, FieldError, LoadBalancerSettings};
use bowline_core::service::{self, Condition, ParsedAnnotations, Scope, ServiceChange, TargetRules, TargetSelection};
use bowline_core::well_known::LOAD_BALANCER_READY;
use bowline_core::{
    ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, LoadBalancerStatus, Node, Operation, Plan,
    Service, ServiceKey, ServiceType, Step, TargetSet, Verb, Warning,
};
use bowline_runtime::{Priority, Queue};
use jiff::Timestamp;
use tokio::time::Instant;

use super::error::{Action, Cause, SyncError};
use super::{Routing, Trigger};

/// Maximum age of a plan that a later sync continues; after that the cloud is observed again.
const MAX_PLAN_AGE: Duration = Duration::from_secs(300);

/// Desired outcome for a Service.
pub(crate) enum Need<'a> {
    /// A load balancer in this cloud.
    LoadBalancer(&'a Cloud),
    /// The load balancer in this cloud, if there is one, stays as it is.
    Unmanaged(&'a Cloud),
    /// Deletion of its load balancer.
    Cleanup,
    /// Nothing for now: an operator has paused it.
    Paused,
    /// Nothing: it is not ours, or has never had a load balancer.
    Nothing,
}

/// Returns the desired outcome for this Service; `is_owned` if a sync has begun to create a load balancer for it.
pub(crate) fn need<'a>(service: &Service, routing: &'a Routing, is_owned: bool) -> Need<'a> {
    let cloud = routing.cloud(service).filter(|_| service::wants_load_balancer(service, routing.scope()));
    match cloud {
        Some(_) if service.is_paused() => Need::Paused,
        // No load balancer for a Service that is being deleted, with or without a finalizer (SVC-15).
        Some(cloud) if !service.deleting && is_unmanaged(cloud, service) => Need::Unmanaged(cloud),
        Some(cloud) if !service.deleting => Need::LoadBalancer(cloud),
        None if !is_owned && !service::needs_cleanup(service, routing.scope()) => Need::Nothing,
        _ if service.is_paused() => Need::Paused,
        _ => Need::Cleanup,
    }
}

/// Describes the owner of the Service, by type and class.
pub(crate) fn ownership(service: &Service, routing: &Routing) -> String {
    let deleting = if service.deleting { "; the Service is being deleted" } else { "" };
    let owner = match (service.kind, &service.class, routing.cloud(service)) {
        (ServiceType::LoadBalancer, None, Some(cloud)) => {
            format!(
                "{}: it is the default cloud for Services without a class (--load-balancer-default-cloud)",
                cloud.name()
            )
        }
        (ServiceType::LoadBalancer, Some(class), Some(cloud)) => {
            format!("{}: selected by the class {class}", cloud.name())
        }
        (ServiceType::LoadBalancer, None, None) => {
            "none: no default cloud for Services without a class (--load-balancer-default-cloud)".to_owned()
        }
        (ServiceType::LoadBalancer, Some(class), None) => match routing.misspelt_class(service) {
            Some(cloud) => {
                format!("none: no configured cloud has the class {class}; did you mean bowline.dev/{cloud}?")
            }
            None => format!("none: the class {class} belongs to another controller"),
        },
        (kind, _, _) => format!("none: a Service of type {kind:?} has no load balancer"),
    };
    owner + deleting
}

// ---- desired state: a load balancer

/// Selects the targets of a load balancer in this cloud (SVC-23); `is_draining` says of a Node that is leaving whether its drain
/// period lasts.
pub(crate) fn select_targets(
    nodes: &[Arc<Node>],
    cloud: &Cloud,
    rules: TargetRules,
    settings: &LoadBalancerSettings,
    is_draining: impl Fn(&Node) -> bool,
    before: &TargetSet,
) -> TargetSelection {
    let can_drain = can_drain(cloud);
    let is_local = |node: &Node| node.provider_id.as_ref().is_some_and(|id| cloud.layers().owns(id));
    let drains = |node: &Node| can_drain && is_draining(node);
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

/// Whether any load balancers of this cloud drain connections before a target is removed. Other kinds leave such a target out.
pub(crate) fn can_drain(cloud: &Cloud) -> bool {
    let kinds = cloud.layers().capabilities().load_balancers.iter().flat_map(|balancers| &balancers.kinds);
    kinds.into_iter().any(|kind| kind.drain)
}

/// Settings from the annotations of a Service, those of its cloud included; or all errors in them.
pub(crate) fn settings(
    cloud: &Cloud,
    service: &Service,
    reading: ParsedAnnotations,
) -> Result<LoadBalancerSettings, Vec<FieldError>> {
    let with_cloud_settings = |common| cloud.layers().load_balancer_settings(&service.annotations, common);
    reading.settings.map_or_else(
        |mut mistakes| {
            mistakes.extend(reading.cleanup.and_then(with_cloud_settings).err().unwrap_or_default());
            mistakes.dedup();
            Err(mistakes)
        },
        with_cloud_settings,
    )
}

/// Whether the annotations of the Service exclude its load balancer in this cloud from management. Errors in the common annotations
/// do not matter for it.
pub(crate) fn is_unmanaged(cloud: &Cloud, service: &Service) -> bool {
    let (common, _) = annotations::read_leniently(&service.annotations);
    cloud.layers().load_balancer_settings(&service.annotations, common).is_ok_and(|settings| settings.unmanaged)
}

/// Desired state of the load balancer, if the Service is valid and the cloud supports all of it, as far as that is known without a
/// call.
pub(crate) fn desired(
    cloud: &Cloud,
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
    targets: TargetSet,
) -> Result<DesiredLoadBalancer, SyncError> {
    let desired = service::desired(cluster, service, settings, targets).map_err(SyncError::invalid_service)?;
    cloud.layers().check_load_balancer(&desired).map_err(SyncError::cloud(Action::Ensure))?;
    Ok(desired)
}

/// State of a load balancer whose plan is applied: it must exist.
pub(crate) fn applied_state(state: Option<LoadBalancerState>) -> Result<LoadBalancerState, SyncError> {
    let missing = || Error::new(ErrorKind::Unexpected, "observe load balancer", "there is none after it was made");
    state.ok_or_else(missing).map_err(SyncError::cloud(Action::Ensure))
}

/// Change of a Service whose load balancer is as desired.
pub(crate) fn ensured_change(service: &Service, status: &LoadBalancerStatus, ready: Condition) -> ServiceChange {
    let change = ServiceChange::default().with_status(service, status);
    // A Service that is as desired and never failed is not written for the sake of a condition.
    if change.is_empty() && service.condition(LOAD_BALANCER_READY).is_none() {
        return change;
    }
    change.with_condition(service, ready)
}

/// Change of a Service whose load balancer is not managed. The condition of an earlier sync would be outdated.
pub(crate) fn unmanaged_change(service: &Service, now: Timestamp) -> ServiceChange {
    let change = ServiceChange::add_finalizer(service);
    if change.is_empty() && service.condition(LOAD_BALANCER_READY).is_none() {
        return change;
    }
    change.with_condition(service, service::unmanaged_condition(now))
}

/// Status with the IP mode of the user, which precedes the provider's.
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

// ---- desired state: no load balancer

/// Settings of a Service that is to have no load balancer. An error in an annotation that has no effect now is no reason to keep
/// the load balancer; one in the deletion policy is.
pub(crate) fn cleanup_settings(service: &Service) -> Result<LoadBalancerSettings, SyncError> {
    let blocked = |cause| SyncError { action: Action::Delete, cause };
    let settings = service::read(service).cleanup;
    let settings = settings.map_err(|mistakes| blocked(Cause::UnclearPolicy(mistakes)))?;
    if settings.policy == DeletionPolicy::Protect {
        return Err(blocked(Cause::Protected));
    }
    Ok(settings)
}

/// Clouds that may have a load balancer for this Service, as far as the Service shows. The API server removes its class, which
/// would name the cloud, with its type.
pub(crate) fn clouds_to_clean(service: &Service, routing: &Routing, clouds: &Clouds) -> Vec<Cloud> {
    match service.kind {
        ServiceType::LoadBalancer => routing.cloud(service).cloned().into_iter().collect(),
        _ => clouds.iter().filter(|cloud| cloud.has_load_balancers()).cloned().collect(),
    }
}

/// Change of a Service before its load balancer is deleted: a Service that stays loses the annotations that identify the load
/// balancer. If one is desired again before the deletion ends, or after a crash, no sync searches for the deleted one.
pub(crate) fn before_deletion(service: &Service, state: Option<&LoadBalancerState>) -> ServiceChange {
    match state {
        Some(state) if !service.deleting => ServiceChange::default().without_annotations(service, &state.annotations),
        _ => ServiceChange::default(),
    }
}

/// Change of a Service without a load balancer in any cloud; `existed` if one was just deleted, `is_owned` if a sync has begun to
/// create one. `None` if another controller may own the fields.
pub(crate) fn deleted_change(service: &Service, scope: &Scope, existed: bool, is_owned: bool) -> Option<ServiceChange> {
    if !existed && !is_owned && may_be_foreign(service, scope) {
        return None;
    }
    // Also for a Service that is being deleted: it stays as long as it has a finalizer of another controller.
    let change = ServiceChange::default().without_finalizer(service);
    let change = change.with_status(service, &LoadBalancerStatus::default());
    Some(change.without_condition(service, LOAD_BALANCER_READY))
}

/// Whether the finalizer, which all cloud controller managers share, may be another one's: this one does not serve Services without
/// a class, and the class that would have shown the owner is gone with the type.
fn may_be_foreign(service: &Service, scope: &Scope) -> bool {
    !scope.unset && service.class.is_none() && service.condition(LOAD_BALANCER_READY).is_none()
}

// ---- plan

/// Desired and observed state of a load balancer, and the plan between them.
pub(super) struct Planned {
    pub(super) desired: DesiredLoadBalancer,
    pub(super) state: Option<LoadBalancerState>,
    pub(super) plan: Plan,
    /// Operations that earlier steps have started, and that have to end before the next step that is not independent.
    pub(super) pending: Vec<Operation>,
    /// Time of the observation, or of the continuation of an earlier plan.
    pub(super) observed_at: Instant,
    /// The same among the releases of locks.
    pub(super) lock_moment: Moment,
    /// Time of the plan.
    pub(super) planned_at: Instant,
    /// The first step was tried before.
    pub(super) is_continued: bool,
}

impl Planned {
    /// Whether no step and no operation is left.
    pub(super) fn is_done(&self) -> bool {
        self.plan.is_empty() && self.pending.is_empty()
    }
}

/// Plans the way from the state that the cloud had at the time of the request, which may be a while before its answer.
pub(super) fn plan(
    cloud: &Cloud,
    desired: DesiredLoadBalancer,
    state: Option<LoadBalancerState>,
    (observed_at, lock_moment): (Instant, Moment),
    execution: &mut Execution,
) -> Result<Planned, Error> {
    if let Some(state) = &state {
        execution.annotate(&desired, &state.annotations);
    }
    let plan = execution.accept(cloud.layers().plan_load_balancer(&desired, state.as_ref())?);
    let (pending, planned_at) = (Vec::new(), observed_at);
    Ok(Planned { desired, state, plan, pending, observed_at, lock_moment, planned_at, is_continued: false })
}

/// Remaining steps of a plan.
struct Remaining {
    desired: DesiredLoadBalancer,
    plan: Plan,
    pending: Vec<Operation>,
    planned_at: Instant,
}

/// Execution of plans for one load balancer, over all syncs until it is as desired.
pub(super) struct Execution {
    cloud: Cloud,
    key: LoadBalancerKey,
    pub(super) trigger: Trigger,
    began: Instant,
    /// A step was applied.
    pub(super) changed: bool,
    /// The cloud was observed because the outcome of a create step was unknown.
    has_observed_create: bool,
    /// Dispensable steps that the cloud has rejected, each with its warning.
    skipped: Vec<(Step, Warning)>,
    remaining: Option<Remaining>,
    /// Locks on the resources that the plan writes, held until the execution ends: also while the cloud is at work.
    guard: Option<Guard>,
    /// Annotations that the cloud wants on the Service.
    annotations: BTreeMap<String, String>,
    /// Warnings for the user; `None` as long as there is no plan.
    warnings: Option<Vec<Warning>>,
}

impl Execution {
    /// Continues the execution that an earlier sync could not finish, or begins one.
    pub(super) fn resume(
        earlier: Option<Execution>,
        cloud: &Cloud,
        desired: &DesiredLoadBalancer,
        trigger: Trigger,
    ) -> Execution {
        let is_same = |earlier: &Execution| earlier.cloud.name() == cloud.name() && earlier.key == desired.key;
        match earlier.filter(is_same) {
            // The earlier sync has recorded the targets, so that this one sees no difference.
            Some(earlier) => {
                let trigger = if trigger == Trigger::Drift { earlier.trigger } else { trigger };
                Execution { trigger, annotations: BTreeMap::new(), warnings: None, ..earlier }
            }
            None => Execution {
                cloud: cloud.clone(),
                key: desired.key.clone(),
                trigger,
                began: Instant::now(),
                changed: false,
                has_observed_create: false,
                skipped: Vec::new(),
                remaining: None,
                guard: None,
                annotations: BTreeMap::new(),
                warnings: None,
            },
        }
    }

    pub(super) fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// Time since it began.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether to observe the cloud instead of failing: the step creates something, and the outcome of its call is unknown. Once
    /// only, so that a cloud which answers no write does not occupy the worker.
    pub(super) fn observes_after(&mut self, step: &Step, error: &Error) -> bool {
        // An error of one of these kinds means that an earlier attempt is still open, after an observation.
        let is_known = matches!(error.kind(), ErrorKind::InProgress | ErrorKind::Conflict);
        let is_unclear = step.verb == Verb::Create && error.is_outcome_unknown() && !is_known;
        is_unclear && !std::mem::replace(&mut self.has_observed_create, true)
    }

    /// Takes the locks of this plan in addition to those that are held. If another Service holds one of them, all locks are
    /// released, and this Service is requeued when the other one releases it.
    pub(super) fn try_lock(&mut self, plan: &Plan, service: &ServiceKey, queue: &Queue<ServiceKey>) -> bool {
        let (key, queue) = (service.clone(), queue.clone());
        let wake = move || queue.add(key, Priority::High);
        let waiter = service.to_string();
        let is_locked = match &mut self.guard {
            Some(guard) => guard.try_extend(&plan.locks, &waiter, wake),
            None => {
                self.guard = self.cloud.layers().locks().try_take(&plan.locks, &waiter, wake);
                self.guard.is_some()
            }
        };
        if !is_locked {
            self.guard = None;
        }
        is_locked
    }

    /// Whether another Service may have changed the locked resources since the observation.
    pub(super) fn is_outdated(&self, planned: &Planned) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_outdated(planned.lock_moment))
    }

    /// Annotations that the cloud wants on the Service.
    pub(super) fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// Warnings for the user; `None` if there was no plan that could have any.
    pub(super) fn warnings(&self) -> Option<&[Warning]> {
        self.warnings.as_deref()
    }

    /// Takes the remaining steps of the earlier plan, if that plan leads to the desired state and is not too old.
    pub(super) fn take_remaining(&mut self, desired: &DesiredLoadBalancer) -> Option<Planned> {
        let remaining = self.remaining.take()?;
        // An operation has a deadline of its own.
        let is_fresh = !remaining.pending.is_empty() || remaining.planned_at.elapsed() < MAX_PLAN_AGE;
        let is_valid = remaining.desired == *desired && is_fresh;
        let Remaining { desired, plan, pending, planned_at } = Some(remaining).filter(|_| is_valid)?;
        let (observed_at, lock_moment) = (Instant::now(), self.cloud.layers().locks().now());
        Some(Planned { desired, state: None, plan, pending, observed_at, lock_moment, planned_at, is_continued: true })
    }

    /// Keeps these steps for a later sync: the cloud is at work.
    pub(super) fn keep_remaining(&mut self, planned: &Planned, steps: Vec<Step>) {
        let desired = self.with_annotations(planned.desired.clone());
        let plan = Plan { steps, warnings: Vec::new(), ..planned.plan.clone() };
        let (pending, planned_at) = (planned.pending.clone(), planned.planned_at);
        self.remaining = Some(Remaining { desired, plan, pending, planned_at });
    }

    /// Desired state of the Service once it has the annotations of the cloud.
    pub(super) fn with_annotations(&self, mut desired: DesiredLoadBalancer) -> DesiredLoadBalancer {
        let missing = |(key, value): &(&String, &String)| desired.annotations.get(*key) != Some(*value);
        if desired.spec.is_some() && self.annotations.iter().any(|annotation| missing(&annotation)) {
            Arc::make_mut(&mut desired.annotations).extend(self.annotations.clone());
        }
        desired
    }

    /// Records annotations of the cloud. A Service that is to have no load balancer gets none.
    pub(super) fn annotate(&mut self, desired: &DesiredLoadBalancer, annotations: &BTreeMap<String, String>) {
        if desired.spec.is_some() {
            self.annotations.extend(annotations.clone());
        }
    }

    /// Returns the new plan without the steps that are skipped, and records its warnings.
    pub(super) fn accept(&mut self, plan: Plan) -> Plan {
        let is_planned = |(step, _): &&(Step, Warning)| plan.steps.contains(step);
        let skipped: Vec<_> = self.skipped.iter().filter(is_planned).cloned().collect();
        let known = skipped.iter().map(|(_, warning)| warning.clone());
        plan.warnings.into_iter().chain(known).for_each(|warning| self.warn(warning));
        self.warnings.get_or_insert_default();
        let is_open = |step: &Step| skipped.iter().all(|(skipped, _)| skipped != step);
        Plan { steps: plan.steps.into_iter().filter(is_open).collect(), warnings: Vec::new(), ..plan }
    }

    /// Skips a best-effort step that the cloud has rejected.
    pub(super) fn skip(&mut self, step: Step, error: &Error) {
        let reason = step.best_effort.clone().unwrap_or_default();
        let warning = Warning { reason, message: format!("{} {} {}: {error}", step.verb, step.kind, step.name) };
        self.warn(warning.clone());
        self.skipped.push((step, warning));
    }

    fn warn(&mut self, warning: Warning) {
        let warnings = self.warnings.get_or_insert_default();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}
