//! The flags of the manager, declared once. The doc comments here are the help texts and, by way of `xtask generate`, the page
//! `docs/reference/cli.md`; write them for the person at the terminal.

mod election;
mod idle;
mod logging;
mod manager;
mod network;
mod serving;
mod webhook;

pub use election::ElectionArgs;
pub use logging::LoggingArgs;
pub use manager::{ControllerArgs, GenericArgs, ManagerArgs};
pub use network::{NetworkArgs, RouteArgs};

pub(crate) use election::LEASES;
pub(crate) use manager::{CloudCallArgs, NodeArgs, NodeLifecycleArgs, ReachArgs, ServiceArgs};
pub(crate) use network::NodeIpamArgs;
pub(crate) use serving::{AuthenticationArgs, AuthorizationArgs, RequestHeaderArgs, SecureServingArgs};
pub(crate) use webhook::WebhookArgs;

/// For tests: a command line that has nothing but the manager's flags.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
#[command(disable_version_flag = true, args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}
