//! Keystone: tokens that end, credentials that are not taken, and services that are not there.

use std::time::Duration;

use bowline_openstack_simulator::Options;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;

use crate::openstack_trouble::scene::{Scene, taking};
use crate::support::within;

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_end_or_are_revoked_on_the_way_are_not_noticed() {
    let options = Options { token_lifetime: Duration::from_secs(2), ..taking(Duration::from_secs(1)) };
    let scene = Scene::with("tokens", options).await;
    let mut manager = scene.manager("tokens");
    scene.create("web").await;
    let revoked = scene.cloud.clone();
    let revoking = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            revoked.revoke_tokens();
        }
    });
    scene.address(&manager, "web").await;
    scene.end(&mut manager, "web").await;
    revoking.abort();
    assert!(scene.cloud.authentications() > 2, "{}", scene.cloud.authentications());
    assert_eq!(scene.warnings("web").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_changed_is_told_and_the_new_one_is_taken_from_the_file_without_a_restart() {
    let scene = Scene::new("password").await;
    let mut manager = scene.manager("password");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    scene.cloud.edit_identity(|identity| identity.users.iter_mut().for_each(|user| user.password = "another".into()));
    scene.cloud.revoke_tokens();
    scene.create("late").await;
    let words = ["/auth/tokens", "HTTP 401", "Check the provider's credentials"];
    let message = scene.warned(&manager, "late", "SyncLoadBalancerFailed", &words).await;
    assert!(!message.contains(&scene.cloud.fixture().password), "{message}");
    scene.configure_as("another", &scene.lines());
    scene.address(&manager, "late").await;
    scene.delete(&manager, "late").await;
    scene.end(&mut manager, "web").await;
    assert!(!manager.said().contains(&scene.cloud.fixture().password), "{}", manager.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_with_the_wrong_password_says_why_and_recovers_with_the_right_one() {
    let scene = Scene::new("wrong-password").await;
    scene.configure_as("not-the-password", &scene.lines());
    let mut manager = scene.manager("wrong-password");
    scene.create("web").await;
    let said = manager.says("the cloud cannot be used yet");
    assert!(said.contains("HTTP 401") && said.contains("Check the provider's credentials"), "{said}");
    scene.warned(&manager, "web", "SyncLoadBalancerFailed", &["the cloud openstack is not ready", "HTTP 401"]).await;
    assert_eq!(manager.ended(), None, "{}", manager.said());
    scene.configure_as(&scene.cloud.fixture().password, &scene.lines());
    scene.address(&manager, "web").await;
    scene.end(&mut manager, "web").await;
    assert!(!manager.said().contains("not-the-password"), "{}", manager.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_that_is_not_there_yet_is_waited_for() {
    let mut scene = Scene::new("down").await;
    scene.close();
    let mut manager = scene.manager("down");
    scene.create("web").await;
    manager.says("the cloud cannot be used yet");
    scene.warned(&manager, "web", "SyncLoadBalancerFailed", &["/auth/tokens"]).await;
    assert_eq!(manager.ended(), None, "{}", manager.said());
    scene.open().await;
    scene.address(&manager, "web").await;
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_032_without_octavia_the_cloud_is_not_ready_unless_load_balancers_are_disabled() {
    let scene = Scene::new("no-octavia").await;
    scene.cloud.configure(|options| options.catalog.retain(|endpoint| endpoint.kind != "load-balancer"));
    let mut manager = scene.manager("no-octavia");
    let said = manager.says("the cloud cannot be used yet");
    assert!(said.contains("load-balancer") && said.contains("enabled = false in [LoadBalancer]"), "{said}");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.said());

    scene.configure("[LoadBalancer]\nenabled = false\n");
    let mut manager = scene.manager("no-octavia");
    scene.create("web").await;
    scene.uninitialised("node-3").await;
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let ask = || async { nodes.get("node-3").await.unwrap().spec?.provider_id };
    assert!(scene.eventually(&manager, "node-3 to be initialised", ask).await.starts_with("openstack:///"));
    assert_eq!(scene.services().get("web").await.unwrap().metadata.finalizers, None, "Services are somebody else's");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_spoiled_while_the_manager_runs_is_told_with_its_line_and_the_old_one_goes_on() {
    let scene = Scene::new("spoiled").await;
    let mut manager = scene.manager("spoiled");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    scene.configure("[LoadBalancer]\nmonitor-delay = soon\n");
    let said = manager.says("cloud.conf");
    assert!(said.contains(":7") && said.contains("monitor-delay"), "{said}");
    scene.create("late").await;
    scene.address(&manager, "late").await;
    scene.delete(&manager, "late").await;
    scene.end(&mut manager, "web").await;

    // Nobody starts with it.
    let mut manager = scene.manager("spoiled");
    let ended = within(Duration::from_secs(60), || manager.ended());
    assert!(ended.is_some_and(|status| !status.success()), "{}", manager.said());
    let said = manager.says("cloud.conf");
    assert!(said.contains(":7") && said.contains("monitor-delay"), "{said}");
}
