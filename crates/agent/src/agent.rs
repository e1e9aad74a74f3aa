//! An agent: opens everything, and runs it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_http::{Client, Options, Proxies, Roots, Tls};
use bowline_runtime::{Reloader, Shutdown, Supervisor, TaskFailure};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::config::{Config, Listen};
use crate::data_plane::Sockets;
use crate::group::Group;
use crate::group::peer_client::PeerClient;
use crate::interface::open_interface;
use crate::kernel_routes::{DesiredRoutes, KernelRoutes, KernelRoutesError};
use crate::metrics::Metrics;
use crate::server::{Api, Credentials, Listener, TlsFileError, serve, serve_plain};
use crate::state::{StateError, StateFile};
use crate::traffic::{Interface, Traffic};

/// Interval in which certificates are read.
const RELOAD: Duration = Duration::from_secs(2);

/// Time for the end of all tasks: handing over, and draining connections.
const GRACE: Duration = Duration::from_secs(10);

/// Name of the certificates in logs and metrics.
const CERTIFICATES: &str = "certificates of the agent";

/// An agent that has read its state and listens.
pub struct Agent {
    group: Arc<Group>,
    client: PeerClient,
    traffic: Arc<Traffic>,
    listener: Listener,
    metrics: Option<TcpListener>,
    credentials: Option<Arc<Credentials>>,
    reloader: Reloader,
}

/// Reason why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state file cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    /// An address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, std::io::Error),
    /// The kernel routes cannot be managed.
    #[error(transparent)]
    Routes(#[from] KernelRoutesError),
    /// The interface cannot be used.
    #[error("{0}")]
    Interface(String),
    /// A part cannot be created.
    #[error("{0}")]
    Other(String),
}

impl Agent {
    /// Reads state and certificates, and binds the listeners. Must be called in a Tokio runtime.
    pub async fn open(config: Config) -> Result<Agent, OpenError> {
        let interface = open_interface(&config).await?;
        Agent::open_with(config, interface).await
    }

    pub(crate) async fn open_with(config: Config, interface: Option<Box<dyn Interface>>) -> Result<Agent, OpenError> {
        let credentials = config.tls.as_ref().map(|files| Credentials::open(files, &config.name)).transpose()?;
        let credentials = credentials.map(Arc::new);
        let client = match &credentials {
            Some(credentials) => credentials.client(),
            None => without_peers()?,
        };
        let (file, state) = StateFile::open(&config.state_file)?;
        let metrics = Metrics::new().map_err(|error| OpenError::Other(error.to_string()))?;
        let reloader = Reloader::register(metrics.registry()).map_err(|error| OpenError::Other(error.to_string()))?;
        let listener = Listener::bind(&config.listen, credentials.clone()).await;
        let listener = listener.map_err(|error| OpenError::Listen(text(&config.listen), error))?;
        let metrics_listener = match config.metrics_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let group = Arc::new(Group::new(config, file, state, metrics));
        let traffic = Arc::new(Traffic::new(&group, Sockets::new(Handle::current()), interface));
        Ok(Agent {
            group,
            client,
            traffic,
            listener,
            metrics: metrics_listener,
            credentials,
            reloader: reloader.with_period(RELOAD),
        })
    }

    /// Runs until shutdown is requested, then hands over to a standby and closes the connections.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), TaskFailure> {
        let Agent { group, client, traffic, listener, metrics, credentials, reloader } = self;
        // The API and the polls go on while the agent hands over.
        let handed_over = Shutdown::new();
        let mut tasks = Supervisor::new(shutdown.clone());
        for peer in group.config.peers.clone() {
            let poll = group.clone().poll(client.clone(), peer, handed_over.clone());
            tasks.spawn("poll of a peer", ending(poll));
        }
        let api = Arc::new(Api { group: group.clone(), client: client.clone(), traffic: traffic.clone() });
        tasks.spawn("API", ending(serve(listener, api.clone(), handed_over.clone())));
        if let Some(listener) = metrics {
            tasks.spawn("metrics", ending(serve_plain(listener, api, handed_over.clone())));
        }
        if let Some(credentials) = credentials {
            let watch = reloader.watch(CERTIFICATES.to_owned(), credentials, shutdown.clone());
            tasks.spawn("certificates", ending(watch));
        }
        if group.config.kernel_routes {
            tasks.spawn("kernel routes", kernel_routes(group.clone(), shutdown.clone()));
        }
        tasks.spawn("traffic", ending(traffic.run(group.clone(), shutdown.clone())));
        let run = group.run(client, shutdown.clone());
        tasks.spawn(
            "group",
            ending(async move {
                run.await;
                handed_over.request();
            }),
        );
        tasks.run(GRACE).await
    }

    /// Address of the API; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }

    /// Address of metrics and health checks, if they are enabled.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

impl Config {
    /// Checks the files that the configuration names, without using them.
    pub fn check_files(&self) -> Result<(), OpenError> {
        self.tls.as_ref().map(|files| Credentials::open(files, &self.name)).transpose()?;
        Ok(())
    }
}

/// A task that cannot fail.
async fn ending(task: impl Future<Output = ()>) -> Result<(), std::convert::Infallible> {
    task.await;
    Ok(())
}

/// Keeps the routes of the kernel in sync. They stay at the end: the Nodes need them as long as the host runs.
async fn kernel_routes(group: Arc<Group>, shutdown: Shutdown) -> Result<(), KernelRoutesError> {
    let kernel = Arc::new(KernelRoutes::of_host(Handle::current())?);
    let (weak, mut changes) = (Arc::downgrade(&group), group.changes());
    // A new state file says nothing about the routes of this host: they stay until the agent knows the state of its group.
    while !group.has_state() {
        if shutdown.or(changes.changed()).await.is_none() {
            return Ok(());
        }
    }
    let desired = move || {
        let group = weak.upgrade()?;
        Some(DesiredRoutes::of_host(group.read(|world| world.routes.of_host())))
    };
    kernel.spawn_sync(desired, changes);
    while shutdown.or(tokio::time::sleep(RELOAD)).await.is_some() {
        let problems = kernel.problems().iter().map(ToString::to_string).collect();
        group.problems.set("kernel routes", problems);
    }
    kernel.close().await;
    Ok(())
}

/// Client of an agent without peers, which makes no requests.
fn without_peers() -> Result<PeerClient, OpenError> {
    let tls = Tls { roots: Roots::None, ..Tls::default() };
    let client = Client::new(Options { tls, proxies: Proxies::default(), timeout: RELOAD });
    client.map(PeerClient::new).map_err(|error| OpenError::Other(error.to_string()))
}

async fn bind(address: SocketAddr) -> Result<TcpListener, OpenError> {
    TcpListener::bind(address).await.map_err(|error| OpenError::Listen(address.to_string(), error))
}

fn text(listen: &Listen) -> String {
    match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => format!("unix:{}", path.display()),
    }
}
