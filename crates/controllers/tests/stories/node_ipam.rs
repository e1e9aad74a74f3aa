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

pub(crate) fn options(cidrs: &[(&str, u8)], allocator: AllocatorType) -> Options {
    let range = |(cluster, mask): &(&str, u8)| ClusterCidr::new(cluster.parse().unwrap(), *mask).unwrap();
    Options { cluster_cidrs: cidrs.iter().map(range).collect(), service_cidrs: Vec::new(), allocator }
}

/// World with the node-ipam-controller alone.
pub(crate) async fn world(cidrs: &[(&str, u8)]) -> World {
    world_of(&["local"], cidrs).await
}

async fn world_of(prefixes: &[&str], cidrs: &[(&str, u8)]) -> World {
    let mut world = World::with_prefixes(prefixes).await;
    (world.options.node, world.options.node_lifecycle, world.options.service) = (None, None, None);
    world.options.node_ipam = Some(options(cidrs, AllocatorType::Range));
    world
}

pub(crate) fn pod_cidrs(node: &Node) -> Vec<String> {
    let spec = node.spec.clone().unwrap_or_default();
    let cidrs = spec.pod_cidrs.unwrap_or_default();
    assert_eq!(spec.pod_cidr.as_ref(), cidrs.first(), "both fields agree");
    cidrs
}

/// Waits until the Node has pod CIDRs.
pub(crate) async fn wait_for_pod_cidrs(world: &World, name: &str) -> Vec<String> {
    world
        .eventually(&format!("{name} has pod CIDRs"), async || {
            let cidrs = pod_cidrs(&world.get(name).await?);
            (!cidrs.is_empty()).then_some(cidrs)
        })
        .await
}

/// Registers a Node with these pod CIDRs.
async fn register_holding(world: &World, name: &str, cidrs: &[&str]) {
    world.register_with(name, json!({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}})).await;
}

async fn all_ranges(world: &World) -> BTreeMap<String, Vec<String>> {
    let nodes = world.nodes.list(&kube::api::ListParams::default()).await.unwrap().items;
    nodes.iter().map(|node| (node.metadata.name.clone().unwrap(), pod_cidrs(node))).collect()
}

/// Asserts that no two Nodes have overlapping pod CIDRs.
fn assert_disjoint(cidrs: &BTreeMap<String, Vec<String>>) {
    let all: Vec<(&String, IpNet)> =
        cidrs.iter().flat_map(|(node, cidrs)| cidrs.iter().map(move |range| (node, range.parse().unwrap()))).collect();
    for (index, (node, range)) in all.iter().enumerate() {
        for (other, others) in &all[index + 1..] {
            assert!(!range.contains(others) && !others.contains(range), "{node} has {range}, {other} has {others}");
        }
    }
}

/// Number of patches of Nodes.
fn patches(world: &World) -> u64 {
    world.node_writes().get("patch").copied().unwrap_or(0)
}

/// Value of a metric with one cluster CIDR or none.
pub(crate) fn metric(world: &World, name: &str) -> f64 {
    *world.metric(name).values().next().unwrap_or_else(|| panic!("there is no {name}"))
}

/// Number of allocations, and of used blocks that they skipped.
fn passed(world: &World) -> (u64, f64) {
    let families = world.metrics.gather();
    let name = "node_ipam_controller_cidrset_allocation_tries_per_request";
    let family = families.iter().find(|family| family.name() == name).unwrap();
    let histogram = family.get_metric()[0].get_histogram();
    (histogram.get_sample_count(), histogram.get_sample_sum())
}

/// Injects this effect into writes of this Node, at most `times` times.
pub(crate) fn hit_writes(world: &World, name: &str, effect: Effect, times: Option<u64>) {
    let text = |text: &str| Some(text.to_owned());
    let (verb, resource, name) = (text("patch"), text("nodes"), text(name));
    world.server.faults().add(FaultRule { verb, resource, name, effect, times, ..FaultRule::default() });
}

pub(crate) fn status(code: u16) -> Effect {
    let code = StatusCode::from_u16(code).unwrap();
    Effect::Status { code, message: "injected fault".to_owned(), retry_after: None }
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_its_own_pod_cidr_with_one_patch() {
    let mut world = world(ONE).await;
    for index in 0..20 {
        world.register(&format!("early-{index:02}")).await;
    }
    world.start();
    for index in 0..20 {
        world.register(&format!("late-{index:02}")).await;
    }
    for index in 0..20 {
        wait_for_pod_cidrs(&world, &format!("early-{index:02}")).await;
        wait_for_pod_cidrs(&world, &format!("late-{index:02}")).await;
    }
    world.sleep(Duration::from_secs(120)).await;
    assert_disjoint(&all_ranges(&world).await);
    assert_eq!(patches(&world), 40, "one for each");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 40.0);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_releases_total"), 0.0);
    assert_eq!(metric(&world, "node_ipam_controller_cirdset_max_cidrs"), 256.0);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs"), 40.0 / 256.0);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_allocation_tries_per_request"), 40.0);
    assert_eq!(metric(&world, "bowline_pod_range_free_blocks"), 216.0);
    assert!(world.events().await.is_empty(), "no Event is emitted");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i01_i02_the_first_node_gets_the_first_block_after_the_service_cidr() {
    let mut world = world(&[("127.123.234.0/24", 30)]).await;
    world.options.node_ipam.as_mut().unwrap().service_cidrs = vec!["127.123.234.0/26".parse().unwrap()];
    world.register("a").await;
    world.start();
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["127.123.234.64/30"], "I2; I1 is the same without Services");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 17.0, "16 for the Services");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs"), 0.265625);
    assert_eq!(passed(&world), (1, 16.0), "one allocation, 16 blocks passed");
}

#[tokio::test(start_paused = true)]
async fn i03_existing_pod_cidrs_stay_allocated() {
    let mut world = world(&[("10.10.0.0/22", 24)]).await;
    register_holding(&world, "a", &["10.10.0.0/24"]).await;
    world.start();
    register_holding(&world, "b", &["10.10.2.128/30"]).await;
    world.sleep(Duration::from_secs(1)).await;
    world.register("c").await;
    assert_eq!(wait_for_pod_cidrs(&world, "c").await, ["10.10.1.0/24"], "I3, with a partially used block");
    world.register("d").await;
    assert_eq!(wait_for_pod_cidrs(&world, "d").await, ["10.10.3.0/24"]);
    assert_eq!(patches(&world), 2);
}

#[tokio::test(start_paused = true)]
async fn i04_i05_exhaustion_is_reported_once_and_the_node_is_served_when_another_is_deleted() {
    let mut world = world(&[("127.123.234.0/29", 30)]).await;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    wait_for_pod_cidrs(&world, "a").await;
    let of_b = wait_for_pod_cidrs(&world, "b").await;
    world.register("c").await;
    world.sleep(Duration::from_secs(1800)).await;
    let event = world.event("c", "CIDRNotAvailable").await.unwrap();
    assert_eq!(event.message.as_deref(), Some("Node c status is now: CIDRNotAvailable"), "I4");
    assert_eq!((event.type_.as_deref(), event.count), (Some("Normal"), Some(1)), "each cause once");
    assert_eq!(event.source.unwrap().component.as_deref(), Some("cidrAllocator"));
    assert_eq!(patches(&world), 2, "I4: no write");
    let begin = tokio::time::Instant::now();
    world.delete("b").await;
    assert_eq!(wait_for_pod_cidrs(&world, "c").await, of_b, "I5");
    assert!(begin.elapsed() < Duration::from_secs(1), "before the back-off ends: {:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn as_many_waiting_nodes_are_woken_as_blocks_are_free() {
    let mut world = world(&[("10.0.0.0/30", 32)]).await;
    for index in 0..4 {
        world.register(&format!("old-{index}")).await;
    }
    world.start();
    for index in 0..4 {
        wait_for_pod_cidrs(&world, &format!("old-{index}")).await;
    }
    for index in 0..6 {
        world.register(&format!("new-{index}")).await;
    }
    world.sleep(Duration::from_secs(600)).await;
    for index in 0..3 {
        world.delete(&format!("old-{index}")).await;
    }
    world.sleep(Duration::from_secs(1)).await;
    let cidrs = all_ranges(&world).await;
    let served = cidrs.iter().filter(|(name, cidrs)| name.starts_with("new") && !cidrs.is_empty()).count();
    assert_eq!(served, 3);
    assert_disjoint(&cidrs);
}

#[tokio::test(start_paused = true)]
async fn dual_stack_is_all_or_nothing() {
    let mut world = world(&[("10.10.0.0/16", 24), ("fd00::/63", 64)]).await;
    for name in ["a", "b", "c"] {
        world.register(name).await;
    }
    world.start();
    world.eventually("one Node finds no block", async || world.events().await.pop()).await;
    world.sleep(Duration::from_secs(600)).await;
    let mut counts: Vec<usize> = all_ranges(&world).await.values().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 2, 2]);
    assert_eq!(metric(&world, "bowline_pod_range_free_blocks"), 254.0, "no IPv4 block is leaked");
    assert_disjoint(&all_ranges(&world).await);
}

#[tokio::test(start_paused = true)]
async fn i07_i08_invalid_pod_cidrs_at_the_start_end_the_manager_and_are_all_listed() {
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
    assert_eq!(patches(&world), 0, "nothing was allocated");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_pod_cidr_that_appears_later_is_reported_once_and_other_nodes_are_served() {
    let mut world = world(ONE).await;
    world.start();
    world.sleep(Duration::from_secs(1)).await;
    register_holding(&world, "outside", &["172.10.0.0/24"]).await;
    world.register("a").await;
    wait_for_pod_cidrs(&world, "a").await;
    world.patch("outside", json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}})).await;
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(metric(&world, "bowline_pod_range_misfits_total"), 1.0);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i20_a_new_manager_takes_over_existing_pod_cidrs() {
    let mut world = world(ONE).await;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    let (of_a, of_b) = (wait_for_pod_cidrs(&world, "a").await, wait_for_pod_cidrs(&world, "b").await);
    world.kill().await;
    world.delete("a").await;
    world.start();
    world.register("c").await;
    assert_ne!(wait_for_pod_cidrs(&world, "c").await, of_b);
    assert_eq!(wait_for_pod_cidrs(&world, "b").await, of_b);
    // The pod CIDR of a is free, and is allocated in order.
    for index in 0..254 {
        world.register(&format!("more-{index:03}")).await;
    }
    for index in 0..254 {
        wait_for_pod_cidrs(&world, &format!("more-{index:03}")).await;
    }
    let cidrs = all_ranges(&world).await;
    assert!(cidrs.values().any(|cidrs| *cidrs == of_a), "I20");
    assert_disjoint(&cidrs);
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_response_of_a_write_allocates_nothing_twice() {
    let mut world = world(ONE).await;
    world.register("a").await;
    hit_writes(&world, "a", Effect::AnswerLost, Some(1));
    world.start();
    let of_a = wait_for_pod_cidrs(&world, "a").await;
    world.kill().await;
    world.start();
    world.register("b").await;
    assert_ne!(wait_for_pod_cidrs(&world, "b").await, of_a);
    assert_eq!(pod_cidrs(&world.node("a").await), of_a);
}

#[tokio::test(start_paused = true)]
async fn a_write_with_lost_responses_is_not_retried_with_another_pod_cidr() {
    let mut world = world(ONE).await;
    world.register("a").await;
    hit_writes(&world, "a", Effect::AnswerLost, Some(4));
    world.start();
    let of_a = wait_for_pod_cidrs(&world, "a").await;
    world.sleep(Duration::from_secs(120)).await;
    world.register("b").await;
    assert_ne!(wait_for_pod_cidrs(&world, "b").await, of_a);
    assert_eq!(pod_cidrs(&world.node("a").await), of_a);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn ipam_9_an_unknown_outcome_keeps_the_pod_cidr_and_the_live_node_is_read() {
    let mut world = world(&[("10.0.0.0/32", 32)]).await;
    world.register("a").await;
    hit_writes(&world, "a", status(503), None);
    world.start();
    world.eventually("the Event", async || world.event("a", "CIDRAssignmentFailed").await).await;
    world.register("b").await;
    let asked = world.response_count("get", "nodes", 200);
    world.sleep(Duration::from_secs(300)).await;
    assert!(world.response_count("get", "nodes", 200) > asked, "the live Node is read");
    assert!(pod_cidrs(&world.node("b").await).is_empty(), "the only pod CIDR may have been written to a");
    world.server.faults().clear();
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["10.0.0.0/32"]);
    let event = world.event("a", "CIDRAssignmentFailed").await.unwrap();
    assert_eq!(event.message.as_deref(), Some("Node a status is now: CIDRAssignmentFailed"));
    assert_eq!((event.type_.as_deref(), event.count), (Some("Normal"), Some(1)), "each cause once");
    assert_eq!(patches(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn ipam_9_a_rejected_write_releases_the_pod_cidr() {
    let mut world = world(&[("10.0.0.0/32", 32)]).await;
    world.register("a").await;
    hit_writes(&world, "a", status(403), None);
    world.start();
    world.eventually("the Event", async || world.event("a", "CIDRAssignmentFailed").await).await;
    world.register("b").await;
    assert_eq!(wait_for_pod_cidrs(&world, "b").await, ["10.0.0.0/32"], "the only block");
    world.sleep(Duration::from_secs(600)).await;
    world.server.faults().clear();
    world.delete("b").await;
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["10.0.0.0/32"]);
}

/// Registers the Node `a` and delays the write of its pod CIDRs by five seconds, of which one has passed.
async fn hold_up_the_write(world: &mut World) {
    world.register("a").await;
    hit_writes(world, "a", Effect::Latency(Duration::from_secs(5)), Some(1));
    world.start();
    world.sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn ipam_9_a_node_that_got_other_pod_cidrs_meanwhile_keeps_them() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    // Another client writes first.
    world.patch("a", json!({"spec": {"podCIDR": "10.10.7.0/24", "podCIDRs": ["10.10.7.0/24"]}})).await;
    world.sleep(Duration::from_secs(60)).await;
    let cidrs = pod_cidrs(&world.node("a").await);
    let held = metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0;
    assert_eq!((cidrs, held), (vec!["10.10.7.0/24".to_owned()], 1.0), "ours was released");
    assert!(world.events().await.is_empty(), "no failure is reported");
}

#[tokio::test(start_paused = true)]
async fn ipam_9_a_node_that_got_other_pod_cidrs_not_yet_in_the_watch_is_no_failure() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    // Another client writes first while the watch is interrupted.
    let away = FaultRule { verb: Some("watch".to_owned()), effect: status(500), ..FaultRule::default() };
    world.server.faults().add(away);
    world.server.cut_watches();
    world.patch("a", json!({"spec": {"podCIDR": "10.10.7.0/24", "podCIDRs": ["10.10.7.0/24"]}})).await;
    world.sleep(Duration::from_secs(30)).await;
    assert!(world.events().await.is_empty(), "no failure is reported");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0, 1.0);
    world.server.faults().clear();
    world.register("b").await;
    assert_eq!(wait_for_pod_cidrs(&world, "b").await, ["10.10.1.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn a_recreated_node_gets_its_own_pod_cidrs() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    world.delete("a").await;
    register_holding(&world, "a", &["10.10.9.0/24"]).await;
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(pod_cidrs(&world.node("a").await), ["10.10.9.0/24"]);
    assert_eq!(
        metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0,
        1.0,
        "the CIDR of its predecessor is released"
    );
}

/// The response to a write for a deleted Node arrives when its successor has pod CIDRs.
#[tokio::test(start_paused = true)]
async fn a_late_response_about_a_deleted_node_does_not_release_the_pod_cidr_of_its_successor() {
    let mut world = world(&[("10.10.0.0/23", 24)]).await;
    world.register("a").await;
    hit_writes(&world, "a", Effect::AnswerLate(Duration::from_secs(5)), Some(1));
    world.start();
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["10.10.0.0/24"]);
    world.delete("a").await;
    register_holding(&world, "a", &["10.10.1.0/24"]).await;
    world.sleep(Duration::from_secs(60)).await;
    world.register("b").await;
    world.register("c").await;
    world.sleep(Duration::from_secs(60)).await;
    let cidrs = all_ranges(&world).await;
    assert_disjoint(&cidrs);
    assert_eq!(cidrs.values().filter(|cidrs| cidrs.is_empty()).count(), 1, "there are two blocks: {cidrs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_recreated_during_its_write_is_no_failure() {
    let mut world = world(ONE).await;
    hold_up_the_write(&mut world).await;
    world.delete("a").await;
    world.register("a").await;
    wait_for_pod_cidrs(&world, "a").await;
    assert!(world.events().await.is_empty(), "no failure is reported");
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 256.0, 1.0);
}

#[tokio::test(start_paused = true)]
async fn ipam_10_nodes_deleted_during_a_watch_interruption_release_their_pod_cidrs() {
    let mut world = world(&[("10.10.0.0/23", 24)]).await;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    let (of_a, of_b) = (wait_for_pod_cidrs(&world, "a").await, wait_for_pod_cidrs(&world, "b").await);
    let away = FaultRule { verb: Some("watch".to_owned()), effect: status(503), ..FaultRule::default() };
    world.server.faults().add(away);
    world.server.cut_watches();
    world.delete("a").await;
    world.delete("b").await;
    // A new Node of the same name, with the pod CIDR of the other.
    register_holding(&world, "b", &[&of_a[0]]).await;
    // The history is compacted, so that only a list shows the changes.
    world.server.compact();
    world.sleep(Duration::from_secs(5)).await;
    world.server.faults().clear();
    world.register("c").await;
    assert_eq!(wait_for_pod_cidrs(&world, "c").await, of_b);
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_usage_cidrs"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn two_nodes_with_the_same_pod_cidr_are_reported_and_it_is_free_when_both_are_deleted() {
    let mut world = world(&[("10.10.0.0/23", 24)]).await;
    register_holding(&world, "a", &["10.10.0.0/24"]).await;
    register_holding(&world, "b", &["10.10.0.0/24"]).await;
    world.start();
    world.register("c").await;
    assert_eq!(wait_for_pod_cidrs(&world, "c").await, ["10.10.1.0/24"]);
    assert_eq!(metric(&world, "bowline_pod_range_overlaps"), 1.0);
    world.delete("a").await;
    world.register("d").await;
    world.sleep(Duration::from_secs(120)).await;
    assert!(pod_cidrs(&world.node("d").await).is_empty(), "b still has it");
    assert_eq!(metric(&world, "bowline_pod_range_overlaps"), 0.0);
    world.delete("b").await;
    assert_eq!(wait_for_pod_cidrs(&world, "d").await, ["10.10.0.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn the_node_that_has_waited_longest_is_served_first() {
    let mut world = world(&[("10.0.0.0/32", 32)]).await;
    world.register("holder").await;
    world.start();
    wait_for_pod_cidrs(&world, "holder").await;
    for name in ["z-first", "m-second", "a-third"] {
        world.register(name).await;
        world.sleep(Duration::from_secs(100)).await;
    }
    let mut leaves = "holder";
    for name in ["z-first", "m-second", "a-third"] {
        world.delete(leaves).await;
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(pod_cidrs(&world.node(name).await), ["10.0.0.0/32"], "{name}");
        leaves = name;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_one_of_two_pod_cidrs_is_not_completed() {
    let mut world = world(DUAL).await;
    register_holding(&world, "half", &["10.10.0.0/24"]).await;
    world.start();
    world.register("a").await;
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["10.10.1.0/24", "fd00::/64"]);
    world.sleep(Duration::from_secs(120)).await;
    assert_eq!(pod_cidrs(&world.node("half").await), ["10.10.0.0/24"]);
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ipam_7_deleted_or_unmanaged_nodes_get_no_pod_cidr_but_keep_theirs() {
    let mut world = world(&[("10.10.0.0/22", 24)]).await;
    let hands_off = |spec: Value| json!({"metadata": {"labels": {"bowline.dev/unmanaged": "true"}}, "spec": spec});
    world.register_with("off", hands_off(json!({}))).await;
    let holding = json!({"podCIDR": "10.10.0.0/24", "podCIDRs": ["10.10.0.0/24"]});
    world.register_with("off-holding", hands_off(holding)).await;
    world.register_with("leaving", json!({"metadata": {"finalizers": ["example.com/wait"]}})).await;
    world.delete("leaving").await;
    world.start();
    world.register("a").await;
    assert_eq!(wait_for_pod_cidrs(&world, "a").await, ["10.10.1.0/24"]);
    world.sleep(Duration::from_secs(120)).await;
    for name in ["off", "leaving"] {
        assert!(pod_cidrs(&world.node(name).await).is_empty(), "{name}");
    }
    // Once it is managed again, it gets a pod CIDR.
    world.patch("off", json!({"metadata": {"labels": {"bowline.dev/unmanaged": null}}})).await;
    assert_eq!(wait_for_pod_cidrs(&world, "off").await, ["10.10.2.0/24"]);
}

#[tokio::test(start_paused = true)]
async fn nodes_of_all_clouds_and_of_none_share_one_cluster_cidr() {
    let mut world = world_of(&["east", "west"], ONE).await;
    for (name, id) in [("a", "east://1"), ("b", "west://1"), ("c", "other://1")] {
        world.join(name, id, "True").await;
    }
    world.register("d").await;
    world.start();
    for name in ["a", "b", "c", "d"] {
        wait_for_pod_cidrs(&world, name).await;
    }
    assert_disjoint(&all_ranges(&world).await);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_allocates_nothing() {
    let mut world = world(ONE).await;
    world.options.dry_run = true;
    for name in ["a", "b"] {
        world.register(name).await;
    }
    world.start();
    world.sleep(Duration::from_secs(120)).await;
    assert!(all_ranges(&world).await.values().all(Vec::is_empty));
    assert_eq!(metric(&world, "node_ipam_controller_cidrset_cidrs_allocations_total"), 2.0, "as without a dry run");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_cidr_that_fills_up_is_reported_in_time() {
    let mut world = world(&[("10.0.0.0/28", 32)]).await;
    world.start();
    for index in 0..12 {
        world.register(&format!("n{index}")).await;
    }
    world.sleep(Duration::from_secs(300)).await;
    assert!(world.event("kube-system", "PodRangeFillingUp").await.is_none(), "75 %");
    world.register("n12").await;
    world.sleep(Duration::from_secs(300)).await;
    let event = world.event("kube-system", "PodRangeFillingUp").await.unwrap();
    let message = event.message.unwrap();
    assert!(message.starts_with("13 of 16 pod CIDRs of 10.0.0.0/28 are in use (81 %)"), "{message}");
    assert_eq!((event.type_.as_deref(), event.count), (Some("Warning"), Some(1)), "once");
    // An hour later, the growth is known, and the CIDR is soon exhausted.
    world.sleep(Duration::from_secs(2400)).await;
    world.register("n13").await;
    world.sleep(Duration::from_secs(1200)).await;
    let left = metric(&world, "bowline_pod_range_seconds_until_full");
    assert!((60.0..7200.0).contains(&left), "{left}");
    world.register("n14").await;
    world.register("n15").await;
    world.sleep(Duration::from_secs(120)).await;
    assert_eq!(metric(&world, "bowline_pod_range_seconds_until_full"), 0.0, "the cluster CIDR is exhausted");
    world.stop().await;
}

/// Runs random registrations, deletions, re-registrations, lost and late responses, rejections, cut watches and crashes of the
/// manager: no two Nodes ever share an address, and in the end all have pod CIDRs.
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
                // Kubelets are subject to the same faults, so registrations bypass them.
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
                // Some register again at once, while responses for their predecessors are pending.
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
                // The watch is cut, and sometimes only a list shows the changes.
                world.server.cut_watches();
                if dice.bool() {
                    world.server.compact();
                }
            }
        }
        world.sleep(Duration::from_millis(dice.u64(0..400))).await;
        assert_disjoint(&all_ranges(&world).await);
    }
    world.server.faults().clear();
    for name in &alive {
        assert_eq!(wait_for_pod_cidrs(&world, name).await.len(), 2, "seed {seed}");
    }
    assert_disjoint(&all_ranges(&world).await);
    world.sleep(Duration::from_secs(120)).await;
    let used = metric(&world, "node_ipam_controller_cidrset_usage_cidrs") * 32.0;
    assert_eq!(used, alive.len() as f64, "seed {seed}: no pod CIDR is leaked");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_two_nodes_ever_share_a_pod_cidr_and_none_is_leaked() {
    for seed in 0..6 {
        endure(seed).await;
    }
}
