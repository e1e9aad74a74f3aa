//! The command line, declared once. The doc comments here are the help texts and, by way of `xtask generate`, the page
//! `docs/reference/cli.md`; write them for the person at the terminal.

#[cfg(not(feature = "playground"))]
mod absent;
#[cfg(feature = "playground")]
mod apiserver;
mod check;
#[cfg(feature = "playground")]
mod cloud;
mod look;
mod manifests;
#[cfg(feature = "playground")]
mod playground;

use bowline_cloud::Registry;
use bowline_settings::cli::ManagerArgs;
use clap::{CommandFactory as _, Parser, Subcommand};

#[cfg(not(feature = "playground"))]
pub(crate) use absent::AbsentCommand;
#[cfg(feature = "playground")]
pub(crate) use apiserver::ApiserverArgs;
pub(crate) use check::CheckArgs;
#[cfg(feature = "playground")]
pub(crate) use cloud::{CloudArgs, CloudCommand, EndpointArgs};
pub(crate) use look::{ExplainArgs, OrphansArgs, Output, PlanArgs};
pub(crate) use manifests::{ManifestsArgs, WorkloadKind};
#[cfg(feature = "playground")]
pub(crate) use playground::PlaygroundArgs;

/// A cloud controller manager for Kubernetes, and the tools to try it without a cloud.
///
/// With flags and no command it is the manager: it watches the API server, makes the cluster's nodes match what their
/// clouds say, and sees to load balancers for its Services, to pod ranges and to the routes to them. Flags that the
/// managers built on k8s.io/cloud-provider have, too, are written as they are there. It stops cleanly on SIGINT or SIGTERM.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    // The manager has one of its own, which takes values as Go's does.
    disable_version_flag = true,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    // upstream: of a flag that is given twice, the last counts.
    args_override_self = true,
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

/// What selects the logs.
const LOG_HELP: &str = "\
Logs go to standard error. BOWLINE_LOG selects them: a level (error, warn, info, debug, trace), or levels by module \
(bowline_apiserver=debug,warn). The default is warn; for the manager it is info, or what -v says.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an in-memory Kubernetes API server.
    ///
    /// It keeps nothing on disk but the kubeconfig it writes: each start has a new, empty state and a new certificate
    /// authority. It prints one line when it is ready, and stops cleanly on SIGINT or SIGTERM.
    #[cfg(feature = "playground")]
    Apiserver(ApiserverArgs),

    /// Try Bowline on this machine: no account, no Docker, no root.
    ///
    /// An API server, a small cloud, simulated kubelets and the controllers in one process, and a tour of what they do:
    /// commands to paste and what to look for. Nothing is kept; Ctrl-C ends it.
    #[cfg(feature = "playground")]
    Playground(PlaygroundArgs),

    /// Show what the manager would change, in the clouds and in the cluster, and change nothing.
    ///
    /// It looks once at all nodes and Services, asks the clouds, and prints what the controllers would do about what is
    /// there now. It takes every flag of the manager, written as there; those that make no difference to a plan have no effect.
    /// The exit code is 0 if that is nothing, 2 if there is something, and 1 if something went wrong, which includes flags that
    /// cannot work.
    Plan(Box<PlanArgs>),

    /// Explain why a Node or a Service is as it is: what is desired, what is observed, what blocks it, and what comes next.
    ///
    /// It takes every flag of the manager, written as there, reads the cluster and its clouds once, and changes nothing. The exit
    /// code is 0 if nothing would change, 2 if something would, and 1 if something went wrong, which includes an object that is not
    /// there.
    Explain(Box<ExplainArgs>),

    /// List what this cluster has left behind in its clouds: load balancers without a Service, or what is left of them, and routes
    /// without a Node.
    ///
    /// Of each Service all is shown that is left. With --delete they are removed, after a question. It takes every flag of the
    /// manager, written as there: with --cluster-cidr, routes of these ranges count too in a cloud whose routes have no mark, and
    /// unless --route-deletion-max-share is 1, the routes of a cluster without any Node stay, as such a cluster is often the wrong
    /// one. The exit code is 1 if anything went wrong.
    Orphans(Box<OrphansArgs>),

    /// Look whether the manager can work here, before it does: inside or outside of a cluster.
    ///
    /// It takes the flags that the manager is to have, asks the API server and the clouds, changes nothing, and tells what would
    /// go wrong, each with its cure. The exit code is 0 if nothing would, warnings aside, 2 if something would, be it a flag's
    /// value, and 1 if it could not look at all.
    Check(Box<CheckArgs>),

    /// Print what a cluster needs to run the manager: accounts, roles, configuration and the pods themselves.
    ///
    /// Plain YAML for `kubectl apply -f -`, or for a kustomization. What the roles allow is what the manager needs with these
    /// flags, and nothing else. Flags of the manager stand behind those of this command.
    Manifests(Box<ManifestsArgs>),

    /// Run a small cloud on this machine, or change one that runs.
    ///
    /// It has machines, an API with pages, throttling and failures of its own, and it serves the provider `local`.
    /// It prints one line when it is ready, and stops cleanly on SIGINT or SIGTERM.
    #[cfg(feature = "playground")]
    Cloud(Box<CloudArgs>),

    /// Commands that this build lacks.
    #[cfg(not(feature = "playground"))]
    #[command(flatten)]
    Absent(AbsentCommand),
}

impl Command {
    /// The manager's flags, of a command that takes them all.
    pub(crate) fn manager_args(&mut self) -> Option<&mut ManagerArgs> {
        match self {
            Command::Plan(args) => Some(&mut args.manager),
            Command::Explain(args) => Some(&mut args.manager),
            Command::Orphans(args) => Some(&mut args.manager),
            Command::Check(args) => Some(&mut args.manager),
            _ => None,
        }
    }
}

/// The definition of the command line, from which `--help` and the reference page are made.
pub fn definition(registry: &Registry) -> clap::Command {
    Cli::command().after_help(after_help(registry))
}

/// Names the providers of this program, and what selects the logs.
pub(crate) fn after_help(registry: &Registry) -> String {
    let kinds: Vec<_> = registry.iter().map(|kind| format!("{} ({})", kind.name, kind.summary)).collect();
    format!("Cloud providers: {}.\n\n{LOG_HELP}", kinds.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
