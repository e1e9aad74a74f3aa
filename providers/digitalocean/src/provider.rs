//! The provider: name, capabilities and construction.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bowline_cloud::{
    Absence, BuildContext, BuildInputs, Calls, Capabilities, CheckResult, CloudProvider, Endpoint, EndpointPurpose,
    Factory, Facts, InstanceCapabilities, Instances, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers,
    ProviderInfo, ProviderLoop, Quota, Reference, Result, Webhook,
};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::annotations::{INTERNAL, ProxyProtocol};
use bowline_core::{ClusterName, IpFamily};
use bowline_http::{Api, Bearer};

use crate::admission::LoadBalancerReview;
use crate::api::{Client, PAGE, TIMEOUT};
use crate::config::Config;
use crate::firewall::FirewallLoop;
use crate::load_balancers::{LoadBalancerType, Network};
use crate::metrics::{METRICS, Metrics};
use crate::tags::TagLoop;

/// Value of `--cloud-provider`, and prefix of provider IDs.
pub(crate) const NAME: &str = "digitalocean";

/// Component of Events, as in the Go manager.
const EVENT_COMPONENT: &str = "digitalocean-cloud-controller-manager";

/// Address of the metadata service on a Droplet.
const METADATA: &str = "http://169.254.169.254";

/// Pages for `docs/reference`.
const REFERENCES: &[Reference] = &[
    Reference { topic: "config", page: crate::config::reference },
    Reference { topic: "annotations", page: crate::load_balancers::annotation_reference },
];

/// A DigitalOcean account. Cheap to clone.
#[derive(Clone)]
pub struct DigitalOcean {
    info: Arc<ProviderInfo>,
    capabilities: Arc<Capabilities>,
    pub(crate) config: Arc<Config>,
    pub(crate) client: Client,
    pub(crate) metadata: Api,
    pub(crate) calls: Calls,
    pub(crate) cluster: ClusterName,
    /// Region of the load balancers, known after the start.
    region: Arc<OnceLock<String>>,
    loops: Vec<Arc<dyn ProviderLoop>>,
}

/// Returns a factory. All its providers share their metrics.
pub fn factory() -> Factory {
    let metrics = Metrics::new();
    let build = move |context: &BuildContext<'_>| -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> {
        let config = Config::read(context)?;
        let http = bowline_http::Client::from_environment(context.environment, TIMEOUT)?;
        metrics.register(context.metrics);
        Ok(Arc::new(DigitalOcean::new(config, http, context, &metrics)?))
    };
    Factory {
        environment: crate::config::environment,
        default_flags: &["authentication-skip-lookup=true"],
        capabilities: || capabilities(LoadBalancerType::default(), true),
        metrics: METRICS,
        references: REFERENCES,
        ..Factory::new(NAME, "DigitalOcean Droplets and load balancers", crate::config::template, build)
    }
}

impl DigitalOcean {
    /// Creates a provider that calls through `http` without limits, retries and metrics. Makes no call.
    pub fn over(
        config: Config,
        http: bowline_http::Client,
        cluster: &ClusterName,
    ) -> std::result::Result<DigitalOcean, ConfigErrors> {
        DigitalOcean::new(config, http, &BuildInputs::default().context(None, cluster), &Metrics::new())
    }

    fn new(
        config: Config,
        http: bowline_http::Client,
        context: &BuildContext<'_>,
        metrics: &Metrics,
    ) -> std::result::Result<DigitalOcean, ConfigErrors> {
        let token = Bearer::new(&config.keys.token);
        let token = token
            .map_err(|error| ConfigError::new(error.to_string()).field("DO_ACCESS_TOKEN").hint("remove line breaks"))?;
        let calls = config.keys.rate_limit.map_or(context.calls.clone(), |rate| context.calls.with_rate(rate, 1));
        let metadata = Api::new(http.clone(), context.calls, "metadata").base(METADATA);
        let client = Client::new(http, &calls, &config.keys.url, token, context.user_agents)?;
        let tags = config.cluster_tag().map(|tag| TagLoop { client: client.clone(), tag });
        let tags = tags.map(|tags| Arc::new(tags) as Arc<dyn ProviderLoop>);
        let firewall = config.firewall.clone().map(|firewall| {
            Arc::new(FirewallLoop::new(client.clone(), firewall, config.default_type, metrics.clone()))
                as Arc<dyn ProviderLoop>
        });
        Ok(DigitalOcean {
            info: Arc::new(ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] }),
            capabilities: Arc::new(capabilities(config.default_type, config.cluster_tag().is_some())),
            client,
            metadata,
            calls,
            cluster: context.cluster.clone(),
            region: Arc::default(),
            loops: tags.into_iter().chain(firewall).collect(),
            config: Arc::new(config),
        })
    }

    /// Returns the region of the load balancers; empty before the start.
    pub(crate) fn region(&self) -> &str {
        self.region.get().map(String::as_str).unwrap_or_default()
    }

    /// Sets the region. It does not change until the provider is rebuilt.
    pub(crate) fn set_region(&self, region: &str) {
        let _ = self.region.set(region.to_owned());
    }
}

/// Returns the capabilities. Load balancers can be retained only if they have the tag of the cluster, which is removed then.
fn capabilities(default: LoadBalancerType, has_tag: bool) -> Capabilities {
    let instances = InstanceCapabilities {
        batch_lookup: 1,
        list_page: Some(PAGE),
        numbered_pages: true,
        // Droplets with a GPU are not listed, and a page may miss one that has moved.
        absence: Absence::Question,
        max_parallel: 8,
        lookup_by_name: true,
        unique_ids: true,
        shutdown_state: true,
        ..InstanceCapabilities::default()
    };
    let types = match default {
        LoadBalancerType::Regional => [default, LoadBalancerType::RegionalNetwork],
        LoadBalancerType::RegionalNetwork => [default, LoadBalancerType::Regional],
    };
    let kinds = types.into_iter().flat_map(|of| [(of, Network::External), (of, Network::Internal)]);
    let kinds = kinds.map(|(of, network)| kind(of, network, default, has_tag)).collect();
    let load_balancers = LoadBalancerCapabilities { marks_uid: true, batch_observe: PAGE, fixed_kind: true, kinds };
    Capabilities { instances: Some(instances), load_balancers: Some(load_balancers), routes: None }
}

/// Returns the name of a kind of load balancers.
pub(crate) fn kind_name(kind: LoadBalancerType, network: Network) -> &'static str {
    match (kind, network) {
        (LoadBalancerType::Regional, Network::External) => "regional",
        (LoadBalancerType::Regional, Network::Internal) => "regional-internal",
        (LoadBalancerType::RegionalNetwork, Network::External) => "regional-network",
        (LoadBalancerType::RegionalNetwork, Network::Internal) => "regional-network-internal",
    }
}

const TYPE: &str = "service.beta.kubernetes.io/do-loadbalancer-type";
const REGIONAL: &[(&str, &str)] = &[(TYPE, "REGIONAL"), (INTERNAL.key, "true")];
const REGIONAL_NETWORK: &[(&str, &str)] = &[(TYPE, "REGIONAL_NETWORK"), (INTERNAL.key, "true")];

/// Returns the annotations that request a kind: the type unless it is the default, and the network unless it is external.
fn requested_by(
    kind: LoadBalancerType,
    network: Network,
    default: LoadBalancerType,
) -> &'static [(&'static str, &'static str)] {
    let both = if kind == LoadBalancerType::Regional { REGIONAL } else { REGIONAL_NETWORK };
    let range = usize::from(kind == default)..1 + usize::from(network == Network::Internal);
    both.get(range).unwrap_or_default()
}

fn kind(kind: LoadBalancerType, network: Network, default: LoadBalancerType, has_tag: bool) -> LoadBalancerKind {
    let is_proxy = kind == LoadBalancerType::Regional;
    // The others have IPv6 only if every Node has.
    let is_dual = is_proxy && network == Network::External;
    LoadBalancerKind {
        name: kind_name(kind, network),
        requested_by: requested_by(kind, network, default),
        tcp: true,
        udp: true,
        mixed_protocols: true,
        source_ranges: true,
        local_traffic_policy: true,
        proxy_protocol: if is_proxy { vec![ProxyProtocol::V1] } else { Vec::new() },
        internal: network == Network::Internal,
        idle_timeout: is_proxy,
        health_check_settings: true,
        adoption: true,
        retention: has_tag,
        // Packets that are passed through keep the port of the Service.
        without_node_ports: !is_proxy,
        // upstream: no load balancer is created or changed without a Node.
        needs_targets: true,
        ip_families: if is_dual { vec![IpFamily::IPv4, IpFamily::IPv6] } else { vec![IpFamily::IPv4] },
        dual_stack: is_dual,
        checks_spec: true,
        ..LoadBalancerKind::default()
    }
}

#[async_trait]
impl CloudProvider for DigitalOcean {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        self.loops.clone()
    }

    fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        vec![Arc::new(LoadBalancerReview { cloud: self.clone() })]
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let keys = &self.config.keys;
        let addresses =
            [(&keys.debug_address, EndpointPurpose::Health), (&keys.metrics_address, EndpointPurpose::Metrics)];
        Endpoint::configured(addresses)
    }

    fn files(&self) -> Vec<PathBuf> {
        Some(self.config.keys.token_file.clone()).filter(|file| !file.as_os_str().is_empty()).into_iter().collect()
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    fn event_component(&self) -> Option<&'static str> {
        Some(EVENT_COMPONENT)
    }

    async fn start(&self) -> Result<Facts> {
        self.start_up().await
    }

    async fn check(&self) -> Result<()> {
        self.client.account().await.map(drop)
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.diagnose_all().await
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        self.limits().await
    }
}
