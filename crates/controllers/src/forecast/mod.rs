//! What the controllers would do about what there is now, as a value. Nothing in here writes anything, anywhere.
//!
//! ```text
//!  Snapshot (Nodes, Services) ──► ask the clouds ──► the decisions of the controllers ──► Forecast
//!                                                                 │ one Item for each object with something to tell
//!                                                                 ├─ steps in the cloud
//!                                                                 ├─ steps in the cluster
//!                                                                 └─ remarks: held back, refused, failed
//! ```
//!
//! The decisions are those that the controllers make, by the same functions. What differs is time: a controller comes back,
//! and sees what its own writes have led to. A forecast is made from what is there now, so what only follows from its steps
//! (a Node that becomes a target once it is initialised, the address that a new balancer gets) shows up in the next one.

mod explain;
mod network;
mod nodes;
mod services;

use std::sync::Arc;

use bowline_cloud::Clouds;
use bowline_core::lifecycle::Moment;
use bowline_core::{FieldChange, Node, Opaque, Plan, Service, Step, Verb};

pub use explain::{Comparison, Explanation, explain_node, explain_service};

use crate::manager::ManagerOptions;
use crate::service::RoutingError;

/// The objects of a cluster, as they were when they were listed.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// All Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// All Services.
    pub services: Vec<Arc<Service>>,
    /// UID of the cluster, if the manager may read it.
    pub cluster_uid: Option<String>,
}

/// What would be done.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forecast {
    /// For each object that there is something to tell of: Nodes by name, routes that lead to none, then Services by
    /// namespace and name.
    pub items: Vec<Item>,
}

/// What would be done about one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The object.
    pub object: Object,
    /// The cloud that it belongs to, if that is known.
    pub cloud: Option<Arc<str>>,
    /// What would be changed in that cloud.
    pub in_cloud: Plan,
    /// What would be written to the API server.
    pub in_cluster: Plan,
    /// What else there is to say.
    pub remarks: Vec<Remark>,
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// `Node` or `Service`; `Route` for one that leads to no Node, and `Routes` for all of a cloud's.
    pub kind: &'static str,
    /// The namespace, if its kind has any.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// Something to know about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// How it is meant.
    pub kind: RemarkKind,
    /// For people.
    pub message: String,
}

/// How a remark is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemarkKind {
    /// Good to know.
    Note,
    /// Something would be done, if there were no doubt about it.
    HeldBack,
    /// What the object asks for is not done, until somebody changes something.
    Refused,
    /// It could not be found out what to do.
    Failed,
}

/// How much of what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Steps in clouds.
    pub in_clouds: usize,
    /// Writes to the API server.
    pub in_cluster: usize,
    /// What is held back.
    pub held_back: usize,
    /// What is refused.
    pub refused: usize,
    /// What could not be found out.
    pub failed: usize,
}

/// What the controllers that `options` switch on would do about these objects.
///
/// What goes wrong with one cloud or object is a remark about it, and the rest goes on.
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
    items.retain(|item| !item.is_silent());
    Ok(Forecast { items })
}

impl Forecast {
    /// How much of what there is.
    pub fn summary(&self) -> Summary {
        let remarks = |kind| {
            let all = self.items.iter().flat_map(|item| &item.remarks);
            all.filter(|remark| remark.kind == kind).count()
        };
        Summary {
            in_clouds: self.items.iter().map(|item| item.in_cloud.steps.len()).sum(),
            in_cluster: self.items.iter().map(|item| item.in_cluster.steps.len()).sum(),
            held_back: remarks(RemarkKind::HeldBack),
            refused: remarks(RemarkKind::Refused),
            failed: remarks(RemarkKind::Failed),
        }
    }
}

impl Summary {
    /// Nothing would be changed anywhere.
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
        Item { object, cloud: None, in_cloud: Plan::default(), in_cluster: Plan::default(), remarks: Vec::new() }
    }

    fn is_silent(&self) -> bool {
        self.in_cloud.is_empty() && self.in_cluster.is_empty() && self.remarks.is_empty()
    }

    fn remark(&mut self, kind: RemarkKind, message: impl Into<String>) {
        self.remarks.push(Remark { kind, message: message.into() });
    }

    /// The object would be written, once, with these changes; not at all if there are none.
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
    /// `Service default/web`.
    pub fn title(&self) -> String {
        let Object { kind, namespace, name } = self;
        namespace.as_ref().map_or_else(|| format!("{kind} {name}"), |namespace| format!("{kind} {namespace}/{name}"))
    }
}

/// A field that changes, or comes, or goes.
fn changed(field: impl Into<String>, from: Option<String>, to: Option<String>) -> FieldChange {
    FieldChange { field: field.into(), from: from.filter(|from| !from.is_empty()), to: to.filter(|to| !to.is_empty()) }
}
