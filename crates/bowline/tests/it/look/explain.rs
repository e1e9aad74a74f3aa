//! `bowline explain`: its output, and that it writes nothing.

use std::process::Output;

use serde_json::{Value, json};

use crate::look::world::{World, address, text};

fn explain(world: &World, object: &str, flags: &[&str]) -> Output {
    world.run("explain", &[&[object, "--configure-cloud-routes=false"], flags].concat())
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns the desired and observed value of a field.
fn field<'a>(document: &'a Value, name: &str) -> (&'a str, &'a str) {
    let fields = document["fields"].as_array().unwrap();
    let field = fields.iter().find(|field| field["field"] == name).unwrap_or_else(|| panic!("{name}: {document:#}"));
    (field["desired"].as_str().unwrap(), field["observed"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_explained_before_and_after_its_initialisation() {
    let world = World::start("explain-node").await;
    world.cloud(&["add", "worker-1", "--id=one", "--zone=quay-1", "--address=InternalIP=10.0.0.1"]);
    world.create_node("worker-1").await;
    world.create_node("stranger").await;
    world.cloud_writes();
    let (before, writes) = (world.versions().await, world.api_writes().await);

    let output = explain(&world, "node/worker-1", &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let printed = text(&output.stdout);
    for part in [
        "Node worker-1\n  cloud: local: the machine is running\n",
        "\n  * spec.providerID ",
        "  local://one ",
        "\n  * status.addresses ",
        "next, in the cluster:\n    update Node worker-1\n",
        "  last Events: none\n",
    ] {
        assert!(printed.contains(part), "{part:?} is missing in {printed}");
    }
    let json = document(&explain(&world, "node/worker-1", &["-o", "json"]));
    assert_eq!((&json["cloud"], &json["version"]), (&json!("local"), &json!(1)));
    assert_eq!(field(&json, "label topology.kubernetes.io/zone"), ("quay-1", ""));
    assert_eq!(field(&json, "taint node.cloudprovider.kubernetes.io/uninitialized"), ("", "present"));

    let stranger = document(&explain(&world, "no/stranger", &["-o=json"]));
    assert_eq!(stranger["ownership"], "none: no configured cloud has a machine of this name");
    assert_eq!(stranger["remarks"][0]["kind"], "refused", "{stranger:#}");
    assert_eq!(
        (world.versions().await, world.api_writes().await),
        (before, writes),
        "nothing is written to the cluster"
    );
    assert_eq!(world.cloud_writes(), [""; 0], "nothing is written to the cloud");

    let mut manager = world.manager("explain-node", &[]);
    manager.wait_for("Node synced successfully");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    let json = document(&explain(&world, "node/worker-1", &["-o", "json"]));
    assert_eq!(field(&json, "spec.providerID"), ("local://one", "local://one"));
    assert!(json["events"].as_array().unwrap().iter().any(|event| event["reason"] == "Synced"), "{json:#}");
    // The machine is deleted: the Node is kept for now, and the explanation says why.
    world.cloud(&["delete", "one"]);
    let gone = document(&explain(&world, "node/worker-1", &["-o", "json"]));
    assert_eq!(gone["ownership"], "local: the cloud has no such machine", "{gone:#}");
    let is_held_back =
        |notice: &Value| notice["kind"] == "heldBack" || notice["message"].to_string().contains("deleted if");
    assert!(gone["remarks"].as_array().unwrap().iter().any(is_held_back), "{gone:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_explained_with_its_class_its_targets_and_its_events() {
    let world = World::start("explain-service").await;
    world.create_node("worker-1").await;
    world.create_service("web", json!({})).await;
    world.create_service("wrong", json!({"bowline.dev/internal": "perhaps"})).await;
    let (before, writes) = (world.versions().await, world.api_writes().await);
    let output = explain(&world, "service/default/web", &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let printed = text(&output.stdout);
    for part in [
        "Service default/web\n  cloud: local: it is the default cloud for Services without a class (--load-balancer-default-cloud)\n",
        "\n  * load balancer ",
        "  targets: 0 Nodes\n  Nodes left out: worker-1 (not initialized)\n",
        "next, in the cloud:\n    create ",
    ] {
        assert!(printed.contains(part), "{part:?} is missing in {printed}");
    }
    let wrong = document(&explain(&world, "svc/default/wrong", &["-o", "json"]));
    assert_eq!(wrong["remarks"][0]["kind"], "refused", "{wrong:#}");
    assert_eq!(field(&wrong, "load balancer"), ("in local", ""));
    assert_eq!(
        (world.versions().await, world.api_writes().await),
        (before, writes),
        "nothing is written to the cluster"
    );

    let mut manager = world.manager("explain-service", &[]);
    world.until("web", &manager, |service| service.is_some_and(|service| address(&service).is_some())).await;
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    let output = explain(&world, "service/default/web", &["-o", "json"]);
    let json = document(&output);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    assert_eq!(field(&json, "load balancer"), ("in local", "in local"));
    let (desired, observed) = field(&json, "status.loadBalancer");
    assert!(desired == observed && !observed.is_empty(), "{json:#}");
    assert_eq!(json["leftOut"][0], json!({"reason": "not initialized", "nodes": ["worker-1"], "count": 1}));
    assert!(
        json["events"].as_array().unwrap().iter().any(|event| event["reason"] == "EnsuredLoadBalancer"),
        "{json:#}"
    );
    world.create_service("resting", json!({"bowline.dev/paused": "true"})).await;
    let resting = explain(&world, "service/default/resting", &["-o", "json"]);
    assert_eq!(resting.status.code(), Some(0), "{resting:?}");
    let resting = document(&resting);
    let owner = resting["ownership"].as_str().unwrap();
    assert!(owner.ends_with("; paused by the annotation bowline.dev/paused"), "{resting:#}");
    assert!(resting["remarks"][0]["message"].as_str().is_some_and(|message| !message.is_empty()), "{resting:#}");
    let elsewhere =
        document(&explain(&world, "service/default/web", &["-o=json", "--load-balancer-default-cloud=none"]));
    assert!(
        elsewhere["ownership"].as_str().unwrap().starts_with("none: no default cloud for Services"),
        "{elsewhere:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_a_missing_object_suggests_the_nearest_names() {
    let world = World::start("explain-unknown").await;
    world.create_node("worker-1").await;
    world.create_service("web", json!({})).await;
    for (object, code, expected) in [
        ("node/worker-2", 1, "Node worker-2 not found; did you mean worker-1?"),
        ("service/prod/web", 1, "Service prod/web not found; found default/web"),
        ("service/web", 2, "expected node/NAME or service/NAMESPACE/NAME"),
    ] {
        let output = explain(&world, object, &[]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
    let none = world.run("explain", &[]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    assert!(text(&none.stderr).contains("<node/NAME|service/NAMESPACE/NAME>"), "{none:?}");
}
