//! The manager: flags become settings, settings become clouds, a client and controllers, and those run until a signal.

use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_cloud::layers::LayerOptions;
use bowline_config::Problems;
use bowline_controllers::Gate;
use bowline_controllers::manager::{self, ManagerError, ManagerOptions, Surroundings};
use bowline_kube::{Clients, Unwell};
use bowline_runtime::{Board, Clock, Fence, Renewals, Shutdown, Supervisor};

use crate::admin::Admin;
use crate::cli::ManagerArgs;
use crate::election::{Candidacy, Election};
use crate::reach::{self, Reached};
use crate::serve::stopped_by_signals;
use crate::settings::Settings;

/// What the manager may take to end beyond the time that it gives its own tasks: for giving leases back, above all.
const MARGIN: Duration = Duration::from_secs(6);

/// Runs the manager until it is told to stop. `problems` are those that the command line had already.
pub(crate) async fn run(args: &ManagerArgs, problems: Problems) -> anyhow::Result<()> {
    let prepared = Prepared::new(args, problems).await?;
    for remark in &prepared.settings.remarks {
        tracing::warn!("{remark}");
    }
    // Before anything is started: a signal from here on is a request to stop, and not the end.
    let shutdown = stopped_by_signals()?;
    prepared.run(shutdown).await
}

/// All that the manager needs; nothing of it has called anybody yet.
struct Prepared {
    settings: Settings,
    reached: Reached,
}

impl Prepared {
    /// Looks at everything there is to look at, and starts nothing.
    async fn new(args: &ManagerArgs, mut problems: Problems) -> anyhow::Result<Prepared> {
        let settings = Settings::resolve(args, &mut problems);
        let check = |providers: &[_], problems: &mut _| {
            reach::check(providers, &settings.reach, &settings.manager, &args.controllers.network, problems);
        };
        let reached = Reached::new(&settings.reach, problems, check).await?;
        Ok(Prepared { settings, reached })
    }

    /// Runs until shutdown is requested.
    async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let Prepared { settings, reached } = self;
        let Reached { providers, access, credentials, client } = reached;
        let (metrics, board, fence) = (prometheus::Registry::new(), Board::new(), Fence::open());
        let layers = LayerOptions { fence: fence.clone(), ..settings.reach.layers };
        let clouds = Clouds::around(providers, &layers, &metrics);
        let patience = settings.manager.patience + MARGIN;
        let mut tasks = Supervisor::new(shutdown.clone());
        if let Some(address) = settings.metrics_listen {
            tasks.spawn("metrics", Admin::bind(address, metrics.clone()).await?.serve(shutdown.clone()));
        }
        tracing::info!(version = env!("CARGO_PKG_VERSION"), clouds = ?names(&clouds), "starting");
        let renewals = Renewals::register(&metrics)?;
        tasks.spawn("credentials", credentials.watch(renewals, board.clone(), shutdown.clone()));
        let candidacy = Candidacy {
            // Nothing that the controllers send can hold a renewal up (CL-3).
            client: access.urgent("leader-election"),
            clock: Clock::system(),
            metrics: metrics.clone(),
            board: board.clone(),
            fence: fence.clone(),
        };
        let election = settings.election.as_ref().map(|election| Election::new(election, candidacy)).transpose()?;
        let gate = election.as_ref().map_or_else(Gate::none, Election::gate);
        let clients = Clients::new(access, settings.own_credentials).fenced(fence);
        let surroundings = Surroundings { clients, clouds, clock: Clock::system(), metrics, board, gate };
        let manager = control(client, surroundings, settings.manager, shutdown.clone());
        let manager = async move {
            match election {
                None => manager.await,
                Some(election) => election.lead(&shutdown, manager).await,
            }
        };
        tasks.spawn("manager", manager);
        tasks.run(patience).await?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Why the controllers ended although nobody asked them to, or did not begin.
#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error("the API server is not well: {0}")]
    ApiServer(#[from] Unwell),
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// Runs the controllers as soon as the API server is well.
async fn control(
    client: kube::Client,
    surroundings: Surroundings,
    options: ManagerOptions,
    shutdown: Shutdown,
) -> Result<(), ControlError> {
    if let Some(well) = shutdown.or(bowline_kube::wait_until_well(&client)).await {
        well?;
        manager::run(surroundings, options, shutdown).await?;
    }
    Ok(())
}

fn names(clouds: &Clouds) -> Vec<&str> {
    clouds.iter().map(|cloud| &**cloud.name()).collect()
}
