//! Field ownership: managed fields and server-side apply.
//!
//! `metadata.managedFields` records, per manager, the set of fields that it set last. An apply that would change a field of
//! another manager is a conflict. A field that a manager stops applying is removed if no other manager owns it.
//!
//! ```text
//!            schema ──► shape          atomic and granular types
//!  old, new object ──► compare ─► sets added, modified, removed      ─► update ─┐
//!  applied object  ──► validate, extract, merge                     ─► apply  ─┴─► entry list
//!                        set, element    the sets themselves and their JSON
//! ```
//!
//! The request path determines the manager of a request and processes the resulting object.

mod apply;
mod compare;
mod conflict;
mod element;
mod entry;
mod extract;
mod last_applied;
mod merge;
mod scope;
mod set;
mod shape;
mod update;
mod validate;

use serde_json::{Map, Value};

use crate::resources::Resource;
use crate::schema::TypeId;
use crate::status::ApiResult;

/// Manager and target of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) resource: &'static Resource,
    pub(crate) subresource: Option<&'a str>,
    /// RFC 3339, whole seconds.
    pub(crate) now: &'a str,
}

impl Writer<'_> {
    /// Timestamp of an entry for this write.
    fn time(&self) -> Option<String> {
        // upstream: the conversion of Scale to its parent kind loses the time.
        (self.subresource != Some("scale")).then(|| self.now.to_owned())
    }

    fn owner(&self, operation: entry::Operation) -> entry::Owner {
        let manager = if self.manager.is_empty() { "unknown" } else { self.manager };
        entry::Owner {
            manager: manager.to_owned(),
            operation,
            api_version: self.resource.api_version(),
            subresource: self.subresource.unwrap_or_default().to_owned(),
        }
    }
}

/// Records in `new.metadata.managedFields` what a create (no `old`) or an update changed.
///
/// `new` may have entries of its own: `[]` or `[{}]` clears all entries, valid ones replace those of `old`, and invalid
/// ones are ignored.
pub(crate) fn record_update(writer: Writer<'_>, old: Option<&Value>, new: &mut Value) -> ApiResult<()> {
    update::record(writer, old, new);
    Ok(())
}

/// Server-side apply: merges `applied` into `live` and returns the result with managed fields. Without `live` it creates
/// the object.
///
/// `applied` is the body of the request. The result is canonical, but without defaults.
pub(crate) fn apply(writer: Writer<'_>, live: Option<&Value>, applied: &Value, force: bool) -> ApiResult<Value> {
    apply::apply(writer, live, applied, force)
}

/// Validates that an applied object has the expected type and only declared fields.
pub(crate) fn check_applied(api_version: &str, kind: &str, ty: TypeId, applied: &Value) -> ApiResult<()> {
    apply::check(api_version, kind, ty, applied)
}

/// Whether two objects are equal except for the times in managed fields. Such a write is a no-op.
pub(crate) fn equal_ignoring_times(a: &Value, b: &Value) -> bool {
    equal_except(a, b, "metadata", |a, b| equal_except(a, b, "managedFields", equal_entries))
}

/// Compares objects; the values of `key` are compared with `same`.
fn equal_except(a: &Value, b: &Value, key: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    let same_at = |name: &String, x: &Value, y: &Value| if name == key { same(x, y) } else { x == y };
    a.len() == b.len() && a.iter().all(|(name, x)| b.get(name).is_some_and(|y| same_at(name, x, y)))
}

fn equal_entries(a: &Value, b: &Value) -> bool {
    let (Value::Array(a), Value::Array(b)) = (a, b) else { return a == b };
    let len_without_time = |e: &Map<String, Value>| e.len() - usize::from(e.contains_key("time"));
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            len_without_time(a) == len_without_time(b)
                && a.iter().all(|(key, x)| key == "time" || b.get(key) == Some(x))
        }
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests;
