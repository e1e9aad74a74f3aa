//! Bowline's command line and its commands.
//!
//! ```text
//! argv ──► invocation ──► a command: cli (clap: flags, help, exit code 2)
//!              │            ├─ apiserver, playground, cloud    start, wait for a signal, stop
//!              │            ├─ admission-server, lb-agent      the same, with the manager's logging
//!              │            ├─ plan, explain, orphans, check   read a cluster and its clouds once
//!              │            ├─ console, top                    follow the manager that runs in a cluster
//!              │            ├─ completion                      prints a script
//!              │            └─ manifests                       read flags and local files only
//!              └─ flags only, or another program name: the manager, which the daemon runs
//! ```

mod admission_server;
mod check;
mod cli;
#[cfg(feature = "playground")]
mod cloud;
mod completion;
#[cfg(feature = "console")]
mod console;
pub mod exit_code;
mod explain;
mod invocation;
#[cfg(feature = "playground")]
mod kubeconfig;
#[cfg(feature = "lb-agent")]
mod lb_agent;
mod manifests;
mod orphans;
mod output;
#[cfg(feature = "playground")]
mod owner_token;
mod permissions;
mod plan;
#[cfg(feature = "playground")]
mod playground;
#[cfg(feature = "playground")]
mod private_file;
mod progress;
#[cfg(feature = "playground")]
mod serve;
#[cfg(any(feature = "console", feature = "playground"))]
mod terminal;
#[cfg(feature = "console")]
mod top;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Registry;
use bowline_telemetry::logging;
use tokio::runtime::Runtime;

use cli::Command;

pub use cli::definition;
pub use invocation::{Invocation, Manager};
pub use progress::stderr;

/// Time for ending the sessions in the clouds at the end of a command.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A command with its flags.
pub struct Task(pub(crate) Command);

/// Logging of a command.
pub enum TaskLogging {
    /// Like the manager.
    Manager(logging::Options),
    /// For people, on [`stderr`].
    Plain,
    /// The command starts its own.
    Own,
}

impl Task {
    /// Returns the logging that the command needs.
    pub fn logging(&self) -> TaskLogging {
        match &self.0 {
            Command::AdmissionServer(args) => TaskLogging::Manager(bowline_settings::admission_server_logging(args)),
            #[cfg(feature = "playground")]
            Command::Playground(_) => TaskLogging::Own,
            // Log lines would be in the middle of the screen.
            #[cfg(feature = "console")]
            Command::Top(_) => TaskLogging::Own,
            #[cfg(feature = "lb-agent")]
            Command::LbAgent(args) => args.logging().map_or(TaskLogging::Plain, TaskLogging::Manager),
            _ => TaskLogging::Plain,
        }
    }

    /// Runs the command to completion.
    pub fn run(self, registry: &Arc<Registry>, runtime: &Runtime) -> anyhow::Result<ExitCode> {
        let success = |()| ExitCode::SUCCESS;
        match self.0 {
            Command::Plan(args) => runtime.block_on(plan::run(&args, registry)),
            Command::Explain(args) => runtime.block_on(explain::run(&args, registry)),
            Command::Check(args) => runtime.block_on(check::run(&args, registry)),
            Command::Manifests(args) => manifests::run(&args, registry).map(success),
            Command::AdmissionServer(args) => runtime.block_on(admission_server::run(&args, registry)).map(success),
            Command::Completion(args) => completion::run(&args, registry).map(success),
            Command::Orphans(args) => runtime.block_on(orphans::run(&args, registry)),
            #[cfg(feature = "playground")]
            Command::Apiserver(args) => runtime.block_on(serve::run(args)).map(success),
            #[cfg(feature = "playground")]
            Command::Playground(args) => runtime.block_on(playground::run(*args)).map(success),
            #[cfg(feature = "playground")]
            Command::Cloud(args) => runtime.block_on(cloud::run(&args)).map(success),
            #[cfg(feature = "lb-agent")]
            Command::LbAgent(args) => runtime.block_on(lb_agent::run(*args)),
            #[cfg(feature = "console")]
            Command::Console(args) => runtime.block_on(console::run(&args)).map(success),
            #[cfg(feature = "console")]
            Command::Top(args) => runtime.block_on(top::run(&args)).map(success),
            #[cfg(not(all(feature = "playground", feature = "lb-agent", feature = "console")))]
            Command::Absent(command) => Err(command.error().into()),
        }
    }
}

/// Files of the repository that are generated from the flags, the permissions and the providers, by their paths in it: manifests, a
/// chart, and the reference pages of permissions, providers and agents.
pub fn generated_files(registry: &Registry) -> Vec<(String, String)> {
    let mut files = manifests::generated(registry);
    files.push(("docs/reference/permissions.md".to_owned(), permissions::reference()));
    files.extend(bowline_settings::providers::references(registry));
    #[cfg(feature = "lb-agent")]
    files.extend(lb_agent::references());
    files
}
