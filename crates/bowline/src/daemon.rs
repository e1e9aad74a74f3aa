//! The manager: flags become settings, settings become clouds, a client and controllers, and those run until a signal.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_config::Problems;
use bowline_controllers::manager::{self, Surroundings};
use bowline_runtime::{Board, Clock, Shutdown, Supervisor};

use crate::cli::ManagerArgs;
use crate::front::{Front, FrontOptions, Pages};
use crate::reach::{self, Reached};
use crate::serve::stopped_by_signals;
use crate::settings::Settings;

/// What the manager may take to end beyond the time that it gives its own tasks.
const MARGIN: Duration = Duration::from_secs(2);

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
        let metrics = prometheus::Registry::new();
        let Reached { providers, client } = self.reached;
        let clouds = Clouds::around(providers, &self.settings.reach.layers, &metrics);
        let patience = self.settings.manager.patience + MARGIN;
        let mut tasks = Supervisor::new(shutdown.clone());
        let board = Board::new();
        let front = FrontOptions { plain: self.settings.metrics_listen, ..FrontOptions::default() };
        let front = Front::bind(&front).await?;
        tasks.spawn("serving", front.serve(pages(&board, &metrics), shutdown.clone()));
        tracing::info!(version = env!("CARGO_PKG_VERSION"), clouds = ?names(&clouds), "starting");
        let surroundings = Surroundings { board, ..Surroundings::new(client, clouds, Clock::system(), metrics) };
        let manager = manager::run(surroundings, self.settings.manager, shutdown);
        tasks.spawn("manager", manager);
        tasks.run(patience).await?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// What is told of the process while it runs.
fn pages(board: &Board, metrics: &prometheus::Registry) -> Pages {
    let page = || (String::new(), serde_json::Value::Null);
    Pages {
        board: board.clone(),
        metrics: metrics.clone(),
        configz: Arc::new(|| serde_json::Value::Null),
        flagz: Arc::new(page),
        statusz: Arc::new(page),
        set_verbosity: Arc::new(|_| ()),
    }
}

fn names(clouds: &Clouds) -> Vec<&str> {
    clouds.iter().map(|cloud| &**cloud.name()).collect()
}
