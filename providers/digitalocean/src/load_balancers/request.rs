//! Builds the request for a load balancer from a Service: a pure function of the Service, its Nodes, and what was looked up.
//!
//! ```text
//!  network, type ──► Nodes ──► network stack ──► rules ──► health check ──► everything else ──► Droplets
//! ```
//!
//! The order decides which error users see first, and is that of the Go manager, as are the texts.

use std::collections::{BTreeMap, BTreeSet};

use bowline_core::{DesiredLoadBalancer, LoadBalancerSpec, NodeName, ProviderId, Service, TargetNode, keywords};

use super::annotations::{self as keys, Values};
use super::health_check;
use super::nodes::{EligibleNodes, NodeInfo};
use super::rules;
use crate::api::{LoadBalancer, LoadBalancerFirewall, LoadBalancerRequest, LoadBalancerSettings, StickySessions};
use crate::config::Config;
use crate::instances::droplet_id;

keywords! {
    /// Type of a load balancer: a proxy, or one that passes packets through to the Nodes.
    #[derive(Default)]
    pub(crate) enum LoadBalancerType { Regional = "REGIONAL", #[default] RegionalNetwork = "REGIONAL_NETWORK" }
    /// Network in which the address of a load balancer is reachable.
    pub(crate) enum Network { External = "EXTERNAL", Internal = "INTERNAL" }
    /// IP families of a load balancer.
    pub(crate) enum NetworkStack { Ipv4 = "IPV4", DualStack = "DUALSTACK" }
}

/// Reason why no request can be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BuildError {
    pub(crate) message: String,
    /// Whether only a Node is missing: there is nothing to correct in the Service.
    pub(crate) lacks_nodes: bool,
    /// Whether a warning Event names it, in addition to the Event of the failed sync.
    pub(crate) has_event: bool,
}

/// What the cloud was asked for before the request can be built.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lookups {
    pub(crate) certificate: CertificateLookup,
    /// Droplets of Nodes without a provider ID.
    pub(crate) droplets: BTreeMap<NodeName, u64>,
}

/// Certificate of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CertificateLookup {
    /// The Service names none.
    #[default]
    None,
    /// ID of the certificate.
    Found(String),
    /// DigitalOcean has renewed the certificate of the load balancer; the Service still names the old one.
    Renewed(String),
    /// There is no certificate of this name.
    Missing(String),
}

/// Everything that a request is built from.
pub(crate) struct Inputs<'a> {
    pub(crate) config: &'a Config,
    pub(crate) region: &'a str,
    pub(crate) desired: &'a DesiredLoadBalancer,
    pub(crate) spec: &'a LoadBalancerSpec,
    /// Existing load balancer, whose type, network and network stack cannot change.
    pub(crate) existing: Option<&'a LoadBalancer>,
    pub(crate) lookups: &'a Lookups,
    /// Whether the Nodes are known. An admission review does not know them.
    pub(crate) has_nodes: bool,
}

impl From<String> for BuildError {
    fn from(message: String) -> BuildError {
        BuildError { message, lacks_nodes: false, has_event: false }
    }
}

impl From<&str> for BuildError {
    fn from(message: &str) -> BuildError {
        message.to_owned().into()
    }
}

impl LoadBalancerType {
    /// Returns the type that a Service requests.
    pub(crate) fn requested(values: Values<'_>, default: LoadBalancerType) -> Result<LoadBalancerType, String> {
        LoadBalancerType::of(None, values, default)
    }

    /// Returns the type of an existing load balancer, which cannot change, or the one that a Service requests.
    pub(super) fn of(
        existing: Option<&LoadBalancer>,
        values: Values<'_>,
        default: LoadBalancerType,
    ) -> Result<LoadBalancerType, String> {
        let existing = existing.map(|existing| existing.settings.kind.as_str()).filter(|kind| !kind.is_empty());
        let kind = existing.or(values.text(&keys::TYPE)).map_or(Some(default), LoadBalancerType::parse);
        kind.ok_or_else(|| "only LB types supported are (REGIONAL, REGIONAL_NETWORK)".to_owned())
    }
}

impl Network {
    /// Returns the network that a Service requests. `is_internal` is the common setting.
    pub(crate) fn requested(values: Values<'_>, is_internal: bool) -> Result<Network, String> {
        let default = if is_internal { Network::Internal } else { Network::External };
        let network = values.text(&keys::NETWORK).map_or(Some(default), Network::parse);
        network.ok_or_else(|| "only LB networks supported are (EXTERNAL, INTERNAL)".to_owned())
    }
}

impl CertificateLookup {
    /// Returns the ID of the certificate, if the Service names one.
    pub(crate) fn id(&self) -> Result<Option<&str>, String> {
        match self {
            CertificateLookup::None => Ok(None),
            CertificateLookup::Found(id) | CertificateLookup::Renewed(id) => Ok(Some(id)),
            CertificateLookup::Missing(name) => Err(format!("certificate with name: {name:?} not found")),
        }
    }
}

/// Returns the name of a Service's load balancer that has no name of its own: `a` and the UID without dashes, 32 characters.
pub(crate) fn legacy_name(uid: &str) -> String {
    format!("a{}", uid.replace('-', "")).chars().take(32).collect()
}

impl Inputs<'_> {
    fn values(&self) -> Values<'_> {
        Values(&self.desired.annotations)
    }

    /// Builds the request.
    pub(crate) fn build(&self) -> Result<LoadBalancerRequest, BuildError> {
        let (values, settings) = (self.values(), &*self.desired.settings);
        // An existing load balancer keeps these three; requests for others are errors of the plan.
        let existing = self.existing.map(|existing| &existing.settings);
        let requested = Network::requested(values, settings.internal)?;
        let network = existing.and_then(|existing| Network::parse(&existing.network)).unwrap_or(requested);
        let kind = LoadBalancerType::of(self.existing, values, self.config.default_type)?;
        let nodes = EligibleNodes::of(self.targets(), kind, network)?;
        let requested = nodes.network_stack(values.text(&keys::NETWORK_STACK), kind, network)?;
        let stack = existing.and_then(|existing| NetworkStack::parse(&existing.network_stack)).unwrap_or(requested);
        let forwarding_rules = rules::build(values, kind, &self.spec.ports, &self.lookups.certificate)?;
        let health_check = health_check::build(values, settings, self.spec, &self.service_name())?;
        let sticky_sessions = sticky_sessions(values)?;
        let (size, size_unit) = size(values)?;
        let settings = LoadBalancerSettings {
            name: names(self.desired).swap_remove(0),
            algorithm: algorithm(values).to_owned(),
            size,
            size_unit,
            kind: kind.as_str().to_owned(),
            forwarding_rules,
            health_check,
            sticky_sessions,
            redirect_http_to_https: keys::flag(values, &keys::REDIRECT_HTTP_TO_HTTPS, "HTTP-to-HTTPS")?,
            enable_proxy_protocol: self.proxy_protocol()?,
            enable_backend_keepalive: keys::flag(values, &keys::ENABLE_BACKEND_KEEPALIVE, "backend keepalive")?,
            disable_lets_encrypt_dns_records: keys::flag(
                values,
                &keys::DISABLE_LETS_ENCRYPT_DNS_RECORDS,
                "disable lets encrypt dns records",
            )?,
            http_idle_timeout_seconds: self.idle_timeout()?,
            firewall: firewall(values, self.spec),
            droplet_ids: self.droplet_ids(&nodes.nodes)?,
            tags: self.config.cluster_tag().into_iter().collect(),
            vpc_uuid: self.config.keys.vpc_id.clone(),
            subnet_uuid: values.text(&keys::SUBNET_UUID).unwrap_or_default().trim().to_owned(),
            network: network.as_str().to_owned(),
            network_stack: stack.as_str().to_owned(),
        };
        Ok(LoadBalancerRequest { region: self.region.to_owned(), ip: self.address(), validate_only: false, settings })
    }

    fn service_name(&self) -> String {
        format!("{}/{}", self.desired.key.namespace, self.desired.key.service)
    }

    /// Targets of the load balancer. A draining target is omitted, because load balancers cannot drain.
    fn targets(&self) -> Option<Vec<NodeInfo<'_>>> {
        let targets = self.spec.targets.iter().filter(|target| !target.draining);
        self.has_nodes.then(|| targets.map(NodeInfo::of).collect())
    }

    fn proxy_protocol(&self) -> Result<bool, String> {
        let own = keys::flag(self.values(), &keys::ENABLE_PROXY_PROTOCOL, "proxy protocol")?;
        let is_annotated = self.desired.annotations.contains_key(keys::ENABLE_PROXY_PROTOCOL.key);
        Ok(if is_annotated { own } else { self.desired.settings.proxy_protocol.is_some() })
    }

    fn idle_timeout(&self) -> Result<Option<u64>, String> {
        let own = self.values().get_or(&keys::HTTP_IDLE_TIMEOUT_SECONDS, |text, why| {
            format!("failed to parse provided LB HTTP idle timeout seconds value '{text}': {why}")
        })?;
        Ok(own.or(self.desired.settings.idle_timeout.map(|timeout| timeout.as_secs())))
    }

    /// Address of a new load balancer. It cannot be changed later.
    fn address(&self) -> String {
        let address =
            self.values().text(&keys::IP).map(str::trim).filter(|_| self.existing.is_none() && self.has_nodes);
        address.unwrap_or_default().to_owned()
    }

    fn droplet_ids(&self, nodes: &[&TargetNode]) -> Result<Vec<u64>, String> {
        let parsed = |id: &ProviderId| {
            droplet_id(id)
                .map_err(|error| format!("failed to parse provider ID {:?}: {}", id.as_str(), error.message()))
        };
        let ids = nodes.iter().filter_map(|node| node.provider_id.as_ref()).map(parsed);
        let looked_up = nodes.iter().filter(|node| node.provider_id.is_none());
        let looked_up = looked_up.filter_map(|node| self.lookups.droplets.get(&node.node)).copied();
        ids.chain(looked_up.map(Ok)).collect()
    }
}

/// Returns the names that a Service's load balancer may have, first the one that it should have. A key without a namespace, which
/// comes from a listing, has the name of the load balancer itself.
pub(crate) fn names(desired: &DesiredLoadBalancer) -> Vec<String> {
    let key = &desired.key;
    if key.namespace.is_empty() {
        return vec![key.service.clone()];
    }
    names_of(&desired.annotations, &key.uid)
}

/// Returns the names that the load balancer of a Service may have.
pub(crate) fn service_names(service: &Service) -> Vec<String> {
    names_of(&service.annotations, &service.uid)
}

fn names_of(annotations: &BTreeMap<String, String>, uid: &str) -> Vec<String> {
    let own = Values(annotations).text(&keys::NAME).map(str::to_owned);
    own.into_iter().chain([legacy_name(uid)]).collect()
}

// upstream: any other value is round_robin.
fn algorithm(values: Values<'_>) -> &'static str {
    match values.text(&keys::ALGORITHM) {
        Some("least_connections") => "least_connections",
        _ => "round_robin",
    }
}

/// Sizes by name, with their number of nodes.
pub(super) const SIZES: [(&str, u64); 3] = [("lb-small", 1), ("lb-medium", 3), ("lb-large", 6)];

fn size(values: Values<'_>) -> Result<(String, u64), String> {
    let slug = values.text(&keys::SIZE_SLUG).unwrap_or_default();
    if !slug.is_empty() && !SIZES.iter().any(|(known, _)| *known == slug) {
        return Err(format!("invalid LB size slug provided: {slug}"));
    }
    let invalid = |text: &str, why: &str| format!("invalid LB size unit {text:?} provided: {why}");
    let unit = match values.get_or(&keys::SIZE_UNIT, invalid)?.unwrap_or_default() {
        unit @ ..0 => return Err(format!("LB size unit must be non-negative. {unit} provided")),
        // upstream: larger values wrap.
        unit => u32::try_from(unit).map_err(|_| invalid(&unit.to_string(), "value out of range"))?,
    };
    if !slug.is_empty() && unit > 0 {
        return Err("only one of LB size slug and size unit can be provided".to_owned());
    }
    Ok((slug.to_owned(), unit.into()))
}

fn sticky_sessions(values: Values<'_>) -> Result<StickySessions, String> {
    if values.text(&keys::STICKY_SESSIONS_TYPE) != Some("cookies") {
        return Ok(StickySessions { kind: "none".to_owned(), ..StickySessions::default() });
    }
    let missing = |what: &str| format!("sticky session cookie {what} not specified, but required");
    let name = values.text(&keys::STICKY_SESSIONS_COOKIE_NAME).ok_or_else(|| missing("name"))?;
    let ttl = values.get(&keys::STICKY_SESSIONS_COOKIE_TTL)?.ok_or_else(|| missing("ttl"))?;
    Ok(StickySessions { kind: "cookies".to_owned(), cookie_name: name.to_owned(), cookie_ttl_seconds: ttl })
}

fn firewall(values: Values<'_>, spec: &LoadBalancerSpec) -> LoadBalancerFirewall {
    let rules = |text: Option<&str>| -> Vec<String> {
        text.map(|text| text.split(',').map(|rule| rule.trim().to_owned()).collect()).unwrap_or_default()
    };
    let mut seen = BTreeSet::new();
    let ranges = spec.source_ranges.iter().map(|range| format!("cidr:{}", range.trunc()));
    let ranges: Vec<String> = ranges.filter(|range| seen.insert(range.clone())).collect();
    let allow = if ranges.is_empty() { rules(values.text(&keys::ALLOW_RULES)) } else { ranges };
    LoadBalancerFirewall { allow, deny: rules(values.text(&keys::DENY_RULES)) }
}
