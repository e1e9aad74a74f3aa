//! Who owns which field: managed fields and server-side apply.
//!
//! Every write says which fields it sets. `metadata.managedFields` keeps, per manager, the set of fields it set last;
//! an apply that would change what another manager owns is a conflict, and what a manager stops applying goes when
//! nobody else owns it.
//!
//! ```text
//!            schema ──► shape          what is one field, and what is many
//!  old, new object ──► compare ─► sets added, modified, removed      ─► update ─┐
//!  applied object  ──► validate, extract, merge                     ─► apply  ─┴─► entry list
//!                        set, element    the sets themselves and their JSON
//! ```
//!
//! Not here: which manager a request speaks for, and what happens to an object once its fields are settled.

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

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) resource: &'static Resource,
    pub(crate) subresource: Option<&'a str>,
    /// RFC 3339, whole seconds.
    pub(crate) now: &'a str,
}

impl Writer<'_> {
    /// The time of an entry for this write.
    fn time(&self) -> Option<String> {
        // upstream: the detour that scaling takes through another kind loses the time.
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
/// `new` may bring entries of its own: `[]` or `[{}]` clears them all, valid ones replace those of `old`, and
/// everything else is passed over.
pub(crate) fn record_update(writer: Writer<'_>, old: Option<&Value>, new: &mut Value) -> ApiResult<()> {
    update::record(writer, old, new);
    Ok(())
}

/// Server-side apply: merges `applied` into `live` (absent: creates) and answers the result, managed fields included.
///
/// `applied` is as the client sent it; the result is in the canonical form of its type, but without defaults.
pub(crate) fn apply(writer: Writer<'_>, live: Option<&Value>, applied: &Value, force: bool) -> ApiResult<Value> {
    apply::apply(writer, live, applied, force)
}

/// Whether an applied object is of the type it should be, and only has what the type has.
pub(crate) fn check_applied(api_version: &str, kind: &str, ty: TypeId, applied: &Value) -> ApiResult<()> {
    apply::check(api_version, kind, ty, applied)
}

/// Equal but for the times in managed fields; such a write changes nothing.
pub(crate) fn same_but_for_times(a: &Value, b: &Value) -> bool {
    same_except(a, b, "metadata", |a, b| same_except(a, b, "managedFields", same_entries))
}

/// Equal objects, where the values of `key` may be equal in another sense.
fn same_except(a: &Value, b: &Value, key: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    let same_at = |name: &String, x: &Value, y: &Value| if name == key { same(x, y) } else { x == y };
    a.len() == b.len() && a.iter().all(|(name, x)| b.get(name).is_some_and(|y| same_at(name, x, y)))
}

fn same_entries(a: &Value, b: &Value) -> bool {
    let (Value::Array(a), Value::Array(b)) = (a, b) else { return a == b };
    let timeless = |e: &Map<String, Value>| e.len() - usize::from(e.contains_key("time"));
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            timeless(a) == timeless(b) && a.iter().all(|(key, x)| key == "time" || b.get(key) == Some(x))
        }
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

#[cfg(test)]
mod tests;
