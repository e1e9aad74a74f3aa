//! `bowline plan`: prints what the manager would change now.
//!
//! ```text
//!  flags ──► settings ──► list Nodes and Services ──► forecast (reads the clouds) ──► text or JSON ──► exit code
//! ```

mod print;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{Clouds, Registry};
use bowline_config::ConfigErrors;
use bowline_controllers::forecast::{self, Forecast, Snapshot, Summary};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::secrets;
use bowline_core::lifecycle::Moment;
use bowline_kube::Cluster;
use bowline_runtime::Clock;
use bowline_settings::Settings;
use bowline_settings::cli::ManagerArgs;
use bowline_settings::reach::{self, Reached};

use crate::cli::{Output, PlanArgs};
use crate::{exit_code, output, progress};

pub(crate) use print::{counted, indented, kind_name, notice_label, plain, steps_json, write_plan};

/// Prints the plan.
pub(crate) async fn run(args: &PlanArgs, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    let forecast = forecast(&args.manager, registry).await?;
    match args.output.output {
        Output::Text => output::print(format_args!("{}", plain(&print::text(&forecast)))),
        Output::Json => output::print(format_args!("{:#}\n", print::json(&forecast))),
    }?;
    Ok(to_exit_code(forecast.summary()))
}

pub(crate) fn to_exit_code(summary: Summary) -> ExitCode {
    match summary {
        Summary { failed: 1.., .. } => ExitCode::FAILURE,
        summary if summary.is_unchanged() => ExitCode::SUCCESS,
        _ => exit_code::found(),
    }
}

async fn forecast(args: &ManagerArgs, registry: &Arc<Registry>) -> anyhow::Result<Forecast> {
    let ObservedCluster { snapshot, clouds, options, now, .. } = ObservedCluster::read(args, registry).await?;
    let (nodes, services) = (counted(snapshot.nodes.len(), "Node"), counted(snapshot.services.len(), "Service"));
    let forecast = forecast::forecast(&snapshot, &clouds, &options, now);
    let forecast = progress::during(format!("planning {nodes} and {services}"), forecast).await;
    progress::close(&clouds).await;
    Ok(forecast?)
}

/// Observed state of a cluster and its clouds.
pub(crate) struct ObservedCluster {
    pub(crate) cluster: Cluster,
    pub(crate) snapshot: Snapshot,
    pub(crate) clouds: Clouds,
    pub(crate) options: ManagerOptions,
    pub(crate) now: Moment,
}

impl ObservedCluster {
    /// Reads the cluster and starts the clouds in dry-run mode.
    pub(crate) async fn read(args: &ManagerArgs, registry: &Arc<Registry>) -> anyhow::Result<ObservedCluster> {
        let mut errors = ConfigErrors::new();
        let Settings { mut reach, manager: mut options, .. } = Settings::resolve(args, &mut errors);
        reach.calls.dry_run = true;
        let check = |providers: &[_], errors: &mut _| {
            reach::check(providers, &reach, &options, &args.controllers.network, errors);
        };
        let metrics = prometheus::Registry::new();
        let reached = Reached::new(&reach, registry, &metrics, errors, check);
        let Reached { providers, client, .. } = progress::during("connecting to the API server", reached).await?;
        reach::narrow(&mut options, &providers);
        // A plan applies no steps; dry-run layers and the write gate guarantee it.
        let layers = LayerOptions { dry_run: true, ..reach.layers };
        let clouds = Clouds::with_layers(providers, &layers, &prometheus::Registry::new());
        progress::during("reading the Secrets of the clouds", secrets::read(&clouds, &client)).await;
        let cluster = Cluster::new(client);
        let snapshot = snapshot(&cluster, &options).await?;
        progress::start(&clouds).await;
        let clock = Clock::system();
        let now = Moment { instant: clock.instant(), wall: clock.now() };
        Ok(ObservedCluster { cluster, snapshot, clouds, options, now })
    }
}

async fn snapshot(cluster: &Cluster, options: &ManagerOptions) -> anyhow::Result<Snapshot> {
    let nodes = progress::during("listing Nodes", cluster.list_nodes()).await.context("cannot list Nodes")?;
    let services = match options.watches_services() {
        true => progress::during("listing Services", cluster.list_services()).await.context("cannot list Services")?,
        false => Vec::new(),
    };
    let cluster_uid = match options.route {
        Some(_) => reach::cluster_uid(cluster).await?,
        None => None,
    };
    Ok(Snapshot { nodes, services, cluster_uid })
}
