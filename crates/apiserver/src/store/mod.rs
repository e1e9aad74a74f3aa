//! In-memory store: all objects, one revision counter, and a bounded history that watches replay.
//!
//! ```text
//!            ┌ objects   BTreeMap<Key, Arc<Stored>>       current state
//! Collection ┤
//!            └ history   VecDeque<Arc<Change>>            changes, oldest first
//!                  ▲ position of each watcher (no queue per watcher, so memory does not grow with their number)
//! ```
//!
//! * One lock guards everything; nothing is parsed or serialised under it. A write arrives as a [`Draft`] that is serialised
//!   except for its revision.
//! * An object is stored as its serialised bytes. The same allocation is the body of a GET, an item of a list and the line
//!   of a watch event, shared by all readers.
//! * The state at an older revision is the current state with later changes undone, as far as the history reaches back;
//!   older revisions are gone (410).
//! * A watcher that falls behind the history gets [`Read::Lagged`] and must list again.

mod object;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;

pub(crate) use object::{Draft, Key, Stored, Verb};

use crate::resources::RESOURCES;

/// Maximum history of a collection, in changes and bytes.
const HISTORY_CHANGES: usize = 10_000;
const HISTORY_BYTES: usize = 40 << 20;

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) verb: Verb,
    /// The object after the change; for a deletion, its last state with the revision of the deletion.
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
}

/// Precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// Why a write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteError {
    Exists,
    Missing,
    /// Another client modified the object.
    Changed,
}

/// A consistent view of a collection or a part of it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<Arc<Stored>>,
}

/// The requested revision is not available, or no longer; `oldest` is the oldest available revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooOld {
    pub(crate) oldest: u64,
}

/// The position of a watcher in the history of a collection.
#[derive(Debug)]
pub(crate) struct Subscription {
    storage: &'static str,
    position: u64,
    signal: watch::Receiver<u64>,
}

/// Result of reading a subscription.
#[derive(Debug)]
pub(crate) enum Read {
    /// Changes in order. If `caught_up` is set, the watcher has all changes up to that revision.
    Changes { changes: Vec<Arc<Change>>, caught_up: Option<u64> },
    /// The watcher fell behind the history.
    Lagged,
}

/// All objects of the server.
#[derive(Debug)]
pub(crate) struct Store {
    inner: RwLock<Inner>,
    signals: HashMap<&'static str, watch::Sender<u64>>,
    revision: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    revision: u64,
    collections: HashMap<&'static str, Collection>,
}

#[derive(Debug, Default)]
struct Collection {
    objects: BTreeMap<Key, Arc<Stored>>,
    history: VecDeque<Arc<Change>>,
    /// The position of the first change in `history`.
    first: u64,
    /// Changes up to this revision were removed from `history`.
    compacted: u64,
    bytes: usize,
    /// The revision of the latest change.
    version: u64,
}

// === Reading ===

impl Store {
    pub(crate) fn new() -> Store {
        let storages = || RESOURCES.iter().filter(|r| !r.is_virtual()).map(|r| r.storage);
        Store {
            inner: RwLock::new(Inner {
                revision: 1,
                collections: storages().map(|s| (s, Collection::default())).collect(),
            }),
            signals: storages().map(|s| (s, watch::Sender::new(0))).collect(),
            revision: watch::Sender::new(1),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current revision of the store.
    pub(crate) fn revision(&self) -> u64 {
        self.read().revision
    }

    /// The revision of the latest change in a collection, for cache invalidation.
    pub(crate) fn version(&self, storage: &str) -> u64 {
        self.read().collection(storage).version
    }

    pub(crate) fn count(&self, storage: &str) -> usize {
        self.read().collection(storage).objects.len()
    }

    pub(crate) fn get(&self, storage: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.read().collection(storage).objects.get(&Key::new(namespace, name)).cloned()
    }

    /// Lists a collection, or one namespace of it, in key order.
    pub(crate) fn list(&self, storage: &str, namespace: Option<&str>) -> Snapshot {
        let inner = self.read();
        Snapshot { revision: inner.revision, objects: inner.collection(storage).range(namespace).cloned().collect() }
    }

    /// Lists a collection as it was at an older revision.
    pub(crate) fn list_at(&self, storage: &str, namespace: Option<&str>, revision: u64) -> Result<Snapshot, TooOld> {
        let inner = self.read();
        let collection = inner.collection(storage);
        if revision < collection.compacted || revision > inner.revision {
            return Err(TooOld { oldest: collection.compacted });
        }
        if revision >= collection.version {
            return Ok(Snapshot { revision, objects: collection.range(namespace).cloned().collect() });
        }
        let mut objects: BTreeMap<Key, Arc<Stored>> =
            collection.range(namespace).map(|o| (o.key.clone(), o.clone())).collect();
        let later = collection.history.iter().rev().take_while(|c| c.object.revision > revision);
        for change in later.filter(|c| namespace.is_none_or(|ns| *c.object.key.namespace == *ns)) {
            match &change.previous {
                Some(previous) => objects.insert(previous.key.clone(), previous.clone()),
                None => objects.remove(&change.object.key),
            };
        }
        Ok(Snapshot { revision, objects: objects.into_values().collect() })
    }

    /// Subscribes to the current revision.
    pub(crate) fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Waits until the store reaches a revision; returns the current revision after the timeout.
    pub(crate) async fn reached(&self, revision: u64, timeout: Duration) -> Result<(), u64> {
        let mut signal = self.revision.subscribe();
        let reached = tokio::time::timeout(timeout, signal.wait_for(|now| *now >= revision)).await;
        match reached {
            Ok(_) => Ok(()),
            Err(_) => Err(self.revision()),
        }
    }
}

// === Writing ===

impl Store {
    /// Creates or replaces an object.
    pub(crate) fn put(&self, storage: &'static str, expect: Expect, draft: Draft) -> Result<Arc<Stored>, WriteError> {
        let mut inner = self.write();
        let revision = inner.revision + 1;
        let collection = inner.collection_mut(storage);
        let previous = collection.objects.get(draft.key()).cloned();
        match (expect, &previous) {
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(_), None) => return Err(WriteError::Missing),
            (Expect::Revision(wanted), Some(found)) if found.revision != wanted => return Err(WriteError::Changed),
            _ => {}
        }
        let verb = if previous.is_some() { Verb::Modified } else { Verb::Added };
        let object = Arc::new(draft.finish(revision, verb));
        collection.objects.insert(object.key.clone(), object.clone());
        let end = collection.record(Change { verb, object: object.clone(), previous });
        inner.revision = revision;
        drop(inner);
        self.notify(storage, end, revision);
        Ok(object)
    }

    /// Deletes an object; returns its last state with the revision of the deletion.
    pub(crate) fn delete(&self, storage: &'static str, key: &Key, expected: u64) -> Result<Arc<Stored>, WriteError> {
        let mut inner = self.write();
        let revision = inner.revision + 1;
        let collection = inner.collection_mut(storage);
        let previous = match collection.objects.get(key) {
            None => return Err(WriteError::Missing),
            Some(found) if found.revision != expected => return Err(WriteError::Changed),
            Some(found) => found.clone(),
        };
        collection.objects.remove(key);
        let object = Arc::new(previous.tombstone(revision));
        let change = Change { verb: Verb::Deleted, object: object.clone(), previous: Some(previous) };
        let end = collection.record(change);
        inner.revision = revision;
        drop(inner);
        self.notify(storage, end, revision);
        Ok(object)
    }

    fn notify(&self, storage: &str, end: u64, revision: u64) {
        self.revision.send_modify(|now| *now = revision.max(*now));
        if let Some(signal) = self.signals.get(storage) {
            signal.send_modify(|now| *now = end.max(*now));
        }
    }

    /// Removes the history of all collections.
    pub(crate) fn compact(&self) {
        let mut inner = self.write();
        let revision = inner.revision;
        for collection in inner.collections.values_mut() {
            collection.first += collection.history.len() as u64;
            collection.history.clear();
            collection.bytes = 0;
            collection.compacted = revision;
        }
    }
}

// === Watching ===

impl Store {
    /// Subscribes to the changes after `revision`.
    pub(crate) fn subscribe(&self, storage: &'static str, revision: u64) -> Result<Subscription, TooOld> {
        let inner = self.read();
        let collection = inner.collection(storage);
        if revision < collection.compacted {
            return Err(TooOld { oldest: collection.compacted });
        }
        let skipped = collection.history.partition_point(|c| c.object.revision <= revision);
        Ok(self.subscription(storage, collection.first + skipped as u64))
    }

    /// Lists a collection and subscribes to the changes after the list.
    pub(crate) fn list_and_subscribe(
        &self,
        storage: &'static str,
        namespace: Option<&str>,
    ) -> (Snapshot, Subscription) {
        let inner = self.read();
        let collection = inner.collection(storage);
        let objects = collection.range(namespace).cloned().collect();
        let position = collection.first + collection.history.len() as u64;
        (Snapshot { revision: inner.revision, objects }, self.subscription(storage, position))
    }

    fn subscription(&self, storage: &'static str, position: u64) -> Subscription {
        let signal = match self.signals.get(storage) {
            Some(sender) => sender.subscribe(),
            None => watch::Sender::new(0).subscribe(),
        };
        Subscription { storage, position, signal }
    }

    /// Returns the next changes for this watcher, at most `limit`.
    pub(crate) fn next_changes(&self, subscription: &mut Subscription, limit: usize) -> Read {
        let inner = self.read();
        let collection = inner.collection(subscription.storage);
        if subscription.position < collection.first {
            return Read::Lagged;
        }
        let skip = (subscription.position - collection.first) as usize;
        let changes: Vec<_> = collection.history.iter().skip(skip).take(limit).cloned().collect();
        subscription.position += changes.len() as u64;
        let at_end = subscription.position == collection.first + collection.history.len() as u64;
        Read::Changes { changes, caught_up: at_end.then_some(inner.revision) }
    }
}

impl Subscription {
    /// Waits until there may be new changes.
    pub(crate) async fn changed(&mut self) {
        let position = self.position;
        // The sender lives as long as the store; without it no change can follow.
        if self.signal.wait_for(|end| *end > position).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

// === Internals ===

impl Inner {
    fn collection(&self, storage: &str) -> &Collection {
        match self.collections.get(storage) {
            Some(collection) => collection,
            None => unreachable!("no collection is called {storage}"),
        }
    }

    fn collection_mut(&mut self, storage: &str) -> &mut Collection {
        match self.collections.get_mut(storage) {
            Some(collection) => collection,
            None => unreachable!("no collection is called {storage}"),
        }
    }
}

impl Collection {
    fn range<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Stored>> {
        let start = match namespace {
            Some(ns) => Bound::Included(Key::new(ns, "")),
            None => Bound::Unbounded,
        };
        self.objects
            .range((start, Bound::Unbounded))
            .map(|(_, object)| object)
            .take_while(move |o| namespace.is_none_or(|ns| *o.key.namespace == *ns))
    }

    /// Appends a change to the history and returns the position after it.
    fn record(&mut self, change: Change) -> u64 {
        self.version = change.object.revision;
        self.bytes += change.object.size();
        self.history.push_back(Arc::new(change));
        while self.history.len() > HISTORY_CHANGES || self.bytes > HISTORY_BYTES {
            let Some(oldest) = self.history.pop_front() else { break };
            self.bytes -= oldest.object.size();
            self.compacted = oldest.object.revision;
            self.first += 1;
        }
        self.first + self.history.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find_kind;
    use serde_json::json;

    const MAPS: &str = "configmaps";

    fn draft(namespace: &str, name: &str, value: &str) -> Draft {
        let object = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"namespace": namespace, "name": name, "uid": name}, "data": {"k": value},
        });
        Draft::new(find_kind("v1", "ConfigMap").unwrap(), &object)
    }

    fn put(store: &Store, name: &str, value: &str) -> u64 {
        let expect = match store.get(MAPS, "n", name) {
            Some(found) => Expect::Revision(found.revision),
            None => Expect::Absent,
        };
        store.put(MAPS, expect, draft("n", name, value)).unwrap().revision
    }

    fn delete(store: &Store, name: &str) -> u64 {
        let found = store.get(MAPS, "n", name).unwrap();
        store.delete(MAPS, &found.key, found.revision).unwrap().revision
    }

    fn describe(snapshot: &Snapshot) -> Vec<String> {
        snapshot
            .objects
            .iter()
            .map(|o| format!("{}={}", o.key.name, o.value()["data"]["k"].as_str().unwrap()))
            .collect()
    }

    #[test]
    fn an_older_state_is_the_current_one_with_later_changes_undone() {
        let store = Store::new();
        put(&store, "a", "1");
        let first = put(&store, "b", "1");
        put(&store, "a", "2");
        delete(&store, "b");
        let second = put(&store, "c", "1");
        put(&store, "b", "3");
        let at = |revision| describe(&store.list_at(MAPS, Some("n"), revision).unwrap());
        assert_eq!(at(first), ["a=1", "b=1"]);
        assert_eq!(at(second), ["a=2", "c=1"]);
        assert_eq!(at(store.revision()), ["a=2", "b=3", "c=1"]);
        assert_eq!(describe(&store.list_at(MAPS, Some("other"), second).unwrap()), Vec::<String>::new());
    }

    #[test]
    fn a_write_with_a_failed_precondition_is_rejected() {
        let store = Store::new();
        let revision = put(&store, "a", "1");
        let rejected = |expect, name: &str| store.put(MAPS, expect, draft("n", name, "x")).unwrap_err();
        assert_eq!(rejected(Expect::Absent, "a"), WriteError::Exists);
        assert_eq!(rejected(Expect::Revision(revision + 1), "a"), WriteError::Changed);
        assert_eq!(rejected(Expect::Revision(1), "b"), WriteError::Missing);
        assert_eq!(store.revision(), revision, "a failed write does not increment the revision");
        assert_eq!(store.delete(MAPS, &Key::new("n", "a"), 1).unwrap_err(), WriteError::Changed);
    }

    fn read(store: &Store, subscription: &mut Subscription) -> Option<Vec<(Verb, u64)>> {
        match store.next_changes(subscription, 100) {
            Read::Changes { changes, .. } => Some(changes.iter().map(|c| (c.verb, c.object.revision)).collect()),
            Read::Lagged => None,
        }
    }

    #[test]
    fn a_watcher_reads_each_change_once_from_its_start() {
        let store = Store::new();
        let start = put(&store, "a", "1");
        let changed = put(&store, "a", "2");
        let mut watcher = store.subscribe(MAPS, start).unwrap();
        let gone = delete(&store, "a");
        assert_eq!(read(&store, &mut watcher), Some(vec![(Verb::Modified, changed), (Verb::Deleted, gone)]));
        assert_eq!(read(&store, &mut watcher), Some(vec![]));
        let (snapshot, mut late) = store.list_and_subscribe(MAPS, None);
        assert!(snapshot.objects.is_empty());
        let again = put(&store, "a", "3");
        assert_eq!(read(&store, &mut late), Some(vec![(Verb::Added, again)]));
    }

    #[test]
    fn compaction_removes_history_but_not_objects() {
        let store = Store::new();
        let old = put(&store, "a", "1");
        put(&store, "a", "2");
        let mut behind = store.subscribe(MAPS, old).unwrap();
        let (_, mut caught_up) = store.list_and_subscribe(MAPS, None);
        store.compact();
        let floor = store.revision();
        assert_eq!(store.subscribe(MAPS, old).unwrap_err(), TooOld { oldest: floor });
        assert!(store.list_at(MAPS, None, old).is_err());
        assert_eq!(read(&store, &mut behind), None, "the changes it had not read are compacted");
        let next = put(&store, "a", "3");
        assert_eq!(read(&store, &mut caught_up), Some(vec![(Verb::Modified, next)]));
        assert_eq!(describe(&store.list(MAPS, None)), ["a=3"]);
    }

    #[test]
    fn history_is_bounded() {
        let store = Store::new();
        let first = put(&store, "a", "0");
        let mut slow = store.subscribe(MAPS, first).unwrap();
        for n in 0..HISTORY_CHANGES + 5 {
            put(&store, "a", &n.to_string());
        }
        assert_eq!(read(&store, &mut slow), None);
        assert!(store.subscribe(MAPS, first).is_err());
        assert!(store.subscribe(MAPS, store.revision() - 10).is_ok());
    }

    #[tokio::test]
    async fn waiting_for_a_revision_ends_when_it_is_reached_or_times_out() {
        let store = Arc::new(Store::new());
        let wanted = store.revision() + 1;
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.reached(wanted, Duration::from_secs(30)).await }
        });
        put(&store, "a", "1");
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(store.reached(wanted + 9, Duration::from_millis(20)).await, Err(wanted));
    }
}
