//! Flags of `bowline check`.

use bowline_settings::cli::ManagerArgs;
use clap::Args;

use super::inspect::OutputArgs;

/// The manager's flags, so that the arguments of a manifest can be pasted.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}
