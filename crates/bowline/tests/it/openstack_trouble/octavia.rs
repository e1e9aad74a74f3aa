//! Load balancers that are slow, stuck or in ERROR.

use std::time::Duration;

use bowline_openstack_simulator::{Fault, FaultSpec, Kind};
use http::Method;
use kube::api::DeleteParams;

use crate::openstack_trouble::scene::{Scene, taking};
use crate::support::Program;

const FAILED: &str = "SyncLoadBalancerFailed";

/// Waits until the listeners of `web` have this connection limit.
async fn has_connection_limit(scene: &Scene, manager: &Program, limit: u64) {
    let balancer = scene.balancer("web");
    let ask = || async {
        let is_its = |id: &str| scene.cloud.owner(Kind::Listener, id).as_deref() == Some(balancer.as_str());
        let listeners = scene.cloud.records(Kind::Listener);
        let mut own = listeners.iter().filter(|listener| is_its(listener["id"].as_str().unwrap_or_default()));
        own.all(|listener| listener["connection_limit"] == limit).then_some(())
    };
    scene.eventually(manager, &format!("a connection limit of {limit}"), ask).await;
}

async fn create_web(scene: &Scene, test: &str) -> Program {
    let manager = scene.manager(test);
    scene.create("web").await;
    scene.address(&manager, "web").await;
    manager
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_load_balancer_causes_no_warning() {
    let scene = Scene::with("slow", taking(Duration::from_secs(2))).await;
    let mut manager = create_web(&scene, "slow").await;
    scene.annotate("web", "connection-limit", "100").await;
    has_connection_limit(&scene, &manager, 100).await;
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_153_a_stuck_load_balancer_is_reported_does_not_block_others_and_recovers() {
    let scene = Scene::new("stuck").await;
    let mut manager = create_web(&scene, "stuck").await;
    let stuck = scene.balancer("web");
    scene.set_status(&stuck, "PENDING_UPDATE");
    scene.annotate("web", "connection-limit", "100").await;
    scene.create("other").await;
    scene.address(&manager, "other").await;
    let message = scene.warned(&manager, "web", FAILED, &["timed out", "PENDING_UPDATE", &stuck]).await;
    assert_eq!(message.matches(&*stuck).count(), 1, "{message}");
    assert_eq!(scene.cloud.counts().get("PUT listeners/{id}"), None, "nothing is changed while it is stuck");
    scene.set_status(&stuck, "ACTIVE");
    has_connection_limit(&scene, &manager, 100).await;
    scene.delete(&manager, "other").await;
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_153_a_stuck_load_balancer_delays_the_deletion_of_its_service() {
    let scene = Scene::new("stuck-deletion").await;
    let mut manager = create_web(&scene, "stuck-deletion").await;
    let stuck = scene.balancer("web");
    scene.set_status(&stuck, "PENDING_UPDATE");
    scene.services().delete("web", &DeleteParams::default()).await.unwrap();
    scene.warned(&manager, "web", FAILED, &["timed out", "PENDING_UPDATE", &stuck]).await;
    assert_eq!(scene.created(Kind::LoadBalancer), 1);
    scene.set_status(&stuck, "ACTIVE");
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_151_a_new_load_balancer_in_error_is_deleted_and_created_again() {
    let scene = Scene::new("new-error").await;
    scene.cloud.fail_work(1);
    let mut manager = create_web(&scene, "new-error").await;
    let message = scene.warned(&manager, "web", FAILED, &["ERROR"]).await;
    assert!(message.contains("deleted") && message.contains("again"), "{message}");
    assert_eq!(scene.cloud.counts()["POST loadbalancers"], 2);
    assert_eq!(scene.annotation("web", "load-balancer-id").await, Some(scene.balancer("web")));
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_152_and_154_a_load_balancer_in_error_is_not_changed_and_can_be_deleted() {
    let scene = Scene::new("error").await;
    let mut manager = create_web(&scene, "error").await;
    let id = scene.balancer("web");
    scene.set_status(&id, "ERROR");
    scene.cloud.forget_calls();
    scene.annotate("web", "connection-limit", "100").await;
    let message = scene.warned(&manager, "web", FAILED, &["not ACTIVE", "ERROR", &id]).await;
    assert!(message.contains("openstack loadbalancer failover"), "{message}");
    assert_eq!(scene.cloud.writes(), []);
    scene.set_status(&id, "ACTIVE");
    has_connection_limit(&scene, &manager, 100).await;
    scene.set_status(&id, "ERROR");
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_157_another_client_changes_the_load_balancer_at_the_same_time() {
    let scene = Scene::new("immutable").await;
    let mut manager = create_web(&scene, "immutable").await;
    let body = r#"{"faultcode": "Client", "faultstring": "Load Balancer x is immutable and cannot be updated."}"#;
    scene
        .cloud
        .inject(FaultSpec::always(Fault::Answer(409, body.to_owned())).on(Method::PUT, "listeners/{id}").times(1));
    scene.annotate("web", "connection-limit", "100").await;
    scene.warned(&manager, "web", FAILED, &["/listeners/", "HTTP 409", "is immutable"]).await;
    has_connection_limit(&scene, &manager, 100).await;
    scene.end(&mut manager, "web").await;
}
