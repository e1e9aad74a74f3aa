//! The manager: flags become settings, settings become clouds, a client and controllers, and those run until a signal.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{CloudProvider, Clouds};
use bowline_config::{Problem, Problems};
use bowline_controllers::manager;
use bowline_controllers::service::Routing;
use bowline_kube::ConnectError;
use bowline_runtime::{Clock, Shutdown, Supervisor};

use crate::BadInput;
use crate::admin::Admin;
use crate::cli::ManagerArgs;
use crate::providers;
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
    providers: Vec<Arc<dyn CloudProvider>>,
    client: kube::Client,
}

impl Prepared {
    /// Looks at everything there is to look at, and starts nothing.
    async fn new(args: &ManagerArgs, mut problems: Problems) -> anyhow::Result<Prepared> {
        let settings = Settings::resolve(args, &mut problems);
        let providers = providers::build(&settings.providers, &settings.cluster, &providers::registry(), &mut problems);
        let client = match bowline_kube::connect(&settings.client).await {
            Ok(client) => Some(client),
            Err(ConnectError::Config(message)) => {
                problems.push(Problem::new(message));
                None
            }
            Err(error) if problems.is_empty() => return Err(error.into()),
            Err(_) => None,
        };
        match client {
            Some(client) if problems.is_empty() => Ok(Prepared { settings, providers, client }),
            _ => Err(BadInput::from(problems).into()),
        }
    }

    /// Runs until shutdown is requested.
    async fn run(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let metrics = prometheus::Registry::new();
        let clouds = Clouds::around(self.providers, &self.settings.layers, &metrics);
        check_routing(&clouds, &self.settings)?;
        let patience = self.settings.manager.patience + MARGIN;
        let mut tasks = Supervisor::new(shutdown.clone());
        if let Some(address) = self.settings.metrics_listen {
            tasks.spawn("metrics", Admin::bind(address, metrics.clone()).await?.serve(shutdown.clone()));
        }
        tracing::info!(version = env!("CARGO_PKG_VERSION"), clouds = ?names(&clouds), "starting");
        let manager = manager::run(self.client, clouds, self.settings.manager, Clock::system(), metrics, shutdown);
        tasks.spawn("manager", manager);
        tasks.run(patience).await?;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Who takes Services without a class is a cloud that is there. Which names there are is known only now: two clouds of one
/// kind get names that tell them apart.
fn check_routing(clouds: &Clouds, settings: &Settings) -> Result<(), BadInput> {
    let Some(service) = &settings.manager.service else { return Ok(()) };
    let routing = Routing::new(clouds, &service.default_cloud, service.classes);
    routing.map(drop).map_err(|error| BadInput(format!("--load-balancer-default-cloud: {error}")))
}

fn names(clouds: &Clouds) -> Vec<&str> {
    clouds.iter().map(|cloud| &**cloud.name()).collect()
}
