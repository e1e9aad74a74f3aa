//! What a cloud can do, as data.
//!
//! Groups, one per trait; a group is `None` if the trait is. In a group, a plain noun that is a `bool` says whether
//! something works at all, and `max_…`, `…_page`, `…_lookup` say how much of it. A limit set by configuration may lower a
//! capability, never raise it. A capability that is claimed has a conformance case that runs because of it.

use bowline_core::IpFamily;
use serde::Serialize;

/// What a cloud can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Capabilities {
    /// Telling what machines there are.
    pub instances: Option<InstanceCapabilities>,
    /// Balancing load.
    pub load_balancers: Option<LoadBalancerCapabilities>,
    /// Leading pod ranges to machines.
    pub routes: Option<RouteCapabilities>,
}

/// How machines can be asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceCapabilities {
    /// How many [`find`](crate::Instances::find) takes at once; 1 for a cloud that answers one by one only.
    pub batch_lookup: usize,
    /// How many one page of [`list`](crate::Instances::list) holds; `None` if the cloud cannot list.
    pub list_page: Option<usize>,
    /// Cost of one page, in lookups of one machine. Default: `batch_lookup`, which is right where `find` is one call. Less
    /// where `find` makes a call for each machine and saves only the calls that the machines share.
    pub page_cost: Option<usize>,
    /// Meaning of a machine's absence from a complete listing.
    pub absence: Absence,
    /// How many calls may be under way at once.
    pub max_parallel: usize,
    /// A machine without a known ID can be found by the node's name.
    pub lookup_by_name: bool,
    /// A new machine never has the ID of an old one. Not so where IDs are made of names.
    pub unique_ids: bool,
    /// The cloud tells a stopped machine from a running one.
    pub shutdown_state: bool,
    /// The cloud tells the zone and region of a machine.
    pub zones: bool,
    /// The cloud has further labels for nodes.
    pub additional_labels: bool,
    /// The provider has annotations for nodes.
    pub additional_annotations: bool,
    /// The cloud leads pod ranges to machines by itself, and tells which.
    pub pod_ranges: bool,
    /// The cloud can be told which pod range to lead to a machine.
    pub assign_pod_ranges: bool,
}

/// Meaning of a machine's absence from a complete listing. An empty listing, and one with a machine that could not be read,
/// proves nothing with any of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Absence {
    /// The machine may exist: some clouds do not list one that is about to be deleted or belongs to another project. The
    /// layers look it up with [`find`](crate::Instances::find).
    #[default]
    Question,
    /// The machine is gone: each machine that exists is listed. Saves the lookup.
    Proof,
    /// `Proof` for names, `Question` for IDs: for clouds whose search for a name sees no more than a listing does. A name is
    /// looked up all the same while a listed name differs from it in case alone, because such a search may ignore case.
    ProofForNames,
}

/// What balancers can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LoadBalancerCapabilities {
    /// TCP ports.
    pub tcp: bool,
    /// UDP ports.
    pub udp: bool,
    /// SCTP ports.
    pub sctp: bool,
    /// TCP and UDP ports on one balancer.
    pub mixed_protocols: bool,
    /// Who may connect can be limited.
    pub source_ranges: bool,
    /// Connections of one client can stay together.
    pub session_affinity: bool,
    /// Only nodes with a pod of the Service get traffic.
    pub local_traffic_policy: bool,
    /// The client's address can be told to the backend by the PROXY protocol.
    pub proxy_protocol: bool,
    /// The user may choose the address.
    pub requested_address: bool,
    /// A leaving node keeps its connections for a while.
    pub drain: bool,
    /// Several Services may share one address (`bowline.dev/share-group`).
    pub shared: bool,
    /// Balancers that are reached from inside the cloud's network only.
    pub internal: bool,
    /// Silent connections can be closed after a chosen time.
    pub idle_timeout: bool,
    /// Path, port and interval of health checks can be chosen.
    pub health_check_settings: bool,
    /// A balancer that exists can become a Service's (`bowline.dev/adopt`).
    pub adoption: bool,
    /// A balancer can be left behind without our mark (`bowline.dev/policy: retain`).
    pub retention: bool,
    /// Services without node ports.
    pub without_node_ports: bool,
    /// Families of addresses.
    pub ip_families: Vec<IpFamily>,
    /// Two families on one balancer.
    pub dual_stack: bool,
    /// Without `dual_stack`, a Service that wants two families gets its first one; else it is refused.
    pub first_family: bool,
    /// Balancers are marked with the UID of their Service. Without, a new Service of the same name takes over what an old
    /// one has left.
    pub marks_uid: bool,
    /// How many balancers one call of [`observe`](crate::LoadBalancers::observe) is best asked about; 0 and 1 both mean one
    /// by one.
    pub batch_observe: usize,
    /// Ports per balancer.
    pub max_ports: Option<usize>,
    /// Machines per balancer.
    pub max_targets: Option<usize>,
}

/// What routes can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RouteCapabilities {
    /// Families of addresses.
    pub ip_families: Vec<IpFamily>,
    /// Routes per cluster, if there is a limit that is known. Nothing is refused because of it before the cloud is asked: what
    /// else is in the table counts as well, and only the cloud knows that. The provider answers
    /// [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded) when the table is full.
    pub max_routes: Option<usize>,
    /// How many calls may be under way at once.
    pub max_parallel: usize,
    /// Maximum number of routes in one [`create`](crate::Routes::create) or [`delete`](crate::Routes::delete); 1 for a cloud
    /// that writes one route per call.
    pub batch: usize,
}

impl Capabilities {
    /// Has a group that `bound` lacks.
    pub(crate) fn exceeds(&self, bound: &Capabilities) -> bool {
        let groups = |all: &Capabilities| [all.instances.is_some(), all.load_balancers.is_some(), all.routes.is_some()];
        groups(self).iter().zip(groups(bound)).any(|(has, may)| *has && !may)
    }
}

impl LoadBalancerCapabilities {
    /// Of the families that a Service wants, only the first one counts.
    pub fn serves_first_family(&self) -> bool {
        self.first_family && !self.dual_stack
    }
}

impl Default for InstanceCapabilities {
    /// The least that is of use: one by one, by ID.
    fn default() -> InstanceCapabilities {
        InstanceCapabilities {
            batch_lookup: 1,
            list_page: None,
            page_cost: None,
            absence: Absence::default(),
            max_parallel: 8,
            lookup_by_name: false,
            unique_ids: false,
            shutdown_state: false,
            zones: false,
            additional_labels: false,
            additional_annotations: false,
            pod_ranges: false,
            assign_pod_ranges: false,
        }
    }
}
