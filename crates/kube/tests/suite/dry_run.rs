//! Dry run: everything is validated and logged, nothing is written.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_apiserver::{ApiServer, Options};
use bowline_core::initialize::NodeChange;
use bowline_core::service::{FinalizerChange, ServiceChange};
use bowline_core::{Address, AddressType, Ingress, LoadBalancerStatus, Node, NodeName, ProviderId, Service, Taint};
use bowline_kube::{Cluster, EventSink, EventType, ObjectRef, Store, WriteError, watch_services};
use bowline_runtime::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Event, Node as FullNode, Service as FullService};
use kube::Api;
use kube::api::{ListParams, PostParams};
use prometheus::{Registry, TextEncoder};
use serde_json::json;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Log output of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> (Log, tracing::subscriber::DefaultGuard) {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Log lines of the dry run, from `dry run` on.
    fn lines(&self) -> Vec<String> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().filter_map(|line| line.find("dry run").and_then(|at| line.get(at..))).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Fixture {
    server: ApiServer,
    registry: Registry,
    /// In dry-run mode.
    cluster: Cluster,
    node: Node,
    service: Service,
}

/// A server with the Node `n` and the Service `default/web`.
async fn fixture() -> Result<Fixture, Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let client = server.in_process_client();
    let nodes: Api<FullNode> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "n"}}))?).await?;
    let web = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let services: Api<FullService> = Api::namespaced(client.clone(), "default");
    services.create(&PostParams::default(), &serde_json::from_value(web)?).await?;
    let registry = Registry::new();
    let cluster = Cluster::with_metrics(client, &registry)?.dry_run(true);
    let node = cluster.node(&"n".into()).await?.ok_or("no node")?;
    let service = service(&server).await?;
    Ok(Fixture { server, registry, cluster, node, service })
}

async fn service(server: &ApiServer) -> Result<Service, Failure> {
    let (store, shutdown) = (Store::new(), Shutdown::new());
    let task = tokio::spawn(watch_services(server.in_process_client(), store.clone(), shutdown.clone()));
    store.synced().await;
    shutdown.request();
    task.await?;
    Ok(Service::clone(&*store.get("default/web").ok_or("no service")?))
}

impl Fixture {
    /// Latest resource version of the server; every effective write increments it.
    async fn version(&self) -> Result<String, Failure> {
        let events: Api<Event> = Api::all(self.server.in_process_client());
        Ok(events.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default())
    }

    fn initialisation(&self) -> NodeChange {
        NodeChange {
            node: self.node.name.clone(),
            uid: self.node.uid.clone(),
            resource_version: self.node.resource_version.clone(),
            provider_id: ProviderId::new("cloud:///1"),
            labels: BTreeMap::new(),
            annotations: Default::default(),
            taints: vec![Taint::shutdown()],
            warnings: Vec::new(),
        }
    }
}

fn service_change() -> ServiceChange {
    let ingress = vec![Ingress { ip: Some("1.2.3.4".to_owned()), ..Ingress::default() }];
    ServiceChange {
        finalizer: Some(FinalizerChange::Add),
        status: Some(LoadBalancerStatus { ingress }),
        ..ServiceChange::default()
    }
}

#[tokio::test]
async fn writes_change_nothing_and_return_the_resulting_object() -> Result<(), Failure> {
    let f = fixture().await?;
    let start = f.version().await?;
    let (name, version) = (&f.node.name, &f.node.resource_version);
    let address = Address::new(AddressType::InternalIP, "10.0.0.1");
    assert_eq!(f.cluster.initialize(&f.initialisation()).await?.provider_id, ProviderId::new("cloud:///1"));
    assert_eq!(f.cluster.set_addresses(name, std::slice::from_ref(&address)).await?.addresses, [address]);
    let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    assert_eq!(f.cluster.set_labels(name, &labels).await?.labels.get("a").map(String::as_str), Some("1"));
    assert_eq!(f.cluster.set_taints(name, version, &[Taint::shutdown()]).await?.taints, [Taint::shutdown()]);
    let would_be = f.cluster.change_service(&f.service, &service_change()).await?;
    assert!(would_be.has_finalizer() && would_be.status.ingress.len() == 1);
    f.cluster.delete_node(name, &f.node.uid).await?;
    assert_eq!(f.version().await?, start);
    assert_eq!(f.cluster.node(name).await?.as_ref(), Some(&f.node));
    assert_eq!(service(&f.server).await?, f.service);
    let metrics = TextEncoder::new().encode_to_string(&f.registry.gather())?;
    for (verb, resource, count) in
        [("patch", "nodes", 3), ("patch", "nodes/status", 1), ("patch", "services/status", 1), ("delete", "nodes", 1)]
    {
        let labels = format!(r#"resource="{resource}",result="dry_run",verb="{verb}""#);
        assert!(metrics.contains(&format!("bowline_api_writes_total{{{labels}}} {count}\n")), "{labels} in\n{metrics}");
    }
    assert!(!metrics.contains("success"), "{metrics}");
    Ok(())
}

#[tokio::test]
async fn rejections_of_the_api_server_are_returned() -> Result<(), Failure> {
    let f = fixture().await?;
    let result = f.cluster.set_taints(&f.node.name, "1", &[]).await;
    assert!(matches!(result, Err(WriteError::Conflict(_))), "{result:?}");
    let result = f.cluster.set_labels(&f.node.name, &BTreeMap::from([("a b".into(), "1".into())])).await;
    assert!(matches!(result, Err(WriteError::Rejected { code: 422, .. })), "{result:?}");
    let result = f.cluster.delete_node(&f.node.name, "another").await;
    assert!(matches!(result, Err(WriteError::NotFound(_))), "{result:?}");
    let gone = f.cluster.set_addresses(&NodeName::from("gone"), &[]).await;
    assert!(matches!(gone, Err(WriteError::NotFound(_))), "{gone:?}");
    Ok(())
}

#[tokio::test]
async fn each_write_is_logged_with_its_body() -> Result<(), Failure> {
    let f = fixture().await?;
    let (log, _guard) = Log::start();
    f.cluster.set_taints(&f.node.name, &f.node.resource_version, &[]).await?;
    f.cluster.change_service(&f.service, &ServiceChange { status: None, ..service_change() }).await?;
    let lines = log.lines();
    let [taints, finalizer] = lines.as_slice() else { return Err(format!("{lines:?}").into()) };
    assert!(taints.starts_with("dry run: patch /api/v1/nodes/n: {") && taints.contains(r#""taints":[]"#), "{taints}");
    let path = "dry run: patch /api/v1/namespaces/default/services/web/status: {";
    assert!(finalizer.starts_with(path) && finalizer.contains("load-balancer-cleanup"), "{finalizer}");
    Ok(())
}

#[tokio::test]
async fn events_are_logged_and_not_written() -> Result<(), Failure> {
    let f = fixture().await?;
    let (log, _guard) = Log::start();
    let clock = Clock::from_tokio("2026-01-02T03:04:05Z".parse()?);
    let (sink, task) = EventSink::new(f.server.in_process_client(), clock, &f.registry);
    let source = sink.dry_run(true).source("test");
    source.emit(&ObjectRef::service(&f.service), EventType::Normal, "Synced", "it is done");
    source.emit(&ObjectRef::node(&f.node), EventType::Warning, "Broken", "it broke");
    let shutdown = Shutdown::new();
    shutdown.request();
    task(shutdown).await;
    let events: Api<Event> = Api::all(f.server.in_process_client());
    assert_eq!(events.list(&ListParams::default()).await?.items.len(), 0);
    let lines = log.lines();
    let [done, broke] = lines.as_slice() else { return Err(format!("{lines:?}").into()) };
    assert!(done.starts_with("dry run: it is done") && broke.starts_with("dry run: it broke"), "{lines:?}");
    Ok(())
}
