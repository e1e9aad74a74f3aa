//! A piece of work on one balancer. A cloud may take a while over a step, and nobody stands there waiting: the pass ends,
//! and a later one goes on where it ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Cloud, Error, ErrorKind, Guard, Moment};
use bowline_core::{
    DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Operation, Plan, ServiceKey, Step, Verb, Warning,
};
use bowline_runtime::{Priority, Queue};
use tokio::time::Instant;

use super::Reason;

/// A plan that is older than this is not carried on with: the cloud is looked at again.
const LASTS: Duration = Duration::from_secs(300);

/// What was seen of the cloud, and what is to be done about it.
pub(super) struct Sight {
    pub(super) desired: DesiredLoadBalancer,
    pub(super) state: Option<LoadBalancerState>,
    pub(super) plan: Plan,
    /// Operations that earlier steps have started, and that have to end before the next step that is not independent.
    pub(super) pending: Vec<Operation>,
    /// When the cloud was looked at, or an earlier pass was gone on with.
    pub(super) at: Instant,
    /// The moment before the observation, among the releases of locks.
    pub(super) observed: Moment,
    /// When the plan was made.
    pub(super) planned: Instant,
    /// Its first step was tried before, and is to be tried again.
    pub(super) is_rest: bool,
}

impl Sight {
    /// Nothing is to be done, and nothing is waited for.
    pub(super) fn is_done(&self) -> bool {
        self.plan.is_empty() && self.pending.is_empty()
    }
}

/// What is left of a plan.
struct Rest {
    desired: DesiredLoadBalancer,
    plan: Plan,
    pending: Vec<Operation>,
    planned: Instant,
}

/// The work, over all of its passes, and what the cloud has said on the way.
pub(super) struct Job {
    cloud: Cloud,
    key: LoadBalancerKey,
    /// Why there is something to do.
    pub(super) reason: Reason,
    began: Instant,
    /// Anything was written to the cloud.
    pub(super) changed: bool,
    /// A create step of this work had no answer, and the cloud was observed because of that.
    has_looked_for_unanswered: bool,
    /// Steps that the cloud has refused and that can be done without, each with what is told of it.
    refused: Vec<(Step, Warning)>,
    rest: Option<Rest>,
    /// Locks on what the plan writes, held until the work is done or dropped: also while the cloud is at work.
    guard: Option<Guard>,
    annotations: BTreeMap<String, String>,
    /// `None` while there is no plan that could have any.
    warnings: Option<Vec<Warning>>,
}

impl Job {
    /// New work, or more of what an earlier pass could not finish.
    pub(super) fn go_on(earlier: Option<Job>, cloud: &Cloud, desired: &DesiredLoadBalancer, reason: Reason) -> Job {
        let is_same = |job: &Job| job.cloud.name() == cloud.name() && job.key == desired.key;
        match earlier.filter(is_same) {
            // That the targets have moved was seen by the earlier pass, and is no news to this one.
            Some(job) => {
                let reason = if reason == Reason::Drift { job.reason } else { reason };
                Job { reason, annotations: BTreeMap::new(), warnings: None, ..job }
            }
            None => Job {
                cloud: cloud.clone(),
                key: desired.key.clone(),
                reason,
                began: Instant::now(),
                changed: false,
                has_looked_for_unanswered: false,
                refused: Vec::new(),
                rest: None,
                guard: None,
                annotations: BTreeMap::new(),
                warnings: None,
            },
        }
    }

    pub(super) fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// How long it has taken so far.
    pub(super) fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether to observe the cloud in place of failing: the step creates something, and the outcome of its call is unknown.
    /// Once only, so that a cloud which answers no write does not occupy the worker.
    pub(super) fn observes_after(&mut self, step: &Step, error: &Error) -> bool {
        // An error of one of these kinds says that an earlier attempt is still open, after an observation.
        let is_known = matches!(error.kind(), ErrorKind::InProgress | ErrorKind::Conflict);
        let is_unclear = step.verb == Verb::Create && error.is_outcome_unknown() && !is_known;
        is_unclear && !std::mem::replace(&mut self.has_looked_for_unanswered, true)
    }

    /// Takes the locks of this plan beside those that are held. If another Service has one of them, nothing is held any more, and
    /// this Service is queued when that one is released.
    pub(super) fn lock(&mut self, plan: &Plan, service: &ServiceKey, queue: &Queue<ServiceKey>) -> bool {
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

    /// Another Service may have changed what is locked now since it was observed.
    pub(super) fn is_outdated(&self, sight: &Sight) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.is_outdated(sight.observed))
    }

    /// What the Service's annotations are to say.
    pub(super) fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    /// What the Service's owner is to know; `None` if nothing new can be said of that.
    pub(super) fn warnings(&self) -> Option<&[Warning]> {
        self.warnings.as_deref()
    }

    /// What is left of the earlier plan, if it is still fit for what is wished.
    pub(super) fn rest(&mut self, desired: &DesiredLoadBalancer) -> Option<Sight> {
        let rest = self.rest.take()?;
        // An operation has a deadline of its own.
        let is_fresh = !rest.pending.is_empty() || rest.planned.elapsed() < LASTS;
        let is_fit = rest.desired == *desired && is_fresh;
        let Rest { desired, plan, pending, planned } = Some(rest).filter(|_| is_fit)?;
        let observed = self.cloud.layers().locks().now();
        Some(Sight { desired, state: None, plan, pending, at: Instant::now(), observed, planned, is_rest: true })
    }

    /// The cloud is at work: these steps are left.
    pub(super) fn leave(&mut self, sight: &Sight, steps: Vec<Step>) {
        let desired = self.noted(sight.desired.clone());
        let plan = Plan { steps, warnings: Vec::new(), ..sight.plan.clone() };
        self.rest = Some(Rest { desired, plan, pending: sight.pending.clone(), planned: sight.planned });
    }

    /// What is wished, of a Service that says all that is to be noted.
    pub(super) fn noted(&self, mut desired: DesiredLoadBalancer) -> DesiredLoadBalancer {
        let missing = |(key, value): &(&String, &String)| desired.annotations.get(*key) != Some(*value);
        if desired.spec.is_some() && self.annotations.iter().any(|noted| missing(&noted)) {
            Arc::make_mut(&mut desired.annotations).extend(self.annotations.clone());
        }
        desired
    }

    /// The Service is to say this. One that is to have no balancer is told nothing of it.
    pub(super) fn note(&mut self, desired: &DesiredLoadBalancer, annotations: &BTreeMap<String, String>) {
        if desired.spec.is_some() {
            self.annotations.extend(annotations.clone());
        }
    }

    /// What is to be done by a new plan: all but what was refused already.
    pub(super) fn take_in(&mut self, plan: Plan) -> Plan {
        let is_planned = |(step, _): &&(Step, Warning)| plan.steps.contains(step);
        let refused: Vec<_> = self.refused.iter().filter(is_planned).cloned().collect();
        let told = refused.iter().map(|(_, warning)| warning.clone());
        plan.warnings.into_iter().chain(told).for_each(|warning| self.remark(warning));
        self.warnings.get_or_insert_default();
        let is_open = |step: &Step| refused.iter().all(|(refused, _)| refused != step);
        Plan { steps: plan.steps.into_iter().filter(is_open).collect(), warnings: Vec::new(), ..plan }
    }

    /// The cloud does not do this, and it is not needed.
    pub(super) fn refuse(&mut self, step: Step, error: &Error) {
        let reason = step.dispensable.clone().unwrap_or_default();
        let warning = Warning { reason, message: format!("{} {} {}: {error}", step.verb, step.kind, step.name) };
        self.remark(warning.clone());
        self.refused.push((step, warning));
    }

    fn remark(&mut self, warning: Warning) {
        let warnings = self.warnings.get_or_insert_default();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}
