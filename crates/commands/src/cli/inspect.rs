//! Flags of the commands that read a cluster and its clouds once: `plan`, `explain` and `orphans`.
//!
//! All accept every flag of the manager, so that the arguments of a manifest can be pasted.

use bowline_settings::cli::ManagerArgs;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Object to explain.
    #[arg(value_name = "node/NAME|service/NAMESPACE/NAME")]
    pub(crate) object: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OrphansArgs {
    /// Delete the orphans after confirmation on the terminal. Requires --cluster-name: clusters without a name share the default
    /// one, so their load balancers and routes would count as orphans of this cluster.
    #[arg(long, requires = "cluster_name")]
    pub(crate) delete: bool,

    /// Delete without confirmation.
    #[arg(long, requires = "delete")]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Output format.
    #[arg(
        short = 'o',
        long,
        value_name = "text|json",
        value_enum,
        default_value = "text",
        hide_possible_values = true
    )]
    pub(crate) output: Output,
}

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}
