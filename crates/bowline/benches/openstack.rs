//! OpenStack calls and time of the whole manager, on the simulator with 20 ms latency per call and one second for every change of a
//! load balancer.
//!
//! `cargo bench -p bowline --bench openstack [-- NODES BALANCERS]`
//!
//! ```text
//!  this process: API server ◄── manager ──► simulated Keystone, Nova, Neutron, Octavia
//! ```
//!
//! Times are for comparison only, because machines are shared; the benchmark fails on the number of calls.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options as ServerOptions};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds};
use bowline_controllers::manager::{self, Dependencies, ManagerError, ManagerOptions};
use bowline_http::{Client, RequestError};
use bowline_openstack::config::{Class, Credential, Global, LoadBalancer};
use bowline_openstack::{Config, OpenStack};
use bowline_openstack_simulator::{Kind, NewServer, Options, Simulator, Work};
use bowline_runtime::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Latency of a call.
const LATENCY: Duration = Duration::from_millis(20);

/// Time that Octavia needs for a change.
const WORK: Duration = Duration::from_secs(1);

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The manager has settled after this time without cloud calls.
const QUIET: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode, Failure> {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (nodes, balancers) = (arguments.next().unwrap_or(1_000), arguments.next().unwrap_or(100));
    let passed = [initialised(nodes).await?, one_load_balancer().await?, node_change(balancers).await?];
    Ok(if passed.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Nodes that all register at once.
async fn initialised(nodes: usize) -> Result<bool, Failure> {
    let world = World::new().await?;
    for index in 0..nodes {
        world.register(index, true).await?;
    }
    let begin = Instant::now();
    let manager = world.start();
    world.until("all Nodes are initialised", async || world.all_initialised(nodes).await).await?;
    let took = begin.elapsed();
    println!(
        "{nodes} Nodes are initialised: {:.2} s, {} calls {:?}",
        took.as_secs_f64(),
        world.cloud.calls(),
        world.cloud.counts()
    );
    manager.stop().await?;
    Ok(world.cloud.calls() <= 40 * nodes.div_ceil(1_000) as u64)
}

/// A Service with three ports in a cluster of a hundred Nodes.
async fn one_load_balancer() -> Result<bool, Failure> {
    let world = World::new().await?;
    for index in 0..100 {
        world.register(index, false).await?;
    }
    let manager = world.start();
    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.add_service("web", 3).await?;
    world.until("the Service has an address", async || world.all_addressed(1).await).await?;
    let (took, writes) = (begin.elapsed(), world.cloud.writes().len());
    let members = world.cloud.records(Kind::Member).len();
    println!(
        "a load balancer with 3 ports, {members} members in all: {:.2} s, {writes} writes of {} calls {:?}",
        took.as_secs_f64(),
        world.cloud.calls(),
        world.cloud.counts()
    );
    manager.stop().await?;
    Ok(writes <= 8 && members == 300)
}

/// A Node joins a cluster with many load balancers.
async fn node_change(balancers: usize) -> Result<bool, Failure> {
    let world = World::new().await?;
    for index in 0..10 {
        world.register(index, false).await?;
    }
    for index in 0..balancers {
        world.add_service(&format!("web-{index:03}"), 1).await?;
    }
    let begin = Instant::now();
    let manager = world.start();
    world.until("all Services have addresses", async || world.all_addressed(balancers).await).await?;
    println!(
        "{balancers} load balancers are created: {:.2} s, {} calls {:?}",
        begin.elapsed().as_secs_f64(),
        world.cloud.calls(),
        world.cloud.counts()
    );
    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.register(10, false).await?;
    let members = || world.cloud.records(Kind::Member).len();
    world.until("the Node is a target of all load balancers", async || Ok(members() == 11 * balancers)).await?;
    let took = begin.elapsed();
    world.settle().await;
    let (writes, counts) = (world.cloud.writes().len(), world.cloud.counts());
    println!(
        "a Node joins {balancers} load balancers: {:.2} s, {writes} writes of {} calls {counts:?}",
        took.as_secs_f64(),
        world.cloud.calls()
    );
    manager.stop().await?;
    Ok(writes == balancers && counts.get("PUT pools/{id}/members") == Some(&(balancers as u64)))
}

// ---- environment

struct World {
    server: ApiServer,
    nodes: Api<Node>,
    services: Api<Service>,
    cloud: Simulator,
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
    async fn new() -> Result<World, Failure> {
        let server = ApiServer::start(ServerOptions::default()).await?;
        let client = server.in_process_client();
        let cloud = Simulator::new(Options { latency: LATENCY, work: Work::Taking(WORK), ..Options::default() });
        let services = Api::namespaced(client.clone(), "default");
        Ok(World { nodes: Api::all(client), services, server, cloud })
    }

    fn start(&self) -> Manager {
        let metrics = prometheus::Registry::new();
        let clouds = Clouds::with_layers([provider(&self.cloud)], &LayerOptions::default(), &metrics);
        let mut options = ManagerOptions::default();
        if let Some(service) = &mut options.service {
            service.concurrency = 16;
        }
        let dependencies = Dependencies::new(self.server.in_process_client(), clouds, Clock::system(), metrics);
        let shutdown = Shutdown::new();
        let running = tokio::spawn(manager::run(dependencies, options, shutdown.clone()));
        Manager { shutdown, running }
    }

    /// Creates a server and its Node, uninitialised or initialised.
    async fn register(&self, index: usize, tainted: bool) -> Result<(), Failure> {
        let name = format!("node-{index:05}");
        let [_, _, high, low] = u32::try_from(index)?.to_be_bytes();
        let address = std::net::IpAddr::from([10, 10, high + 1, low]);
        let id = self.cloud.add_server(NewServer::named(&name).at(address));
        let taint = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
        let spec = if tainted { json!({"taints": taint}) } else { json!({"providerID": format!("openstack:///{id}")}) };
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
        self.nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}],
        }});
        self.nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    async fn add_service(&self, name: &str, ports: u16) -> Result<(), Failure> {
        let ports: Vec<_> = (0..ports).map(|index| json!({"name": format!("p{index}"), "port": 80 + index})).collect();
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "selector": {"app": "x"}, "ports": ports},
        });
        self.services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        Ok(())
    }

    async fn all_initialised(&self, nodes: usize) -> Result<bool, Failure> {
        let all = self.nodes.list(&ListParams::default()).await?.items;
        let done = all.iter().filter(|node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some()));
        Ok(done.count() == nodes)
    }

    async fn all_addressed(&self, services: usize) -> Result<bool, Failure> {
        let all = self.services.list(&ListParams::default()).await?.items;
        Ok(all.iter().filter(|service| has_address(service)).count() == services)
    }

    async fn until(&self, what: &str, mut check: impl AsyncFnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
        let begin = Instant::now();
        while !check().await? {
            if begin.elapsed() > TIMEOUT {
                return Err(format!("{what}: timed out after {TIMEOUT:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until there are no more cloud calls.
    async fn settle(&self) {
        let (mut last, mut since) = (self.cloud.calls(), Instant::now());
        while since.elapsed() < QUIET {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let calls = self.cloud.calls();
            if calls != last {
                (last, since) = (calls, Instant::now());
            }
        }
    }
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}

fn provider(cloud: &Simulator) -> Arc<dyn CloudProvider> {
    let fixture = cloud.fixture();
    let (id, secret) = (fixture.application_credential, fixture.application_secret.into());
    let placement =
        Class { subnet_id: fixture.subnet, floating_network_id: fixture.external_network, ..Class::default() };
    let config = Config {
        global: Global {
            auth_url: "http://openstack.test/identity".to_owned(),
            credential: Credential::ApplicationCredentialId { id, secret },
            interface: "public".to_owned(),
            ..Global::default()
        },
        load_balancer: LoadBalancer { placement, create_monitor: true, ..LoadBalancer::default() },
        ..Config::default()
    };
    let (cloud, timeout) = (cloud.clone(), config.request_timeout);
    let answer = move |request| {
        let cloud = cloud.clone();
        async move { cloud.answer(request).await.map_err(|lost| RequestError::Broken(lost.to_string())) }
    };
    Arc::new(OpenStack::over(config, Client::in_process(Arc::new(answer), timeout)))
}
