//! The flags of the commands that look at a cluster and its clouds once: `plan` and `orphans`.

use clap::{Args, ValueEnum};

use super::manager::{ControllerArgs, ReachArgs};

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    #[command(flatten)]
    pub(crate) controllers: ControllerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OrphansArgs {
    /// Remove them, after a question on the terminal. The cluster must be named then: unless given, its name is that of
    /// every cluster without one, whose balancers and routes would be taken for orphans of this one.
    #[arg(long, requires = "cluster_name")]
    pub(crate) delete: bool,

    /// Remove them without a question.
    #[arg(long, requires = "delete")]
    pub(crate) yes: bool,

    /// Where pods may live, as the manager is told: routes of these ranges count, too, in a cloud whose routes carry no
    /// mark.
    #[arg(long, value_name = "CIDRS")]
    pub(crate) cluster_cidr: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
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
