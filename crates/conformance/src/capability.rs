//! What decides whether a case runs.

use std::fmt;

use bowline_cloud::{Capabilities, InstanceCapabilities, LoadBalancerCapabilities, RouteCapabilities};
use bowline_core::IpFamily;

/// What a provider may have or not have as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Telling what machines there are.
    Instances,
    /// Balancing load.
    LoadBalancers,
    /// Leading pod ranges to machines.
    Routes,
}

/// Something a provider may claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// It tells what machines there are.
    Instances,
    /// It looks up several at once.
    BatchLookup,
    /// It lists them all.
    Listing,
    /// It takes several calls at once.
    Parallel,
    /// It finds a machine by the node's name.
    LookupByName,
    /// It gives no ID twice.
    UniqueIds,
    /// It tells a stopped machine from a running one.
    ShutdownState,
    /// It tells zone and region.
    Zones,
    /// It has further labels for nodes.
    AdditionalLabels,
    /// It has annotations for nodes.
    AdditionalAnnotations,
    /// It leads pod ranges to machines by itself, and tells which.
    PodRanges,
    /// It can be told which pod range to lead to a machine.
    AssignPodRanges,
    /// It balances load.
    LoadBalancers,
    /// TCP ports.
    Tcp,
    /// UDP ports.
    Udp,
    /// SCTP ports.
    Sctp,
    /// Several protocols on one balancer.
    MixedProtocols,
    /// Who may connect can be limited.
    SourceRanges,
    /// Connections of one client can stay together.
    SessionAffinity,
    /// Only nodes with a pod of the Service get traffic.
    LocalTrafficPolicy,
    /// Backends can be told the client's address by the PROXY protocol.
    ProxyProtocol,
    /// The user may choose the address.
    RequestedAddress,
    /// A leaving node keeps its connections for a while.
    Drain,
    /// Several Services may share one address.
    Shared,
    /// Balancers that are reached from inside the cloud's network only.
    Internal,
    /// Silent connections can be closed after a chosen time.
    IdleTimeout,
    /// Path, port and interval of health checks can be chosen.
    HealthCheckSettings,
    /// A balancer that exists can become a Service's.
    Adoption,
    /// A balancer can be left behind without our mark.
    Retention,
    /// Services without node ports.
    WithoutNodePorts,
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
    /// Two families on one balancer.
    DualStack,
    /// A Service that wants two families gets its first one.
    FirstFamily,
    /// Balancers are marked with the UID of their Service.
    UidMarks,
    /// It looks at several balancers at once.
    BatchObserve,
    /// It says how many ports a balancer may have.
    MaxPorts,
    /// It says how many machines a balancer may have.
    MaxTargets,
    /// It leads pod ranges to machines as it is told.
    Routes,
    /// IPv4 pod ranges.
    RouteIpv4,
    /// IPv6 pod ranges.
    RouteIpv6,
    /// It says how many routes a cluster may have.
    MaxRoutes,
    /// It takes several calls about routes at once.
    ParallelRoutes,
    /// It writes several routes at once.
    BatchRoutes,
}

/// What a case asks of a provider before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// The provider claims it.
    Has(Capability),
    /// The provider has its group and does not claim it: what cannot be done has rules, too.
    Lacks(Capability),
}

impl Capability {
    /// All of them.
    pub const ALL: [Capability; 44] = [
        Capability::Instances,
        Capability::BatchLookup,
        Capability::Listing,
        Capability::Parallel,
        Capability::LookupByName,
        Capability::UniqueIds,
        Capability::ShutdownState,
        Capability::Zones,
        Capability::AdditionalLabels,
        Capability::AdditionalAnnotations,
        Capability::PodRanges,
        Capability::AssignPodRanges,
        Capability::LoadBalancers,
        Capability::Tcp,
        Capability::Udp,
        Capability::Sctp,
        Capability::MixedProtocols,
        Capability::SourceRanges,
        Capability::SessionAffinity,
        Capability::LocalTrafficPolicy,
        Capability::ProxyProtocol,
        Capability::RequestedAddress,
        Capability::Drain,
        Capability::Shared,
        Capability::Internal,
        Capability::IdleTimeout,
        Capability::HealthCheckSettings,
        Capability::Adoption,
        Capability::Retention,
        Capability::WithoutNodePorts,
        Capability::Ipv4,
        Capability::Ipv6,
        Capability::DualStack,
        Capability::FirstFamily,
        Capability::UidMarks,
        Capability::BatchObserve,
        Capability::MaxPorts,
        Capability::MaxTargets,
        Capability::Routes,
        Capability::RouteIpv4,
        Capability::RouteIpv6,
        Capability::MaxRoutes,
        Capability::ParallelRoutes,
        Capability::BatchRoutes,
    ];

    /// What it belongs to.
    pub fn group(self) -> Group {
        match self {
            before if before < Capability::LoadBalancers => Group::Instances,
            before if before < Capability::Routes => Group::LoadBalancers,
            _ => Group::Routes,
        }
    }

    /// Whether it is claimed.
    pub fn is_claimed(self, capabilities: &Capabilities) -> bool {
        let machines = capabilities.instances.as_ref().and_then(|numbers| self.of_machines(numbers));
        let balancers = capabilities.load_balancers.as_ref().and_then(|numbers| self.of_balancers(numbers));
        let routes = capabilities.routes.as_ref().and_then(|numbers| self.of_routes(numbers));
        machines.or(balancers).or(routes).unwrap_or(false)
    }

    /// Whether it is in there; `None` if it belongs to another group.
    fn of_machines(self, instances: &InstanceCapabilities) -> Option<bool> {
        Some(match self {
            Capability::Instances => true,
            Capability::BatchLookup => instances.batch_lookup > 1,
            Capability::Listing => instances.list_page.is_some(),
            Capability::Parallel => instances.max_parallel > 1,
            Capability::LookupByName => instances.lookup_by_name,
            Capability::UniqueIds => instances.unique_ids,
            Capability::ShutdownState => instances.shutdown_state,
            Capability::Zones => instances.zones,
            Capability::AdditionalLabels => instances.additional_labels,
            Capability::AdditionalAnnotations => instances.additional_annotations,
            Capability::PodRanges => instances.pod_ranges,
            Capability::AssignPodRanges => instances.assign_pod_ranges,
            _ => return None,
        })
    }

    /// Whether it is in there; `None` if it belongs to another group.
    fn of_balancers(self, balancers: &LoadBalancerCapabilities) -> Option<bool> {
        Some(match self {
            Capability::LoadBalancers => true,
            Capability::Tcp => balancers.tcp,
            Capability::Udp => balancers.udp,
            Capability::Sctp => balancers.sctp,
            Capability::MixedProtocols => balancers.mixed_protocols,
            Capability::SourceRanges => balancers.source_ranges,
            Capability::SessionAffinity => balancers.session_affinity,
            Capability::LocalTrafficPolicy => balancers.local_traffic_policy,
            Capability::ProxyProtocol => balancers.proxy_protocol,
            Capability::RequestedAddress => balancers.requested_address,
            Capability::Drain => balancers.drain,
            Capability::Shared => balancers.shared,
            Capability::Internal => balancers.internal,
            Capability::IdleTimeout => balancers.idle_timeout,
            Capability::HealthCheckSettings => balancers.health_check_settings,
            Capability::Adoption => balancers.adoption,
            Capability::Retention => balancers.retention,
            Capability::WithoutNodePorts => balancers.without_node_ports,
            Capability::Ipv4 => balancers.ip_families.contains(&IpFamily::IPv4),
            Capability::Ipv6 => balancers.ip_families.contains(&IpFamily::IPv6),
            Capability::DualStack => balancers.dual_stack,
            Capability::FirstFamily => balancers.serves_first_family(),
            Capability::UidMarks => balancers.marks_uid,
            Capability::BatchObserve => balancers.batch_observe > 1,
            Capability::MaxPorts => balancers.max_ports.is_some(),
            Capability::MaxTargets => balancers.max_targets.is_some(),
            _ => return None,
        })
    }

    /// Whether it is in there; `None` if it belongs to another group.
    fn of_routes(self, routes: &RouteCapabilities) -> Option<bool> {
        Some(match self {
            Capability::Routes => true,
            Capability::RouteIpv4 => routes.ip_families.contains(&IpFamily::IPv4),
            Capability::RouteIpv6 => routes.ip_families.contains(&IpFamily::IPv6),
            Capability::MaxRoutes => routes.max_routes.is_some(),
            Capability::ParallelRoutes => routes.max_parallel > 1,
            Capability::BatchRoutes => routes.batch > 1,
            _ => return None,
        })
    }
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 3] = [Group::Instances, Group::LoadBalancers, Group::Routes];

    /// Whether the provider has it at all.
    pub fn is_claimed(self, capabilities: &Capabilities) -> bool {
        match self {
            Group::Instances => capabilities.instances.is_some(),
            Group::LoadBalancers => capabilities.load_balancers.is_some(),
            Group::Routes => capabilities.routes.is_some(),
        }
    }
}

impl Need {
    /// Whether a case that needs this runs.
    pub fn is_met(self, capabilities: &Capabilities) -> bool {
        match self {
            Need::Has(capability) => capability.is_claimed(capabilities),
            Need::Lacks(capability) => {
                capability.group().is_claimed(capabilities) && !capability.is_claimed(capabilities)
            }
        }
    }

    /// What it is about.
    pub fn group(self) -> Group {
        match self {
            Need::Has(capability) | Need::Lacks(capability) => capability.group(),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::Instances => "instances",
            Capability::BatchLookup => "batch lookup",
            Capability::Listing => "listing",
            Capability::Parallel => "parallel calls",
            Capability::LookupByName => "lookup by name",
            Capability::UniqueIds => "unique IDs",
            Capability::ShutdownState => "shutdown state",
            Capability::Zones => "zones",
            Capability::AdditionalLabels => "additional labels",
            Capability::AdditionalAnnotations => "additional annotations",
            Capability::PodRanges => "pod ranges",
            Capability::AssignPodRanges => "assignment of pod ranges",
            Capability::LoadBalancers => "load balancers",
            Capability::Tcp => "TCP",
            Capability::Udp => "UDP",
            Capability::Sctp => "SCTP",
            Capability::MixedProtocols => "mixed protocols",
            Capability::SourceRanges => "source ranges",
            Capability::SessionAffinity => "session affinity",
            Capability::LocalTrafficPolicy => "local traffic policy",
            Capability::ProxyProtocol => "PROXY protocol",
            Capability::RequestedAddress => "requested address",
            Capability::Drain => "draining",
            Capability::Shared => "sharing",
            Capability::Internal => "internal balancers",
            Capability::IdleTimeout => "idle timeout",
            Capability::HealthCheckSettings => "health check settings",
            Capability::Adoption => "adoption",
            Capability::Retention => "retention",
            Capability::WithoutNodePorts => "balancing without node ports",
            Capability::Ipv4 => "IPv4",
            Capability::Ipv6 => "IPv6",
            Capability::DualStack => "dual stack",
            Capability::FirstFamily => "first of two families",
            Capability::UidMarks => "marks with the UID",
            Capability::BatchObserve => "batch observation",
            Capability::MaxPorts => "limit of ports",
            Capability::MaxTargets => "limit of targets",
            Capability::Routes => "routes",
            Capability::RouteIpv4 => "IPv4 routes",
            Capability::RouteIpv6 => "IPv6 routes",
            Capability::MaxRoutes => "limit of routes",
            Capability::ParallelRoutes => "parallel calls about routes",
            Capability::BatchRoutes => "batches of routes",
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Group::Instances => "instances",
            Group::LoadBalancers => "load balancers",
            Group::Routes => "routes",
        })
    }
}

/// Why a case with this need does not run.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Has(capability) => write!(f, "no {capability}"),
            Need::Lacks(capability) => write!(f, "has {capability}"),
        }
    }
}
