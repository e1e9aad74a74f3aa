//! The flags of `bowline manifests`.

use clap::Args;

/// What to render.
#[derive(Debug, Args)]
pub(crate) struct ManifestsArgs {
    /// The clouds that the manager serves, as for the manager itself.
    #[arg(long, value_name = "NAMES")]
    pub(crate) cloud_provider: Vec<String>,
}
