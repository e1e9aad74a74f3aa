//! Runs one step: waits until its action is performed, and then until its assertions hold.

use std::net::IpAddr;
use std::time::Duration;

use kube::ResourceExt as _;
use tokio::time::Instant;

use super::{Environment, Step};
use crate::assertion::{Assertion, Snapshot};

/// Interval between two observations.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Progress of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepState {
    /// The action is not performed yet.
    Waiting,
    /// The action is performed, and not all assertions hold, or not long enough.
    Running,
    /// All assertions hold, after this time.
    Passed(Duration),
    /// The step failed, for this reason.
    Failed(String),
}

/// A step in progress. The caller drives it: [`StepRun::perform`] at most once, and [`StepRun::observe`] until it has ended.
pub struct StepRun<'a> {
    step: &'a Step,
    state: StepState,
    /// First observation, if it was made before the action.
    before: Option<Snapshot>,
    /// Most recent observation.
    latest: Snapshot,
    started: Instant,
    reached_at: Option<Instant>,
    checks: Vec<bool>,
    pause: Duration,
}

/// Runs a step to its end, and returns the time until its assertions held.
pub(super) async fn to_end(step: &Step, environment: &mut impl Environment) -> Result<Duration, String> {
    let mut run = StepRun::new(step);
    run.perform(environment).await;
    loop {
        match &run.state {
            StepState::Passed(took) => return Ok(*took),
            StepState::Failed(reason) => return Err(reason.clone()),
            StepState::Waiting | StepState::Running => run.observe(environment).await,
        }
        if !run.has_ended() {
            tokio::time::sleep(run.pause()).await;
        }
    }
}

impl<'a> StepRun<'a> {
    /// Creates the run of a step whose action is not performed yet.
    pub fn new(step: &'a Step) -> StepRun<'a> {
        StepRun {
            step,
            state: StepState::Waiting,
            before: None,
            latest: Snapshot::default(),
            started: Instant::now(),
            reached_at: None,
            checks: vec![false; step.assertions.len()],
            pause: POLL_INTERVAL,
        }
    }

    /// Returns the step.
    pub fn step(&self) -> &Step {
        self.step
    }

    /// Returns the progress.
    pub fn state(&self) -> &StepState {
        &self.state
    }

    /// Returns the time since the action was performed, or since the run began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns whether the step passed or failed.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, StepState::Passed(_) | StepState::Failed(_))
    }

    /// Returns for each assertion whether it held at the most recent observation after the action.
    pub fn checks(&self) -> &[bool] {
        &self.checks
    }

    /// Returns the pause before the next observation.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Returns the commands that show the effects, with known addresses instead of commands that print them.
    pub fn views(&self) -> Vec<String> {
        let services = self.latest.services.iter().filter_map(|it| Some((address_of(&it.name_any()), it.address()?)));
        let pods =
            self.latest.pods.iter().filter_map(|it| Some((pod_address_of(&it.name_any()), it.addresses().next()?)));
        let known: Vec<(String, IpAddr)> = services.chain(pods).collect();
        let with_addresses = |view: &String| {
            known.iter().fold(view.clone(), |view, (command, address)| view.replace(command, &address.to_string()))
        };
        self.step.views.iter().map(with_addresses).collect()
    }

    /// Performs the action.
    pub async fn perform(&mut self, environment: &mut impl Environment) {
        self.started = Instant::now();
        self.state = match environment.perform(&self.step.action).await {
            Ok(()) => StepState::Running,
            Err(reason) => StepState::Failed(reason),
        };
        environment.report(self);
    }

    /// Reads the current state once, and updates the progress.
    pub async fn observe(&mut self, environment: &mut impl Environment) {
        let begun = Instant::now();
        match self.state {
            StepState::Waiting => self.await_action(environment).await,
            StepState::Running => self.await_assertions(environment).await,
            StepState::Passed(_) | StepState::Failed(_) => {}
        }
        // Reading thousands of Nodes takes CPU time, most of which should be left for the components under observation.
        self.pause = POLL_INTERVAL.max(begun.elapsed() * 4);
        environment.report(self);
    }

    /// Notices that the action was performed elsewhere.
    async fn await_action(&mut self, environment: &mut impl Environment) {
        // An error is repeated by the next observation, and does not matter before the action.
        let Ok(now) = environment.observe(&Default::default()).await else { return };
        let performed = self.step.action.is_performed(self.before.as_ref().unwrap_or(&now), &now);
        self.before.get_or_insert(now);
        if performed {
            (self.started, self.state) = (Instant::now(), StepState::Running);
        }
    }

    async fn await_assertions(&mut self, environment: &mut impl Environment) {
        let observed = self.check(environment).await;
        let elapsed = self.started.elapsed();
        match (observed, self.reached_at) {
            (Ok(()), since) => {
                let since = *self.reached_at.insert(since.unwrap_or_else(Instant::now));
                if since.elapsed() >= self.step.duration {
                    self.state = StepState::Passed(elapsed);
                }
            }
            (Err(observed), Some(_)) => self.state = StepState::Failed(format!("the state did not last: {observed}")),
            (Err(observed), None) if elapsed >= self.step.deadline => {
                self.state = StepState::Failed(format!("after {:.1} s: {observed}", elapsed.as_secs_f64()));
            }
            (Err(_), None) => {}
        }
    }

    async fn check(&mut self, environment: &mut impl Environment) -> Result<(), String> {
        let probes = self.step.assertions.iter().filter_map(Assertion::probe).collect();
        self.latest = environment.observe(&probes).await?;
        let outcomes: Vec<_> =
            self.step.assertions.iter().map(|assertion| (assertion, assertion.check(&self.latest))).collect();
        self.checks = outcomes.iter().map(|(_, outcome)| outcome.is_ok()).collect();
        let broken = |(assertion, outcome): (&Assertion, Result<(), String>)| {
            outcome.err().map(|observed| format!("expected: {assertion}; observed: {observed}"))
        };
        outcomes.into_iter().find_map(broken).map_or(Ok(()), Err)
    }
}

/// Returns a shell command that prints the address of a Service.
pub(super) fn address_of(service: &str) -> String {
    format!("$(kubectl get service {service} -o jsonpath='{{.status.loadBalancer.ingress[0].ip}}')")
}

/// Returns a shell command that prints the address of a Pod.
pub(super) fn pod_address_of(pod: &str) -> String {
    format!("$(kubectl get pod {pod} -o jsonpath='{{.status.podIP}}')")
}
