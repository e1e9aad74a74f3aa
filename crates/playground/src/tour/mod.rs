//! The tour: what to do, and what must then hold.
//!
//! A step is a value. Printed, it is something to read and commands to paste; run, it acts, watches until its claims
//! hold, and says what it saw. So the text and the check cannot come apart.
//!
//! ```text
//!  Step ──► Stage::act ──► Stage::look ──► claims hold? ──no──► again, until the deadline ──► StepFailure
//!                                              └─yes──► (and go on holding for as long as the step says) ──► next
//! ```

mod arrival;
mod network;
mod scene;
mod traffic;
mod trouble;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;

use bowline_local::NewMachine;
use tokio::time::Instant;

use crate::claim::{Claim, Snapshot};
use crate::manifest::{Manifest, Ports};
use crate::pod_network::PodNetwork;
use crate::subnet::Subnet;
use crate::time::Pace;
use crate::traffic::Probe;
pub use scene::CloudAccess;
use scene::Scene;

/// The Pod that waits for a Node.
pub(crate) const POD: &str = "web";

/// Where it listens.
pub(crate) const POD_PORT: u16 = 8080;

/// Between two looks.
const READ_METHODS: Duration = Duration::from_millis(100);

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Creates a Pod.
    CreatePod,
    /// Starts the controllers.
    StartControllers,
    /// Removes all routes from the cloud.
    LoseRoutes,
    /// Applies the objects of a file, with these ports.
    Apply(Manifest, Ports),
    /// Deletes the Pod of this name.
    DeletePod(String),
    /// Gives the Service of this name the external traffic policy `Local`.
    PolicyLocal(String),
    /// Deletes the Service of this name.
    DeleteService(String),
    /// Stops the machine of this ID.
    Stop(String),
    /// Makes the cloud show no machines at all.
    Lie,
    /// Makes the cloud tell the truth again, and starts the machine of this ID.
    Recover(String),
    /// Deletes the machine of this ID.
    Delete(String),
    /// Makes a machine.
    Add(Box<NewMachine>),
    /// Deletes the machines of these numbers, all at once.
    DeleteMany(RangeInclusive<usize>),
    /// Puts the annotation on all Nodes that lets them go.
    AllowDeletion,
}

/// One step of the tour.
#[derive(Debug, Clone)]
pub struct Step {
    /// What it is about.
    pub title: String,
    /// What it does, and what to make of it.
    pub what: String,
    /// How somebody at a terminal does it, and looks at what comes of it.
    pub commands: Vec<String>,
    /// What it does.
    pub act: Act,
    /// What must then hold, all at once.
    pub claims: Vec<Claim>,
    /// By when.
    pub deadline: Duration,
    /// For how long it must go on holding.
    pub lasting: Duration,
}

/// Where a tour takes place.
pub trait Stage {
    /// Does what a step says.
    fn act(&mut self, act: &Act) -> impl Future<Output = Result<(), String>> + Send;

    /// Looks at what is there, and tries these out.
    fn look(&mut self, probes: &BTreeSet<Probe>) -> impl Future<Output = Result<Snapshot, String>> + Send;
}

/// A step that did not come out as it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {number} of {of} ({title}) failed: {reason}")]
pub struct StepFailure {
    /// Which one, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// Its title.
    pub title: String,
    /// What should have held, and what was seen.
    pub reason: String,
}

/// The steps, in their order.
#[derive(Debug, Clone)]
pub struct Tour {
    steps: Vec<Step>,
}

impl Tour {
    /// The tour of a playground with this many Nodes, at least one, whose cloud is at this URL, whose machines are in this
    /// subnet, whose Pods are in such a network, and in which a Service can have these ports.
    pub fn new(nodes: usize, pace: Pace, cloud: &CloudAccess, subnet: Subnet, pods: PodNetwork, ports: Ports) -> Tour {
        let scene = Scene { nodes, pace, cloud, subnet, pods, ports };
        let acts = [arrival::steps, network::steps, traffic::steps, trouble::steps];
        Tour { steps: acts.map(|steps| steps(&scene)).concat() }
    }

    /// A tour of other steps.
    pub fn of(steps: Vec<Step>) -> Tour {
        Tour { steps }
    }

    /// All steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Runs the first `count` steps on `stage`, and says how each came out. The first failure ends it.
    pub async fn run(
        &self,
        count: usize,
        stage: &mut impl Stage,
        mut say: impl FnMut(fmt::Arguments<'_>),
    ) -> Result<(), StepFailure> {
        let of = self.steps.len();
        for (number, step) in (1..).zip(self.steps.iter().take(count)) {
            say(format_args!("\n[{number}/{of}] {}\n{}", step.title, indented(&step.what)));
            match step.run(stage).await {
                Ok(took) => {
                    say(format_args!("{}      after {:.1} s\n", step.list_claims("   ok "), took.as_secs_f64()))
                }
                Err(reason) => return Err(StepFailure { number, of, title: step.title.clone(), reason }),
            }
        }
        Ok(())
    }

    /// The steps from the given one on, for somebody at a terminal.
    pub fn invitation(&self, from: usize) -> String {
        let mut text = String::new();
        for (number, step) in (1..).zip(&self.steps).skip(from.saturating_sub(1)) {
            let _ = write!(text, "\n[{number}/{}] {}\n{}\n", self.steps.len(), step.title, indented(&step.what));
            for command in &step.commands {
                let _ = writeln!(text, "  {command}");
            }
            let _ = write!(text, "\n{}", step.list_claims("   -> "));
        }
        text
    }
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |all, line| all + "      " + line + "\n")
}

impl Step {
    /// Does it, and tells how long it took until the claims held.
    async fn run(&self, stage: &mut impl Stage) -> Result<Duration, String> {
        let began = Instant::now();
        stage.act(&self.act).await?;
        let mut held_since: Option<Instant> = None;
        loop {
            let looked = Instant::now();
            match (self.check(stage).await, held_since) {
                (Ok(()), since) => {
                    let since = since.unwrap_or_else(Instant::now);
                    if since.elapsed() >= self.lasting {
                        return Ok(began.elapsed());
                    }
                    held_since = Some(since);
                }
                (Err(seen), Some(_)) => return Err(format!("it did not last: {seen}")),
                (Err(seen), None) if began.elapsed() >= self.deadline => {
                    return Err(format!("after {:.1} s, {seen}", began.elapsed().as_secs_f64()));
                }
                (Err(_), None) => {}
            }
            // Looking at thousands of Nodes is work; most of the time is for those who are looked at.
            tokio::time::sleep(READ_METHODS.max(looked.elapsed() * 4)).await;
        }
    }

    async fn check(&self, stage: &mut impl Stage) -> Result<(), String> {
        let probes = self.claims.iter().filter_map(Claim::probe).collect();
        let snapshot = stage.look(&probes).await?;
        let broken = |claim: &Claim| {
            claim.check(&snapshot).err().map(|seen| format!("it should be that {claim}, but seen was: {seen}"))
        };
        self.claims.iter().find_map(broken).map_or(Ok(()), Err)
    }

    fn list_claims(&self, mark: &str) -> String {
        self.claims.iter().fold(String::new(), |mut text, claim| {
            let _ = writeln!(text, "{mark}{claim}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Node;
    use std::sync::Mutex;

    /// A stage on which Nodes come or go with time.
    struct Scripted {
        acts: Vec<Act>,
        looks: Mutex<Vec<usize>>,
    }

    impl Scripted {
        /// Shows these numbers of Nodes, one after the other, and the last one for ever.
        fn new(looks: &[usize]) -> Scripted {
            Scripted { acts: Vec::new(), looks: Mutex::new(looks.iter().rev().copied().collect()) }
        }
    }

    impl Stage for Scripted {
        async fn act(&mut self, act: &Act) -> Result<(), String> {
            self.acts.push(act.clone());
            if *act == Act::Lie { Err("the cloud is too honest".to_owned()) } else { Ok(()) }
        }

        async fn look(&mut self, _: &BTreeSet<Probe>) -> Result<Snapshot, String> {
            let mut looks = self.looks.lock().map_err(|error| error.to_string())?;
            let count = if looks.len() > 1 { looks.pop() } else { looks.last().copied() };
            let nodes = (0..count.unwrap_or_default()).map(|_| Node::default()).collect();
            Ok(Snapshot { nodes, ..Snapshot::default() })
        }
    }

    fn step(title: &str, act: Act, count: usize, lasting: Duration) -> Step {
        Step {
            title: title.to_owned(),
            what: "something".to_owned(),
            commands: Vec::new(),
            act,
            claims: vec![Claim::NodeCount(count)],
            deadline: Duration::from_secs(5),
            lasting,
        }
    }

    async fn run(steps: Vec<Step>, stage: &mut Scripted) -> (Result<(), StepFailure>, String) {
        let mut said = String::new();
        let outcome = Tour::of(steps).run(usize::MAX, stage, |text| said += &text.to_string()).await;
        (outcome, said)
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_holds_as_soon_as_its_claims_do() {
        let mut stage = Scripted::new(&[0, 1, 2]);
        let steps = vec![step("two come", Act::CreatePod, 2, Duration::ZERO)];
        let (outcome, said) = run(steps, &mut stage).await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(said, "\n[1/1] two come\n      something\n   ok there are 2 Nodes\n      after 0.2 s\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_cannot_hold_is_named_with_what_was_seen_and_ends_the_tour() {
        let mut stage = Scripted::new(&[1]);
        let steps = vec![
            step("one is there", Act::CreatePod, 1, Duration::ZERO),
            step("three come", Act::StartControllers, 3, Duration::ZERO),
            step("never reached", Act::CreatePod, 1, Duration::ZERO),
        ];
        let (outcome, _) = run(steps, &mut stage).await;
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "step 2 of 3 (three come) failed: after 5.0 s, it should be that there are 3 Nodes, but seen was: 1 Nodes"
        );
        assert_eq!(stage.acts, [Act::CreatePod, Act::StartControllers]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_last_fails_when_it_does_not() {
        let lasting = Duration::from_secs(1);
        let brief = Scripted::new(&[0, 2, 2, 0]);
        let long = Scripted::new(&[0, 2]);
        for (mut stage, fails) in [(brief, true), (long, false)] {
            let (outcome, _) = run(vec![step("two stay", Act::CreatePod, 2, lasting)], &mut stage).await;
            assert_eq!(outcome.is_err_and(|failure| failure.reason.starts_with("it did not last")), fails);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_act_that_fails_fails_its_step() {
        let (outcome, _) = run(vec![step("lie", Act::Lie, 0, Duration::ZERO)], &mut Scripted::new(&[0])).await;
        assert_eq!(outcome.unwrap_err().reason, "the cloud is too honest");
    }

    fn tour_of(nodes: usize, pods: PodNetwork) -> Tour {
        let (pace, subnet) = (Pace::for_nodes(nodes), Subnet::Loopback(64));
        let cloud = CloudAccess { url: "http://127.0.0.1:7480".to_owned(), token: "cloud-token".to_owned() };
        Tour::new(nodes, pace, &cloud, subnet, pods, Ports::USUAL)
    }

    #[test]
    fn every_step_of_the_tour_says_what_must_hold_and_all_but_the_first_how_to_do_it() {
        for nodes in [1, 3, 1_000] {
            for (number, step) in (1..).zip(tour_of(nodes, PodNetwork::Reachable).steps()) {
                assert!(!step.claims.is_empty(), "{}", step.title);
                assert_eq!(step.commands.is_empty(), number == 1, "{}", step.title);
                assert!(step.deadline > Pace::for_nodes(nodes).silence, "{}", step.title);
            }
        }
    }

    #[test]
    fn a_lie_needs_a_second_node_to_be_seen_through() {
        let lies = |nodes| tour_of(nodes, PodNetwork::Reachable).steps().iter().any(|step| step.act == Act::Lie);
        assert_eq!([lies(1), lies(2)], [false, true]);
    }

    #[test]
    fn nobody_is_asked_at_an_address_that_is_only_shown() {
        let asked = |pods| {
            let claims = tour_of(3, pods).steps().iter().flat_map(|step| step.claims.clone()).collect::<Vec<_>>();
            claims.iter().any(|claim| matches!(claim, Claim::PodAnswers(_)))
        };
        assert_eq!([asked(PodNetwork::Reachable), asked(PodNetwork::Shown)], [true, false]);
    }

    #[test]
    fn the_invitation_names_each_step_its_commands_and_what_to_look_for() {
        let text = tour_of(3, PodNetwork::Reachable).invitation(3);
        for part in [
            "[9/15] Stop a machine",
            "  curl -sS -H @cloud-token -X POST http://127.0.0.1:7480/v1/instances/m-3/stop\n",
            "   -> node-3 has the taint node.cloudprovider.kubernetes.io/shutdown\n",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        assert!(!text.contains("[2/15]"), "{text}");
    }
}
