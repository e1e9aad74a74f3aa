//! Resolves and validates the manager's flags.

mod admission_server;
mod election;
mod logging;
mod network;
mod serving;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{BuildInputs, CallPolicy, Calls, FlagValues};
use bowline_config::{ConfigError, ConfigErrors, Environment};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::service::DefaultCloud;
use bowline_controllers::{node, node_lifecycle, provider_loops, service};
use bowline_core::lifecycle::Policy;
use bowline_core::{AddressPolicy, ClusterName};
use bowline_kube::{ClientOptions, Probe};

use crate::cli::{
    CloudArgs, CloudCallArgs, ControllerArgs, GenericArgs, ManagerArgs, NodeArgs, NodeLifecycleArgs, ReachArgs,
    ServiceArgs,
};
use crate::controllers::Selection;
use crate::effective::EffectiveFlags;
use crate::feature_gates::FeatureGates;
use crate::flags::Given;
use crate::providers::{self, ProviderSpec};
pub use admission_server::AdmissionServer;
pub use election::Election;
pub use logging::{admission_server_logging, early_logging};
use network::Network;
pub use network::{CidrFlag, parse_cluster_cidr};
pub use serving::{Serving, Webhooks};

/// Time for the writes in progress at shutdown: less than the 30 seconds after which the kubelet kills a pod.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// QPS and burst, for the flag of the two that is not set.
// upstream: the defaults of --kube-api-qps and --kube-api-burst.
pub(crate) const KUBE_API_RATE: (f64, i32) = (20.0, 30);

/// Startup message of a dry run.
const DRY_RUN_WARNING: &str = "dry run: no changes are made to the cluster or the clouds";

/// Deprecation warning of `--allow-untagged-cloud`.
// upstream: the flag is deprecated, and a warning is logged whenever it is set.
const UNTAGGED_WARNING: &str = "--allow-untagged-cloud is deprecated: without the cluster name on cloud resources, the manager can \
                               change resources of another cluster";

/// Access to the cluster and its clouds.
#[derive(Debug)]
pub struct Reach {
    /// Providers to build, in the order of the flag.
    pub providers: Vec<ProviderSpec>,
    /// `--cluster-name`.
    pub cluster: ClusterName,
    /// Options of the API server client.
    pub client: ClientOptions,
    /// Options of the layers around the providers.
    pub layers: LayerOptions,
    /// Rate limit and retries of requests to a cloud.
    pub calls: CallPolicy,
    /// `--user-agent`.
    pub user_agents: Vec<String>,
    /// Flags and controllers of providers.
    pub flags: FlagValues,
}

/// Resolved settings of the manager.
#[derive(Debug)]
pub struct Settings {
    /// Access to the cluster and its clouds.
    pub reach: Reach,
    /// Options of the controllers.
    pub manager: ManagerOptions,
    /// Leader election; `None` if it is disabled.
    pub election: Option<Election>,
    /// HTTP endpoints, authentication and TLS.
    pub serving: Serving,
    /// `--use-service-account-credentials`: each controller has its own service account.
    pub own_credentials: bool,
    /// `--metrics-listen`.
    pub metrics_listen: Option<SocketAddr>,
    /// Effective flags, for `/flagz` and `/configz`.
    pub flags: EffectiveFlags,
    /// Warnings to log at startup.
    pub warnings: Vec<String>,
}

// Both `resolve` functions add errors to `errors` and go on with a harmless value, so that all errors are found. A caller that gets
// errors does not use the result.

impl Reach {
    pub(crate) fn resolve(args: &ReachArgs, errors: &mut ConfigErrors) -> Reach {
        let reach = Reach::of_clouds(&args.clouds, &args.calls, errors);
        Reach { client: client_options(args, errors), ..reach }
    }

    /// Resolves the flags of the clouds. The API server client has no options.
    pub(crate) fn of_clouds(args: &CloudArgs, calls: &CloudCallArgs, errors: &mut ConfigErrors) -> Reach {
        let cluster = valid(&args.cluster_name, errors).unwrap_or_default();
        Reach {
            providers: providers::specs(&list(&args.cloud_provider), &args.cloud_config, errors),
            cluster: ClusterName::from(cluster.as_str()),
            client: ClientOptions::default(),
            layers: LayerOptions::default(),
            calls: call_policy(calls, errors),
            user_agents: calls.user_agent.clone(),
            flags: FlagValues::default(),
        }
    }

    /// Inputs to build providers in this process, with this metrics registry.
    pub fn build_inputs(&self, metrics: &prometheus::Registry) -> BuildInputs {
        let (environment, user_agents) = (Environment::from_process(), self.user_agents.clone());
        let (flags, metrics, calls) = (self.flags.clone(), metrics.clone(), Calls::new(self.calls.clone()));
        BuildInputs { environment, user_agents, flags, metrics, calls }
    }
}

impl Settings {
    /// Resolves and validates the flags.
    pub fn resolve(args: &ManagerArgs, errors: &mut ConfigErrors) -> Settings {
        errors.extend(args.errors.clone());
        let mut reach = Reach::resolve(&args.reach, errors);
        let gates = FeatureGates::new(&args.controllers.selection.feature_gates, errors);
        let selection = selection(args, &reach.providers, errors);
        reach.flags = providers::flags::values(&args.effective).with_controllers(selection.of_providers());
        let (mut manager, mut warnings) = controllers(&args.controllers, &selection, &gates, &reach.cluster, errors);
        generic(&args.generic, &mut reach, &mut manager, &mut warnings, errors);
        let election = Election::resolve(&args.election, &gates, &mut manager, &mut warnings, errors);
        logging::resolve(&args.logging, &gates, errors);
        args.idle.errors().into_iter().chain(args.klog.errors()).for_each(|error| errors.push(error));
        Settings {
            election,
            serving: Serving::resolve(args, &gates, &mut warnings, errors),
            own_credentials: valid(&args.generic.use_service_account_credentials, errors).unwrap_or(false),
            metrics_listen: args.generic.metrics_listen.as_ref().and_then(|address| valid(address, errors)),
            flags: args.effective.clone(),
            reach,
            manager,
            warnings,
        }
    }
}

/// Resolves `--controllers`: only the controllers of providers that are used exist.
fn selection(args: &ManagerArgs, specs: &[ProviderSpec], errors: &mut ConfigErrors) -> Selection {
    let is_used = |provider: &str| specs.iter().any(|spec| spec.name == provider);
    let declared = args.provider_controllers.iter().filter(|(provider, _)| is_used(provider)).map(|(_, name)| *name);
    Selection::new(&list(&args.controllers.selection.controllers), declared.collect(), errors)
}

/// Applies the generic flags.
fn generic(
    args: &GenericArgs,
    reach: &mut Reach,
    manager: &mut ManagerOptions,
    warnings: &mut Vec<String>,
    errors: &mut ConfigErrors,
) {
    let dry_run = valid(&args.dry_run, errors).unwrap_or(true);
    warnings.extend(dry_run.then(|| DRY_RUN_WARNING.to_owned()));
    let allow_untagged = valid(&args.allow_untagged_cloud, errors).unwrap_or(false);
    warnings.extend(allow_untagged.then(|| UNTAGGED_WARNING.to_owned()));
    reach.layers.requires_cluster_id = !allow_untagged;
    reach.layers.dry_run = dry_run;
    reach.calls.dry_run = dry_run;
    manager.dry_run = dry_run;
    manager.start_interval = valid(&args.controller_start_interval, errors).unwrap_or_default();
}

/// Resolves the options of the controllers, and the warnings about them.
fn controllers(
    args: &ControllerArgs,
    selection: &Selection,
    gates: &FeatureGates,
    cluster: &ClusterName,
    errors: &mut ConfigErrors,
) -> (ManagerOptions, Vec<String>) {
    let node = node_options(&args.node, errors);
    let node_lifecycle = node_lifecycle_options(&args.node_lifecycle, errors);
    let service = service_options(&args.service, cluster, errors);
    let network = Network::resolve(&args.network, selection, gates, cluster, errors);
    let options = ManagerOptions {
        node: selection.has(node::NAME).then_some(node),
        node_lifecycle: selection.has(node_lifecycle::NAME).then_some(node_lifecycle),
        service: selection.has(service::NAME).then_some(service),
        node_ipam: network.node_ipam,
        route: network.route,
        provider_loops: (selection.has(provider_loops::NAME) || selection.of_providers().next().is_some())
            .then(|| provider_loops::Options { cluster: cluster.clone() }),
        dry_run: false,
        start_interval: Duration::ZERO,
        shutdown_timeout: SHUTDOWN_TIMEOUT,
    };
    (options, [selection.warnings(), gates.warnings(), network.warnings].concat())
}

fn client_options(args: &ReachArgs, errors: &mut ConfigErrors) -> ClientOptions {
    ClientOptions {
        kubeconfig: args.kubeconfig.clone().filter(|path: &PathBuf| !path.as_os_str().is_empty()),
        master: args.master.clone().filter(|url| !url.is_empty()),
        rate: kube_api_rate(args, errors),
        user: "cloud-controller-manager".to_owned(),
        metrics: None,
        probe: Probe::Nodes,
    }
}

fn kube_api_rate(args: &ReachArgs, errors: &mut ConfigErrors) -> Option<(f64, u32)> {
    let rate = args.kube_api_qps.as_ref().and_then(|rate| valid(rate, errors));
    let burst = args.kube_api_burst.as_ref().and_then(|burst| valid(burst, errors));
    if rate.is_none() && burst.is_none() {
        return None;
    }
    let burst = positive(burst.unwrap_or(KUBE_API_RATE.1), "kube-api-burst", errors);
    Some((rate.unwrap_or(KUBE_API_RATE.0), burst)).filter(|(rate, _)| *rate > 0.0)
}

fn call_policy(args: &CloudCallArgs, errors: &mut ConfigErrors) -> CallPolicy {
    let rate = args.cloud_qps.as_ref().and_then(|rate| valid(rate, errors)).filter(|rate| *rate > 0.0);
    let burst = valid(&args.cloud_burst, errors).unwrap_or(1);
    CallPolicy { rate, burst: positive(burst, "cloud-burst", errors), ..CallPolicy::default() }
}

// upstream: the error messages about concurrency, which users search for and which contain the flag name.
fn node_options(args: &NodeArgs, errors: &mut ConfigErrors) -> node::Options {
    let defaults = node::Options::default();
    let at_once = args.concurrent_node_syncs.as_ref().and_then(|number| valid(number, errors));
    let status = args.concurrent_node_status_updates.as_ref().and_then(|number| valid(number, errors));
    if at_once.is_some_and(|number| number < 1) {
        errors.push(ConfigError::new("concurrent-node-syncs must be a positive number"));
    }
    if status.is_some_and(|number| number < 0) {
        errors.push(ConfigError::new("concurrent-node-status-updates cannot be a negative number"));
    }
    let concurrency = at_once.map_or(defaults.concurrency, size);
    node::Options {
        concurrency,
        status_concurrency: status.filter(|number| *number != 0).map_or(concurrency, size),
        status_period: valid(&args.node_status_update_frequency, errors).unwrap_or(defaults.status_period),
        refresh_labels: valid(&args.refresh_node_labels, errors).unwrap_or_default(),
        addresses: AddressPolicy {
            order: args.node_address_order.as_ref().and_then(|order| valid(order, errors)).unwrap_or_default(),
            networks: args.node_address_cidrs.as_ref().and_then(|cidrs| valid(cidrs, errors)).unwrap_or_default(),
        },
    }
}

fn node_lifecycle_options(args: &NodeLifecycleArgs, errors: &mut ConfigErrors) -> node_lifecycle::Options {
    let defaults = node_lifecycle::Options::default();
    let at_once = args.concurrent_node_lifecycle_syncs.as_ref().and_then(|number| valid(number, errors));
    if let Some(number) = at_once.filter(|number| *number < 1) {
        errors.push(ConfigError::new(format!("concurrent-node-lifecycle-syncs must be at least 1, but got {number}")));
    }
    node_lifecycle::Options {
        monitor_period: valid(&args.node_monitor_period, errors).unwrap_or(defaults.monitor_period),
        concurrency: at_once.map_or(defaults.concurrency, size),
        policy: policy(args, errors).unwrap_or(defaults.policy),
        delete_unclaimed: valid(&args.delete_unclaimed_nodes, errors).unwrap_or(defaults.delete_unclaimed),
    }
}

fn service_options(args: &ServiceArgs, cluster: &ClusterName, errors: &mut ConfigErrors) -> service::Options {
    let defaults = service::Options::default();
    let at_once = args.concurrent_service_syncs.as_ref().and_then(|number| valid(number, errors));
    // upstream: accepts 0 and less, and then does not sync.
    if at_once.is_some_and(|number| number < 1) {
        errors.push(ConfigError::new("concurrent-service-syncs must be a positive number"));
    }
    let default_cloud = args.load_balancer_default_cloud.as_ref().and_then(|name| valid(name, errors));
    service::Options {
        cluster: cluster.clone(),
        concurrency: at_once.map_or(defaults.concurrency, size),
        nodes: valid(&args.load_balancer_nodes, errors).unwrap_or(defaults.nodes),
        drain: valid(&args.load_balancer_drain_period, errors).unwrap_or(defaults.drain),
        gather: valid(&args.load_balancer_node_gather_period, errors).unwrap_or(defaults.gather),
        classes: valid(&args.load_balancer_classes, errors).unwrap_or(defaults.classes),
        default_cloud: default_cloud.map_or(defaults.default_cloud, default_cloud_of),
        refresh: valid(&args.load_balancer_refresh_period, errors).unwrap_or(defaults.refresh),
    }
}

fn default_cloud_of(name: String) -> DefaultCloud {
    if name == "none" { DefaultCloud::None } else { DefaultCloud::Named(name) }
}

/// Resolves the deletion policy; `None` if any of its flags is invalid.
fn policy(args: &NodeLifecycleArgs, errors: &mut ConfigErrors) -> Option<Policy> {
    let defaults = Policy::default();
    let grace = args.node_deletion_grace_period.as_ref().map(|given| valid(given, errors));
    let confirm_after = valid(&args.node_deletion_confirm_period, errors);
    let brake_share = valid(&args.node_deletion_max_share, errors);
    let brake_window = valid(&args.node_deletion_window, errors);
    Some(Policy {
        grace: grace.unwrap_or(Some(defaults.grace))?,
        uninitialized_grace: grace.unwrap_or(Some(defaults.uninitialized_grace))?,
        confirm_after: confirm_after?,
        brake_share: brake_share?,
        brake_window: brake_window?,
    })
}

// ---- values

/// Returns the value, or adds its error to `errors`.
pub fn valid<T: Clone>(given: &Given<T>, errors: &mut ConfigErrors) -> Option<T> {
    match given {
        Ok(value) => Some(value.clone()),
        Err(error) => {
            errors.push(error.clone());
            None
        }
    }
}

/// Splits a comma-separated list flag, which may be repeated (FLAG-2). An empty occurrence has no items.
fn list(parts: &[String]) -> Vec<String> {
    let filled = parts.iter().filter(|part| !part.is_empty());
    filled.flat_map(|part| part.split(',')).map(|item| item.trim().to_owned()).collect()
}

fn positive(number: i32, flag: &str, errors: &mut ConfigErrors) -> u32 {
    if number < 1 {
        errors.push(ConfigError::flag(flag, format!("must be at least 1, but got {number}")));
    }
    u32::try_from(number).unwrap_or(1)
}

fn size(number: i32) -> usize {
    usize::try_from(number).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::AddressType;
    use bowline_core::service::NodeSet;
    use clap::Parser as _;

    /// Resolves these flags and a provider, or returns all errors.
    fn resolve(flags: &[&str]) -> Result<Settings, Vec<String>> {
        let mut argv = vec!["bowline".to_owned(), "--cloud-provider=local".to_owned()];
        argv.extend(flags.iter().map(ToString::to_string));
        let args = crate::cli::Cli::parse_from(argv).manager;
        let mut errors = ConfigErrors::new();
        let settings = Settings::resolve(&args, &mut errors);
        if errors.is_empty() { Ok(settings) } else { Err(errors.iter().map(ToString::to_string).collect()) }
    }

    #[test]
    fn c01_without_flags_the_defaults_apply() {
        let settings = resolve(&[]).unwrap();
        assert_eq!(settings.reach.providers, [ProviderSpec { name: "local".to_owned(), config: None }]);
        assert_eq!(settings.reach.cluster.to_string(), "kubernetes");
        assert_eq!(
            (settings.reach.client.kubeconfig, settings.reach.client.master, settings.reach.client.rate),
            (None, None, None)
        );
        assert_eq!((settings.reach.calls.rate, settings.reach.calls.burst), (None, 20));
        assert_eq!(settings.metrics_listen, None);
        let node = settings.manager.node.unwrap();
        assert_eq!((node.concurrency, node.status_concurrency), (16, 16));
        assert_eq!(node.status_period, Duration::from_secs(300));
        let lifecycle = settings.manager.node_lifecycle.unwrap();
        assert_eq!((lifecycle.concurrency, lifecycle.monitor_period), (16, Duration::from_secs(5)));
        assert_eq!((lifecycle.policy, lifecycle.delete_unclaimed), (Policy::default(), false));
        let service = settings.manager.service.unwrap();
        assert_eq!(format!("{service:?}"), format!("{:?}", service::Options::default()));
        assert!(!settings.manager.dry_run && !settings.reach.layers.dry_run);
    }

    #[test]
    fn c03_c11_only_the_selected_controllers_run() {
        let running = |flags: &[&str]| {
            let manager = resolve(flags).unwrap().manager;
            [manager.node.is_some(), manager.node_lifecycle.is_some(), manager.service.is_some()]
        };
        assert_eq!(running(&["--controllers=cloud-node,service"]), [true, false, true], "C3");
        assert_eq!(running(&["--controllers=cloud-node", "--controllers=service"]), [true, false, true], "FLAG-2");
        assert_eq!(running(&["--controllers="]), [false, false, false], "C11");
    }

    #[test]
    fn c04_node_syncs_and_status_updates_have_their_own_concurrency() {
        let node = resolve(&["--concurrent-node-syncs=1", "--concurrent-node-status-updates=2"]).unwrap().manager.node;
        assert_eq!(node.map(|node| (node.concurrency, node.status_concurrency)), Some((1, 2)));
    }

    #[test]
    fn c13_c14_invalid_concurrency_has_the_error_messages_of_upstream() {
        let error_of = |flag: &str| resolve(&[flag]).unwrap_err().concat();
        for flag in ["--concurrent-node-syncs=0", "--concurrent-node-syncs=-5"] {
            assert_eq!(error_of(flag), "concurrent-node-syncs must be a positive number", "C13");
        }
        let c14 = "concurrent-node-status-updates cannot be a negative number";
        assert_eq!(error_of("--concurrent-node-status-updates=-1"), c14, "C14");
    }

    #[test]
    fn c18_a_provider_is_required() {
        let args = crate::cli::Cli::parse_from(["bowline", "--cloud-provider="]).manager;
        let mut errors = ConfigErrors::new();
        Settings::resolve(&args, &mut errors);
        assert!(errors.to_string().starts_with("--cloud-provider cannot be empty"), "{errors}");
    }

    #[test]
    fn generic_flags_set_their_options() {
        let settings =
            resolve(&["--use-service-account-credentials", "--controller-start-interval=3s", "--allow-untagged-cloud"]);
        let settings = settings.unwrap();
        assert!(settings.own_credentials && !settings.reach.layers.requires_cluster_id);
        assert_eq!(settings.manager.start_interval, Duration::from_secs(3));
        assert!(settings.warnings.iter().any(|warning| warning.starts_with("--allow-untagged-cloud is deprecated")));
        let settings = resolve(&[]).unwrap();
        assert!(!settings.own_credentials && settings.reach.layers.requires_cluster_id);
        assert_eq!(settings.manager.start_interval, Duration::ZERO);
    }

    #[test]
    fn service_flags_set_their_options() {
        let settings = resolve(&[
            "--cluster-name=harbour",
            "--concurrent-service-syncs=6",
            "--load-balancer-nodes=all",
            "--load-balancer-drain-period=0",
            "--load-balancer-node-gather-period=1s",
            "--load-balancer-classes=false",
            "--load-balancer-default-cloud=local",
            "--load-balancer-refresh-period=1h",
            "--dry-run",
        ])
        .unwrap();
        assert!(settings.manager.dry_run && settings.reach.layers.dry_run);
        let service = settings.manager.service.unwrap();
        assert_eq!((service.cluster.as_str(), service.concurrency), ("harbour", 6));
        assert_eq!((service.nodes, service.classes), (NodeSet::All, false));
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        assert_eq!((service.drain, service.gather, service.refresh), (Duration::ZERO, second, hour));
        assert_eq!(service.default_cloud, DefaultCloud::Named("local".to_owned()));
        let none = resolve(&["--load-balancer-default-cloud=none"]).unwrap().manager.service.unwrap();
        assert_eq!(none.default_cloud, DefaultCloud::None);
        assert!(resolve(&["--controllers=*,-service"]).unwrap().manager.service.is_none());
    }

    #[test]
    fn a_dry_run_is_announced_at_startup() {
        let announced =
            |flags: &[&str]| resolve(flags).unwrap().warnings.iter().any(|warning| warning.contains("dry run"));
        assert!(announced(&["--dry-run"]) && !announced(&[]) && !announced(&["--dry-run=false"]));
    }

    #[test]
    fn flags_set_their_options() {
        let settings = resolve(&[
            "--cloud-config=local.yaml",
            "--cluster-name=harbour",
            "--kubeconfig=kc",
            "--master=https://10.0.0.1:6443",
            "--concurrent-node-syncs=3",
            "--concurrent-node-status-updates=4",
            "--node-status-update-frequency=1m30s",
            "--refresh-node-labels",
            "--node-address-order=ExternalIP,InternalIP",
            "--node-address-cidrs=10.0.0.0/8",
            "--concurrent-node-lifecycle-syncs=5",
            "--node-monitor-period=300ms",
            "--node-deletion-grace-period=1m",
            "--node-deletion-confirm-period=0",
            "--node-deletion-max-share=1",
            "--node-deletion-window=1h",
            "--delete-unclaimed-nodes",
            "--kube-api-qps=7.5",
            "--kube-api-burst=8",
            "--cloud-qps=2",
            "--cloud-burst=3",
            "--user-agent=harbour, east",
            "--user-agent=quay",
            "--metrics-listen=127.0.0.1:0",
            "--leader-elect=false",
        ])
        .unwrap();
        assert_eq!(
            settings.reach.providers,
            [ProviderSpec { name: "local".to_owned(), config: Some("local.yaml".into()) }]
        );
        assert_eq!(settings.reach.cluster.to_string(), "harbour");
        assert_eq!(settings.reach.client.kubeconfig, Some("kc".into()));
        assert_eq!(settings.reach.client.master.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(settings.reach.client.rate, Some((7.5, 8)));
        assert_eq!((settings.reach.calls.rate, settings.reach.calls.burst), (Some(2.0), 3));
        assert_eq!(settings.reach.user_agents, ["harbour, east", "quay"]);
        assert_eq!(settings.metrics_listen, Some("127.0.0.1:0".parse().unwrap()));
        let node = settings.manager.node.unwrap();
        assert_eq!((node.concurrency, node.status_concurrency), (3, 4));
        assert_eq!((node.status_period, node.refresh_labels), (Duration::from_secs(90), true));
        let (order, networks) =
            (vec![AddressType::ExternalIP, AddressType::InternalIP], vec!["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(node.addresses, AddressPolicy { order, networks });
        let lifecycle = settings.manager.node_lifecycle.unwrap();
        assert_eq!((lifecycle.concurrency, lifecycle.monitor_period), (5, Duration::from_millis(300)));
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let policy = Policy {
            grace: minute,
            uninitialized_grace: minute,
            confirm_after: Duration::ZERO,
            brake_share: 1.0,
            brake_window: hour,
        };
        assert_eq!((lifecycle.policy, lifecycle.delete_unclaimed), (policy, true));
    }

    #[test]
    fn c04_zero_status_updates_means_the_concurrency_of_node_syncs() {
        let cases: [(&str, &[&str], (usize, usize)); 4] = [
            ("C4", &["--concurrent-node-syncs=1", "--concurrent-node-status-updates=2"], (1, 2)),
            ("0", &["--concurrent-node-syncs=3", "--concurrent-node-status-updates=0"], (3, 3)),
            ("unset", &["--concurrent-node-syncs=3"], (3, 3)),
            ("one of them", &["--concurrent-node-status-updates=2"], (16, 2)),
        ];
        for (case, flags, expected) in cases {
            let node = resolve(flags).unwrap().manager.node.unwrap();
            assert_eq!((node.concurrency, node.status_concurrency), expected, "{case}");
        }
    }

    #[test]
    fn requests_to_the_api_server_are_rate_limited_only_on_request() {
        type Rate = Option<(f64, u32)>;
        let cases: [(&[&str], Rate); 5] = [
            (&[], None),
            (&["--kube-api-qps=5"], Some((5.0, 30))),
            (&["--kube-api-burst=5"], Some((20.0, 5))),
            (&["--kube-api-qps=0"], None),
            (&["--kube-api-qps=-1", "--kube-api-burst=5"], None),
        ];
        for (flags, expected) in cases {
            assert_eq!(resolve(flags).unwrap().reach.client.rate, expected, "{flags:?}");
        }
    }

    #[test]
    fn invalid_values_have_searchable_error_messages() {
        let cases = [
            ("C13", "--concurrent-node-syncs=0", "concurrent-node-syncs must be a positive number"),
            ("C13", "--concurrent-node-syncs=-5", "concurrent-node-syncs must be a positive number"),
            (
                "C14",
                "--concurrent-node-status-updates=-1",
                "concurrent-node-status-updates cannot be a negative number",
            ),
            (
                "F16",
                "--concurrent-node-lifecycle-syncs=0",
                "concurrent-node-lifecycle-syncs must be at least 1, but got 0",
            ),
            (
                "F16",
                "--concurrent-node-lifecycle-syncs=-5",
                "concurrent-node-lifecycle-syncs must be at least 1, but got -5",
            ),
            ("SVC-4", "--concurrent-service-syncs=0", "concurrent-service-syncs must be a positive number"),
            ("", "--load-balancer-nodes=some", "expected initialized or all"),
            ("", "--load-balancer-default-cloud=", "must not be empty"),
            ("", "--dry-run=perhaps", "expected true or false"),
            ("C18", "--cloud-provider=", "--cloud-provider cannot be empty"),
            ("C9", "--controllers=red-controller", "\"red-controller\" is not in the list of known controllers"),
            (
                "",
                "--concurrent-node-syncs=many",
                "--concurrent-node-syncs: invalid value \"many\": expected a whole number",
            ),
            ("", "--node-monitor-period=1d", "unknown unit \"d\"; write 24h"),
            ("", "--node-monitor-period=-1s", "must not be negative"),
            ("", "--node-monitor-period=0", "must be greater than 0"),
            ("", "--node-status-update-frequency=0s", "must be greater than 0"),
            ("", "--node-deletion-max-share=34", "from 0 to 1"),
            ("", "--leader-elect=maybe", "expected true or false"),
            ("", "--kube-api-burst=0", "--kube-api-burst: must be at least 1, but got 0"),
            ("", "--cloud-burst=-1", "--cloud-burst: must be at least 1, but got -1"),
            ("", "--cloud-qps=NaN", "expected a number"),
            ("", "--cluster-name=", "must not be empty"),
            ("", "--metrics-listen=0.0.0.0:80", "expected a loopback address"),
        ];
        for (case, flag, expected) in cases {
            // `resolve` would add a provider.
            let args = ["bowline", flag].into_iter().chain((case != "C18").then_some("--cloud-provider=local"));
            let mut errors = ConfigErrors::new();
            Settings::resolve(&crate::cli::Cli::parse_from(args).manager, &mut errors);
            assert_eq!(errors.iter().count(), 1, "{flag}: {errors}");
            assert!(errors.to_string().contains(expected), "{flag} should say {expected:?}: {errors}");
        }
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let flags =
            ["--node-monitor-period=1d", "--concurrent-node-syncs=0", "--controllers=sail", "--cloud-config=harbour=x"];
        let errors = resolve(&flags).unwrap_err();
        assert_eq!(errors.len(), 3, "{errors:#?}");
    }

    #[test]
    fn the_last_value_of_a_flag_wins_and_lists_accumulate() {
        let settings =
            resolve(&["--cluster-name=a", "--cluster-name=b", "--controllers=cloud-node", "--controllers=-service"]);
        let settings = settings.unwrap();
        assert_eq!(settings.reach.cluster.to_string(), "b");
        assert!(settings.manager.node.is_some() && settings.manager.node_lifecycle.is_none());
        let none = resolve(&["--controllers="]).unwrap().manager;
        assert!(none.node.is_none() && none.node_lifecycle.is_none(), "C11");
    }
}
