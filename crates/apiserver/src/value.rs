//! Access to JSON values by dotted path.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Accessors for nested values of a [`Value`]. A path is field names joined by dots (`"spec.type"`); keys that contain dots
/// (labels, annotations) are accessed through their map.
pub(crate) trait Json {
    /// The value at the path; `Null` if absent.
    fn at(&self, path: &str) -> &Value;
    /// The string at the path; empty if absent.
    fn text(&self, path: &str) -> &str;
    /// The list at the path; empty if absent.
    fn list(&self, path: &str) -> &[Value];
    /// The strings of the list at the path.
    fn texts(&self, path: &str) -> Vec<&str>;
    /// The map at the path, if there is one.
    fn map(&self, path: &str) -> Option<&Map<String, Value>>;
    /// The integer at the path.
    fn int(&self, path: &str) -> Option<i64>;
    /// Whether the path has a value other than null.
    fn has(&self, path: &str) -> bool;
    /// Sets the value and creates missing objects on the path.
    fn put(&mut self, path: &str, value: impl Into<Value>);
    /// Removes and returns the value.
    fn take_at(&mut self, path: &str) -> Option<Value>;
    /// A mutable reference to the value, if present.
    fn at_mut(&mut self, path: &str) -> Option<&mut Value>;
    /// A mutable reference to the list, if present.
    fn list_mut(&mut self, path: &str) -> Option<&mut Vec<Value>>;
}

impl Json for Value {
    fn at(&self, path: &str) -> &Value {
        let mut at = self;
        for part in path.split('.') {
            match at.get(part) {
                Some(next) => at = next,
                None => return &NULL,
            }
        }
        at
    }

    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn texts(&self, path: &str) -> Vec<&str> {
        self.list(path).iter().filter_map(Value::as_str).collect()
    }

    fn map(&self, path: &str) -> Option<&Map<String, Value>> {
        self.at(path).as_object()
    }

    fn int(&self, path: &str) -> Option<i64> {
        self.at(path).as_i64()
    }

    fn has(&self, path: &str) -> bool {
        !self.at(path).is_null()
    }

    fn put(&mut self, path: &str, value: impl Into<Value>) {
        let mut at = self;
        for part in path.split('.') {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[part];
        }
        *at = value.into();
    }

    fn take_at(&mut self, path: &str) -> Option<Value> {
        match path.rsplit_once('.') {
            Some((parent, last)) => self.at_mut(parent)?.as_object_mut()?.remove(last),
            None => self.as_object_mut()?.remove(path),
        }
    }

    fn at_mut(&mut self, path: &str) -> Option<&mut Value> {
        let mut at = self;
        for part in path.split('.') {
            at = at.get_mut(part)?;
        }
        Some(at)
    }

    fn list_mut(&mut self, path: &str) -> Option<&mut Vec<Value>> {
        self.at_mut(path)?.as_array_mut()
    }
}
