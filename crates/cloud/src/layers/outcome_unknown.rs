//! Creations without an answer: the outcome is unknown, and the same thing must not be created again.
//!
//! ```text
//!             apply                   answered: created, or refused
//!  (unknown) ───────► being created ─────────────────────────────────────► (unknown)
//!                          │ no answer, a gateway's, or dropped               ▲
//!                          └──► open: reported once, then InProgress ─────────┘ observed, or 120 s are over
//! ```
//!
//! Many clouds create any number of things with one name, and show a new one in no listing while they are at work on it. A second
//! attempt would make a double that nothing tells apart from the first. A step that the cloud refuses to repeat is
//! [repeatable](Step::repeatable) and is not recorded here.
//!
//! What is recorded is of this process alone; a process that starts in such a moment knows nothing of it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{DesiredLoadBalancer, LoadBalancerKey, Plan, Step, Verb};
use tokio::time::Instant;

use crate::{Error, ErrorKind, Result, Retry};

/// Time after which a thing that has not appeared never will. A cloud finishes a request although its client has given up.
const APPEARS_WITHIN: Duration = Duration::from_secs(120);
/// The same after a 503 of a gateway, which as a rule has passed the request to no server.
const UNSERVED_WITHIN: Duration = Duration::from_secs(10);
/// Pause between two observations.
const PAUSE: Duration = Duration::from_secs(5);

const SERVICE_UNAVAILABLE: u16 = 503;

/// Creations that are under way or have had no answer, by load balancer.
#[derive(Default)]
pub struct PendingCreates(Mutex<HashMap<LoadBalancerKey, Vec<Creation>>>);

/// The creation of one thing.
struct Creation {
    kind: String,
    name: String,
    /// When it is given up; `None` while it is under way.
    until: Option<Instant>,
    /// What there was instead of an answer.
    cause: String,
    is_reported: bool,
}

/// A creation that is under way. Dropped without an answer, it stays open.
#[must_use = "it is open until it is answered"]
pub struct Attempt<'a> {
    outcome_unknown: &'a PendingCreates,
    key: LoadBalancerKey,
    kind: String,
    name: String,
    /// It is among the recorded creations.
    is_recorded: bool,
    /// For how long it stays open, and why; `None` once it is answered.
    open: Option<(Duration, String)>,
}

impl PendingCreates {
    /// Records that this step is applied, if it creates something. Fails while an earlier attempt is open. It is called before the
    /// call, because that may be dropped.
    pub fn begin(&self, key: &LoadBalancerKey, step: &Step) -> Result<Attempt<'_>> {
        let is_recorded = step.verb == Verb::Create && !step.repeatable;
        let cause = "its answer was not waited for".to_owned();
        if is_recorded {
            self.record(key, step, &cause)?;
        }
        let (kind, name) = (step.kind.clone(), step.name.clone());
        let open = is_recorded.then_some((APPEARS_WITHIN, cause));
        Ok(Attempt { outcome_unknown: self, key: key.clone(), kind, name, is_recorded, open })
    }

    fn record(&self, key: &LoadBalancerKey, step: &Step, cause: &str) -> Result<()> {
        let mut all = self.all();
        prune(&mut all);
        let creations = all.entry(key.clone()).or_default();
        if let Some(open) = creations.iter_mut().find(|open| open.is_about(step)) {
            return Err(open.report("apply load balancer"));
        }
        let (kind, name) = (step.kind.clone(), step.name.clone());
        creations.push(Creation { kind, name, until: None, cause: cause.to_owned(), is_reported: false });
        Ok(())
    }

    /// Records what a plan shows of open creations: a thing has appeared if the plan creates it no longer, or changes or deletes it.
    /// Fails if nothing is left to remove and something may still appear, which no later sync would remove.
    pub fn check_plan(&self, desired: &DesiredLoadBalancer, plan: &Plan) -> Result<()> {
        let mut all = self.all();
        prune(&mut all);
        let Some(creations) = all.get_mut(&desired.key) else { return Ok(()) };
        let is_removal = desired.spec.is_none();
        creations.retain(|open| {
            let mut steps = plan.steps.iter().filter(|step| open.is_about(step));
            if is_removal { steps.next().is_none() } else { steps.any(|step| step.verb == Verb::Create) }
        });
        match creations.first_mut() {
            Some(open) if is_removal && plan.is_empty() => Err(open.report("plan load balancer")),
            _ => Ok(()),
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<LoadBalancerKey, Vec<Creation>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn prune(all: &mut HashMap<LoadBalancerKey, Vec<Creation>>) {
    all.retain(|_, creations| {
        creations.retain(|creation| creation.until.is_none_or(|until| until > Instant::now()));
        !creations.is_empty()
    });
}

impl Creation {
    fn is_about(&self, step: &Step) -> bool {
        (&self.kind, &self.name) == (&step.kind, &step.name)
    }

    /// An error that makes the caller observe again: of a kind that is reported the first time, and after that is only waited for.
    fn report(&mut self, operation: &str) -> Error {
        let Creation { kind, name, cause, .. } = self;
        let is_known = std::mem::replace(&mut self.is_reported, true);
        let error_kind = if is_known { ErrorKind::InProgress } else { ErrorKind::Conflict };
        let message =
            format!("{kind} {name} may or may not be created, and is looked for before it is created again: {cause}");
        Error::new(error_kind, operation, message).retry(Retry::After(PAUSE)).outcome_unknown()
    }
}

impl Attempt<'_> {
    /// Records the outcome of the call.
    pub fn ended<T>(mut self, outcome: Result<T>) -> Result<T> {
        self.open = outcome.as_ref().err().filter(|error| error.is_outcome_unknown()).map(|error| {
            let is_unserved = error.status() == Some(SERVICE_UNAVAILABLE);
            (if is_unserved { UNSERVED_WITHIN } else { APPEARS_WITHIN }, error.message().to_owned())
        });
        outcome
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            return;
        }
        let mut all = self.outcome_unknown.all();
        let Some(creations) = all.get_mut(&self.key) else { return };
        match self.open.take() {
            None => creations.retain(|open| (&open.kind, &open.name) != (&self.kind, &self.name)),
            Some((time, cause)) => {
                let open = creations.iter_mut().find(|open| (&open.kind, &open.name) == (&self.kind, &self.name));
                // It is not there if it was observed meanwhile.
                if let Some(open) = open {
                    (open.until, open.cause) = (Some(Instant::now() + time), cause);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_core::Opaque;
    use bowline_core::testing::desired;

    use super::*;

    fn create(name: &str) -> Step {
        Step::new(Verb::Create, "load balancer", name, Vec::new(), Opaque::default())
    }

    fn key() -> LoadBalancerKey {
        desired("default/web", &[]).key
    }

    fn answer(status: u16, body: &str) -> Result<()> {
        let error = Error::from_status("apply", status, body, None);
        // As a provider decodes it.
        let is_open = status >= 500 && body.starts_with('<') || status == 503 && body.is_empty();
        Err(if is_open { error.outcome_unknown() } else { Error::new(error.kind(), "apply", body).with_status(status) })
    }

    /// Seconds until it may be created again.
    async fn open_for(outcome: Result<()>) -> u64 {
        let outcome_unknown = PendingCreates::default();
        outcome_unknown.begin(&key(), &create("web")).unwrap().ended(outcome).ok();
        let mut seconds = 0;
        while outcome_unknown.begin(&key(), &create("web")).is_err() {
            tokio::time::advance(Duration::from_secs(1)).await;
            seconds += 1;
        }
        seconds
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_the_service_itself_has_answered_is_repeated_at_once() {
        let fault = r#"{"faultcode": "Server", "faultstring": "An unknown exception occurred.", "debuginfo": null}"#;
        assert_eq!(open_for(Ok(())).await, 0);
        for (status, body) in [(400, ""), (403, fault), (409, ""), (429, ""), (500, fault), (503, fault)] {
            assert_eq!(open_for(answer(status, body)).await, 0, "{status} {body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_without_an_answer_or_with_that_of_a_gateway_is_given_time() {
        for status in [500, 502, 504] {
            assert_eq!(open_for(answer(status, "<html>Bad Gateway</html>")).await, 120, "{status}");
        }
        assert_eq!(open_for(answer(503, "")).await, 10);
        let unreachable = Error::new(ErrorKind::Unavailable, "apply", "cannot connect");
        assert_eq!(open_for(Err(unreachable.clone())).await, 0);
        assert_eq!(open_for(Err(unreachable.outcome_unknown())).await, 120);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_creation_stays_open_and_is_reported_once() {
        let outcome_unknown = PendingCreates::default();
        let attempt = outcome_unknown.begin(&key(), &create("web")).unwrap();
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(outcome_unknown.begin(&key(), &create("web")).is_err(), "it is under way");
        drop(attempt);
        tokio::time::advance(Duration::from_secs(100)).await;
        let error = outcome_unknown.begin(&key(), &create("web")).err().unwrap();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InProgress, Retry::After(PAUSE)));
        assert!(error.is_outcome_unknown() && error.message().contains("load balancer web may or may not be created"));
        for other in [create("other"), Step { repeatable: true, ..create("web") }] {
            assert!(outcome_unknown.begin(&key(), &other).is_ok());
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(outcome_unknown.begin(&key(), &create("web")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_error_is_reported_and_the_others_are_waited_for() {
        let outcome_unknown = PendingCreates::default();
        outcome_unknown.begin(&key(), &create("web")).unwrap().ended(answer(502, "<html>")).unwrap_err();
        for kind in [ErrorKind::Conflict, ErrorKind::InProgress, ErrorKind::InProgress] {
            assert_eq!(outcome_unknown.begin(&key(), &create("web")).err().unwrap().kind(), kind);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_shows_what_has_appeared() {
        let (outcome_unknown, wanted) = (PendingCreates::default(), desired("default/web", &[]));
        let gone = DesiredLoadBalancer { spec: None, ..wanted.clone() };
        let open = || drop(outcome_unknown.begin(&key(), &create("web")).unwrap());
        open();
        outcome_unknown.check_plan(&wanted, &Plan::of(vec![create("web")])).unwrap();
        assert!(outcome_unknown.begin(&key(), &create("web")).is_err(), "it is still to be created");
        outcome_unknown.check_plan(&wanted, &Plan::default()).unwrap();
        open();
        // Nothing is left, and it may still appear.
        assert_eq!(outcome_unknown.check_plan(&gone, &Plan::default()).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(outcome_unknown.check_plan(&gone, &Plan::default()).unwrap_err().kind(), ErrorKind::InProgress);
        let delete = |name: &str| Plan::of(vec![Step { verb: Verb::Delete, ..create(name) }]);
        outcome_unknown.check_plan(&gone, &delete("other")).unwrap();
        assert!(outcome_unknown.check_plan(&gone, &Plan::default()).is_err(), "something else has appeared");
        outcome_unknown.check_plan(&gone, &delete("web")).unwrap();
        outcome_unknown.check_plan(&gone, &Plan::default()).unwrap();
        open();
        tokio::time::advance(APPEARS_WITHIN).await;
        outcome_unknown.check_plan(&gone, &Plan::default()).unwrap();
        assert!(outcome_unknown.all().is_empty());
    }
}
