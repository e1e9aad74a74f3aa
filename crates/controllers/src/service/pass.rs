//! One pass over one balancer.

use std::sync::Arc;

use bowline_cloud::{Cloud, Error, ErrorKind, SyncPurpose};
use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::service::{self, Choice, ServiceChange};
use bowline_core::{DesiredLoadBalancer, LoadBalancerStatus, Service, ServiceKey, TargetNode, TargetSet};
use bowline_kube::WriteError;
use bowline_runtime::{Priority, Shutdown};

use super::carry::Outcome;
use super::condition;
use super::decide::{self, Need};
use super::job::{Job, Sight};
use super::memory::Held;
use super::statuses::Verdict;
use super::tell::NAMES;
use super::trouble::{Failures, Task, Trouble};
use super::{Reason, Shared};

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
    /// Another Service holds a lock; this one is queued when it is released.
    Waiting,
    /// It would have been done, if this were not a dry run.
    DryRun,
}

/// The end of a pass; an error names the Service that it is about, if there is one.
pub(super) type Ended = Result<Done, (Option<Arc<Service>>, Trouble)>;

/// Why there may be something to do, and the targets then.
struct Occasion {
    reason: Reason,
    targets: TargetSet,
}

impl Occasion {
    /// What is being done then.
    fn task(&self) -> Task {
        if self.reason == Reason::Nodes { Task::UpdateTargets } else { Task::Ensure }
    }
}

impl Pass<'_> {
    /// Does what the Service, or its absence, calls for (SVC-10 to SVC-18).
    pub(super) async fn run(&self) -> Ended {
        match self.settle_debts().await.map_err(|trouble| (None, trouble))? {
            Done::Waiting => return Ok(Done::Waiting),
            Done::Settled | Done::DryRun => {}
        }
        let Some(service) = self.current() else { return Ok(Done::Settled) };
        let outcome = match self.need(&service) {
            Need::Balancer(cloud) => self.ensure(cloud, &service).await,
            Need::Cleanup => self.clean_up(&service).await,
            Need::Paused => {
                self.shared.report_pause(&service);
                return Ok(Done::Settled);
            }
            Need::Nothing => Ok(Done::Settled),
        };
        self.shared.paused.forget(self.key);
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
        let settings = decide::settings(cloud, service, reading).map_err(decide::mistaken)?;
        self.shared.watch_labels(&settings);
        let (desired, choice) = self.desired(cloud, service, &settings)?;
        let occasion = self.begin(service, choice);
        let service = &self.add_finalizer(service).await?;
        self.shared.memory.hold(self.key, service, cloud);
        let again = || {
            let (desired, choice) = self.desired(cloud, service, &settings).ok()?;
            self.shared.memory.tries(self.key, choice.targets);
            Some(desired)
        };
        let mut job = Job::go_on(self.shared.memory.unfinished(self.key), cloud, &desired, occasion.reason);
        let outcome = self.bring_about(cloud, desired.clone(), again, &mut job).await;
        if job.changed && outcome.as_ref().is_err_and(|error| error.kind().is_refusal()) {
            self.look_for_notes(cloud, &desired, &mut job).await;
        }
        let occasion = Occasion { reason: job.reason, ..occasion };
        self.worked(service, job, &outcome);
        match outcome {
            Ok(outcome) if outcome.waiting => Ok(Done::Waiting),
            Ok(outcome) if outcome.withheld => Ok(Done::DryRun),
            Ok(outcome) => self.ensured(service, &settings, outcome, &occasion).await,
            // Somebody else makes the balancer and writes the status; the finalizer is theirs, too (SVC-14).
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => Ok(Done::Settled),
            Err(error) => Err(Trouble::cloud(occasion.task())(error)),
        }
    }

    /// What is wished of the cloud now, and the choice of targets in it.
    fn desired(
        &self,
        cloud: &Cloud,
        service: &Service,
        settings: &LoadBalancerSettings,
    ) -> Result<(DesiredLoadBalancer, Choice), Trouble> {
        let rules = self.shared.rules_of(cloud, service, settings);
        let choice = self.shared.targets(cloud, settings, rules);
        let desired = decide::desired(cloud, &self.shared.options.cluster, service, settings, choice.targets.clone())?;
        Ok((desired, choice))
    }

    /// Tells what there is to tell before anything is done, and keeps these targets in mind.
    fn begin(&self, service: &Service, Choice { targets, left_out }: Choice) -> Occasion {
        self.shared.remark_targets(service, &targets);
        self.shared.report_left_out(service, &left_out);
        let before = self.shared.memory.tried(self.key);
        self.shared.memory.tries(self.key, targets.clone());
        self.shared.announce(service);
        if let Some(before) = &before {
            log_changes(before, &targets);
        }
        Occasion { reason: self.shared.reason(self.key, before.as_ref(), &targets), targets }
    }

    async fn add_finalizer(&self, service: &Arc<Service>) -> Result<Arc<Service>, Trouble> {
        let change = ServiceChange::add_finalizer(service);
        Ok(self.write(service, &change, Task::AddFinalizer).await?.unwrap_or_else(|| service.clone()))
    }

    /// Counts and tells what came of the work, and keeps in mind what is left of it and what is to be noted.
    fn worked(&self, service: &Service, job: Job, outcome: &Result<Outcome, Error>) {
        let is_at_work = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::InProgress);
        let failed = outcome.is_err() && !is_at_work;
        let is_waiting = outcome.as_ref().is_ok_and(|outcome| outcome.waiting);
        if failed || outcome.as_ref().is_ok_and(|outcome| outcome.changed && !outcome.waiting) {
            self.shared.count(job.reason, job.took(), failed);
        }
        let is_for_nodes = job.reason == Reason::Nodes;
        let purpose = if is_for_nodes { SyncPurpose::UpdateTargets } else { SyncPurpose::Ensure };
        count_sync(&job, purpose, outcome.as_ref().map_err(|error| Some(error.kind())));
        self.shared.tell_notices(job.cloud(), service, job.warnings());
        self.shared.memory.note(self.key, job.annotations());
        if is_at_work || is_waiting {
            self.shared.memory.unfinish(self.key, job);
        }
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
            self.shared.memory.forget_notes(self.key);
            return Ok(Done::Settled);
        }
        self.shared.tell_ensured(service, occasion.reason, outcome.changed, &occasion.targets);
        let errors = condition::errors(&state);
        self.shared.remark_problems(service, &errors);
        let status = self.settle_status(service, decide::with_ip_mode(state.status, settings));
        let ready = condition::ready(&errors, self.shared.context.clock.now());
        let change = decide::ensured(service, &status, ready);
        let change = change.with_annotations(service, &self.shared.memory.notes(self.key));
        self.write(service, &change, Task::UpdateStatus).await?;
        self.shared.statuses.wrote(service, &status);
        self.shared.memory.forget_notes(self.key);
        if !errors.is_empty() {
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

    /// Returns the status that the Service is to have, which is the present one while it is left to another controller.
    fn settle_status(&self, service: &Service, wanted: LoadBalancerStatus) -> LoadBalancerStatus {
        let statuses = &self.shared.statuses;
        match statuses.judge(service, &wanted) {
            Verdict::LeaveFor(pause) => {
                self.shared.queue.add_after(self.key.clone(), pause, Priority::Low);
                return service.status.clone();
            }
            Verdict::Correct => self.shared.report_overwritten(service, &wanted),
            Verdict::Write => {}
        }
        statuses.writes(service, &wanted);
        wanted
    }

    // ---- no balancer is wanted

    async fn clean_up(&self, service: &Arc<Service>) -> Result<Done, Trouble> {
        let settings = decide::cleanup_settings(service)?;
        let desired = service::desired_cleanup(&self.shared.options.cluster, service, &settings);
        if let done @ (Done::Waiting | Done::DryRun) = self.remove_everywhere(service, &desired).await? {
            return Ok(done);
        }
        let existed = self.shared.memory.has_removed(self.key, &service.uid);
        let is_held = self.held(service).is_some();
        let service = &self.shared.memory.latest(self.key, service.clone());
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

    /// Removes what each cloud has. A cloud that fails keeps the Service, and holds up no other cloud.
    async fn remove_everywhere(&self, service: &Arc<Service>, desired: &DesiredLoadBalancer) -> Result<Done, Trouble> {
        let clouds = self.clouds_of(service);
        let (mut done, mut failures) = (Done::Settled, Failures::default());
        for cloud in &clouds {
            match self.remove(cloud, service, desired).await {
                Ok(removed) if removed.waiting => done = Done::Waiting,
                Ok(removed) if removed.withheld => done = Done::DryRun,
                Ok(removed) if removed.changed => self.shared.memory.removed(self.key, &service.uid),
                Ok(_) => {}
                Err(trouble) => failures.add(cloud.name(), trouble)?,
            }
        }
        failures.into_result(clouds.len()).map(|()| done)
    }

    /// The clouds that may have a balancer for this Service.
    fn clouds_of(&self, service: &Service) -> Vec<Cloud> {
        let Some(held) = self.held(service) else {
            return decide::clouds_to_clean(service, &self.shared.routing, &self.shared.context.clouds);
        };
        vec![held.cloud]
    }

    /// Removes what the cloud has.
    async fn remove(
        &self,
        cloud: &Cloud,
        service: &Arc<Service>,
        desired: &DesiredLoadBalancer,
    ) -> Result<Outcome, Trouble> {
        let mut job = Job::go_on(self.shared.memory.unfinished(self.key), cloud, desired, Reason::News);
        let outcome = self.try_to_remove(cloud, service, desired, &mut job).await;
        count_sync(&job, SyncPurpose::Delete, outcome.as_ref().map_err(Trouble::kind));
        self.shared.tell_notices(cloud, service, job.warnings());
        match outcome {
            // Somebody else sees to it.
            Err(trouble) if trouble.is_kind(ErrorKind::ImplementedElsewhere) => Ok(Outcome::default()),
            Err(trouble) if trouble.is_kind(ErrorKind::InProgress) => {
                self.shared.memory.unfinish(self.key, job);
                Err(trouble)
            }
            Ok(outcome) if outcome.waiting => {
                self.shared.memory.unfinish(self.key, job);
                Ok(outcome)
            }
            outcome => outcome,
        }
    }

    async fn try_to_remove(
        &self,
        cloud: &Cloud,
        service: &Arc<Service>,
        desired: &DesiredLoadBalancer,
        job: &mut Job,
    ) -> Result<Outcome, Trouble> {
        let sight = match job.rest(desired) {
            Some(sight) => Some(sight),
            None => self.begin_to_remove(cloud, service, desired, job).await?,
        };
        let Some(sight) = sight else { return Ok(Outcome { waiting: true, ..Outcome::default() }) };
        self.fulfil(cloud, sight, || None, job).await.map_err(Trouble::cloud(Task::Delete))
    }

    /// `None` if another Service holds a lock.
    async fn begin_to_remove(
        &self,
        cloud: &Cloud,
        service: &Arc<Service>,
        desired: &DesiredLoadBalancer,
        job: &mut Job,
    ) -> Result<Option<Sight>, Trouble> {
        let sight = self.look(cloud, desired.clone(), job).await.map_err(Trouble::cloud(Task::CheckBeforeCleanup))?;
        if sight.plan.is_empty() || cloud.layers().is_dry_run() {
            return Ok(Some(sight));
        }
        // The Event is emitted once it is known that there is something, and that nothing keeps it from being removed.
        if !job.lock(&sight.plan, self.key, &self.shared.queue) {
            return Ok(None);
        }
        self.shared.tell_deleting(service);
        self.take_notes_off(service, sight).await.map(Some)
    }

    /// Takes what leads to the balancer off a Service that stays.
    async fn take_notes_off(&self, service: &Arc<Service>, mut sight: Sight) -> Result<Sight, Trouble> {
        let change = decide::notes_off(service, sight.state.as_ref());
        if !change.is_empty() && self.is_stored(service) {
            Arc::make_mut(&mut sight.desired.annotations).retain(|key, _| !change.annotations.contains_key(key));
            self.write(service, &change, Task::RemoveAnnotations).await?;
        }
        Ok(sight)
    }

    /// It is not one that is gone already.
    fn is_stored(&self, service: &Service) -> bool {
        self.current().is_some_and(|now| now.uid == service.uid)
    }

    /// A Service with our finalizer does not vanish in the regular way, and a watch may lose what is still there. In a cloud
    /// whose marks tell no UID, a new Service of the name has inherited what the old one had.
    async fn has_an_owner_after_all(&self, owed: &Held) -> Result<bool, Trouble> {
        let now = self.shared.context.cluster.service(self.key).await;
        let now = now.map_err(Trouble::cluster(Task::ConfirmDeletion))?;
        let marks_uid = owed.cloud.layers().capabilities().load_balancers.as_ref().is_none_or(|caps| caps.marks_uid);
        let inherits = |now: &Service| !marks_uid && !matches!(self.need(now), Need::Nothing);
        Ok(now.is_some_and(|now| now.uid == owed.service.uid || inherits(&now)))
    }

    /// Removes the load balancers of all Services of this name that are gone. A cloud that fails holds up no other.
    async fn settle_debts(&self) -> Result<Done, Trouble> {
        let owed = self.shared.memory.owed(self.key);
        let (mut done, mut failures) = (Done::Settled, Failures::default());
        for held in &owed {
            match self.settle_debt(held).await {
                Ok(Done::Waiting) => done = Done::Waiting,
                Ok(Done::Settled | Done::DryRun) => {}
                Err(trouble) => failures.add(held.cloud.name(), trouble)?,
            }
        }
        failures.into_result(owed.len()).map(|()| done)
    }

    /// Removes the balancer of a Service that is gone and did not wait for us (SVC-10, SVC-11).
    async fn settle_debt(&self, owed: &Held) -> Result<Done, Trouble> {
        let service = &owed.service;
        // Nobody is left to ask what is wanted, so in doubt the balancer stays; `bowline orphans` shows it.
        let Ok(settings) = decide::cleanup_settings(service) else {
            self.shared.memory.released(self.key, &service.uid);
            return Ok(Done::Settled);
        };
        if self.has_an_owner_after_all(owed).await? {
            self.shared.memory.released(self.key, &service.uid);
            return Ok(Done::Settled);
        }
        let desired = service::desired_cleanup(&self.shared.options.cluster, service, &settings);
        let removed = self.remove(&owed.cloud, service, &desired).await.inspect_err(|trouble| {
            if !trouble.is_calm() {
                self.shared.tell_delete_failure(service, trouble);
            }
        })?;
        if removed.waiting {
            return Ok(Done::Waiting);
        }
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
        self.shared.memory.annotates(self.key, service, &change.annotations);
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

    /// Writes what the cloud has noted, alone: nothing else is to be said.
    pub(super) async fn write_notes(&self, service: &Arc<Service>) {
        let service = self.shared.memory.latest(self.key, service.clone());
        let change = ServiceChange::default().with_annotations(&service, &self.shared.memory.notes(self.key));
        if let Err(error) = self.write(&service, &change, Task::UpdateStatus).await {
            tracing::warn!(%error, "what the cloud has noted cannot be written to the Service");
        }
    }
}

/// Logs the number of targets that come and go, and the first of their names for debugging.
fn log_changes(before: &TargetSet, targets: &TargetSet) {
    let changes = targets.changes_from(before);
    if changes.is_empty() {
        return;
    }
    let (added, removed, changed) = (changes.added.len(), changes.removed.len(), changes.changed.len());
    tracing::info!(added, removed, changed, total = targets.len(), "the targets of the load balancer change");
    let names = |nodes: &[&TargetNode]| nodes.iter().take(NAMES).map(|target| target.node.clone()).collect::<Vec<_>>();
    tracing::debug!(added = ?names(&changes.added), removed = ?names(&changes.removed), "first targets that change");
}

/// Counts a sync that has ended. One that waits for the cloud has not, and one that a dry run withholds never began.
fn count_sync(job: &Job, purpose: SyncPurpose, outcome: Result<&Outcome, Option<ErrorKind>>) {
    let failed = match outcome {
        Ok(outcome) if outcome.withheld || outcome.waiting => return,
        Ok(_) => false,
        Err(Some(ErrorKind::InProgress | ErrorKind::Cancelled | ErrorKind::ImplementedElsewhere)) => return,
        Err(_) => true,
    };
    job.cloud().layers().synced_load_balancer(purpose, job.took(), failed);
}
