//! The flags of the commands that look at a cluster and its clouds once: `plan` and `orphans`.

use bowline_controllers::route;
use clap::{Args, ValueEnum};

use super::manager::{ControllerArgs, ReachArgs};
use crate::flags::{self, Given, given};

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

    /// As the manager is told: unless it is 1, the routes of a cluster that has no node at all stay, if there is more than
    /// one of them. Such a cluster is often the wrong one.
    #[arg(
        long,
        value_name = "SHARE",
        default_value = route::MAX_SHARE.to_string(),
        value_parser = given(flags::share),
    )]
    pub(crate) route_deletion_max_share: Given<f64>,

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
