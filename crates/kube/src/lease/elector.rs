//! Acquires a lease.

use bowline_runtime::{Clock, Component, Shutdown};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::held::Held;
use super::record::{Lease, ObservedLease};
use super::request::{Failure, LeaseApi, LeaseEvent};
use super::status::{ElectionMetrics, Status};
use super::{Identity, LeaseOptions};

/// Candidate in a leader election.
pub struct Elector {
    pub(super) api: LeaseApi,
    pub(super) options: LeaseOptions,
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) status: Status,
}

/// Lease written by this process.
pub(super) struct Written {
    pub(super) lease: Lease,
    /// Time just before the request was sent, from which the renew deadline counts.
    pub(super) sent: Instant,
}

impl Elector {
    /// Creates a candidate for this lease. The client needs its own connections, so that requests of the controllers do not delay a
    /// renewal.
    pub fn new(
        client: kube::Client,
        options: LeaseOptions,
        identity: Identity,
        clock: Clock,
        metrics: &ElectionMetrics,
    ) -> Elector {
        let status = Status::new(&options, identity.clone(), metrics.clone());
        Elector { api: LeaseApi::new(client, &options), options, identity, clock, status }
    }

    /// State of the election, for the board.
    pub fn component(&self) -> Arc<dyn Component> {
        Arc::new(self.status.clone())
    }

    /// Waits until this process holds the lease; `None` if shutdown is requested first. A free lease is acquired at once.
    ///
    /// Shutdown does not cancel a request that acquires the lease: the process could not release a lease it does not know of.
    pub async fn acquire(self, shutdown: &Shutdown) -> Option<Held> {
        let Lock(namespace, name) = self.lock();
        tracing::info!("attempting to acquire leader lease {namespace}/{name}...");
        let (sender, events) = mpsc::unbounded_channel();
        let written = async {
            tokio::select! {
                written = self.campaign(events, shutdown) => written,
                never = async { self.api.watch(sender).await; std::future::pending().await } => never,
            }
        };
        let written = written.await?;
        tracing::info!("successfully acquired lease {namespace}/{name}");
        Some(Held::new(self, written))
    }

    /// Tries to acquire the lease until it succeeds or shutdown is requested.
    async fn campaign(&self, mut events: mpsc::UnboundedReceiver<LeaseEvent>, shutdown: &Shutdown) -> Option<Written> {
        let mut observed = None;
        loop {
            let found = shutdown.or(self.api.get()).await?;
            match self.attempt(found, &mut observed).await {
                Ok(Some(written)) => return Some(written),
                Ok(None) => {}
                Err(error) => self.log_failure(&error),
            }
            shutdown.or(self.wait(&mut observed, &mut events)).await?;
        }
    }

    /// Makes one attempt; `None` if another process holds the lease.
    async fn attempt(
        &self,
        found: Result<Option<Lease>, Failure>,
        observed: &mut Option<ObservedLease>,
    ) -> Result<Option<Written>, Failure> {
        let Some(found) = found? else { return self.create().await.map(Some) };
        let observed = self.observe(observed, found);
        if Instant::now() < observed.may_be_acquired_at(&self.identity) {
            tracing::debug!(
                lease = self.options.name,
                holder = observed.lease.holder(),
                "another process holds the lease"
            );
            return Ok(None);
        }
        self.write(&observed.lease).await.map(Some)
    }

    /// Waits until the next attempt: after the retry period with jitter, or when the lease expires or is released.
    async fn wait(&self, observed: &mut Option<ObservedLease>, events: &mut mpsc::UnboundedReceiver<LeaseEvent>) {
        let next = Instant::now() + self.options.pause();
        loop {
            let until = self.expiry(observed).map_or(next, |expiry| expiry.min(next));
            tokio::select! {
                () = sleep_until(until) => return,
                Some(event) = events.recv() => match event {
                    LeaseEvent::Deleted if observed.take().is_some() => return,
                    LeaseEvent::Deleted => {}
                    LeaseEvent::Changed(lease) => {
                        let was_free = observed.as_ref().is_some_and(|observed| observed.lease.is_free());
                        if self.observe(observed, lease).lease.is_free() && !was_free {
                            return;
                        }
                    }
                },
            }
        }
    }

    /// Time at which the lease of another process expires. `None` if it has expired: an attempt was just made.
    fn expiry(&self, observed: &Option<ObservedLease>) -> Option<Instant> {
        let expiry = observed.as_ref()?.may_be_acquired_at(&self.identity);
        (expiry > Instant::now()).then_some(expiry)
    }

    fn observe<'a>(&self, observed: &'a mut Option<ObservedLease>, lease: Lease) -> &'a ObservedLease {
        self.status.observe(&lease);
        let now = Instant::now();
        match observed {
            Some(observed) => {
                observed.update(lease, now);
                observed
            }
            none => none.insert(ObservedLease::new(lease, now)),
        }
    }

    pub(super) async fn create(&self) -> Result<Written, Failure> {
        let sent = Instant::now();
        let lease = self.api.create(&Lease::new(&self.options, &self.identity, self.clock.now())).await?;
        Ok(Written { lease, sent })
    }

    /// Acquires or renews the lease.
    pub(super) async fn write(&self, lease: &Lease) -> Result<Written, Failure> {
        let sent = Instant::now();
        let lease = self.api.replace(&lease.held_by(&self.identity, &self.options, self.clock.now())).await?;
        Ok(Written { lease, sent })
    }

    pub(super) fn lock(&self) -> Lock {
        Lock(self.options.namespace.clone(), self.options.name.clone())
    }

    fn log_failure(&self, error: &Failure) {
        match error {
            Failure::Conflict => tracing::debug!(lease = self.options.name, "another process acquired the lease first"),
            error => tracing::error!(lease = self.options.name, %error, "failed to acquire the lease; retrying"),
        }
    }
}

/// Namespace and name of the lease.
pub(super) struct Lock(pub(super) String, pub(super) String);
