//! Cost of load balancers: time compared with the ideal, cloud calls, API writes.
//!
//! `cargo bench -p bowline-controllers --bench services [-- SERVICES]`
//!
//! ```text
//!  this process: API server ◄── manager ──► local cloud, 20 ms a call
//! ```
//!
//! The ideal is the time of the cloud calls alone with full concurrency:
//! calls x latency / concurrency. No figure fails the benchmark.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options as ServerOptions};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds};
use bowline_controllers::manager::{self, Dependencies, ManagerError, ManagerOptions};
use bowline_core::{Address, AddressType};
use bowline_local::{CloudOptions, Config, LocalCloud, LocalProvider, NewMachine};
use bowline_runtime::{Clock, Shutdown};
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Latency of every cloud call.
const LATENCY: Duration = Duration::from_millis(20);

/// Number of initial Nodes.
const NODES: usize = 10;

/// Number of Nodes that join.
const JOINING: usize = 100;

/// Quiet period after which a phase counts as finished.
const QUIET: Duration = Duration::from_secs(6);

/// Timeout of every phase.
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let services = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(200);
    for concurrency in [1, 16] {
        creation(services, concurrency).await?;
    }
    let world = World::new(services).await?;
    let manager = world.start(16);
    world.all_addressed(services).await?;
    world.settle().await;
    manager.stop().await?;
    restart(&world).await?;
    let manager = world.start(16);
    world.settle().await;
    joining(&world, services).await?;
    deletion(&world, services).await?;
    manager.stop().await
}

/// Measures the time until all new Services have addresses.
async fn creation(services: usize, concurrency: usize) -> Result<(), Failure> {
    let world = World::new(services).await?;
    let begin = Instant::now();
    let manager = world.start(concurrency);
    world.all_addressed(services).await?;
    let took = begin.elapsed();
    let calls = world.balancer_calls();
    let ideal = LATENCY * u32::try_from(calls.values().sum::<u64>())? / u32::try_from(concurrency)?;
    println!("{services} new Services, {concurrency} at once, {LATENCY:?} a call:");
    println!(
        "  all have addresses after {took:.2?}; ideal {ideal:.2?}; {:.2}x",
        took.as_secs_f64() / ideal.as_secs_f64()
    );
    println!("  cloud calls: {calls:?}; patches: {}", world.patches());
    manager.stop().await
}

/// Measures a restart without changes.
async fn restart(world: &World) -> Result<(), Failure> {
    let before = world.patches();
    world.cloud.reset_calls();
    let manager = world.start(16);
    world.settle().await;
    println!("restart with nothing to do:");
    println!(
        "  cloud writes: {}; cloud calls: {:?}; patches: {}",
        world.cloud.writes(),
        world.balancer_calls(),
        world.patches() - before
    );
    manager.stop().await
}

/// Measures Nodes that join, a few per second, and are initialised by the same manager.
async fn joining(world: &World, services: usize) -> Result<(), Failure> {
    world.cloud.reset_calls();
    let begin = Instant::now();
    for index in 0..JOINING {
        world.register(NODES + index, true).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let wanted = NODES + JOINING;
    let all = || world.cloud.balancers().iter().all(|balancer| balancer.targets.len() == wanted);
    world.until("all nodes are targets", async || Ok(all())).await?;
    let took = begin.elapsed();
    world.settle().await;
    println!(
        "{JOINING} nodes join a cluster with {services} load balancers, within {:?}:",
        Duration::from_millis(100) * JOINING as u32
    );
    println!("  all are targets after {took:.2?}; cloud calls: {:?}", world.balancer_calls());
    Ok(())
}

/// Measures the deletion of all Services.
async fn deletion(world: &World, services: usize) -> Result<(), Failure> {
    world.cloud.reset_calls();
    let before = world.patches();
    let begin = Instant::now();
    stream::iter(0..services)
        .map(|index| async move { world.services.delete(&name(index), &DeleteParams::default()).await })
        .buffer_unordered(16)
        .collect::<Vec<_>>()
        .await;
    // The Service of the API server stays.
    let gone = async || Ok(!world.services.list(&ListParams::default()).await?.items.iter().any(has_address));
    world.until("all Services are gone", gone).await?;
    println!("{services} Services are deleted:");
    println!(
        "  gone after {:.2?}; cloud calls: {:?}; patches: {}",
        begin.elapsed(),
        world.balancer_calls(),
        world.patches() - before
    );
    println!(
        "  left in the cloud: {} load balancers, {} addresses",
        world.cloud.balancers().len(),
        world.cloud.addresses().len()
    );
    Ok(())
}

// ---- environment

struct World {
    server: ApiServer,
    nodes: Api<Node>,
    services: Api<Service>,
    cloud: LocalCloud,
}

struct Manager {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), ManagerError>>,
}

impl Manager {
    async fn stop(self) -> Result<(), Failure> {
        self.shutdown.request();
        Ok(self.running.await??)
    }
}

impl World {
    /// World with initialised Nodes and new Services.
    async fn new(services: usize) -> Result<World, Failure> {
        let server = ApiServer::start(ServerOptions::default()).await?;
        let client = server.in_process_client();
        let cloud = LocalCloud::open(CloudOptions { latency: LATENCY, ..CloudOptions::default() })?;
        let namespaced = Api::namespaced(client.clone(), "default");
        let world = World { nodes: Api::all(client), services: namespaced, server, cloud };
        for index in 0..NODES {
            world.register(index, false).await?;
        }
        for index in 0..services {
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name(index)},
                "spec": {"type": "LoadBalancer", "selector": {"app": "x"}, "ports": [{"port": 80}]},
            });
            world.services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        }
        Ok(world)
    }

    fn start(&self, concurrency: usize) -> Manager {
        let provider: Arc<dyn CloudProvider> =
            Arc::new(LocalProvider::in_process(self.cloud.clone(), &Config::default()));
        let metrics = prometheus::Registry::new();
        let clouds = Clouds::with_layers([provider], &LayerOptions::default(), &metrics);
        let mut options = ManagerOptions::default();
        if let Some(service) = &mut options.service {
            service.concurrency = concurrency;
        }
        let shutdown = Shutdown::new();
        let client = self.server.in_process_client();
        let running = tokio::spawn(manager::run(
            Dependencies::new(client, clouds, Clock::system(), metrics),
            options,
            shutdown.clone(),
        ));
        Manager { shutdown, running }
    }

    /// Adds a machine and its Node, tainted or initialised.
    async fn register(&self, index: usize, tainted: bool) -> Result<(), Failure> {
        let (node, id) = (format!("node-{index:03}"), format!("i-node-{index:03}"));
        let address = format!("10.0.{}.{}", index / 200, index % 200 + 1);
        let addresses = vec![Address::new(AddressType::InternalIP, &address)];
        self.cloud.add(NewMachine { name: node.clone(), id: id.clone(), addresses, ..NewMachine::default() })?;
        let taint = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
        let spec = if tainted { json!({"taints": taint}) } else { json!({"providerID": format!("local://{id}")}) };
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": spec});
        self.nodes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}],
        }});
        self.nodes.patch_status(&node, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// Load balancer calls, by kind.
    fn balancer_calls(&self) -> BTreeMap<String, u64> {
        self.cloud.calls().into_iter().filter(|(kind, _)| kind != "find" && kind != "list").collect()
    }

    fn patches(&self) -> u64 {
        let requests = self.server.requests().into_iter();
        let ours = requests.filter(|(kind, _)| kind.verb == "patch" && kind.resource == "services");
        ours.map(|(_, count)| count).sum()
    }

    /// Waits until the last status is written. The patches are counted first, because polling the API server slows the manager.
    async fn all_addressed(&self, services: usize) -> Result<(), Failure> {
        let patches = 2 * services as u64;
        self.until("every Service was written to twice", async || Ok(self.patches() >= patches)).await?;
        self.until("all Services have addresses", async || {
            let all = self.services.list(&ListParams::default()).await?.items;
            Ok(all.iter().filter(|service| has_address(service)).count() == services)
        })
        .await
    }

    async fn until(&self, what: &str, mut check: impl AsyncFnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
        let begin = Instant::now();
        while !check().await? {
            if begin.elapsed() > PATIENCE {
                return Err(format!("{what}: not within {PATIENCE:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Waits until no call is made for the quiet period.
    async fn settle(&self) {
        let (mut last, mut since) = (self.balancer_calls(), Instant::now());
        while since.elapsed() < QUIET {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let calls = self.balancer_calls();
            if calls != last {
                (last, since) = (calls, Instant::now());
            }
        }
    }
}

fn name(index: usize) -> String {
    format!("web-{index:03}")
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}
