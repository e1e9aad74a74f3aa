//! Requests that the API server executes although the answer is lost: a retry must not write twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bowline_apiserver::{ApiServer, Options};
use bowline_core::initialize::NodeChange;
use bowline_core::service::{FinalizerChange, ServiceChange};
use bowline_core::{Address, AddressType, Ingress, LoadBalancerStatus, Node, NodeName, ProviderId};
use bowline_kube::{Cluster, EventSink, EventType, ObjectRef, Store, WriteError, watch_services};
use bowline_runtime::{Clock, Shutdown};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{Event, Node as FullNode, Service as FullService};
use kube::api::{ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tower::{BoxError, Service};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Client that loses the answers to the first few writes.
#[derive(Clone)]
struct Lossy {
    inner: Client,
    to_lose: Arc<AtomicU32>,
}

impl Service<Request<Body>> for Lossy {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Lossy { inner, to_lose } = self.clone();
        async move {
            let is_write = request.method() != Method::GET;
            let answer = inner.send(request).await?;
            let one_less = |left: u32| left.checked_sub(1);
            if is_write && to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                return Err("the connection broke".into());
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// Server with one Node, and a client that loses the answers to its first two writes.
async fn fixture() -> Result<(ApiServer, Client, NodeName), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let nodes: Api<FullNode> = Api::all(server.in_process_client());
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "n"}}))?).await?;
    let lossy = Lossy { inner: server.in_process_client(), to_lose: Arc::new(AtomicU32::new(2)) };
    Ok((server, Client::new(lossy, "default"), "n".into()))
}

async fn node(server: &ApiServer) -> Result<Option<Node>, WriteError> {
    Cluster::new(server.in_process_client()).node(&"n".into()).await
}

/// Latest resource version of the server; every effective write increments it by one.
async fn version(server: &ApiServer) -> Result<u64, Failure> {
    let events: Api<Event> = Api::all(server.in_process_client());
    let list = events.list(&ListParams::default()).await?;
    Ok(list.metadata.resource_version.unwrap_or_default().parse()?)
}

#[tokio::test(start_paused = true)]
async fn w1_a_lost_answer_to_an_initialisation_is_a_conflict_and_not_a_second_write() -> Result<(), Failure> {
    let (server, client, name) = fixture().await?;
    let before = node(&server).await?.ok_or("no node")?;
    let start = version(&server).await?;
    let change = NodeChange {
        node: name,
        uid: before.uid,
        resource_version: before.resource_version,
        provider_id: ProviderId::new("cloud:///1"),
        labels: Default::default(),
        annotations: Default::default(),
        taints: Vec::new(),
        warnings: Vec::new(),
    };
    let result = Cluster::new(client).initialize(&change).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    assert_eq!(node(&server).await?.and_then(|node| node.provider_id), ProviderId::new("cloud:///1"));
    assert_eq!(version(&server).await? - start, 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn w2_a_lost_answer_to_an_address_update_writes_once() -> Result<(), Failure> {
    let (server, client, name) = fixture().await?;
    let start = version(&server).await?;
    let addresses =
        [Address::new(AddressType::InternalIP, "10.0.0.1"), Address::new(AddressType::InternalIP, "10.0.0.2")];
    assert_eq!(Cluster::new(client).set_addresses(&name, &addresses).await?.addresses, addresses);
    assert_eq!(version(&server).await? - start, 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn w10_a_lost_answer_to_a_deletion_counts_as_deleted() -> Result<(), Failure> {
    let (server, client, name) = fixture().await?;
    let uid = node(&server).await?.ok_or("no node")?.uid;
    Cluster::new(client).delete_node(&name, &uid).await?;
    assert_eq!(node(&server).await?, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn w6_a_lost_answer_to_a_service_change_writes_once() -> Result<(), Failure> {
    let (server, client, _) = fixture().await?;
    let web = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let services: Api<FullService> = Api::namespaced(server.in_process_client(), "default");
    services.create(&PostParams::default(), &serde_json::from_value(web)?).await?;
    let (store, shutdown) = (Store::new(), Shutdown::new());
    let watch = tokio::spawn(watch_services(server.in_process_client(), store.clone(), shutdown.clone()));
    store.synced().await;
    shutdown.request();
    watch.await?;
    let before = store.get("default/web").ok_or("no service")?;
    let start = version(&server).await?;
    let ingress = vec![Ingress { ip: Some("192.0.2.1".to_owned()), ..Ingress::default() }];
    let change = ServiceChange {
        finalizer: Some(FinalizerChange::Add),
        status: Some(LoadBalancerStatus { ingress }),
        ..ServiceChange::default()
    };
    assert!(Cluster::new(client).change_service(&before, &change).await?.has_finalizer());
    assert_eq!(version(&server).await? - start, 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ev1_a_lost_answer_to_an_event_creation_creates_one_event() -> Result<(), Failure> {
    let (server, client, _) = fixture().await?;
    let object = ObjectRef::node(&node(&server).await?.ok_or("no node")?);
    let (registry, shutdown) = (prometheus::Registry::new(), Shutdown::new());
    let (sink, task) = EventSink::new(client, Clock::from_tokio("2026-01-02T03:04:05Z".parse()?), &registry);
    sink.source("test").emit(&object, EventType::Normal, "Happened", "once");
    shutdown.request();
    task(shutdown).await;
    let events: Api<Event> = Api::all(server.in_process_client());
    assert_eq!(events.list(&ListParams::default()).await?.items.len(), 1);
    let metrics = prometheus::TextEncoder::new().encode_to_string(&registry.gather())?;
    assert!(!metrics.contains("bowline_events_dropped_total"), "{metrics}");
    Ok(())
}
