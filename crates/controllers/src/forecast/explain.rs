//! Explanation of one Node or Service: its forecast, with the facts that the plan is based on.
//!
//! ```text
//!  object ──► observed fields ──┐
//!         └─► forecast ──► Item ┴─► desired = observed, with the writes of the Item applied
//! ```
//!
//! The desired state is derived from the steps, so that an explanation and a plan cannot disagree.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_cloud::{Clouds, Error, NoOwner, Ownership};
use bowline_core::lifecycle::Moment;
use bowline_core::service::ExcludedNodes;
use bowline_core::well_known::{INSTANCE_TYPE, REGION, ZONE};
use bowline_core::{FieldChange, Instance, InstanceRef, InstanceState, Node, Service, is_paused};

use super::{Item, NoticeKind, Snapshot, nodes, services};
use crate::manager::ManagerOptions;
use crate::service::RoutingError;

/// Explanation of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Cloud, steps and notices, as in a forecast.
    pub item: Item,
    /// Cloud that is responsible, and why; or why none is.
    pub ownership: String,
    /// Desired and observed state, field by field.
    pub fields: Vec<Comparison>,
    /// Number of targets of the Service's load balancer.
    pub targets: Option<usize>,
    /// Nodes that are not targets, with the reason.
    pub left_out: Arc<ExcludedNodes>,
}

/// Desired and observed value of a field; an empty text for no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Name of the field.
    pub field: String,
    /// Value that the controllers set or keep.
    pub desired: String,
    /// Current value.
    pub observed: String,
}

/// Explains a Node. The forecast covers all Nodes, because the brake depends on the share of Nodes that would be deleted.
pub async fn explain_node(
    node: &Node,
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &ManagerOptions,
    now: Moment,
) -> Explanation {
    let items = nodes::forecast(snapshot, clouds, options, now).await;
    let is_own = |item: &Item| item.object.kind == "Node" && item.object.name == node.name.as_str();
    let mut item = items.into_iter().find(is_own).unwrap_or_else(|| Item::of_node(node));
    let observation = clouds.observe_all(&[InstanceRef::of(node)], nodes::FRESHNESS).await.pop();
    let ownership = observation.as_ref().map_or_else(String::new, |observation| ownership(node, observation));
    if let Some(Ok(Ownership::Owned { provider, state })) = &observation {
        item.cloud = Some(provider.clone());
        if let InstanceState::Running(instance) | InstanceState::Stopped(instance) = state {
            note_labels(&mut item, node, instance);
        }
    }
    Explanation::new(item, ownership, |item| observed_node(node, item))
}

/// Explains a Service, without reading the load balancers of other Services.
pub async fn explain_service(
    service: &Service,
    snapshot: &Snapshot,
    clouds: &Clouds,
    options: &ManagerOptions,
    now: Moment,
) -> Result<Explanation, RoutingError> {
    match &options.service {
        Some(options) => services::explain(service, snapshot, clouds, options, now.wall).await,
        None => {
            let ownership = "none: the service-lb-controller is disabled (--controllers)".to_owned();
            Ok(Explanation::new(Item::of_service(service), ownership, |_| services::observed(service)))
        }
    }
}

impl Explanation {
    pub(super) fn new(item: Item, ownership: String, observed: impl FnOnce(&Item) -> Vec<Comparison>) -> Explanation {
        let mut fields = observed(&item);
        for change in item.in_cluster.steps.iter().flat_map(|step| &step.changes).map(Comparison::of) {
            match fields.iter_mut().find(|field| field.field == change.field) {
                Some(known) => known.change_to(change),
                None => fields.push(change),
            }
        }
        Explanation { item, ownership, fields, targets: None, left_out: Arc::default() }
    }
}

impl Comparison {
    /// Field without a change.
    pub(super) fn unchanged(field: impl Into<String>, observed: impl Into<String>) -> Comparison {
        let observed = observed.into();
        Comparison { field: field.into(), desired: observed.clone(), observed }
    }

    /// Whether desired and observed value differ.
    pub fn differs(&self) -> bool {
        self.desired != self.observed
    }

    fn of(change: &FieldChange) -> Comparison {
        let text = |side: &Option<String>| side.clone().unwrap_or_default();
        let FieldChange { field, from, to } = change;
        // Taints are fields by key.
        match from.as_ref().or(to.as_ref()).filter(|_| field == "taint") {
            Some(key) => {
                let word = |side: &Option<String>| side.as_ref().map_or("", |_| "present").to_owned();
                Comparison { field: format!("taint {key}"), desired: word(to), observed: word(from) }
            }
            None => Comparison { field: field.clone(), desired: text(to), observed: text(from) },
        }
    }

    fn change_to(&mut self, change: Comparison) {
        self.desired = change.desired;
        if !change.observed.is_empty() {
            self.observed = change.observed;
        }
    }
}

fn ownership(node: &Node, observation: &Result<Ownership, Error>) -> String {
    if let Some((key, value)) = node.unmanaged_label() {
        return format!("none: the label {key}={value} excludes the Node from cloud controller managers");
    }
    let owner = match observation {
        Ok(Ownership::Owned { provider, state }) => format!("{provider}: {}", machine(state)),
        Ok(Ownership::NoOwner(NoOwner::ForeignId(id))) => {
            format!("none: the provider ID {id} belongs to no configured cloud")
        }
        Ok(Ownership::NoOwner(NoOwner::Unclaimed)) => "none: no configured cloud has a machine of this name".to_owned(),
        Ok(Ownership::NoOwner(NoOwner::Declined(cloud))) => format!("none: the cloud {cloud} declines the Node"),
        Err(error) => format!("unknown: {error}"),
    };
    owner + pause_suffix(&node.annotations)
}

/// Suffix for a paused object.
pub(super) fn pause_suffix(annotations: &BTreeMap<String, String>) -> &'static str {
    if is_paused(annotations) { "; paused by the annotation bowline.dev/paused" } else { "" }
}

fn machine(state: &InstanceState) -> &'static str {
    match state {
        InstanceState::Running(_) => "the machine is running",
        InstanceState::Stopped(_) => "the machine is stopped",
        InstanceState::Gone => "the cloud has no such machine",
        InstanceState::NotMine => "the cloud declines the Node",
    }
}

/// Adds a notice for each label of an initialised Node that differs from its machine.
fn note_labels(item: &mut Item, node: &Node, instance: &Instance) {
    let facts = [(INSTANCE_TYPE, &instance.instance_type), (ZONE, &instance.zone), (REGION, &instance.region)];
    for (pair, reported) in facts.into_iter().filter(|(_, reported)| !reported.is_empty()) {
        let label = node.labels.get(pair.ga);
        if !node.is_uninitialized() && label != Some(reported) && !is_written(item, pair.ga) {
            let now = label.map_or("absent", String::as_str);
            let message =
                format!("the cloud reports {reported}, but the label {} is {now}; see --refresh-node-labels", pair.ga);
            item.add_notice(NoticeKind::Note, message);
        }
    }
}

fn is_written(item: &Item, label: &str) -> bool {
    written_labels(item).any(|written| written == label)
}

fn written_labels(item: &Item) -> impl Iterator<Item = &str> {
    let changes = item.in_cluster.steps.iter().flat_map(|step| &step.changes);
    changes.filter_map(|change| change.field.strip_prefix("label "))
}

/// Fields of a Node that controllers write or read.
fn observed_node(node: &Node, item: &Item) -> Vec<Comparison> {
    let id = node.provider_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut fields = vec![
        Comparison::unchanged("condition Ready", format!("{:?}", node.ready)),
        Comparison::unchanged("spec.providerID", id),
        Comparison::unchanged("spec.podCIDRs", node.pod_cidrs.join(", ")),
        Comparison::unchanged("status.addresses", nodes::list(&node.addresses)),
    ];
    let of_cloud = [INSTANCE_TYPE.ga, ZONE.ga, REGION.ga].into_iter().chain(written_labels(item));
    let mut labels: Vec<_> = of_cloud.collect();
    labels.sort_unstable();
    labels.dedup();
    let label = |key: &str| node.labels.get(key).cloned().unwrap_or_default();
    fields.extend(labels.into_iter().map(|key| Comparison::unchanged(format!("label {key}"), label(key))));
    fields.extend(node.taints.iter().map(|taint| Comparison::unchanged(format!("taint {}", taint.key), "present")));
    let network = node.network.iter().map(|network| format!("{} ({})", network.status, network.reason));
    fields.extend(network.map(|network| Comparison::unchanged("condition NetworkUnavailable", network)));
    fields
}
