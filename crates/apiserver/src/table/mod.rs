//! `Table` output: the columns kubectl prints.

use serde_json::Value;

use crate::resources::Resource;

/// What `includeObject` asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Include {
    #[default]
    Metadata,
    Object,
    None,
}

/// A `Table` of these objects (each with `kind` and `apiVersion`). `metadata` is the list's; `with_columns` is false
/// for all but the first event of a watch. `version` is `v1` or `v1beta1`.
pub(crate) fn render(
    _resource: &Resource,
    _objects: &[Value],
    _metadata: Value,
    _include: Include,
    _with_columns: bool,
    _version: &str,
) -> Value {
    Value::Null
}
