//! 7.4: listeners.

use bowline_core::{IpFamily, Protocol};
use serde_json::{Value, json};

use crate::api::octavia::{AdditionalVip, Listener};
use crate::load_balancers::testing::{LB_NAME, Scene};

fn applied() -> Scene {
    Scene::new().applied().annotated_with_id()
}

fn ranges(scene: Scene, ranges: &[&str]) -> Scene {
    scene.changed(|service| service.source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect())
}

#[test]
fn case_085_without_changes_the_plan_is_empty() {
    let all = Scene::new()
        .configured(|section| section.create_monitor = true)
        .ports(&[(Protocol::Tcp, 80), (Protocol::Udp, 80), (Protocol::Sctp, 80)])
        .sticky()
        .local(31000)
        .applied();
    assert_eq!(all.steps(), [""; 0]);
    assert_eq!(all.annotated_with_id().steps(), [""; 0]);
}

#[test]
fn case_086_a_changed_field_is_sent_alone() {
    let cases = [
        ("connection-limit", "100000", json!({"connection_limit": 100_000})),
        ("timeout-client-data", "1800000", json!({"timeout_client_data": 1_800_000})),
        ("timeout-tcp-inspect", "7", json!({"timeout_tcp_inspect": 7})),
        ("bowline.dev/idle-timeout", "90s", json!({"timeout_client_data": 90_000, "timeout_member_data": 90_000})),
    ];
    for (key, value, expected) in cases {
        let changed = applied().with(key, value);
        assert_eq!(changed.steps(), [format!("update listener listener_0_{LB_NAME}")], "{key}");
        assert_eq!(changed.body("update listener"), expected, "{key}");
        assert_eq!(changed.applied().steps(), [""; 0], "{key}");
    }
}

#[test]
fn case_087_an_invalid_number_is_replaced_by_the_default_with_a_warning() {
    let scene = applied().with("connection-limit", "lots");
    assert_eq!(scene.steps(), [""; 0]);
    assert_eq!(scene.warnings(), ["LoadBalancerAnnotationIgnored"]);
}

#[test]
fn case_088_ovn_gets_no_timeouts() {
    let scene = Scene::new().provider("ovn").with("timeout-client-data", "1800000");
    let listener = scene.body("create load balancer")["listeners"][0].clone();
    assert!(listener.get("timeout_client_data").is_none() && listener.get("allowed_cidrs").is_none(), "{listener}");
    assert_eq!(scene.applied().without("timeout-client-data").steps(), [""; 0]);
}

#[test]
fn case_089_source_ranges_are_masked_and_deduplicated() {
    let scene = ranges(applied(), &["10.1.2.3/16", "10.1.0.0/16"]);
    assert_eq!(scene.body("update listener"), json!({"allowed_cidrs": ["10.1.0.0/16"]}));
}

#[test]
fn case_090_without_source_ranges_every_address_of_the_family_is_allowed() {
    for (family, unrestricted) in [(IpFamily::IPv4, "0.0.0.0/0"), (IpFamily::IPv6, "::/0")] {
        let node = if family == IpFamily::IPv4 { "I10.0.0.1" } else { "Ifd00::1" };
        let open = Scene::new().family(family).nodes(&[("n1", node)]);
        let range = if family == IpFamily::IPv4 { "10.0.0.0/8" } else { "2001:db8::/32" };
        let vip = if family == IpFamily::IPv4 { "10.0.0.100" } else { "fd00::100" };
        let limited =
            ranges(open, &[range]).applied().touched_balancer(|balancer| balancer.vip_address = vip.to_owned());
        assert_eq!(ranges(limited, &[]).body("update listener"), json!({"allowed_cidrs": [unrestricted]}));
    }
}

#[test]
fn ranges_of_the_load_balancers_family_are_used() {
    let scene = ranges(applied(), &["10.0.0.0/8", "2001:db8::/32"]);
    assert_eq!(scene.body("update listener"), json!({"allowed_cidrs": ["10.0.0.0/8"]}));
    // No other client is allowed.
    let wrong = ranges(applied(), &["2001:db8::/32"]);
    assert_eq!(wrong.body("update listener"), json!({"allowed_cidrs": ["2001:db8::/32"]}));
}

/// A load balancer that was created by hand with VIPs of both families.
fn of_both_families(scene: Scene, vip: &str, other: &str) -> Scene {
    scene.touched_balancer(|balancer| {
        balancer.vip_address = vip.to_owned();
        balancer.additional_vips = vec![AdditionalVip { ip_address: other.to_owned() }];
    })
}

#[test]
fn with_vips_of_both_families_ranges_of_both_are_used() {
    for (vip, other) in [("10.0.0.100", "fd00::100"), ("fd00::100", "10.0.0.100")] {
        let both = ["10.0.0.0/8", "2001:db8::/32"];
        let scene = ranges(of_both_families(applied(), vip, other), &both);
        assert_eq!(scene.body("update listener"), json!({"allowed_cidrs": both}), "{vip}");
        let scene = scene.applied();
        assert_eq!(scene.steps(), [""; 0], "{vip}");
        // Without source ranges, every address of the own family.
        assert_eq!(ranges(scene, &[]).body("update listener"), json!({"allowed_cidrs": ["0.0.0.0/0"]}), "{vip}");
    }
}

#[test]
fn without_source_ranges_the_unrestricted_range_of_the_other_family_may_stay() {
    let open = |scene: Scene| {
        scene.touched(|seen| seen.listeners[0].allowed_cidrs = vec!["::/0".to_owned(), "0.0.0.0/0".to_owned()])
    };
    let both = open(of_both_families(applied(), "10.0.0.100", "fd00::100"));
    assert_eq!(both.steps(), [""; 0]);
    assert_eq!(ranges(both, &["10.0.0.0/8"]).body("update listener"), json!({"allowed_cidrs": ["10.0.0.0/8"]}));
    // Octavia rejects a range of a family without a VIP.
    assert_eq!(open(applied()).body("update listener"), json!({"allowed_cidrs": ["0.0.0.0/0"]}));
}

#[test]
fn case_092_an_old_octavia_ignores_source_ranges_with_a_warning() {
    let scene = ranges(Scene::new().octavia("v2.10"), &["10.0.0.0/8"]);
    assert_eq!(scene.warnings(), ["LoadBalancerSourceRangesIgnored"]);
    assert!(scene.body("create load balancer")["listeners"][0].get("allowed_cidrs").is_none());
    assert_eq!(Scene::new().octavia("v2.10").warnings(), [""; 0], "no source ranges are requested");
    let warnings_with = |manage| {
        let ovn = Scene::new().provider("ovn").configured(|section| section.manage_security_groups = manage);
        ranges(ovn, &["10.0.0.0/8"]).settings().unwrap().warnings(
            Scene::new().provider("ovn").seen.features,
            &Scene::new().provider("ovn").configured(|section| section.manage_security_groups = manage).config,
        )
    };
    assert_eq!(
        (warnings_with(true).len(), warnings_with(false).len()),
        (0, 1),
        "with ovn the security group restricts clients"
    );
}

#[test]
fn case_093_the_order_of_source_ranges_does_not_matter() {
    let scene = ranges(Scene::new(), &["10.0.0.0/8", "192.168.0.0/16"]).applied();
    let reversed = scene.touched(|seen| seen.listeners[0].allowed_cidrs.reverse());
    assert_eq!(reversed.steps(), [""; 0]);
}

fn by_hand(tags: &[&str]) -> Listener {
    Listener {
        id: "by-hand".to_owned(),
        name: "mine".to_owned(),
        protocol: "TCP".to_owned(),
        protocol_port: 8443,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..Listener::default()
    }
}

#[test]
fn case_094_and_095_an_untagged_listener_is_deleted_and_a_foreign_one_is_kept() {
    for (tags, steps) in [(&[][..], 1), (&[""], 1), (&["team-b"], 0), (&["kube_service_kubernetes_default_b"], 0)] {
        let scene = applied().touched(|seen| seen.listeners.push(by_hand(tags)));
        assert_eq!(scene.steps(), vec!["delete listener mine"; steps], "{tags:?}");
    }
    // An untagged listener belongs to the owner, not to a Service that shares the load balancer.
    let open = applied().configured(|section| section.internal = false);
    let second = open.joined_by("other").touched(|seen| seen.listeners.push(by_hand(&[])));
    assert!(second.steps().iter().all(|step| !step.starts_with("delete")), "{:?}", second.steps());
}

#[test]
fn case_096_for_another_port_the_new_listener_is_created_before_the_old_one_is_deleted() {
    let scene = applied().ports(&[(Protocol::Tcp, 8080)]);
    let expected = [
        format!("create listener listener_0_{LB_NAME}"),
        format!("create pool pool_0_{LB_NAME}"),
        format!("update members pool_0_{LB_NAME}"),
        format!("delete pool pool_0_{LB_NAME}"),
        format!("delete listener listener_0_{LB_NAME}"),
    ];
    assert_eq!(scene.steps(), expected);
    assert_eq!(scene.applied().steps(), [""; 0]);
}

#[test]
fn case_097_for_another_protocol_the_old_listener_is_deleted_first() {
    let scene = applied().with("x-forwarded-for", "true");
    let expected = [
        format!("delete pool pool_0_{LB_NAME}"),
        format!("delete listener listener_0_{LB_NAME}"),
        format!("create listener listener_0_{LB_NAME}"),
        format!("create pool pool_0_{LB_NAME}"),
        format!("update members pool_0_{LB_NAME}"),
    ];
    assert_eq!(scene.steps(), expected);
    let listener = scene.body("create listener");
    assert_eq!(
        (&listener["protocol"], &listener["insert_headers"]),
        (&json!("HTTP"), &json!({"X-Forwarded-For": "true"}))
    );
    assert_eq!(scene.body("create pool")["protocol"], "HTTP");
    assert_eq!(scene.clone().applied().steps(), [""; 0]);
    assert_eq!(scene.applied().with("x-forwarded-for", "false").steps(), expected, "and back");
}

#[test]
fn tls_is_terminated_at_the_load_balancer() {
    let reference = "https://kms/v1/containers/1";
    let scene = Scene::new().with("default-tls-container-ref", reference);
    let listener = scene.body("create load balancer")["listeners"][0].clone();
    assert_eq!(
        json!([listener["protocol"], listener["default_tls_container_ref"], listener["default_pool"]["protocol"]]),
        json!(["TERMINATED_HTTPS", reference, "HTTP"])
    );
    let other = scene.applied().with("default-tls-container-ref", "https://kms/v1/containers/2");
    assert_eq!(other.body("update listener"), json!({"default_tls_container_ref": "https://kms/v1/containers/2"}));
}

#[test]
fn two_ports_with_the_same_listener_are_an_error_before_any_call() {
    let scene = Scene::new().ports(&[(Protocol::Tcp, 53), (Protocol::Udp, 53)]).with("x-forwarded-for", "true");
    assert!(scene.plan_error().message().contains("port 53"), "{}", scene.plan_error());
}

#[test]
fn other_headers_and_tags_are_kept() {
    let scene = Scene::new().with("x-forwarded-for", "true").applied().touched(|seen| {
        let headers = &mut seen.listeners[0].insert_headers;
        headers.clear();
        headers.insert("X-Forwarded-Port".to_owned(), "true".to_owned());
        seen.listeners[0].tags = vec![];
    });
    let expected = json!({
        "insert_headers": {"X-Forwarded-For": "true", "X-Forwarded-Port": "true"}, "tags": [LB_NAME],
    });
    assert_eq!(scene.body("update listener"), expected);
}

#[test]
fn a_listener_keeps_foreign_tags() {
    let scene = applied().touched(|seen| seen.listeners[0].tags = vec!["blue".to_owned(), LB_NAME.to_owned()]);
    assert_eq!(scene.steps(), [""; 0]);
}

#[test]
fn a_pool_of_another_listener_is_not_deleted() {
    let scene = applied()
        .touched(|seen| {
            seen.listeners.push(by_hand(&["team-b"]));
            seen.pools[0].pool.listeners.push(crate::api::Named { id: "by-hand".to_owned() });
        })
        .ports(&[(Protocol::Tcp, 8080)]);
    assert!(scene.steps().iter().all(|step| !step.starts_with("delete pool")), "{:?}", scene.steps());
}

#[test]
fn null_fields_of_octavia_are_empty() {
    let untagged: Listener = serde_json::from_value(json!({
        "id": "bare", "name": null, "protocol": "TCP", "protocol_port": 80, "connection_limit": null, "insert_headers": null,
        "default_tls_container_ref": null, "timeout_client_data": null, "allowed_cidrs": null, "tags": null,
    }))
    .unwrap();
    let scene = applied().touched(|seen| seen.listeners = vec![untagged]);
    let body = scene.body("update listener");
    assert_eq!((&body["allowed_cidrs"], &body["tags"]), (&json!(["0.0.0.0/0"]), &json!([LB_NAME])));
    assert_eq!(body.get("insert_headers"), None::<&Value>);
}
