//! Machine lookups: batched, shared while in flight, and cached up to a maximum age.
//!
//! ```text
//!  lookup ──► cache (`Within` only, existing machines only, not older than the maximum age) ──► result
//!      │
//!      ├──► a read in flight (`Within` only, begun within the maximum age) ──► its result
//!      └──► the pending read ──after the batch window──► begun ──► find or list ──► results, cache
//! ```
//!
//! A read runs in a task of its own, so a caller that stops waiting does not affect other callers. A write
//! [invalidates](Cache::invalidate) everything that was read of its machine before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{Instance, InstanceRef, InstanceState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::layers::observe::Metrics;
use crate::layers::read::Reader;
use crate::{Error, ErrorKind, Freshness, Identity, Result};

/// Cache of the machine lookups of one provider.
pub(crate) struct Cache {
    reader: Reader,
    batch_window: Duration,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

/// Cache key of a lookup. Without a provider ID it includes the system UUID in addition to the name: a machine that replaced
/// another of the same name must not get the result of its predecessor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) identity: Identity,
    system_uuid: Option<String>,
}

/// A lookup in a read.
pub(crate) struct Lookup {
    pub(crate) key: Key,
    pub(crate) machine: InstanceRef,
    result: watch::Sender<Option<LookupResult>>,
}

type LookupResult = Result<InstanceState>;

#[derive(Default)]
struct State {
    entries: HashMap<Key, CacheEntry>,
    /// The latest read of each key that has begun and not finished.
    in_flight: HashMap<Key, Flight>,
    pending: Vec<Lookup>,
    /// Receivers of the results of the pending lookups.
    receivers: HashMap<Key, watch::Receiver<Option<LookupResult>>>,
    /// Largest maximum age of any lookup so far; older entries are useless.
    max_age: Duration,
}

/// Result of the latest read, with the time at which it began. The absence of a machine is stored only so that an older read that
/// finishes later does not overwrite it.
struct CacheEntry {
    exists: Option<InstanceState>,
    as_of: Instant,
}

struct Flight {
    begun: Instant,
    result: watch::Receiver<Option<LookupResult>>,
}

/// Source of a caller's result.
enum Source {
    Known(LookupResult),
    Read(watch::Receiver<Option<LookupResult>>),
}

impl Cache {
    pub(crate) fn new(reader: Reader, batch_window: Duration, metrics: Arc<Metrics>) -> Arc<Cache> {
        Arc::new(Cache { reader, batch_window, metrics, state: Mutex::default() })
    }

    /// Looks up machines. Returns one result each, in the same order.
    pub(crate) async fn find(self: &Arc<Cache>, refs: &[InstanceRef], freshness: Freshness) -> Vec<LookupResult> {
        let sources: Vec<_> = refs.iter().map(|machine| self.source(machine, freshness)).collect();
        let mut results = Vec::with_capacity(sources.len());
        for source in sources {
            results.push(source.result().await);
        }
        results
    }

    fn source(self: &Arc<Cache>, machine: &InstanceRef, freshness: Freshness) -> Source {
        match self.reader.identify(machine) {
            Err(error) => Source::Known(Err(error)),
            Ok(Identity::NotMine) => Source::Known(Ok(InstanceState::NotMine)),
            Ok(identity) => self.cached_or_read(Key::new(identity, machine), machine, freshness),
        }
    }

    fn cached_or_read(self: &Arc<Cache>, key: Key, machine: &InstanceRef, freshness: Freshness) -> Source {
        let mut state = self.lock();
        if let Freshness::Within(max_age) = freshness {
            let known = state.within(&key, max_age);
            self.metrics.record_cache_lookup(matches!(known, Some(Source::Known(_))));
            if let Some(known) = known {
                return known;
            }
        }
        if state.pending.is_empty() {
            tokio::spawn(Arc::clone(self).read_pending());
        }
        Source::Read(state.enqueue(key, machine))
    }

    /// Waits for the batch window, and reads the pending lookups.
    async fn read_pending(self: Arc<Cache>) {
        sleep(self.batch_window).await;
        let begun = Instant::now();
        let lookups = self.lock().begin(begun);
        let complete = |lookup: Lookup, result: LookupResult| self.lock().complete(lookup, result, begun);
        self.reader.read(lookups, complete).await;
    }

    /// Invalidates a machine that was or may have been changed: its cache entries and the reads in flight, whether by ID or by
    /// name.
    pub(crate) fn invalidate(&self, machine: &InstanceRef) {
        let identity = self.reader.identify(machine).unwrap_or(Identity::NotMine);
        self.lock().invalidate(machine, &identity);
    }

    /// Number of cached machines.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Number of machines with a read in flight.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.lock().in_flight.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    fn new(identity: Identity, machine: &InstanceRef) -> Key {
        let system_uuid = machine.system_uuid.clone().filter(|_| machine.provider_id.is_none());
        Key { identity, system_uuid }
    }
}

impl State {
    /// Returns a cached result or a read in flight that is not older than `max_age`.
    fn within(&mut self, key: &Key, max_age: Duration) -> Option<Source> {
        self.max_age = self.max_age.max(max_age);
        let known = self.entries.get(key).filter(|entry| entry.as_of.elapsed() <= max_age);
        if let Some(state) = known.and_then(|entry| entry.exists.clone()) {
            return Some(Source::Known(Ok(state)));
        }
        let flight = self.in_flight.get(key).filter(|flight| flight.begun.elapsed() <= max_age)?;
        // A read whose task has ended without a result is skipped.
        flight.result.has_changed().is_ok().then(|| Source::Read(flight.result.clone()))
    }

    /// Adds a lookup to the pending read.
    fn enqueue(&mut self, key: Key, machine: &InstanceRef) -> watch::Receiver<Option<LookupResult>> {
        if let Some(receiver) = self.receivers.get(&key) {
            return receiver.clone();
        }
        let (sender, receiver) = watch::channel(None);
        self.receivers.insert(key.clone(), receiver.clone());
        self.pending.push(Lookup { key, machine: machine.clone(), result: sender });
        receiver
    }

    /// Starts the pending read. From now on only lookups that accept a result of this age may join it.
    fn begin(&mut self, begun: Instant) -> Vec<Lookup> {
        self.evict();
        let flights = self.receivers.drain().map(|(key, result)| (key, Flight { begun, result }));
        self.in_flight.extend(flights);
        std::mem::take(&mut self.pending)
    }

    fn complete(&mut self, lookup: Lookup, result: LookupResult, begun: Instant) {
        // The result is stored only if no later read and no write has superseded this read.
        if self.in_flight.get(&lookup.key).is_some_and(|flight| flight.begun == begun) {
            self.in_flight.remove(&lookup.key);
            self.store(&lookup.key, &result, begun);
        }
        lookup.result.send_replace(Some(result));
    }

    /// Stores the result of the latest read; failures are not stored.
    fn store(&mut self, key: &Key, result: &LookupResult, as_of: Instant) {
        let Ok(state) = result else { return };
        if self.entries.get(key).is_none_or(|entry| entry.as_of <= as_of) {
            let exists = state.instance().is_some().then(|| state.clone());
            self.entries.insert(key.clone(), CacheEntry { exists, as_of });
        }
    }

    /// Removes all entries of a machine. The ID of a name is unknown until a read has finished, so without an ID all reads in
    /// flight are invalidated.
    fn invalidate(&mut self, machine: &InstanceRef, identity: &Identity) {
        let is_named =
            |identity: &Identity| matches!(identity, Identity::Name(name) if *name == *machine.node.as_str());
        let matches_key = |key: &Key| key.identity == *identity || is_named(&key.identity);
        self.entries.retain(|key, entry| {
            let known = entry.exists.as_ref().and_then(InstanceState::instance);
            !matches_key(key) && known.is_none_or(|known| !is_same(known, machine, identity))
        });
        let by_id = matches!(identity, Identity::Id(_));
        self.in_flight.retain(|key, _| by_id && !matches_key(key));
    }

    /// Removes entries that are too old for any lookup, and reads whose task has ended.
    fn evict(&mut self) {
        let max_age = self.max_age;
        self.entries.retain(|_, entry| entry.as_of.elapsed() <= max_age);
        self.in_flight.retain(|_, flight| flight.result.has_changed().is_ok());
    }
}

/// Returns whether this is the machine of the reference.
fn is_same(known: &Instance, machine: &InstanceRef, identity: &Identity) -> bool {
    match identity {
        Identity::Id(id) => known.id == *id,
        _ => known.name == machine.node.as_str(),
    }
}

impl Source {
    async fn result(self) -> LookupResult {
        let mut receiver = match self {
            Source::Known(result) => return result,
            Source::Read(receiver) => receiver,
        };
        let result = receiver.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        result.unwrap_or_else(|| {
            let message = "the read ended without a result; see the log";
            Err(Error::new(ErrorKind::Unexpected, "find instances", message))
        })
    }
}
