//! Resources that the Go manager has created, and load balancers that the manager must leave alone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::digitalocean::scene::{FIREWALL, ID, Scene, TAG, TYPE, text};
use crate::support::Program;
use crate::support::cluster::address;

/// Annotation that leaves a load balancer to another owner.
const DISOWN: &str = "service.kubernetes.io/do-loadbalancer-disown";

/// Time in which a manager with nothing to do would have written something.
const QUIET: Duration = Duration::from_millis(500);

/// Creates the load balancer of a Service as the Go manager does; returns its ID.
fn created_by_go(scene: &Scene, service: &Service, kind: &str, target_port: i32, stack: &str) -> String {
    let droplets: Vec<_> = scene.cloud.records("droplets").iter().map(|droplet| droplet["id"].clone()).collect();
    let uid = service.metadata.uid.as_ref().unwrap().replace('-', "");
    scene.cloud.put(
        "load_balancers",
        json!({
            "name": format!("a{}", &uid[..31]), "algorithm": "round_robin", "region": "nyc3", "type": kind,
            "forwarding_rules": [{
                "entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": target_port,
            }],
            "health_check": {
                "protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3,
                "response_timeout_seconds": 5, "healthy_threshold": 5, "unhealthy_threshold": 3, "proxy_protocol": false,
            },
            "sticky_sessions": {"type": "none"}, "droplet_ids": droplets, "tags": [TAG], "network": "EXTERNAL",
            "network_stack": stack, "disable_lets_encrypt_dns_records": false, "firewall": {},
        }),
    )
}

/// Creates the firewall as the Go manager does.
fn firewall_of_go(scene: &Scene, balancer: &str, node_port: i32) {
    let anywhere = json!({"addresses": ["0.0.0.0/0", "::/0"]});
    let inbound = |port: String, sources: Value| json!({"protocol": "tcp", "ports": port, "sources": sources});
    let outbound = |protocol: &str| json!({"protocol": protocol, "ports": "all", "destinations": anywhere});
    scene.cloud.put(
        "firewalls",
        json!({
            "name": "public", "tags": ["k8s:worker"], "droplet_ids": null,
            "inbound_rules": [
                inbound("10256".to_owned(), json!({"load_balancer_uids": [balancer]})),
                inbound(node_port.to_string(), anywhere.clone()),
                inbound("80".to_owned(), anywhere.clone()),
            ],
            "outbound_rules": [
                outbound("tcp"), outbound("udp"), json!({"protocol": "icmp", "destinations": anywhere}),
            ],
        }),
    );
}

fn node_port(service: &Service) -> i32 {
    service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port.unwrap()
}

/// Waits until both loops have run, and the manager has had time to write.
async fn settled(scene: &Scene, manager: &Program) {
    scene.called(manager, "GET firewalls").await;
    scene.called(manager, "GET load_balancers").await;
    tokio::time::sleep(QUIET).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_the_go_manager_are_adopted_without_a_write() {
    let scene = Scene::new("adoption").await;
    let ports = json!({"metadata": {"name": "ports"}, "spec": {"type": "NodePort", "ports": [{"port": 90}]}});
    let ports = serde_json::from_value(ports).unwrap();
    let ports = scene.services().create(&PostParams::default(), &ports).await.unwrap();
    let web = scene.create("web").await;
    let web_id = created_by_go(&scene, &web, "REGIONAL_NETWORK", 80, "IPV4");
    scene.set_annotation("web", ID, &web_id).await;
    scene.set_annotation("web", TYPE, "REGIONAL_NETWORK").await;
    // This Service has lost the ID, and is found by its name.
    let shop = scene.create_with("shop", 80, &[(TYPE, "REGIONAL")]).await;
    let shop_id = created_by_go(&scene, &shop, "REGIONAL", node_port(&shop), "DUALSTACK");
    firewall_of_go(&scene, &web_id, node_port(&ports));

    let mut manager = scene.manager_with("adoption", &FIREWALL, &[]);
    for (name, id) in [("web", &web_id), ("shop", &shop_id)] {
        let ip = scene.load_balancers().into_iter().find(|one| text(&one["id"]) == *id).unwrap()["ip"].clone();
        assert_eq!(scene.address(&manager, name).await, text(&ip));
        assert_eq!(scene.get_annotation(name, ID).await.as_ref(), Some(id));
        assert_eq!(scene.warnings(name).await, []);
    }
    settled(&scene, &manager).await;
    assert_eq!(scene.writes(), [""; 0]);
    scene.stop(&mut manager);

    let versions = versions(&scene).await;
    scene.cloud.forget_calls();
    let mut manager = scene.manager_with("adoption", &FIREWALL, &[]);
    settled(&scene, &manager).await;
    assert_eq!(scene.writes(), [""; 0]);
    assert_eq!(self::versions(&scene).await, versions, "a restart writes nothing to the cluster either");
    scene.stop(&mut manager);
}

/// Resource versions of all Services.
async fn versions(scene: &Scene) -> Vec<Option<String>> {
    let services = scene.services().list(&Default::default()).await.unwrap().items;
    services.into_iter().map(|service| service.metadata.resource_version).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disowned_service_causes_no_call_and_keeps_its_status_and_its_load_balancer() {
    let scene = Scene::new("disown").await;
    let mut manager = scene.manager("disown");
    scene.create("web").await;
    let ip = scene.address(&manager, "web").await;
    scene.set_annotation("web", DISOWN, "true").await;
    tokio::time::sleep(QUIET).await;
    scene.cloud.forget_calls();
    // Neither a change of the Service nor one of the Nodes reaches the load balancer.
    scene.patch("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    scene.node("node-3").await;
    tokio::time::sleep(2 * QUIET).await;
    assert_eq!(scene.cloud.journal(), []);
    assert_eq!(address(&scene.services().get("web").await.unwrap()), Some(ip));
    assert_eq!(scene.warnings("web").await, []);
    scene.delete(&manager, "web").await;
    assert_eq!(scene.load_balancer()["forwarding_rules"][0]["entry_port"], 80);
    assert_eq!(scene.cloud.journal(), []);
    scene.stop(&mut manager);
}
