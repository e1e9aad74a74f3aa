//! Packets from a pod of one node to a pod of another, through routes of the kernel. On real time, in two connected network
//! namespaces; needs root, and is skipped with a message otherwise.

// The provider's own tests use the same two nodes.
#[path = "../../../../providers/local/tests/packets/net.rs"]
mod net;

use bowline_controllers::route::Options;
use bowline_core::{Address, AddressType};
use bowline_local::{CloudOptions, LocalCloud, NewMachine, RouteOptions};

use self::net::{Node, eventually, reach, two_nodes, until_reached};
use crate::world::{World, machine};

/// World with the route controller alone, on a cloud that writes routes to the kernel.
async fn world_with_nodes(nodes: [(&str, &Node); 2]) -> World {
    let mut world = World::new().await;
    let options = CloudOptions { routes: RouteOptions { kernel: true }, ..CloudOptions::default() };
    world.clouds[0].1 = LocalCloud::open(options).unwrap();
    world.route_only();
    let ranges = ["10.244.0.0/16", "fd00:244::/32"].map(|range| range.parse().unwrap());
    world.options.route = Some(Options::new("kubernetes".into(), ranges.to_vec()));
    for (name, node) in nodes {
        world.cloud().add(machine_of(name, node)).unwrap();
        let ranges: Vec<_> = node.ranges.iter().map(String::as_str).collect();
        world.join_with_cidrs(name, &ranges).await;
    }
    world
}

fn machine_of(name: &str, node: &Node) -> NewMachine {
    let addresses = node.addresses.iter().map(|ip| Address::new(AddressType::InternalIP, ip.to_string())).collect();
    NewMachine {
        addresses,
        network_namespace: Some(node.namespace.path()),
        ..machine(name, &format!("id-{name}"), &[])
    }
}

fn none_of(node: &Node) -> Vec<bool> {
    vec![false; node.ranges.len()]
}

#[tokio::test]
async fn packets_reach_a_pod_while_its_node_exists_and_has_routes() {
    let Some((one, two)) = two_nodes().await else { return };
    let mut world = world_with_nodes([("one", &one), ("two", &two)]).await;
    world.cloud().ready().await;
    assert_eq!((reach(&one, &two).await, reach(&two, &one).await), (none_of(&two), none_of(&one)));

    world.start();
    until_reached(&one, &two).await;
    until_reached(&two, &one).await;
    world.wait_until_reachable("one").await;
    world.wait_until_reachable("two").await;
    assert_eq!(world.cloud().route_problems(), []);

    world.delete("two").await;
    eventually("the node's routes are gone", async || one.namespace.routes_of_the_cloud().await.is_empty()).await;
    assert_eq!(reach(&one, &two).await, none_of(&two));
    assert_eq!(two.namespace.routes_of_the_cloud().await, one.ranges, "routes to the other node stay");
    world.stop().await;
}
