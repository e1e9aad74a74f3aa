//! Leader election: the controllers run while the leases are held, and the process exits when a lease is lost.
//!
//! ```text
//!  main lease ──► work begins ──────────────────────────► work ends ──► both leases are released
//!                  └─► second lease ──► the gate opens ──┘
//!  either is lost: exit code 1, immediately
//! ```

use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_controllers::Gate;
use bowline_kube::{ElectionMetrics, Elector, Held, Identity, Lost};
use bowline_runtime::{Clock, Fence, Kind, Shutdown, StatusBoard, Term};

/// Exit code of a process that lost a lease (LE-5).
const LOST: i32 = 1;

/// Time for ending the sessions in the clouds after a lease was lost.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Dependencies of the leader election.
pub(crate) struct ElectionDependencies {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) metrics: prometheus::Registry,
    pub(crate) board: StatusBoard,
    pub(crate) fence: Fence,
    /// Clouds whose sessions are ended when a lease is lost.
    pub(crate) clouds: Clouds,
}

/// Leader election before its start. The fence is closed from its creation until the lease is held.
pub(crate) struct Election {
    main: Elector,
    term: Term,
    second: Option<Second>,
    releases: bool,
    clouds: Clouds,
}

/// Second lease, for the migrating controllers.
struct Second {
    elector: Elector,
    lease: String,
    gate: Gate,
    fence: Fence,
}

impl Election {
    /// Creates the election. Both leases have the same holder identity and are on the status board.
    pub(crate) fn new(
        settings: &bowline_settings::Election,
        dependencies: ElectionDependencies,
    ) -> prometheus::Result<Election> {
        let ElectionDependencies { client, clock, metrics, board, fence, clouds } = dependencies;
        let (identity, metrics) = (Identity::of_this_process(), ElectionMetrics::register(&metrics)?);
        let elector = |lease: bowline_kube::LeaseOptions| {
            let name = lease.name.clone();
            let elector = Elector::new(client.clone(), lease, identity.clone(), clock.clone(), &metrics);
            board.put(Kind::Lease, name, elector.component());
            elector
        };
        // In this order on the board: the health check of the first lease has upstream's name.
        let main = elector(settings.lease.clone());
        let second = settings.migration.as_ref().map(|migration| Second {
            elector: elector(settings.second_lease(migration)),
            lease: migration.lease.clone(),
            gate: Gate::before(migration.migrating()),
            fence: fence.clone(),
        });
        Ok(Election { main, term: fence.term(&settings.lease.name), second, releases: settings.releases, clouds })
    }

    /// Gate that blocks the controllers that need the second lease.
    pub(crate) fn gate(&self) -> Gate {
        self.second.as_ref().map_or_else(Gate::none, |second| second.gate.clone())
    }

    /// Runs `work` as soon as the lease is held, releases the lease after work that succeeded, and exits the process when the lease
    /// is lost. If shutdown is requested before the lease is held, `work` does not run.
    ///
    /// After work that failed, for example because a cloud did not answer, the lease is left to expire. The fence is closed, so
    /// this process sends no more writes; but writes in flight may still take effect, and the next leader must not start before
    /// that.
    pub(crate) async fn lead<E>(self, shutdown: &Shutdown, work: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let Some(mut main) = self.main.acquire(shutdown).await else { return Ok(()) };
        main.open(self.term);
        let mut second = None;
        tokio::select! {
            // Polled first: a process that was suspended must not write before it notices the lost lease.
            biased;
            lost = main.keep() => exit("leaderelection lost", &lost, &self.clouds).await,
            lost = keep_second(self.second, &mut second, shutdown) => {
                exit("migration leaderelection lost", &lost, &self.clouds).await
            }
            done = work => done?,
        }
        if self.releases {
            tokio::join!(release(second), release(Some(main)));
        }
        Ok(())
    }
}

/// Acquires the second lease, opens the gate and keeps renewing. The lease is stored in `held`.
async fn keep_second(second: Option<Second>, held: &mut Option<Held>, shutdown: &Shutdown) -> Lost {
    let Some(Second { elector, lease, gate, fence }) = second else { return std::future::pending().await };
    let Some(mut won) = elector.acquire(shutdown).await else { return std::future::pending().await };
    won.open(fence.term_until(lease, won.until()));
    gate.open();
    held.insert(won).keep().await
}

async fn release(held: Option<Held>) {
    if let Some(held) = held {
        held.release().await;
    }
}

/// Exits without cleanup, because another process may lead already. Only sessions in clouds are ended: that writes nothing, and the
/// clouds limit their number.
async fn exit(message: &str, lost: &Lost, clouds: &Clouds) -> ! {
    tracing::error!(cause = %lost, "{message}");
    clouds.close(CLOSE_TIMEOUT).await;
    std::process::exit(LOST)
}

#[cfg(test)]
mod tests {
    use bowline_apiserver::{ApiServer, Options};
    use bowline_cloud::layers::LayerOptions;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;

    use super::*;

    /// Returns the holder of the lease after work with this result, whether it succeeded, and whether the fence is closed again.
    async fn after(result: Result<(), &'static str>) -> (String, bool, bool) {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let fence = Fence::open();
        let dependencies = ElectionDependencies {
            client: server.in_process_client(),
            clock: Clock::system(),
            metrics: prometheus::Registry::new(),
            board: StatusBoard::new(),
            fence: fence.clone(),
            clouds: Clouds::with_layers([], &LayerOptions::default(), &prometheus::Registry::new()),
        };
        let settings = bowline_settings::Election { lease: Default::default(), migration: None, releases: true };
        let election = Election::new(&settings, dependencies).unwrap();
        assert!(fence.check().is_err(), "the fence is closed before the lease is held");
        let fence_at_work = fence.clone();
        let work = async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            result.map(|()| assert!(fence_at_work.check().is_ok()))
        };
        let done = election.lead(&Shutdown::new(), work).await;
        let leases: Api<Lease> = Api::namespaced(server.in_process_client(), "kube-system");
        let holder = leases.get(&settings.lease.name).await.unwrap().spec.unwrap().holder_identity.unwrap_or_default();
        (holder, done.is_ok(), fence.check().is_err())
    }

    #[tokio::test]
    async fn le7_a_lease_is_released_after_successful_work_and_expires_otherwise() {
        assert_eq!(after(Ok(())).await, (String::new(), true, true));
        let (holder, succeeded, is_closed) = after(Err("the cloud did not answer")).await;
        assert!(!holder.is_empty() && !succeeded && is_closed, "{holder}");
    }
}
