//! Forecast: the changes that the controllers would make in the current state, as a value. No code in this module writes anything.
//!
//! ```text
//!  Snapshot (Nodes, Services) ──► observe the clouds ──► plans of the controllers ──► Forecast
//!                                                                 │ one Item for each object with a step or notice
//!                                                                 ├─ steps in the cloud
//!                                                                 ├─ steps in the cluster
//!                                                                 └─ notices: held back, refused, failed
//! ```
//!
//! The plans come from the functions that the controllers use. Unlike a controller, which syncs again and observes the results of
//! its own writes, a forecast sees the current state only. Consequences of its steps (a Node that becomes a target once it is
//! initialised, the address of a new load balancer) appear in the next forecast.

mod explain;
mod loops;
mod network;
mod nodes;
mod services;

use std::sync::Arc;

use bowline_cloud::Clouds;
use bowline_core::lifecycle::Moment;
use bowline_core::{FieldChange, Node, Opaque, Plan, Service, Step, Verb, Warning};

pub use explain::{Comparison, Explanation, explain_node, explain_service};
pub use loops::{PlannedLoop, plan_loops};

use crate::manager::ManagerOptions;
use crate::service::RoutingError;

/// Objects of a cluster at the time of listing.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// All Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// All Services.
    pub services: Vec<Arc<Service>>,
    /// UID of the cluster, if the manager may read it.
    pub cluster_uid: Option<String>,
}

/// Changes that the controllers would make.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forecast {
    /// One item for each object with a step or notice: Nodes by name, routes without a Node, Services by namespace and name, then
    /// background loops by cloud.
    pub items: Vec<Item>,
}

/// Changes for one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The object.
    pub object: Object,
    /// Cloud that owns it, if known.
    pub cloud: Option<Arc<str>>,
    /// Steps in that cloud.
    pub in_cloud: Plan,
    /// Writes to the API server.
    pub in_cluster: Plan,
    /// Notices about the object.
    pub notices: Vec<Notice>,
}

/// Identity of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// `Node` or `Service`; `Route` for a route without a Node, `Routes` for all routes of a cloud, and `Loop` for a background
    /// loop of a cloud.
    pub kind: &'static str,
    /// Namespace, for a namespaced kind.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// Notice about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Kind of the notice.
    pub kind: NoticeKind,
    /// Human-readable message.
    pub message: String,
}

/// Kind of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// Information.
    Note,
    /// A deletion is held back by the brake or another safety rule.
    HeldBack,
    /// The desired state cannot be reached until the user or an operator changes something.
    Refused,
    /// A read failed, so that there is no plan.
    Failed,
}

/// Totals of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Steps in clouds.
    pub in_clouds: usize,
    /// Writes to the API server.
    pub in_cluster: usize,
    /// Notices of kind [`NoticeKind::HeldBack`].
    pub held_back: usize,
    /// Notices of kind [`NoticeKind::Refused`].
    pub refused: usize,
    /// Notices of kind [`NoticeKind::Failed`].
    pub failed: usize,
}

/// Forecasts the changes of the controllers that `options` enables.
///
/// The failure of one cloud or object becomes a notice; the forecast of the rest continues.
pub async fn forecast(
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &ManagerOptions,
    now: Moment,
) -> Result<Forecast, RoutingError> {
    let mut items = nodes::forecast(snapshot, clouds, options, now).await;
    if let Some(options) = &options.service {
        items.extend(services::forecast(snapshot, clouds, options, now.wall).await?);
    }
    items.extend(loops::forecast(snapshot, clouds, options).await?);
    items.retain(|item| !item.is_silent());
    Ok(Forecast { items })
}

impl Forecast {
    /// Totals of this forecast.
    pub fn summary(&self) -> Summary {
        let notices = |kind| {
            let all = self.items.iter().flat_map(|item| &item.notices);
            all.filter(|notice| notice.kind == kind).count()
        };
        Summary {
            in_clouds: self.items.iter().map(|item| item.in_cloud.steps.len()).sum(),
            in_cluster: self.items.iter().map(|item| item.in_cluster.steps.len()).sum(),
            held_back: notices(NoticeKind::HeldBack),
            refused: notices(NoticeKind::Refused),
            failed: notices(NoticeKind::Failed),
        }
    }
}

impl Summary {
    /// Whether nothing would change.
    pub fn is_unchanged(&self) -> bool {
        self.in_clouds + self.in_cluster == 0
    }
}

impl Item {
    fn of_node(node: &Node) -> Item {
        Item::new(Object { kind: "Node", namespace: None, name: node.name.to_string() })
    }

    fn of_service(service: &Service) -> Item {
        let namespace = Some(service.namespace.clone());
        Item::new(Object { kind: "Service", namespace, name: service.name.clone() })
    }

    fn new(object: Object) -> Item {
        Item { object, cloud: None, in_cloud: Plan::default(), in_cluster: Plan::default(), notices: Vec::new() }
    }

    fn is_silent(&self) -> bool {
        self.in_cloud.is_empty() && self.in_cluster.is_empty() && self.notices.is_empty()
    }

    fn add_notice(&mut self, kind: NoticeKind, message: impl Into<String>) {
        self.notices.push(Notice { kind, message: message.into() });
    }

    /// Adds one update of the object with these changes; none if the list is empty.
    fn update(&mut self, changes: Vec<FieldChange>) {
        if !changes.is_empty() {
            self.write(Verb::Update, changes);
        }
    }

    fn write(&mut self, verb: Verb, changes: Vec<FieldChange>) {
        let Object { kind, name, .. } = &self.object;
        self.in_cluster.steps.push(Step::new(verb, *kind, name.clone(), changes, Opaque::default()));
    }
}

impl Object {
    /// Kind and name, such as `Service default/web`.
    pub fn title(&self) -> String {
        let Object { kind, namespace, name } = self;
        namespace.as_ref().map_or_else(|| format!("{kind} {name}"), |namespace| format!("{kind} {namespace}/{name}"))
    }
}

/// Adds the warnings of a plan.
fn add_warnings(item: &mut Item, warnings: &[Warning]) {
    for Warning { reason, message } in warnings {
        item.add_notice(NoticeKind::Note, format!("{reason}: {message}"));
    }
}

/// Change of a field; `None` or an empty text for no value.
fn changed(field: impl Into<String>, from: Option<String>, to: Option<String>) -> FieldChange {
    FieldChange { field: field.into(), from: from.filter(|from| !from.is_empty()), to: to.filter(|to| !to.is_empty()) }
}
