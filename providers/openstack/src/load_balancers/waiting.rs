//! Octavia at work. It accepts no change of a load balancer while it is at work on an earlier one: that is an [`Operation`], which the
//! framework polls after 1 s, 1.2 s, 1.44 s … 10 s, up to its deadline, and less often while there are many of them.
//!
//! Remembered here are the load balancers that this process has created and not yet seen ACTIVE. One of them that goes to ERROR is
//! discarded, and one that no listing shows yet is looked up by its ID. A new process finds all others in the cloud.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{Operation, Pacing};
use tokio::time::Instant;

use crate::api::octavia::LoadBalancer;

/// The longest pause is ours; upstream's pauses grow on, and so keep people waiting for what is long done.
const PACING: Pacing = Pacing { first: Duration::from_secs(1), factor: 1.2, max: Duration::from_secs(10) };
/// Octavia works on so many load balancers at once. Others queue behind them, and are polled less often the more there are.
const CROWD: u32 = 4;
/// An observation that is older than this is no ground for creating something.
const RECENT: Duration = Duration::from_secs(5);
/// Nobody waits longer than this, whatever the number of steps that is configured.
const LONGEST_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// A balancer that goes is given one look more than one that comes.
const FURTHER_LOOKS_AT_DELETION: u32 = 1;

/// At rest, and can be changed.
pub(crate) const ACTIVE: &str = "ACTIVE";
/// At rest, and cannot be changed, only deleted.
pub(crate) const ERROR: &str = "ERROR";
/// As good as gone.
pub(crate) const DELETED: &str = "DELETED";
/// Going.
pub(crate) const PENDING_DELETE: &str = "PENDING_DELETE";
/// Being created.
pub(crate) const PENDING_CREATE: &str = "PENDING_CREATE";
/// Being changed.
pub(crate) const PENDING_UPDATE: &str = "PENDING_UPDATE";

/// Load balancers that this process has created and not yet seen ACTIVE.
#[derive(Debug)]
pub(crate) struct Waiting {
    steps: u32,
    /// IDs by name; `None` while the request for it has no answer.
    created: Mutex<HashMap<String, Option<String>>>,
    /// When each load balancer was last seen at work.
    working: Mutex<HashMap<String, Instant>>,
    /// When an observation has found no load balancer of a name.
    missed: Mutex<HashMap<String, Instant>>,
}

impl Waiting {
    /// With a deadline for operations as long as this many of upstream's polls take.
    pub(crate) fn new(steps: u32) -> Waiting {
        let (created, working, missed) = Default::default();
        Waiting { steps, created, working, missed }
    }

    /// Records that this process creates a load balancer. It is called before the request, because that may be dropped.
    pub(crate) fn creates(&self, name: &str) {
        self.all().insert(name.to_owned(), None);
        locked(&self.missed).remove(name);
    }

    /// Records that an observation has found no load balancer of this name.
    pub(crate) fn missed(&self, name: &str) {
        let mut missed = locked(&self.missed);
        missed.retain(|_, at| at.elapsed() < RECENT);
        missed.insert(name.to_owned(), Instant::now());
    }

    /// A moment ago there was no load balancer of this name, and this process has created none since.
    pub(crate) fn has_just_missed(&self, name: &str) -> bool {
        locked(&self.missed).get(name).is_some_and(|at| at.elapsed() < RECENT)
    }

    /// Records a load balancer that this process has created.
    pub(crate) fn created(&self, name: &str, id: &str) {
        self.all().insert(name.to_owned(), Some(id.to_owned()));
    }

    /// ID of the load balancer that this process has created with this name, and that may not be in a listing yet.
    pub(crate) fn created_as(&self, name: &str) -> Option<String> {
        self.all().get(name).cloned().flatten()
    }

    /// This process created it and has not seen it ACTIVE yet, so no client uses it.
    pub(crate) fn is_fresh(&self, balancer: &LoadBalancer) -> bool {
        self.all().iter().any(|created| is_same(created, balancer))
    }

    /// Records that it was read.
    pub(crate) fn saw(&self, balancer: &LoadBalancer) {
        if balancer.provisioning_status == ACTIVE {
            self.all().retain(|name, id| !is_same((name, id), balancer));
        }
    }

    /// What Octavia is doing to this load balancer; `None` if that is at rest.
    pub(crate) fn operation(&self, balancer: &LoadBalancer) -> Option<Operation> {
        let LoadBalancer { id, name, provisioning_status: status, .. } = balancer;
        let further = if status == PENDING_DELETE { FURTHER_LOOKS_AT_DELETION } else { 0 };
        let others = self.others_at_work(balancer);
        let which = if name.is_empty() { id.clone() } else { format!("{name} ({id})") };
        balancer.is_at_work().then(|| Operation {
            id: id.clone(),
            what: format!("load balancer {which} is not ACTIVE but {status}"),
            advice: "Octavia may be stuck, which its workers' logs tell; it is looked at again from time to time"
                .to_owned(),
            pacing: Pacing { first: (PACING.first * others.div_ceil(CROWD).max(1)).min(PACING.max), ..PACING },
            deadline: patience(self.steps.saturating_add(further)),
            observable: true,
        })
    }

    /// How many load balancers Octavia works on beside this one.
    fn others_at_work(&self, balancer: &LoadBalancer) -> u32 {
        let mut working = locked(&self.working);
        working.retain(|id, seen| *id != balancer.id && seen.elapsed() < PACING.max * 2);
        let others = u32::try_from(working.len()).unwrap_or(u32::MAX);
        if balancer.is_at_work() {
            working.insert(balancer.id.clone(), Instant::now());
        }
        others
    }

    /// It is gone or in service.
    pub(crate) fn forget(&self, id: &str) {
        self.all().retain(|_, created| created.as_deref() != Some(id));
    }

    /// None of this name exists any more.
    pub(crate) fn forget_named(&self, name: &str) {
        self.all().remove(name);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Option<String>>> {
        locked(&self.created)
    }
}

/// Every change leaves the map whole, so a panic elsewhere does not spoil it.
fn locked<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It is the one that was created with this name, as far as its ID is known.
fn is_same((name, id): (&String, &Option<String>), balancer: &LoadBalancer) -> bool {
    id.as_ref().map_or(*name == balancer.name, |id| *id == balancer.id)
}

/// How long upstream waits with this many looks, each pause longer than the one before.
fn patience(looks: u32) -> Duration {
    let Pacing { first, factor, .. } = PACING;
    let total = first.as_secs_f64() * (factor.powf(f64::from(looks.saturating_sub(1))) - 1.0) / (factor - 1.0);
    Duration::from_secs_f64(total.clamp(0.0, LONGEST_PATIENCE.as_secs_f64()))
}

/// An error if the load balancer has failed. One that Octavia is at work on never gets here: its state names the operation.
pub(crate) fn check_at_rest(operation: &str, balancer: &LoadBalancer) -> Result<()> {
    let LoadBalancer { id, name, provisioning_status: status, .. } = balancer;
    if status == ACTIVE {
        return Ok(());
    }
    let message = format!(
        "load balancer {name} ({id}) is not ACTIVE, its provisioning status is {status}: Octavia's log says why; it is left alone \
         until it is repaired (openstack loadbalancer failover) or deleted"
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
    fn an_operation_lasts_as_long_as_upstreams_looks_take_in_all() {
        for (steps, seconds) in [(23, 271), (30, 984), (1, 0), (0, 0), (u32::MAX, 86_400)] {
            assert_eq!(patience(steps).as_secs(), seconds, "{steps}");
        }
        let deadline = |status| Waiting::new(23).operation(&balancer(status)).unwrap().deadline.as_secs();
        assert_eq!((deadline("PENDING_UPDATE"), deadline(PENDING_DELETE)), (271, 326));
        assert!([ACTIVE, ERROR].iter().all(|status| Waiting::new(23).operation(&balancer(status)).is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_queues_behind_others_is_polled_less_often() {
        let waiting = Waiting::new(23);
        let of = |id: &str, status: &str| LoadBalancer { id: id.to_owned(), ..balancer(status) };
        let first = |id: &str| waiting.operation(&of(id, PENDING_CREATE)).unwrap().pacing.first.as_secs();
        let pauses: Vec<u64> = (0..12).map(|number| first(&format!("b{number}"))).collect();
        assert_eq!(pauses, [1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]);
        assert_eq!(first("b3"), 3, "eleven others");
        assert!((0..9).all(|number| waiting.operation(&of(&format!("b{number}"), ACTIVE)).is_none()));
        assert_eq!(first("b11"), 1, "two others");
        assert!((0..90).all(|number| first(&format!("c{number}")) <= 10));
        tokio::time::advance(Duration::from_secs(21)).await;
        assert_eq!(first("b11"), 1, "the others were not seen for long");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missed_is_missing_for_a_moment_and_until_it_is_created() {
        let waiting = Waiting::new(23);
        assert!(!waiting.has_just_missed("web"));
        waiting.missed("web");
        waiting.missed("other");
        waiting.creates("web");
        assert!(!waiting.has_just_missed("web") && waiting.has_just_missed("other"));
        tokio::time::advance(RECENT).await;
        assert!(!waiting.has_just_missed("other"));
    }

    #[test]
    fn a_created_load_balancer_is_remembered_until_it_is_active_or_gone() {
        let waiting = Waiting::new(23);
        waiting.created("web", "b1");
        assert_eq!((waiting.created_as("web").as_deref(), waiting.created_as("other")), (Some("b1"), None));
        waiting.saw(&balancer(ERROR));
        waiting.saw(&balancer(PENDING_CREATE));
        waiting.forget("b2");
        waiting.forget_named("other");
        let other = LoadBalancer { id: "b2".to_owned(), name: "web".to_owned(), ..balancer(ACTIVE) };
        assert!(waiting.is_fresh(&balancer(ERROR)) && !waiting.is_fresh(&other));
        waiting.saw(&balancer(ACTIVE));
        assert!(!waiting.is_fresh(&balancer(ERROR)));
        waiting.creates("web");
        assert!(waiting.is_fresh(&other) && waiting.created_as("web").is_none(), "it may be the one without an answer");
        waiting.saw(&other);
        assert!(!waiting.is_fresh(&other));
        for forget in [|waiting: &Waiting| waiting.forget("b1"), |waiting: &Waiting| waiting.forget_named("web")] {
            waiting.created("web", "b1");
            forget(&waiting);
            assert_eq!(waiting.created_as("web"), None);
        }
    }

    #[test]
    fn case_152_a_load_balancer_that_has_failed_is_not_changed() {
        assert!(check_at_rest("plan a balancer", &balancer(ACTIVE)).is_ok());
        let error = check_at_rest("plan a balancer", &balancer(ERROR)).unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
    }
}
