//! One sync of one Service: `observe`, `plan`, `apply`, `report`, and when to sync next.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Cloud, Error, ErrorKind, SyncPurpose};
use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::service::{self, FAILED_PORTS_PERIOD, ServiceChange, StatusAction, TargetSelection};
use bowline_core::{DesiredLoadBalancer, LoadBalancerStatus, Service, ServiceKey, TargetSet};
use bowline_runtime::{Priority, Shutdown, Work};
use tokio::time::Instant;

use super::apply::Outcome;
use super::error::{Action, CloudErrors, Requeue, SyncError};
use super::history::PlanOutcome;
use super::plan::{self, Execution, Need};
use super::report::{count_sync, log_target_changes};
use super::state::{OwnedLoadBalancer, Resource};
use super::{MAX_PERMANENT_BACKOFF, Shared, Trigger};

/// One sync of one Service.
pub(super) struct ServiceSync<'a> {
    pub(super) shared: &'a Shared,
    pub(super) key: &'a ServiceKey,
    pub(super) shutdown: &'a Shutdown,
}

/// End of a sync without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Synced {
    /// Everything is as desired.
    Done,
    /// Another Service holds a lock; this one is requeued when that is released.
    WaitingForLock,
    /// A dry run did not apply the plan.
    DryRun,
}

/// End of a sync; an error names the Service that it is about, if there is one.
type SyncResult = Result<Synced, (Option<Arc<Service>>, SyncError)>;

/// Trigger and targets of a sync.
struct Attempt {
    trigger: Trigger,
    targets: TargetSet,
}

impl Attempt {
    fn action(&self) -> Action {
        if self.trigger == Trigger::Nodes { Action::UpdateTargets } else { Action::Ensure }
    }
}

// ---- sync and requeue

impl Shared {
    /// Syncs a Service, reports the result, and requeues the Service (SVC-20).
    pub(super) async fn sync(&self, work: &Work<ServiceKey>, shutdown: &Shutdown) {
        let key = work.key();
        let sync = ServiceSync { shared: self, key, shutdown };
        let releases = self.states.releases();
        let result = sync.run().await;
        self.report_node_sync(key);
        if !is_continued(&result) {
            // A plan that no later sync continues must not keep its locks.
            drop(self.take_unfinished(key));
        }
        match result {
            Ok(Synced::WaitingForLock) => {
                self.report_outcome("waiting");
                self.report_blocked(key, "InProgress");
            }
            Ok(synced) => {
                self.metrics.waiting.remove(key);
                self.report_outcome(if synced == Synced::DryRun { "dry_run" } else { "success" });
                self.states.existing(key, |state| state.reported.failure.clear());
                self.states.stop_waiting(key);
                self.queue.forget(key);
            }
            Err((service, error)) => {
                work.failed(&error);
                self.report_blocked(key, &error.reason());
                self.handle_error(&sync, service.as_ref(), &error).await;
                self.wait_for_resource(key, &error, releases);
            }
        }
    }

    async fn handle_error(&self, sync: &ServiceSync<'_>, service: Option<&Arc<Service>>, error: &SyncError) {
        self.report_error_outcome(error);
        if error.is_kind(ErrorKind::Cancelled) {
            if let Some(service) = service {
                sync.write_annotations(service).await;
            }
            return;
        }
        let delay = self.requeue(sync.key, error);
        match service {
            Some(_) if error.is_service_gone() => tracing::info!(%error, "the Service is gone"),
            Some(service) => self.report_failure(sync, service, error, delay).await,
            None => {}
        }
    }

    /// Requeues a Service after an error. Returns the delay; `None` if the Service is synced only after a change.
    fn requeue(&self, key: &ServiceKey, error: &SyncError) -> Option<Duration> {
        match error.requeue() {
            Requeue::Backoff if error.is_permanent() => {
                Some(self.queue.retry_up_to(key.clone(), MAX_PERMANENT_BACKOFF))
            }
            Requeue::Backoff => Some(self.queue.retry(key.clone())),
            Requeue::After(delay) => {
                self.queue.add_after(key.clone(), delay, Priority::High);
                Some(delay)
            }
            Requeue::OnChange => {
                self.queue.forget(key);
                None
            }
        }
    }

    /// Makes a Service wait for a resource that another one may release.
    fn wait_for_resource(&self, key: &ServiceKey, error: &SyncError, releases: u64) {
        match Resource::missing(error) {
            Some(resource) if self.states.wait_for(key, resource, releases) => {}
            Some(_) => self.queue.add(key.clone(), Priority::Low),
            None => self.states.stop_waiting(key),
        }
    }

    /// Retries the Services that wait for a resource: one was released.
    fn release_resource(&self) {
        self.states.release().into_iter().for_each(|key| self.queue.add(key, Priority::Low));
    }

    fn take_unfinished(&self, key: &ServiceKey) -> Option<Execution> {
        self.states.existing(key, |state| state.unfinished.take())?
    }
}

/// Whether a later sync continues the plan of this one.
fn is_continued(result: &SyncResult) -> bool {
    match result {
        Ok(synced) => *synced == Synced::WaitingForLock,
        Err((_, error)) => error.is_benign(),
    }
}

impl ServiceSync<'_> {
    /// Does what the Service, or its absence, needs (SVC-10 to SVC-18).
    async fn run(&self) -> SyncResult {
        match self.delete_orphans().await.map_err(|error| (None, error))? {
            Synced::WaitingForLock => return Ok(Synced::WaitingForLock),
            Synced::Done | Synced::DryRun => {}
        }
        let Some(service) = self.current() else { return Ok(Synced::Done) };
        let result = match self.need(&service) {
            Need::LoadBalancer(cloud) => self.ensure(cloud, &service).await,
            Need::Unmanaged(cloud) => self.leave(cloud, &service).await,
            Need::Cleanup => self.clean_up(&service).await,
            Need::Paused => {
                self.shared.report_pause(&service);
                return Ok(Synced::Done);
            }
            Need::Nothing => Ok(Synced::Done),
        };
        self.shared.states.existing(self.key, |state| state.reported.paused.clear());
        result.map_err(|error| (Some(service), error))
    }

    // ---- ensure: a load balancer is desired

    async fn ensure(&self, cloud: &Cloud, service: &Arc<Service>) -> Result<Synced, SyncError> {
        let shared = self.shared;
        let reading = service::read(service);
        shared.report_unknown_annotations(service, &reading.unknown);
        let settings = plan::settings(cloud, service, reading).map_err(SyncError::invalid_service)?;
        shared.watch_labels(&settings);
        let (desired, choice) = self.desired(cloud, service, &settings)?;
        let attempt = self.begin(service, choice);
        let service = &self.add_finalizer(service).await?;
        self.own(service, cloud);
        let refresh = || {
            let (desired, choice) = self.desired(cloud, service, &settings).ok()?;
            shared.states.update(self.key, |state| state.targets = Some(choice.targets));
            Some(desired)
        };
        let mut execution = Execution::resume(shared.take_unfinished(self.key), cloud, &desired, attempt.trigger);
        let result = self.observe_and_apply(cloud, desired.clone(), refresh, &mut execution).await;
        if execution.changed && result.as_ref().is_err_and(|error| error.kind().is_rejection()) {
            self.observe_annotations(cloud, &desired, &mut execution).await;
        }
        let attempt = Attempt { trigger: execution.trigger, ..attempt };
        self.finish_execution(service, execution, &result);
        match result {
            Ok(outcome) if outcome.waiting => Ok(Synced::WaitingForLock),
            Ok(outcome) if outcome.withheld => Ok(Synced::DryRun),
            Ok(outcome) => self.ensured(service, &settings, outcome, &attempt).await,
            // Another controller owns the load balancer, the status and the finalizer (SVC-14).
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => Ok(Synced::Done),
            Err(error) => Err(SyncError::cloud(attempt.action())(error)),
        }
    }

    /// Desired state as of now, and its targets.
    fn desired(
        &self,
        cloud: &Cloud,
        service: &Service,
        settings: &LoadBalancerSettings,
    ) -> Result<(DesiredLoadBalancer, TargetSelection), SyncError> {
        let rules = self.shared.target_rules(cloud, service, settings);
        let choice = self.shared.targets(cloud, settings, rules);
        let desired = plan::desired(cloud, &self.shared.options.cluster, service, settings, choice.targets.clone())?;
        Ok((desired, choice))
    }

    /// Reports the targets, and records them as those of this sync.
    fn begin(&self, service: &Service, TargetSelection { targets, excluded }: TargetSelection) -> Attempt {
        self.shared.report_no_targets(service, &targets);
        self.shared.report_excluded_nodes(service, &excluded);
        let before = self.shared.states.update(self.key, |state| {
            state.excluded = excluded;
            state.targets.replace(targets.clone())
        });
        self.shared.report_ensuring(service);
        if let Some(before) = &before {
            log_target_changes(before, &targets);
        }
        Attempt { trigger: self.shared.trigger(self.key, before.as_ref(), &targets), targets }
    }

    async fn add_finalizer(&self, service: &Arc<Service>) -> Result<Arc<Service>, SyncError> {
        let change = ServiceChange::add_finalizer(service);
        Ok(self.write(service, &change, Action::AddFinalizer).await?.unwrap_or_else(|| service.clone()))
    }

    /// Records that there may be a load balancer for this Service in this cloud from now on.
    pub(super) fn own(&self, service: &Arc<Service>, cloud: &Cloud) {
        let owned = OwnedLoadBalancer { service: service.clone(), cloud: cloud.clone() };
        self.shared.states.update(self.key, |state| state.owned = Some(owned));
    }

    /// Reports the result of an execution, and keeps it for the next sync if it is not finished.
    fn finish_execution(&self, service: &Service, execution: Execution, result: &Result<Outcome, Error>) {
        let is_in_progress = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::InProgress);
        let is_failed = result.is_err() && !is_in_progress;
        let is_waiting = result.as_ref().is_ok_and(|outcome| outcome.waiting);
        if is_failed || result.as_ref().is_ok_and(|outcome| outcome.changed && !outcome.waiting) {
            self.shared.count_update(execution.trigger, execution.elapsed(), is_failed);
        }
        let is_for_nodes = execution.trigger == Trigger::Nodes;
        let purpose = if is_for_nodes { SyncPurpose::UpdateTargets } else { SyncPurpose::Ensure };
        count_sync(&execution, purpose, result.as_ref().map_err(|error| Some(error.kind())));
        self.shared.report_warnings(execution.cloud(), service, execution.warnings());
        self.record_outcome(&execution, &PlanOutcome::of(result.as_ref()));
        if !execution.annotations().is_empty() {
            let annotations = execution.annotations().clone();
            self.shared.states.update(self.key, |state| state.annotations.extend(annotations));
        }
        if is_in_progress || is_waiting {
            self.shared.states.update(self.key, |state| state.unfinished = Some(execution));
        }
    }

    /// Writes and reports that the load balancer is as desired.
    async fn ensured(
        &self,
        service: &Arc<Service>,
        settings: &LoadBalancerSettings,
        outcome: Outcome,
        attempt: &Attempt,
    ) -> Result<Synced, SyncError> {
        let shared = self.shared;
        let state = plan::applied_state(outcome.state)?;
        // The user has changed it meanwhile: the next sync is queued, and the API server takes no address for another type.
        let is_desired = |now: &Service| matches!(self.need(now), Need::LoadBalancer(_) | Need::Unmanaged(_));
        if self.current().is_some_and(|now| now.uid == service.uid && !is_desired(&now)) {
            shared.clear_annotations(self.key);
            return Ok(Synced::Done);
        }
        shared.report_ensured(service, attempt.trigger, outcome.changed, &attempt.targets);
        let failed_ports = service::failed_ports(&state);
        shared.report_failed_ports(service, &failed_ports);
        let status = self.decide_status(service, plan::with_ip_mode(state.status, settings));
        let ready = service::ready_condition(&failed_ports, shared.context.clock.now());
        let change = plan::ensured_change(service, &status, ready);
        let change = change.with_annotations(service, &shared.open_annotations(self.key));
        self.write(service, &change, Action::UpdateStatus).await?;
        shared.states.existing(self.key, |state| state.writes.confirm_status(&status));
        shared.clear_annotations(self.key);
        if !failed_ports.is_empty() {
            // No event shows when they work again.
            shared.queue.add_after(self.key.clone(), FAILED_PORTS_PERIOD, Priority::Low);
        }
        if service.status.ingress.is_empty() && !status.ingress.is_empty() {
            shared.report_address(service);
        } else if outcome.changed && attempt.trigger == Trigger::UserChange {
            // The change may have released a port or an address.
            shared.release_resource();
        }
        shared.states.existing(self.key, |state| state.change.close());
        Ok(Synced::Done)
    }

    /// Returns the status to write, which is the present one while it is left to another controller.
    fn decide_status(&self, service: &Service, desired: LoadBalancerStatus) -> LoadBalancerStatus {
        let (states, now) = (&self.shared.states, Instant::now().into_std());
        match states.update(self.key, |state| state.writes.decide_status(service, &desired, now)) {
            StatusAction::LeaveFor(pause) => {
                self.shared.queue.add_after(self.key.clone(), pause, Priority::Low);
                return service.status.clone();
            }
            StatusAction::Correct => self.shared.report_overwritten(service, &desired),
            StatusAction::Write => {}
        }
        states.update(self.key, |state| state.writes.record_status(service, &desired));
        desired
    }

    // ---- clean up: no load balancer is desired

    async fn clean_up(&self, service: &Arc<Service>) -> Result<Synced, SyncError> {
        let states = &self.shared.states;
        let settings = plan::cleanup_settings(service)?;
        let desired = service::desired_cleanup(&self.shared.options.cluster, service, &settings);
        if let synced @ (Synced::WaitingForLock | Synced::DryRun) = self.delete_in_all_clouds(service, &desired).await?
        {
            return Ok(synced);
        }
        let deleted = states.existing(self.key, |state| state.deleted_uid.clone()).flatten();
        let (existed, is_owned) = (deleted.as_ref() == Some(&service.uid), self.owned(service).is_some());
        let service = &states.latest(self.key, service.clone());
        let scope = self.shared.routing.scope();
        let Some(change) = plan::deleted_change(service, scope, existed, is_owned) else { return Ok(Synced::Done) };
        self.write(service, &change, Action::RemoveFinalizer).await?;
        states.existing(self.key, |state| state.load_balancer_deleted(&service.uid));
        if existed {
            self.shared.report_deleted(service);
            self.shared.release_resource();
        }
        Ok(Synced::Done)
    }

    /// Deletes the load balancer in each cloud. A cloud that fails keeps the Service, and blocks no other cloud.
    async fn delete_in_all_clouds(
        &self,
        service: &Arc<Service>,
        desired: &DesiredLoadBalancer,
    ) -> Result<Synced, SyncError> {
        let clouds = match self.owned(service) {
            Some(owned) => vec![owned.cloud],
            None => plan::clouds_to_clean(service, &self.shared.routing, &self.shared.context.clouds),
        };
        let (mut synced, mut errors) = (Synced::Done, CloudErrors::default());
        for cloud in &clouds {
            match self.delete(cloud, service, desired).await {
                Ok(outcome) if outcome.waiting => synced = Synced::WaitingForLock,
                Ok(outcome) if outcome.withheld => synced = Synced::DryRun,
                Ok(outcome) if outcome.changed => {
                    self.shared.states.update(self.key, |state| state.deleted_uid = Some(service.uid.clone()));
                }
                Ok(_) => {}
                Err(error) => errors.add(cloud.name(), error)?,
            }
        }
        errors.into_result(clouds.len()).map(|()| synced)
    }

    /// Deletes the load balancer in one cloud, unless it is not managed.
    async fn delete(
        &self,
        cloud: &Cloud,
        service: &Arc<Service>,
        desired: &DesiredLoadBalancer,
    ) -> Result<Outcome, SyncError> {
        let earlier = self.shared.take_unfinished(self.key);
        if plan::is_unmanaged(cloud, service) {
            return Ok(Outcome::default());
        }
        let mut execution = Execution::resume(earlier, cloud, desired, Trigger::UserChange);
        let result = self.observe_and_delete(cloud, service, desired, &mut execution).await;
        count_sync(&execution, SyncPurpose::Delete, result.as_ref().map_err(SyncError::kind));
        self.record_outcome(&execution, &PlanOutcome::of_sync(result.as_ref()));
        self.shared.report_warnings(cloud, service, execution.warnings());
        let is_unfinished = match &result {
            Ok(outcome) => outcome.waiting,
            Err(error) => error.is_kind(ErrorKind::InProgress),
        };
        if is_unfinished {
            self.shared.states.update(self.key, |state| state.unfinished = Some(execution));
        }
        match result {
            // Another controller deletes it.
            Err(error) if error.is_kind(ErrorKind::ImplementedElsewhere) => Ok(Outcome::default()),
            result => result,
        }
    }

    // ---- orphans: the Service is gone, its load balancer is not

    /// Deletes the load balancers of all Services of this name that are gone. A cloud that fails blocks no other.
    async fn delete_orphans(&self) -> Result<Synced, SyncError> {
        let orphans = self.shared.states.existing(self.key, |state| state.orphans.clone()).unwrap_or_default();
        let (mut synced, mut errors) = (Synced::Done, CloudErrors::default());
        for orphan in &orphans {
            match self.delete_orphan(orphan).await {
                Ok(Synced::WaitingForLock) => synced = Synced::WaitingForLock,
                Ok(Synced::Done | Synced::DryRun) => {}
                Err(error) => errors.add(orphan.cloud.name(), error)?,
            }
        }
        errors.into_result(orphans.len()).map(|()| synced)
    }

    /// Deletes the load balancer of a Service that was deleted without our finalizer (SVC-10, SVC-11).
    async fn delete_orphan(&self, orphan: &OwnedLoadBalancer) -> Result<Synced, SyncError> {
        let service = &orphan.service;
        let forget = || self.shared.states.existing(self.key, |state| state.load_balancer_deleted(&service.uid));
        // If the policy is unclear, the load balancer stays; `bowline orphans` shows it.
        let Ok(settings) = plan::cleanup_settings(service) else {
            forget();
            return Ok(Synced::Done);
        };
        if self.has_owner(orphan).await? {
            forget();
            return Ok(Synced::Done);
        }
        let desired = service::desired_cleanup(&self.shared.options.cluster, service, &settings);
        let outcome = self.delete(&orphan.cloud, service, &desired).await;
        let outcome = outcome.inspect_err(|error| self.shared.report_delete_failure(service, error))?;
        if outcome.waiting {
            return Ok(Synced::WaitingForLock);
        }
        if outcome.changed {
            self.shared.report_deleted(service);
            self.shared.release_resource();
        }
        if outcome.withheld {
            return Ok(Synced::DryRun);
        }
        forget();
        Ok(Synced::Done)
    }

    /// Whether the load balancer has an owner after all. A Service with our finalizer is not deleted in the regular way, and a
    /// watch may lose an object that still exists. In a cloud that does not mark resources with the UID, a new Service of the name
    /// has inherited the load balancer.
    async fn has_owner(&self, orphan: &OwnedLoadBalancer) -> Result<bool, SyncError> {
        let now = self.shared.context.cluster.service(self.key).await;
        let now = now.map_err(SyncError::api_server(Action::ConfirmDeletion))?;
        let capabilities = orphan.cloud.layers().capabilities().load_balancers.as_ref();
        let marks_uid = capabilities.is_none_or(|capabilities| capabilities.marks_uid);
        let inherits = |now: &Service| !marks_uid && !matches!(self.need(now), Need::Nothing);
        Ok(now.is_some_and(|now| now.uid == orphan.service.uid || inherits(&now)))
    }
}
