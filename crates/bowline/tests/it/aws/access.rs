//! Credentials that expire, and an API that cannot be reached.

use bowline_aws_simulator::{ACCESS_KEY, SECRET_KEY};
use serde_json::json;

use crate::aws::scene::{FAILED, Scene};

/// Keys of a profile that are replaced are reported until the file has the new ones.
pub(super) async fn expired_credentials() {
    let scene = Scene::new("credentials").await;
    let scratch = &scene.server.scratch;
    let profile =
        |id: &str, secret: &str| format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    let file = scratch.file("credentials", profile(ACCESS_KEY, SECRET_KEY)).display().to_string();
    let variables =
        [("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", ""), ("AWS_SHARED_CREDENTIALS_FILE", file.as_str())];
    let mut manager = scene.manager_with("credentials", &variables, &[]);
    scene.create("web").await;
    scene.hostname(&manager, "web").await;

    scene.cloud.rotate_access_key("AKIAROTATED000000001", "rotated/secret");
    scene.create("late").await;
    let message = scene.warned(&manager, "late", FAILED, &["Check the provider's credentials"]).await;
    assert!(!message.contains(SECRET_KEY), "{message}");
    assert_eq!(scene.count(), 1, "nothing is deleted");
    scratch.file("credentials", profile("AKIAROTATED000000001", "rotated/secret"));
    scene.set_annotation("late", "example.com/retry", "now").await;
    scene.hostname(&manager, "late").await;
    scene.delete(&manager, "late").await;
    scene.end(&mut manager, "web").await;
    assert!(!manager.output().contains("rotated/secret"), "{}", manager.output());
}

/// An unreachable API is retried, at startup and later.
pub(super) async fn unreachable() {
    let mut scene = Scene::new("unreachable").await;
    let mut manager = scene.manager("unreachable");
    scene.create("web").await;
    scene.hostname(&manager, "web").await;
    scene.cloud.close();
    scene.set_ready("node-2", "False").await;
    scene.patch("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    scene.warned(&manager, "web", FAILED, &["cannot connect", "Connection refused"]).await;
    scene.cloud.open().await;
    let is_changed = || async {
        let port = scene.only("classic")["ListenerDescriptions"][0]["Listener"]["LoadBalancerPort"].clone();
        (port == "81" || port == 81).then_some(())
    };
    scene.eventually(&manager, "the new port", is_changed).await;
    assert!(scene.nodes().get_opt("node-2").await.unwrap().is_some(), "an API that is down proves nothing");
    scene.end(&mut manager, "web").await;
}
