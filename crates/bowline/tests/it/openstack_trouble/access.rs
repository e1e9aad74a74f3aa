//! Keystone: expired tokens, rejected credentials, missing services.

use std::time::Duration;

use bowline_openstack_simulator::Options;

use crate::openstack_trouble::scene::{Scene, taking};
use crate::support::within;

#[tokio::test(flavor = "multi_thread")]
async fn expired_and_revoked_tokens_are_renewed_silently() {
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
async fn a_changed_password_is_reported_and_reloaded_from_the_file() {
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
    assert!(!manager.output().contains(&scene.cloud.fixture().password), "{}", manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_at_startup_is_logged_and_can_be_corrected() {
    let scene = Scene::new("wrong-password").await;
    scene.configure_as("not-the-password", &scene.lines());
    let mut manager = scene.manager("wrong-password");
    scene.create("web").await;
    let printed = manager.wait_for("the cloud cannot be used yet");
    assert!(printed.contains("HTTP 401") && printed.contains("Check the provider's credentials"), "{printed}");
    scene.warned(&manager, "web", "SyncLoadBalancerFailed", &["the cloud openstack is not ready", "HTTP 401"]).await;
    assert_eq!(manager.ended(), None, "{}", manager.output());
    scene.configure_as(&scene.cloud.fixture().password, &scene.lines());
    scene.address(&manager, "web").await;
    scene.end(&mut manager, "web").await;
    assert!(!manager.output().contains("not-the-password"), "{}", manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_cloud_is_retried() {
    let mut scene = Scene::new("down").await;
    scene.cloud.close();
    let mut manager = scene.manager("down");
    scene.create("web").await;
    manager.wait_for("the cloud cannot be used yet");
    scene.warned(&manager, "web", "SyncLoadBalancerFailed", &["/auth/tokens"]).await;
    assert_eq!(manager.ended(), None, "{}", manager.output());
    scene.cloud.open().await;
    scene.address(&manager, "web").await;
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_032_without_octavia_the_cloud_is_not_ready_unless_load_balancers_are_disabled() {
    let scene = Scene::new("no-octavia").await;
    scene.cloud.configure(|options| options.catalog.retain(|endpoint| endpoint.kind != "load-balancer"));
    let mut manager = scene.manager("no-octavia");
    let printed = manager.wait_for("the cloud cannot be used yet");
    assert!(printed.contains("load-balancer") && printed.contains("enabled = false in [LoadBalancer]"), "{printed}");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());

    scene.configure("[LoadBalancer]\nenabled = false\n");
    let mut manager = scene.manager("no-octavia");
    scene.create("web").await;
    scene.uninitialised("node-3").await;
    let node = scene.initialised(&manager, "node-3").await;
    assert!(node.spec.unwrap().provider_id.unwrap().starts_with("openstack:///"));
    assert_eq!(scene.services().get("web").await.unwrap().metadata.finalizers, None, "Services are not managed");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_file_is_reported_with_its_line_and_the_previous_one_stays_in_use() {
    let scene = Scene::new("spoiled").await;
    let mut manager = scene.manager("spoiled");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    scene.configure("[LoadBalancer]\nmonitor-delay = soon\n");
    let printed = manager.wait_for("cloud.conf");
    assert!(printed.contains(":7") && printed.contains("monitor-delay"), "{printed}");
    scene.create("late").await;
    scene.address(&manager, "late").await;
    scene.delete(&manager, "late").await;
    scene.end(&mut manager, "web").await;

    // A new manager does not start with it.
    let mut manager = scene.manager("spoiled");
    let ended = within(Duration::from_secs(60), || manager.ended());
    assert!(ended.is_some_and(|status| !status.success()), "{}", manager.output());
    let printed = manager.wait_for("cloud.conf");
    assert!(printed.contains(":7") && printed.contains("monitor-delay"), "{printed}");
}
