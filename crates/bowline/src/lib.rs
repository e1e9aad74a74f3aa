//! The program: the providers in it, what runs, and the exit code.
//!
//! ```text
//! argv ──► commands: Invocation ──┬─ a command ──► commands: run
//!                                 └─ the manager ──► daemon: run, with logs and traces of telemetry
//! ```
//!
//! This crate holds no logic of Kubernetes or of a cloud: it has the features, the registry of providers, and turns errors into
//! exit codes.

mod providers;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_cloud::Registry;
use bowline_commands::{Invocation, Manager, Task};
use bowline_core::with_causes;
use bowline_daemon::CannotStart;
use bowline_settings::cli::ManagerArgs;
use bowline_settings::{BadInput, effective};
use bowline_telemetry::logging;
use bowline_telemetry::traces::{Exporter, Recorder, Traces};

pub use providers::registry;

/// The exit code for input that cannot work: a flag, a file, a combination. The same one clap uses.
const BAD_INPUT: u8 = 2;

/// The same for the manager.
// upstream: 1, which is also that of a lost lease (FLAG-4).
const BAD_MANAGER_INPUT: u8 = 1;

/// The exit code of a manager that ran and could not go on.
// upstream: -1, of which a parent sees the last eight bits.
const MANAGER_FAILED: u8 = 255;

/// How long the end of the process may be held up by saying why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The manager waits for others nearly all the time. On a machine with many cores a thread for each would be memory and
/// wake-ups for nothing; a second one is there for when the first has much to decode.
const MANAGER_THREADS: usize = 2;

/// The reference page of the metrics.
pub fn metric_reference() -> String {
    bowline_daemon::metric_reference(&registry())
}

/// The definition of the command line, from which `--help` and the reference page are made.
pub fn cli() -> clap::Command {
    bowline_commands::definition(&registry())
}

/// Files of the repository that are generated from what this program knows, by their paths in it.
pub fn generated_files() -> Vec<(String, String)> {
    bowline_commands::generated_files(&registry())
}

/// Reads the arguments, does what they say, and reports how that went.
pub fn main() -> ExitCode {
    let registry = Arc::new(registry());
    match Invocation::read(std::env::args_os().collect(), &registry) {
        Invocation::Manager(manager) => manage(&manager, &registry),
        Invocation::Command(task) => command_ended(run(task, &registry)),
    }
}

/// Runs the manager to its end.
fn manage(invocation: &Manager, registry: &Arc<Registry>) -> ExitCode {
    let (traces, lost) = Traces::from_environment();
    let (recorder, exporter) = traces.map(|traces| (traces.recorder, traces.exporter)).unzip();
    let logging = start_manager_logging(&invocation.args, recorder);
    if matches!(invocation.args.logging.v, Ok(1..)) {
        let lines = effective::log_lines(&invocation.args.effective);
        lines.iter().for_each(|line| tracing::info!(target: logging::AS_WRITTEN, "{line}"));
    }
    let remarks = invocation.remarks.iter().chain(&lost);
    remarks.for_each(|remark| tracing::warn!(target: logging::AS_WRITTEN, "{remark}"));
    let ended = logging.and_then(|handle| run_manager(invocation, registry, exporter, handle));
    let Err(error) = ended else { return ExitCode::SUCCESS };
    if !invocation.args.errors.is_empty() {
        complain(format_args!("Usage: {name} [flags]; {name} --help lists them\n", name = invocation.name));
    }
    complain(format_args!("Error: {}\n", with_causes(error.as_ref())));
    let nothing_was_started = error.is::<BadInput>() || error.is::<CannotStart>();
    ExitCode::from(if nothing_was_started { BAD_MANAGER_INPUT } else { MANAGER_FAILED })
}

/// Runs it, and sends its traces if somebody wants them.
fn run_manager(
    invocation: &Manager,
    registry: &Arc<Registry>,
    exporter: Option<Exporter>,
    logs: logging::Handle,
) -> anyhow::Result<()> {
    let runtime = runtime(Some(MANAGER_THREADS))?;
    let sending = exporter.map(|exporter| exporter.start(&runtime));
    let ended = runtime.block_on(bowline_daemon::run(&invocation.args, registry, logs));
    if let Some(sending) = sending {
        runtime.block_on(sending.finish());
    }
    // All tasks have ended, or are not waited for any longer; nor is a name that is being looked up.
    runtime.shutdown_background();
    ended
}

/// Runs a command to its end.
fn run(task: Task, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    start_command_logging()?;
    task.run(registry, &runtime(None)?)
}

fn command_ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        complain(format_args!("error: {}\n", with_causes(error.as_ref())));
        if error.is::<BadInput>() { ExitCode::from(BAD_INPUT) } else { ExitCode::FAILURE }
    })
}

/// No macro: a closed standard error must not turn into a panic. And one that nobody reads must not keep the process: it is
/// about to end, and somebody waits to start it anew.
fn complain(what: std::fmt::Arguments<'_>) {
    let (text, (done, written)) = (what.to_string(), std::sync::mpsc::channel());
    let writer = std::thread::Builder::new().spawn(move || {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        let _ = done.send(());
    });
    if writer.is_ok() {
        let _ = written.recv_timeout(LAST_WORDS);
    }
}

/// With as many threads, or as many as the machine has cores.
fn runtime(threads: Option<usize>) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    threads.map(|threads| runtime.worker_threads(threads));
    runtime.enable_all().build().context("the operating system refused the threads to run on")
}

/// The lines of the commands are for people.
fn start_command_logging() -> anyhow::Result<()> {
    logging::start_plain().map_err(|error| BadInput(error.to_string()).into())
}

/// The manager's lines are for machines as well. A value that cannot be read is told with all the others, and until then the default holds.
fn start_manager_logging(args: &ManagerArgs, recorder: Option<Recorder>) -> anyhow::Result<logging::Handle> {
    logging::start(&bowline_settings::early_logging(args), recorder).map_err(|error| BadInput(error.to_string()).into())
}
