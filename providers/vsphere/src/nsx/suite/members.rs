//! Members of server pools: addresses of Nodes with several ones.

use bowline_core::testing::addresses;
use bowline_core::{IpFamily, Service, TargetNode};
use serde_json::{Value, json};

use super::takeover::put_web;
use super::world::{World, node, texts, web};

fn node_with(name: &str, text: &str) -> TargetNode {
    TargetNode { addresses: addresses(text), ..node(name, "192.0.2.1") }
}

fn dual_stack() -> Service {
    Service { ip_families: vec![IpFamily::IPv6, IpFamily::IPv4], ..web() }
}

fn member_addresses(world: &World) -> Vec<String> {
    let pool = world.only("lb-pools");
    let members = pool.get("members").and_then(Value::as_array).cloned().unwrap_or_default();
    members.iter().map(|member| member["ip_address"].as_str().unwrap().to_owned()).collect()
}

/// VS-106, VS-110
#[tokio::test(start_paused = true)]
async fn members_have_the_family_of_the_address_and_not_that_of_the_service() {
    let mut world = World::new();
    put_web(&world.cloud, "vips", "default");
    world.cloud.edit("/infra/lb-pools/0d", |pool| pool["members"][0]["weight"] = json!(7));
    world.nodes = vec![
        node_with("node-1", "I10.1.0.1 Ifd00::1"),
        node_with("node-2", "Ifd00::2 I10.1.0.2"),
        node_with("v6", "Ifd00::3"),
    ];
    assert_eq!(world.synced(&dual_stack()).await, "10.0.8.1");
    assert_eq!(world.writes(), [""; 0], "taken over without a write");
    assert_eq!(member_addresses(&world), ["10.1.0.2", "10.1.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn an_ipv6_pool_gives_ipv6_members() {
    let mut world = World::new();
    world.cloud.add_ip_pool("vips", "fd00::8:1-fd00::8:9");
    world.nodes = vec![node_with("node-1", "I10.1.0.1 Ifd00::1"), node_with("node-2", "I10.1.0.2 Ifd00::2")];
    assert_eq!(world.synced(&dual_stack()).await, "fd00::8:1");
    assert_eq!(member_addresses(&world), ["fd00::1", "fd00::2"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_with_another_internal_address_of_its_node_is_kept() {
    let mut world = World::new();
    put_web(&world.cloud, "vips", "default");
    world.nodes = vec![node_with("node-1", "I10.2.0.1 I10.1.0.1"), node_with("node-2", "I10.1.0.2")];
    world.synced(&web()).await;
    assert_eq!(world.writes(), [""; 0]);
    world.nodes[0] = node_with("node-1", "I10.2.0.1");
    world.synced(&web()).await;
    assert_eq!(member_addresses(&world), ["10.1.0.2", "10.2.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_two_nodes_report_is_a_member_once() {
    let mut world = World::new();
    world.nodes = vec![node("node-1", "10.1.0.1"), node("node-2", "10.1.0.1"), node("node-3", "10.1.0.3")];
    world.synced(&web()).await;
    assert_eq!(member_addresses(&world), ["10.1.0.1", "10.1.0.3"]);
    assert!(world.plan(&web()).await.unwrap().is_empty());
    assert_eq!(texts(&world.only("lb-virtual-servers")["ports"]), ["80"]);
}
