//! Services: watch events and the result of each write (W-6 to W-8).

use std::sync::Arc;
use std::time::Duration;

use bowline_apiserver::{ApiServer, Options};
use bowline_core::service::{Condition, ConditionChange, FinalizerChange, ServiceChange};
use bowline_core::well_known::LOAD_BALANCER_CLEANUP;
use bowline_core::{Ingress, IpMode, LoadBalancerStatus, PortStatus, Protocol, Service, ServiceType};
use bowline_kube::{Cluster, Store, WriteError, watch_services};
use bowline_runtime::Shutdown;
use k8s_openapi::api::core::v1::Service as FullService;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Fixture {
    server: ApiServer,
    services: Api<FullService>,
    cluster: Cluster,
}

/// A server with one Service, `default/web`, that has one finalizer, `foo`.
async fn fixture() -> Result<Fixture, Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let client = server.in_process_client();
    let f = Fixture { server, services: Api::namespaced(client.clone(), "default"), cluster: Cluster::new(client) };
    f.create(&["example.com/foo"]).await?;
    Ok(f)
}

impl Fixture {
    async fn create(&self, finalizers: &[&str]) -> Result<(), Failure> {
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        let object = json!({"metadata": {"name": "web", "finalizers": finalizers}, "spec": spec});
        self.services.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// Reads the Service with a watch.
    async fn read(&self) -> Result<Arc<Service>, Failure> {
        let (store, shutdown) = (Store::new(), Shutdown::new());
        let task = tokio::spawn(watch_services(self.server.in_process_client(), store.clone(), shutdown.clone()));
        store.synced().await;
        shutdown.request();
        task.await?;
        Ok(store.get("default/web").ok_or("the Service is gone")?)
    }

    /// The complete Service without the fields that change with every write.
    async fn full(&self) -> Result<Value, Failure> {
        let mut service = serde_json::to_value(self.services.get("web").await?)?;
        for field in ["managedFields", "resourceVersion"] {
            service["metadata"].as_object_mut().ok_or("no metadata")?.remove(field);
        }
        Ok(service)
    }

    /// Writes as another client.
    async fn patch_externally(&self, patch: Value) -> Result<(), Failure> {
        self.services.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn recreate(&self) -> Result<(), Failure> {
        self.patch_externally(json!({"metadata": {"finalizers": null}})).await?;
        self.services.delete("web", &DeleteParams::default()).await?;
        self.create(&[]).await
    }
}

fn finalizer(change: FinalizerChange) -> ServiceChange {
    ServiceChange { finalizer: Some(change), ..ServiceChange::default() }
}

fn status(ingress: Vec<Ingress>) -> ServiceChange {
    ServiceChange { status: Some(LoadBalancerStatus { ingress }), ..ServiceChange::default() }
}

fn condition(change: ConditionChange) -> ServiceChange {
    ServiceChange { condition: Some(change), ..ServiceChange::default() }
}

fn ip(address: &str) -> Ingress {
    Ingress { ip: Some(address.to_owned()), ip_mode: Some(IpMode::Vip), ..Ingress::default() }
}

fn ready(status: &str) -> Condition {
    Condition {
        kind: "bowline.dev/Ready".to_owned(),
        status: status.to_owned(),
        reason: "Tested".to_owned(),
        message: "by a test".to_owned(),
        last_transition_time: "2026-01-02T03:04:05Z".to_owned(),
    }
}

#[tokio::test]
async fn changes_of_services_have_the_namespace_in_the_key() -> Result<(), Failure> {
    let f = fixture().await?;
    let (store, shutdown) = (Store::<Service>::new(), Shutdown::new());
    let (sender, mut changes) = tokio::sync::mpsc::unbounded_channel();
    store.listen(move |change| drop(sender.send(format!("{change:?}").chars().take(7).collect::<String>())));
    let task = tokio::spawn(watch_services(f.server.client().await?, store.clone(), shutdown.clone()));
    store.synced().await;
    let read = store.get("default/web").ok_or("the Service is not there")?;
    assert_eq!((read.kind, read.ports.len(), read.has_finalizer()), (ServiceType::LoadBalancer, 1, false));
    f.patch_externally(json!({"metadata": {"finalizers": null}})).await?;
    f.services.delete("web", &DeleteParams::default()).await?;
    let mut received = Vec::new();
    while received.last().is_none_or(|last| last != "Deleted") {
        received.extend(tokio::time::timeout(Duration::from_secs(30), changes.recv()).await?);
    }
    assert!(received.contains(&"Updated".to_owned()), "{received:?}");
    assert_eq!(store.get("default/web"), None);
    shutdown.request();
    Ok(task.await?)
}

#[tokio::test]
async fn s22_a_change_from_a_stale_copy_succeeds_and_keeps_writes_of_other_clients() -> Result<(), Failure> {
    let f = fixture().await?;
    let mut stale = Service::clone(&*f.read().await?);
    stale.ports.clear();
    stale.kind = ServiceType::ClusterIP;
    f.patch_externally(json!({"metadata": {"annotations": {"theirs": "1"}, "finalizers": ["example.com/bar"]}}))
        .await?;
    let before = f.full().await?;
    let change = ServiceChange { finalizer: Some(FinalizerChange::Add), ..status(vec![ip("1.2.3.4")]) };
    let after = f.cluster.change_service(&stale, &change).await?;
    assert_eq!(after, *f.read().await?, "the answer is the Service as it is now");
    let now = f.full().await?;
    assert_eq!(now["spec"], before["spec"]);
    assert_eq!(now["metadata"]["annotations"], json!({"theirs": "1"}));
    let finalizers: Vec<&str> = after.finalizers.iter().map(String::as_str).collect();
    assert_eq!(finalizers, [LOAD_BALANCER_CLEANUP, "example.com/bar"], "unknown finalizers are kept");
    assert_eq!(after.status.ingress, [ip("1.2.3.4")]);
    Ok(())
}

#[tokio::test]
async fn s23_a_finalizer_is_added_last_and_once() -> Result<(), Failure> {
    let f = fixture().await?;
    let before = f.read().await?;
    let after = f.cluster.change_service(&before, &finalizer(FinalizerChange::Add)).await?;
    assert_eq!(after.finalizers, ["example.com/foo", LOAD_BALANCER_CLEANUP]);
    for copy in [&before, &after.clone().into()] {
        let again = f.cluster.change_service(copy, &finalizer(FinalizerChange::Add)).await?;
        assert_eq!(again, after, "the second write changes nothing, not even the resource version");
    }
    Ok(())
}

#[tokio::test]
async fn w7_only_the_load_balancer_finalizer_is_removed() -> Result<(), Failure> {
    let f = fixture().await?;
    f.patch_externally(json!({"metadata": {"finalizers": [LOAD_BALANCER_CLEANUP]}})).await?;
    let stale = f.read().await?;
    f.patch_externally(json!({"metadata": {"finalizers": [LOAD_BALANCER_CLEANUP, "example.com/bar"]}})).await?;
    let after = f.cluster.change_service(&stale, &finalizer(FinalizerChange::Remove)).await?;
    assert_eq!(after.finalizers, ["example.com/bar"]);
    let again = f.cluster.change_service(&stale, &finalizer(FinalizerChange::Remove)).await?;
    assert_eq!(again, after);
    Ok(())
}

#[tokio::test]
async fn w7_removing_the_last_finalizer_completes_the_deletion() -> Result<(), Failure> {
    let f = fixture().await?;
    f.patch_externally(json!({"metadata": {"finalizers": [LOAD_BALANCER_CLEANUP]}})).await?;
    f.services.delete("web", &DeleteParams::default()).await?;
    let stale = f.read().await?;
    assert!(stale.deleting);
    let change = ServiceChange { finalizer: Some(FinalizerChange::Remove), ..status(Vec::new()) };
    let last = f.cluster.change_service(&stale, &change).await?;
    assert!(!last.has_finalizer());
    assert!(f.services.get_opt("web").await?.is_none());
    let gone = f.cluster.change_service(&stale, &change).await;
    assert!(matches!(gone, Err(WriteError::NotFound(_))), "{gone:?}");
    Ok(())
}

#[tokio::test]
async fn w8_the_status_is_replaced_and_cleared() -> Result<(), Failure> {
    let f = fixture().await?;
    let stale = f.read().await?;
    let named = Ingress { hostname: Some("lb.example.com".to_owned()), ..Ingress::default() };
    let taken = PortStatus { port: 80, protocol: Protocol::Tcp, error: Some("Taken".to_owned()) };
    let with_port = Ingress { ports: vec![taken], ..ip("1.1.1.1") };
    for ingress in [vec![ip("1.1.1.1"), ip("2.2.2.2")], vec![named, ip("1.1.1.1")], vec![with_port], vec![], vec![]] {
        let after = f.cluster.change_service(&stale, &status(ingress.clone())).await?;
        assert_eq!(after.status.ingress, ingress);
        assert_eq!(after, *f.read().await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_condition_is_set_and_removed_without_touching_other_conditions() -> Result<(), Failure> {
    let f = fixture().await?;
    let stale = f.read().await?;
    let theirs = Condition { kind: "example.com/Theirs".to_owned(), ..ready("False") };
    f.cluster.change_service(&stale, &condition(ConditionChange::Set(theirs.clone()))).await?;
    for ours in [ready("False"), ready("True"), Condition { message: String::new(), ..ready("True") }] {
        let after = f.cluster.change_service(&stale, &condition(ConditionChange::Set(ours.clone()))).await?;
        assert_eq!(after.condition(&ours.kind), Some(&ours));
        assert_eq!((after.condition(&theirs.kind), after.conditions.len()), (Some(&theirs), 2));
    }
    for _ in 0..2 {
        let removal = condition(ConditionChange::Remove(ready("").kind));
        let after = f.cluster.change_service(&stale, &removal).await?;
        assert_eq!(after.conditions, std::slice::from_ref(&theirs));
    }
    Ok(())
}

#[tokio::test]
async fn annotations_are_written_with_the_status_and_others_are_kept() -> Result<(), Failure> {
    let f = fixture().await?;
    let stale = f.read().await?;
    f.patch_externally(json!({"metadata": {"annotations": {"theirs": "stays"}}})).await?;
    let annotation = |value: Option<&str>| [("cloud.example/id".to_owned(), value.map(str::to_owned))].into();
    let change = ServiceChange { annotations: annotation(Some("lb-1")), ..status(vec![ip("1.2.3.4")]) };
    let after = f.cluster.change_service(&stale, &change).await?;
    let value = |service: &Service, key: &str| service.annotations.get(key).cloned();
    assert_eq!(value(&after, "cloud.example/id").as_deref(), Some("lb-1"));
    assert_eq!((value(&after, "theirs").as_deref(), after.status.ingress.len()), (Some("stays"), 1));
    let removal = ServiceChange { annotations: annotation(None), ..ServiceChange::default() };
    let after = f.cluster.change_service(&stale, &removal).await?;
    assert_eq!((value(&after, "cloud.example/id"), value(&after, "theirs").as_deref()), (None, Some("stays")));
    Ok(())
}

#[tokio::test]
async fn removing_missing_fields_of_a_service_is_no_error() -> Result<(), Failure> {
    let f = fixture().await?;
    f.recreate().await?;
    let stale = f.read().await?;
    let change = ServiceChange {
        finalizer: Some(FinalizerChange::Remove),
        status: Some(LoadBalancerStatus::default()),
        condition: Some(ConditionChange::Remove("bowline.dev/Ready".to_owned())),
        annotations: [("nothing".to_owned(), None)].into(),
    };
    let after = f.cluster.change_service(&stale, &change).await?;
    assert_eq!(after, *stale, "not even the resource version changes");
    Ok(())
}

#[tokio::test]
async fn another_service_of_the_same_name_is_not_written_to() -> Result<(), Failure> {
    let f = fixture().await?;
    let stale = f.read().await?;
    f.recreate().await?;
    let before = f.read().await?;
    for change in [finalizer(FinalizerChange::Add), status(vec![ip("1.2.3.4")])] {
        let result = f.cluster.change_service(&stale, &change).await;
        assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    }
    assert_eq!(*before, *f.read().await?);
    Ok(())
}

#[tokio::test]
async fn an_empty_change_is_not_sent() -> Result<(), Failure> {
    let f = fixture().await?;
    let stale = f.read().await?;
    f.recreate().await?;
    assert_eq!(f.cluster.change_service(&stale, &ServiceChange::default()).await?, *stale);
    Ok(())
}

#[tokio::test]
async fn a_rejected_change_returns_the_message_of_the_api_server() -> Result<(), Failure> {
    let f = fixture().await?;
    let result = f.cluster.change_service(&*f.read().await?, &status(vec![ip("not an address")])).await;
    match result {
        Err(WriteError::Rejected { code: 422, message }) => assert!(message.contains("not an address"), "{message}"),
        other => return Err(format!("expected a rejection, got {other:?}").into()),
    }
    Ok(())
}
