//! Resolves the command line of the manager into settings, cloud providers and a Kubernetes client. Nothing here calls the API
//! server or a cloud.
//!
//! ```text
//! argv (Go's spelling) ──► configuration (--config) ──► cli (clap) ──► settings ──► reach: providers, client, credentials
//!         └───────────────────────────────── ConfigErrors ─────────────────┴──────────┘ all reported at once
//! ```
//!
//! The daemon and the commands that take its flags (`plan`, `explain`, `orphans`, `check`, `manifests`) build on this crate. It
//! names no provider: the registry of those in the program is an argument.

pub mod argv;
mod choice;
pub mod cli;
pub mod configuration;
mod controllers;
mod credentials;
pub mod effective;
mod feature_gates;
pub mod flags;
#[cfg(test)]
mod idle;
mod migration;
pub mod providers;
pub mod reach;
mod settings;
pub mod webhooks;

use bowline_config::ConfigErrors;

pub use credentials::Credentials;
pub use migration::Migration;
pub use settings::{
    AdmissionServer, CidrFlag, Election, Reach, Serving, Settings, Webhooks, admission_server_logging, early_logging,
    parse_cluster_cidr, valid,
};

/// Invalid input of the user. The message names the flag or file, the error and the fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(pub String);

impl From<ConfigErrors> for BadInput {
    fn from(errors: ConfigErrors) -> BadInput {
        match errors.iter().count() {
            1 => BadInput(errors.to_string()),
            count => BadInput(format!("{count} configuration errors; nothing was started:\n{errors}")),
        }
    }
}
