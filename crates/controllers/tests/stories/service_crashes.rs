//! The manager dies after every single call to the cloud, the answer to which it never hears. Its successor finishes what it
//! began: nothing is leaked, nothing is doubled, and no Service is stuck.

use std::time::Duration;

use bowline_local::{Fault, FaultSpec, LocalCloud};
use serde_json::json;

use crate::balancing::{FINALIZER, finalizers, ingress, ports, targets};
use crate::world::World;

/// No act here takes more calls.
const MOST: u64 = 40;

/// Lets the act happen with a manager that dies after `calls` further calls to the cloud, and then starts another one.
/// `false` if the act needed fewer calls than that.
async fn dies_after(world: &mut World, calls: u64, act: impl AsyncFnOnce(&World)) -> bool {
    world.cloud().reset_calls();
    let crash = world.cloud().inject(FaultSpec::always(Fault::AnswerLost).after(calls - 1).times(1));
    let after = world.cloud().inject(FaultSpec::always(Fault::Failing(503)).after(calls));
    act(world).await;
    world.pass(Duration::from_secs(30)).await;
    let died = balancer_calls(world.cloud()) >= calls;
    world.kill().await;
    world.cloud().repair(crash);
    world.cloud().repair(after);
    world.start();
    died
}

/// How often a manager dies that lives one call longer each time, until what it does is done before that.
async fn deaths(dies_after: impl AsyncFn(u64) -> bool) -> u64 {
    for calls in 1..MOST {
        if !dies_after(calls).await {
            return calls - 1;
        }
    }
    MOST
}

/// Calls so far about balancers.
fn balancer_calls(cloud: &LocalCloud) -> u64 {
    cloud.calls().iter().filter(|(kind, _)| *kind != "find" && *kind != "list").map(|(_, count)| count).sum()
}

/// A cluster in which only balancers need the cloud.
async fn world() -> World {
    let mut world = World::with_nodes(&["a", "b"]).await;
    (world.options.node, world.options.node_lifecycle) = (None, None);
    world
}

/// Exactly one balancer, with one address, which is in the Service's status.
async fn is_served(world: &World, port: u16, nodes: &[&str]) {
    world
        .eventually("it is served as it wants", async || {
            let service = world.service("web").await;
            let balancers = world.cloud().balancers();
            let addresses = world.cloud().addresses();
            let good = balancers.len() == 1
                && ports(&balancers[0]) == [("Tcp".to_owned(), port)]
                && targets(&balancers[0]) == nodes
                && addresses.len() == 1
                && ingress(&service) == [addresses[0].ip.to_string()]
                && finalizers(&service) == [FINALIZER];
            good.then_some(())
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_dies_while_it_makes_a_balancer_is_succeeded_without_a_leak() {
    let deaths = deaths(async |calls| {
        let mut world = world().await;
        world.start();
        let died = dies_after(&mut world, calls, async |world| drop(world.serve("web").await)).await;
        is_served(&world, 80, &["a", "b"]).await;
        died
    })
    .await;
    assert!((3..MOST).contains(&deaths), "observe, address, balancer at least: {deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_dies_while_it_changes_a_balancer_is_succeeded_without_a_leak() {
    let deaths = deaths(async |calls| {
        let mut world = world().await;
        world.start();
        world.serve("web").await;
        world.addressed("web").await;
        let died = dies_after(&mut world, calls, async |world| {
            let spec = json!({"ports": [{"port": 81}], "loadBalancerIP": "127.0.40.9"});
            world.patch_service("web", json!({"spec": spec})).await;
            world.join_machine("c", 2).await;
        })
        .await;
        is_served(&world, 81, &["a", "b", "c"]).await;
        assert_eq!(ingress(&world.service("web").await), ["127.0.40.9"]);
        died
    })
    .await;
    assert!((2..MOST).contains(&deaths), "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_dies_while_it_removes_a_balancer_is_succeeded_without_a_leak() {
    let deaths = deaths(async |calls| {
        let mut world = world().await;
        world.start();
        world.serve("web").await;
        world.addressed("web").await;
        let died = dies_after(&mut world, calls, async |world| world.delete_service("web").await).await;
        world.service_gone("web").await;
        assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
        died
    })
    .await;
    assert!((3..MOST).contains(&deaths), "observe, balancer, address: {deaths}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_while_its_balancer_is_half_made_leaves_nothing() {
    let deaths = deaths(async |calls| {
        let mut world = world().await;
        world.start();
        let died = dies_after(&mut world, calls, async |world| {
            world.serve("web").await;
            world.pass(Duration::from_millis(200)).await;
            world.delete_service("web").await;
        })
        .await;
        world.service_gone("web").await;
        assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
        died
    })
    .await;
    assert!((3..MOST).contains(&deaths), "{deaths}");
}
