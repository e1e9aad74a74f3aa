//! Reports of a sync: Events with upstream's reasons and messages, the condition, metrics and log lines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_cloud::{Cloud, ErrorKind, SyncPurpose};
use bowline_core::annotations::UnknownAnnotation;
use bowline_core::service::{self, ExcludedNodes, PORTS_FAILED, ServiceChange};
use bowline_core::{Ingress, LoadBalancerStatus, Service, ServiceKey, TargetNode, TargetSet, Warning};
use bowline_kube::{EventType, ObjectRef};
use bowline_runtime::{Buckets, Metric, metrics};
use prometheus::{Histogram, IntCounter, IntCounterVec, Registry};

use super::apply::Outcome;
use super::error::{Action, Cause, SyncError};
use super::plan::Execution;
use super::state::Reported;
use super::sync::ServiceSync;
use super::{COMPONENT, Shared, Trigger};
use crate::backlog::{Backlog, LABELS};
use crate::reports::LastReport;
use crate::{pause, spans};

/// Maximum number of Nodes that an Event or a log line names.
const MAX_NAMES: usize = 20;

/// Pause between two Events about Nodes that are excluded from one load balancer.
const EXCLUDED_NODES_PAUSE: Duration = Duration::from_secs(300);

/// Seconds.
// upstream: fifteen powers of two from one.
const SECONDS: Buckets = Buckets::Exponential { first: 1.0, factor: 2.0, count: 15 };

/// Seconds: a load balancer is ready at once, or takes a cloud some minutes.
const WAITS: Buckets = Buckets::Listed(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0]);

metrics! {
    /// Metrics of the controller.
    pub METRICS;
    NODE_UPDATES = Metric::counter(
        "service_controller_loadbalancer_sync_total",
        "A metric counting the amount of times any load balancer has been configured, as an effect of service/node changes \
         on the cluster",
    );
    NODE_UPDATE_ERRORS = Metric::counter(
        "service_controller_nodesync_error_total",
        "A metric counting the amount of times any load balancer has been configured and errored, as an effect of node \
         changes on the cluster",
    );
    NODE_SYNC_LATENCY = Metric::histogram(
        "service_controller_nodesync_latency_seconds",
        "A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node updates.",
        SECONDS,
    );
    NODE_UPDATE_LATENCY = Metric::histogram(
        "service_controller_update_loadbalancer_host_latency_seconds",
        "A metric measuring the latency for updating each load balancer hosts.",
        SECONDS,
    );
    ADDRESS_DELAY = Metric::histogram(
        "bowline_service_address_delay_seconds",
        "Time from the creation of a Service until its address was written.",
        SECONDS,
    );
    SEEN_TO_ADDRESS = Metric::histogram(
        "bowline_service_seen_to_address_seconds",
        "Time from when this process first saw a Service of type LoadBalancer until its address was written.",
        WAITS,
    );
    WAITING = Metric::gauge(
        "bowline_services_waiting",
        "Services whose load balancer is not in the desired state yet, by cloud and reason, or Pending.",
    ).labels(LABELS);
    WAITING_OLDEST = Metric::gauge(
        "bowline_services_waiting_oldest_seconds",
        "Time for which the Service that waits longest has waited, by cloud and reason.",
    ).labels(LABELS);
    ENSURES = Metric::counter(
        "bowline_load_balancer_ensures_total",
        "Creations and changes of a load balancer for other reasons than its Nodes, by result.",
    ).labels(&["result"]);
    PASSES = Metric::counter("bowline_load_balancer_passes_total", "Syncs of a load balancer, by outcome.")
        .labels(&["outcome"]);
}

/// The controller's metrics: upstream's by their names, and ours.
pub(super) struct Metrics {
    /// Updates of a load balancer because of Nodes.
    node_updates: IntCounter,
    node_update_errors: IntCounter,
    /// Time until all load balancers were updated because of Nodes.
    node_sync_latency: Histogram,
    /// Time of one of those updates.
    node_update_latency: Histogram,
    /// Time from the creation of a Service to its address.
    address_delay: Histogram,
    /// The same from when this process first saw the Service.
    seen_to_address: Histogram,
    /// Changes of a load balancer for other reasons than Nodes.
    ensures: IntCounterVec,
    /// Syncs by outcome.
    passes: IntCounterVec,
    /// Services whose load balancer is not as desired yet. Prometheus reads it at any time, so that it has a map of its own.
    pub(super) waiting: Backlog<ServiceKey>,
}

impl Metrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Metrics> {
        Ok(Metrics {
            node_updates: NODE_UPDATES.register(registry)?,
            node_update_errors: NODE_UPDATE_ERRORS.register(registry)?,
            node_sync_latency: NODE_SYNC_LATENCY.register(registry)?,
            node_update_latency: NODE_UPDATE_LATENCY.register(registry)?,
            address_delay: ADDRESS_DELAY.register(registry)?,
            seen_to_address: SEEN_TO_ADDRESS.register(registry)?,
            ensures: ENSURES.register(registry)?,
            passes: PASSES.register(registry)?,
            waiting: Backlog::register(registry, &WAITING, &WAITING_OLDEST)?,
        })
    }
}

// ---- metrics

impl Shared {
    /// Reports how a sync ended.
    pub(super) fn report_outcome(&self, outcome: &'static str) {
        self.metrics.passes.with_label_values(&[outcome]).inc();
        spans::ended(outcome);
    }

    /// Reports that a sync ended with this error.
    pub(super) fn report_error_outcome(&self, error: &SyncError) {
        match error {
            error if error.is_kind(ErrorKind::Cancelled) => self.report_outcome("cancelled"),
            error if error.is_benign() => self.report_outcome("in_progress"),
            error if error.is_service_gone() => self.report_outcome("gone"),
            error => {
                self.metrics.passes.with_label_values(&["failure"]).inc();
                spans::failed("failure", error);
            }
        }
    }

    /// Counts the Service as waiting for this reason, as long as it exists.
    pub(super) fn report_blocked(&self, key: &ServiceKey, reason: &str) {
        let service = self.context.services.get(&key.to_string());
        match service.as_ref().and_then(|service| self.routing.cloud(service)) {
            Some(cloud) => self.metrics.waiting.block(key.clone(), cloud.name(), reason),
            None => self.metrics.waiting.remove(key),
        }
    }

    /// Reports that this load balancer was updated because of Nodes, or failed to be (SVC-27).
    pub(super) fn report_node_sync(&self, key: &ServiceKey) {
        if let Some(took) = self.states.end_node_sync(key) {
            self.metrics.node_sync_latency.observe(took.as_secs_f64());
        }
    }

    /// Counts a change of a load balancer.
    pub(super) fn count_update(&self, trigger: Trigger, took: Duration, failed: bool) {
        match trigger {
            Trigger::Nodes => {
                self.metrics.node_updates.inc();
                self.metrics.node_update_latency.observe(took.as_secs_f64());
                self.metrics.node_update_errors.inc_by(failed.into());
            }
            Trigger::UserChange | Trigger::Drift => {
                self.metrics.ensures.with_label_values(&[if failed { "failure" } else { "success" }]).inc();
            }
        }
    }

    /// Reports that a Service has its address.
    pub(super) fn report_address(&self, service: &Service) {
        if let Some(created) = service.created {
            let waited = self.context.clock.now().duration_since(created).as_secs_f64().max(0.0);
            self.metrics.address_delay.observe(waited);
        }
        if let Some(waited) = self.states.existing(&service.key(), |state| state.change.age()).flatten() {
            self.metrics.seen_to_address.observe(waited.as_secs_f64());
        }
    }
}

/// Counts a sync that has ended. One that waits for the cloud has not, and one that a dry run withholds never began.
pub(super) fn count_sync(execution: &Execution, purpose: SyncPurpose, result: Result<&Outcome, Option<ErrorKind>>) {
    let failed = match result {
        Ok(outcome) if outcome.withheld || outcome.waiting => return,
        Ok(_) => false,
        Err(Some(ErrorKind::InProgress | ErrorKind::Cancelled | ErrorKind::ImplementedElsewhere)) => return,
        Err(_) => true,
    };
    execution.cloud().layers().record_sync(purpose, execution.elapsed(), failed);
}

/// Logs the number of targets that are added and removed, and the first of their names for debugging.
pub(super) fn log_target_changes(before: &TargetSet, targets: &TargetSet) {
    let changes = targets.changes_from(before);
    if changes.is_empty() {
        return;
    }
    let (added, removed, changed) = (changes.added.len(), changes.removed.len(), changes.changed.len());
    tracing::info!(added, removed, changed, total = targets.len(), "the targets of the load balancer change");
    let names =
        |nodes: &[&TargetNode]| nodes.iter().take(MAX_NAMES).map(|target| target.node.clone()).collect::<Vec<_>>();
    tracing::debug!(added = ?names(&changes.added), removed = ?names(&changes.removed), "first targets that change");
}

// ---- Events

impl Shared {
    /// Reports that work on a new or changed Service begins. Once, however many retries there are.
    pub(super) fn report_ensuring(&self, service: &Service) {
        let is_new = self.states.existing(&service.key(), |state| state.change.is_open() && state.change.announce());
        if is_new == Some(true) {
            self.event(service, EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
        }
    }

    /// Reports that the load balancer is as desired.
    pub(super) fn report_ensured(&self, service: &Service, trigger: Trigger, changed: bool, targets: &TargetSet) {
        match trigger {
            Trigger::Nodes if changed && !targets.is_empty() => {
                self.event(service, EventType::Normal, "UpdatedLoadBalancer", "Updated load balancer with new hosts");
            }
            Trigger::UserChange => {
                self.event(service, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer")
            }
            Trigger::Drift if changed => {
                self.event(service, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
            }
            Trigger::Nodes | Trigger::Drift => {}
        }
    }

    pub(super) fn report_deleting(&self, service: &Service) {
        if self.states.update(&service.key(), |state| state.change.announce()) {
            self.event(service, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
        }
    }

    pub(super) fn report_deleted(&self, service: &Service) {
        self.event(service, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
    }

    /// Reports that the load balancer of a Service that is gone could not be deleted (SVC-10).
    pub(super) fn report_delete_failure(&self, service: &Service, error: &SyncError) {
        if !error.is_benign() {
            let message = format!("Error deleting load balancer: {}", error.cause);
            self.event(service, EventType::Warning, "DeleteLoadBalancerFailed", &message);
        }
    }

    /// Reports unknown annotations: they block nothing, but the user meant something by them.
    pub(super) fn report_unknown_annotations(&self, service: &Service, unknown: &[UnknownAnnotation]) {
        let messages: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        let cause = (!messages.is_empty()).then(|| messages.join("\n"));
        if self.is_new_report(service, cause.as_deref(), |reported| &mut reported.unknown_annotations) {
            messages.iter().for_each(|text| self.event(service, EventType::Warning, "UnknownAnnotation", text));
        }
    }

    /// Reports a load balancer without targets, which is created all the same (SVC-13).
    pub(super) fn report_no_targets(&self, service: &Service, targets: &TargetSet) {
        let has_targets = targets.iter().any(|target| !target.draining);
        if !has_targets {
            self.lacks_targets.store(true, Ordering::Relaxed);
        }
        if self.is_new_report(service, (!has_targets).then_some(""), |reported| &mut reported.no_targets) {
            let message = "There are no available nodes for LoadBalancer";
            self.event(service, EventType::Warning, "UnAvailableLoadBalancer", message);
        }
    }

    /// Reports failed ports of a load balancer that is as desired.
    pub(super) fn report_failed_ports(&self, service: &Service, failed_ports: &[String]) {
        let message = (!failed_ports.is_empty()).then(|| service::failed_ports_message(failed_ports));
        if self.is_new_report(service, message.as_deref(), |reported| &mut reported.failed_ports) {
            self.event(service, EventType::Warning, PORTS_FAILED, &message.unwrap_or_default());
        }
    }

    /// Reports Nodes that are not targets: once as long as they are the same, and not for each Node of many that join.
    pub(super) fn report_excluded_nodes(&self, service: &Service, excluded: &ExcludedNodes) {
        let key = service.key();
        if excluded.is_empty() {
            self.states.existing(&key, |state| state.reported.excluded_nodes.clear_after(EXCLUDED_NODES_PAUSE));
            return;
        }
        let message = format!("Nodes left out of the load balancer: {excluded}");
        let is_new = self.states.update(&key, |state| {
            state.reported.excluded_nodes.is_new_after(&service.uid, &message, EXCLUDED_NODES_PAUSE)
        });
        if is_new {
            let kind = if excluded.is_over_limit() { EventType::Warning } else { EventType::Normal };
            self.event(service, kind, "NodesLeftOut", &message);
        }
    }

    /// Reports a Service that an operator has paused.
    pub(super) fn report_pause(&self, service: &Service) {
        let (kind, message) = pause::message(&service.annotations, service.deleting);
        if self.is_new_report(service, Some(&message), |reported| &mut reported.paused) {
            self.event(service, kind, "Paused", &message);
        }
    }

    /// Reports that another controller has written the status of a Service.
    pub(super) fn report_overwritten(&self, service: &Service, desired: &LoadBalancerStatus) {
        let message = format!(
            "Another controller wrote {} to status.loadBalancer; corrected to {}. Let only one controller write it: give the Service a \
             load balancer class that only one of them serves.",
            addresses(&service.status),
            addresses(desired)
        );
        self.event(service, EventType::Warning, "StatusOverwritten", &message);
    }

    /// Reports the warnings of the cloud's plan, each once as long as the plan has it.
    pub(super) fn report_warnings(&self, cloud: &Cloud, service: &Service, warnings: Option<&[Warning]>) {
        let Some(warnings) = warnings else { return };
        let object = ObjectRef::service(service).at(&service.resource_version);
        let events = self.context.events.source(cloud.layers().event_component().unwrap_or(COMPONENT));
        for Warning { reason, message } in self.states.update(&service.key(), |state| state.new_warnings(warnings)) {
            events.emit(&object, EventType::Warning, reason, message);
        }
    }

    // ---- failures

    /// Reports an error of a sync: in the condition, and in an Event unless it is no failure or was reported already.
    pub(super) async fn report_failure(
        &self,
        sync: &ServiceSync<'_>,
        service: &Arc<Service>,
        error: &SyncError,
        delay: Option<Duration>,
    ) {
        let mut message = error.message();
        let unsaved = self.write_failure(sync, service, error, delay).await;
        if let Some(unsaved) = &unsaved {
            message = format!("{message}; {unsaved}");
        }
        if error.is_benign() && unsaved.is_none() {
            tracing::debug!(reason = message, "the load balancer is not ready yet");
        } else if delay.is_some() || self.is_new_report(service, Some(&message), |reported| &mut reported.failure) {
            self.report_sync_error(service, error, &message);
        }
    }

    /// Writes the condition and the annotations of the cloud. Events carry the message of the condition as well, so that a failure
    /// to write it is no further error; a lost annotation is one.
    async fn write_failure(
        &self,
        sync: &ServiceSync<'_>,
        service: &Arc<Service>,
        error: &SyncError,
        delay: Option<Duration>,
    ) -> Option<SyncError> {
        // An API server that rejects the one write would reject the other.
        if matches!(error.cause, Cause::ApiServer(_)) {
            return None;
        }
        let service = self.states.latest(sync.key, service.clone());
        let condition = error.condition(delay, self.context.clock.now());
        let change = match error.is_shown_by(&service) {
            true => ServiceChange::default(),
            false => ServiceChange::default().with_condition(&service, condition),
        };
        let change = change.with_annotations(&service, &self.open_annotations(sync.key));
        let Err(error) = sync.write(&service, &change, Action::UpdateStatus).await else {
            self.clear_annotations(sync.key);
            return None;
        };
        tracing::debug!(%error, "the condition cannot be written");
        Some(error).filter(|_| !change.annotations.is_empty())
    }

    // upstream: the reason and the message of an update because of Nodes are others (SVC-26).
    fn report_sync_error(&self, service: &Service, error: &SyncError, message: &str) {
        if error.action != Action::UpdateTargets {
            let message = format!("Error syncing load balancer: {message}");
            return self.event(service, EventType::Warning, "SyncLoadBalancerFailed", &message);
        }
        let targets = self.last_targets(&service.key()).unwrap_or_default();
        let message = format!(
            "Error updating load balancer with new hosts {} [node names limited, total number of nodes: {}], error: {}",
            names(&targets),
            targets.len(),
            error.cause
        );
        self.event(service, EventType::Warning, "UpdateLoadBalancerFailed", &message);
    }

    /// Whether this cause, if there is one, is new in this report; without one the report is forgotten.
    fn is_new_report(
        &self,
        service: &Service,
        cause: Option<&str>,
        report: impl FnOnce(&mut Reported) -> &mut LastReport,
    ) -> bool {
        let key = service.key();
        let Some(cause) = cause else {
            self.states.existing(&key, |state| report(&mut state.reported).clear());
            return false;
        };
        self.states.update(&key, |state| report(&mut state.reported).is_new(&service.uid, cause))
    }

    fn event(&self, service: &Service, kind: EventType, reason: &'static str, message: &str) {
        self.events.emit(&ObjectRef::service(service).at(&service.resource_version), kind, reason, message);
    }
}

/// The addresses in a status, separated by commas.
fn addresses(status: &LoadBalancerStatus) -> String {
    let address = |ingress: &Ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()).unwrap_or_default();
    let addresses: Vec<String> = status.ingress.iter().map(address).collect();
    if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") }
}

/// The first names, sorted, and the number of the others, as Go prints a list.
fn names(targets: &TargetSet) -> String {
    let mut names: Vec<String> = targets.iter().take(MAX_NAMES).map(|target| target.node.to_string()).collect();
    if targets.len() > MAX_NAMES {
        names.push(format!("<{} more>", targets.len() - MAX_NAMES));
    }
    format!("[{}]", names.join(" "))
}
