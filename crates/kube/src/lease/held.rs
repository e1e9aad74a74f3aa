//! Renews and releases a lease.

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

/// `source.component` of the Events about leases.
const COMPONENT: &str = "cloud-controller-manager";
const REASON: &str = "LeaderElection";
/// Pause between two attempts to release the lease.
const RELEASE_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time to release the lease, because it delays the exit of the process.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time to write the `stopped leading` Event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Lease that this process holds as long as it [renews](Held::keep) it.
pub struct Held {
    elector: Elector,
    lease: Lease,
    /// Time at which the last renewal was sent.
    renewed: Instant,
    term: Option<Term>,
    /// Writes the `became leader` Event; aborted on drop, when it is no longer true.
    _announcement: tokio::task::JoinSet<()>,
}

/// Reason why the lease is lost. Everything it protects must stop at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The process did not renew the lease in time.
    #[error("failed to renew the lease {0} within {1:?}")]
    Deadline(String, Duration),
    /// Another process holds the lease.
    #[error("the lease {0} was acquired by {1}")]
    Taken(String, String),
}

/// Reason why a renewal failed.
enum RenewError {
    /// Permanent: the lease is lost.
    Lost(Lost),
    /// Transient.
    Failed(Failure),
}

impl From<Failure> for RenewError {
    fn from(failure: Failure) -> RenewError {
        RenewError::Failed(failure)
    }
}

impl Held {
    pub(super) fn new(elector: Elector, written: Written) -> Held {
        let mut announcement = tokio::task::JoinSet::new();
        announcement.spawn(emit_event(&elector, &written.lease, "became leader"));
        let mut held = Held {
            elector,
            lease: written.lease.clone(),
            renewed: written.sent,
            term: None,
            _announcement: announcement,
        };
        held.record_renewal(written);
        held
    }

    /// Time until which no other process may acquire the lease and this process may write.
    pub fn until(&self) -> Instant {
        self.renewed + self.elector.options.renew_deadline
    }

    /// Extends this term of the fence with every renewal.
    pub fn open(&mut self, term: Term) {
        term.extend(self.until());
        self.term = Some(term);
    }

    /// Renews the lease until it is lost. The future may be dropped at any time.
    pub async fn keep(&mut self) -> Lost {
        let Err(lost) = self.renew_until_lost().await;
        self.end();
        lost
    }

    async fn renew_until_lost(&mut self) -> Result<Infallible, Lost> {
        loop {
            let options = &self.elector.options;
            sleep_until(self.renewed + options.retry_period).await;
            let lost = Lost::Deadline(options.name.clone(), options.renew_deadline);
            let written = run_until(self.until(), self.renew_with_retry()).await.ok_or(lost)??;
            self.record_renewal(written);
        }
    }

    async fn renew_with_retry(&self) -> Result<Written, Lost> {
        loop {
            match self.renew().await {
                Ok(written) => return Ok(written),
                Err(RenewError::Lost(lost)) => return Err(lost),
                Err(RenewError::Failed(error)) => {
                    tracing::error!(lease = self.elector.options.name, %error, "failed to renew the lease; retrying");
                    sleep(self.elector.options.retry_period).await;
                }
            }
        }
    }

    /// Updates the lease from the last known version; if that fails, reads it first (LE-4).
    async fn renew(&self) -> Result<Written, RenewError> {
        match self.elector.write(&self.lease).await {
            Ok(written) => return Ok(written),
            Err(error) => tracing::debug!(lease = self.elector.options.name, %error, "reading the lease to renew it"),
        }
        let Some(found) = self.elector.api.get().await? else {
            // upstream: deleting the lease does not depose the leader.
            return Ok(self.elector.create().await?);
        };
        if !found.is_free() && !found.is_held_by(&self.elector.identity) {
            let (name, holder) = (self.elector.options.name.clone(), found.holder().to_owned());
            return Err(RenewError::Lost(Lost::Taken(name, holder)));
        }
        self.elector.status.record_slow_path();
        Ok(self.elector.write(&found).await?)
    }

    fn record_renewal(&mut self, written: Written) {
        self.elector.status.record_renewal(&written.lease, written.sent);
        (self.lease, self.renewed) = (written.lease, written.sent);
        if let Some(term) = &self.term {
            term.extend(self.renewed + self.elector.options.renew_deadline);
        }
    }

    /// Releases the lease, so that a successor need not wait (LE-7). Call it after everything the lease protects has stopped: it
    /// closes the fence. If the release fails, the lease expires.
    pub async fn release(mut self) {
        let until = self.until().min(Instant::now() + RELEASE_TIMEOUT);
        self.end();
        match run_until(until, self.release_with_retry()).await {
            Some(()) => tracing::info!(lease = self.elector.options.name, "released the lease"),
            None => {
                tracing::warn!(
                    lease = self.elector.options.name,
                    "failed to release the lease; it expires after its duration"
                )
            }
        }
        let event = emit_event(&self.elector, &self.lease, "stopped leading");
        let _ = timeout(EVENT_TIMEOUT, event).await;
    }

    async fn release_with_retry(&self) {
        let mut lease = self.lease.clone();
        loop {
            let Err(error) = self.elector.api.replace(&lease.released(self.elector.clock.now())).await else {
                return;
            };
            tracing::debug!(lease = self.elector.options.name, %error, "reading the lease to release it");
            if !matches!(error, Failure::Conflict) {
                sleep(RELEASE_RETRY_PAUSE).await;
            }
            // A renewal in flight may have changed the lease.
            match self.elector.api.get().await {
                Ok(Some(found)) if found.is_held_by(&self.elector.identity) => lease = found,
                Ok(_) => return,
                Err(_) => {}
            }
        }
    }

    fn end(&mut self) {
        self.term = None;
        self.elector.status.record_end();
    }
}

/// Runs `work` until `deadline`. The deadline is checked before every poll, so that a process that was paused does not continue
/// with work that is too late.
async fn run_until<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let in_time = std::future::poll_fn(|context| match Instant::now() < deadline {
        true => work.as_mut().poll(context).map(Some),
        false => Poll::Ready(None),
    });
    timeout_at(deadline, in_time).await.ok().flatten()
}

/// Emits an Event about the lease (LE-6).
fn emit_event(elector: &Elector, lease: &Lease, what: &str) -> impl Future<Output = ()> + Send + use<> {
    let (client, now) = (elector.api.client().clone(), elector.clock.now());
    let (object, message) = (lease.reference(), format!("{} {what}", elector.identity));
    async move { announce(&client, COMPONENT, object, REASON, message, now).await }
}
