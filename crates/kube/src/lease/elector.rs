//! Getting a lease.

use bowline_runtime::{Clock, Part, Shutdown};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::held::Held;
use super::record::{Lease, Seen};
use super::request::{Failure, LeaseApi, News};
use super::status::{ElectionMetrics, Status};
use super::{Identity, LeaseOptions};

/// Stands for election.
pub struct Elector {
    pub(super) api: LeaseApi,
    pub(super) options: LeaseOptions,
    pub(super) identity: Identity,
    pub(super) clock: Clock,
    pub(super) status: Status,
}

/// A lease that was written by this process.
pub(super) struct Written {
    pub(super) lease: Lease,
    /// Just before the request was sent: from then on it counts.
    pub(super) sent: Instant,
}

impl Elector {
    /// For this lease. The client should have connections of its own: what the controllers send must not hold a renewal up.
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

    /// How the election stands, for the board.
    pub fn part(&self) -> Arc<dyn Part> {
        Arc::new(self.status.clone())
    }

    /// Waits until the lease is held by this process; `None` if shutdown is requested before that. A free lease is taken
    /// without a pause.
    ///
    /// A request that takes the lease is not given up for a shutdown: nobody would know that it is to be given back.
    pub async fn acquire(self, shutdown: &Shutdown) -> Option<Held> {
        let Lock(namespace, name) = self.lock();
        tracing::info!("attempting to acquire leader lease {namespace}/{name}...");
        let (sender, news) = mpsc::unbounded_channel();
        let written = async {
            tokio::select! {
                written = self.stand(news, shutdown) => written,
                never = async { self.api.watch(sender).await; std::future::pending().await } => never,
            }
        };
        let written = written.await?;
        tracing::info!("successfully acquired lease {namespace}/{name}");
        Some(Held::new(self, written))
    }

    /// Tries until it works, or nobody wants it any more.
    async fn stand(&self, mut news: mpsc::UnboundedReceiver<News>, shutdown: &Shutdown) -> Option<Written> {
        let mut seen = None;
        loop {
            let found = shutdown.or(self.api.get()).await?;
            match self.attempt(found, &mut seen).await {
                Ok(Some(written)) => return Some(written),
                Ok(None) => {}
                Err(error) => self.complain(&error),
            }
            shutdown.or(self.wait(&mut seen, &mut news)).await?;
        }
    }

    /// One try; `None` if somebody else holds the lease.
    async fn attempt(
        &self,
        found: Result<Option<Lease>, Failure>,
        seen: &mut Option<Seen>,
    ) -> Result<Option<Written>, Failure> {
        let Some(found) = found? else { return self.create().await.map(Some) };
        let seen = self.see(seen, found);
        if Instant::now() < seen.may_be_taken_at(&self.identity) {
            tracing::debug!(
                lease = self.options.name,
                holder = seen.lease.holder(),
                "the lease is held by somebody else"
            );
            return Ok(None);
        }
        self.write(&seen.lease).await.map(Some)
    }

    /// Waits until another try is worthwhile: the usual pause has passed, the lease runs out, or it was given back.
    async fn wait(&self, seen: &mut Option<Seen>, news: &mut mpsc::UnboundedReceiver<News>) {
        let next = Instant::now() + self.options.pause();
        loop {
            let until = self.runs_out(seen).map_or(next, |runs_out| runs_out.min(next));
            tokio::select! {
                () = sleep_until(until) => return,
                Some(news) = news.recv() => match news {
                    News::Deleted if seen.take().is_some() => return,
                    News::Deleted => {}
                    News::Changed(lease) => {
                        let was_free = seen.as_ref().is_some_and(|seen| seen.lease.is_free());
                        if self.see(seen, lease).lease.is_free() && !was_free {
                            return;
                        }
                    }
                },
            }
        }
    }

    /// When another one's lease will run out. One that could be taken already was just tried for: no reason to hurry.
    fn runs_out(&self, seen: &Option<Seen>) -> Option<Instant> {
        let runs_out = seen.as_ref()?.may_be_taken_at(&self.identity);
        (runs_out > Instant::now()).then_some(runs_out)
    }

    fn see<'a>(&self, seen: &'a mut Option<Seen>, lease: Lease) -> &'a Seen {
        self.status.seen(&lease);
        let now = Instant::now();
        match seen {
            Some(seen) => {
                seen.again(lease, now);
                seen
            }
            none => none.insert(Seen::new(lease, now)),
        }
    }

    pub(super) async fn create(&self) -> Result<Written, Failure> {
        let sent = Instant::now();
        let lease = self.api.create(&Lease::new(&self.options, &self.identity, self.clock.now())).await?;
        Ok(Written { lease, sent })
    }

    /// Takes or renews it.
    pub(super) async fn write(&self, lease: &Lease) -> Result<Written, Failure> {
        let sent = Instant::now();
        let lease = self.api.replace(&lease.held_by(&self.identity, &self.options, self.clock.now())).await?;
        Ok(Written { lease, sent })
    }

    pub(super) fn lock(&self) -> Lock {
        Lock(self.options.namespace.clone(), self.options.name.clone())
    }

    fn complain(&self, error: &Failure) {
        match error {
            Failure::Conflict => tracing::debug!(lease = self.options.name, "somebody else was faster"),
            error => tracing::error!(lease = self.options.name, %error, "cannot get the lease; trying again"),
        }
    }
}

/// Namespace and name.
pub(super) struct Lock(pub(super) String, pub(super) String);
