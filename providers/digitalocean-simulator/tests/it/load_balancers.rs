//! Load balancers.

use std::time::Duration;

use bowline_digitalocean_simulator::{NewDroplet, Options, Work};
use http::Method;
use serde_json::{Value, json};

use crate::client::Client;

fn rule(entry: &str, port: u32, target: &str) -> Value {
    json!({"entry_protocol": entry, "entry_port": port, "target_protocol": target, "target_port": 30443})
}

#[tokio::test]
async fn a_new_load_balancer_has_no_address_until_its_creation_completes() {
    let client = Client::new(Options { work: Work::Manual, ..Options::default() });
    let path = client.create(json!({"network_stack": "DUALSTACK"})).await;
    let (_, new) = client.get(&path).await;
    assert_eq!((&new["load_balancer"]["status"], &new["load_balancer"]["ip"]), (&json!("new"), &json!("")));
    assert_eq!(client.put(&path, client.web(json!({}))).await.1["load_balancer"]["status"], "new");
    client.cloud.finish_work();
    let (_, active) = client.get(&path).await;
    assert_eq!(active["load_balancer"]["status"], "active");
    assert!(active["load_balancer"]["ip"].as_str().unwrap().starts_with("198.19."));
    assert!(active["load_balancer"]["ipv6"].as_str().unwrap().contains(':'));
    assert_eq!(active["load_balancer"]["region"]["slug"], "nyc3");
}

#[tokio::test]
async fn a_creation_takes_time_and_may_fail() {
    tokio::time::pause();
    let client = Client::new(Options { work: Work::Taking(Duration::from_secs(90)), ..Options::default() });
    let path = client.create(json!({})).await;
    client.cloud.fail_work(1);
    let failing = client.create(json!({"name": "failing"})).await;
    tokio::time::advance(Duration::from_secs(89)).await;
    assert_eq!(client.get(&path).await.1["load_balancer"]["status"], "new");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(client.get(&path).await.1["load_balancer"]["status"], "active");
    let (_, errored) = client.get(&failing).await;
    assert_eq!((&errored["load_balancer"]["status"], &errored["load_balancer"]["ip"]), (&json!("errored"), &json!("")));
}

#[tokio::test]
async fn an_internal_load_balancer_has_an_address_of_its_vpc() {
    let client = Client::new(Options::default());
    let path = client.create(json!({"network": "INTERNAL"})).await;
    assert!(client.get(&path).await.1["load_balancer"]["ip"].as_str().unwrap().starts_with("10.108.15."));
}

#[tokio::test]
async fn a_put_resets_the_fields_that_it_leaves_out() {
    let client = Client::new(Options::default());
    let check = json!({"protocol": "tcp", "port": 10256, "check_interval_seconds": 3});
    let changes = json!({"health_check": check, "http_idle_timeout_seconds": 120, "enable_proxy_protocol": true,
        "firewall": {"allow": ["cidr:10.0.0.0/8"]}, "tags": ["k8s:a"], "droplet_ids": []});
    let path = client.create(changes).await;
    let before = client.get(&path).await.1["load_balancer"].clone();
    assert_eq!(before["health_check"]["path"], Value::Null);
    assert_eq!(before["health_check"]["response_timeout_seconds"], 5);
    assert_eq!(before["firewall"], json!({"allow": ["cidr:10.0.0.0/8"], "deny": []}));
    let (status, after) = client.put(&path, client.web(json!({}))).await;
    let after = &after["load_balancer"];
    assert_eq!(
        (status, &after["health_check"]["path"], &after["health_check"]["port"]),
        (200, &json!("/"), &json!(80))
    );
    assert_eq!((&after["http_idle_timeout_seconds"], &after["enable_proxy_protocol"]), (&json!(60), &json!(false)));
    assert_eq!((&after["firewall"]["allow"], &after["tags"]), (&json!([]), &json!([])));
    assert_eq!(after["droplet_ids"], json!(client.droplets));
    for field in ["id", "ip", "status", "created_at"] {
        assert_eq!(before[field], after[field]);
    }
}

#[tokio::test]
async fn network_type_stack_and_vpc_cannot_be_changed() {
    let client = Client::new(Options::default());
    let vpc = client.cloud.put("vpcs", json!({"name": "other", "ip_range": "10.109.0.0/20"}));
    let path = client.create(json!({"network": "INTERNAL", "droplet_ids": []})).await;
    assert_eq!(client.put(&path, client.web(json!({}))).await.1["load_balancer"]["network"], "INTERNAL");
    let values =
        [("network", "EXTERNAL"), ("type", "REGIONAL_NETWORK"), ("network_stack", "DUALSTACK"), ("vpc_uuid", &vpc)];
    for (field, value) in values {
        let changes = json!({field: value, "droplet_ids": []});
        let (status, error) = client.put(&path, client.web(changes)).await;
        assert_eq!((status, &error["message"]), (422, &json!(format!("{field} cannot be changed"))));
    }
}

#[tokio::test]
async fn invalid_load_balancers_are_rejected() {
    let client = Client::new(Options::default());
    client.create(json!({"name": "taken"})).await;
    let certificate = client.cloud.put("certificates", json!({"name": "c"}));
    let https = |certificate: &str| {
        let mut rule = rule("https", 443, "http");
        rule["certificate_id"] = json!(certificate);
        rule
    };
    let check = |field: &str, value: u32| json!({"health_check": {"protocol": "http", field: value}});
    let rules = |rules: &[Value]| json!({"forwarding_rules": rules});
    let cases = [
        (json!({"name": "taken"}), "name is already in use"),
        (json!({"name": "-web"}), "name is invalid"),
        (json!({"name": "web-"}), "name is invalid"),
        (json!({"name": "a".repeat(256)}), "name is invalid"),
        (json!({"region": "moon1"}), "region is invalid"),
        (json!({"region": "sfo1"}), "region is invalid"),
        (json!({"vpc_uuid": "none"}), "vpc_uuid is invalid"),
        (json!({"type": "LOCAL"}), "type is invalid"),
        (
            json!({"network": "INTERNAL", "network_stack": "DUALSTACK"}),
            "internal load balancers do not support dual stack networking",
        ),
        (json!({"size": "lb-small", "size_unit": 1}), "only one of size and size_unit can be specified"),
        (json!({"size": "lb-huge"}), "size is invalid"),
        (json!({"size_unit": 101}), "size_unit must be an integer between 1 and 100"),
        (json!({"tag": "k8s"}), "only one of droplet_ids and tag can be specified"),
        (json!({"droplet_ids": [1]}), "droplet 1 not found"),
        (json!({"http_idle_timeout_seconds": 29}), "http_idle_timeout_seconds must be an integer between 30 and 600"),
        (
            check("check_interval_seconds", 2),
            "health check check_interval_seconds must be an integer between 3 and 300",
        ),
        (
            check("response_timeout_seconds", 301),
            "health check response_timeout_seconds must be an integer between 3 and 300",
        ),
        (check("healthy_threshold", 11), "health check healthy_threshold must be an integer between 2 and 10"),
        (json!({"health_check": {"protocol": "udp"}}), "health check protocol is invalid"),
        (json!({"sticky_sessions": {"type": "cookies"}}), "cookie_name is required"),
        (json!({"firewall": {"deny": ["10.0.0.0/8"]}}), "firewall rules are invalid"),
        (rules(&[]), "forwarding_rules must not be empty"),
        (rules(&[rule("tcp", 50054, "tcp")]), "entry port is invalid"),
        (rules(&[rule("tcp", 0, "tcp")]), "entry port must be an integer between 1 and 65535"),
        (rules(&[rule("udp", 53, "tcp")]), "udp must be the protocol of both sides of a rule"),
        (rules(&[rule("tcp", 80, "tcp"), rule("http", 80, "http")]), "entry port is used by more than one rule"),
        (rules(&[rule("https", 443, "http")]), "either a certificate or TLS passthrough is required"),
        (rules(&[https("none")]), "certificate none not found"),
        (
            rules(&[
                json!({"entry_protocol": "http3", "entry_port": 443, "target_protocol": "http", "target_port": 30443,
            "certificate_id": certificate}),
            ]),
            "an http3 rule requires an https or http2 rule",
        ),
        (json!({"type": "REGIONAL_NETWORK"}), "entry port and target port must be equal"),
    ];
    for (changes, message) in cases {
        let (status, error) = client.post("/v2/load_balancers", client.web(changes.clone())).await;
        assert_eq!(
            (status, &error["id"], &error["message"]),
            (422, &json!("unprocessable_entity"), &json!(message)),
            "{changes}"
        );
    }
    client.create(rules(&[https(&certificate), rule("udp", 443, "udp")])).await;
}

#[tokio::test]
async fn droplets_must_be_in_the_vpc_of_the_load_balancer() {
    let client = Client::new(Options::default());
    let vpc = client.cloud.put("vpcs", json!({"name": "other", "ip_range": "10.109.0.0/20"}));
    let id = client.cloud.add_droplet(NewDroplet { vpc: vpc.clone(), ..NewDroplet::named("elsewhere") });
    let (status, error) = client.post("/v2/load_balancers", client.web(json!({"droplet_ids": [id]}))).await;
    assert_eq!(status, 422);
    assert!(error["message"].as_str().unwrap().contains("don't belong to the same VPC"));
    client.create(json!({"droplet_ids": [id], "vpc_uuid": vpc})).await;
}

#[tokio::test]
async fn the_account_limits_the_number_of_load_balancers() {
    let client = Client::new(Options { load_balancer_limit: Some(1), ..Options::default() });
    client.create(json!({})).await;
    let (status, error) = client.post("/v2/load_balancers", client.web(json!({"name": "second"}))).await;
    assert_eq!(
        (status, &error["message"]),
        (422, &json!("creating this load balancer will exceed your load balancer limit"))
    );
}

#[tokio::test]
async fn a_load_balancer_is_resized_at_most_once_per_hour() {
    tokio::time::pause();
    let client = Client::new(Options::default());
    let path = client.create(json!({"size": "lb-small"})).await;
    let resized = || client.web(json!({"size_unit": 3}));
    assert_eq!(client.put(&path, resized()).await.0, 422);
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(client.put(&path, resized()).await.1["load_balancer"]["size_unit"], 3);
    assert_eq!(client.put(&path, client.web(json!({"size": "lb-medium"}))).await.0, 200);
    assert_eq!(client.put(&path, client.web(json!({}))).await.0, 422);
}

#[tokio::test]
async fn a_validation_changes_nothing() {
    let client = Client::new(Options::default());
    let validation = |changes: Value| {
        let mut body = client.web(changes);
        body["validate_only"] = json!(true);
        body
    };
    assert_eq!(client.post("/v2/load_balancers", validation(json!({}))).await.0, 202);
    assert_eq!(client.post("/v2/load_balancers", validation(json!({"size_unit": 0}))).await.0, 422);
    assert!(client.cloud.records("load_balancers").is_empty());
    assert!(client.cloud.writes().is_empty());
    let path = client.create(json!({})).await;
    assert_eq!(client.put(&path, validation(json!({"name": "other"}))).await.1["load_balancer"]["name"], "web");
}

#[tokio::test]
async fn a_deleted_load_balancer_is_gone() {
    let client = Client::new(Options { work: Work::Manual, ..Options::default() });
    let path = client.create(json!({})).await;
    assert_eq!(client.delete(&path).await.0, 204);
    client.cloud.finish_work();
    for method in [Method::GET, Method::DELETE] {
        let (status, error) = client.call(method, &path, Value::Null).await;
        assert_eq!((status, &error["id"]), (404, &json!("not_found")));
    }
}

#[tokio::test]
async fn a_load_balancer_can_be_stored_without_validation() {
    let client = Client::new(Options { work: Work::Manual, ..Options::default() });
    client.cloud.put("load_balancers", json!({"name": "a", "type": "GLOBAL", "size_unit": 2}));
    client.cloud.put("load_balancers", json!({"name": "b", "status": "errored", "ip": "192.0.2.1"}));
    let shown: Vec<Value> = client.cloud.records("load_balancers").into_iter().map(Value::Object).collect();
    assert_eq!((&shown[0]["status"], &shown[0]["type"]), (&json!("active"), &json!("GLOBAL")));
    assert!(!shown[0]["ip"].as_str().unwrap().is_empty());
    assert_eq!(shown[0]["vpc_uuid"], client.cloud.vpc());
    let path = format!("/v2/load_balancers/{}", shown[0]["id"].as_str().unwrap());
    assert_eq!(client.put(&path, client.web(json!({"type": "GLOBAL"}))).await.1["load_balancer"]["size_unit"], 1);
    assert_eq!((&shown[1]["status"], &shown[1]["ip"]), (&json!("errored"), &json!("192.0.2.1")));
}

#[tokio::test]
async fn a_frozen_view_hides_new_load_balancers_from_readers() {
    let client = Client::new(Options::default());
    client.cloud.freeze_view(true);
    let path = client.create(json!({})).await;
    assert_eq!(client.get("/v2/load_balancers").await.1["meta"]["total"], 0);
    assert_eq!(client.get(&path).await.0, 404);
    client.cloud.freeze_view(false);
    assert_eq!(client.get("/v2/load_balancers").await.1["meta"]["total"], 1);
}
