//! Options of a simulated cloud.

use std::time::Duration;

use bowline_simulator::Work;

use crate::wire::Service;

/// Options of a simulated cloud. The default has no latency and all services in the catalog.
#[derive(Debug, Clone)]
pub struct Options {
    /// Latency of every call.
    pub latency: Duration,
    /// Duration of Octavia's changes.
    pub work: Work,
    /// Lifetime of tokens.
    pub token_lifetime: Duration,
    /// Roles of tokens.
    pub roles: Vec<String>,
    /// Service catalog.
    pub catalog: Vec<Endpoint>,
    /// Aliases of the enabled Neutron extensions.
    pub extensions: Vec<String>,
    /// Minor version of the Octavia API: 26 for v2.26.
    pub octavia_minor: u32,
    /// Enabled Octavia providers.
    pub octavia_providers: Vec<String>,
    /// Whether Octavia has one flavor and one availability zone.
    pub octavia_flavors: bool,
    /// Maximum page size of Nova's server list.
    pub servers_per_page: usize,
    /// Maximum page size of Neutron's lists; `None` returns everything unless the request has a limit.
    pub records_per_page: Option<usize>,
    /// Whether the project sees the subnets of external networks, which many clouds only show to administrators.
    pub external_subnets_visible: bool,
    /// Whether the project may choose the address of a floating IP, which most clouds only allow administrators.
    pub floating_address_choice: bool,
    /// Quotas of the project, by the services' own names: `floatingip`, `port`, `security_group`, `security_group_rule` in
    /// Neutron, and `routes` of a router; `load_balancer`, `listener`, `pool`, `member`, `health_monitor` in Octavia. Default:
    /// unlimited.
    pub quotas: Vec<(String, u64)>,
    /// Whether the server closes the connection after each response, as uWSGI does.
    pub close_connections: bool,
}

/// An endpoint in the service catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Service type.
    pub kind: String,
    /// `public`, `internal` or `admin`.
    pub interface: String,
    /// Name of the region.
    pub region: String,
    /// ID of the region, nearly always the same as the name.
    pub region_id: String,
    /// Path relative to the simulator's root, or a complete URL.
    pub url: String,
}

impl Endpoint {
    /// Creates an endpoint with this path or URL.
    pub fn new(kind: &str, interface: &str, region: &str, url: &str) -> Endpoint {
        let [kind, interface, region, url] = [kind, interface, region, url].map(str::to_owned);
        Endpoint { kind, interface, region_id: region.clone(), region, url }
    }
}

/// Region of the default catalog.
pub const REGION: &str = "RegionOne";

impl Default for Options {
    fn default() -> Options {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Options {
            latency: Duration::ZERO,
            work: Work::Instantly,
            token_lifetime: Duration::from_secs(3600),
            roles: texts(&["member", "creator", "load-balancer_member", "reader"]),
            catalog: catalog(REGION),
            extensions: texts(&[
                "allowed-address-pairs",
                "external-net",
                "extraroute",
                "extraroute-atomic",
                "port-security",
                "router",
                "security-group",
                "standard-attr-revisions",
                "standard-attr-tag",
                "trunk-details",
            ]),
            octavia_minor: 26,
            octavia_providers: texts(&["amphora", "ovn"]),
            octavia_flavors: true,
            servers_per_page: 1000,
            records_per_page: None,
            external_subnets_visible: true,
            floating_address_choice: false,
            quotas: Vec::new(),
            close_connections: false,
        }
    }
}

/// Catalog with all services in this region, on every interface.
pub fn catalog(region: &str) -> Vec<Endpoint> {
    let of = |service: Service| {
        let path = match service {
            Service::Compute => "compute/v2.1".to_owned(),
            other => other.kind().to_owned(),
        };
        ["admin", "internal", "public"].map(|interface| Endpoint::new(service.kind(), interface, region, &path))
    };
    Service::ALL.into_iter().flat_map(of).collect()
}
