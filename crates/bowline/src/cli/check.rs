//! The flags of `bowline check`.

use clap::Args;

use super::ManagerArgs;
use super::look::OutputArgs;

/// What to look at: the same flags as the manager's, so that those of a manifest can be tried as they are.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}
