//! Leading: the controllers run while the leases are held, and the process ends when one is lost.
//!
//! ```text
//!  main lease ──► work begins ──────────────────────────► work ends ──► both leases are given back
//!                  └─► second lease ──► the gate opens ──┘
//!  either is lost: exit code 1, at once
//! ```

use bowline_controllers::Gate;
use bowline_kube::{ElectionMetrics, Elector, Held, Identity, Lost};
use bowline_runtime::{Clock, Fence, Kind, Shutdown, StatusBoard, Term};

/// The exit code of a process that has lost a lease (LE-5).
const LOST: i32 = 1;

/// What is needed to stand for election.
pub(crate) struct Candidacy {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) metrics: prometheus::Registry,
    pub(crate) board: StatusBoard,
    pub(crate) fence: Fence,
}

/// An election that is about to be held. From now on nothing passes the fence until it is won.
pub(crate) struct Election {
    main: Elector,
    term: Term,
    second: Option<Second>,
    releases: bool,
}

/// The lease of the controllers that move.
struct Second {
    elector: Elector,
    lease: String,
    gate: Gate,
    fence: Fence,
}

impl Election {
    /// Both leases are held under one name, and stand on the board.
    pub(crate) fn new(settings: &bowline_settings::Election, candidacy: Candidacy) -> prometheus::Result<Election> {
        let Candidacy { client, clock, metrics, board, fence } = candidacy;
        let (identity, metrics) = (Identity::of_this_process(), ElectionMetrics::register(&metrics)?);
        let elector = |lease: bowline_kube::LeaseOptions| {
            let name = lease.name.clone();
            let elector = Elector::new(client.clone(), lease, identity.clone(), clock.clone(), &metrics);
            board.put(Kind::Lease, name, elector.part());
            elector
        };
        // On the board in this order: the first is the one that health checks know by upstream's name.
        let main = elector(settings.lease.clone());
        let second = settings.migration.as_ref().map(|migration| Second {
            elector: elector(settings.second_lease(migration)),
            lease: migration.lease.clone(),
            gate: Gate::before(migration.moving()),
            fence: fence.clone(),
        });
        Ok(Election { main, term: fence.term(&settings.lease.name), second, releases: settings.releases })
    }

    /// Holds back the controllers that need the second lease.
    pub(crate) fn gate(&self) -> Gate {
        self.second.as_ref().map_or_else(Gate::none, |second| second.gate.clone())
    }

    /// Does `work` as soon as the lease is held, gives the lease back when it has ended well, and ends the process when the
    /// lease is lost. Without a lease before shutdown is requested, nothing is done.
    ///
    /// After work that did not end well, as one that was given up while a cloud did not answer, the lease is left to run
    /// out. From here nothing is sent any more, as the fence is closed; but what was sent may still take effect, and whoever
    /// leads next must not begin in the middle of that.
    pub(crate) async fn lead<E>(self, shutdown: &Shutdown, work: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let Some(mut main) = self.main.acquire(shutdown).await else { return Ok(()) };
        main.open(self.term);
        let mut second = None;
        tokio::select! {
            // Asked first: who has stood still must not take another step.
            biased;
            lost = main.keep() => end("leaderelection lost", &lost),
            lost = keep_second(self.second, &mut second, shutdown) => end("migration leaderelection lost", &lost),
            done = work => done?,
        }
        if self.releases {
            tokio::join!(release(second), release(Some(main)));
        }
        Ok(())
    }
}

/// Gets the second lease, lets those begin who wait for it, and keeps it. It can be found in `held`.
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

/// Nothing is finished and nothing is told to anybody: somebody else may lead already.
fn end(message: &str, lost: &Lost) -> ! {
    tracing::error!(cause = %lost, "{message}");
    std::process::exit(LOST)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bowline_apiserver::{ApiServer, Options};
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;

    use super::*;

    /// Who holds the lease after work that ends like this, and whether the fence was open for it and is closed now.
    async fn after(end: Result<(), &'static str>) -> (String, bool, bool) {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let fence = Fence::open();
        let candidacy = Candidacy {
            client: server.in_process_client(),
            clock: Clock::system(),
            metrics: prometheus::Registry::new(),
            board: StatusBoard::new(),
            fence: fence.clone(),
        };
        let settings = bowline_settings::Election { lease: Default::default(), migration: None, releases: true };
        let election = Election::new(&settings, candidacy).unwrap();
        assert!(fence.check().is_err(), "not before the lease is held");
        let seen = fence.clone();
        let work = async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            end.map(|()| assert!(seen.check().is_ok()))
        };
        let done = election.lead(&Shutdown::new(), work).await;
        let leases: Api<Lease> = Api::namespaced(server.in_process_client(), "kube-system");
        let holder = leases.get(&settings.lease.name).await.unwrap().spec.unwrap().holder_identity.unwrap_or_default();
        (holder, done.is_ok(), fence.check().is_err())
    }

    #[tokio::test]
    async fn le7_a_lease_is_given_back_after_work_that_ended_well_and_runs_out_otherwise() {
        assert_eq!(after(Ok(())).await, (String::new(), true, true));
        let (holder, is_well, is_closed) = after(Err("the cloud did not answer")).await;
        assert!(!holder.is_empty() && !is_well && is_closed, "{holder}");
    }
}
