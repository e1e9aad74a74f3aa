//! The manager: one watch and one store for each kind of object, and one sink of Events, shared by the controllers that are
//! switched on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_kube::{Clients, Cluster, EventSink, Notes, ObjectRef, Store, WatchMetrics, watch_nodes, watch_services};
use bowline_runtime::{Clock, Kind, QueueMetrics, Shutdown, StatusBoard, Supervisor, TaskFailure};
use tokio_util::task::TaskTracker;

use crate::node::NodeController;
use crate::node_ipam::NodeIpamController;
use crate::node_lifecycle::NodeLifecycleController;
use crate::provider_loops::ProviderLoopController;
use crate::route::RouteController;
use crate::service::{Routing, ServiceController};
use crate::{
    Context, Gate, RunningControllers, node, node_ipam, node_lifecycle, provider_loops, route, service, start,
};

/// Which controllers run, and how.
#[derive(Debug, Clone)]
pub struct ManagerOptions {
    /// The cloud-node-controller; `None` switches it off.
    pub node: Option<node::Options>,
    /// The cloud-node-lifecycle-controller; `None` switches it off.
    pub node_lifecycle: Option<node_lifecycle::Options>,
    /// The service-lb-controller; `None` switches it off.
    pub service: Option<service::Options>,
    /// The node-ipam-controller; `None` switches it off.
    pub node_ipam: Option<node_ipam::Options>,
    /// The node-route-controller; `None` switches it off.
    pub route: Option<route::Options>,
    /// The provider-loop-controller; `None` switches it off.
    pub provider_loops: Option<provider_loops::Options>,
    /// Nothing is written to the cluster; what would be is logged. The clouds' layers have the same switch.
    pub dry_run: bool,
    /// The pause after each controller that is started, to which as much again is added at random.
    pub start_interval: Duration,
    /// How long the writes in hand may take once shutdown is requested.
    pub patience: Duration,
}

impl Default for ManagerOptions {
    /// The controllers that need nothing to be said, as they are by default: those for pod ranges and routes need ranges, and
    /// loops need a provider that has some.
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
            patience: Duration::from_secs(10),
        }
    }
}

impl ManagerOptions {
    /// A controller that is switched on looks at Services.
    pub(crate) fn watches_services(&self) -> bool {
        self.service.is_some() || self.provider_loops.is_some()
    }

    /// The cloud of each Service.
    fn routing(&self, clouds: &Clouds) -> Result<Routing, service::RoutingError> {
        let service = self.service.clone().unwrap_or_default();
        Routing::new(clouds, &service.default_cloud, service.classes)
    }
}

/// What the controllers find when they start: made by the program, which has a use of its own for some of it.
#[derive(Clone)]
pub struct Surroundings {
    /// The API server.
    pub clients: Clients,
    /// The clouds.
    pub clouds: Clouds,
    /// The time.
    pub clock: Clock,
    /// Where metrics are registered.
    pub metrics: prometheus::Registry,
    /// Where the parts of the manager can be looked at.
    pub board: StatusBoard,
    /// Which controllers have to wait until they may begin.
    pub gate: Gate,
    /// The object that Events about the manager itself are about: its Lease.
    pub lease: ObjectRef,
}

impl Surroundings {
    /// One client for all, nobody looks, and nobody waits.
    pub fn new(client: kube::Client, clouds: Clouds, clock: Clock, metrics: prometheus::Registry) -> Surroundings {
        let (clients, board, gate) = (Clients::shared(client), StatusBoard::new(), Gate::none());
        let lease = ObjectRef::lease("kube-system", start::COMPONENT);
        Surroundings { clients, clouds, clock, metrics, board, gate, lease }
    }
}

/// Why the manager ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A task ended.
    #[error(transparent)]
    Task(#[from] TaskFailure),
    /// A metric is registered twice.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// Services without a class are to go to a cloud that cannot take them.
    #[error(transparent)]
    Routing(#[from] service::RoutingError),
}

/// Runs the controllers until shutdown is requested, and then finishes what is in hand.
///
/// Order matters: the controllers listen before the watch starts, so that they hear of everything; none of them works
/// before the store is complete.
pub async fn run(surroundings: Surroundings, options: ManagerOptions, shutdown: Shutdown) -> Result<(), ManagerError> {
    let Surroundings { clients, clouds, clock, metrics, board, gate, lease } = surroundings;
    let client = clients.process();
    let (events, write_events) = EventSink::new(client.clone(), clock.clone(), &metrics);
    let cluster = Cluster::with_metrics(client.clone(), &metrics)?.until(shutdown.clone()).dry_run(options.dry_run);
    let context = Context {
        process: cluster.clone(),
        notes: Notes::new(cluster.clone().through(clients.leader())),
        cluster,
        nodes: Store::new(),
        services: Store::new(),
        clouds,
        events: events.dry_run(options.dry_run),
        clock,
        queues: QueueMetrics::register(&metrics)?,
        running: RunningControllers::register(&metrics)?,
        board,
        metrics,
    };
    show(&context, options.watches_services())?;
    let (routing, mut watches_services) = (options.routing(&context.clouds)?, false);
    let context_of = |name| context.through(clients.controller(name));
    let mut crew = Crew::new(gate, options.start_interval, shutdown.clone());
    if let Some(options) = options.node {
        let controller = NodeController::new(context_of(node::CLIENT), options)?;
        crew.take_on(node::NAME, endless(controller.run(shutdown.clone()))).await;
    }
    if let Some(options) = options.node_lifecycle {
        let controller = NodeLifecycleController::new(context_of(node_lifecycle::CLIENT), options)?;
        crew.take_on(node_lifecycle::NAME, endless(controller.run(shutdown.clone()))).await;
    }
    if let Some(options) = options.service
        && let Some(controller) = ServiceController::new(context_of(service::CLIENT), options)?
    {
        crew.take_on(service::NAME, endless(controller.run(shutdown.clone()))).await;
        watches_services = true;
    }
    if let Some(options) = options.node_ipam {
        let controller = NodeIpamController::new(context_of(node_ipam::CLIENT), options)?;
        crew.take_on(node_ipam::NAME, controller.run(shutdown.clone())).await;
    }
    if let Some(options) = options.route
        && let Some(controller) = RouteController::new(context_of(route::CLIENT), options)?
    {
        crew.take_on(route::NAME, endless(controller.run(shutdown.clone()))).await;
    }
    if let Some(options) = options.provider_loops {
        let context = context_of(provider_loops::CLIENT);
        if let Some(controller) = ProviderLoopController::new(context, options, routing, lease.clone())? {
            crew.take_on(provider_loops::NAME, endless(controller.run(shutdown.clone()))).await;
            watches_services = true;
        }
    }
    if watches_services {
        let watch = watch_services(client.clone(), context.services.clone(), shutdown.clone());
        crew.tasks.spawn("watch of services", endless(watch));
    }
    let Crew { mut tasks, working, .. } = crew;
    let source = context.events.source(start::COMPONENT);
    let start = start::run(context.clouds.clone(), client.clone(), source, lease, shutdown.clone());
    tasks.spawn("start of clouds", endless(start));
    tasks.spawn("watch of nodes", endless(watch_nodes(client, context.nodes.clone(), shutdown.clone())));
    tasks.spawn("events", endless(outlast(working, shutdown.clone(), write_events)));
    Ok(tasks.run(options.patience).await?)
}

/// Puts what the controllers have in common on the board; they put themselves there.
fn show(context: &Context, services: bool) -> prometheus::Result<()> {
    let watches = WatchMetrics::register(&context.metrics)?;
    context.nodes.count(&watches, "nodes");
    context.board.put(Kind::Watch, "nodes", Arc::new(context.nodes.clone()));
    if services {
        context.services.count(&watches, "services");
        context.board.put(Kind::Watch, "services", Arc::new(context.services.clone()));
    }
    context.clouds.iter().for_each(|cloud| context.board.put(Kind::Cloud, &**cloud.name(), cloud.part()));
    Ok(())
}

/// The controllers at work.
struct Crew {
    tasks: Supervisor,
    /// Who may still write, and have something to say about it.
    working: TaskTracker,
    gate: Gate,
    start_interval: Duration,
    shutdown: Shutdown,
}

impl Crew {
    fn new(gate: Gate, start_interval: Duration, shutdown: Shutdown) -> Crew {
        Crew { tasks: Supervisor::new(shutdown.clone()), working: TaskTracker::new(), gate, start_interval, shutdown }
    }

    /// Lets a controller work, as soon as it may, and a moment pass after that if it is asked for, so that not all begin at
    /// once.
    async fn take_on<E>(&mut self, name: &'static str, work: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: std::fmt::Display + Send + 'static,
    {
        let (gate, shutdown) = (self.gate.clone(), self.shutdown.clone());
        let in_time = async move {
            match shutdown.or(gate.passed(name)).await {
                Some(()) => work.await,
                None => Ok(()),
            }
        };
        self.tasks.spawn(name, self.working.track_future(in_time));
        let interval = self.start_interval;
        if !interval.is_zero() {
            self.shutdown.or(tokio::time::sleep(interval + interval.mul_f64(fastrand::f64()))).await;
        }
    }
}

/// Writes Events until all controllers have ended: the last writes have Events, too.
async fn outlast<F: Future<Output = ()>>(
    working: TaskTracker,
    shutdown: Shutdown,
    write_events: impl FnOnce(Shutdown) -> F,
) {
    let silence = Shutdown::new();
    let wait = async {
        shutdown.requested().await;
        working.close();
        working.wait().await;
        silence.request();
    };
    tokio::join!(write_events(silence.clone()), wait);
}

/// A task that cannot fail; that it must not end before shutdown is the supervisor's affair.
async fn endless(task: impl Future<Output = ()>) -> Result<(), Infallible> {
    task.await;
    Ok(())
}
