//! Applies a plan, to the cloud and to the API server.
//!
//! ```text
//!  remaining steps of an earlier sync ──┐
//!  observe ──► plan ──► steps ──────────┴─► permit to write ──► locks ──► apply, one by one ──► observe, plan ──► no step: done
//!                                                               │ all applied, and the plan has errors: the sync fails
//!                                                               │ rejected and best-effort: skipped, with a warning Event
//!                                                               │ InProgress: the remaining steps are kept, and the sync ends
//!                                                               └ Started: polled before the next step, likewise
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Applied, Cloud, Error, ErrorKind};
use bowline_core::service::ServiceChange;
use bowline_core::{DesiredLoadBalancer, LoadBalancerState, Opaque, Service, ServiceKey, Step};
use bowline_kube::WriteError;
use bowline_runtime::Priority;
use tokio::time::Instant;

use super::Shared;
use super::error::{Action, SyncError};
use super::plan::{self, Execution, Planned};
use super::sync::ServiceSync;

/// Maximum number of plans in one sync; a cloud that is still not as desired then never will be.
const MAX_ROUNDS: usize = 5;

/// Maximum age of an observation when the permit to write comes; an older one is repeated.
const MAX_OBSERVATION_AGE: Duration = Duration::from_secs(5);

/// Maximum length of a step in the log, in characters.
const MAX_LOG_LINE: usize = 1_000;

/// Outcome of applying plans.
#[derive(Default)]
pub(super) struct Outcome {
    /// State of the cloud afterwards.
    pub(super) state: Option<LoadBalancerState>,
    /// A step was applied.
    pub(super) changed: bool,
    /// The plan has steps that a dry run does not apply.
    pub(super) withheld: bool,
    /// Another Service holds a lock that the plan needs; this Service is requeued when that is released.
    pub(super) waiting: bool,
}

impl ServiceSync<'_> {
    /// Brings the cloud to the desired state; `refresh` returns the desired state as of now, if the permit to write comes late.
    pub(super) async fn observe_and_apply(
        &self,
        cloud: &Cloud,
        desired: DesiredLoadBalancer,
        refresh: impl Fn() -> Option<DesiredLoadBalancer>,
        execution: &mut Execution,
    ) -> Result<Outcome, Error> {
        let planned = match execution.take_remaining(&desired) {
            Some(planned) => planned,
            None => self.observe(cloud, desired, execution).await?,
        };
        self.apply(cloud, planned, refresh, execution).await
    }

    /// Applies the plan once there is a permit to write; not in a dry run. `refresh` returns the desired state as of now, if the
    /// permit comes late.
    pub(super) async fn apply(
        &self,
        cloud: &Cloud,
        mut planned: Planned,
        refresh: impl Fn() -> Option<DesiredLoadBalancer>,
        execution: &mut Execution,
    ) -> Result<Outcome, Error> {
        if planned.is_done() || cloud.layers().is_dry_run() {
            let withheld = !planned.plan.is_empty();
            self.record_plan(&planned, execution);
            return Ok(Outcome { state: planned.state, changed: execution.changed, withheld, waiting: false });
        }
        let priority = if self.shared.has_open_change(self.key) { Priority::High } else { Priority::Low };
        let _permit = self.shutdown.or(self.shared.write_permits.acquire(priority)).await.ok_or_else(stopping)?;
        if planned.observed_at.elapsed() > MAX_OBSERVATION_AGE {
            let desired = refresh().unwrap_or(planned.desired);
            planned = self.observe(cloud, desired, execution).await?;
        }
        self.apply_until_done(cloud, planned, execution).await
    }

    /// Applies the plan, and a further one for what differs afterwards, until no step is left.
    async fn apply_until_done(
        &self,
        cloud: &Cloud,
        mut planned: Planned,
        execution: &mut Execution,
    ) -> Result<Outcome, Error> {
        for _ in 0..MAX_ROUNDS {
            if planned.is_done() {
                return Ok(Outcome { state: planned.state, changed: execution.changed, ..Outcome::default() });
            }
            self.record_plan(&planned, execution);
            let Some(locked) = self.lock(cloud, planned, execution).await? else {
                return Ok(Outcome { changed: execution.changed, waiting: true, ..Outcome::default() });
            };
            planned = locked;
            let applied = self.apply_steps(cloud, &mut planned, execution).await?;
            if let Some(error) = planned.plan.errors.into_iter().next() {
                return Err(error.into());
            }
            planned = match applied {
                Applied::Observed(state) => {
                    let requested = (Instant::now(), cloud.layers().locks().now());
                    self.record_observation(state.as_ref());
                    plan::plan(cloud, planned.desired, state, requested, execution)?
                }
                Applied::Done | Applied::Annotated(_) | Applied::Started(_) => {
                    self.observe(cloud, execution.with_annotations(planned.desired), execution).await?
                }
            };
        }
        let left = format!("after {MAX_ROUNDS} rounds there is still something to do:\n{}", planned.plan);
        Err(Error::new(ErrorKind::Unexpected, "apply load balancer", left))
    }

    /// Takes the locks of the plan, and observes again if another Service has held one of them since the observation. `None` if
    /// another Service holds one now.
    async fn lock(
        &self,
        cloud: &Cloud,
        mut planned: Planned,
        execution: &mut Execution,
    ) -> Result<Option<Planned>, Error> {
        while execution.try_lock(&planned.plan, self.key, &self.shared.queue) {
            if !execution.is_outdated(&planned) {
                return Ok(Some(planned));
            }
            planned = self.observe(cloud, execution.with_annotations(planned.desired), execution).await?;
        }
        Ok(None)
    }

    /// Applies all steps; returns what the last one returned.
    async fn apply_steps(
        &self,
        cloud: &Cloud,
        planned: &mut Planned,
        execution: &mut Execution,
    ) -> Result<Applied, Error> {
        self.record_plan(planned, execution);
        let mut last = Applied::Done;
        let mut steps = VecDeque::from(std::mem::take(&mut planned.plan.steps));
        while let Some(step) = steps.pop_front() {
            // A step is at most one call, so a sync may stop between two of them.
            if self.shutdown.is_requested() {
                return Err(stopping());
            }
            let polled = match step.independent {
                true => None,
                false => match poll(cloud, planned).await {
                    Ok(polled) => polled,
                    Err(error) => {
                        steps.push_front(step);
                        return Err(keep_remaining(planned, steps, error, execution));
                    }
                },
            };
            log_step(cloud, &step, std::mem::take(&mut planned.is_continued));
            match cloud.layers().apply_load_balancer(&planned.desired.key, &step, polled.as_ref()).await {
                Ok(applied) => {
                    self.record_step(true);
                    last = record_applied(planned, applied, execution);
                }
                Err(error) if error.allows_skipping(&step) => {
                    self.record_step(false);
                    execution.skip(step, &error);
                }
                Err(error) if execution.observes_after(&step, &error) => {
                    tracing::debug!(cloud = %cloud.name(), %error, "looking for what may have been created");
                    planned.plan.errors.clear();
                    return Ok(Applied::Done);
                }
                Err(error) => {
                    steps.push_front(step);
                    return Err(keep_remaining(planned, steps, error, execution));
                }
            }
            self.shared.queue.record_progress();
        }
        planned.pending.retain(|operation| !operation.observable);
        if !planned.pending.is_empty() {
            poll(cloud, planned).await.map_err(|error| keep_remaining(planned, steps, error, execution))?;
        }
        Ok(last)
    }

    // ---- deletion

    /// Deletes the load balancer, if the cloud has it.
    pub(super) async fn observe_and_delete(
        &self,
        cloud: &Cloud,
        service: &Arc<Service>,
        desired: &DesiredLoadBalancer,
        execution: &mut Execution,
    ) -> Result<Outcome, SyncError> {
        let planned = match execution.take_remaining(desired) {
            Some(planned) => Some(planned),
            None => self.begin_deletion(cloud, service, desired, execution).await?,
        };
        let Some(planned) = planned else { return Ok(Outcome { waiting: true, ..Outcome::default() }) };
        self.apply(cloud, planned, || None, execution).await.map_err(SyncError::cloud(Action::Delete))
    }

    /// Plans the deletion and reports it; `None` if another Service holds a lock.
    async fn begin_deletion(
        &self,
        cloud: &Cloud,
        service: &Arc<Service>,
        desired: &DesiredLoadBalancer,
        execution: &mut Execution,
    ) -> Result<Option<Planned>, SyncError> {
        let planned = self.observe(cloud, desired.clone(), execution).await;
        let planned = planned.map_err(SyncError::cloud(Action::CheckBeforeCleanup))?;
        if planned.plan.is_empty() || cloud.layers().is_dry_run() {
            return Ok(Some(planned));
        }
        // The Event is emitted once it is known that there is a load balancer, and that nothing blocks its deletion.
        if !execution.try_lock(&planned.plan, self.key, &self.shared.queue) {
            self.record_plan(&planned, execution);
            return Ok(None);
        }
        self.shared.report_deleting(service);
        self.remove_annotations(service, planned).await.map(Some)
    }

    /// Removes the annotations that identify the load balancer from a Service that stays.
    async fn remove_annotations(&self, service: &Arc<Service>, mut planned: Planned) -> Result<Planned, SyncError> {
        let change = plan::before_deletion(service, planned.state.as_ref());
        if !change.is_empty() && self.is_stored(service) {
            Arc::make_mut(&mut planned.desired.annotations).retain(|key, _| !change.annotations.contains_key(key));
            self.write(service, &change, Action::RemoveAnnotations).await?;
        }
        Ok(planned)
    }

    // ---- the API server

    /// Writes the change, if there is one. `None` if nothing was written, or the Service is gone.
    pub(super) async fn write(
        &self,
        service: &Arc<Service>,
        change: &ServiceChange,
        action: Action,
    ) -> Result<Option<Arc<Service>>, SyncError> {
        if change.is_empty() {
            return Ok(None);
        }
        let states = &self.shared.states;
        states.update(self.key, |state| state.writes.record_annotations(service, &change.annotations));
        match self.shared.context.cluster.change_service(service, change).await {
            Ok(written) => {
                let (written, now) = (Arc::new(written), Instant::now().into_std());
                states.update(self.key, |state| state.writes.record(service, &written, now));
                Ok(Some(written))
            }
            // Gone; nothing is created for it.
            Err(WriteError::NotFound(_)) if action != Action::AddFinalizer => Ok(None),
            Err(error) => Err(SyncError::api_server(action)(error)),
        }
    }

    /// Writes the annotations of the cloud, and nothing else.
    pub(super) async fn write_annotations(&self, service: &Arc<Service>) {
        let service = self.shared.states.latest(self.key, service.clone());
        let change = ServiceChange::default().with_annotations(&service, &self.shared.open_annotations(self.key));
        if let Err(error) = self.write(&service, &change, Action::UpdateStatus).await {
            tracing::warn!(%error, "what the cloud has noted cannot be written to the Service");
        }
    }
}

impl Shared {
    /// Annotations that the cloud wants on the Service and that are not written yet.
    pub(super) fn open_annotations(&self, key: &ServiceKey) -> BTreeMap<String, String> {
        self.states.existing(key, |state| state.annotations.clone()).unwrap_or_default()
    }

    /// Forgets those annotations: they are written, or not wanted any more.
    pub(super) fn clear_annotations(&self, key: &ServiceKey) {
        self.states.existing(key, |state| state.annotations.clear());
    }
}

/// Polls the operations of earlier steps. Succeeds if none is under way any more, with what the last poll returned.
async fn poll(cloud: &Cloud, planned: &mut Planned) -> Result<Option<Opaque>, Error> {
    let mut polled = None;
    while let Some(operation) = planned.pending.first() {
        polled = Some(cloud.layers().poll_load_balancer(&planned.desired.key, operation).await?);
        planned.pending.remove(0);
    }
    Ok(polled)
}

/// Records the result of a step.
fn record_applied(planned: &mut Planned, applied: Applied, execution: &mut Execution) -> Applied {
    execution.changed = true;
    match &applied {
        Applied::Annotated(annotations) => execution.annotate(&planned.desired, annotations),
        Applied::Started(operation) => {
            // A later operation on the same resource ends after the earlier one.
            planned.pending.retain(|earlier| earlier.id != operation.id);
            planned.pending.push(operation.clone());
        }
        Applied::Done | Applied::Observed(_) => {}
    }
    applied
}

/// Keeps the remaining steps for a later sync if the cloud is only at work. If it may have created something without an answer,
/// only an observation shows which steps remain.
fn keep_remaining(planned: &Planned, steps: VecDeque<Step>, error: Error, execution: &mut Execution) -> Error {
    if error.kind() == ErrorKind::InProgress && !error.is_outcome_unknown() {
        execution.keep_remaining(planned, steps.into());
    }
    error
}

/// Logs a step. A retry of a step that the cloud was too busy for is logged for debugging only.
fn log_step(cloud: &Cloud, step: &Step, is_retry: bool) {
    let cloud = cloud.name();
    if is_retry {
        tracing::debug!(%cloud, step = in_one_line(step), "trying again to change the load balancer");
    } else {
        let (head, fields) = (format!("{} {} {}", step.verb, step.kind, step.name), step.changes.len());
        tracing::info!(%cloud, step = head, fields, "changing the load balancer");
        tracing::debug!(%cloud, step = in_one_line(step), "all changes of the load balancer");
    }
}

/// The step as one line of the log.
fn in_one_line(step: &Step) -> String {
    let text = step.to_string();
    let mut lines = text.lines().map(str::trim);
    let head = lines.next().unwrap_or_default().to_owned();
    let changes: Vec<&str> = lines.collect();
    let line = if changes.is_empty() { head } else { format!("{head}: {}", changes.join("; ")) };
    match line.char_indices().nth(MAX_LOG_LINE) {
        Some((end, _)) => format!("{}… (cut)", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Error of a sync that ends because the process is stopping.
pub(super) fn stopping() -> Error {
    Error::new(ErrorKind::Cancelled, "sync load balancer", "the manager is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::{FieldChange, Opaque, Verb};

    #[test]
    fn a_step_is_one_line_in_the_log() {
        let change = |field: &str, to: &str| FieldChange { field: field.into(), from: None, to: Some(to.into()) };
        let step = |changes| Step::new(Verb::Create, "load balancer", "b1", changes, Opaque::default());
        assert_eq!(in_one_line(&step(vec![])), "create load balancer b1");
        let changes = vec![change("owner", "default/web"), change("target a", "10.0.0.1")];
        assert_eq!(in_one_line(&step(changes)), "create load balancer b1: owner: default/web; target a: 10.0.0.1");
        let many = (0..5_000).map(|number| change(&format!("target n{number}"), "10.0.0.1")).collect();
        let line = in_one_line(&step(many));
        assert!(line.ends_with("… (cut)") && line.chars().count() < MAX_LOG_LINE + 10, "{line}");
    }
}
