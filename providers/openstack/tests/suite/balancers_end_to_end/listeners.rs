//! Listeners of an existing load balancer.

use bowline_core::Protocol;
use bowline_openstack_simulator::{Kind, Options};
use serde_json::{Value, json};

use crate::balancers_end_to_end::world::{Service, World, created, text, writes_of};

#[tokio::test(start_paused = true)]
async fn case_085_without_changes_there_are_only_reads() {
    let world = World::with(Options::default(), |config, _| {
        config.load_balancer.create_monitor = true;
        config.load_balancer.manage_security_groups = true;
    });
    let mut web = world.service();
    web.local(31000).ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Udp, 80, 30180), (Protocol::Sctp, 80, 30280)]);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
    let calls = world.cloud.counts();
    assert!(calls.keys().all(|call| call.starts_with("GET ") || call.contains("auth/tokens")), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn case_086_and_087_only_changed_fields_are_sent() {
    let world = World::new();
    let mut web = created(&world).await;
    web.annotate("connection-limit", "100000");
    assert_eq!(writes_of(&world, &mut web).await, ["PUT listeners/{id}"]);
    assert_eq!(world.sent("PUT listeners/{id}"), json!({"listener": {"connection_limit": 100_000}}));
    web.annotate("connection-limit", "lots");
    assert_eq!(world.ensure(&mut web).await.unwrap().warnings, ["LoadBalancerAnnotationIgnored"], "87");
    assert_eq!(world.sent("PUT listeners/{id}"), json!({"listener": {"connection_limit": -1}}), "87");
}

#[tokio::test(start_paused = true)]
async fn case_088_and_107_ovn_gets_neither_timeouts_nor_http_monitors_and_no_further_writes() {
    let world = World::with(Options::default(), |config, _| {
        config.load_balancer.provider = "ovn".to_owned();
        config.load_balancer.method = "SOURCE_IP_PORT".to_owned();
        config.load_balancer.create_monitor = true;
    });
    let mut web = world.service();
    web.local(31000).annotate("timeout-client-data", "1800000");
    world.ensure(&mut web).await.unwrap();
    let listener = world.sent("POST loadbalancers")["loadbalancer"]["listeners"][0].clone();
    assert_eq!((listener.get("timeout_client_data"), listener.get("allowed_cidrs")), (None, None));
    assert_eq!(listener["default_pool"]["healthmonitor"]["type"], "TCP");
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
}

fn ranges(service: &mut Service, ranges: &[&str]) {
    service.spec.source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
}

#[tokio::test(start_paused = true)]
async fn case_089_090_and_093_source_ranges_are_compared_as_a_set() {
    let world = World::new();
    let mut web = created(&world).await;
    ranges(&mut web, &["192.168.0.0/16", "10.1.2.3/16", "10.1.0.0/16"]);
    assert_eq!(writes_of(&world, &mut web).await, ["PUT listeners/{id}"]);
    let cidrs = json!({"listener": {"allowed_cidrs": ["10.1.0.0/16", "192.168.0.0/16"]}});
    assert_eq!(world.sent("PUT listeners/{id}"), cidrs, "89");
    let listener = text(&world.only(Kind::Listener), "id").to_owned();
    world.cloud.edit(Kind::Listener, &listener, |listener| {
        listener.insert("allowed_cidrs".to_owned(), json!(["192.168.0.0/16", "10.1.0.0/16"]));
    });
    assert_eq!(writes_of(&world, &mut web).await, [""; 0], "93");
    ranges(&mut web, &[]);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.sent("PUT listeners/{id}"), json!({"listener": {"allowed_cidrs": ["0.0.0.0/0"]}}), "90");
}

#[tokio::test(start_paused = true)]
async fn source_ranges_of_both_families_are_used_with_vips_of_both() {
    let world = World::new();
    let mut web = created(&world).await;
    let balancer = text(&world.only(Kind::LoadBalancer), "id").to_owned();
    world.cloud.edit(Kind::LoadBalancer, &balancer, |balancer| {
        balancer.insert("additional_vips".to_owned(), json!([{"ip_address": "2001:db8::7", "subnet_id": "s6"}]));
    });
    ranges(&mut web, &["10.1.0.0/16", "2001:db8::/32"]);
    world.ensure(&mut web).await.unwrap();
    let cidrs = json!({"listener": {"allowed_cidrs": ["10.1.0.0/16", "2001:db8::/32"]}});
    assert_eq!(world.sent("PUT listeners/{id}"), cidrs);
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn case_092_an_old_octavia_ignores_source_ranges_with_a_warning() {
    let world = World::with(Options { octavia_minor: 10, ..Options::default() }, |_, _| ());
    let mut web = world.service();
    assert_eq!(world.ensure(&mut web).await.unwrap().warnings, [""; 0]);
    ranges(&mut web, &["10.0.0.0/8"]);
    assert_eq!(world.ensure(&mut web).await.unwrap().warnings, ["LoadBalancerSourceRangesIgnored"]);
    assert_eq!(world.sent("POST loadbalancers")["loadbalancer"]["listeners"][0].get("allowed_cidrs"), None::<&Value>);
}

#[tokio::test(start_paused = true)]
async fn case_094_and_095_an_untagged_listener_is_deleted_and_a_tagged_one_is_kept() {
    let deletions = &["DELETE pools/{id}", "DELETE listeners/{id}"][..];
    for (tags, writes) in [(json!([]), deletions), (json!(["team-b"]), &[])] {
        let world = World::new();
        let mut web = world.service();
        web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 8443, 30443)]);
        world.ensure(&mut web).await.unwrap();
        web.spec.ports.pop();
        let by_hand = world.cloud.records(Kind::Listener).into_iter().find(|one| one["protocol_port"] == 8443).unwrap();
        world.cloud.edit(Kind::Listener, text(&by_hand, "id"), |listener| {
            drop(listener.insert("tags".to_owned(), tags.clone()))
        });
        assert_eq!(writes_of(&world, &mut web).await, writes, "{tags}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_096_for_another_port_the_new_listener_is_created_before_the_old_one_is_deleted() {
    let world = World::new();
    let mut web = created(&world).await;
    web.ports(&[(Protocol::Tcp, 8080, 30080)]);
    let writes =
        ["POST listeners", "POST pools", "PUT pools/{id}/members", "DELETE pools/{id}", "DELETE listeners/{id}"];
    assert_eq!(writes_of(&world, &mut web).await, writes);
    assert_eq!(world.only(Kind::Listener)["protocol_port"], 8080);
    assert_eq!((world.count(Kind::Pool), world.count(Kind::Member)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn case_097_for_another_protocol_the_old_listener_is_deleted_first() {
    let world = World::new();
    let mut web = created(&world).await;
    web.annotate("x-forwarded-for", "true");
    let writes =
        ["DELETE pools/{id}", "DELETE listeners/{id}", "POST listeners", "POST pools", "PUT pools/{id}/members"];
    assert_eq!(writes_of(&world, &mut web).await, writes);
    let listener = world.only(Kind::Listener);
    assert_eq!((text(&listener, "protocol"), text(&world.only(Kind::Pool), "protocol")), ("HTTP", "HTTP"));
    assert_eq!(listener["insert_headers"], json!({"X-Forwarded-For": "true"}));
}
