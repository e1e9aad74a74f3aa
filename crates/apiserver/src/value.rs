//! Reading and writing JSON values by dotted path.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Short ways to reach into a [`Value`]. A path is field names joined by dots (`"spec.type"`); keys that hold
/// dots themselves (labels, annotations) are reached through their map.
pub(crate) trait Json {
    /// The value at the path, `Null` where there is none.
    fn at(&self, path: &str) -> &Value;
    /// The text at the path, empty where there is none.
    fn text(&self, path: &str) -> &str;
    /// The list at the path, empty where there is none.
    fn list(&self, path: &str) -> &[Value];
    /// The texts of the list at the path.
    fn texts(&self, path: &str) -> Vec<&str>;
    /// The map at the path, if there is one.
    fn map(&self, path: &str) -> Option<&Map<String, Value>>;
    /// The whole number at the path.
    fn int(&self, path: &str) -> Option<i64>;
    /// Something other than null is there.
    fn has(&self, path: &str) -> bool;
    /// Sets the value, making the objects on the way.
    fn put(&mut self, path: &str, value: impl Into<Value>);
    /// Takes the value out.
    fn take_at(&mut self, path: &str) -> Option<Value>;
    /// A mutable reference, if something is there.
    fn at_mut(&mut self, path: &str) -> Option<&mut Value>;
    /// The list at the path for changing, if there is one.
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
