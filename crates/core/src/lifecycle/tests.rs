//! Cases and stories of the lifecycle pass, on a world that the tests can turn: Nodes, a cloud, a clock.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::testing::{node, taint};
use crate::well_known::{ALLOW_DELETION, NO_SCHEDULE, UNINITIALIZED_TAINT};
use crate::{NodeName, ProviderId, Ready, Taint};

/// Nodes `a0`, `a1`, … of the provider `a`, and so on; `x…` are nobody's.
struct World {
    nodes: BTreeMap<String, Node>,
    /// What the cloud says; a machine that is not in here is gone.
    cloud: BTreeMap<String, Answer>,
    /// What a cache says instead, where it has something.
    cache: BTreeMap<String, Answer>,
    /// Whether the API server carries deletions out.
    deletes: bool,
    policy: Policy,
    memory: Memory,
    start: Moment,
    passed: Duration,
}

/// What one pass did.
#[derive(Debug, Default, PartialEq)]
struct Pass {
    asked: Vec<String>,
    looked: Vec<String>,
    tainted: Vec<String>,
    untainted: Vec<String>,
    deleted: Vec<String>,
    held: Vec<(String, HoldReason)>,
}

impl World {
    /// Nodes that are not Ready and an hour old, with a running machine each.
    fn of(names: &[&str]) -> World {
        let mut world = World {
            nodes: BTreeMap::new(),
            cloud: BTreeMap::new(),
            cache: BTreeMap::new(),
            deletes: true,
            policy: Policy::default(),
            memory: Memory::default(),
            start: Moment { instant: Instant::now(), wall: "2026-01-01T00:00:00Z".parse().unwrap() },
            passed: Duration::from_secs(3600),
        };
        for name in names {
            world.nodes.insert((*name).to_owned(), world.registered(name));
            world.cloud.insert((*name).to_owned(), Answer::Running);
        }
        world
    }

    /// So many Nodes of the provider `a`, of which the first `gone` have lost their machines.
    fn with_gone(nodes: usize, gone: usize) -> World {
        let names: Vec<String> = (0..nodes).map(|number| format!("a{number:02}")).collect();
        let mut world = World::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        names.iter().take(gone).for_each(|name| world.lose(name));
        world
    }

    fn registered(&self, name: &str) -> Node {
        let created = Some(self.start.wall);
        let labels = BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "z".to_owned())]);
        Node { ready: Ready::False, created, labels, provider_id: Some(ProviderId::of("fake", name)), ..node(name) }
    }

    fn now(&self) -> Moment {
        Moment { instant: self.start.instant + self.passed, wall: self.start.wall + self.passed }
    }

    fn wait(&mut self, seconds: u64) {
        self.passed += Duration::from_secs(seconds);
    }

    fn lose(&mut self, name: &str) {
        self.cloud.remove(name);
    }

    fn answer(&mut self, name: &str, answer: Answer) {
        self.cloud.insert(name.to_owned(), answer);
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).unwrap()
    }

    fn allow(&mut self, name: &str) {
        self.node(name).annotations.insert(ALLOW_DELETION.to_owned(), "true".to_owned());
    }

    fn fleet(&self) -> Fleet {
        let owner = |node: &Node| provider_of(node.name.as_str());
        Fleet::new(self.nodes.values().cloned().map(Arc::new), owner)
    }

    fn truth(&self, node: &Node) -> Answer {
        self.cloud.get(node.name.as_str()).copied().unwrap_or(Answer::Gone)
    }

    fn glance(&self, node: &Node) -> Answer {
        self.cache.get(node.name.as_str()).copied().unwrap_or_else(|| self.truth(node))
    }

    fn pass(&mut self) -> Pass {
        let (fleet, now) = (self.fleet(), self.now());
        let questions = fleet.questions();
        let glance = CachedAnswers::new(questions.ask.iter().map(|node| (node, self.glance(node))));
        let verdict = decide(&fleet, &glance, &mut self.memory, &self.policy, now);
        let look = FreshAnswers::uncached(verdict.look.iter().map(|node| (node, self.truth(node))));
        let conclusion = conclude(&fleet, &look, &mut self.memory, &self.policy, now);
        let deleted: Vec<String> = conclusion.delete.iter().map(|deletion| deletion.node.name.to_string()).collect();
        if self.deletes {
            self.nodes.retain(|name, _| !deleted.contains(name));
        }
        Pass {
            asked: names(&questions.ask),
            looked: names(&verdict.look),
            tainted: names(&verdict.taint),
            untainted: names(&questions.untaint),
            deleted,
            held: verdict
                .held
                .into_iter()
                .chain(conclusion.held)
                .map(|held| (held.node.to_string(), held.doubt))
                .collect(),
        }
    }

    fn conclude(&mut self, look: &FreshAnswers) -> Conclusion {
        let (fleet, now) = (self.fleet(), self.now());
        conclude(&fleet, look, &mut self.memory, &self.policy, now)
    }

    /// Two passes far enough apart to confirm, and what the second one did.
    fn two_passes(&mut self) -> Pass {
        assert_eq!(self.pass().deleted, NOBODY, "nothing goes at the first look");
        self.wait(10);
        self.pass()
    }
}

const NOBODY: [&str; 0] = [];

fn provider_of(name: &str) -> Option<Arc<str>> {
    let letter = name.get(..1)?;
    (letter != "x").then(|| letter.into())
}

fn names(nodes: &[Arc<Node>]) -> Vec<String> {
    nodes.iter().map(|node| node.name.to_string()).collect()
}

impl Pass {
    fn words(&self) -> Vec<(&str, &str)> {
        self.held.iter().map(|(node, doubt)| (node.as_str(), doubt.word())).collect()
    }
}

// ---- F1 to F8

#[test]
fn f1_to_f8_what_the_cloud_reports_decides() {
    use Answer::{Failed, Gone, Running, Stopped};
    use Ready::{False, True, Unknown};
    // Case, Ready, the cloud's answer; is asked about, is deleted, is tainted.
    let cases = [
        ("F1", False, Gone, true, true, false),
        ("F2", False, Failed, true, false, false),
        ("F3", False, Running, true, false, false),
        ("F4", Unknown, Gone, true, true, false),
        ("F5", Unknown, Running, true, false, false),
        ("F6", True, Gone, false, false, false),
        ("F7", False, Stopped, true, false, true),
        ("F8: a machine that is gone is not stopped", Unknown, Gone, true, true, false),
        ("nobody's", False, Answer::Unowned, true, false, false),
    ];
    for (case, ready, answer, asked, deleted, tainted) in cases {
        let mut world = World::of(&["a0", "a1"]);
        world.node("a0").ready = ready;
        world.answer("a0", answer);
        let first = world.pass();
        world.wait(10);
        let second = world.pass();
        let has = |list: &[String]| list.iter().any(|name| name == "a0");
        assert_eq!(has(&first.asked), asked, "{case}: asked");
        assert_eq!(has(&second.deleted), deleted, "{case}: deleted");
        assert_eq!(has(&first.tainted), tainted, "{case}: tainted");
    }
}

#[test]
fn f09_a_node_without_an_id_goes_if_the_caller_says_whose_it_would_be() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").provider_id = None;
    world.lose("a0");
    assert_eq!(world.two_passes().deleted, ["a0"]);
}

#[test]
fn f10_a_ready_node_loses_the_shutdown_taint_without_a_question() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").ready = Ready::True;
    world.node("a0").taints = vec![taint("other", NO_SCHEDULE), Taint::shutdown()];
    world.node("a1").ready = Ready::True;
    assert_eq!(world.pass(), Pass { untainted: vec!["a0".to_owned()], ..Pass::default() });
}

#[test]
fn f11_a_machine_that_runs_again_keeps_its_taint_until_its_node_is_ready() {
    let mut world = World::of(&["a0"]);
    world.node("a0").taints = vec![Taint::shutdown()];
    let pass = world.pass();
    assert_eq!((pass.tainted, pass.untainted), (vec![], vec![]));
}

#[test]
fn f12_a_node_that_has_the_taint_gets_no_second_one() {
    let mut world = World::of(&["a0"]);
    world.answer("a0", Answer::Stopped);
    world.node("a0").taints = vec![Taint::shutdown()];
    assert_eq!(world.pass().tainted, NOBODY);
}

#[test]
fn f12_a_taint_that_says_something_else_does_not_count() {
    for odd in [
        Taint { value: "yes".to_owned(), ..Taint::shutdown() },
        Taint { effect: "NoExecute".to_owned(), ..Taint::shutdown() },
        Taint { time_added: Some("2026-01-01T00:00:00Z".to_owned()), ..Taint::shutdown() },
    ] {
        let mut world = World::of(&["a0"]);
        world.answer("a0", Answer::Stopped);
        world.node("a0").taints = vec![odd];
        assert_eq!(world.pass().tainted, ["a0"]);
    }
}

#[test]
fn f15_a_deletion_that_failed_is_tried_again_in_the_next_pass_and_counts_once() {
    let mut world = World::with_gone(3, 1);
    world.deletes = false;
    assert_eq!(world.two_passes().deleted, ["a00"]);
    world.wait(5);
    assert_eq!(world.pass().deleted, ["a00"]);
    world.deletes = true;
    world.wait(5);
    assert_eq!(world.pass().deleted, ["a00"]);
}

#[test]
fn f20_a_node_without_ready_condition_is_as_good_as_not_ready() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").ready = Ready::default();
    world.lose("a0");
    assert_eq!(world.two_passes().deleted, ["a0"]);
}

#[test]
fn f21_a_node_that_was_never_initialised_goes_like_any_other() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").taints = vec![taint(UNINITIALIZED_TAINT, NO_SCHEDULE)];
    world.lose("a0");
    assert_eq!(world.two_passes().deleted, ["a0"]);
}

// ---- whom it concerns

#[test]
fn nodes_that_are_not_for_us_are_neither_asked_about_nor_touched_nor_witnesses() {
    let mut world = World::of(&["a0", "a1", "a2"]);
    for name in ["a1", "a2"] {
        world.node(name).labels.insert("bowline.dev/unmanaged".to_owned(), "true".to_owned());
    }
    world.node("a2").ready = Ready::True;
    world.node("a2").taints = vec![Taint::shutdown()];
    world.lose("a0");
    world.lose("a1");
    let pass = world.two_passes();
    assert_eq!((pass.asked, pass.looked, pass.untainted), (vec!["a0".to_owned()], vec!["a0".to_owned()], vec![]));
    assert_eq!(pass.deleted, ["a0"], "without the others it is the sole node of its provider");
}

#[test]
fn a_node_of_nobody_is_never_deleted_even_if_it_is_reported_gone() {
    let mut world = World::of(&["x0"]);
    world.lose("x0");
    assert_eq!(world.two_passes(), Pass { asked: vec!["x0".to_owned()], ..Pass::default() });
}

#[test]
fn a_node_that_is_leaving_is_not_deleted_again() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.node("a0").deleting = true;
    let pass = world.two_passes();
    assert_eq!((pass.deleted, pass.held), (vec![], vec![("a0".to_owned(), HoldReason::Leaving)]));
}

// ---- rule 1: age

#[test]
fn what_is_seen_within_the_grace_period_does_not_count() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.node("a0").created = Some(world.now().wall);
    world.wait(20);
    let (age, grace) = (Duration::from_secs(20), Duration::from_secs(30));
    let young = world.pass();
    assert_eq!(young.held, [("a0".to_owned(), HoldReason::TooYoung { age, grace })]);
    assert_eq!(young.looked, NOBODY, "no costly read while nothing can come of it");
    world.wait(10);
    assert_eq!(world.pass().words(), [("a0", "AwaitingSecondLook")]);
    world.wait(10);
    assert_eq!(world.pass().deleted, ["a0"]);
}

#[test]
fn a_node_from_the_future_or_of_unknown_age_is_young() {
    for created in [None, Some("2027-01-01T00:00:00Z".parse().unwrap())] {
        let mut world = World::of(&["a0", "a1"]);
        world.lose("a0");
        world.node("a0").created = created;
        assert_eq!(world.two_passes().words(), [("a0", "TooYoung")]);
    }
}

// ---- rule 2: two looks

#[test]
fn the_second_look_comes_no_sooner_than_it_may() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    let left = Duration::from_secs(10);
    assert_eq!(world.pass().held, [("a0".to_owned(), HoldReason::AwaitingSecondLook { left })]);
    world.wait(4);
    let early = world.pass();
    let left = Duration::from_secs(6);
    assert_eq!(early.held, [("a0".to_owned(), HoldReason::AwaitingSecondLook { left })]);
    assert_eq!(early.looked, NOBODY, "no costly read before its time");
    world.wait(6);
    assert_eq!(world.pass().deleted, ["a0"]);
}

#[test]
fn even_without_a_pause_two_looks_are_needed() {
    let mut world = World::of(&["a0", "a1"]);
    world.policy.confirm_after = Duration::ZERO;
    world.lose("a0");
    assert_eq!(world.pass().deleted, NOBODY);
    assert_eq!(world.pass().deleted, ["a0"]);
}

#[test]
fn a_cache_that_still_shows_the_machine_keeps_the_node() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.cache.insert("a0".to_owned(), Answer::Running);
    assert_eq!(world.two_passes().looked, NOBODY);
}

#[test]
fn a_cache_that_says_gone_confirms_nothing() {
    let mut world = World::of(&["a0", "a1"]);
    world.cache.insert("a0".to_owned(), Answer::Gone);
    for _ in 0..3 {
        let pass = world.pass();
        assert_eq!((pass.deleted, pass.held), (vec![], vec![]), "the look shows the machine");
        world.wait(10);
    }
}

#[test]
fn an_error_between_two_looks_confirms_nothing_and_refutes_nothing() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.pass();
    world.wait(10);
    world.answer("a0", Answer::Failed);
    assert_eq!(world.pass().deleted, NOBODY);
    world.cache.insert("a0".to_owned(), Answer::Gone);
    assert_eq!(world.pass().deleted, NOBODY, "an error of the look itself");
    world.cache.clear();
    world.lose("a0");
    assert_eq!(world.pass().deleted, ["a0"], "the first look still stands");
}

#[test]
fn whatever_shows_the_machine_or_the_kubelet_alive_starts_over() {
    type Turn = fn(&mut World);
    let stories: [(&str, Turn, Turn); 4] = [
        ("running", |world| world.answer("a0", Answer::Running), |world| world.lose("a0")),
        ("stopped", |world| world.answer("a0", Answer::Stopped), |world| world.lose("a0")),
        ("nobody's", |world| world.answer("a0", Answer::Unowned), |world| world.lose("a0")),
        ("ready", |world| world.node("a0").ready = Ready::True, |world| world.node("a0").ready = Ready::False),
    ];
    for (story, there, back) in stories {
        let mut world = World::of(&["a0", "a1"]);
        world.lose("a0");
        world.pass();
        there(&mut world);
        world.wait(10);
        assert_eq!(world.pass().deleted, NOBODY, "{story}");
        back(&mut world);
        world.wait(10);
        assert_eq!(world.two_passes().deleted, ["a0"], "{story}: two looks again");
    }
}

#[test]
fn a_node_registered_anew_under_the_same_name_starts_over() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.pass();
    world.wait(10);
    world.node("a0").uid = "another".to_owned();
    assert_eq!(world.two_passes().deleted, ["a0"]);
}

#[test]
fn a_look_at_an_earlier_node_says_nothing_of_a_later_one() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    let before = world.fleet();
    let earlier = before.questions().ask;
    let look = FreshAnswers::uncached(earlier.iter().map(|node| (node, world.truth(node))));
    world.node("a0").uid = "another".to_owned();
    assert_eq!(world.conclude(&look), Conclusion::default());
}

#[test]
fn a_node_that_became_ready_during_the_look_stays() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.pass();
    world.wait(10);
    let asked = world.fleet().questions().ask;
    let look = FreshAnswers::uncached(asked.iter().map(|node| (node, world.truth(node))));
    world.node("a0").ready = Ready::True;
    assert_eq!(world.conclude(&look), Conclusion::default());
}

// ---- rule 3: the witness

#[test]
fn the_look_takes_in_a_few_nodes_that_should_be_visible() {
    let mut world = World::of(&["a0", "a1", "a2", "a3", "a4", "b0"]);
    world.lose("a0");
    world.node("a1").ready = Ready::True;
    world.answer("a2", Answer::Failed);
    world.answer("a4", Answer::Stopped);
    assert_eq!(world.pass().looked, ["a0", "a3", "a4", "a1"], "those just seen first, then the Ready one");
}

#[test]
fn without_a_visible_machine_of_another_node_nothing_goes() {
    let mut world = World::with_gone(2, 2);
    world.policy.brake_share = 1.0;
    let pass = world.two_passes();
    let doubt = HoldReason::NoWitness { others: 1 };
    assert_eq!(pass.held, [("a00".to_owned(), doubt.clone()), ("a01".to_owned(), doubt)]);

    world.allow("a00");
    assert_eq!(world.pass().deleted, ["a00"], "the operator knows better");
}

#[test]
fn a_ready_node_or_a_stopped_machine_can_be_the_witness() {
    let mut ready = World::with_gone(2, 1);
    ready.node("a01").ready = Ready::True;
    assert_eq!(ready.two_passes().deleted, ["a00"]);

    let mut stopped = World::with_gone(2, 1);
    stopped.answer("a01", Answer::Stopped);
    assert_eq!(stopped.two_passes().deleted, ["a00"]);
}

#[test]
fn a_ready_node_whose_machine_is_not_visible_either_is_no_witness() {
    let mut world = World::with_gone(2, 2);
    world.node("a01").ready = Ready::True;
    assert_eq!(world.two_passes().words(), [("a00", "NoWitness")]);
}

#[test]
fn a_machine_of_another_provider_is_no_witness() {
    let mut world = World::of(&["a0", "a1", "b0"]);
    world.policy.brake_share = 1.0;
    world.lose("a0");
    world.lose("a1");
    assert_eq!(world.two_passes().words(), [("a0", "NoWitness"), ("a1", "NoWitness")]);
}

#[test]
fn the_sole_node_of_a_provider_needs_no_witness() {
    let mut world = World::of(&["a0", "b0", "b1"]);
    world.lose("a0");
    assert_eq!(world.two_passes().deleted, ["a0"]);
}

// ---- rule 4: the brake

#[test]
fn as_many_go_as_may_and_if_more_would_none_goes() {
    assert_eq!(World::with_gone(9, 3).two_passes().deleted, ["a00", "a01", "a02"]);

    let pass = World::with_gone(9, 4).two_passes();
    assert_eq!(pass.deleted, NOBODY);
    let window = Duration::from_secs(600);
    let brake = HoldReason::Brake { missing: 4, gone: 0, allowed: 3, of: 9, window };
    assert_eq!(pass.held.iter().map(|(_, doubt)| doubt).collect::<Vec<_>>(), [&brake; 4]);
}

#[test]
fn while_the_brake_holds_the_costly_read_is_spared() {
    let mut world = World::with_gone(9, 4);
    world.pass();
    world.wait(10);
    assert_eq!(world.pass().looked, NOBODY, "four that were seen gone are too many, whatever another look shows");
    world.lose("a04");
    assert_eq!(world.pass().looked.first().map(String::as_str), Some("a04"), "this one was not looked at yet");
    world.allow("a00");
    assert_eq!(world.pass().looked.first().map(String::as_str), Some("a00"));
}

#[test]
fn nodes_seen_gone_once_count_already() {
    let mut world = World::with_gone(9, 1);
    world.pass();
    ["a01", "a02", "a03"].iter().for_each(|name| world.lose(name));
    world.wait(10);
    let pass = world.pass();
    assert_eq!(pass.deleted, NOBODY, "{pass:?}");
    assert!(pass.words().contains(&("a00", "Brake")), "{pass:?}");
}

#[test]
fn the_brake_is_released_when_fewer_are_missing() {
    let mut world = World::with_gone(9, 4);
    world.two_passes();
    world.answer("a03", Answer::Running);
    assert_eq!(world.pass().deleted, ["a00", "a01", "a02"]);
}

#[test]
fn the_brake_is_released_by_the_annotation_and_that_node_no_longer_counts() {
    let mut world = World::with_gone(10, 5);
    world.two_passes();
    world.allow("a04");
    assert_eq!(world.pass().deleted, ["a04"], "four of the others are still too many");
    world.allow("a03");
    assert_eq!(world.pass().deleted, ["a00", "a01", "a02", "a03"]);
}

#[test]
fn the_annotation_does_not_hurry_the_two_looks_or_the_grace_period() {
    let mut world = World::with_gone(2, 2);
    world.allow("a00");
    world.allow("a01");
    world.node("a01").created = Some(world.now().wall);
    assert_eq!(world.pass().deleted, NOBODY);
    world.wait(10);
    let pass = world.pass();
    assert_eq!((pass.deleted.as_slice(), pass.words()), (["a00".to_owned()].as_slice(), vec![("a01", "TooYoung")]));
}

#[test]
fn deletions_count_until_the_window_is_over() {
    let mut world = World::with_gone(9, 3);
    assert_eq!(world.two_passes().deleted.len(), 3);
    world.lose("a03");
    world.pass();
    world.wait(599);
    let window = Duration::from_secs(600);
    let brake = HoldReason::Brake { missing: 1, gone: 3, allowed: 3, of: 9, window };
    assert_eq!(world.pass().held, [("a03".to_owned(), brake)]);
    world.wait(1);
    assert_eq!(world.pass().deleted, ["a03"]);
}

#[test]
fn a_deleted_node_that_finalizers_keep_counts_as_deleted() {
    let mut world = World::with_gone(3, 1);
    world.deletes = false;
    assert_eq!(world.two_passes().deleted, ["a00"]);
    world.node("a00").deleting = true;
    world.lose("a01");
    let window = Duration::from_secs(600);
    let brake = HoldReason::Brake { missing: 1, gone: 1, allowed: 1, of: 3, window };
    let pass = world.two_passes();
    assert_eq!(pass.held, [("a00".to_owned(), HoldReason::Leaving), ("a01".to_owned(), brake)]);
}

#[test]
fn one_node_may_always_go_and_with_a_share_of_one_all_that_have_a_witness() {
    let with_share = |share: f64, gone: usize| {
        let mut world = World::with_gone(4, gone);
        world.policy.brake_share = share;
        world.two_passes().deleted.len()
    };
    assert_eq!(with_share(0.0, 1), 1);
    assert_eq!(with_share(0.0, 2), 0);
    assert_eq!(with_share(1.0, 3), 3);
    assert_eq!(with_share(1.0, 4), 0, "nobody is left to bear witness");
}

#[test]
fn a_share_is_rounded_down_as_people_count_and_nonsense_means_one() {
    let allowed = |brake_share: f64, of: usize| Policy { brake_share, ..Policy::default() }.allowed(of);
    assert_eq!(allowed(0.34, 3), 1);
    assert_eq!(allowed(0.34, 5), 1);
    assert_eq!(allowed(0.34, 9), 3);
    assert_eq!(allowed(0.29, 100), 29);
    assert_eq!(allowed(f64::NAN, 100), 1);
    assert_eq!(allowed(-1.0, 100), 1);
    assert_eq!(allowed(7.0, 100), 100);
}

#[test]
fn providers_do_not_brake_each_other() {
    let mut world = World::of(&["a0", "a1", "a2", "b0", "b1", "b2"]);
    ["a0", "a1", "b0"].iter().for_each(|name| world.lose(name));
    let pass = world.two_passes();
    assert_eq!(pass.deleted, ["b0"]);
    assert_eq!(pass.words(), [("a0", "Brake"), ("a1", "Brake")]);
}

#[test]
fn a_node_that_is_let_go_after_a_failed_deletion_does_not_count() {
    let mut world = World::with_gone(3, 1);
    world.deletes = false;
    assert_eq!(world.two_passes().deleted, ["a00"]);
    world.allow("a00");
    world.deletes = true;
    assert_eq!(world.pass().deleted, ["a00"]);
    world.lose("a01");
    assert_eq!(world.two_passes().deleted, ["a01"], "the window is empty");
}

// ---- what people read

#[test]
fn the_operator_is_told_what_is_wrong_and_how_to_release_it() {
    let held = |doubt| Held { node: NodeName::from("n1"), uid: "u".to_owned(), provider: "east".into(), doubt };
    let brake = HoldReason::Brake { missing: 4, gone: 1, allowed: 3, of: 9, window: Duration::from_secs(600) };
    let cases = [
        (HoldReason::Leaving, "its deletion is under way already"),
        (
            HoldReason::TooYoung { age: Duration::from_millis(1500), grace: Duration::from_secs(30) },
            "it was registered 2s ago, and within 30s of that a cloud may not list the machine yet",
        ),
        (
            HoldReason::AwaitingSecondLook { left: Duration::from_secs(6) },
            "another look, 6s from now at the earliest, has to show the same",
        ),
        (
            HoldReason::NoWitness { others: 2 },
            "no machine of its 2 other nodes is visible either, as with a wrong account. Check the credentials, project \
             and region of east; if the machine is gone for good: kubectl annotate node n1 bowline.dev/allow-deletion=true",
        ),
        (
            brake,
            "of its 9 nodes, 4 have lost their machines and 1 were deleted in the last 600s, but only 3 may go in that \
             time. Check the credentials, project and region of east; if the machine is gone for good: kubectl annotate \
             node n1 bowline.dev/allow-deletion=true",
        ),
    ];
    for (doubt, expected) in cases {
        let text = held(doubt).to_string();
        assert_eq!(text, format!("node n1 is kept although east has no machine for it: {expected}"));
    }
}

// ---- whatever happens

/// Something that happens to the world between or during passes.
#[derive(Debug, Clone)]
enum Event {
    Wait(u64),
    Answers(Index, Answer),
    /// All machines of the provider of this Node vanish at once.
    Vanish(Index),
    Caches(Index, Option<Answer>),
    Ready(Index, Ready),
    Reregister(Index),
    Allow(Index, bool),
    Deletes(bool),
    Pass,
}

fn event() -> impl Strategy<Value = Event> {
    use Answer::{Failed, Gone, Running, Stopped, Unowned};
    let answer = || prop::sample::select(vec![Running, Stopped, Gone, Gone, Gone, Unowned, Failed]);
    let ready = prop::sample::select(vec![Ready::True, Ready::False, Ready::False, Ready::Unknown]);
    let which = any::<Index>;
    prop_oneof![
        4 => (0..15u64).prop_map(Event::Wait),
        1 => (15..700u64).prop_map(Event::Wait),
        4 => (which(), answer()).prop_map(|(which, answer)| Event::Answers(which, answer)),
        1 => which().prop_map(Event::Vanish),
        1 => (which(), prop::option::of(answer())).prop_map(|(which, answer)| Event::Caches(which, answer)),
        2 => (which(), ready).prop_map(|(which, ready)| Event::Ready(which, ready)),
        1 => which().prop_map(Event::Reregister),
        1 => (which(), any::<bool>()).prop_map(|(which, allow)| Event::Allow(which, allow)),
        1 => any::<bool>().prop_map(Event::Deletes),
        8 => Just(Event::Pass),
    ]
}

fn shows_no_loss(answer: Answer) -> bool {
    !matches!(answer, Answer::Gone | Answer::Failed)
}

/// Keeps its own books on what was answered and deleted, and judges by them alone.
struct Auditor {
    world: World,
    /// Per Node (by UID): when the uncached looks said "gone" since the last sign of life.
    gone: BTreeMap<String, Vec<Duration>>,
    /// Provider, UID and time of what really went, without what operators allowed.
    went: Vec<(Arc<str>, String, Duration)>,
    registrations: usize,
}

impl Auditor {
    fn new(policy: Policy) -> Auditor {
        let mut world = World::of(&["a0", "a1", "a2", "a3", "a4", "b0", "b1", "x0"]);
        world.policy = policy;
        Auditor { world, gone: BTreeMap::new(), went: Vec::new(), registrations: 0 }
    }

    fn name(&self, which: Index) -> Option<String> {
        let names: Vec<&String> = self.world.nodes.keys().collect();
        (!names.is_empty()).then(|| which.get(&names).to_string())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wait(seconds) => self.world.wait(seconds),
            Event::Deletes(deletes) => self.world.deletes = deletes,
            Event::Pass => self.pass(),
            Event::Answers(which, answer) => self.at(which, |world, name| world.answer(name, answer)),
            Event::Vanish(which) => self.at(which, |world, name| {
                world.cloud.retain(|other, _| provider_of(other) != provider_of(name));
            }),
            Event::Caches(which, None) => self.at(which, |world, name| {
                world.cache.remove(name);
            }),
            Event::Caches(which, Some(answer)) => {
                self.at(which, |world, name| {
                    world.cache.insert(name.to_owned(), answer);
                });
            }
            Event::Ready(which, ready) => self.at(which, |world, name| world.node(name).ready = ready),
            Event::Allow(which, true) => self.at(which, World::allow),
            Event::Allow(which, false) => self.at(which, |world, name| world.node(name).annotations.clear()),
            Event::Reregister(which) => {
                self.registrations += 1;
                let uid = format!("registration-{}", self.registrations);
                self.at(which, |world, name| {
                    let created = Some(world.now().wall);
                    *world.node(name) = Node { uid, created, ..world.registered(name) };
                });
            }
        }
    }

    fn at(&mut self, which: Index, turn: impl FnOnce(&mut World, &str)) {
        if let Some(name) = self.name(which) {
            turn(&mut self.world, &name);
        }
    }

    fn pass(&mut self) {
        let before = self.world.nodes.clone();
        let time = self.world.passed;
        let pass = self.world.pass();
        for (name, node) in &before {
            let glanced = pass.asked.contains(name) && shows_no_loss(self.world.glance(node));
            if node.ready == Ready::True || glanced {
                self.gone.remove(&node.uid);
            }
        }
        for name in &pass.looked {
            let node = &before[name];
            match self.world.truth(node) {
                Answer::Gone if node.ready != Ready::True => self.gone.entry(node.uid.clone()).or_default().push(time),
                answer if shows_no_loss(answer) => drop(self.gone.remove(&node.uid)),
                _ => {}
            }
        }
        for name in &pass.deleted {
            self.audit_deletion(&before[name]);
            self.audit_witness(&before, name, &pass.looked);
        }
        self.audit_share(&before, &pass.deleted);
    }

    /// Rules 1 and 2.
    fn audit_deletion(&self, node: &Node) {
        let now = self.world.now();
        assert_ne!(node.ready, Ready::True);
        assert!(provider_of(node.name.as_str()).is_some());
        assert!(node.age(now.wall).unwrap_or_default() >= self.world.policy.grace, "{node:?}");
        let looks = &self.gone[&node.uid];
        assert!(looks.len() >= 2, "{looks:?}");
        assert_eq!(looks.last(), Some(&self.world.passed), "the last look is the one at hand");
        assert!(self.world.passed - looks[0] >= self.world.policy.confirm_after, "{looks:?}");
    }

    /// Rule 3.
    fn audit_witness(&self, before: &BTreeMap<String, Node>, deleted: &str, looked: &[String]) {
        let is_other = |name: &&String| *name != deleted && provider_of(name) == provider_of(deleted);
        let is_visible = |name: &&String| matches!(self.world.truth(&before[*name]), Answer::Running | Answer::Stopped);
        let is_sole = before.keys().filter(is_other).count() == 0;
        let witnessed = looked.iter().filter(is_other).any(|name| is_visible(&name));
        assert!(is_sole || witnessed || before[deleted].is_deletion_allowed(), "{deleted} went without a witness");
    }

    /// Rule 4, on the deletions that came about.
    fn audit_share(&mut self, before: &BTreeMap<String, Node>, deleted: &[String]) {
        let now = self.world.passed;
        let counted = deleted.iter().map(|name| &before[name]).filter(|node| !node.is_deletion_allowed());
        let (went, window) = (&mut self.went, self.world.policy.brake_window);
        went.retain(|(_, _, when)| now - *when < window);
        let mut touched = BTreeSet::new();
        for node in counted.filter(|_| self.world.deletes) {
            let provider = provider_of(node.name.as_str()).unwrap();
            went.push((provider.clone(), node.uid.clone(), now));
            touched.insert(provider);
        }
        for provider in touched {
            let in_window = went.iter().filter(|(owner, ..)| *owner == provider).count();
            let staying = self.world.nodes.keys().filter(|name| provider_of(name).as_ref() == Some(&provider)).count();
            let allowed_beside = deleted
                .iter()
                .filter(|name| before[*name].is_deletion_allowed() && provider_of(name).as_ref() == Some(&provider));
            let of = staying + in_window + allowed_beside.count();
            let share = (self.world.policy.brake_share * of as f64 + 1e-9).floor() as usize;
            assert!(in_window <= share.max(1), "{in_window} of {of} went");
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_nothing_is_deleted_in_doubt(
        share in prop::sample::select(vec![0.0, 0.34, 0.5, 1.0]),
        confirm_after in 0..20u64,
        grace in 0..60u64,
        events in prop::collection::vec(event(), 1..200),
    ) {
        let policy = Policy {
            brake_share: share,
            confirm_after: Duration::from_secs(confirm_after),
            grace: Duration::from_secs(grace),
            ..Policy::default()
        };
        let mut auditor = Auditor::new(policy);
        for event in events {
            auditor.happen(event);
        }
    }
}

// ---- after a restart

impl World {
    /// Another process takes over, with the record that the last one has written.
    fn restart(&mut self) {
        let record = self.memory.deletion_record("a", self.now());
        self.memory = Memory::default();
        self.memory.restore_deletions(&"a".into(), &record, &self.policy, self.now()).unwrap();
    }
}

#[test]
fn the_brake_counts_what_was_deleted_before_a_restart() {
    let mut world = World::with_gone(10, 3);
    assert_eq!(world.two_passes().deleted.len(), 3);
    world.lose("a03");
    world.lose("a04");
    world.restart();
    let pass = world.two_passes();
    assert_eq!(pass.deleted, [""; 0]);
    assert!(matches!(pass.held[0].1, HoldReason::Brake { missing: 2, gone: 3, allowed: 3, of: 10, .. }), "{pass:?}");
    world.restart();
    world.wait(600);
    assert_eq!(world.two_passes().deleted, ["a03", "a04"], "the window has passed");
}

#[test]
fn a_restored_deletion_counts_once_and_not_at_all_if_its_node_is_still_there() {
    let mut world = World::with_gone(10, 3);
    world.deletes = false;
    assert_eq!(world.two_passes().deleted.len(), 3);
    world.restart();
    world.deletes = true;
    assert_eq!(world.two_passes().deleted.len(), 3, "none of the three was counted as deleted");
    let record = world.memory.deletion_record("a", world.now());
    world.memory.restore_deletions(&"a".into(), &record, &world.policy, world.now()).unwrap();
    assert_eq!(world.memory.deleted("a", &world.fleet()), 3);
}

#[test]
fn a_record_from_a_clock_that_is_ahead_counts_and_one_that_is_no_record_is_an_error() {
    let mut world = World::with_gone(10, 0);
    let (policy, now) = (world.policy, world.now());
    let record = r#"{"2082758400":["x","y"],"1451606400":["z"]}"#;
    world.memory.restore_deletions(&"a".into(), record, &policy, now).unwrap();
    assert_eq!(world.memory.deleted("a", &world.fleet()), 2);
    assert_eq!(world.memory.deletion_record("b", now), "{}");
    assert!(world.memory.restore_deletions(&"a".into(), "[]", &policy, now).is_err());
    assert!(world.memory.restore_deletions(&"a".into(), r#"{"today":["x"]}"#, &policy, now).is_err());
}

#[test]
fn a_node_whose_machine_no_cloud_has_ever_shown_is_given_five_minutes() {
    for is_tainted in [true, false] {
        let mut world = World::with_gone(3, 1);
        world.passed = Duration::from_secs(240);
        world.node("a00").labels.clear();
        if is_tainted {
            world.node("a00").taints.push(taint(UNINITIALIZED_TAINT, NO_SCHEDULE));
        }
        let pass = world.two_passes();
        assert!(matches!(pass.held[..], [(_, HoldReason::TooYoung { .. })]), "{pass:?}");
        world.wait(60);
        assert_eq!(world.two_passes().deleted, ["a00"]);
    }
}
