//! What is known of the cluster: the last state of every object of a kind, fed by a watch.
//!
//! There is one writer at a time, and listeners hear of every change in the order in which it was made, with the store
//! already showing it. Readers never wait for listeners.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bowline_core::{Node, Service};
use bowline_runtime::{Metric, Part, metrics};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

metrics! {
    /// What watches tell.
    pub METRICS;
    RESTARTS = Metric::counter(
        "bowline_watch_restarts_total",
        "How often a watch was cut off or refused and begun anew, by what is watched.",
    ).labels(&["resource"]);
    INTERRUPTED = Metric::gauge(
        "bowline_watch_interrupted",
        "1 while a watch is cut off and the last known state is in use, by what is watched.",
    ).labels(&["resource"]);
    OBJECTS = Metric::gauge("bowline_watch_objects", "Objects that are known, by what is watched.").labels(&["resource"]);
}

/// The metrics of all watches. Clones are the same metrics.
#[derive(Clone)]
pub struct WatchMetrics {
    restarts: IntCounterVec,
    interrupted: IntGaugeVec,
    objects: IntGaugeVec,
}

impl WatchMetrics {
    /// Registers them.
    pub fn register(registry: &Registry) -> prometheus::Result<WatchMetrics> {
        Ok(WatchMetrics {
            restarts: RESTARTS.register(registry)?,
            interrupted: INTERRUPTED.register(registry)?,
            objects: OBJECTS.register(registry)?,
        })
    }
}

/// Those of one watch.
struct Meter {
    restarts: IntCounter,
    interrupted: IntGauge,
    objects: IntGauge,
}

/// What the watch behind a store went through.
#[derive(Default)]
struct News {
    last_event: Option<Instant>,
    restarts: u64,
    interrupted_since: Option<Instant>,
    last_error: Option<(Instant, String)>,
}

/// What a [`Store`] can hold: something with a name and a version.
pub trait Stored: Send + Sync + 'static {
    /// What it is looked up by: its name, with its namespace before it if it has one (`default/web`).
    fn key(&self) -> Cow<'_, str>;
    /// Tells it from an earlier or later object of the same key.
    fn uid(&self) -> &str;
    /// Differs whenever anything else does.
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

/// What happened to an object.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// It is new, to us.
    Added(Arc<T>),
    /// It changed.
    Updated {
        /// As it was.
        old: Arc<T>,
        /// As it is.
        new: Arc<T>,
    },
    /// It is gone; this is the last we saw of it.
    Deleted(Arc<T>),
}

type Listener<T> = Arc<dyn Fn(&Change<T>) + Send + Sync>;

/// The objects of a kind. Clones are the same store.
pub struct Store<T>(Arc<Shared<T>>);

struct Shared<T> {
    objects: RwLock<HashMap<Box<str>, Arc<T>>>,
    listeners: RwLock<Arc<Vec<Listener<T>>>>,
    /// Held from a change until the last listener has heard of it; not held by readers.
    writing: Mutex<()>,
    synced: watch::Sender<bool>,
    news: Mutex<News>,
    meter: OnceLock<Meter>,
}

impl<T: Stored> Store<T> {
    /// An empty store.
    pub fn new() -> Store<T> {
        Store(Arc::new(Shared {
            objects: RwLock::default(),
            listeners: RwLock::default(),
            writing: Mutex::default(),
            synced: watch::Sender::new(false),
            news: Mutex::default(),
            meter: OnceLock::new(),
        }))
    }

    /// Its watch is counted under this name from now on. The first name stays.
    pub fn count(&self, metrics: &WatchMetrics, resource: &str) {
        self.0.meter.get_or_init(|| Meter {
            restarts: metrics.restarts.with_label_values(&[resource]),
            interrupted: metrics.interrupted.with_label_values(&[resource]),
            objects: metrics.objects.with_label_values(&[resource]),
        });
    }

    /// Calls `listener` for every change from now on, in order, on the task that feeds the store: it must be quick, and
    /// may read the store but not write to it.
    pub fn listen(&self, listener: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let mut listeners = self.0.listeners.write().unwrap_or_else(PoisonError::into_inner);
        let mut longer = Vec::clone(&listeners);
        longer.push(Arc::new(listener));
        *listeners = Arc::new(longer);
    }

    /// The same, with what `listener` makes of a change, for as long as somebody else has it: what listens most often has the
    /// store, and would keep itself.
    pub fn listen_for<L: Send + Sync + 'static>(
        &self,
        listener: &Arc<L>,
        hear: impl Fn(&L, &Change<T>) + Send + Sync + 'static,
    ) {
        let listener = Arc::downgrade(listener);
        self.listen(move |change| {
            if let Some(listener) = listener.upgrade() {
                hear(&listener, change);
            }
        });
    }

    /// The object of this name.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read().get(key).cloned()
    }

    /// All objects, in no particular order.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.read().values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until everything that was there at the start is in.
    pub async fn synced(&self) {
        // The sender is in `self`, so it cannot be gone.
        let _ = self.0.synced.subscribe().wait_for(|synced| *synced).await.is_ok();
    }

    /// Everything that was there at the start is in.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// The object is now like this. Nothing happens if that is known already; an object that took the place of another
    /// of the same key is told as a deletion and an addition.
    pub fn put(&self, object: T) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.get(&object.key()) {
            Some(known) if known.uid() != object.uid() => {
                self.take_out(&object.key());
                self.put_in(object);
            }
            Some(known) if is_same_version(&*known, &object) => {}
            _ => self.put_in(object),
        }
    }

    /// The object with this key is gone, unless it is another one than that with this UID.
    pub fn remove(&self, key: &str, uid: &str) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get(key).is_some_and(|known| known.uid() == uid) {
            self.take_out(key);
        }
    }

    /// These are the keys of all objects that there are: the others are gone, and the store is complete.
    pub fn complete(&self, keys: &HashSet<Box<str>>) {
        let _writing = self.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Box<str>> = self.read().keys().filter(|key| !keys.contains(*key)).cloned().collect();
        gone.iter().for_each(|key| self.take_out(key));
        self.0.synced.send_replace(true);
    }

    // ---- what its watch went through

    /// Something has arrived.
    pub(crate) fn heard(&self) {
        let mut news = self.news();
        news.last_event = Some(Instant::now());
        if news.interrupted_since.take().is_some() {
            self.meter(|meter| meter.interrupted.set(0));
        }
    }

    /// The watch was cut off, or could not be begun.
    pub(crate) fn interrupted(&self, why: String) {
        let (mut news, now) = (self.news(), Instant::now());
        news.restarts += 1;
        news.interrupted_since.get_or_insert(now);
        news.last_error = Some((now, why));
        self.meter(|meter| {
            meter.restarts.inc();
            meter.interrupted.set(1);
        });
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.0.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meter(&self, count: impl FnOnce(&Meter)) {
        if let Some(meter) = self.0.meter.get() {
            count(meter);
        }
    }

    // ---- changes

    fn put_in(&self, object: T) {
        let new = Arc::new(object);
        let old = self.write().insert(new.key().into(), new.clone());
        self.tell(&match old {
            Some(old) => Change::Updated { old, new },
            None => Change::Added(new),
        });
    }

    fn take_out(&self, key: &str) {
        let old = self.write().remove(key);
        if let Some(old) = old {
            self.tell(&Change::Deleted(old));
        }
    }

    fn tell(&self, change: &Change<T>) {
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

/// A watch that is cut off is shown and is no ailment of ours: it is begun anew until it holds, and the last known state is in
/// use meanwhile.
impl<T: Stored> Part for Store<T> {
    fn status(&self) -> Value {
        let news = self.news();
        let ago = |at: Instant| at.elapsed().as_millis() as f64 / 1000.0;
        let error = news.last_error.as_ref().map(|(at, text)| json!({"secondsAgo": ago(*at), "message": text}));
        json!({
            "synced": self.is_synced(),
            "objects": self.len(),
            "lastEventSecondsAgo": news.last_event.map(ago),
            "restarts": news.restarts,
            "interruptedForSeconds": news.interrupted_since.map(ago),
            "lastError": error,
        })
    }
}

/// Objects without a version cannot be compared, and so count as different.
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

    /// A store, and what its listener heard, as short texts.
    fn store() -> (Store<Thing>, Arc<Mutex<Vec<String>>>) {
        let store = Store::new();
        let heard = Arc::new(Mutex::new(Vec::new()));
        store.listen({
            let (heard, store) = (heard.clone(), store.clone());
            move |change: &Change<Thing>| heard.lock().unwrap().push(spell(change, &store))
        });
        (store, heard)
    }

    /// The change, and whether the store shows the object by now.
    fn spell(change: &Change<Thing>, store: &Store<Thing>) -> String {
        let shows = |thing: &Thing| store.get(thing.0).is_some();
        match change {
            Change::Added(new) => format!("+{}/{}@{} {}", new.0, new.1, new.2, shows(new)),
            Change::Updated { old, new } => format!("{}@{}>{} {}", new.0, old.2, new.2, shows(new)),
            Change::Deleted(old) => format!("-{}/{}@{} {}", old.0, old.1, old.2, shows(old)),
        }
    }

    fn keys(keys: &[&str]) -> HashSet<Box<str>> {
        keys.iter().map(|key| (*key).into()).collect()
    }

    #[test]
    fn listeners_hear_every_change_in_order_with_old_and_new() {
        let (store, heard) = store();
        store.put(Thing("a", "u", "1"));
        store.put(Thing("a", "u", "2"));
        store.put(Thing("a", "u", "2"));
        store.remove("a", "u");
        store.remove("a", "u");
        assert_eq!(*heard.lock().unwrap(), ["+a/u@1 true", "a@1>2 true", "-a/u@2 false"]);
    }

    #[test]
    fn a_listener_hears_as_long_as_somebody_has_it() {
        let (store, heard) = (Store::new(), Arc::new(Mutex::new(Vec::new())));
        store.listen_for(&heard, |heard, change| heard.lock().unwrap().push(matches!(change, Change::Added(_))));
        let still = heard.clone();
        drop(heard);
        store.put(Thing("a", "u", "1"));
        assert_eq!(*still.lock().unwrap(), [true]);
        let gone = Arc::downgrade(&still);
        drop(still);
        store.put(Thing("b", "v", "1"));
        assert!(gone.upgrade().is_none(), "the store does not keep it");
    }

    #[test]
    fn another_object_of_the_same_name_is_a_deletion_and_an_addition() {
        let (store, heard) = store();
        store.put(Thing("a", "first", "1"));
        store.put(Thing("a", "second", "5"));
        assert_eq!(*heard.lock().unwrap(), ["+a/first@1 true", "-a/first@1 false", "+a/second@5 true"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_watch_went_through_is_shown_and_counted() {
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
        store.heard();
        assert_eq!(counted(), [0.0, 1.0, 0.0], "interrupted, objects, restarts");
        store.interrupted("cut".to_owned());
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let status = store.status();
        assert_eq!(counted(), [1.0, 1.0, 1.0]);
        assert_eq!((&status["synced"], &status["objects"], &status["restarts"]), (&true.into(), &1.into(), &1.into()));
        assert_eq!((&status["interruptedForSeconds"], &status["lastError"]["message"]), (&2.0.into(), &"cut".into()));
        store.heard();
        assert_eq!((counted(), &store.status()["interruptedForSeconds"]), (vec![0.0, 1.0, 1.0], &Value::Null));
    }

    #[test]
    fn a_late_word_of_an_earlier_object_does_not_remove_the_present_one() {
        let (store, _) = store();
        store.put(Thing("a", "second", "5"));
        store.remove("a", "first");
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn a_complete_list_removes_what_it_lacks_and_says_nothing_of_what_is_equal() {
        let (store, heard) = store();
        store.put(Thing("a", "u", "1"));
        store.put(Thing("b", "v", "1"));
        assert!(!store.is_synced());
        heard.lock().unwrap().clear();
        store.put(Thing("a", "u", "1"));
        store.complete(&keys(&["a"]));
        assert_eq!(*heard.lock().unwrap(), ["-b/v@1 false"]);
        assert!(store.is_synced());
    }

    #[test]
    fn objects_without_a_version_always_count_as_changed() {
        let (store, heard) = store();
        store.put(Thing("a", "u", ""));
        store.put(Thing("a", "u", ""));
        assert_eq!(heard.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn waiting_for_the_first_list_ends_when_it_is_in() {
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
