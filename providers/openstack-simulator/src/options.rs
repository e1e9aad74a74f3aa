//! How a simulated cloud is set up.

use std::time::Duration;

use bowline_simulator::Work;

use crate::wire::Service;

/// How a simulated cloud is set up. The default has one project with a network, a router and an external network, answers
/// at once, and has all services in the catalog.
#[derive(Debug, Clone)]
pub struct Options {
    /// What every call takes.
    pub latency: Duration,
    /// How long Octavia works on a change.
    pub work: Work,
    /// How long a token is valid.
    pub token_lifetime: Duration,
    /// The roles in a token.
    pub roles: Vec<String>,
    /// The catalog.
    pub catalog: Vec<Endpoint>,
    /// Aliases of Neutron's extensions.
    pub extensions: Vec<String>,
    /// Octavia's newest minor version: 26 for v2.26.
    pub octavia_minor: u32,
    /// The providers that Octavia knows.
    pub octavia_providers: Vec<String>,
    /// Whether Octavia has a flavor and an availability zone, one of each.
    pub octavia_choices: bool,
    /// How many servers one page of Nova holds at most.
    pub servers_per_page: usize,
    /// How many records one page of Neutron holds at most; `None` gives all unless asked for fewer.
    pub records_per_page: Option<usize>,
    /// Whether a project sees the subnets of external networks, which often are the administrator's alone.
    pub external_subnets_visible: bool,
    /// Whether a project may choose the address of a floating IP, which most clouds leave to administrators.
    pub floating_address_choice: bool,
    /// The most of each kind that the project may have, by the services' own names: `floatingip`, `port`,
    /// `security_group`, `security_group_rule` in Neutron, and `routes` of a router; `load_balancer`, `listener`, `pool`, `member`,
    /// `health_monitor` in Octavia. What is not named has no limit.
    pub quotas: Vec<(String, u64)>,
    /// Whether a connection is closed after each answer, as behind uWSGI.
    pub close_connections: bool,
}

/// An endpoint of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// What kind of service, in the catalog's word.
    pub kind: String,
    /// `public`, `internal` or `admin`.
    pub interface: String,
    /// The region's name.
    pub region: String,
    /// The region's ID; the same as the name nearly everywhere.
    pub region_id: String,
    /// Where it is below the simulator's root, or a whole URL.
    pub url: String,
}

impl Endpoint {
    /// One in this region, at this path or URL.
    pub fn new(kind: &str, interface: &str, region: &str, url: &str) -> Endpoint {
        let [kind, interface, region, url] = [kind, interface, region, url].map(str::to_owned);
        Endpoint { kind, interface, region_id: region.clone(), region, url }
    }
}

/// The region of the default catalog.
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
            octavia_choices: true,
            servers_per_page: 1000,
            records_per_page: None,
            external_subnets_visible: true,
            floating_address_choice: false,
            quotas: Vec::new(),
            close_connections: false,
        }
    }
}

/// All services in this region, at every interface.
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
