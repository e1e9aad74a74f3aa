//! Endpoints from Keystone's service catalog.

use serde::{Deserialize, Serialize};

use crate::api::record;

/// A service of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Nova.
    Compute,
    /// Neutron.
    Network,
    /// Octavia resources.
    LoadBalancer,
    /// Octavia root, above all versions.
    LoadBalancerRoot,
    /// Barbican.
    KeyManager,
}

/// Selection of an endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// `public`, `internal` or `admin`; empty is `public`.
    pub(crate) interface: String,
    /// Empty for any.
    pub(crate) region: String,
}

/// Service catalog.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Catalog(Vec<Entry>);

record! {
    /// A service of the catalog.
    Entry { kind: String = "type", endpoints: Vec<Endpoint>, }

    /// An endpoint of a service.
    Endpoint { interface: String, region: String, region_id: String, url: String, }
}

impl Service {
    /// All services, in this order.
    pub(crate) const ALL: [Service; 5] =
        [Service::Compute, Service::Network, Service::LoadBalancer, Service::LoadBalancerRoot, Service::KeyManager];

    /// Returns its type in the catalog.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Service::Compute => "compute",
            Service::Network => "network",
            Service::LoadBalancer | Service::LoadBalancerRoot => "load-balancer",
            Service::KeyManager => "key-manager",
        }
    }

    /// Returns the base URL of its resources. The URL of the catalog may have a version.
    fn base(self, url: &str) -> String {
        let url = format!("{}/", url.trim().trim_end_matches('/'));
        match self {
            Service::Compute => url,
            Service::Network => format!("{}v2.0/", without_version(&url, "v2.0/")),
            Service::LoadBalancer => format!("{}v2.0/lbaas/", octavia_root(&url)),
            Service::LoadBalancerRoot => octavia_root(&url),
            Service::KeyManager => format!("{}v1/", without_version(&url, "v1/")),
        }
    }
}

/// Octavia serves `v2` and `v2.0`, and catalogs have either, even followed by `lbaas`.
fn octavia_root(url: &str) -> String {
    let url = without_version(url, "lbaas/");
    without_version(without_version(url, "v2.0/"), "v2/").to_owned()
}

/// Removes this last path segment, if present.
fn without_version<'a>(url: &'a str, version: &str) -> &'a str {
    url.strip_suffix(version).filter(|rest| rest.ends_with('/')).unwrap_or(url)
}

impl Choice {
    fn interface(&self) -> &str {
        if self.interface.is_empty() { "public" } else { &self.interface }
    }

    fn matches(&self, endpoint: &Endpoint) -> bool {
        let is_here = self.region.is_empty() || endpoint.region == self.region || endpoint.region_id == self.region;
        is_here && endpoint.interface == self.interface() && !endpoint.url.is_empty()
    }
}

impl Catalog {
    /// Returns the first matching endpoint, or an error that lists the existing ones.
    pub(crate) fn endpoint(&self, service: Service, choice: &Choice) -> Result<String, String> {
        let found = self.of(service).find(|endpoint| choice.matches(endpoint));
        found.map(|endpoint| service.base(&endpoint.url)).ok_or_else(|| self.missing(service, choice))
    }

    fn of(&self, service: Service) -> impl Iterator<Item = &Endpoint> {
        self.0.iter().filter(move |entry| entry.kind == service.kind()).flat_map(|entry| &entry.endpoints)
    }

    fn missing(&self, service: Service, choice: &Choice) -> String {
        let (kind, interface) = (service.kind(), choice.interface());
        let place = if choice.region.is_empty() { String::new() } else { format!(" in region {:?}", choice.region) };
        let there: Vec<_> = self.of(service).map(Endpoint::description).collect();
        let instead = if there.is_empty() {
            let mut kinds: Vec<_> = self.0.iter().map(|entry| entry.kind.as_str()).collect();
            kinds.sort_unstable();
            let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
            format!("the catalog has the services {kinds}")
        } else {
            format!("available: {}", there.join(", "))
        };
        format!("Keystone's catalog has no {interface} endpoint of type {kind:?}{place}; {instead}")
    }
}

impl Endpoint {
    fn description(&self) -> String {
        let region = if self.region.is_empty() { &self.region_id } else { &self.region };
        format!("{} in region {region:?}", self.interface)
    }
}
