//! Tokens that are revoked, and an API that cannot be reached.

use bowline_digitalocean_simulator::{REGION, TOKEN};

use crate::digitalocean::scene::{FAILED, ID, Scene};

/// A revoked token is reported, and a new one is read from its file.
pub(super) async fn revoked_token() {
    let scene = Scene::new("token").await;
    let scratch = &scene.server.scratch;
    let token = scratch.file("token", format!("{TOKEN}\n"));
    let lines =
        format!("url: {}\nregion: {REGION}\ncluster-id: c1\ntoken-file: {}\n", scene.cloud.url(), token.display());
    let config = format!("--cloud-config={}", scratch.file("digitalocean.yaml", lines).display());
    let unset = ["DO_ACCESS_TOKEN", "DO_OVERRIDE_URL", "DO_CLUSTER_ID", "REGION"].map(|name| (name, ""));
    let mut manager = scene.manager_with("token", &unset, &[&config]);
    scene.create("web").await;
    scene.address(&manager, "web").await;

    scene.cloud.configure(|options| options.token = "dop_v1_second".to_owned());
    scene.create("late").await;
    let words = ["401 (request ", "Unable to authenticate you. Check the provider's credentials"];
    let message = scene.warned(&manager, "late", FAILED, &words).await;
    assert!(!message.contains(TOKEN), "{message}");
    assert_eq!(scene.load_balancers().len(), 1, "nothing is deleted");
    scratch.file("token", "dop_v1_second");
    scene.address(&manager, "late").await;
    scene.delete(&manager, "late").await;
    scene.end(&mut manager, "web").await;
    assert!(!manager.output().contains("dop_v1_second"), "{}", manager.output());
}

/// An unreachable API is retried, at startup and later.
pub(super) async fn unreachable() {
    let mut scene = Scene::new("unreachable").await;
    scene.cloud.close();
    let mut manager = scene.manager("unreachable");
    scene.create("web").await;
    let printed = manager.wait_for("the cloud cannot be used yet");
    assert!(printed.contains("failed to determine region") && printed.contains("/v2/regions"), "{printed}");
    scene.warned(&manager, "web", FAILED, &["the cloud digitalocean is not ready", "/v2/regions"]).await;
    assert_eq!(manager.ended(), None, "{}", manager.output());
    scene.cloud.open().await;
    scene.address(&manager, "web").await;

    let id = scene.get_annotation("web", ID).await.unwrap();
    scene.cloud.close();
    scene.set_ready("node-2", "False").await;
    scene.patch("web", serde_json::json!({"spec": {"ports": [{"port": 81}]}})).await;
    scene.warned(&manager, "web", FAILED, &[&format!("failed to get load-balancer by ID {id}: ")]).await;
    scene.cloud.open().await;
    let is_changed = || async { (scene.load_balancer()["forwarding_rules"][0]["entry_port"] == 81).then_some(()) };
    scene.eventually(&manager, "the new port", is_changed).await;
    assert!(scene.nodes().get_opt("node-2").await.unwrap().is_some(), "an API that is down proves nothing");
    scene.end(&mut manager, "web").await;
}
