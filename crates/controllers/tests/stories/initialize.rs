//! Initialisation of Nodes (N1 to N23).

use std::time::Duration;

use serde_json::json;

use crate::test_providers::{Declining, WithProviderId, Wrapped};
use crate::world::{UNINITIALIZED, World, Wrap, addresses, has_taint, label, machine, provider_id, taints, version};

const BETA_TYPE: &str = "beta.kubernetes.io/instance-type";
const GA_TYPE: &str = "node.kubernetes.io/instance-type";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const GA_ZONE: &str = "topology.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const GA_REGION: &str = "topology.kubernetes.io/region";

/// Hostname address of the kubelet.
fn hostname(name: &str) -> serde_json::Value {
    json!({"status": {"addresses": [{"type": "Hostname", "address": name}]}})
}

fn provided_ip(value: &str) -> serde_json::Value {
    json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": value}}})
}

#[tokio::test(start_paused = true)]
async fn n01_the_cloud_provides_the_metadata_and_its_hostname_wins() {
    let mut world = World::with_prefixes(&["fake"]).await;
    let cloud_addresses = ["Hnode0.cloud.internal", "I10.0.0.1", "E132.143.154.163"];
    world.cloud().add(machine("node0", "12345", &cloud_addresses)).unwrap();
    world.register_with("node0", hostname("nodeoverriden")).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!(provider_id(&node).as_deref(), Some("fake://12345"));
    assert_eq!(
        addresses(&node),
        ["Hostname node0.cloud.internal", "InternalIP 10.0.0.1", "ExternalIP 132.143.154.163"]
    );
    assert!(taints(&node).is_empty());
}

#[tokio::test(start_paused = true)]
async fn n02_the_hostname_of_the_kubelet_comes_last_if_the_cloud_has_none() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1", "E132.143.154.163"])).unwrap();
    world.register_with("node0", hostname("nodeoverriden")).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!(addresses(&node), ["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname nodeoverriden"]);
}

#[tokio::test(start_paused = true)]
async fn n03_a_machine_without_a_type_sets_no_type_labels() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    world.register("node0").await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!((label(&node, BETA_TYPE), label(&node, GA_TYPE)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn n04_a_node_without_the_taint_is_unchanged() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    let mut known = machine("node0", "12345", &["I10.0.0.1"]);
    known.zone = "a".to_owned();
    world.cloud().add(known).unwrap();
    let before = world.register_with("node0", json!({"spec": {"taints": null}})).await;
    world.start();
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(version(&world.node("node0").await), version(&before));
    assert_eq!(world.cloud_calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn n05_zone_and_region_have_two_labels_each() {
    let mut world = World::with_prefixes(&["aws"]).await;
    let mut known = machine("node0", "12345", &[]);
    (known.zone, known.region) = ("us-west-1a".to_owned(), "us-west".to_owned());
    world.cloud().add(known).unwrap();
    world.register("node0").await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!(provider_id(&node).as_deref(), Some("aws://12345"));
    for key in [BETA_ZONE, GA_ZONE] {
        assert_eq!(label(&node, key).as_deref(), Some("us-west-1a"), "{key}");
    }
    for key in [BETA_REGION, GA_REGION] {
        assert_eq!(label(&node, key).as_deref(), Some("us-west"), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn n06_other_taints_stay() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &[])).unwrap();
    let mine = json!([
        {"key": "ImproveCoverageTaint", "value": "true", "effect": "NoSchedule"},
        {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
        {"key": "another", "effect": "NoExecute"},
    ]);
    world.register_with("node0", json!({"spec": {"taints": mine}})).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    let left: Vec<_> = taints(&node).into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, ["ImproveCoverageTaint", "another"]);
}

#[tokio::test(start_paused = true)]
async fn n07_a_node_that_its_provider_declines_is_unchanged() {
    let mut world = World::new().await;
    world.wrap = Box::new(|inner| Wrapped::instances(inner, Declining));
    let mut changes = provided_ip("10.0.0.1");
    changes["spec"] = json!({"providerID": "local://i-1"});
    let before = world.register_with("node0", changes).await;
    world.start();
    world.sleep(Duration::from_secs(120)).await;
    let node = world.node("node0").await;
    assert_eq!(version(&node), version(&before));
    assert!(has_taint(&node, UNINITIALIZED));
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn n08_the_provided_node_ip_comes_first() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1", "E132.143.154.163"])).unwrap();
    world.register_with("node0", provided_ip("10.0.0.1")).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!(addresses(&node), ["InternalIP 10.0.0.1", "ExternalIP 132.143.154.163", "Hostname node0"]);
}

#[tokio::test(start_paused = true)]
async fn n09_n22_an_unknown_provided_node_ip_keeps_the_taint() {
    for (value, cloud_addresses) in [("invalid-ip", &["I10.0.0.1"][..]), ("10.0.0.1", &[])] {
        let mut world = World::new().await;
        world.cloud().add(machine("node0", "12345", cloud_addresses)).unwrap();
        let before = world.register_with("node0", provided_ip(value)).await;
        world.start();
        let event = world.eventually("the Event", async || world.event("node0", "InitializationFailed").await).await;
        assert!(event.message.unwrap().contains("provided node ip for node \"node0\" is not valid"), "{value}");
        assert_eq!(version(&world.node("node0").await), version(&before), "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn ev1_the_event_has_the_resource_version_before_the_write() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    let before = world.register("node0").await;
    world.start();
    let event = world.eventually("the event", async || world.event("node0", "Synced").await).await;
    assert_eq!(event.involved_object.resource_version, Some(version(&before)));
}

#[tokio::test(start_paused = true)]
async fn n10_an_existing_provider_id_is_kept() {
    let mut world = World::new().await;
    world.cloud().add(machine("another-name", "test-provider-id", &["I10.0.0.1"])).unwrap();
    world.register_with("node0", json!({"spec": {"providerID": "local://test-provider-id"}})).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!(provider_id(&node).as_deref(), Some("local://test-provider-id"));
}

#[tokio::test(start_paused = true)]
async fn n11_m2_m4_without_any_provider_id_the_taint_stays() {
    // upstream: its older interface may not support IDs, and then the node is initialised without one,
    // forever. There is one interface here, with the rule of the newer one (NODE-9).
    let mut world = World::new().await;
    world.wrap = Box::new(|inner| WithProviderId::wrap(inner, None));
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    world.register("node0").await;
    world.start();
    let event = world.eventually("the Event", async || world.event("node0", "InitializationFailed").await).await;
    assert_eq!(event.message.as_deref(), Some("cloud provider does not set node provider ID for node node0"));
    assert!(has_taint(&world.node("node0").await, UNINITIALIZED));
}

#[tokio::test(start_paused = true)]
async fn m1_m3_n10_the_provider_id_of_the_node_precedes_that_of_the_cloud() {
    let wraps: [Wrap; 3] = [
        Box::new(|inner| inner),
        Box::new(|inner| WithProviderId::wrap(inner, None)),
        Box::new(|inner| WithProviderId::wrap(inner, Some("local://another"))),
    ];
    for wrap in wraps {
        let mut world = World::new().await;
        world.options.node_lifecycle = None;
        world.wrap = wrap;
        world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
        world.register_with("node0", json!({"spec": {"providerID": "local://12345"}})).await;
        world.start();
        assert_eq!(provider_id(&world.wait_until_initialized("node0").await).as_deref(), Some("local://12345"));
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn n12_n16_a_failing_cloud_leaves_the_node_unchanged_until_it_recovers() {
    for fault in [
        bowline_local::Fault::Failing(500),
        bowline_local::Fault::Failing(401),
        bowline_local::Fault::Failing(403),
        bowline_local::Fault::Throttled(Some(Duration::from_secs(7))),
        bowline_local::Fault::Throttled(None),
        bowline_local::Fault::Hanging,
        bowline_local::Fault::Garbled,
        bowline_local::Fault::Empty,
    ] {
        let mut world = World::new().await;
        world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
        world.cloud().inject(bowline_local::FaultSpec::always(fault.clone()));
        let id = json!({"spec": {"providerID": "local://12345"}});
        let before = world.register_with("node0", id).await;
        world.start();
        world.eventually("the Event", async || world.event("node0", "CloudUnavailable").await).await;
        world.sleep(Duration::from_secs(300)).await;
        assert_eq!(version(&world.node("node0").await), version(&before), "{fault:?}");
        let events = world.events().await.len();
        assert_eq!(events, 1, "one Event per cause: {fault:?}");
        world.cloud().repair_all();
        world.wait_until_initialized("node0").await;
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_delay_of_a_day_is_limited_to_five_minutes() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    let day = bowline_local::Fault::Throttled(Some(Duration::from_secs(24 * 3600)));
    world.cloud().inject(bowline_local::FaultSpec::always(day).times(1));
    world.register("node0").await;
    world.start();
    world.eventually("the Event", async || world.event("node0", "CloudUnavailable").await).await;
    world.sleep(Duration::from_secs(290)).await;
    assert!(has_taint(&world.node("node0").await, UNINITIALIZED));
    world.sleep(Duration::from_secs(20)).await;
    assert!(!has_taint(&world.node("node0").await, UNINITIALIZED));
}

#[tokio::test(start_paused = true)]
async fn a_change_that_the_api_server_rejects_is_reported_once() {
    let mut world = World::new().await;
    let mut odd = machine("node0", "12345", &["I10.0.0.1"]);
    odd.zone = "quay one".to_owned();
    world.cloud().add(odd).unwrap();
    let before = world.register("node0").await;
    world.start();
    let event = world.eventually("the Event", async || world.event("node0", "InitializationFailed").await).await;
    let message = event.message.unwrap_or_default();
    assert!(message.contains("quay one") && message.contains("label"), "{message}");
    world.sleep(Duration::from_secs(300)).await;
    assert_eq!(world.events().await.len(), 1);
    assert_eq!(version(&world.node("node0").await), version(&before));
}

#[tokio::test(start_paused = true)]
async fn n13_n14_n15_additional_labels_are_set_unless_they_are_reserved_or_present() {
    let mut world = World::new().await;
    let mut known = machine("node0", "12345", &[]);
    known.region = "us-west".to_owned();
    for (key, value) in [
        ("my.custom.label/foo", "bar"),
        ("topology.k8s.cp/zone-id", "az1"),
        ("taken.example/foo", "bar"),
        ("topology.kubernetes.io/region", "other"),
        ("topology.k8s.io/region", "other"),
        ("kubernetes.io/region", "other"),
        ("k8s.io/region", "other"),
    ] {
        known.labels.insert(key.to_owned(), value.to_owned());
    }
    world.cloud().add(known).unwrap();
    world.register_with("node0", json!({"metadata": {"labels": {"taken.example/foo": "fizz"}}})).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!(label(&node, "my.custom.label/foo").as_deref(), Some("bar"));
    assert_eq!(label(&node, "topology.k8s.cp/zone-id").as_deref(), Some("az1"));
    assert_eq!(label(&node, "taken.example/foo").as_deref(), Some("fizz"));
    assert_eq!(label(&node, "topology.kubernetes.io/region").as_deref(), Some("us-west"));
    for key in ["topology.k8s.io/region", "kubernetes.io/region", "k8s.io/region"] {
        assert_eq!(label(&node, key), None, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn n17_several_addresses_of_one_type_are_all_kept() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1", "I192.168.0.1", "Hcloud-name", "E8.8.8.8"])).unwrap();
    world.register("node0").await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    let expected = ["InternalIP 10.0.0.1", "InternalIP 192.168.0.1", "Hostname cloud-name", "ExternalIP 8.8.8.8"];
    assert_eq!(addresses(&node), expected);
}

#[tokio::test(start_paused = true)]
async fn n18_three_conflicts_are_retried_with_one_event() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    world.register("node0").await;
    world.fail("patch", "nodes", 409, Some(3));
    world.start();
    world.wait_until_initialized("node0").await;
    assert_eq!(world.response_count("patch", "nodes", 409), 3);
    let synced = world.event("node0", "Synced").await.unwrap();
    assert_eq!(synced.count, Some(1));
}

#[tokio::test(start_paused = true)]
async fn n19_a_node_that_is_deleted_meanwhile_is_no_error() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    world.cloud().set_latency(Duration::from_secs(5));
    world.register("node0").await;
    world.start();
    world.sleep(Duration::from_secs(2)).await;
    world.delete("node0").await;
    world.sleep(Duration::from_secs(60)).await;
    assert!(world.get("node0").await.is_none());
    assert!(world.event("node0", "Synced").await.is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn n20_failed_address_writes_are_repaired_by_the_next_address_sync() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    world.register("node0").await;
    world.server.faults().add(bowline_apiserver::FaultRule {
        verb: Some("patch".to_owned()),
        resource: Some("nodes".to_owned()),
        effect: bowline_apiserver::Effect::Status {
            code: http::StatusCode::UNPROCESSABLE_ENTITY,
            message: "injected fault".to_owned(),
            retry_after: None,
        },
        subresource: Some("status".to_owned()),
        times: Some(1),
        ..bowline_apiserver::FaultRule::default()
    });
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!(addresses(&node), ["Hostname node0"]);
    world
        .eventually("the addresses are repaired", async || {
            let found = addresses(&world.node("node0").await);
            (found == ["InternalIP 10.0.0.1", "Hostname node0"]).then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn n21_the_taint_is_removed_whatever_its_effect() {
    let mut world = World::new().await;
    world.cloud().add(machine("node0", "12345", &[])).unwrap();
    let both = json!([
        {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"},
        {"key": UNINITIALIZED, "effect": "NoExecute"},
    ]);
    world.register_with("node0", json!({"spec": {"taints": both}})).await;
    world.start();
    assert!(taints(&world.wait_until_initialized("node0").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn n23_the_instance_type_of_the_cloud_replaces_another() {
    let mut world = World::new().await;
    let mut known = machine("node0", "12345", &[]);
    known.instance_type = "y".to_owned();
    world.cloud().add(known).unwrap();
    world.register_with("node0", json!({"metadata": {"labels": {GA_TYPE: "x"}}})).await;
    world.start();
    let node = world.wait_until_initialized("node0").await;
    assert_eq!((label(&node, BETA_TYPE).as_deref(), label(&node, GA_TYPE).as_deref()), (Some("y"), Some("y")));
}

#[tokio::test(start_paused = true)]
async fn a_node_costs_two_writes_and_many_nodes_cost_few_calls() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    for index in 0..250 {
        let name = format!("node{index}");
        world.cloud().add(machine(&name, &format!("i-{index}"), &[&format!("I10.0.0.{index}")])).unwrap();
        world.register(&name).await;
    }
    let before = world.node_writes();
    world.start();
    for index in 0..250 {
        world.wait_until_initialized(&format!("node{index}")).await;
    }
    world.sleep(Duration::from_secs(60)).await;
    let after = world.node_writes();
    assert_eq!(after["patch"] - before.get("patch").unwrap_or(&0), 250);
    assert_eq!(after["patch status"] - before.get("patch status").unwrap_or(&0), 250);
    assert!(world.cloud_calls() <= 6, "{:?}", world.cloud().calls());
}

#[tokio::test(start_paused = true)]
async fn heartbeats_cost_nothing() {
    let mut world = World::new().await;
    world.options.node_lifecycle = None;
    world.cloud().add(machine("node0", "12345", &["I10.0.0.1"])).unwrap();
    world.register("node0").await;
    world.start();
    world.wait_until_initialized("node0").await;
    let calls = world.cloud_calls();
    for _ in 0..20 {
        world.set_ready("node0", "False").await;
        world.set_ready("node0", "True").await;
    }
    let writes = world.node_writes();
    world.sleep(Duration::from_secs(30)).await;
    assert_eq!(world.node_writes(), writes);
    assert_eq!(world.cloud_calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_register_in_sequence_share_cloud_reads() {
    let mut world = World::new().await;
    let names: Vec<_> = (0..60).map(|number| format!("node{number}")).collect();
    for name in &names {
        world.cloud().add(machine(name, &format!("i-{name}"), &["I10.0.0.1"])).unwrap();
    }
    world.start();
    for three in names.chunks(3) {
        for name in three {
            world.register(name).await;
        }
        world.sleep(Duration::from_millis(90)).await;
    }
    for name in &names {
        world.wait_until_initialized(name).await;
    }
    let calls = world.cloud_calls();
    assert!(calls <= 4, "they registered within two seconds, and took {calls} reads");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_replaced_under_its_name_does_not_get_the_old_provider_id() {
    let mut world = World::new().await;
    world.cloud().add(machine("a", "i-old", &[])).unwrap();
    world.register("a").await;
    world.start();
    assert_eq!(provider_id(&world.wait_until_initialized("a").await).as_deref(), Some("local://i-old"));
    world.cloud().delete("i-old").unwrap();
    world.cloud().add(machine("a", "i-new", &[])).unwrap();
    world.delete("a").await;
    world.register("a").await;
    let replaced = async || provider_id(&world.node("a").await);
    assert_eq!(world.eventually("the provider ID", replaced).await, "local://i-new");
}

#[tokio::test(start_paused = true)]
async fn waiting_nodes_are_counted_by_reason_until_they_are_initialized() {
    let mut world = World::new().await;
    world.register_with("lost", json!({"spec": {"providerID": "local://i-lost"}})).await;
    world.register("stranger").await;
    world.register_with("foreign", json!({"spec": {"providerID": "other://1"}})).await;
    world.start();
    world.sleep(Duration::from_secs(240)).await;
    let waiting = world.metric("bowline_nodes_waiting");
    let expected = [("local InstanceNotFound".to_owned(), 1.0), (" NotOurNode".to_owned(), 1.0)];
    assert_eq!(waiting, expected.into(), "a foreign Node waits for another manager");
    let oldest = world.metric("bowline_nodes_waiting_oldest_seconds");
    assert!(oldest.values().all(|age| (240.0..300.0).contains(age)), "{oldest:?}");
    world.cloud().add(machine("lost", "i-lost", &[])).unwrap();
    world.wait_until_initialized("lost").await;
    world.delete("stranger").await;
    let none_waits = async || world.metric("bowline_nodes_waiting").is_empty().then_some(());
    world.eventually("no Node waits", none_waits).await;
}
