//! Steps under construction.

use bowline_core::{FieldChange, Notice, Plan, Step, Verb};

use super::super::change::{BalancerRef, Change, Payload};
use super::super::problem::Problem;

/// A plan under construction.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The balancer of steps that are about one.
    pub(super) balancer: Option<BalancerRef>,
    plan: Plan,
}

impl Draft {
    /// A step that changes the balancer or something of it, and so waits until that is at rest.
    pub(super) fn octavia(&mut self, verb: Verb, kind: &str, name: &str, changes: Vec<FieldChange>, change: Change) {
        let balancer = self.balancer.clone();
        self.push(balancer, verb, kind, name, changes, change);
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
        // What this crate wrote down itself can always be written down.
        let payload = serde_json::to_value(Payload { balancer, change }).unwrap_or_default();
        let (kind, name) = (kind.to_owned(), name.to_owned());
        self.plan.steps.push(Step { verb, kind, name, changes, dispensable: None, payload });
    }

    /// A step that fails with this, for what `kind` is and cannot be.
    pub(super) fn refuse(&mut self, kind: &str, problem: Problem) {
        let changes = vec![field("not possible", None, Some(problem.message.clone()))];
        self.push(None, Verb::Update, kind, "(none)", changes, Change::Refuse { problem });
    }

    /// The last step may be refused; then this is why there is a warning.
    pub(super) fn is_dispensable(&mut self, reason: &str) {
        if let Some(step) = self.plan.steps.last_mut() {
            step.dispensable = Some(reason.to_owned());
        }
    }

    /// What the owner of the Service should know.
    pub(super) fn warn(&mut self, notices: impl IntoIterator<Item = Notice>) {
        self.plan.notices.extend(notices);
    }

    pub(super) fn into_plan(self) -> Plan {
        self.plan
    }
}

/// What changes, for people.
pub(super) fn field(name: &str, from: Option<String>, to: Option<String>) -> FieldChange {
    FieldChange { field: name.to_owned(), from, to }
}
