//! What objects were complained about, so that each cause is told once and not in every pass.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The last complaint about each object, by its name. Bounded by the number of objects, if whoever keeps it forgets those
/// that are gone.
pub(crate) struct Complaints<K>(Mutex<HashMap<K, Complaint>>);

struct Complaint {
    uid: String,
    cause: String,
    at: Instant,
}

impl<K: Clone + Eq + Hash> Complaints<K> {
    /// Whether this cause is news for the object of this name and UID; it no longer is afterwards.
    pub(crate) fn is_news(&self, name: &K, uid: &str, cause: &str) -> bool {
        self.is_news_after(name, uid, cause, Duration::ZERO)
    }

    /// The same for a cause that may change often: another one is no news for this long after the last.
    pub(crate) fn is_news_after(&self, name: &K, uid: &str, cause: &str, pause: Duration) -> bool {
        let mut complaints = self.lock();
        let is_known = |last: &Complaint| last.uid == uid && (last.cause == cause || last.at.elapsed() < pause);
        let known = complaints.get(name).is_some_and(is_known);
        if !known {
            let complaint = Complaint { uid: uid.to_owned(), cause: cause.to_owned(), at: Instant::now() };
            complaints.insert(name.clone(), complaint);
        }
        !known
    }

    /// All is well with this object, or it is gone: the same cause would be news again.
    pub(crate) fn forget(&self, name: &K) {
        self.lock().remove(name);
    }

    /// The same, unless the last cause was reported within this time.
    pub(crate) fn forget_after(&self, name: &K, pause: Duration) {
        let mut complaints = self.lock();
        if complaints.get(name).is_some_and(|last| last.at.elapsed() >= pause) {
            complaints.remove(name);
        }
    }

    /// Names of the objects that there is a complaint about, in any order.
    pub(crate) fn names(&self) -> Vec<K> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Complaint>> {
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
    async fn a_cause_that_changes_often_is_news_once_in_a_while() {
        let (complaints, pause) = (Complaints::default(), Duration::from_secs(300));
        let is_news = |cause: &str| complaints.is_news_after(&"a", "1", cause, pause);
        assert!(is_news("x") && !is_news("y") && !is_news("x"));
        complaints.forget_after(&"a", pause);
        assert!(!is_news("y"), "all was well for a moment");
        tokio::time::advance(pause).await;
        assert!(!is_news("x") && is_news("y"));
        tokio::time::advance(pause).await;
        complaints.forget_after(&"a", pause);
        assert!(is_news("y"));
    }
}
