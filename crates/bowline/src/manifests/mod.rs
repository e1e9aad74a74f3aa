//! `bowline manifests`: what a cluster needs to run the manager.
//!
//! ```text
//!  flags of the manager ──► settings, providers (checked as at its start) ──► Installation
//!                                      │                                           │
//!  rights, declared beside the code ───┴──► roles                     templates with holes ──► YAML
//!                                                                          └─ Helm's expressions ──► chart
//! ```

mod fill;
mod installation;
mod objects;

use crate::BadInput;
use crate::cli::ManifestsArgs;
use crate::providers;
use crate::serve::say;
use installation::Installation;

/// Prints them.
pub(crate) fn run(args: &ManifestsArgs) -> anyhow::Result<()> {
    let installation = Installation::new(args, &providers::registry()).map_err(BadInput::from)?;
    installation.remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    say(format_args!("{}", text(&installation)));
    Ok(())
}

/// The whole stream of documents.
fn text(installation: &Installation) -> String {
    objects::all(installation).join("---\n")
}
