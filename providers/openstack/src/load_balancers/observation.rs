//! Observed state of a Service: its cloud resources, conflicting ones, and those that its spec refers to. They are the `resources` of
//! a state, so that `plan` makes no call.

use bowline_core::{PlanError, Warning};

use crate::api::network::{FloatingIp, Port, SecurityGroup, Subnet};
use crate::api::octavia::{HealthMonitor, Listener, LoadBalancer, Member, Pool};

/// Observed state of a Service.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    /// Features of this Octavia.
    pub(crate) features: Features,
    /// The load balancer of the Service, by ID, by name or to be adopted.
    pub(crate) found: Found,
    /// All its listeners, of any Service.
    pub(crate) listeners: Vec<Listener>,
    /// All its pools, with members and health monitors.
    pub(crate) pools: Vec<PoolState>,
    /// Listeners of a desired Service on other load balancers.
    pub(crate) strays: Vec<Stray>,
    /// Floating IPs, for an external load balancer.
    pub(crate) floating: Floating,
    /// Security groups and ports.
    pub(crate) security: Security,
    /// Subnets and networks from configuration, class and annotations, by default the subnet of the first node's port.
    pub(crate) placement: Placement,
    /// Warnings of the observation.
    pub(crate) warnings: Vec<Warning>,
    /// Errors of optional parts.
    pub(crate) errors: ConfigErrors,
}

/// Errors of parts that an existing load balancer can serve its nodes without. For a new one, each of them fails the observation.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ConfigErrors {
    /// The certificate cannot be used.
    pub(crate) certificate: Option<PlanError>,
    /// The floating IP, or the network of a new one, could not be read.
    pub(crate) floating: Option<PlanError>,
    /// The security group, or its desired rules, could not be read.
    pub(crate) security: Option<PlanError>,
}

/// Load balancer of a Service.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Found {
    /// None exists.
    #[default]
    Nothing,
    /// The one of the annotation `load-balancer-id`, the only one of the name, or one to adopt. For a removal, it may also be found by
    /// its tag.
    One {
        balancer: Box<LoadBalancer>,
        /// Found by the annotation `load-balancer-id`; it has another name than the Service's.
        by_id: bool,
        /// Found only by the common annotation `adopt`.
        adopted: bool,
        /// This process created it, and it was never in service: it can be deleted if it fails.
        fresh: bool,
    },
    /// The annotation has the ID of one that does not exist.
    Missing(String),
    /// Several of the same name, by ID.
    Several(Vec<String>),
}

impl Found {
    /// Returns the load balancer if exactly one was found.
    pub(crate) fn balancer(&self) -> Option<&LoadBalancer> {
        match self {
            Found::One { balancer, .. } => Some(balancer),
            Found::Nothing | Found::Missing(_) | Found::Several(_) => None,
        }
    }
}

impl Observation {
    /// Returns whether the Service has no resources in the cloud.
    pub(crate) fn is_nothing(&self) -> bool {
        let no_balancer = matches!(self.found, Found::Nothing | Found::Missing(_));
        no_balancer && self.security.all().next().is_none() && self.floating.leftovers.is_empty()
    }
}

/// A pool with its members and health monitor.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PoolState {
    pub(crate) pool: Pool,
    pub(crate) members: Vec<Member>,
    pub(crate) monitor: Option<HealthMonitor>,
}

/// A load balancer that has listeners of the Service, but does not serve it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Stray {
    pub(crate) balancer: LoadBalancer,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) pools: Vec<PoolState>,
}

/// Observed floating IPs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Floating {
    /// The one at the VIP port.
    pub(crate) attached: Option<FloatingIp>,
    /// The one with the requested address, if the project has it.
    pub(crate) requested: Option<FloatingIp>,
    /// External network of a new one; `None` if none is known.
    pub(crate) network_id: Option<String>,
    /// Subnets of that network to try for a new one, in this order. Default: Neutron chooses.
    pub(crate) subnets: Vec<String>,
    /// For a Service that does not exist any more: unattached ones that were created for it.
    pub(crate) leftovers: Vec<FloatingIp>,
}

/// Observed security groups and ports.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Security {
    /// Groups of the Service's name and UID, or the one of an earlier Service of the name whose load balancer is taken over.
    pub(crate) groups: Vec<SecurityGroup>,
    /// Groups that earlier Services of the name left; all groups of the name if the UID is unknown.
    pub(crate) stale: Vec<SecurityGroup>,
    /// Ports with one of the groups to delete.
    pub(crate) ports: Vec<Port>,
    /// Ports of the nodes' servers, if groups are managed.
    pub(crate) node_ports: Vec<Port>,
    /// Subnet of the members, if groups are managed.
    pub(crate) member_subnet: Option<Subnet>,
}

impl Security {
    /// Returns the groups of all Services of the name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &SecurityGroup> {
        self.groups.iter().chain(&self.stale)
    }
}

/// Networks and subnets.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Placement {
    pub(crate) vip_network_id: String,
    pub(crate) vip_subnet_id: String,
    pub(crate) member_subnet_id: String,
    /// Port that has the address which the Service requests for a new load balancer.
    pub(crate) vip_holder: Option<Port>,
}

impl Placement {
    /// Returns the configured subnet of members, by default that of the VIP; `None` if it is not known yet.
    pub(crate) fn member_subnet<'a>(&'a self, balancer: Option<&'a LoadBalancer>) -> Option<&'a str> {
        let of_balancer = balancer.map(|balancer| balancer.vip_subnet_id.as_str());
        [Some(self.member_subnet_id.as_str()), of_balancer].into_iter().flatten().find(|id| !id.is_empty())
    }
}

/// Features of Octavia, by its version and the configured provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features {
    pub(crate) timeouts: bool,
    pub(crate) tags: bool,
    pub(crate) flavors: bool,
    pub(crate) allowed_cidrs: bool,
    pub(crate) availability_zones: bool,
    pub(crate) http_monitors_on_udp: bool,
    /// Octavia did not list its versions; features are inferred from existing resources, and there may be more.
    pub(crate) guessed: bool,
}
