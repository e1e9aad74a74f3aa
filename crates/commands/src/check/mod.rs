//! `bowline check`: whether the manager can work here, before it does.
//!
//! ```text
//!  flags ──► settings ──► observe (API server, rights, Nodes, Services, leases, clouds) ──► decide ──► text or JSON ──► exit code
//!               └─ what is wrong with them is a finding like any other
//! ```
//!
//! It changes nothing: it reads, and asks the API server what it would allow.

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
use crate::output;
use crate::plan::plain;
use finding::Severity;

/// The exit code for "something would go wrong".
const TROUBLE: u8 = 2;

/// Looks, and tells what is wrong.
pub(crate) async fn run(args: &CheckArgs, registry: &Arc<Registry>) -> anyhow::Result<ExitCode> {
    let findings = decide::decide(&observe::observe(&args.manager, registry).await);
    match args.output.output {
        Output::Text => output::print(format_args!("{}", plain(&print::text(&findings)))),
        Output::Json => output::print(format_args!("{:#}\n", print::json(&findings))),
    }?;
    let is_fine = print::count(&findings, Severity::Error) == 0;
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::from(TROUBLE) })
}
