//! All that a plan has to know: what is in the cloud for a Service, what stands in its way, and what was looked up because of
//! what it wishes. They are the `resources` of a state, so that `plan` makes no call.

use bowline_core::{PlanError, Warning};

use crate::api::network::{FloatingIp, Port, SecurityGroup, Subnet};
use crate::api::octavia::{HealthMonitor, Listener, LoadBalancer, Member, Pool};

/// What was seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    /// What this Octavia can do.
    pub(crate) features: Features,
    /// The balancer that the Service has, is to share or has by its name; more than one is told apart by nobody.
    pub(crate) found: Found,
    /// What it listens on, whosever it is.
    pub(crate) listeners: Vec<Listener>,
    /// Its pools, with what is behind them.
    pub(crate) pools: Vec<SeenPool>,
    /// What the Service has on others, for one that is to be served.
    pub(crate) strays: Vec<Stray>,
    /// What was looked up for an external balancer.
    pub(crate) floating: Floating,
    /// What was looked up for security groups.
    pub(crate) security: Security,
    /// The subnets and networks that configuration, class, annotations and, where those say nothing, the first node's port
    /// come to.
    pub(crate) places: Places,
    /// What is worth a warning already.
    pub(crate) warnings: Vec<Warning>,
    /// What could not be looked up, or is not as it must be.
    pub(crate) errors: ConfigErrors,
}

/// What is wrong with things that a balancer can serve its nodes without. Only one that is there has such problems: without one,
/// each of them is an error at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ConfigErrors {
    /// No listener is given this certificate.
    pub(crate) certificate: Option<PlanError>,
    /// Nobody knows which floating IP there is, or where one would come from.
    pub(crate) floating: Option<PlanError>,
    /// Nobody knows which security group there is, or what is to be in it.
    pub(crate) security: Option<PlanError>,
}

/// The balancer of a Service.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Found {
    /// There is none.
    #[default]
    Nothing,
    /// The one that the annotation `load-balancer-id` names, the only one of the name, or one that is to be adopted. One that
    /// is to go may also have been found by the tag alone.
    One {
        balancer: Box<LoadBalancer>,
        /// The annotation `load-balancer-id` names it, and its own name would not have led to it.
        by_id: bool,
        /// The common annotation `adopt` names it, and it is not the Service's by anything else.
        adopted: bool,
        /// This process made it, and has not seen it in service yet: if it fails, nobody misses it.
        fresh: bool,
    },
    /// The annotation names one that does not exist.
    Missing(String),
    /// Several of the same name, by ID.
    Several(Vec<String>),
}

impl Found {
    /// The balancer, if there is exactly one.
    pub(crate) fn balancer(&self) -> Option<&LoadBalancer> {
        match self {
            Found::One { balancer, .. } => Some(balancer),
            Found::Nothing | Found::Missing(_) | Found::Several(_) => None,
        }
    }
}

impl Observation {
    /// The cloud has nothing for the Service.
    pub(crate) fn is_nothing(&self) -> bool {
        let no_balancer = matches!(self.found, Found::Nothing | Found::Missing(_));
        no_balancer && self.security.all().next().is_none() && self.floating.leftovers.is_empty()
    }
}

/// A pool with what is behind it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct SeenPool {
    pub(crate) pool: Pool,
    pub(crate) members: Vec<Member>,
    pub(crate) monitor: Option<HealthMonitor>,
}

/// A balancer that does not serve the Service, although it has listeners of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Stray {
    pub(crate) balancer: LoadBalancer,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) pools: Vec<SeenPool>,
}

/// What was looked up for floating IPs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Floating {
    /// The one at the balancer's VIP port.
    pub(crate) attached: Option<FloatingIp>,
    /// The one of the address that the user asks for, if the project has it.
    pub(crate) requested: Option<FloatingIp>,
    /// Where a new one comes from; `None` if no external network is known.
    pub(crate) network_id: Option<String>,
    /// The subnets in it that a new one may be taken from, in the order of trying; empty leaves it to Neutron.
    pub(crate) subnets: Vec<String>,
    /// For a Service that is gone altogether: those that were made for it and are at no port any more.
    pub(crate) leftovers: Vec<FloatingIp>,
}

/// What was looked up for security groups.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Security {
    /// Those of the Service's name and UID, or the one that came with its balancer from an earlier Service of the name.
    pub(crate) groups: Vec<SecurityGroup>,
    /// Those that earlier Services of the name left; all of the name if nobody knows the UID any more.
    pub(crate) stale: Vec<SecurityGroup>,
    /// The ports that have one of the groups that are to go.
    pub(crate) ports: Vec<Port>,
    /// The ports of the nodes' servers, if groups are managed.
    pub(crate) node_ports: Vec<Port>,
    /// Where members are, if groups are managed.
    pub(crate) member_subnet: Option<Subnet>,
}

impl Security {
    /// Whatever Service of the name they were made for.
    pub(crate) fn all(&self) -> impl Iterator<Item = &SecurityGroup> {
        self.groups.iter().chain(&self.stale)
    }
}

/// Where things are.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Places {
    pub(crate) vip_network_id: String,
    pub(crate) vip_subnet_id: String,
    pub(crate) member_subnet_id: String,
    /// The port that has the VIP which the Service requests for a new load balancer.
    pub(crate) vip_holder: Option<Port>,
}

impl Places {
    /// The subnet of members: what is wished, else where the balancer is. `None` if nobody knows yet.
    pub(crate) fn member_subnet<'a>(&'a self, balancer: Option<&'a LoadBalancer>) -> Option<&'a str> {
        let of_balancer = balancer.map(|balancer| balancer.vip_subnet_id.as_str());
        [Some(self.member_subnet_id.as_str()), of_balancer].into_iter().flatten().find(|id| !id.is_empty())
    }
}

/// What this Octavia can do, by its version and the configured provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features {
    pub(crate) timeouts: bool,
    pub(crate) tags: bool,
    pub(crate) flavors: bool,
    pub(crate) allowed_cidrs: bool,
    pub(crate) availability_zones: bool,
    pub(crate) http_monitors_on_udp: bool,
    /// Nobody says so; the rest is what can be told from what there is, and there may be more.
    pub(crate) guessed: bool,
}
