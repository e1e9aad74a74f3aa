//! Orphans as text for people and as JSON for programs. The JSON is a promise: fields are added, never renamed.

use std::fmt::Write as _;

use bowline_core::{ClusterName, Route};
use serde_json::{Value, json};

use super::routes::LostRoute;
use super::{Findings, Orphan, Outcome};
use crate::plan::{indented, steps_json};

/// The version of the JSON document.
const VERSION: u32 = 1;

/// What was found.
pub(super) fn list(findings: &Findings) -> String {
    let mut text = String::new();
    for orphan in &findings.orphans {
        let parts = match &orphan.plan {
            Ok(plan) => indented(plan),
            Err(error) => format!("    what it consists of is not known: {error}\n"),
        };
        let _ = write!(text, "{}\n{parts}", title(orphan));
    }
    for lost in findings.lost_routes() {
        let _ = writeln!(text, "{}", route_title(lost));
    }
    for (cloud, error) in findings.silent() {
        let _ = writeln!(text, "The cloud {cloud} does not say what it has: {error}");
    }
    text + &services_in_words(findings) + &routes_in_words(findings)
}

/// What is left need not be a balancer: it may be an address or a security group alone.
fn services_in_words(findings: &Findings) -> String {
    let cluster = &findings.cluster;
    match (findings.services(), findings.silent.is_empty()) {
        (0, true) => format!("No Service of the cluster {cluster} has left anything behind.\n"),
        (0, false) => String::new(),
        (1, _) => format!("1 Service of the cluster {cluster} has left something behind.\n"),
        (count, _) => format!("{count} Services of the cluster {cluster} have left something behind.\n"),
    }
}

/// Whether all that these Services left is to go, and these routes.
pub(super) fn question(cluster: &ClusterName, services: usize, routes: usize) -> String {
    let left = (services > 0).then(|| format!("what {} left behind", counted(services, "Service")));
    let routes = (routes > 0).then(|| counted(routes, "route"));
    let all: Vec<String> = left.into_iter().chain(routes).collect();
    format!("Delete for good, of the cluster {cluster}: {}? [y/N] ", all.join(", and "))
}

fn counted(count: usize, one: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {one}{plural}")
}

/// Nothing where no cloud has routes.
fn routes_in_words(findings: &Findings) -> String {
    let Some(routes) = &findings.routes else { return String::new() };
    let cluster = &findings.cluster;
    let mut doubts: Vec<_> =
        routes.lost.iter().filter_map(|lost| Some((lost.cloud.name(), lost.doubt.as_ref()?))).collect();
    doubts.dedup();
    let doubts: String = doubts.iter().map(|(cloud, doubt)| format!("Held back in {cloud}: {doubt}\n")).collect();
    let count = match (routes.lost.len(), routes.silent.is_empty()) {
        (0, true) => format!("No route of the cluster {cluster} is without its Node.\n"),
        (0, false) => String::new(),
        (1, _) => format!("1 route of the cluster {cluster} is without its Node.\n"),
        (count, _) => format!("{count} routes of the cluster {cluster} are without their Nodes.\n"),
    };
    count + &doubts
}

/// What it leads to whom, as far as that is known, and where it is.
fn route_title(LostRoute { cloud, route, .. }: &LostRoute) -> String {
    let Route { id, destination, .. } = route;
    let target = match (&route.node, &route.provider_id) {
        (Some(node), _) => format!("to {node}"),
        (None, Some(machine)) => format!("to {machine}"),
        (None, None) => "to nowhere".to_owned(),
    };
    format!("route {destination} ({id}) {target} in {}", cloud.name())
}

/// Whose it was, and where it is.
fn title(Orphan { cloud, key, .. }: &Orphan) -> String {
    let uid = if key.uid.is_empty() { String::new() } else { format!(" (UID {})", key.uid) };
    format!("{}/{}{uid} in {}", key.namespace, key.service, cloud.name())
}

/// What became of one, in a line.
pub(super) fn outcome(orphan: &Orphan) -> String {
    in_words(&orphan.outcome, &title(orphan), "Service")
}

/// What became of a route, in a line.
pub(super) fn route_outcome(lost: &LostRoute) -> String {
    in_words(&lost.outcome, &route_title(lost), "Node")
}

fn in_words(outcome: &Outcome, title: &str, owner: &str) -> String {
    match outcome {
        Outcome::Listed => title.to_owned(),
        Outcome::Deleted => format!("deleted {title}"),
        Outcome::Owned => format!("kept {title}: its {owner} is there after all"),
        Outcome::HeldBack(_) => format!("kept {title}: held back"),
        Outcome::Failed(why) => format!("failed to delete {title}: {why}"),
    }
}

pub(super) fn json(findings: &Findings) -> Value {
    let silent = |(cloud, error): &(std::sync::Arc<str>, bowline_cloud::Error)| json!({"cloud": **cloud, "message": error.to_string()});
    json!({
        "version": VERSION,
        "cluster": findings.cluster.as_str(),
        "orphans": findings.orphans.iter().map(orphan_json).collect::<Vec<_>>(),
        "routes": findings.lost_routes().iter().map(route_json).collect::<Vec<_>>(),
        "failures": findings.silent().map(silent).collect::<Vec<_>>(),
    })
}

/// In one word, and what there is to say about it.
fn outcome_json(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Listed => ("listed", None),
        Outcome::Deleted => ("deleted", None),
        Outcome::Owned => ("owned", None),
        Outcome::HeldBack(why) => ("heldBack", Some(why)),
        Outcome::Failed(why) => ("failed", Some(why)),
    }
}

fn route_json(LostRoute { cloud, route, doubt, outcome }: &LostRoute) -> Value {
    let (outcome, message) = outcome_json(outcome);
    let message = message.map(str::to_owned).or(doubt.as_ref().map(ToString::to_string));
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

fn orphan_json(orphan: &Orphan) -> Value {
    let (outcome, message) = outcome_json(&orphan.outcome);
    let unclear = orphan.plan.as_ref().err().filter(|_| orphan.outcome == Outcome::Listed).map(ToString::to_string);
    let message = message.map(str::to_owned).or(unclear);
    json!({
        "cloud": **orphan.cloud.name(),
        "namespace": orphan.key.namespace,
        "service": orphan.key.service,
        "uid": orphan.key.uid,
        "steps": orphan.plan.as_ref().map(steps_json).unwrap_or_default(),
        "outcome": outcome,
        "message": message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_all_that_would_go() {
        let about = |services, routes| question(&"kubernetes".into(), services, routes);
        assert_eq!(about(1, 0), "Delete for good, of the cluster kubernetes: what 1 Service left behind? [y/N] ");
        assert_eq!(about(0, 1), "Delete for good, of the cluster kubernetes: 1 route? [y/N] ");
        let both = "Delete for good, of the cluster kubernetes: what 2 Services left behind, and 3 routes? [y/N] ";
        assert_eq!(about(2, 3), both);
    }
}
