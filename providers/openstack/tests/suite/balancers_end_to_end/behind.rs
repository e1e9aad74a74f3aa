//! Pools, members and monitors of a balancer.

use bowline_core::{Protocol, SessionAffinity, TargetSet, TrafficPolicy};
use bowline_openstack_simulator::{Kind, Options};
use serde_json::json;

use crate::balancers_end_to_end::world::{INTERNAL, World, add_node, made, text, written_by};

fn watched() -> World {
    World::with(Options::default(), |config, _| config.load_balancer.create_monitor = true)
}

#[tokio::test(start_paused = true)]
async fn case_098_and_099_the_proxy_protocol_needs_another_pool() {
    let world = World::new();
    let mut web = made(&world).await;
    web.annotate("proxy-protocol", "true");
    assert_eq!(written_by(&world, &mut web).await, ["DELETE pools/{id}", "POST pools", "PUT pools/{id}/members"]);
    assert_eq!(text(&world.only(Kind::Pool), "protocol"), "PROXY");
    web.annotate("proxy-protocol", "V2");
    world.ensure(&mut web).await.unwrap();
    assert_eq!(text(&world.only(Kind::Pool), "protocol"), "TCP", "99");
}

#[tokio::test(start_paused = true)]
async fn case_100_and_110_what_cannot_be_is_refused_before_anything_is_looked_at() {
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
        let asked: Vec<_> = world.cloud.counts().into_keys().collect();
        assert_eq!(asked, ["GET ", "POST auth/tokens"], "Octavia's versions alone: {annotations:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_101_a_method_that_octavia_does_not_know_is_a_warning_and_members_follow() {
    let mut world = World::new();
    let mut web = made(&world).await;
    world.cloud.forget_calls();
    web.annotate("lb-method", "FASTEST");
    world.nodes.push(add_node(&world.cloud, "node-3"));
    web.spec.targets = world.nodes.clone().into();
    let (_, plan) = world.look(&mut web, true).await.unwrap();
    assert_eq!(plan.steps[0].dispensable.as_deref(), Some("LoadBalancerLbMethodUnknown"));
    let outcome = world.once(&mut web).await.unwrap();
    assert_eq!(outcome, ["LoadBalancerLbMethodUnknown"]);
    assert_eq!(world.writes(), ["PUT pools/{id}", "PUT pools/{id}/members"]);
    assert_eq!(world.count(Kind::Member), 3);
    let fresh = World::new();
    let error = fresh.ensure(fresh.service().annotate("lb-method", "FASTEST")).await.unwrap_err();
    assert!(error.message().contains("FASTEST"), "on creation the fault is told: {error}");
}

#[tokio::test(start_paused = true)]
async fn case_102_affinity_is_changed_in_place() {
    let world = World::new();
    let mut web = made(&world).await;
    web.spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 10800 };
    assert_eq!(written_by(&world, &mut web).await, ["PUT pools/{id}"]);
    assert_eq!(world.sent("PUT pools/{id}"), json!({"pool": {"session_persistence": {"type": "SOURCE_IP"}}}));
    web.spec.session_affinity = SessionAffinity::None;
    assert_eq!(written_by(&world, &mut web).await, ["PUT pools/{id}"]);
    assert_eq!(world.only(Kind::Pool)["session_persistence"], json!(null));
}

#[tokio::test(start_paused = true)]
async fn case_103_to_105_and_108_what_is_asked_depends_on_protocol_and_policy() {
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
        let asked = world.cloud.records(Kind::Member).iter().all(|member| member["monitor_port"] == json!(31000));
        assert_eq!(asked, kind == "HTTP", "{case}");
        assert_eq!(written_by(&world, &mut web).await, [""; 0], "{case}");
    }
    let world = World::new();
    let outcome = world.ensure(world.service().local(31000)).await.unwrap();
    assert_eq!(outcome.warnings, ["LoadBalancerHealthMonitorMissing"], "105");
}

#[tokio::test(start_paused = true)]
async fn case_106_with_the_policy_local_the_node_itself_is_asked() {
    let world = watched();
    let mut web = made(&world).await;
    web.local(31000);
    let writes = ["PUT pools/{id}/members", "DELETE healthmonitors/{id}", "POST healthmonitors"];
    assert_eq!(written_by(&world, &mut web).await, writes);
    let monitor = world.only(Kind::HealthMonitor);
    assert_eq!((text(&monitor, "type"), text(&monitor, "url_path")), ("HTTP", "/healthz"));
    web.spec.traffic_policy = TrafficPolicy::Cluster;
    web.spec.health_check = None;
    assert_eq!(written_by(&world, &mut web).await, writes, "and back");
    assert_eq!(text(&world.only(Kind::HealthMonitor), "type"), "TCP");
    assert!(world.cloud.records(Kind::Member).iter().all(|member| member["monitor_port"] == json!(null)));
}

#[tokio::test(start_paused = true)]
async fn case_109_monitors_are_turned_off() {
    let world = watched();
    let mut web = made(&world).await;
    web.annotate("enable-health-monitor", "false");
    assert_eq!(written_by(&world, &mut web).await, ["DELETE healthmonitors/{id}"]);
    assert_eq!(world.count(Kind::HealthMonitor), 0);
}

#[tokio::test(start_paused = true)]
async fn case_111_a_node_without_address_is_left_out_and_that_is_told() {
    let mut world = World::new();
    world.nodes[0].addresses.clear();
    let outcome = world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(outcome.warnings, ["LoadBalancerNodeWithoutAddress"]);
    assert_eq!(world.count(Kind::Member), 1);
}

#[tokio::test(start_paused = true)]
async fn case_113_114_and_115_a_node_less_is_one_request_for_each_pool_and_the_last_one_may_go() {
    let world = World::new();
    let mut web = world.service();
    web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443)]);
    world.ensure(&mut web).await.unwrap();
    web.spec.targets.edit(|targets| targets.truncate(1));
    assert_eq!(written_by(&world, &mut web).await, ["PUT pools/{id}/members"; 2], "113");
    web.spec.targets = TargetSet::default();
    assert_eq!(written_by(&world, &mut web).await, ["PUT pools/{id}/members"; 2], "114");
    assert_eq!(world.sent("PUT pools/{id}/members"), json!({"members": []}), "114");
    assert_eq!(world.count(Kind::Member), 0);
    let other = World::new();
    let mut web = other.service();
    web.spec.targets = TargetSet::default();
    assert!(other.ensure(&mut web).await.is_err(), "115");
    assert_eq!(other.writes(), [""; 0], "115");
}

#[tokio::test(start_paused = true)]
async fn case_116_a_selector_that_matches_nobody_leaves_an_empty_pool() {
    let world = World::new();
    let mut web = world.service();
    web.spec.targets = TargetSet::default();
    web.annotate("node-selector", "env=prod");
    world.ensure(&mut web).await.unwrap();
    assert_eq!((world.count(Kind::Pool), world.count(Kind::Member)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn case_119_a_pool_that_was_deleted_by_hand_is_made_again() {
    let world = watched();
    let mut web = made(&world).await;
    let pool = text(&world.only(Kind::Pool), "id").to_owned();
    for kind in [Kind::Member, Kind::HealthMonitor] {
        assert!(world.cloud.records(kind).iter().all(|one| world.cloud.remove(kind, text(one, "id"))));
    }
    assert!(world.cloud.remove(Kind::Pool, &pool));
    let listener = text(&world.only(Kind::Listener), "id").to_owned();
    world
        .cloud
        .edit(Kind::Listener, &listener, |listener| drop(listener.insert("default_pool_id".to_owned(), json!(null))));
    assert_eq!(written_by(&world, &mut web).await, ["POST pools", "PUT pools/{id}/members", "POST healthmonitors"]);
    assert_eq!(written_by(&world, &mut web).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn case_120_where_it_must_be_everything_is_made_one_by_one() {
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
    assert_eq!(written_by(&world, &mut web).await, writes);
    assert_eq!(world.cloud.writes().iter().filter(|entry| entry.status == Some(409)).count(), 0);
    assert_eq!(written_by(&world, &mut web).await, [""; 0]);
    web.spec.targets.edit(|targets| targets.truncate(2));
    assert_eq!(written_by(&world, &mut web).await, ["DELETE pools/{id}/members/{id}"]);
}

#[tokio::test(start_paused = true)]
async fn case_121_one_more_node_on_ten_ports_is_ten_requests_none_of_which_comes_too_early() {
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
    assert_eq!(written_by(&world, &mut web).await, ["PUT pools/{id}/members"; 10]);
    assert!(world.cloud.writes().iter().all(|entry| entry.status == Some(202)), "Octavia locks the balancer");
    assert_eq!(world.count(Kind::Member), 30);
}
