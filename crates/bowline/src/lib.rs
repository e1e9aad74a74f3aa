//! The `bowline` program: registry of providers, dispatch, exit codes.
//!
//! ```text
//! argv ──► commands: Invocation ──┬─ a command ──► commands: run
//!                                 └─ the manager ──► daemon: run, with logs and traces of telemetry
//! ```
//!
//! This crate has no Kubernetes or cloud logic: only features, the registry of providers, and the mapping of errors to exit codes.

mod providers;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::Registry;
use bowline_commands::{Invocation, Manager, Task, TaskLogging};
use bowline_core::with_causes;
use bowline_daemon::CannotStart;
use bowline_settings::cli::ManagerArgs;
use bowline_settings::{BadInput, effective};
use bowline_telemetry::logging;
use bowline_telemetry::traces::{Exporter, Recorder, Traces};

pub use bowline_commands::exit_code;
pub use providers::registry;

/// Exit code of the manager for invalid flags or files.
// upstream: 1, which is also that of a lost lease (FLAG-4).
const BAD_MANAGER_INPUT: u8 = 1;

/// Exit code of the manager for a failure at run time.
// upstream: -1, of which the parent process gets the lowest eight bits.
const MANAGER_FAILED: u8 = 255;

/// Number of threads of the manager, which is I/O-bound. One thread per core would waste memory and wake-ups; the second thread
/// helps while the first one decodes large responses.
const MANAGER_THREADS: usize = 2;

/// Returns the reference page of the metrics.
pub fn metric_reference() -> String {
    bowline_daemon::metric_reference(&registry())
}

/// Command-line definition, the source of `--help` and of the reference page.
pub fn cli() -> clap::Command {
    bowline_commands::definition(&registry())
}

/// Returns the generated files of the repository by path.
pub fn generated_files() -> Vec<(String, String)> {
    bowline_commands::generated_files(&registry())
}

/// Parses the arguments, runs the manager or a command, and returns the exit code.
pub fn main() -> ExitCode {
    let registry = Arc::new(registry());
    match Invocation::read(std::env::args_os().collect(), &registry) {
        Invocation::Manager(manager) => manage(&manager, &registry),
        Invocation::Command(task) => command_exit_code(run(task, &registry)),
    }
}

/// Runs the manager until it ends.
fn manage(invocation: &Manager, registry: &Arc<Registry>) -> ExitCode {
    let (traces, trace_warnings) = Traces::from_environment();
    let (recorder, exporter) = traces.map(|traces| (traces.recorder, traces.exporter)).unzip();
    let logging = start_manager_logging(&invocation.args, recorder);
    if matches!(invocation.args.logging.v, Ok(1..)) {
        let lines = effective::log_lines(&invocation.args.effective);
        lines.iter().for_each(|line| tracing::info!(target: logging::AS_WRITTEN, "{line}"));
    }
    let warnings = invocation.warnings.iter().chain(&trace_warnings);
    warnings.for_each(|warning| tracing::warn!(target: logging::AS_WRITTEN, "{warning}"));
    let ended = logging.and_then(|handle| run_manager(invocation, registry, exporter, handle));
    let Err(error) = ended else { return ExitCode::SUCCESS };
    if !invocation.args.errors.is_empty() {
        logging::print_error(&format!("Usage: {name} [flags]; see {name} --help\n", name = invocation.name));
    }
    logging::print_error(&format!("Error: {}\n", with_causes(error.as_ref())));
    let is_not_started = error.is::<BadInput>() || error.is::<CannotStart>();
    ExitCode::from(if is_not_started { BAD_MANAGER_INPUT } else { MANAGER_FAILED })
}

/// Runs the manager and exports its traces, if tracing is configured.
fn run_manager(
    invocation: &Manager,
    registry: &Arc<Registry>,
    exporter: Option<Exporter>,
    logs: logging::Handle,
) -> anyhow::Result<()> {
    let runtime = runtime(Some(MANAGER_THREADS))?;
    let export = exporter.map(|exporter| exporter.start(&runtime));
    let ended = runtime.block_on(bowline_daemon::run(&invocation.args, registry, logs));
    if let Some(export) = export {
        runtime.block_on(export.finish());
    }
    // All tasks have ended or timed out; do not wait for a pending DNS lookup either.
    runtime.shutdown_background();
    ended
}

/// Runs a command to completion.
fn run(task: Task, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    match task.logging() {
        TaskLogging::Manager(options) => logging::start(&options, None).map(drop),
        TaskLogging::Plain => logging::start_plain(bowline_commands::stderr),
        TaskLogging::Own => Ok(()),
    }
    .map_err(|error| BadInput(error.to_string()))?;
    task.run(registry, &runtime(None)?)
}

fn command_exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        logging::print_error(&format!("error: {}\n", with_causes(error.as_ref())));
        if error.is::<BadInput>() { ExitCode::from(exit_code::BAD_INPUT) } else { ExitCode::FAILURE }
    })
}

/// Builds a runtime with this number of threads; default: one per core.
fn runtime(threads: Option<usize>) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    threads.map(|threads| runtime.worker_threads(threads));
    runtime.enable_all().build().context("cannot start the runtime's threads")
}

/// Starts the manager's structured logging. Invalid logging flags are reported later with all other errors; until then the defaults
/// apply.
fn start_manager_logging(args: &ManagerArgs, recorder: Option<Recorder>) -> anyhow::Result<logging::Handle> {
    logging::start(&bowline_settings::early_logging(args), recorder).map_err(|error| BadInput(error.to_string()).into())
}
