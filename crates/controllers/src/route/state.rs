//! State of one cloud: the cached route table, the writes that update it, and the work queue.
//!
//! ```text
//!  list ──► TableCache ◄── create, delete: recorded when the cloud has responded
//!            ├─ writes during a listing are applied to its result
//!            └─ a route missing from a listing is kept until another listing, ten seconds later, lacks it, too
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Cloud, Error, ErrorKind, Result};
use bowline_core::routes::{Brake, HoldReason, RouteTable};
use bowline_core::{ClusterName, NodeName, Route, RouteSpec};
use bowline_runtime::{Heartbeat, Queue, QueueMetrics};
use ipnet::IpNet;
use tokio::time::Instant;

use super::progress::RefreshProgress;
use super::{BACKOFF, Key, Options, QUEUE};

/// Time between the two listings that must lack a route before it counts as deleted.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);

/// State of one cloud. Clouds share nothing, so that one that does not respond blocks no other.
pub(super) struct CloudState {
    pub(super) cloud: Cloud,
    /// Work queue.
    pub(super) queue: Queue<Key>,
    /// Refreshes in progress.
    pub(super) progress: RefreshProgress,
    /// Heartbeat of the refresh loop.
    pub(super) heartbeat: Heartbeat,
    cluster: ClusterName,
    cache: Mutex<TableCache>,
    /// Held during a listing; concurrent callers wait for its result.
    listing: tokio::sync::Mutex<()>,
    /// Locks of the destinations that are being written.
    destination_locks: Mutex<HashMap<IpNet, DestinationLock>>,
    pub(super) brake: Mutex<Brake>,
    /// Reason why the brake holds back the deletion of orphans.
    held: Mutex<Option<HoldReason>>,
    /// Number of routes of other clusters with the same name, as last logged.
    foreign: AtomicUsize,
    /// The last listing returned "unsupported": the cloud has no routes until a listing succeeds.
    has_no_routes: AtomicBool,
}

type DestinationLock = Arc<tokio::sync::Mutex<()>>;

/// Cached route table, and for which Nodes it is reliable.
#[derive(Default)]
struct TableCache {
    table: RouteTable,
    /// Logical clock of listings that begin and writes that fail, which orders them.
    moment: u64,
    /// Start of the listing that the table is based on.
    listed: Option<u64>,
    /// Start and error of the last failed listing.
    failed: Option<(u64, Error)>,
    /// Writes since the start of a listing in progress.
    since: Option<Vec<Write>>,
    /// Last failed write by Node, or `None` for orphans. Such a write may have succeeded in the cloud.
    invalidated: HashMap<Option<NodeName>, u64>,
    /// Routes of the table that the last listing lacks, by ID, with the time of the first listing that did.
    missing: HashMap<String, Instant>,
}

/// Successful write.
#[derive(Clone)]
enum Write {
    Created(Route),
    Deleted(Route),
}

impl CloudState {
    pub(super) fn new(cloud: Cloud, options: &Options, queues: &QueueMetrics) -> CloudState {
        CloudState {
            cloud,
            queue: Queue::new(QUEUE, BACKOFF, queues),
            progress: RefreshProgress::default(),
            heartbeat: Heartbeat::new(),
            cluster: options.cluster.clone(),
            cache: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            destination_locks: Mutex::default(),
            brake: Mutex::new(Brake::new(options.max_share)),
            held: Mutex::default(),
            foreign: AtomicUsize::new(0),
            has_no_routes: AtomicBool::new(false),
        }
    }

    /// Number of routes that the cloud can write concurrently.
    pub(super) fn max_parallel(&self) -> usize {
        let routes = self.cloud.layers().capabilities().routes.as_ref();
        routes.map_or(1, |routes| routes.max_parallel.max(1).saturating_mul(routes.batch.max(1)))
    }

    /// Reads the cached table.
    pub(super) fn read<T>(&self, look: impl FnOnce(&RouteTable) -> T) -> T {
        look(&self.cache().table)
    }

    /// Lists the routes.
    pub(super) async fn list(&self) -> Result<()> {
        let _listing = self.listing.lock().await;
        self.list_locked().await
    }

    /// Lists the routes, unless the cached table is reliable for this Node; `None` for all Nodes.
    pub(super) async fn ensure_listed(&self, node: Option<&NodeName>) -> Result<()> {
        let asked = {
            let cache = self.cache();
            if cache.is_reliable(node) {
                return Ok(());
            }
            cache.moment
        };
        let _listing = self.listing.lock().await;
        // Another task may have listed meanwhile, or have failed to.
        if self.cache().is_reliable(node) {
            return Ok(());
        }
        if let Some(error) = self.cache().failed_after(asked) {
            return Err(error);
        }
        self.list_locked().await
    }

    async fn list_locked(&self) -> Result<()> {
        let begun = self.cache().begin();
        let routes = self.cloud.layers().list_routes(&self.cluster).await;
        let failed = routes.as_ref().err().cloned();
        if failed.as_ref().is_none_or(is_unsupported) {
            self.has_no_routes.store(failed.is_some(), Ordering::Relaxed);
        }
        let lacking = self.cache().end(begun, routes, Instant::now());
        if lacking > 0 {
            let cloud = self.cloud.name();
            tracing::warn!(%cloud, routes = lacking, "the cloud lists fewer routes than before; another listing must confirm that");
        }
        self.queue.record_progress();
        failed.map_or(Ok(()), Err)
    }

    /// Whether the table is based on a listing.
    pub(super) fn is_listed(&self) -> bool {
        self.cache().listed.is_some()
    }

    /// Time until the listing that confirms which routes are deleted; `None` if none is missing.
    pub(super) fn confirmation_due(&self) -> Option<Duration> {
        let oldest = self.cache().missing.values().min().copied()?;
        Some(CONFIRM_AFTER.saturating_sub(oldest.elapsed()))
    }

    /// Records that these routes belong to Nodes of this cluster.
    pub(super) fn claim(&self, ids: Vec<String>) {
        self.cache().table.claim(ids);
    }

    /// Records the number of routes of other clusters. Returns whether it has changed.
    pub(super) fn record_foreign(&self, routes: usize) -> bool {
        self.foreign.swap(routes, Ordering::Relaxed) != routes
    }

    /// Creates a route and records it in the cache.
    pub(super) async fn create(&self, spec: &RouteSpec) -> Result<()> {
        let made = self.cloud.layers().create_route(&self.cluster, spec).await?;
        self.cache().record(Write::Created(made));
        Ok(())
    }

    /// Deletes a route, unless the cache no longer has it. Returns whether it existed.
    pub(super) async fn delete(&self, route: &Route) -> Result<bool> {
        if !self.read(|table| table.has(route)) {
            return Ok(false);
        }
        self.cloud.layers().delete_route(&self.cluster, route).await?;
        self.cache().record(Write::Deleted(route.clone()));
        Ok(true)
    }

    /// Locks a destination CIDR for writing.
    pub(super) async fn lock_destination(&self, destination: IpNet) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.destination_locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(destination).or_default().clone()
        };
        lock.lock_owned().await
    }

    /// Invalidates the cached table for this Node, or for orphans, after a failed write that may have succeeded in the cloud: the
    /// retry needs a new listing.
    pub(super) fn invalidate(&self, node: Option<&NodeName>) {
        self.cache().invalidate(node);
    }

    /// Whether the cloud turned out to have no routes.
    pub(super) fn has_no_routes(&self) -> bool {
        self.has_no_routes.load(Ordering::Relaxed)
    }

    /// Whether the brake holds back deletions until a Node exists.
    pub(super) fn awaits_nodes(&self) -> bool {
        matches!(*self.held(), Some(HoldReason::NoNodes { .. }))
    }

    /// Records the reason why the brake holds back deletions, or `None`. Returns whether it has changed.
    pub(super) fn hold(&self, reason: Option<&HoldReason>) -> bool {
        let before = std::mem::replace(&mut *self.held(), reason.cloned());
        before.map(|reason| reason.as_str()) != reason.map(HoldReason::as_str)
    }

    /// Returns the reason why the brake holds back deletions.
    pub(super) fn hold_reason(&self) -> Option<HoldReason> {
        self.held().clone()
    }

    fn held(&self) -> MutexGuard<'_, Option<HoldReason>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, TableCache> {
        // Every change leaves the cache consistent, so a poisoned lock is safe to use.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the cloud has no routes: a provider may declare routes and find that its cloud is configured without them.
pub(super) fn is_unsupported(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported
}

impl TableCache {
    /// Whether the table is based on a listing that began after the last failure for this Node and for orphans; for `None`, after
    /// any failure. An orphan may be a route of this Node from before it was recreated.
    fn is_reliable(&self, node: Option<&NodeName>) -> bool {
        let doubt = match node {
            Some(node) => self.invalidated.get(&Some(node.clone())).max(self.invalidated.get(&None)),
            None => self.invalidated.values().max(),
        };
        self.listed.is_some_and(|listed| doubt.is_none_or(|doubt| listed > *doubt))
    }

    /// Returns the error of the last listing if it began after this moment, so that tasks that waited for it do not list again.
    fn failed_after(&self, moment: u64) -> Option<Error> {
        self.failed.as_ref().filter(|(begun, _)| *begun > moment).map(|(_, error)| error.clone())
    }

    /// Begins a listing.
    fn begin(&mut self) -> u64 {
        self.since = Some(Vec::new());
        self.tick()
    }

    /// Ends the listing that began at `begun`. Returns the number of routes that it lacks and that are kept.
    fn end(&mut self, begun: u64, routes: Result<Vec<Route>>, now: Instant) -> usize {
        let since = self.since.take().unwrap_or_default();
        match routes {
            Ok(routes) => {
                self.table = self.with_missing(routes.into_iter().collect(), now);
                self.listed = Some(begun);
                // The listing shows the result of every write before it.
                self.invalidated.retain(|_, doubt| *doubt > begun);
                since.into_iter().for_each(|entry| self.record(entry));
            }
            Err(error) => self.failed = Some((begun, error)),
        }
        self.missing.len()
    }

    /// Adds the routes that a listing lacks for the first time: a cloud that returns half of its table must not make Nodes
    /// unreachable. For a Node whose cache was invalidated, the listing is authoritative.
    fn with_missing(&mut self, mut listed: RouteTable, now: Instant) -> RouteTable {
        let before = std::mem::take(&mut self.missing);
        for route in self.table.iter().filter(|route| !listed.accounts_for(route)).cloned().collect::<Vec<_>>() {
            let since = before.get(&route.id).copied().unwrap_or(now);
            if self.is_reliable(route.node.as_ref()) && now.saturating_duration_since(since) < CONFIRM_AFTER {
                self.missing.insert(route.id.clone(), since);
                listed.insert(route);
            }
        }
        listed.inherit(&self.table);
        listed
    }

    fn record(&mut self, entry: Write) {
        if let Some(since) = &mut self.since {
            since.push(entry.clone());
        }
        match entry {
            Write::Created(route) => {
                let id = route.id.clone();
                self.table.insert(route);
                self.table.claim([id]);
            }
            Write::Deleted(route) if self.table.has(&route) => {
                self.table.remove(&route.id);
                self.missing.remove(&route.id);
            }
            Write::Deleted(_) => {}
        }
    }

    fn invalidate(&mut self, node: Option<&NodeName>) {
        let now = self.tick();
        self.invalidated.insert(node.cloned(), now);
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

    fn ids(cache: &TableCache) -> Vec<&str> {
        cache.table.iter().map(|route| route.id.as_str()).collect()
    }

    #[test]
    fn writes_during_a_listing_are_applied_to_its_result() {
        let mut cache = TableCache::default();
        let begun = cache.begin();
        cache.record(Write::Created(route("made")));
        cache.record(Write::Deleted(route("gone")));
        cache.end(begun, Ok(vec![route("gone"), route("old")]), Instant::now());
        assert_eq!(ids(&cache), ["made", "old"]);
    }

    #[test]
    fn a_failed_listing_leaves_the_table_unchanged() {
        let mut cache = TableCache::default();
        let begun = cache.begin();
        cache.end(begun, Ok(vec![route("old")]), Instant::now());
        let failed = cache.begin();
        cache.record(Write::Created(route("made")));
        let asked = cache.moment;
        cache.end(failed, Err(unlisted()), Instant::now());
        assert_eq!(ids(&cache), ["made", "old"]);
        assert!(cache.is_reliable(None));
        assert!(cache.failed_after(asked).is_none(), "the listing began before the request");
        assert!(cache.failed_after(asked - 1).is_some());
    }

    #[test]
    fn a_route_with_the_id_of_a_deleted_one_stays() {
        let mut cache = TableCache::default();
        let (old, new) = (route("by range"), Route { node: Some("other".into()), ..route("by range") });
        cache.record(Write::Created(old.clone()));
        cache.record(Write::Created(new));
        cache.record(Write::Deleted(old.clone()));
        assert_eq!(ids(&cache), ["by range"]);
        // A route that has lost its machine meanwhile is the same route.
        cache.record(Write::Created(Route { node: None, blackhole: true, ..route("by range") }));
        cache.record(Write::Deleted(old));
        assert!(cache.table.is_empty());
    }

    #[test]
    fn a_route_missing_from_one_listing_stays_until_a_later_listing_lacks_it_too() {
        let (mut cache, now) = (TableCache::default(), Instant::now());
        let mut listed = |routes, seconds| {
            let begun = cache.begin();
            let lacking = cache.end(begun, Ok(routes), now + Duration::from_secs(seconds));
            (lacking, cache.table.len())
        };
        assert_eq!(listed(vec![route("a")], 0), (0, 1));
        assert_eq!(listed(vec![], 1), (1, 1));
        assert_eq!(listed(vec![], 10), (1, 1), "nine seconds after the first listing without it");
        assert_eq!(listed(vec![route("a")], 11), (0, 1), "the route existed all the time");
        assert_eq!(listed(vec![], 12), (1, 1));
        assert_eq!(listed(vec![], 22), (0, 0));
    }

    #[test]
    fn a_listing_that_explains_a_missing_route_or_follows_an_invalidation_is_authoritative() {
        let (mut cache, now) = (TableCache::default(), Instant::now());
        let begun = cache.begin();
        cache.end(begun, Ok(vec![route("a")]), now);
        let begun = cache.begin();
        cache.end(begun, Ok(vec![Route { node: Some("other".into()), ..route("b") }]), now);
        assert_eq!(ids(&cache), ["b"], "another route has its destination");
        cache.invalidate(Some(&"other".into()));
        let begun = cache.begin();
        cache.end(begun, Ok(vec![]), now);
        assert!(cache.table.is_empty());
    }

    #[test]
    fn after_a_failure_only_a_listing_that_began_later_is_reliable() {
        let (mut cache, failed, other) = (TableCache::default(), NodeName::from("failed"), NodeName::from("other"));
        assert!(!cache.is_reliable(Some(&other)), "nothing was listed yet");
        let begun = cache.begin();
        cache.invalidate(Some(&failed));
        cache.end(begun, Ok(vec![]), Instant::now());
        assert!(cache.is_reliable(Some(&other)));
        assert!(!cache.is_reliable(Some(&failed)), "the listing began before the failure");
        assert!(!cache.is_reliable(None));
        cache.invalidate(None);
        assert!(!cache.is_reliable(Some(&other)), "an orphan may belong to any node");
        let begun = cache.begin();
        cache.end(begun, Ok(vec![]), Instant::now());
        assert!(cache.is_reliable(Some(&failed)));
        assert!(cache.invalidated.is_empty(), "the map must not grow with deleted nodes");
    }
}
