//! DigitalOcean calls and time of the whole manager, on the simulator with 20 ms latency per call and one second for every new load
//! balancer.
//!
//! `cargo bench -p bowline --bench digitalocean [-- NODES BALANCERS]`

mod simulated;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_cloud::{BuildInputs, CloudProvider};
use bowline_config::Environment;
use bowline_digitalocean::{Config, DigitalOcean};
use bowline_digitalocean_simulator::{NewDroplet, Options, REGION, Simulator, State, TOKEN, Work};
use serde_json::json;
use simulated::{Cloud, Failure, LATENCY, Machine, REFRESH, World, sizes, until};

/// Time that the cloud needs for a change of a load balancer.
const WORK: Duration = Duration::from_secs(1);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of items on a page of a list.
const PAGE: usize = 200;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode, Failure> {
    let (nodes, balancers) = sizes();
    let passed = [many_nodes(nodes).await?, one_load_balancer().await?, many_load_balancers(balancers).await?];
    Ok(if passed.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Nodes that all register at once, and a restart of the manager.
async fn many_nodes(nodes: usize) -> Result<bool, Failure> {
    let (world, calls) = World::initialised(simulator(), nodes).await?;
    let has_only_listed = |world: &World<Simulator>| has_only_listed(world, "droplets", nodes.div_ceil(PAGE));
    let steady = world.restarts_and_refreshes(nodes, has_only_listed, has_only_listed).await?;
    Ok(steady && calls <= 10 * nodes.div_ceil(1_000) as u64)
}

/// A Service with three ports in a cluster of a hundred Nodes.
async fn one_load_balancer() -> Result<bool, Failure> {
    let world = World::new(simulator(), 100).await?;
    let manager = world.start();
    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.add_service("web", 3, &[]).await?;
    world.all_addressed(1).await?;
    let (writes, droplets) = (world.cloud.writes().len(), targets(&world));
    world.report(&format!("a load balancer with 3 ports and {droplets} Droplets"), begin.elapsed());
    manager.stop().await?;
    Ok(writes <= 2 && droplets == 100)
}

/// Many load balancers, a Node that joins all of them, and their refresh.
async fn many_load_balancers(balancers: usize) -> Result<bool, Failure> {
    let world = World::new(simulator(), 10).await?;
    for number in 0..balancers {
        world.add_service(&format!("web-{number:03}"), 1, &[]).await?;
    }
    let begin = Instant::now();
    let manager = world.start();
    world.all_addressed(balancers).await?;
    world.report(&format!("{balancers} load balancers are created"), begin.elapsed());
    let created = world.cloud.writes().len() <= 2 * balancers;

    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.register(10, false).await?;
    until("the Node is a target of all load balancers", async || Ok(targets(&world) == 11 * balancers)).await?;
    let took = begin.elapsed();
    world.settle().await;
    world.report(&format!("a Node joins {balancers} load balancers"), took);
    let (writes, counts) = (world.cloud.writes().len(), world.cloud.counts());
    let joined = writes == balancers && counts.get("PUT load_balancers/{id}") == Some(&(balancers as u64));
    manager.stop().await?;

    let manager = world.start_with(|options| {
        options.service.iter_mut().for_each(|service| service.refresh = REFRESH);
    });
    world.settle().await;
    let what = format!("{balancers} load balancers are refreshed");
    // One listing shows the load balancers of a batch of Services, which has as many as a page.
    let pages = balancers.div_ceil(PAGE) * balancers.div_ceil(PAGE);
    let steady = refresh(&world, &what, "load_balancers", pages).await;
    manager.stop().await?;
    Ok(created && joined && steady)
}

/// Waits for one refresh period; whether the manager has read at most these pages, and made no other call.
async fn refresh(world: &World<Simulator>, what: &str, kind: &str, pages: usize) -> bool {
    world.cloud.forget_calls();
    tokio::time::sleep(REFRESH).await;
    world.report(what, REFRESH);
    has_only_listed(world, kind, pages)
}

/// Whether the manager has read at most these pages of a list, and made no other call, besides the region at the start.
fn has_only_listed(world: &World<Simulator>, kind: &str, pages: usize) -> bool {
    let (mut counts, listing) = (world.cloud.counts(), format!("GET {kind}"));
    counts.remove("GET regions");
    counts.into_iter().all(|(call, count)| call == listing && count <= pages as u64)
}

/// Number of Droplets of all load balancers.
fn targets(world: &World<Simulator>) -> usize {
    let balancers = world.cloud.records("load_balancers");
    balancers.iter().filter_map(|balancer| Some(balancer["droplet_ids"].as_array()?.len())).sum()
}

// ---- cloud

fn simulator() -> Simulator {
    let cloud = Simulator::new(Options { work: Work::Taking(WORK), ..Options::default() });
    cloud.set_latency(LATENCY);
    cloud
}

impl Cloud for Simulator {
    type State = State;

    fn provider(&self) -> Arc<dyn CloudProvider> {
        let variables = [("DO_ACCESS_TOKEN", TOKEN), ("REGION", REGION), ("DO_CLUSTER_ID", "bench")];
        let inputs = BuildInputs { environment: Environment::from_iter(variables), ..BuildInputs::default() };
        let (cluster, http) = ("kubernetes".into(), self.client(Duration::from_secs(30)));
        let config = Config::read(&inputs.context(None, &cluster));
        match config.and_then(|config| DigitalOcean::over(config, http, &cluster)) {
            Ok(provider) => Arc::new(provider),
            Err(errors) => unreachable!("the configuration is valid: {errors}"),
        }
    }

    fn add_machine(&self, number: usize, name: &str) -> Machine {
        let address = |first| Ipv4Addr::from_bits(Ipv4Addr::new(first, 18, 0, 1).to_bits() + number as u32);
        let (private, public) = (address(10), address(198));
        let (vpc, size, tags) = Default::default();
        let new =
            NewDroplet { name: name.to_owned(), vpc, size, tags, private: vec![private], public: vec![public.into()] };
        let id = self.add_droplet(new);
        let addresses =
            [("Hostname", name.to_owned()), ("InternalIP", private.to_string()), ("ExternalIP", public.to_string())];
        let addresses = addresses.map(|(kind, address)| json!({"type": kind, "address": address}));
        Machine { provider_id: format!("digitalocean://{id}"), addresses: json!(addresses) }
    }
}
