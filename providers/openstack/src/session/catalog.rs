//! Where the services are, by Keystone's catalog. Pure.

use serde::{Deserialize, Serialize};

use crate::api::record;

/// A service of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Nova.
    Compute,
    /// Neutron.
    Network,
    /// Octavia, its resources.
    LoadBalancer,
    /// Octavia, in front of all versions.
    LoadBalancerRoot,
    /// Barbican.
    KeyManager,
}

/// Which of several endpoints is ours.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// `public`, `internal` or `admin`; empty is `public`.
    pub(crate) interface: String,
    /// Empty if any will do.
    pub(crate) region: String,
}

/// What Keystone lists.
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
    /// All of them, in this order.
    pub(crate) const ALL: [Service; 5] =
        [Service::Compute, Service::Network, Service::LoadBalancer, Service::LoadBalancerRoot, Service::KeyManager];

    /// Its type in the catalog.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Service::Compute => "compute",
            Service::Network => "network",
            Service::LoadBalancer | Service::LoadBalancerRoot => "load-balancer",
            Service::KeyManager => "key-manager",
        }
    }

    /// Where its resources are, under the URL of the catalog, which may have a version in it or not.
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

/// Octavia answers to `v2` as well as to `v2.0`, and either may be in a catalog, even with `lbaas` behind it.
fn octavia_root(url: &str) -> String {
    let url = without_version(url, "lbaas/");
    without_version(without_version(url, "v2.0/"), "v2/").to_owned()
}

/// Without this last segment, if it is one.
fn without_version<'a>(url: &'a str, version: &str) -> &'a str {
    url.strip_suffix(version).filter(|rest| rest.ends_with('/')).unwrap_or(url)
}

impl Choice {
    fn interface(&self) -> &str {
        if self.interface.is_empty() { "public" } else { &self.interface }
    }

    fn takes(&self, endpoint: &Endpoint) -> bool {
        let is_here = self.region.is_empty() || endpoint.region == self.region || endpoint.region_id == self.region;
        is_here && endpoint.interface == self.interface() && !endpoint.url.is_empty()
    }
}

impl Catalog {
    /// The first endpoint that fits; otherwise what there is instead, for a person to choose from.
    pub(crate) fn endpoint(&self, service: Service, choice: &Choice) -> Result<String, String> {
        let found = self.of(service).find(|endpoint| choice.takes(endpoint));
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
            format!("the catalog has the services {}", listed(&kinds))
        } else {
            format!("the catalog has {}", there.join(", "))
        };
        format!("Keystone's catalog has no {interface} endpoint of type {kind:?}{place}; {instead}")
    }
}

fn listed(kinds: &[&str]) -> String {
    if kinds.is_empty() { "none at all".to_owned() } else { kinds.join(", ") }
}

impl Endpoint {
    fn description(&self) -> String {
        let region = if self.region.is_empty() { &self.region_id } else { &self.region };
        format!("one that is {} in region {region:?}", self.interface)
    }
}
