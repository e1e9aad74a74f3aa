//! Balancers whose Services are gone: found, shown, and removed only when that is meant.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::look::world::{World, text};

/// Only what is called by its name is deleted.
const NAMED: &str = "--cluster-name=kubernetes";

const NO_ROUTES: &str = "No route of the cluster kubernetes is without its Node.\n";

/// Takes the finalizer off and deletes the Service, as somebody in a hurry does.
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
async fn what_was_left_behind_is_shown_and_removed_when_told_to_and_nothing_else_is() {
    let world = World::start("orphans").await;
    world.balance("kept").await;
    world.balance("lost").await;
    let balancers = world.cloud(&["balancers"]);
    assert!(balancers.contains("kubernetes:default/kept") && balancers.lines().count() == 3, "{balancers}");
    let addresses = world.cloud(&["addresses"]);
    assert!(addresses.contains("kubernetes:default/lost") && addresses.contains("127.0.32.1"), "{addresses}");
    let none = world.run("orphans", &[]);
    assert_eq!(none.status.code(), Some(0), "{none:?}");
    let sentence = "No Service of the cluster kubernetes has left anything behind.\n";
    assert_eq!(text(&none.stdout), format!("{sentence}{NO_ROUTES}"));

    abandon(&world, "lost").await;
    world.cloud_writes();
    let listed = world.run("orphans", &[]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let told = text(&listed.stdout);
    assert!(told.starts_with("default/lost (UID ") && told.contains(") in local\n    delete "), "{told}");
    let sentence = "1 Service of the cluster kubernetes has left something behind.\n";
    assert!(told.ends_with(&format!("{sentence}{NO_ROUTES}")), "{told}");

    // It may be one of another cluster that has no name either.
    let nameless = world.run("orphans", &["--delete", "--yes"]);
    assert_eq!(nameless.status.code(), Some(2), "{nameless:?}");
    assert!(text(&nameless.stderr).contains("--cluster-name"), "{nameless:?}");
    // Nobody is there to say yes.
    let unasked = world.run("orphans", &["--delete", NAMED]);
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    assert!(text(&unasked.stderr).contains("say --yes"), "{unasked:?}");
    assert_eq!(world.cloud_writes(), [""; 0], "nothing has been removed so far");

    let other = world.run("orphans", &["--delete", "--yes", "--cluster-name=another"]);
    assert!(text(&other.stdout).starts_with("No Service of the cluster another"), "{other:?}");
    assert_eq!(world.cloud_writes(), [""; 0], "those of another cluster are not ours");

    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!(code, Some(0), "{document:#}");
    assert_eq!(
        (&document["orphans"][0]["service"], &document["orphans"][0]["outcome"]),
        (&json!("lost"), &json!("deleted"))
    );
    assert_eq!(orphans(&world, &[]).1["orphans"], json!([]));

    let plan = world.plan(&[]);
    assert_eq!(plan.status.code(), Some(0), "the other balancer is as it was: {}", text(&plan.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_list_of_services_nothing_is_an_orphan() {
    let world = World::start("orphans-blind").await;
    world.balance("web").await;
    world.cloud_writes();
    world.fail("list", 403).await;
    let blind = world.run("orphans", &["--delete", "--yes", NAMED]);
    assert_eq!((blind.status.code(), text(&blind.stdout)), (Some(1), String::new()), "{blind:?}");
    assert!(text(&blind.stderr).contains("nothing is taken for an orphan"), "{blind:?}");
    assert_eq!(world.cloud_writes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_cannot_be_ruled_out_keeps_its_balancer() {
    let world = World::start("orphans-doubt").await;
    world.balance("lost").await;
    abandon(&world, "lost").await;
    world.cloud_writes();
    world.fail("get", 500).await;
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, &document["orphans"][0]["outcome"]), (Some(1), &json!("failed")), "{document:#}");
    assert_eq!(world.cloud_writes(), [""; 0]);
}

/// The usual role of a Go manager may list Services, and not get one.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_is_ruled_out_by_a_list_where_the_role_has_no_get() {
    let world = World::start("orphans-list").await;
    world.balance("lost").await;
    abandon(&world, "lost").await;
    world.fail("get", 403).await;
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, &document["orphans"][0]["outcome"]), (Some(0), &json!("deleted")), "{document:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_fails_is_told_and_is_a_failure() {
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

/// Two machines with a route each, of which the first has a Node, and a route by hand.
async fn routes(world: &World) {
    world.cloud(&["add", "worker-1", "--id=one"]);
    world.cloud(&["add", "worker-2", "--id=two"]);
    world.create_node("worker-1").await;
    world.cloud(&["add-route", "10.244.1.0/24", "one", "--stamped"]);
    world.cloud(&["add-route", "10.244.2.0/24", "two", "--stamped"]);
    world.cloud(&["add-route", "10.244.3.0/24", "two"]);
    world.cloud_writes();
}

/// The ranges of the routes that are listed, and what became of each.
fn lost(document: &Value) -> Vec<(String, String)> {
    let cell = |route: &Value, field: &str| route[field].as_str().unwrap().to_owned();
    let routes = document["routes"].as_array().unwrap().iter();
    routes.map(|route| (cell(route, "destination"), cell(route, "outcome"))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(range, outcome)| (range.to_string(), outcome.to_string())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_without_a_node_are_shown_and_removed_when_told_to_and_no_others() {
    let world = World::start("lost-routes").await;
    routes(&world).await;
    let listed = world.run("orphans", &[]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let told = text(&listed.stdout);
    assert!(told.starts_with("route 10.244.2.0/24 (rt-") && told.contains(") to worker-2 in local\n"), "{told}");
    assert!(told.ends_with("1 route of the cluster kubernetes is without its Node.\n"), "{told}");
    // What carries no mark is somebody else's, unless its range is the pods'.
    let (_, marked) = orphans(&world, &[]);
    assert_eq!(lost(&marked), pairs(&[("10.244.2.0/24", "listed")]));
    let (_, all) = orphans(&world, &["--cluster-cidr=10.244.0.0/16"]);
    assert_eq!(lost(&all), pairs(&[("10.244.2.0/24", "listed"), ("10.244.3.0/24", "listed")]));
    assert_eq!(lost(&orphans(&world, &["--cluster-name=another"]).1), []);
    let wrong = world.run("orphans", &["--cluster-cidr=10.244.0.0"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert_eq!(world.cloud_writes(), [""; 0], "nothing has been removed so far");

    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, lost(&document)), (Some(0), pairs(&[("10.244.2.0/24", "deleted")])), "{document:#}");
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
    assert!(text(&blind.stderr).contains("no route is taken for an orphan"), "{blind:?}");
    assert_eq!(world.cloud_writes(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_be_ruled_out_keeps_its_route_and_a_cloud_that_fails_is_told() {
    let world = World::start("lost-doubt").await;
    routes(&world).await;
    world.fail_nodes("get", 403).await;
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, lost(&document)), (Some(1), pairs(&[("10.244.2.0/24", "failed")])), "{document:#}");
    assert_eq!(world.cloud_writes(), [""; 0]);
    world.cloud(&["fault", "failing=403", "--call=list-routes"]);
    let (code, document) = orphans(&world, &[]);
    assert_eq!((code, &document["failures"][0]["cloud"]), (Some(1), &json!("local")), "{document:#}");
}

/// The wrong kubeconfig, say: then these are the routes that all of a cluster's traffic takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_nodes_keeps_its_routes_unless_that_is_meant() {
    let world = World::start("lost-empty").await;
    world.cloud(&["add", "worker-1", "--id=one"]);
    world.cloud(&["add-route", "10.244.1.0/24", "one", "--stamped"]);
    world.cloud(&["add-route", "10.244.2.0/24", "one", "--stamped"]);
    world.cloud_writes();
    let listed = text(&world.run("orphans", &[]).stdout);
    let doubt = "Held back in local: 2 routes lead to nodes that do not exist, and the cluster has no nodes at all";
    assert_eq!(listed.matches(doubt).count(), 1, "{listed}");
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    let held = pairs(&[("10.244.1.0/24", "heldBack"), ("10.244.2.0/24", "heldBack")]);
    assert_eq!((code, lost(&document)), (Some(1), held), "{document:#}");
    assert!(document["routes"][0]["message"].as_str().unwrap().contains("no nodes at all"), "{document:#}");
    assert_eq!(world.cloud_writes(), [""; 0]);
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED, "--route-deletion-max-share=1"]);
    let gone = pairs(&[("10.244.1.0/24", "deleted"), ("10.244.2.0/24", "deleted")]);
    assert_eq!((code, lost(&document)), (Some(0), gone), "{document:#}");
}
