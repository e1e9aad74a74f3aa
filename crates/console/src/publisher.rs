//! Publishes the document: assigns a revision to each change, and returns what is new to a client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bowline_runtime::Clock;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::{Changes, Document, Position, Sources};

/// Minimum time between two reads of the sources, so that several clients share one document.
const MIN_AGE: Duration = Duration::from_millis(400);

/// Maximum number of removed keys that are remembered. A client that is further behind gets the complete document.
const MAX_REMOVED: usize = 10_000;

/// Time without a request after which the document is dropped, to free its memory.
const IDLE: Duration = Duration::from_secs(60);

/// Interval at which a document without clients is looked for.
const IDLE_CHECK: Duration = Duration::from_secs(30);

/// Publishes the document of this process. Clones share their state.
#[derive(Clone)]
pub struct Publisher {
    sources: Sources,
    clock: Clock,
    epoch: Arc<str>,
    state: Arc<Mutex<State>>,
}

/// The last document that was published.
#[derive(Default)]
struct State {
    revision: u64,
    /// The document itself: comparing an item costs a fraction of serialising it.
    document: Document,
    items: BTreeMap<Arc<str>, Item>,
    /// Removed keys with the revision of their removal, oldest first.
    removed: VecDeque<(u64, Arc<str>)>,
    /// Oldest revision since which all removals are remembered.
    oldest: u64,
    read_at: Option<Instant>,
    /// Number of times that the sources were read.
    reads: u64,
}

struct Item {
    /// Revision of the last change.
    revision: u64,
    /// Number of the last read that had it.
    read: u64,
    json: Arc<RawValue>,
}

impl Publisher {
    /// Creates a publisher of these sources.
    pub fn new(sources: Sources, clock: Clock) -> Publisher {
        let epoch = format!("{:016x}", fastrand::u64(..)).into();
        Publisher { sources, clock, epoch, state: Arc::default() }
    }

    /// Returns what has changed since this position. Reads the sources, unless another client has just done so.
    pub fn changes(&self, position: &Position) -> serde_json::Result<Changes> {
        let now = self.clock.instant();
        let mut state = self.state();
        if state.read_at.is_none_or(|read_at| now.saturating_duration_since(read_at) >= MIN_AGE) {
            state.update(self.sources.read())?;
            state.read_at = Some(now);
        }
        let since = (*position.epoch == *self.epoch).then_some(position.revision);
        Ok(state.since(since, self.epoch.clone(), self.clock.now()))
    }

    /// Drops the document if no client has read it for a minute. Clients that come back get the complete document.
    pub fn release_if_idle(&self) {
        let now = self.clock.instant();
        let mut state = self.state();
        if state.read_at.is_some_and(|read_at| now.saturating_duration_since(read_at) >= IDLE) {
            // The revision goes on, so that an old position is never mistaken for a current one.
            let revision = state.revision + 1;
            *state = State { revision, oldest: revision, ..State::default() };
        }
    }

    /// Drops the document whenever no client has read it for a minute. Never completes.
    pub async fn release_when_idle(&self) {
        loop {
            tokio::time::sleep(IDLE_CHECK).await;
            self.release_if_idle();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while a document is compared leaves at worst a mixture of two documents, which the next read corrects.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Replaces the document, and records which items have changed.
    fn update(&mut self, document: Document) -> serde_json::Result<()> {
        self.reads += 1;
        let (next, read) = (self.revision + 1, self.reads);
        let items = &mut self.items;
        let mut update = Update { items, next, read, is_changed: false, key: String::new() };
        update.all(&self.document, &document)?;
        let mut is_changed = update.is_changed;
        self.document = document;
        self.items.retain(|key, item| {
            let exists = item.read == read;
            if !exists {
                is_changed = true;
                self.removed.push_back((next, key.clone()));
            }
            exists
        });
        if is_changed {
            self.revision = next;
        }
        while self.removed.len() > MAX_REMOVED {
            self.oldest = self.removed.pop_front().map_or(self.oldest, |(revision, _)| revision);
        }
        Ok(())
    }

    /// Returns the changes since this revision; the whole document if the revision is unknown.
    fn since(&self, since: Option<u64>, epoch: Arc<str>, time: jiff::Timestamp) -> Changes {
        let known = since.filter(|since| (self.oldest..=self.revision).contains(since));
        let (complete, since) = (known.is_none(), known.unwrap_or_default());
        let changed = self.items.iter().filter(|(_, item)| complete || item.revision > since);
        let removed = self.removed.iter().filter(|(revision, key)| {
            // A key that exists again is in `items`.
            !complete && *revision > since && !self.items.contains_key(key)
        });
        Changes {
            epoch,
            revision: self.revision,
            complete,
            time,
            items: changed.map(|(key, item)| (key.clone(), item.json.clone())).collect(),
            removed: removed.map(|(_, key)| key.clone()).collect(),
        }
    }
}

/// Comparison of a document with the items of the one before, in place: most items have not changed, and cost no allocation.
struct Update<'a> {
    items: &'a mut BTreeMap<Arc<str>, Item>,
    /// Revision of the items that have changed.
    next: u64,
    /// Number of this read.
    read: u64,
    is_changed: bool,
    /// Key of the current item.
    key: String,
}

impl Update<'_> {
    fn all(&mut self, before: &Document, document: &Document) -> serde_json::Result<()> {
        let Document {
            manager,
            cloud,
            machine,
            node,
            service,
            load_balancer,
            route,
            controller,
            queue,
            watch,
            event,
            step,
            fault,
        } = document;
        self.kind("manager", &before.manager, manager)?;
        self.kind("cloud", &before.cloud, cloud)?;
        self.kind("machine", &before.machine, machine)?;
        self.kind("node", &before.node, node)?;
        self.kind("service", &before.service, service)?;
        self.kind("loadBalancer", &before.load_balancer, load_balancer)?;
        self.kind("route", &before.route, route)?;
        self.kind("controller", &before.controller, controller)?;
        self.kind("queue", &before.queue, queue)?;
        self.kind("watch", &before.watch, watch)?;
        self.kind("event", &before.event, event)?;
        self.kind("step", &before.step, step)?;
        self.kind("fault", &before.fault, fault)
    }

    fn kind<T: Serialize + PartialEq>(
        &mut self,
        kind: &str,
        before: &BTreeMap<String, T>,
        items: &BTreeMap<String, T>,
    ) -> serde_json::Result<()> {
        for (name, item) in items {
            self.key.clear();
            self.key.extend([kind, "/", name]);
            let is_same = before.get(name).is_some_and(|before| before == item);
            if let Some(known) = self.items.get_mut(&*self.key).filter(|_| is_same) {
                known.read = self.read;
                continue;
            }
            let item = Item { revision: self.next, read: self.read, json: to_raw_value(item)?.into() };
            self.items.insert(self.key.as_str().into(), item);
            self.is_changed = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::document::{Fault, Watch};

    /// A publisher whose document is this shared value.
    struct Fixture {
        document: Arc<Mutex<Document>>,
        publisher: Publisher,
    }

    impl Fixture {
        fn new() -> Fixture {
            let document = Arc::new(Mutex::new(Document::default()));
            let (sources, shared) = (Sources::new(), document.clone());
            sources.add(move |document: &mut Document| *document = shared.lock().unwrap().clone());
            let clock = Clock::from_tokio("2026-01-01T00:00:00Z".parse().unwrap());
            Fixture { document, publisher: Publisher::new(sources, clock) }
        }

        fn set(&self, name: &str, on: bool) {
            self.document.lock().unwrap().fault.insert(name.to_owned(), Fault { on, ..Fault::default() });
        }

        fn remove(&self, name: &str) {
            self.document.lock().unwrap().fault.remove(name);
        }

        /// Returns the changes since this position, a while after the last request, and moves the position.
        async fn changes(&self, position: &mut Position) -> Value {
            tokio::time::advance(MIN_AGE).await;
            let changes = self.publisher.changes(position).unwrap();
            *position = Position { epoch: changes.epoch.to_string(), revision: changes.revision };
            let changes = serde_json::to_value(&changes).unwrap();
            let keys: Vec<_> = changes["items"].as_object().unwrap().keys().cloned().collect();
            json!([changes["complete"], keys, changes.get("removed").cloned().unwrap_or(json!([]))])
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_everything_once_and_then_only_changes() {
        let (fixture, mut position) = (Fixture::new(), Position::default());
        fixture.set("a", false);
        fixture.set("b", false);
        assert_eq!(fixture.changes(&mut position).await, json!([true, ["fault/a", "fault/b"], []]));
        assert_eq!(fixture.changes(&mut position).await, json!([false, [], []]));
        fixture.set("b", true);
        assert_eq!(fixture.changes(&mut position).await, json!([false, ["fault/b"], []]));
        fixture.remove("a");
        assert_eq!(fixture.changes(&mut position).await, json!([false, [], ["fault/a"]]));
        fixture.set("a", false);
        let mut late = Position { revision: 1, ..position.clone() };
        assert_eq!(fixture.changes(&mut position).await, json!([false, ["fault/a"], []]));
        assert_eq!(fixture.changes(&mut late).await, json!([false, ["fault/a", "fault/b"], []]), "it is not removed");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_position_gets_the_complete_document() {
        let (fixture, mut position) = (Fixture::new(), Position::default());
        fixture.set("a", false);
        fixture.changes(&mut position).await;
        for unknown in [
            Position { epoch: "another process".to_owned(), ..position.clone() },
            Position { revision: 99, ..position.clone() },
        ] {
            assert_eq!(fixture.changes(&mut unknown.clone()).await[0], json!(true), "{unknown:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_share_one_read_and_an_idle_publisher_keeps_nothing() {
        let (fixture, mut position) = (Fixture::new(), Position::default());
        fixture.set("a", false);
        fixture.changes(&mut position).await;
        fixture.set("a", true);
        assert!(fixture.publisher.changes(&position).unwrap().items.is_empty(), "just read");
        fixture.publisher.release_if_idle();
        assert!(!fixture.publisher.state().items.is_empty());
        tokio::time::advance(IDLE).await;
        fixture.publisher.release_if_idle();
        assert!(fixture.publisher.state().items.is_empty());
        assert_eq!(fixture.changes(&mut position).await, json!([true, ["fault/a"], []]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_missed_too_many_removals_gets_the_complete_document() {
        let (fixture, mut position) = (Fixture::new(), Position::default());
        let watch = |number: usize| (format!("{number}"), Watch::default());
        fixture.document.lock().unwrap().watch = (0..=MAX_REMOVED).map(watch).collect();
        fixture.changes(&mut position).await;
        let before = position.clone();
        *fixture.document.lock().unwrap() = Document::default();
        assert_eq!(fixture.changes(&mut position).await[0], json!(true));
        fixture.set("a", false);
        assert_eq!(fixture.changes(&mut position).await, json!([false, ["fault/a"], []]));
        assert_eq!(fixture.changes(&mut before.clone()).await[0], json!(true));
    }
}
