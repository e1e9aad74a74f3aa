//! Pools, members and health monitors of a load balancer.

use bowline_core::{Protocol, SessionAffinity, TargetSet, TrafficPolicy};
use bowline_openstack_simulator::{Kind, Options};
use serde_json::json;

use crate::balancers_end_to_end::world::{INTERNAL, World, add_node, created, text, writes_of};

fn monitored() -> World {
    World::with(Options::default(), |config, _| config.load_balancer.create_monitor = true)
}

#[tokio::test(start_paused = true)]
async fn case_098_and_099_the_proxy_protocol_replaces_the_pool() {
    let world = World::new();
    let mut web = created(&world).await;
    web.annotate("proxy-protocol", "true");
    assert_eq!(writes_of(&world, &mut web).await, ["DELETE pools/{id}", "POST pools", "PUT pools/{id}/members"]);
    assert_eq!(text(&world.only(Kind::Pool), "protocol"), "PROXY");
    web.annotate("proxy-protocol", "V2");
    world.ensure(&mut web).await.unwrap();
    assert_eq!(text(&world.only(Kind::Pool), "protocol"), "TCP", "99");
}

#[tokio::test(start_paused = true)]
async fn case_100_and_110_invalid_settings_are_rejected_before_anything_is_read() {
    for annotations in [
        &[("proxy-protocol", "true"), ("x-forwarded-for", "true")][..],
        &[("enable-health-monitor", "true"), ("health-monitor-delay", "0")],
    ] {
        let world = World::new();
        let mut web = world.service();
        for (key, value) in annotations {
            web.annotate(key, value);
        }
        assert!(world.ensure(&mut web).await.is_err(), "{annotations:?}");
        let requested: Vec<_> = world.cloud.counts().into_keys().collect();
        assert_eq!(requested, ["GET ", "POST auth/tokens"], "Octavia's versions alone: {annotations:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_101_a_rejected_method_is_a_warning_and_members_are_updated() {
    let mut world = World::new();
    let mut web = created(&world).await;
    world.cloud.forget_calls();
    web.annotate("lb-method", "FASTEST");
    world.nodes.push(add_node(&world.cloud, "node-3"));
    web.spec.targets = world.nodes.clone().into();
    let (_, plan) = world.plan(&mut web, true).await.unwrap();
    assert_eq!(plan.steps[0].best_effort.as_deref(), Some("LoadBalancerLbMethodUnknown"));
    let outcome = world.once(&mut web).await.unwrap();
    assert_eq!(outcome, ["LoadBalancerLbMethodUnknown"]);
    assert_eq!(world.writes(), ["PUT pools/{id}", "PUT pools/{id}/members"]);
    assert_eq!(world.count(Kind::Member), 3);
    let fresh = World::new();
    let error = fresh.ensure(fresh.service().annotate("lb-method", "FASTEST")).await.unwrap_err();
    assert!(error.message().contains("FASTEST"), "on creation the fault is reported: {error}");
}

#[tokio::test(start_paused = true)]
async fn case_102_affinity_is_changed_in_place() {
    let world = World::new();
    let mut web = created(&world).await;
    web.spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 10800 };
    assert_eq!(writes_of(&world, &mut web).await, ["PUT pools/{id}"]);
    assert_eq!(world.sent("PUT pools/{id}"), json!({"pool": {"session_persistence": {"type": "SOURCE_IP"}}}));
    web.spec.session_affinity = SessionAffinity::None;
    assert_eq!(writes_of(&world, &mut web).await, ["PUT pools/{id}"]);
    assert_eq!(world.only(Kind::Pool)["session_persistence"], json!(null));
}

#[tokio::test(start_paused = true)]
async fn case_103_to_105_and_108_the_monitor_type_depends_on_protocol_and_policy() {
    let cases = [
        ("103", Protocol::Udp, false, 26, "UDP-CONNECT"),
        ("104", Protocol::Udp, true, 15, "UDP-CONNECT"),
        ("104", Protocol::Udp, true, 16, "HTTP"),
        ("108", Protocol::Sctp, false, 26, "SCTP"),
    ];
    for (case, protocol, local, octavia_minor, kind) in cases {
        let options = Options { octavia_minor, ..Options::default() };
        let world = World::with(options, |config, _| config.load_balancer.create_monitor = true);
        let mut web = world.service();
        web.ports(&[(protocol, 53, 30053)]);
        if local {
            web.local(31000);
        }
        world.ensure(&mut web).await.unwrap();
        assert_eq!(text(&world.only(Kind::HealthMonitor), "type"), kind, "{case}");
        let requested = world.cloud.records(Kind::Member).iter().all(|member| member["monitor_port"] == json!(31000));
        assert_eq!(requested, kind == "HTTP", "{case}");
        assert_eq!(writes_of(&world, &mut web).await, [""; 0], "{case}");
    }
    let world = World::new();
    let outcome = world.ensure(world.service().local(31000)).await.unwrap();
    assert_eq!(outcome.warnings, ["LoadBalancerHealthMonitorMissing"], "105");
}

#[tokio::test(start_paused = true)]
async fn case_106_with_traffic_policy_local_the_health_check_node_port_is_probed() {
    let world = monitored();
    let mut web = created(&world).await;
    web.local(31000);
    let writes = ["PUT pools/{id}/members", "DELETE healthmonitors/{id}", "POST healthmonitors"];
    assert_eq!(writes_of(&world, &mut web).await, writes);
    let monitor = world.only(Kind::HealthMonitor);
    assert_eq!((text(&monitor, "type"), text(&monitor, "url_path")), ("HTTP", "/healthz"));
    web.spec.traffic_policy = TrafficPolicy::Cluster;
    web.spec.health_check = None;
    assert_eq!(writes_of(&world, &mut web).await, writes, "and back");
    assert_eq!(text(&world.only(Kind::HealthMonitor), "type"), "TCP");
    assert!(world.cloud.records(Kind::Member).iter().all(|member| member["monitor_port"] == json!(null)));
}

#[tokio::test(start_paused = true)]
async fn case_109_monitors_can_be_disabled() {
    let world = monitored();
    let mut web = created(&world).await;
    web.annotate("enable-health-monitor", "false");
    assert_eq!(writes_of(&world, &mut web).await, ["DELETE healthmonitors/{id}"]);
    assert_eq!(world.count(Kind::HealthMonitor), 0);
}

#[tokio::test(start_paused = true)]
async fn case_111_a_node_without_an_address_is_skipped_with_a_warning() {
    let mut world = World::new();
    world.nodes[0].addresses.clear();
    let outcome = world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(outcome.warnings, ["LoadBalancerNodeWithoutAddress"]);
    assert_eq!(world.count(Kind::Member), 1);
}

#[tokio::test(start_paused = true)]
async fn case_113_114_and_115_a_removed_node_takes_one_request_per_pool_down_to_no_nodes() {
    let world = World::new();
    let mut web = world.service();
    web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443)]);
    world.ensure(&mut web).await.unwrap();
    web.spec.targets.edit(|targets| targets.truncate(1));
    assert_eq!(writes_of(&world, &mut web).await, ["PUT pools/{id}/members"; 2], "113");
    web.spec.targets = TargetSet::default();
    assert_eq!(writes_of(&world, &mut web).await, ["PUT pools/{id}/members"; 2], "114");
    assert_eq!(world.sent("PUT pools/{id}/members"), json!({"members": []}), "114");
    assert_eq!(world.count(Kind::Member), 0);
    let other = World::new();
    let mut web = other.service();
    web.spec.targets = TargetSet::default();
    assert!(other.ensure(&mut web).await.is_err(), "115");
    assert_eq!(other.writes(), [""; 0], "115");
}

#[tokio::test(start_paused = true)]
async fn case_116_a_selector_without_matches_leaves_an_empty_pool() {
    let world = World::new();
    let mut web = world.service();
    web.spec.targets = TargetSet::default();
    web.annotate("node-selector", "env=prod");
    world.ensure(&mut web).await.unwrap();
    assert_eq!((world.count(Kind::Pool), world.count(Kind::Member)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn case_119_a_pool_that_was_deleted_by_hand_is_created_again() {
    let world = monitored();
    let mut web = created(&world).await;
    let pool = text(&world.only(Kind::Pool), "id").to_owned();
    for kind in [Kind::Member, Kind::HealthMonitor] {
        assert!(world.cloud.records(kind).iter().all(|one| world.cloud.remove(kind, text(one, "id"))));
    }
    assert!(world.cloud.remove(Kind::Pool, &pool));
    let listener = text(&world.only(Kind::Listener), "id").to_owned();
    world
        .cloud
        .edit(Kind::Listener, &listener, |listener| drop(listener.insert("default_pool_id".to_owned(), json!(null))));
    assert_eq!(writes_of(&world, &mut web).await, ["POST pools", "PUT pools/{id}/members", "POST healthmonitors"]);
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn case_120_with_serial_api_calls_each_resource_has_its_own_request() {
    let mut world = World::with(Options::default(), |config, _| {
        config.load_balancer.create_monitor = true;
        config.load_balancer.serial = true;
    });
    world.nodes.push(add_node(&world.cloud, "node-3"));
    let mut web = world.service();
    web.annotate(INTERNAL, "true");
    let writes = [
        "POST loadbalancers",
        "POST listeners",
        "POST pools",
        "POST pools/{id}/members",
        "POST pools/{id}/members",
        "POST pools/{id}/members",
        "POST healthmonitors",
    ];
    assert_eq!(writes_of(&world, &mut web).await, writes);
    assert_eq!(world.cloud.writes().iter().filter(|entry| entry.status == Some(409)).count(), 0);
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
    web.spec.targets.edit(|targets| targets.truncate(2));
    assert_eq!(writes_of(&world, &mut web).await, ["DELETE pools/{id}/members/{id}"]);
}

#[tokio::test(start_paused = true)]
async fn case_121_an_added_node_with_ten_ports_takes_ten_requests_without_conflicts() {
    let options = Options {
        work: bowline_openstack_simulator::Work::Taking(std::time::Duration::from_secs(3)),
        ..Options::default()
    };
    let mut world = World::with(options, |_, _| ());
    let mut web = world.service();
    let ports: Vec<_> = (0..10).map(|number| (Protocol::Tcp, 8000 + number, 30000 + number)).collect();
    web.ports(&ports);
    world.ensure(&mut web).await.unwrap();
    world.nodes.push(add_node(&world.cloud, "node-3"));
    web.spec.targets = world.nodes.clone().into();
    assert_eq!(writes_of(&world, &mut web).await, ["PUT pools/{id}/members"; 10]);
    assert!(
        world.cloud.writes().iter().all(|entry| entry.status == Some(202)),
        "Octavia rejects writes to a PENDING load balancer"
    );
    assert_eq!(world.count(Kind::Member), 30);
}
