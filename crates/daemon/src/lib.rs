//! The daemon: resolves flags into settings, clouds, a client and controllers, and runs them until a signal.
//!
//! ```text
//!  Prepared    reads all flags and files, and reports all errors at once; sends no request
//!     ▼
//!  Servers     binds the ports and serves from here on: a standby answers its probes, too
//!     ▼
//!  Election    acquires, renews and releases the Lease; exits the process if it is lost
//!     ▼
//!  control     waits for the API server, then runs the controllers
//! ```

mod election;
mod endpoints;
mod metrics;
mod servers;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_cloud::{Clouds, Registry};
use bowline_config::ConfigErrors;
use bowline_console::{Publisher, Sources};
use bowline_controllers::Gate;
use bowline_controllers::console::Process;
use bowline_controllers::manager::{self, Dependencies, ManagerError, ManagerOptions};
use bowline_kube::{Access, Clients, NotReady, ObjectRef, RestMetrics};
use bowline_runtime::{Clock, Kind, Reloader, Shutdown, StatusBoard, Supervisor};
use bowline_serving::webhook::Webhook;
use bowline_settings::cli::ManagerArgs;
use bowline_settings::reach::{self, Reached};
use bowline_settings::{Credentials, Settings};
use bowline_settings::{configuration, effective, webhooks};
use bowline_telemetry::logging::{self, Handle};
use bowline_telemetry::{process, statusz};
use futures::future::join_all;

use election::{Election, ElectionDependencies};
use servers::{Pages, ServerOptions, Servers};

pub use metrics::page as metric_reference;

/// A resource of the configuration is not available: a port is in use, a certificate cannot be read (SRV-1). Nothing was started.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct CannotStart(anyhow::Error);

/// Additional time for the shutdown of the process beyond that of the controllers, mainly to release leases.
const MARGIN: Duration = Duration::from_secs(6);

/// Time for ending the sessions in the clouds, after everything else has stopped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Environment variable that makes a task panic with its value, for the tests of the release build. No shipped program reads it.
#[cfg(feature = "test-panic")]
const TEST_PANIC: &str = "BOWLINE_TEST_PANIC";

/// Runs the manager until a signal stops it.
pub async fn run(args: &ManagerArgs, registry: &Arc<Registry>, logs: Handle) -> anyhow::Result<()> {
    let prepared = Prepared::new(args, registry.clone()).await?;
    for warning in &prepared.settings.warnings {
        tracing::warn!(target: logging::AS_WRITTEN, "{warning}");
    }
    // Installed before anything is started: from here on, a signal requests a clean shutdown.
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let options = ServerOptions::from(&prepared.settings);
    let webhooks = prepared.webhooks();
    let Some(servers) = shutdown.or(Servers::bind(&options, &webhooks)).await else { return Ok(()) };
    prepared.run(servers.map_err(CannotStart)?, logs, shutdown).await
}

/// Everything that the manager needs. Nothing has been called yet.
struct Prepared {
    settings: Settings,
    /// Providers with their layers.
    clouds: Clouds,
    client: kube::Client,
    access: Access,
    credentials: Credentials,
    /// Providers in this program.
    registry: Arc<Registry>,
    metrics: prometheus::Registry,
}

impl Prepared {
    /// Resolves and validates the configuration, and starts nothing.
    async fn new(args: &ManagerArgs, registry: Arc<Registry>) -> anyhow::Result<Prepared> {
        let mut errors = ConfigErrors::new();
        let mut settings = Settings::resolve(args, &mut errors);
        let metrics = prometheus::Registry::new();
        settings.reach.client.metrics = Some(RestMetrics::register(&metrics)?);
        let check = |providers: &[_], errors: &mut ConfigErrors| {
            errors.extend(settings.serving.webhooks.errors(providers));
            reach::check(providers, &settings.reach, &settings.manager, &args.controllers.network, errors);
        };
        let reached = Reached::new(&settings.reach, &registry, &metrics, errors, check).await?;
        let Reached { providers, access, credentials, client } = reached;
        reach::narrow(&mut settings.manager, &providers);
        let clouds = Clouds::with_layers(providers, &settings.reach.layers, &metrics);
        Ok(Prepared { settings, clouds, client, access, credentials, registry, metrics })
    }

    /// Selected webhooks of the clouds.
    fn webhooks(&self) -> Vec<Webhook> {
        let mut webhooks = webhooks::of(&self.clouds);
        webhooks.retain(|webhook| self.settings.serving.webhooks.takes(&webhook.name));
        webhooks
    }

    /// Runs until shutdown is requested.
    async fn run(self, servers: Servers, logs: Handle, shutdown: Shutdown) -> anyhow::Result<()> {
        let Prepared { settings, clouds, client, access, credentials, registry, metrics } = self;
        let (board, fence) = (StatusBoard::new(), settings.reach.calls.fence.clone());
        metrics::register(&metrics, fence.clone(), &registry)?;
        let sources = Sources::new();
        let pages = pages(&settings, &board, &metrics, &sources, logs);
        sources.add(process(&settings, &board, &clouds));
        clouds.iter().for_each(|cloud| board.put(Kind::Cloud, &**cloud.name(), cloud.component()));
        let shutdown_timeout = settings.manager.shutdown_timeout + MARGIN;
        let closing = clouds.clone();
        let mut tasks = Supervisor::new(shutdown.clone());
        let credentials = credentials.with(servers.reviewers());
        tasks.spawn("serving", servers.serve(pages, shutdown.clone()));
        tasks.spawn("endpoints of clouds", endpoints::serve(clouds.clone(), metrics.clone(), shutdown.clone()));
        tracing::info!(version = env!("CARGO_PKG_VERSION"), clouds = ?names(&clouds), "starting");
        tasks.spawn("start of clouds", start(clouds.clone(), client.clone(), shutdown.clone()));
        #[cfg(feature = "test-panic")]
        if let Ok(message) = std::env::var(TEST_PANIC) {
            tasks.spawn("panic", fail(message));
        }
        let reloader = Reloader::register(&metrics)?;
        tasks.spawn("credentials", credentials.watch(reloader, board.clone(), shutdown.clone()));
        let election_dependencies = ElectionDependencies {
            // Requests of the controllers do not delay a renewal (CL-3).
            client: access.without_rate_limit("leader-election"),
            clock: Clock::system(),
            metrics: metrics.clone(),
            board: board.clone(),
            fence: fence.clone(),
            clouds: clouds.clone(),
        };
        let election =
            settings.election.as_ref().map(|election| Election::new(election, election_dependencies)).transpose()?;
        let gate = election.as_ref().map_or_else(Gate::none, Election::gate);
        let clients = Clients::new(access, settings.own_credentials).fenced(fence);
        let lease = settings.election.as_ref().map(|election| &election.lease);
        let lease = lease.map_or_else(Default::default, Clone::clone);
        let lease = ObjectRef::lease(&lease.namespace, &lease.name);
        let clock = Clock::system();
        let dependencies = Dependencies { clients, clouds, clock, metrics, board, gate, lease, sources };
        let manager = control(client, dependencies, settings.manager, shutdown.clone());
        let manager = async move {
            match election {
                None => manager.await,
                Some(election) => election.lead(&shutdown, manager).await,
            }
        };
        tasks.spawn("manager", manager);
        let outcome = tasks.run(shutdown_timeout).await;
        closing.close(CLOSE_TIMEOUT).await;
        outcome?;
        tracing::info!("stopped");
        Ok(())
    }
}

#[cfg(feature = "test-panic")]
#[allow(clippy::panic, reason = "the variable requests it")]
async fn fail(message: String) -> Result<(), Infallible> {
    panic!("{message}")
}

/// Builds the pages of the HTTP endpoints.
fn pages(
    settings: &Settings,
    board: &StatusBoard,
    metrics: &prometheus::Registry,
    sources: &Sources,
    logs: Handle,
) -> Pages {
    let (configured, flags) = (settings.flags.clone(), settings.flags.clone());
    let migration = settings.election.as_ref().and_then(|election| election.migration.clone());
    let (seen, clock) = (board.clone(), Clock::system());
    let about = statusz::About { started: start_time().unwrap_or_else(|| clock.now()) };
    Pages {
        board: board.clone(),
        metrics: metrics.clone(),
        configz: Arc::new(move || configuration::configz(&configured, migration.as_ref())),
        flagz: Arc::new(move || (effective::flagz(&flags), effective::flagz_json(&flags))),
        statusz: Arc::new(move || statusz::page(&seen, about, clock.now())),
        console: Publisher::new(sources.clone(), Clock::system()),
        set_verbosity: Arc::new(move |verbosity| logs.set_verbosity(verbosity)),
    }
}

/// Source of the console that does not need the controllers, so that a standby has it, too.
fn process(settings: &Settings, board: &StatusBoard, clouds: &Clouds) -> Process {
    let process = Process::new(board.clone(), clouds.clone(), Clock::system()).dry_run(settings.manager.dry_run);
    let process = process.cluster(Some(settings.reach.cluster.to_string()));
    start_time().into_iter().fold(process, Process::started)
}

/// Start of the process.
fn start_time() -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(process::start_time()? as i64).ok()
}

/// Starts each cloud, also on a standby, so that the next leader need not wait for them.
async fn start(clouds: Clouds, client: kube::Client, shutdown: Shutdown) -> Result<(), Infallible> {
    shutdown.or(join_all(clouds.iter().map(|cloud| bowline_controllers::start(cloud, &client)))).await;
    shutdown.requested().await;
    Ok(())
}

/// Failure of the controllers, at start or while they run.
#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error("the API server is not ready: {0}")]
    ApiServer(#[from] NotReady),
    #[error(transparent)]
    Manager(#[from] ManagerError),
}

/// Runs the controllers as soon as the API server is ready.
async fn control(
    client: kube::Client,
    dependencies: Dependencies,
    options: ManagerOptions,
    shutdown: Shutdown,
) -> Result<(), ControlError> {
    if let Some(ready) = shutdown.or(bowline_kube::wait_until_ready(&client)).await {
        ready?;
        manager::run(dependencies, options, shutdown).await?;
    }
    Ok(())
}

fn names(clouds: &Clouds) -> Vec<&str> {
    clouds.iter().map(|cloud| &**cloud.name()).collect()
}
