//! What people are told: Events and our condition, in the words that upstream has for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_cloud::Cloud;
use bowline_core::annotations::Unknown;
use bowline_core::service::{LeftOut, ServiceChange};
use bowline_core::{Ingress, LoadBalancerStatus, Service, ServiceKey, TargetSet, Warning};
use bowline_kube::{EventType, ObjectRef};

use super::condition;
use super::pass::Pass;
use super::trouble::{Cause, Task, Trouble};
use super::{COMPONENT, Reason, Shared};

/// Maximum number of nodes that an Event or a log line names.
pub(super) const NAMES: usize = 20;

/// Pause between two Events about Nodes that are left out of one load balancer.
const LEFT_OUT_PAUSE: Duration = Duration::from_secs(300);

impl Shared {
    /// Why there may be something to do in this pass.
    pub(super) fn reason(&self, key: &ServiceKey, before: Option<&TargetSet>, targets: &TargetSet) -> Reason {
        if self.memory.is_news(key) {
            Reason::News
        } else if before.is_some_and(|before| before != targets) {
            Reason::Nodes
        } else {
            Reason::Drift
        }
    }

    /// Work on a new or changed Service begins. Told once, however many tries there are.
    pub(super) fn announce(&self, service: &Service) {
        let key = service.key();
        if self.memory.is_news(&key) && self.memory.announce(&key) {
            self.event(service, EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
        }
    }

    /// The balancer is as wanted.
    pub(super) fn tell_ensured(&self, service: &Service, reason: Reason, changed: bool, targets: &TargetSet) {
        match reason {
            Reason::Nodes if changed && !targets.is_empty() => {
                self.event(service, EventType::Normal, "UpdatedLoadBalancer", "Updated load balancer with new hosts");
            }
            Reason::News => self.event(service, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer"),
            Reason::Drift if changed => {
                self.event(service, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
            }
            Reason::Nodes | Reason::Drift => {}
        }
    }

    /// Counts what a pass has done to a balancer.
    pub(super) fn count(&self, reason: Reason, took: Duration, failed: bool) {
        match reason {
            Reason::Nodes => self.metrics.node_update(took, failed),
            Reason::News | Reason::Drift => self.metrics.ensured(failed),
        }
    }

    /// A Service has its address.
    pub(super) fn addressed(&self, service: &Service) {
        if let Some(created) = service.created {
            let waited = self.context.clock.now().duration_since(created).as_secs_f64().max(0.0);
            self.metrics.address_delay.observe(waited);
        }
        if let Some(waited) = self.memory.waited(&service.key()) {
            self.metrics.seen_to_address.observe(waited.as_secs_f64());
        }
    }

    pub(super) fn tell_deleting(&self, service: &Service) {
        if self.memory.announce(&service.key()) {
            self.event(service, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
        }
    }

    pub(super) fn tell_deleted(&self, service: &Service) {
        self.event(service, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
    }

    /// The balancer of a Service that is gone cannot be removed (SVC-10).
    pub(super) fn tell_delete_failure(&self, service: &Service, trouble: &Trouble) {
        let message = format!("Error deleting load balancer: {}", trouble.cause);
        self.event(service, EventType::Warning, "DeleteLoadBalancerFailed", &message);
    }

    /// Annotations that mean nothing are in nobody's way, but were meant to be something. Told once.
    pub(super) fn remark_annotations(&self, service: &Service, unknown: &[Unknown]) {
        let key = service.key();
        if unknown.is_empty() {
            return self.remarks.forget(&key);
        }
        let messages: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        if self.remarks.is_news(&key, &service.uid, &messages.join("\n")) {
            messages.iter().for_each(|text| self.event(service, EventType::Warning, "UnknownAnnotation", text));
        }
    }

    /// A balancer without targets is made all the same (SVC-13). Told once.
    pub(super) fn remark_targets(&self, service: &Service, targets: &TargetSet) {
        let key = service.key();
        if targets.iter().any(|target| !target.draining) {
            return self.targetless.forget(&key);
        }
        self.starving.store(true, Ordering::Relaxed);
        if self.targetless.is_news(&key, &service.uid, "") {
            let message = "There are no available nodes for LoadBalancer";
            self.event(service, EventType::Warning, "UnAvailableLoadBalancer", message);
        }
    }

    /// Nodes that are not behind the load balancer. Reported once as long as they are the same, and not for each Node of many that join.
    pub(super) fn report_left_out(&self, service: &Service, left_out: &LeftOut) {
        let key = service.key();
        if left_out.is_empty() {
            return self.left_out.forget_after(&key, LEFT_OUT_PAUSE);
        }
        let message = format!("Nodes left out of the load balancer: {left_out}");
        if self.left_out.is_news_after(&key, &service.uid, &message, LEFT_OUT_PAUSE) {
            let kind = if left_out.is_over_limit() { EventType::Warning } else { EventType::Normal };
            self.event(service, kind, "NodesLeftOut", &message);
        }
    }

    /// An operator has paused the Service.
    pub(super) fn report_pause(&self, service: &Service) {
        let object = ObjectRef::service(service).at(&service.resource_version);
        self.paused.report(&service.key(), &object, &service.annotations, service.deleting, &self.events);
    }

    /// Another controller has written the status of a Service.
    pub(super) fn report_overwritten(&self, service: &Service, wanted: &LoadBalancerStatus) {
        let message = format!(
            "Another controller wrote {} to status.loadBalancer; corrected to {}. Let only one controller write it: give the Service a \
             load balancer class that only one of them serves.",
            addresses(&service.status),
            addresses(wanted)
        );
        self.event(service, EventType::Warning, "StatusOverwritten", &message);
    }

    /// A pass did not get through: an Event, unless nothing is wrong or it was told already, and the condition.
    pub(super) async fn tell_failure(
        &self,
        pass: &Pass<'_>,
        service: &Arc<Service>,
        trouble: &Trouble,
        delay: Option<Duration>,
    ) {
        let mut message = trouble.message();
        let unsaved = self.save_failure(pass, service, trouble, delay).await;
        if let Some(unsaved) = &unsaved {
            message = format!("{message}; {unsaved}");
        }
        if trouble.is_calm() && unsaved.is_none() {
            tracing::debug!(reason = message, "the load balancer is not ready yet");
        } else if delay.is_some() || self.complaints.is_news(pass.key, &service.uid, &message) {
            self.tell_trouble(service, trouble, &message);
        }
    }

    /// Writes the condition, and what the cloud has noted in spite of all. What the condition says is told by Events, too, so
    /// that it cannot be written is no further trouble; that a note is lost is one.
    async fn save_failure(
        &self,
        pass: &Pass<'_>,
        service: &Arc<Service>,
        trouble: &Trouble,
        delay: Option<Duration>,
    ) -> Option<Trouble> {
        // An API server that does not take the one write would not take the other.
        if matches!(trouble.cause, Cause::Cluster(_)) {
            return None;
        }
        let service = self.memory.latest(pass.key, service.clone());
        let condition = condition::blocked(trouble, delay, self.context.clock.now());
        let change = match condition::is_said(&service, trouble) {
            true => ServiceChange::default(),
            false => ServiceChange::default().with_condition(&service, condition),
        };
        let change = change.with_annotations(&service, &self.memory.notes(pass.key));
        let Err(error) = pass.write(&service, &change, Task::UpdateStatus).await else {
            self.memory.forget_notes(pass.key);
            return None;
        };
        tracing::debug!(%error, "the condition cannot be written");
        Some(error).filter(|_| !change.annotations.is_empty())
    }

    /// In upstream's words, which differ for an update because of Nodes (SVC-26).
    fn tell_trouble(&self, service: &Service, trouble: &Trouble, message: &str) {
        if trouble.task != Task::UpdateTargets {
            let message = format!("Error syncing load balancer: {message}");
            return self.event(service, EventType::Warning, "SyncLoadBalancerFailed", &message);
        }
        let targets = self.memory.tried(&service.key()).unwrap_or_default();
        let message = format!(
            "Error updating load balancer with new hosts {} [node names limited, total number of nodes: {}], error: {}",
            names(&targets),
            targets.len(),
            trouble.cause
        );
        self.event(service, EventType::Warning, "UpdateLoadBalancerFailed", &message);
    }

    /// All is made, and yet something does not work. Told once.
    pub(super) fn remark_problems(&self, service: &Service, errors: &[String]) {
        let key = service.key();
        if errors.is_empty() {
            return self.ailing.forget(&key);
        }
        let message = condition::not_all_work(errors);
        if self.ailing.is_news(&key, &service.uid, &message) {
            self.event(service, EventType::Warning, condition::PORTS_FAILED, &message);
        }
    }

    /// What the cloud's plan remarks, each once as long as it goes on remarking it.
    pub(super) fn tell_notices(&self, cloud: &Cloud, service: &Service, warnings: Option<&[Warning]>) {
        let Some(warnings) = warnings else { return };
        let object = ObjectRef::service(service).at(&service.resource_version);
        let events = self.context.events.source(cloud.layers().event_component().unwrap_or(COMPONENT));
        for Warning { reason, message } in self.memory.news_in(&service.key(), warnings) {
            events.emit(&object, EventType::Warning, reason, message);
        }
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

/// The first names, sorted, and how many there are beside them, as Go prints a list.
fn names(targets: &TargetSet) -> String {
    let mut names: Vec<String> = targets.iter().take(NAMES).map(|target| target.node.to_string()).collect();
    if targets.len() > NAMES {
        names.push(format!("<{} more>", targets.len() - NAMES));
    }
    format!("[{}]", names.join(" "))
}
