//! Background loops in `bowline plan` and `bowline orphans`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use crate::look::world::{World, text};

/// Document that a command prints with `-o json`.
fn document(world: &World, command: &str) -> Value {
    let flags = ["--configure-cloud-routes=false", "-o", "json"];
    let output = world.run(command, &flags);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Runs the manager until nothing is left to do.
async fn settle(world: &World) {
    let mut manager = world.manager("loops", &[]);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while world.plan(&[]).status.code() != Some(0) {
        assert!(tokio::time::Instant::now() < deadline, "{}", manager.output());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_loops_are_planned_and_their_leftovers_are_listed() {
    let mut world = World::start("loops").await;
    world.tag_machines();
    world.cloud(&["add", "worker-1", "--id=one"]);
    world.create_node("worker-1").await;
    let none = world.run("orphans", &[]);
    assert!(text(&none.stdout).ends_with("No leftovers of background loops in cluster kubernetes.\n"), "{none:?}");
    settle(&world).await;
    assert!(world.cloud_writes().iter().any(|call| call.starts_with("change-tag")));

    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.delete("worker-1", &DeleteParams::default()).await.unwrap();
    world.cloud_writes();
    let plan = world.plan(&[]);
    let step = "    update machine one\n        tag: cluster:kubernetes (removed)\n";
    let expected =
        format!("Loop tags (local)\n  in the cloud:\n{step}\n1 step in clouds and 0 in the cluster to apply.\n");
    assert_eq!((plan.status.code(), text(&plan.stdout)), (Some(3), expected), "{plan:?}");
    let changes = json!([{"field": "tag", "from": "cluster:kubernetes"}]);
    let steps = json!([{"verb": "update", "kind": "machine", "name": "one", "changes": changes}]);
    let item = json!({
        "kind": "Loop", "namespace": null, "name": "tags", "cloud": "local", "inCloud": steps, "inCluster": [], "remarks": [],
    });
    assert_eq!(document(&world, "plan")["items"], json!([item]));

    let listed = world.run("orphans", &["--delete", "--yes", "--cluster-name=kubernetes"]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let printed = text(&listed.stdout);
    assert!(printed.starts_with(&format!("loop tags in local\n{step}")), "{printed}");
    let summary = "1 leftover of background loops in cluster kubernetes, removed by the manager and not by --delete.\n";
    assert!(printed.ends_with(summary), "{printed}");
    let leftovers = json!([{"cloud": "local", "loop": "tags", "steps": steps}]);
    assert_eq!(document(&world, "orphans")["loops"], leftovers);
    assert_eq!(world.cloud_writes(), [""; 0]);

    world.cloud(&["fault", "failing=403", "--call=list"]);
    let failed = world.plan(&[]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(text(&failed.stdout).starts_with("Loop tags (local)\n  failed: "), "{failed:?}");
    let failures = &document(&world, "orphans")["failures"];
    assert!(failures[0]["message"].as_str().unwrap().contains("loop=tags"), "{failures}");
}
