//! Numbers of calls.

use std::collections::BTreeMap;

use bowline_cloud::Instances as _;
use bowline_core::InstanceRef;
use bowline_vsphere_simulator::vcenter::Machine;

use crate::world::{World, by_id, by_name, by_uuid};

const LABELS: &str = "[Labels]\nregion = k8s-region\nzone = k8s-zone\n";

/// A world with this many Nodes in one zone, and their machines.
fn large(count: usize, config: &str) -> (World, Vec<InstanceRef>) {
    let world = World::with(&format!("{config}{LABELS}"));
    let tag = |category, tag, kind, name| {
        let object = world.vcenter().find(kind, name).unwrap();
        world.vcenter().tag(category, tag, &object);
    };
    tag("k8s-region", "r1", "Datacenter", "DC0");
    tag("k8s-zone", "z1", "ClusterComputeResource", "DC0_C0");
    let mut nodes = Vec::with_capacity(count);
    for number in 0..count {
        let uuid = format!("00000000-0000-0000-0000-{number:012}");
        let address = format!("10.20.{}.{}", number / 250, number % 250 + 1);
        let machine = Machine { uuid: uuid.clone(), ..Machine::named(&format!("worker-{number}"), &address) };
        world.vcenter().add_machine(machine).unwrap();
        nodes.push(match number % 2 {
            0 => by_id(&format!("vsphere://{uuid}")),
            _ => by_uuid(&format!("worker-{number}"), &uuid),
        });
    }
    (world, nodes)
}

/// Finds all machines, and returns the calls.
async fn calls(world: &World, nodes: &[InstanceRef]) -> BTreeMap<String, u64> {
    world.vcenter().forget_calls();
    for state in world.provider.find(nodes).await {
        assert_eq!(state.unwrap().instance().unwrap().zone, "z1");
    }
    world.vcenter().counts()
}

fn total(calls: &BTreeMap<String, u64>) -> u64 {
    calls.values().sum()
}

/// VS-94
#[tokio::test]
async fn a_thousand_nodes_need_ten_calls_with_login_and_zones_and_then_two() {
    for config in ["", "datacenters = DC0\n"] {
        let (world, nodes) = large(1000, config);
        let first = calls(&world, &nodes).await;
        assert!(total(&first) <= 10, "{first:?}");
        let next = calls(&world, &nodes).await;
        assert_eq!(total(&next), 2, "{next:?}");
    }
}

#[tokio::test]
async fn the_calls_for_five_thousand_nodes_grow_with_the_pages() {
    let (world, nodes) = large(5000, "");
    let first = calls(&world, &nodes).await;
    // Two further pages of 2,000.
    assert!(total(&first) <= 12, "{first:?}");
    let next = calls(&world, &nodes).await;
    // One read for each thousand, and the tags.
    assert_eq!(total(&next), 6, "{next:?}");
}

#[tokio::test]
async fn one_node_after_another_uses_the_listing_of_the_first_batch() {
    let (world, nodes) = large(100, "");
    calls(&world, &nodes[..10]).await;
    for node in &nodes[10..20] {
        assert_eq!(total(&calls(&world, std::slice::from_ref(node)).await), 2, "read, tags");
    }
}

#[tokio::test]
async fn a_new_node_needs_no_listing_whatever_the_byte_order_and_the_number_of_datacenters() {
    let new = "01020304-0506-0708-0000-0000000000ff";
    let as_kubelet = "04030201-0605-0807-0000-0000000000ff";
    for (config, folders) in [("", 0), ("datacenters = \"DC0, F0/DC1\"\n", 1)] {
        for node in [by_id(&format!("vsphere://{new}")), by_uuid("new", as_kubelet)] {
            let (world, nodes) = large(3, config);
            let other = Machine { host: "DC1_C0_H0".to_owned(), ..Machine::named("other", "10.20.9.8") };
            world.vcenter().add_machine(other).unwrap();
            calls(&world, &nodes).await;
            let machine = Machine { uuid: new.to_owned(), ..Machine::named("new", "10.20.9.9") };
            world.vcenter().add_machine(machine).unwrap();
            let calls = calls(&world, std::slice::from_ref(&node)).await;
            assert_eq!(calls["POST FindAllByUuid"], 1, "{node:?}");
            assert_eq!(total(&calls), 3 + folders, "search, folders, read, tags: {calls:?}");
        }
    }
}

#[tokio::test]
async fn more_new_nodes_than_a_few_are_listed() {
    let (world, nodes) = large(40, "");
    calls(&world, &nodes[..10]).await;
    let mut new = Vec::new();
    for number in 100..110 {
        let machine = Machine::named(&format!("new-{number}"), &format!("10.20.8.{number}"));
        world.vcenter().add_machine(machine).unwrap();
        new.push(world.id_of(&format!("new-{number}")));
    }
    let calls = calls(&world, &new).await;
    assert_eq!(calls.get("POST FindAllByUuid"), None);
    assert_eq!(total(&calls), 3, "listing, read, tags: {calls:?}");
}

#[tokio::test]
async fn nodes_that_are_named_after_addresses_are_searched_by_address_only_if_no_listing_has_them() {
    let (world, nodes) = large(500, "");
    let by_address = |number: usize| format!("10.20.{}.{}", number / 250, number % 250 + 1);
    let with_uuid: Vec<_> =
        (0..300).map(|number| by_uuid(&by_address(number), &format!("00000000-0000-0000-0000-{number:012}"))).collect();
    let found = calls(&world, &with_uuid).await;
    assert_eq!(found.get("POST FindAllByIp"), None, "{found:?}");
    drop(nodes);
    let without: Vec<_> = (300..310).map(|number| by_name(&by_address(number))).collect();
    let found = calls(&world, &without).await;
    assert_eq!(found["POST FindAllByIp"], 10, "{found:?}");
    let too_many: Vec<_> = (300..450).map(|number| by_name(&by_address(number))).collect();
    world.vcenter().forget_calls();
    let states = world.provider.find(&too_many).await;
    assert_eq!(world.vcenter().counts()["POST FindAllByIp"], 100);
    assert_eq!(states.iter().filter(|state| state.is_ok()).count(), 100);
    assert!(states[149].as_ref().unwrap_err().message().contains("more than 100 Nodes"), "{states:?}");
}

#[tokio::test]
async fn many_deleted_machines_cost_two_reads_and_a_listing() {
    let (world, nodes) = large(1000, "");
    calls(&world, &nodes).await;
    (0..8).for_each(|number| _ = world.vcenter().delete_machine(&format!("worker-{number}")));
    world.vcenter().forget_calls();
    let states = world.provider.find(&nodes).await;
    let gone = states.iter().filter(|state| matches!(state, Ok(bowline_core::InstanceState::Gone)));
    assert_eq!((gone.count(), states.iter().filter(|state| state.is_ok()).count()), (8, 1000));
    let counts = world.vcenter().counts();
    assert_eq!((counts["POST RetrievePropertiesEx"], total(&counts)), (3, 4), "reads, a listing, tags: {counts:?}");
}

#[tokio::test]
async fn lookups_that_begin_together_need_one_listing() {
    let (world, nodes) = large(400, "");
    world.vcenter().forget_calls();
    let lookups = nodes.chunks(100).map(|chunk| world.provider.find(chunk));
    for states in futures::future::join_all(lookups).await {
        assert!(states.into_iter().all(|state| state.is_ok()));
    }
    let counts = world.vcenter().counts();
    assert_eq!(counts["POST CreateContainerView"], 1);
    assert_eq!(counts["POST RetrievePropertiesEx"], 4, "a listing, and three reads");
    assert!(total(&counts) <= 16, "{counts:?}");
}
