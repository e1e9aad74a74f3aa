//! Flags of the manager. The doc comment of a field is its `--help` text and, through `cargo xtask generate`, its entry in
//! `docs/reference/cli.md`; write it for the user.

mod admission_server;
mod election;
mod idle;
mod logging;
mod manager;
mod network;
mod serving;
mod webhook;

pub use admission_server::AdmissionServerArgs;
pub use election::ElectionArgs;
pub use logging::LoggingArgs;
pub use manager::{ControllerArgs, GenericArgs, ManagerArgs};
pub use network::{NetworkArgs, RouteArgs};

pub(crate) use election::LEASES;
pub(crate) use manager::{CloudArgs, CloudCallArgs, NodeArgs, NodeLifecycleArgs, ReachArgs, ServiceArgs};
pub(crate) use network::NodeIpamArgs;
pub(crate) use serving::{AuthenticationArgs, AuthorizationArgs, RequestHeaderArgs, SecureServingArgs};
pub(crate) use webhook::WebhookArgs;

/// Command line with only the manager's flags, for tests.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
#[command(disable_version_flag = true, args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}
