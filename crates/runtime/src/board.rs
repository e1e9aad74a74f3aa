//! Where every working part of the process can be looked at: how it is, and whether it is well.
//!
//! Parts are put on the board once, when they are made, and asked when somebody looks. Health checks, `/statusz` and the
//! watchdog all read it, so that none of them can know of a part that the others do not.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// What a part is; the order is the one in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The right to lead.
    Lease,
    /// A control loop, by its canonical name.
    Controller,
    /// A queue of keys, by the name in its metrics.
    Queue,
    /// A watch of one kind of objects.
    Watch,
    /// A cloud, by its name.
    Cloud,
    /// Credentials that are read again when they change, by what they are for.
    Credentials,
}

/// A part of the process that can be looked at. Both answers come at once, from memory.
pub trait Part: Send + Sync {
    /// How it is, as an object of plain values, for people and programs.
    fn status(&self) -> Value;

    /// Whether it is well; if not, why, in a line for the log.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A part with its place on the board.
#[derive(Clone)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its name, unlike that of others of the kind.
    pub name: String,
    /// Itself.
    pub part: Arc<dyn Part>,
}

/// All parts of the process. Clones are the same board.
#[derive(Clone, Default)]
pub struct StatusBoard(Arc<Mutex<Vec<Entry>>>);

impl StatusBoard {
    /// Nothing on it.
    pub fn new() -> StatusBoard {
        StatusBoard::default()
    }

    /// Puts a part on it, in the place of one of the same kind and name if there is one.
    pub fn put(&self, kind: Kind, name: impl Into<String>, part: Arc<dyn Part>) {
        let (mut entries, name) = (self.entries_mut(), name.into());
        match entries.iter_mut().find(|entry| entry.kind == kind && entry.name == name) {
            Some(entry) => entry.part = part,
            None => entries.push(Entry { kind, name, part }),
        }
    }

    /// All parts, by kind, and within a kind in the order in which they came.
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

    impl Part for Number {
        fn status(&self) -> Value {
            json!({ "number": self.0 })
        }
    }

    #[test]
    fn parts_are_shown_by_kind_and_the_last_of_a_name_counts() {
        let board = StatusBoard::new();
        board.put(Kind::Watch, "nodes", Arc::new(Number(1)));
        board.put(Kind::Queue, "service", Arc::new(Number(2)));
        board.clone().put(Kind::Queue, "Nodes", Arc::new(Number(3)));
        board.put(Kind::Queue, "service", Arc::new(Number(4)));
        let seen: Vec<_> =
            board.entries().iter().map(|entry| (entry.name.clone(), entry.part.status()["number"].clone())).collect();
        assert_eq!(seen, [("service".into(), json!(4)), ("Nodes".into(), json!(3)), ("nodes".into(), json!(1))]);
        assert_eq!(board.entries()[0].part.health(), Ok(()));
    }
}
