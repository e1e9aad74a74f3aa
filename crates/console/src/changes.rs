//! Changes of the document, as clients receive them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

/// Position of a client: what it has seen so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// Epoch of the publisher that the client follows; another epoch means another process, and a complete document.
    pub epoch: String,
    /// Revision of the last response.
    pub revision: u64,
}

impl Position {
    /// Returns the position in the parameters `epoch` and `since` of a request. Without valid ones, the client gets the complete
    /// document.
    pub fn of_query(query: &BTreeMap<String, Vec<String>>) -> Position {
        let value = |name: &str| query.get(name).and_then(|values| values.last()).cloned().unwrap_or_default();
        Position { epoch: value("epoch"), revision: value("since").parse().unwrap_or_default() }
    }
}

/// Response to a client: the items that have changed since its position.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Identifies the publisher. It changes when the process restarts.
    pub epoch: Arc<str>,
    /// Revision of this response; the client sends it with its next request.
    pub revision: u64,
    /// Whether `items` is the whole document. The client then forgets all items that it has.
    pub complete: bool,
    /// Time of the manager, for ages.
    pub time: Timestamp,
    /// New and changed items by key, `KIND/NAME`.
    pub items: BTreeMap<Arc<str>, Arc<RawValue>>,
    /// Keys of items that no longer exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Arc<str>>,
}
