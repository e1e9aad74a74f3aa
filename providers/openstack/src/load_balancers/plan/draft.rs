//! Steps under construction.

use bowline_core::{FieldChange, Plan, PlanError, Step, Verb, Warning};

use serde_json::Value;

use super::super::change::{BalancerRef, Change, Payload};
use crate::api::Resource;
use crate::session::Service;

/// A plan under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The balancer of steps that are about one.
    pub(super) balancer: Option<BalancerRef>,
    /// Load balancers that the steps so far write to.
    written: Vec<BalancerRef>,
    plan: Plan<Payload>,
}

impl Draft {
    /// A step that changes the balancer or something of it, and so waits until that is at rest.
    pub(super) fn octavia(&mut self, verb: Verb, kind: &str, name: &str, changes: Vec<FieldChange>, change: Change) {
        let balancer = self.balancer.clone();
        self.push(balancer, verb, kind, name, changes, change);
    }

    /// A step that updates a resource by its ID.
    pub(super) fn update(&mut self, resource: Resource, id: &str, name: &str, changes: Vec<FieldChange>, body: Value) {
        let change = Change::Update { resource, id: id.to_owned(), body };
        self.push(self.balancer_of(resource), Verb::Update, resource.name, name, changes, change);
    }

    /// A step that deletes a resource by its ID.
    pub(super) fn delete(&mut self, resource: Resource, id: &str, name: &str, changes: Vec<FieldChange>) {
        let change = Change::Delete { resource, id: id.to_owned() };
        self.push(self.balancer_of(resource), Verb::Delete, resource.name, name, changes, change);
    }

    fn balancer_of(&self, resource: Resource) -> Option<BalancerRef> {
        self.balancer.clone().filter(|_| resource.service == Service::LoadBalancer)
    }

    /// A step that waits for this balancer, if for any.
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
        // Octavia and Neutron create any number of these with one name. They refuse a second one of all others.
        let repeatable = !matches!(change, Change::CreateLoadBalancer { .. } | Change::CreateSecurityGroup { .. });
        let step = Step::new(verb, kind, name, changes, Payload { balancer, is_first, change });
        self.plan.steps.push(Step { independent: is_first, repeatable, ..step });
    }

    /// Fails the sync with these once all steps are applied.
    pub(super) fn fail(&mut self, errors: impl IntoIterator<Item = PlanError>) {
        self.plan.errors.extend(errors);
    }

    /// The sync fails once all steps so far are applied.
    pub(super) fn fails(&self) -> bool {
        !self.plan.errors.is_empty()
    }

    /// The last step may be refused; then this is why there is a warning.
    pub(super) fn is_dispensable(&mut self, reason: &str) {
        if let Some(step) = self.plan.steps.last_mut() {
            step.dispensable = Some(reason.to_owned());
        }
    }

    /// What the owner of the Service should know.
    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        self.plan.warnings.extend(warnings);
    }

    pub(super) fn into_plan(self) -> Plan<Payload> {
        self.plan
    }
}

/// What changes, for people.
pub(super) fn field(name: &str, from: Option<String>, to: Option<String>) -> FieldChange {
    FieldChange { field: name.to_owned(), from, to }
}
