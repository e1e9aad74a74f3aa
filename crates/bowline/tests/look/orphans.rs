//! Balancers whose Services are gone: found, shown, and removed only when that is meant.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{World, text};

/// Only what is called by its name is deleted.
const NAMED: &str = "--cluster-name=kubernetes";

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
    let sentence = "No load balancer of the cluster kubernetes is without its Service.\n";
    assert_eq!(text(&none.stdout), sentence);

    abandon(&world, "lost").await;
    world.cloud_writes();
    let listed = world.run("orphans", &[]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let told = text(&listed.stdout);
    assert!(told.starts_with("default/lost (UID ") && told.contains(") in local\n    delete "), "{told}");
    assert!(told.ends_with("1 load balancer of the cluster kubernetes is without its Service.\n"), "{told}");

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
    assert!(text(&other.stdout).starts_with("No load balancer of the cluster another"), "{other:?}");
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
    world.fail("get", 403).await;
    let (code, document) = orphans(&world, &["--delete", "--yes", NAMED]);
    assert_eq!((code, &document["orphans"][0]["outcome"]), (Some(1), &json!("failed")), "{document:#}");
    assert_eq!(world.cloud_writes(), [""; 0]);
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
