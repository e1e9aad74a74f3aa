//! The provider-loop-controller: runs the background loops of providers ([`ProviderLoop`](bowline_cloud::ProviderLoop)).
//!
//! ```text
//!  cloud ready, stores filled ──► snapshot ──► plan, apply ──► metadata of Nodes ──► status, metrics, Event
//!                                    ▲                                                         │
//!                                    ├── period, or a change and DEBOUNCE after it ◄────────── Ok
//!                                    └── BACKOFF ◄──────────────────────────────────────── Err, or a panic
//! ```
//!
//! The layers plan and apply ([`Layered::run_loop`](bowline_cloud::layers::Layered::run_loop)). A change of a Node or Service
//! counts only for loops with that [trigger](bowline_cloud::LoopTriggers). `bowline plan` forecasts a run from the same snapshot.
//!
//! Loops run concurrently: one that is slow or fails blocks no other. Each is a component of the controller on the status board,
//! named `CLOUD/LOOP`.

mod metrics;
mod run;
mod snapshot;
mod status;

use std::sync::Arc;

use bowline_cloud::{Cloud, ClusterSnapshot, LoopTriggers};
use bowline_core::{ClusterName, Node, Service};
use bowline_kube::{Change, Cluster, EventSink, EventSource, ObjectRef, Permission};
use bowline_runtime::{Component, Kind, Shutdown};
use futures::future::join_all;
use tokio::sync::watch;

use crate::Context;
use crate::activity::Activity;
use crate::console::add_loops;
use crate::service::Routing;
use metrics::Metrics;
use status::LoopStatus;

pub(crate) use metrics::METRICS;
pub(crate) use snapshot::{annotation_change, label_change, node_of, snapshot};

/// Canonical name, in flags, health checks and Events.
pub const NAME: &str = "provider-loop-controller";

/// Name of its client, and of its service account with `--use-service-account-credentials`: it writes to Nodes alone.
pub const CLIENT: &str = "node-controller";

/// RBAC rules that it needs beyond the watches that all controllers share.
pub const PERMISSIONS: &[Permission] = &[Cluster::SET_ANNOTATIONS, EventSink::PERMISSION];

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-name`.
    pub cluster: ClusterName,
}

/// The controller.
pub struct ProviderLoopController {
    shared: Arc<Shared>,
}

/// State that all loops share.
struct Shared {
    loops: Vec<Loop>,
    context: Context,
    options: Options,
    routing: Routing,
    events: EventSource,
    /// Involved object of Events.
    lease: ObjectRef,
    metrics: Metrics,
    activity: Activity,
}

/// One loop of one cloud.
struct Loop {
    cloud: Cloud,
    name: String,
    triggers: LoopTriggers,
    /// Notified of every change that triggers a run.
    changes: watch::Sender<()>,
    status: Arc<LoopStatus>,
}

impl Loop {
    /// Name among all loops.
    fn key(&self) -> String {
        format!("{}/{}", self.cloud.name(), self.name)
    }
}

impl ProviderLoopController {
    /// Registers the event handlers; loops begin with [`run`](ProviderLoopController::run). `None` if no cloud has a loop. Events
    /// are about `lease`.
    pub fn new(
        context: Context,
        options: Options,
        routing: Routing,
        lease: ObjectRef,
    ) -> Result<Option<ProviderLoopController>, prometheus::Error> {
        let loops: Vec<Loop> = context.clouds.iter().flat_map(loops_of).collect();
        if loops.is_empty() {
            return Ok(None);
        }
        let part = |one: &Loop| (Kind::Controller, one.key(), one.status.clone() as Arc<dyn Component>);
        let shared = Arc::new(Shared {
            events: context.events.source(NAME),
            metrics: Metrics::register(&context.metrics)?,
            activity: Activity::new(&context, NAME, "provider-loops", loops.iter().map(part)),
            loops,
            context,
            options,
            routing,
            lease,
        });
        shared.context.nodes.listen_for(&shared, Shared::on_node);
        shared.context.services.listen_for(&shared, Shared::on_service);
        shared.context.console.add(&shared, |shared, document, anchor| {
            add_loops(document, NAME, shared.loops.iter().map(|one| (one.key(), one.status.item(anchor))));
        });
        Ok(Some(ProviderLoopController { shared }))
    }

    /// Runs until shutdown is requested. A run in progress is then cancelled, as any call to a provider may be.
    pub async fn run(self, shutdown: Shutdown) {
        let _running = self.shared.activity.runs();
        shutdown.or(join_all(self.shared.loops.iter().map(|one| run::run(&self.shared, one)))).await;
    }
}

fn loops_of(cloud: &Cloud) -> impl Iterator<Item = Loop> {
    let declared = cloud.layers().loops();
    declared.into_iter().map(|declared| Loop {
        cloud: cloud.clone(),
        name: declared.name().to_owned(),
        triggers: declared.triggers(),
        changes: watch::channel(()).0,
        status: Arc::new(LoopStatus::new(declared.period())),
    })
}

impl Shared {
    fn on_node(&self, change: &Change<Node>) {
        // A heartbeat changes nothing but the resource version.
        let is_same =
            |old: &Node, new: &Node| Node { resource_version: new.resource_version.clone(), ..old.clone() } == *new;
        if !matches!(change, Change::Updated { old, new } if is_same(old, new)) {
            self.trigger(|triggers| triggers.nodes);
        }
    }

    fn on_service(&self, _: &Change<Service>) {
        self.trigger(|triggers| triggers.services);
    }

    fn trigger(&self, is_trigger: impl Fn(LoopTriggers) -> bool) {
        for one in self.loops.iter().filter(|one| is_trigger(one.triggers)) {
            one.changes.send_replace(());
        }
    }

    /// State of the cluster as a loop of this cloud sees it.
    fn snapshot(&self, cloud: &Cloud) -> ClusterSnapshot {
        let Context { clouds, nodes, services, .. } = &self.context;
        snapshot(cloud, clouds, &self.routing, &self.options.cluster, nodes.all(), services.all())
    }
}
