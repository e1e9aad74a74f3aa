//! Plans: what is going to be done, as a value. It can be printed, compared, counted, and applied or not.
//!
//! A [`Plan`] is an ordered list of steps. A step says what it does in words that every cloud shares (create this, change
//! these fields from this to that, delete this) and carries, beside that, a `payload` of a type of the provider that made it.
//! Outside the provider that type is erased ([`Opaque`]), so a dry run, a log line and `bowline plan` need not know any cloud.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ErrorKind, Opaque, Retry};

/// Steps, to be applied in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<C = Opaque> {
    /// Nothing means that everything is as it should be, unless there are problems.
    pub steps: Vec<Step<C>>,
    /// Warnings for the owner although nothing is wrong with the plan: a setting that is passed over, a detour that was
    /// taken.
    pub warnings: Vec<Warning>,
    /// What cannot be had. The sync fails with the first of them, after all steps were applied.
    pub errors: Vec<PlanError>,
    /// Names of the things that the steps write and that another object may use, too: a load balancer that several Services
    /// share. Plans with a common lock are not applied at the same time.
    pub locks: BTreeSet<String>,
}

/// A part of the desired state that cannot be reached, and that does not keep the rest of the plan from being applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// The kind of thing that is missing or wrong, in the cloud's own word: `floating IP`.
    pub subject: String,
    /// The kind of the error that the sync fails with.
    pub kind: ErrorKind,
    /// When trying again makes sense.
    pub retry: Retry,
    /// The operation that the error names.
    pub operation: String,
    /// The cause, and what to do about it.
    pub message: String,
}

/// A warning for whoever owns what is planned: it becomes an Event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Why, as a CamelCase word.
    pub reason: String,
    /// What, and what to do about it, in a sentence.
    pub message: String,
}

/// One change of one thing: at most one writing call to the cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<C = Opaque> {
    /// What happens to it.
    pub verb: Verb,
    /// What kind of thing, in the cloud's own word: `listener`, `floating IP`.
    pub kind: String,
    /// Which one, by name or, if it has none, by ID.
    pub name: String,
    /// What changes, for people. For a creation: the fields that matter.
    pub changes: Vec<FieldChange>,
    /// The plan goes on if the cloud refuses this step: the reason of the warning that is emitted then.
    pub dispensable: Option<String>,
    /// No operation that an earlier step of the plan has started needs to end before this step.
    pub independent: bool,
    /// For a creation: the cloud refuses a second thing of its kind, so it may be tried again although the outcome of an
    /// earlier attempt is unknown.
    pub repeatable: bool,
    /// What the provider needs to apply it.
    pub payload: C,
}

/// What happens to a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// It is made.
    Create,
    /// It is changed in place.
    Update,
    /// It is removed.
    Delete,
}

/// A field and its values before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The field.
    pub field: String,
    /// Its value now; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its value then; `None` if it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl<C> Plan<C> {
    /// A plan of these steps alone.
    pub fn of(steps: Vec<Step<C>>) -> Plan<C> {
        Plan { steps, ..Plan::default() }
    }

    /// Nothing is to be done, and nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.errors.is_empty()
    }
}

impl<C> Default for Plan<C> {
    fn default() -> Plan<C> {
        Plan { steps: Vec::new(), warnings: Vec::new(), errors: Vec::new(), locks: BTreeSet::new() }
    }
}

impl<C> Step<C> {
    /// A step that the plan cannot go on without.
    pub fn new(
        verb: Verb,
        kind: impl Into<String>,
        name: impl Into<String>,
        changes: Vec<FieldChange>,
        payload: C,
    ) -> Step<C> {
        let (kind, name) = (kind.into(), name.into());
        Step { verb, kind, name, changes, dispensable: None, independent: false, repeatable: false, payload }
    }

    /// The same step with its payload made into another.
    pub fn map<D>(self, into: impl FnOnce(C) -> D) -> Step<D> {
        let Step { verb, kind, name, changes, dispensable, independent, repeatable, payload } = self;
        Step { verb, kind, name, changes, dispensable, independent, repeatable, payload: into(payload) }
    }
}

impl<C> fmt::Display for Plan<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing to do");
        }
        let steps = self.steps.iter().map(ToString::to_string);
        let lines: Vec<_> = steps.chain(self.errors.iter().map(ToString::to_string)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: not possible: {}", self.subject, self.message)
    }
}

impl<C> fmt::Display for Step<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb, self.kind, self.name)?;
        for change in &self.changes {
            write!(f, "\n    {change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Delete => "delete",
        })
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.from, &self.to) {
            (None, Some(to)) => write!(f, "{}: {to}", self.field),
            (Some(from), None) => write!(f, "{}: {from} (removed)", self.field),
            (Some(from), Some(to)) => write!(f, "{}: {from} -> {to}", self.field),
            (None, None) => write!(f, "{}", self.field),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(from: Option<&str>, to: Option<&str>) -> FieldChange {
        FieldChange { field: "size".to_owned(), from: from.map(str::to_owned), to: to.map(str::to_owned) }
    }

    fn step(verb: Verb, name: &str, changes: Vec<FieldChange>) -> Step {
        Step::new(verb, "listener", name, changes, Opaque::default())
    }

    #[test]
    fn a_plan_prints_its_steps_in_order_with_what_changes_below_each_and_then_its_problems() {
        let problem = PlanError {
            subject: "floating IP".to_owned(),
            kind: ErrorKind::NotFound,
            retry: Retry::Backoff,
            operation: "plan".to_owned(),
            message: "no network".to_owned(),
        };
        let plan = Plan {
            steps: vec![
                step(Verb::Create, "a", vec![change(None, Some("1"))]),
                step(Verb::Update, "b", vec![change(Some("1"), Some("2")), change(Some("2"), None)]),
                step(Verb::Delete, "c", vec![]),
            ],
            warnings: Vec::new(),
            errors: vec![problem.clone()],
            locks: BTreeSet::new(),
        };
        let expected = "create listener a
    size: 1
update listener b
    size: 1 -> 2
    size: 2 (removed)
delete listener c
floating IP: not possible: no network";
        assert_eq!(plan.to_string(), expected);
        let plan: Plan = Plan { errors: vec![problem], ..Plan::default() };
        assert!(!plan.is_empty());
        assert_eq!(plan.to_string(), "floating IP: not possible: no network");
    }

    #[test]
    fn a_plan_without_steps_says_so() {
        let plan: Plan = Plan::default();
        assert!(plan.is_empty());
        assert_eq!(plan.to_string(), "nothing to do");
    }
}
