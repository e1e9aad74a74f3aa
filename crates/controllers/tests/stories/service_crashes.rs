//! Crashes of the manager after each single cloud call, whose response is lost. The next manager finishes the work: nothing is
//! leaked or created twice, and no Service is stuck.

use std::time::Duration;

use bowline_local::{Fault, FaultSpec, LocalCloud};
use serde_json::json;

use crate::load_balancers::{FINALIZER, finalizers, ingress, ports, targets};
use crate::world::World;

/// Upper limit for the number of calls of an action.
const MAX_CALLS: u64 = 40;

/// Runs the action with a manager that crashes after `calls` further cloud calls, and then starts another one. Returns `false` if
/// the action needed fewer calls.
async fn crash_after(world: &mut World, calls: u64, act: impl AsyncFnOnce(&World)) -> bool {
    world.cloud().reset_calls();
    let crash = world.cloud().inject(FaultSpec::always(Fault::AnswerLost).after(calls - 1).times(1));
    let after = world.cloud().inject(FaultSpec::always(Fault::Failing(503)).after(calls));
    act(world).await;
    world.sleep(Duration::from_secs(30)).await;
    let crashed = balancer_calls(world.cloud()) >= calls;
    world.kill().await;
    world.cloud().repair(crash);
    world.cloud().repair(after);
    world.start();
    crashed
}

/// Crashes the manager after one more call each time, until the action completes before the crash. Returns the number of crashes.
async fn count_crashes(crash_after: impl AsyncFn(u64) -> bool) -> u64 {
    for calls in 1..MAX_CALLS {
        if !crash_after(calls).await {
            return calls - 1;
        }
    }
    MAX_CALLS
}

/// Number of load balancer calls so far.
fn balancer_calls(cloud: &LocalCloud) -> u64 {
    cloud.calls().iter().filter(|(kind, _)| *kind != "find" && *kind != "list").map(|(_, count)| count).sum()
}

/// World in which only load balancers cause cloud calls.
async fn world() -> World {
    let mut world = World::with_nodes(&["a", "b"]).await;
    (world.options.node, world.options.node_lifecycle) = (None, None);
    world
}

/// Waits until there is exactly one load balancer, with one address, which is in the Service's status.
async fn wait_until_ensured(world: &World, port: u16, nodes: &[&str]) {
    world
        .eventually("the load balancer is as desired", async || {
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
async fn a_crash_during_the_creation_of_a_load_balancer_leaks_nothing() {
    let crashes = count_crashes(async |calls| {
        let mut world = world().await;
        world.start();
        let crashed = crash_after(&mut world, calls, async |world| drop(world.create_service("web").await)).await;
        wait_until_ensured(&world, 80, &["a", "b"]).await;
        crashed
    })
    .await;
    assert!((3..MAX_CALLS).contains(&crashes), "at least observe, create address, create load balancer: {crashes}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_during_the_update_of_a_load_balancer_leaks_nothing() {
    let crashes = count_crashes(async |calls| {
        let mut world = world().await;
        world.start();
        world.create_service("web").await;
        world.wait_for_address("web").await;
        let crashed = crash_after(&mut world, calls, async |world| {
            let spec = json!({"ports": [{"port": 81}], "loadBalancerIP": "127.0.40.9"});
            world.patch_service("web", json!({"spec": spec})).await;
            world.join_machine("c", 2).await;
        })
        .await;
        wait_until_ensured(&world, 81, &["a", "b", "c"]).await;
        assert_eq!(ingress(&world.service("web").await), ["127.0.40.9"]);
        crashed
    })
    .await;
    assert!((2..MAX_CALLS).contains(&crashes), "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_during_the_deletion_of_a_load_balancer_leaks_nothing() {
    let crashes = count_crashes(async |calls| {
        let mut world = world().await;
        world.start();
        world.create_service("web").await;
        world.wait_for_address("web").await;
        let crashed = crash_after(&mut world, calls, async |world| world.delete_service("web").await).await;
        world.wait_until_service_deleted("web").await;
        assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
        crashed
    })
    .await;
    assert!((3..MAX_CALLS).contains(&crashes), "observe, delete load balancer, delete address: {crashes}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_during_the_creation_of_its_load_balancer_leaves_nothing() {
    let crashes = count_crashes(async |calls| {
        let mut world = world().await;
        world.start();
        let crashed = crash_after(&mut world, calls, async |world| {
            world.create_service("web").await;
            world.sleep(Duration::from_millis(200)).await;
            world.delete_service("web").await;
        })
        .await;
        world.wait_until_service_deleted("web").await;
        assert!(world.cloud().balancers().is_empty() && world.cloud().addresses().is_empty());
        crashed
    })
    .await;
    assert!((3..MAX_CALLS).contains(&crashes), "{crashes}");
}
