//! Last reported cause of each object, so that a cause is reported once and not in every sync.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Last report about each object, by name. Bounded by the number of objects, if the owner forgets deleted ones.
pub(crate) struct Reports<K>(Mutex<HashMap<K, LastReport>>);

/// Last report about one object, if any.
#[derive(Default)]
pub(crate) struct LastReport(Option<Report>);

struct Report {
    uid: String,
    cause: String,
    at: Instant,
}

impl LastReport {
    /// Records the cause, and returns whether it is new for the object with this UID.
    pub(crate) fn is_new(&mut self, uid: &str, cause: &str) -> bool {
        self.is_new_after(uid, cause, Duration::ZERO)
    }

    /// Like [`is_new`](LastReport::is_new), for a cause that changes often: a different cause within `pause` of the last report is
    /// not new.
    pub(crate) fn is_new_after(&mut self, uid: &str, cause: &str, pause: Duration) -> bool {
        let is_known = |last: &Report| last.uid == uid && (last.cause == cause || last.at.elapsed() < pause);
        if self.0.as_ref().is_some_and(is_known) {
            return false;
        }
        self.0 = Some(Report { uid: uid.to_owned(), cause: cause.to_owned(), at: Instant::now() });
        true
    }

    /// Forgets the report: the cause is resolved, and is new if it recurs.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Forgets the report unless it was made within `pause`.
    pub(crate) fn clear_after(&mut self, pause: Duration) {
        self.0.take_if(|last| last.at.elapsed() >= pause);
    }

    /// Returns the cause, if the last report is about the object with this UID.
    pub(crate) fn cause(&self, uid: &str) -> Option<&str> {
        self.0.as_ref().filter(|last| last.uid == uid).map(|last| last.cause.as_str())
    }

    /// Whether there is a report.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl<K: Clone + Eq + Hash> Reports<K> {
    /// Records the cause, and returns whether it is new for the object of this name and UID.
    pub(crate) fn is_new(&self, name: &K, uid: &str, cause: &str) -> bool {
        self.lock().entry(name.clone()).or_default().is_new(uid, cause)
    }

    /// Forgets the report about this object: the cause is resolved, or the object is deleted.
    pub(crate) fn forget(&self, name: &K) {
        self.lock().remove(name);
    }

    /// Returns the reported cause of the object of this name and UID.
    pub(crate) fn cause(&self, name: &K, uid: &str) -> Option<String> {
        self.lock().get(name)?.cause(uid).map(str::to_owned)
    }

    /// Names of the objects with a report, in any order.
    pub(crate) fn names(&self) -> Vec<K> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, LastReport>> {
        // Every change leaves the map consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Default for Reports<K> {
    fn default() -> Reports<K> {
        Reports(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_new_once_per_object_and_again_after_another_cause_or_for_a_recreated_object() {
        let reported = Reports::default();
        assert!(reported.is_new(&"a", "1", "x"));
        assert!(!reported.is_new(&"a", "1", "x"));
        assert!(reported.is_new(&"b", "2", "x"));
        assert!(reported.is_new(&"a", "1", "y"));
        assert!(reported.is_new(&"a", "1", "x"));
        assert!(reported.is_new(&"a", "3", "x"));
        reported.forget(&"a");
        assert!(reported.is_new(&"a", "3", "x"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cause_that_changes_often_is_new_once_per_pause() {
        let (mut last, pause) = (LastReport::default(), Duration::from_secs(300));
        let is_new = |last: &mut LastReport, cause: &str| last.is_new_after("1", cause, pause);
        assert!(is_new(&mut last, "x") && !is_new(&mut last, "y") && !is_new(&mut last, "x"));
        last.clear_after(pause);
        assert!(!is_new(&mut last, "y"), "the cause was briefly resolved");
        tokio::time::advance(pause).await;
        assert!(!is_new(&mut last, "x") && is_new(&mut last, "y"));
        tokio::time::advance(pause).await;
        last.clear_after(pause);
        assert!(is_new(&mut last, "y"));
    }
}
