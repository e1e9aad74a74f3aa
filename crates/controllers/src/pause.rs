//! Objects that an operator has paused: each is reported in one Event, and all are listed on `/statusz`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_core::annotations::PAUSED;
use bowline_core::invalid_pause;
use bowline_kube::{EventSource, EventType, ObjectRef};
use bowline_runtime::Part;
use serde_json::{Value, json};

/// Maximum number of names on `/statusz`.
const NAMES: usize = 100;

/// Paused objects, by name. Bounded by their number, if those that are gone are forgotten.
pub(crate) struct Paused<K>(Mutex<BTreeMap<K, Report>>);

struct Report {
    uid: String,
    message: String,
}

impl<K: Clone + Ord> Paused<K> {
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
        let report = Report { uid: object.uid.clone(), message: message.clone() };
        let before = self.lock().insert(name.clone(), report);
        if before.is_none_or(|before| before.uid != object.uid || before.message != message) {
            events.emit(object, kind, "Paused", message);
        }
    }

    /// The object is not paused, or it is gone.
    pub(crate) fn forget(&self, name: &K) {
        self.lock().remove(name);
    }
}

impl<K> Paused<K> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Report>> {
        // Every change above leaves the map whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Default for Paused<K> {
    fn default() -> Paused<K> {
        Paused(Mutex::default())
    }
}

impl<K: Clone + Ord + ToString + Send + Sync> Part for Paused<K> {
    fn status(&self) -> Value {
        let paused = self.lock();
        let names: Vec<String> = paused.keys().take(NAMES).map(ToString::to_string).collect();
        json!({"count": paused.len(), "names": names})
    }
}

/// Says what the pause means for the object.
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
