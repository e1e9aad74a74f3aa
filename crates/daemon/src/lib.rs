//! The manager: flags become settings, settings become clouds, a client and controllers, and those run until a signal.
//!
//! ```text
//!  Prepared    all flags and files are read; nobody was called, and all that is wrong is told at once
//!     ▼
//!  Front       addresses are taken, and served from here on: a standby answers its probes, too
//!     ▼
//!  Election    waits for the lease, keeps it, gives it back; ends the process if it is lost
//!     ▼
//!  control     waits for the API server, then runs the controllers
//! ```

mod election;
mod front;
mod metrics;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_cloud::{Clouds, Registry};
use bowline_config::ConfigErrors;
use bowline_controllers::Gate;
use bowline_controllers::manager::{self, ManagerError, ManagerOptions, Surroundings};
use bowline_kube::{Clients, NotReady, ObjectRef, RestMetrics};
use bowline_runtime::{Clock, Kind, Reloader, Shutdown, StatusBoard, Supervisor};
use bowline_serving::webhook::Webhook;
use bowline_settings::Settings;
use bowline_settings::cli::ManagerArgs;
use bowline_settings::reach::{self, Reached};
use bowline_settings::{configuration, effective};
use bowline_telemetry::logging::{self, Handle};
use bowline_telemetry::{process, statusz};
use futures::future::join_all;

use election::{Candidacy, Election};
use front::{Front, FrontOptions, Pages};

pub use metrics::page as metric_reference;

/// What the input asks for cannot be had: a port is taken, a certificate cannot be read (SRV-1). Nothing was started.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct CannotStart(anyhow::Error);

/// What the manager may take to end beyond the time that it gives its own tasks: for giving leases back, above all.
const MARGIN: Duration = Duration::from_secs(6);

/// Environment variable that makes a task panic with its value. It is for the test of what a panic does in an optimised build.
const TEST_PANIC: &str = "BOWLINE_TEST_PANIC";

/// Runs the manager until a signal stops it.
pub async fn run(args: &ManagerArgs, registry: &Arc<Registry>, logs: Handle) -> anyhow::Result<()> {
    let prepared = Prepared::new(args, registry.clone()).await?;
    for remark in &prepared.settings.remarks {
        tracing::warn!(target: logging::AS_WRITTEN, "{remark}");
    }
    // Before anything is started: a signal from here on is a request to stop, and not the end.
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let options = FrontOptions::from(&prepared.settings);
    let webhooks = prepared.settings.serving.webhooks.of(webhooks());
    let Some(front) = shutdown.or(Front::bind(&options, &webhooks)).await else { return Ok(()) };
    prepared.run(front.map_err(CannotStart)?, logs, shutdown).await
}

/// The providers' admission webhooks: none of today has one.
fn webhooks() -> Vec<Arc<dyn Webhook>> {
    Vec::new()
}

/// All that the manager needs; nothing of it has called anybody yet.
struct Prepared {
    settings: Settings,
    reached: Reached,
    /// The kinds of providers in this program.
    registry: Arc<Registry>,
    metrics: prometheus::Registry,
}

impl Prepared {
    /// Looks at everything there is to look at, and starts nothing.
    async fn new(args: &ManagerArgs, registry: Arc<Registry>) -> anyhow::Result<Prepared> {
        let mut errors = ConfigErrors::new();
        let mut settings = Settings::resolve(args, &mut errors);
        let metrics = prometheus::Registry::new();
        settings.reach.client.metrics = Some(RestMetrics::register(&metrics)?);
        errors.extend(settings.serving.webhooks.errors(&webhooks()));
        let check = |providers: &[_], errors: &mut _| {
            reach::check(providers, &settings.reach, &settings.manager, &args.controllers.network, errors);
        };
        let reached = Reached::new(&settings.reach, &registry, &metrics, errors, check).await?;
        reach::narrow(&mut settings.manager, &reached.providers);
        Ok(Prepared { settings, reached, registry, metrics })
    }

    /// Runs until shutdown is requested.
    async fn run(self, front: Front, logs: Handle, shutdown: Shutdown) -> anyhow::Result<()> {
        let Prepared { settings, reached, registry, metrics } = self;
        let Reached { providers, access, credentials, client } = reached;
        let (board, fence) = (StatusBoard::new(), settings.reach.calls.fence.clone());
        metrics::register(&metrics, fence.clone(), &registry)?;
        let pages = pages(&settings, &board, &metrics, logs);
        let clouds = Clouds::around(providers, &settings.reach.layers, &metrics);
        clouds.iter().for_each(|cloud| board.put(Kind::Cloud, &**cloud.name(), cloud.part()));
        let patience = settings.manager.patience + MARGIN;
        let mut tasks = Supervisor::new(shutdown.clone());
        let credentials = credentials.and(front.reviewers());
        tasks.spawn("serving", front.serve(pages, shutdown.clone()));
        tracing::info!(version = env!("CARGO_PKG_VERSION"), clouds = ?names(&clouds), "starting");
        tasks.spawn("start of clouds", start(clouds.clone(), client.clone(), shutdown.clone()));
        if let Ok(message) = std::env::var(TEST_PANIC) {
            tasks.spawn("panic", fail(message));
        }
        let renewals = Reloader::register(&metrics)?;
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
        let lease = settings.election.as_ref().map(|election| &election.lease);
        let lease = lease.map_or_else(Default::default, Clone::clone);
        let lease = ObjectRef::lease(&lease.namespace, &lease.name);
        let surroundings = Surroundings { clients, clouds, clock: Clock::system(), metrics, board, gate, lease };
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

#[allow(clippy::panic, reason = "it is what the variable asks for")]
async fn fail(message: String) -> Result<(), Infallible> {
    panic!("{message}")
}

/// What is told of the process while it runs.
fn pages(settings: &Settings, board: &StatusBoard, metrics: &prometheus::Registry, logs: Handle) -> Pages {
    let (configured, flags) = (settings.flags.clone(), settings.flags.clone());
    let migration = settings.election.as_ref().and_then(|election| election.migration.clone());
    let (seen, clock) = (board.clone(), Clock::system());
    let started = process::start_time().and_then(|start| jiff::Timestamp::from_second(start as i64).ok());
    let about = statusz::About { started: started.unwrap_or_else(|| clock.now()) };
    Pages {
        board: board.clone(),
        metrics: metrics.clone(),
        configz: Arc::new(move || configuration::configz(&configured, migration.as_ref())),
        flagz: Arc::new(move || (effective::flagz(&flags), effective::flagz_json(&flags))),
        statusz: Arc::new(move || statusz::page(&seen, about, clock.now())),
        set_verbosity: Arc::new(move |verbosity| logs.set_verbosity(verbosity)),
    }
}

/// Starts each cloud, a standby's too, so that the one that leads next need not wait for them.
async fn start(clouds: Clouds, client: kube::Client, shutdown: Shutdown) -> Result<(), Infallible> {
    shutdown.or(join_all(clouds.iter().map(|cloud| bowline_controllers::start(cloud, &client)))).await;
    shutdown.requested().await;
    Ok(())
}

/// Why the controllers ended although no shutdown was requested, or did not begin.
#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error("the API server is not well: {0}")]
    ApiServer(#[from] NotReady),
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
    if let Some(well) = shutdown.or(bowline_kube::wait_until_ready(&client)).await {
        well?;
        manager::run(surroundings, options, shutdown).await?;
    }
    Ok(())
}

fn names(clouds: &Clouds) -> Vec<&str> {
    clouds.iter().map(|cloud| &**cloud.name()).collect()
}
