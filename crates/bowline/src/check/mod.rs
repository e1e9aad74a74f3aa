//! `bowline check`: whether the manager can work here.

use std::process::ExitCode;

use crate::cli::CheckArgs;

pub(crate) async fn run(_args: &CheckArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}
