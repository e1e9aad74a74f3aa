//! Labels, the status loop, provided node IPs (L1 to L3, A1 to A8, P10).

use std::time::Duration;

use bowline_core::testing::address;
use bowline_core::{AddressPolicy, AddressType};
use bowline_local::NewMachine;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::world::{UNINITIALIZED, World, addresses, has_taint, label, machine, version};

/// Longer than a status period.
const A_PERIOD: Duration = Duration::from_secs(400);

#[tokio::test(start_paused = true)]
async fn l1_l2_deprecated_labels_are_mirrored_to_their_successors() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    let old = json!({"metadata": {"labels": {
        "failure-domain.beta.kubernetes.io/zone": "foo",
        "failure-domain.beta.kubernetes.io/region": "bar",
        "topology.kubernetes.io/region": "something else",
        "beta.kubernetes.io/instance-type": "the-best-type",
    }}, "spec": {"taints": null}});
    let mut old = old;
    old["metadata"]["labels"]["topology.kubernetes.io/region"] = json!("something-else");
    world.register_with("node0", old).await;
    world.start();
    let node = world
        .eventually("labels are mirrored", async || {
            let node = world.node("node0").await;
            (label(&node, "topology.kubernetes.io/region").as_deref() == Some("bar")).then_some(node)
        })
        .await;
    assert_eq!(label(&node, "topology.kubernetes.io/zone").as_deref(), Some("foo"));
    assert_eq!(label(&node, "node.kubernetes.io/instance-type").as_deref(), Some("the-best-type"));
    assert_eq!(world.cloud_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn l3_labels_without_a_deprecated_counterpart_are_unchanged() {
    let mut world = World::new().await;
    let new = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "foo"}}, "spec": {"taints": null}});
    let before = world.register_with("node0", new).await;
    world.start();
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(version(&world.node("node0").await), version(&before));
}

#[tokio::test(start_paused = true)]
async fn a1_a8_unchanged_addresses_are_not_written() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "i-0", &["I10.0.0.1"])).unwrap();
    world.cloud().add(machine("node1", "i-1", &["I10.0.0.2"])).unwrap();
    world.register("node0").await;
    world.register("node1").await;
    world.start();
    world.wait_until_initialized("node0").await;
    world.wait_until_initialized("node1").await;
    world.set_ready("node0", "True").await;
    let node1 = world.set_ready("node1", "True").await;
    // A cloud that no longer returns addresses changes nothing (A8).
    world.cloud().change("i-1", |machine| machine.addresses.clear()).unwrap();
    let writes = world.node_writes();
    world.sleep(A_PERIOD * 3).await;
    assert_eq!(world.node_writes(), writes);
    assert_eq!(addresses(&world.node("node1").await), addresses(&node1));
}

/// The API server stores addresses of one type together, and rejects duplicates.
#[tokio::test(start_paused = true)]
async fn an_unordered_address_list_with_duplicates_is_written_once() {
    let mut world = World::new().await;
    let unordered = ["E1.1.1.1", "I10.0.0.1", "Ifd00::1", "E1.1.1.2", "I10.0.0.1"];
    world.cloud().add(machine("node0", "i-0", &unordered)).unwrap();
    world.register("node0").await;
    world.start();
    world.wait_until_initialized("node0").await;
    world.sleep(A_PERIOD * 3).await;
    let stored =
        ["ExternalIP 1.1.1.1", "ExternalIP 1.1.1.2", "InternalIP 10.0.0.1", "InternalIP fd00::1", "Hostname node0"];
    assert_eq!(addresses(&world.node("node0").await), stored);
    // The kubelet's write, and ours.
    assert_eq!((world.node_writes().get("patch status"), world.response_count("patch", "nodes", 422)), (Some(&2), 0));
}

#[tokio::test(start_paused = true)]
async fn a2_a3_a4_a_changed_address_and_a_changed_order_are_written() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "i-0", &["I10.0.0.1", "E8.8.8.8"])).unwrap();
    world.register("node0").await;
    world.start();
    world.wait_until_initialized("node0").await;
    let (internal, external) = ("InternalIP 10.0.0.1", "ExternalIP 9.9.9.9");
    let steps = [
        // A2: another address.
        (&["I10.0.0.1", "E9.9.9.9"][..], [internal, external, "Hostname node0"]),
        // The same addresses in another order.
        (&["E9.9.9.9", "I10.0.0.1"], [external, internal, "Hostname node0"]),
        // A4: a hostname of the cloud.
        (&["E9.9.9.9", "I10.0.0.1", "Hcloud"], [external, internal, "Hostname cloud"]),
        // A3: the cloud no longer has a hostname, and the Node keeps its own.
        (&["I10.0.0.1", "E9.9.9.9"], [internal, external, "Hostname cloud"]),
    ];
    for (cloud_addresses, expected) in steps {
        let wanted = machine("node0", "i-0", cloud_addresses).addresses;
        world.cloud().change("i-0", |machine| machine.addresses = wanted).unwrap();
        world
            .eventually("the addresses follow", async || {
                (addresses(&world.node("node0").await) == expected).then_some(())
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a5_the_address_sync_skips_uninitialised_nodes() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    // No cloud knows its machine, so that the Node stays uninitialised.
    world.register_with("node0", json!({"spec": {"providerID": "elsewhere://1"}})).await;
    world.start();
    world.sleep(A_PERIOD * 2).await;
    assert!(has_taint(&world.node("node0").await, UNINITIALIZED));
    assert_eq!(world.cloud_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a6_one_sync_of_a_hundred_nodes_is_one_call() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    for index in 0..100 {
        world.cloud().add(machine(&format!("node{index}"), &format!("i-{index}"), &["I10.0.0.1"])).unwrap();
        let node = json!({"spec": {"taints": null, "providerID": format!("local://i-{index}")}});
        world.register_with(&format!("node{index}"), node).await;
    }
    world.start();
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(world.cloud_calls(), 1);
    assert_eq!(addresses(&world.node("node99").await), ["InternalIP 10.0.0.1", "Hostname node99"]);
}

#[tokio::test(start_paused = true)]
async fn a7_one_failing_lookup_does_not_block_other_nodes() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    world.clouds[0].0.batch_lookup = 1;
    world.clouds[0].0.listing = false;
    world.calls.max_attempts = 1;
    for index in 0..3 {
        world.cloud().add(machine(&format!("node{index}"), &format!("i-{index}"), &["I10.0.0.1"])).unwrap();
        let node = json!({"spec": {"taints": null, "providerID": format!("local://i-{index}")}});
        world.register_with(&format!("node{index}"), node).await;
    }
    let mut once = bowline_local::FaultSpec::always(bowline_local::Fault::Failing(500));
    once.times = Some(1);
    world.cloud().inject(once);
    world.start();
    world.sleep(Duration::from_secs(60)).await;
    let mut updated = 0;
    for index in 0..3 {
        updated += usize::from(addresses(&world.node(&format!("node{index}")).await).len() == 2);
    }
    assert_eq!(updated, 2);
}

#[tokio::test(start_paused = true)]
async fn p10_internal_addresses_are_exactly_the_provided_ones() {
    let cloud_addresses =
        ["Hname", "I192.168.0.1", "I172.16.0.1", "Ifd00:1:2:3:4::", "I2001:db2::1", "I10.9.9.9", "E8.8.8.8"];
    for (annotation, expected) in [
        ("192.168.0.1", &["192.168.0.1"][..]),
        ("2001:db2::1", &["2001:db2::1"]),
        ("2001:db2::1,172.16.0.1", &["2001:db2::1", "172.16.0.1"]),
        ("192.168.0.1,fd00:1:2:3:4::", &["192.168.0.1", "fd00:1:2:3:4::"]),
    ] {
        let mut world = World::new().await;
        world.cloud().add(machine("node0", "i-0", &cloud_addresses)).unwrap();
        let provided = json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": annotation}}});
        world.register_with("node0", provided).await;
        world.start();
        let node = world.wait_until_initialized("node0").await;
        let internal: Vec<_> =
            addresses(&node).iter().filter_map(|text| text.strip_prefix("InternalIP ").map(str::to_owned)).collect();
        assert_eq!(internal, expected, "{annotation}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn annotations_of_the_cloud_are_written_at_initialisation_and_kept_up_to_date() {
    let mut world = World::new().await;
    let mut known = machine("node0", "i-0", &["I10.0.0.1"]);
    let annotations =
        [("example.com/serial", "s1"), ("example.com/taken", "cloud"), ("bowline.dev/allow-deletion", "true")];
    known.annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    world.cloud().add(known).unwrap();
    let theirs = json!({"metadata": {"annotations": {"example.com/taken": "user", "example.com/other": "x"}}});
    world.register_with("node0", theirs).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    let annotations = |node: &Node| node.metadata.annotations.clone().unwrap_or_default();
    let written = [("example.com/other", "x"), ("example.com/serial", "s1"), ("example.com/taken", "cloud")];
    assert_eq!(annotations(&node), written.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    // A changed value is written; a key that the cloud no longer has stays.
    world
        .cloud()
        .change("i-0", |machine| drop(machine.annotations.insert("example.com/serial".into(), "s2".into())))
        .unwrap();
    world.cloud().change("i-0", |machine| drop(machine.annotations.remove("example.com/taken"))).unwrap();
    world.sleep(A_PERIOD).await;
    let node = world.node("node0").await;
    let written = [("example.com/other", "x"), ("example.com/serial", "s2"), ("example.com/taken", "cloud")];
    assert_eq!(annotations(&node), written.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    world.sleep(A_PERIOD).await;
    assert_eq!(version(&world.node("node0").await), version(&node), "nothing is written while nothing changes");
}

#[tokio::test(start_paused = true)]
async fn labels_follow_a_resized_machine_only_if_enabled() {
    const TYPE: &str = "node.kubernetes.io/instance-type";
    for (refresh, expected) in [(false, "small"), (true, "large")] {
        let mut world = World::new().await;
        world.options.node.as_mut().unwrap().refresh_labels = refresh;
        let small = machine("node0", "i-1", &["I10.0.0.1"]);
        world.cloud().add(NewMachine { instance_type: "small".to_owned(), ..small }).unwrap();
        world.register("node0").await;
        world.start();
        let node = world.wait_until_initialized("node0").await;
        assert_eq!(label(&node, TYPE).as_deref(), Some("small"));
        world.cloud().change("i-1", |machine| machine.instance_type = "large".to_owned()).unwrap();
        world.sleep(A_PERIOD).await;
        let node = world.node("node0").await;
        for key in [TYPE, "beta.kubernetes.io/instance-type"] {
            assert_eq!(label(&node, key).as_deref(), Some(expected), "{refresh} {key}");
        }
        let before = version(&node);
        world.sleep(A_PERIOD).await;
        assert_eq!(version(&world.node("node0").await), before, "nothing more to write");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_selects_and_orders_the_addresses_of_any_provider() {
    let mut world = World::new().await;
    world.options.node.as_mut().unwrap().addresses = AddressPolicy {
        order: vec![AddressType::InternalIP],
        networks: ["192.168.0.0/16", "10.0.0.0/8"].map(|network| network.parse().unwrap()).into(),
    };
    world.cloud().add(machine("node0", "i-1", &["E203.0.113.1", "Hnode0", "I10.0.0.1", "I192.168.0.1"])).unwrap();
    world.cloud().add(machine("node1", "i-2", &["E203.0.113.2", "Hnode1"])).unwrap();
    world.register("node0").await;
    world.register("node1").await;
    world.start();
    let selected = ["InternalIP 192.168.0.1", "InternalIP 10.0.0.1", "Hostname node0"];
    assert_eq!(addresses(&world.wait_until_initialized("node0").await), selected);
    let all = ["ExternalIP 203.0.113.2", "Hostname node1"];
    assert_eq!(addresses(&world.wait_until_initialized("node1").await), all, "no address is in the networks");
    world.cloud().change("i-1", |machine| machine.addresses.push(address("I192.168.0.2"))).unwrap();
    world.sleep(A_PERIOD).await;
    let selected = ["InternalIP 192.168.0.1", "InternalIP 192.168.0.2", "InternalIP 10.0.0.1", "Hostname node0"];
    assert_eq!(addresses(&world.node("node0").await), selected);
}
