//! Journal of resource requests in order of arrival, for tests that check which client sent which requests.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// Maximum number of entries; the oldest are dropped.
const CAPACITY: usize = 20_000;

/// A resource request, recorded on arrival, before fault injection and regardless of its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// The user name, after impersonation.
    pub(crate) user: String,
    pub(crate) user_agent: String,
    pub(crate) verb: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The most recent requests.
#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<VecDeque<Entry>>);

impl Journal {
    pub(crate) fn record(&self, entry: Entry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CAPACITY {
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
    fn the_most_recent_requests_are_kept_in_order() {
        let journal = Journal::default();
        for number in 0..CAPACITY + 2 {
            let none = String::new;
            let (name, verb) = (number.to_string(), "get".to_owned());
            let resource = "nodes".to_owned();
            journal.record(Entry {
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
        assert_eq!((entries.len(), entries[0].name.as_str()), (CAPACITY, "2"));
    }
}
