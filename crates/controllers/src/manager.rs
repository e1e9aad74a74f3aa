//! The manager: one watch and one store for each kind of object, and one Event sink, shared by the enabled controllers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_console::Sources;
use bowline_kube::{Clients, Cluster, EventSink, Notes, ObjectRef, Store, WatchMetrics, watch_nodes, watch_services};
use bowline_runtime::{Clock, Kind, QueueMetrics, Shutdown, StatusBoard, Supervisor, TaskFailure};
use tokio_util::task::TaskTracker;

use crate::console::{self, Parts, Process};
use crate::node::NodeController;
use crate::node_ipam::NodeIpamController;
use crate::node_lifecycle::NodeLifecycleController;
use crate::provider_loops::ProviderLoopController;
use crate::route::RouteController;
use crate::service::{Routing, ServiceController};
use crate::{
    Context, Gate, RunningControllers, node, node_ipam, node_lifecycle, provider_loops, route, service, start,
};

/// Options of the manager and of each controller.
#[derive(Debug, Clone)]
pub struct ManagerOptions {
    /// Options of the cloud-node-controller; `None` disables it.
    pub node: Option<node::Options>,
    /// Options of the cloud-node-lifecycle-controller; `None` disables it.
    pub node_lifecycle: Option<node_lifecycle::Options>,
    /// Options of the service-lb-controller; `None` disables it.
    pub service: Option<service::Options>,
    /// Options of the node-ipam-controller; `None` disables it.
    pub node_ipam: Option<node_ipam::Options>,
    /// Options of the node-route-controller; `None` disables it.
    pub route: Option<route::Options>,
    /// Options of the provider-loop-controller; `None` disables it.
    pub provider_loops: Option<provider_loops::Options>,
    /// Log writes to the cluster instead of sending them. The clouds' layers have the same switch.
    pub dry_run: bool,
    /// Pause after the start of each controller, with up to 100 % jitter.
    pub start_interval: Duration,
    /// Timeout for writes in progress when shutdown is requested.
    pub shutdown_timeout: Duration,
}

impl Default for ManagerOptions {
    /// Enables the controllers that need no configuration: pod CIDR allocation and routes need a cluster CIDR, and provider loops
    /// need a provider that has some.
    fn default() -> ManagerOptions {
        ManagerOptions {
            node: Some(node::Options::default()),
            node_lifecycle: Some(node_lifecycle::Options::default()),
            service: Some(service::Options::default()),
            node_ipam: None,
            route: None,
            provider_loops: None,
            dry_run: false,
            start_interval: Duration::ZERO,
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

impl ManagerOptions {
    /// Whether an enabled controller watches Services.
    pub fn watches_services(&self) -> bool {
        self.service.is_some() || self.provider_loops.is_some()
    }

    /// Returns the assignment of Services to clouds.
    pub(crate) fn routing(&self, clouds: &Clouds) -> Result<Routing, service::RoutingError> {
        let service = self.service.clone().unwrap_or_default();
        Routing::new(clouds, &service.default_cloud, service.classes)
    }
}

/// External dependencies of the manager, created by the program.
#[derive(Clone)]
pub struct Dependencies {
    /// API server clients.
    pub clients: Clients,
    /// Configured clouds.
    pub clouds: Clouds,
    /// Clock.
    pub clock: Clock,
    /// Registry of all metrics.
    pub metrics: prometheus::Registry,
    /// Status board of the process.
    pub board: StatusBoard,
    /// Gate for controllers that start later than the rest.
    pub gate: Gate,
    /// Involved object of Events about the manager itself: its Lease.
    pub lease: ObjectRef,
    /// Sources of the console's document, to which the manager adds its own.
    pub sources: Sources,
}

impl Dependencies {
    /// Dependencies with one shared client, an own status board, an open gate and no sources.
    pub fn new(client: kube::Client, clouds: Clouds, clock: Clock, metrics: prometheus::Registry) -> Dependencies {
        let (clients, board, gate) = (Clients::shared(client), StatusBoard::new(), Gate::none());
        let lease = ObjectRef::lease("kube-system", start::COMPONENT);
        Dependencies { clients, clouds, clock, metrics, board, gate, lease, sources: Sources::new() }
    }
}

/// Reason why the manager ended before shutdown was requested.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A task ended or failed.
    #[error(transparent)]
    Task(#[from] TaskFailure),
    /// A metric is registered twice.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The default cloud for Services without a class does not exist or has no load balancers.
    #[error(transparent)]
    Routing(#[from] service::RoutingError),
}

/// Runs the controllers until shutdown is requested, and then finishes the writes in progress.
///
/// Order matters: the controllers register their event handlers before the watches start, so that they miss no event. No
/// controller syncs before the stores are filled.
pub async fn run(dependencies: Dependencies, options: ManagerOptions, shutdown: Shutdown) -> Result<(), ManagerError> {
    let Dependencies { clients, clouds, clock, metrics, board, gate, lease, sources } = dependencies;
    let client = clients.process();
    let (events, write_events) = EventSink::new(client.clone(), clock.clone(), &metrics);
    let cluster =
        Cluster::with_metrics(client.clone(), &metrics)?.with_shutdown(shutdown.clone()).dry_run(options.dry_run);
    let context = Context {
        process: cluster.clone(),
        notes: Notes::new(cluster.clone().with_client(clients.leader())),
        cluster,
        nodes: Store::new(),
        services: Store::new(),
        clouds,
        events: events.dry_run(options.dry_run),
        console: Parts::new(clock.clone()),
        clock,
        queues: QueueMetrics::register(&metrics)?,
        running: RunningControllers::register(&metrics)?,
        board,
        metrics,
    };
    register_components(&context, options.watches_services())?;
    register_sources(&sources, &context, &options);
    let (routing, mut watches_services) = (options.routing(&context.clouds)?, false);
    let context_of = |name| context.through(clients.controller(name));
    let mut controllers = ControllerTasks::new(gate, options.start_interval, shutdown.clone());
    if let Some(options) = options.node {
        let controller = NodeController::new(context_of(node::CLIENT), options)?;
        controllers.spawn(node::NAME, infallible(controller.run(shutdown.clone()))).await;
    }
    if let Some(options) = options.node_lifecycle {
        let controller = NodeLifecycleController::new(context_of(node_lifecycle::CLIENT), options)?;
        controllers.spawn(node_lifecycle::NAME, infallible(controller.run(shutdown.clone()))).await;
    }
    if let Some(options) = options.service
        && let Some(controller) = ServiceController::new(context_of(service::CLIENT), options)?
    {
        controllers.spawn(service::NAME, infallible(controller.run(shutdown.clone()))).await;
        watches_services = true;
    }
    if let Some(options) = options.node_ipam {
        let controller = NodeIpamController::new(context_of(node_ipam::CLIENT), options)?;
        controllers.spawn(node_ipam::NAME, controller.run(shutdown.clone())).await;
    }
    if let Some(options) = options.route
        && let Some(controller) = RouteController::new(context_of(route::CLIENT), options)?
    {
        controllers.spawn(route::NAME, infallible(controller.run(shutdown.clone()))).await;
    }
    if let Some(options) = options.provider_loops {
        let context = context_of(provider_loops::CLIENT);
        if let Some(controller) = ProviderLoopController::new(context, options, routing, lease.clone())? {
            controllers.spawn(provider_loops::NAME, infallible(controller.run(shutdown.clone()))).await;
            watches_services = true;
        }
    }
    if watches_services {
        let watch = watch_services(client.clone(), context.services.clone(), shutdown.clone());
        controllers.tasks.spawn("watch of services", infallible(watch));
    }
    let ControllerTasks { mut tasks, running, .. } = controllers;
    let source = context.events.source(start::COMPONENT);
    let start = start::run(context.clouds.clone(), client.clone(), source, lease, shutdown.clone());
    tasks.spawn("start of clouds", infallible(start));
    tasks.spawn("watch of nodes", infallible(watch_nodes(client, context.nodes.clone(), shutdown.clone())));
    tasks.spawn("events", infallible(write_events_until_stopped(running, shutdown.clone(), write_events)));
    Ok(tasks.run(options.shutdown_timeout).await?)
}

/// Registers the watches and clouds on the status board. Each controller registers itself.
fn register_components(context: &Context, services: bool) -> prometheus::Result<()> {
    let watches = WatchMetrics::register(&context.metrics)?;
    context.nodes.count(&watches, "nodes");
    context.board.put(Kind::Watch, "nodes", Arc::new(context.nodes.clone()));
    if services {
        context.services.count(&watches, "services");
        context.board.put(Kind::Watch, "services", Arc::new(context.services.clone()));
    }
    context.clouds.iter().for_each(|cloud| context.board.put(Kind::Cloud, &**cloud.name(), cloud.component()));
    Ok(())
}

/// Registers the sources of the console: of the process, unless the program has, and of the manager.
fn register_sources(sources: &Sources, context: &Context, options: &ManagerOptions) {
    let Context { board, clouds, clock, nodes, services, events, console, .. } = context.clone();
    sources.add(Process::new(board, clouds.clone(), clock).dry_run(options.dry_run));
    let enabled = console::Enabled { node: options.node.is_some(), service: options.service.is_some() };
    let watches_services = options.watches_services();
    sources.add(console::Manager { nodes, services, watches_services, clouds, events, parts: console, enabled });
}

/// Tasks of the running controllers.
struct ControllerTasks {
    tasks: Supervisor,
    /// Controllers that may still write and emit Events.
    running: TaskTracker,
    gate: Gate,
    start_interval: Duration,
    shutdown: Shutdown,
}

impl ControllerTasks {
    fn new(gate: Gate, start_interval: Duration, shutdown: Shutdown) -> ControllerTasks {
        ControllerTasks {
            tasks: Supervisor::new(shutdown.clone()),
            running: TaskTracker::new(),
            gate,
            start_interval,
            shutdown,
        }
    }

    /// Spawns a controller, which starts once the gate is open for it, and then waits for the start interval, so that not all
    /// controllers start at the same time.
    async fn spawn<E>(&mut self, name: &'static str, work: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: std::fmt::Display + Send + 'static,
    {
        let (gate, shutdown) = (self.gate.clone(), self.shutdown.clone());
        let gated = async move {
            match shutdown.or(gate.wait(name)).await {
                Some(()) => work.await,
                None => Ok(()),
            }
        };
        self.tasks.spawn(name, self.running.track_future(gated));
        let interval = self.start_interval;
        if !interval.is_zero() {
            self.shutdown.or(tokio::time::sleep(interval + interval.mul_f64(fastrand::f64()))).await;
        }
    }
}

/// Writes Events until all controllers have stopped, because the last writes emit Events, too.
async fn write_events_until_stopped<F: Future<Output = ()>>(
    running: TaskTracker,
    shutdown: Shutdown,
    write_events: impl FnOnce(Shutdown) -> F,
) {
    let stop_events = Shutdown::new();
    let wait = async {
        shutdown.requested().await;
        running.close();
        running.wait().await;
        stop_events.request();
    };
    tokio::join!(write_events(stop_events.clone()), wait);
}

/// Wraps a task that cannot fail. The supervisor reports one that ends before shutdown.
async fn infallible(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}
