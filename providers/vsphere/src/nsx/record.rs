//! Objects of the policy API, as NSX stores them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Tags by scope.
pub(crate) type Tags = BTreeMap<String, String>;

/// An object with all its fields, also those that this program does not know: an update writes the whole object.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Record(Map<String, Value>);

impl Record {
    pub(crate) fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(&self, field: &str) -> bool {
        self.0.get(field).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns a list; an empty one if the field is missing, because NSX leaves out empty lists.
    pub(crate) fn list(&self, field: &str) -> &[Value] {
        self.0.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// Sets a field. An empty list and a missing one are the same.
    pub(crate) fn set(&mut self, field: &str, value: Value) {
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        if !is_empty(&value) || !self.list(field).is_empty() {
            self.0.insert(field.to_owned(), value);
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.text("id")
    }

    /// Returns the policy path.
    pub(crate) fn path(&self) -> &str {
        self.text("path")
    }

    /// Returns the name, or the ID if there is no name.
    pub(crate) fn name(&self) -> &str {
        Some(self.text("display_name")).filter(|name| !name.is_empty()).unwrap_or(self.id())
    }

    /// Returns the value of the first tag with this scope.
    pub(crate) fn tag(&self, scope: &str) -> Option<&str> {
        let text = |tag: &Value, field: &str| tag.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let found = self.list("tags").iter().find(|tag| text(tag, "scope") == scope)?;
        Some(found.get("tag").and_then(Value::as_str).unwrap_or_default())
    }

    /// Returns all tags for messages.
    pub(crate) fn tags(&self) -> String {
        let text = |tag: &Value, field: &str| tag.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let tags = self.list("tags").iter().map(|tag| format!("{}={}", text(tag, "scope"), text(tag, "tag")));
        tags.collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the object has all these tags.
    pub(crate) fn has_tags(&self, tags: &Tags) -> bool {
        tags.iter().all(|(scope, tag)| self.tag(scope) == Some(tag))
    }
}

impl From<Map<String, Value>> for Record {
    fn from(fields: Map<String, Value>) -> Record {
        Record(fields)
    }
}

/// Returns tags as NSX has them, sorted by scope.
pub(crate) fn tag_list(tags: &Tags) -> Value {
    tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect()
}
