//! API server, local cloud, simulated kubelets and the controllers in one process, with a guided tour.
//!
//! ```text
//!  ┌─ simulated ──────────────┐                     ┌─ real ─────────────────────────┐
//!  │ kubelets   node monitor  │ ──► API server ◄──► │ controllers for Nodes, their   │
//!  │ scheduler  kube-proxy    │     (embedded)      │ pod CIDRs, routes, Services    │
//!  └─────▲────────────────────┘                     └───────────────┬────────────────┘
//!        └──── machines, routes ──── local cloud ◄──────────────────┘
//! ```
//!
//! The controllers are the real ones, and use the API server as in a cluster. The other components of a cluster are simulated, and
//! no container is started. Traffic is real: a node port of a Service answers at the loopback address of its machine for the Pod
//! that kube-proxy would have picked, and a Pod answers at its own address, from the pod CIDR of its Node, as long as the cloud has
//! a route for that pod CIDR.

mod assertion;
mod cache;
mod console;
mod environment;
mod kubelet;
mod machines;
mod manifest;
mod node_monitor;
mod objects;
mod pod_network;
mod proxy;
mod scheduler;
mod subnet;
mod timing;
mod tour;
mod traffic;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bowline_apiserver::{ApiServer, StartError};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds};
use bowline_console::{Publisher, Sources};
use bowline_controllers::manager::{self, Dependencies, ManagerError, ManagerOptions};
use bowline_controllers::{node, node_ipam, node_lifecycle, provider_loops, route, service};
use bowline_core::ClusterName;
use bowline_core::ipam::ClusterCidr;
use bowline_core::lifecycle::Policy;
use bowline_local::{BalancerOptions, CloudOptions, Config, LocalCloud, LocalProvider};
use bowline_runtime::{Clock, Shutdown, Supervisor, TaskFailure};
use ipnet::IpNet;
use tokio::task::JoinHandle;

pub use assertion::{Assertion, Snapshot};
pub use machines::machine;
pub use manifest::{EXAMPLES, Manifest, Ports};
pub use pod_network::{PodNetwork, PodNetworkError, check_cluster_cidrs};
pub use subnet::Subnet;
pub use timing::Timing;
pub use tour::{Environment, Step, StepFailure, StepRun, StepState, Tour, TourAction};
pub use traffic::{Probe, ProbeResult, ProbeResults};

use cache::Cache;
use console::{BeforeControllers, TourProgress};

/// Shutdown timeout of each group of components; the playground has to end within a second.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(400);

/// Cluster name, recorded on the cloud resources of this cluster.
pub(crate) const CLUSTER: &str = "playground";

/// Interval at which routes are refreshed; 10 minutes in a cluster.
const ROUTE_REFRESH: Duration = Duration::from_secs(3);

/// Options of a playground.
#[derive(Debug, Clone)]
pub struct PlaygroundOptions {
    /// Number of machines and Nodes at the start.
    pub nodes: usize,
    /// Listen address of the API server.
    pub listen: SocketAddr,
    /// Allow a listen address that other machines can reach, although every client with credentials has all permissions.
    pub allow_remote_clients: bool,
    /// Listen address of the local cloud's HTTP API.
    pub cloud_listen: SocketAddr,
    /// Cluster CIDRs for Pods: one, or one of each family. Empty for a free part of the loopback network, where Pods are
    /// reachable.
    pub cluster_cidrs: Vec<IpNet>,
    /// Start the controllers at once; otherwise [`Playground::start_controllers`] starts them later.
    pub controllers: bool,
}

impl Default for PlaygroundOptions {
    /// Three Nodes, free loopback ports, and running controllers.
    fn default() -> PlaygroundOptions {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        PlaygroundOptions {
            nodes: 3,
            listen: anywhere,
            allow_remote_clients: false,
            cloud_listen: anywhere,
            cluster_cidrs: Vec::new(),
            controllers: true,
        }
    }
}

/// A failure to start a playground, or an unexpected end.
#[derive(Debug, thiserror::Error)]
pub enum PlaygroundError {
    /// Invalid cluster CIDRs.
    #[error("--cluster-cidr: {0}")]
    PodNetwork(#[from] PodNetworkError),
    /// The API server cannot be started.
    #[error("cannot start the API server: {0}")]
    Server(#[from] StartError),
    /// The cloud cannot be started.
    #[error("cannot start the local cloud: {0}")]
    Cloud(String),
    /// The cloud cannot bind its listen address.
    #[error("cannot start the local cloud at {address}: {source}")]
    CloudListen {
        /// Listen address.
        address: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A simulated component ended.
    #[error("the simulation ended: {0}")]
    Simulation(#[from] TaskFailure),
    /// The controllers ended.
    #[error("the controllers ended: {0}")]
    Controllers(#[from] ManagerError),
    /// A component panicked, or ended without an error.
    #[error("{0} ended: {1}")]
    Task(&'static str, String),
}

/// A running playground.
pub struct Playground {
    /// The API server.
    pub server: ApiServer,
    /// The cloud.
    pub cloud: LocalCloud,
    options: PlaygroundOptions,
    reserved: subnet::ReservedSubnet,
    /// Cluster CIDRs of the Pods.
    cluster_cidrs: Vec<ClusterCidr>,
    /// Current and former addresses of Services.
    addresses: BTreeMap<String, IpAddr>,
    /// Ports of the Service `hello`.
    ports: Ports,
    tour: Tour,
    progress: TourProgress,
    /// Sources of the console's document, to which the controllers add theirs.
    sources: Sources,
    publisher: Publisher,
    before_controllers: BeforeControllers,
    cloud_server: bowline_local::Server,
    shutdown: Shutdown,
    simulation: JoinHandle<Result<(), TaskFailure>>,
    controllers: Option<JoinHandle<Result<(), ManagerError>>>,
}

impl Playground {
    /// Starts all components. The Nodes register shortly after this returns.
    pub async fn start(options: PlaygroundOptions) -> Result<Playground, PlaygroundError> {
        let reserved = subnet::reserve();
        let cluster_cidrs = cluster_cidrs(&options, reserved.subnet)?;
        let server = bowline_apiserver::Options {
            listen: options.listen,
            allow_remote_clients: options.allow_remote_clients,
            // Pods have loopback addresses.
            loopback_endpoints: true,
            ..Default::default()
        };
        let server = ApiServer::start(server).await?;
        let cloud = open_cloud(options.nodes, reserved.subnet)?;
        let address = options.cloud_listen;
        let cloud_server = bowline_local::serve(cloud.clone(), address)
            .await
            .map_err(|source| PlaygroundError::CloudListen { address, source })?;
        let shutdown = Shutdown::new();
        let (ports, sources) = (free_ports(reserved.subnet), Sources::new());
        let tour = new_tour(&options, reserved.subnet, ports);
        let progress = TourProgress::new(&tour);
        let publisher = Publisher::new(sources.clone(), Clock::system());
        let timing = Timing::for_nodes(options.nodes);
        let (simulation, cache) = start_simulation(&server, &cloud, timing, &publisher, &shutdown);
        let before_controllers = BeforeControllers::new(cache);
        console::register(&sources, &cloud, before_controllers.clone(), progress.clone());
        let controllers = options.controllers;
        let mut playground = Playground {
            server,
            cloud,
            options,
            reserved,
            cluster_cidrs,
            addresses: BTreeMap::new(),
            ports,
            tour,
            progress,
            sources,
            publisher,
            before_controllers,
            cloud_server,
            shutdown,
            simulation,
            controllers: None,
        };
        if controllers {
            playground.start_controllers().await?;
        }
        Ok(playground)
    }

    /// Starts the controllers, unless they are running.
    pub async fn start_controllers(&mut self) -> Result<(), PlaygroundError> {
        if self.controllers.is_some() {
            return Ok(());
        }
        // Over TLS and with its own user, as in a cluster.
        let client = self.server.client_for("system:cloud-controller-manager", &[]).await?;
        let metrics = prometheus::Registry::new();
        let clouds = clouds(&self.cloud, &metrics);
        let options = manager_options(self.cluster_cidrs.clone());
        let dependencies = Dependencies {
            sources: self.sources.clone(),
            ..Dependencies::new(client, clouds, Clock::system(), metrics)
        };
        self.before_controllers.end();
        let running = manager::run(dependencies, options, self.shutdown.clone());
        self.controllers = Some(tokio::spawn(running));
        Ok(())
    }

    /// Returns the URL of the cloud's API, such as `http://127.0.0.1:PORT`.
    pub fn cloud_url(&self) -> String {
        format!("http://{}", self.cloud_server.address())
    }

    /// Returns the subnet of machines and load balancers.
    pub fn subnet(&self) -> Subnet {
        self.reserved.subnet
    }

    /// Returns the owner's token, which the cloud's API requires for every change.
    pub fn owner_token(&self) -> &str {
        self.cloud_server.owner_token()
    }

    /// Returns the tour of this playground.
    pub fn tour(&self) -> Tour {
        self.tour.clone()
    }

    /// Returns the timing of heartbeats and of their supervision.
    fn timing(&self) -> Timing {
        Timing::for_nodes(self.options.nodes)
    }

    /// Waits until a component ends unexpectedly, and returns the error.
    pub async fn failure(&mut self) -> PlaygroundError {
        let controllers = async {
            match &mut self.controllers {
                Some(controllers) => controllers.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut self.simulation => to_error("the simulation", ended),
            ended = controllers => to_error("the controllers", ended),
        }
    }

    /// Stops all components: first the API clients, then the servers. Takes less than a second.
    pub async fn shutdown(mut self) {
        self.shutdown.request();
        let writers = async {
            let _ = (&mut self.simulation).await;
            if let Some(controllers) = &mut self.controllers {
                let _ = controllers.await;
            }
        };
        // A component that exceeds the timeout ends with the process; it has no state outside of it.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, writers).await;
        let servers = async { tokio::join!(self.cloud_server.shutdown(), self.server.shutdown()) };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, servers).await;
    }
}

fn to_error<E: Into<PlaygroundError>>(
    component: &'static str,
    ended: Result<Result<(), E>, tokio::task::JoinError>,
) -> PlaygroundError {
    match ended {
        Ok(Ok(())) => PlaygroundError::Task(component, "unexpected end".to_owned()),
        Ok(Err(error)) => error.into(),
        Err(error) => PlaygroundError::Task(component, error.to_string()),
    }
}

/// Returns the requested cluster CIDRs, or the pod network of the subnet.
fn cluster_cidrs(options: &PlaygroundOptions, subnet: Subnet) -> Result<Vec<ClusterCidr>, PodNetworkError> {
    let own = [IpNet::from(subnet.pods())];
    let requested = match &options.cluster_cidrs[..] {
        [] => &own[..],
        given => {
            check_cluster_cidrs(given)?;
            given
        }
    };
    pod_network::split(requested, options.nodes, service_cidr())
}

/// Returns the network of cluster IPs.
fn service_cidr() -> IpNet {
    bowline_apiserver::Options::default().service_cidr
}

/// Returns ports of the Service `hello` that no other program uses.
fn free_ports(subnet: Subnet) -> Ports {
    let [pool, _] = subnet.load_balancer_pools();
    pool.hosts().next().map_or(Ports::DEFAULT, |first| Ports::free(first.into()))
}

fn new_tour(options: &PlaygroundOptions, subnet: Subnet, ports: Ports) -> Tour {
    let pods = match subnet.is_reachable() && options.cluster_cidrs.is_empty() {
        true => PodNetwork::Reachable,
        false => PodNetwork::Unreachable,
    };
    Tour::new(options.nodes, Timing::for_nodes(options.nodes), subnet, pods, ports)
}

fn open_cloud(machines: usize, subnet: Subnet) -> Result<LocalCloud, PlaygroundError> {
    let refused = |error: &dyn std::fmt::Display| PlaygroundError::Cloud(error.to_string());
    let [pool, internal] = subnet.load_balancer_pools().map(|pool| vec![pool.into()]);
    let balancers = BalancerOptions {
        pool,
        internal_pool: internal,
        data_plane: subnet.is_reachable(),
        ..BalancerOptions::default()
    };
    let options = CloudOptions { latency: Duration::from_millis(5), balancers, ..CloudOptions::default() };
    let cloud = LocalCloud::open(options).map_err(|error| refused(&error))?;
    for number in 1..=machines {
        cloud.add(machine(number, subnet)).map_err(|error| refused(&error))?;
    }
    Ok(cloud)
}

/// Starts the simulated components, and returns their cache. They call the API server in-process, to leave the sockets to other clients.
fn start_simulation(
    server: &ApiServer,
    cloud: &LocalCloud,
    timing: Timing,
    publisher: &Publisher,
    shutdown: &Shutdown,
) -> (JoinHandle<Result<(), TaskFailure>>, Cache) {
    let client = server.in_process_client();
    let (cache, feed) = Cache::new(&client);
    let machines = |cloud: LocalCloud| move || cloud.fleet();
    let kubelets = kubelet::run(client.clone(), machines(cloud.clone()), cache.clone(), timing);
    let routes = |cloud: LocalCloud| move || cloud.routes(CLUSTER);
    let proxy = proxy::run(machines(cloud.clone()), routes(cloud.clone()), cache.clone());
    let publisher = publisher.clone();
    let release = async move { publisher.release_when_idle().await };
    let mut components = Supervisor::new(shutdown.clone());
    components.spawn("cache", until(shutdown, feed));
    components.spawn("kubelets", until(shutdown, kubelets));
    components.spawn("traffic", until(shutdown, proxy));
    components.spawn("node monitor", until(shutdown, node_monitor::run(client.clone(), cache.clone(), timing)));
    components.spawn("scheduler", until(shutdown, scheduler::run(client, cache.clone())));
    components.spawn("console", until(shutdown, release));
    (tokio::spawn(components.run(SHUTDOWN_TIMEOUT)), cache)
}

/// Runs a simulated component until shutdown is requested, and then drops it at any await point.
fn until(
    shutdown: &Shutdown,
    component: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = Result<(), std::convert::Infallible>> + Send + 'static {
    let shutdown = shutdown.clone();
    async move {
        shutdown.or(component).await;
        Ok(())
    }
}

fn clouds(cloud: &LocalCloud, metrics: &prometheus::Registry) -> Clouds {
    let provider = LocalProvider::in_process(cloud.clone(), &Config::default());
    let provider: Arc<dyn CloudProvider> = Arc::new(provider);
    Clouds::with_layers([provider], &LayerOptions::default(), metrics)
}

/// Returns the options of the controllers: the rules are those of a cluster, only the timeouts are shorter.
fn manager_options(cluster_cidrs: Vec<ClusterCidr>) -> ManagerOptions {
    let policy = Policy {
        grace: Duration::from_secs(1),
        confirm_after: Duration::from_millis(500),
        brake_window: Duration::from_secs(60),
        ..Policy::default()
    };
    let monitor_period = Duration::from_millis(250);
    ManagerOptions {
        node: Some(node::Options { status_period: Duration::from_secs(10), ..Default::default() }),
        node_lifecycle: Some(node_lifecycle::Options { monitor_period, policy, ..Default::default() }),
        service: Some(service::Options {
            cluster: ClusterName::from(CLUSTER),
            drain: Duration::from_secs(2),
            gather: Duration::from_millis(300),
            ..Default::default()
        }),
        route: Some(route::Options {
            mode: route::Mode::Watch { refresh: ROUTE_REFRESH },
            ..route::Options::new(ClusterName::from(CLUSTER), cluster_cidrs.iter().map(ClusterCidr::cluster).collect())
        }),
        node_ipam: Some(node_ipam::Options {
            cluster_cidrs,
            service_cidrs: vec![service_cidr()],
            allocator: node_ipam::AllocatorType::default(),
        }),
        provider_loops: Some(provider_loops::Options { cluster: ClusterName::from(CLUSTER) }),
        dry_run: false,
        start_interval: Duration::ZERO,
        shutdown_timeout: SHUTDOWN_TIMEOUT,
    }
}
