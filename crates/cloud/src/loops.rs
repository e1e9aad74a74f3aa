//! Background loops of a provider: work in the cloud that depends on the cluster as a whole and not on a single Node or Service,
//! such as tags on machines, a firewall for node ports, or BGP sessions.
//!
//! ```text
//!  start, period, trigger ──► snapshot ──► plan(&snapshot), which only reads ──► apply(change) for each step, in order
//!            ▲                                                  │                                    │
//!            │                                                  └──► bowline plan, bowline orphans   │
//!            └────────── period, or back-off ◄── status, metrics ◄──┬────────────────────────────────┘
//!                                                                   └──► annotations and labels of Nodes
//! ```
//!
//! A provider implements [`TypedProviderLoop`], and the framework gets a [`ProviderLoop`] from it. The controller `provider-loops`
//! runs each loop only while this process is the leader, one run at a time, retries it after an error or a panic, and stops it at
//! shutdown. A dry run logs the steps and applies none.
//!
//! ```
//! use std::time::Duration;
//!
//! use async_trait::async_trait;
//! use bowline_cloud::{ClusterSnapshot, LoopPlan, LoopTriggers, Result, TypedProviderLoop};
//! use bowline_core::{FieldChange, Step, Verb};
//! # struct Client;
//! # impl Client {
//! #     async fn tagged(&self, tag: &str) -> Result<Vec<String>> { let _ = tag; Ok(Vec::new()) }
//! #     async fn tag(&self, id: &str, tag: &str) -> Result<()> { let _ = (id, tag); Ok(()) }
//! # }
//!
//! /// Tags the machines of the cluster.
//! struct Tags(Client);
//!
//! /// A machine that gets a tag.
//! #[derive(Debug, Clone, PartialEq)]
//! struct NewTag {
//!     id: String,
//!     tag: String,
//! }
//!
//! #[async_trait]
//! impl TypedProviderLoop for Tags {
//!     type Change = NewTag;
//!
//!     fn name(&self) -> &str {
//!         "tags"
//!     }
//!
//!     fn period(&self) -> Duration {
//!         Duration::from_secs(300)
//!     }
//!
//!     fn triggers(&self) -> LoopTriggers {
//!         LoopTriggers { nodes: true, services: false }
//!     }
//!
//!     async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<NewTag>> {
//!         let tag = format!("k8s:{}", cluster.name);
//!         let tagged = self.0.tagged(&tag).await?;
//!         let ids = cluster.nodes.iter().filter_map(|node| node.provider_id.as_ref()?.rest());
//!         let missing = ids.filter(|id| !tagged.iter().any(|tagged| tagged == id)).map(|id| {
//!             let added = FieldChange { field: "tag".to_owned(), from: None, to: Some(tag.clone()) };
//!             Step::new(Verb::Update, "machine", id, vec![added], NewTag { id: id.to_owned(), tag: tag.clone() })
//!         });
//!         Ok(LoopPlan::new(format!("{} machines", cluster.nodes.len()), missing.collect()))
//!     }
//!
//!     async fn apply(&self, change: &NewTag) -> Result<()> {
//!         self.0.tag(&change.id, &change.tag).await
//!     }
//! }
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::node_annotations::AnnotationValues;
use bowline_core::{ClusterName, Node, NodeName, Opaque, Plan, ProviderId, Service, Step};

use crate::Result;
use crate::load_balancers::downcast;

/// Nodes and Services at the start of a run, from the manager's caches.
#[derive(Debug, Clone)]
pub struct ClusterSnapshot {
    /// Cluster name, as recorded on every cloud resource that this cluster owns.
    pub name: ClusterName,
    /// Nodes with a provider ID of this cloud, sorted by name, without those that are paused or excluded from cloud controller
    /// managers.
    pub nodes: Vec<Arc<Node>>,
    /// Paused Nodes with a provider ID of this cloud, sorted by name. What the cloud has for them stays as it is: a loop adds
    /// nothing to their machines and removes nothing from them.
    pub paused: Vec<Arc<Node>>,
    /// Services of all types, sorted by namespace and name, without those whose load balancer another cloud provides.
    pub services: Vec<Arc<Service>>,
}

impl ClusterSnapshot {
    /// Returns whether the machine with this provider ID belongs to a paused Node.
    pub fn is_paused(&self, machine: &ProviderId) -> bool {
        self.paused.iter().any(|node| node.provider_id.as_ref() == Some(machine))
    }
}

/// Objects whose changes trigger a run before the period ends. The default is both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopTriggers {
    /// Nodes; heartbeats do not count as changes.
    pub nodes: bool,
    /// Services of all types.
    pub services: bool,
}

impl LoopTriggers {
    /// Changes of Services only.
    pub const SERVICES: LoopTriggers = LoopTriggers { nodes: false, services: true };
    /// The period only.
    pub const NONE: LoopTriggers = LoopTriggers { nodes: false, services: false };
}

impl Default for LoopTriggers {
    fn default() -> LoopTriggers {
        LoopTriggers { nodes: true, services: true }
    }
}

/// Result of planning.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopPlan<C = Opaque> {
    /// Steps from the observed to the desired state, applied in order. A step that fails ends the run, unless it is
    /// [best-effort](Step::best_effort). Warnings are logged. If there are errors, the run fails with the first of them after all
    /// steps are applied. [Locks](Plan::locks) have no effect.
    pub plan: Plan<C>,
    /// Short description of the desired state for `/statusz` and the log, which may be empty: `3 machines`. No secrets. The
    /// framework appends the number of applied steps.
    pub summary: String,
    /// Annotations to write to Nodes once all steps are applied, by the rules of
    /// [`node_annotations`](bowline_core::node_annotations). Nodes that are not in the snapshot are ignored.
    pub annotations: BTreeMap<NodeName, AnnotationValues>,
    /// Labels to set on Nodes once all steps are applied. Only the keys in [`ProviderLoop::labels`] are written. Nodes that are not
    /// in the snapshot are ignored.
    pub labels: BTreeMap<NodeName, LabelValues>,
}

/// Label values by key.
pub type LabelValues = BTreeMap<String, String>;

impl<C> LoopPlan<C> {
    /// Creates a plan with these steps, without annotations, labels, warnings and errors.
    pub fn new(summary: impl Into<String>, steps: Vec<Step<C>>) -> LoopPlan<C> {
        let plan = Plan::of(steps);
        LoopPlan { plan, summary: summary.into(), annotations: BTreeMap::new(), labels: BTreeMap::new() }
    }
}

impl<C> Default for LoopPlan<C> {
    fn default() -> LoopPlan<C> {
        LoopPlan::new("", Vec::new())
    }
}

/// Result of a successful run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoopOutcome {
    /// Summary of the plan, and the number of steps that were applied.
    pub summary: String,
    /// Annotations to write to Nodes.
    pub annotations: BTreeMap<NodeName, AnnotationValues>,
    /// Labels to set on Nodes.
    pub labels: BTreeMap<NodeName, LabelValues>,
}

/// A background loop, from [`CloudProvider::loops`](crate::CloudProvider::loops).
///
/// A provider implements [`TypedProviderLoop`], which has the same methods with the provider's own type of changes, and gets this
/// trait from it. A run plans and applies all steps. After an error the next run plans again; no step is repeated without a new
/// plan.
///
/// Rules, each with a conformance case of the same name:
/// - `loops_are_declared`: names are unique and not empty, periods are not zero, and neither they nor the triggers change.
/// - `loops_follow_the_cluster`: a run brings the cloud to the state that the snapshot requires, also after Nodes and Services were
///   added, changed and removed.
/// - `paused_nodes_stay_as_they_are`: for a paused Node nothing is added to the cloud and nothing is removed, and it gets no
///   annotations and labels. Afterwards it is treated like any other.
/// - `loop_plans_write_nothing`: `plan` makes no write call, and two plans for the same snapshot and state are equal.
/// - `applied_loop_plan_is_empty`: after a run, the plan for the same snapshot has neither steps nor errors.
/// - `loops_are_repeatable`: a second run writes nothing and returns the same annotations and labels, also after a restart.
/// - `loops_write_nothing_foreign`: a run changes no resource of another cluster or of the user.
/// - `loop_errors_have_a_kind`: a plan or a step that fails because of the cloud is an error of the corresponding kind.
/// - `loops_survive_every_crash`: if a run is interrupted after any of its calls, the next run completes it.
#[async_trait]
pub trait ProviderLoop: Send + Sync {
    /// Returns the name in metrics, logs, plans and on `/statusz`: unique within the provider, lower case, words joined by `-`.
    fn name(&self) -> &str;

    /// Returns the maximum time between two runs.
    fn period(&self) -> Duration;

    /// Returns the objects whose changes also trigger a run.
    fn triggers(&self) -> LoopTriggers {
        LoopTriggers::default()
    }

    /// Returns the keys of the labels that the loop writes to Nodes: constants, which do not depend on data of the cloud. Keys of
    /// Kubernetes are allowed, unlike those of annotations.
    fn labels(&self) -> &'static [&'static str] {
        &[]
    }

    /// Compares the cloud with the snapshot and returns the differences as steps. Only reads. The future may be dropped at any
    /// `await`.
    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan>;

    /// Applies one step. The future may be dropped at any `await`.
    async fn apply(&self, step: &Step) -> Result<()>;
}

/// The form of [`ProviderLoop`] that a provider implements: the same methods and the same rules, with the provider's own type of
/// changes.
#[async_trait]
pub trait TypedProviderLoop: Send + Sync {
    /// Payload of a step: everything that `apply` needs.
    type Change: Any + Debug + Clone + PartialEq + Send + Sync;

    /// See [`ProviderLoop::name`].
    fn name(&self) -> &str;

    /// See [`ProviderLoop::period`].
    fn period(&self) -> Duration;

    /// See [`ProviderLoop::triggers`].
    fn triggers(&self) -> LoopTriggers {
        LoopTriggers::default()
    }

    /// See [`ProviderLoop::labels`].
    fn labels(&self) -> &'static [&'static str] {
        &[]
    }

    /// See [`ProviderLoop::plan`].
    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<Self::Change>>;

    /// See [`ProviderLoop::apply`].
    async fn apply(&self, change: &Self::Change) -> Result<()>;
}

#[async_trait]
impl<T: TypedProviderLoop> ProviderLoop for T {
    fn name(&self) -> &str {
        TypedProviderLoop::name(self)
    }

    fn period(&self) -> Duration {
        TypedProviderLoop::period(self)
    }

    fn triggers(&self) -> LoopTriggers {
        TypedProviderLoop::triggers(self)
    }

    fn labels(&self) -> &'static [&'static str] {
        TypedProviderLoop::labels(self)
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan> {
        let LoopPlan { plan, summary, annotations, labels } = TypedProviderLoop::plan(self, cluster).await?;
        Ok(LoopPlan { plan: plan.map(Opaque::new), summary, annotations, labels })
    }

    async fn apply(&self, step: &Step) -> Result<()> {
        TypedProviderLoop::apply(self, downcast("apply loop", &step.payload)?).await
    }
}
