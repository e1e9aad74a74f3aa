//! The status board: registry of all components of the process with a status and a health.
//!
//! A component is registered once, when it is created, and read on demand. Health checks, `/statusz` and the watchdog all read the
//! board, so they always cover the same components.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// Kind of a component. The order of the variants is the display order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A leader election lease.
    Lease,
    /// A control loop, by its canonical name.
    Controller,
    /// A queue of keys, by the name in its metrics.
    Queue,
    /// A watch of one resource type.
    Watch,
    /// A cloud, by its name.
    Cloud,
    /// Credentials that are reloaded when they change, by purpose.
    Credentials,
}

/// A component of the process with a status. Both methods return immediately, from memory.
pub trait Component: Send + Sync {
    /// Returns the status as a JSON object of plain values, for operators and programs.
    fn status(&self) -> Value;

    /// Returns `Ok` if the component is healthy, or the reason in one line.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A registered component.
#[derive(Clone)]
pub struct Entry {
    /// Kind of the component.
    pub kind: Kind,
    /// Name, unique within the kind.
    pub name: String,
    /// The component.
    pub component: Arc<dyn Component>,
}

/// All components of the process. Clones share their state.
#[derive(Clone, Default)]
pub struct StatusBoard(Arc<Mutex<Vec<Entry>>>);

impl StatusBoard {
    /// Creates an empty board.
    pub fn new() -> StatusBoard {
        StatusBoard::default()
    }

    /// Registers a component, and replaces one of the same kind and name.
    pub fn put(&self, kind: Kind, name: impl Into<String>, component: Arc<dyn Component>) {
        let (mut entries, name) = (self.entries_mut(), name.into());
        match entries.iter_mut().find(|entry| entry.kind == kind && entry.name == name) {
            Some(entry) => entry.component = component,
            None => entries.push(Entry { kind, name, component }),
        }
    }

    /// Returns all components, sorted by kind and, within a kind, by registration.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.entries_mut().clone();
        entries.sort_by_key(|entry| entry.kind);
        entries
    }

    fn entries_mut(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Number(i32);

    impl Component for Number {
        fn status(&self) -> Value {
            json!({ "number": self.0 })
        }
    }

    #[test]
    fn components_are_sorted_by_kind_and_replaced_by_name() {
        let board = StatusBoard::new();
        board.put(Kind::Watch, "nodes", Arc::new(Number(1)));
        board.put(Kind::Queue, "service", Arc::new(Number(2)));
        board.clone().put(Kind::Queue, "Nodes", Arc::new(Number(3)));
        board.put(Kind::Queue, "service", Arc::new(Number(4)));
        let shown: Vec<_> = board
            .entries()
            .iter()
            .map(|entry| (entry.name.clone(), entry.component.status()["number"].clone()))
            .collect();
        assert_eq!(shown, [("service".into(), json!(4)), ("Nodes".into(), json!(3)), ("nodes".into(), json!(1))]);
        assert_eq!(board.entries()[0].component.health(), Ok(()));
    }
}
