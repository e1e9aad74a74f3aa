//! The guided tour: steps with an action and the assertions that must hold afterwards.
//!
//! A step is a value. It can be printed as text with commands to paste, or run: perform the action, poll until all assertions hold,
//! and print the result. Text and check therefore cannot diverge.
//!
//! ```text
//!  Step ──► StepRun: Waiting ──(performed here, or seen to be performed elsewhere)──► Running ──► Passed, or Failed
//!                                                                                       └─ Environment::observe, until all
//!                                                                                          assertions hold, for `duration`
//! ```

mod action;
mod context;
mod failures;
mod initialisation;
mod network;
mod run;
mod traffic;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::PlaygroundError;
use crate::assertion::{Assertion, Snapshot};
use crate::manifest::Ports;
use crate::pod_network::PodNetwork;
use crate::subnet::Subnet;
use crate::timing::Timing;
use crate::traffic::Probe;
pub use action::TourAction;
use context::Context;
pub use run::{StepRun, StepState};

/// Name of the Pod that is created before Nodes are initialised.
pub(crate) const POD: &str = "web";

/// Port of the Pod.
pub(crate) const POD_PORT: u16 = 8080;

/// One step of the tour.
#[derive(Debug, Clone)]
pub struct Step {
    /// Title of the step.
    pub title: String,
    /// Description of the action and its effects.
    pub description: String,
    /// Shell commands that perform the action; empty if only the playground can.
    pub commands: Vec<String>,
    /// Shell commands that show the effects, once all assertions hold.
    pub views: Vec<String>,
    /// Action to perform.
    pub action: TourAction,
    /// Assertions that must hold at the same time.
    pub assertions: Vec<Assertion>,
    /// Time limit for the assertions.
    pub deadline: Duration,
    /// Time for which the assertions must keep holding.
    pub duration: Duration,
}

/// A playground that a tour runs on; a trait so that tests can fake it.
pub trait Environment {
    /// Performs the action of a step.
    fn perform(&mut self, action: &TourAction) -> impl Future<Output = Result<(), String>> + Send;

    /// Reads the current state, and runs these probes.
    fn observe(&mut self, probes: &BTreeSet<Probe>) -> impl Future<Output = Result<Snapshot, String>> + Send;

    /// Receives the progress of a step, whenever it may have changed.
    fn report(&mut self, _run: &StepRun<'_>) {}

    /// Waits until a component ends unexpectedly, and returns the error.
    fn failure(&mut self) -> impl Future<Output = PlaygroundError> + Send;
}

/// A failed step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {number} of {of} ({title}) failed: {reason}")]
pub struct StepFailure {
    /// Number of the step, from 1.
    pub number: usize,
    /// Number of steps.
    pub of: usize,
    /// Title of the step.
    pub title: String,
    /// Expected and observed state.
    pub reason: String,
}

/// A list of steps.
#[derive(Debug, Clone)]
pub struct Tour {
    steps: Vec<Step>,
}

impl Tour {
    /// Creates the tour of a playground with `nodes` Nodes, at least one. `ports` are the ports of its Service.
    pub fn new(nodes: usize, timing: Timing, subnet: Subnet, pods: PodNetwork, ports: Ports) -> Tour {
        let context = Context { nodes, timing, subnet, pods, ports };
        let actions = [initialisation::steps, network::steps, traffic::steps, failures::steps];
        Tour { steps: actions.map(|steps| steps(&context)).concat() }
    }

    /// Creates a tour of these steps.
    pub fn of(steps: Vec<Step>) -> Tour {
        Tour { steps }
    }

    /// Returns all steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Runs the first `count` steps and prints the result of each. Stops at the first failure.
    pub async fn run(
        &self,
        count: usize,
        environment: &mut impl Environment,
        mut print: impl FnMut(fmt::Arguments<'_>),
    ) -> Result<(), StepFailure> {
        let of = self.steps.len();
        for (number, step) in (1..).zip(self.steps.iter().take(count)) {
            print(format_args!("\n[{number}/{of}] {}\n{}", step.title, indent(&step.description)));
            match run::to_end(step, environment).await {
                Ok(took) => {
                    print(format_args!("{}      after {:.1} s\n", step.list_assertions("   ok "), took.as_secs_f64()))
                }
                Err(reason) => return Err(StepFailure { number, of, title: step.title.clone(), reason }),
            }
        }
        Ok(())
    }

    /// Returns the steps from the given one on as text, with commands to paste.
    pub fn instructions(&self, from: usize) -> String {
        let mut text = String::new();
        for (number, step) in (1..).zip(&self.steps).skip(from.saturating_sub(1)) {
            let _ = write!(text, "\n[{number}/{}] {}\n{}\n", self.steps.len(), step.title, indent(&step.description));
            let list =
                |commands: &[String]| commands.iter().map(|command| format!("  {command}\n")).collect::<String>();
            let _ = writeln!(text, "{}\n{}", list(&step.commands), step.list_assertions("   -> "));
            text += &list(&step.views);
        }
        text
    }
}

fn indent(text: &str) -> String {
    text.lines().fold(String::new(), |all, line| all + "      " + line + "\n")
}

impl Step {
    fn list_assertions(&self, mark: &str) -> String {
        self.assertions.iter().fold(String::new(), |mut text, assertion| {
            let _ = writeln!(text, "{mark}{assertion}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Node;
    use std::sync::Mutex;

    /// An environment with a given number of Nodes at each observation.
    struct FakeEnvironment {
        actions: Vec<TourAction>,
        node_counts: Mutex<Vec<usize>>,
    }

    impl FakeEnvironment {
        /// Returns these numbers of Nodes, one after the other, and then repeats the last one.
        fn new(node_counts: &[usize]) -> FakeEnvironment {
            FakeEnvironment {
                actions: Vec::new(),
                node_counts: Mutex::new(node_counts.iter().rev().copied().collect()),
            }
        }
    }

    impl Environment for FakeEnvironment {
        async fn perform(&mut self, action: &TourAction) -> Result<(), String> {
            self.actions.push(action.clone());
            if *action == TourAction::HideMachines { Err("injection failed".to_owned()) } else { Ok(()) }
        }

        async fn observe(&mut self, _: &BTreeSet<Probe>) -> Result<Snapshot, String> {
            let mut node_counts = self.node_counts.lock().map_err(|error| error.to_string())?;
            let count = if node_counts.len() > 1 { node_counts.pop() } else { node_counts.last().copied() };
            let nodes = (0..count.unwrap_or_default()).map(|_| Node::default()).collect();
            Ok(Snapshot { nodes, ..Snapshot::default() })
        }

        fn failure(&mut self) -> impl Future<Output = PlaygroundError> + Send {
            std::future::pending()
        }
    }

    fn step(title: &str, action: TourAction, count: usize, duration: Duration) -> Step {
        Step {
            title: title.to_owned(),
            description: "something".to_owned(),
            commands: Vec::new(),
            views: Vec::new(),
            action,
            assertions: vec![Assertion::NodeCount(count)],
            deadline: Duration::from_secs(5),
            duration,
        }
    }

    async fn run(steps: Vec<Step>, environment: &mut FakeEnvironment) -> (Result<(), StepFailure>, String) {
        let mut printed = String::new();
        let outcome = Tour::of(steps).run(usize::MAX, environment, |text| printed += &text.to_string()).await;
        (outcome, printed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_passes_as_soon_as_its_assertions_hold() {
        let mut environment = FakeEnvironment::new(&[0, 1, 2]);
        let steps = vec![step("two Nodes", TourAction::CreatePod, 2, Duration::ZERO)];
        let (outcome, printed) = run(steps, &mut environment).await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(printed, "\n[1/1] two Nodes\n      something\n   ok there are 2 Nodes\n      after 0.2 s\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_step_is_reported_with_the_observed_state_and_ends_the_tour() {
        let mut environment = FakeEnvironment::new(&[1]);
        let steps = vec![
            step("one Node", TourAction::CreatePod, 1, Duration::ZERO),
            step("three Nodes", TourAction::StartControllers, 3, Duration::ZERO),
            step("never reached", TourAction::CreatePod, 1, Duration::ZERO),
        ];
        let (outcome, _) = run(steps, &mut environment).await;
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "step 2 of 3 (three Nodes) failed: after 5.0 s: expected: there are 3 Nodes; observed: 1 Nodes"
        );
        assert_eq!(environment.actions, [TourAction::CreatePod, TourAction::StartControllers]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_fails_if_the_state_does_not_last() {
        let duration = Duration::from_secs(1);
        let brief = FakeEnvironment::new(&[0, 2, 2, 0]);
        let long = FakeEnvironment::new(&[0, 2]);
        for (mut environment, fails) in [(brief, true), (long, false)] {
            let (outcome, _) = run(vec![step("two Nodes", TourAction::CreatePod, 2, duration)], &mut environment).await;
            assert_eq!(outcome.is_err_and(|failure| failure.reason.starts_with("the state did not last")), fails);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_action_fails_the_step() {
        let (outcome, _) =
            run(vec![step("fault", TourAction::HideMachines, 0, Duration::ZERO)], &mut FakeEnvironment::new(&[0]))
                .await;
        assert_eq!(outcome.unwrap_err().reason, "injection failed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_is_performed_elsewhere_is_noticed() {
        let mut environment = FakeEnvironment::new(&[0, 0, 1]);
        let delete = |duration| step("gone", TourAction::Delete("m-1".to_owned()), 1, duration);
        let one = delete(Duration::ZERO);
        let mut run = StepRun::new(&one);
        run.observe(&mut environment).await;
        assert_eq!((run.state(), run.checks()), (&StepState::Running, &[false][..]));
        run.observe(&mut environment).await;
        assert_eq!((run.has_ended(), run.checks()), (false, &[false][..]));
        run.observe(&mut environment).await;
        assert_eq!((run.state(), run.checks()), (&StepState::Passed(Duration::ZERO), &[true][..]));
        assert!(environment.actions.is_empty());
        let waiting = step("fault", TourAction::HideMachines, 1, Duration::ZERO);
        let mut run = StepRun::new(&waiting);
        run.observe(&mut environment).await;
        assert_eq!(run.state(), &StepState::Waiting);
    }

    #[test]
    fn views_have_known_addresses() {
        let views = tour_of(3, PodNetwork::Reachable).steps()[3].views.clone();
        assert!(views.iter().any(|view| view.contains("http://$(kubectl get service hello -o jsonpath=")), "{views:?}");
    }

    fn tour_of(nodes: usize, pods: PodNetwork) -> Tour {
        let (timing, subnet) = (Timing::for_nodes(nodes), Subnet::Loopback(64));
        Tour::new(nodes, timing, subnet, pods, Ports::DEFAULT)
    }

    #[test]
    fn every_step_has_assertions_and_views_and_all_but_the_first_two_have_commands() {
        for nodes in [1, 3, 1_000] {
            for (number, step) in (1..).zip(tour_of(nodes, PodNetwork::Reachable).steps()) {
                assert!(!step.assertions.is_empty(), "{}", step.title);
                assert!(!step.views.is_empty(), "{}", step.title);
                assert_eq!(step.commands.is_empty(), number <= 2, "{}", step.title);
                assert!(step.deadline > Timing::for_nodes(nodes).grace_period, "{}", step.title);
            }
        }
    }

    #[test]
    fn hiding_machines_needs_a_second_node() {
        let hides_machines = |nodes| {
            tour_of(nodes, PodNetwork::Reachable).steps().iter().any(|step| step.action == TourAction::HideMachines)
        };
        assert_eq!([hides_machines(1), hides_machines(2)], [false, true]);
    }

    #[test]
    fn unreachable_pod_addresses_are_not_probed() {
        let probes_pods = |pods| {
            let assertions =
                tour_of(3, pods).steps().iter().flat_map(|step| step.assertions.clone()).collect::<Vec<_>>();
            assertions.iter().any(|assertion| matches!(assertion, Assertion::PodAnswers(_)))
        };
        assert_eq!([probes_pods(PodNetwork::Reachable), probes_pods(PodNetwork::Unreachable)], [true, false]);
    }

    #[test]
    fn the_instructions_have_titles_commands_and_assertions() {
        let text = tour_of(3, PodNetwork::Reachable).instructions(3);
        for part in [
            "[9/15] Stop a machine",
            "  bowline cloud stop m-3\n",
            "   -> node-3 has the taint node.cloudprovider.kubernetes.io/shutdown\n",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        assert!(!text.contains("[2/15]"), "{text}");
    }
}
