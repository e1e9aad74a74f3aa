//! Kernel routes with real packets: two network namespaces act as two nodes, connected by a veth pair, and the local cloud manages
//! their kernel routes. Needs root; otherwise the tests are reported as skipped.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod net;

use bowline_core::{Address, AddressType};
use bowline_local::{CloudOptions, LocalCloud, NewMachine, NewRoute, RouteOptions, RouteRecord};

use net::{Node, eventually, reach, two_nodes, until_reached};

const CLUSTER: &str = "packets";

fn open_cloud() -> LocalCloud {
    LocalCloud::open(CloudOptions { routes: RouteOptions { kernel: true }, ..CloudOptions::default() }).unwrap()
}

/// Machine of a node.
fn machine(id: &str, node: &Node) -> NewMachine {
    let addresses = node.addresses.iter().map(|ip| Address::new(AddressType::InternalIP, ip.to_string())).collect();
    let network_namespace = Some(node.namespace.path());
    NewMachine { id: id.to_owned(), name: id.to_owned(), addresses, network_namespace, ..NewMachine::default() }
}

/// Creates routes for all pod CIDRs of a node.
fn add_routes(cloud: &LocalCloud, id: &str, node: &Node) -> Vec<RouteRecord> {
    let route = |range: &String| NewRoute {
        name: String::new(),
        destination: range.parse().unwrap(),
        machine: id.to_owned(),
        addresses: None,
        stamped: true,
        cluster_uid: None,
    };
    node.ranges.iter().map(|range| cloud.add_route(CLUSTER, route(range)).unwrap()).collect()
}

fn none_of(node: &Node) -> Vec<bool> {
    vec![false; node.ranges.len()]
}

#[tokio::test]
async fn packets_arrive_while_the_table_has_routes() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    cloud.ready().await;
    assert_eq!((reach(&one, &two).await, reach(&two, &one).await), (none_of(&two), none_of(&one)));

    add_routes(&cloud, "one", &one);
    let to_two = add_routes(&cloud, "two", &two);
    until_reached(&one, &two).await;
    until_reached(&two, &one).await;
    assert_eq!(cloud.route_problems(), []);
    assert_eq!(one.namespace.routes_of_the_cloud().await, two.ranges, "a node has no routes to its own pod CIDRs");

    for route in to_two {
        cloud.remove_route(CLUSTER, &route.id).unwrap();
    }
    cloud.ready().await;
    assert_eq!(reach(&one, &two).await, none_of(&two));
    assert_eq!(one.namespace.routes_of_the_cloud().await, [""; 0]);
    assert_eq!(two.namespace.routes_of_the_cloud().await, one.ranges);
}

#[tokio::test]
async fn a_deleted_machine_is_unreachable_and_its_namespace_is_cleaned_up() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    add_routes(&cloud, "one", &one);
    add_routes(&cloud, "two", &two);
    until_reached(&one, &two).await;

    cloud.delete("two").unwrap();
    cloud.ready().await;
    assert_eq!(reach(&one, &two).await, none_of(&two));
    assert_eq!(one.namespace.routes_of_the_cloud().await, two.ranges, "the routes are blackholes");
    assert_eq!(two.namespace.routes_of_the_cloud().await, [""; 0]);
    assert_eq!(cloud.route_problems(), []);
}

#[tokio::test]
async fn routes_of_other_programs_are_kept_and_conflicts_are_reported() {
    let Some((one, two)) = two_nodes().await else { return };
    one.namespace.add_route("10.99.0.0/16", two.addresses[0]).await;
    one.namespace.add_route(&two.ranges[0], two.addresses[0]).await;
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    let routes = add_routes(&cloud, "two", &two);
    eventually("the conflict is reported", async || !cloud.route_problems().is_empty()).await;
    let problems = cloud.route_problems();
    assert_eq!(problems[0].destination, two.ranges[0].parse().ok(), "{problems:?}");
    assert!(problems[0].message.contains("another program"), "{problems:?}");

    for route in routes {
        cloud.remove_route(CLUSTER, &route.id).unwrap();
    }
    cloud.ready().await;
    assert_eq!(cloud.route_problems(), []);
    assert_eq!(one.namespace.routes_of_operators().await, [two.ranges[0].as_str(), "10.99.0.0/16"]);
    assert_eq!(one.namespace.routes_of_the_cloud().await, [""; 0]);
}

#[tokio::test]
async fn a_missing_namespace_is_reported_and_works_once_it_exists() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(NewMachine { network_namespace: Some("no-such-namespace".to_owned()), ..machine("one", &one) }).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    add_routes(&cloud, "one", &one);
    add_routes(&cloud, "two", &two);
    eventually("the problem is reported", async || !cloud.route_problems().is_empty()).await;
    let problem = cloud.route_problems()[0].to_string();
    assert!(problem.starts_with("network namespace \"no-such-namespace\": does not exist; create it"), "{problem}");

    cloud.change("one", |machine| machine.network_namespace = Some(one.namespace.path())).unwrap();
    until_reached(&one, &two).await;
    until_reached(&two, &one).await;
    eventually("the problem is resolved", async || cloud.route_problems().is_empty()).await;
}

#[tokio::test]
async fn a_restarted_cloud_removes_its_obsolete_routes() {
    let Some((one, two)) = two_nodes().await else { return };
    let before = open_cloud();
    before.add(machine("one", &one)).unwrap();
    before.add(machine("two", &two)).unwrap();
    add_routes(&before, "two", &two);
    until_reached(&one, &two).await;
    before.close(std::time::Duration::ZERO).await;

    // The records are lost, the kernel routes are not.
    let after = open_cloud();
    after.add(machine("one", &one)).unwrap();
    after.ready().await;
    assert_eq!(one.namespace.routes_of_the_cloud().await, [""; 0]);
    assert_eq!(reach(&one, &two).await, none_of(&two));
}

#[tokio::test]
async fn a_route_removed_by_an_operator_is_restored_with_the_next_change() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    add_routes(&cloud, "two", &two);
    until_reached(&one, &two).await;
    one.namespace.remove_routes_of_the_cloud().await;
    assert_eq!(reach(&one, &two).await, none_of(&two));

    add_routes(&cloud, "one", &one);
    until_reached(&one, &two).await;
}
