//! Clouds that do not start or that hang later, without an effect on other clouds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{
    Capabilities, CloudProvider, Error, ErrorKind, Facts, InstancePage, Instances, PageToken, ProviderInfo, Result,
};
use bowline_core::{InstanceRef, InstanceState};
use serde_json::json;
use tokio::time::Instant;

use crate::test_providers::Wrapped;
use crate::world::{SHUTDOWN, World, has_taint, machine, provider_id};

/// Provider that starts only once its cloud responds.
struct Starting {
    inner: Arc<dyn CloudProvider>,
    answers: Arc<AtomicBool>,
    /// Error until then; `None` hangs.
    error: Option<ErrorKind>,
}

#[async_trait]
impl CloudProvider for Starting {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.inner.instances()
    }

    async fn start(&self) -> Result<Facts> {
        match (self.answers.load(Ordering::SeqCst), self.error) {
            (true, _) => self.inner.start().await,
            (false, Some(kind)) => Err(Error::new(kind, "query the metadata service", "HTTP 401")),
            (false, None) => std::future::pending().await,
        }
    }

    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
}

/// World with two clouds, of which the second starts once the flag is set.
async fn world(error: Option<ErrorKind>) -> (World, Arc<AtomicBool>) {
    let (mut world, answers) = (World::with_prefixes(&["east", "west"]).await, Arc::new(AtomicBool::new(false)));
    let flag = answers.clone();
    world.wrap = Box::new(move |inner| match inner.info().id_prefixes[0].as_str() {
        "west" => Arc::new(Starting { inner, answers: flag.clone(), error }),
        _ => inner,
    });
    for (index, name) in ["in-east", "in-west"].into_iter().enumerate() {
        world.clouds[index].1.add(machine(name, name, &["I10.0.0.1"])).unwrap();
    }
    (world, answers)
}

fn cloud_status(world: &World, name: &str) -> serde_json::Value {
    let entries = world.board.entries();
    entries.iter().find(|entry| entry.name == name).expect("the cloud is on the board").component.status()
}

/// Asserts that the Node of the cloud that does not start waits, that of the other does not, and that both are initialised in the
/// end.
async fn one_cloud_starts_late(error: Option<ErrorKind>, reason: &str) {
    let (mut world, answers) = world(error).await;
    world.start();
    let begin = Instant::now();
    for name in ["east", "west"] {
        let node = format!("in-{name}");
        world.register_with(&node, json!({"spec": {"providerID": format!("{name}://{node}")}})).await;
    }
    world.wait_until_initialized("in-east").await;
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    world.sleep(Duration::from_secs(200)).await;
    assert!(world.node("in-west").await.spec.unwrap().taints.is_some(), "the node waits for its cloud");
    let status = cloud_status(&world, "local-west");
    assert_eq!(status["ready"], false);
    assert!(status["reason"].as_str().unwrap().contains(reason), "{status}");
    let event = world.event("cloud-controller-manager", "CloudNotReady").await.expect("an Event on the Lease");
    assert!(event.message.unwrap().contains("Cloud local-west is not ready"));
    assert!(world.board.entries().iter().any(|entry| entry.component.health().is_err()), "the health check fails, too");

    answers.store(true, Ordering::SeqCst);
    world.wait_until_initialized("in-west").await;
    assert_eq!(cloud_status(&world, "local-west")["ready"], true);
    world.eventually("an Event", async || world.event("cloud-controller-manager", "CloudReady").await).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_does_not_respond_at_start_is_retried_while_other_clouds_work() {
    one_cloud_starts_late(None, "the cloud did not answer within 30 s").await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_rejects_credentials_at_start_does_not_end_the_manager_and_recovers() {
    one_cloud_starts_late(Some(ErrorKind::Unauthenticated), "HTTP 401").await;
}

/// Instances of a cloud that does not respond.
struct Silent;

#[async_trait]
impl Instances for Silent {
    async fn find(&self, _: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        std::future::pending().await
    }

    async fn list(&self, _: Option<&PageToken>) -> Result<InstancePage> {
        std::future::pending().await
    }
}

/// Initialisation, shutdown taint and deletion do not wait for another cloud.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_hangs_blocks_no_node_of_another() {
    let mut world = World::with_prefixes(&["east", "west"]).await;
    world.wrap = Box::new(|inner| match inner.info().id_prefixes[0].as_str() {
        "west" => Wrapped::instances(inner, Silent),
        _ => inner,
    });
    let east = world.clouds[0].1.clone();
    for name in ["stopped", "deleted", "witness", "new"] {
        east.add(machine(name, name, &["I10.0.0.1"])).unwrap();
    }
    for name in ["stopped", "deleted", "witness"] {
        world.join(name, &format!("east://{name}"), "False").await;
    }
    for count in 0..20 {
        world.join(&format!("west-{count}"), &format!("west://{count}"), "False").await;
    }
    world.start();
    // Each of these Nodes causes repeated calls to the cloud that hangs.
    for count in 0..10 {
        let id = json!({"spec": {"providerID": format!("west://new-{count}")}});
        world.register_with(&format!("west-new-{count}"), id).await;
        world.sleep(Duration::from_secs(3)).await;
    }
    let begin = Instant::now();
    east.stop("stopped").unwrap();
    world.register_with("new", json!({"spec": {"providerID": "east://new"}})).await;
    let node = world.wait_until_initialized("new").await;
    assert_eq!(provider_id(&node).as_deref(), Some("east://new"));
    assert!(begin.elapsed() < Duration::from_secs(5), "initialised after {:?}", begin.elapsed());
    world
        .eventually("the shutdown taint", async || world.get("stopped").await.filter(|node| has_taint(node, SHUTDOWN)))
        .await;
    assert!(begin.elapsed() < Duration::from_secs(15), "tainted after {:?}", begin.elapsed());
    east.delete("deleted").unwrap();
    world.wait_until_deleted("deleted").await;
    assert!(begin.elapsed() < Duration::from_secs(90), "deleted after {:?}", begin.elapsed());
}
