//! Decisions about routes (R1 to R21, R26), and properties that hold for any Nodes and any routes.

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

/// Nodes by name; those whose provider ID is foreign or that nobody may touch are not ours.
struct Known(BTreeMap<NodeName, Arc<Node>>);

impl Nodes for Known {
    fn named(&self, name: &NodeName) -> Option<Arc<Node>> {
        self.0.get(name).cloned()
    }

    fn with_id(&self, id: &ProviderId) -> Option<Arc<Node>> {
        self.0.values().find(|node| node.provider_id.as_ref() == Some(id)).cloned()
    }

    fn with_address(&self, address: IpAddr) -> Option<Arc<Node>> {
        self.0.values().find(|node| node.addresses.iter().any(|one| one.ip() == Some(address))).cloned()
    }

    fn is_ours(&self, node: &Node) -> bool {
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

/// A route to the node of this name, or to nobody for the empty one.
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

/// All that would happen, in short: `-range node` goes, `+range node` comes; strays last.
fn told(nodes: Vec<Node>, routes: Vec<Route>) -> Vec<String> {
    told_of(nodes, &routes.into_iter().collect(), None)
}

fn told_of(nodes: Vec<Node>, table: &Table, cluster_uid: Option<&str>) -> Vec<String> {
    let nodes = known(nodes);
    let ranges = [range("10.120.0.0/16"), range("a00::/8")];
    let scene = Scene { table, nodes: &nodes, ranges: &ranges, cluster_uid };
    let gone = |removal: &Removal| {
        let node = removal.route.node.as_ref().map_or("nobody", NodeName::as_str);
        format!("-{} {node}", removal.route.destination)
    };
    let mut told = Vec::new();
    for node in nodes.0.values().filter(|node| nodes.is_ours(node)) {
        for lane in decide(&scene, node).lanes {
            told.extend(lane.remove.iter().map(gone));
            told.extend(lane.create.map(|new| format!("+{} {}", new.destination, new.node)));
        }
    }
    told.extend(orphans(&scene).iter().map(gone));
    told
}

/// A route to an address, which the cloud takes for that of this machine, or of none.
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
fn a_route_to_an_address_leads_to_the_node_that_has_it_unless_another_ones_machine_does() {
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
        ("however the machine is spelled", two(), vec![first(Some("c://here/1")), second(None)], &[]),
        (
            "the node has moved",
            two(),
            vec![via("10.0.0.9", Some("c:///1"), "10.120.0.0/24"), second(None)],
            &["-10.120.0.0/24 nobody", "+10.120.0.0/24 node-1"],
        ),
        (
            "nobody has the address",
            two(),
            vec![via("10.0.0.9", None, "10.120.0.0/24"), second(None)],
            &["-10.120.0.0/24 nobody", "+10.120.0.0/24 node-1", "-10.120.0.0/24 nobody"],
        ),
        (
            "two claim an address, and one of them is the machine",
            vec![
                with("node-0", "c:///0", "I10.0.0.1", "10.120.7.0/24"),
                with("node-1", "c:///1", "I10.0.0.1", "10.120.0.0/24"),
            ],
            vec![first(Some("c:///1")), via("10.0.0.1", Some("c:///0"), "10.120.7.0/24")],
            &[],
        ),
        (
            "a node that says nothing of its addresses is left alone",
            vec![with("node-1", "c:///1", "", "10.120.0.0/24")],
            vec![first(Some("c:///1"))],
            &[],
        ),
    ];
    for (what, nodes, routes, wanted) in cases {
        assert_eq!(told(nodes, routes), wanted, "{what}");
    }
}

#[test]
fn routes_of_another_cluster_of_the_name_are_left_alone() {
    let on = |id: &str| Node { provider_id: ProviderId::new(id), ..with_ranges("node-1", &["10.120.0.0/24"]) };
    let marked = |uid: &str, node: &str, id: &str, destination| Route {
        stamped: true,
        cluster_uid: Some(uid.to_owned()),
        provider_id: ProviderId::new(id),
        ..route(node, destination)
    };
    let create: &[&str] = &["+10.120.0.0/24 node-1"];
    let cases: [(&str, Route, Option<&str>, &[&str]); 7] = [
        ("its stray", marked("b", "node-9", "c:///9", "10.120.9.0/24"), Some("a"), create),
        (
            "our stray",
            marked("a", "node-9", "c:///9", "10.120.9.0/24"),
            Some("a"),
            &[create[0], "-10.120.9.0/24 node-9"],
        ),
        ("no UID of our own", marked("a", "node-9", "c:///9", "10.120.9.0/24"), None, create),
        ("in the way", marked("b", "node-9", "c:///9", "10.120.0.0/24"), Some("a"), create),
        ("a Node of the same name", marked("b", "node-1", "c:///9", "10.120.0.0/24"), Some("a"), create),
        ("an old cluster, our machine", marked("b", "node-1", "c:///1", "10.120.0.0/24"), Some("a"), &[]),
        (
            "an old cluster, our machine, another range",
            marked("b", "node-1", "c:///1", "10.120.9.0/24"),
            Some("a"),
            &[create[0], "-10.120.9.0/24 node-1"],
        ),
    ];
    for (case, there, uid, expected) in cases {
        assert_eq!(told_of(vec![on("c:///1")], &Table::from_iter([there]), uid), expected, "{case}");
    }
}

#[test]
fn without_marks_a_route_to_a_machine_that_is_no_node_goes_only_if_it_was_ours() {
    let node = || vec![Node { addresses: addresses("I10.0.0.1"), ..with_ranges("node-1", &["10.120.0.0/24"]) }];
    let foreign = || via("10.0.0.9", Some("c:///9"), "10.120.0.0/24");
    let create = "+10.120.0.0/24 node-1";
    let mut table = Table::from_iter([foreign()]);
    assert_eq!(told_of(node(), &table, None), [create], "the cloud refuses the second");
    table.claim([foreign().id]);
    let gone = "-10.120.0.0/24 nobody";
    assert_eq!(told_of(node(), &table, None), [gone, create, gone]);
    let mut listed = Table::from_iter([foreign()]);
    listed.inherit(&table);
    assert!(listed.was_ours(&foreign().id), "another listing does not change that");
    listed.remove(&foreign().id);
    listed.insert(foreign());
    assert!(!listed.was_ours(&foreign().id), "it was gone, and another client has created it again");
}

/// What it is, the Nodes, the routes, and what would happen.
type Case = (&'static str, Vec<Node>, Vec<Route>, &'static [&'static str]);

#[test]
fn r01_to_r07_what_is_missing_is_made_and_what_nobody_needs_goes() {
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
        ("R7", two(), vec![r1(), r2(), lost("10.120.2.0/24")], &["-10.120.2.0/24 nobody"]),
        (
            "R7, where a node has the range",
            two(),
            vec![r1(), lost("10.120.1.0/24")],
            // It is a stray as well, and gone by the time that somebody looks for strays.
            &["-10.120.1.0/24 nobody", "+10.120.1.0/24 node-2", "-10.120.1.0/24 nobody"],
        ),
        ("R10", vec![with_ranges("node-1", &["10.120.0.0/24"; 2])], vec![], &["+10.120.0.0/24 node-1"]),
        ("R21", vec![node("node-1")], vec![r1()], &["-10.120.0.0/24 node-1"]),
        ("R26", two(), vec![r1(), r2(), route("node-1", "192.168.0.0/24")], &[]),
        (
            "a route that leads to the wrong one of two nodes makes room",
            two(),
            vec![r1(), route("node-1", "10.120.1.0/24")],
            &["-10.120.1.0/24 node-1", "-10.120.1.0/24 node-1", "+10.120.1.0/24 node-2"],
        ),
        (
            "two nodes that claim one range keep what there is",
            vec![with_ranges("node-1", &["10.120.0.0/24"]), with_ranges("node-2", &["10.120.0.0/24"])],
            vec![r1()],
            &["+10.120.0.0/24 node-2"],
        ),
    ];
    for (case, nodes, routes, expected) in cases {
        assert_eq!(told(nodes, routes), expected, "{case}");
    }
}

#[test]
fn r08_r09_addresses_count_where_the_cloud_tells_them_in_any_order() {
    let node = || vec![with_ranges("node-1", &["10.120.0.0/24"])];
    let target_node =
        |text: &str| vec![Route { node_addresses: Some(addresses(text)), ..route("node-1", "10.120.0.0/24") }];
    let anew = ["-10.120.0.0/24 node-1", "+10.120.0.0/24 node-1"];
    assert_eq!(told(node(), target_node("I10.0.0.7 E8.8.8.8")), anew, "R8");
    assert_eq!(told(node(), target_node("I10.0.0.1")), anew, "R8: one is missing");
    assert_eq!(told(node(), target_node("")), anew, "no traffic gets through");
    assert_eq!(told(node(), target_node("E8.8.8.8 I10.0.0.1")), [""; 0], "another order");
    assert_eq!(told(node(), vec![route("node-1", "10.120.0.0/24")]), [""; 0], "R9");
}

#[test]
fn r11_to_r14_we_are_responsible_for_what_begins_or_ends_in_a_range_of_the_cluster_or_carries_our_mark() {
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
        let (table, nodes, ranges) = (Table::default(), known([]), [range(cluster)]);
        let scene = Scene { table: &table, nodes: &nodes, ranges: &ranges, cluster_uid: None };
        assert_eq!(scene.is_responsible(&route("n", destination)), expected, "{case}: {destination}");
        assert!(scene.is_responsible(&Route { stamped: true, ..route("n", destination) }), "{case}: our mark");
    }
}

#[test]
fn ranges_are_compared_as_ranges_and_not_as_texts() {
    let node = with_ranges("node-1", &["10.120.0.9/24", "0a00:0100:0::/24"]);
    let routes = vec![route("node-1", "10.120.0.0/24"), route("node-1", "a00:100::/24")];
    assert_eq!(told(vec![node], routes), [""; 0]);
}

#[test]
fn a_text_that_is_no_range_is_told_and_the_rest_goes_on() {
    let node = with_ranges("node-1", &["rubbish", "10.120.0.0/24"]);
    let nodes = known([node.clone()]);
    let plan = decide(&Scene { table: &Table::default(), nodes: &nodes, ranges: &[], cluster_uid: None }, &node);
    assert_eq!((plan.unreadable.as_slice(), plan.lanes.len()), (&["rubbish".to_owned()][..], 1));
    assert!(!plan.is_complete());
}

#[test]
fn routes_of_nodes_that_are_not_ours_are_left_alone() {
    let foreign = Node { provider_id: ProviderId::new("foreign://1"), ..node("elsewhere") };
    let (key, value) = UNMANAGED_LABELS[0];
    let unmanaged = Node { labels: [(key.to_owned(), value.to_owned())].into(), ..node("mine") };
    let routes = vec![route("elsewhere", "10.120.0.0/24"), route("mine", "10.120.1.0/24")];
    assert_eq!(told(vec![foreign.clone(), unmanaged], routes), [""; 0]);
    let by_machine = Route { node: None, provider_id: ProviderId::new("foreign://1"), ..route("", "10.120.2.0/24") };
    assert_eq!(told(vec![foreign], vec![by_machine]), [""; 0]);
}

#[test]
fn a_route_without_a_name_belongs_to_the_node_whose_machine_it_leads_to() {
    let id = ProviderId::new("cloud://7");
    let node = Node { provider_id: id.clone(), ..with_ranges("node-1", &["10.120.0.0/24"]) };
    let by_machine = |destination| Route { provider_id: id.clone(), ..route("", destination) };
    assert_eq!(told(vec![node.clone()], vec![by_machine("10.120.0.0/24")]), [""; 0]);
    let wrong = told(vec![node], vec![by_machine("10.120.0.0/24"), by_machine("10.120.9.0/24")]);
    assert_eq!(wrong, ["-10.120.9.0/24 nobody"]);
    let marked = Route { stamped: true, ..by_machine("10.120.0.0/24") };
    assert_eq!(told(vec![], vec![marked]), ["-10.120.0.0/24 nobody"]);
}

#[test]
fn r15_to_r18_r21_the_condition_is_written_unless_it_says_so_already_in_our_words() {
    let said =
        |status: &str, reason: &str| Some(NetworkCondition { status: status.to_owned(), reason: reason.to_owned() });
    let (made, missing) = (Some(NetworkStatus::CREATED), Some(NetworkStatus::NOT_CREATED));
    let cases = [
        ("R15", None, true, made),
        ("R15", None, false, missing),
        ("R16", said("False", "RouteCreated"), true, None),
        ("R17", said("True", "NoRouteCreated"), false, None),
        ("R18", said("False", "CalicoIsUp"), true, made),
        ("R18", said("False", "ExternalCNI"), true, made),
        ("turned", said("False", "RouteCreated"), false, missing),
        ("turned", said("True", "NoRouteCreated"), true, made),
    ];
    for (case, network_now, all_there, expected) in cases {
        let node = Node { network: network_now, ..with_ranges("n", &["10.120.0.0/24"]) };
        assert_eq!(network(&node, all_there, true), expected, "{case}");
    }
    assert_eq!(network(&node("n"), true, true), missing, "R21");
    assert_eq!(network(&node("n"), true, false), None, "R6");
}

// ---- the brake

#[test]
fn a_few_routes_go_at_once_and_many_only_when_that_was_confirmed_twice() {
    let begin = Instant::now();
    let mut brake = Brake::new(0.5);
    assert_eq!(brake.judge(10, 10, 1), BrakeDecision::Go, "a few are a few, whatever share they are");
    assert_eq!(brake.judge(50, 100, 1), BrakeDecision::Go, "half of them may go");
    assert_eq!(brake.judge(51, 100, 1), BrakeDecision::Ask);
    let hold = |again_in| BrakeDecision::Hold(HoldReason::Many { routes: 51, of: 100, again_in });
    assert_eq!(brake.confirm(51, 100, 1, begin), hold(CONFIRM_AFTER));
    let soon = begin + Duration::from_secs(20);
    assert_eq!(brake.confirm(51, 100, 1, soon), hold(Duration::from_secs(40)));
    assert_eq!(brake.confirm(51, 100, 1, begin + CONFIRM_AFTER), BrakeDecision::Go);
    assert_eq!(brake.confirm(51, 100, 1, begin + CONFIRM_AFTER), hold(CONFIRM_AFTER), "each time anew");
}

#[test]
fn nodes_that_come_back_begin_the_confirmation_anew() {
    let begin = Instant::now();
    let mut brake = Brake::new(0.5);
    brake.confirm(51, 100, 1, begin);
    assert_eq!(brake.judge(3, 100, 48), BrakeDecision::Go);
    let late = begin + 2 * CONFIRM_AFTER;
    assert!(matches!(brake.confirm(51, 100, 1, late), BrakeDecision::Hold(_)));
    // All of them came back.
    assert_eq!(brake.judge(0, 100, 99), BrakeDecision::Go);
    assert!(matches!(brake.confirm(51, 100, 1, late + CONFIRM_AFTER), BrakeDecision::Hold(_)));
    // Some came back, so that the others may be on their way.
    let held = BrakeDecision::Hold(HoldReason::Many { routes: 31, of: 60, again_in: CONFIRM_AFTER });
    assert_eq!(brake.confirm(31, 60, 1, late + 2 * CONFIRM_AFTER), held);
    assert_eq!(brake.confirm(31, 60, 1, late + 3 * CONFIRM_AFTER), BrakeDecision::Go);
}

#[test]
fn after_a_time_without_any_node_a_few_routes_are_many() {
    let begin = Instant::now();
    let mut brake = Brake::new(0.5);
    assert!(matches!(brake.judge(8, 8, 0), BrakeDecision::Hold(HoldReason::NoNodes { .. })));
    assert_eq!(brake.judge(7, 8, 1), BrakeDecision::Ask);
    assert!(matches!(brake.confirm(7, 8, 1, begin), BrakeDecision::Hold(HoldReason::Many { .. })));
    assert_eq!(brake.confirm(7, 8, 1, begin + CONFIRM_AFTER), BrakeDecision::Go);
    assert_eq!(brake.judge(7, 8, 1), BrakeDecision::Go, "that was that");
    // It ends as well when all are back.
    brake.judge(8, 8, 0);
    assert_eq!(brake.judge(0, 8, 8), BrakeDecision::Go);
    assert_eq!(brake.judge(7, 8, 1), BrakeDecision::Go);
}

#[test]
fn without_any_node_no_more_than_one_route_goes_ever_unless_the_brake_is_off() {
    let late = Instant::now() + 10 * CONFIRM_AFTER;
    let mut brake = Brake::new(0.5);
    assert_eq!(brake.judge(1, 1, 0), BrakeDecision::Go, "the last node of a cluster was deleted");
    let held = BrakeDecision::Hold(HoldReason::NoNodes { routes: 2 });
    assert_eq!(brake.judge(2, 2, 0), held);
    assert_eq!(brake.confirm(2, 2, 0, late), held);
    assert_eq!(Brake::new(1.0).judge(5000, 5000, 0), BrakeDecision::Go);
    let told = HoldReason::NoNodes { routes: 2 }.to_string();
    assert!(told.contains("--route-deletion-max-share=1"), "{told}");
}

// ---- whatever the Nodes and the routes

/// Any of a few names, ranges and states, so that they meet.
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

/// Carries all of it out.
fn applied(table: &mut Table, nodes: &Known, ranges: &[IpNet]) {
    for node in nodes.0.values().filter(|node| nodes.is_ours(node)) {
        let plan = decide(&Scene { table, nodes, ranges, cluster_uid: None }, node);
        for lane in plan.lanes {
            lane.remove.iter().for_each(|removal| table.remove(&removal.route.id));
            if let Some(spec) = lane.create {
                table.insert(Route::of(&spec));
            }
        }
    }
    let orphans = orphans(&Scene { table, nodes, ranges, cluster_uid: None });
    orphans.iter().for_each(|removal| table.remove(&removal.route.id));
}

proptest! {
    #[test]
    fn one_pass_settles_everything_and_touches_nothing_that_is_not_ours(
        nodes in any_nodes(),
        routes in prop::collection::vec(any_route(), 0..20),
    ) {
        let (nodes, ranges) = (known(nodes), [range("10.120.0.0/16")]);
        let before: Table = routes.into_iter().collect();
        let mut after = before.clone();
        applied(&mut after, &nodes, &ranges);
        let scene = Scene { table: &after, nodes: &nodes, ranges: &ranges, cluster_uid: None };
        // A second pass finds nothing to do.
        for node in nodes.0.values().filter(|node| nodes.is_ours(node)) {
            prop_assert!(decide(&scene, node).is_empty(), "{node:?} {after:?}");
            for text in &node.pod_cidrs {
                prop_assert!(after.to(range(text)).any(|route| route.node.as_ref() == Some(&node.name)));
            }
        }
        prop_assert!(orphans(&scene).is_empty());
        // What goes was for us to remove, and nobody's who is not ours.
        for route in before.iter().filter(|route| !after.iter().any(|left| left.id == route.id)) {
            prop_assert!(scene.is_responsible(route), "{route:?}");
            let target = route.node.as_ref().and_then(|name| nodes.named(name));
            prop_assert!(target.is_none_or(|node| nodes.is_ours(&node)), "{route:?}");
        }
    }
}
