//! The flags of the commands that read a cluster and its clouds once: `plan`, `explain` and `orphans`.
//!
//! All take every flag of the manager, so that the arguments of a Deployment can be pasted.

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
    /// The object.
    #[arg(value_name = "node/NAME|service/NAMESPACE/NAME")]
    pub(crate) object: String,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OrphansArgs {
    /// Remove them, after a question on the terminal. The cluster must be named then: unless given, its name is that of
    /// every cluster without one, whose load balancers and routes would be taken for orphans of this one.
    #[arg(long, requires = "cluster_name")]
    pub(crate) delete: bool,

    /// Remove them without a question.
    #[arg(long, requires = "delete")]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// How to print: text for people, json for programs.
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

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}
