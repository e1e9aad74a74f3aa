//! Routes that carry packets: two network namespaces stand for two nodes, with a cable between them, and the local cloud keeps
//! the kernel's routes there. Needs root; where that is missing, it is said and counted.
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

/// The machine of a node.
fn machine(id: &str, node: &Node) -> NewMachine {
    let addresses = node.addresses.iter().map(|ip| Address::new(AddressType::InternalIP, ip.to_string())).collect();
    let network_namespace = Some(node.namespace.path());
    NewMachine { id: id.to_owned(), name: id.to_owned(), addresses, network_namespace, ..NewMachine::default() }
}

/// Leads all ranges of a node to its machine.
fn lead(cloud: &LocalCloud, id: &str, node: &Node) -> Vec<RouteRecord> {
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
async fn packets_arrive_while_there_are_routes_in_the_table() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    cloud.ready().await;
    assert_eq!((reach(&one, &two).await, reach(&two, &one).await), (none_of(&two), none_of(&one)));

    lead(&cloud, "one", &one);
    let to_two = lead(&cloud, "two", &two);
    until_reached(&one, &two).await;
    until_reached(&two, &one).await;
    assert_eq!(cloud.route_problems(), []);
    assert_eq!(one.namespace.routes_of_the_cloud().await, two.ranges, "a node's own ranges are not led away from it");

    for route in to_two {
        cloud.remove_route(CLUSTER, &route.id).unwrap();
    }
    cloud.ready().await;
    assert_eq!(reach(&one, &two).await, none_of(&two));
    assert_eq!(one.namespace.routes_of_the_cloud().await, [""; 0]);
    assert_eq!(two.namespace.routes_of_the_cloud().await, one.ranges);
}

#[tokio::test]
async fn a_machine_that_is_gone_is_reached_no_more_and_its_namespace_is_left_clean() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    lead(&cloud, "one", &one);
    lead(&cloud, "two", &two);
    until_reached(&one, &two).await;

    cloud.delete("two").unwrap();
    cloud.ready().await;
    assert_eq!(reach(&one, &two).await, none_of(&two));
    assert_eq!(one.namespace.routes_of_the_cloud().await, two.ranges, "blackholes stand where the routes were");
    assert_eq!(two.namespace.routes_of_the_cloud().await, [""; 0]);
    assert_eq!(cloud.route_problems(), []);
}

#[tokio::test]
async fn routes_that_others_made_stay_and_are_told_where_they_are_in_the_way() {
    let Some((one, two)) = two_nodes().await else { return };
    one.namespace.add_route("10.99.0.0/16", two.addresses[0]).await;
    one.namespace.add_route(&two.ranges[0], two.addresses[0]).await;
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    let routes = lead(&cloud, "two", &two);
    eventually("the one in the way is told", async || !cloud.route_problems().is_empty()).await;
    let problems = cloud.route_problems();
    assert_eq!(problems[0].destination, two.ranges[0].parse().ok(), "{problems:?}");
    assert!(problems[0].message.contains("not the cloud's"), "{problems:?}");

    for route in routes {
        cloud.remove_route(CLUSTER, &route.id).unwrap();
    }
    cloud.ready().await;
    assert_eq!(cloud.route_problems(), []);
    assert_eq!(one.namespace.routes_of_operators().await, [two.ranges[0].as_str(), "10.99.0.0/16"]);
    assert_eq!(one.namespace.routes_of_the_cloud().await, [""; 0]);
}

#[tokio::test]
async fn a_namespace_that_is_missing_is_told_and_works_once_it_is_there() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(NewMachine { network_namespace: Some("no-such-namespace".to_owned()), ..machine("one", &one) }).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    lead(&cloud, "one", &one);
    lead(&cloud, "two", &two);
    eventually("it is told", async || !cloud.route_problems().is_empty()).await;
    let told = cloud.route_problems()[0].to_string();
    assert!(told.starts_with("the network namespace \"no-such-namespace\": there is none; make it"), "{told}");

    cloud.change("one", |machine| machine.network_namespace = Some(one.namespace.path())).unwrap();
    until_reached(&one, &two).await;
    until_reached(&two, &one).await;
    eventually("it is no longer told", async || cloud.route_problems().is_empty()).await;
}

#[tokio::test]
async fn a_cloud_that_starts_again_finds_its_routes_and_removes_the_old_ones() {
    let Some((one, two)) = two_nodes().await else { return };
    let before = open_cloud();
    before.add(machine("one", &one)).unwrap();
    before.add(machine("two", &two)).unwrap();
    lead(&before, "two", &two);
    until_reached(&one, &two).await;
    before.close(std::time::Duration::ZERO).await;

    // Its records are lost, its routes are not.
    let after = open_cloud();
    after.add(machine("one", &one)).unwrap();
    after.ready().await;
    assert_eq!(one.namespace.routes_of_the_cloud().await, [""; 0]);
    assert_eq!(reach(&one, &two).await, none_of(&two));
}

#[tokio::test]
async fn a_route_that_somebody_removed_comes_back_with_the_next_change() {
    let Some((one, two)) = two_nodes().await else { return };
    let cloud = open_cloud();
    cloud.add(machine("one", &one)).unwrap();
    cloud.add(machine("two", &two)).unwrap();
    lead(&cloud, "two", &two);
    until_reached(&one, &two).await;
    one.namespace.remove_routes_of_the_cloud().await;
    assert_eq!(reach(&one, &two).await, none_of(&two));

    lead(&cloud, "one", &one);
    until_reached(&one, &two).await;
}
