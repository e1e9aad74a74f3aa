//! Creations with an unknown outcome: the same resource must not be created again.
//!
//! ```text
//!             apply                   response: created, or rejected
//!  (unknown) ───────► being created ─────────────────────────────────────► (unknown)
//!                          │ no response, a gateway's, or dropped             ▲
//!                          └──► open: reported once, then InProgress ─────────┘ observed, or after 120 s
//! ```
//!
//! Many clouds accept any number of resources with the same name, and list a new one only after they have finished creating it. A
//! second attempt would create a duplicate that cannot be distinguished from the first. A step that the cloud itself refuses to
//! repeat is [repeatable](Step::repeatable) and is not recorded here.
//!
//! The records are local to this process. A process that starts in the meantime does not know of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{DesiredLoadBalancer, LoadBalancerKey, Plan, Step, Verb};
use tokio::time::Instant;

use crate::{Error, ErrorKind, Result, Retry};

/// Time after which a resource that has not appeared never will. A cloud completes a request even if its client has given up.
const OPEN_FOR: Duration = Duration::from_secs(120);
/// The same after a gateway's 503: usually the gateway has not forwarded the request.
const OPEN_FOR_AFTER_503: Duration = Duration::from_secs(10);
/// Delay between two observations.
const RETRY_DELAY: Duration = Duration::from_secs(5);

const SERVICE_UNAVAILABLE: u16 = 503;

/// Creations that are in progress or have an unknown outcome, by load balancer.
#[derive(Default)]
pub struct PendingCreates(Mutex<HashMap<LoadBalancerKey, Vec<Creation>>>);

/// Creation of one resource.
struct Creation {
    kind: String,
    name: String,
    /// Time at which the record expires; `None` while the call is in progress.
    until: Option<Instant>,
    /// Error or event that left the outcome unknown.
    cause: String,
    is_reported: bool,
}

/// A creation in progress. If it is dropped before [`ended`](Attempt::ended), its outcome counts as unknown.
#[must_use = "the outcome is unknown until it is recorded"]
pub struct Attempt<'a> {
    creates: &'a PendingCreates,
    key: LoadBalancerKey,
    kind: String,
    name: String,
    /// Whether it is one of the recorded creations.
    is_recorded: bool,
    /// Time for which the outcome stays unknown, and the cause; `None` if the outcome is known.
    open: Option<(Duration, String)>,
}

impl PendingCreates {
    /// Records that this step is about to be applied, if it creates a resource. Fails while the outcome of an earlier attempt is
    /// unknown. Call it before the cloud call, because that may be dropped.
    pub fn begin(&self, key: &LoadBalancerKey, step: &Step) -> Result<Attempt<'_>> {
        let is_recorded = step.verb == Verb::Create && !step.repeatable;
        let cause = "the call was cancelled".to_owned();
        if is_recorded {
            self.record(key, step, &cause)?;
        }
        let (kind, name) = (step.kind.clone(), step.name.clone());
        let open = is_recorded.then_some((OPEN_FOR, cause));
        Ok(Attempt { creates: self, key: key.clone(), kind, name, is_recorded, open })
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

    /// Updates the open creations from a plan: a resource has appeared if the plan no longer creates it, or changes or deletes it.
    /// Fails if a deletion has no steps left while a resource may still appear, because no later sync would delete that.
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

    /// Returns an error that makes the caller observe again: `Conflict`, which is reported, the first time, and `InProgress` after
    /// that.
    fn report(&mut self, operation: &str) -> Error {
        let Creation { kind, name, cause, .. } = self;
        let was_reported = std::mem::replace(&mut self.is_reported, true);
        let error_kind = if was_reported { ErrorKind::InProgress } else { ErrorKind::Conflict };
        let message = format!(
            "it is unknown whether {kind} {name} was created; looking for it before creating it again: {cause}"
        );
        Error::new(error_kind, operation, message).retry(Retry::After(RETRY_DELAY)).outcome_unknown()
    }
}

impl Attempt<'_> {
    /// Records the outcome of the call.
    pub fn ended<T>(mut self, outcome: Result<T>) -> Result<T> {
        self.open = outcome.as_ref().err().filter(|error| error.is_outcome_unknown()).map(|error| {
            let is_503 = error.status() == Some(SERVICE_UNAVAILABLE);
            (if is_503 { OPEN_FOR_AFTER_503 } else { OPEN_FOR }, error.message().to_owned())
        });
        outcome
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            return;
        }
        let mut all = self.creates.all();
        let Some(creations) = all.get_mut(&self.key) else { return };
        match self.open.take() {
            None => creations.retain(|open| (&open.kind, &open.name) != (&self.kind, &self.name)),
            Some((time, cause)) => {
                let open = creations.iter_mut().find(|open| (&open.kind, &open.name) == (&self.kind, &self.name));
                // It is missing if it was observed meanwhile.
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

    fn response(status: u16, body: &str) -> Result<()> {
        let error = Error::from_status("apply", status, body, None);
        // As a provider would decode it.
        let is_open = status >= 500 && body.starts_with('<') || status == 503 && body.is_empty();
        Err(if is_open { error.outcome_unknown() } else { Error::new(error.kind(), "apply", body).with_status(status) })
    }

    /// Returns the seconds until the resource may be created again.
    async fn open_for(outcome: Result<()>) -> u64 {
        let creates = PendingCreates::default();
        creates.begin(&key(), &create("web")).unwrap().ended(outcome).ok();
        let mut seconds = 0;
        while creates.begin(&key(), &create("web")).is_err() {
            tokio::time::advance(Duration::from_secs(1)).await;
            seconds += 1;
        }
        seconds
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_with_a_known_outcome_may_be_repeated_at_once() {
        let fault = r#"{"faultcode": "Server", "faultstring": "An unknown exception occurred.", "debuginfo": null}"#;
        assert_eq!(open_for(Ok(())).await, 0);
        for (status, body) in [(400, ""), (403, fault), (409, ""), (429, ""), (500, fault), (503, fault)] {
            assert_eq!(open_for(response(status, body)).await, 0, "{status} {body}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_with_an_unknown_outcome_is_not_repeated_for_a_while() {
        for status in [500, 502, 504] {
            assert_eq!(open_for(response(status, "<html>Bad Gateway</html>")).await, 120, "{status}");
        }
        assert_eq!(open_for(response(503, "")).await, 10);
        let unreachable = Error::new(ErrorKind::Unavailable, "apply", "cannot connect");
        assert_eq!(open_for(Err(unreachable.clone())).await, 0);
        assert_eq!(open_for(Err(unreachable.outcome_unknown())).await, 120);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_creation_has_an_unknown_outcome_and_is_reported_once() {
        let creates = PendingCreates::default();
        let attempt = creates.begin(&key(), &create("web")).unwrap();
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(creates.begin(&key(), &create("web")).is_err(), "the call is in progress");
        drop(attempt);
        tokio::time::advance(Duration::from_secs(100)).await;
        let error = creates.begin(&key(), &create("web")).err().unwrap();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InProgress, Retry::After(RETRY_DELAY)));
        assert!(
            error.is_outcome_unknown()
                && error.message().contains("it is unknown whether load balancer web was created")
        );
        for other in [create("other"), Step { repeatable: true, ..create("web") }] {
            assert!(creates.begin(&key(), &other).is_ok());
        }
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(creates.begin(&key(), &create("web")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_error_is_reported() {
        let creates = PendingCreates::default();
        creates.begin(&key(), &create("web")).unwrap().ended(response(502, "<html>")).unwrap_err();
        for kind in [ErrorKind::Conflict, ErrorKind::InProgress, ErrorKind::InProgress] {
            assert_eq!(creates.begin(&key(), &create("web")).err().unwrap().kind(), kind);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_resolves_creations_that_have_appeared() {
        let (creates, wanted) = (PendingCreates::default(), desired("default/web", &[]));
        let gone = DesiredLoadBalancer { spec: None, ..wanted.clone() };
        let open = || drop(creates.begin(&key(), &create("web")).unwrap());
        open();
        creates.check_plan(&wanted, &Plan::of(vec![create("web")])).unwrap();
        assert!(creates.begin(&key(), &create("web")).is_err(), "it is still to be created");
        creates.check_plan(&wanted, &Plan::default()).unwrap();
        open();
        // Nothing is left to delete, but the resource may still appear.
        assert_eq!(creates.check_plan(&gone, &Plan::default()).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(creates.check_plan(&gone, &Plan::default()).unwrap_err().kind(), ErrorKind::InProgress);
        let delete = |name: &str| Plan::of(vec![Step { verb: Verb::Delete, ..create(name) }]);
        creates.check_plan(&gone, &delete("other")).unwrap();
        assert!(creates.check_plan(&gone, &Plan::default()).is_err(), "another resource has appeared");
        creates.check_plan(&gone, &delete("web")).unwrap();
        creates.check_plan(&gone, &Plan::default()).unwrap();
        open();
        tokio::time::advance(OPEN_FOR).await;
        creates.check_plan(&gone, &Plan::default()).unwrap();
        assert!(creates.all().is_empty());
    }
}
