//! The flags of `bowline check`.

use bowline_settings::cli::ManagerArgs;
use clap::Args;

use super::look::OutputArgs;

/// What to look at: the same flags as the manager's, so that those of a manifest can be tried as they are.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}
