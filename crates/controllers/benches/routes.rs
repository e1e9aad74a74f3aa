//! Cost of routes: time compared with the ideal, cloud calls, API writes, memory.
//!
//! `cargo bench -p bowline-controllers --bench routes [-- NODES]`
//!
//! ```text
//!  this process: API server, local cloud ◄── real HTTP ── the manager in a child: concurrent calls, each with a latency
//! ```
//!
//! The ideal is the time of the cloud calls alone with full concurrency:
//! calls x latency / concurrency. No figure fails the benchmark.

mod child;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options as ServerOptions};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::route;
use bowline_local::{CloudOptions, Config, LocalCloud, LocalProvider, NewMachine, Server};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use child::{Child, Failure, Kubeconfig};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MANAGER: &str = "manager";
const ENDPOINT: &str = "BOWLINE_BENCH_CLOUD";
const CONCURRENCY: &str = "BOWLINE_BENCH_CONCURRENCY";

/// Concurrent calls and latency of each, as in real clouds: few and fast, many, very many and slow.
const CLOUDS: [(usize, Duration); 3] =
    [(10, Duration::from_millis(20)), (50, Duration::from_millis(100)), (200, Duration::from_millis(300))];

/// Number of Nodes that are added and deleted together, and of repetitions, for the memory measurement.
const BATCH: usize = 200;
const TIMES: usize = 10;

/// Timeout of every phase.
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    if child::role() == MANAGER {
        return manage().await;
    }
    let nodes = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(5000);
    for (index, (concurrency, latency)) in CLOUDS.into_iter().enumerate() {
        let world = World::new(nodes, latency).await?;
        let manager = world.start(concurrency)?;
        first_programming(&world, &manager, nodes, concurrency, latency).await?;
        let is_looked_into = index == 1;
        if is_looked_into {
            one_node(&world, nodes).await?;
            repeated_additions(&world, &manager, nodes).await?;
        }
        manager.end().await?;
        if is_looked_into {
            restart(&world, concurrency).await?;
        }
    }
    Ok(())
}

/// Runs the manager with this controller alone.
async fn manage() -> Result<(), Failure> {
    let mut config = Config { endpoint: std::env::var(ENDPOINT)?, ..Config::default() };
    config.routes.max_parallel = std::env::var(CONCURRENCY)?.parse()?;
    let provider: Arc<dyn CloudProvider> = Arc::new(LocalProvider::over_http(&config)?);
    let metrics = prometheus::Registry::new();
    let clouds = Clouds::with_layers([provider], &LayerOptions::default(), &metrics);
    let options = ManagerOptions {
        node: None,
        node_lifecycle: None,
        service: None,
        route: Some(route::Options::new("kubernetes".into(), vec!["10.0.0.0/8".parse()?])),
        ..ManagerOptions::default()
    };
    child::manage(clouds, options, metrics).await
}

/// Measures the time until all Nodes have routes and conditions.
async fn first_programming(
    world: &World,
    manager: &Child,
    nodes: usize,
    concurrency: usize,
    latency: Duration,
) -> Result<(), Failure> {
    let begin = Instant::now();
    world.until("every Node has its route", async || world.routes() == nodes).await?;
    let programmed = begin.elapsed();
    world.until("every Node has its condition", async || world.patches() >= nodes as u64).await?;
    let reported = begin.elapsed();
    let calls = world.calls();
    let ideal = latency * u32::try_from(calls.values().sum::<u64>())? / u32::try_from(concurrency)?;
    let ratio = |took: Duration| took.as_secs_f64() / ideal.as_secs_f64();
    println!("{nodes} nodes without routes, {concurrency} concurrent calls, {latency:?} each: ideal {ideal:.2?}");
    println!("  all routes are created after {programmed:.2?}, {:.2}x", ratio(programmed));
    println!("  all conditions are written after {reported:.2?}, {:.2}x", ratio(reported));
    println!("  cloud calls: {calls:?}; patches: {}", world.patches());
    println!("  memory: {:.1} MiB; processor: {:.2?}", manager.memory("VmRSS")?, manager.processor_time()?);
    Ok(())
}

/// Measures one added and one deleted Node.
async fn one_node(world: &World, nodes: usize) -> Result<(), Failure> {
    world.cloud.reset_calls();
    let begin = Instant::now();
    world.register(nodes).await?;
    world.until("it has its route", async || world.routes() == nodes + 1).await?;
    println!("one node is added to {nodes}: after {:.2?}, cloud calls: {:?}", begin.elapsed(), world.calls());
    world.cloud.reset_calls();
    let begin = Instant::now();
    world.nodes.delete(&name(nodes), &DeleteParams::default()).await?;
    world.until("its route is deleted", async || world.routes() == nodes).await?;
    println!("one node is deleted: after {:.2?}, cloud calls: {:?}", begin.elapsed(), world.calls());
    world.cloud.delete(&id(nodes))?;
    Ok(())
}

/// Measures the memory after many Nodes were added and deleted repeatedly.
async fn repeated_additions(world: &World, manager: &Child, nodes: usize) -> Result<(), Failure> {
    let mut figures = vec![manager.memory("VmRSS")?];
    world.cloud.reset_calls();
    for _ in 0..TIMES {
        let batch = || stream::iter(nodes..nodes + BATCH);
        batch().map(|index| world.register(index)).buffer_unordered(16).try_collect::<Vec<_>>().await?;
        world.until("all have routes", async || world.routes() == nodes + BATCH).await?;
        let delete = |index| async move { world.nodes.delete(&name(index), &DeleteParams::default()).await };
        batch().map(delete).buffer_unordered(16).try_collect::<Vec<_>>().await?;
        world.until("their routes are deleted", async || world.routes() == nodes).await?;
        (nodes..nodes + BATCH).try_for_each(|index| world.cloud.delete(&id(index)))?;
        figures.push(manager.memory("VmRSS")?);
    }
    println!(
        "{BATCH} nodes are added and deleted, {TIMES} times: cloud calls: {:?}; memory in MiB: {figures:.1?}",
        world.calls()
    );
    Ok(())
}

/// Measures a restart without changes.
async fn restart(world: &World, concurrency: usize) -> Result<(), Failure> {
    let patches = world.patches();
    world.cloud.reset_calls();
    let manager = world.start(concurrency)?;
    world.until("it has listed routes", async || !world.calls().is_empty()).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("restart with nothing to do: cloud calls: {:?}; patches: {}", world.calls(), world.patches() - patches);
    manager.end().await
}

// ---- environment

struct World {
    server: ApiServer,
    nodes: Api<Node>,
    cloud: LocalCloud,
    endpoint: SocketAddr,
    _serving: Server,
    kubeconfig: Kubeconfig,
}

impl World {
    /// World with Nodes that have pod CIDRs and no routes.
    async fn new(nodes: usize, latency: Duration) -> Result<World, Failure> {
        let server = ApiServer::start(ServerOptions::default()).await?;
        let cloud = LocalCloud::open(CloudOptions { latency, ..CloudOptions::default() })?;
        let serving = bowline_local::serve(cloud.clone(), (Ipv4Addr::LOCALHOST, 0).into()).await?;
        let kubeconfig = Kubeconfig::of(&server)?;
        let nodes_api = Api::all(server.in_process_client());
        let endpoint = serving.address();
        let world = World { nodes: nodes_api, server, cloud, endpoint, _serving: serving, kubeconfig };
        stream::iter(0..nodes).map(|index| world.register(index)).buffer_unordered(16).try_collect::<Vec<_>>().await?;
        Ok(world)
    }

    fn start(&self, concurrency: usize) -> Result<Child, Failure> {
        let settings = [(ENDPOINT, format!("http://{}", self.endpoint)), (CONCURRENCY, concurrency.to_string())];
        Child::spawn(MANAGER, &self.kubeconfig, &settings)
    }

    /// Adds a machine and its Node, with a pod CIDR.
    async fn register(&self, index: usize) -> Result<(), Failure> {
        self.cloud.add(NewMachine { name: name(index), id: id(index), ..NewMachine::default() })?;
        let range = format!("10.{}.{}.0/24", index / 256, index % 256);
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(index)},
            "spec": {"providerID": format!("local://{}", id(index)), "podCIDR": range, "podCIDRs": [range]},
        });
        self.nodes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    fn routes(&self) -> usize {
        self.cloud.routes("kubernetes").len()
    }

    fn calls(&self) -> BTreeMap<String, u64> {
        self.cloud.calls()
    }

    fn patches(&self) -> u64 {
        let requests = self.server.requests().into_iter();
        let ours = requests.filter(|(kind, _)| kind.verb == "patch" && kind.resource == "nodes");
        ours.map(|(_, count)| count).sum()
    }

    async fn until(&self, what: &str, mut check: impl AsyncFnMut() -> bool) -> Result<(), Failure> {
        let begin = Instant::now();
        while !check().await {
            if begin.elapsed() > PATIENCE {
                return Err(format!("{what}: not within {PATIENCE:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn name(index: usize) -> String {
    format!("node-{index:05}")
}

fn id(index: usize) -> String {
    format!("i-{index:05}")
}
