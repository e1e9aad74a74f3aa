//! Certificates, tags, firewalls and VPCs.

use bowline_digitalocean_simulator::{Options, Work};
use http::Method;
use serde_json::{Value, json};

use crate::client::Client;

#[tokio::test]
async fn a_renewed_certificate_keeps_its_name_and_its_load_balancers() {
    let client = Client::new(Options::default());
    let old = client.cloud.put("certificates", json!({"name": "le", "type": "lets_encrypt"}));
    client.cloud.put("certificates", json!({"name": "custom"}));
    let rule = json!({"entry_protocol": "https", "entry_port": 443, "target_protocol": "http", "target_port": 30443,
        "certificate_id": old});
    let path = client.create(json!({"forwarding_rules": [rule]})).await;
    let new = client.cloud.renew_certificate("le").unwrap();
    let (_, found) = client.get("/v2/certificates?name=le&page=1&per_page=1").await;
    assert_eq!(
        (&found["certificates"][0]["id"], &found["certificates"][0]["type"]),
        (&json!(new), &json!("lets_encrypt"))
    );
    assert_eq!((client.get(&format!("/v2/certificates/{old}")).await.0, &found["meta"]["total"]), (404, &json!(1)));
    assert_eq!(client.get(&path).await.1["load_balancer"]["forwarding_rules"][0]["certificate_id"], new);
    assert_eq!(client.get("/v2/certificates?name=unknown").await.1["certificates"], json!([]));
}

#[tokio::test]
async fn a_tag_is_added_to_load_balancers_and_droplets() {
    let client = Client::new(Options::default());
    let path = client.create(json!({})).await;
    let id = path.rsplit('/').next().unwrap();
    let resources = json!({"resources": [{"resource_id": id, "resource_type": "load_balancer"},
        {"resource_id": client.droplets[0].to_string(), "resource_type": "droplet"}]});
    assert_eq!(client.post("/v2/tags/k8s:a/resources", resources.clone()).await.0, 404);
    assert_eq!(client.post("/v2/tags", json!({"name": "k8s:a"})).await.0, 201);
    assert_eq!(client.post("/v2/tags", json!({"name": "k8s a"})).await.0, 422);
    for path in ["/v2/tags/k8s:a/resources", "/v2/tags/k8s%3Aa/resources"] {
        assert_eq!(client.post(path, resources.clone()).await.0, 204);
    }
    assert_eq!(client.get(&path).await.1["load_balancer"]["tags"], json!(["k8s:a"]));
    let tag = json!({"name": "k8s:a", "resources": {"count": 2, "droplets": {"count": 1}}});
    assert_eq!(client.get("/v2/tags").await.1["tags"], json!([tag]));
    assert_eq!(client.get("/v2/droplets?tag_name=k8s%3Aa").await.1["meta"]["total"], 1);
    assert_eq!(client.call(Method::DELETE, "/v2/tags/k8s:a/resources", resources).await.0, 204);
    assert_eq!(client.get("/v2/tags/k8s:a").await.1["tag"]["resources"]["count"], 0);
    assert_eq!(client.cloud.counts()["POST tags/{id}/resources"], 3);
}

#[tokio::test]
async fn a_load_balancer_creates_its_tags_and_loses_deleted_ones() {
    let client = Client::new(Options::default());
    let path = client.create(json!({"tags": ["k8s:b"]})).await;
    assert_eq!(client.get("/v2/tags/k8s:b").await.1["tag"]["resources"]["count"], 1);
    assert_eq!(client.delete("/v2/tags/k8s:b").await.0, 204);
    assert_eq!(client.get(&path).await.1["load_balancer"]["tags"], json!([]));
    assert_eq!(client.get("/v2/tags/k8s:b").await.0, 404);
}

fn firewall(changes: Value) -> Value {
    let everywhere = json!({"addresses": ["0.0.0.0/0", "::/0"]});
    let mut body = json!({"name": "public-access", "droplet_ids": null, "tags": ["k8s"],
        "inbound_rules": [{"protocol": "tcp", "ports": "30080", "sources": everywhere}],
        "outbound_rules": [{"protocol": "tcp", "ports": "all", "destinations": everywhere},
            {"protocol": "icmp", "destinations": everywhere}]});
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_firewall_waits_for_its_changes_and_shows_all_ports_as_zero() {
    let client = Client::new(Options { work: Work::Manual, ..Options::default() });
    let (status, created) = client.post("/v2/firewalls", firewall(json!({"droplet_ids": client.droplets}))).await;
    let created = &created["firewall"];
    assert_eq!(
        (status, &created["status"], created["pending_changes"].as_array().unwrap().len()),
        (202, &json!("waiting"), 2)
    );
    assert_eq!(
        (&created["outbound_rules"][0]["ports"], &created["outbound_rules"][1]["ports"]),
        (&json!("0"), &json!("0"))
    );
    let path = format!("/v2/firewalls/{}", created["id"].as_str().unwrap());
    client.cloud.finish_work();
    let (_, shown) = client.get(&path).await;
    assert_eq!(
        (&shown["firewall"]["status"], &shown["firewall"]["pending_changes"]),
        (&json!("succeeded"), &json!([]))
    );
    let (status, replaced) = client.put(&path, firewall(json!({"inbound_rules": null}))).await;
    assert_eq!((status, &replaced["firewall"]["inbound_rules"]), (200, &json!([])));
    assert_eq!((&replaced["firewall"]["id"], &replaced["firewall"]["droplet_ids"]), (&created["id"], &json!([])));
    assert_eq!(client.get("/v2/firewalls").await.1["meta"]["total"], 1);
    assert_eq!(client.delete(&path).await.0, 204);
    assert_eq!(client.put(&path, firewall(json!({}))).await.0, 404);
}

#[tokio::test]
async fn invalid_firewalls_are_rejected() {
    let client = Client::new(Options::default());
    client.cloud.put("firewalls", firewall(json!({"name": "taken"})));
    assert_eq!(client.post("/v2/firewalls", firewall(json!({"name": "taken"}))).await.0, 409);
    let rule = |protocol: &str, ports: &str, address: &str| {
        let rule = json!({"protocol": protocol, "ports": ports, "sources": {"addresses": [address]}});
        json!({"inbound_rules": [rule]})
    };
    let cases = [
        json!({"name": "x"}),
        json!({"name": "-x"}),
        json!({"inbound_rules": [], "outbound_rules": []}),
        rule("sctp", "80", "::/0"),
        rule("tcp", "", "::/0"),
        rule("tcp", "80-x", "::/0"),
        rule("tcp", "70000", "::/0"),
        rule("tcp", "80", "everywhere"),
    ];
    for changes in cases {
        assert_eq!(client.post("/v2/firewalls", firewall(changes.clone())).await.0, 422, "{changes}");
    }
    assert_eq!(client.post("/v2/firewalls", firewall(rule("tcp", "8000-9000", "192.0.2.1"))).await.0, 202);
}

#[tokio::test]
async fn one_vpc_is_the_default() {
    let client = Client::new(Options::default());
    let other = client.cloud.put("vpcs", json!({"name": "other"}));
    let (_, list) = client.get("/v2/vpcs").await;
    let defaults: Vec<&Value> = list["vpcs"].as_array().unwrap().iter().map(|vpc| &vpc["default"]).collect();
    assert_eq!(defaults, [true, false]);
    assert_eq!(client.get(&format!("/v2/vpcs/{other}")).await.1["vpc"]["urn"], format!("do:vpc:{other}"));
}
