//! `bowline plan`: its output and exit codes, and that it writes nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::look::world::{World, address, text};
use crate::support::bowline;

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_prints_the_changes_and_changes_nothing() {
    let world = World::start("plan").await;
    let quiet = world.plan(&[]);
    assert_eq!((quiet.status.code(), text(&quiet.stdout)), (Some(0), "No changes.\n".to_owned()), "{quiet:?}");

    world.cloud(&["add", "worker-1", "--id=one", "--zone=quay-1", "--address=InternalIP=10.0.0.1"]);
    world.create_node("worker-1").await;
    world.create_node("unknown-node").await;
    world.cloud_writes();
    let (before, writes) = (world.versions().await, world.api_writes().await);
    assert!(writes >= 2, "both nodes were created: {writes}");

    let plan = world.plan(&[]);
    assert_eq!(plan.status.code(), Some(3), "{plan:?}");
    let printed = text(&plan.stdout);
    for part in [
        "Node worker-1 (local)\n  in the cluster:\n    update Node worker-1\n",
        "spec.providerID: local://one\n",
        "label topology.kubernetes.io/zone: quay-1\n",
        "status.addresses: InternalIP=10.0.0.1\n",
        "Node unknown-node\n  refused: no configured cloud has a machine of this name",
        "0 steps in clouds and 2 in the cluster to apply; 1 refused.\n",
    ] {
        assert!(printed.contains(part), "{part:?} is missing in {printed}");
    }

    let json = world.plan(&["-o", "json"]);
    assert_eq!(json.status.code(), Some(3));
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["version"], 1);
    assert_eq!(
        document["items"][1]["inCluster"][0]["changes"][0],
        json!({"field": "spec.providerID", "to": "local://one"})
    );

    assert_eq!(
        (world.versions().await, world.api_writes().await),
        (before, writes),
        "nothing is written to the cluster"
    );
    assert_eq!(world.cloud_writes(), [""; 0], "nothing is written to the cloud");

    // The manager applies the plan, and then the plan is empty.
    let mut manager = world.manager("plan", &[]);
    let nodes: Api<Node> = Api::all(world.client.clone());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while nodes.get_status("worker-1").await.unwrap().status.is_none_or(|status| status.addresses.is_none()) {
        assert!(tokio::time::Instant::now() < deadline, "{}", manager.output());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(manager.stop("-TERM").code(), Some(0));
    let settled = world.plan(&[]);
    assert_eq!(settled.status.code(), Some(0), "{}", text(&settled.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_and_orphans_accept_the_arguments_of_a_deployment() {
    let world = World::start("pasted").await;
    let pasted = ["--leader-elect=true", "--secure_port", "10258", "-v=2", "--bind-address=127.0.0.1", "--logtostderr"];
    let plan = world.plan(&pasted);
    assert_eq!((plan.status.code(), text(&plan.stdout)), (Some(0), "No changes.\n".to_owned()), "{plan:?}");
    let orphans = world.run("orphans", &pasted);
    assert_eq!(orphans.status.code(), Some(0), "{orphans:?}");
    // It would look like a deletion, and delete nothing.
    let both = world.run("orphans", &["--cluster-name=harbour", "--dry-run", "--delete", "--yes"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    assert!(text(&both.stderr).contains("--delete: a dry run deletes nothing"), "{both:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_a_plan_exit_with_1() {
    let world = World::start("plan-wrong").await;
    world.cloud(&["add", "worker-1", "--id=one"]);
    world.create_node("worker-1").await;
    world.cloud(&["fault", "failing=403"]);
    let plan = world.plan(&[]);
    assert_eq!(plan.status.code(), Some(1), "{plan:?}");
    assert!(text(&plan.stdout).contains("failed: ") && text(&plan.stdout).contains("1 failed."), "{plan:?}");

    // The exit code of changes is 3.
    for flags in
        [&["--knots=8"][..], &["--node-monitor-period=1d"], &["--load-balancer-default-cloud=moon"], &["-o", "xml"]]
    {
        let plan = world.plan(flags);
        assert_eq!((plan.status.code(), plan.stdout.len()), (Some(2), 0), "{flags:?}: {plan:?}");
    }
    let help = bowline(&["plan", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    let nowhere =
        bowline(&["plan", "--cloud-provider=local", "--configure-cloud-routes=false", "--master=http://127.0.0.1:1"]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert!(text(&nowhere.stderr).contains("cannot list Nodes"), "{nowhere:?}");
    drop(world.server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_logs_its_steps_and_writes_nothing() {
    let world = World::start("dry-run").await;
    world.cloud(&["add", "worker-1", "--id=one", "--address=InternalIP=10.0.0.1"]);
    world.create_node("worker-1").await;
    world.cloud_writes();
    let before = world.versions().await;
    let mut manager = world.manager("dry-run", &["--dry-run"]);
    manager.wait_for("dry run: no changes are made");
    // The Event of a decision is only logged.
    manager.wait_for("Node synced successfully");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    assert_eq!(world.versions().await, before, "{}", manager.output());
    assert_eq!(world.cloud_writes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn balancers_are_planned_as_they_are_then_made_and_removed() {
    let world = World::start("plan-services").await;
    world.create_service("web", json!({})).await;
    world.create_service("wrong", json!({"bowline.dev/internal": "perhaps"})).await;
    world.cloud_writes();
    let (before, writes) = (world.versions().await, world.api_writes().await);
    let plan = world.plan(&["-o", "json"]);
    assert_eq!(plan.status.code(), Some(3), "{plan:?}");
    let document: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let (web, wrong) = (&document["items"][0], &document["items"][1]);
    assert_eq!(
        (&web["name"], &web["cloud"], &web["inCloud"][0]["verb"]),
        (&json!("web"), &json!("local"), &json!("create"))
    );
    assert_eq!(web["inCluster"][0]["changes"][0]["to"], "service.kubernetes.io/load-balancer-cleanup");
    assert_eq!(wrong["remarks"][0]["kind"], "refused", "{document:#}");
    assert_eq!(
        (world.versions().await, world.api_writes().await),
        (before, writes),
        "nothing is written to the cluster"
    );
    assert_eq!(world.cloud_writes(), [""; 0], "nothing is written to the cloud");

    let mut manager = world.manager("plan-services", &[]);
    world.until("web", &manager, |service| service.is_some_and(|service| address(&service).is_some())).await;
    let is_current = |service: Option<Service>| service.unwrap().status.unwrap().conditions.is_some();
    world.until("wrong", &manager, is_current).await;
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    let settled = world.plan(&[]);
    assert_eq!(settled.status.code(), Some(0), "{}", text(&settled.stdout));
    assert!(text(&settled.stdout).contains("refused: "), "{}", text(&settled.stdout));

    world.services().delete("web", &DeleteParams::default()).await.unwrap();
    let leaving = text(&world.plan(&[]).stdout);
    for part in ["Service default/web (local)\n  in the cloud:\n", "    delete ", "load-balancer-cleanup (removed)\n"] {
        assert!(leaving.contains(part), "{part:?} is missing in {leaving}");
    }
    // A corrected Service gets a plan.
    let patch = json!({"metadata": {"annotations": {"bowline.dev/internal": null}}});
    world.services().patch("wrong", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert!(text(&world.plan(&[]).stdout).contains("Service default/wrong (local)\n  in the cloud:\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_creates_no_load_balancer() {
    let world = World::start("dry-balancer").await;
    world.create_service("web", json!({})).await;
    world.cloud_writes();
    let before = world.versions().await;
    let mut manager = world.manager("dry-balancer", &["--dry-run"]);
    manager.wait_for("dry run, not done: create ");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    assert_eq!(world.versions().await, before, "{}", manager.output());
    assert_eq!(world.cloud_writes(), [""; 0]);
}

/// Flags of a manager that allocates pod CIDRs and creates routes.
const NETWORK: [&str; 3] = ["--configure-cloud-routes", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"];

/// Creates a Node with its machine, and a route to a machine without a Node.
async fn node_and_orphaned_route(world: &World) {
    world.cloud(&["add", "worker-1", "--id=one", "--address=InternalIP=10.0.0.1"]);
    world.cloud(&["add", "worker-9", "--id=nine"]);
    world.cloud(&["add-route", "10.244.9.0/24", "nine", "--stamped"]);
    world.create_node("worker-1").await;
    world.cloud_writes();
}

fn network(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable")?.reason.as_deref()
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_cidrs_and_routes_are_planned_as_the_manager_applies_them() {
    let world = World::start("plan-routes").await;
    node_and_orphaned_route(&world).await;
    let (before, writes) = (world.versions().await, world.api_writes().await);
    let plan = world.plan(&NETWORK);
    assert_eq!(plan.status.code(), Some(3), "{plan:?}");
    let printed = text(&plan.stdout);
    for part in [
        "    update Node worker-1\n        spec.podCIDRs: 10.244.0.0/24\n",
        "Route 10.244.9.0/24 (local)\n  in the cloud:\n    delete route 10.244.9.0/24\n",
        "because: the node does not exist\n",
    ] {
        assert!(printed.contains(part), "{part:?} is missing in {printed}");
    }
    assert_eq!((world.versions().await, world.api_writes().await), (before, writes), "nothing is written");
    assert_eq!(world.cloud_writes(), [""; 0], "nothing is written to the cloud");

    let mut manager = world.manager("plan-routes", &NETWORK);
    let nodes: Api<Node> = Api::all(world.client.clone());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let is_done = |node: &Node, routes: &str| {
        let is_initialised = node.status.as_ref().is_some_and(|status| status.addresses.is_some());
        is_initialised && network(node) == Some("RouteCreated") && !routes.contains("10.244.9.0/24")
    };
    while !is_done(&nodes.get("worker-1").await.unwrap(), &world.cloud(&["routes"])) {
        assert!(tokio::time::Instant::now() < deadline, "{}", manager.output());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    let settled = world.plan(&NETWORK);
    assert_eq!(settled.status.code(), Some(0), "{}", text(&settled.stdout));

    // The route is deleted in the cloud.
    let routes = world.cloud(&["routes"]);
    let id = routes.lines().nth(1).and_then(|line| line.split_whitespace().nth(1)).unwrap();
    world.cloud(&["delete-route", id]);
    let again = world.plan(&["--configure-cloud-routes", "--cluster-cidr=10.244.0.0/16", "-o", "json"]);
    let document: Value = serde_json::from_slice(&again.stdout).unwrap();
    let step = &document["items"][0]["inCloud"][0];
    assert_eq!(
        (&step["verb"], &step["kind"], &step["name"], &step["changes"][0]["to"]),
        (&json!("create"), &json!("route"), &json!("10.244.0.0/24"), &json!("worker-1")),
        "{document:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_creates_no_routes() {
    let world = World::start("dry-routes").await;
    node_and_orphaned_route(&world).await;
    let before = world.versions().await;
    let mut manager = world.manager("dry-routes", &[&NETWORK[..], &["--dry-run"]].concat());
    manager.wait_for("dry run, not done: route 10.244.9.0/24");
    manager.wait_for("Node synced successfully");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    assert_eq!(world.versions().await, before, "{}", manager.output());
    assert_eq!(world.cloud_writes(), [""; 0]);
    let claims =
        ["deleted a route", "created a route", "allocated pod CIDRs"].map(|claim| manager.output().contains(claim));
    assert_eq!(claims, [false; 3], "nothing is logged as done: {}", manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_with_routes_needs_a_cluster_cidr() {
    let world = World::start("plan-ranges").await;
    let plan = world.run("plan", &[]);
    assert_eq!((plan.status.code(), plan.stdout.len()), (Some(2), 0), "R24: {plan:?}");
    let printed = text(&plan.stderr);
    assert!(printed.contains("set --cluster-cidr=<pod network>") && printed.contains("--configure-cloud-routes=false"));
    let several =
        world.run("plan", &["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/25", "--feature-gates=Knots=1"]);
    assert_eq!(several.status.code(), Some(2), "{several:?}");
    assert!(text(&several.stderr).contains("2 configuration errors"), "{several:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_assigns_no_pod_cidr_of_another_machine_or_outside_of_the_cluster_cidr() {
    let mut world = World::start("plan-led").await;
    let config = world.server.scratch.file("ranges.yaml", format!("endpoint: {}\npodRanges: true\n", world.endpoint));
    world.reach[1] = format!("--cloud-config={}", config.display());
    world.cloud(&["add", "worker-1", "--id=one", "--pod-range=10.244.0.0/24"]);
    world.cloud(&["add", "worker-2", "--id=two"]);
    world.create_node("worker-1").await;
    world.create_node("worker-2").await;
    let printed = |mode: &str, range: &str| {
        let (mode, range) = (format!("--cidr-allocator-type={mode}"), format!("--cluster-cidr={range}"));
        text(&world.plan(&["--allocate-node-cidrs", &mode, &range]).stdout)
    };
    let led = printed("IPAMFromCluster", "10.244.0.0/16");
    assert!(led.contains("    update Node worker-2\n        spec.podCIDRs: 10.244.1.0/24\n"), "{led}");
    let outside = printed("IPAMFromCloud", "10.99.0.0/16");
    let refused =
        "refused: The node cannot have the cloud's pod CIDR: node worker-1: spec.podCIDRs[0] is \"10.244.0.0/24\"";
    assert!(outside.contains(refused) && !outside.contains("  spec.podCIDRs"), "{outside}");
}
