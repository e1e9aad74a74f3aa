//! Cost of pod CIDR allocation: `cargo bench -p bowline-controllers --bench pod_ranges [NODES…]`.
//!
//! The allocator alone is measured in this process. The controller runs in a separate process, with real HTTP to an embedded API
//! server here. The baseline is another child that writes as many pod CIDRs with the same concurrency and makes no decisions.

mod child;

use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options as ServerOptions};
use bowline_cloud::Clouds;
use bowline_cloud::layers::LayerOptions;
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::node_ipam::{AllocatorType, Options};
use bowline_core::NodeName;
use bowline_core::ipam::{Allocator, ClusterCidr};
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use child::{Child, Failure, Kubeconfig};

/// Allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Concurrent writes, as in the controller.
const CONCURRENCY: usize = 30;

/// Number of images on a Node, which make up most of the size of a real one.
const IMAGES: usize = 50;

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
    let sizes = if chosen.is_empty() { vec![5_000] } else { chosen };
    allocate("10.0.0.0/8", 24, 5_000)?;
    allocate("10.0.0.0/8", 32, 100_000)?;
    for size in sizes {
        through_the_controller(size).await?;
    }
    Ok(())
}

/// Measures the allocator alone: all Nodes are added, every second one is deleted, as many are added again, and a restart.
fn allocate(cluster: &str, mask: u8, size: usize) -> Result<(), Failure> {
    let range = ClusterCidr::new(cluster.parse()?, mask)?;
    let names: Vec<NodeName> = (0..size + size / 2).map(|index| name(index).as_str().into()).collect();
    let mut allocator = Allocator::new(&[range], &[]);
    let arrivals = timed(|| names.iter().take(size).try_for_each(|name| allocator.allocate(name).map(drop)))?;
    let departures = timed::<Failure>(|| {
        names.iter().take(size).step_by(2).for_each(|name| allocator.release(name));
        Ok(())
    })?;
    let returns = timed(|| names.iter().skip(size).try_for_each(|name| allocator.allocate(name).map(drop)))?;
    let held: Vec<(&NodeName, Vec<String>)> =
        names.iter().map(|name| (name, allocator.held(name).iter().map(ToString::to_string).collect())).collect();
    let mut again = Allocator::new(&[range], &[]);
    let restart =
        timed(|| held.iter().try_for_each(|(name, ranges)| again.observe(name, ranges).map_err(Failure::from)))?;
    let per_thousand = |took: Duration, count: usize| took.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{cluster} in blocks of /{mask}, {size} nodes, per 1000 nodes: {:.2} ms to allocate, {:.2} ms to release, {:.2} ms \
         to allocate again, {:.2} ms to take over at a restart",
        per_thousand(arrivals, size),
        per_thousand(departures, size / 2),
        per_thousand(returns, size / 2),
        per_thousand(restart, held.len()),
    );
    Ok(())
}

fn timed<E: Into<Failure>>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, Failure> {
    let begin = Instant::now();
    work().map_err(Into::into)?;
    Ok(begin.elapsed())
}

/// Measures the time until all Nodes have pod CIDRs, compared with the same patches alone.
async fn through_the_controller(size: usize) -> Result<(), Failure> {
    let (floor_first, floor) = {
        let world = World::new(size).await?;
        let begin = Instant::now();
        let child = world.spawn("bare")?;
        world.wait_for_patches(1).await?;
        let first = begin.elapsed();
        world.wait_for_patches(size).await?;
        let took = begin.elapsed();
        child.end().await?;
        (first, took)
    };
    let empty = {
        let world = World::new(0).await?;
        let child = world.spawn("manager")?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let memory = child.memory("VmRSS")?;
        child.end().await?;
        memory
    };
    let world = World::new(size).await?;
    let begin = Instant::now();
    let child = world.spawn("manager")?;
    world.wait_for_patches(1).await?;
    let first = begin.elapsed();
    world.wait_for_patches(size).await?;
    let took = begin.elapsed();
    // The last patches trigger further events.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (peak, after) = (child.memory("VmHWM")?, child.memory("VmRSS")?);
    let busy = child.processor_time()?;
    child.end().await?;
    let (patches, distinct) = (world.patches(), world.distinct_cidrs().await?);
    println!(
        "{size} nodes: {:.2} s (the first after {:.2} s), bare patches {:.2} s (the first after {:.2} s): {:.2}x; patches {patches} ({:.2} per node), distinct pod CIDRs {distinct}; \
         processor {:.2} s; memory {empty:.1} MiB empty, {after:.1} MiB after, {peak:.1} MiB at most",
        took.as_secs_f64(),
        first.as_secs_f64(),
        floor.as_secs_f64(),
        floor_first.as_secs_f64(),
        took.as_secs_f64() / floor.as_secs_f64(),
        patches as f64 / size as f64,
        busy.as_secs_f64(),
    );
    Ok(())
}

// ---- environment of the child

struct World {
    server: ApiServer,
    kubeconfig: Kubeconfig,
}

impl World {
    async fn new(size: usize) -> Result<World, Failure> {
        let server = ApiServer::start(ServerOptions::default()).await?;
        let nodes: Api<Node> = Api::all(server.in_process_client());
        let create = |index| {
            let nodes = nodes.clone();
            async move {
                nodes.create(&PostParams::default(), &serde_json::from_value(node(index))?).await?;
                Ok(())
            }
        };
        let created: Vec<Result<(), Failure>> = stream::iter(0..size).map(create).buffer_unordered(64).collect().await;
        created.into_iter().collect::<Result<(), Failure>>()?;
        Ok(World { kubeconfig: Kubeconfig::of(&server)?, server })
    }

    /// Successful writes of pod CIDRs.
    fn patches(&self) -> u64 {
        let is_patch = |kind: &bowline_apiserver::RequestKind| {
            (kind.verb, kind.resource, kind.subresource) == ("patch", "nodes", "") && kind.code < 300
        };
        self.server.requests().iter().filter(|(kind, _)| is_patch(kind)).map(|(_, count)| count).sum()
    }

    async fn distinct_cidrs(&self) -> Result<usize, Failure> {
        let nodes: Api<Node> = Api::all(self.server.in_process_client());
        let ranges = nodes.list(&ListParams::default()).await?.items.into_iter().filter_map(|node| node.spec?.pod_cidr);
        Ok(ranges.collect::<std::collections::BTreeSet<_>>().len())
    }

    async fn wait_for_patches(&self, size: usize) -> Result<(), Failure> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(300) {
            if self.patches() >= size as u64 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(format!("not all of {size} nodes had pod CIDRs within 300 s: {}", self.patches()).into())
    }

    fn spawn(&self, role: &str) -> Result<Child, Failure> {
        Child::spawn(role, &self.kubeconfig, &[])
    }
}

fn name(index: usize) -> String {
    format!("node-{index:06}")
}

/// Node of a realistic size.
fn node(index: usize) -> Value {
    let image = |image: usize| {
        let name = format!("registry.example/library/image-{image}");
        json!({"names": [format!("{name}@sha256:{image:064x}"), format!("{name}:v1.{image}")], "sizeBytes": 10_000_000 + image})
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name(index), "labels": {"kubernetes.io/hostname": name(index), "kubernetes.io/os": "linux"}},
        "spec": {"providerID": format!("local://i-{index:06}")},
        "status": {"images": (0..IMAGES).map(image).collect::<Vec<_>>()},
    })
}

// ---- the children

/// Runs the manager with this controller alone until its standard input is closed.
async fn run_manager() -> Result<(), Failure> {
    let metrics = prometheus::Registry::new();
    let clouds = Clouds::with_layers([], &LayerOptions::default(), &metrics);
    let cluster_cidrs = vec![ClusterCidr::new("10.0.0.0/8".parse()?, 24)?];
    let ipam = Options { cluster_cidrs, service_cidrs: Vec::new(), allocator: AllocatorType::Range };
    let options = ManagerOptions {
        node: None,
        node_lifecycle: None,
        service: None,
        node_ipam: Some(ipam),
        ..ManagerOptions::default()
    };
    child::manage(clouds, options, metrics).await
}

/// Makes the same writes as the manager, with a client that reads nothing.
async fn run_bare_client() -> Result<(), Failure> {
    let nodes: Api<Node> = Api::all(child::client().await?);
    let listed = nodes.list_metadata(&ListParams::default()).await?;
    let names = listed.into_iter().filter_map(|node| node.metadata.name).enumerate();
    let write = |(index, name): (usize, String)| {
        let nodes = nodes.clone();
        async move {
            let range = format!("10.{}.{}.0/24", index / 256, index % 256);
            let patch = json!({"spec": {"podCIDR": range, "podCIDRs": [range]}});
            nodes.patch(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
            Ok(())
        }
    };
    let written: Vec<Result<(), Failure>> =
        stream::iter(names).map(write).buffer_unordered(CONCURRENCY).collect().await;
    written.into_iter().collect()
}
