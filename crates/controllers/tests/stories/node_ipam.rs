//! Pod CIDRs that Nodes get from the cluster CIDRs (I1 to I20).

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_apiserver::{Effect, FaultRule};
use bowline_controllers::node_ipam::{AllocatorType, Options};
use bowline_core::ipam::ClusterCidr;
use http::StatusCode;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::world::World;

pub(crate) const ONE: &[(&str, u8)] = &[("10.10.0.0/16", 24)];
pub(crate) const DUAL: &[(&str, u8)] = &[("10.10.0.0/16", 24), ("fd00::/56", 64)];

pub(crate) fn options(ranges: &[(&str, u8)], allocator: AllocatorType) -> Options {
    let range = |(cluster, mask): &(&str, u8)| ClusterCidr::new(cluster.parse().unwrap(), *mask).unwrap();
    Options { ranges: ranges.iter().map(range).collect(), services: Vec::new(), allocator }
}

/// A world in which nothing but pod ranges is seen to.
pub(crate) async fn world(ranges: &[(&str, u8)]) -> World {
    world_of(&["local"], ranges).await
}

async fn world_of(prefixes: &[&str], ranges: &[(&str, u8)]) -> World {
    let mut world = World::with_prefixes(prefixes).await;
    (world.options.node, world.options.node_lifecycle, world.options.service) = (None, None, None);
    world.options.node_ipam = Some(options(ranges, AllocatorType::Range));
    world
}

pub(crate) fn pod_cidrs(node: &Node) -> Vec<String> {
    let spec = node.spec.clone().unwrap_or_default();
    let ranges = spec.pod_cidrs.unwrap_or_default();
    assert_eq!(spec.pod_cidr.as_ref(), ranges.first(), "both fields say the same");
    ranges
}

/// Waits until the Node has ranges.
pub(crate) async fn served(world: &World, name: &str) -> Vec<String> {
    world
        .eventually(&format!("{name} has ranges"), async || {
            let ranges = pod_cidrs(&world.get(name).await?);
            (!ranges.is_empty()).then_some(ranges)
        })
        .await
}

/// Registers a Node that has these ranges from the start.
async fn register_holding(world: &World, name: &str, ranges: &[&str]) {
    world.register_with(name, json!({"spec": {"podCIDR": ranges[0], "podCIDRs": ranges}})).await;
}

async fn all_ranges(world: &World) -> BTreeMap<String, Vec<String>> {
    let nodes = world.nodes.list(&kube::api::ListParams::default()).await.unwrap().items;
    nodes.iter().map(|node| (node.metadata.name.clone().unwrap(), pod_cidrs(node))).collect()
}

/// No two Nodes have addresses in common.
fn assert_disjoint(ranges: &BTreeMap<String, Vec<String>>) {
    let all: Vec<(&String, IpNet)> = ranges
        .iter()
        .flat_map(|(node, ranges)| ranges.iter().map(move |range| (node, range.parse().unwrap())))
        .collect();
    for (index, (node, range)) in all.iter().enumerate() {
        for (other, others) in &all[index + 1..] {
            assert!(!range.contains(others) && !others.contains(range), "{node} has {range}, {other} has {others}");
        }
    }
}

/// Writes to the object itself, without registrations.
fn patches(world: &World) -> u64 {
    world.node_writes().get("patch").copied().unwrap_or(0)
}

/// What a metric says, for its only range or none.
pub(crate) fn metric(world: &World, name: &str) -> f64 {
    *world.metric(name).values().next().unwrap_or_else(|| panic!("there is no {name}"))
}

/// How many allocations were made, and how many blocks in use they passed.
fn passed(world: &World) -> (u64, f64) {
    let families = world.metrics.gather();
    let name = "node_ipam_controller_cidrset_allocation_tries_per_request";
    let family = families.iter().find(|family| family.name() == name).unwrap();
    let histogram = family.get_metric()[0].get_histogram();
    (histogram.get_sample_count(), histogram.get_sample_sum())
}

/// Makes writes to this Node end like this, so many times.
pub(crate) fn hit_writes(world: &World, name: &str, effect: Effect, times: Option<u64>) {
    let text = |text: &str| Some(text.to_owned());
    let (verb, resource, name) = (text("patch"), text("nodes"), text(name));
    world.server.faults().add(FaultRule { verb, resource, name, effect, times, ..FaultRule::default() });
}

pub(crate) fn status(code: u16) -> Effect {
    let code = StatusCode::from_u16(code).unwrap();
    Effect::Status { code, message: "as the story has it".to_owned(), retry_after: None }
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_a_range_of_its_own_with_one_patch() {
    let mut world = world(ONE).await;
    for index in 0..20 {
        world.register(&format!("early-{index:02}")).await;
    }
    world.start();
    for index in 0..20 {
        world.register(&format!("late-{index:02}")).await;
    }
    for index in 0..20 {
        served(&world, &format!("early-{index:02}")).await;
        served(&world, &format!("late-{index:02}")).await;
    }
    world.pass(Duration::from_secs(120)).await;
    assert_disjoint(&all_ranges(&world).await);
    assert_eq!(patches(&world), 40, "one for each");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 40.0);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_releases_total"), 0.0);
    assert_eq!(metric(&world, "node_ipam_controller_cirdset_max_cidrs"), 256.0);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs"), 40.0 / 256.0);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_allocation_tries_per_request"), 40.0);
    assert_eq!(metric(&world, "bowline_pod_range_free_blocks"), 216.0);
    assert!(world.events().await.is_empty(), "there is nothing to tell");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i01_i02_the_first_node_gets_the_first_block_behind_the_services() {
    let mut world = world(&[("127.123.234.0/24", 30)]).await;
    world.options.node_ipam.as_mut().unwrap().services = vec!["127.123.234.0/26".parse().unwrap()];
    world.register("a").await;
    world.start();
    assert_eq!(served(&world, "a").await, ["127.123.234.64/30"], "I2; I1 is the same without Services");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 17.0, "16 for the Services");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs"), 0.265625);
    assert_eq!(passed(&world), (1, 16.0), "one allocation, 16 blocks passed");
}

#[tokio::test(start_paused = true)]
async fn i03_what_nodes_have_already_stays_theirs() {
    let mut world = world(&[("10.10.0.0/22", 24)]).await;
    register_holding(&world, "a", &["10.10.0.0/24"]).await;
    world.start();
    register_holding(&world, "b", &["10.10.2.128/30"]).await;
    world.pass(Duration::from_secs(1)).await;
    world.register("c").await;
    assert_eq!(served(&world, "c").await, ["10.10.1.0/24"], "I3, with a part of a block");
    world.register("d").await;
    assert_eq!(served(&world, "d").await, ["10.10.3.0/24"]);
    assert_eq!(patches(&world), 2);
}

#[tokio::test(start_paused = true)]
async fn i04_i05_a_node_that_finds_nothing_says_so_once_and_is_served_when_another_leaves() {
    let mut world = world(&[("127.123.234.0/29", 30)]).await;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    served(&world, "a").await;
    let of_b = served(&world, "b").await;
    world.register("c").await;
    world.pass(Duration::from_secs(1800)).await;
    let event = world.event("c", "CIDRNotAvailable").await.unwrap();
    assert_eq!(event.message.as_deref(), Some("Node c status is now: CIDRNotAvailable"), "I4");
    assert_eq!((event.type_.as_deref(), event.count), (Some("Normal"), Some(1)), "each cause once");
    assert_eq!(event.source.unwrap().component.as_deref(), Some("cidrAllocator"));
    assert_eq!(patches(&world), 2, "I4: no write");
    let begin = tokio::time::Instant::now();
    world.delete("b").await;
    assert_eq!(served(&world, "c").await, of_b, "I5");
    assert!(begin.elapsed() < Duration::from_secs(1), "not by back-off: {:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn as_many_are_woken_as_there_is_room_for() {
    let mut world = world(&[("10.0.0.0/30", 32)]).await;
    for index in 0..4 {
        world.register(&format!("old-{index}")).await;
    }
    world.start();
    for index in 0..4 {
        served(&world, &format!("old-{index}")).await;
    }
    for index in 0..6 {
        world.register(&format!("new-{index}")).await;
    }
    world.pass(Duration::from_secs(600)).await;
    for index in 0..3 {
        world.delete(&format!("old-{index}")).await;
    }
    world.pass(Duration::from_secs(1)).await;
    let ranges = all_ranges(&world).await;
    let served = ranges.iter().filter(|(name, ranges)| name.starts_with("new") && !ranges.is_empty()).count();
    assert_eq!(served, 3);
    assert_disjoint(&ranges);
}

#[tokio::test(start_paused = true)]
async fn dual_stack_is_all_or_nothing() {
    let mut world = world(&[("10.10.0.0/16", 24), ("fd00::/63", 64)]).await;
    for name in ["a", "b", "c"] {
        world.register(name).await;
    }
    world.start();
    world.eventually("one finds nothing", async || world.events().await.pop()).await;
    world.pass(Duration::from_secs(600)).await;
    let mut counts: Vec<usize> = all_ranges(&world).await.values().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 2, 2]);
    assert_eq!(metric(&world, "bowline_pod_range_free_blocks"), 254.0, "no block of IPv4 is lost");
    assert_disjoint(&all_ranges(&world).await);
}

#[tokio::test(start_paused = true)]
async fn i07_i08_misfits_at_the_start_end_the_manager_and_all_are_named() {
    let mut world = world(ONE).await;
    register_holding(&world, "outside", &["172.10.0.0/24"]).await;
    register_holding(&world, "dual", &["10.10.0.0/24", "a00::/86"]).await;
    register_holding(&world, "fine", &["10.10.1.0/24"]).await;
    world.register("new").await;
    world.start();
    let error = world.end().await.unwrap_err().to_string();
    for part in ["node outside: spec.podCIDRs[0]", "node dual: spec.podCIDRs[1]", "--cluster-cidr"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("node fine"), "{error}");
    assert_eq!(patches(&world), 0, "nothing was handed out");
}

#[tokio::test(start_paused = true)]
async fn a_misfit_that_comes_later_is_told_once_and_others_are_served() {
    let mut world = world(ONE).await;
    world.start();
    world.pass(Duration::from_secs(1)).await;
    register_holding(&world, "outside", &["172.10.0.0/24"]).await;
    world.register("a").await;
    served(&world, "a").await;
    world.patch("outside", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(metric(&world, "bowline_pod_range_misfits_total"), 1.0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i20_a_new_manager_takes_over_what_nodes_have() {
    let mut world = world(ONE).await;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    let (of_a, of_b) = (served(&world, "a").await, served(&world, "b").await);
    world.kill().await;
    world.delete("a").await;
    world.start();
    world.register("c").await;
    assert_ne!(served(&world, "c").await, of_b);
    assert_eq!(served(&world, "b").await, of_b);
    // The range of a is free, and comes in its turn.
    for index in 0..254 {
        world.register(&format!("more-{index:03}")).await;
    }
    for index in 0..254 {
        served(&world, &format!("more-{index:03}")).await;
    }
    let ranges = all_ranges(&world).await;
    assert!(ranges.values().any(|ranges| *ranges == of_a), "I20");
    assert_disjoint(&ranges);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_dies_before_it_hears_of_its_write_is_succeeded_without_a_double() {
    let mut world = world(ONE).await;
    world.register("a").await;
    hit_writes(&world, "a", Effect::AnswerLost, Some(1));
    world.start();
    let of_a = served(&world, "a").await;
    world.kill().await;
    world.start();
    world.register("b").await;
    assert_ne!(served(&world, "b").await, of_a);
    assert_eq!(pod_cidrs(&world.node("a").await), of_a);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answers_are_lost_is_not_made_again_with_another_range() {
    let mut world = world(ONE).await;
    world.register("a").await;
    hit_writes(&world, "a", Effect::AnswerLost, Some(4));
    world.start();
    let of_a = served(&world, "a").await;
    world.pass(Duration::from_secs(120)).await;
    world.register("b").await;
    assert_ne!(served(&world, "b").await, of_a);
    assert_eq!(pod_cidrs(&world.node("a").await), of_a);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn ipam_9_an_unclear_outcome_keeps_the_range_and_the_live_node_is_asked() {
    let mut world = world(&[("10.0.0.0/32", 32)]).await;
    world.register("a").await;
    hit_writes(&world, "a", status(503), None);
    world.start();
    world.eventually("it is told", async || world.event("a", "CIDRAssignmentFailed").await).await;
    world.register("b").await;
    let asked = world.answered("get", "nodes", 200);
    world.pass(Duration::from_secs(300)).await;
    assert!(world.answered("get", "nodes", 200) > asked, "nobody else has read a Node meanwhile");
    assert!(pod_cidrs(&world.node("b").await).is_empty(), "the only range may be on its way to a");
    world.server.faults().clear();
    assert_eq!(served(&world, "a").await, ["10.0.0.0/32"]);
    let event = world.event("a", "CIDRAssignmentFailed").await.unwrap();
    assert_eq!(event.message.as_deref(), Some("Node a status is now: CIDRAssignmentFailed"));
    assert_eq!((event.type_.as_deref(), event.count), (Some("Normal"), Some(1)), "each cause once");
    assert_eq!(patches(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn ipam_9_a_refusal_gives_the_range_back() {
    let mut world = world(&[("10.0.0.0/32", 32)]).await;
    world.register("a").await;
    hit_writes(&world, "a", status(403), None);
    world.start();
    world.eventually("it is told", async || world.event("a", "CIDRAssignmentFailed").await).await;
    world.register("b").await;
    assert_eq!(served(&world, "b").await, ["10.0.0.0/32"], "the only one");
    world.pass(Duration::from_secs(600)).await;
    world.server.faults().clear();
    world.delete("b").await;
    assert_eq!(served(&world, "a").await, ["10.0.0.0/32"]);
}

/// The Node `a` comes, and the write of its ranges is on its way for five seconds, of which one has passed.
async fn hold_up_the_write(world: &mut World) {
    world.register("a").await;
    hit_writes(world, "a", Effect::Latency(Duration::from_secs(5)), Some(1));
    world.start();
    world.pass(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn ipam_9_a_node_that_got_other_ranges_meanwhile_keeps_them() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    // Before it arrives, somebody else is faster.
    world.patch("a", json!({"spec": {"podCIDR": "10.10.7.0/24", "podCIDRs": ["10.10.7.0/24"]}})).await;
    world.pass(Duration::from_secs(60)).await;
    let ranges = pod_cidrs(&world.node("a").await);
    let held = metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0;
    assert_eq!((ranges, held), (vec!["10.10.7.0/24".to_owned()], 1.0), "ours was given back");
    assert!(world.events().await.is_empty(), "nothing is wrong with it");
}

#[tokio::test(start_paused = true)]
async fn ipam_9_a_node_that_got_other_ranges_which_the_watch_does_not_show_yet_is_left_in_peace() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    // The watch is away while somebody else is faster.
    let away = FaultRule { verb: Some("watch".to_owned()), effect: status(500), ..FaultRule::default() };
    world.server.faults().add(away);
    world.server.cut_watches();
    world.patch("a", json!({"spec": {"podCIDR": "10.10.7.0/24", "podCIDRs": ["10.10.7.0/24"]}})).await;
    world.pass(Duration::from_secs(30)).await;
    assert!(world.events().await.is_empty(), "nothing is wrong with it");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0, 1.0);
    world.server.faults().clear();
    world.register("b").await;
    assert_eq!(served(&world, "b").await, ["10.10.1.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_the_same_name_gets_ranges_of_its_own() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    world.delete("a").await;
    register_holding(&world, "a", &["10.10.9.0/24"]).await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(pod_cidrs(&world.node("a").await), ["10.10.9.0/24"]);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0, 1.0, "its predecessor left nothing");
}

/// The answer to a write for a Node that is gone comes when its successor has ranges of its own.
#[tokio::test(start_paused = true)]
async fn a_late_answer_about_a_node_does_not_cost_its_successor_its_range() {
    let mut world = world(&[("10.10.0.0/23", 24)]).await;
    world.register("a").await;
    hit_writes(&world, "a", Effect::AnswerLate(Duration::from_secs(5)), Some(1));
    world.start();
    assert_eq!(served(&world, "a").await, ["10.10.0.0/24"]);
    world.delete("a").await;
    register_holding(&world, "a", &["10.10.1.0/24"]).await;
    world.pass(Duration::from_secs(60)).await;
    world.register("b").await;
    world.register("c").await;
    world.pass(Duration::from_secs(60)).await;
    let ranges = all_ranges(&world).await;
    assert_disjoint(&ranges);
    assert_eq!(ranges.values().filter(|ranges| ranges.is_empty()).count(), 1, "there are two blocks: {ranges:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_replaced_while_it_is_written_is_no_failure() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    world.delete("a").await;
    world.register("a").await;
    served(&world, "a").await;
    assert!(world.events().await.is_empty(), "nothing is wrong with it");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0, 1.0);
}

#[tokio::test(start_paused = true)]
async fn ipam_10_nodes_that_go_while_the_watch_is_away_leave_their_ranges() {
    let mut world = world(&[("10.10.0.0/23", 24)]).await;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    let (of_a, of_b) = (served(&world, "a").await, served(&world, "b").await);
    let away = FaultRule { verb: Some("watch".to_owned()), effect: status(503), ..FaultRule::default() };
    world.server.faults().add(away);
    world.server.cut_watches();
    world.delete("a").await;
    world.delete("b").await;
    // Another of the same name, with a range that was the other's.
    register_holding(&world, "b", &[&of_a[0]]).await;
    // What happened meanwhile is forgotten: only a list can tell.
    world.server.compact();
    world.pass(Duration::from_secs(5)).await;
    world.server.faults().clear();
    world.register("c").await;
    assert_eq!(served(&world, "c").await, of_b);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_with_the_same_range_are_told_and_counted_and_the_range_is_free_when_both_are_gone() {
    let mut world = world(&[("10.10.0.0/23", 24)]).await;
    register_holding(&world, "a", &["10.10.0.0/24"]).await;
    register_holding(&world, "b", &["10.10.0.0/24"]).await;
    world.start();
    world.register("c").await;
    assert_eq!(served(&world, "c").await, ["10.10.1.0/24"]);
    assert_eq!(metric(&world, "bowline_pod_range_overlaps"), 1.0);
    world.delete("a").await;
    world.register("d").await;
    world.pass(Duration::from_secs(120)).await;
    assert!(pod_cidrs(&world.node("d").await).is_empty(), "b still has it");
    assert_eq!(metric(&world, "bowline_pod_range_overlaps"), 0.0);
    world.delete("b").await;
    assert_eq!(served(&world, "d").await, ["10.10.0.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_longest_is_served_first() {
    let mut world = world(&[("10.0.0.0/32", 32)]).await;
    world.register("holder").await;
    world.start();
    served(&world, "holder").await;
    for name in ["z-first", "m-second", "a-third"] {
        world.register(name).await;
        world.pass(Duration::from_secs(100)).await;
    }
    let mut leaves = "holder";
    for name in ["z-first", "m-second", "a-third"] {
        world.delete(leaves).await;
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(pod_cidrs(&world.node(name).await), ["10.0.0.0/32"], "{name}");
        leaves = name;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_one_range_of_two_is_not_completed() {
    let mut world = world(DUAL).await;
    register_holding(&world, "half", &["10.10.0.0/24"]).await;
    world.start();
    world.register("a").await;
    assert_eq!(served(&world, "a").await, ["10.10.1.0/24", "fd00::/64"]);
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(pod_cidrs(&world.node("half").await), ["10.10.0.0/24"]);
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ipam_7_nodes_that_are_being_deleted_or_not_for_us_get_nothing_but_keep_what_they_have() {
    let mut world = world(&[("10.10.0.0/22", 24)]).await;
    let hands_off = |spec: Value| json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}, "spec": spec});
    world.register_with("off", hands_off(json!({}))).await;
    let holding = json!({"podCIDR": "10.10.0.0/24", "podCIDRs": ["10.10.0.0/24"]});
    world.register_with("off-holding", hands_off(holding)).await;
    world.register_with("leaving", json!({"metadata": {"finalizers": ["example.com/wait"]}})).await;
    world.delete("leaving").await;
    world.start();
    world.register("a").await;
    assert_eq!(served(&world, "a").await, ["10.10.1.0/24"]);
    world.pass(Duration::from_secs(120)).await;
    for name in ["off", "leaving"] {
        assert!(pod_cidrs(&world.node(name).await).is_empty(), "{name}");
    }
    // Once it is for us again, it is served.
    world.patch("off", json!({"metadata": {"labels": {"bowline.dev/unmanaged": null}}})).await;
    assert_eq!(served(&world, "off").await, ["10.10.2.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn nodes_of_all_clouds_and_of_none_share_one_range() {
    let mut world = world_of(&["east", "west"], ONE).await;
    for (name, id) in [("a", "east://1"), ("b", "west://1"), ("c", "other://1")] {
        world.join(name, id, "True").await;
    }
    world.register("d").await;
    world.start();
    for name in ["a", "b", "c", "d"] {
        served(&world, name).await;
    }
    assert_disjoint(&all_ranges(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_hands_nothing_out() {
    let mut world = world(ONE).await;
    world.options.dry_run = true;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    world.pass(Duration::from_secs(120)).await;
    assert!(all_ranges(&world).await.values().all(Vec::is_empty));
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 2.0, "as it would");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_range_that_fills_up_is_told_in_time() {
    let mut world = world(&[("10.0.0.0/28", 32)]).await;
    world.start();
    for index in 0..12 {
        world.register(&format!("n{index}")).await;
    }
    world.pass(Duration::from_secs(300)).await;
    assert!(world.event("kube-system", "PodRangeFillingUp").await.is_none(), "75 %");
    world.register("n12").await;
    world.pass(Duration::from_secs(300)).await;
    let event = world.event("kube-system", "PodRangeFillingUp").await.unwrap();
    let message = event.message.unwrap();
    assert!(message.starts_with("13 of 16 pod ranges of 10.0.0.0/28 are in use (81 %)"), "{message}");
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)), "once");
    // An hour on, growth is known, and it is not long until the end.
    world.pass(Duration::from_secs(2400)).await;
    world.register("n13").await;
    world.pass(Duration::from_secs(1200)).await;
    let left = metric(&world, "bowline_pod_range_seconds_until_full");
    assert!((60.0..7200.0).contains(&left), "{left}");
    world.register("n14").await;
    world.register("n15").await;
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(metric(&world, "bowline_pod_range_seconds_until_full"), 0.0, "it is full");
    world.stop().await;
}

/// Arrivals, departures, returns under the same name, lost and late answers, refusals, cut watches and deaths of the manager, as
/// the seed has it; whatever happens, no two Nodes share an address, and in the end all have ranges.
async fn endure(seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut world = world(&[("10.0.0.0/27", 32), ("fd00::/59", 64)]).await;
    world.server.faults().seed(seed);
    let trouble = |world: &World| {
        let rule = |effect, probability| FaultRule {
            verb: Some("patch".to_owned()),
            resource: Some("nodes".to_owned()),
            effect,
            probability,
            ..FaultRule::default()
        };
        world.server.faults().add(rule(Effect::AnswerLost, 0.2));
        world.server.faults().add(rule(status(503), 0.2));
        world.server.faults().add(rule(status(403), 0.1));
        world.server.faults().add(rule(Effect::Latency(Duration::from_millis(300)), 0.3));
        world.server.faults().add(rule(Effect::AnswerLate(Duration::from_millis(500)), 0.2));
    };
    trouble(&world);
    world.start();
    let (mut alive, mut born) = (Vec::new(), 0);
    for _ in 0..120 {
        match dice.u32(0..11) {
            0..6 if alive.len() < 30 => {
                // Kubelets write through the same faults, so they register past them.
                world.server.faults().clear();
                let name = format!("n{born}");
                world.register(&name).await;
                trouble(&world);
                alive.push(name);
                born += 1;
            }
            6..9 if !alive.is_empty() => {
                let index = dice.usize(..alive.len());
                let name = alive.swap_remove(index);
                world.delete(&name).await;
                // Some come back under their name at once, while answers about their predecessors are under way.
                if dice.bool() {
                    world.server.faults().clear();
                    world.register(&name).await;
                    trouble(&world);
                    alive.push(name);
                }
            }
            9 => {
                world.kill().await;
                world.start();
            }
            _ => {
                // The watch is cut, and sometimes only a list tells what happened meanwhile.
                world.server.cut_watches();
                if dice.bool() {
                    world.server.compact();
                }
            }
        }
        world.pass(Duration::from_millis(dice.u64(0..400))).await;
        assert_disjoint(&all_ranges(&world).await);
    }
    world.server.faults().clear();
    for name in &alive {
        assert_eq!(served(&world, name).await.len(), 2, "seed {seed}");
    }
    assert_disjoint(&all_ranges(&world).await);
    world.pass(Duration::from_secs(120)).await;
    let used = metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 32.0;
    assert_eq!(used, alive.len() as f64, "seed {seed}: nothing is leaked");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_no_two_nodes_share_a_range_and_none_is_leaked() {
    for seed in 0..6 {
        endure(seed).await;
    }
}
