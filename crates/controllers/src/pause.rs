//! Objects that an operator has paused: each is reported in one Event, and all are listed on `/statusz`.

use std::collections::BTreeMap;
use std::hash::Hash;

use bowline_core::annotations::PAUSED;
use bowline_core::invalid_pause;
use bowline_kube::{EventSource, EventType, ObjectRef};
use bowline_runtime::Component;
use serde_json::{Value, json};

use crate::reports::Reports;

/// Maximum number of names on `/statusz`.
const NAMES: usize = 100;

/// Paused objects, by name, with the last report of each.
pub(crate) struct Paused<K>(Reports<K>);

impl<K: Clone + Eq + Hash> Paused<K> {
    /// Records that this object is paused, and emits an Event unless the same was reported already.
    pub(crate) fn report(
        &self,
        name: &K,
        object: &ObjectRef,
        annotations: &BTreeMap<String, String>,
        deleting: bool,
        events: &EventSource,
    ) {
        let (kind, message) = message(annotations, deleting);
        if self.0.is_new(name, &object.uid, &message) {
            events.emit(object, kind, "Paused", message);
        }
    }

    /// Forgets an object that is not paused or no longer exists.
    pub(crate) fn forget(&self, name: &K) {
        self.0.forget(name);
    }
}

impl<K> Default for Paused<K> {
    fn default() -> Paused<K> {
        Paused(Reports::default())
    }
}

impl<K: Clone + Eq + Hash + Ord + ToString + Send + Sync> Component for Paused<K> {
    fn status(&self) -> Value {
        status(self.0.names())
    }
}

/// Number of paused objects and the first names, for `/statusz`.
pub(crate) fn status<K: Ord + ToString>(mut paused: Vec<K>) -> Value {
    paused.sort_unstable();
    let names: Vec<String> = paused.iter().take(NAMES).map(ToString::to_string).collect();
    json!({"count": paused.len(), "names": names})
}

/// Returns the type and message of the Event for a paused object.
pub(crate) fn message(annotations: &BTreeMap<String, String>, deleting: bool) -> (EventType, String) {
    let key = PAUSED.key;
    let waits = if deleting { " Its deletion waits for that." } else { "" };
    let until = format!("no cloud controller changes it until the annotation is removed.{waits}");
    match invalid_pause(annotations) {
        None => (EventType::Normal, format!("Paused by the annotation {key}: {until}")),
        Some(value) => {
            let problem = format!("The annotation {key} is neither true nor false but {value:?}, which counts as true");
            (EventType::Warning, format!("{problem}: {until}"))
        }
    }
}
