//! Back-off of Services: after permanent failures, and when another controller overwrites their status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::load_balancers::ingress;
use crate::test_providers::{ErrorSource, FaultInjector, Wrapped};
use crate::world::World;

const SETTLE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(4 * 3600);

/// Takes the instants and returns the seconds between them.
fn waits(times: &Mutex<Vec<Instant>>) -> Vec<u64> {
    let times = std::mem::take(&mut *times.lock().unwrap());
    times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_back_off_of_a_permanent_failure_is_at_most_half_an_hour_and_a_change_ends_it() {
    for kind in [ErrorKind::PermissionDenied, ErrorKind::QuotaExceeded] {
        let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let revision: Arc<AtomicU64> = Arc::default();
        let mut world = World::with_nodes(&["a"]).await;
        let (seen, known) = (times.clone(), revision.clone());
        let error_source: ErrorSource = Arc::new(move |operation| {
            (operation == "plan").then(|| {
                seen.lock().unwrap().push(Instant::now());
                Error::new(kind, "plan", "no")
            })
        });
        world.wrap =
            Box::new(move |inner| Wrapped::revised(FaultInjector::wrap(inner, error_source.clone()), known.clone()));
        world.start();
        world.create_service("web").await;
        world.sleep(LONG).await;
        assert_eq!(waits(&times)[..10], [5, 10, 20, 40, 80, 160, 320, 640, 1280, 1800], "{kind:?}");
        world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
        world.sleep(SETTLE).await;
        assert_eq!(waits(&times), [5, 10], "{kind:?}: the Service has changed");
        world.sleep(LONG).await;
        waits(&times);
        revision.fetch_add(1, Ordering::SeqCst);
        world.sleep(SETTLE).await;
        assert_eq!(waits(&times)[..1], [5], "{kind:?}: the configuration has changed");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_node_ends_the_back_off_of_a_service_and_a_second_does_not() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let mut world = World::with_nodes(&[]).await;
    let seen = times.clone();
    let error_source: ErrorSource = Arc::new(move |operation| {
        (operation == "plan").then(|| {
            seen.lock().unwrap().push(Instant::now());
            Error::new(ErrorKind::NotFound, "plan", "no ready nodes")
        })
    });
    world.wrap = Box::new(move |inner| FaultInjector::wrap(inner, error_source.clone()));
    world.start();
    world.create_service("web").await;
    // The back-off is five minutes now, and its last attempt is a moment ago.
    world.sleep(LONG).await;
    let attempts = || times.lock().unwrap().len();
    let before = attempts();
    world.eventually("another attempt", async || (attempts() > before).then_some(())).await;
    times.lock().unwrap().clear();
    for (index, (node, attempts)) in [("a", 1), ("b", 0)].into_iter().enumerate() {
        world.join_machine(node, index).await;
        world.sleep(SETTLE).await;
        assert_eq!(std::mem::take(&mut *times.lock().unwrap()).len(), attempts, "{node}");
    }
}

/// Another controller writes this address to the status.
async fn overwrite(world: &World, address: &str) {
    let patch = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
    world.services.patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_controller_overwrites_is_reported_and_corrected_with_back_off() {
    let mut world = World::with_nodes(&["a"]).await;
    world.start();
    world.create_service("web").await;
    let address = world.wait_for_address("web").await;
    // Writes of this controller itself are not reported.
    world.patch_service("web", json!({"spec": {"loadBalancerIP": "127.0.40.9"}})).await;
    let shows = async |address: &str| (ingress(&world.service("web").await) == [address]).then_some(());
    world.eventually("the other address", async || shows("127.0.40.9").await).await;
    world.sleep(SETTLE).await;
    assert!(!world.reasons("web").await.contains_key("StatusOverwritten"));
    overwrite(&world, "203.0.113.9").await;
    world.sleep(Duration::from_secs(2)).await;
    assert_eq!(ingress(&world.service("web").await), ["127.0.40.9"], "corrected at once the first time");
    let message = world.wait_for_event("web", "StatusOverwritten").await.message.unwrap();
    let start = "Another controller wrote 203.0.113.9 to status.loadBalancer; corrected to 127.0.40.9.";
    assert!(message.starts_with(start), "{message}");
    let (observations, patches) = (world.call_count("observe-balancers"), world.patches());
    for last in 1..=30 {
        overwrite(&world, &format!("203.0.113.{last}")).await;
        world.sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        (world.call_count("observe-balancers") - observations, world.patches() - patches),
        (0, 30),
        "only theirs"
    );
    world.sleep(Duration::from_secs(60)).await;
    assert_eq!(ingress(&world.service("web").await), ["127.0.40.9"]);
    assert_eq!(world.reasons("web").await["StatusOverwritten"], 2);
    assert_ne!(address, "127.0.40.9");
}
