//! Pending operations. Octavia rejects changes of a load balancer while it applies an earlier one: that is an [`Operation`], which the
//! framework polls after 1 s, 1.2 s, 1.44 s … 10 s, up to its deadline, and less often while many are pending.
//!
//! The tracker records the load balancers that this process created and that were not ACTIVE yet. One of them that goes to ERROR is
//! discarded, and one that no listing contains yet is read by its ID. After a restart, all others are found in the cloud.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{Operation, PollInterval};
use tokio::time::Instant;

use crate::api::octavia::LoadBalancer;

/// Pauses between polls. The maximum is ours: upstream's pauses keep growing, and so detect the end late.
const PACING: PollInterval = PollInterval { first: Duration::from_secs(1), factor: 1.2, max: Duration::from_secs(10) };
/// Number of operations that Octavia runs in parallel. The others are queued, and polled less often the more there are.
const PARALLEL_OPERATIONS: u32 = 4;
/// Maximum age of an observation that replaces the listing before a create.
const RECENT: Duration = Duration::from_secs(5);
/// Maximum deadline of an operation, whatever `OCCM_WAIT_LB_ACTIVE_STEPS` is.
const MAX_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);
/// Additional polls that upstream makes for a deletion.
const EXTRA_DELETE_POLLS: u32 = 1;

/// No operation is pending, and changes are accepted.
pub(crate) const ACTIVE: &str = "ACTIVE";
/// The last operation failed, and only deletion is accepted.
pub(crate) const ERROR: &str = "ERROR";
/// Deleted, but still listed.
pub(crate) const DELETED: &str = "DELETED";
/// Being deleted.
pub(crate) const PENDING_DELETE: &str = "PENDING_DELETE";
/// Being created.
pub(crate) const PENDING_CREATE: &str = "PENDING_CREATE";
/// Being changed.
pub(crate) const PENDING_UPDATE: &str = "PENDING_UPDATE";

/// Load balancers with pending operations, and those that this process created and that were not ACTIVE yet.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    steps: u32,
    /// IDs by name; `None` while the create request has no response.
    created: Mutex<HashMap<String, Option<String>>>,
    /// Time at which each load balancer was last observed PENDING.
    pending: Mutex<HashMap<String, Instant>>,
    /// Time at which an observation found no load balancer of a name.
    absent: Mutex<HashMap<String, Instant>>,
}

impl Tracker {
    /// Sets the deadline of operations to the time that this many of upstream's polls take.
    pub(crate) fn new(steps: u32) -> Tracker {
        Tracker { steps, ..Tracker::default() }
    }

    /// Records that this process creates a load balancer. Called before the request, because its future may be dropped.
    pub(crate) fn record_create(&self, name: &str) {
        locked(&self.created).insert(name.to_owned(), None);
        locked(&self.absent).remove(name);
    }

    /// Records that an observation found no load balancer of this name.
    pub(crate) fn record_absent(&self, name: &str) {
        let mut absent = locked(&self.absent);
        absent.retain(|_, at| at.elapsed() < RECENT);
        absent.insert(name.to_owned(), Instant::now());
    }

    /// Returns whether a recent observation found no load balancer of this name, and this process has created none since.
    pub(crate) fn was_just_absent(&self, name: &str) -> bool {
        locked(&self.absent).get(name).is_some_and(|at| at.elapsed() < RECENT)
    }

    /// Records a load balancer that this process created.
    pub(crate) fn record_created(&self, name: &str, id: &str) {
        locked(&self.created).insert(name.to_owned(), Some(id.to_owned()));
    }

    /// Returns the ID of the load balancer that this process created with this name, which may not be listed yet.
    pub(crate) fn created_id(&self, name: &str) -> Option<String> {
        locked(&self.created).get(name).cloned().flatten()
    }

    /// Returns whether this process created it and it was not ACTIVE yet, so no client uses it.
    pub(crate) fn is_fresh(&self, balancer: &LoadBalancer) -> bool {
        locked(&self.created).iter().any(|created| is_same(created, balancer))
    }

    /// Records the status that was read.
    pub(crate) fn record(&self, balancer: &LoadBalancer) {
        if balancer.provisioning_status == ACTIVE {
            locked(&self.created).retain(|name, id| !is_same((name, id), balancer));
        }
    }

    /// Returns the pending operation of this load balancer; `None` if there is none.
    pub(crate) fn operation(&self, balancer: &LoadBalancer) -> Option<Operation> {
        let LoadBalancer { id, name, provisioning_status: status, .. } = balancer;
        let extra = if status == PENDING_DELETE { EXTRA_DELETE_POLLS } else { 0 };
        let others = self.other_pending(balancer);
        let which = if name.is_empty() { id.clone() } else { format!("{name} ({id})") };
        balancer.is_pending().then(|| Operation {
            id: id.clone(),
            description: format!("load balancer {which} is not ACTIVE but {status}"),
            advice: "Octavia may be stuck, see the logs of its workers; the status is polled from time to time"
                .to_owned(),
            poll_interval: PollInterval {
                first: (PACING.first * others.div_ceil(PARALLEL_OPERATIONS).max(1)).min(PACING.max),
                ..PACING
            },
            deadline: deadline(self.steps.saturating_add(extra)),
            observable: true,
        })
    }

    /// Returns the number of other load balancers with a pending operation.
    fn other_pending(&self, balancer: &LoadBalancer) -> u32 {
        let mut pending = locked(&self.pending);
        pending.retain(|id, seen| *id != balancer.id && seen.elapsed() < PACING.max * 2);
        let others = u32::try_from(pending.len()).unwrap_or(u32::MAX);
        if balancer.is_pending() {
            pending.insert(balancer.id.clone(), Instant::now());
        }
        others
    }

    /// Forgets a load balancer that is deleted or in service.
    pub(crate) fn forget(&self, id: &str) {
        locked(&self.created).retain(|_, created| created.as_deref() != Some(id));
    }

    /// Forgets the load balancer of a name that does not exist any more.
    pub(crate) fn forget_named(&self, name: &str) {
        locked(&self.created).remove(name);
    }
}

/// Locks the map. No change can panic halfway, so a poisoned lock is still valid.
fn locked<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether it is the one that was created with this name, by ID if that is known.
fn is_same((name, id): (&String, &Option<String>), balancer: &LoadBalancer) -> bool {
    id.as_ref().map_or(*name == balancer.name, |id| *id == balancer.id)
}

/// Returns how long upstream waits with this many polls, each pause longer than the one before.
fn deadline(polls: u32) -> Duration {
    let PollInterval { first, factor, .. } = PACING;
    let total = first.as_secs_f64() * (factor.powf(f64::from(polls.saturating_sub(1))) - 1.0) / (factor - 1.0);
    Duration::from_secs_f64(total.clamp(0.0, MAX_DEADLINE.as_secs_f64()))
}

/// Fails if the load balancer is in ERROR. A PENDING one does not get here: its state has the operation.
pub(crate) fn check_active(operation: &str, balancer: &LoadBalancer) -> Result<()> {
    let LoadBalancer { id, name, provisioning_status: status, .. } = balancer;
    if status == ACTIVE {
        return Ok(());
    }
    let message = format!(
        "load balancer {name} ({id}) is not ACTIVE, its provisioning status is {status}, see Octavia's log; it is not changed until it \
         is repaired (openstack loadbalancer failover) or deleted"
    );
    Err(Error::new(ErrorKind::Unavailable, operation, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_cloud::Retry;

    fn balancer(status: &str) -> LoadBalancer {
        LoadBalancer { id: "b1".to_owned(), provisioning_status: status.to_owned(), ..LoadBalancer::default() }
    }

    #[test]
    fn the_deadline_of_an_operation_is_the_total_time_of_upstreams_polls() {
        for (steps, seconds) in [(23, 271), (30, 984), (1, 0), (0, 0), (u32::MAX, 86_400)] {
            assert_eq!(deadline(steps).as_secs(), seconds, "{steps}");
        }
        let deadline = |status| Tracker::new(23).operation(&balancer(status)).unwrap().deadline.as_secs();
        assert_eq!((deadline("PENDING_UPDATE"), deadline(PENDING_DELETE)), (271, 326));
        assert!([ACTIVE, ERROR].iter().all(|status| Tracker::new(23).operation(&balancer(status)).is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn queued_operations_are_polled_less_often() {
        let tracker = Tracker::new(23);
        let of = |id: &str, status: &str| LoadBalancer { id: id.to_owned(), ..balancer(status) };
        let first = |id: &str| tracker.operation(&of(id, PENDING_CREATE)).unwrap().poll_interval.first.as_secs();
        let pauses: Vec<u64> = (0..12).map(|number| first(&format!("b{number}"))).collect();
        assert_eq!(pauses, [1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]);
        assert_eq!(first("b3"), 3, "eleven others");
        assert!((0..9).all(|number| tracker.operation(&of(&format!("b{number}"), ACTIVE)).is_none()));
        assert_eq!(first("b11"), 1, "two others");
        assert!((0..90).all(|number| first(&format!("c{number}")) <= 10));
        tokio::time::advance(Duration::from_secs(21)).await;
        assert_eq!(first("b11"), 1, "the others were not observed for a while");
    }

    #[tokio::test(start_paused = true)]
    async fn an_absent_name_is_remembered_for_seconds_and_until_it_is_created() {
        let tracker = Tracker::new(23);
        assert!(!tracker.was_just_absent("web"));
        tracker.record_absent("web");
        tracker.record_absent("other");
        tracker.record_create("web");
        assert!(!tracker.was_just_absent("web") && tracker.was_just_absent("other"));
        tokio::time::advance(RECENT).await;
        assert!(!tracker.was_just_absent("other"));
    }

    #[test]
    fn a_created_load_balancer_is_remembered_until_it_is_active_or_deleted() {
        let tracker = Tracker::new(23);
        tracker.record_created("web", "b1");
        assert_eq!((tracker.created_id("web").as_deref(), tracker.created_id("other")), (Some("b1"), None));
        tracker.record(&balancer(ERROR));
        tracker.record(&balancer(PENDING_CREATE));
        tracker.forget("b2");
        tracker.forget_named("other");
        let other = LoadBalancer { id: "b2".to_owned(), name: "web".to_owned(), ..balancer(ACTIVE) };
        assert!(tracker.is_fresh(&balancer(ERROR)) && !tracker.is_fresh(&other));
        tracker.record(&balancer(ACTIVE));
        assert!(!tracker.is_fresh(&balancer(ERROR)));
        tracker.record_create("web");
        assert!(
            tracker.is_fresh(&other) && tracker.created_id("web").is_none(),
            "it may be the one whose create request had no response"
        );
        tracker.record(&other);
        assert!(!tracker.is_fresh(&other));
        for forget in [|tracker: &Tracker| tracker.forget("b1"), |tracker: &Tracker| tracker.forget_named("web")] {
            tracker.record_created("web", "b1");
            forget(&tracker);
            assert_eq!(tracker.created_id("web"), None);
        }
    }

    #[test]
    fn case_152_a_load_balancer_in_error_is_not_changed() {
        assert!(check_active("plan a load balancer", &balancer(ACTIVE)).is_ok());
        let error = check_active("plan a load balancer", &balancer(ERROR)).unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
    }
}
