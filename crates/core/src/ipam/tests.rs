//! Pod CIDR allocation (I1 to I20), and properties that hold in any order of operations.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use proptest::prelude::*;

use super::{Allocator, ClusterCidr, Exhausted, Usage};
use crate::NodeName;

fn range(cluster: &str, node_mask: u8) -> ClusterCidr {
    ClusterCidr::new(cluster.parse().unwrap(), node_mask).unwrap()
}

fn allocator(ranges: &[(&str, u8)]) -> Allocator {
    let ranges: Vec<_> = ranges.iter().map(|(cluster, mask)| range(cluster, *mask)).collect();
    Allocator::new(&ranges, &[])
}

fn texts(ranges: &[&str]) -> Vec<String> {
    ranges.iter().map(|range| (*range).to_owned()).collect()
}

fn to_strings(ranges: &[IpNet]) -> Vec<String> {
    ranges.iter().map(ToString::to_string).collect()
}

/// Allocates pod CIDRs to the Node and returns them as text.
fn allocate(allocator: &mut Allocator, node: &str) -> Vec<String> {
    to_strings(&allocator.allocate(&node.into()).unwrap())
}

fn observe(allocator: &mut Allocator, node: &str, ranges: &[&str]) {
    allocator.observe(&node.into(), &texts(ranges)).unwrap();
}

/// Returns the number of blocks in use of each cluster CIDR.
fn used(allocator: &Allocator) -> Vec<u64> {
    allocator.usage().iter().map(|usage| usage.used).collect()
}

/// Returns the allocations and releases of the first cluster CIDR since the last call.
fn take_first_counts(allocator: &mut Allocator) -> (u64, u64) {
    let counts = allocator.take_counts()[0];
    (counts.allocations, counts.releases)
}

#[test]
fn i01_the_first_node_gets_the_first_block() {
    let mut allocator = allocator(&[("127.123.234.0/24", 30)]);
    assert_eq!(allocate(&mut allocator, "a"), ["127.123.234.0/30"]);
}

#[test]
fn i02_service_cidrs_are_never_allocated_to_pods() {
    let ranges = [range("127.123.234.0/24", 30)];
    let mut allocator = Allocator::new(&ranges, &["127.123.234.0/26".parse().unwrap()]);
    assert_eq!(used(&allocator), [16]);
    assert_eq!(allocate(&mut allocator, "a"), ["127.123.234.64/30"]);
    allocator.release(&"a".into());
    assert_eq!(used(&allocator), [16], "the service CIDRs stay in use");
}

#[test]
fn i02_service_cidrs_are_excluded_from_the_cluster_cidrs_that_they_overlap() {
    let ranges = [range("10.0.0.0/16", 24), range("fd00::/56", 64)];
    let services = ["10.0.255.0/25", "fd00::/60", "172.16.0.0/12"].map(|range| range.parse().unwrap());
    assert_eq!(used(&Allocator::new(&ranges, &services)), [1, 16]);
}

#[test]
fn i03_a_node_gets_a_block_that_no_other_node_has() {
    let mut allocator = allocator(&[("10.10.0.0/22", 24)]);
    observe(&mut allocator, "a", &["10.10.0.0/24"]);
    observe(&mut allocator, "b", &["10.10.2.0/24"]);
    assert_eq!(allocate(&mut allocator, "c"), ["10.10.1.0/24"]);
}

#[test]
fn i04_i05_an_exhausted_cluster_cidr_is_an_error_until_a_block_is_released() {
    let mut allocator = allocator(&[("127.123.234.0/28", 30)]);
    for (node, cidr) in [("a", "0"), ("b", "4"), ("c", "8"), ("d", "12")] {
        observe(&mut allocator, node, &[&format!("127.123.234.{cidr}/30")]);
    }
    let exhausted = allocator.allocate(&"e".into()).unwrap_err();
    assert_eq!(exhausted, Exhausted { range: "127.123.234.0/28".parse().unwrap() }, "I4");
    let message = exhausted.to_string();
    assert!(message.starts_with("CIDR allocation failed; there are no remaining CIDRs left to allocate"), "{message}");
    assert_eq!(allocator.remaining(), 0);
    allocator.release(&"b".into());
    assert_eq!(allocator.remaining(), 1);
    assert_eq!(allocate(&mut allocator, "e"), ["127.123.234.4/30"], "I5");
}

#[test]
fn i06_i11_the_only_block_can_be_allocated_again_after_its_release() {
    for (case, cluster, mask) in [("I6, I11", "127.123.234.0/30", 30), ("I11", "2001:db8::/30", 30)] {
        let mut allocator = allocator(&[(cluster, mask)]);
        for round in 0..3 {
            assert_eq!(allocate(&mut allocator, "a"), [cluster], "{case}, round {round}");
            assert!(allocator.allocate(&"b".into()).is_err(), "{case}, round {round}");
            allocator.release(&"a".into());
        }
    }
}

#[test]
fn i07_i08_i09_an_invalid_pod_cidr_is_reported() {
    let dual = [("10.10.0.0/16", 24), ("ace:cab:deca::/58", 64)];
    type Case<'a> = (&'a str, &'a [(&'a str, u8)], &'a [&'a str], usize, &'a str);
    let cases: [Case<'_>; 7] = [
        ("I7", &dual[..1], &["172.10.0.1/24"], 0, "is outside the cluster CIDR 10.10.0.0/16"),
        ("I8", &dual[..1], &["10.10.0.0/24", "a00::/86"], 1, "exceeds the number of cluster CIDRs (1)"),
        ("I9, v4", &dual, &["172.10.0.1/24", "ace:cab:deca::/64"], 0, "is outside"),
        ("I9, v6", &dual, &["10.10.0.0/24", "cdd::/86"], 1, "is outside"),
        ("no CIDR", &dual, &["10.10.0.0"], 0, "is not a CIDR"),
        ("empty", &dual, &[""], 0, "is not a CIDR"),
        ("in the wrong order", &dual, &["ace:cab:deca::/64", "10.10.0.0/24"], 0, "is outside"),
    ];
    for (case, ranges, cidrs, index, why) in cases {
        let error = allocator(ranges).observe(&"a".into(), &texts(cidrs)).unwrap_err();
        assert_eq!((error.index, error.text.as_str()), (index, cidrs[index]), "{case}");
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("node a: spec.podCIDRs[{index}] is ")) && message.contains(why),
            "{case}: {message}"
        );
    }
}

#[test]
fn blocks_of_invalid_pod_cidrs_are_not_allocated_to_other_nodes() {
    let mut allocator = allocator(&[("10.10.0.0/23", 24), ("fd00::/63", 64)]);
    let reversed = texts(&["fd00::/64", "10.10.0.0/24", "172.16.0.0/24"]);
    assert!(allocator.observe(&"odd".into(), &reversed).is_err());
    assert_eq!(allocate(&mut allocator, "a"), ["10.10.1.0/24", "fd00:0:0:1::/64"]);
    allocator.release(&"odd".into());
    assert_eq!(used(&allocator), [1, 1]);
}

#[test]
fn i10_host_bits_and_odd_sizes_are_accepted() {
    let mut allocator = allocator(&[("10.10.0.0/16", 24), ("a00::/86", 102)]);
    observe(&mut allocator, "a", &["10.10.0.1/24", "a00::/86"]);
    assert_eq!(used(&allocator), [1, 65536], "I10");
    observe(&mut allocator, "b", &["010.010.3.128/30"]);
    observe(&mut allocator, "c", &["10.10.4.0/23"]);
    assert_eq!(
        used(&allocator),
        [4, 65536],
        "a part of a block counts as the block, and a larger CIDR as all its blocks"
    );
}

#[test]
fn i13_single_addresses_of_a_slash_8_are_allocated() {
    let mut allocator = allocator(&[("127.0.0.0/8", 32)]);
    assert_eq!(allocate(&mut allocator, "a"), ["127.0.0.0/32"]);
    assert_eq!(allocate(&mut allocator, "b"), ["127.0.0.1/32"]);
}

#[test]
fn i14_host_bits_of_the_cluster_cidr_are_cleared() {
    let mut allocator = allocator(&[("2001:beef:1234:369b::/60", 64)]);
    assert_eq!(allocate(&mut allocator, "a"), ["2001:beef:1234:3690::/64"]);
    assert_eq!(allocate(&mut allocator, "b"), ["2001:beef:1234:3691::/64"]);
}

#[test]
fn i17_all_blocks_are_allocated_in_the_same_order_again() {
    let mut allocator = allocator(&[("127.123.0.0/16", 24)]);
    let names: Vec<String> = (0..256).map(|number| format!("n{number}")).collect();
    let mut rounds = Vec::new();
    for _ in 0..2 {
        rounds.push(names.iter().map(|name| allocate(&mut allocator, name)).collect::<Vec<_>>());
        assert!(allocator.allocate(&"one more".into()).is_err());
        names.iter().for_each(|name| allocator.release(&name.as_str().into()));
    }
    assert_eq!(rounds[0], rounds[1]);
    assert_eq!((&rounds[0][0][0], &rounds[0][255][0]), (&"127.123.0.0/24".to_owned(), &"127.123.255.0/24".to_owned()));
}

#[test]
fn i18_i19_a_large_pod_cidr_holds_all_blocks_that_it_covers() {
    let mut allocator = allocator(&[("127.0.0.0/7", 16)]);
    observe(&mut allocator, "a", &["127.0.0.0/15"]);
    assert_eq!(used(&allocator), [2], "I18");
    observe(&mut allocator, "b", &["127.2.0.0/16"]);
    observe(&mut allocator, "c", &["96.0.0.0/3"]);
    assert_eq!(used(&allocator), [512], "I19");
    allocator.release(&"c".into());
    assert_eq!(used(&allocator), [3], "blocks of other Nodes stay in use");
}

#[test]
fn i20_blocks_without_a_node_are_free() {
    let mut before = allocator(&[("10.10.0.0/22", 24)]);
    ["a", "b"].iter().for_each(|node| drop(allocate(&mut before, node)));
    // Node a is deleted while the manager is stopped: after the restart, only b is observed.
    let mut after = allocator(&[("10.10.0.0/22", 24)]);
    observe(&mut after, "b", &["10.10.1.0/24"]);
    assert_eq!(allocate(&mut after, "c"), ["10.10.0.0/24"]);
}

#[test]
fn a_node_with_pod_cidrs_gets_the_same_ones_again() {
    let mut allocator = allocator(&[("10.10.0.0/22", 24)]);
    let first = allocate(&mut allocator, "a");
    assert_eq!(allocate(&mut allocator, "a"), first);
    assert_eq!(used(&allocator), [1]);
    observe(&mut allocator, "b", &["10.10.2.0/23"]);
    assert_eq!(allocate(&mut allocator, "b"), ["10.10.2.0/23"], "whatever their size");
}

#[test]
fn a_node_with_one_of_two_pod_cidrs_gets_both_or_keeps_the_one() {
    let mut allocator = allocator(&[("10.10.0.0/23", 24), ("fd00::/64", 64)]);
    observe(&mut allocator, "a", &["10.10.0.0/24"]);
    assert_eq!(allocate(&mut allocator, "a"), ["10.10.1.0/24", "fd00::/64"]);
    assert_eq!(used(&allocator), [1, 1]);
    observe(&mut allocator, "b", &["10.10.0.0/24"]);
    assert!(allocator.allocate(&"b".into()).is_err());
    assert_eq!(to_strings(allocator.held(&"b".into())), ["10.10.0.0/24"]);
}

#[test]
fn a_failed_dual_stack_allocation_leaks_no_block() {
    let mut allocator = allocator(&[("10.10.0.0/16", 24), ("fd00::/64", 64)]);
    allocate(&mut allocator, "a");
    for _ in 0..300 {
        let exhausted = allocator.allocate(&"b".into()).unwrap_err();
        assert_eq!(exhausted.range, "fd00::/64".parse().unwrap());
    }
    assert_eq!(used(&allocator), [1, 1], "upstream has lost 256 blocks of IPv4 by now");
    allocator.release(&"a".into());
    assert_eq!(allocate(&mut allocator, "b"), ["10.10.1.0/24", "fd00::/64"]);
}

#[test]
fn ipam_11_only_changes_between_free_and_in_use_are_counted() {
    let mut allocator = allocator(&[("10.10.0.0/22", 24)]);
    observe(&mut allocator, "a", &["10.10.0.0/23"]);
    assert_eq!(take_first_counts(&mut allocator), (2, 0));
    observe(&mut allocator, "a", &["10.10.0.0/23"]);
    observe(&mut allocator, "b", &["10.10.1.0/24"]);
    assert_eq!(take_first_counts(&mut allocator), (0, 0), "already in use");
    allocator.release(&"a".into());
    assert_eq!(take_first_counts(&mut allocator), (0, 1), "node b still holds one");
    observe(&mut allocator, "b", &["10.10.0.0/23"]);
    assert_eq!(take_first_counts(&mut allocator), (1, 0), "blocks that stay in use are not counted");
    allocator.release(&"unknown".into());
    assert_eq!(take_first_counts(&mut allocator), (0, 0));
}

#[test]
fn skipped_blocks_of_an_allocation_are_reported_once() {
    let mut allocator = allocator(&[("10.10.0.0/21", 24)]);
    let skipped = |allocator: &mut Allocator| allocator.take_counts()[0].skipped;
    assert_eq!(skipped(&mut allocator), None);
    observe(&mut allocator, "a", &["10.10.0.0/22"]);
    assert_eq!(skipped(&mut allocator), None, "no search");
    allocate(&mut allocator, "b");
    assert_eq!(skipped(&mut allocator), Some(4));
    allocate(&mut allocator, "b");
    assert_eq!(skipped(&mut allocator), None, "no search");
    allocate(&mut allocator, "c");
    assert_eq!(skipped(&mut allocator), Some(0));
}

#[test]
fn overlapping_pod_cidrs_are_reported_and_disjoint_ones_in_a_block_are_not() {
    let pairs = |allocator: &Allocator| -> Vec<String> {
        let overlaps = allocator.overlaps();
        overlaps.iter().map(|overlap| format!("{}+{} {}", overlap.nodes[0], overlap.nodes[1], overlap.range)).collect()
    };
    let mut allocator = allocator(&[("10.10.0.0/16", 24), ("fd00::/56", 64)]);
    observe(&mut allocator, "a", &["10.10.0.0/25"]);
    observe(&mut allocator, "b", &["10.10.0.128/25"]);
    observe(&mut allocator, "c", &["10.10.4.0/22", "fd00::/64"]);
    assert_eq!(pairs(&allocator), [""; 0], "two halves of a block");
    observe(&mut allocator, "d", &["10.10.5.0/24", "fd00:0:0:1::/64"]);
    observe(&mut allocator, "e", &["10.10.5.0/24", "fd00:0:0:2::/64"]);
    assert_eq!(pairs(&allocator), ["c+d 10.10.5.0/24", "c+e 10.10.5.0/24"]);
    allocator.release(&"c".into());
    assert_eq!(pairs(&allocator), ["d+e 10.10.5.0/24"]);
    allocator.release(&"d".into());
    assert_eq!(pairs(&allocator), [""; 0]);
}

#[test]
fn a_pod_cidr_is_admitted_if_it_is_in_the_cluster_cidr_and_no_other_nodes() {
    let mut allocator = allocator(&[("10.10.0.0/16", 24), ("fd00::/56", 64)]);
    observe(&mut allocator, "a", &["10.10.0.0/25"]);
    let rows: [(&str, &[&str], Option<&str>); 7] = [
        ("b", &["10.10.1.0/24", "fd00::/64"], None),
        ("b", &["10.10.0.128/25"], None),
        ("a", &["10.10.0.0/24"], None),
        ("b", &["10.10.0.0/24"], Some("overlaps a pod CIDR of node a")),
        ("b", &["10.10.0.64/26"], Some("overlaps a pod CIDR of node a")),
        ("b", &["10.0.0.0/8"], Some("overlaps a pod CIDR of node a")),
        ("b", &["172.16.0.0/24"], Some("is outside")),
    ];
    for (node, cidrs, expected) in rows {
        let rejected = allocator.admit(&node.into(), &texts(cidrs)).err().map(|error| error.why);
        let is_right = rejected
            .as_deref()
            .zip(expected)
            .map_or(rejected.is_none() && expected.is_none(), |(why, part)| why.contains(part));
        assert!(is_right, "{node} {cidrs:?}: {rejected:?}");
    }
}

#[test]
fn without_cluster_cidrs_there_is_nothing_to_allocate() {
    let mut allocator = Allocator::new(&[], &[]);
    assert!(allocator.observe(&"a".into(), &texts(&["10.0.0.0/24"])).is_err());
    assert_eq!(allocate(&mut allocator, "b"), [""; 0]);
    assert_eq!((allocator.usage(), allocator.remaining()), (vec![], 0));
}

// ---- properties

/// An event in a cluster of 40 Nodes with cluster CIDRs of 32 and 16 blocks.
#[derive(Debug, Clone)]
enum ClusterEvent {
    /// A Node needs pod CIDRs.
    Allocate(usize),
    /// A Node is deleted.
    Delete(usize),
    /// A Node has pod CIDRs that another client has set, which may be odd or overlapping.
    Observe(usize, u8, u8, Option<(u8, u8)>),
    /// The manager restarts and observes the pod CIDRs of all Nodes.
    Restart,
}

fn cluster_events() -> impl Strategy<Value = Vec<ClusterEvent>> {
    let one = prop_oneof![
        6 => (0..40_usize).prop_map(ClusterEvent::Allocate),
        4 => (0..40_usize).prop_map(ClusterEvent::Delete),
        2 => (0..40_usize, any::<u8>(), 22..=28_u8, prop::option::of((any::<u8>(), 60..=68_u8)))
            .prop_map(|(node, at, mask, v6)| ClusterEvent::Observe(node, at, mask, v6)),
        1 => Just(ClusterEvent::Restart),
    ];
    prop::collection::vec(one, 1..120)
}

fn name(index: usize) -> NodeName {
    format!("n{index:02}").as_str().into()
}

fn two_ranges() -> [ClusterCidr; 2] {
    [range("10.10.0.0/19", 24), range("fd00::/60", 64)]
}

fn fresh() -> Allocator {
    Allocator::new(&two_ranges(), &["10.10.31.0/24".parse().unwrap()])
}

/// Returns all free blocks: those that count as allocated when a probe Node turns out to have them.
fn free_set(allocator: &Allocator) -> BTreeSet<IpNet> {
    let mut copy = allocator.clone();
    let all =
        two_ranges().into_iter().flat_map(|range| (0..range.blocks()).filter_map(move |number| range.block(number)));
    all.filter(|block| {
        copy.take_counts();
        // Half of them are at the wrong index, which is an error; they are held nevertheless.
        let _ = copy.observe(&"probe".into(), &[block.to_string()]);
        let flipped: u64 = copy.take_counts().iter().map(|counts| counts.allocations).sum();
        copy.release(&"probe".into());
        flipped == 1
    })
    .collect()
}

/// Returns the number of free blocks of each cluster CIDR by a naive computation: those that no Node overlaps.
fn expected_free(held: &BTreeMap<NodeName, Vec<IpNet>>) -> Vec<u64> {
    let services: IpNet = "10.10.31.0/24".parse().unwrap();
    let overlaps = |block: &IpNet, other: &IpNet| block.contains(other) || other.contains(block);
    let taken =
        |block: &IpNet| overlaps(block, &services) || held.values().flatten().any(|range| overlaps(block, range));
    let free = |range: ClusterCidr| {
        let blocks = (0..range.blocks()).filter_map(|number| range.block(number));
        blocks.filter(|block| !taken(block)).count() as u64
    };
    two_ranges().into_iter().map(free).collect()
}

proptest! {
    #[test]
    fn allocations_never_overlap_and_released_blocks_are_free(cluster_events in cluster_events()) {
        let mut allocator = fresh();
        // Pod CIDRs in the spec of each Node, from which a restart rebuilds the state.
        let mut nodes: BTreeMap<NodeName, Vec<IpNet>> = BTreeMap::new();
        for event in cluster_events {
            match event {
                ClusterEvent::Allocate(index) => {
                    let node = name(index);
                    let before = allocator.usage();
                    match allocator.allocate(&node) {
                        Ok(got) if nodes.get(&node).is_some_and(|held| held.len() == 2) => {
                            prop_assert_eq!(&got, &nodes[&node], "the same CIDRs");
                        }
                        Ok(got) => {
                            let overlaps = |other: &IpNet| got.iter().any(|one| one.contains(other) || other.contains(one));
                            prop_assert!(!nodes.values().flatten().any(overlaps), "{:?} has another holder", got);
                            prop_assert_eq!(got.len(), 2, "one of each");
                            nodes.insert(node, got);
                        }
                        Err(_) => {
                            prop_assert_eq!(allocator.usage(), before, "all or nothing");
                            prop_assert!(expected_free(&nodes).contains(&0), "there were free blocks");
                        }
                    }
                }
                ClusterEvent::Delete(index) => {
                    allocator.release(&name(index));
                    nodes.remove(&name(index));
                }
                ClusterEvent::Observe(index, at, mask, v6) => {
                    let v4 = format!("10.10.{}.{}/{mask}", at % 32, at);
                    let v6 = v6.map(|(at, mask)| format!("fd00:0:0:{:x}:8000::/{mask}", at % 16));
                    let cidrs: Vec<String> = [Some(v4), v6].into_iter().flatten().collect();
                    allocator.observe(&name(index), &cidrs).unwrap();
                    nodes.insert(name(index), cidrs.iter().map(|text| text.parse::<IpNet>().unwrap().trunc()).collect());
                }
                ClusterEvent::Restart => {
                    let mut again = fresh();
                    for (node, ranges) in &nodes {
                        again.observe(node, &to_strings(ranges)).unwrap();
                    }
                    prop_assert_eq!(again.usage(), allocator.usage());
                    prop_assert_eq!(free_set(&again), free_set(&allocator));
                    allocator = again;
                }
            }
            let free: Vec<u64> = allocator.usage().iter().map(Usage::free).collect();
            prop_assert_eq!(free, expected_free(&nodes));
        }
        for node in nodes.keys() {
            allocator.release(node);
        }
        prop_assert_eq!(used(&allocator), [1, 0], "only the service CIDR is left");
    }

    #[test]
    fn observe_never_panics(texts in prop::collection::vec("[0-9a-f:./]{0,20}|.*", 0..4)) {
        let mut allocator = fresh();
        let _ = allocator.observe(&"a".into(), &texts);
        allocator.release(&"a".into());
        prop_assert_eq!(used(&allocator), [1, 0]);
    }
}
