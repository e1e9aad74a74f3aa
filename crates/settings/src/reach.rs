//! Access to the cluster and its clouds, for the manager and the diagnostic commands.

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

/// Reads the UID of the cluster; `None` without permission.
pub async fn cluster_uid(cluster: &Cluster) -> anyhow::Result<Option<String>> {
    match cluster.uid().await {
        Err(WriteError::Rejected { .. }) => Ok(None),
        uid => uid.context("cannot read the UID of the cluster"),
    }
}

/// Providers and a client. None of them has sent a request yet.
pub struct Reached {
    /// Providers in the order of `--cloud-provider`.
    pub providers: Vec<Arc<dyn CloudProvider>>,
    /// Client of the API server.
    pub client: kube::Client,
    /// API server and credentials of the client.
    pub access: Access,
    /// Credentials of the client and the providers.
    pub credentials: Credentials,
}

impl Reached {
    /// Builds providers and client, unless there are errors: the given ones, those found here, and those of `check`, all reported
    /// at once.
    ///
    /// Providers register their own metrics in `metrics`.
    pub async fn new(
        reach: &Reach,
        registry: &Arc<Registry>,
        metrics: &prometheus::Registry,
        mut errors: ConfigErrors,
        check: impl FnOnce(&[Arc<dyn CloudProvider>], &mut ConfigErrors),
    ) -> anyhow::Result<Reached> {
        let build_inputs = || reach.build_inputs(metrics);
        let reloading = providers::build(&reach.providers, &reach.cluster, build_inputs, registry, &mut errors);
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

/// Checks that the clouds support what the controllers need. `flags` are the flags that `options` was resolved from.
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

/// Disables controllers that have no work with these providers, so that they need no permissions.
pub fn narrow(options: &mut ManagerOptions, providers: &[Arc<dyn CloudProvider>]) {
    options.provider_loops.take_if(|_| providers.iter().all(|provider| provider.loops().is_empty()));
}

/// Checks pod CIDR allocation and routes (ROUTE-1, IPAM-4).
fn check_network(
    providers: &[Arc<dyn CloudProvider>],
    options: &ManagerOptions,
    flags: &NetworkArgs,
    errors: &mut ConfigErrors,
) {
    if options.route.as_ref().is_some_and(|route| route.cluster_cidrs.is_empty()) {
        let with_routes = providers.iter().find(|provider| provider.capabilities().routes.is_some());
        with_routes.into_iter().for_each(|provider| errors.push(missing_cluster_cidr(&provider.info().name)));
    }
    if let Some(ipam) = &options.node_ipam
        && let Err(error) = check_allocator(providers, ipam.allocator, &flags.node_ipam.cidr_allocator_type)
    {
        errors.push(error);
    }
}

/// Error without `--cluster-cidr`, which determines the routes that belong to the cluster (R24).
fn missing_cluster_cidr(cloud: &str) -> ConfigError {
    ConfigError::flag("cluster-cidr", format!("required, because the cloud {cloud} has routes"))
        .hint("set --cluster-cidr=<pod network>, such as 10.244.0.0/16, or --configure-cloud-routes=false")
}

/// Checks that each cloud with machines supports the allocator type.
fn check_allocator(
    providers: &[Arc<dyn CloudProvider>],
    allocator: AllocatorType,
    text: &str,
) -> Result<(), ConfigError> {
    let can = |can: &InstanceCapabilities| match allocator {
        AllocatorType::Range => true,
        AllocatorType::FromCloud => can.pod_cidrs,
        AllocatorType::FromCluster => can.assign_pod_cidrs,
    };
    let with_machines = providers.iter().filter_map(|provider| {
        let instances = provider.capabilities().instances.as_ref()?;
        Some((&provider.info().name, instances))
    });
    match with_machines.filter(|(_, instances)| !can(instances)).map(|(name, _)| name.as_str()).next() {
        None => Ok(()),
        Some(cloud) => {
            // upstream: this message.
            let message = format!("invalid CIDR allocator type: {text}");
            let hint = format!("the cloud {cloud} does not support it; set --cidr-allocator-type=RangeAllocator");
            Err(ConfigError::flag("cidr-allocator-type", message).hint(hint))
        }
    }
}

/// Checks that the default cloud for Services exists. This needs all clouds, because two clouds of the same kind get distinct
/// names.
fn check_routing(providers: &[Arc<dyn CloudProvider>], options: &ManagerOptions, errors: &mut ConfigErrors) {
    let Some(service) = &options.service else { return };
    let clouds = Clouds::with_layers(providers.to_vec(), &LayerOptions::default(), &prometheus::Registry::new());
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
        let capabilities = Capabilities { instances, routes, ..Capabilities::default() };
        Arc::new(Idle { info, capabilities, ..Idle::default() })
    }

    /// Returns the errors of these flags with these clouds.
    fn checked(providers: &[Arc<dyn CloudProvider>], flags: &[&str]) -> Vec<String> {
        let args = crate::cli::Cli::parse_from(["bowline", "--cloud-provider=local"].iter().chain(flags)).manager;
        let mut errors = ConfigErrors::new();
        let settings = Settings::resolve(&args, &mut errors);
        let reach = Reach { providers: vec![settings.reach.providers[0].clone(); providers.len()], ..settings.reach };
        check(providers, &reach, &settings.manager, &args.controllers.network, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn r24_a_cloud_with_routes_requires_the_cluster_cidr() {
        let with = able("harbour", None, Some(RouteCapabilities::default()));
        let without = able("quay", Some(InstanceCapabilities::default()), None);
        let both = [without.clone(), with.clone(), able("pier", None, Some(RouteCapabilities::default()))];
        let expected = "--cluster-cidr: required, because the cloud harbour has routes; set --cluster-cidr=<pod network>, such as \
                        10.244.0.0/16, or --configure-cloud-routes=false";
        assert_eq!(checked(&both, &[]), [expected]);
        assert_eq!(checked(&both, &["--cluster-cidr= "]), [expected]);
        let valid: [&[&str]; 4] = [
            &["--cluster-cidr=10.244.0.0/16"],
            &["--configure-cloud-routes=false"],
            &["--controllers=*,-route"],
            &["--controllers=cloud-node"],
        ];
        for flags in valid {
            assert_eq!(checked(&both, flags), [""; 0], "{flags:?}");
        }
        assert_eq!(checked(&[without], &[]), [""; 0]);
        assert_eq!(
            checked(&[with], &["--cluster-cidr=10.0.0.0"]).len(),
            1,
            "an invalid CIDR is not reported as missing, too"
        );
    }

    #[test]
    fn i23_a_cloud_allocator_requires_clouds_that_support_it() {
        let machines = |pod_cidrs, assign_pod_cidrs| {
            Some(InstanceCapabilities { pod_cidrs, assign_pod_cidrs, ..InstanceCapabilities::default() })
        };
        let plain = || able("plain", machines(false, false), None);
        let reads = || able("reads", machines(true, false), None);
        let assigns = || able("assigns", machines(true, true), None);
        let load_balances = || able("load-balances", None, None);
        let cases = [
            ("RangeAllocator", vec![plain()], None),
            ("CloudAllocator", vec![reads(), load_balances()], None),
            ("IPAMFromCloud", vec![assigns(), reads()], None),
            ("IPAMFromCluster", vec![assigns()], None),
            ("CloudAllocator", vec![plain()], Some("plain")),
            ("IPAMFromCloud", vec![reads(), plain()], Some("plain")),
            ("IPAMFromCluster", vec![assigns(), reads()], Some("reads")),
        ];
        for (text, providers, lacking) in cases {
            let flag = format!("--cidr-allocator-type={text}");
            let errors = checked(&providers, &["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", &flag]);
            let error = |cloud| {
                format!(
                    "--cidr-allocator-type: invalid CIDR allocator type: {text}; the cloud {cloud} does not support it; \
                     set --cidr-allocator-type=RangeAllocator"
                )
            };
            assert_eq!(errors, lacking.map(error).into_iter().collect::<Vec<_>>(), "{text}");
            assert_eq!(checked(&providers, &[&flag]), [""; 0], "{text} has no effect without --allocate-node-cidrs");
        }
    }

    /// Unsupported features of the clouds are reported together with invalid flags.
    #[test]
    fn invalid_flags_do_not_hide_unsupported_features_of_a_cloud() {
        let machines = InstanceCapabilities::default();
        let cloud = || able("harbour", Some(machines.clone()), Some(RouteCapabilities::default()));
        let cases: [(&[&str], &[&str]); 3] = [
            (&["--route-deletion-max-share=2"], &["from 0 to 1", "--cluster-cidr: required, because the cloud"]),
            (
                &["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", "--node-cidr-mask-size=-1"],
                &[
                    "-1 is not a valid prefix length",
                    "--cluster-cidr: required with --allocate",
                    "the cloud harbour does not support",
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
            assert!(errors.iter().zip(expected).all(|(error, part)| error.contains(part)), "{errors:#?}");
        }
    }
}
