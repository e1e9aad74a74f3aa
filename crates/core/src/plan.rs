//! Plans: the steps from the observed to the desired state, as a value that can be printed, compared, counted and applied.
//!
//! A [`Plan`] is an ordered list of steps. A [`Step`] describes one change in terms that all clouds share (create, update with the
//! old and new values of fields, delete) and has a `payload` in a type of the provider that made the plan. Outside the provider the
//! payload is type-erased ([`Opaque`]), so that a dry run, a log line and `bowline plan` work without knowledge of any cloud.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ErrorKind, Opaque, Retry};

/// Steps from the observed to the desired state, applied in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<C = Opaque> {
    /// Steps to apply. Without steps and errors, the observed state is the desired one.
    pub steps: Vec<Step<C>>,
    /// Warnings for the owner of the object, such as an ignored setting or a fallback. They do not make the sync fail.
    pub warnings: Vec<Warning>,
    /// Parts of the desired state that cannot be reached. The sync fails with the first error after all steps were applied.
    pub errors: Vec<PlanError>,
    /// Names of the cloud resources that the steps write and that other objects may share, such as a load balancer of several
    /// Services. Plans with a common lock are not applied concurrently.
    pub locks: BTreeSet<String>,
}

/// A part of the desired state that cannot be reached. The rest of the plan is still applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// Kind of the resource, in the terms of the cloud: `floating IP`.
    pub subject: String,
    /// Kind of the error that the sync fails with.
    pub kind: ErrorKind,
    /// Retry advice.
    pub retry: Retry,
    /// Operation that the error names.
    pub operation: String,
    /// Cause and remedy.
    pub message: String,
}

/// A warning for the owner of the object, reported as an Event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Reason of the Event, as one CamelCase word.
    pub reason: String,
    /// One sentence with the problem and its remedy.
    pub message: String,
}

/// One change of one resource, with at most one write call to the cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<C = Opaque> {
    /// Kind of the change.
    pub verb: Verb,
    /// Kind of the resource, in the terms of the cloud: `listener`, `floating IP`.
    pub kind: String,
    /// Name of the resource, or its ID if it has no name.
    pub name: String,
    /// Changed fields, for display. For a creation: the most important fields.
    pub changes: Vec<FieldChange>,
    /// Reason of the warning Event if the cloud rejects the step. With a reason, the step is best-effort: the plan continues
    /// without it. `None` if the plan cannot continue without the step.
    pub best_effort: Option<String>,
    /// Whether the step may start while operations of earlier steps are still running.
    pub independent: bool,
    /// For a creation: whether the cloud rejects a duplicate, so that the step may be retried although the outcome of an earlier
    /// attempt is unknown.
    pub repeatable: bool,
    /// Data that the provider needs to apply the step.
    pub payload: C,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// The resource is created.
    Create,
    /// The resource is updated in place.
    Update,
    /// The resource is deleted.
    Delete,
}

/// A field with its old and new value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Name of the field.
    pub field: String,
    /// Old value; `None` if the field is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// New value; `None` if the field is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Collects the fields that differ between the observed and the desired state of a resource.
///
/// ```
/// use bowline_core::FieldChanges;
///
/// let mut changes = FieldChanges::default();
/// changes.compare("port", &80, &80);
/// changes.compare("servers", &vec!["a"], &vec!["a", "b"]);
/// assert_eq!(changes.into_vec()[0].to_string(), "servers: [a] -> [a, b]");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldChanges(Vec<FieldChange>);

impl<C> Plan<C> {
    /// Creates a plan with these steps, without warnings, errors and locks.
    pub fn of(steps: Vec<Step<C>>) -> Plan<C> {
        Plan { steps, ..Plan::default() }
    }

    /// Converts the payloads to another type and keeps everything else.
    pub fn map<D>(self, into: impl Fn(C) -> D) -> Plan<D> {
        let Plan { steps, warnings, errors, locks } = self;
        Plan { steps: steps.into_iter().map(|step| step.map(&into)).collect(), warnings, errors, locks }
    }

    /// Returns whether the plan has neither steps nor errors.
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
    /// Creates a step that is required: the plan stops if the cloud rejects it.
    pub fn new(
        verb: Verb,
        kind: impl Into<String>,
        name: impl Into<String>,
        changes: Vec<FieldChange>,
        payload: C,
    ) -> Step<C> {
        let (kind, name) = (kind.into(), name.into());
        Step { verb, kind, name, changes, best_effort: None, independent: false, repeatable: false, payload }
    }

    /// Converts the payload to another type and keeps everything else.
    pub fn map<D>(self, into: impl FnOnce(C) -> D) -> Step<D> {
        let Step { verb, kind, name, changes, best_effort, independent, repeatable, payload } = self;
        Step { verb, kind, name, changes, best_effort, independent, repeatable, payload: into(payload) }
    }

    /// Returns the part of the step that removes something: a deletion, or an update with its removed fields alone. `None` if the
    /// step removes nothing.
    pub fn into_removal(mut self) -> Option<Step<C>> {
        if self.verb != Verb::Delete {
            self.changes.retain(|change| change.from.is_some() && change.to.is_none());
        }
        (self.verb == Verb::Delete || !self.changes.is_empty()).then_some(self)
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

impl FieldChange {
    /// Creates a change from the old value, if there is one, to the new one, if there is one.
    pub fn new(field: impl Into<String>, from: Option<String>, to: Option<String>) -> FieldChange {
        FieldChange { field: field.into(), from, to }
    }
}

impl FieldChanges {
    /// Adds a field whose values differ.
    pub fn compare<T: PartialEq + fmt::Debug>(&mut self, field: &str, old: &T, new: &T) {
        if old != new {
            self.0.push(FieldChange::new(field, Some(displayed(old)), Some(displayed(new))));
        }
    }

    /// Adds each item that only one of two sets has, as removed or as added.
    pub fn compare_sets<T: Ord + fmt::Debug>(&mut self, field: &str, old: &BTreeSet<T>, new: &BTreeSet<T>) {
        let removed = old.difference(new).map(|item| FieldChange::new(field, Some(displayed(item)), None));
        let added = new.difference(old).map(|item| FieldChange::new(field, None, Some(displayed(item))));
        self.0.extend(removed.chain(added));
    }

    /// Adds a field of a new resource.
    pub fn set(&mut self, field: &str, new: &impl fmt::Debug) {
        self.0.push(FieldChange::new(field, None, Some(displayed(new))));
    }

    /// Returns the changes in the order in which they were added.
    pub fn into_vec(self) -> Vec<FieldChange> {
        self.0
    }
}

/// Formats a value for a plan: without the quotes and braces of Rust.
fn displayed(value: &impl fmt::Debug) -> String {
    format!("{value:?}").replace(['"', '{', '}'], "")
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
        FieldChange::new("size", from.map(str::to_owned), to.map(str::to_owned))
    }

    fn step(verb: Verb, name: &str, changes: Vec<FieldChange>) -> Step {
        Step::new(verb, "listener", name, changes, Opaque::default())
    }

    #[test]
    fn a_plan_prints_its_steps_with_their_changes_and_then_its_errors() {
        let error = PlanError {
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
            errors: vec![error.clone()],
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
        let plan: Plan = Plan { errors: vec![error], ..Plan::default() };
        assert!(!plan.is_empty());
        assert_eq!(plan.to_string(), "floating IP: not possible: no network");
    }

    #[test]
    fn a_removal_is_a_deletion_or_the_removed_fields_of_an_update() {
        let removed = || change(Some("2"), None);
        let kept = [change(None, Some("1")), change(Some("1"), Some("2"))];
        assert_eq!(step(Verb::Update, "a", kept.to_vec()).into_removal(), None);
        assert_eq!(step(Verb::Create, "a", vec![]).into_removal(), None);
        let mixed = step(Verb::Update, "a", [kept.to_vec(), vec![removed()]].concat());
        assert_eq!(mixed.into_removal(), Some(step(Verb::Update, "a", vec![removed()])));
        let deletion = step(Verb::Delete, "a", kept.to_vec());
        assert_eq!(deletion.clone().into_removal(), Some(deletion));
    }

    #[test]
    fn only_fields_that_differ_are_changes() {
        let mut changes = FieldChanges::default();
        let set = |items: &[&'static str]| items.iter().copied().collect::<BTreeSet<_>>();
        changes.compare("name", &"a", &"a");
        changes.compare("size", &Some(1), &None);
        changes.compare("tags", &set(&["a"]), &set(&["a", "b"]));
        changes.compare_sets("rule", &set(&["tcp 80", "tcp 90"]), &set(&["tcp 80", "udp 53"]));
        changes.set("zone", &"a");
        let shown: Vec<_> = changes.into_vec().iter().map(ToString::to_string).collect();
        let expected =
            ["size: Some(1) -> None", "tags: a -> a, b", "rule: tcp 90 (removed)", "rule: udp 53", "zone: a"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_empty_plan_prints_nothing_to_do() {
        let plan: Plan = Plan::default();
        assert!(plan.is_empty());
        assert_eq!(plan.to_string(), "nothing to do");
    }
}
