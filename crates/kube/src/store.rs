//! Store: the last known state of all objects of a kind, fed by a watch.
//!
//! One writer at a time changes the store. Listeners are called for every change, in order, after the store has applied it.
//! Readers never wait for listeners.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bowline_core::{Node, Service};
use bowline_runtime::{Component, Metric, metrics};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

metrics! {
    /// Metrics of watches.
    pub METRICS;
    RESTARTS = Metric::counter(
        "bowline_watch_restarts_total",
        "Restarts of a watch after a disconnect or an error, by resource.",
    ).labels(&["resource"]);
    INTERRUPTED = Metric::gauge(
        "bowline_watch_interrupted",
        "1 while a watch is interrupted and the last known state is in use, by resource.",
    ).labels(&["resource"]);
    OBJECTS = Metric::gauge("bowline_watch_objects", "Objects in the store, by resource.").labels(&["resource"]);
}

/// Metrics of all watches. Clones share the same metrics.
#[derive(Clone)]
pub struct WatchMetrics {
    restarts: IntCounterVec,
    interrupted: IntGaugeVec,
    objects: IntGaugeVec,
}

impl WatchMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<WatchMetrics> {
        Ok(WatchMetrics {
            restarts: RESTARTS.register(registry)?,
            interrupted: INTERRUPTED.register(registry)?,
            objects: OBJECTS.register(registry)?,
        })
    }
}

/// Metrics of one watch.
struct Meter {
    restarts: IntCounter,
    interrupted: IntGauge,
    objects: IntGauge,
}

/// State of the watch behind a store.
#[derive(Default)]
struct WatchState {
    last_event: Option<Instant>,
    restarts: u64,
    interrupted_since: Option<Instant>,
    last_error: Option<(Instant, String)>,
}

/// Status of the watch behind a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchStatus {
    /// Whether the first list is complete.
    pub synced: bool,
    /// Number of objects.
    pub objects: usize,
    /// Number of restarts.
    pub restarts: u64,
    /// Time since which the watch is interrupted.
    pub interrupted_since: Option<Instant>,
    /// Reason of the last interruption.
    pub last_error: Option<String>,
}

/// Object that a [`Store`] holds.
pub trait Stored: Send + Sync + 'static {
    /// Key of the object: its name, or `namespace/name` for namespaced objects (`default/web`).
    fn key(&self) -> Cow<'_, str>;
    /// UID, which distinguishes the object from earlier or later ones with the same key.
    fn uid(&self) -> &str;
    /// Resource version, which changes with every write.
    fn resource_version(&self) -> &str;
}

impl Stored for Node {
    fn key(&self) -> Cow<'_, str> {
        self.name.as_str().into()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Stored for Service {
    fn key(&self) -> Cow<'_, str> {
        format!("{}/{}", self.namespace, self.name).into()
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// Change of an object.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// The object was added to the store.
    Added(Arc<T>),
    /// The object changed.
    Updated {
        /// Previous state.
        old: Arc<T>,
        /// Current state.
        new: Arc<T>,
    },
    /// The object was deleted; this is its last known state.
    Deleted(Arc<T>),
}

type Listener<T> = Arc<dyn Fn(&Change<T>) + Send + Sync>;

/// Store of the objects of a kind. Clones share the same store.
pub struct Store<T>(Arc<Shared<T>>);

struct Shared<T> {
    objects: RwLock<HashMap<Box<str>, Arc<T>>>,
    listeners: RwLock<Arc<Vec<Listener<T>>>>,
    /// Locked from a change until the last listener returns; not locked by readers.
    writing: Mutex<()>,
    synced: watch::Sender<bool>,
    watch: Mutex<WatchState>,
    meter: OnceLock<Meter>,
}

impl<T: Stored> Store<T> {
    /// Creates an empty store.
    pub fn new() -> Store<T> {
        Store(Arc::new(Shared {
            objects: RwLock::default(),
            listeners: RwLock::default(),
            writing: Mutex::default(),
            synced: watch::Sender::new(false),
            watch: Mutex::default(),
            meter: OnceLock::new(),
        }))
    }

    /// Records the metrics of the watch under this resource name. Later calls have no effect.
    pub fn count(&self, metrics: &WatchMetrics, resource: &str) {
        self.0.meter.get_or_init(|| Meter {
            restarts: metrics.restarts.with_label_values(&[resource]),
            interrupted: metrics.interrupted.with_label_values(&[resource]),
            objects: metrics.objects.with_label_values(&[resource]),
        });
    }

    /// Calls `listener` for every change from now on, in order, on the task that feeds the store. It must be quick, and may read
    /// the store but not write to it.
    pub fn listen(&self, listener: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let mut listeners = self.0.listeners.write().unwrap_or_else(PoisonError::into_inner);
        let mut longer = Vec::clone(&listeners);
        longer.push(Arc::new(listener));
        *listeners = Arc::new(longer);
    }

    /// Calls `handler` with `listener` for every change until `listener` is dropped. The store holds a weak reference, because a
    /// listener usually holds the store.
    pub fn listen_for<L: Send + Sync + 'static>(
        &self,
        listener: &Arc<L>,
        handler: impl Fn(&L, &Change<T>) + Send + Sync + 'static,
    ) {
        let listener = Arc::downgrade(listener);
        self.listen(move |change| {
            if let Some(listener) = listener.upgrade() {
                handler(&listener, change);
            }
        });
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read().get(key).cloned()
    }

    /// Returns all objects, in no particular order.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.read().values().cloned().collect()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether the store has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        // `self` holds the sender, so the channel cannot be closed.
        let _ = self.0.synced.subscribe().wait_for(|synced| *synced).await.is_ok();
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Stores an object. An object with the known resource version is ignored. An object that replaced another one of the same key
    /// is reported as a deletion and an addition.
    pub fn put(&self, object: T) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.get(&object.key()) {
            Some(known) if known.uid() != object.uid() => {
                self.delete(&object.key());
                self.insert(object);
            }
            Some(known) if is_same_version(&*known, &object) => {}
            _ => self.insert(object),
        }
    }

    /// Removes the object with this key, if it has this UID.
    pub fn remove(&self, key: &str, uid: &str) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get(key).is_some_and(|known| known.uid() == uid) {
            self.delete(key);
        }
    }

    /// Completes a list: removes all objects whose keys are not in it, and marks the store as synced.
    pub fn complete(&self, keys: &HashSet<Box<str>>) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Box<str>> = self.read().keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.delete(key));
        self.0.synced.send_replace(true);
    }

    // ---- state of the watch

    /// Records that the watch delivered an event.
    pub(crate) fn record_event(&self) {
        let mut watch = self.watch_state();
        watch.last_event = Some(Instant::now());
        if watch.interrupted_since.take().is_some() {
            self.meter(|meter| meter.interrupted.set(0));
        }
    }

    /// Records that the watch was interrupted or could not be started.
    pub(crate) fn record_interruption(&self, why: String) {
        let (mut watch, now) = (self.watch_state(), Instant::now());
        watch.restarts += 1;
        watch.interrupted_since.get_or_insert(now);
        watch.last_error = Some((now, why));
        self.meter(|meter| {
            meter.restarts.inc();
            meter.interrupted.set(1);
        });
    }

    /// Returns the status of the watch.
    pub fn watch_status(&self) -> WatchStatus {
        let (synced, objects, watch) = (self.is_synced(), self.len(), self.watch_state());
        WatchStatus {
            synced,
            objects,
            restarts: watch.restarts,
            interrupted_since: watch.interrupted_since,
            last_error: watch.last_error.as_ref().map(|(_, text)| text.clone()),
        }
    }

    fn watch_state(&self) -> MutexGuard<'_, WatchState> {
        self.0.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meter(&self, count: impl FnOnce(&Meter)) {
        if let Some(meter) = self.0.meter.get() {
            count(meter);
        }
    }

    // ---- changes

    fn insert(&self, object: T) {
        let new = Arc::new(object);
        let old = self.write().insert(new.key().into(), new.clone());
        self.notify(&match old {
            Some(old) => Change::Updated { old, new },
            None => Change::Added(new),
        });
    }

    fn delete(&self, key: &str) {
        let old = self.write().remove(key);
        if let Some(old) = old {
            self.notify(&Change::Deleted(old));
        }
    }

    fn notify(&self, change: &Change<T>) {
        self.meter(|meter| match change {
            Change::Added(_) => meter.objects.inc(),
            Change::Deleted(_) => meter.objects.dec(),
            Change::Updated { .. } => {}
        });
        let listeners = self.0.listeners.read().unwrap_or_else(PoisonError::into_inner).clone();
        listeners.iter().for_each(|listener| listener(change));
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Box<str>, Arc<T>>> {
        self.0.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Box<str>, Arc<T>>> {
        self.0.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An interrupted watch is shown but not unhealthy: it is restarted until it works, and the last known state stays in use.
impl<T: Stored> Component for Store<T> {
    fn status(&self) -> Value {
        let watch = self.watch_state();
        let ago = |at: Instant| at.elapsed().as_millis() as f64 / 1000.0;
        let error = watch.last_error.as_ref().map(|(at, text)| json!({"secondsAgo": ago(*at), "message": text}));
        json!({
            "synced": self.is_synced(),
            "objects": self.len(),
            "lastEventSecondsAgo": watch.last_event.map(ago),
            "restarts": watch.restarts,
            "interruptedForSeconds": watch.interrupted_since.map(ago),
            "lastError": error,
        })
    }
}

/// Objects without a resource version always count as different.
fn is_same_version<T: Stored>(known: &T, found: &T) -> bool {
    !found.resource_version().is_empty() && known.resource_version() == found.resource_version()
}

impl<T: Stored> Default for Store<T> {
    fn default() -> Store<T> {
        Store::new()
    }
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Store<T> {
        Store(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[derive(Debug)]
    struct Thing(&'static str, &'static str, &'static str);

    impl Stored for Thing {
        fn key(&self) -> Cow<'_, str> {
            self.0.into()
        }

        fn uid(&self) -> &str {
            self.1
        }

        fn resource_version(&self) -> &str {
            self.2
        }
    }

    /// A store, and the changes that its listener received, as short texts.
    fn store() -> (Store<Thing>, Arc<Mutex<Vec<String>>>) {
        let store = Store::new();
        let changes = Arc::new(Mutex::new(Vec::new()));
        store.listen({
            let (changes, store) = (changes.clone(), store.clone());
            move |change: &Change<Thing>| changes.lock().unwrap().push(format_change(change, &store))
        });
        (store, changes)
    }

    /// Formats the change, and whether the store has the object.
    fn format_change(change: &Change<Thing>, store: &Store<Thing>) -> String {
        let is_stored = |thing: &Thing| store.get(thing.0).is_some();
        match change {
            Change::Added(new) => format!("+{}/{}@{} {}", new.0, new.1, new.2, is_stored(new)),
            Change::Updated { old, new } => format!("{}@{}>{} {}", new.0, old.2, new.2, is_stored(new)),
            Change::Deleted(old) => format!("-{}/{}@{} {}", old.0, old.1, old.2, is_stored(old)),
        }
    }

    fn keys(keys: &[&str]) -> HashSet<Box<str>> {
        keys.iter().map(|key| (*key).into()).collect()
    }

    #[test]
    fn listeners_receive_every_change_in_order_with_old_and_new_state() {
        let (store, changes) = store();
        store.put(Thing("a", "u", "1"));
        store.put(Thing("a", "u", "2"));
        store.put(Thing("a", "u", "2"));
        store.remove("a", "u");
        store.remove("a", "u");
        assert_eq!(*changes.lock().unwrap(), ["+a/u@1 true", "a@1>2 true", "-a/u@2 false"]);
    }

    #[test]
    fn a_listener_is_called_until_it_is_dropped() {
        let (store, changes) = (Store::new(), Arc::new(Mutex::new(Vec::new())));
        store.listen_for(&changes, |changes, change| changes.lock().unwrap().push(matches!(change, Change::Added(_))));
        let still = changes.clone();
        drop(changes);
        store.put(Thing("a", "u", "1"));
        assert_eq!(*still.lock().unwrap(), [true]);
        let gone = Arc::downgrade(&still);
        drop(still);
        store.put(Thing("b", "v", "1"));
        assert!(gone.upgrade().is_none(), "the store holds no strong reference");
    }

    #[test]
    fn another_object_of_the_same_name_is_a_deletion_and_an_addition() {
        let (store, changes) = store();
        store.put(Thing("a", "first", "1"));
        store.put(Thing("a", "second", "5"));
        assert_eq!(*changes.lock().unwrap(), ["+a/first@1 true", "-a/first@1 false", "+a/second@5 true"]);
    }

    #[tokio::test(start_paused = true)]
    async fn interruptions_of_the_watch_are_reported_and_counted() {
        let (registry, (store, _)) = (Registry::new(), store());
        store.count(&WatchMetrics::register(&registry).unwrap(), "things");
        let counted = || -> Vec<f64> {
            let value = |family: &prometheus::proto::MetricFamily| {
                let sample = &family.get_metric()[0];
                sample.get_gauge().get_value() + sample.get_counter().get_value()
            };
            registry.gather().iter().map(value).collect()
        };
        store.put(Thing("a", "u", "1"));
        store.put(Thing("b", "v", "1"));
        store.complete(&keys(&["a"]));
        store.record_event();
        assert_eq!(counted(), [0.0, 1.0, 0.0], "interrupted, objects, restarts");
        store.record_interruption("cut".to_owned());
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let status = store.status();
        assert_eq!(counted(), [1.0, 1.0, 1.0]);
        assert_eq!((&status["synced"], &status["objects"], &status["restarts"]), (&true.into(), &1.into(), &1.into()));
        assert_eq!((&status["interruptedForSeconds"], &status["lastError"]["message"]), (&2.0.into(), &"cut".into()));
        store.record_event();
        assert_eq!((counted(), &store.status()["interruptedForSeconds"]), (vec![0.0, 1.0, 1.0], &Value::Null));
    }

    #[test]
    fn a_late_deletion_of_an_earlier_object_does_not_remove_the_current_one() {
        let (store, _) = store();
        store.put(Thing("a", "second", "5"));
        store.remove("a", "first");
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn a_complete_list_removes_missing_objects_and_ignores_unchanged_ones() {
        let (store, changes) = store();
        store.put(Thing("a", "u", "1"));
        store.put(Thing("b", "v", "1"));
        assert!(!store.is_synced());
        changes.lock().unwrap().clear();
        store.put(Thing("a", "u", "1"));
        store.complete(&keys(&["a"]));
        assert_eq!(*changes.lock().unwrap(), ["-b/v@1 false"]);
        assert!(store.is_synced());
    }

    #[test]
    fn objects_without_a_resource_version_always_count_as_changed() {
        let (store, changes) = store();
        store.put(Thing("a", "u", ""));
        store.put(Thing("a", "u", ""));
        assert_eq!(changes.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn waiting_for_the_first_list_ends_when_it_is_complete() {
        let (store, _) = store();
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.synced().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        store.complete(&keys(&[]));
        waiting.await.unwrap();
        store.synced().await;
    }
}
