//! `bowline lb-agent`: runs an agent, shows the status of its group, and creates certificates.

mod certificates;
mod status;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use bowline_agent::{Agent, Config, OpenError};
use bowline_config::ConfigFile;
use bowline_runtime::Shutdown;
use bowline_settings::BadInput;

use crate::cli::{LbAgentArgs, LbAgentCommand};
use crate::output;

pub(crate) async fn run(args: LbAgentArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(LbAgentCommand::Status(args)) => status::run(&args).await,
        Some(LbAgentCommand::Certificates(args)) => certificates::run(args).map(|()| ExitCode::SUCCESS),
        None if args.check_config => check(&args.config).map(|()| ExitCode::SUCCESS),
        None => serve(&args.config).await.map(|()| ExitCode::SUCCESS),
    }
}

/// Runs the agent until a signal.
async fn serve(path: &Path) -> anyhow::Result<()> {
    let config = read(path)?;
    let name = config.name.clone();
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let agent = Agent::open(config).await.map_err(|error| to_error(path, error))?;
    let (api, metrics) =
        (agent.address().map(tracing::field::display), agent.metrics_address().map(tracing::field::display));
    tracing::info!(agent = name, api, metrics, "started");
    agent.run(shutdown).await.context("the agent failed")?;
    tracing::info!("stopped");
    Ok(())
}

/// Checks what can be checked while another process is the agent.
fn check(path: &Path) -> anyhow::Result<()> {
    let config = read(path)?;
    config.check_files().map_err(|error| to_error(path, error))?;
    output::print(format_args!("{}\n", summary(path, &config)))
}

fn summary(path: &Path, config: &Config) -> String {
    let mut text = format!("{}: valid; agent {:?}", path.display(), config.name);
    if !config.peers.is_empty() {
        let peers: Vec<_> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
        text += &format!(", with {}", peers.join(", "));
    }
    text
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let file = ConfigFile::read(path).map_err(|error| BadInput(error.to_string()))?;
    Ok(Config::read(&file).map_err(|errors| BadInput(errors.to_string()))?)
}

/// An invalid file is an error of the user; everything else may pass with the next start.
fn to_error(path: &Path, error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Tls(error) => BadInput(format!("{}: {error}", path.display())).into(),
        error => anyhow::Error::new(error).context("cannot start the agent"),
    }
}

/// Reference pages of agents.
pub(crate) fn references() -> Vec<(String, String)> {
    vec![
        ("docs/reference/agent-config.md".to_owned(), Config::reference()),
        ("docs/reference/agent-metrics.md".to_owned(), bowline_agent::metric_reference()),
    ]
}
