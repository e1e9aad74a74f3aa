//! What was asked for, and nobody knows whether it is made: there was no answer, or none of the service's own.
//!
//! ```text
//!             ask                    answered: made, or refused
//!  (unknown) ─────► being asked ─────────────────────────────────────► (unknown)
//!                        │ no answer, a gateway's, given up               ▲
//!                        └──► open: told once, then InProgress ───────────┘ it has come, or has had its time
//! ```
//!
//! Octavia and Neutron make any number of things of a name. What they are still at work on shows in no listing yet, so whoever
//! asks again at once gets two, and nobody can tell them apart ever after. What is remembered is of this process alone: one that
//! starts in such a moment knows nothing of it, and asks again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use tokio::time::Instant;

/// What has not come so long after its answer was given up never will. Octavia takes most of its time for the VIP's port, and goes
/// on whether or not anybody still waits.
const COMES_WITHIN: Duration = Duration::from_secs(120);
/// The same where a gateway had nobody to pass it on to: as a rule, it has come to nobody at all.
const COMES_UNSERVED_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(5);

/// Nobody there to serve it.
const SERVICE_UNAVAILABLE: u16 = 503;

/// A thing of which there may be several with one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Wanted {
    Balancer(String),
    SecurityGroup(String),
}

/// All that was asked for and is neither there nor refused.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<HashMap<Wanted, Open>>);

/// How it is with one of them.
#[derive(Debug, Default)]
struct Open {
    /// When it has had its time; `None` while it is being asked for.
    until: Option<Instant>,
    /// What there was instead of an answer.
    words: String,
    told: bool,
}

/// It is being asked for. Dropped without an answer, it stays open.
#[must_use = "it is open until it is answered"]
pub(crate) struct Asking<'a> {
    asked: &'a Asked,
    wanted: Wanted,
    /// How it is left; `None` if nothing is open any more.
    left: Option<(Duration, String)>,
}

impl Asked {
    /// It is asked for now, unless it has been and may come yet. Before the call, because that may be cut off.
    pub(crate) fn ask(&self, operation: &str, wanted: Wanted) -> Result<Asking<'_>> {
        self.check(operation, &wanted)?;
        let mut all = self.all();
        all.retain(|_, open| !open.has_had_its_time());
        all.insert(wanted.clone(), Open::default());
        Ok(Asking { asked: self, wanted, left: Some((COMES_WITHIN, "the answer was not waited for".to_owned())) })
    }

    /// An error while it may come yet.
    pub(crate) fn check(&self, operation: &str, wanted: &Wanted) -> Result<()> {
        let mut all = self.all();
        let Some(open) = all.get_mut(wanted).filter(|open| !open.has_had_its_time()) else { return Ok(()) };
        let Open { until, words, told } = open;
        let (kind, message) = match until {
            None => (ErrorKind::InProgress, format!("{wanted} is being asked for")),
            Some(_) => {
                // Once for people; after that it is only waited for.
                let kind = if std::mem::replace(told, true) { ErrorKind::InProgress } else { ErrorKind::Conflict };
                (
                    kind,
                    format!("{wanted} may or may not be made, and is looked for before it is asked for again: {words}"),
                )
            }
        };
        Err(Error::new(kind, operation, message).retry(Retry::After(PAUSE)))
    }

    /// It is there; whether that is because it was asked for and not answered.
    pub(crate) fn came(&self, wanted: &Wanted) -> bool {
        self.all().remove(wanted).is_some()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Wanted, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking<'_> {
    /// This came of it.
    pub(crate) fn answered<T>(mut self, outcome: std::result::Result<T, Error>) -> std::result::Result<T, Error> {
        self.left = outcome.as_ref().err().filter(|error| error.is_unanswered()).map(|error| {
            let is_unserved = error.status() == Some(SERVICE_UNAVAILABLE);
            (if is_unserved { COMES_UNSERVED_WITHIN } else { COMES_WITHIN }, error.message().to_owned())
        });
        outcome
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut all = self.asked.all();
        match (self.left.take(), all.get_mut(&self.wanted)) {
            (Some((time, words)), Some(open)) => (open.until, open.words) = (Some(Instant::now() + time), words),
            (None, _) => drop(all.remove(&self.wanted)),
            // It has come meanwhile.
            (Some(_), None) => {}
        }
    }
}

impl Open {
    fn has_had_its_time(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Balancer(name) => write!(f, "load balancer {name}"),
            Wanted::SecurityGroup(name) => write!(f, "security group {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Wanted {
        Wanted::Balancer("web".to_owned())
    }

    fn answer(status: u16, body: &str) -> std::result::Result<(), Error> {
        let error = Error::from_status("apply", status, body, None);
        // As the session decodes it.
        let is_open = status >= 500 && body.starts_with('<') || status == 503 && body.is_empty();
        Err(if is_open { error.unanswered() } else { Error::new(error.kind(), "apply", body).with_status(status) })
    }

    /// After how many seconds it may be asked for again.
    async fn open_for(outcome: std::result::Result<(), Error>) -> u64 {
        let asked = Asked::default();
        asked.ask("apply", web()).unwrap().answered(outcome).ok();
        let mut seconds = 0;
        while asked.check("apply", &web()).is_err() {
            tokio::time::advance(Duration::from_secs(1)).await;
            seconds += 1;
        }
        assert!(asked.ask("apply", web()).is_ok());
        seconds
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_service_itself_has_answered_is_asked_for_again_at_once() {
        let fault = r#"{"faultcode": "Server", "faultstring": "An unknown exception occurred.", "debuginfo": null}"#;
        assert_eq!(open_for(Ok(())).await, 0);
        for (status, body) in [(400, ""), (403, fault), (409, ""), (429, ""), (500, fault), (503, fault)] {
            assert_eq!(open_for(answer(status, body)).await, 0, "{status} {body}");
        }
        assert_eq!(open_for(answer(500, r#"{"NeutronError": {"type": "HTTPInternalServerError"}}"#)).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_no_answer_or_that_of_a_gateway_is_given_time_to_come() {
        for status in [500, 502, 504] {
            assert_eq!(open_for(answer(status, "<html>Bad Gateway</html>")).await, 120, "{status}");
        }
        assert_eq!(open_for(answer(503, "")).await, 10);
        let unreachable = Error::new(ErrorKind::Unavailable, "apply", "cannot connect");
        assert_eq!(open_for(Err(unreachable.clone())).await, 0);
        assert_eq!(open_for(Err(unreachable.unanswered())).await, 120);
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_for_the_answer_leaves_it_open() {
        let asked = Asked::default();
        let asking = asked.ask("apply", web()).unwrap();
        tokio::time::advance(Duration::from_secs(300)).await;
        assert_eq!(asked.check("apply", &web()).unwrap_err().kind(), ErrorKind::InProgress);
        drop(asking);
        // People are told once.
        for kind in [ErrorKind::Conflict, ErrorKind::InProgress, ErrorKind::InProgress] {
            let error = asked.ask("apply", web()).err().unwrap();
            assert_eq!((error.kind(), error.retry_advice()), (kind, Retry::After(PAUSE)));
        }
        assert!(asked.check("apply", &Wanted::SecurityGroup("web".to_owned())).is_ok());
        assert!(asked.came(&web()) && !asked.came(&web()));
        assert!(asked.check("apply", &web()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_while_it_is_being_asked_for_is_not_open_afterwards() {
        let asked = Asked::default();
        let asking = asked.ask("apply", web()).unwrap();
        assert!(asked.came(&web()));
        asking.answered(answer(504, "")).unwrap_err();
        assert!(asked.check("apply", &web()).is_ok());
        // Nobody keeps what nobody asks about any more.
        drop(asked.ask("apply", web()).unwrap());
        tokio::time::advance(COMES_WITHIN).await;
        drop(asked.ask("apply", Wanted::Balancer("other".to_owned())).unwrap());
        assert_eq!(asked.all().len(), 1);
    }
}
