//! What was asked of the server, in the order in which it came: for tests about who did what, and when.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// Older requests are forgotten.
const REMEMBERED: usize = 20_000;

/// A request about an object or a collection, noted when it comes: before it waits for anything, and whatever becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// Who asked, after impersonation.
    pub(crate) user: String,
    pub(crate) user_agent: String,
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The latest requests.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<VecDeque<Entry>>);

impl Journal {
    pub(crate) fn note(&self, entry: Entry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= REMEMBERED {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_requests_are_kept_in_their_order() {
        let journal = Journal::default();
        for number in 0..REMEMBERED + 2 {
            let none = String::new;
            let (name, verb) = (number.to_string(), "get".to_owned());
            let resource = "nodes".to_owned();
            journal.note(Entry {
                user: none(),
                user_agent: none(),
                verb,
                resource,
                subresource: none(),
                namespace: none(),
                name,
            });
        }
        let entries = journal.entries();
        assert_eq!((entries.len(), entries[0].name.as_str()), (REMEMBERED, "2"));
    }
}
