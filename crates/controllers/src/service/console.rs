//! Contribution to the console: work, plan and targets of each Service, and why a Service has no working address.

use bowline_cloud::{Cloud, ErrorKind};
use bowline_console::document::{self, Document, Health, Level, Target, WorkState, text};
use bowline_core::service::Condition;
use bowline_core::well_known::LOAD_BALANCER_READY;
use bowline_core::{Service, TargetSet};
use bowline_runtime::Anchor;

use super::plan::{self, Need};
use super::state::ServiceState;
use super::{QUEUE, Shared};
use crate::backlog::PENDING;
use crate::console::{add_queue, with_next_try};
use crate::pause;

/// Maximum number of targets of a Service: a thousand Services with five thousand targets each do not fit in a document.
const MAX_TARGETS: usize = 50;

/// What the state of a Service says about its health.
#[derive(Default)]
struct Facts {
    is_owned: bool,
    /// The user has changed the Service since its load balancer was last as desired.
    is_changed: bool,
    /// Number of targets that get new connections, as of the last sync.
    active_targets: Option<usize>,
    is_over_limit: bool,
    waits_for_lock: bool,
    /// What the cloud is working on.
    pending: Option<String>,
}

impl Shared {
    pub(super) fn fill(&self, document: &mut Document, anchor: Anchor) {
        let mut work = add_queue(document, QUEUE, &self.queue, anchor);
        for service in self.context.services.all() {
            let key = service.key();
            let Some(item) = document.service.get_mut(&key.to_string()) else { continue };
            item.work = work.remove(&key).unwrap_or_default();
            let facts = self.states.existing(&key, |state| {
                fill_state(item, state);
                Facts::of(&service, state)
            });
            item.cloud = self.routing.cloud(&service).map(|cloud| cloud.name().to_string());
            item.health = self.health(&service, item, &facts.unwrap_or_default());
        }
    }

    fn health(&self, service: &Service, item: &document::Service, facts: &Facts) -> Health {
        match plan::need(service, &self.routing, facts.is_owned) {
            Need::Paused => {
                Health::new(Level::Warning, "Paused", pause::message(&service.annotations, service.deleting).1)
            }
            Need::Unmanaged(_) => {
                let message = "An annotation excludes the load balancer from management: nothing is read or changed in the cloud.";
                named_ok("Unmanaged", message)
            }
            Need::Nothing => self.health_of_others(service),
            Need::Cleanup => self
                .blocked(service, item, facts)
                .unwrap_or_else(|| Health::new(Level::Progressing, "Deleting", "The load balancer is being deleted.")),
            Need::LoadBalancer(cloud) => not_ready(cloud)
                .or_else(|| self.blocked(service, item, facts))
                .or_else(|| unready_condition(service))
                .or_else(|| no_targets(cloud, item, facts))
                .unwrap_or_else(|| settled(cloud, item, facts)),
        }
    }

    /// Health of a Service that this manager does not serve.
    fn health_of_others(&self, service: &Service) -> Health {
        let why = plan::ownership(service, &self.routing);
        let why =
            format!("This manager creates no load balancer for the Service: {}.", why.trim_start_matches("none: "));
        if !service.status.ingress.is_empty() {
            return named_ok("OtherController", &why);
        }
        match (&service.class, self.routing.misspelt_class(service)) {
            (_, Some(_)) => Health::new(Level::Warning, "UnknownLoadBalancerClass", why),
            (None, None) => Health::new(Level::Warning, "NoCloud", why),
            (Some(_), None) => Health::new(Level::Unknown, "OtherController", why),
        }
    }

    /// Health of a Service whose last sync did not reach the desired state.
    fn blocked(&self, service: &Service, item: &document::Service, facts: &Facts) -> Option<Health> {
        let reason = self.metrics.waiting.reason(&service.key()).filter(|reason| reason != PENDING)?;
        if facts.waits_for_lock {
            let message =
                "Another Service is being changed that shares a resource of the cloud with this one. This one is next.";
            return Some(Health::new(Level::Progressing, "WaitingForLock", message));
        }
        if reason == format!("{:?}", ErrorKind::InProgress) {
            let operation =
                facts.pending.as_deref().or(item.work.error.as_deref()).unwrap_or("an operation has not ended");
            let message = format!("The cloud is at work: {}", with_next_try(operation, &item.work));
            return Some(Health::new(Level::Progressing, reason, message));
        }
        let shown = service.condition(LOAD_BALANCER_READY).filter(|now| now.status == "False" && now.reason == reason);
        let message = match (shown, &item.work.error) {
            (Some(condition), _) => condition.message.clone(),
            (None, Some(error)) => with_next_try(error, &item.work),
            (None, None) => "The last sync failed; the Events of the Service show why.".to_owned(),
        };
        Some(Health::new(level_of(&reason), reason, message))
    }
}

impl Facts {
    fn of(service: &Service, state: &ServiceState) -> Facts {
        let targets = state.targets.as_ref();
        Facts {
            is_owned: state.owned.as_ref().is_some_and(|owned| owned.service.uid == service.uid),
            is_changed: state.change.is_open(),
            active_targets: targets.map(|targets| targets.iter().filter(|target| !target.draining).count()),
            is_over_limit: state.excluded.is_over_limit(),
            waits_for_lock: state.history.is_waiting_for_lock(),
            pending: state.history.observed().and_then(|observed| observed.pending.clone()),
        }
    }
}

fn fill_state(item: &mut document::Service, state: &ServiceState) {
    let targets = state.targets.clone().unwrap_or_default();
    (item.targets, item.target_count) = (first_targets(&targets), targets.len());
    item.left_out = (!state.excluded.is_empty()).then(|| text(state.excluded.to_string()));
    item.load_balancer = state.history.name().map(str::to_owned);
    item.plan = state.history.plan().cloned();
    item.observed = state.history.observed().cloned();
}

fn first_targets(targets: &TargetSet) -> Vec<Target> {
    let item = |target: &bowline_core::TargetNode| Target { node: target.node.to_string(), draining: target.draining };
    targets.iter().take(MAX_TARGETS).map(item).collect()
}

/// Severity of a failure with this reason: an operator has to act, or it may end by itself.
fn level_of(reason: &str) -> Level {
    let transient = [ErrorKind::RateLimited, ErrorKind::Unavailable, ErrorKind::Conflict, ErrorKind::Unexpected];
    let is_transient = reason == "ApiServer" || transient.iter().any(|kind| reason == format!("{kind:?}"));
    if is_transient { Level::Warning } else { Level::Error }
}

fn named_ok(reason: &str, message: &str) -> Health {
    Health { reason: reason.to_owned(), message: text(message), ..Health::ok() }
}

/// Health of a Service whose cloud has not started.
fn not_ready(cloud: &Cloud) -> Option<Health> {
    let error = cloud.component().health().err()?;
    Some(Health::new(Level::Error, "CloudNotReady", error))
}

/// Health of a Service whose condition says that the load balancer does not work.
fn unready_condition(service: &Service) -> Option<Health> {
    let Condition { reason, message, .. } =
        service.condition(LOAD_BALANCER_READY).filter(|condition| condition.status == "False")?;
    Some(Health::new(Level::Warning, reason, message))
}

/// Health of a Service whose load balancer forwards no traffic.
fn no_targets(cloud: &Cloud, item: &document::Service, facts: &Facts) -> Option<Health> {
    if facts.active_targets? > 0 {
        return None;
    }
    let why = match &item.left_out {
        Some(left_out) => format!("Nodes left out: {left_out}"),
        None => format!("the cloud {} has no Nodes", cloud.name()),
    };
    let message = format!("The load balancer has no targets, so that no traffic arrives. No Node can be one; {why}.");
    Some(Health::new(Level::Warning, "NoTargets", message))
}

/// Health of a Service that nothing prevents from working.
fn settled(cloud: &Cloud, item: &document::Service, facts: &Facts) -> Health {
    let has_address = !item.addresses.is_empty();
    let progressing = |reason: &str, message: &str| Health::new(Level::Progressing, reason, message);
    match item.work.state {
        _ if has_address && facts.is_over_limit => {
            let left_out = item.left_out.as_deref().unwrap_or_default();
            Health::new(Level::Warning, "NodesLeftOut", format!("Nodes left out of the load balancer: {left_out}"))
        }
        _ if has_address && !facts.is_changed => Health::ok(),
        WorkState::InWork => progressing("Syncing", "A worker brings the load balancer to the desired state."),
        WorkState::Waiting => progressing("Queued", "The Service waits for a worker."),
        _ if cloud.layers().is_dry_run() => {
            Health::new(Level::Warning, "DryRun", "The manager runs with --dry-run: its plan is not applied.")
        }
        WorkState::Delayed => progressing("Delayed", "The Service is synced again later."),
        WorkState::Idle if has_address => Health::ok(),
        WorkState::Idle => progressing("Pending", "The Service has not been synced yet."),
    }
}
