//! Cost of initialising and monitoring thousands of Nodes: time compared with a bare client, cloud calls, API writes, memory.
//!
//! `cargo bench -p bowline-controllers --bench nodes [-- NODES…]`
//!
//! ```text
//!  this process: API server (TLS) + local cloud (HTTP, 20 ms a call) ◄──── child: the manager, or a bare client
//! ```
//!
//! The child is a separate process, so that its memory and time are measured alone, from its start until the API server has
//! answered its last write. On shared machines, compare ratios and counts rather than absolute figures. No figure fails the
//! benchmark.

mod child;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options as ServerOptions};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds};
use bowline_controllers::manager::ManagerOptions;
use bowline_core::{Address, AddressType};
use bowline_local::{CloudOptions, Config, LocalCloud, LocalProvider, NewMachine, Server};
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use child::{Child, Failure, Kubeconfig};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ENDPOINT: &str = "BOWLINE_BENCH_CLOUD";
const STATUS_PERIOD: &str = "BOWLINE_BENCH_STATUS_PERIOD_MS";

/// Status period longer than the benchmark.
const SELDOM: Duration = Duration::from_secs(3600);

/// Concurrent writes of the manager and of the bare client.
const CONCURRENCY: usize = 16;

/// Latency of every cloud call.
const LATENCY: Duration = Duration::from_millis(20);

/// Number of images on a Node, which make up most of the size of a real one.
const IMAGES: usize = 20;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    match child::role().as_str() {
        "manager" => run_manager().await,
        "bare" => run_bare_client().await,
        _ => run_all().await,
    }
}

async fn run_all() -> Result<(), Failure> {
    let chosen: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let sizes = if chosen.is_empty() { vec![1_000, 5_000, 20_000] } else { chosen };
    let empty = memory_of_empty_start().await?;
    println!("empty start: {empty:.1} MiB");
    let mut costs = Vec::new();
    for &size in &sizes {
        costs.push(initialise(size, empty).await?);
    }
    if let (Some(first), Some(last)) = (costs.first(), costs.last()) {
        println!("cost per node, {} against {} nodes: {:.2}x", sizes[sizes.len() - 1], sizes[0], last / first);
    }
    steady(5_000.min(*sizes.iter().max().unwrap_or(&5_000))).await?;
    not_ready(1_000).await
}

// ---- scenarios

/// Measures the time until all tainted Nodes are initialised. Returns the cost of one Node, in seconds.
async fn initialise(size: usize, empty: f64) -> Result<f64, Failure> {
    let bare = {
        let world = World::with_tainted_nodes(size).await?;
        let begin = Instant::now();
        let child = world.spawn("bare", SELDOM)?;
        world.wait_for_writes(size).await?;
        let took = begin.elapsed();
        child.end().await?;
        took
    };
    let world = World::with_tainted_nodes(size).await?;
    let begin = Instant::now();
    let child = world.spawn("manager", SELDOM)?;
    world.wait_for_writes(size).await?;
    let took = begin.elapsed();
    let (peak, busy) = (child.memory("VmHWM")?, child.processor_time()?);
    let writes = world.writes();
    let calls = world.cloud.calls();
    child.end().await?;
    println!(
        "{size} tainted nodes: {:.2} s, bare client {:.2} s: {:.2}x; node writes {} ({:.2} per node), events {}; cloud \
         calls {} {calls:?}; memory {:.1} MiB above an empty start; processor {busy:.2?}",
        took.as_secs_f64(),
        bare.as_secs_f64(),
        took.as_secs_f64() / bare.as_secs_f64(),
        writes["nodes"],
        writes["nodes"] as f64 / size as f64,
        writes["events"],
        calls.values().sum::<u64>(),
        peak - empty,
    );
    Ok(took.as_secs_f64() / size as f64)
}

/// Measures a status period and a restart with initialised, Ready Nodes.
async fn steady(size: usize) -> Result<(), Failure> {
    let world = World::with_tainted_nodes(size).await?;
    let child = world.spawn("manager", SELDOM)?;
    world.wait_for_writes(size).await?;
    child.end().await?;
    world.set_ready(size, "True").await?;

    let before = world.counts();
    let child = world.spawn("manager", SELDOM)?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.report(&format!("restart with {size} ready nodes"), &before);
    child.end().await?;

    let before = world.counts();
    let child = world.spawn("manager", Duration::from_secs(4))?;
    tokio::time::sleep(Duration::from_secs(18)).await;
    world.report(&format!("18 s with {size} ready nodes and a status period of 4 s"), &before);
    let idle = child.memory("VmRSS")?;
    println!("    memory then: {idle:.1} MiB in all");
    child.end().await
}

/// Measures the cost of Nodes that are not ready and whose machines run.
async fn not_ready(size: usize) -> Result<(), Failure> {
    let world = World::with_tainted_nodes(size).await?;
    let child = world.spawn("manager", SELDOM)?;
    world.wait_for_writes(size).await?;
    child.end().await?;
    world.set_ready(size, "False").await?;
    let before = world.counts();
    let child = world.spawn("manager", SELDOM)?;
    tokio::time::sleep(Duration::from_secs(21)).await;
    world.report(&format!("21 s with {size} nodes not ready and a monitor period of 5 s"), &before);
    child.end().await
}

async fn memory_of_empty_start() -> Result<f64, Failure> {
    let world = World::with_tainted_nodes(0).await?;
    let child = world.spawn("manager", SELDOM)?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let memory = child.memory("VmRSS")?;
    child.end().await?;
    Ok(memory)
}

// ---- environment of the child

struct World {
    server: ApiServer,
    cloud: LocalCloud,
    endpoint: Server,
    kubeconfig: Kubeconfig,
}

impl World {
    async fn with_tainted_nodes(size: usize) -> Result<World, Failure> {
        let server = ApiServer::start(ServerOptions::default()).await?;
        let cloud = LocalCloud::open(CloudOptions { latency: LATENCY, page_size: 100, ..CloudOptions::default() })?;
        for index in 0..size {
            cloud.add(machine(index))?;
        }
        let nodes: Api<Node> = Api::all(server.in_process_client());
        stream::iter(0..size)
            .map(|index| {
                let nodes = nodes.clone();
                async move {
                    nodes.create(&PostParams::default(), &serde_json::from_value(node(index))?).await?;
                    Ok(())
                }
            })
            .buffer_unordered(64)
            .collect::<Vec<Result<(), Failure>>>()
            .await
            .into_iter()
            .collect::<Result<(), Failure>>()?;
        let endpoint = bowline_local::serve(cloud.clone(), "127.0.0.1:0".parse()?).await?;
        let kubeconfig = Kubeconfig::of(&server)?;
        Ok(World { server, cloud, endpoint, kubeconfig })
    }

    /// Writes and cloud calls so far.
    fn counts(&self) -> (BTreeMap<String, u64>, u64) {
        (self.writes(), self.cloud.calls().values().sum())
    }

    fn report(&self, what: &str, (writes, calls): &(BTreeMap<String, u64>, u64)) {
        let (now_writes, now_calls) = self.counts();
        let grown = |key: &str| now_writes.get(key).unwrap_or(&0) - writes.get(key).unwrap_or(&0);
        println!(
            "{what}: node writes {}, events {}, cloud calls {} (one listing is {})",
            grown("nodes"),
            grown("events"),
            now_calls - calls,
            self.cloud.machines().len().div_ceil(100),
        );
    }

    /// Successful writes by resource, without those of the setup.
    fn writes(&self) -> BTreeMap<String, u64> {
        let mut writes = BTreeMap::from([("nodes".to_owned(), 0), ("events".to_owned(), 0)]);
        for (kind, count) in self.server.requests() {
            let is_write = match kind.resource {
                "nodes" => matches!(kind.verb, "patch" | "update" | "delete"),
                "events" => matches!(kind.verb, "create" | "patch"),
                _ => false,
            };
            if is_write && kind.code < 300 {
                *writes.entry(kind.resource.to_owned()).or_default() += count;
            }
        }
        writes
    }

    async fn wait_for_writes(&self, size: usize) -> Result<(), Failure> {
        let size = size as u64;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(300) {
            let writes = self.writes();
            if writes["nodes"] >= 2 * size && writes["events"] >= size {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(format!("not all of {size} nodes were initialised within 300 s: {:?}", self.writes()).into())
    }

    async fn set_ready(&self, size: usize, status: &str) -> Result<(), Failure> {
        let nodes: Api<Node> = Api::all(self.server.in_process_client());
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Bench"}]}});
        for index in 0..size {
            nodes.patch_status(&name(index), &PatchParams::default(), &Patch::Strategic(&patch)).await?;
        }
        Ok(())
    }

    /// Starts a child; `status_period` is the period of the manager's address sync.
    fn spawn(&self, role: &str, status_period: Duration) -> Result<Child, Failure> {
        let period = status_period.as_millis().to_string();
        let settings = [(ENDPOINT, format!("http://{}", self.endpoint.address())), (STATUS_PERIOD, period)];
        Child::spawn(role, &self.kubeconfig, &settings)
    }
}

fn name(index: usize) -> String {
    format!("node-{index:05}")
}

fn machine(index: usize) -> NewMachine {
    NewMachine {
        name: name(index),
        id: format!("i-{index:05}"),
        instance_type: "large".to_owned(),
        zone: format!("zone-{}", index % 3),
        region: "region".to_owned(),
        addresses: internal_addresses(index),
        ..NewMachine::default()
    }
}

fn internal_addresses(index: usize) -> Vec<Address> {
    let (high, low) = (index / 250, index % 250);
    vec![Address::new(AddressType::InternalIP, format!("10.{}.{}.{}", high / 250, high % 250, low + 1))]
}

/// Node of a realistic size.
fn node(index: usize) -> Value {
    let images: Vec<_> = (0..IMAGES)
        .map(|image| json!({"names": [format!("registry.example/library/image-{image}@sha256:{:064x}", image), format!("registry.example/library/image-{image}:v1.{image}")], "sizeBytes": 10_000_000 + image}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name(index),
            "labels": {"kubernetes.io/hostname": name(index), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {
            "providerID": format!("local://i-{index:05}"),
            "taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}],
        },
        "status": {
            "addresses": [{"type": "Hostname", "address": name(index)}],
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "images": images,
        },
    })
}

// ---- the children

/// Runs the manager until its standard input is closed.
async fn run_manager() -> Result<(), Failure> {
    let metrics = prometheus::Registry::new();
    let config = Config { endpoint: std::env::var(ENDPOINT)?, ..Config::default() };
    let provider: Arc<dyn CloudProvider> = Arc::new(LocalProvider::over_http(&config)?);
    let clouds = Clouds::with_layers([provider], &LayerOptions::default(), &metrics);
    let mut options = ManagerOptions::default();
    if let Some(node) = &mut options.node {
        (node.concurrency, node.status_concurrency) = (CONCURRENCY, CONCURRENCY);
        node.status_period = Duration::from_millis(std::env::var(STATUS_PERIOD)?.parse()?);
    }
    child::manage(clouds, options, metrics).await
}

/// Makes the same writes as the manager, with a client that reads nothing.
async fn run_bare_client() -> Result<(), Failure> {
    let client = child::client().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let events: Api<Event> = Api::namespaced(client, "default");
    let names: Vec<_> =
        nodes.list_metadata(&ListParams::default()).await?.into_iter().filter_map(|node| node.metadata.name).collect();
    stream::iter(names.into_iter().enumerate())
        .map(|(index, name)| write_one(&nodes, &events, index, name))
        .buffer_unordered(CONCURRENCY)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<(), Failure>>()
}

async fn write_one(nodes: &Api<Node>, events: &Api<Event>, index: usize, name: String) -> Result<(), Failure> {
    let labels = json!({
        "beta.kubernetes.io/instance-type": "large", "node.kubernetes.io/instance-type": "large",
        "failure-domain.beta.kubernetes.io/zone": "zone-1", "topology.kubernetes.io/zone": "zone-1",
        "failure-domain.beta.kubernetes.io/region": "region", "topology.kubernetes.io/region": "region",
    });
    let object = json!({"metadata": {"labels": labels}, "spec": {"taints": null}});
    nodes.patch(&name, &PatchParams::default(), &Patch::Strategic(&object)).await?;
    let mut addresses = serde_json::to_value(internal_addresses(index))?;
    if let Some(list) = addresses.as_array_mut() {
        list.extend([json!({"type": "Hostname", "address": name}), json!({"$patch": "replace"})]);
    }
    let status = json!({"status": {"addresses": addresses}});
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
    let event = json!({
        "metadata": {"name": format!("{name}.{index:x}")},
        "involvedObject": {"kind": "Node", "name": name, "apiVersion": "v1"},
        "reason": "Synced", "message": "Node synced successfully", "type": "Normal",
        "source": {"component": "cloud-node-controller"}, "reportingComponent": "cloud-node-controller", "count": 1,
    });
    events.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
    Ok(())
}
