//! 7.4: listeners.

use bowline_core::{IpFamily, Protocol};
use serde_json::{Value, json};

use crate::api::octavia::{AdditionalVip, Listener};
use crate::load_balancers::testing::{LB_NAME, Scene};

fn made() -> Scene {
    Scene::new().made().noted()
}

fn ranges(scene: Scene, ranges: &[&str]) -> Scene {
    scene.changed(|service| service.source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect())
}

#[test]
fn case_085_when_nothing_has_changed_nothing_is_done() {
    let all = Scene::new()
        .configured(|section| section.create_monitor = true)
        .ports(&[(Protocol::Tcp, 80), (Protocol::Udp, 80), (Protocol::Sctp, 80)])
        .sticky()
        .local(31000)
        .made();
    assert_eq!(all.steps(), [""; 0]);
    assert_eq!(all.noted().steps(), [""; 0]);
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
        let changed = made().with(key, value);
        assert_eq!(changed.steps(), [format!("update listener listener_0_{LB_NAME}")], "{key}");
        assert_eq!(changed.body("update listener"), expected, "{key}");
        assert_eq!(changed.made().steps(), [""; 0], "{key}");
    }
}

#[test]
fn case_087_what_is_no_number_is_the_default_and_a_warning() {
    let scene = made().with("connection-limit", "lots");
    assert_eq!(scene.steps(), [""; 0]);
    assert_eq!(scene.warnings(), ["LoadBalancerAnnotationIgnored"]);
}

#[test]
fn case_088_ovn_knows_no_timeouts() {
    let scene = Scene::new().provider("ovn").with("timeout-client-data", "1800000");
    let listener = scene.body("create load balancer")["listeners"][0].clone();
    assert!(listener.get("timeout_client_data").is_none() && listener.get("allowed_cidrs").is_none(), "{listener}");
    assert_eq!(scene.made().without("timeout-client-data").steps(), [""; 0]);
}

#[test]
fn case_089_ranges_are_masked_and_counted_once() {
    let scene = ranges(made(), &["10.1.2.3/16", "10.1.0.0/16"]);
    assert_eq!(scene.body("update listener"), json!({"allowed_cidrs": ["10.1.0.0/16"]}));
}

#[test]
fn case_090_without_ranges_everybody_of_the_family_may_connect() {
    for (family, everybody) in [(IpFamily::IPv4, "0.0.0.0/0"), (IpFamily::IPv6, "::/0")] {
        let node = if family == IpFamily::IPv4 { "I10.0.0.1" } else { "Ifd00::1" };
        let open = Scene::new().family(family).nodes(&[("n1", node)]);
        let range = if family == IpFamily::IPv4 { "10.0.0.0/8" } else { "2001:db8::/32" };
        let vip = if family == IpFamily::IPv4 { "10.0.0.100" } else { "fd00::100" };
        let limited = ranges(open, &[range]).made().touched_balancer(|balancer| balancer.vip_address = vip.to_owned());
        assert_eq!(ranges(limited, &[]).body("update listener"), json!({"allowed_cidrs": [everybody]}));
    }
}

#[test]
fn of_ranges_of_both_families_those_of_the_balancer_count() {
    let scene = ranges(made(), &["10.0.0.0/8", "2001:db8::/32"]);
    assert_eq!(scene.body("update listener"), json!({"allowed_cidrs": ["10.0.0.0/8"]}));
    // Nobody is let in by mistake.
    let wrong = ranges(made(), &["2001:db8::/32"]);
    assert_eq!(wrong.body("update listener"), json!({"allowed_cidrs": ["2001:db8::/32"]}));
}

/// A balancer that somebody made with addresses of both families.
fn of_both_families(scene: Scene, vip: &str, other: &str) -> Scene {
    scene.touched_balancer(|balancer| {
        balancer.vip_address = vip.to_owned();
        balancer.additional_vips = vec![AdditionalVip { ip_address: other.to_owned() }];
    })
}

#[test]
fn with_addresses_of_both_families_ranges_of_both_count() {
    for (vip, other) in [("10.0.0.100", "fd00::100"), ("fd00::100", "10.0.0.100")] {
        let both = ["10.0.0.0/8", "2001:db8::/32"];
        let scene = ranges(of_both_families(made(), vip, other), &both);
        assert_eq!(scene.body("update listener"), json!({"allowed_cidrs": both}), "{vip}");
        let scene = scene.made();
        assert_eq!(scene.steps(), [""; 0], "{vip}");
        // Who is not kept out any more, of either family.
        assert_eq!(ranges(scene, &[]).body("update listener"), json!({"allowed_cidrs": ["0.0.0.0/0"]}), "{vip}");
    }
}

#[test]
fn everybody_of_the_other_family_is_let_in_as_long_as_nobody_is_kept_out() {
    let open = |scene: Scene| {
        scene.touched(|seen| seen.listeners[0].allowed_cidrs = vec!["::/0".to_owned(), "0.0.0.0/0".to_owned()])
    };
    let both = open(of_both_families(made(), "10.0.0.100", "fd00::100"));
    assert_eq!(both.steps(), [""; 0]);
    assert_eq!(ranges(both, &["10.0.0.0/8"]).body("update listener"), json!({"allowed_cidrs": ["10.0.0.0/8"]}));
    // Without an address of that family Octavia would refuse it.
    assert_eq!(open(made()).body("update listener"), json!({"allowed_cidrs": ["0.0.0.0/0"]}));
}

#[test]
fn case_092_an_old_octavia_cannot_keep_anybody_out_and_that_is_told() {
    let scene = ranges(Scene::new().octavia("v2.10"), &["10.0.0.0/8"]);
    assert_eq!(scene.warnings(), ["LoadBalancerSourceRangesIgnored"]);
    assert!(scene.body("create load balancer")["listeners"][0].get("allowed_cidrs").is_none());
    assert_eq!(Scene::new().octavia("v2.10").warnings(), [""; 0], "nobody asked for ranges");
    let guarded = |manage| {
        let ovn = Scene::new().provider("ovn").configured(|section| section.manage_security_groups = manage);
        ranges(ovn, &["10.0.0.0/8"]).settings().unwrap().warnings(
            Scene::new().provider("ovn").seen.features,
            &Scene::new().provider("ovn").configured(|section| section.manage_security_groups = manage).config,
        )
    };
    assert_eq!((guarded(true).len(), guarded(false).len()), (0, 1), "with ovn the security group keeps them out");
}

#[test]
fn case_093_ranges_in_another_order_are_the_same() {
    let scene = ranges(Scene::new(), &["10.0.0.0/8", "192.168.0.0/16"]).made();
    let turned = scene.touched(|seen| seen.listeners[0].allowed_cidrs.reverse());
    assert_eq!(turned.steps(), [""; 0]);
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
fn case_094_and_095_a_listener_without_tags_is_left_over_and_one_with_tags_is_anothers() {
    for (tags, steps) in [(&[][..], 1), (&[""], 1), (&["team-b"], 0), (&["kube_service_kubernetes_default_b"], 0)] {
        let scene = made().touched(|seen| seen.listeners.push(by_hand(tags)));
        assert_eq!(scene.steps(), vec!["delete listener mine"; steps], "{tags:?}");
    }
    // Without tags it is the owner's, and a Service that shares the balancer is not that.
    let open = made().configured(|section| section.internal = false);
    let second = open.joined_by("other").touched(|seen| seen.listeners.push(by_hand(&[])));
    assert!(second.steps().iter().all(|step| !step.starts_with("delete")), "{:?}", second.steps());
}

#[test]
fn case_096_for_another_port_there_is_a_new_listener_and_then_the_old_one_goes() {
    let scene = made().ports(&[(Protocol::Tcp, 8080)]);
    let expected = [
        format!("create listener listener_0_{LB_NAME}"),
        format!("create pool pool_0_{LB_NAME}"),
        format!("update members pool_0_{LB_NAME}"),
        format!("delete pool pool_0_{LB_NAME}"),
        format!("delete listener listener_0_{LB_NAME}"),
    ];
    assert_eq!(scene.steps(), expected);
    assert_eq!(scene.made().steps(), [""; 0]);
}

#[test]
fn case_097_for_another_protocol_on_the_port_the_old_listener_goes_first() {
    let scene = made().with("x-forwarded-for", "true");
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
    assert_eq!(scene.clone().made().steps(), [""; 0]);
    assert_eq!(scene.made().with("x-forwarded-for", "false").steps(), expected, "and back");
}

#[test]
fn tls_ends_at_the_balancer() {
    let reference = "https://kms/v1/containers/1";
    let scene = Scene::new().with("default-tls-container-ref", reference);
    let listener = scene.body("create load balancer")["listeners"][0].clone();
    assert_eq!(
        json!([listener["protocol"], listener["default_tls_container_ref"], listener["default_pool"]["protocol"]]),
        json!(["TERMINATED_HTTPS", reference, "HTTP"])
    );
    let other = scene.made().with("default-tls-container-ref", "https://kms/v1/containers/2");
    assert_eq!(other.body("update listener"), json!({"default_tls_container_ref": "https://kms/v1/containers/2"}));
}

#[test]
fn two_ports_that_come_to_one_listener_are_an_error_before_any_call() {
    let scene = Scene::new().ports(&[(Protocol::Tcp, 53), (Protocol::Udp, 53)]).with("x-forwarded-for", "true");
    assert!(scene.refusal().message().contains("port 53"), "{}", scene.refusal());
}

#[test]
fn headers_and_tags_of_others_stay() {
    let scene = Scene::new().with("x-forwarded-for", "true").made().touched(|seen| {
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
fn a_listener_that_others_have_tagged_as_well_keeps_their_tags() {
    let scene = made().touched(|seen| seen.listeners[0].tags = vec!["blue".to_owned(), LB_NAME.to_owned()]);
    assert_eq!(scene.steps(), [""; 0]);
}

#[test]
fn a_pool_that_another_listener_uses_outlives_its_own() {
    let scene = made()
        .touched(|seen| {
            seen.listeners.push(by_hand(&["team-b"]));
            seen.pools[0].pool.listeners.push(crate::api::Named { id: "by-hand".to_owned() });
        })
        .ports(&[(Protocol::Tcp, 8080)]);
    assert!(scene.steps().iter().all(|step| !step.starts_with("delete pool")), "{:?}", scene.steps());
}

#[test]
fn octavia_says_null_for_much_and_that_is_nothing() {
    let bare: Listener = serde_json::from_value(json!({
        "id": "bare", "name": null, "protocol": "TCP", "protocol_port": 80, "connection_limit": null, "insert_headers": null,
        "default_tls_container_ref": null, "timeout_client_data": null, "allowed_cidrs": null, "tags": null,
    }))
    .unwrap();
    let scene = made().touched(|seen| seen.listeners = vec![bare]);
    let body = scene.body("update listener");
    assert_eq!((&body["allowed_cidrs"], &body["tags"]), (&json!(["0.0.0.0/0"]), &json!([LB_NAME])));
    assert_eq!(body.get("insert_headers"), None::<&Value>);
}
