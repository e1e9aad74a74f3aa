//! Many Services at once, and Services that share a load balancer.

use std::time::Duration;

use bowline_openstack_simulator::Kind;
use kube::api::DeleteParams;

use crate::scene::{Scene, taking};
use crate::support::Program;

/// Waits until there is no Service with one of these names.
async fn gone(scene: &Scene, manager: &Program, names: &[String]) {
    for name in names {
        let ask = || async { scene.services().get_opt(name).await.unwrap().is_none().then_some(()) };
        scene.eventually(manager, &format!("{name} to go"), ask).await;
    }
}

/// Services on one load balancer that are deleted while no manager runs leave nothing.
#[tokio::test(flavor = "multi_thread")]
async fn services_on_one_load_balancer_that_go_while_no_manager_runs_leave_nothing() {
    let scene = Scene::with("shared", taking(Duration::from_millis(300))).await;
    let mut manager = scene.manager("shared");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    let balancer = scene.balancer("web");
    scene.create_with("other", 81, &[("loadbalancer.openstack.org/load-balancer-id", &balancer)]).await;
    scene.address(&manager, "other").await;
    let tags =
        || scene.cloud.record(Kind::LoadBalancer, &balancer).map(|record| record["tags"].as_array().unwrap().len());
    scene.eventually(&manager, "two tags", || async { (tags() == Some(2)).then_some(()) }).await;
    assert_eq!(manager.stop("-TERM").code(), Some(0));
    let names = ["web", "other"].map(str::to_owned);
    for name in &names {
        scene.services().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let mut manager = scene.manager("shared-again");
    gone(&scene, &manager, &names).await;
    scene.is_clean();
    assert_eq!(manager.stop("-TERM").code(), Some(0));
}
