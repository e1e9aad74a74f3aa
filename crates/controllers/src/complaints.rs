//! Causes that were reported about objects, so that each is reported once and not in every sync.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The last report about each object, by its name. Bounded by the number of objects, if the owner forgets those that are gone.
pub(crate) struct Complaints<K>(Mutex<HashMap<K, LastReport>>);

/// The last report about one object, if there is any.
#[derive(Default)]
pub(crate) struct LastReport(Option<Report>);

struct Report {
    uid: String,
    cause: String,
    at: Instant,
}

impl LastReport {
    /// Whether this cause is new for the object with this UID; it no longer is afterwards.
    pub(crate) fn is_new(&mut self, uid: &str, cause: &str) -> bool {
        self.is_new_after(uid, cause, Duration::ZERO)
    }

    /// The same for a cause that may change often: another one is not new for this long after the last.
    pub(crate) fn is_new_after(&mut self, uid: &str, cause: &str, pause: Duration) -> bool {
        let is_known = |last: &Report| last.uid == uid && (last.cause == cause || last.at.elapsed() < pause);
        if self.0.as_ref().is_some_and(is_known) {
            return false;
        }
        self.0 = Some(Report { uid: uid.to_owned(), cause: cause.to_owned(), at: Instant::now() });
        true
    }

    /// Forgets the report: the cause is gone, and would be new again.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// The same, unless the last cause was reported within this time.
    pub(crate) fn clear_after(&mut self, pause: Duration) {
        self.0.take_if(|last| last.at.elapsed() >= pause);
    }

    /// Whether there is a report.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl<K: Clone + Eq + Hash> Complaints<K> {
    /// Whether this cause is new for the object of this name and UID; it no longer is afterwards.
    pub(crate) fn is_news(&self, name: &K, uid: &str, cause: &str) -> bool {
        self.lock().entry(name.clone()).or_default().is_new(uid, cause)
    }

    /// Forgets the report about this object: the cause is gone, or the object is.
    pub(crate) fn forget(&self, name: &K) {
        self.lock().remove(name);
    }

    /// Names of the objects with a report, in any order.
    pub(crate) fn names(&self) -> Vec<K> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, LastReport>> {
        // Every change above leaves the map whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Default for Complaints<K> {
    fn default() -> Complaints<K> {
        Complaints(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_news_once_per_object_and_again_after_another_or_a_new_object_of_the_name() {
        let complaints = Complaints::default();
        assert!(complaints.is_news(&"a", "1", "x"));
        assert!(!complaints.is_news(&"a", "1", "x"));
        assert!(complaints.is_news(&"b", "2", "x"));
        assert!(complaints.is_news(&"a", "1", "y"));
        assert!(complaints.is_news(&"a", "1", "x"));
        assert!(complaints.is_news(&"a", "3", "x"));
        complaints.forget(&"a");
        assert!(complaints.is_news(&"a", "3", "x"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cause_that_changes_often_is_new_once_per_pause() {
        let (mut last, pause) = (LastReport::default(), Duration::from_secs(300));
        let is_new = |last: &mut LastReport, cause: &str| last.is_new_after("1", cause, pause);
        assert!(is_new(&mut last, "x") && !is_new(&mut last, "y") && !is_new(&mut last, "x"));
        last.clear_after(pause);
        assert!(!is_new(&mut last, "y"), "the cause was gone for a moment");
        tokio::time::advance(pause).await;
        assert!(!is_new(&mut last, "x") && is_new(&mut last, "y"));
        tokio::time::advance(pause).await;
        last.clear_after(pause);
        assert!(is_new(&mut last, "y"));
    }
}
