//! One pass over one balancer.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Applied, Cloud, Error, ErrorKind};
use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::service::{self, ServiceChange};
use bowline_core::{LoadBalancerState, LoadBalancerWish, Plan, Service, ServiceKey, Step, TargetNode};
use bowline_kube::WriteError;
use bowline_runtime::{Priority, Shutdown};
use tokio::time::Instant;

use super::balancers::{SharedBalancer, Turn};
use super::condition;
use super::decide::{self, Need};
use super::memory::Held;
use super::trouble::{Task, Trouble};
use super::{Reason, Shared};

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
#[derive(Default)]
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

/// Why there may be something to do, and the targets then.
struct Occasion {
    reason: Reason,
    targets: Arc<Vec<TargetNode>>,
}

impl Occasion {
    /// What is being done then.
    fn task(&self) -> Task {
        if self.reason == Reason::Nodes { Task::UpdateTargets } else { Task::Ensure }
    }
}

impl Pass<'_> {
    /// Does what the Service, or its absence, calls for (SVC-10 to SVC-18).
    pub(super) async fn run(&self) -> Result<Done, (Option<Arc<Service>>, Trouble)> {
        for owed in self.shared.memory.owed(self.key) {
            if self.settle_debt(&owed).await.map_err(|trouble| (None, trouble))? == Done::Waiting {
                return Ok(Done::Waiting);
            }
        }
        let Some(service) = self.current() else { return Ok(Done::Settled) };
        let outcome = match self.need(&service) {
            Need::Balancer(cloud) => self.ensure(cloud, &service).await,
            Need::Cleanup => self.clean_up(&service).await,
            Need::Nothing => Ok(Done::Settled),
        };
        outcome.map_err(|trouble| (Some(service), trouble))
    }

    /// The Service as far as we know by now.
    fn current(&self) -> Option<Arc<Service>> {
        let stored = self.shared.context.services.get(&self.key.to_string())?;
        Some(self.shared.memory.latest(self.key, stored))
    }

    /// What the Service calls for.
    fn need(&self, service: &Service) -> Need<'_> {
        decide::need(service, &self.shared.routing, self.held(service).is_some())
    }

    /// The balancer that was begun for this Service.
    fn held(&self, service: &Service) -> Option<Held> {
        self.shared.memory.held(self.key, &service.uid)
    }

    // ---- a balancer is wanted

    async fn ensure(&self, cloud: &Cloud, service: &Arc<Service>) -> Result<Done, Trouble> {
        let reading = service::read(service);
        self.shared.remark_annotations(service, &reading.unknown);
        let settings = reading.settings.map_err(decide::mistaken)?;
        let Some(_turn) = self.turn(cloud, &settings) else { return Ok(Done::Waiting) };
        let (wish, targets) = self.wish(cloud, service, &settings)?;
        let occasion = self.begin(service, targets);
        let service = &self.add_finalizer(service).await?;
        self.shared.memory.hold(self.key, service, cloud);
        let again = || {
            let (wish, targets) = self.wish(cloud, service, &settings).ok()?;
            self.shared.memory.tries(self.key, targets);
            Some(wish)
        };
        match self.measured(occasion.reason, self.bring_about(cloud, wish, again)).await {
            Ok(outcome) if outcome.withheld => Ok(Done::DryRun),
            Ok(outcome) => self.ensured(service, &settings, outcome, &occasion).await,
            // Somebody else makes the balancer and writes the status; the finalizer is theirs, too (SVC-14).
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => Ok(Done::Settled),
            Err(error) => Err(Trouble::cloud(occasion.task())(error)),
        }
    }

    /// What is wished of the cloud now, and the targets in it.
    fn wish(
        &self,
        cloud: &Cloud,
        service: &Service,
        settings: &LoadBalancerSettings,
    ) -> Result<(LoadBalancerWish, Arc<Vec<TargetNode>>), Trouble> {
        let targets = self.shared.targets(cloud, settings);
        let wish = decide::wish(cloud, &self.shared.options.cluster, service, settings, targets.to_vec())?;
        Ok((wish, targets))
    }

    /// Tells what there is to tell before anything is done, and keeps these targets in mind.
    fn begin(&self, service: &Service, targets: Arc<Vec<TargetNode>>) -> Occasion {
        self.shared.remark_targets(service, &targets);
        let before = self.shared.memory.tried(self.key);
        self.shared.memory.tries(self.key, targets.clone());
        self.shared.announce(service);
        Occasion { reason: self.shared.reason(self.key, before.as_deref(), &targets), targets }
    }

    async fn add_finalizer(&self, service: &Arc<Service>) -> Result<Arc<Service>, Trouble> {
        let change = ServiceChange::add_finalizer(service);
        Ok(self.write(service, &change, Task::AddFinalizer).await?.unwrap_or_else(|| service.clone()))
    }

    /// Makes the cloud what is wished; `again` says what is wished by now, if the turn to write comes late.
    async fn bring_about(
        &self,
        cloud: &Cloud,
        wish: LoadBalancerWish,
        again: impl Fn() -> Option<LoadBalancerWish>,
    ) -> Result<Outcome, Error> {
        let sight = self.look(cloud, wish).await?;
        self.fulfil(cloud, sight, again).await
    }

    /// Counts the work and how long it takes, if it changes or fails to change anything.
    async fn measured(
        &self,
        reason: Reason,
        work: impl Future<Output = Result<Outcome, Error>>,
    ) -> Result<Outcome, Error> {
        let began = Instant::now();
        let outcome = work.await;
        let failed = outcome.as_ref().is_err_and(|error| error.kind() != ErrorKind::InProgress);
        if failed || outcome.as_ref().is_ok_and(|outcome| outcome.changed) {
            self.shared.count(reason, began.elapsed(), failed);
        }
        outcome
    }

    /// The cloud has what is wanted: the Service is told.
    async fn ensured(
        &self,
        service: &Arc<Service>,
        settings: &LoadBalancerSettings,
        outcome: Outcome,
        occasion: &Occasion,
    ) -> Result<Done, Trouble> {
        let state = decide::made(outcome.state)?;
        // Changed its mind meanwhile: the next pass is queued, and the API server takes no address for another type.
        let is_wanted = |now: &Service| matches!(self.need(now), Need::Balancer(_));
        if self.current().is_some_and(|now| now.uid == service.uid && !is_wanted(&now)) {
            return Ok(Done::Settled);
        }
        self.shared.tell_ensured(service, occasion.reason, outcome.changed, &occasion.targets);
        let problems = condition::problems(&state);
        self.shared.remark_problems(service, &problems);
        let status = decide::with_ip_mode(state.status, settings);
        let ready = condition::ready(&problems, self.shared.context.clock.now());
        let change = decide::ensured(service, &status, ready);
        self.write(service, &change, Task::UpdateStatus).await?;
        if !problems.is_empty() {
            // Nobody tells when they are over.
            self.shared.queue.add_after(self.key.clone(), condition::AILING, Priority::Low);
        }
        if service.status.ingress.is_empty() && !status.ingress.is_empty() {
            self.shared.addressed(service);
        } else if outcome.changed && occasion.reason == Reason::News {
            // A port or an address that it no longer has.
            self.shared.let_go();
        }
        self.shared.memory.settled(self.key);
        Ok(Done::Settled)
    }

    // ---- no balancer is wanted

    async fn clean_up(&self, service: &Arc<Service>) -> Result<Done, Trouble> {
        let settings = decide::cleanup_settings(service)?;
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
        let is_held = self.held(service).is_some();
        let Some(change) = decide::removed(service, self.shared.routing.scope(), existed, is_held) else {
            return Ok(Done::Settled);
        };
        self.write(service, &change, Task::RemoveFinalizer).await?;
        self.shared.memory.released(self.key, &service.uid);
        if existed {
            self.shared.tell_deleted(service);
            self.shared.let_go();
        }
        Ok(Done::Settled)
    }

    /// The clouds that may have a balancer for this Service.
    fn clouds_of(&self, service: &Service) -> Vec<Cloud> {
        let Some(held) = self.held(service) else {
            return decide::clouds_to_clean(service, &self.shared.routing, &self.shared.context.clouds);
        };
        vec![held.cloud]
    }

    /// Removes what the cloud has.
    async fn remove(&self, cloud: &Cloud, service: &Service, wish: &LoadBalancerWish) -> Result<Outcome, Trouble> {
        match self.try_to_remove(cloud, service, wish).await {
            // Somebody else sees to it.
            Err(trouble) if trouble.is_kind(ErrorKind::ImplementedElsewhere) => Ok(Outcome::default()),
            outcome => outcome,
        }
    }

    async fn try_to_remove(
        &self,
        cloud: &Cloud,
        service: &Service,
        wish: &LoadBalancerWish,
    ) -> Result<Outcome, Trouble> {
        let sight = self.look(cloud, wish.clone()).await.map_err(Trouble::cloud(Task::CheckBeforeCleanup))?;
        // That cleaning up begins is told once it is known that there is something.
        if !sight.plan.is_empty() && !cloud.layers().is_dry_run() {
            self.shared.tell_deleting(service);
        }
        self.fulfil(cloud, sight, || None).await.map_err(Trouble::cloud(Task::Delete))
    }

    /// A Service with our finalizer does not vanish in the regular way, and a watch may lose what is still there.
    async fn is_there_after_all(&self, service: &Service) -> Result<bool, Trouble> {
        let now = self.shared.context.cluster.service(self.key).await;
        let now = now.map_err(Trouble::cluster(Task::ConfirmDeletion))?;
        Ok(now.is_some_and(|now| now.uid == service.uid))
    }

    /// Removes the balancer of a Service that is gone and did not wait for us (SVC-10, SVC-11).
    async fn settle_debt(&self, owed: &Held) -> Result<Done, Trouble> {
        let service = &owed.service;
        // Nobody is left to ask what is wanted, so in doubt the balancer stays; `bowline orphans` shows it.
        let Ok(settings) = decide::cleanup_settings(service) else {
            self.shared.memory.released(self.key, &service.uid);
            return Ok(Done::Settled);
        };
        if self.is_there_after_all(service).await? {
            self.shared.memory.released(self.key, &service.uid);
            return Ok(Done::Settled);
        }
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

    /// The right to work on the balancer; `None` if another Service has it in work.
    fn turn(&self, cloud: &Cloud, settings: &LoadBalancerSettings) -> Option<Option<Turn<'_>>> {
        match SharedBalancer::of(cloud.name(), self.key, settings) {
            Some(balancer) => self.shared.balancers.turn(balancer, self.key, &self.shared.queue).map(Some),
            None => Some(None),
        }
    }

    /// Observes and plans.
    async fn look(&self, cloud: &Cloud, wish: LoadBalancerWish) -> Result<Sight, Error> {
        let observed = self.shutdown.or(cloud.layers().observe_load_balancer(&wish)).await;
        let state = observed.ok_or_else(stopping)??;
        self.shared.queue.got_on();
        let plan = cloud.layers().plan_load_balancer(&wish, state.as_ref())?;
        Ok(Sight { wish, state, plan, at: Instant::now() })
    }

    /// Does what is to be done about what was seen, once there is a place among those who write; not in a dry run. `again`
    /// says what is wished by now, if the place comes late.
    async fn fulfil(
        &self,
        cloud: &Cloud,
        mut sight: Sight,
        again: impl Fn() -> Option<LoadBalancerWish>,
    ) -> Result<Outcome, Error> {
        if sight.plan.is_empty() || cloud.layers().is_dry_run() {
            let withheld = !sight.plan.is_empty();
            return Ok(Outcome { state: sight.state, changed: false, withheld });
        }
        let somebody_waits = self.shared.memory.is_news(self.key);
        let priority = if somebody_waits { Priority::High } else { Priority::Low };
        let _slot = self.shutdown.or(self.shared.slots.take(priority)).await.ok_or_else(stopping)?;
        if sight.at.elapsed() > STALE {
            let wish = again().unwrap_or(sight.wish);
            sight = self.look(cloud, wish).await?;
        }
        self.carry_out(cloud, sight).await
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
                Applied::Done | Applied::Noted(_) => self.look(cloud, sight.wish).await?,
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
            tracing::info!(cloud = %cloud.name(), step = in_one_line(step), "changing the load balancer");
            last = cloud.layers().apply_load_balancer(&sight.wish.key, step).await?;
            self.shared.queue.got_on();
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
            dispensable: None,
            payload: serde_json::Value::Null,
        };
        assert_eq!(in_one_line(&step(vec![])), "create balancer b1");
        let changes = vec![change("owner", "default/web"), change("target a", "10.0.0.1")];
        assert_eq!(in_one_line(&step(changes)), "create balancer b1: owner: default/web; target a: 10.0.0.1");
    }
}
