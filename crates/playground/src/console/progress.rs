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
        // The line breaks are for a terminal.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::PlaygroundError;
    use crate::assertion::Snapshot;
    use crate::manifest::Ports;
    use crate::pod_network::PodNetwork;
    use crate::subnet::Subnet;
    use crate::timing::Timing;
    use crate::tour::{Environment, TourAction};
    use crate::traffic::Probe;

    /// An empty cluster, where every action but one succeeds.
    struct Recording(TourProgress);

    impl Environment for Recording {
        async fn perform(&mut self, action: &TourAction) -> Result<(), String> {
            if *action == TourAction::DeleteRoutes { Err("no permission".to_owned()) } else { Ok(()) }
        }

        async fn observe(&mut self, _: &BTreeSet<Probe>) -> Result<Snapshot, String> {
            Ok(Snapshot::default())
        }

        fn report(&mut self, run: &StepRun<'_>) {
            self.0.record(run);
        }

        fn failure(&mut self) -> impl Future<Output = PlaygroundError> + Send {
            std::future::pending()
        }
    }

    fn step(title: &str, action: TourAction, count: usize) -> Step {
        Step {
            title: title.to_owned(),
            description: "Two\nlines.".to_owned(),
            commands: vec!["kubectl get nodes".to_owned()],
            views: Vec::new(),
            action,
            assertions: vec![Assertion::NodeCount(count)],
            deadline: Duration::from_secs(5),
            duration: Duration::ZERO,
        }
    }

    fn item(progress: &TourProgress, number: &str) -> TourStep {
        let mut document = Document::default();
        progress.fill(&mut document);
        document.step.remove(number).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn steps_report_each_change_of_their_state() {
        let tour = Tour::of(vec![
            step("none", TourAction::StartControllers, 0),
            step("one", TourAction::StartControllers, 1),
            step("routes", TourAction::DeleteRoutes, 0),
        ]);
        let progress = TourProgress::new(&tour);
        let mut environment = Recording(progress.clone());
        let state = |number: &str| item(&progress, number).state;
        assert_eq!((item(&progress, "01").text.as_str(), &*state("01")), ("Two lines.", "todo"));

        let mut run = StepRun::new(&tour.steps()[0]);
        run.observe(&mut environment).await;
        assert_eq!((&*state("01"), &*state("02")), ("waiting", "todo"));
        run.perform(&mut environment).await;
        assert_eq!(state("01"), "running");
        run.observe(&mut environment).await;
        let passed = item(&progress, "01");
        assert_eq!((&*passed.state, passed.result.as_deref()), ("passed", Some("Passed after 0.0 s.")));
        assert_eq!(passed.checks, [("there are 0 Nodes".to_owned(), true)]);

        let failed = tour.run(3, &mut environment, |_| ()).await.unwrap_err();
        assert_eq!(failed.number, 2);
        let failed = item(&progress, "02");
        assert_eq!((&*failed.state, failed.checks), ("failed", vec![("there is 1 Node".to_owned(), false)]));
        assert!(failed.result.unwrap().contains("observed: 0 Nodes"));

        StepRun::new(&tour.steps()[2]).perform(&mut environment).await;
        assert_eq!(item(&progress, "03").result.as_deref(), Some("Failed: no permission"));
    }

    #[test]
    fn no_two_steps_have_the_same_title() {
        let (timing, subnet) = (Timing::for_nodes(3), Subnet::Loopback(64));
        let tour = Tour::new(3, timing, subnet, PodNetwork::Reachable, Ports::DEFAULT);
        let titles: BTreeSet<_> = tour.steps().iter().map(|step| &step.title).collect();
        assert_eq!(titles.len(), tour.steps().len());
    }
}
