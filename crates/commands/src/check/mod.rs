//! `bowline check`: verifies that the manager can run with these flags, before it does.
//!
//! ```text
//!  flags ──► settings ──► observe (API server, permissions, Nodes, Services, leases, clouds) ──► decide ──► text or JSON ──► exit code
//!               └─ invalid ones are findings, too
//! ```
//!
//! It changes nothing: it only reads, and creates access reviews.

mod decide;
mod finding;
mod observe;
mod observed;
mod print;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;

use bowline_cloud::Registry;

use crate::cli::{CheckArgs, Output};
use crate::plan::plain;
use crate::{exit_code, output};
use finding::Severity;

/// Runs the check and prints its findings.
pub(crate) async fn run(args: &CheckArgs, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    let findings = decide::decide(&observe::observe(&args.manager, registry).await);
    match args.output.output {
        Output::Text => output::print(format_args!("{}", plain(&print::text(&findings)))),
        Output::Json => output::print(format_args!("{:#}\n", print::json(&findings))),
    }?;
    let is_fine = print::count(&findings, Severity::Error) == 0;
    Ok(if is_fine { ExitCode::SUCCESS } else { exit_code::found() })
}
