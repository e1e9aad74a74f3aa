//! One pass over one balancer.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Applied, Cloud, Error, ErrorKind};
use bowline_core::annotations::{DeletionPolicy, LoadBalancerSettings, Mistake};
use bowline_core::service::{self, ServiceChange};
use bowline_core::well_known::LOAD_BALANCER_READY;
use bowline_core::{
    LoadBalancerState, LoadBalancerStatus, LoadBalancerWish, Plan, Service, ServiceKey, ServiceType, Step, TargetNode,
};
use bowline_kube::WriteError;
use bowline_runtime::{Priority, Shutdown};
use tokio::time::Instant;

use super::Shared;
use super::balancers::{SharedBalancer, Turn};
use super::memory::Held;
use super::tell;
use super::trouble::{Cause, Task, Trouble};

/// A plan is made and carried out so many times in one pass; a cloud that is still not as wished then never will be.
const ROUNDS: usize = 5;

/// What was seen of the cloud this long ago is looked at again before anything is written: the turn came late.
const STALE: Duration = Duration::from_secs(5);

/// One pass over the balancer of one Service.
pub(super) struct Pass<'a> {
    pub(super) shared: &'a Shared,
    pub(super) key: &'a ServiceKey,
    pub(super) shutdown: &'a Shutdown,
}

/// How a pass ends if nothing is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Everything is as wanted.
    Settled,
    /// Somebody else has the balancer in work, and will see to it that there is another pass.
    Waiting,
    /// It would have been done, if this were not a dry run.
    DryRun,
}

/// What became of a plan.
struct Outcome {
    /// What the cloud has now.
    state: Option<LoadBalancerState>,
    /// Anything was written.
    changed: bool,
    /// There is something to be done that a dry run does not do.
    withheld: bool,
}

/// What was seen of the cloud, and what is to be done about it.
struct Sight {
    wish: LoadBalancerWish,
    state: Option<LoadBalancerState>,
    plan: Plan,
    at: Instant,
}

impl Pass<'_> {
    /// Does what the Service, or its absence, calls for (SVC-10 to SVC-18).
    pub(super) async fn run(&self) -> Result<Done, (Option<Arc<Service>>, Trouble)> {
        for owed in self.shared.memory.owed(self.key) {
            if self.settle_debt(&owed).await.map_err(|trouble| (None, trouble))? == Done::Waiting {
                return Ok(Done::Waiting);
            }
        }
        let Some(stored) = self.shared.context.services.get(&self.key.to_string()) else { return Ok(Done::Settled) };
        let service = self.shared.memory.latest(self.key, stored);
        let outcome = if self.is_wanted(&service) {
            self.ensure(&service).await
        } else if self.may_have_balancer(&service) {
            self.clean_up(&service).await
        } else {
            Ok(Done::Settled)
        };
        outcome.map_err(|trouble| (Some(service), trouble))
    }

    /// A balancer is wanted. Not for a Service that is going, finalizer or not (SVC-15).
    fn is_wanted(&self, service: &Service) -> bool {
        !service.deleting && service::wants_balancer(service, &self.shared.scope)
    }

    fn may_have_balancer(&self, service: &Service) -> bool {
        service::needs_cleanup(service, &self.shared.scope)
            || service::wants_balancer(service, &self.shared.scope)
            || self.shared.memory.held(self.key, &service.uid).is_some()
    }

    // ---- a balancer is wanted

    async fn ensure(&self, service: &Arc<Service>) -> Result<Done, Trouble> {
        let mistakes = |mistakes| Trouble { task: Task::Ensure, cause: Cause::Mistakes(mistakes) };
        let Some(cloud) = self.shared.routing.cloud(service) else { return Ok(Done::Settled) };
        let reading = service::read(service);
        self.shared.remark_annotations(service, &reading.unknown);
        let settings = reading.settings.map_err(mistakes)?;
        let Some(_turn) = self.turn(cloud, &settings) else { return Ok(Done::Waiting) };
        let (wish, targets) = self.wish(cloud, service, &settings).map_err(mistakes)?;
        cloud.layers().check_load_balancer(&wish).map_err(Trouble::cloud(Task::Ensure))?;
        self.shared.remark_targets(service, &targets);
        let before = self.shared.memory.tried(self.key);
        self.shared.memory.tries(self.key, targets.clone());
        let reason = self.shared.reason(self.key, before.as_deref(), &targets);
        self.shared.announce(service);
        let service = &self.add_finalizer(service).await?;
        self.shared.memory.hold(self.key, service, cloud);
        let began = Instant::now();
        let outcome = self.bring_about(cloud, wish, || {
            let (wish, targets) = self.wish(cloud, service, &settings).ok()?;
            self.shared.memory.tries(self.key, targets);
            Some(wish)
        });
        let outcome = outcome.await;
        let failed = outcome.as_ref().is_err_and(|error| error.kind() != ErrorKind::InProgress);
        if outcome.as_ref().is_ok_and(|outcome| outcome.changed) || failed {
            self.shared.count(reason, began.elapsed(), failed);
        }
        match outcome {
            Ok(outcome) if outcome.withheld => Ok(Done::DryRun),
            Ok(outcome) => self.ensured(service, &settings, outcome, reason, &targets).await,
            // Somebody else makes the balancer and writes the status; the finalizer is theirs, too (SVC-14).
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => Ok(Done::Settled),
            Err(error) => {
                self.shared.tell_update_failure(service, reason, &targets, &error);
                Err(Trouble::cloud(Task::Ensure)(error))
            }
        }
    }

    /// The cloud has what is wanted: the Service is told.
    async fn ensured(
        &self,
        service: &Arc<Service>,
        settings: &LoadBalancerSettings,
        outcome: Outcome,
        reason: super::Reason,
        targets: &[TargetNode],
    ) -> Result<Done, Trouble> {
        let missing = || Error::new(ErrorKind::Unexpected, "observe load balancer", "there is none after it was made");
        let state = outcome.state.ok_or_else(missing).map_err(Trouble::cloud(Task::Ensure))?;
        self.shared.tell_ensured(service, reason, outcome.changed, targets);
        let problems = tell::problems(&state);
        self.shared.remark_problems(service, &problems);
        let status = with_ip_mode(state.status, settings);
        let has_address = service.status.ingress.is_empty() && !status.ingress.is_empty();
        let mut change = ServiceChange::default().with_status(service, &status);
        // A Service that is as wanted and never was in trouble is not written to for the sake of a condition.
        if !change.is_empty() || service.condition(LOAD_BALANCER_READY).is_some() {
            change = change.with_condition(service, self.shared.ready(&problems));
        }
        self.write(service, &change, Task::UpdateStatus).await?;
        if !problems.is_empty() {
            // Nobody tells when they are over.
            self.shared.queue.add_after(self.key.clone(), tell::AILING, Priority::Low);
        }
        if has_address {
            self.shared.addressed(service);
        } else if outcome.changed && reason == super::Reason::News {
            // A port or an address that it no longer has.
            self.shared.let_go();
        }
        self.shared.memory.settled(self.key);
        Ok(Done::Settled)
    }

    /// The right to work on the balancer; `None` if another Service has it in work.
    fn turn(&self, cloud: &Cloud, settings: &LoadBalancerSettings) -> Option<Option<Turn<'_>>> {
        match SharedBalancer::of(cloud.name(), self.key, settings) {
            Some(balancer) => self.shared.balancers.turn(balancer, self.key, &self.shared.queue).map(Some),
            None => Some(None),
        }
    }

    async fn add_finalizer(&self, service: &Arc<Service>) -> Result<Arc<Service>, Trouble> {
        let change = ServiceChange::add_finalizer(service);
        Ok(self.write(service, &change, Task::AddFinalizer).await?.unwrap_or_else(|| service.clone()))
    }

    /// What is wished of the cloud now, and the targets in it.
    fn wish(
        &self,
        cloud: &Cloud,
        service: &Service,
        settings: &LoadBalancerSettings,
    ) -> Result<(LoadBalancerWish, Arc<Vec<TargetNode>>), Vec<Mistake>> {
        let targets = self.shared.targets(cloud, settings);
        let wish = service::wish(&self.shared.options.cluster, service, settings, targets.to_vec())?;
        Ok((wish, targets))
    }

    // ---- no balancer is wanted

    async fn clean_up(&self, service: &Arc<Service>) -> Result<Done, Trouble> {
        let settings = cleanup_settings(service)?;
        let wish = service::cleanup_wish(&self.shared.options.cluster, service, &settings);
        let mut existed = false;
        for cloud in self.clouds_of(service) {
            let Some(_turn) = self.turn(&cloud, &settings) else { return Ok(Done::Waiting) };
            let removed = self.remove(&cloud, service, &wish).await?;
            if removed.withheld {
                return Ok(Done::DryRun);
            }
            existed |= removed.changed;
        }
        if !existed && self.may_be_anothers(service) {
            return Ok(Done::Settled);
        }
        // Also of a Service that is going: it stays for as long as somebody else's finalizer holds it.
        let change = ServiceChange::default().without_finalizer(service);
        let change = change.with_status(service, &LoadBalancerStatus::default());
        let change = change.without_condition(service, LOAD_BALANCER_READY);
        self.write(service, &change, Task::RemoveFinalizer).await?;
        self.shared.memory.released(self.key, &service.uid);
        if existed {
            self.shared.tell_deleted(service);
            self.shared.let_go();
        }
        Ok(Done::Settled)
    }

    /// Nothing says that the finalizer, which all managers share, is ours: Services without a class are somebody else's, and
    /// the class that would have told is gone with the type.
    fn may_be_anothers(&self, service: &Service) -> bool {
        !self.shared.scope.unset
            && service.class.is_none()
            && service.condition(LOAD_BALANCER_READY).is_none()
            && self.shared.memory.held(self.key, &service.uid).is_none()
    }

    /// The clouds that may have a balancer for this Service. Its class, which says which, is gone once its type is another.
    fn clouds_of(&self, service: &Service) -> Vec<Cloud> {
        if let Some(held) = self.shared.memory.held(self.key, &service.uid) {
            return vec![held.cloud];
        }
        if service.kind == ServiceType::LoadBalancer {
            return self.shared.routing.cloud(service).cloned().into_iter().collect();
        }
        self.shared.context.clouds.iter().filter(|cloud| cloud.has_load_balancers()).cloned().collect()
    }

    /// Removes what the cloud has.
    async fn remove(&self, cloud: &Cloud, service: &Service, wish: &LoadBalancerWish) -> Result<Outcome, Trouble> {
        // That cleaning up begins is told once it is known that there is something.
        let tell = |plan: &Plan| (!plan.is_empty()).then(|| self.shared.tell_deleting(service));
        match self.bring_about_with(cloud, wish.clone(), || None, tell).await {
            Ok(outcome) => Ok(outcome),
            Err((_, error)) if error.kind() == ErrorKind::ImplementedElsewhere => {
                Ok(Outcome { state: None, changed: false, withheld: false })
            }
            Err((task, error)) => Err(Trouble::cloud(task)(error)),
        }
    }

    /// Removes the balancer of a Service that is gone and did not wait for us (SVC-10, SVC-11).
    async fn settle_debt(&self, owed: &Held) -> Result<Done, Trouble> {
        let service = &owed.service;
        // Nobody is left to ask what is wanted, so in doubt the balancer stays; `bowline orphans` shows it.
        let Ok(settings) = cleanup_settings(service) else {
            self.shared.memory.released(self.key, &service.uid);
            return Ok(Done::Settled);
        };
        let Some(_turn) = self.turn(&owed.cloud, &settings) else { return Ok(Done::Waiting) };
        let wish = service::cleanup_wish(&self.shared.options.cluster, service, &settings);
        let removed = self.remove(&owed.cloud, service, &wish).await.inspect_err(|trouble| {
            if !trouble.is_calm() {
                self.shared.tell_delete_failure(service, trouble);
            }
        })?;
        if removed.changed {
            self.shared.tell_deleted(service);
            self.shared.let_go();
        }
        if removed.withheld {
            return Ok(Done::DryRun);
        }
        self.shared.memory.released(self.key, &service.uid);
        Ok(Done::Settled)
    }

    // ---- the cloud

    /// Makes the cloud what is wished; `again` says what is wished by now, if the turn to write comes late.
    async fn bring_about(
        &self,
        cloud: &Cloud,
        wish: LoadBalancerWish,
        again: impl Fn() -> Option<LoadBalancerWish>,
    ) -> Result<Outcome, Error> {
        self.bring_about_with(cloud, wish, again, |_| None).await.map_err(|(_, error)| error)
    }

    async fn bring_about_with(
        &self,
        cloud: &Cloud,
        wish: LoadBalancerWish,
        again: impl Fn() -> Option<LoadBalancerWish>,
        tell: impl Fn(&Plan) -> Option<()>,
    ) -> Result<Outcome, (Task, Error)> {
        let look = |error| (Task::CheckBeforeCleanup, error);
        let mut sight = self.look(cloud, wish).await.map_err(look)?;
        if sight.plan.is_empty() {
            return Ok(Outcome { state: sight.state, changed: false, withheld: false });
        }
        if cloud.layers().is_dry_run() {
            return Ok(Outcome { state: sight.state, changed: false, withheld: true });
        }
        tell(&sight.plan);
        let somebody_waits = self.shared.memory.is_news(self.key);
        let priority = if somebody_waits { Priority::High } else { Priority::Low };
        let slot = self.shutdown.or(self.shared.slots.take(priority)).await;
        let _slot = slot.ok_or_else(stopping).map_err(look)?;
        if sight.at.elapsed() > STALE {
            let wish = again().unwrap_or(sight.wish);
            sight = self.look(cloud, wish).await.map_err(look)?;
        }
        self.carry_out(cloud, sight).await.map_err(|error| (Task::Delete, error))
    }

    /// Observes and plans.
    async fn look(&self, cloud: &Cloud, wish: LoadBalancerWish) -> Result<Sight, Error> {
        let observed = self.shutdown.or(cloud.layers().observe_load_balancer(&wish)).await;
        let state = observed.ok_or_else(stopping)??;
        let plan = cloud.layers().plan_load_balancer(&wish, state.as_ref())?;
        Ok(Sight { wish, state, plan, at: Instant::now() })
    }

    /// Carries the plan out, and a further one for what has come up meanwhile, until nothing is left to do.
    async fn carry_out(&self, cloud: &Cloud, mut sight: Sight) -> Result<Outcome, Error> {
        let mut changed = false;
        for _ in 0..ROUNDS {
            if sight.plan.is_empty() {
                return Ok(Outcome { state: sight.state, changed, withheld: false });
            }
            changed = true;
            sight = match self.apply(cloud, &sight).await? {
                Applied::Seen(state) => {
                    let plan = cloud.layers().plan_load_balancer(&sight.wish, state.as_ref())?;
                    Sight { state, plan, ..sight }
                }
                Applied::Done => self.look(cloud, sight.wish).await?,
            };
        }
        let left = format!("after {ROUNDS} rounds there is still something to do:\n{}", sight.plan);
        Err(Error::new(ErrorKind::Unexpected, "apply load balancer", left))
    }

    /// Carries out all steps; what the last one has told.
    async fn apply(&self, cloud: &Cloud, sight: &Sight) -> Result<Applied, Error> {
        let mut last = Applied::Done;
        for step in &sight.plan.steps {
            // A step is at most one call, so between two of them is a good place to stop.
            if self.shutdown.is_requested() {
                return Err(stopping());
            }
            tracing::info!(controller = super::NAME, key = %self.key, provider = %cloud.name(), "{}", in_one_line(step));
            last = cloud.layers().apply_load_balancer(&sight.wish.key, step).await?;
        }
        Ok(last)
    }

    // ---- the API server

    /// Writes the change, if it is one. `None` if nothing was written, or the Service is gone.
    pub(super) async fn write(
        &self,
        service: &Arc<Service>,
        change: &ServiceChange,
        task: Task,
    ) -> Result<Option<Arc<Service>>, Trouble> {
        if change.is_empty() {
            return Ok(None);
        }
        match self.shared.context.cluster.change_service(service, change).await {
            Ok(written) => {
                let written = Arc::new(written);
                self.shared.memory.wrote(self.key, service, &written);
                Ok(Some(written))
            }
            // Gone; that is no reason to make anything for it.
            Err(WriteError::NotFound(_)) if task != Task::AddFinalizer => Ok(None),
            Err(error) => Err(Trouble::cluster(task)(error)),
        }
    }
}

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

/// For the log, whose readers look for lines.
fn in_one_line(step: &Step) -> String {
    let text = step.to_string();
    let mut lines = text.lines().map(str::trim);
    let head = lines.next().unwrap_or_default().to_owned();
    let changes: Vec<&str> = lines.collect();
    if changes.is_empty() { head } else { format!("{head}: {}", changes.join("; ")) }
}

fn stopping() -> Error {
    Error::new(ErrorKind::Cancelled, "sync load balancer", "the manager is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::{FieldChange, Verb};

    #[test]
    fn a_step_is_one_line_in_the_log() {
        let change = |field: &str, to: &str| FieldChange { field: field.into(), from: None, to: Some(to.into()) };
        let step = |changes| Step {
            verb: Verb::Create,
            kind: "balancer".into(),
            name: "b1".into(),
            changes,
            payload: serde_json::Value::Null,
        };
        assert_eq!(in_one_line(&step(vec![])), "create balancer b1");
        let changes = vec![change("owner", "default/web"), change("target a", "10.0.0.1")];
        assert_eq!(in_one_line(&step(changes)), "create balancer b1: owner: default/web; target a: 10.0.0.1");
    }
}
