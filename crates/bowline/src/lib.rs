//! Bowline's command line: parse, compose, run.
//!
//! ```text
//! argv ──► cli (clap: flags, help, exit code 2) ──► serve (start, write kubeconfig, wait for a signal, stop)
//!   │                                                 ├─ playground (the same, and what to try)
//!   │                                                 ├─ cloud (the same for a cloud, or one change to a running one)
//!   │                                                 └─ plan, orphans (look once at a cluster and its clouds)
//!   └─ flags only: the manager
//!      argv (Go's spelling) ──► cli ──► settings ──► providers ──► daemon
//!                 └──── Problems ─────────┴─────────────┘ all at once, exit code 2, nothing started
//! ```
//!
//! This crate holds no logic of Kubernetes or of a cloud; it turns flags into the options of the crates below it and
//! their errors into exit codes.

mod admin;
mod argv;
mod check;
mod cli;
#[cfg(feature = "provider-local")]
mod cloud;
mod controllers;
mod credentials;
mod daemon;
mod election;
mod exposition;
mod feature_gates;
mod flags;
#[cfg(test)]
mod idle;
mod kubeconfig;
mod logging;
mod manifests;
mod migration;
mod orphans;
mod plan;
mod playground;
mod providers;
mod reach;
mod rights;
mod serve;
mod settings;

use std::process::ExitCode;

use anyhow::Context as _;
use bowline_config::Problems;
use clap::{CommandFactory as _, FromArgMatches as _};

/// The exit code for input that cannot work: a flag, a file, a combination. The same one clap uses.
const BAD_INPUT: u8 = 2;

/// The manager waits for others nearly all the time. On a machine with many cores a thread for each would be memory and
/// wake-ups for nothing; a second one is there for when the first has much to decode.
const MANAGER_THREADS: usize = 2;

/// Input that parsed but cannot work. Its text says where it came from, what is wrong and what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadInput(String);

/// The programs in the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/apiserver.md")]
struct Guide;

/// The definition of the command line, from which `--help` and the reference page are made.
///
/// ```
/// assert_eq!(bowline::cli().get_name(), "bowline");
/// ```
pub fn cli() -> clap::Command {
    let registry = providers::registry();
    let kinds: Vec<_> = registry.iter().map(|kind| format!("{} ({})", kind.name, kind.summary)).collect();
    cli::Cli::command().after_help(format!("Cloud providers: {}.\n\n{}", kinds.join("; "), cli::LOG_HELP))
}

/// The files of the repository that are made from what this crate knows, by their paths in it: manifests, a chart, and the
/// page of rights.
pub fn generated_files() -> Vec<(String, String)> {
    let mut files = manifests::generated();
    files.push(("docs/reference/rights.md".to_owned(), rights::reference()));
    files
}

/// Reads the arguments, does what they say, and reports how that went.
pub fn main() -> ExitCode {
    let Invocation { cli, flags, remarks, problems } = Invocation::read();
    let logging = start_logging(&cli);
    if matches!(cli.manager.generic.v, Ok(1..)) {
        flags.iter().for_each(|flag| tracing::info!(target: logging::AS_WRITTEN, "{flag}"));
    }
    remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    match logging.map_err(anyhow::Error::from).and_then(|_handle| run(cli, problems)) {
        Ok(code) => code,
        Err(error) => {
            // No macro: a closed standard error must not turn into a panic.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {error:#}\n"));
            if error.is::<BadInput>() { ExitCode::from(BAD_INPUT) } else { ExitCode::FAILURE }
        }
    }
}

/// What the program was told to do, and what was wrong with how.
struct Invocation {
    cli: cli::Cli,
    /// The manager's flags with their values, for the log.
    flags: Vec<String>,
    /// Of the manager's flags only, as the problems are: what was right and has no effect.
    remarks: Vec<String>,
    /// The commands stop at the first, the manager tells all.
    problems: Problems,
}

impl Invocation {
    /// Reads the command line, or ends the program with a message or the help.
    fn read() -> Invocation {
        let arguments: Vec<_> = std::env::args_os().collect();
        let mut command = cli();
        let argv = match argv::is_manager(&arguments) {
            true => argv::tidy(arguments, &mut command),
            false => argv::Argv { arguments, ..argv::Argv::default() },
        };
        let is_plan = argv.arguments.get(1).is_some_and(|command| command == "plan");
        let matches = command.try_get_matches_from_mut(argv.arguments);
        let read = matches.and_then(|matches| Ok((cli::Cli::from_arg_matches(&matches)?, matches)));
        let exit = |error: clap::Error| if is_plan { plan::exit(&error) } else { error.exit() };
        let (cli, matches) = read.unwrap_or_else(exit);
        Invocation { cli, flags: values(&command, &matches), remarks: argv.remarks, problems: argv.problems }
    }
}

/// Every flag that has a value, with it (FLAG-5).
fn values(command: &clap::Command, matches: &clap::ArgMatches) -> Vec<String> {
    let value = |flag: &clap::Arg| {
        let values = matches.try_get_raw(flag.get_id().as_str()).ok().flatten()?;
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        Some(format!("FLAG: --{}={:?}", flag.get_long()?, values.join(",")))
    };
    command.get_arguments().filter_map(value).collect()
}

fn run(cli: cli::Cli, problems: Problems) -> anyhow::Result<ExitCode> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if cli.command.is_none() {
        runtime.worker_threads(MANAGER_THREADS);
    }
    let runtime = runtime.enable_all().build().context("the operating system refused the threads to run on")?;
    let success = |()| ExitCode::SUCCESS;
    match cli.command {
        None => runtime.block_on(daemon::run(&cli.manager, problems)).map(success),
        Some(cli::Command::Apiserver(args)) => runtime.block_on(serve::run(args)).map(success),
        Some(cli::Command::Playground(args)) => runtime.block_on(playground::run(args)).map(success),
        Some(cli::Command::Plan(args)) => runtime.block_on(plan::run(&args)),
        Some(cli::Command::Check(args)) => runtime.block_on(check::run(&args)),
        Some(cli::Command::Manifests(args)) => manifests::run(&args).map(success),
        Some(cli::Command::Orphans(args)) => runtime.block_on(orphans::run(&args)),
        #[cfg(feature = "provider-local")]
        Some(cli::Command::Cloud(args)) => runtime.block_on(cloud::run(&args)).map(success),
    }
}

impl From<Problems> for BadInput {
    fn from(problems: Problems) -> BadInput {
        match problems.iter().count() {
            1 => BadInput(problems.to_string()),
            count => BadInput(format!("{count} problems, and nothing was started:\n{problems}")),
        }
    }
}

/// The manager's lines are for machines as well, and can change while it runs; those of the commands are for people.
fn start_logging(cli: &cli::Cli) -> Result<Option<logging::Handle>, BadInput> {
    let started = match &cli.command {
        None => logging::start(&log_options(cli)).map(Some),
        Some(_) => logging::start_plain().map(|()| None),
    };
    started.map_err(|error| BadInput(error.to_string()))
}

/// A value that cannot be read is told with all the others, and until then the default holds.
fn log_options(cli: &cli::Cli) -> logging::Options {
    let verbosity = cli.manager.generic.v.as_ref().copied().unwrap_or_default();
    logging::Options { verbosity, ..logging::Options::default() }
}
