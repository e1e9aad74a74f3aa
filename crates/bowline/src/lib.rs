//! Bowline's command line: parse, compose, run.
//!
//! ```text
//! argv ──► cli (clap: flags, help, exit code 2) ──► serve (start, write kubeconfig, wait for a signal, stop)
//!                                                     └─ playground (the same, and what to try)
//! ```
//!
//! This crate holds no logic of Kubernetes or of a cloud; it turns flags into the options of the crates below it and
//! their errors into exit codes.

mod cli;
mod flags;
mod kubeconfig;
mod playground;
mod serve;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};

/// The exit code for input that cannot work: a flag, a file, a combination. The same one clap uses.
const BAD_INPUT: u8 = 2;

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
    cli::Cli::command()
}

/// Reads the arguments, does what they say, and reports how that went.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    start_logging();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // No macro: a closed standard error must not turn into a panic.
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("error: {error:#}\n"));
            if error.is::<BadInput>() { ExitCode::from(BAD_INPUT) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: cli::Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the operating system refused the threads to run on")?;
    match command {
        cli::Command::Apiserver(args) => runtime.block_on(serve::run(args)),
        cli::Command::Playground(args) => runtime.block_on(playground::run(args)),
    }
}

/// Logs go to standard error, so that standard output stays readable by scripts.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env(cli::LOG_VARIABLE)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
