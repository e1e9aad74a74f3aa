//! The way to a cluster and its clouds: for the manager, and for the commands that look once.

use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds, InstanceCapabilities, Registry};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::service::Routing;
use bowline_kube::{Access, Cluster, ConnectError, WriteError};

use crate::BadInput;
use crate::cli::NetworkArgs;
use crate::credentials::Credentials;
use crate::providers;
use crate::settings::Reach;

/// UID of the cluster; `None` if the user may not read it.
pub async fn cluster_uid(cluster: &Cluster) -> anyhow::Result<Option<String>> {
    match cluster.uid().await {
        Err(WriteError::Rejected { .. }) => Ok(None),
        uid => uid.context("cannot read the UID of the cluster"),
    }
}

/// Providers and a client, none of which has called anybody yet.
pub struct Reached {
    /// In the order of the flag.
    pub providers: Vec<Arc<dyn CloudProvider>>,
    /// Client of the API server.
    pub client: kube::Client,
    /// Where the client leads.
    pub access: Access,
    /// What all of them are made from.
    pub credentials: Credentials,
}

impl Reached {
    /// Makes them, unless there are problems: those from before, those that are found here, and those that `check` has with
    /// the providers, all told at once.
    ///
    /// What providers count themselves goes to `metrics`.
    pub async fn new(
        reach: &Reach,
        registry: &Arc<Registry>,
        metrics: &prometheus::Registry,
        mut errors: ConfigErrors,
        check: impl FnOnce(&[Arc<dyn CloudProvider>], &mut ConfigErrors),
    ) -> anyhow::Result<Reached> {
        let surroundings = || reach.surroundings(metrics);
        let reloading = providers::build(&reach.providers, &reach.cluster, surroundings, registry, &mut errors);
        let providers: Vec<_> = reloading.iter().map(|provider| provider.clone() as Arc<dyn CloudProvider>).collect();
        check(&providers, &mut errors);
        let access = match Access::open(&reach.client).await {
            Ok(access) => Some(access),
            Err(ConnectError::Config(message)) => {
                errors.push(ConfigError::new(message));
                None
            }
            Err(error) if errors.is_empty() => return Err(error.into()),
            Err(_) => None,
        };
        match access {
            Some(access) if errors.is_empty() => {
                let credentials = Credentials::new(&access, &reloading);
                Ok(Reached { providers, client: access.client(), access, credentials })
            }
            _ => Err(BadInput::from(errors).into()),
        }
    }
}

/// What the controllers are to do is what these clouds can do. `flags` are those that `options` came from.
pub fn check(
    providers: &[Arc<dyn CloudProvider>],
    reach: &Reach,
    options: &ManagerOptions,
    flags: &NetworkArgs,
    errors: &mut ConfigErrors,
) {
    check_network(providers, options, flags, errors);
    if providers.len() == reach.providers.len() {
        check_routing(providers, options, errors);
    }
}

/// Switches off controllers that have nothing to do with these providers, so that no permission is asked for them.
pub fn narrow(options: &mut ManagerOptions, providers: &[Arc<dyn CloudProvider>]) {
    options.provider_loops.take_if(|_| providers.iter().all(|provider| provider.loops().is_empty()));
}

/// Pod ranges and routes are what these clouds can do (ROUTE-1, IPAM-4).
fn check_network(
    providers: &[Arc<dyn CloudProvider>],
    options: &ManagerOptions,
    flags: &NetworkArgs,
    errors: &mut ConfigErrors,
) {
    if options.route.as_ref().is_some_and(|route| route.ranges.is_empty()) {
        let with_routes = providers.iter().find(|provider| provider.capabilities().routes.is_some());
        with_routes.into_iter().for_each(|provider| errors.push(no_ranges_to_lead_to(&provider.info().name)));
    }
    if let Some(ipam) = &options.node_ipam
        && let Err(problem) = check_allocator(providers, ipam.allocator, &flags.node_ipam.cidr_allocator_type)
    {
        errors.push(problem);
    }
}

/// Without the range of the pods, nobody can tell which routes are the cluster's (R24).
fn no_ranges_to_lead_to(cloud: &str) -> ConfigError {
    ConfigError::flag("cluster-cidr", format!("it is not given, and the cloud {cloud} has routes to see to"))
        .hint("set --cluster-cidr=<range of the pods>, such as 10.244.0.0/16, or --configure-cloud-routes=false")
}

/// Where the cloud has a say in pod ranges, each cloud with machines must have it.
fn check_allocator(
    providers: &[Arc<dyn CloudProvider>],
    allocator: AllocatorType,
    text: &str,
) -> Result<(), ConfigError> {
    let can = |can: &InstanceCapabilities| match allocator {
        AllocatorType::Range => true,
        AllocatorType::FromCloud => can.pod_ranges,
        AllocatorType::FromCluster => can.assign_pod_ranges,
    };
    let with_machines = providers.iter().filter_map(|provider| {
        let instances = provider.capabilities().instances.as_ref()?;
        Some((&provider.info().name, instances))
    });
    match with_machines.filter(|(_, instances)| !can(instances)).map(|(name, _)| name.as_str()).next() {
        None => Ok(()),
        Some(cloud) => {
            // upstream: these words.
            let message = format!("invalid CIDR allocator type: {text}");
            let hint = format!("the cloud {cloud} does not do that; set --cidr-allocator-type=RangeAllocator");
            Err(ConfigError::flag("cidr-allocator-type", message).hint(hint))
        }
    }
}

/// Who takes Services without a class is a cloud that is there. Which names there are is known only when all of the clouds
/// could be made: two of one kind get names that tell them apart.
fn check_routing(providers: &[Arc<dyn CloudProvider>], options: &ManagerOptions, errors: &mut ConfigErrors) {
    let Some(service) = &options.service else { return };
    let clouds = Clouds::around(providers.to_vec(), &LayerOptions::default(), &prometheus::Registry::new());
    if let Err(error) = Routing::new(&clouds, &service.default_cloud, service.classes) {
        errors.push(ConfigError::flag("load-balancer-default-cloud", error.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_cloud::{Capabilities, ProviderInfo, RouteCapabilities};
    use clap::Parser as _;

    use crate::idle::Idle;
    use crate::settings::Settings;

    fn able(
        name: &str,
        instances: Option<InstanceCapabilities>,
        routes: Option<RouteCapabilities>,
    ) -> Arc<dyn CloudProvider> {
        let info = ProviderInfo { name: name.to_owned(), id_prefixes: Vec::new() };
        Arc::new(Idle(info, Capabilities { instances, routes, ..Capabilities::default() }))
    }

    /// What these clouds make wrong with these flags.
    fn checked(providers: &[Arc<dyn CloudProvider>], flags: &[&str]) -> Vec<String> {
        let args = crate::cli::Cli::parse_from(["bowline", "--cloud-provider=local"].iter().chain(flags)).manager;
        let mut errors = ConfigErrors::new();
        let settings = Settings::resolve(&args, &mut errors);
        let reach = Reach { providers: vec![settings.reach.providers[0].clone(); providers.len()], ..settings.reach };
        check(providers, &reach, &settings.manager, &args.controllers.network, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn r24_a_cloud_with_routes_needs_to_know_where_pods_live() {
        let with = able("harbour", None, Some(RouteCapabilities::default()));
        let without = able("quay", Some(InstanceCapabilities::default()), None);
        let both = [without.clone(), with.clone(), able("pier", None, Some(RouteCapabilities::default()))];
        let expected = "--cluster-cidr: it is not given, and the cloud harbour has routes to see to; set \
                        --cluster-cidr=<range of the pods>, such as 10.244.0.0/16, or --configure-cloud-routes=false";
        assert_eq!(checked(&both, &[]), [expected]);
        assert_eq!(checked(&both, &["--cluster-cidr= "]), [expected]);
        let content: [&[&str]; 4] = [
            &["--cluster-cidr=10.244.0.0/16"],
            &["--configure-cloud-routes=false"],
            &["--controllers=*,-route"],
            &["--controllers=cloud-node"],
        ];
        for flags in content {
            assert_eq!(checked(&both, flags), [""; 0], "{flags:?}");
        }
        assert_eq!(checked(&[without], &[]), [""; 0]);
        assert_eq!(
            checked(&[with], &["--cluster-cidr=10.0.0.0"]).len(),
            1,
            "a range that is wrong is not missing, too"
        );
    }

    #[test]
    fn i23_an_allocator_of_the_cloud_needs_clouds_that_have_one() {
        let machines = |pod_ranges, assign_pod_ranges| {
            Some(InstanceCapabilities { pod_ranges, assign_pod_ranges, ..InstanceCapabilities::default() })
        };
        let plain = || able("plain", machines(false, false), None);
        let tells = || able("tells", machines(true, false), None);
        let takes = || able("takes", machines(true, true), None);
        let balances = || able("balances", None, None);
        let cases = [
            ("RangeAllocator", vec![plain()], None),
            ("CloudAllocator", vec![tells(), balances()], None),
            ("IPAMFromCloud", vec![takes(), tells()], None),
            ("IPAMFromCluster", vec![takes()], None),
            ("CloudAllocator", vec![plain()], Some("plain")),
            ("IPAMFromCloud", vec![tells(), plain()], Some("plain")),
            ("IPAMFromCluster", vec![takes(), tells()], Some("tells")),
        ];
        for (text, providers, lacking) in cases {
            let flag = format!("--cidr-allocator-type={text}");
            let errors = checked(&providers, &["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", &flag]);
            let problem = |cloud| {
                format!(
                    "--cidr-allocator-type: invalid CIDR allocator type: {text}; the cloud {cloud} does not do that; \
                     set --cidr-allocator-type=RangeAllocator"
                )
            };
            assert_eq!(errors, lacking.map(problem).into_iter().collect::<Vec<_>>(), "{text}");
            assert_eq!(checked(&providers, &[&flag]), [""; 0], "{text} decides nothing unless ranges are handed out");
        }
    }

    /// What the clouds cannot do is told beside what is wrong with the flags.
    #[test]
    fn flags_that_are_wrong_do_not_hide_what_a_cloud_lacks() {
        let machines = InstanceCapabilities::default();
        let cloud = || able("harbour", Some(machines.clone()), Some(RouteCapabilities::default()));
        let cases: [(&[&str], &[&str]); 3] = [
            (&["--route-deletion-max-share=2"], &["from 0 to 1", "--cluster-cidr: it is not given, and the cloud"]),
            (
                &["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", "--node-cidr-mask-size=-1"],
                &[
                    "-1 is no length",
                    "--cluster-cidr: it is not given, and --allocate",
                    "the cloud harbour does not do",
                ],
            ),
            (
                &["--cluster-cidr=x", "--load-balancer-default-cloud=moon"],
                &["invalid CIDR[0]", "--load-balancer-default-cloud: there is no cloud \"moon\""],
            ),
        ];
        for (flags, expected) in cases {
            let errors = checked(&[cloud()], flags);
            assert_eq!(errors.len(), expected.len(), "{errors:#?}");
            assert!(errors.iter().zip(expected).all(|(problem, part)| problem.contains(part)), "{errors:#?}");
        }
    }
}
