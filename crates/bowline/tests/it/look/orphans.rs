//! `bowline orphans`: orphaned load balancers and routes are listed, and deleted only on request.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::look::world::{World, text};

/// `--delete` requires the cluster name.
const NAMED: &str = "--cluster-name=kubernetes";

const NO_ROUTES: &str = "No orphaned routes in cluster kubernetes.\n";

/// Removes the finalizer and deletes the Service, so that its load balancer is orphaned.
async fn abandon(world: &World, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.services().patch(name, &PatchParams::default(), &patch).await.unwrap();
    world.services().delete(name, &DeleteParams::default()).await.unwrap();
}

fn orphans(world: &World, flags: &[&str]) -> (Option<i32>, Value) {
    let flags: Vec<_> = flags.iter().copied().chain(["-o", "json"]).collect();
    let output = world.run("orphans", &flags);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_load_balancers_are_listed_and_deleted_on_request() {
    let world = World::start("orphans").await;
    world.balance("kept").await;
    world.balance("lost").await;
    let balancers = world.cloud(&["balancers"]);
    assert!(balancers.contains("kubernetes:default/kept") && balancers.lines().count() == 3, "{balancers}");
    let addresses = world.cloud(&["addresses"]);
    assert!(addresses.contains("kubernetes:default/lost") && addresses.contains("127.0.32.1"), "{addresses}");
    let none = world.run("orphans", &[]);
    assert_eq!(none.status.code(), Some(0), "{none:?}");
    let sentence = "No orphaned resources of Services in cluster kubernetes.\n";
    assert_eq!(text(&none.stdout), format!("{sentence}{NO_ROUTES}"));

    abandon(&world, "lost").await;
    world.cloud_writes();
    let listed = world.run("orphans", &[]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let printed = text(&listed.stdout);
    assert!(printed.starts_with("default/lost (UID ") && printed.contains(") in local\n    delete "), "{printed}");
    let sentence = "Orphaned resources of 1 Service in cluster kubernetes.\n";
    assert!(printed.ends_with(&format!("{sentence}{NO_ROUTES}")), "{printed}");

    // It may belong to another cluster without a name.
    let nameless = world.run("orphans", &["--delete", "--yes"]);
    assert_eq!(nameless.status.code(), Some(2), "{nameless:?}");
    assert!(text(&nameless.stderr).contains("--cluster-name"), "{nameless:?}");
    // There is no terminal for the confirmation.
    let unasked = world.run("orphans", &["--delete", NAMED]);
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    assert!(text(&unasked.stderr).contains("use --yes"), "{unasked:?}");
    assert_eq!(world.cloud_writes(), [""; 0], "nothing is deleted so far");

    let other = world.run("orphans", &["--delete", "--yes", "--cluster-name=another"]);
    assert!(text(&other.stdout).starts_with("No orphaned resources of Services in cluster another"), "{other:?}");
    assert_eq!(world.cloud_writes(), [""; 0], "resources of another cluster are kept");

    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!(code, Some(0), "{document:#}");
    assert_eq!(
        (&document["orphans"][0]["service"], &document["orphans"][0]["outcome"]),
        (&json!("lost"), &json!("deleted"))
    );
    assert_eq!(orphans(&world, &[]).1["orphans"], json!([]));

    let plan = world.plan(&[]);
    assert_eq!(plan.status.code(), Some(0), "the other load balancer is unchanged: {}", text(&plan.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_of_services_nothing_is_an_orphan() {
    let world = World::start("orphans-blind").await;
    world.balance("web").await;
    world.cloud_writes();
    world.fail("list", 403).await;
    let blind = world.run("orphans", &["--delete", "--yes", NAMED]);
    assert_eq!((blind.status.code(), text(&blind.stdout)), (Some(1), String::new()), "{blind:?}");
    assert!(text(&blind.stderr).contains("no orphans can be determined"), "{blind:?}");
    assert_eq!(world.cloud_writes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_is_kept_if_its_owner_cannot_be_read() {
    let world = World::start("orphans-doubt").await;
    world.balance("lost").await;
    abandon(&world, "lost").await;
    world.cloud_writes();
    world.fail("get", 500).await;
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, &document["orphans"][0]["outcome"]), (Some(1), &json!("failed")), "{document:#}");
    assert_eq!(world.cloud_writes(), [""; 0]);
}

/// The usual role of a Go manager allows `list` on Services, and not `get`.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_is_looked_up_with_list_if_get_is_forbidden() {
    let world = World::start("orphans-list").await;
    world.balance("lost").await;
    abandon(&world, "lost").await;
    world.fail("get", 403).await;
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, &document["orphans"][0]["outcome"]), (Some(0), &json!("deleted")), "{document:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_cloud_is_reported_with_exit_code_1() {
    let world = World::start("orphans-cloud").await;
    world.balance("lost").await;
    abandon(&world, "lost").await;
    let fault = world.cloud(&["fault", "failing=403", "--call=delete-balancer"]);
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, &document["orphans"][0]["outcome"]), (Some(1), &json!("failed")), "{document:#}");
    world.cloud(&["repair", fault.trim_end()]);
    world.cloud(&["fault", "failing=403", "--call=list-balancers"]);
    let (code, document) = orphans(&world, &[]);
    assert_eq!((code, &document["failures"][0]["cloud"]), (Some(1), &json!("local")), "{document:#}");
}

/// Creates two machines with a route each, a Node for the first, and a route without the cluster's mark.
async fn routes(world: &World) {
    world.cloud(&["add", "worker-1", "--id=one"]);
    world.cloud(&["add", "worker-2", "--id=two"]);
    world.create_node("worker-1").await;
    world.cloud(&["add-route", "10.244.1.0/24", "one", "--stamped"]);
    world.cloud(&["add-route", "10.244.2.0/24", "two", "--stamped"]);
    world.cloud(&["add-route", "10.244.3.0/24", "two"]);
    world.cloud_writes();
}

/// Returns destination and outcome of the listed routes.
fn orphaned_routes(document: &Value) -> Vec<(String, String)> {
    let cell = |route: &Value, field: &str| route[field].as_str().unwrap().to_owned();
    let routes = document["routes"].as_array().unwrap().iter();
    routes.map(|route| (cell(route, "destination"), cell(route, "outcome"))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(destination, outcome)| (destination.to_string(), outcome.to_string())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_routes_are_listed_and_deleted_on_request() {
    let world = World::start("lost-routes").await;
    routes(&world).await;
    let listed = world.run("orphans", &[]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let printed = text(&listed.stdout);
    assert!(
        printed.starts_with("route 10.244.2.0/24 (rt-") && printed.contains(") to worker-2 in local\n"),
        "{printed}"
    );
    assert!(printed.ends_with("1 orphaned route in cluster kubernetes.\n"), "{printed}");
    // A route without a mark belongs to another owner, unless its destination is within the cluster CIDR.
    let (_, marked) = orphans(&world, &[]);
    assert_eq!(orphaned_routes(&marked), pairs(&[("10.244.2.0/24", "listed")]));
    let (_, all) = orphans(&world, &["--cluster-cidr=10.244.0.0/16"]);
    assert_eq!(orphaned_routes(&all), pairs(&[("10.244.2.0/24", "listed"), ("10.244.3.0/24", "listed")]));
    assert_eq!(orphaned_routes(&orphans(&world, &["--cluster-name=another"]).1), []);
    let wrong = world.run("orphans", &["--cluster-cidr=10.244.0.0"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert_eq!(world.cloud_writes(), [""; 0], "nothing is deleted so far");

    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, orphaned_routes(&document)), (Some(0), pairs(&[("10.244.2.0/24", "deleted")])), "{document:#}");
    let left = world.cloud(&["routes"]);
    assert!(left.contains("10.244.1.0/24") && left.contains("10.244.3.0/24") && left.lines().count() == 3, "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_of_nodes_no_route_is_an_orphan() {
    let world = World::start("lost-blind").await;
    routes(&world).await;
    world.fail_nodes("list", 403).await;
    let blind = world.run("orphans", &["--delete", "--yes", NAMED]);
    assert_eq!((blind.status.code(), text(&blind.stdout)), (Some(1), String::new()), "{blind:?}");
    assert!(text(&blind.stderr).contains("no orphaned routes can be determined"), "{blind:?}");
    assert_eq!(world.cloud_writes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_kept_if_its_node_cannot_be_read_and_a_failing_cloud_is_reported() {
    let world = World::start("lost-doubt").await;
    routes(&world).await;
    world.fail_nodes("get", 403).await;
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, orphaned_routes(&document)), (Some(1), pairs(&[("10.244.2.0/24", "failed")])), "{document:#}");
    assert_eq!(world.cloud_writes(), [""; 0]);
    world.cloud(&["fault", "failing=403", "--call=list-routes"]);
    let (code, document) = orphans(&world, &[]);
    assert_eq!((code, &document["failures"][0]["cloud"]), (Some(1), &json!("local")), "{document:#}");
}

/// With the wrong kubeconfig, for example, these may be all routes of a working cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_nodes_keeps_its_routes_unless_overridden() {
    let world = World::start("lost-empty").await;
    world.cloud(&["add", "worker-1", "--id=one"]);
    world.cloud(&["add-route", "10.244.1.0/24", "one", "--stamped"]);
    world.cloud(&["add-route", "10.244.2.0/24", "one", "--stamped"]);
    world.cloud_writes();
    let listed = text(&world.run("orphans", &[]).stdout);
    let reason = "Held back in local: 2 routes belong to nodes that do not exist, and the cluster has no nodes at all";
    assert_eq!(listed.matches(reason).count(), 1, "{listed}");
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    let held = pairs(&[("10.244.1.0/24", "heldBack"), ("10.244.2.0/24", "heldBack")]);
    assert_eq!((code, orphaned_routes(&document)), (Some(1), held), "{document:#}");
    assert!(document["routes"][0]["message"].as_str().unwrap().contains("no nodes at all"), "{document:#}");
    assert_eq!(world.cloud_writes(), [""; 0]);
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED, "--route-deletion-max-share=1"]);
    let gone = pairs(&[("10.244.1.0/24", "deleted"), ("10.244.2.0/24", "deleted")]);
    assert_eq!((code, orphaned_routes(&document)), (Some(0), gone), "{document:#}");
}
