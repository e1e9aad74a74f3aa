//! Drivers: what a manager does with a provider, without a manager.
//!
//! [`Driver`] does with a load balancer what the service controller does: observe, plan, apply each step, and observe again
//! until there is nothing left to do. [`Simulator::crashing`] ends the manager after a number of calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::layers::{Operations, PendingCreates};
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancers, Result, Retry};
use bowline_core::{DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Step};

use crate::service::Service;
use crate::simulator::Simulator;

/// How often a load balancer that the cloud works on is looked at before a driver gives up.
const ATTEMPTS: usize = 400;

/// A load balancer as it should be. A plain [`DesiredLoadBalancer`] is one that keeps no annotations.
pub trait Desired {
    /// The desired state.
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

/// What a driver does when a call fails: `Ok` tries again, an error ends it.
#[async_trait]
pub trait Pause: Send + Sync {
    /// Waits, or returns the error.
    async fn pause(&self, error: Error) -> Result<()>;

    /// Called when a plan was applied and the next one is the same: the cloud does not show the changes yet.
    async fn pause_unchanged(&self) {}
}

/// Waits while the cloud is at work, as long as the error advises. Every other error ends the driver.
pub struct AsAdvised;

#[async_trait]
impl Pause for AsAdvised {
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

/// Drives the load balancers of a provider.
pub struct Driver<'a> {
    load_balancers: &'a dyn LoadBalancers,
    pause: &'a dyn Pause,
    operations: Operations,
    outcome_unknown: Arc<PendingCreates>,
    rounds: usize,
}

/// A load balancer for which there is nothing left to do.
#[derive(Debug, Clone)]
pub struct Settled {
    /// Its state; `None` if there is none.
    pub state: Option<LoadBalancerState>,
    /// The reasons of all notices on the way, sorted.
    pub warnings: Vec<String>,
}

impl<'a> Driver<'a> {
    /// With at most six plans for one change.
    pub fn new(load_balancers: &'a dyn LoadBalancers) -> Driver<'a> {
        Driver {
            load_balancers,
            pause: &AsAdvised,
            operations: Operations::default(),
            outcome_unknown: Arc::default(),
            rounds: 6,
        }
    }

    /// Shares what is known of creations without an answer with other drivers of the same process.
    pub fn remembering(self, outcome_unknown: &Arc<PendingCreates>) -> Driver<'a> {
        Driver { outcome_unknown: Arc::clone(outcome_unknown), ..self }
    }

    /// Waits in another way.
    pub fn pausing(self, pause: &'a dyn Pause) -> Driver<'a> {
        Driver { pause, ..self }
    }

    /// With at most this many plans for one change.
    pub fn planning(self, rounds: usize) -> Driver<'a> {
        Driver { rounds, ..self }
    }

    /// Observes one load balancer.
    pub async fn observe(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState>> {
        let mut answers = self.load_balancers.observe(std::slice::from_ref(desired)).await;
        answers.pop().unwrap_or_else(|| Err(endless("observe", "no answer to one wish")))
    }

    /// Observes and plans, until the cloud is at rest. Annotations of the observed state are recorded.
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
        Err(endless("plan", "there is never a plan"))
    }

    /// Applies one step, again while the cloud is at work. Does not wait for an operation that it starts.
    pub async fn apply(&self, desired: &mut impl Desired, step: &Step) -> Result<Applied> {
        self.apply_polled(desired, step, None).await
    }

    async fn apply_polled(&self, desired: &mut impl Desired, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        let key = desired.desired().key;
        for attempt in 0..ATTEMPTS {
            let polled = polled.filter(|_| attempt == 0);
            // While an earlier attempt is open, only an observation helps.
            let attempt = self.outcome_unknown.begin(&key, step)?;
            let applied = attempt.ended(self.load_balancers.apply(&key, step, polled).await);
            match self.operations.paced(&key, applied) {
                Err(error) if error.kind() == ErrorKind::InProgress => self.pause.pause(error).await?,
                applied => {
                    if let Ok(Applied::Noted(annotations)) = &applied {
                        desired.annotate(annotations.clone());
                    }
                    return applied;
                }
            }
        }
        Err(endless("apply", &format!("never done: {step}")))
    }

    /// Polls an operation until it has ended.
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
        Err(endless("poll", &format!("never ended: {}", operation.what)))
    }

    /// Applies the steps of a plan; those that were left out. Fails with the plan's first problem.
    pub async fn apply_all(&self, desired: &mut impl Desired, plan: &Plan) -> Result<Vec<Step>> {
        let (mut left_out, mut pending): (Vec<Step>, Vec<Operation>) = Default::default();
        for step in &plan.steps {
            let mut polled = None;
            for operation in pending.extract_if(.., |_| !step.independent) {
                polled = Some(self.poll(&desired.desired().key, &operation).await?);
            }
            match self.apply_polled(desired, step, polled.as_ref()).await {
                Err(error) if error.leaves_out(step) => left_out.push(step.clone()),
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
            Some(problem) => Err(problem.clone().into()),
            None => Ok(left_out),
        }
    }

    /// Does all that a manager does until the load balancer is as desired.
    pub async fn settle(&self, desired: &mut impl Desired) -> Result<Settled> {
        let (mut warnings, mut left_out, mut last, mut rounds) = (Vec::new(), Vec::new(), Plan::default(), 0);
        while rounds < self.rounds {
            let (state, mut plan) = self.plan(desired).await?;
            warnings.extend(plan.warnings.iter().map(|warning| warning.reason.clone()));
            plan.steps.retain(|step| !left_out.contains(step));
            if plan.is_empty() {
                warnings.extend(left_out.into_iter().filter_map(|step| step.dispensable));
                warnings.sort();
                warnings.dedup();
                return Ok(Settled { state, warnings });
            }
            match self.apply_all(desired, &plan).await {
                Ok(steps) => left_out.extend(steps),
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
        Err(endless("settle", &format!("after {} plans there is still something to do: {plan}", self.rounds)))
    }
}

fn endless(operation: &'static str, message: &str) -> Error {
    Error::new(ErrorKind::Unexpected, operation, message.to_owned())
}

impl<S: Service> Simulator<S> {
    /// Runs `work` and crashes it after this many calls; all faults are taken back afterwards. Returns whether it crashed.
    /// A test goes on with 1, 2, 3, … calls until it did not.
    pub async fn crashing<T>(&self, calls: u64, work: impl Future<Output = T>) -> (T, bool) {
        let before = self.all_calls().len() as u64;
        self.crash_after(calls);
        let outcome = work.await;
        self.repair_all();
        let made = self.all_calls().len() as u64 - before;
        (outcome, made >= calls.max(1))
    }
}
