//! `bowline manifests`: what a cluster needs to run the manager.

use crate::cli::ManifestsArgs;

pub(crate) fn run(_args: &ManifestsArgs) -> anyhow::Result<()> {
    anyhow::bail!("not there yet")
}
