//! Octavia at work. It accepts no change of a load balancer while it is at work on an earlier one: that is an [`Operation`], which the
//! framework polls after 1 s, 1.2 s, 1.44 s … 10 s, up to its deadline.
//!
//! Remembered here are the load balancers that this process has created and not yet seen ACTIVE. One of them that goes to ERROR is
//! discarded, and one that no listing shows yet is looked up by its ID. A new process finds all others in the cloud.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{Operation, Pacing};

use crate::api::octavia::LoadBalancer;

/// The longest pause is ours; upstream's pauses grow on, and so keep people waiting for what is long done.
const PACING: Pacing = Pacing { first: Duration::from_secs(1), factor: 1.2, max: Duration::from_secs(10) };
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
}

impl Waiting {
    /// With a deadline for operations as long as this many of upstream's polls take.
    pub(crate) fn new(steps: u32) -> Waiting {
        Waiting { steps, created: Mutex::default() }
    }

    /// Records that this process creates a load balancer. It is called before the request, because that may be dropped.
    pub(crate) fn creates(&self, name: &str) {
        self.all().insert(name.to_owned(), None);
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
        let which = if name.is_empty() { id.clone() } else { format!("{name} ({id})") };
        balancer.is_at_work().then(|| Operation {
            id: id.clone(),
            what: format!("load balancer {which} is not ACTIVE but {status}"),
            advice: "Octavia may be stuck, which its workers' logs tell; it is looked at again from time to time"
                .to_owned(),
            pacing: PACING,
            deadline: patience(self.steps.saturating_add(further)),
            observable: true,
        })
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
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
