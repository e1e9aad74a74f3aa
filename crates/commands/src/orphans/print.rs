//! Output of orphans as text and as JSON. The JSON is stable: fields are added, never renamed.

use std::fmt::Write as _;

use bowline_core::{ClusterName, LoadBalancerKey, Route};
use serde_json::{Value, json};

use super::loops::LoopLeftovers;
use super::routes::OrphanedRoute;
use super::{Orphan, Orphans, Outcome};
use crate::plan::{indented, steps_json};

/// Version of the JSON document.
const VERSION: u32 = 1;

/// Formats the list.
pub(super) fn list(orphans: &Orphans) -> String {
    let mut text = String::new();
    for orphan in &orphans.orphans {
        let parts = match &orphan.plan {
            Ok(plan) => indented(plan),
            Err(error) => format!("    cannot read its resources: {error}\n"),
        };
        let _ = write!(text, "{}\n{parts}", title(orphan));
    }
    for orphan in orphans.orphaned_routes() {
        let _ = writeln!(text, "{}", route_title(orphan));
    }
    for LoopLeftovers { cloud, name, removals } in orphans.leftovers.iter().flat_map(|leftovers| &leftovers.loops) {
        let _ = write!(text, "loop {name} in {cloud}\n{}", indented(removals));
    }
    for (cloud, error) in orphans.failed() {
        let _ = writeln!(text, "Cannot list the resources of cloud {cloud}: {error}");
    }
    text + &services_summary(orphans) + &routes_summary(orphans) + &leftovers_summary(orphans)
}

/// Counts Services, because the remaining resource may also be an address or a security group alone.
fn services_summary(orphans: &Orphans) -> String {
    let cluster = &orphans.cluster;
    match (orphans.services(), orphans.failed.is_empty()) {
        (0, true) => format!("No orphaned resources of Services in cluster {cluster}.\n"),
        (0, false) => String::new(),
        (1, _) => format!("Orphaned resources of 1 Service in cluster {cluster}.\n"),
        (count, _) => format!("Orphaned resources of {count} Services in cluster {cluster}.\n"),
    }
}

/// Question before deletion.
pub(super) fn question(cluster: &ClusterName, services: usize, routes: usize) -> String {
    let resources = (services > 0).then(|| format!("the resources of {}", counted(services, "Service")));
    let routes = (routes > 0).then(|| counted(routes, "route"));
    let all: Vec<String> = resources.into_iter().chain(routes).collect();
    format!("Permanently delete {} in cluster {cluster}? [y/N] ", all.join(" and "))
}

fn counted(count: usize, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// Summary of routes; empty if no cloud supports routes.
fn routes_summary(orphans: &Orphans) -> String {
    let Some(routes) = &orphans.routes else { return String::new() };
    let cluster = &orphans.cluster;
    let mut held: Vec<_> =
        routes.orphans.iter().filter_map(|orphan| Some((orphan.cloud.name(), orphan.hold.as_ref()?))).collect();
    held.dedup();
    let held: String = held.iter().map(|(cloud, reason)| format!("Held back in {cloud}: {reason}\n")).collect();
    let count = match (routes.orphans.len(), routes.failed.is_empty()) {
        (0, true) => format!("No orphaned routes in cluster {cluster}.\n"),
        (0, false) => String::new(),
        (1, _) => format!("1 orphaned route in cluster {cluster}.\n"),
        (count, _) => format!("{count} orphaned routes in cluster {cluster}.\n"),
    };
    count + &held
}

/// Summary of leftovers; empty if no cloud has background loops.
fn leftovers_summary(orphans: &Orphans) -> String {
    let Some(leftovers) = &orphans.leftovers else { return String::new() };
    let cluster = &orphans.cluster;
    match (leftovers.count(), leftovers.failed.is_empty()) {
        (0, true) => format!("No leftovers of background loops in cluster {cluster}.\n"),
        (0, false) => String::new(),
        (count, _) => {
            let leftovers = counted(count, "leftover");
            format!(
                "{leftovers} of background loops in cluster {cluster}, removed by the manager and not by --delete.\n"
            )
        }
    }
}

/// Destination, target if known, and cloud of a route.
pub(super) fn route_title(OrphanedRoute { cloud, route, .. }: &OrphanedRoute) -> String {
    let Route { id, destination, .. } = route;
    let target = match (&route.node, &route.provider_id) {
        (Some(node), _) => format!("to {node}"),
        (None, Some(machine)) => format!("to {machine}"),
        (None, None) => "without target".to_owned(),
    };
    format!("route {destination} ({id}) {target} in {}", cloud.name())
}

/// Service and cloud of an orphan, or the name of the load balancer if the Service is unknown.
pub(super) fn title(Orphan { cloud, key, .. }: &Orphan) -> String {
    let id = |name: &str| if key.uid.is_empty() { String::new() } else { format!(" ({name} {})", key.uid) };
    match key.name_only() {
        Some(name) => format!("load balancer {name}{} in {}", id("ID"), cloud.name()),
        None => format!("{}/{}{} in {}", key.namespace, key.service, id("UID"), cloud.name()),
    }
}

/// Returns the Service of a load balancer, or the load balancer's own name if only that is known.
pub(super) fn owner(key: &LoadBalancerKey) -> String {
    key.name_only().map_or_else(|| format!("{}/{}", key.namespace, key.service), str::to_owned)
}

/// Formats the outcome for an orphan.
pub(super) fn outcome(orphan: &Orphan) -> String {
    outcome_text(&orphan.outcome, &title(orphan), "Service")
}

/// Formats the outcome for a route.
pub(super) fn route_outcome(orphan: &OrphanedRoute) -> String {
    outcome_text(&orphan.outcome, &route_title(orphan), "Node")
}

fn outcome_text(outcome: &Outcome, title: &str, owner: &str) -> String {
    match outcome {
        Outcome::Listed => title.to_owned(),
        Outcome::Deleted => format!("deleted {title}"),
        Outcome::Owned => format!("kept {title}: its {owner} exists"),
        Outcome::HeldBack(_) => format!("kept {title}: held back"),
        Outcome::Failed(why) => format!("failed to delete {title}: {why}"),
    }
}

pub(super) fn json(orphans: &Orphans) -> Value {
    let failure = |(cloud, error): &(std::sync::Arc<str>, bowline_cloud::Error)| json!({"cloud": **cloud, "message": error.to_string()});
    json!({
        "version": VERSION,
        "cluster": orphans.cluster.as_str(),
        "orphans": orphans.orphans.iter().map(orphan_json).collect::<Vec<_>>(),
        "routes": orphans.orphaned_routes().iter().map(route_json).collect::<Vec<_>>(),
        "loops": orphans.leftovers.iter().flat_map(|leftovers| &leftovers.loops).map(loop_json).collect::<Vec<_>>(),
        "failures": orphans.failed().map(failure).collect::<Vec<_>>(),
    })
}

/// Outcome and message for the JSON document.
fn outcome_json(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Listed => ("listed", None),
        Outcome::Deleted => ("deleted", None),
        Outcome::Owned => ("owned", None),
        Outcome::HeldBack(why) => ("heldBack", Some(why)),
        Outcome::Failed(why) => ("failed", Some(why)),
    }
}

fn route_json(OrphanedRoute { cloud, route, hold, outcome }: &OrphanedRoute) -> Value {
    let (outcome, message) = outcome_json(outcome);
    let message = message.map(str::to_owned).or(hold.as_ref().map(ToString::to_string));
    json!({
        "cloud": **cloud.name(),
        "id": route.id,
        "destination": route.destination,
        "node": route.node,
        "providerID": route.provider_id,
        "outcome": outcome,
        "message": message,
    })
}

fn loop_json(LoopLeftovers { cloud, name, removals }: &LoopLeftovers) -> Value {
    json!({"cloud": **cloud, "loop": name, "steps": steps_json(removals)})
}

fn orphan_json(orphan: &Orphan) -> Value {
    let (outcome, message) = outcome_json(&orphan.outcome);
    let unreadable = orphan.plan.as_ref().err().filter(|_| orphan.outcome == Outcome::Listed).map(ToString::to_string);
    let message = message.map(str::to_owned).or(unreadable);
    let name = orphan.key.name_only();
    json!({
        "cloud": **orphan.cloud.name(),
        "namespace": orphan.key.namespace,
        "service": if name.is_some() { "" } else { &orphan.key.service },
        "uid": orphan.key.uid,
        "loadBalancer": name,
        "steps": orphan.plan.as_ref().map(steps_json).unwrap_or_default(),
        "outcome": outcome,
        "message": message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_everything_that_would_be_deleted() {
        let ask = |services, routes| question(&"kubernetes".into(), services, routes);
        assert_eq!(ask(1, 0), "Permanently delete the resources of 1 Service in cluster kubernetes? [y/N] ");
        assert_eq!(ask(0, 1), "Permanently delete 1 route in cluster kubernetes? [y/N] ");
        let both = "Permanently delete the resources of 2 Services and 3 routes in cluster kubernetes? [y/N] ";
        assert_eq!(ask(2, 3), both);
    }
}
