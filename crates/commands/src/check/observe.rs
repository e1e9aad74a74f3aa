//! Reads all state that a check needs. A failed read is recorded and does not end the check.

use std::sync::Arc;

use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds, Freshness, Registry};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_controllers::secrets;
use bowline_controllers::service::DefaultCloud;
use bowline_core::InstanceRef;
use bowline_kube::{Access, ConnectError, LeaseOptions, Permission, Preflight, SeenNode};
use bowline_settings::Settings;
use bowline_settings::cli::ManagerArgs;
use bowline_settings::{providers, reach};
use futures::StreamExt as _;
use futures::stream;

use super::observed::{Manager, Observed, ObservedCloud, ObservedNode, Review};
use crate::permissions::{self, BuildInputs};
use crate::plan::counted;
use crate::progress;

/// Maximum number of concurrent access reviews.
const MAX_CONCURRENT_REVIEWS: usize = 8;

pub(super) async fn observe(args: &ManagerArgs, registry: &Arc<Registry>) -> Observed {
    let mut errors = ConfigErrors::new();
    let mut settings = Settings::resolve(args, &mut errors);
    // The check is interactive: it reports a failed call and does not retry it.
    settings.reach.calls.max_attempts = 1;
    settings.reach.calls.dry_run = true;
    let clouds = CheckedClouds::build(&settings, args, registry, &mut errors);
    reach::narrow(&mut settings.manager, &clouds.providers);
    let access = progress::during("connecting to the API server", open(&settings, &mut errors)).await;
    let mut observed = Observed { manager: manager(args, &settings, &clouds), ..Observed::default() };
    if let Some(access) = &access {
        let client = access.client();
        let secrets = secrets::read(&clouds.clouds, &client);
        progress::during("reading the Secrets of the clouds", secrets).await;
    }
    observed.clouds = clouds.check().await;
    if let Some(access) = access {
        observe_cluster(&Preflight::new(access), &settings, &lease(args), &clouds, &mut observed).await;
    }
    progress::close(&clouds.clouds).await;
    observed.errors = errors.iter().cloned().collect();
    observed
}

async fn open(settings: &Settings, errors: &mut ConfigErrors) -> Option<Access> {
    match Access::open(&settings.reach.client).await {
        Ok(access) => Some(access),
        Err(ConnectError::Config(message)) => {
            errors.push(ConfigError::new(message));
            None
        }
        Err(error) => {
            errors.push(ConfigError::new(bowline_core::with_causes(&error)));
            None
        }
    }
}

/// Reads the state of the cluster from the API server.
async fn observe_cluster(
    preflight: &Preflight,
    settings: &Settings,
    own_lease: &LeaseOptions,
    clouds: &CheckedClouds,
    observed: &mut Observed,
) {
    let server = progress::during("asking the API server for its version", preflight.server()).await;
    let is_reached = server.is_ok();
    observed.server = Some(server);
    if !is_reached {
        return;
    }
    let reviews = reviews(preflight, settings, &clouds.providers);
    observed.reviews = progress::during("reviewing permissions", reviews).await;
    observed.nodes = Some(match progress::during("listing Nodes", preflight.nodes()).await {
        Ok(nodes) => Ok(clouds.observe_machines(nodes).await),
        Err(error) => Err(error),
    });
    if settings.manager.service.is_some() {
        observed.services = Some(progress::during("listing Services", preflight.load_balancer_services()).await);
    }
    progress::during("reading leases", leases(preflight, own_lease, observed)).await;
}

/// Reviews every permission that the manager needs, each for the account that uses it.
async fn reviews(preflight: &Preflight, settings: &Settings, providers: &[Arc<dyn CloudProvider>]) -> Vec<Review> {
    let needed = permissions::of_all_accounts(&settings.manager, &BuildInputs::of(settings, providers));
    let needed = needed.into_iter().flat_map(|(account, permission)| {
        let verbs = permission.verbs;
        verbs.iter().map(move |verb| (account, permission.clone(), *verb))
    });
    let review = |(account, permission, verb): (Option<&'static str>, Permission, &'static str)| async move {
        let allowed = match account {
            None => preflight.may(&permission, verb).await,
            Some(name) => preflight.controller_may(name, &permission, verb).await,
        };
        Review { account, permission, verb, allowed }
    };
    stream::iter(needed).map(review).buffered(MAX_CONCURRENT_REVIEWS).collect().await
}

/// The lease of the leader, whether or not this manager takes part in the election.
fn lease(args: &ManagerArgs) -> LeaseOptions {
    let (namespace, name) = (&args.election.leader_elect_resource_namespace, &args.election.leader_elect_resource_name);
    LeaseOptions { namespace: namespace.clone(), name: name.clone(), ..LeaseOptions::default() }
}

/// Reads all leases in the namespaces that managers use; if that is forbidden, at least our own.
async fn leases(preflight: &Preflight, own: &LeaseOptions, observed: &mut Observed) {
    let usual = LeaseOptions::default().namespace;
    let mut leases = preflight.leases(&own.namespace).await;
    if own.namespace != usual {
        leases = match (leases, preflight.leases(&usual).await) {
            (Ok(own), Ok(others)) => Ok(own.into_iter().chain(others).collect()),
            (own, others) => own.and(others),
        };
    }
    if leases.is_err() {
        observed.own_lease = preflight.lease(&own.namespace, &own.name).await.ok().flatten();
    }
    observed.leases = Some(leases);
    observed.manager.now = Some(jiff::Timestamp::now());
}

fn manager(args: &ManagerArgs, settings: &Settings, clouds: &CheckedClouds) -> Manager {
    let service = settings.manager.service.as_ref();
    let with_load_balancers = clouds.clouds.iter().filter(|cloud| cloud.has_load_balancers());
    let classes = with_load_balancers.map(|cloud| format!("bowline.dev/{}", cloud.name())).collect();
    Manager {
        elects: settings.election.is_some(),
        lease: lease(args).name,
        classes: if service.is_some_and(|service| service.classes) { classes } else { Vec::new() },
        takes_classless: service.is_some_and(|service| service.default_cloud != DefaultCloud::None),
        now: None,
    }
}

/// Providers with a valid configuration.
struct CheckedClouds {
    providers: Vec<Arc<dyn CloudProvider>>,
    clouds: Clouds,
}

impl CheckedClouds {
    fn build(
        settings: &Settings,
        args: &ManagerArgs,
        registry: &Arc<Registry>,
        errors: &mut ConfigErrors,
    ) -> CheckedClouds {
        let reach = &settings.reach;
        let metrics = prometheus::Registry::new();
        let surroundings = || reach.build_inputs(&metrics);
        let built = providers::build(&reach.providers, &reach.cluster, surroundings, registry, errors);
        let providers: Vec<_> = built.into_iter().map(|provider| provider as Arc<dyn CloudProvider>).collect();
        reach::check(&providers, reach, &settings.manager, &args.controllers.network, errors);
        // A check applies no steps; dry-run layers guarantee it.
        let layers = LayerOptions { dry_run: true, ..reach.layers.clone() };
        let clouds = Clouds::with_layers(providers.clone(), &layers, &prometheus::Registry::new());
        CheckedClouds { providers, clouds }
    }

    async fn check(&self) -> Vec<ObservedCloud> {
        let mut observed = Vec::new();
        for (provider, cloud) in self.providers.iter().zip(self.clouds.iter()) {
            let checks = futures::future::join(provider.diagnose(), provider.quotas());
            let (mut results, quotas) = progress::in_cloud(cloud.name(), "checking calls and quotas", checks).await;
            // The responses to the checks have the latest numbers.
            results.extend(provider.calls().map(|calls| calls.check_budgets()).unwrap_or_default());
            observed.push(ObservedCloud { name: cloud.name().to_string(), results, quotas });
        }
        observed
    }

    /// Looks up the machine of each Node; without clouds there are none.
    async fn observe_machines(&self, nodes: Vec<SeenNode>) -> Vec<ObservedNode> {
        if self.providers.is_empty() {
            return nodes.into_iter().map(|node| (node, None)).collect();
        }
        let refs: Vec<_> = nodes.iter().map(instance_ref).collect();
        let what = format!("looking up the machines of {}", counted(refs.len(), "Node"));
        let machines = progress::during(what, self.clouds.observe_all(&refs, Freshness::Now)).await;
        nodes.into_iter().zip(machines.into_iter().map(Some)).collect()
    }
}

fn instance_ref(node: &SeenNode) -> InstanceRef {
    InstanceRef {
        node: node.name.as_str().into(),
        provider_id: node.provider_id.clone(),
        system_uuid: node.system_uuid.clone(),
    }
}
