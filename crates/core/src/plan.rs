//! What is going to be done, as a value: it can be printed, compared, stored, counted, and carried out or not.
//!
//! A [`Plan`] is an ordered list of steps. A step says what it does in words that every cloud shares (create this, change
//! these fields from this to that, delete this) and carries, beside that, the `payload` that only the provider that made
//! it can read. So a dry run, a log line and `bowline plan` need not know any cloud.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Steps, to be carried out in this order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// None means that everything is as it should be.
    pub steps: Vec<Step>,
    /// What the owner of the thing should know although nothing is wrong with the plan: a wish that is passed over, a
    /// detour that was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A warning for whoever owns what is planned: it becomes an Event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Why, as a CamelCase word.
    pub reason: String,
    /// What, and what to do about it, in a sentence.
    pub message: String,
}

/// One change of one thing: at most one writing call to the cloud.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What happens to it.
    pub verb: Verb,
    /// What kind of thing, in the cloud's own word: `listener`, `floating IP`.
    pub kind: String,
    /// Which one, by name or, if it has none, by ID.
    pub name: String,
    /// What changes, for people. For a creation: the fields that matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// The plan goes on if the cloud refuses this step: the reason of the warning that is told then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispensable: Option<String>,
    /// What the provider needs to carry it out.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub payload: serde_json::Value,
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

impl Plan {
    /// Just these steps.
    pub fn of(steps: Vec<Step>) -> Plan {
        Plan { steps, notices: Vec::new() }
    }

    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing to do");
        }
        for (index, step) in self.steps.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
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
        let payload = serde_json::Value::Null;
        Step { verb, kind: "listener".to_owned(), name: name.to_owned(), changes, dispensable: None, payload }
    }

    #[test]
    fn a_plan_prints_its_steps_in_order_with_what_changes_below_each() {
        let plan = Plan {
            steps: vec![
                step(Verb::Create, "a", vec![change(None, Some("1"))]),
                step(Verb::Update, "b", vec![change(Some("1"), Some("2")), change(Some("2"), None)]),
                step(Verb::Delete, "c", vec![]),
            ],
            notices: Vec::new(),
        };
        let expected = "create listener a
    size: 1
update listener b
    size: 1 -> 2
    size: 2 (removed)
delete listener c";
        assert_eq!(plan.to_string(), expected);
    }

    #[test]
    fn a_plan_without_steps_says_so() {
        assert!(Plan::default().is_empty());
        assert_eq!(Plan::default().to_string(), "nothing to do");
    }

    #[test]
    fn a_stored_plan_is_the_same_when_it_is_read() {
        let mut update = step(Verb::Update, "b", vec![change(Some("1"), None)]);
        update.payload = serde_json::json!({"id": 7});
        let plan = Plan { steps: vec![update, step(Verb::Delete, "c", vec![])], notices: Vec::new() };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert!(text.ends_with(r#"{"verb":"delete","kind":"listener","name":"c"}]}"#), "{text}");
    }
}
