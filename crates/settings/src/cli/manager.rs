//! Flags of the manager: name, type, default and help text.
//!
//! Flags that the Go managers have keep their names, syntax and defaults, so that existing manifests work unchanged. Values are
//! parsed [leniently](crate::flags::given), so that all errors are reported at once; [`settings`](crate::settings) resolves and
//! validates them together.

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

/// Help text of the binary under the name `cloud-controller-manager`, which has no subcommands.
const MANAGER_ABOUT: &str = "A cloud controller manager for Kubernetes.\n\n\
It watches the API server, keeps Nodes up to date with their cloud instances, and manages load balancers for Services, \
pod CIDRs and routes. Flags of the managers built on k8s.io/cloud-provider have the same names and syntax here. \
It shuts down cleanly on SIGINT or SIGTERM.";

/// All flags of the manager.
#[derive(Debug, Args)]
pub struct ManagerArgs {
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Generic flags.
    #[command(flatten)]
    pub generic: GenericArgs,
    /// Leader election.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Flags of each controller.
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
    /// Logging.
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

    /// Effective values of all flags, including defaults. Not a flag itself.
    #[arg(skip)]
    pub effective: EffectiveFlags,

    /// Controllers that providers declare, each with the name of its provider. Not a flag itself.
    #[arg(skip)]
    pub provider_controllers: Vec<(&'static str, &'static str)>,

    /// Errors in the command line itself, reported with all other errors. Not a flag itself.
    #[arg(skip)]
    pub errors: ConfigErrors,
}

impl ManagerArgs {
    /// Defines a command of this name with the manager's flags only.
    pub fn definition(name: &str) -> clap::Command {
        let definition = ManagerArgs::augment_args(clap::Command::new(name.to_owned()));
        definition.about(MANAGER_ABOUT).disable_version_flag(true).args_override_self(true)
    }

    /// Parses a normalized command line that already includes the flags of the `--config` file.
    pub fn read(definition: &mut clap::Command, argv: Argv) -> Result<ManagerArgs, clap::Error> {
        let matches = definition.try_get_matches_from_mut(argv.arguments)?;
        let mut args = ManagerArgs::from_arg_matches(&matches)?;
        args.effective = EffectiveFlags::new(definition, &matches);
        (args.errors, args.election.migration) = (argv.errors, argv.migration);
        Ok(args)
    }

    /// Parses the arguments of a manager, for tests. The first argument is the program name.
    #[cfg(test)]
    pub(crate) fn of(arguments: Vec<std::ffi::OsString>) -> ManagerArgs {
        let mut definition = ManagerArgs::definition("bowline");
        let mut argv = crate::argv::normalize(arguments, &mut definition);
        crate::configuration::prepend(&mut argv);
        ManagerArgs::read(&mut definition, argv).unwrap()
    }
}

/// Flags that select the clouds.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster and clouds")]
pub(crate) struct CloudArgs {
    /// Comma-separated list of cloud providers; the flag may be repeated. A node without a provider ID is looked up in this order.
    /// List a provider twice to use two clouds of the same kind.
    #[arg(long, value_name = "NAMES")]
    pub(crate) cloud_provider: Vec<String>,

    /// Path of the provider's configuration file. With several providers, a comma-separated list of PROVIDER=FILE; the flag may be
    /// repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) cloud_config: Vec<String>,

    /// Cluster name, recorded on every cloud resource that this cluster owns.
    #[arg(long, value_name = "NAME", default_value = "kubernetes", value_parser = given(flags::not_empty))]
    pub(crate) cluster_name: Given<String>,
}

/// Flags for access to the cluster and its clouds, shared by the manager and the diagnostic commands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster and clouds")]
pub(crate) struct ReachArgs {
    #[command(flatten)]
    pub(crate) clouds: CloudArgs,

    /// Path of the kubeconfig file for the API server. Default: the in-cluster configuration, unless --master is set.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Address of the Kubernetes API server; overrides any value in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,

    /// QPS to use while talking with the API server; 0 disables the limit. Default: no limit on the client side, the API server's
    /// priority and fairness applies; 20 if only --kube-api-burst is set.
    // upstream: 20 by default, a limit that the API server does not need.
    #[arg(long, value_name = "NUMBER", value_parser = given(flags::number))]
    pub(crate) kube_api_qps: Option<Given<f64>>,

    /// Burst to use while talking with the API server, above --kube-api-qps. Default: 30 if --kube-api-qps is set.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) kube_api_burst: Option<Given<i32>>,

    #[command(flatten)]
    pub(crate) calls: CloudCallArgs,
}

/// Selection of controllers and their options.
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
    /// Comma-separated list of controllers to run; the flag may be repeated. '*' enables all controllers, 'foo' enables the
    /// controller named 'foo', '-foo' disables it. The first entry that names a controller wins.
    #[arg(long, value_name = "NAMES", default_value = "*")]
    pub(crate) controllers: Vec<String>,

    /// Comma-separated list of NAME=true|false pairs for the feature gates of the Go managers; the flag may be repeated. Gates with
    /// an effect here: CloudControllerManagerWatchBasedRoutesReconciliation (default: true), CloudControllerManagerWebhook
    /// (default: false), LoggingAlphaOptions (default: false), RemoteRequestHeaderUID (default: true),
    /// ControllerManagerReleaseLeaderElectionLockOnExit (default: true), AllAlpha and AllBeta.
    // upstream: the first and the fifth are false by default.
    #[arg(long, value_name = "NAME=BOOL")]
    pub(crate) feature_gates: Vec<String>,
}

/// Generic flags of the manager.
#[derive(Debug, Args)]
#[command(next_help_heading = "Manager")]
pub struct GenericArgs {
    /// Path of a CloudControllerManagerConfiguration file in YAML or JSON, the document that /configz serves. Flags override its
    /// values.
    // upstream: has the type of this document, and no flag that reads it.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) config: Option<PathBuf>,

    /// Print version information and quit; --version=raw prints all build information. --version=vX.Y.Z is accepted and has no
    /// effect.
    #[arg(short = 'V', long, value_name = "true|raw", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub version: Option<String>,

    /// Use individual service account credentials for each controller. The accounts are in kube-system; tokens are requested from
    /// the TokenRequest API.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) use_service_account_credentials: Given<bool>,

    /// Allow a cloud that does not record the cluster name on its resources. Such a cloud cannot distinguish the load balancers and
    /// routes of two clusters; use a separate account or project for each cluster. Deprecated.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) allow_untagged_cloud: Given<bool>,

    /// Interval between starting controllers, with random jitter of up to the same length.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = given(flags::duration))]
    pub(crate) controller_start_interval: Given<Duration>,

    /// Log the changes to the cluster and the clouds instead of making them. Changes that depend on an earlier change are not
    /// logged; `bowline plan` also shows some of these.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) dry_run: Given<bool>,

    /// Loopback address to serve /metrics on over plain HTTP, without authentication, such as 127.0.0.1:10257. Default: disabled.
    #[arg(long, value_name = "IP:PORT", value_parser = given(flags::loopback))]
    pub(crate) metrics_listen: Option<Given<SocketAddr>>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "cloud-node-controller")]
pub(crate) struct NodeArgs {
    /// Number of nodes that are initialised concurrently. Default: 16.
    // upstream: 1 by default.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_node_syncs: Option<Given<i32>>,

    /// Number of node statuses that are updated concurrently; 0 uses the value of --concurrent-node-syncs. Default: 0.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_node_status_updates: Option<Given<i32>>,

    /// Interval between updates of the addresses of all nodes.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node::Options::default().status_period),
        value_parser = given(flags::pause),
    )]
    pub(crate) node_status_update_frequency: Given<Duration>,

    /// Update the zone, region and instance type labels with every address update, not only at initialisation, so that they follow
    /// a machine that is resized or moved. Pods that were scheduled by these labels are not moved.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) refresh_node_labels: Given<bool>,

    /// Comma-separated list of node address types to sort first: Hostname, InternalIP, ExternalIP, InternalDNS, ExternalDNS. The
    /// remaining types follow in the order of the cloud. Default: the order of the cloud.
    #[arg(long, value_name = "TYPES", value_parser = given(flags::address_types))]
    pub(crate) node_address_order: Option<Given<Vec<AddressType>>>,

    /// Comma-separated list of networks; only IP addresses in them become node addresses, in the order of the list. A machine
    /// without an address in any of them keeps all of its addresses. Default: all addresses.
    #[arg(long, value_name = "CIDRS", value_parser = given(flags::cidrs))]
    pub(crate) node_address_cidrs: Option<Given<Vec<IpNet>>>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "cloud-node-lifecycle-controller")]
pub(crate) struct NodeLifecycleArgs {
    /// Number of nodes that are processed concurrently. Default: 16.
    // upstream: 1 by default.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_node_lifecycle_syncs: Option<Given<i32>>,

    /// Interval between checks of the nodes that are not ready.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node_lifecycle::Options::default().monitor_period),
        value_parser = given(flags::pause),
    )]
    pub(crate) node_monitor_period: Given<Duration>,

    /// Minimum age of a node before it may be deleted, since the cloud may not list a new machine yet. Default: 30s for an
    /// initialised node, 5m otherwise.
    #[arg(long, value_name = "DURATION", value_parser = given(flags::duration))]
    pub(crate) node_deletion_grace_period: Option<Given<Duration>>,

    /// Interval after which a second read of the cloud must confirm that a machine is missing before its node is deleted.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node_lifecycle::Options::default().policy.confirm_after),
        value_parser = given(flags::duration),
    )]
    pub(crate) node_deletion_confirm_period: Given<Duration>,

    /// Maximum share of a cloud's nodes, from 0 to 1, that may be deleted within --node-deletion-window. If more would be deleted,
    /// none is, except nodes with the annotation bowline.dev/allow-deletion=true.
    #[arg(
        long,
        value_name = "SHARE",
        default_value = node_lifecycle::Options::default().policy.brake_share.to_string(),
        value_parser = given(flags::share),
    )]
    pub(crate) node_deletion_max_share: Given<f64>,

    /// Time window over which --node-deletion-max-share counts deletions.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(node_lifecycle::Options::default().policy.brake_window),
        value_parser = given(flags::duration),
    )]
    pub(crate) node_deletion_window: Given<Duration>,

    /// Also delete nodes that have no provider ID and whose name matches no machine in any cloud, as the Go managers do.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) delete_unclaimed_nodes: Given<bool>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "service-lb-controller")]
pub(crate) struct ServiceArgs {
    /// Number of Services that are synced concurrently. Default: 16.
    // upstream: 1 by default.
    #[arg(long, value_name = "N", value_parser = given(flags::int32))]
    pub(crate) concurrent_service_syncs: Option<Given<i32>>,

    /// Nodes that become targets of load balancers: "initialized" for the initialised nodes of the load balancer's cloud, "all" for
    /// all nodes as soon as they exist, as in the Go managers.
    #[arg(long, value_name = "initialized|all", default_value = "initialized", value_parser = given(flags::node_set))]
    pub(crate) load_balancer_nodes: Given<NodeSet>,

    /// Connection draining period of a target that is being removed, where the cloud supports draining. With 0, a target is removed
    /// with the next update that has another cause, as in the Go managers.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(service::Options::default().drain),
        value_parser = given(flags::duration),
    )]
    pub(crate) load_balancer_drain_period: Given<Duration>,

    /// Debounce period for new nodes, so that many new nodes cause one update. They become targets 500ms after the last one, or
    /// after this period while another node is not initialised yet or if load balancers were updated within it.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(service::Options::default().gather),
        value_parser = given(flags::duration),
    )]
    pub(crate) load_balancer_node_gather_period: Given<Duration>,

    /// Also manage Services with the loadBalancerClass bowline.dev/CLOUD, each in the named cloud.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) load_balancer_classes: Given<bool>,

    /// Cloud for Services without a loadBalancerClass, or "none" to ignore them. Default: the first cloud with load balancers.
    #[arg(long, value_name = "NAME|none", value_parser = given(flags::not_empty))]
    pub(crate) load_balancer_default_cloud: Option<Given<String>>,

    /// Interval at which every load balancer is compared with the cloud, to correct changes made there; 0 disables it.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(service::Options::default().refresh),
        value_parser = given(flags::duration),
    )]
    pub(crate) load_balancer_refresh_period: Given<Duration>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cloud API requests")]
pub(crate) struct CloudCallArgs {
    /// Maximum HTTP requests per second to each cloud; 0 disables the limit. The cloud's own rate limit (HTTP 429) is always
    /// honoured. Default: 0.
    #[arg(long, value_name = "NUMBER", value_parser = given(flags::number))]
    pub(crate) cloud_qps: Option<Given<f64>>,

    /// Burst of HTTP requests to each cloud, above --cloud-qps.
    #[arg(
        long,
        value_name = "N",
        default_value = CallPolicy::default().burst.to_string(),
        value_parser = given(flags::int32),
    )]
    pub(crate) cloud_burst: Given<i32>,

    /// Product to prepend to the User-Agent header of HTTP requests to a cloud; the flag may be repeated, and the last value comes
    /// first. Commas do not separate values.
    #[arg(long, value_name = "TEXT")]
    pub(crate) user_agent: Vec<String>,
}
