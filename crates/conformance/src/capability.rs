//! Capabilities that decide whether a case runs.

use std::fmt;

use bowline_cloud::{
    Capabilities, InstanceCapabilities, LoadBalancerCapabilities, LoadBalancerKind, RouteCapabilities,
};
use bowline_core::IpFamily;

/// Group of capabilities that a provider claims as a whole or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Machine lookups.
    Instances,
    /// Load balancers.
    LoadBalancers,
    /// Routes.
    Routes,
}

/// Declares the capabilities: their group, the struct that claims them, and for each its name and the check whether it is claimed.
macro_rules! capabilities {
    ($($group:ident in $claims:ident { $($name:ident: $text:literal = $is_claimed:expr;)+ })+) => {
        /// A capability that a provider may claim.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Capability {
            $($(#[doc = $text] $name,)+)+
        }

        impl Capability {
            /// All capabilities.
            pub const ALL: &[Capability] = &[$($(Capability::$name),+),+];

            /// Group of the capability.
            pub fn group(self) -> Group {
                match self {
                    $($(Capability::$name)|+ => Group::$group,)+
                }
            }

            /// Whether it is claimed; for a capability of load balancers, by this kind.
            pub(crate) fn is_claimed_with(self, capabilities: &Capabilities, kind: Option<&LoadBalancerKind>) -> bool {
                let claims = Claims { capabilities, kind };
                match self {
                    $($(Capability::$name => {
                        let is_claimed: fn(&$claims) -> bool = $is_claimed;
                        AsClaims::<$claims>::claims(&claims).is_some_and(is_claimed)
                    })+)+
                }
            }
        }

        impl fmt::Display for Capability {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($(Capability::$name => $text,)+)+
                })
            }
        }
    };
}

capabilities! {
    Instances in InstanceCapabilities {
        Instances: "instances" = |_| true;
        BatchLookup: "batch lookup" = |all| all.batch_lookup > 1;
        Listing: "listing" = |all| all.list_page.is_some();
        Parallel: "parallel calls" = |all| all.max_parallel > 1;
        LookupByName: "lookup by name" = |all| all.lookup_by_name;
        UniqueIds: "unique IDs" = |all| all.unique_ids;
        ShutdownState: "shutdown state" = |all| all.shutdown_state;
        Zones: "zones" = |all| all.zones;
        AdditionalLabels: "additional labels" = |all| all.additional_labels;
        AdditionalAnnotations: "additional annotations" = |all| all.additional_annotations;
        PodCidrs: "pod CIDRs" = |all| all.pod_cidrs;
        AssignPodCidrs: "pod CIDR assignment" = |all| all.assign_pod_cidrs;
    }
    LoadBalancers in LoadBalancerCapabilities {
        LoadBalancers: "load balancers" = |_| true;
        UidMarks: "UID marks" = |all| all.marks_uid;
        BatchObserve: "batch observation" = |all| all.batch_observe > 1;
        Kinds: "multiple load balancer kinds" = |all| all.kinds.len() > 1;
        FixedKind: "fixed load balancer kinds" = |all| all.fixed_kind;
    }
    LoadBalancers in LoadBalancerKind {
        Tcp: "TCP" = |kind| kind.tcp;
        Udp: "UDP" = |kind| kind.udp;
        Sctp: "SCTP" = |kind| kind.sctp;
        MixedProtocols: "mixed protocols" = |kind| kind.mixed_protocols;
        SourceRanges: "source ranges" = |kind| kind.source_ranges;
        SessionAffinity: "session affinity" = |kind| kind.session_affinity;
        LocalTrafficPolicy: "local traffic policy" = |kind| kind.local_traffic_policy;
        ProxyProtocol: "PROXY protocol" = |kind| !kind.proxy_protocol.is_empty();
        RequestedAddress: "requested address" = |kind| kind.requested_address;
        Drain: "draining" = |kind| kind.drain;
        Shared: "sharing" = |kind| kind.shared;
        Internal: "internal load balancers" = |kind| kind.internal;
        IdleTimeout: "idle timeout" = |kind| kind.idle_timeout;
        HealthCheckSettings: "health check settings" = |kind| kind.health_check_settings;
        Adoption: "adoption" = |kind| kind.adoption;
        Retention: "retention" = |kind| kind.retention;
        WithoutNodePorts: "Services without node ports" = |kind| kind.without_node_ports;
        Ipv4: "IPv4" = |kind| kind.ip_families.contains(&IpFamily::IPv4);
        Ipv6: "IPv6" = |kind| kind.ip_families.contains(&IpFamily::IPv6);
        DualStack: "dual stack" = |kind| kind.dual_stack;
        FirstFamily: "first of two IP families" = |kind| kind.serves_first_family();
        MaxPorts: "port limit" = |kind| kind.max_ports.is_some();
        MaxTargets: "target limit" = |kind| kind.max_targets.is_some();
    }
    Routes in RouteCapabilities {
        Routes: "routes" = |_| true;
        RouteIpv4: "IPv4 routes" = |all| all.ip_families.contains(&IpFamily::IPv4);
        RouteIpv6: "IPv6 routes" = |all| all.ip_families.contains(&IpFamily::IPv6);
        MaxRoutes: "route limit" = |all| all.max_routes.is_some();
        ParallelRoutes: "parallel route calls" = |all| all.max_parallel > 1;
        BatchRoutes: "route batches" = |all| all.batch > 1;
        RouteUidMarks: "cluster UID marks" = |all| all.marks_cluster_uid;
        RouteMachines: "target machines of routes" = |all| all.knows_machines;
    }
}

/// Capabilities of a provider, and the kind of load balancer that a case is run for.
struct Claims<'a> {
    capabilities: &'a Capabilities,
    kind: Option<&'a LoadBalancerKind>,
}

trait AsClaims<T> {
    fn claims(&self) -> Option<&T>;
}

impl AsClaims<InstanceCapabilities> for Claims<'_> {
    fn claims(&self) -> Option<&InstanceCapabilities> {
        self.capabilities.instances.as_ref()
    }
}

impl AsClaims<LoadBalancerCapabilities> for Claims<'_> {
    fn claims(&self) -> Option<&LoadBalancerCapabilities> {
        self.capabilities.load_balancers.as_ref()
    }
}

impl AsClaims<LoadBalancerKind> for Claims<'_> {
    fn claims(&self) -> Option<&LoadBalancerKind> {
        self.kind
    }
}

impl AsClaims<RouteCapabilities> for Claims<'_> {
    fn claims(&self) -> Option<&RouteCapabilities> {
        self.capabilities.routes.as_ref()
    }
}

/// Precondition of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// The provider claims the capability.
    Has(Capability),
    /// The provider claims the group and not the capability: there are rules for unsupported features, too.
    Lacks(Capability),
}

impl Capability {
    /// Whether it is claimed; for a capability of load balancers, by any kind.
    pub fn is_claimed(self, capabilities: &Capabilities) -> bool {
        kinds(capabilities).into_iter().any(|kind| self.is_claimed_with(capabilities, kind))
    }
}

/// Kinds of load balancers; a single `None` for a provider without load balancers.
fn kinds(capabilities: &Capabilities) -> Vec<Option<&LoadBalancerKind>> {
    match &capabilities.load_balancers {
        Some(balancers) if !balancers.kinds.is_empty() => balancers.kinds.iter().map(Some).collect(),
        _ => vec![None],
    }
}

impl Group {
    /// All groups.
    pub const ALL: [Group; 3] = [Group::Instances, Group::LoadBalancers, Group::Routes];

    /// Whether the provider claims the group.
    pub fn is_claimed(self, capabilities: &Capabilities) -> bool {
        match self {
            Group::Instances => capabilities.instances.is_some(),
            Group::LoadBalancers => capabilities.load_balancers.is_some(),
            Group::Routes => capabilities.routes.is_some(),
        }
    }
}

impl Need {
    /// Whether load balancers of this kind meet the precondition.
    fn is_met(self, capabilities: &Capabilities, kind: Option<&LoadBalancerKind>) -> bool {
        match self {
            Need::Has(capability) => capability.is_claimed_with(capabilities, kind),
            Need::Lacks(capability) => {
                capability.group().is_claimed(capabilities) && !capability.is_claimed_with(capabilities, kind)
            }
        }
    }

    /// Kinds of load balancers that meet all needs. If there is none, fails with the first need that the first kind does not meet.
    pub(crate) fn kinds_that_meet<'a>(
        needs: &[Need],
        capabilities: &'a Capabilities,
    ) -> Result<Vec<Option<&'a LoadBalancerKind>>, Need> {
        let unmet =
            |kind: Option<&LoadBalancerKind>| needs.iter().copied().find(|need| !need.is_met(capabilities, kind));
        let is_about_kinds = needs.iter().any(|need| need.group() == Group::LoadBalancers);
        let mut kinds = if is_about_kinds { kinds(capabilities) } else { vec![None] };
        let first = kinds.first().copied().flatten();
        kinds.retain(|kind| unmet(*kind).is_none());
        match unmet(first) {
            Some(need) if kinds.is_empty() => Err(need),
            _ => Ok(kinds),
        }
    }

    /// Group of the capability.
    pub fn group(self) -> Group {
        match self {
            Need::Has(capability) | Need::Lacks(capability) => capability.group(),
        }
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

/// Reason why a case with this need is skipped.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Has(capability) => write!(f, "no {capability}"),
            Need::Lacks(capability) => write!(f, "has {capability}"),
        }
    }
}
