//! 7.4: pools, members and monitors.

use bowline_core::{IpFamily, Protocol, SessionAffinity, Step};
use serde_json::{Value, json};

use crate::load_balancers::change::{BalancerRef, Change, ListenerRef, Payload, PoolRef};
use crate::load_balancers::testing::{LB_NAME, Scene};

fn monitored() -> Scene {
    Scene::new().configured(|section| section.create_monitor = true)
}

/// The pool of the first port in the request for a new load balancer.
fn pool(scene: &Scene) -> Value {
    scene.body("create load balancer")["listeners"][0]["default_pool"].clone()
}

// ---- pools

#[test]
fn case_098_the_proxy_protocol_replaces_the_pool_and_keeps_the_listener() {
    for (value, protocol) in [("true", "PROXY"), ("v1", "PROXY"), ("v2", "PROXYV2")] {
        let scene = monitored().applied().with("proxy-protocol", value);
        let expected = [
            format!("delete pool pool_0_{LB_NAME}"),
            format!("create pool pool_0_{LB_NAME}"),
            format!("update members pool_0_{LB_NAME}"),
            format!("create health monitor monitor_0_{LB_NAME}"),
        ];
        assert_eq!(scene.steps(), expected, "{value}");
        assert_eq!(scene.body("create pool")["protocol"], protocol);
        assert_eq!(scene.clone().applied().steps(), [""; 0], "{value}");
        let after = scene.applied();
        assert_eq!(after.with("proxy-protocol", "false").body("create pool")["protocol"], "TCP", "{value}");
    }
}

#[test]
fn case_099_other_values_do_not_enable_the_proxy_protocol() {
    for value in ["V2", "", "yes", "TRUE"] {
        assert_eq!(pool(&Scene::new().with("proxy-protocol", value))["protocol"], "TCP", "{value:?}");
    }
    let common = Scene::new().with("bowline.dev/proxy-protocol", "v2");
    assert_eq!(pool(&common)["protocol"], "PROXYV2");
    assert_eq!(
        pool(&common.with("proxy-protocol", "false"))["protocol"],
        "TCP",
        "the annotation of this cloud takes precedence"
    );
}

#[test]
fn case_100_the_proxy_protocol_excludes_x_forwarded_for() {
    let error = Scene::new().with("proxy-protocol", "true").with("x-forwarded-for", "true").plan_error();
    assert!(error.message().contains("cannot be used together"), "{error}");
}

#[test]
fn the_proxy_protocol_is_rejected_for_udp_and_sctp_before_any_deletion() {
    for protocol in [Protocol::Udp, Protocol::Sctp] {
        let mixed = Scene::new().ports(&[(Protocol::Tcp, 80), (protocol, 53)]).applied().with("proxy-protocol", "true");
        assert!(mixed.plan_error().message().contains("over TCP alone"), "{}", mixed.plan_error());
    }
}

#[test]
fn case_101_a_rejected_method_is_a_warning_and_other_steps_are_applied() {
    let scene = Scene::new().applied().with("lb-method", "FASTEST").nodes(&[("n1", "I10.0.0.1")]);
    let plan = scene.planned().unwrap();
    assert_eq!(scene.body("update pool"), json!({"lb_algorithm": "FASTEST"}));
    assert_eq!(plan.steps[0].best_effort.as_deref(), Some("LoadBalancerLbMethodUnknown"));
    assert_eq!(scene.steps(), [format!("update pool pool_0_{LB_NAME}"), format!("update members pool_0_{LB_NAME}")]);
    assert_eq!(plan.steps[1].best_effort, None);
    assert_eq!(pool(&Scene::new().with("lb-method", "FASTEST"))["lb_algorithm"], "FASTEST");
    assert_eq!(pool(&Scene::new().with("lb-method", ""))["lb_algorithm"], "ROUND_ROBIN", "an empty method is ignored");
}

#[test]
fn case_102_affinity_is_changed_in_place() {
    let on = Scene::new().applied().sticky();
    assert_eq!(on.body("update pool"), json!({"session_persistence": {"type": "SOURCE_IP"}}));
    let after = on.applied();
    assert_eq!(after.steps(), [""; 0]);
    let off = after.changed(|service| service.session_affinity = SessionAffinity::None);
    assert_eq!(off.body("update pool"), json!({"session_persistence": null}));
    let cookies = Scene::new().applied().touched(|seen| {
        seen.pools[0].pool.session_persistence =
            Some(crate::api::octavia::SessionPersistence { kind: "HTTP_COOKIE".to_owned() });
    });
    assert_eq!(cookies.steps(), [""; 0], "persistence set by hand is kept");
}

#[test]
fn case_119_a_pool_that_was_deleted_by_hand_is_created_again() {
    let scene = monitored().applied().touched(|seen| seen.pools.clear());
    let listener = ListenerRef::Id("listener-TCP-80".to_owned());
    assert!(
        scene
            .changes()
            .iter()
            .any(|change| matches!(change, Change::CreatePool { listener: of, .. } if *of == listener))
    );
    assert_eq!(scene.applied().steps(), [""; 0]);
}

#[test]
fn a_pool_of_several_listeners_is_not_deleted_for_one_of_them() {
    let other = || crate::api::Named { id: "by-hand".to_owned() };
    let scene = Scene::new().applied().touched(|seen| seen.pools[0].pool.listeners.push(other()));
    assert_eq!(scene.steps(), [""; 0]);
    let error = scene.with("proxy-protocol", "true").plan_error();
    assert!(error.message().contains("2 listeners send to it"), "{error}");
}

#[test]
fn a_listener_with_two_pools_is_an_error() {
    let scene = Scene::new().applied().touched(|seen| seen.pools.push(seen.pools[0].clone()));
    assert!(scene.plan_error().message().contains("more than one pool"), "{}", scene.plan_error());
}

// ---- monitors

#[test]
fn case_103_to_104_and_107_to_108_the_monitor_type_depends_on_protocol_policy_and_octavia() {
    let cases = [
        ("103", Protocol::Udp, false, "amphora", "v2.26", "UDP-CONNECT", None),
        ("104", Protocol::Udp, true, "amphora", "v2.15", "UDP-CONNECT", None),
        ("104", Protocol::Udp, true, "amphora", "v2.16", "HTTP", Some(31000)),
        ("106", Protocol::Tcp, true, "amphora", "v2.26", "HTTP", Some(31000)),
        ("107", Protocol::Tcp, true, "ovn", "v2.26", "TCP", None),
        ("107", Protocol::Udp, true, "ovn", "v2.26", "UDP-CONNECT", None),
        ("108", Protocol::Sctp, false, "amphora", "v2.26", "SCTP", None),
    ];
    for (case, protocol, local, provider, version, kind, port) in cases {
        let scene = monitored().provider(provider).octavia(version).ports(&[(protocol, 80)]);
        let scene = if local { scene.local(31000) } else { scene };
        let pool = pool(&scene);
        assert_eq!(pool["healthmonitor"]["type"], kind, "{case}");
        assert_eq!(pool["healthmonitor"].get("url_path").is_some(), kind == "HTTP", "{case}");
        assert_eq!(pool["members"][0].get("monitor_port"), port.map(|port: u16| json!(port)).as_ref(), "{case}");
        assert_eq!(scene.applied().steps(), [""; 0], "{case}: stable after one write");
    }
}

#[test]
fn case_105_traffic_policy_local_without_monitors_is_a_warning() {
    let scene = Scene::new().local(31000);
    assert!(pool(&scene).get("healthmonitor").is_none() && pool(&scene)["members"][0].get("monitor_port").is_none());
    assert_eq!(scene.warnings(), ["LoadBalancerHealthMonitorMissing"]);
    assert_eq!(monitored().local(31000).warnings(), [""; 0]);
}

#[test]
fn case_106_traffic_policy_local_replaces_the_monitor_and_sets_the_monitor_port() {
    let scene = monitored().applied().local(31000);
    let expected = [
        format!("update members pool_0_{LB_NAME}"),
        format!("delete health monitor monitor_0_{LB_NAME}"),
        format!("create health monitor monitor_0_{LB_NAME}"),
    ];
    assert_eq!(scene.steps(), expected);
    let Change::SetMembers { members, .. } = &scene.changes()[0] else { panic!("{:?}", scene.changes()) };
    assert_eq!(members[0]["monitor_port"], 31000);
    assert_eq!(scene.body("create health monitor")["type"], "HTTP");
}

#[test]
fn case_109_the_annotation_disables_and_enables_monitors() {
    let off = monitored().applied().with("enable-health-monitor", "false");
    assert_eq!(off.steps(), [format!("delete health monitor monitor_0_{LB_NAME}")]);
    let on = Scene::new().applied().with("enable-health-monitor", "true");
    assert_eq!(on.steps(), [format!("create health monitor monitor_0_{LB_NAME}")]);
    assert_eq!(Scene::new().applied().with("enable-health-monitor", "yes").steps(), [""; 0]);
}

#[test]
fn case_110_a_monitor_with_a_zero_setting_is_rejected_before_any_call() {
    for key in ["health-monitor-delay", "health-monitor-timeout", "health-monitor-max-retries"] {
        let error = monitored().with(key, "0").plan_error();
        assert!(error.message().contains(key), "{error}");
        assert!(Scene::new().with(key, "0").planned().is_ok(), "ignored without monitors");
    }
    let down = monitored().with("health-monitor-max-retries-down", "0");
    assert!(pool(&down)["healthmonitor"].get("max_retries_down").is_none());
    assert_eq!(
        down.applied().touched(|seen| seen.pools[0].monitor.as_mut().unwrap().max_retries_down = 3).steps(),
        [""; 0]
    );
}

#[test]
fn a_changed_number_or_name_causes_one_update_with_all_of_them() {
    let slower = monitored().applied().with("health-monitor-delay", "10");
    let body = json!({
        "name": format!("monitor_0_{LB_NAME}"), "delay": 10, "timeout": 3, "max_retries": 1, "max_retries_down": 3,
    });
    assert_eq!(slower.body("update health monitor"), body);
    let misnamed =
        monitored().applied().touched(|seen| seen.pools[0].monitor.as_mut().unwrap().name = "mine".to_owned());
    assert_eq!(misnamed.body("update health monitor")["name"], format!("monitor_0_{LB_NAME}"));
}

#[test]
fn the_common_annotations_configure_the_health_monitor() {
    let scene = Scene::new()
        .with("bowline.dev/health-check-path", "/ready")
        .with("bowline.dev/health-check-port", "10256")
        .with("bowline.dev/health-check-interval", "2s");
    let pool = pool(&scene);
    let monitor = &pool["healthmonitor"];
    assert_eq!(
        json!([monitor["type"], monitor["url_path"], monitor["delay"], monitor["timeout"]]),
        json!(["HTTP", "/ready", 2, 2])
    );
    assert_eq!(pool["members"][0]["monitor_port"], 10256);
    let other = scene.applied().with("bowline.dev/health-check-path", "/live");
    assert_eq!(other.body("update health monitor")["url_path"], "/live");
    assert_eq!(other.clone().applied().steps(), [""; 0]);
    let off = other.with("enable-health-monitor", "false");
    assert_eq!(off.body("delete health monitor"), Value::Null);
}

// ---- members

#[test]
fn case_111_and_112_a_node_without_an_address_of_the_family_is_skipped_with_a_warning() {
    let three = Scene::new().nodes(&[("n1", "I10.0.0.1"), ("n2", ""), ("n3", "I10.0.0.3")]);
    assert_eq!(pool(&three)["members"].as_array().unwrap().len(), 2);
    assert_eq!(three.warnings(), ["LoadBalancerNodeWithoutAddress"]);
    let v6 = Scene::new().family(IpFamily::IPv6).nodes(&[("n1", "I10.0.0.1"), ("n2", "I10.0.0.2 Ifd00::2")]);
    assert_eq!(pool(&v6)["members"][0]["address"], "fd00::2");
    assert_eq!(pool(&v6)["members"].as_array().unwrap().len(), 1);
}

#[test]
fn case_113_a_removed_node_takes_one_request_per_pool() {
    let scene =
        Scene::new().ports(&[(Protocol::Tcp, 80), (Protocol::Tcp, 443)]).applied().nodes(&[("n2", "I10.0.0.2")]);
    let set = |listener: &str, port: u16| Change::SetMembers {
        pool: PoolRef::Id(format!("pool-of-listener-TCP-{listener}")),
        members: vec![json!({"name": "n2", "address": "10.0.0.2", "protocol_port": port, "subnet_id": "subnet"})],
    };
    assert_eq!(scene.changes(), [set("80", 30080), set("443", 30443)]);
    assert_eq!(scene.applied().steps(), [""; 0]);
}

#[test]
fn case_114_and_115_without_nodes_existing_pools_are_emptied() {
    let scene = Scene::new().applied().nodes(&[]);
    let pool = PoolRef::Id("pool-of-listener-TCP-80".to_owned());
    assert_eq!(scene.changes(), [Change::SetMembers { pool, members: vec![] }]);
    assert_eq!(scene.applied().steps(), [""; 0]);
}

#[test]
fn case_116_a_selector_without_matches_leaves_pools_without_members() {
    let scene = Scene::new().nodes(&[]).with("node-selector", "env=prod");
    assert!(pool(&scene).get("members").is_none());
    assert_eq!(scene.applied().steps(), [""; 0]);
}

#[test]
fn case_121_an_added_node_with_ten_ports_takes_ten_sequential_requests() {
    let ports: Vec<_> = (0..10).map(|number| (Protocol::Tcp, 8000 + number)).collect();
    let more = [("n1", "I10.0.0.1"), ("n2", "I10.0.0.2"), ("n3", "I10.0.0.3")];
    let plan = Scene::new().ports(&ports).applied().nodes(&more).planned().unwrap();
    assert_eq!(plan.steps.len(), 10);
    let waits = plan.steps.iter().filter(|step| step.payload.balancer == Some(BalancerRef::Id("lb".to_owned())));
    assert_eq!(waits.count(), 10, "each waits until the load balancer is ACTIVE");
}

#[test]
fn two_nodes_with_the_same_address_are_one_member() {
    let scene = Scene::new().nodes(&[("n2", "I10.0.0.1"), ("n1", "I10.0.0.1")]);
    let members = pool(&scene)["members"].clone();
    assert_eq!(members, json!([{"name": "n1", "address": "10.0.0.1", "protocol_port": 30080, "subnet_id": "subnet"}]));
}

#[test]
fn a_port_without_a_node_port_has_a_listener_and_an_empty_pool() {
    let scene = Scene::new().changed(|service| service.ports[0].node_port = None);
    assert!(pool(&scene).get("members").is_none());
    assert_eq!(scene.applied().steps(), [""; 0]);
}

#[test]
fn a_draining_node_is_no_member() {
    let mut scene = Scene::new();
    scene.nodes[0].draining = true;
    assert_eq!(pool(&scene)["members"].as_array().unwrap().len(), 1);
}

#[test]
fn with_only_a_network_members_are_in_the_subnet_of_the_vip() {
    let scene = Scene::new().touched(|seen| {
        seen.placement.vip_network_id = "network".to_owned();
        (seen.placement.vip_subnet_id, seen.placement.member_subnet_id) = Default::default();
    });
    let body = scene.body("create load balancer");
    assert!(body.get("vip_subnet_id").is_none() && body["vip_network_id"] == "network", "{body}");
    assert!(pool(&scene)["members"][0].get("subnet_id").is_none());
    let applied = scene.applied().touched_balancer(|balancer| balancer.vip_subnet_id = "chosen".to_owned());
    let Change::SetMembers { members, .. } = &applied.nodes(&[("n1", "I10.0.0.1")]).changes()[0] else { panic!() };
    assert_eq!(members[0]["subnet_id"], "chosen");
}

#[test]
fn case_166_with_port_id_neither_subnet_nor_network_is_sent() {
    let body = Scene::new().with("port-id", "port").with("subnet-id", "x").body("create load balancer");
    assert_eq!((body.get("vip_port_id"), body.get("vip_subnet_id")), (Some(&json!("port")), None));
}

// ---- serial API calls

#[test]
fn case_120_with_serial_api_calls_each_step_waits_for_the_one_before() {
    let nodes = [("n1", "I10.0.0.1"), ("n2", "I10.0.0.2"), ("n3", "I10.0.0.3")];
    let scene = monitored().configured(|section| section.serial = true).nodes(&nodes);
    let expected = [
        format!("create load balancer {LB_NAME}"),
        format!("create listener listener_0_{LB_NAME}"),
        format!("create pool pool_0_{LB_NAME}"),
        "create member member_n1_10.0.0.1_30080".to_owned(),
        "create member member_n2_10.0.0.2_30080".to_owned(),
        "create member member_n3_10.0.0.3_30080".to_owned(),
        format!("create health monitor monitor_0_{LB_NAME}"),
    ];
    assert_eq!(scene.steps(), expected);
    let plan = scene.planned().unwrap();
    assert_eq!(scene.body("create load balancer").get("listeners"), None);
    let waits = |step: &Step<Payload>| step.payload.balancer == Some(BalancerRef::Name(LB_NAME.to_owned()));
    assert!(plan.steps.iter().skip(1).all(waits), "{plan:?}");
    let Change::CreateMember { body, .. } = &scene.changes()[3] else { panic!() };
    assert_eq!(*body, json!({"name": "member_n1_10.0.0.1_30080", "address": "10.0.0.1", "protocol_port": 30080}));
    let applied = scene.applied();
    assert_eq!(applied.steps(), [""; 0]);
    let fewer = applied.nodes(&[("n2", "I10.0.0.2"), ("n4", "I10.0.0.4")]);
    let expected = [
        "create member member_n4_10.0.0.4_30080",
        "delete member member_n1_10.0.0.1_30080",
        "delete member member_n3_10.0.0.3_30080",
    ];
    assert_eq!(fewer.steps(), expected);
}
