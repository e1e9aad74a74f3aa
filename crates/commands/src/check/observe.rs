//! Looks at everything that a check decides on. What cannot be seen is a part of the view, and ends nothing.

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

use super::observed::{Manager, Observed, Review, SeenCloud, Sighted};
use crate::permissions::{self, Surroundings};

/// How many questions about rights are asked at once.
const REVIEWS_AT_ONCE: usize = 8;

pub(super) async fn observe(args: &ManagerArgs, registry: &Arc<Registry>) -> Observed {
    let mut errors = ConfigErrors::new();
    let mut settings = Settings::resolve(args, &mut errors);
    // A person waits for the report: a failed call is in it, and is not repeated.
    settings.reach.calls.max_attempts = 1;
    settings.reach.calls.dry_run = true;
    let clouds = Looked::build(&settings, args, registry, &mut errors);
    reach::narrow(&mut settings.manager, &clouds.providers);
    let access = open(&settings, &mut errors).await;
    let mut observed = Observed { manager: manager(args, &settings, &clouds), ..Observed::default() };
    if let Some(access) = &access {
        secrets::read(&clouds.clouds, &access.client()).await;
    }
    observed.clouds = clouds.check().await;
    if let Some(access) = access {
        cluster(&Preflight::new(access), &settings, &lease(args), &clouds, &mut observed).await;
    }
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

/// What the API server has to say.
async fn cluster(
    preflight: &Preflight,
    settings: &Settings,
    own_lease: &LeaseOptions,
    clouds: &Looked,
    observed: &mut Observed,
) {
    let server = preflight.server().await;
    let is_reached = server.is_ok();
    observed.server = Some(server);
    if !is_reached {
        return;
    }
    observed.reviews = reviews(preflight, settings, &clouds.providers).await;
    observed.nodes = Some(match preflight.nodes().await {
        Ok(nodes) => Ok(clouds.sightings(nodes).await),
        Err(unseen) => Err(unseen),
    });
    if settings.manager.service.is_some() {
        observed.services = Some(preflight.load_balancer_services().await);
    }
    leases(preflight, own_lease, observed).await;
}

/// Asks about every right that the manager would use, under the name that it would use it under.
async fn reviews(preflight: &Preflight, settings: &Settings, providers: &[Arc<dyn CloudProvider>]) -> Vec<Review> {
    let asked = permissions::of_everybody(&settings.manager, &Surroundings::of(settings, providers));
    let asked = asked.into_iter().flat_map(|(who, permission)| {
        let verbs = permission.verbs;
        verbs.iter().map(move |verb| (who, permission.clone(), *verb))
    });
    let review = |(who, permission, verb): (Option<&'static str>, Permission, &'static str)| async move {
        let allowed = match who {
            None => preflight.may(&permission, verb).await,
            Some(name) => preflight.controller_may(name, &permission, verb).await,
        };
        Review { who, permission, verb, allowed }
    };
    stream::iter(asked).map(review).buffered(REVIEWS_AT_ONCE).collect().await
}

/// The lease that leads, whether or not this manager takes part.
fn lease(args: &ManagerArgs) -> LeaseOptions {
    let (namespace, name) = (&args.election.leader_elect_resource_namespace, &args.election.leader_elect_resource_name);
    LeaseOptions { namespace: namespace.clone(), name: name.clone(), ..LeaseOptions::default() }
}

/// All leases where managers have theirs; where that is forbidden, at least our own.
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

fn manager(args: &ManagerArgs, settings: &Settings, clouds: &Looked) -> Manager {
    let service = settings.manager.service.as_ref();
    let balancing = clouds.clouds.iter().filter(|cloud| cloud.has_load_balancers());
    let classes = balancing.map(|cloud| format!("bowline.dev/{}", cloud.name())).collect();
    Manager {
        elects: settings.election.is_some(),
        lease: lease(args).name,
        classes: if service.is_some_and(|service| service.classes) { classes } else { Vec::new() },
        takes_classless: service.is_some_and(|service| service.default_cloud != DefaultCloud::None),
        now: None,
    }
}

/// The clouds, as far as they could be made.
struct Looked {
    providers: Vec<Arc<dyn CloudProvider>>,
    clouds: Clouds,
}

impl Looked {
    fn build(settings: &Settings, args: &ManagerArgs, registry: &Arc<Registry>, errors: &mut ConfigErrors) -> Looked {
        let reach = &settings.reach;
        let metrics = prometheus::Registry::new();
        let surroundings = || reach.surroundings(&metrics);
        let built = providers::build(&reach.providers, &reach.cluster, surroundings, registry, errors);
        let providers: Vec<_> = built.into_iter().map(|provider| provider as Arc<dyn CloudProvider>).collect();
        reach::check(&providers, reach, &settings.manager, &args.controllers.network, errors);
        // Nothing here applies anything; if something did, the layers would not let it through.
        let layers = LayerOptions { dry_run: true, ..reach.layers.clone() };
        let clouds = Clouds::around(providers.clone(), &layers, &prometheus::Registry::new());
        Looked { providers, clouds }
    }

    async fn check(&self) -> Vec<SeenCloud> {
        let mut seen = Vec::new();
        for (provider, cloud) in self.providers.iter().zip(self.clouds.iter()) {
            let (findings, quotas) = futures::future::join(provider.examine(), provider.quotas()).await;
            seen.push(SeenCloud { name: cloud.name().to_string(), findings, quotas });
        }
        seen
    }

    /// Without clouds there is nothing to be said of nodes.
    async fn sightings(&self, nodes: Vec<SeenNode>) -> Vec<Sighted> {
        if self.providers.is_empty() {
            return nodes.into_iter().map(|node| (node, None)).collect();
        }
        let asked: Vec<_> = nodes.iter().map(asked_about).collect();
        let answers = self.clouds.observe_all(&asked, Freshness::Now).await;
        nodes.into_iter().zip(answers.into_iter().map(Some)).collect()
    }
}

fn asked_about(node: &SeenNode) -> InstanceRef {
    InstanceRef {
        node: node.name.as_str().into(),
        provider_id: node.provider_id.clone(),
        system_uuid: node.system_uuid.clone(),
    }
}
