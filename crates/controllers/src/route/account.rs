//! What routes a cloud has, as far as we know, and the writes that change that.
//!
//! ```text
//!  list ──► Book ◄── create, delete: entered when the cloud has answered
//!            ├─ what is written while a listing is under way is entered again on top of it
//!            └─ what a listing lacks is kept until another one, ten seconds later, lacks it, too
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Cloud, Error, ErrorKind, Result};
use bowline_core::routes::{Brake, HoldReason, Table};
use bowline_core::{ClusterName, NodeName, Route, RouteSpec};
use bowline_runtime::{Heartbeat, Queue, QueueMetrics};
use ipnet::IpNet;
use tokio::time::Instant;

use super::rounds::Rounds;
use super::{BACKOFF, Key, Options, QUEUE};

/// Time between the two listings that have to lack a route before it counts as gone.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);

/// The account of one cloud, and what is to be done about it: one cloud that does not answer holds up nobody else.
pub(super) struct Account {
    pub(super) cloud: Cloud,
    /// What needs a pass.
    pub(super) queue: Queue<Key>,
    /// The check that is under way.
    pub(super) rounds: Rounds,
    /// The listing of everything, now and then.
    pub(super) checking: Heartbeat,
    cluster: ClusterName,
    book: Mutex<Book>,
    /// Who holds it lists; others wait for what comes of that.
    listing: tokio::sync::Mutex<()>,
    /// Whoever works on a range holds its turn.
    turns: Mutex<HashMap<IpNet, Turn>>,
    pub(super) brake: Mutex<Brake>,
    /// Why the brake keeps routes that seem to lead nowhere.
    held: Mutex<Option<HoldReason>>,
    /// Number of routes of other clusters of the same name, as last logged.
    foreign: AtomicUsize,
    /// The cloud said that it has no routes after all: it is left alone until it says otherwise.
    is_aside: AtomicBool,
}

type Turn = Arc<tokio::sync::Mutex<()>>;

/// The table, and how far it can be relied on.
#[derive(Default)]
struct Book {
    table: Table,
    /// Counts listings that begin and writes that fail, so that their order is known.
    moment: u64,
    /// When the listing began that the table rests on.
    listed: Option<u64>,
    /// When the last listing began that failed, and how.
    failed: Option<(u64, Error)>,
    /// The writes since a listing began that is still under way.
    since: Option<Vec<Entry>>,
    /// When a write for this Node, or for none, last failed: it may have worked.
    doubts: HashMap<Option<NodeName>, u64>,
    /// Routes of the table that the last listing lacks, by ID, since the first one that did.
    missing: HashMap<String, Instant>,
}

/// A write that worked.
#[derive(Clone)]
enum Entry {
    Made(Route),
    Gone(Route),
}

impl Account {
    pub(super) fn new(cloud: Cloud, options: &Options, queues: &QueueMetrics) -> Account {
        Account {
            cloud,
            queue: Queue::new(QUEUE, BACKOFF, queues),
            rounds: Rounds::default(),
            checking: Heartbeat::new(),
            cluster: options.cluster.clone(),
            book: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            turns: Mutex::default(),
            brake: Mutex::new(Brake::new(options.max_share)),
            held: Mutex::default(),
            foreign: AtomicUsize::new(0),
            is_aside: AtomicBool::new(false),
        }
    }

    /// Number of routes that the cloud can write at once.
    pub(super) fn max_parallel(&self) -> usize {
        let routes = self.cloud.layers().capabilities().routes.as_ref();
        routes.map_or(1, |routes| routes.max_parallel.max(1).saturating_mul(routes.batch.max(1)))
    }

    /// What the table says.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.book().table)
    }

    /// Lists.
    pub(super) async fn list(&self) -> Result<()> {
        let _listing = self.listing.lock().await;
        self.list_in_turn().await
    }

    /// Lists, unless the table can be relied on for this Node; for everything, if none is named.
    pub(super) async fn ensure_listed(&self, node: Option<&NodeName>) -> Result<()> {
        let asked = {
            let book = self.book();
            if book.is_reliable(node) {
                return Ok(());
            }
            book.moment
        };
        let _listing = self.listing.lock().await;
        // Somebody else may have listed meanwhile, or have found that it does not work.
        if self.book().is_reliable(node) {
            return Ok(());
        }
        if let Some(error) = self.book().failed_after(asked) {
            return Err(error);
        }
        self.list_in_turn().await
    }

    async fn list_in_turn(&self) -> Result<()> {
        let begun = self.book().begin();
        let routes = self.cloud.layers().list_routes(&self.cluster).await;
        let failed = routes.as_ref().err().cloned();
        if failed.as_ref().is_none_or(is_without_routes) {
            self.is_aside.store(failed.is_some(), Ordering::Relaxed);
        }
        let lacking = self.book().end(begun, routes, Instant::now());
        if lacking > 0 {
            let cloud = self.cloud.name();
            tracing::warn!(%cloud, routes = lacking, "the cloud lists fewer routes than it had; another listing has to confirm that");
        }
        self.queue.made_progress();
        failed.map_or(Ok(()), Err)
    }

    /// Time until the listing that confirms which routes are gone; `None` if none is missing.
    pub(super) fn confirmation_due(&self) -> Option<Duration> {
        let oldest = self.book().missing.values().min().copied()?;
        Some(CONFIRM_AFTER.saturating_sub(oldest.elapsed()))
    }

    /// Remembers that these routes lead to a Node of this cluster.
    pub(super) fn claim(&self, ids: Vec<String>) {
        self.book().table.claim(ids);
    }

    /// Records the number of routes of other clusters. Returns whether it has changed.
    pub(super) fn found_foreign(&self, routes: usize) -> bool {
        self.foreign.swap(routes, Ordering::Relaxed) != routes
    }

    /// Makes a route for this Node.
    pub(super) async fn create(&self, spec: &RouteSpec) -> Result<()> {
        let made = self.cloud.layers().create_route(&self.cluster, spec).await?;
        self.book().enter(Entry::Made(made));
        Ok(())
    }

    /// Removes a route, unless somebody else just has. Says whether it was there.
    pub(super) async fn delete(&self, route: &Route) -> Result<bool> {
        if !self.read(|table| table.has(route)) {
            return Ok(false);
        }
        self.cloud.layers().delete_route(&self.cluster, route).await?;
        self.book().enter(Entry::Gone(route.clone()));
        Ok(true)
    }

    /// Waits until nobody else works on this range.
    pub(super) async fn turn(&self, range: IpNet) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(range).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// A write for this Node, or for none, failed and may have worked: the next try rests on a new listing.
    pub(super) fn doubt(&self, node: Option<&NodeName>) {
        self.book().doubt(node);
    }

    /// Nothing is done here, because the cloud has no routes.
    pub(super) fn is_aside(&self) -> bool {
        self.is_aside.load(Ordering::Relaxed)
    }

    /// The brake keeps routes until there is a Node.
    pub(super) fn awaits_nodes(&self) -> bool {
        matches!(*self.held(), Some(HoldReason::NoNodes { .. }))
    }

    /// The brake keeps routes for this reason, or none. Says whether it did not before.
    pub(super) fn hold(&self, doubt: Option<&HoldReason>) -> bool {
        let before = std::mem::replace(&mut *self.held(), doubt.cloned());
        before.map(|doubt| doubt.word()) != doubt.map(HoldReason::word)
    }

    fn held(&self) -> MutexGuard<'_, Option<HoldReason>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Every change leaves it whole, so a panic elsewhere does not spoil it.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A provider may claim routes and find that its cloud, as it is set up, has none.
pub(super) fn is_without_routes(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported
}

impl Book {
    /// It rests on a listing that began after the last failure of this Node and of strays, or of any. A stray may have been
    /// the Node's before it came back.
    fn is_reliable(&self, node: Option<&NodeName>) -> bool {
        let doubt = match node {
            Some(node) => self.doubts.get(&Some(node.clone())).max(self.doubts.get(&None)),
            None => self.doubts.values().max(),
        };
        self.listed.is_some_and(|listed| doubt.is_none_or(|doubt| listed > *doubt))
    }

    /// How the last listing failed, if it began after this moment: whoever waits for one need not ask again at once.
    fn failed_after(&self, moment: u64) -> Option<Error> {
        self.failed.as_ref().filter(|(begun, _)| *begun > moment).map(|(_, error)| error.clone())
    }

    fn begin(&mut self) -> u64 {
        self.since = Some(Vec::new());
        self.tick()
    }

    /// The listing that began then has ended with these routes, or failed. Returns how many routes it lacks that are kept.
    fn end(&mut self, begun: u64, routes: Result<Vec<Route>>, now: Instant) -> usize {
        let since = self.since.take().unwrap_or_default();
        match routes {
            Ok(routes) => {
                self.table = self.with_missing(routes.into_iter().collect(), now);
                self.listed = Some(begun);
                // What failed before is seen now.
                self.doubts.retain(|_, doubt| *doubt > begun);
                since.into_iter().for_each(|entry| self.enter(entry));
            }
            Err(error) => self.failed = Some((begun, error)),
        }
        self.missing.len()
    }

    /// Adds to a listing the routes that it lacks for the first time: a cloud that answers with half of its table must not make
    /// Nodes unreachable. A listing that was made because the routes of a Node were in doubt is believed.
    fn with_missing(&mut self, mut listed: Table, now: Instant) -> Table {
        let before = std::mem::take(&mut self.missing);
        for route in self.table.iter().filter(|route| !listed.explains(route)).cloned().collect::<Vec<_>>() {
            let since = before.get(&route.id).copied().unwrap_or(now);
            if self.is_reliable(route.node.as_ref()) && now.saturating_duration_since(since) < CONFIRM_AFTER {
                self.missing.insert(route.id.clone(), since);
                listed.insert(route);
            }
        }
        listed.inherit(&self.table);
        listed
    }

    fn enter(&mut self, entry: Entry) {
        if let Some(since) = &mut self.since {
            since.push(entry.clone());
        }
        match entry {
            Entry::Made(route) => {
                let id = route.id.clone();
                self.table.insert(route);
                self.table.claim([id]);
            }
            Entry::Gone(route) if self.table.has(&route) => {
                self.table.remove(&route.id);
                self.missing.remove(&route.id);
            }
            Entry::Gone(_) => {}
        }
    }

    fn doubt(&mut self, node: Option<&NodeName>) {
        let now = self.tick();
        self.doubts.insert(node.cloned(), now);
    }

    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn route(id: &str) -> Route {
        Route {
            id: id.to_owned(),
            node: Some("n".into()),
            provider_id: None,
            node_addresses: None,
            next_hop: None,
            destination: "10.0.0.0/24".parse().unwrap(),
            blackhole: false,
            stamped: true,
            cluster_uid: None,
        }
    }

    fn unlisted() -> Error {
        Error::new(bowline_cloud::ErrorKind::Unavailable, "list routes", "down")
    }

    fn ids(book: &Book) -> Vec<&str> {
        book.table.iter().map(|route| route.id.as_str()).collect()
    }

    #[test]
    fn what_is_written_while_a_listing_is_under_way_counts_on_top_of_it() {
        let mut book = Book::default();
        let begun = book.begin();
        book.enter(Entry::Made(route("made")));
        book.enter(Entry::Gone(route("gone")));
        book.end(begun, Ok(vec![route("gone"), route("old")]), Instant::now());
        assert_eq!(ids(&book), ["made", "old"]);
    }

    #[test]
    fn a_listing_that_fails_leaves_the_table_as_it_is() {
        let mut book = Book::default();
        let begun = book.begin();
        book.end(begun, Ok(vec![route("old")]), Instant::now());
        let failed = book.begin();
        book.enter(Entry::Made(route("made")));
        let asked = book.moment;
        book.end(failed, Err(unlisted()), Instant::now());
        assert_eq!(ids(&book), ["made", "old"]);
        assert!(book.is_reliable(None));
        assert!(book.failed_after(asked).is_none(), "it had begun when this was asked for");
        assert!(book.failed_after(asked - 1).is_some());
    }

    #[test]
    fn a_route_under_the_id_of_one_that_goes_stays() {
        let mut book = Book::default();
        let (old, new) = (route("by range"), Route { node: Some("other".into()), ..route("by range") });
        book.enter(Entry::Made(old.clone()));
        book.enter(Entry::Made(new));
        book.enter(Entry::Gone(old.clone()));
        assert_eq!(ids(&book), ["by range"]);
        // One that has lost its machine meanwhile is the same.
        book.enter(Entry::Made(Route { node: None, blackhole: true, ..route("by range") }));
        book.enter(Entry::Gone(old));
        assert!(book.table.is_empty());
    }

    #[test]
    fn a_route_that_one_listing_lacks_stays_until_another_one_later_lacks_it_too() {
        let (mut book, now) = (Book::default(), Instant::now());
        let mut listed = |routes, seconds| {
            let begun = book.begin();
            let lacking = book.end(begun, Ok(routes), now + Duration::from_secs(seconds));
            (lacking, book.table.len())
        };
        assert_eq!(listed(vec![route("a")], 0), (0, 1));
        assert_eq!(listed(vec![], 1), (1, 1));
        assert_eq!(listed(vec![], 10), (1, 1), "nine seconds after the first");
        assert_eq!(listed(vec![route("a")], 11), (0, 1), "it was there all the time");
        assert_eq!(listed(vec![], 12), (1, 1));
        assert_eq!(listed(vec![], 22), (0, 0));
    }

    #[test]
    fn a_listing_that_shows_what_became_of_a_route_or_was_asked_for_in_doubt_is_believed() {
        let (mut book, now) = (Book::default(), Instant::now());
        let begun = book.begin();
        book.end(begun, Ok(vec![route("a")]), now);
        let begun = book.begin();
        book.end(begun, Ok(vec![Route { node: Some("other".into()), ..route("b") }]), now);
        assert_eq!(ids(&book), ["b"], "its range is led elsewhere");
        book.doubt(Some(&"other".into()));
        let begun = book.begin();
        book.end(begun, Ok(vec![]), now);
        assert!(book.table.is_empty());
    }

    #[test]
    fn after_a_failure_only_a_listing_that_began_later_is_relied_on() {
        let (mut book, failed, other) = (Book::default(), NodeName::from("failed"), NodeName::from("other"));
        assert!(!book.is_reliable(Some(&other)), "nothing was listed yet");
        let begun = book.begin();
        book.doubt(Some(&failed));
        book.end(begun, Ok(vec![]), Instant::now());
        assert!(book.is_reliable(Some(&other)));
        assert!(!book.is_reliable(Some(&failed)), "it began before the failure");
        assert!(!book.is_reliable(None));
        book.doubt(None);
        assert!(!book.is_reliable(Some(&other)), "a stray may have been anybody's");
        let begun = book.begin();
        book.end(begun, Ok(vec![]), Instant::now());
        assert!(book.is_reliable(Some(&failed)));
        assert!(book.doubts.is_empty(), "nodes come and go for years");
    }
}
