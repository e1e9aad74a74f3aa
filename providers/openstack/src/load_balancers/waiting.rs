//! Load balancers at work. Octavia changes nothing of a load balancer while it is at work on an earlier change: it is an
//! [`Operation`], which the framework polls after 1 s, 1.2 s, 1.44 s … 10 s, up to its deadline.
//!
//! Remembered here is which load balancers this process has made or changed and not seen at rest since. That is of this process
//! alone and saves calls; a new process finds all in the cloud.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::{Operation, Pacing};

use super::asked::{Asked, Wanted};
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

/// What this process knows of balancers that are not at rest.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Those that have no ID yet, and security groups.
    pub(crate) asked: Asked,
    steps: u32,
    busy: Mutex<HashMap<String, Busy>>,
}

/// One of them.
#[derive(Debug, Default)]
struct Busy {
    /// This process changed it, and has not seen it at rest since.
    written: bool,
    /// This process made it, and has not seen it in service yet.
    fresh: bool,
    /// The name that it was made with or first seen with.
    name: String,
}

impl Waiting {
    /// With the patience of this many looks of upstream's.
    pub(crate) fn new(steps: u32) -> Waiting {
        Waiting { asked: Asked::default(), steps, busy: Mutex::default() }
    }

    /// A balancer of this name was made by this process.
    pub(crate) fn made(&self, name: &str, id: &str) {
        self.with(id, |busy| (busy.fresh, busy.written, busy.name) = (true, true, name.to_owned()));
    }

    /// It is there: perhaps because this process asked for it and never had an answer.
    pub(crate) fn found(&self, balancer: &LoadBalancer) {
        if self.asked.came(&Wanted::Balancer(balancer.name.clone())) {
            self.made(&balancer.name, &balancer.id);
        }
    }

    /// The ID of the balancer that this process made with this name, and that may not be in a listing yet.
    pub(crate) fn made_as(&self, name: &str) -> Option<String> {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.iter().find(|(_, known)| known.fresh && known.name == name).map(|(id, _)| id.clone())
    }

    /// It was changed by this process, and so is at work.
    pub(crate) fn wrote(&self, id: &str) {
        self.with(id, |busy| busy.written = true);
    }

    /// It may be at work on what this process changed.
    pub(crate) fn is_written(&self, id: &str) -> bool {
        self.peek(id, |busy| busy.written)
    }

    /// This process made it, and has not seen it in service yet: if it fails, nobody misses it.
    pub(crate) fn is_fresh(&self, id: &str) -> bool {
        self.peek(id, |busy| busy.fresh)
    }

    /// It was looked at.
    pub(crate) fn saw(&self, balancer: &LoadBalancer) {
        match balancer.provisioning_status.as_str() {
            ACTIVE => self.forget(&balancer.id),
            status => {
                let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(known) = busy.get_mut(&balancer.id) else { return };
                known.written &= status != ERROR;
                if known.name.is_empty() {
                    known.name.clone_from(&balancer.name);
                }
            }
        }
    }

    /// What Octavia is doing to this load balancer; `None` if that is at rest.
    pub(crate) fn operation(&self, balancer: &LoadBalancer) -> Option<Operation> {
        let LoadBalancer { id, name, provisioning_status: status, .. } = balancer;
        let further = if status == PENDING_DELETE { FURTHER_LOOKS_AT_DELETION } else { 0 };
        balancer.is_at_work().then(|| Operation {
            id: id.clone(),
            what: format!("load balancer {name} ({id}) is not ACTIVE but {status}"),
            advice: "Octavia may be stuck, which its workers' logs tell; it is looked at again from time to time"
                .to_owned(),
            pacing: PACING,
            deadline: patience(self.steps.saturating_add(further)),
            observable: true,
        })
    }

    /// It is gone, or all that was remembered of it no longer counts.
    pub(crate) fn forget(&self, id: &str) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// None of this name is there any more.
    pub(crate) fn forget_named(&self, name: &str) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, known| known.name != name);
    }

    fn with<T>(&self, id: &str, act: impl FnOnce(&mut Busy) -> T) -> T {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        act(busy.entry(id.to_owned()).or_default())
    }

    fn peek(&self, id: &str, ask: impl FnOnce(&Busy) -> bool) -> bool {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).get(id).is_some_and(ask)
    }
}

/// How long upstream waits with this many looks, each pause longer than the one before.
fn patience(looks: u32) -> Duration {
    let Pacing { first, factor, .. } = PACING;
    let total = first.as_secs_f64() * (factor.powf(f64::from(looks.saturating_sub(1))) - 1.0) / (factor - 1.0);
    Duration::from_secs_f64(total.clamp(0.0, LONGEST_PATIENCE.as_secs_f64()))
}

/// An error unless the load balancer can be changed now.
pub(crate) fn check_at_rest(operation: &str, balancer: &LoadBalancer) -> Result<()> {
    let LoadBalancer { id, name, provisioning_status: status, .. } = balancer;
    match status.as_str() {
        ACTIVE => Ok(()),
        ERROR => Err(Error::new(
            ErrorKind::Unavailable,
            operation,
            format!(
                "load balancer {name} ({id}) is not ACTIVE, its provisioning status is ERROR: Octavia's log says why; it is \
                 left alone until it is repaired (openstack loadbalancer failover) or deleted"
            ),
        )),
        status => {
            let message = format!("load balancer {name} ({id}) is not ACTIVE but {status}");
            Err(Error::new(ErrorKind::InProgress, operation, message).retry(Retry::After(PACING.first)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[tokio::test]
    async fn what_is_remembered_of_a_balancer_goes_when_it_is_at_rest() {
        let waiting = Waiting::new(23);
        waiting.made("web", "b1");
        assert_eq!((waiting.made_as("web").as_deref(), waiting.made_as("other")), (Some("b1"), None));
        waiting.wrote("b2");
        assert!(
            waiting.is_fresh("b1") && waiting.is_written("b1") && waiting.is_written("b2") && !waiting.is_fresh("b2")
        );
        waiting.saw(&balancer(ERROR));
        assert!(waiting.is_fresh("b1") && !waiting.is_written("b1"));
        waiting.saw(&balancer(ACTIVE));
        assert!(!waiting.is_fresh("b1"));
        waiting.forget("b2");
        assert!(waiting.busy.lock().unwrap().is_empty());
        waiting.wrote("b1");
        waiting.saw(&LoadBalancer { name: "web".to_owned(), ..balancer(PENDING_DELETE) });
        waiting.forget_named("other");
        assert!(waiting.is_written("b1"));
        waiting.forget_named("web");
        assert!(waiting.busy.lock().unwrap().is_empty());
    }

    #[test]
    fn case_152_and_153_only_an_active_balancer_may_be_changed() {
        let outcome = |status| check_at_rest("plan a balancer", &balancer(status));
        assert!(outcome(ACTIVE).is_ok());
        let error = outcome(ERROR).unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
        let busy = outcome("PENDING_UPDATE").unwrap_err();
        assert_eq!((busy.kind(), busy.retry_advice()), (ErrorKind::InProgress, Retry::After(Duration::from_secs(1))));
    }
}
