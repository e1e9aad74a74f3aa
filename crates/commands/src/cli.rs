//! Command-line definition. The doc comments here are the help texts, and `xtask generate` builds `docs/reference/cli.md` from
//! them: write them for users.

#[cfg(not(all(feature = "playground", feature = "lb-agent", feature = "console")))]
mod absent;
#[cfg(feature = "playground")]
mod apiserver;
mod check;
#[cfg(feature = "playground")]
mod cloud;
mod completion;
#[cfg(feature = "console")]
mod console;
mod help;
mod inspect;
#[cfg(feature = "lb-agent")]
mod lb_agent;
mod manifests;
mod overview;
#[cfg(feature = "playground")]
mod playground;

use bowline_cloud::Registry;
use bowline_settings::cli::{AdmissionServerArgs, ManagerArgs};
use bowline_settings::providers::flags;
use clap::{CommandFactory as _, Parser, Subcommand};

#[cfg(not(all(feature = "playground", feature = "lb-agent", feature = "console")))]
pub(crate) use absent::AbsentCommand;
#[cfg(feature = "playground")]
pub(crate) use apiserver::ApiserverArgs;
pub(crate) use check::CheckArgs;
#[cfg(feature = "playground")]
pub(crate) use cloud::{CloudArgs, CloudCommand, DeleteRouteArgs, EndpointArgs};
pub(crate) use completion::{CompletionArgs, Shell};
#[cfg(feature = "console")]
pub(crate) use console::{ConsoleArgs, LeaseName, ReachArgs, TopArgs};
pub(crate) use help::{complete_manager, meaning, with_groups};
pub(crate) use inspect::{ExplainArgs, OrphansArgs, Output, PlanArgs};
#[cfg(feature = "lb-agent")]
pub(crate) use lb_agent::{CertificatesArgs, LbAgentArgs, LbAgentCommand, StatusArgs};
pub(crate) use manifests::{ManifestsArgs, WorkloadKind};
#[cfg(feature = "playground")]
pub(crate) use playground::{ConsoleListen, ExampleArgs, PlaygroundArgs, PlaygroundCommand};

/// Kubernetes cloud controller manager, with tools to try it without a cloud.
///
/// With flags and no command it runs the manager: it watches the API server, keeps Nodes in sync with their cloud, and manages
/// load balancers for Services, pod CIDRs and routes. Flags shared with managers built on k8s.io/cloud-provider have the same
/// names and syntax. It shuts down cleanly on SIGINT or SIGTERM.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    // The manager defines its own, with the values of Go's --version.
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    // upstream: the last of repeated flags wins.
    args_override_self = true,
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

/// Commands that accept all flags of the manager, in the same spellings.
pub(crate) const WITH_MANAGER_FLAGS: [&str; 4] = ["plan", "explain", "orphans", "check"];

/// Help on logging.
const LOG_HELP: &str = "\
Logs are written to standard error. BOWLINE_LOG sets the level (error, warn, info, debug, trace), or levels by module \
(bowline_apiserver=debug,warn). Default: warn; for the manager info, or the level of -v.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an in-memory Kubernetes API server.
    ///
    /// State is not persisted: each start begins empty, with a new certificate authority; only the kubeconfig is written to disk.
    /// It prints one line when it is ready, and shuts down cleanly on SIGINT or SIGTERM.
    #[cfg(feature = "playground")]
    Apiserver(ApiserverArgs),

    /// Try Bowline locally, without a cloud account, Docker or root.
    ///
    /// Runs an API server, a local cloud, simulated kubelets and the controllers in one process, with a guided tour. On a terminal
    /// it shows one step at a time, and Enter goes on. Otherwise it runs all steps, prints the result of each check, and exits with
    /// code 0, or with 1 if a step failed. State is not persisted; Ctrl-C stops it.
    #[cfg(feature = "playground")]
    Playground(Box<PlaygroundArgs>),

    /// Show what the manager would change in the clouds and in the cluster, without changing anything.
    ///
    /// Reads all Nodes and Services and their state in the clouds once, and prints the steps that the controllers would apply.
    /// Accepts every flag of the manager; flags that do not affect a plan are ignored. Exit codes: 0 if there is nothing to change,
    /// 3 if there are changes, 2 for invalid flags, 1 on other errors.
    Plan(Box<PlanArgs>),

    /// Explain the state of a Node or Service: desired state, observed state, what blocks it, and next steps.
    ///
    /// Accepts every flag of the manager, reads the cluster and its clouds once, and changes nothing. Exit codes: 0 if there is
    /// nothing to change, 3 if there are changes, 2 for invalid flags, 1 on other errors, including an object that does not exist.
    Explain(Box<ExplainArgs>),

    /// Show what a running manager does, on a page in your browser.
    ///
    /// Prints the URL of the page, and serves it on a loopback address until Ctrl-C. The page shows clouds, machines, Nodes, Services
    /// and load balancers with what they wait for, queues, calls to the clouds and Events of the leader. It reads them through the API
    /// server with your own permissions (docs/guides/console.md lists them), and changes nothing. Exit codes: 0 after a signal, 1 if
    /// the manager cannot be reached at the start, 2 for invalid flags.
    #[cfg(feature = "console")]
    Console(Box<ConsoleArgs>),

    /// Show what a running manager does, in the terminal.
    ///
    /// Shows what `bowline console` shows, and needs the same permissions. Keys: Tab and arrows select, Enter shows details, / searches, ?
    /// lists all keys, q quits. Prints it once as plain text if standard output is not a terminal. Exit codes: 0 on success, 1 if the
    /// manager cannot be reached at the start, 2 for invalid flags.
    #[cfg(feature = "console")]
    Top(Box<TopArgs>),

    /// List orphaned cloud resources of this cluster: load balancers without a Service, or their remains, and routes without a
    /// Node.
    ///
    /// Lists every remaining resource of each deleted Service. With --delete the orphans are deleted after confirmation. Accepts
    /// every flag of the manager: with --cluster-cidr, routes to these CIDRs count as this cluster's in a cloud whose routes have
    /// no mark. If the cluster has no Nodes at all, routes are kept, because it is often the wrong cluster;
    /// --route-deletion-max-share=1 deletes them. Also lists what background loops of the cloud would remove, which --delete leaves
    /// to the manager. Exit codes: 0 on success, 2 for invalid flags, 1 on other errors.
    Orphans(Box<OrphansArgs>),

    /// Check that the manager can run with these flags, inside or outside of a cluster.
    ///
    /// Accepts the flags of the manager, queries the API server and the clouds, changes nothing, and reports errors and warnings,
    /// each with its fix. Exit codes: 0 if it finds no errors, 3 if it finds errors, including invalid flags of the manager, 2 for
    /// other invalid flags, 1 if the check could not run.
    Check(Box<CheckArgs>),

    /// Serve the admission webhooks of the clouds, as a program of its own beside the manager.
    ///
    /// The API server calls a webhook before it stores an object, so that users see what the cloud would reject at once. Needs no
    /// access to the API server; a ValidatingWebhookConfiguration names the server's address and the path of the webhook. The
    /// manager itself serves webhooks with --webhooks. Shuts down on SIGINT or SIGTERM after open requests, at most one minute. Exit
    /// codes: 0 after a signal, 1 if the server cannot start, 2 for invalid flags or files.
    AdmissionServer(Box<AdmissionServerArgs>),

    /// Print the manifests for running the manager: service account, RBAC roles, configuration and workload.
    ///
    /// The output is plain YAML for `kubectl apply -f -` or a kustomization. The roles grant exactly the permissions that the
    /// manager needs with these flags. Put the manager's flags after those of this command.
    Manifests(Box<ManifestsArgs>),

    /// Run the local cloud, or manage one that is running.
    ///
    /// The local cloud has machines, load balancers, routes and an API with paging, throttling and fault injection; the provider
    /// `local` uses it. It prints one line when it is ready, and shuts down cleanly on SIGINT or SIGTERM.
    #[cfg(feature = "playground")]
    Cloud(Box<CloudArgs>),

    /// Run an agent for layer 4: load balancers and routes on hosts without a cloud.
    ///
    /// One or several agents form a group: the active one holds the addresses of load balancers on its network interface and forwards
    /// their traffic, and another one takes over when it fails. The manager connects to them with the section `agent` of a provider's
    /// configuration. Shuts down on SIGINT or SIGTERM, after a standby has taken over. Exit codes: 0 after a signal, 2 for an invalid
    /// configuration, 1 for other errors.
    #[cfg(feature = "lb-agent")]
    LbAgent(Box<LbAgentArgs>),

    /// Print the completion script of a shell.
    ///
    /// For bash, put `source <(bowline completion bash)` into ~/.bashrc; for zsh, write the output to a file _bowline in a directory of
    /// $fpath; for fish, to ~/.config/fish/completions/bowline.fish.
    Completion(CompletionArgs),

    /// Commands that are not part of this build.
    #[cfg(not(all(feature = "playground", feature = "lb-agent", feature = "console")))]
    #[command(flatten)]
    Absent(AbsentCommand),
}

impl Command {
    /// The manager's flags, for a command that accepts all of them.
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

/// Command-line definition, the source of `--help` and of the reference page.
pub fn definition(registry: &Registry) -> clap::Command {
    let manager = flags::add_to(Cli::command().after_help(after_help(registry)), registry);
    let add = |definition: clap::Command, name: &&str| {
        definition.mut_subcommand(*name, |command| flags::add_to(command, registry))
    };
    help::complete(WITH_MANAGER_FLAGS.iter().fold(manager, add))
}

/// What `bowline` prints without arguments.
pub(crate) fn overview(registry: &Registry) -> String {
    overview::screen(&provider_names(registry))
}

/// What `bowline` prints without arguments to standard error, if the output is not a terminal.
pub(crate) fn usage(registry: &Registry) -> String {
    overview::usage(&provider_names(registry))
}

fn provider_names(registry: &Registry) -> String {
    registry.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// Help on the providers of this program and on logging.
pub(crate) fn after_help(registry: &Registry) -> String {
    let kinds: Vec<_> = registry.iter().map(|kind| format!("{} ({})", kind.name, kind.summary)).collect();
    format!("Cloud providers: {}.\n\n{LOG_HELP}", kinds.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
