//! Drivers that act as the manager does.
//!
//! [`Driver`] syncs a load balancer as the service controller does: it observes, plans, applies each step, and observes again until
//! the plan is empty. [`Simulator::crashing`] simulates a crash of the manager after a number of calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::layers::{Operations, PendingCreates};
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancers, Result, Retry};
use bowline_core::{DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Step};

use crate::service::Service;
use crate::simulator::Simulator;

/// Maximum number of attempts while an operation is in progress.
const ATTEMPTS: usize = 400;

/// Desired state of a load balancer. A plain [`DesiredLoadBalancer`] discards annotations.
pub trait Desired {
    /// Current desired state.
    fn desired(&self) -> DesiredLoadBalancer;
    /// Records annotations on the Service, as the controller does.
    fn annotate(&mut self, annotations: BTreeMap<String, String>);
}

impl Desired for DesiredLoadBalancer {
    fn desired(&self) -> DesiredLoadBalancer {
        self.clone()
    }

    fn annotate(&mut self, _: BTreeMap<String, String>) {}
}

/// Reaction of a driver to an error: after `Ok` it retries, an error ends it.
#[async_trait]
pub trait Pause: Send + Sync {
    /// Waits, or returns the error.
    async fn pause(&self, error: Error) -> Result<()>;

    /// Called when the plan is the same as the one just applied: the cloud does not show the changes yet.
    async fn pause_unchanged(&self) {}
}

/// Waits for the advised delay while an operation is in progress. Every other error ends the driver.
pub struct RetryAdvice;

#[async_trait]
impl Pause for RetryAdvice {
    async fn pause(&self, error: Error) -> Result<()> {
        match (error.kind(), error.retry_advice()) {
            (ErrorKind::InProgress, Retry::After(pause)) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Driver for the load balancers of a provider.
pub struct Driver<'a> {
    load_balancers: &'a dyn LoadBalancers,
    pause: &'a dyn Pause,
    operations: Operations,
    outcome_unknown: Arc<PendingCreates>,
    rounds: usize,
}

/// Result of a sync.
#[derive(Debug, Clone)]
pub struct Settled {
    /// State of the load balancer; `None` if there is none.
    pub state: Option<LoadBalancerState>,
    /// Reasons of all warnings, sorted.
    pub warnings: Vec<String>,
}

impl<'a> Driver<'a> {
    /// Driver with a limit of six plans for one change.
    pub fn new(load_balancers: &'a dyn LoadBalancers) -> Driver<'a> {
        Driver {
            load_balancers,
            pause: &RetryAdvice,
            operations: Operations::default(),
            outcome_unknown: Arc::default(),
            rounds: 6,
        }
    }

    /// Shares the record of creations with unknown outcome with other drivers of the same process.
    pub fn with_pending_creates(self, outcome_unknown: &Arc<PendingCreates>) -> Driver<'a> {
        Driver { outcome_unknown: Arc::clone(outcome_unknown), ..self }
    }

    /// Sets the reaction to errors.
    pub fn with_pause(self, pause: &'a dyn Pause) -> Driver<'a> {
        Driver { pause, ..self }
    }

    /// Sets the maximum number of plans for one change.
    pub fn with_max_plans(self, rounds: usize) -> Driver<'a> {
        Driver { rounds, ..self }
    }

    /// Observes one load balancer.
    pub async fn observe(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState>> {
        let mut answers = self.load_balancers.observe(std::slice::from_ref(desired)).await;
        answers.pop().unwrap_or_else(|| Err(gave_up("observe", "no state for the desired load balancer")))
    }

    /// Observes and plans, and retries while an operation is in progress. Records the annotations of the observed state.
    pub async fn plan(&self, desired: &mut impl Desired) -> Result<(Option<LoadBalancerState>, Plan)> {
        for _ in 0..ATTEMPTS {
            let state = self.observe(&desired.desired()).await?;
            if let (Some(state), true) = (&state, desired.desired().spec.is_some()) {
                desired.annotate(state.annotations.clone());
            }
            let desired = desired.desired();
            let plan = self.operations.paced(&desired.key, self.load_balancers.plan(&desired, state.as_ref()));
            match plan.and_then(|plan| self.outcome_unknown.check_plan(&desired, &plan).map(|()| plan)) {
                Ok(plan) => return Ok((state, plan)),
                Err(error) => self.pause.pause(error).await?,
            }
        }
        Err(gave_up("plan", "the operation in progress never ends"))
    }

    /// Applies one step, and retries while an operation is in progress. Does not wait for an operation that it starts.
    pub async fn apply(&self, desired: &mut impl Desired, step: &Step) -> Result<Applied> {
        self.apply_polled(desired, step, None).await
    }

    async fn apply_polled(&self, desired: &mut impl Desired, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        let key = desired.desired().key;
        for attempt in 0..ATTEMPTS {
            let polled = polled.filter(|_| attempt == 0);
            // While the outcome of an earlier attempt is unknown, only an observation helps.
            let attempt = self.outcome_unknown.begin(&key, step)?;
            let applied = attempt.ended(self.load_balancers.apply(&key, step, polled).await);
            match self.operations.paced(&key, applied) {
                Err(error) if error.kind() == ErrorKind::InProgress => self.pause.pause(error).await?,
                applied => {
                    if let Ok(Applied::Annotated(annotations)) = &applied {
                        desired.annotate(annotations.clone());
                    }
                    return applied;
                }
            }
        }
        Err(gave_up("apply", &format!("the step never succeeds: {step}")))
    }

    /// Polls an operation until it ends.
    pub async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Opaque> {
        for _ in 0..ATTEMPTS {
            match self.load_balancers.poll(key, operation).await? {
                Progress::Done(polled) => {
                    self.operations.ended(key);
                    return Ok(polled);
                }
                Progress::Running => self.pause.pause(self.operations.running(key, operation, "poll")).await?,
            }
        }
        Err(gave_up("poll", &format!("the operation never ends: {}", operation.description)))
    }

    /// Applies the steps of a plan, and returns the best-effort steps that failed. Fails with the plan's first error.
    pub async fn apply_all(&self, desired: &mut impl Desired, plan: &Plan) -> Result<Vec<Step>> {
        let (mut skipped, mut pending): (Vec<Step>, Vec<Operation>) = Default::default();
        for step in &plan.steps {
            let mut polled = None;
            for operation in pending.extract_if(.., |_| !step.independent) {
                polled = Some(self.poll(&desired.desired().key, &operation).await?);
            }
            match self.apply_polled(desired, step, polled.as_ref()).await {
                Err(error) if error.allows_skipping(step) => skipped.push(step.clone()),
                applied => {
                    if let Applied::Started(started) = applied? {
                        pending.retain(|earlier| started.id != earlier.id);
                        pending.push(started);
                    }
                }
            }
        }
        for operation in pending.iter().filter(|operation| !operation.observable) {
            self.poll(&desired.desired().key, operation).await?;
        }
        match plan.errors.first() {
            Some(error) => Err(error.clone().into()),
            None => Ok(skipped),
        }
    }

    /// Syncs until the plan is empty.
    pub async fn settle(&self, desired: &mut impl Desired) -> Result<Settled> {
        let (mut warnings, mut skipped, mut last, mut rounds) = (Vec::new(), Vec::new(), Plan::default(), 0);
        while rounds < self.rounds {
            let (state, mut plan) = self.plan(desired).await?;
            warnings.extend(plan.warnings.iter().map(|warning| warning.reason.clone()));
            plan.steps.retain(|step| !skipped.contains(step));
            if plan.is_empty() {
                warnings.extend(skipped.into_iter().filter_map(|step| step.best_effort));
                warnings.sort();
                warnings.dedup();
                return Ok(Settled { state, warnings });
            }
            match self.apply_all(desired, &plan).await {
                Ok(steps) => skipped.extend(steps),
                Err(error) if error.is_outcome_unknown() && error.kind() == ErrorKind::InProgress => {
                    self.pause.pause(error).await?;
                    continue;
                }
                Err(error) => self.pause.pause(error).await?,
            }
            if plan == last {
                self.pause.pause_unchanged().await;
            }
            (last, rounds) = (plan, rounds + 1);
        }
        let (_, plan) = self.plan(desired).await?;
        Err(gave_up("settle", &format!("the plan is not empty after {} syncs: {plan}", self.rounds)))
    }
}

fn gave_up(operation: &'static str, message: &str) -> Error {
    Error::new(ErrorKind::Unexpected, operation, message.to_owned())
}

impl<S: Service> Simulator<S> {
    /// Runs `work`, crashes it after this many calls, and then removes all faults. Returns the result and whether it crashed. A test
    /// calls this with 1, 2, 3, … until it did not crash.
    pub async fn crashing<T>(&self, calls: u64, work: impl Future<Output = T>) -> (T, bool) {
        let before = self.all_calls().len() as u64;
        self.crash_after(calls);
        let outcome = work.await;
        self.repair_all();
        let made = self.all_calls().len() as u64 - before;
        (outcome, made >= calls.max(1))
    }
}
