//! Clouds with credentials in a Secret of the cluster.

use std::path::PathBuf;
use std::time::Duration;

use bowline_cloud::SecretRef;
use bowline_controllers::{Permissions, secrets};
use bowline_local::{CloudOptions, LocalCloud};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::identity;
use crate::world::{World, machine};

const NAME: &str = "local-cloud";

/// World whose cloud accepts the token in a file, and whose provider reads the token from a Secret.
struct Guarded {
    world: World,
    tokens: PathBuf,
}

impl Guarded {
    async fn new(story: &str) -> Guarded {
        let tokens = std::env::temp_dir().join(format!("bowline-story-{story}-{}", std::process::id()));
        std::fs::write(&tokens, "first-swordfish").unwrap();
        let mut world = World::new().await;
        let options = CloudOptions { token_file: Some(tokens.clone()), ..CloudOptions::default() };
        world.clouds[0].1 = LocalCloud::open(options).unwrap();
        world.clouds[0].0.token_secret = Some(format!("kube-system/{NAME}"));
        for name in ["a", "b", "c"] {
            world.cloud().add(machine(name, &format!("i-{name}"), &["I10.0.0.1"])).unwrap();
        }
        Guarded { world, tokens }
    }

    /// Permissions of the manager's controllers, with that for the Secret if `reads_secret`.
    fn permissions(&self, reads_secret: bool) -> Vec<bowline_kube::Permission> {
        let secret = SecretRef { namespace: "kube-system".to_owned(), name: NAME.to_owned() };
        let own = secrets::permissions(reads_secret.then_some(secret));
        Permissions::of(&self.world.options).of_one().into_iter().chain(own).collect()
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.world.server.in_process_client(), "kube-system")
    }

    async fn write(&self, data: Value) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "stringData": data});
        let params = PatchParams::apply("story").force();
        self.secrets().patch(NAME, &params, &Patch::Apply(&secret)).await.unwrap();
    }

    fn status(&self) -> Value {
        let entries = self.world.board.entries();
        entries.iter().find(|entry| entry.name == "local").expect("the cloud is on the board").component.status()
    }

    /// Waits for the Event that reports why the cloud is not ready, and returns its message.
    async fn not_ready(&self) -> String {
        let event = async || self.world.event("cloud-controller-manager", "CloudNotReady").await;
        self.world.eventually("an Event", event).await.message.unwrap_or_default()
    }

    /// Asserts that no Event and no status page contains a token.
    async fn assert_no_token_is_shown(&self) {
        let events = format!("{:?}", self.world.events().await);
        let board: Vec<_> =
            self.world.board.entries().iter().map(|entry| entry.component.status().to_string()).collect();
        assert!(!events.contains("swordfish") && !board.concat().contains("swordfish"));
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.tokens);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_waits_for_its_secret_follows_its_changes_and_survives_its_deletion() {
    let mut guarded = Guarded::new("rotation").await;
    guarded.world.permissions = Some(guarded.permissions(true));
    guarded.world.start();
    guarded.world.register("a").await;
    let message = guarded.not_ready().await;
    assert!(message.contains("kube-system/local-cloud") && message.contains("does not exist"), "{message}");
    assert_eq!(guarded.status()["ready"], false);

    guarded.write(json!({"password": "swordfish"})).await;
    guarded.world.sleep(Duration::from_secs(90)).await;
    let reason = guarded.status()["reason"].to_string();
    assert!(reason.contains("\\\"token\\\" of the Secret is missing"), "{reason}");
    guarded.write(json!({"token": "first-swordfish\n"})).await;
    guarded.world.wait_until_initialized("a").await;
    assert_eq!(guarded.status()["secrets"]["kube-system/local-cloud"], "in use");

    std::fs::write(&guarded.tokens, "second-swordfish").unwrap();
    guarded.world.register("b").await;
    guarded.world.sleep(Duration::from_secs(30)).await;
    assert!(guarded.world.node("b").await.spec.unwrap().taints.is_some(), "the old token is rejected");
    guarded.write(json!({"token": "second-swordfish"})).await;
    guarded.world.wait_until_initialized("b").await;

    guarded.secrets().delete(NAME, &DeleteParams::default()).await.unwrap();
    guarded.world.sleep(Duration::from_secs(30)).await;
    guarded.world.register("c").await;
    guarded.world.wait_until_initialized("c").await;
    let state = guarded.status()["secrets"]["kube-system/local-cloud"].to_string();
    assert!(state.contains("last good values are in use") && state.contains("does not exist"), "{state}");
    guarded.assert_no_token_is_shown().await;
    guarded.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named_with_the_rule_that_grants_it() {
    let mut guarded = Guarded::new("forbidden").await;
    guarded.world.permissions = Some(guarded.permissions(false));
    guarded.write(json!({"token": "first-swordfish"})).await;
    guarded.world.start();
    guarded.world.register("a").await;
    let message = guarded.not_ready().await;
    for part in ["kube-system/local-cloud", "403", "Role in namespace kube-system", "resourceNames [local-cloud]"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let client = guarded.world.server.in_process_client();
    identity::grant(client, guarded.permissions(true)).await;
    guarded.world.wait_until_initialized("a").await;
    guarded.assert_no_token_is_shown().await;
    guarded.world.stop().await;
}
