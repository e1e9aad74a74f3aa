//! Decisions about routes (R1 to R21, R26), and properties for arbitrary Nodes and routes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use proptest::prelude::*;

use super::brake::CONFIRM_AFTER;
use super::*;
use crate::testing::{addresses, node};
use crate::well_known::UNMANAGED_LABELS;
use crate::{NetworkCondition, Node, NodeName, ProviderId, Route};

/// Nodes by name; paused Nodes and those with a foreign provider ID are not managed.
struct Known(BTreeMap<NodeName, Arc<Node>>);

impl Nodes for Known {
    fn by_name(&self, name: &NodeName) -> Option<Arc<Node>> {
        self.0.get(name).cloned()
    }

    fn by_provider_id(&self, id: &ProviderId) -> Option<Arc<Node>> {
        self.0.values().find(|node| node.provider_id.as_ref() == Some(id)).cloned()
    }

    fn by_address(&self, address: IpAddr) -> Option<Arc<Node>> {
        self.0.values().find(|node| node.addresses.iter().any(|one| one.ip() == Some(address))).cloned()
    }

    fn is_managed(&self, node: &Node) -> bool {
        let is_foreign = node.provider_id.as_ref().is_some_and(|id| id.prefix() == Some("foreign"));
        !is_foreign && !node.is_paused()
    }
}

fn known(nodes: impl IntoIterator<Item = Node>) -> Known {
    Known(nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node))).collect())
}

fn range(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn with_ranges(name: &str, ranges: &[&str]) -> Node {
    let pod_cidrs = ranges.iter().map(|range| (*range).to_owned()).collect();
    Node { pod_cidrs, addresses: addresses("I10.0.0.1 E8.8.8.8"), ..node(name) }
}

/// Returns a route to the Node of this name, or without a target Node for an empty name.
fn route(node: &str, destination: &str) -> Route {
    Route {
        id: format!("{destination}-{node}"),
        node: (!node.is_empty()).then(|| node.into()),
        provider_id: None,
        node_addresses: None,
        next_hop: None,
        destination: range(destination),
        blackhole: false,
        stamped: false,
        cluster_uid: None,
    }
}

/// Returns all changes in short form: `-cidr node` is deleted, `+cidr node` is created; orphans come last.
fn changes(nodes: Vec<Node>, routes: Vec<Route>) -> Vec<String> {
    changes_of(nodes, &routes.into_iter().collect(), None)
}

fn changes_of(nodes: Vec<Node>, table: &RouteTable, cluster_uid: Option<&str>) -> Vec<String> {
    let nodes = known(nodes);
    let ranges = [range("10.120.0.0/16"), range("a00::/8")];
    let context = RouteContext { table, nodes: &nodes, ranges: &ranges, cluster_uid };
    let deleted = |removal: &Removal| {
        let node = removal.route.node.as_ref().map_or("none", NodeName::as_str);
        format!("-{} {node}", removal.route.destination)
    };
    let mut changes = Vec::new();
    for node in nodes.0.values().filter(|node| nodes.is_managed(node)) {
        for change in decide(&context, node).changes {
            changes.extend(change.remove.iter().map(deleted));
            changes.extend(change.create.map(|new| format!("+{} {}", new.destination, new.node)));
        }
    }
    changes.extend(orphans(&context).iter().map(deleted));
    changes
}

/// Returns a route with a next hop, which the cloud attributes to this machine, or to none.
fn via(hop: &str, machine: Option<&str>, destination: &str) -> Route {
    Route {
        id: format!("{destination} via {hop}"),
        provider_id: machine.and_then(ProviderId::new),
        next_hop: Some(hop.parse().unwrap()),
        blackhole: machine.is_none(),
        ..route("", destination)
    }
}

#[test]
fn a_route_with_a_next_hop_leads_to_its_machine_or_to_the_node_with_that_address() {
    let with = |name: &str, id: &str, address: &str, range: &str| Node {
        provider_id: ProviderId::new(id),
        addresses: addresses(address),
        ..with_ranges(name, &[range])
    };
    let two = || {
        vec![with("node-1", "c:///1", "I10.0.0.1", "10.120.0.0/24"), with("node-2", "", "I10.0.0.2", "10.120.1.0/24")]
    };
    let first = |machine| via("10.0.0.1", machine, "10.120.0.0/24");
    let second = |machine| via("10.0.0.2", machine, "10.120.1.0/24");
    let cases: Vec<Case> = vec![
        ("by machine, and by address", two(), vec![first(Some("c:///1")), second(Some("c:///2"))], &[]),
        ("another spelling of the machine", two(), vec![first(Some("c://here/1")), second(None)], &[]),
        (
            "the node has moved",
            two(),
            vec![via("10.0.0.9", Some("c:///1"), "10.120.0.0/24"), second(None)],
            &["-10.120.0.0/24 none", "+10.120.0.0/24 node-1"],
        ),
        (
            "no node has the address",
            two(),
            vec![via("10.0.0.9", None, "10.120.0.0/24"), second(None)],
            &["-10.120.0.0/24 none", "+10.120.0.0/24 node-1", "-10.120.0.0/24 none"],
        ),
        (
            "two nodes have the address, and one of them is the machine",
            vec![
                with("node-0", "c:///0", "I10.0.0.1", "10.120.7.0/24"),
                with("node-1", "c:///1", "I10.0.0.1", "10.120.0.0/24"),
            ],
            vec![first(Some("c:///1")), via("10.0.0.1", Some("c:///0"), "10.120.7.0/24")],
            &[],
        ),
        (
            "a node without addresses is not changed",
            vec![with("node-1", "c:///1", "", "10.120.0.0/24")],
            vec![first(Some("c:///1"))],
            &[],
        ),
    ];
    for (case, nodes, routes, expected) in cases {
        assert_eq!(changes(nodes, routes), expected, "{case}");
    }
}

#[test]
fn routes_of_another_cluster_with_the_same_name_are_not_changed() {
    let on = |id: &str| Node { provider_id: ProviderId::new(id), ..with_ranges("node-1", &["10.120.0.0/24"]) };
    let marked = |uid: &str, node: &str, id: &str, destination| Route {
        stamped: true,
        cluster_uid: Some(uid.to_owned()),
        provider_id: ProviderId::new(id),
        ..route(node, destination)
    };
    let create: &[&str] = &["+10.120.0.0/24 node-1"];
    let cases: [(&str, Route, Option<&str>, &[&str]); 7] = [
        ("its orphan", marked("b", "node-9", "c:///9", "10.120.9.0/24"), Some("a"), create),
        (
            "own orphan",
            marked("a", "node-9", "c:///9", "10.120.9.0/24"),
            Some("a"),
            &[create[0], "-10.120.9.0/24 node-9"],
        ),
        ("own UID unknown", marked("a", "node-9", "c:///9", "10.120.9.0/24"), None, create),
        ("conflict", marked("b", "node-9", "c:///9", "10.120.0.0/24"), Some("a"), create),
        ("a Node of the same name", marked("b", "node-1", "c:///9", "10.120.0.0/24"), Some("a"), create),
        ("an old cluster, own machine", marked("b", "node-1", "c:///1", "10.120.0.0/24"), Some("a"), &[]),
        (
            "an old cluster, own machine, another CIDR",
            marked("b", "node-1", "c:///1", "10.120.9.0/24"),
            Some("a"),
            &[create[0], "-10.120.9.0/24 node-1"],
        ),
    ];
    for (case, existing, uid, expected) in cases {
        assert_eq!(changes_of(vec![on("c:///1")], &RouteTable::from_iter([existing]), uid), expected, "{case}");
    }
}

#[test]
fn the_next_hop_of_a_marked_route_decides_whether_it_leads_to_a_node_of_the_same_name() {
    let marked = |hop: &str, destination| Route {
        stamped: true,
        cluster_uid: Some("b".to_owned()),
        next_hop: hop.parse().ok(),
        ..route("node-1", destination)
    };
    let create: &[&str] = &["+10.120.0.0/24 node-1"];
    let cases: [(&str, Route, &[&str]); 4] = [
        ("of another cluster", marked("10.0.0.9", "10.120.9.0/24"), create),
        ("of another cluster, same destination", marked("10.0.0.9", "10.120.0.0/24"), create),
        ("an old cluster, own address", marked("10.0.0.1", "10.120.0.0/24"), &[]),
        (
            "an old cluster, own address, another CIDR",
            marked("10.0.0.1", "10.120.9.0/24"),
            &[create[0], "-10.120.9.0/24 node-1"],
        ),
    ];
    for (case, existing, expected) in cases {
        let node = with_ranges("node-1", &["10.120.0.0/24"]);
        assert_eq!(changes_of(vec![node], &RouteTable::from_iter([existing]), Some("a")), expected, "{case}");
    }
}

#[test]
fn without_marks_a_route_to_an_unknown_machine_is_deleted_only_if_it_once_led_to_a_node() {
    let node = || vec![Node { addresses: addresses("I10.0.0.1"), ..with_ranges("node-1", &["10.120.0.0/24"]) }];
    let foreign = || via("10.0.0.9", Some("c:///9"), "10.120.0.0/24");
    let create = "+10.120.0.0/24 node-1";
    let mut table = RouteTable::from_iter([foreign()]);
    assert_eq!(changes_of(node(), &table, None), [create], "the cloud rejects the duplicate");
    table.claim([foreign().id]);
    let delete = "-10.120.0.0/24 none";
    assert_eq!(changes_of(node(), &table, None), [delete, create, delete]);
    let mut listed = RouteTable::from_iter([foreign()]);
    listed.inherit(&table);
    assert!(listed.was_ours(&foreign().id), "kept across listings");
    listed.remove(&foreign().id);
    listed.insert(foreign());
    assert!(!listed.was_ours(&foreign().id), "another client has created it again after its deletion");
}

/// Name, Nodes, routes and expected changes.
type Case = (&'static str, Vec<Node>, Vec<Route>, &'static [&'static str]);

#[test]
fn r01_to_r07_missing_routes_are_created_and_orphans_deleted() {
    let two = || vec![with_ranges("node-1", &["10.120.0.0/24"]), with_ranges("node-2", &["10.120.1.0/24"])];
    let both = || {
        vec![
            with_ranges("node-1", &["10.120.0.0/24", "a00:100::/24"]),
            with_ranges("node-2", &["10.120.1.0/24", "a00:200::/24"]),
        ]
    };
    let r1 = || route("node-1", "10.120.0.0/24");
    let r2 = || route("node-2", "10.120.1.0/24");
    let lost = |destination| Route { blackhole: true, ..route("", destination) };
    let cases: Vec<Case> = vec![
        ("R1", two(), vec![], &["+10.120.0.0/24 node-1", "+10.120.1.0/24 node-2"]),
        (
            "R1 dual",
            both(),
            vec![],
            &["+10.120.0.0/24 node-1", "+a00:100::/24 node-1", "+10.120.1.0/24 node-2", "+a00:200::/24 node-2"],
        ),
        ("R2", two(), vec![r1(), r2()], &[]),
        ("R3", two(), vec![r1()], &["+10.120.1.0/24 node-2"]),
        ("R3 dual", both(), vec![r1(), r2()], &["+a00:100::/24 node-1", "+a00:200::/24 node-2"]),
        (
            "R4",
            two(),
            vec![r1(), r2(), route("node-3", "10.120.2.0/24"), route("node-4", "10.120.3.0/24")],
            &["-10.120.2.0/24 node-3", "-10.120.3.0/24 node-4"],
        ),
        (
            "R5",
            two(),
            vec![r1(), route("node-3", "10.120.2.0/24")],
            &["+10.120.1.0/24 node-2", "-10.120.2.0/24 node-3"],
        ),
        ("R6", vec![with_ranges("node-1", &["10.120.0.0/24"]), node("node-2")], vec![], &["+10.120.0.0/24 node-1"]),
        ("R7", two(), vec![r1(), r2(), lost("10.120.2.0/24")], &["-10.120.2.0/24 none"]),
        (
            "R7, where a node has the pod CIDR",
            two(),
            vec![r1(), lost("10.120.1.0/24")],
            // It is an orphan as well, and already deleted when orphans are processed.
            &["-10.120.1.0/24 none", "+10.120.1.0/24 node-2", "-10.120.1.0/24 none"],
        ),
        ("R10", vec![with_ranges("node-1", &["10.120.0.0/24"; 2])], vec![], &["+10.120.0.0/24 node-1"]),
        ("R21", vec![node("node-1")], vec![r1()], &["-10.120.0.0/24 node-1"]),
        ("R26", two(), vec![r1(), r2(), route("node-1", "192.168.0.0/24")], &[]),
        (
            "a conflicting route to the wrong node is deleted",
            two(),
            vec![r1(), route("node-1", "10.120.1.0/24")],
            &["-10.120.1.0/24 node-1", "-10.120.1.0/24 node-1", "+10.120.1.0/24 node-2"],
        ),
        (
            "with one pod CIDR on two nodes the existing route is kept",
            vec![with_ranges("node-1", &["10.120.0.0/24"]), with_ranges("node-2", &["10.120.0.0/24"])],
            vec![r1()],
            &["+10.120.0.0/24 node-2"],
        ),
    ];
    for (case, nodes, routes, expected) in cases {
        assert_eq!(changes(nodes, routes), expected, "{case}");
    }
}

#[test]
fn r08_r09_addresses_are_compared_in_any_order_if_the_cloud_reports_them() {
    let node = || vec![with_ranges("node-1", &["10.120.0.0/24"])];
    let target_node =
        |text: &str| vec![Route { node_addresses: Some(addresses(text)), ..route("node-1", "10.120.0.0/24") }];
    let recreated = ["-10.120.0.0/24 node-1", "+10.120.0.0/24 node-1"];
    assert_eq!(changes(node(), target_node("I10.0.0.7 E8.8.8.8")), recreated, "R8");
    assert_eq!(changes(node(), target_node("I10.0.0.1")), recreated, "R8: one is missing");
    assert_eq!(changes(node(), target_node("")), recreated, "no traffic gets through");
    assert_eq!(changes(node(), target_node("E8.8.8.8 I10.0.0.1")), [""; 0], "another order");
    assert_eq!(changes(node(), vec![route("node-1", "10.120.0.0/24")]), [""; 0], "R9");
}

#[test]
fn r11_to_r14_responsibility_depends_on_the_cluster_cidrs_and_the_mark() {
    let cases = [
        ("R11", "10.244.0.0/16", "10.244.0.0/24", true),
        ("R11", "10.244.0.0/16", "10.244.10.0/24", true),
        ("R11", "10.244.0.0/16", "10.244.255.0/24", true),
        ("R12", "10.244.0.0/16", "10.224.0.0/24", false),
        ("R12", "10.244.0.0/16", "10.0.10.0/24", false),
        ("R12", "10.244.0.0/16", "10.255.255.0/24", false),
        ("R13", "10.244.0.0/14", "10.248.0.0/24", false),
        ("R13", "10.244.0.0/14", "10.243.255.0/24", false),
        ("R14", "10.244.0.0/16", "10.0.0.0/8", false),
        ("the first address alone", "10.244.0.0/16", "10.244.0.0/15", true),
        ("the last address alone", "10.245.0.0/16", "10.244.0.0/15", true),
        ("another family", "10.244.0.0/16", "fd00::/64", false),
    ];
    for (case, cluster, destination, expected) in cases {
        let (table, nodes, ranges) = (RouteTable::default(), known([]), [range(cluster)]);
        let context = RouteContext { table: &table, nodes: &nodes, ranges: &ranges, cluster_uid: None };
        assert_eq!(context.is_responsible(&route("n", destination)), expected, "{case}: {destination}");
        assert!(context.is_responsible(&Route { stamped: true, ..route("n", destination) }), "{case}: with the mark");
    }
}

#[test]
fn cidrs_are_compared_by_value_and_not_as_text() {
    let node = with_ranges("node-1", &["10.120.0.9/24", "0a00:0100:0::/24"]);
    let routes = vec![route("node-1", "10.120.0.0/24"), route("node-1", "a00:100::/24")];
    assert_eq!(changes(vec![node], routes), [""; 0]);
}

#[test]
fn an_invalid_pod_cidr_is_reported_and_the_valid_ones_are_routed() {
    let node = with_ranges("node-1", &["rubbish", "10.120.0.0/24"]);
    let nodes = known([node.clone()]);
    let plan =
        decide(&RouteContext { table: &RouteTable::default(), nodes: &nodes, ranges: &[], cluster_uid: None }, &node);
    assert_eq!((plan.invalid_cidrs.as_slice(), plan.changes.len()), (&["rubbish".to_owned()][..], 1));
    assert!(!plan.is_complete());
}

#[test]
fn routes_of_unmanaged_nodes_are_not_changed() {
    let foreign = Node { provider_id: ProviderId::new("foreign://1"), ..node("elsewhere") };
    let (key, value) = UNMANAGED_LABELS[0];
    let unmanaged = Node { labels: [(key.to_owned(), value.to_owned())].into(), ..node("mine") };
    let routes = vec![route("elsewhere", "10.120.0.0/24"), route("mine", "10.120.1.0/24")];
    assert_eq!(changes(vec![foreign.clone(), unmanaged], routes), [""; 0]);
    let by_machine = Route { node: None, provider_id: ProviderId::new("foreign://1"), ..route("", "10.120.2.0/24") };
    assert_eq!(changes(vec![foreign], vec![by_machine]), [""; 0]);
}

#[test]
fn a_route_without_a_node_name_belongs_to_the_node_of_its_machine() {
    let id = ProviderId::new("cloud://7");
    let node = Node { provider_id: id.clone(), ..with_ranges("node-1", &["10.120.0.0/24"]) };
    let by_machine = |destination| Route { provider_id: id.clone(), ..route("", destination) };
    assert_eq!(changes(vec![node.clone()], vec![by_machine("10.120.0.0/24")]), [""; 0]);
    let outdated = changes(vec![node], vec![by_machine("10.120.0.0/24"), by_machine("10.120.9.0/24")]);
    assert_eq!(outdated, ["-10.120.9.0/24 none"]);
    let marked = Route { stamped: true, ..by_machine("10.120.0.0/24") };
    assert_eq!(changes(vec![], vec![marked]), ["-10.120.0.0/24 none"]);
}

#[test]
fn r15_to_r18_r21_the_condition_is_written_unless_status_and_reason_are_current() {
    let condition =
        |status: &str, reason: &str| Some(NetworkCondition { status: status.to_owned(), reason: reason.to_owned() });
    let (created, missing) = (Some(NetworkStatus::CREATED), Some(NetworkStatus::NOT_CREATED));
    let cases = [
        ("R15", None, true, created),
        ("R15", None, false, missing),
        ("R16", condition("False", "RouteCreated"), true, None),
        ("R17", condition("True", "NoRouteCreated"), false, None),
        ("R18", condition("False", "CalicoIsUp"), true, created),
        ("R18", condition("False", "ExternalCNI"), true, created),
        ("changed", condition("False", "RouteCreated"), false, missing),
        ("changed", condition("True", "NoRouteCreated"), true, created),
    ];
    for (case, network_now, all_there, expected) in cases {
        let node = Node { network: network_now, ..with_ranges("n", &["10.120.0.0/24"]) };
        assert_eq!(network_status(&node, all_there, true), expected, "{case}");
    }
    assert_eq!(network_status(&node("n"), true, true), missing, "R21");
    assert_eq!(network_status(&node("n"), true, false), None, "R6");
}

// ---- the brake

#[test]
fn a_few_routes_are_deleted_at_once_and_many_after_two_confirmations() {
    let begin = Instant::now();
    let mut brake = Brake::new(0.5);
    assert_eq!(brake.check(10, 10, 1), BrakeDecision::Allow, "ten routes, whatever their share");
    assert_eq!(brake.check(50, 100, 1), BrakeDecision::Allow, "half of the routes may be deleted");
    assert_eq!(brake.check(51, 100, 1), BrakeDecision::Confirm);
    let hold = |again_in| BrakeDecision::Hold(HoldReason::Many { routes: 51, of: 100, again_in });
    assert_eq!(brake.confirm(51, 100, 1, begin), hold(CONFIRM_AFTER));
    let soon = begin + Duration::from_secs(20);
    assert_eq!(brake.confirm(51, 100, 1, soon), hold(Duration::from_secs(40)));
    assert_eq!(brake.confirm(51, 100, 1, begin + CONFIRM_AFTER), BrakeDecision::Allow);
    assert_eq!(brake.confirm(51, 100, 1, begin + CONFIRM_AFTER), hold(CONFIRM_AFTER), "confirmed again each time");
}

#[test]
fn nodes_that_come_back_reset_the_confirmation() {
    let begin = Instant::now();
    let mut brake = Brake::new(0.5);
    brake.confirm(51, 100, 1, begin);
    assert_eq!(brake.check(3, 100, 48), BrakeDecision::Allow);
    let late = begin + 2 * CONFIRM_AFTER;
    assert!(matches!(brake.confirm(51, 100, 1, late), BrakeDecision::Hold(_)));
    // All Nodes are back.
    assert_eq!(brake.check(0, 100, 99), BrakeDecision::Allow);
    assert!(matches!(brake.confirm(51, 100, 1, late + CONFIRM_AFTER), BrakeDecision::Hold(_)));
    // Some Nodes are back, so the others may follow.
    let held = BrakeDecision::Hold(HoldReason::Many { routes: 31, of: 60, again_in: CONFIRM_AFTER });
    assert_eq!(brake.confirm(31, 60, 1, late + 2 * CONFIRM_AFTER), held);
    assert_eq!(brake.confirm(31, 60, 1, late + 3 * CONFIRM_AFTER), BrakeDecision::Allow);
}

#[test]
fn after_a_time_without_any_node_even_few_routes_need_confirmation() {
    let begin = Instant::now();
    let mut brake = Brake::new(0.5);
    assert!(matches!(brake.check(8, 8, 0), BrakeDecision::Hold(HoldReason::NoNodes { .. })));
    assert_eq!(brake.check(7, 8, 1), BrakeDecision::Confirm);
    assert!(matches!(brake.confirm(7, 8, 1, begin), BrakeDecision::Hold(HoldReason::Many { .. })));
    assert_eq!(brake.confirm(7, 8, 1, begin + CONFIRM_AFTER), BrakeDecision::Allow);
    assert_eq!(brake.check(7, 8, 1), BrakeDecision::Allow, "after the confirmation");
    // The confirmation is no longer needed once all Nodes are back.
    brake.check(8, 8, 0);
    assert_eq!(brake.check(0, 8, 8), BrakeDecision::Allow);
    assert_eq!(brake.check(7, 8, 1), BrakeDecision::Allow);
}

#[test]
fn without_any_node_at_most_one_route_is_deleted_unless_the_brake_is_off() {
    let late = Instant::now() + 10 * CONFIRM_AFTER;
    let mut brake = Brake::new(0.5);
    assert_eq!(brake.check(1, 1, 0), BrakeDecision::Allow, "the last node of a cluster was deleted");
    let held = BrakeDecision::Hold(HoldReason::NoNodes { routes: 2 });
    assert_eq!(brake.check(2, 2, 0), held);
    assert_eq!(brake.confirm(2, 2, 0, late), held);
    assert_eq!(Brake::new(1.0).check(5000, 5000, 0), BrakeDecision::Allow);
    let message = HoldReason::NoNodes { routes: 2 }.to_string();
    assert!(message.contains("--route-deletion-max-share=1"), "{message}");
}

// ---- properties

/// Generates routes from a few names, CIDRs and states, so that they collide.
fn any_route() -> impl Strategy<Value = Route> {
    (0_u8..7, 0_u8..8, any::<bool>(), prop::bool::weighted(0.2), any::<bool>()).prop_map(
        |(node, block, foreign, blackhole, stamped)| {
            let node = if node == 0 { String::new() } else { format!("n{node}") };
            let destination = format!("{}.{block}.0/24", if foreign { "192.168" } else { "10.120" });
            Route { blackhole, stamped, ..route(&node, &destination) }
        },
    )
}

fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::btree_map(1_u8..6, (prop::option::weighted(0.8, 0_u8..8), prop::bool::weighted(0.2)), 0..5)
        .prop_map(|nodes| {
            let node = |(name, (block, foreign)): (u8, (Option<u8>, bool))| {
                let ranges: Vec<String> = block.map(|block| format!("10.120.{block}.0/24")).into_iter().collect();
                let provider_id = foreign.then(|| ProviderId::of("foreign", "x"));
                Node { pod_cidrs: ranges, provider_id, ..node(&format!("n{name}")) }
            };
            nodes.into_iter().map(node).collect()
        })
}

/// Applies all changes.
fn apply(table: &mut RouteTable, nodes: &Known, ranges: &[IpNet]) {
    for node in nodes.0.values().filter(|node| nodes.is_managed(node)) {
        let plan = decide(&RouteContext { table, nodes, ranges, cluster_uid: None }, node);
        for change in plan.changes {
            change.remove.iter().for_each(|removal| table.remove(&removal.route.id));
            if let Some(spec) = change.create {
                table.insert(Route::of(&spec));
            }
        }
    }
    let orphans = orphans(&RouteContext { table, nodes, ranges, cluster_uid: None });
    orphans.iter().for_each(|removal| table.remove(&removal.route.id));
}

proptest! {
    #[test]
    fn one_sync_reaches_the_desired_state_and_changes_no_unmanaged_route(
        nodes in any_nodes(),
        routes in prop::collection::vec(any_route(), 0..20),
    ) {
        let (nodes, ranges) = (known(nodes), [range("10.120.0.0/16")]);
        let before: RouteTable = routes.into_iter().collect();
        let mut after = before.clone();
        apply(&mut after, &nodes, &ranges);
        let context = RouteContext { table: &after, nodes: &nodes, ranges: &ranges, cluster_uid: None };
        // A second sync finds nothing to do.
        for node in nodes.0.values().filter(|node| nodes.is_managed(node)) {
            prop_assert!(decide(&context, node).is_empty(), "{node:?} {after:?}");
            for text in &node.pod_cidrs {
                prop_assert!(after.to(range(text)).any(|route| route.node.as_ref() == Some(&node.name)));
            }
        }
        prop_assert!(orphans(&context).is_empty());
        // Bowline was responsible for every deleted route, and none led to an unmanaged Node.
        for route in before.iter().filter(|route| !after.iter().any(|left| left.id == route.id)) {
            prop_assert!(context.is_responsible(route), "{route:?}");
            let target = route.node.as_ref().and_then(|name| nodes.by_name(name));
            prop_assert!(target.is_none_or(|node| nodes.is_managed(&node)), "{route:?}");
        }
    }
}
