//! The flags of `bowline check`.

use clap::Args;

use super::ReachArgs;

/// What to look at: the same flags as the manager's.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}
