//! Cost of the console's document: time to make it, size, size of a change, memory.
//!
//! `cargo bench -p bowline-controllers --bench console [-- NODES SERVICES]`
//!
//! ```text
//!  this process: API server ◄── manager ──► local cloud, with load balancers that exist in memory only
//! ```
//!
//! No figure fails the benchmark; the stories of the console assert what is deterministic.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bowline_apiserver::{ApiServer, Options as ServerOptions};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{Applied, Capabilities, CloudProvider, Clouds, Instances, LoadBalancers, ProviderInfo, Result};
use bowline_console::{Changes, Position, Publisher};
use bowline_controllers::manager::{self, Dependencies, ManagerOptions};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Ingress, LoadBalancerKey, LoadBalancerState, LoadBalancerStatus, Opaque, Plan,
    Step, Verb,
};
use bowline_local::{CloudOptions, Config, LocalCloud, LocalProvider};
use bowline_runtime::{Clock, Shutdown};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Concurrent requests to the API server.
const CONCURRENCY: usize = 16;

/// Longer than two readers of the document share one.
const PAUSE: Duration = Duration::from_millis(500);

/// Number of measurements.
const ROUNDS: usize = 10;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::result::Result<(), Failure> {
    let mut sizes = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (nodes, services) = (sizes.next().unwrap_or(5_000), sizes.next().unwrap_or(1_000));
    let server = ApiServer::start(ServerOptions::default()).await?;
    let client = server.in_process_client();
    create::<Node>(&Api::all(client.clone()), (0..nodes).map(node)).await?;
    create::<Service>(&Api::namespaced(client.clone(), "default"), (0..services).map(service)).await?;
    let dependencies = Dependencies::new(client.clone(), clouds()?, Clock::system(), prometheus::Registry::new());
    let (sources, shutdown) = (dependencies.sources.clone(), Shutdown::new());
    let running = tokio::spawn(manager::run(dependencies, ManagerOptions::default(), shutdown.clone()));
    let with_address = || sources.read().service.values().filter(|service| !service.addresses.is_empty()).count();
    while with_address() < services {
        tokio::time::sleep(PAUSE).await;
    }
    tokio::time::sleep(10 * PAUSE).await;
    println!("{nodes} nodes, {services} services:");
    let publisher = Publisher::new(sources.clone(), Clock::system());
    measure(&publisher, &Api::all(client)).await?;
    let read = best(|| drop(sources.read()));
    println!("  of which reading the sources: {read:.2?}");
    shutdown.request();
    running.await??;
    Ok(())
}

async fn measure(publisher: &Publisher, nodes: &Api<Node>) -> std::result::Result<(), Failure> {
    let before = resident_memory()?;
    let begin = Instant::now();
    let complete = publisher.changes(&Position::default())?;
    let first = begin.elapsed();
    let text = serde_json::to_vec(&complete)?;
    println!(
        "  first document: {first:.2?}, {} items, {} kB; memory {:.1} MiB",
        complete.items.len(),
        text.len() / 1000,
        resident_memory()? - before
    );
    let mut position = position(&complete);
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let label = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": format!("zone-{round}")}}});
        nodes.patch(&name(7), &PatchParams::default(), &Patch::Merge(&label)).await?;
        tokio::time::sleep(PAUSE).await;
        let begin = Instant::now();
        let changes = publisher.changes(&position)?;
        times.push(begin.elapsed());
        if round == 0 {
            let keys: Vec<&str> = changes.items.keys().map(|key| &**key).collect();
            println!("  one node changed: {} bytes, {keys:?}", serde_json::to_vec(&changes)?.len());
        }
        position = self::position(&changes);
    }
    times.sort();
    println!("  next documents: fastest {:.2?}, median {:.2?}", times[0], times[ROUNDS / 2]);
    Ok(())
}

fn position(changes: &Changes) -> Position {
    Position { epoch: changes.epoch.to_string(), revision: changes.revision }
}

/// Shortest duration of several runs.
fn best(work: impl Fn()) -> Duration {
    let once = || {
        let begin = Instant::now();
        work();
        begin.elapsed()
    };
    (0..ROUNDS).map(|_| once()).min().unwrap_or_default()
}

/// Resident memory of this process in MiB.
fn resident_memory() -> std::result::Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).ok_or("no VmRSS in /proc/self/status")?;
    let kibibytes: f64 = line.split_whitespace().nth(1).ok_or("an empty field in /proc/self/status")?.parse()?;
    Ok(kibibytes / 1024.0)
}

// ---- objects

fn name(index: usize) -> String {
    format!("node-{index:05}")
}

/// An initialised, Ready Node.
fn node(index: usize) -> Value {
    let labels = json!({
        "topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/region": "region",
        "node.kubernetes.io/instance-type": "medium",
    });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(index), "labels": labels},
        "spec": {"providerID": format!("local://i-{index}"), "podCIDRs": [format!("10.{}.{}.0/24", index / 250, index % 250)]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("192.168.{}.{}", index / 250, index % 250)}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}],
        },
    })
}

fn service(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("service-{index:04}")},
        "spec": {"type": "LoadBalancer", "selector": {"app": "x"}, "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}]},
    })
}

/// Creates the objects, each with its status.
async fn create<K>(api: &Api<K>, objects: impl Iterator<Item = Value>) -> std::result::Result<(), Failure>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned + Send + Sync,
{
    let each = objects.map(|object| async move {
        let (name, status) =
            (object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), object["status"].clone());
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        if !status.is_null() {
            let patch = json!({"status": status});
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok::<_, Failure>(())
    });
    stream::iter(each).buffer_unordered(CONCURRENCY).try_collect::<Vec<()>>().await?;
    Ok(())
}

// ---- the cloud

/// Local provider whose load balancers exist in memory only: five million targets would measure the cloud.
struct Provider {
    inner: LocalProvider,
    existing: Mutex<BTreeSet<String>>,
}

fn clouds() -> std::result::Result<Clouds, Failure> {
    let cloud = LocalCloud::open(CloudOptions::default())?;
    let inner = LocalProvider::in_process(cloud, &Config::default());
    let provider: Arc<dyn CloudProvider> = Arc::new(Provider { inner, existing: Mutex::default() });
    Ok(Clouds::with_layers([provider], &LayerOptions::default(), &prometheus::Registry::new()))
}

#[async_trait]
impl CloudProvider for Provider {
    fn info(&self) -> &ProviderInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.inner.instances()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl LoadBalancers for Provider {
    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let existing = self.existing.lock().unwrap_or_else(PoisonError::into_inner);
        let ingress = vec![Ingress { ip: Some("192.0.2.7".to_owned()), ..Ingress::default() }];
        let state = || LoadBalancerState::new(LoadBalancerStatus { ingress: ingress.clone() }, Opaque::default());
        desired.iter().map(|one| Ok(existing.contains(&one.key.uid).then(state))).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Ok(Vec::new())
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        let step = || Step::new(Verb::Create, "load balancer", &desired.key.uid, Vec::new(), Opaque::default());
        Ok(Plan::of(state.is_none().then(step).into_iter().collect()))
    }

    async fn apply(&self, key: &LoadBalancerKey, _: &Step, _: Option<&Opaque>) -> Result<Applied> {
        self.existing.lock().unwrap_or_else(PoisonError::into_inner).insert(key.uid.clone());
        Ok(Applied::Done)
    }
}
