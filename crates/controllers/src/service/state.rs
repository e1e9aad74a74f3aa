//! State that the controller keeps per Service key between two syncs. All of it can be lost: a new process finds out again from the
//! Service and from the cloud.
//!
//! [`ServiceStates`] is one map behind one lock. No code awaits or emits an Event while it holds the lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Cloud, ErrorKind};
use bowline_core::service::{ExcludedNodes, OwnWrites};
use bowline_core::{Service, ServiceKey, TargetSet, Warning};
use bowline_runtime::Component;
use serde_json::Value;
use tokio::time::Instant;

use super::error::SyncError;
use super::history::History;
use super::plan::Execution;
use crate::pause;
use crate::reports::LastReport;

/// State of all Services, by namespace and name. Bounded by the number of Services that have, or had, a load balancer of ours.
#[derive(Default)]
pub(super) struct ServiceStates(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    services: HashMap<ServiceKey, ServiceState>,
    /// Number of times that a Service has released a resource in a cloud.
    releases: u64,
    /// Number of Services that have begun to wait for a resource.
    waiters: u64,
    /// The update because of Nodes that is under way. It is about many keys, and outlives the state of one that is deleted.
    node_sync: Option<NodeSync>,
}

/// State of one Service.
#[derive(Default)]
pub(super) struct ServiceState {
    /// Load balancer that a sync has begun to create and none has deleted.
    pub(super) owned: Option<OwnedLoadBalancer>,
    /// Load balancers of deleted Services of this name, which were deleted without our finalizer.
    pub(super) orphans: Vec<OwnedLoadBalancer>,
    /// UID of the Service whose load balancer a cloud has deleted, while another cloud may still have one.
    pub(super) deleted_uid: Option<String>,
    /// The user's change, until the load balancer is as desired.
    pub(super) change: UserChange,
    /// Targets of the last sync, however it ended.
    pub(super) targets: Option<TargetSet>,
    /// Nodes that are not targets, as of the last sync or change of the Nodes.
    pub(super) excluded: Arc<ExcludedNodes>,
    /// Last plan and observation.
    pub(super) history: History,
    /// Plan that the last sync could not finish, because the cloud is at work or another Service holds a lock.
    pub(super) unfinished: Option<Execution>,
    /// Annotations that the cloud wants on the Service, until they are written.
    pub(super) annotations: BTreeMap<String, String>,
    /// Writes of this process that the watch may not show yet.
    pub(super) writes: OwnWrites,
    /// Reports, so that each is made once.
    pub(super) reported: Reported,
    /// Resource of another Service that this one waits for.
    waits_for: Option<Wait>,
}

/// A load balancer that may exist: for this Service, in this cloud.
#[derive(Clone)]
pub(super) struct OwnedLoadBalancer {
    pub(super) service: Arc<Service>,
    pub(super) cloud: Cloud,
}

/// A change of the Service by its user.
#[derive(Default)]
pub(super) struct UserChange {
    /// The load balancer is not as desired since the change.
    is_open: bool,
    /// Time of the first change since it was.
    first_at: Option<Instant>,
    /// The Event that work on it has begun is emitted.
    is_announced: bool,
}

/// The last report of each kind.
#[derive(Default)]
pub(super) struct Reported {
    /// Failure of a Service that is not retried.
    pub(super) failure: LastReport,
    pub(super) unknown_annotations: LastReport,
    /// Nodes that are not targets.
    pub(super) excluded_nodes: LastReport,
    pub(super) no_targets: LastReport,
    pub(super) failed_ports: LastReport,
    /// The pause by an operator.
    pub(super) paused: LastReport,
    /// Warnings of the cloud's last plan.
    warnings: Vec<Warning>,
}

/// A resource that another Service may release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// A certain one, a port or an address, which only the Service that has it can release.
    Specific,
    /// One more of a kind, within a quota. A release is enough for one Service.
    Quota,
}

struct Wait {
    resource: Resource,
    /// Position among all waiters.
    position: u64,
}

/// Services whose load balancers are still to be updated because of Nodes.
struct NodeSync {
    began: Instant,
    open: BTreeSet<ServiceKey>,
}

// ---- one Service

impl ServiceState {
    /// Moves the load balancer of the deleted Service with this UID to the orphans, and forgets everything else.
    fn service_deleted(&mut self, uid: &str) {
        let owned = self.owned.take().filter(|owned| owned.service.uid == uid);
        let orphans = std::mem::take(&mut self.orphans).into_iter().chain(owned).collect();
        *self = ServiceState { orphans, ..ServiceState::default() };
    }

    /// Forgets the load balancer of the Service with this UID: no cloud has it any more.
    pub(super) fn load_balancer_deleted(&mut self, uid: &str) {
        let orphans = self.orphans.len();
        self.orphans.retain(|orphan| orphan.service.uid != uid);
        if self.orphans.len() < orphans && self.owned.is_none() {
            self.history = History::default();
        }
        self.deleted_uid.take_if(|deleted| deleted == uid);
        if self.owned.take_if(|owned| owned.service.uid == uid).is_some() {
            (self.change.is_open, self.change.is_announced) = (false, false);
            (self.targets, self.unfinished) = (None, None);
            self.excluded = Arc::default();
            self.reported.warnings.clear();
            self.annotations.clear();
        }
    }

    /// Returns the warnings that are new; they no longer are afterwards.
    pub(super) fn new_warnings(&mut self, warnings: &[Warning]) -> Vec<Warning> {
        let known = std::mem::replace(&mut self.reported.warnings, warnings.to_vec());
        warnings.iter().filter(|warning| !known.contains(warning)).cloned().collect()
    }
}

impl UserChange {
    /// Records that the user has created or changed the Service.
    pub(super) fn begin(&mut self) {
        (self.is_open, self.is_announced) = (true, false);
        self.first_at.get_or_insert_with(Instant::now);
    }

    /// Whether the load balancer is not as desired since the change.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Time since the first change.
    pub(super) fn age(&self) -> Option<Duration> {
        self.first_at.map(|first| first.elapsed())
    }

    /// Whether the Event that work has begun is still to be emitted; it no longer is afterwards.
    pub(super) fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.is_announced, true)
    }

    /// Closes the change: the load balancer is as desired. A change during the sync, which is still in the queue, stays open.
    pub(super) fn close(&mut self) {
        if self.is_announced {
            *self = UserChange::default();
        }
    }
}

impl Resource {
    /// Resource that a Service with this error waits for, if another one can release it.
    pub(super) fn missing(error: &SyncError) -> Option<Resource> {
        match error.kind() {
            Some(ErrorKind::AlreadyExists) => Some(Resource::Specific),
            Some(ErrorKind::QuotaExceeded) => Some(Resource::Quota),
            _ => None,
        }
    }
}

// ---- all Services

impl ServiceStates {
    /// Changes the state of a Service, which is created if there is none.
    pub(super) fn update<T>(&self, key: &ServiceKey, change: impl FnOnce(&mut ServiceState) -> T) -> T {
        change(self.lock().services.entry(key.clone()).or_default())
    }

    /// Changes or reads the state of a Service if there is one.
    pub(super) fn existing<T>(&self, key: &ServiceKey, change: impl FnOnce(&mut ServiceState) -> T) -> Option<T> {
        self.lock().services.get_mut(key).map(change)
    }

    /// Returns the Service as of now: the stored one, or what this process wrote if the watch has not shown it yet.
    pub(super) fn latest(&self, key: &ServiceKey, stored: Arc<Service>) -> Arc<Service> {
        let mut inner = self.lock();
        match inner.services.get_mut(key) {
            Some(state) => state.writes.latest(stored, Instant::now().into_std()),
            None => stored,
        }
    }

    /// Forgets the Service with this UID, which was deleted. Returns whether it left a load balancer behind.
    pub(super) fn service_deleted(&self, key: &ServiceKey, uid: &str) -> bool {
        let mut inner = self.lock();
        let Some(state) = inner.services.get_mut(key) else { return false };
        state.service_deleted(uid);
        let has_orphans = !state.orphans.is_empty();
        if !has_orphans {
            inner.services.remove(key);
        }
        has_orphans
    }

    /// Keys of deleted Services whose load balancers are not deleted.
    pub(super) fn with_orphans(&self) -> Vec<ServiceKey> {
        let inner = self.lock();
        inner.services.iter().filter(|(_, state)| !state.orphans.is_empty()).map(|(key, _)| key.clone()).collect()
    }

    // ---- resources that one Service has and another waits for

    /// Number of releases so far.
    pub(super) fn releases(&self) -> u64 {
        self.lock().releases
    }

    /// Makes the Service wait for a resource, since a sync that began after this number of releases. `false` if there was another
    /// release meanwhile, so that it is better retried at once. A Service that waits already keeps its position.
    pub(super) fn wait_for(&self, key: &ServiceKey, resource: Resource, releases: u64) -> bool {
        let mut inner = self.lock();
        if inner.releases != releases {
            return false;
        }
        inner.waiters += 1;
        let next = inner.waiters;
        let state = inner.services.entry(key.clone()).or_default();
        let position = state.waits_for.as_ref().map_or(next, |wait| wait.position);
        state.waits_for = Some(Wait { resource, position });
        true
    }

    /// Makes the Service wait for nothing.
    pub(super) fn stop_waiting(&self, key: &ServiceKey) {
        self.existing(key, |state| state.waits_for = None);
    }

    /// Records a release and returns the Services to retry: all that wait for a specific resource, which may be the one; of those
    /// that wait for quota, the first.
    pub(super) fn release(&self) -> Vec<ServiceKey> {
        let mut inner = self.lock();
        inner.releases += 1;
        let waiting = |(key, state): (&ServiceKey, &ServiceState)| {
            state.waits_for.as_ref().map(|wait| (wait.position, wait.resource, key.clone()))
        };
        let mut waiters: Vec<_> = inner.services.iter().filter_map(waiting).collect();
        waiters.sort_unstable_by_key(|(position, ..)| *position);
        let mut quota = true;
        waiters.retain(|(_, resource, _)| *resource == Resource::Specific || std::mem::take(&mut quota));
        let woken: Vec<ServiceKey> = waiters.into_iter().map(|(.., key)| key).collect();
        for key in &woken {
            inner.services.entry(key.clone()).and_modify(|state| state.waits_for = None);
        }
        woken
    }

    // ---- updates because of Nodes

    /// Begins an update of these load balancers because of Nodes, or adds them to the one under way.
    pub(super) fn begin_node_sync(&self, keys: &[ServiceKey]) {
        if keys.is_empty() {
            return;
        }
        let mut inner = self.lock();
        let begin = || NodeSync { began: Instant::now(), open: BTreeSet::new() };
        inner.node_sync.get_or_insert_with(begin).open.extend(keys.iter().cloned());
    }

    /// Records that a sync of this Service has ended. Returns how long the update of all took, if it was the last one.
    pub(super) fn end_node_sync(&self, key: &ServiceKey) -> Option<Duration> {
        let mut inner = self.lock();
        let sync = inner.node_sync.as_mut()?;
        if !sync.open.remove(key) || !sync.open.is_empty() {
            return None;
        }
        inner.node_sync.take().map(|sync| sync.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change leaves the map whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The paused Services, on `/statusz`.
impl Component for ServiceStates {
    fn status(&self) -> Value {
        let inner = self.lock();
        let paused = inner.services.iter().filter(|(_, state)| state.reported.paused.is_some());
        pause::status(paused.map(|(key, _)| key.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey { namespace: "default".into(), name: name.into() }
    }

    #[tokio::test]
    async fn a_change_that_comes_during_a_sync_is_still_open_after_it() {
        let mut change = UserChange::default();
        change.begin();
        assert!(change.announce() && !change.announce());
        change.begin();
        change.close();
        assert!(change.is_open());
        assert!(change.announce());
        change.close();
        assert!(!change.is_open());
    }

    #[test]
    fn all_that_wait_for_a_specific_resource_are_woken_and_of_those_that_wait_for_quota_the_first() {
        let states = ServiceStates::default();
        let (quota, specific) = (Resource::Quota, Resource::Specific);
        for (name, resource) in [("q1", quota), ("s1", specific), ("q2", quota), ("s2", specific)] {
            assert!(states.wait_for(&key(name), resource, 0));
        }
        assert!(states.wait_for(&key("q1"), quota, 0), "it keeps its position");
        assert_eq!(states.release(), [key("q1"), key("s1"), key("s2")]);
        assert_eq!(states.release(), [key("q2")]);
        assert_eq!(states.release(), []);
    }

    #[test]
    fn a_service_that_failed_during_a_release_does_not_wait() {
        let states = ServiceStates::default();
        let before = states.releases();
        states.release();
        assert!(!states.wait_for(&key("a"), Resource::Specific, before));
        assert_eq!(states.release(), []);
        assert!(states.wait_for(&key("a"), Resource::Specific, states.releases()));
        states.stop_waiting(&key("a"));
        assert_eq!(states.release(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_because_of_nodes_ends_with_the_last_service_even_if_that_is_deleted() {
        let states = ServiceStates::default();
        states.update(&key("a"), |state| state.change.begin());
        states.begin_node_sync(&[key("a"), key("b")]);
        assert!(!states.service_deleted(&key("a"), "uid"));
        assert_eq!(states.end_node_sync(&key("b")), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(states.end_node_sync(&key("a")), Some(Duration::from_secs(2)));
        assert_eq!(states.end_node_sync(&key("a")), None);
    }
}
