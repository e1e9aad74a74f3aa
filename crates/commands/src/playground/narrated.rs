//! A playground whose steps show on the status line what they wait for. The guide has its own lines instead.

use std::collections::BTreeSet;

use bowline_playground::{Environment, Playground, PlaygroundError, Probe, Snapshot, StepRun, StepState, TourAction};

use crate::progress::{self, Waiting};

pub(super) struct Narrated<'a> {
    playground: &'a mut Playground,
    /// The status line of the step in progress.
    waiting: Option<Waiting>,
}

impl Narrated<'_> {
    pub(super) fn new(playground: &mut Playground) -> Narrated<'_> {
        Narrated { playground, waiting: None }
    }
}

impl Environment for Narrated<'_> {
    async fn perform(&mut self, action: &TourAction) -> Result<(), String> {
        self.playground.perform(action).await
    }

    async fn observe(&mut self, probes: &BTreeSet<Probe>) -> Result<Snapshot, String> {
        self.playground.observe(probes).await
    }

    fn report(&mut self, run: &StepRun<'_>) {
        self.playground.report(run);
        self.waiting = match (run.state(), self.waiting.take()) {
            (StepState::Waiting | StepState::Running, None) => Some(progress::show(text(run))),
            (StepState::Waiting | StepState::Running, Some(waiting)) => {
                waiting.change(text(run));
                Some(waiting)
            }
            (StepState::Passed(_) | StepState::Failed(_), _) => None,
        };
    }

    fn failure(&mut self) -> impl Future<Output = PlaygroundError> + Send {
        self.playground.failure()
    }
}

/// Returns the first check that does not hold.
fn text(run: &StepRun<'_>) -> String {
    let step = run.step();
    let pending = step.assertions.iter().zip(run.checks()).find(|(_, holds)| !**holds);
    let pending = pending.map_or_else(|| "the state has lasted".to_owned(), |(check, _)| check.to_string());
    format!("{}: waiting until {pending}", step.title)
}
