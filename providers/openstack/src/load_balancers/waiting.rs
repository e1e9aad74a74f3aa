//! Balancers at work. Octavia changes nothing of a balancer while it is at work on an earlier change, so everybody comes back
//! later; what is remembered here is how long that has been going on, so that a balancer which never comes to rest is told.
//!
//! ```text
//!            made, written                    seen PENDING_*: come back after 1 s, 1.2 s, 1.44 s … 10 s
//!  (unknown) ─────────────► busy ◄──────────────────────────────┐
//!      ▲                     │ ─────────────────────────────────┘ too long: an error
//!      └─────────────────────┘ seen ACTIVE or ERROR, or gone
//! ```
//!
//! What is remembered is of this process alone and saves calls or tells more; whoever starts anew finds all in the cloud.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::asked::{Asked, Wanted};
use crate::api::octavia::LoadBalancer;

/// The first pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Each one is longer than the one before by this.
const GROWTH: f64 = 1.2;
/// The longest one; upstream's grow on, and so keep people waiting for what is long done.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
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

/// How long a balancer has been at work, and when to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wait {
    /// Until the next look.
    pub(crate) pause_millis: u64,
    /// So far.
    pub(crate) waited_seconds: u64,
    /// It has taken longer than anybody waits.
    pub(crate) too_long: bool,
}

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
    looks: u32,
    waited: Duration,
    last_look: Option<Instant>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Waiting {
    /// With the patience of this many looks of upstream's.
    pub(crate) fn new(steps: u32) -> Waiting {
        Waiting { asked: Asked::default(), steps, busy: Mutex::default() }
    }

    /// The right to look at a balancer and then to change it: two Services that share one may be worked on at the same time.
    pub(crate) async fn turn(&self, id: &str) -> OwnedMutexGuard<()> {
        let turn = self.with(id, |busy| busy.turn.clone());
        turn.lock_owned().await
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

    /// It was looked at: how long it has been at work, if it is.
    pub(crate) fn saw(&self, balancer: &LoadBalancer) -> Option<Wait> {
        match balancer.provisioning_status.as_str() {
            ACTIVE => {
                self.forget(&balancer.id);
                None
            }
            ERROR => {
                self.with(&balancer.id, |busy| {
                    *busy = Busy {
                        fresh: busy.fresh,
                        name: std::mem::take(&mut busy.name),
                        turn: busy.turn.clone(),
                        ..Busy::default()
                    }
                });
                None
            }
            status => {
                let steps =
                    if status == PENDING_DELETE { FURTHER_LOOKS_AT_DELETION } else { 0 }.saturating_add(self.steps);
                Some(self.with(&balancer.id, |busy| {
                    if busy.name.is_empty() {
                        busy.name.clone_from(&balancer.name);
                    }
                    busy.look(patience(steps))
                }))
            }
        }
    }

    /// It is gone, or all that was remembered of it no longer counts.
    pub(crate) fn forget(&self, id: &str) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = busy.get_mut(id) else { return };
        *known = Busy { turn: known.turn.clone(), ..Busy::default() };
        busy.retain(|_, known| known.is_of_use());
    }

    /// None of this name is there any more.
    pub(crate) fn forget_named(&self, name: &str) {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<String> = busy.iter().filter(|(_, known)| known.name == name).map(|(id, _)| id.clone()).collect();
        drop(busy);
        ids.iter().for_each(|id| self.forget(id));
    }

    fn with<T>(&self, id: &str, act: impl FnOnce(&mut Busy) -> T) -> T {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        act(busy.entry(id.to_owned()).or_default())
    }

    fn peek(&self, id: &str, ask: impl FnOnce(&Busy) -> bool) -> bool {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).get(id).is_some_and(ask)
    }
}

impl Busy {
    /// Time counts as waited only where somebody was waiting: what was at work last week and is again has not been all along.
    fn look(&mut self, patience: Duration) -> Wait {
        let now = Instant::now();
        let since = self.last_look.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.waited += since.min(pause(self.looks) * 2);
        self.looks = self.looks.saturating_add(1);
        self.last_look = Some(now);
        let pause_millis = u64::try_from(pause(self.looks).as_millis()).unwrap_or(u64::MAX);
        // More than all patience is not counted: what is told of a balancer that is stuck is the same at every look.
        let waited_seconds = self.waited.min(patience).as_secs();
        Wait { pause_millis, waited_seconds, too_long: self.waited >= patience }
    }

    fn is_of_use(&self) -> bool {
        let is_waited_for = Arc::strong_count(&self.turn) > 1;
        self.written || self.fresh || self.last_look.is_some() || is_waited_for
    }
}

/// The pause after this many looks.
fn pause(looks: u32) -> Duration {
    let grown = FIRST_PAUSE.as_secs_f64() * GROWTH.powf(f64::from(looks.saturating_sub(1)));
    Duration::from_secs_f64(grown.min(LONGEST_PAUSE.as_secs_f64()))
}

/// How long upstream waits with this many looks, each pause longer than the one before.
fn patience(looks: u32) -> Duration {
    let total = FIRST_PAUSE.as_secs_f64() * (GROWTH.powf(f64::from(looks.saturating_sub(1))) - 1.0) / (GROWTH - 1.0);
    Duration::from_secs_f64(total.clamp(0.0, LONGEST_PATIENCE.as_secs_f64()))
}

/// An error unless the balancer can be changed now.
pub(crate) fn check_at_rest(operation: &str, balancer: &LoadBalancer, wait: Option<Wait>) -> Result<()> {
    let LoadBalancer { id, name, provisioning_status: status, .. } = balancer;
    let error = |kind, message| Err(Error::new(kind, operation, message));
    match (status.as_str(), wait) {
        (ACTIVE, _) => Ok(()),
        (ERROR, _) => error(
            ErrorKind::Unavailable,
            format!(
                "load balancer {name} ({id}) is not ACTIVE, its provisioning status is ERROR: Octavia's log says why; it is \
                 left alone until it is repaired (openstack loadbalancer failover) or deleted"
            ),
        ),
        (status, Some(Wait { too_long: true, waited_seconds, .. })) => error(
            ErrorKind::Unavailable,
            format!(
                "timed out: load balancer {name} ({id}) is not ACTIVE but {status}, for {waited_seconds} s and longer; \
                 Octavia may be stuck, which its workers' logs tell; it is looked at again from time to time"
            ),
        ),
        (status, wait) => {
            let pause = Duration::from_millis(wait.map_or(0, |wait| wait.pause_millis)).max(FIRST_PAUSE);
            let message = format!("load balancer {name} ({id}) is at work on an earlier change: {status}");
            Err(Error::new(ErrorKind::InProgress, operation, message).retry(Retry::After(pause)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balancer(status: &str) -> LoadBalancer {
        LoadBalancer { id: "b1".to_owned(), provisioning_status: status.to_owned(), ..LoadBalancer::default() }
    }

    async fn seen_every_pause(waiting: &Waiting, status: &str, looks: usize) -> Vec<Wait> {
        let mut seen = Vec::new();
        for _ in 0..looks {
            let wait = waiting.saw(&balancer(status)).unwrap();
            tokio::time::advance(Duration::from_millis(wait.pause_millis)).await;
            seen.push(wait);
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn looks_are_further_and_further_apart_up_to_ten_seconds() {
        let waits = seen_every_pause(&Waiting::new(23), "PENDING_UPDATE", 16).await;
        let pauses: Vec<_> = waits.iter().map(|wait| wait.pause_millis).collect();
        assert_eq!(pauses.get(..5), Some(&[1000, 1200, 1440, 1728, 2073][..]));
        assert_eq!(pauses.get(13..), Some(&[10_000, 10_000, 10_000][..]));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_lasts_as_long_as_upstreams_looks_take_in_all() {
        for (steps, seconds) in [(23, 271), (30, 984), (1, 0), (0, 0), (u32::MAX, 86_400)] {
            assert_eq!(patience(steps).as_secs(), seconds, "{steps}");
        }
        let waiting = Waiting::new(23);
        let waits = seen_every_pause(&waiting, "PENDING_UPDATE", 60).await;
        // However long it goes on: who tells the same again makes no new Event.
        let told: Vec<_> = waits.iter().filter(|wait| wait.too_long).map(|wait| wait.waited_seconds).collect();
        assert!(told.len() > 1 && told.iter().all(|seconds| *seconds == 271), "{waits:?}");
        let deleting = seen_every_pause(&Waiting::new(23), PENDING_DELETE, 60).await;
        let first = deleting.iter().find(|wait| wait.too_long).unwrap();
        assert_eq!(first.waited_seconds, 326, "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn rest_ends_the_count_and_so_does_a_long_time_without_looks() {
        let waiting = Waiting::new(23);
        seen_every_pause(&waiting, "PENDING_UPDATE", 40).await;
        assert_eq!(waiting.saw(&balancer(ACTIVE)), None);
        assert!(!waiting.saw(&balancer("PENDING_UPDATE")).unwrap().too_long);
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert!(!waiting.saw(&balancer("PENDING_UPDATE")).unwrap().too_long);
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
        assert_eq!(waiting.saw(&balancer(ERROR)), None);
        assert!(waiting.is_fresh("b1") && !waiting.is_written("b1"));
        assert_eq!(waiting.saw(&balancer(ACTIVE)), None);
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

    #[tokio::test]
    async fn only_one_has_its_turn_at_a_time() {
        let waiting = Waiting::new(23);
        let first = waiting.turn("b1").await;
        waiting.forget("b1");
        assert!(futures::FutureExt::now_or_never(waiting.turn("b1")).is_none());
        assert!(futures::FutureExt::now_or_never(waiting.turn("b2")).is_some());
        drop(first);
        assert!(futures::FutureExt::now_or_never(waiting.turn("b1")).is_some());
    }

    #[test]
    fn case_152_and_153_only_an_active_balancer_may_be_changed() {
        let wait = Wait { pause_millis: 1200, waited_seconds: 3, too_long: false };
        let outcome = |status, wait| check_at_rest("plan a balancer", &balancer(status), wait);
        assert!(outcome(ACTIVE, None).is_ok());
        let error = outcome(ERROR, None).unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
        let busy = outcome("PENDING_UPDATE", Some(wait)).unwrap_err();
        assert_eq!(
            (busy.kind(), busy.retry_advice()),
            (ErrorKind::InProgress, Retry::After(Duration::from_millis(1200)))
        );
        let stuck = outcome("PENDING_UPDATE", Some(Wait { too_long: true, ..wait })).unwrap_err();
        assert_eq!((stuck.kind(), stuck.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
        assert!(stuck.message().contains("PENDING_UPDATE"), "{stuck}");
    }
}
