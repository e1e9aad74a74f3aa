//! The process and its clouds: what a standby knows as well.

use std::collections::BTreeMap;

use bowline_cloud::{Cloud, ErrorKind};
use bowline_cloud::{Clouds, Readiness};
use bowline_console::Source;
use bowline_console::document::{self, Document, Health, Level, text};
use bowline_core::service::format_timestamp;
use bowline_runtime::{Anchor, Clock, Component as _, Kind, StatusBoard, Timeline};
use jiff::Timestamp;

use super::calls;

/// Source of the manager and its clouds. A second one in the same document has no effect.
pub struct Process {
    board: StatusBoard,
    clouds: Clouds,
    timeline: Timeline,
    started: Timestamp,
    cluster: Option<String>,
    dry_run: bool,
}

impl Process {
    /// Creates the source of a process that has just started.
    pub fn new(board: StatusBoard, clouds: Clouds, clock: Clock) -> Process {
        let started = clock.now();
        Process { board, clouds, timeline: Timeline::new(clock), started, cluster: None, dry_run: false }
    }

    /// Sets the start time.
    pub fn started(self, started: Timestamp) -> Process {
        Process { started, ..self }
    }

    /// Sets the name of the cluster.
    pub fn cluster(self, cluster: Option<String>) -> Process {
        Process { cluster, ..self }
    }

    /// Sets whether writes are only logged.
    pub fn dry_run(self, dry_run: bool) -> Process {
        Process { dry_run, ..self }
    }

    fn manager(&self) -> document::Manager {
        let entries = self.board.entries();
        let leases = entries.iter().filter(|entry| entry.kind == Kind::Lease);
        let leases: BTreeMap<_, _> = leases.map(|entry| (entry.name.clone(), entry.component.status())).collect();
        // The controllers run under the first lease; a second one delays the start of some.
        let leader = entries.iter().find(|entry| entry.kind == Kind::Lease);
        let failures =
            entries.iter().filter_map(|entry| Some(format!("{}: {}", entry.name, entry.component.health().err()?)));
        let failures: Vec<String> = failures.collect();
        let health = match failures.is_empty() {
            true => Health::ok(),
            false => Health::new(Level::Error, "Unhealthy", failures.join("; ")),
        };
        document::Manager {
            health,
            version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            started: Some(self.started),
            cluster: self.cluster.clone(),
            leader: leader.is_none_or(|lease| lease.component.status()["leads"] == true),
            leases,
            dry_run: self.dry_run,
        }
    }
}

impl Source for Process {
    fn fill(&self, document: &mut Document) {
        if !document.manager.is_empty() {
            return;
        }
        let anchor = self.timeline.anchor();
        document.manager.insert("self".to_owned(), self.manager());
        document.cloud.extend(self.clouds.iter().map(|one| (one.name().to_string(), cloud(one, anchor))));
    }
}

fn cloud(cloud: &Cloud, anchor: Anchor) -> document::Cloud {
    let layers = cloud.layers();
    let facts = layers.facts();
    let capabilities = layers.capabilities();
    let assigns = capabilities.instances.as_ref().is_some_and(|one| one.pod_cidrs || one.assign_pod_cidrs);
    let capabilities = [
        ("instances", capabilities.instances.is_some()),
        ("loadBalancers", capabilities.load_balancers.is_some()),
        ("routes", capabilities.routes.is_some()),
        ("podCidrs", assigns),
    ];
    let details = facts.into_iter().flat_map(|facts| &facts.details);
    document::Cloud {
        health: health(cloud, anchor),
        provider: cloud.info().name.clone(),
        region: facts.and_then(|facts| facts.region.clone()),
        details: details.map(|(key, value)| ((*key).to_owned(), text(value))).collect(),
        capabilities: capabilities.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect(),
        calls: calls::item(layers.calls().activity(), anchor),
    }
}

/// Health of a cloud: whether it has started, and how its last operation ended.
fn health(cloud: &Cloud, anchor: Anchor) -> Health {
    match &*cloud.readiness().borrow() {
        Readiness::Starting => {
            let message = "The cloud has not answered yet. Nothing is read or changed in it before it has.";
            return Health::new(Level::Progressing, "Starting", message);
        }
        Readiness::Failed { error, retry_at } => {
            let next = format_timestamp(anchor.at(*retry_at));
            let message = format!("{} Next try at {next}.", error.kind().with_advice(&error.to_string()));
            return Health::new(Level::Error, reason(error.kind()), message);
        }
        Readiness::Ready => {}
    }
    let last = cloud.layers().last_results();
    let Some((_, error)) = last.failure.filter(|(at, _)| last.success.is_none_or(|success| success < *at)) else {
        return cloud
            .layers()
            .health()
            .map_or_else(|error| Health::new(Level::Error, "NotReady", error), |()| Health::ok());
    };
    let level = match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => Level::Error,
        ErrorKind::RateLimited | ErrorKind::Unavailable | ErrorKind::Unexpected => Level::Warning,
        // The cloud has answered; the object of the operation shows the error.
        _ => return Health::ok(),
    };
    let message = format!("The last operation failed: {}", error.kind().with_advice(&error.to_string()));
    Health::new(level, reason(error.kind()), message)
}

/// One CamelCase word for a kind of error.
fn reason(kind: ErrorKind) -> String {
    format!("{kind:?}")
}
