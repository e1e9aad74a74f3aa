//! The provider: name, capabilities and construction.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{
    Absence, BuildContext, Calls, Capabilities, CheckResult, CloudProvider, ConfigLocation, Factory, Facts,
    InstanceCapabilities, Instances, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers, ProviderInfo, Quota,
    Reference, Result, RouteCapabilities, Routes, SyncMetrics,
};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{IpFamily, ProviderId};
use bowline_http::Client;
use http::HeaderValue;

use crate::Config;
use crate::instances::{Flavors, IDS, PAGE};
use crate::load_balancers::LoadBalancerCache;
use crate::metrics::{METRICS, Metrics};
use crate::routes::{FEW_HOPS, RouterCache};
use crate::session::Session;

/// Value of `--cloud-provider`, and prefix of provider IDs.
pub(crate) const NAME: &str = "openstack";

/// Component of Events, as in the Go manager.
const EVENT_COMPONENT: &str = "cloud-provider-openstack";

/// Location of the configuration in deployments of the Go manager.
const PLACE: ConfigLocation = ConfigLocation { secret: "cloud-config", folder: "/etc/config", file: "cloud.conf" };

/// Pages for `docs/reference`.
const REFERENCES: &[Reference] = &[
    Reference { topic: "config", page: crate::config::reference },
    Reference { topic: "annotations", page: crate::load_balancers::annotation_reference },
];

/// An OpenStack cloud.
pub struct OpenStack {
    info: ProviderInfo,
    capabilities: Capabilities,
    pub(crate) config: Config,
    pub(crate) session: Session,
    calls: Calls,
    pub(crate) metrics: Metrics,
    pub(crate) flavors: Flavors,
    pub(crate) router_cache: RouterCache,
    pub(crate) load_balancer_cache: LoadBalancerCache,
}

/// Returns a factory. All its providers share their metrics.
pub fn factory() -> Factory {
    let metrics = Metrics::new();
    let build = move |context: &BuildContext<'_>| -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> {
        let provider = OpenStack::build(context, &metrics)?;
        Ok(Arc::new(provider))
    };
    Factory {
        config_location: Some(PLACE),
        capabilities: all_capabilities,
        metrics: METRICS,
        references: REFERENCES,
        ..Factory::new(NAME, "OpenStack, with Octavia", crate::config::template, build)
    }
}

impl OpenStack {
    /// Creates a provider that calls through `http` without limits, retries and metrics. Makes no call.
    pub fn over(config: Config, http: Client) -> OpenStack {
        OpenStack::past(config, &http, &Calls::default())
    }

    /// Creates a provider that calls through `http` and the call policy `calls`, without metrics of its own.
    pub fn past(config: Config, http: &Client, calls: &Calls) -> OpenStack {
        OpenStack::new(config, http, calls, &[], Metrics::new())
    }

    fn build(context: &BuildContext<'_>, metrics: &Metrics) -> std::result::Result<OpenStack, ConfigErrors> {
        let config = Config::read(context)?;
        let http = crate::transport::client(&config, context.environment);
        let http = http.map_err(|errors| Config::locate(context.config, errors))?;
        if HeaderValue::try_from(user_agent(context.user_agents)).is_err() {
            let message = "it contains characters that are invalid in a header";
            return Err(ConfigError::flag("user-agent", message).hint("remove control characters").into());
        }
        metrics.register(context.metrics);
        Ok(OpenStack::new(config, &http, context.calls, context.user_agents, metrics.clone()))
    }

    /// Creates a provider. Makes no call.
    pub(crate) fn new(
        config: Config,
        http: &Client,
        calls: &Calls,
        user_agents: &[String],
        metrics: Metrics,
    ) -> OpenStack {
        let info = ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] };
        let capabilities = Capabilities {
            instances: Some(instance_capabilities(config.regional)),
            load_balancers: config.load_balancer.enabled.then(|| load_balancer_capabilities(&config)),
            routes: config.router_id.as_ref().map(|_| route_capabilities()),
        };
        let session = Session::new(http, calls, &config.global, &user_agent(user_agents), metrics.clone());
        let load_balancer_cache = LoadBalancerCache::new(&config);
        OpenStack {
            info,
            capabilities,
            config,
            session,
            calls: calls.clone(),
            metrics,
            flavors: Flavors::default(),
            router_cache: RouterCache::default(),
            load_balancer_cache,
        }
    }
}

/// Returns the user agent: those of the flags, the last first, then the program.
// upstream: in this order, and with this name.
fn user_agent(own: &[String]) -> String {
    let program = concat!("openstack-cloud-controller-manager/", env!("CARGO_PKG_VERSION"));
    let library = concat!("bowline/", env!("CARGO_PKG_VERSION"));
    own.iter().rev().map(String::as_str).chain([program, library]).collect::<Vec<_>>().join(" ")
}

fn instance_capabilities(regional: bool) -> InstanceCapabilities {
    InstanceCapabilities {
        // One call for each server, and one for all ports.
        batch_lookup: IDS,
        list_page: Some(PAGE),
        // A page is one call, like a lookup, but takes Nova much longer.
        page_cost: Some(4),
        // Nova lists neither soft-deleted servers nor those of other projects, and its search for a name is a listing. In a cluster
        // of several regions, an unlisted name may be that of a server in another region.
        absence: if regional { Absence::Question } else { Absence::ProofForNames },
        max_parallel: 8,
        lookup_by_name: true,
        unique_ids: true,
        shutdown_state: true,
        zones: true,
        ..InstanceCapabilities::default()
    }
}

fn all_capabilities() -> Capabilities {
    Capabilities {
        instances: Some(instance_capabilities(false)),
        load_balancers: Some(load_balancer_capabilities(&Config::default())),
        routes: Some(route_capabilities()),
    }
}

/// Load balancers with and without a floating IP are two kinds. Octavia names contain the Service, but not its UID.
fn load_balancer_capabilities(config: &Config) -> LoadBalancerCapabilities {
    let external = external_load_balancers();
    let internal = external.to_internal();
    let kinds = match config.load_balancer.internal {
        true => vec![LoadBalancerKind { requested_by: &[], ..internal }],
        false => vec![external, internal],
    };
    LoadBalancerCapabilities { marks_uid: false, batch_observe: 100, fixed_kind: false, kinds }
}

fn external_load_balancers() -> LoadBalancerKind {
    LoadBalancerKind {
        name: "external",
        tcp: true,
        udp: true,
        sctp: true,
        mixed_protocols: true,
        source_ranges: true,
        session_affinity: true,
        local_traffic_policy: true,
        proxy_protocol: vec![ProxyProtocol::V1, ProxyProtocol::V2],
        requested_address: true,
        idle_timeout: true,
        health_check_settings: true,
        adoption: true,
        retention: true,
        without_node_ports: true,
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        first_family: true,
        ..LoadBalancerKind::default()
    }
}

fn route_capabilities() -> RouteCapabilities {
    RouteCapabilities {
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        max_routes: None,
        max_parallel: 8,
        batch: FEW_HOPS,
        marks_cluster_uid: false,
        knows_machines: true,
    }
}

#[async_trait]
impl CloudProvider for OpenStack {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn owns(&self, id: &ProviderId) -> bool {
        crate::instances::owns(id)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.capabilities.load_balancers.as_ref().map(|_| self as &dyn LoadBalancers)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.capabilities.routes.as_ref().map(|_| self as &dyn Routes)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.config.files.clone()
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    fn sync_metrics(&self) -> Option<SyncMetrics> {
        Some(self.metrics.syncs.clone())
    }

    fn event_component(&self) -> Option<&'static str> {
        Some(EVENT_COMPONENT)
    }

    async fn start(&self) -> Result<Facts> {
        self.start_up().await?;
        let region = Some(self.config.global.region.clone()).filter(|region| !region.is_empty());
        // upstream: HasClusterID is always true.
        Ok(Facts { region, cluster_id: Some(NAME.to_owned()), ..Facts::default() })
    }

    async fn check(&self) -> Result<()> {
        self.check_services().await
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.diagnose_all().await
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        self.limits().await
    }
}
