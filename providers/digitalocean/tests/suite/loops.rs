//! Background loops: tags and the public-access firewall.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ClusterSnapshot, ErrorKind, LoopPlan, ProviderLoop, Result};
use bowline_core::service::ServiceType;
use bowline_core::testing::{annotated, service, service_port};
use bowline_core::{Protocol, Service};
use bowline_digitalocean_simulator::{FaultSpec, Fields as _, Options, error_fault};
use http::Method;
use serde_json::json;

use crate::world::{ID, TYPE, World, web};

const FIREWALL: [(&str, &str); 2] =
    [("PUBLIC_ACCESS_FIREWALL_NAME", "fw"), ("PUBLIC_ACCESS_FIREWALL_TAGS", "k8s:worker")];

fn snapshot(services: &[Service]) -> ClusterSnapshot {
    ClusterSnapshot {
        name: "kubernetes".into(),
        nodes: Vec::new(),
        paused: Vec::new(),
        services: services.iter().cloned().map(Arc::new).collect(),
    }
}

fn named(world: &World, name: &str) -> Arc<dyn ProviderLoop> {
    world.provider.loops().into_iter().find(|one| one.name() == name).unwrap()
}

/// Plans and applies, and returns the plan.
async fn run(one: &Arc<dyn ProviderLoop>, services: &[Service]) -> Result<LoopPlan> {
    let plan = one.plan(&snapshot(services)).await?;
    for step in &plan.plan.steps {
        one.apply(step).await?;
    }
    Ok(plan)
}

fn node_port(port: u16) -> Service {
    let port = bowline_core::service::ServicePort { node_port: Some(port), ..service_port(Protocol::Tcp, 80) };
    Service { kind: ServiceType::NodePort, ports: vec![port], ..service("default/node-port") }
}

// ---- tags

#[tokio::test(start_paused = true)]
async fn do_50_without_load_balancers_the_tag_loop_makes_no_call() {
    let world = World::new().await;
    let cluster_ip = Service { kind: ServiceType::ClusterIP, ..service("default/plain") };
    run(&named(&world, "tags"), &[cluster_ip, node_port(30080)]).await.unwrap();
    assert_eq!(world.cloud.calls(), 0);
    assert!(
        World::with(Options::default(), &[]).await.provider.loops().is_empty(),
        "without a cluster ID there is no loop"
    );
}

#[tokio::test(start_paused = true)]
async fn untagged_load_balancers_get_the_tag_in_one_call_and_once() {
    let world = World::new().await;
    let by_id = world.cloud.put("load_balancers", json!({"name": "one"}));
    world.cloud.put("load_balancers", json!({"name": crate::world::NAME}));
    world.cloud.put("load_balancers", json!({"name": "unrelated"}));
    let services = [
        annotated(service("default/one"), &[(ID, &by_id)]),
        web(&[]),
        annotated(service("default/stale"), &[(ID, "gone")]),
    ];
    let tags = named(&world, "tags");
    run(&tags, &services).await.unwrap();
    assert_eq!(
        world.writes(),
        ["POST tags/{id}/resources", "POST tags", "POST tags/{id}/resources"],
        "the tag did not exist"
    );
    let tagged = world.cloud.records("load_balancers");
    let tagged: Vec<_> =
        tagged.iter().filter(|one| one.texts("tags") == ["k8s:c1"]).map(|one| one.text("name")).collect();
    assert_eq!(tagged, ["one", crate::world::NAME]);
    assert!(run(&tags, &services).await.unwrap().plan.is_empty());
    assert_eq!(world.calls(), ["GET load_balancers"]);
}

#[tokio::test(start_paused = true)]
async fn do_51_a_failed_tagging_creates_no_tag() {
    let world = World::new().await;
    let id = world.cloud.put("load_balancers", json!({"name": "one"}));
    world.cloud.inject(FaultSpec::always(error_fault(500, "boom")).on(Method::POST, "tags/{id}/resources"));
    let error = run(&named(&world, "tags"), &[annotated(service("default/one"), &[(ID, &id)])]).await.unwrap_err();
    assert!(
        error.to_string().starts_with(
            "failed to tag LB resource(s) with tag \"k8s:c1\": POST http://do.test/v2/tags/k8s:c1/resources: 500"
        ),
        "{error}"
    );
    assert_eq!(world.cloud.records("tags").len(), 0);
}

// ---- firewall

#[tokio::test(start_paused = true)]
async fn do_47_the_firewall_is_created_without_rules_and_then_left_alone() {
    let world = World::with(Options::default(), &FIREWALL).await;
    let firewall = named(&world, "firewall");
    run(&firewall, &[]).await.unwrap();
    assert_eq!(world.calls(), ["GET firewalls", "POST firewalls"]);
    assert!(run(&firewall, &[]).await.unwrap().plan.is_empty());
    assert_eq!(world.calls(), Vec::<String>::new(), "it is kept in memory");
    tokio::time::advance(Duration::from_secs(301)).await;
    assert!(run(&firewall, &[]).await.unwrap().plan.is_empty(), "DO-44 to DO-46: as the API reports it");
    assert_eq!(world.calls(), ["GET firewalls/{id}"]);
}

/// What the Go manager created, in the form in which the API returns it.
#[tokio::test(start_paused = true)]
async fn do_44_to_46_the_firewall_of_the_go_manager_is_taken_over_without_a_write() {
    let world = World::with(Options::default(), &FIREWALL).await;
    let all = json!({"addresses": ["0.0.0.0/0", "::/0"]});
    world.cloud.put("firewalls", json!({"name": "fw", "tags": ["k8s:worker"], "droplet_ids": [1],
        "inbound_rules": [{"protocol": "tcp", "ports": "30081", "sources": all}, {"protocol": "tcp", "ports": "30080", "sources": all}],
        "outbound_rules": [{"protocol": "tcp", "ports": "all", "destinations": all}, {"protocol": "udp", "ports": "all", "destinations": all},
            {"protocol": "icmp", "destinations": all}]}));
    assert!(run(&named(&world, "firewall"), &[node_port(30080), node_port(30081)]).await.unwrap().plan.is_empty());
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn do_48_49_and_53_ports_follow_the_services() {
    let world = World::with(Options::default(), &FIREWALL).await;
    let firewall = named(&world, "firewall");
    let proxy = annotated(service("default/proxy"), &[(TYPE, "REGIONAL")]);
    run(&firewall, &[proxy, web(&[]), service("default/other")]).await.unwrap();
    let ports = |world: &World| -> Vec<String> {
        let rules = world.cloud.records("firewalls")[0]["inbound_rules"].clone();
        rules.as_array().unwrap().iter().map(|rule| rule["ports"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ports(&world), ["10256", "80"], "DO-48, DO-49");
    world.cloud.forget_calls();
    run(&firewall, &[annotated(web(&[]), &[(ID, "lb-1")])]).await.unwrap();
    assert_eq!(world.writes(), ["PUT firewalls/{id}"], "DO-53");
    assert_eq!(
        world.cloud.records("firewalls")[0]["inbound_rules"][0]["sources"],
        json!({"load_balancer_uids": ["lb-1"]})
    );
}

#[tokio::test(start_paused = true)]
async fn do_52_an_invalid_type_fails_the_loop_without_a_write() {
    let world = World::with(Options::default(), &FIREWALL).await;
    let bad = annotated(service("default/bad"), &[(TYPE, "bogus")]);
    let error = run(&named(&world, "firewall"), &[bad, node_port(30080)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("default/bad"), "{error}");
    assert_eq!(world.cloud.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn do_54_a_firewall_that_was_deleted_is_created_in_the_same_run() {
    let world = World::with(Options::default(), &FIREWALL).await;
    let firewall = named(&world, "firewall");
    run(&firewall, &[]).await.unwrap();
    let id = world.cloud.records("firewalls")[0].text("id").to_owned();
    world.cloud.remove("firewalls", &id);
    world.cloud.forget_calls();
    run(&firewall, &[node_port(30080)]).await.unwrap();
    assert_eq!(world.writes(), ["PUT firewalls/{id}", "POST firewalls"]);
    // Recreated by hand with another ID: the next read finds it by its name.
    let id = world.cloud.records("firewalls")[0].text("id").to_owned();
    world.cloud.remove("firewalls", &id);
    let other = world.cloud.put("firewalls", json!({"name": "fw", "tags": ["k8s:worker"]}));
    tokio::time::advance(Duration::from_secs(301)).await;
    run(&firewall, &[node_port(30080)]).await.unwrap();
    assert_eq!(world.cloud.records("firewalls").len(), 1);
    assert_eq!(world.cloud.records("firewalls")[0].text("id"), other);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_response_is_read_again_and_makes_no_second_firewall() {
    let world = World::with(Options::default(), &FIREWALL).await;
    let firewall = named(&world, "firewall");
    let (outcome, _) = world.cloud.crashing(2, run(&firewall, &[])).await;
    assert!(outcome.is_err());
    run(&firewall, &[]).await.unwrap();
    assert_eq!(world.cloud.records("firewalls").len(), 1);
}
