//! Cases and stories of the Node lifecycle, with simulated Nodes, cloud and clock.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::testing::{node, taint};
use crate::well_known::{ALLOW_DELETION, NO_SCHEDULE, UNINITIALIZED_TAINT};
use crate::{NodeName, ProviderId, Ready, Taint};

/// Nodes `a0`, `a1`, … belong to the provider `a`, and so on; `x…` have no owner.
struct World {
    nodes: BTreeMap<String, Node>,
    /// Machines in the cloud; a machine that is not in here is gone.
    cloud: BTreeMap<String, LookupResult>,
    /// Cached results, which take precedence for cached reads.
    cache: BTreeMap<String, LookupResult>,
    /// Whether delete requests to the API server succeed.
    deletes: bool,
    policy: Policy,
    memory: Memory,
    start: Moment,
    elapsed: Duration,
}

/// Actions of one sync.
#[derive(Debug, Default, PartialEq)]
struct Sync {
    looked_up: Vec<String>,
    rechecked: Vec<String>,
    tainted: Vec<String>,
    untainted: Vec<String>,
    deleted: Vec<String>,
    held: Vec<(String, HoldReason)>,
}

impl World {
    /// Creates Nodes that are not Ready and an hour old, each with a running machine.
    fn of(names: &[&str]) -> World {
        let mut world = World {
            nodes: BTreeMap::new(),
            cloud: BTreeMap::new(),
            cache: BTreeMap::new(),
            deletes: true,
            policy: Policy::default(),
            memory: Memory::default(),
            start: Moment { instant: Instant::now(), wall: "2026-01-01T00:00:00Z".parse().unwrap() },
            elapsed: Duration::from_secs(3600),
        };
        for name in names {
            world.nodes.insert((*name).to_owned(), world.registered(name));
            world.cloud.insert((*name).to_owned(), LookupResult::Running);
        }
        world
    }

    /// Creates Nodes of the provider `a`, of which the first `gone` have no machine.
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
        Moment { instant: self.start.instant + self.elapsed, wall: self.start.wall + self.elapsed }
    }

    fn wait(&mut self, seconds: u64) {
        self.elapsed += Duration::from_secs(seconds);
    }

    fn lose(&mut self, name: &str) {
        self.cloud.remove(name);
    }

    fn set(&mut self, name: &str, result: LookupResult) {
        self.cloud.insert(name.to_owned(), result);
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

    fn fresh(&self, node: &Node) -> LookupResult {
        self.cloud.get(node.name.as_str()).copied().unwrap_or(LookupResult::Gone)
    }

    fn cached(&self, node: &Node) -> LookupResult {
        self.cache.get(node.name.as_str()).copied().unwrap_or_else(|| self.fresh(node))
    }

    fn sync(&mut self) -> Sync {
        let (fleet, now) = (self.fleet(), self.now());
        let lookups = fleet.lookups();
        let cached = CachedResults::new(lookups.nodes.iter().map(|node| (node, self.cached(node))));
        let decision = decide(&fleet, &cached, &mut self.memory, &self.policy, now);
        let fresh = FreshResults::uncached(decision.recheck.iter().map(|node| (node, self.fresh(node))));
        let conclusion = conclude(&fleet, &fresh, &mut self.memory, &self.policy, now);
        let deleted: Vec<String> = conclusion.delete.iter().map(|deletion| deletion.node.name.to_string()).collect();
        if self.deletes {
            self.nodes.retain(|name, _| !deleted.contains(name));
        }
        Sync {
            looked_up: names(&lookups.nodes),
            rechecked: names(&decision.recheck),
            tainted: names(&decision.taint),
            untainted: names(&lookups.untaint),
            deleted,
            held: decision
                .held
                .into_iter()
                .chain(conclusion.held)
                .map(|held| (held.node.to_string(), held.reason))
                .collect(),
        }
    }

    fn conclude(&mut self, fresh: &FreshResults) -> Conclusion {
        let (fleet, now) = (self.fleet(), self.now());
        conclude(&fleet, fresh, &mut self.memory, &self.policy, now)
    }

    /// Runs two syncs far enough apart to confirm a deletion, and returns the actions of the second one.
    fn sync_twice(&mut self) -> Sync {
        assert_eq!(self.sync().deleted, NONE, "nothing is deleted after the first read");
        self.wait(10);
        self.sync()
    }
}

const NONE: [&str; 0] = [];

fn provider_of(name: &str) -> Option<Arc<str>> {
    let letter = name.get(..1)?;
    (letter != "x").then(|| letter.into())
}

fn names(nodes: &[Arc<Node>]) -> Vec<String> {
    nodes.iter().map(|node| node.name.to_string()).collect()
}

impl Sync {
    fn reasons(&self) -> Vec<(&str, &str)> {
        self.held.iter().map(|(node, reason)| (node.as_str(), reason.as_str())).collect()
    }
}

// ---- F1 to F8

#[test]
fn f1_to_f8_lookup_results_decide_about_taints_and_deletion() {
    use LookupResult::{Failed, Gone, Running, Stopped};
    use Ready::{False, True, Unknown};
    // Case, Ready condition, result; is looked up, is deleted, is tainted.
    let cases = [
        ("F1", False, Gone, true, true, false),
        ("F2", False, Failed, true, false, false),
        ("F3", False, Running, true, false, false),
        ("F4", Unknown, Gone, true, true, false),
        ("F5", Unknown, Running, true, false, false),
        ("F6", True, Gone, false, false, false),
        ("F7", False, Stopped, true, false, true),
        ("F8: a machine that is gone is not stopped", Unknown, Gone, true, true, false),
        ("unowned", False, LookupResult::Unowned, true, false, false),
    ];
    for (case, ready, result, looked_up, deleted, tainted) in cases {
        let mut world = World::of(&["a0", "a1"]);
        world.node("a0").ready = ready;
        world.set("a0", result);
        let first = world.sync();
        world.wait(10);
        let second = world.sync();
        let has = |list: &[String]| list.iter().any(|name| name == "a0");
        assert_eq!(has(&first.looked_up), looked_up, "{case}: looked up");
        assert_eq!(has(&second.deleted), deleted, "{case}: deleted");
        assert_eq!(has(&first.tainted), tainted, "{case}: tainted");
    }
}

#[test]
fn f09_a_node_without_a_provider_id_is_deleted_if_it_has_an_owner() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").provider_id = None;
    world.lose("a0");
    assert_eq!(world.sync_twice().deleted, ["a0"]);
}

#[test]
fn f10_the_shutdown_taint_of_a_ready_node_is_removed_without_a_lookup() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").ready = Ready::True;
    world.node("a0").taints = vec![taint("other", NO_SCHEDULE), Taint::shutdown()];
    world.node("a1").ready = Ready::True;
    assert_eq!(world.sync(), Sync { untainted: vec!["a0".to_owned()], ..Sync::default() });
}

#[test]
fn f11_a_node_whose_machine_runs_again_keeps_its_taint_until_it_is_ready() {
    let mut world = World::of(&["a0"]);
    world.node("a0").taints = vec![Taint::shutdown()];
    let sync = world.sync();
    assert_eq!((sync.tainted, sync.untainted), (vec![], vec![]));
}

#[test]
fn f12_a_node_with_the_shutdown_taint_is_not_tainted_again() {
    let mut world = World::of(&["a0"]);
    world.set("a0", LookupResult::Stopped);
    world.node("a0").taints = vec![Taint::shutdown()];
    assert_eq!(world.sync().tainted, NONE);
}

#[test]
fn f12_a_shutdown_taint_with_another_value_effect_or_time_does_not_count() {
    for odd in [
        Taint { value: "yes".to_owned(), ..Taint::shutdown() },
        Taint { effect: "NoExecute".to_owned(), ..Taint::shutdown() },
        Taint { time_added: Some("2026-01-01T00:00:00Z".to_owned()), ..Taint::shutdown() },
    ] {
        let mut world = World::of(&["a0"]);
        world.set("a0", LookupResult::Stopped);
        world.node("a0").taints = vec![odd];
        assert_eq!(world.sync().tainted, ["a0"]);
    }
}

#[test]
fn f15_a_failed_deletion_is_retried_in_the_next_sync_and_counts_once() {
    let mut world = World::with_gone(3, 1);
    world.deletes = false;
    assert_eq!(world.sync_twice().deleted, ["a00"]);
    world.wait(5);
    assert_eq!(world.sync().deleted, ["a00"]);
    world.deletes = true;
    world.wait(5);
    assert_eq!(world.sync().deleted, ["a00"]);
}

#[test]
fn f20_a_node_without_a_ready_condition_counts_as_not_ready() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").ready = Ready::default();
    world.lose("a0");
    assert_eq!(world.sync_twice().deleted, ["a0"]);
}

#[test]
fn f21_a_node_that_was_never_initialised_is_deleted_as_well() {
    let mut world = World::of(&["a0", "a1"]);
    world.node("a0").taints = vec![taint(UNINITIALIZED_TAINT, NO_SCHEDULE)];
    world.lose("a0");
    assert_eq!(world.sync_twice().deleted, ["a0"]);
}

// ---- managed Nodes

#[test]
fn unmanaged_nodes_are_neither_looked_up_nor_changed_nor_witnesses() {
    let mut world = World::of(&["a0", "a1", "a2"]);
    for name in ["a1", "a2"] {
        world.node(name).labels.insert("bowline.dev/unmanaged".to_owned(), "true".to_owned());
    }
    world.node("a2").ready = Ready::True;
    world.node("a2").taints = vec![Taint::shutdown()];
    world.lose("a0");
    world.lose("a1");
    let sync = world.sync_twice();
    assert_eq!(
        (sync.looked_up, sync.rechecked, sync.untainted),
        (vec!["a0".to_owned()], vec!["a0".to_owned()], vec![])
    );
    assert_eq!(sync.deleted, ["a0"], "it is the only managed node of its provider");
}

#[test]
fn a_node_without_an_owner_is_never_deleted() {
    let mut world = World::of(&["x0"]);
    world.lose("x0");
    assert_eq!(world.sync_twice(), Sync { looked_up: vec!["x0".to_owned()], ..Sync::default() });
}

#[test]
fn a_node_with_a_deletion_timestamp_is_not_deleted_again() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.node("a0").deleting = true;
    let sync = world.sync_twice();
    assert_eq!((sync.deleted, sync.held), (vec![], vec![("a0".to_owned(), HoldReason::Leaving)]));
}

// ---- rule 1: age

#[test]
fn reads_within_the_grace_period_do_not_count() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.node("a0").created = Some(world.now().wall);
    world.wait(20);
    let (age, grace) = (Duration::from_secs(20), Duration::from_secs(30));
    let young = world.sync();
    assert_eq!(young.held, [("a0".to_owned(), HoldReason::TooYoung { age, grace })]);
    assert_eq!(young.rechecked, NONE, "no uncached read while no deletion is possible");
    world.wait(10);
    assert_eq!(world.sync().reasons(), [("a0", "AwaitingSecondLook")]);
    world.wait(10);
    assert_eq!(world.sync().deleted, ["a0"]);
}

#[test]
fn a_node_from_the_future_or_of_unknown_age_counts_as_new() {
    for created in [None, Some("2027-01-01T00:00:00Z".parse().unwrap())] {
        let mut world = World::of(&["a0", "a1"]);
        world.lose("a0");
        world.node("a0").created = created;
        assert_eq!(world.sync_twice().reasons(), [("a0", "TooYoung")]);
    }
}

// ---- rule 2: two uncached reads

#[test]
fn the_second_read_waits_for_its_time() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    let left = Duration::from_secs(10);
    assert_eq!(world.sync().held, [("a0".to_owned(), HoldReason::AwaitingSecondLook { left })]);
    world.wait(4);
    let early = world.sync();
    let left = Duration::from_secs(6);
    assert_eq!(early.held, [("a0".to_owned(), HoldReason::AwaitingSecondLook { left })]);
    assert_eq!(early.rechecked, NONE, "no uncached read before its time");
    world.wait(6);
    assert_eq!(world.sync().deleted, ["a0"]);
}

#[test]
fn two_reads_are_needed_even_without_a_minimum_time_between_them() {
    let mut world = World::of(&["a0", "a1"]);
    world.policy.confirm_after = Duration::ZERO;
    world.lose("a0");
    assert_eq!(world.sync().deleted, NONE);
    assert_eq!(world.sync().deleted, ["a0"]);
}

#[test]
fn a_cache_that_still_has_the_machine_prevents_the_deletion() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.cache.insert("a0".to_owned(), LookupResult::Running);
    assert_eq!(world.sync_twice().rechecked, NONE);
}

#[test]
fn a_cached_gone_result_confirms_nothing() {
    let mut world = World::of(&["a0", "a1"]);
    world.cache.insert("a0".to_owned(), LookupResult::Gone);
    for _ in 0..3 {
        let sync = world.sync();
        assert_eq!((sync.deleted, sync.held), (vec![], vec![]), "the uncached read shows the machine");
        world.wait(10);
    }
}

#[test]
fn a_failed_read_neither_confirms_nor_refutes() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.sync();
    world.wait(10);
    world.set("a0", LookupResult::Failed);
    assert_eq!(world.sync().deleted, NONE);
    world.cache.insert("a0".to_owned(), LookupResult::Gone);
    assert_eq!(world.sync().deleted, NONE, "the uncached read fails");
    world.cache.clear();
    world.lose("a0");
    assert_eq!(world.sync().deleted, ["a0"], "the first read still counts");
}

#[test]
fn a_visible_machine_or_a_ready_node_starts_the_confirmation_over() {
    type Change = fn(&mut World);
    let stories: [(&str, Change, Change); 4] = [
        ("running", |world| world.set("a0", LookupResult::Running), |world| world.lose("a0")),
        ("stopped", |world| world.set("a0", LookupResult::Stopped), |world| world.lose("a0")),
        ("unowned", |world| world.set("a0", LookupResult::Unowned), |world| world.lose("a0")),
        ("ready", |world| world.node("a0").ready = Ready::True, |world| world.node("a0").ready = Ready::False),
    ];
    for (story, refute, revert) in stories {
        let mut world = World::of(&["a0", "a1"]);
        world.lose("a0");
        world.sync();
        refute(&mut world);
        world.wait(10);
        assert_eq!(world.sync().deleted, NONE, "{story}");
        revert(&mut world);
        world.wait(10);
        assert_eq!(world.sync_twice().deleted, ["a0"], "{story}: two reads again");
    }
}

#[test]
fn a_new_node_of_the_same_name_starts_the_confirmation_over() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.sync();
    world.wait(10);
    world.node("a0").uid = "another".to_owned();
    assert_eq!(world.sync_twice().deleted, ["a0"]);
}

#[test]
fn results_of_an_earlier_node_do_not_apply_to_a_later_one() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    let before = world.fleet();
    let earlier = before.lookups().nodes;
    let fresh = FreshResults::uncached(earlier.iter().map(|node| (node, world.fresh(node))));
    world.node("a0").uid = "another".to_owned();
    assert_eq!(world.conclude(&fresh), Conclusion::default());
}

#[test]
fn a_node_that_becomes_ready_during_the_read_is_not_deleted() {
    let mut world = World::of(&["a0", "a1"]);
    world.lose("a0");
    world.sync();
    world.wait(10);
    let nodes = world.fleet().lookups().nodes;
    let fresh = FreshResults::uncached(nodes.iter().map(|node| (node, world.fresh(node))));
    world.node("a0").ready = Ready::True;
    assert_eq!(world.conclude(&fresh), Conclusion::default());
}

// ---- rule 3: the witness

#[test]
fn the_recheck_includes_a_few_witnesses() {
    let mut world = World::of(&["a0", "a1", "a2", "a3", "a4", "b0"]);
    world.lose("a0");
    world.node("a1").ready = Ready::True;
    world.set("a2", LookupResult::Failed);
    world.set("a4", LookupResult::Stopped);
    assert_eq!(world.sync().rechecked, ["a0", "a3", "a4", "a1"], "visible machines first, then the Ready node");
}

#[test]
fn without_a_witness_nothing_is_deleted() {
    let mut world = World::with_gone(2, 2);
    world.policy.brake_share = 1.0;
    let sync = world.sync_twice();
    let reason = HoldReason::NoWitness { others: 1 };
    assert_eq!(sync.held, [("a00".to_owned(), reason.clone()), ("a01".to_owned(), reason)]);

    world.allow("a00");
    assert_eq!(world.sync().deleted, ["a00"], "allowed by the operator");
}

#[test]
fn a_ready_node_or_a_stopped_machine_can_be_a_witness() {
    let mut ready = World::with_gone(2, 1);
    ready.node("a01").ready = Ready::True;
    assert_eq!(ready.sync_twice().deleted, ["a00"]);

    let mut stopped = World::with_gone(2, 1);
    stopped.set("a01", LookupResult::Stopped);
    assert_eq!(stopped.sync_twice().deleted, ["a00"]);
}

#[test]
fn a_ready_node_without_a_visible_machine_is_not_a_witness() {
    let mut world = World::with_gone(2, 2);
    world.node("a01").ready = Ready::True;
    assert_eq!(world.sync_twice().reasons(), [("a00", "NoWitness")]);
}

#[test]
fn a_machine_of_another_provider_is_not_a_witness() {
    let mut world = World::of(&["a0", "a1", "b0"]);
    world.policy.brake_share = 1.0;
    world.lose("a0");
    world.lose("a1");
    assert_eq!(world.sync_twice().reasons(), [("a0", "NoWitness"), ("a1", "NoWitness")]);
}

#[test]
fn the_only_node_of_a_provider_needs_no_witness() {
    let mut world = World::of(&["a0", "b0", "b1"]);
    world.lose("a0");
    assert_eq!(world.sync_twice().deleted, ["a0"]);
}

// ---- rule 4: the brake

#[test]
fn up_to_the_allowed_number_is_deleted_and_beyond_it_none() {
    assert_eq!(World::with_gone(9, 3).sync_twice().deleted, ["a00", "a01", "a02"]);

    let sync = World::with_gone(9, 4).sync_twice();
    assert_eq!(sync.deleted, NONE);
    let window = Duration::from_secs(600);
    let brake = HoldReason::Brake { missing: 4, gone: 0, allowed: 3, of: 9, window };
    assert_eq!(sync.held.iter().map(|(_, reason)| reason).collect::<Vec<_>>(), [&brake; 4]);
}

#[test]
fn while_the_brake_holds_there_is_no_uncached_read() {
    let mut world = World::with_gone(9, 4);
    world.sync();
    world.wait(10);
    assert_eq!(world.sync().rechecked, NONE, "four missing machines are too many, whatever another read returns");
    world.lose("a04");
    assert_eq!(world.sync().rechecked.first().map(String::as_str), Some("a04"), "this one has no uncached read yet");
    world.allow("a00");
    assert_eq!(world.sync().rechecked.first().map(String::as_str), Some("a00"));
}

#[test]
fn nodes_reported_gone_once_count_towards_the_brake() {
    let mut world = World::with_gone(9, 1);
    world.sync();
    ["a01", "a02", "a03"].iter().for_each(|name| world.lose(name));
    world.wait(10);
    let sync = world.sync();
    assert_eq!(sync.deleted, NONE, "{sync:?}");
    assert!(sync.reasons().contains(&("a00", "Brake")), "{sync:?}");
}

#[test]
fn the_brake_is_released_when_fewer_machines_are_missing() {
    let mut world = World::with_gone(9, 4);
    world.sync_twice();
    world.set("a03", LookupResult::Running);
    assert_eq!(world.sync().deleted, ["a00", "a01", "a02"]);
}

#[test]
fn the_annotation_releases_the_brake_and_its_node_no_longer_counts() {
    let mut world = World::with_gone(10, 5);
    world.sync_twice();
    world.allow("a04");
    assert_eq!(world.sync().deleted, ["a04"], "four other nodes are still too many");
    world.allow("a03");
    assert_eq!(world.sync().deleted, ["a00", "a01", "a02", "a03"]);
}

#[test]
fn the_annotation_waives_neither_the_two_reads_nor_the_grace_period() {
    let mut world = World::with_gone(2, 2);
    world.allow("a00");
    world.allow("a01");
    world.node("a01").created = Some(world.now().wall);
    assert_eq!(world.sync().deleted, NONE);
    world.wait(10);
    let sync = world.sync();
    assert_eq!((sync.deleted.as_slice(), sync.reasons()), (["a00".to_owned()].as_slice(), vec![("a01", "TooYoung")]));
}

#[test]
fn deletions_count_until_the_window_is_over() {
    let mut world = World::with_gone(9, 3);
    assert_eq!(world.sync_twice().deleted.len(), 3);
    world.lose("a03");
    world.sync();
    world.wait(599);
    let window = Duration::from_secs(600);
    let brake = HoldReason::Brake { missing: 1, gone: 3, allowed: 3, of: 9, window };
    assert_eq!(world.sync().held, [("a03".to_owned(), brake)]);
    world.wait(1);
    assert_eq!(world.sync().deleted, ["a03"]);
}

#[test]
fn a_deleted_node_that_finalizers_keep_counts_as_deleted() {
    let mut world = World::with_gone(3, 1);
    world.deletes = false;
    assert_eq!(world.sync_twice().deleted, ["a00"]);
    world.node("a00").deleting = true;
    world.lose("a01");
    let window = Duration::from_secs(600);
    let brake = HoldReason::Brake { missing: 1, gone: 1, allowed: 1, of: 3, window };
    let sync = world.sync_twice();
    assert_eq!(sync.held, [("a00".to_owned(), HoldReason::Leaving), ("a01".to_owned(), brake)]);
}

#[test]
fn one_node_may_always_be_deleted_and_with_a_share_of_one_all_with_a_witness() {
    let with_share = |share: f64, gone: usize| {
        let mut world = World::with_gone(4, gone);
        world.policy.brake_share = share;
        world.sync_twice().deleted.len()
    };
    assert_eq!(with_share(0.0, 1), 1);
    assert_eq!(with_share(0.0, 2), 0);
    assert_eq!(with_share(1.0, 3), 3);
    assert_eq!(with_share(1.0, 4), 0, "no witness is left");
}

#[test]
fn a_share_is_rounded_down_and_an_invalid_one_allows_one_node() {
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
    let sync = world.sync_twice();
    assert_eq!(sync.deleted, ["b0"]);
    assert_eq!(sync.reasons(), [("a0", "Brake"), ("a1", "Brake")]);
}

#[test]
fn a_node_that_is_allowed_after_a_failed_deletion_does_not_count() {
    let mut world = World::with_gone(3, 1);
    world.deletes = false;
    assert_eq!(world.sync_twice().deleted, ["a00"]);
    world.allow("a00");
    world.deletes = true;
    assert_eq!(world.sync().deleted, ["a00"]);
    world.lose("a01");
    assert_eq!(world.sync_twice().deleted, ["a01"], "the window is empty");
}

// ---- messages

#[test]
fn messages_have_the_reason_and_the_remedy() {
    let held = |reason| Held { node: NodeName::from("n1"), uid: "u".to_owned(), provider: "east".into(), reason };
    let brake = HoldReason::Brake { missing: 4, gone: 1, allowed: 3, of: 9, window: Duration::from_secs(600) };
    let cases = [
        (HoldReason::Leaving, "it is already being deleted"),
        (
            HoldReason::TooYoung { age: Duration::from_millis(1500), grace: Duration::from_secs(30) },
            "it was created 2s ago, and a cloud may not list a machine within its first 30s",
        ),
        (
            HoldReason::AwaitingSecondLook { left: Duration::from_secs(6) },
            "another read, in 6s at the earliest, has to confirm it",
        ),
        (
            HoldReason::NoWitness { others: 2 },
            "no machine of its 2 other nodes is visible either, which suggests a wrong account. Check the credentials, project \
             and region of east; if the machine is really gone: kubectl annotate node n1 bowline.dev/allow-deletion=true",
        ),
        (
            brake,
            "of its 9 nodes, 4 have no machine and 1 were deleted in the last 600s, but at most 3 may be deleted in that \
             time. Check the credentials, project and region of east; if the machine is really gone: kubectl annotate \
             node n1 bowline.dev/allow-deletion=true",
        ),
    ];
    for (reason, expected) in cases {
        let text = held(reason).to_string();
        assert_eq!(text, format!("node n1 is not deleted although east reports its machine as gone: {expected}"));
    }
}

// ---- properties

/// An event between two syncs, or a sync.
#[derive(Debug, Clone)]
enum Event {
    Wait(u64),
    Result(Index, LookupResult),
    /// All machines of this Node's provider vanish at once.
    Vanish(Index),
    Cache(Index, Option<LookupResult>),
    Ready(Index, Ready),
    Reregister(Index),
    Allow(Index, bool),
    Deletes(bool),
    Sync,
}

fn event() -> impl Strategy<Value = Event> {
    use LookupResult::{Failed, Gone, Running, Stopped, Unowned};
    let result = || prop::sample::select(vec![Running, Stopped, Gone, Gone, Gone, Unowned, Failed]);
    let ready = prop::sample::select(vec![Ready::True, Ready::False, Ready::False, Ready::Unknown]);
    let which = any::<Index>;
    prop_oneof![
        4 => (0..15u64).prop_map(Event::Wait),
        1 => (15..700u64).prop_map(Event::Wait),
        4 => (which(), result()).prop_map(|(which, result)| Event::Result(which, result)),
        1 => which().prop_map(Event::Vanish),
        1 => (which(), prop::option::of(result())).prop_map(|(which, result)| Event::Cache(which, result)),
        2 => (which(), ready).prop_map(|(which, ready)| Event::Ready(which, ready)),
        1 => which().prop_map(Event::Reregister),
        1 => (which(), any::<bool>()).prop_map(|(which, allow)| Event::Allow(which, allow)),
        1 => any::<bool>().prop_map(Event::Deletes),
        8 => Just(Event::Sync),
    ]
}

fn refutes_gone(result: LookupResult) -> bool {
    !matches!(result, LookupResult::Gone | LookupResult::Failed)
}

/// Records results and deletions independently, and checks the rules against that record alone.
struct Auditor {
    world: World,
    /// Times of uncached reads that returned "gone" since the last sign of life, by UID of the Node.
    gone: BTreeMap<String, Vec<Duration>>,
    /// Provider, UID and time of successful deletions, without those that an operator allowed.
    deletions: Vec<(Arc<str>, String, Duration)>,
    registrations: usize,
}

impl Auditor {
    fn new(policy: Policy) -> Auditor {
        let mut world = World::of(&["a0", "a1", "a2", "a3", "a4", "b0", "b1", "x0"]);
        world.policy = policy;
        Auditor { world, gone: BTreeMap::new(), deletions: Vec::new(), registrations: 0 }
    }

    fn name(&self, which: Index) -> Option<String> {
        let names: Vec<&String> = self.world.nodes.keys().collect();
        (!names.is_empty()).then(|| which.get(&names).to_string())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wait(seconds) => self.world.wait(seconds),
            Event::Deletes(deletes) => self.world.deletes = deletes,
            Event::Sync => self.sync(),
            Event::Result(which, result) => self.at(which, |world, name| world.set(name, result)),
            Event::Vanish(which) => self.at(which, |world, name| {
                world.cloud.retain(|other, _| provider_of(other) != provider_of(name));
            }),
            Event::Cache(which, None) => self.at(which, |world, name| {
                world.cache.remove(name);
            }),
            Event::Cache(which, Some(result)) => {
                self.at(which, |world, name| {
                    world.cache.insert(name.to_owned(), result);
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

    fn at(&mut self, which: Index, change: impl FnOnce(&mut World, &str)) {
        if let Some(name) = self.name(which) {
            change(&mut self.world, &name);
        }
    }

    fn sync(&mut self) {
        let before = self.world.nodes.clone();
        let time = self.world.elapsed;
        let sync = self.world.sync();
        for (name, node) in &before {
            let is_cached = sync.looked_up.contains(name) && refutes_gone(self.world.cached(node));
            if node.ready == Ready::True || is_cached {
                self.gone.remove(&node.uid);
            }
        }
        for name in &sync.rechecked {
            let node = &before[name];
            match self.world.fresh(node) {
                LookupResult::Gone if node.ready != Ready::True => {
                    self.gone.entry(node.uid.clone()).or_default().push(time)
                }
                result if refutes_gone(result) => drop(self.gone.remove(&node.uid)),
                _ => {}
            }
        }
        for name in &sync.deleted {
            self.audit_deletion(&before[name]);
            self.audit_witness(&before, name, &sync.rechecked);
        }
        self.audit_share(&before, &sync.deleted);
    }

    /// Rules 1 and 2.
    fn audit_deletion(&self, node: &Node) {
        let now = self.world.now();
        assert_ne!(node.ready, Ready::True);
        assert!(provider_of(node.name.as_str()).is_some());
        assert!(node.age(now.wall).unwrap_or_default() >= self.world.policy.grace, "{node:?}");
        let reads = &self.gone[&node.uid];
        assert!(reads.len() >= 2, "{reads:?}");
        assert_eq!(reads.last(), Some(&self.world.elapsed), "the last read is the current one");
        assert!(self.world.elapsed - reads[0] >= self.world.policy.confirm_after, "{reads:?}");
    }

    /// Rule 3.
    fn audit_witness(&self, before: &BTreeMap<String, Node>, deleted: &str, rechecked: &[String]) {
        let is_other = |name: &&String| *name != deleted && provider_of(name) == provider_of(deleted);
        let is_visible =
            |name: &&String| matches!(self.world.fresh(&before[*name]), LookupResult::Running | LookupResult::Stopped);
        let is_only = before.keys().filter(is_other).count() == 0;
        let witnessed = rechecked.iter().filter(is_other).any(|name| is_visible(&name));
        assert!(
            is_only || witnessed || before[deleted].is_deletion_allowed(),
            "{deleted} was deleted without a witness"
        );
    }

    /// Rule 4, applied to successful deletions.
    fn audit_share(&mut self, before: &BTreeMap<String, Node>, deleted: &[String]) {
        let now = self.world.elapsed;
        let counted = deleted.iter().map(|name| &before[name]).filter(|node| !node.is_deletion_allowed());
        let (deletions, window) = (&mut self.deletions, self.world.policy.brake_window);
        deletions.retain(|(_, _, when)| now - *when < window);
        let mut touched = BTreeSet::new();
        for node in counted.filter(|_| self.world.deletes) {
            let provider = provider_of(node.name.as_str()).unwrap();
            deletions.push((provider.clone(), node.uid.clone(), now));
            touched.insert(provider);
        }
        for provider in touched {
            let in_window = deletions.iter().filter(|(owner, ..)| *owner == provider).count();
            let staying = self.world.nodes.keys().filter(|name| provider_of(name).as_ref() == Some(&provider)).count();
            let allowed_beside = deleted
                .iter()
                .filter(|name| before[*name].is_deletion_allowed() && provider_of(name).as_ref() == Some(&provider));
            let of = staying + in_window + allowed_beside.count();
            let share = (self.world.policy.brake_share * of as f64 + 1e-9).floor() as usize;
            assert!(in_window <= share.max(1), "{in_window} of {of} were deleted");
        }
    }
}

proptest! {
    #[test]
    fn deletions_always_obey_the_rules(
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
            auditor.handle(event);
        }
    }
}

// ---- after a restart

impl World {
    /// Another process takes over, with the record of the previous one.
    fn restart(&mut self) {
        let record = self.memory.deletion_record("a", self.now());
        self.memory = Memory::default();
        self.memory.restore_deletions(&"a".into(), &record, &self.policy, self.now()).unwrap();
    }
}

#[test]
fn the_brake_counts_deletions_from_before_a_restart() {
    let mut world = World::with_gone(10, 3);
    assert_eq!(world.sync_twice().deleted.len(), 3);
    world.lose("a03");
    world.lose("a04");
    world.restart();
    let sync = world.sync_twice();
    assert_eq!(sync.deleted, [""; 0]);
    assert!(matches!(sync.held[0].1, HoldReason::Brake { missing: 2, gone: 3, allowed: 3, of: 10, .. }), "{sync:?}");
    world.restart();
    world.wait(600);
    assert_eq!(world.sync_twice().deleted, ["a03", "a04"], "the window is over");
}

#[test]
fn a_restored_deletion_counts_once_and_not_at_all_if_its_node_still_exists() {
    let mut world = World::with_gone(10, 3);
    world.deletes = false;
    assert_eq!(world.sync_twice().deleted.len(), 3);
    world.restart();
    world.deletes = true;
    assert_eq!(world.sync_twice().deleted.len(), 3, "none of the three was counted as deleted");
    let record = world.memory.deletion_record("a", world.now());
    world.memory.restore_deletions(&"a".into(), &record, &world.policy, world.now()).unwrap();
    assert_eq!(world.memory.deleted("a", &world.fleet()), 3);
}

#[test]
fn a_record_from_a_clock_that_is_ahead_counts_and_an_invalid_record_is_an_error() {
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
fn an_uninitialised_node_has_a_grace_period_of_five_minutes() {
    for is_tainted in [true, false] {
        let mut world = World::with_gone(3, 1);
        world.elapsed = Duration::from_secs(240);
        world.node("a00").labels.clear();
        if is_tainted {
            world.node("a00").taints.push(taint(UNINITIALIZED_TAINT, NO_SCHEDULE));
        }
        let sync = world.sync_twice();
        assert!(matches!(sync.held[..], [(_, HoldReason::TooYoung { .. })]), "{sync:?}");
        world.wait(60);
        assert_eq!(world.sync_twice().deleted, ["a00"]);
    }
}
