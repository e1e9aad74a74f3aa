//! Keeping a lease, and giving it back.

use std::convert::Infallible;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bowline_runtime::Term;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::elector::{Elector, Written};
use super::record::Lease;
use super::request::Failure;
use crate::events::announce;

/// The name under which the process speaks of its leases.
const COMPONENT: &str = "cloud-controller-manager";
const REASON: &str = "LeaderElection";
/// The pause before a lease that could not be given back is tried again.
const BETWEEN_RELEASES: Duration = Duration::from_millis(200);
/// How long that may go on: somebody waits for the process to end.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);
/// How long the end of the process may be held up by saying so.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The lease is held by this process, as long as this is [kept](Held::keep).
pub struct Held {
    elector: Elector,
    lease: Lease,
    /// When the last renewal was sent.
    renewed: Instant,
    term: Option<Term>,
    /// Ends with this: what is yet unsaid then would be no longer true.
    _announcement: tokio::task::JoinSet<()>,
}

/// The lease is lost, and whatever it protects must end at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It could not be renewed in time.
    #[error("the lease {0} could not be renewed within {1:?}")]
    Deadline(String, Duration),
    /// Somebody else holds it.
    #[error("the lease {0} was taken by {1}")]
    Taken(String, String),
}

/// Why one try to renew did not work.
enum Trouble {
    /// And will not.
    Lost(Lost),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

impl Held {
    pub(super) fn new(elector: Elector, written: Written) -> Held {
        let mut announcement = tokio::task::JoinSet::new();
        announcement.spawn(say(&elector, &written.lease, "became leader"));
        let mut held = Held {
            elector,
            lease: written.lease.clone(),
            renewed: written.sent,
            term: None,
            _announcement: announcement,
        };
        held.hold(written);
        held
    }

    /// Until when nobody else may hold the lease, and this process may write.
    pub fn until(&self) -> Instant {
        self.renewed + self.elector.options.renew_deadline
    }

    /// From now on the term lasts as long as the lease is renewed.
    pub fn open(&mut self, term: Term) {
        term.extend(self.until());
        self.term = Some(term);
    }

    /// Renews the lease for as long as this is polled, and ends when it is lost. May be dropped at any time.
    pub async fn keep(&mut self) -> Lost {
        let Err(lost) = self.keep_on().await;
        self.end();
        lost
    }

    async fn keep_on(&mut self) -> Result<Infallible, Lost> {
        loop {
            let options = &self.elector.options;
            sleep_until(self.renewed + options.retry_period).await;
            let lost = Lost::Deadline(options.name.clone(), options.renew_deadline);
            let written = before(self.until(), self.renew_until_it_works()).await.ok_or(lost)??;
            self.hold(written);
        }
    }

    async fn renew_until_it_works(&self) -> Result<Written, Lost> {
        loop {
            match self.renew().await {
                Ok(written) => return Ok(written),
                Err(Trouble::Lost(lost)) => return Err(lost),
                Err(Trouble::Failed(error)) => {
                    tracing::error!(lease = self.elector.options.name, %error, "cannot renew the lease; trying again");
                    sleep(self.elector.options.retry_period).await;
                }
            }
        }
    }

    /// Writes it as it was last seen; if that does not work, looks first (LE-4).
    async fn renew(&self) -> Result<Written, Trouble> {
        match self.elector.write(&self.lease).await {
            Ok(written) => return Ok(written),
            Err(error) => tracing::debug!(lease = self.elector.options.name, %error, "reading the lease to renew it"),
        }
        let Some(found) = self.elector.api.get().await? else {
            // upstream: whoever deletes the lease of a leader does not depose it.
            return Ok(self.elector.create().await?);
        };
        if !found.is_free() && !found.is_held_by(&self.elector.identity) {
            let (name, holder) = (self.elector.options.name.clone(), found.holder().to_owned());
            return Err(Trouble::Lost(Lost::Taken(name, holder)));
        }
        self.elector.status.was_slow();
        Ok(self.elector.write(&found).await?)
    }

    fn hold(&mut self, written: Written) {
        self.elector.status.renewed(&written.lease, written.sent);
        (self.lease, self.renewed) = (written.lease, written.sent);
        if let Some(term) = &self.term {
            term.extend(self.renewed + self.elector.options.renew_deadline);
        }
    }

    /// Gives the lease back, so that a successor need not wait (LE-7). To be called when all that it protects has ended:
    /// nothing can be written any more from here on. If it cannot be given back, it runs out.
    pub async fn release(mut self) {
        let until = self.until().min(Instant::now() + RELEASE_WITHIN);
        self.end();
        match before(until, self.give_back()).await {
            Some(()) => tracing::info!(lease = self.elector.options.name, "the lease is given back"),
            None => {
                tracing::warn!(lease = self.elector.options.name, "the lease could not be given back, and runs out")
            }
        }
        let last_words = say(&self.elector, &self.lease, "stopped leading");
        let _ = timeout(LAST_WORDS, last_words).await;
    }

    async fn give_back(&self) {
        let mut lease = self.lease.clone();
        loop {
            let Err(error) = self.elector.api.replace(&lease.given_back(self.elector.clock.now())).await else {
                return;
            };
            tracing::debug!(lease = self.elector.options.name, %error, "reading the lease to give it back");
            if !matches!(error, Failure::Conflict) {
                sleep(BETWEEN_RELEASES).await;
            }
            // A renewal that was under way may have changed it.
            match self.elector.api.get().await {
                Ok(Some(found)) if found.is_held_by(&self.elector.identity) => lease = found,
                Ok(_) => return,
                Err(_) => {}
            }
        }
    }

    fn end(&mut self) {
        self.term = None;
        self.elector.status.ended();
    }
}

/// Runs `work` up to `deadline`, which is looked at each time before it goes on: a process that stood still must not go on
/// with what it was about to do.
async fn before<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let in_time = std::future::poll_fn(|context| match Instant::now() < deadline {
        true => work.as_mut().poll(context).map(Some),
        false => Poll::Ready(None),
    });
    timeout_at(deadline, in_time).await.ok().flatten()
}

/// Says in an Event on the lease what has become of this process (LE-6).
fn say(elector: &Elector, lease: &Lease, what: &str) -> impl Future<Output = ()> + Send + use<> {
    let (client, now) = (elector.api.client().clone(), elector.clock.now());
    let (object, message) = (lease.reference(), format!("{} {what}", elector.identity));
    async move { announce(&client, COMPONENT, object, REASON, message, now).await }
}
