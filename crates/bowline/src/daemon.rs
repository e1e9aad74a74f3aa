//! The manager: flags become settings, settings become clouds, a client and controllers, and those run until a signal.

use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_config::Problems;
use bowline_controllers::manager::{self, Surroundings};
use bowline_kube::Clients;
use bowline_runtime::{Board, Clock, Renewals, Shutdown, Supervisor};

use crate::admin::Admin;
use crate::cli::ManagerArgs;
use crate::logging;
use crate::reach::{self, Reached};
use crate::serve::stopped_by_signals;
use crate::settings::Settings;

/// What the manager may take to end beyond the time that it gives its own tasks.
const MARGIN: Duration = Duration::from_secs(2);

/// Runs the manager until it is told to stop. `problems` are those that the command line had already.
pub(crate) async fn run(args: &ManagerArgs, problems: Problems) -> anyhow::Result<()> {
    let prepared = Prepared::new(args, problems).await?;
    for remark in &prepared.settings.remarks {
        tracing::warn!(target: logging::AS_WRITTEN, "{remark}");
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
        let metrics = prometheus::Registry::new();
        let Reached { providers, access, credentials, .. } = self.reached;
        let clouds = Clouds::around(providers, &self.settings.reach.layers, &metrics);
        let patience = self.settings.manager.patience + MARGIN;
        let mut tasks = Supervisor::new(shutdown.clone());
        if let Some(address) = self.settings.metrics_listen {
            tasks.spawn("metrics", Admin::bind(address, metrics.clone()).await?.serve(shutdown.clone()));
        }
        tracing::info!(version = env!("CARGO_PKG_VERSION"), clouds = ?names(&clouds), "starting");
        let board = Board::new();
        let renewals = Renewals::register(&metrics)?;
        tasks.spawn("credentials", credentials.watch(renewals, board.clone(), shutdown.clone()));
        let clients = Clients::new(access, false);
        let surroundings = Surroundings { clients, clouds, clock: Clock::system(), metrics, board };
        let manager = manager::run(surroundings, self.settings.manager, shutdown);
        tasks.spawn("manager", manager);
        tasks.run(patience).await?;
        tracing::info!("stopped");
        Ok(())
    }
}

fn names(clouds: &Clouds) -> Vec<&str> {
    clouds.iter().map(|cloud| &**cloud.name()).collect()
}
