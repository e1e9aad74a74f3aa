//! API server, local cloud, simulated kubelets and the controllers in one process, with a tour.
//!
//! ```text
//!  ┌─ simulated ──────────────┐                     ┌─ real ─────────────────────────┐
//!  │ kubelets   node monitor  │ ──► API server ◄──► │ controllers for Nodes, their   │
//!  │ scheduler  ports, Pods   │     (embedded)      │ pod ranges, routes, Services   │
//!  └─────▲────────────────────┘                     └───────────────┬────────────────┘
//!        └──── machines, routes ──── local cloud ◄──────────────────┘
//! ```
//!
//! The controllers are the ones that run in a cluster, and they speak to the API server as they do there. What a cluster
//! has around them is played: no container is started. But traffic is real: a node port of a Service answers, at the
//! loopback address that its machine has, in the name of the Pod that kube-proxy would have chosen; and a Pod answers at its
//! own address, from its Node's pod range, as long as the cloud leads that range to the Node.

mod claim;
mod kubelet;
mod machines;
mod manifest;
mod node_monitor;
mod objects;
mod pod_network;
mod proxy;
mod scheduler;
mod stage;
mod subnet;
mod time;
mod tour;
mod traffic;
mod view;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_apiserver::{ApiServer, StartError};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds};
use bowline_controllers::manager::{self, ManagerError, ManagerOptions, Surroundings};
use bowline_controllers::{node, node_ipam, node_lifecycle, provider_loops, route, service};
use bowline_core::ClusterName;
use bowline_core::ipam::ClusterCidr;
use bowline_core::lifecycle::Policy;
use bowline_local::{BalancerOptions, CloudOptions, Config, LocalCloud, LocalProvider};
use bowline_runtime::{Clock, Shutdown, Supervisor, TaskFailure};
use ipnet::IpNet;
use tokio::task::JoinHandle;

pub use claim::{Claim, Snapshot};
pub use machines::machine;
pub use manifest::{Manifest, Ports};
pub use pod_network::{PodNetwork, PodNetworkProblem, check_cluster_cidrs};
pub use subnet::Subnet;
pub use time::Pace;
pub use tour::{Act, CloudAccess, Stage, Step, StepFailure, Tour};
pub use traffic::{Finding, Findings, Probe};

use view::View;

/// How long the parts have to end once they are asked to; the whole is to end within a second.
const PATIENCE: Duration = Duration::from_millis(400);

/// What the cluster is called: the cloud marks with it what the controllers make there.
pub(crate) const CLUSTER: &str = "playground";

/// How often the routes are compared with the cloud; in a cluster, every 10 minutes.
const ROUTE_REFRESH: Duration = Duration::from_secs(3);

/// How the playground is set up.
#[derive(Debug, Clone)]
pub struct PlaygroundOptions {
    /// How many machines and Nodes there are at the start.
    pub nodes: usize,
    /// Where the API server listens.
    pub listen: SocketAddr,
    /// Let it listen where other machines reach it, although every client with credentials may do everything.
    pub allow_remote_clients: bool,
    /// Where the local cloud's HTTP API listens.
    pub cloud_listen: SocketAddr,
    /// Where Pods live: one range, or one of each family. Empty for a free part of the loopback network, in which they can be
    /// reached.
    pub cluster_cidrs: Vec<IpNet>,
    /// Run the controllers from the start; else [`Playground::start_controllers`] does it later.
    pub controllers: bool,
}

impl Default for PlaygroundOptions {
    /// Three Nodes, free ports of this machine, the controllers running.
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

/// Why a playground does not start, or ends although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum PlaygroundError {
    /// Pods cannot live where they should.
    #[error("--cluster-cidr: {0}")]
    PodNetwork(#[from] PodNetworkProblem),
    /// The API server does not start.
    #[error("cannot start the API server: {0}")]
    Server(#[from] StartError),
    /// The cloud does not start.
    #[error("cannot start the local cloud: {0}")]
    Cloud(String),
    /// The cloud cannot listen there.
    #[error("cannot start the local cloud at {address}: {source}")]
    CloudListen {
        /// Where it should have listened.
        address: SocketAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A simulated part ended.
    #[error("the simulation ended: {0}")]
    Simulation(#[from] TaskFailure),
    /// The controllers ended.
    #[error("the controllers ended: {0}")]
    Controllers(#[from] ManagerError),
    /// A part panicked, or ended without a reason.
    #[error("{0} ended: {1}")]
    Task(&'static str, String),
}

/// A playground that runs.
pub struct Playground {
    /// The API server.
    pub server: ApiServer,
    /// The cloud.
    pub cloud: LocalCloud,
    options: PlaygroundOptions,
    held: subnet::Held,
    /// Where Pods live.
    ranges: Vec<ClusterCidr>,
    /// The addresses that Services have or had.
    addresses: BTreeMap<String, IpAddr>,
    cloud_server: bowline_local::Server,
    shutdown: Shutdown,
    simulation: JoinHandle<Result<(), TaskFailure>>,
    controllers: Option<JoinHandle<Result<(), ManagerError>>>,
}

impl Playground {
    /// Starts all parts. Nodes register within moments, but need not be there yet.
    pub async fn start(options: PlaygroundOptions) -> Result<Playground, PlaygroundError> {
        let held = subnet::take();
        let ranges = ranges(&options, held.subnet)?;
        let server = bowline_apiserver::Options {
            listen: options.listen,
            allow_remote_clients: options.allow_remote_clients,
            // Where the Pods are.
            loopback_endpoints: true,
            ..Default::default()
        };
        let server = ApiServer::start(server).await?;
        let cloud = open_cloud(options.nodes, held.subnet)?;
        let address = options.cloud_listen;
        let cloud_server = bowline_local::serve(cloud.clone(), address)
            .await
            .map_err(|source| PlaygroundError::CloudListen { address, source })?;
        let shutdown = Shutdown::new();
        let simulation = simulate(&server, &cloud, Pace::for_nodes(options.nodes), &shutdown);
        let controllers = options.controllers;
        let mut playground = Playground {
            server,
            cloud,
            options,
            held,
            ranges,
            addresses: BTreeMap::new(),
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

    /// Starts the controllers, unless they run already.
    pub async fn start_controllers(&mut self) -> Result<(), PlaygroundError> {
        if self.controllers.is_some() {
            return Ok(());
        }
        // Over TLS and as somebody of its own, as in a cluster.
        let client = self.server.client_for("system:cloud-controller-manager", &[]).await?;
        let metrics = prometheus::Registry::new();
        let clouds = clouds(&self.cloud, &metrics);
        let options = manager_options(self.ranges.clone());
        let surroundings = Surroundings::new(client, clouds, Clock::system(), metrics);
        let running = manager::run(surroundings, options, self.shutdown.clone());
        self.controllers = Some(tokio::spawn(running));
        Ok(())
    }

    /// `http://127.0.0.1:PORT`, where the cloud's API is.
    pub fn cloud_url(&self) -> String {
        format!("http://{}", self.cloud_server.address())
    }

    /// Where its machines and balancers are.
    pub fn subnet(&self) -> Subnet {
        self.held.subnet
    }

    /// What the owner of the cloud shows for every change, over its API.
    pub fn owner_token(&self) -> &str {
        self.cloud_server.owner_token()
    }

    /// The tour of this playground, with the owner's token in this file: a line that curl adds to the head of a request.
    pub fn tour(&self, token: &Path) -> Tour {
        let (nodes, subnet) = (self.options.nodes, self.subnet());
        let [pool, _] = subnet.balancers();
        let ports = pool.hosts().next().map_or(Ports::USUAL, |first| Ports::free(first.into()));
        let cloud = CloudAccess { url: self.cloud_url(), token: token.display().to_string() };
        Tour::new(nodes, Pace::for_nodes(nodes), &cloud, subnet, self.pod_network(), ports)
    }

    /// What can be done with the addresses of its Pods.
    fn pod_network(&self) -> PodNetwork {
        match self.subnet().is_reachable() && self.options.cluster_cidrs.is_empty() {
            true => PodNetwork::Reachable,
            false => PodNetwork::Shown,
        }
    }

    /// Waits until a part ends that should not, and says why. As long as all is well, this waits for ever.
    pub async fn failure(&mut self) -> PlaygroundError {
        let controllers = async {
            match &mut self.controllers {
                Some(controllers) => controllers.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut self.simulation => why("the simulation", ended),
            ended = controllers => why("the controllers", ended),
        }
    }

    /// Ends all parts: first those that write, then those that are written to. Takes less than a second.
    pub async fn shutdown(mut self) {
        self.shutdown.request();
        let writers = async {
            let _ = (&mut self.simulation).await;
            if let Some(controllers) = &mut self.controllers {
                let _ = controllers.await;
            }
        };
        // A part that does not end in time is cut off with the process; it has nothing that outlives it.
        let _ = tokio::time::timeout(PATIENCE, writers).await;
        let servers = async { tokio::join!(self.cloud_server.shutdown(), self.server.shutdown()) };
        let _ = tokio::time::timeout(PATIENCE, servers).await;
    }
}

fn why<E: Into<PlaygroundError>>(
    part: &'static str,
    ended: Result<Result<(), E>, tokio::task::JoinError>,
) -> PlaygroundError {
    match ended {
        Ok(Ok(())) => PlaygroundError::Task(part, "nobody asked for it".to_owned()),
        Ok(Err(error)) => error.into(),
        Err(error) => PlaygroundError::Task(part, error.to_string()),
    }
}

/// Where Pods live: as it was asked for, or in the part of the subnet that is theirs.
fn ranges(options: &PlaygroundOptions, subnet: Subnet) -> Result<Vec<ClusterCidr>, PodNetworkProblem> {
    let own = [IpNet::from(subnet.pods())];
    let wanted = match &options.cluster_cidrs[..] {
        [] => &own[..],
        given => {
            check_cluster_cidrs(given)?;
            given
        }
    };
    pod_network::cut(wanted, options.nodes, services())
}

/// Where the API server takes the addresses of Services from.
fn services() -> IpNet {
    bowline_apiserver::Options::default().service_cidr
}

fn open_cloud(machines: usize, subnet: Subnet) -> Result<LocalCloud, PlaygroundError> {
    let refused = |error: &dyn std::fmt::Display| PlaygroundError::Cloud(error.to_string());
    let [pool, internal] = subnet.balancers().map(|pool| vec![pool.into()]);
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

/// Starts what a cluster has around the controllers. It calls the API server directly, to leave the sockets to others.
fn simulate(
    server: &ApiServer,
    cloud: &LocalCloud,
    pace: Pace,
    shutdown: &Shutdown,
) -> JoinHandle<Result<(), TaskFailure>> {
    let client = server.in_process_client();
    let (view, feed) = View::new(&client);
    let machines = |cloud: LocalCloud| move || cloud.fleet();
    let kubelets = kubelet::run(client.clone(), machines(cloud.clone()), view.clone(), pace);
    let routes = |cloud: LocalCloud| move || cloud.routes(CLUSTER);
    let proxy = proxy::run(machines(cloud.clone()), routes(cloud.clone()), view.clone());
    let mut parts = Supervisor::new(shutdown.clone());
    parts.spawn("view", until(shutdown, feed));
    parts.spawn("kubelets", until(shutdown, kubelets));
    parts.spawn("traffic", until(shutdown, proxy));
    parts.spawn("node monitor", until(shutdown, node_monitor::run(client.clone(), view.clone(), pace)));
    parts.spawn("scheduler", until(shutdown, scheduler::run(client, view)));
    tokio::spawn(parts.run(PATIENCE))
}

/// A part that works until shutdown is requested, and then stops wherever it is: it only plays.
fn until(
    shutdown: &Shutdown,
    part: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = Result<(), std::convert::Infallible>> + Send + 'static {
    let shutdown = shutdown.clone();
    async move {
        shutdown.or(part).await;
        Ok(())
    }
}

fn clouds(cloud: &LocalCloud, metrics: &prometheus::Registry) -> Clouds {
    let provider = LocalProvider::in_process(cloud.clone(), &Config::default());
    let provider: Arc<dyn CloudProvider> = Arc::new(provider);
    Clouds::around([provider], &LayerOptions::default(), metrics)
}

/// The rules are those of a cluster; only the waiting is shorter.
fn manager_options(ranges: Vec<ClusterCidr>) -> ManagerOptions {
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
            ..route::Options::new(ClusterName::from(CLUSTER), ranges.iter().map(ClusterCidr::cluster).collect())
        }),
        node_ipam: Some(node_ipam::Options {
            ranges,
            services: vec![services()],
            allocator: node_ipam::AllocatorType::default(),
        }),
        provider_loops: Some(provider_loops::Options { cluster: ClusterName::from(CLUSTER) }),
        dry_run: false,
        start_interval: Duration::ZERO,
        patience: PATIENCE,
    }
}
