//! The flags of the manager, each declared once: name, type, default and meaning.
//!
//! Names, syntax and defaults are those of the Go managers wherever they have the flag, so that a manifest written for
//! one works here. Values are read [leniently](crate::flags::given), so that all that is wrong is told at once; what
//! they come to together is worked out in [`settings`](crate::settings).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_cloud::CallPolicy;
use bowline_config::{ConfigErrors, format_duration};
use bowline_controllers::{node, node_lifecycle, service};
use bowline_core::AddressType;
use bowline_core::service::NodeSet;
use clap::{Args, FromArgMatches as _};
use ipnet::IpNet;

use super::election::ElectionArgs;
use super::idle::{CloudSpecificArgs, FormerArgs, IdleArgs, KlogArgs};
use super::logging::LoggingArgs;
use super::network::NetworkArgs;
use super::serving::{AuthenticationArgs, AuthorizationArgs, DebuggingArgs, SecureServingArgs};
use super::webhook::WebhookArgs;
use crate::argv::Argv;
use crate::effective::EffectiveFlags;
use crate::flags::{self, Given, Switch as _, given};

/// What the manager says of itself under the name of the Go managers, which has no commands.
const MANAGER_ABOUT: &str = "A cloud controller manager for Kubernetes.\n\n\
It watches the API server, makes the cluster's nodes match what their clouds say, and sees to load balancers for its Services, \
to pod ranges and to the routes to them. Flags that the managers built on k8s.io/cloud-provider have, too, are written as they \
are there. It stops cleanly on SIGINT or SIGTERM.";

/// All flags of the manager.
#[derive(Debug, Args)]
pub struct ManagerArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// The manager itself.
    #[command(flatten)]
    pub generic: GenericArgs,
    /// Leader election.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Controllers, each with its own flags.
    #[command(flatten)]
    pub controllers: ControllerArgs,
    #[command(flatten)]
    pub(crate) serving: SecureServingArgs,
    #[command(flatten)]
    pub(crate) authentication: AuthenticationArgs,
    #[command(flatten)]
    pub(crate) authorization: AuthorizationArgs,
    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,
    #[command(flatten)]
    pub(crate) debugging: DebuggingArgs,
    /// Logs.
    #[command(flatten)]
    pub logging: LoggingArgs,
    #[command(flatten)]
    pub(crate) idle: IdleArgs,
    #[command(flatten)]
    pub(crate) former: FormerArgs,
    #[command(flatten)]
    pub(crate) klog: KlogArgs,
    #[command(flatten)]
    pub(crate) cloud_specific: CloudSpecificArgs,

    /// All flags with the values that they have, given or not. Not a flag itself.
    #[arg(skip)]
    pub effective: EffectiveFlags,

    /// Errors of the command line itself, which are reported with all others. Not a flag itself.
    #[arg(skip)]
    pub errors: ConfigErrors,
}

impl ManagerArgs {
    /// The flags alone, of a program of this name.
    pub fn definition(name: &str) -> clap::Command {
        let definition = ManagerArgs::augment_args(clap::Command::new(name.to_owned()));
        definition.about(MANAGER_ABOUT).disable_version_flag(true).args_override_self(true)
    }

    /// Reads a command line that is tidied and has what `--config` says.
    pub fn read(definition: &mut clap::Command, argv: Argv) -> Result<ManagerArgs, clap::Error> {
        let matches = definition.try_get_matches_from_mut(argv.arguments)?;
        let mut args = ManagerArgs::from_arg_matches(&matches)?;
        args.effective = EffectiveFlags::new(definition, &matches);
        (args.errors, args.election.migration) = (argv.errors, argv.migration);
        Ok(args)
    }

    /// For tests: the flags of a manager that is started with these arguments, the first of which is its name.
    #[cfg(test)]
    pub(crate) fn of(arguments: Vec<std::ffi::OsString>) -> ManagerArgs {
        let mut definition = ManagerArgs::definition("bowline");
        let mut argv = crate::argv::tidy(arguments, &mut definition);
        crate::configuration::prepend(&mut argv);
        ManagerArgs::read(&mut definition, argv).unwrap()
    }
}

/// How the cluster and its clouds are reached: the manager's way, and that of the commands that look for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster and clouds")]
pub(crate) struct ReachArgs {
    /// The clouds, in the order in which a node without provider ID is offered to them. A list: separated by commas, or
    /// the flag given again. A name may stand in it twice, for two clouds of a kind.
    #[arg(long, value_name = "NAMES")]
    pub(crate) cloud_provider: Vec<String>,

    /// The provider's configuration file. With several providers NAME=FILE for each, separated by commas, or the flag
    /// given again.
    #[arg(long, value_name = "FILE")]
    pub(crate) cloud_config: Vec<String>,

    /// What the resources of this cluster are marked with in the cloud.
    #[arg(long, value_name = "NAME", default_value = "kubernetes", value_parser = given(flags::not_empty))]
    pub(crate) cluster_name: Given<String>,

    /// How to reach the API server. Without it and --master, as a pod of the cluster does.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The address of the API server; overrides the one in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,

    /// Requests per second to the API server, with --kube-api-burst; 0 for no limit. Unless one of the two is given,
    /// the API server's own flow control is all that limits.
    // upstream: 20 by default, a limit that nothing on the server's side asks for.
    #[arg(long, value_name = "NUMBER", value_parser = given(flags::number))]
    pub(crate) kube_api_qps: Option<Given<f64>>,

    /// Requests to the API server at once before --kube-api-qps counts.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) kube_api_burst: Option<Given<i32>>,

    #[command(flatten)]
    pub(crate) calls: CloudCallArgs,
}

/// Which controllers, and how each is set.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    #[command(flatten)]
    pub(crate) node_lifecycle: NodeLifecycleArgs,
    #[command(flatten)]
    pub(crate) service: ServiceArgs,
    /// Pod CIDRs and routes.
    #[command(flatten)]
    pub network: NetworkArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Controllers")]
pub(crate) struct SelectionArgs {
    /// The controllers to run: * for all, NAME for one, -NAME for all but one. A list: separated by commas, or the flag
    /// given again; what names a controller first counts.
    #[arg(long, value_name = "NAMES", default_value = "*")]
    pub(crate) controllers: Vec<String>,

    /// Switches of the Go managers, NAME=true or NAME=false. A list: separated by commas, or the flag given again. The one
    /// that has an effect is CloudControllerManagerWatchBasedRoutesReconciliation, which is on unless given.
    // upstream: off by default.
    #[arg(long, value_name = "NAME=BOOL")]
    pub(crate) feature_gates: Vec<String>,
}

/// Flags about the manager itself.
#[derive(Debug, Args)]
#[command(next_help_heading = "Manager")]
pub struct GenericArgs {
    /// Read settings from this file: the document that /configz shows, in YAML or JSON. What is given as a flag, too, counts
    /// as the flag says.
    // upstream: has the type of this document, and no flag that reads it.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) config: Option<PathBuf>,

    /// Print the version and end; raw prints all that is known about this build. A version such as v1.37.0 is taken and
    /// has no effect.
    #[arg(long, value_name = "true|raw", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub version: Option<String>,

    /// Give each controller an identity of its own at the API server: a service account in kube-system, with a token that is
    /// asked for as it is needed.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) use_service_account_credentials: Given<bool>,

    /// Run with a cloud that marks nothing as this cluster's. Such a cloud cannot tell the balancers and routes of two
    /// clusters apart; give each cluster its own name or account.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) allow_untagged_cloud: Given<bool>,

    /// The pause after each controller that is started, from this long to twice as long.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = given(flags::duration))]
    pub(crate) controller_start_interval: Given<Duration>,

    /// Change nothing, neither in the cluster nor in a cloud: log what would be done. What depends on an earlier change
    /// having been made is not reached; `bowline plan` shows more of it, once.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) dry_run: Given<bool>,

    /// Serve /metrics in plain HTTP at this address of this machine, such as 127.0.0.1:10257; off unless given.
    #[arg(long, value_name = "IP:PORT", value_parser = given(flags::loopback))]
    pub(crate) metrics_listen: Option<Given<SocketAddr>>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "cloud-node-controller")]
pub(crate) struct NodeArgs {
    /// Nodes that are initialised at once; 16 unless given.
    // upstream: 1 by default.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_node_syncs: Option<Given<i32>>,

    /// Nodes whose addresses are written at once; 0 for as many as --concurrent-node-syncs, which is also the default.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_node_status_updates: Option<Given<i32>>,

    /// The pause between two looks at the addresses of all nodes.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node::Options::default().status_period),
        value_parser = given(flags::pause),
    )]
    pub(crate) node_status_update_frequency: Given<Duration>,

    /// Update the labels for zone, region and instance type whenever the addresses are compared, not only when a node is
    /// initialized: they follow a machine that is resized or moved. Pods that were placed by these labels stay where they are.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) refresh_node_labels: Given<bool>,

    /// Types of node addresses that come first, in this order: Hostname, InternalIP, ExternalIP, InternalDNS, ExternalDNS,
    /// separated by commas. The others follow in the order of the cloud, which is also the default.
    #[arg(long, value_name = "TYPES", value_parser = given(flags::address_types))]
    pub(crate) node_address_order: Option<Given<Vec<AddressType>>>,

    /// Networks whose IP addresses nodes get, the preferred network first, separated by commas; all by default. A machine without
    /// an address in any of them keeps all of its addresses.
    #[arg(long, value_name = "CIDRS", value_parser = given(flags::cidrs))]
    pub(crate) node_address_cidrs: Option<Given<Vec<IpNet>>>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "cloud-node-lifecycle-controller")]
pub(crate) struct NodeLifecycleArgs {
    /// Nodes that are written at once; 16 unless given.
    // upstream: 1 by default.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_node_lifecycle_syncs: Option<Given<i32>>,

    /// The pause between two looks at the nodes that are not ready.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node_lifecycle::Options::default().monitor_period),
        value_parser = given(flags::pause),
    )]
    pub(crate) node_monitor_period: Given<Duration>,

    /// Minimum age of a node that may be deleted: the cloud may not list its machine yet. Default: 30s for a node that was
    /// initialised, 5m for any other.
    #[arg(long, value_name = "DURATION", value_parser = given(flags::duration))]
    pub(crate) node_deletion_grace_period: Option<Given<Duration>>,

    /// A node is deleted when its machine was gone in two looks at the cloud, this far apart.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node_lifecycle::Options::default().policy.confirm_after),
        value_parser = given(flags::duration),
    )]
    pub(crate) node_deletion_confirm_period: Given<Duration>,

    /// The share of a cloud's nodes, from 0 to 1, that may be deleted within --node-deletion-window. If more would go,
    /// none goes, except those that carry the annotation bowline.dev/allow-deletion=true.
    #[arg(
        long,
        value_name = "SHARE",
        default_value = node_lifecycle::Options::default().policy.brake_share.to_string(),
        value_parser = given(flags::share),
    )]
    pub(crate) node_deletion_max_share: Given<f64>,

    /// How long a deletion counts for --node-deletion-max-share.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node_lifecycle::Options::default().policy.brake_window),
        value_parser = given(flags::duration),
    )]
    pub(crate) node_deletion_window: Given<Duration>,

    /// Also delete nodes without provider ID whose name no cloud knows, as the Go managers do.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) delete_unclaimed_nodes: Given<bool>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "service-lb-controller")]
pub(crate) struct ServiceArgs {
    /// Load balancers that are written at once; 16 unless given.
    // upstream: 1 by default.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_service_syncs: Option<Given<i32>>,

    /// Which nodes become targets: those that are initialised and in the balancer's cloud, or all, at once, as the Go
    /// managers do.
    #[arg(long, value_name = "initialized|all", default_value = "initialized", value_parser = given(flags::node_set))]
    pub(crate) load_balancer_nodes: Given<NodeSet>,

    /// How long a node that is leaving keeps its connections, where the cloud can drain. 0 takes it out when something
    /// else calls for an update, as the Go managers do.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(service::Options::default().drain),
        value_parser = given(flags::duration),
    )]
    pub(crate) load_balancer_drain_period: Given<Duration>,

    /// Debounce period for new nodes, so that many of them cause one update. They become targets 500ms after the last one, or after
    /// this period while another node is still to be initialised or if load balancers were updated within it.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(service::Options::default().gather),
        value_parser = given(flags::duration),
    )]
    pub(crate) load_balancer_node_gather_period: Given<Duration>,

    /// Take Services of the class bowline.dev/CLOUD, too, each by the cloud that its class names.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) load_balancer_classes: Given<bool>,

    /// The cloud that takes Services without a class, or none; the first that has load balancers unless given.
    #[arg(long, value_name = "NAME|none", value_parser = given(flags::not_empty))]
    pub(crate) load_balancer_default_cloud: Option<Given<String>>,

    /// How often a load balancer that nothing happens to is compared with the cloud; 0 for never.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(service::Options::default().refresh),
        value_parser = given(flags::duration),
    )]
    pub(crate) load_balancer_refresh_period: Given<Duration>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Calls to the cloud")]
pub(crate) struct CloudCallArgs {
    /// HTTP calls per second to each cloud; 0, the default, for no limit of our own. The cloud's own (429) is honoured
    /// anyway.
    #[arg(long, value_name = "NUMBER", value_parser = given(flags::number))]
    pub(crate) cloud_qps: Option<Given<f64>>,

    /// HTTP calls to each cloud at once before --cloud-qps counts.
    #[arg(
        long,
        value_name = "N",
        default_value = CallPolicy::default().burst.to_string(),
        value_parser = given(flags::int32),
    )]
    pub(crate) cloud_burst: Given<i32>,

    /// What a cloud is told of who asks, in front of the program's name. Each value is kept whole; of several, the last one
    /// stands first. Sent by providers that speak HTTP with a cloud.
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_agent: Vec<String>,
}
