//! Forecast of the provider-loop-controller.

use std::collections::BTreeSet;

use bowline_cloud::{Cloud, Clouds, ClusterSnapshot, Error, LabelValues, LoopPlan, Retry};
use bowline_core::node_annotations::AnnotationValues;
use bowline_core::{Node, Opaque, Plan, Step, Verb};

use super::{Item, NoticeKind, Object, Snapshot, add_warnings, changed};
use crate::manager::ManagerOptions;
use crate::provider_loops::{annotation_change, label_change, node_of, snapshot};
use crate::service::RoutingError;

/// Plan of one background loop.
pub struct PlannedLoop {
    /// Cloud of the loop.
    pub cloud: Cloud,
    /// Name of the loop.
    pub name: String,
    /// Input of the plan.
    pub cluster: ClusterSnapshot,
    /// The plan.
    pub plan: Result<LoopPlan, Error>,
}

/// Plans the background loops of all clouds; none if `options` disables them.
pub async fn plan_loops(
    listed: &Snapshot,
    clouds: &Clouds,
    options: &ManagerOptions,
) -> Result<Vec<PlannedLoop>, RoutingError> {
    let Some(loops) = &options.provider_loops else { return Ok(Vec::new()) };
    let routing = options.routing(clouds)?;
    let mut planned = Vec::new();
    for cloud in clouds.iter() {
        let (nodes, services) = (listed.nodes.clone(), listed.services.clone());
        let cluster = snapshot(cloud, clouds, &routing, &loops.cluster, nodes, services);
        for declared in cloud.layers().loops() {
            let (cloud, name, cluster) = (cloud.clone(), declared.name().to_owned(), cluster.clone());
            let plan = cloud.layers().plan_loop(&name, &cluster).await;
            planned.push(PlannedLoop { cloud, name, cluster, plan });
        }
    }
    Ok(planned)
}

/// Forecasts one run of each loop.
pub(super) async fn forecast(
    listed: &Snapshot,
    clouds: &Clouds,
    options: &ManagerOptions,
) -> Result<Vec<Item>, RoutingError> {
    Ok(plan_loops(listed, clouds, options).await?.into_iter().map(to_item).collect())
}

fn to_item(PlannedLoop { cloud, name, cluster, plan }: PlannedLoop) -> Item {
    let mut item = Item::new(Object { kind: "Loop", namespace: None, name });
    item.cloud = Some(cloud.name().clone());
    match plan {
        Ok(LoopPlan { plan, annotations, labels, .. }) => {
            add_warnings(&mut item, &plan.warnings);
            plan.errors.into_iter().for_each(|error| add_error(&mut item, &error.into()));
            item.in_cloud = Plan::of(plan.steps);
            for name in annotations.keys().chain(labels.keys()).collect::<BTreeSet<_>>() {
                let Some(node) = node_of(&cluster, name) else { continue };
                let change = annotations.get(name).map(|values| annotation_change(node, values)).unwrap_or_default();
                change.warnings.iter().for_each(|warning| item.add_notice(NoticeKind::Note, warning));
                let labels = labels.get(name).map(|labels| label_change(node, labels)).unwrap_or_default();
                item.in_cluster.steps.extend(node_step(node, change.values, labels));
            }
        }
        Err(error) => add_error(&mut item, &error),
    }
    item
}

fn add_error(item: &mut Item, error: &Error) {
    let kind = if error.retry_advice() == Retry::Never { NoticeKind::Refused } else { NoticeKind::Failed };
    item.add_notice(kind, error.to_string());
}

/// Returns the update of a Node; `None` without values.
fn node_step(node: &Node, annotations: AnnotationValues, labels: LabelValues) -> Option<Step> {
    let annotation =
        |(key, then): (String, _)| changed(format!("annotation {key}"), node.annotations.get(&key).cloned(), then);
    let label = |(key, then): (String, _)| changed(format!("label {key}"), node.labels.get(&key).cloned(), Some(then));
    let changes: Vec<_> = annotations.into_iter().map(annotation).chain(labels.into_iter().map(label)).collect();
    let step = |changes| Step::new(Verb::Update, "Node", node.name.to_string(), changes, Opaque::default());
    (!changes.is_empty()).then_some(changes).map(step)
}
