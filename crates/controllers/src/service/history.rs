//! The last plan and the last observation of a Service, for the console. Their size is bounded.

use bowline_cloud::{Error, ErrorKind};
use bowline_console::document::{LastPlan, Observed, PlanStep, text};
use bowline_core::{LoadBalancerState, Step, Warning, service};
use jiff::Timestamp;

use super::Trigger;
use super::apply::Outcome;
use super::error::{Cause, SyncError};
use super::plan::{Execution, Planned};
use super::sync::ServiceSync;

/// Maximum number of recorded steps of a plan.
const MAX_STEPS: usize = 50;

/// Maximum number of recorded changes of a step.
const MAX_CHANGES: usize = 20;

/// Maximum number of recorded errors and warnings.
const MAX_MESSAGES: usize = 20;

/// The last plan that had steps, and the last observation.
#[derive(Default)]
pub(super) struct History {
    plan: Option<LastPlan>,
    /// Number of steps that were applied or skipped.
    ended_steps: usize,
    observed: Option<Observed>,
    /// Name of the load balancer in its cloud, as the last plan that changed it shows.
    name: Option<String>,
}

/// Kind of the steps that change the load balancer itself, in all clouds that call it so.
const LOAD_BALANCER: &str = "load balancer";

/// How the work on a plan ended, or why it has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlanOutcome {
    /// All steps were applied.
    Applied,
    /// A dry run applies no step.
    DryRun,
    /// Another Service holds a lock.
    WaitingForLock,
    /// The cloud is at work; the text says on what.
    InProgress(String),
    /// A step failed.
    Failed(String),
}

impl PlanOutcome {
    /// Outcome of plans that were applied, or could not be.
    pub(super) fn of(result: Result<&Outcome, &Error>) -> PlanOutcome {
        match result {
            Ok(outcome) if outcome.waiting => PlanOutcome::WaitingForLock,
            Ok(outcome) if outcome.withheld => PlanOutcome::DryRun,
            Ok(_) => PlanOutcome::Applied,
            Err(error) if error.kind() == ErrorKind::InProgress => PlanOutcome::InProgress(error.message().to_owned()),
            Err(error) => PlanOutcome::Failed(error.to_string()),
        }
    }

    /// The same for plans that the API server is involved in.
    pub(super) fn of_sync(result: Result<&Outcome, &SyncError>) -> PlanOutcome {
        match result {
            Ok(outcome) => PlanOutcome::of(Ok(outcome)),
            Err(SyncError { cause: Cause::Cloud(error), .. }) => PlanOutcome::of(Err(error)),
            Err(error) => PlanOutcome::Failed(error.to_string()),
        }
    }

    fn as_str(&self) -> &'static str {
        match self {
            PlanOutcome::Applied => "applied",
            PlanOutcome::DryRun => "dryRun",
            PlanOutcome::WaitingForLock => "waitingForLock",
            PlanOutcome::InProgress(_) => IN_PROGRESS,
            PlanOutcome::Failed(_) => "failed",
        }
    }
}

/// Outcome of a plan that is being applied.
const IN_PROGRESS: &str = "inProgress";

impl History {
    /// Last plan.
    pub(super) fn plan(&self) -> Option<&LastPlan> {
        self.plan.as_ref()
    }

    /// Name of the load balancer in its cloud, if a plan has shown it.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether the plan waits for a lock of another Service.
    pub(super) fn is_waiting_for_lock(&self) -> bool {
        let waiting = PlanOutcome::WaitingForLock;
        self.plan.as_ref().is_some_and(|plan| plan.ended.is_none() && plan.outcome == waiting.as_str())
    }

    /// Last observation.
    pub(super) fn observed(&self) -> Option<&Observed> {
        self.observed.as_ref()
    }

    /// Records an observation.
    pub(super) fn record_observation(&mut self, state: Option<&LoadBalancerState>, now: Timestamp) {
        let errors = state.map(service::failed_ports).unwrap_or_default();
        self.observed = Some(Observed {
            at: now,
            exists: state.is_some(),
            errors: errors.into_iter().take(MAX_MESSAGES).map(text).collect(),
            pending: state.and_then(|state| Some(text(&state.pending.as_ref()?.description))),
        });
    }

    /// Records the steps of a plan. Those of an earlier plan of the same execution that have ended stay before them.
    pub(super) fn record_plan(&mut self, trigger: Trigger, steps: &[Step], now: Timestamp) {
        if steps.is_empty() {
            return;
        }
        if let Some(step) = steps.iter().find(|step| step.kind == LOAD_BALANCER) {
            self.name = Some(text(&step.name));
        }
        let mut plan = self.plan.take().filter(|plan| plan.ended.is_none()).unwrap_or_else(|| {
            self.ended_steps = 0;
            LastPlan { at: now, ..LastPlan::default() }
        });
        plan.steps.truncate(self.ended_steps);
        plan.steps.extend(steps.iter().take(MAX_STEPS.saturating_sub(plan.steps.len())).map(step));
        plan.step_count = self.ended_steps + steps.len();
        (plan.trigger, plan.outcome) = (trigger.as_str().to_owned(), IN_PROGRESS.to_owned());
        self.plan = Some(plan);
    }

    /// Records that the next step was applied or, if the cloud has rejected a dispensable one, skipped.
    pub(super) fn record_step(&mut self, is_applied: bool) {
        if let Some(step) = self.plan.as_mut().and_then(|plan| plan.steps.get_mut(self.ended_steps)) {
            step.done = is_applied;
        }
        self.ended_steps += 1;
    }

    /// Records the outcome of the plan, if there is one that has not ended.
    pub(super) fn record_outcome(&mut self, outcome: &PlanOutcome, warnings: &[Warning], now: Timestamp) {
        if let (PlanOutcome::InProgress(operation), Some(observed)) = (outcome, &mut self.observed) {
            observed.pending = Some(text(operation));
        }
        let Some(plan) = self.plan.as_mut().filter(|plan| plan.ended.is_none()) else { return };
        plan.outcome = outcome.as_str().to_owned();
        plan.warnings = warnings.iter().take(MAX_MESSAGES).map(|warning| text(&warning.message)).collect();
        plan.error = match outcome {
            PlanOutcome::Failed(error) => Some(text(error)),
            _ => None,
        };
        let is_continued = matches!(outcome, PlanOutcome::InProgress(_) | PlanOutcome::WaitingForLock);
        plan.ended = (!is_continued).then_some(now);
    }
}

impl ServiceSync<'_> {
    /// Records an observation of the load balancer.
    pub(super) fn record_observation(&self, state: Option<&LoadBalancerState>) {
        let now = self.shared.context.clock.now();
        self.shared.states.existing(self.key, |known| known.history.record_observation(state, now));
    }

    /// Records a plan, unless it continues the one that is recorded.
    pub(super) fn record_plan(&self, planned: &Planned, execution: &Execution) {
        let now = self.shared.context.clock.now();
        if !planned.is_continued {
            let record = |history: &mut History| history.record_plan(execution.trigger, &planned.plan.steps, now);
            self.shared.states.existing(self.key, |state| record(&mut state.history));
        }
    }

    /// Records that the next step of the plan was applied, or skipped.
    pub(super) fn record_step(&self, is_applied: bool) {
        self.shared.states.existing(self.key, |state| state.history.record_step(is_applied));
    }

    /// Records the outcome of an execution.
    pub(super) fn record_outcome(&self, execution: &Execution, outcome: &PlanOutcome) {
        let (now, warnings) = (self.shared.context.clock.now(), execution.warnings().unwrap_or_default());
        self.shared.states.existing(self.key, |state| state.history.record_outcome(outcome, warnings, now));
    }
}

fn step(step: &Step) -> PlanStep {
    PlanStep {
        verb: step.verb.to_string(),
        kind: text(&step.kind),
        name: text(&step.name),
        changes: step.changes.iter().take(MAX_CHANGES).map(|change| text(change.to_string())).collect(),
        done: false,
    }
}

#[cfg(test)]
mod tests {
    use bowline_core::{FieldChange, Opaque, Verb};

    use super::*;

    fn steps(names: &[&str]) -> Vec<Step> {
        names.iter().map(|name| Step::new(Verb::Create, "listener", *name, Vec::new(), Opaque::default())).collect()
    }

    fn shown(history: &History) -> (String, Vec<(String, bool)>) {
        let plan = history.plan().unwrap();
        (plan.outcome.clone(), plan.steps.iter().map(|step| (step.name.clone(), step.done)).collect())
    }

    fn now() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    #[test]
    fn a_plan_that_is_continued_keeps_its_steps_and_the_next_one_replaces_it() {
        let mut history = History::default();
        history.record_plan(Trigger::UserChange, &steps(&["a", "b", "c"]), now());
        history.record_step(true);
        history.record_outcome(&PlanOutcome::InProgress("at work".to_owned()), &[], now());
        let all = |done: [bool; 3]| ["a", "b", "c"].map(String::from).into_iter().zip(done).collect::<Vec<_>>();
        assert_eq!(shown(&history), ("inProgress".to_owned(), all([true, false, false])));
        history.record_plan(Trigger::Nodes, &steps(&["b", "c"]), now());
        history.record_step(false);
        history.record_step(true);
        history.record_outcome(&PlanOutcome::Applied, &[], now());
        assert_eq!(shown(&history), ("applied".to_owned(), all([true, false, true])));
        history.record_outcome(&PlanOutcome::Failed("later, without a plan".to_owned()), &[], now());
        assert_eq!(history.plan().unwrap().error, None);
        history.record_plan(Trigger::Drift, &steps(&["d"]), now());
        assert_eq!(shown(&history).1, [("d".to_owned(), false)]);
    }

    #[test]
    fn the_size_of_a_history_is_bounded() {
        let change = || FieldChange { field: "x".repeat(10_000), from: None, to: Some("y".repeat(10_000)) };
        let changes: Vec<FieldChange> = (0..5_000).map(|_| change()).collect();
        let steps = vec![Step::new(Verb::Update, "pool", "p".repeat(9_999), changes, Opaque::default()); 60];
        let mut history = History::default();
        history.record_plan(Trigger::Drift, &steps, now());
        (0..60).for_each(|_| history.record_step(true));
        history.record_plan(Trigger::Drift, &steps, now());
        history.record_outcome(&PlanOutcome::Failed("z".repeat(100_000)), &[], now());
        let plan = history.plan().unwrap();
        assert_eq!((plan.steps.len(), plan.step_count), (MAX_STEPS, 120));
        assert!(plan.steps.iter().all(|step| step.changes.len() == MAX_CHANGES));
        assert!(serde_json::to_string(plan).unwrap().len() < 3_000_000);
    }
}
