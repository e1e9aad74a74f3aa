//! The manager on a simulated cloud, all in one process:
//!
//! ```text
//!  this process: API server ◄── manager ──► simulated cloud
//! ```
//!
//! Times are for comparison only, because machines are shared; the benchmarks fail on the number of calls.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options as ServerOptions};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds};
use bowline_controllers::manager::{self, Dependencies, ManagerError, ManagerOptions};
use bowline_runtime::{Clock, Shutdown};
use bowline_simulator::Simulator;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Latency of a call.
pub(crate) const LATENCY: Duration = Duration::from_millis(20);

/// Period of `--node-status-update-frequency` and `--load-balancer-refresh-period` in the steady state. The defaults are minutes.
#[allow(dead_code, reason = "the benchmark of OpenStack has no restart")]
pub(crate) const REFRESH: Duration = Duration::from_secs(10);

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The manager has settled after this time without cloud calls.
const QUIET: Duration = Duration::from_secs(5);

/// Numbers of Nodes and load balancers from the command line, by default 1,000 and 100.
pub(crate) fn sizes() -> (usize, usize) {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    (arguments.next().unwrap_or(1_000), arguments.next().unwrap_or(100))
}

/// A simulated cloud.
pub(crate) trait Cloud: Deref<Target = Simulator<<Self as Cloud>::State>> {
    type State: bowline_simulator::Service;

    /// Returns a provider that calls the cloud in this process.
    fn provider(&self) -> Arc<dyn CloudProvider>;

    /// Creates the machine with this number.
    fn add_machine(&self, number: usize, name: &str) -> Machine;
}

/// A machine, as its Node shows it.
pub(crate) struct Machine {
    pub(crate) provider_id: String,
    /// Addresses in the status of the Node.
    pub(crate) addresses: Value,
}

pub(crate) struct World<C> {
    server: ApiServer,
    nodes: Api<Node>,
    services: Api<Service>,
    pub(crate) cloud: C,
}

pub(crate) struct Manager {
    shutdown: Shutdown,
    running: JoinHandle<Result<(), ManagerError>>,
}

impl Manager {
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        self.shutdown.request();
        Ok(self.running.await??)
    }
}

impl<C: Cloud> World<C> {
    /// Starts with initialised Nodes and their machines.
    pub(crate) async fn new(cloud: C, nodes: usize) -> Result<World<C>, Failure> {
        let server = ApiServer::start(ServerOptions::default()).await?;
        let client = server.in_process_client();
        let services = Api::namespaced(client.clone(), "default");
        let world = World { nodes: Api::all(client), services, server, cloud };
        for number in 0..nodes {
            world.register(number, false).await?;
        }
        Ok(world)
    }

    pub(crate) fn start(&self) -> Manager {
        self.start_with(|_| ())
    }

    /// Starts the manager with changed options.
    pub(crate) fn start_with(&self, change: impl FnOnce(&mut ManagerOptions)) -> Manager {
        let metrics = prometheus::Registry::new();
        let clouds = Clouds::with_layers([self.cloud.provider()], &LayerOptions::default(), &metrics);
        let mut options = ManagerOptions::default();
        change(&mut options);
        let dependencies = Dependencies::new(self.server.in_process_client(), clouds, Clock::system(), metrics);
        let shutdown = Shutdown::new();
        let running = tokio::spawn(manager::run(dependencies, options, shutdown.clone()));
        Manager { shutdown, running }
    }

    /// Creates a machine and its Node, uninitialised or initialised.
    pub(crate) async fn register(&self, number: usize, tainted: bool) -> Result<(), Failure> {
        let name = format!("node-{number:05}");
        let Machine { provider_id, addresses } = self.cloud.add_machine(number, &name);
        let taints = json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]);
        let spec = if tainted { json!({"taints": taints}) } else { json!({"providerID": provider_id}) };
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
        self.nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let ready = json!({"type": "Ready", "status": "True", "reason": "Bench", "message": ""});
        let status = json!({"status": {"addresses": addresses, "conditions": [ready]}});
        self.nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// Creates a Service with this number of ports and these annotations.
    pub(crate) async fn add_service(
        &self,
        name: &str,
        ports: u16,
        annotations: &[(&str, &str)],
    ) -> Result<(), Failure> {
        let annotations: Value = annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let ports: Vec<_> = (0..ports).map(|index| json!({"name": format!("p{index}"), "port": 80 + index})).collect();
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "selector": {"app": "x"}, "ports": ports},
        });
        self.services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        Ok(())
    }

    /// Starts with Nodes that all register at once. Returns the cloud with the number of calls until all are initialised.
    pub(crate) async fn initialised(cloud: C, nodes: usize) -> Result<(World<C>, u64), Failure> {
        let world = World::new(cloud, 0).await?;
        for number in 0..nodes {
            world.register(number, true).await?;
        }
        let begin = Instant::now();
        let manager = world.start();
        world.all_initialised(nodes).await?;
        world.report(&format!("{nodes} Nodes are initialised"), begin.elapsed());
        let calls = world.cloud.calls();
        manager.stop().await?;
        Ok((world, calls))
    }

    /// Restarts the manager with initialised Nodes, and refreshes them; whether the calls of each are as expected.
    #[allow(dead_code, reason = "the benchmark of OpenStack has no restart")]
    pub(crate) async fn restarts_and_refreshes(
        &self,
        nodes: usize,
        is_restarted: impl Fn(&World<C>) -> bool,
        is_refreshed: impl Fn(&World<C>) -> bool,
    ) -> Result<bool, Failure> {
        self.cloud.forget_calls();
        let begin = Instant::now();
        let manager = self.start_with(|options| {
            options.node.iter_mut().for_each(|node| node.status_period = REFRESH);
        });
        self.settle().await;
        self.report(&format!("the manager is restarted with {nodes} Nodes, and settles"), begin.elapsed());
        let restarted = is_restarted(self);
        self.cloud.forget_calls();
        tokio::time::sleep(REFRESH).await;
        self.report(&format!("{nodes} Nodes are refreshed"), REFRESH);
        let refreshed = is_refreshed(self);
        manager.stop().await?;
        Ok(restarted && refreshed)
    }

    /// Waits until this number of Nodes is initialised.
    pub(crate) async fn all_initialised(&self, nodes: usize) -> Result<(), Failure> {
        let is_initialised = |node: &&Node| node.spec.as_ref().is_some_and(|spec| spec.provider_id.is_some());
        until("all Nodes are initialised", async || {
            let all = self.nodes.list(&ListParams::default()).await?.items;
            Ok(all.iter().filter(is_initialised).count() == nodes)
        })
        .await
    }

    /// Waits until this number of Services has an address.
    pub(crate) async fn all_addressed(&self, services: usize) -> Result<(), Failure> {
        until("all Services have addresses", async || {
            let all = self.services.list(&ListParams::default()).await?.items;
            Ok(all.iter().filter(|service| has_address(service)).count() == services)
        })
        .await
    }

    /// Prints the time and the calls of a change.
    pub(crate) fn report(&self, what: &str, took: Duration) {
        let (took, writes) = (took.as_secs_f64(), self.cloud.writes().len());
        println!("{what}: {took:.2} s, {writes} writes of {} calls {:?}", self.cloud.calls(), self.cloud.counts());
    }

    /// Waits until there are no more cloud calls.
    pub(crate) async fn settle(&self) {
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

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, mut check: impl AsyncFnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begin = Instant::now();
    while !check().await? {
        if begin.elapsed() > TIMEOUT {
            return Err(format!("{what}: timed out after {TIMEOUT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}
