//! Plans under construction.

use bowline_core::{FieldChange, Plan, PlanError, Step, Verb, Warning};

use serde_json::Value;

use super::super::change::{BalancerRef, Change, Payload, TagChange};
use crate::api::Resource;
use crate::session::Service;

/// A plan under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Load balancer of the steps.
    pub(super) balancer: Option<BalancerRef>,
    /// Load balancers that the previous steps write to.
    written: Vec<BalancerRef>,
    plan: Plan<Payload>,
}

impl Draft {
    /// Adds a step that changes the load balancer or a part of it, and so waits until it is ACTIVE.
    pub(super) fn octavia(&mut self, verb: Verb, kind: &str, name: &str, changes: Vec<FieldChange>, change: Change) {
        let balancer = self.balancer.clone();
        self.push(balancer, verb, kind, name, changes, change);
    }

    /// Adds a step that updates a resource by its ID.
    pub(super) fn update(&mut self, resource: Resource, id: &str, name: &str, changes: Vec<FieldChange>, body: Value) {
        self.update_tagged(resource, id, name, changes, body, TagChange::default());
    }

    /// Adds a step that updates a resource by its ID and changes its tags.
    pub(super) fn update_tagged(
        &mut self,
        resource: Resource,
        id: &str,
        name: &str,
        changes: Vec<FieldChange>,
        body: Value,
        tags: TagChange,
    ) {
        let change = Change::Update { resource, id: id.to_owned(), body, tags };
        self.push(self.balancer_of(resource), Verb::Update, resource.name, name, changes, change);
    }

    /// Adds a step that deletes a resource by its ID.
    pub(super) fn delete(&mut self, resource: Resource, id: &str, name: &str, changes: Vec<FieldChange>) {
        let change = Change::Delete { resource, id: id.to_owned() };
        self.push(self.balancer_of(resource), Verb::Delete, resource.name, name, changes, change);
    }

    fn balancer_of(&self, resource: Resource) -> Option<BalancerRef> {
        self.balancer.clone().filter(|_| resource.service == Service::LoadBalancer)
    }

    /// Adds a step that waits for this load balancer, if any.
    pub(super) fn push(
        &mut self,
        balancer: Option<BalancerRef>,
        verb: Verb,
        kind: &str,
        name: &str,
        changes: Vec<FieldChange>,
        change: Change,
    ) {
        let creates = matches!(change, Change::CreateLoadBalancer { .. }).then(|| BalancerRef::Name(name.to_owned()));
        let is_first = !balancer.iter().any(|balancer| self.written.contains(balancer));
        self.written.extend(balancer.iter().filter(|_| !change.needs_vip()).cloned().chain(creates));
        // Octavia and Neutron do not enforce unique names of these. All other duplicates are rejected.
        let repeatable = !matches!(change, Change::CreateLoadBalancer { .. } | Change::CreateSecurityGroup { .. });
        let step = Step::new(verb, kind, name, changes, Payload { balancer, is_first, change });
        self.plan.steps.push(Step { independent: is_first, repeatable, ..step });
    }

    /// Fails the sync with these errors once all steps are applied.
    pub(super) fn fail(&mut self, errors: impl IntoIterator<Item = PlanError>) {
        self.plan.errors.extend(errors);
    }

    /// Returns whether the sync fails once all steps are applied.
    pub(super) fn fails(&self) -> bool {
        !self.plan.errors.is_empty()
    }

    /// Turns a rejection of the last step into a warning with this reason.
    pub(super) fn mark_best_effort(&mut self, reason: &str) {
        if let Some(step) = self.plan.steps.last_mut() {
            step.best_effort = Some(reason.to_owned());
        }
    }

    /// Adds warnings for the owner of the Service.
    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        self.plan.warnings.extend(warnings);
    }

    pub(super) fn into_plan(self) -> Plan<Payload> {
        self.plan
    }
}

/// A changed field, for the printed plan.
pub(super) fn field(name: &str, from: Option<String>, to: Option<String>) -> FieldChange {
    FieldChange { field: name.to_owned(), from, to }
}
