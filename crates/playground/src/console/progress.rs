//! Progress of the tour, for the page: the steps report it, however the tour is run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_console::document::TourStep;
use bowline_console::{Document, Source};

use crate::assertion::Assertion;
use crate::tour::{Step, StepRun, StepState, Tour};

/// All steps with their progress. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TourProgress(Arc<Mutex<Vec<TourStep>>>);

impl TourProgress {
    /// Creates the progress of a tour before its start.
    pub(crate) fn new(tour: &Tour) -> TourProgress {
        TourProgress(Arc::new(Mutex::new(tour.steps().iter().map(before_start).collect())))
    }

    /// Records the progress of a step. Steps are known by their titles.
    pub(crate) fn record(&self, run: &StepRun<'_>) {
        let (step, mut steps) = (run.step(), self.steps());
        let Some(item) = steps.iter_mut().find(|item| item.title == step.title) else { return };
        let (state, result) = match run.state() {
            StepState::Waiting => ("waiting", None),
            StepState::Running => ("running", None),
            StepState::Passed(took) => ("passed", Some(format!("Passed after {:.1} s.", took.as_secs_f64()))),
            StepState::Failed(reason) => ("failed", Some(format!("Failed: {reason}"))),
        };
        state.clone_into(&mut item.state);
        item.result = result;
        item.checks = checks(&step.assertions, run.checks());
        item.views = run.views();
    }

    fn steps(&self) -> MutexGuard<'_, Vec<TourStep>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for TourProgress {
    fn fill(&self, document: &mut Document) {
        let steps = (1..).zip(self.steps().clone());
        document.step.extend(steps.map(|(number, step): (usize, _)| (format!("{number:02}"), step)));
    }
}

fn before_start(step: &Step) -> TourStep {
    TourStep {
        title: step.title.clone(),
        // The lines are those of a terminal.
        text: step.description.split_whitespace().collect::<Vec<_>>().join(" "),
        state: "todo".to_owned(),
        checks: checks(&step.assertions, &[]),
        commands: step.commands.clone(),
        views: step.views.clone(),
        result: None,
    }
}

fn checks(assertions: &[Assertion], passed: &[bool]) -> Vec<(String, bool)> {
    let passed = passed.iter().copied().chain(std::iter::repeat(false));
    assertions.iter().map(ToString::to_string).zip(passed).collect()
}
