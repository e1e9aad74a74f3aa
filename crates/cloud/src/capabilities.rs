//! Capabilities of a cloud, as data.
//!
//! There is one group per trait; a group is `None` if the provider does not implement the trait. A `bool` declares whether a
//! feature is supported. `max_…`, `…_page` and `…_lookup` are limits; a `max_…` of `None` means no limit. Configuration and
//! [`Facts`](crate::Facts) may lower a capability, never raise it. Every claimed capability enables a conformance case. The
//! reference page of the capabilities is generated from the descriptions of the fields.

mod bound;

use bowline_core::IpFamily;
use bowline_core::annotations::{INTERNAL, ProxyProtocol};
use serde::Serialize;

/// Declares a group. Its fields and their descriptions become the rows of the reference page.
macro_rules! group {
    (
        $(#[$about:meta])*
        pub struct $group:ident {
            $($(#[doc = $line:literal])+ pub $field:ident: $type:ty,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize)]
        pub struct $group {
            $($(#[doc = $line])+ pub $field: $type,)+
        }

        impl $group {
            /// Name and description of each field.
            pub const FIELDS: &[(&str, &str)] = &[$((stringify!($field), concat!($($line,)+))),+];
        }
    };
}

/// Capabilities of a cloud.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Capabilities {
    /// Machines can be looked up.
    pub instances: Option<InstanceCapabilities>,
    /// Services can have load balancers.
    pub load_balancers: Option<LoadBalancerCapabilities>,
    /// Pod CIDRs can be routed to machines.
    pub routes: Option<RouteCapabilities>,
}

group! {
    /// Lookups of machines.
    pub struct InstanceCapabilities {
        /// Maximum number of machines in one call of [`find`](crate::Instances::find); 1 for a cloud without batch lookups.
        pub batch_lookup: usize,
        /// Machines on one page of [`list`](crate::Instances::list); `None` if the cloud cannot list.
        pub list_page: Option<usize>,
        /// Cost of one page, in lookups of one machine. Default: `batch_lookup`, which is correct if `find` is one call. Lower if
        /// `find` makes a call for each machine and saves only the calls that the machines share.
        pub page_cost: Option<usize>,
        /// Pages are numbered: a machine that is created or deleted during a listing moves others to another page, so that a listing
        /// may miss a machine. Only with [`Absence::Question`].
        pub numbered_pages: bool,
        /// Meaning of a machine's absence from a complete listing.
        pub absence: Absence,
        /// Maximum number of concurrent calls.
        pub max_parallel: usize,
        /// A machine without a known ID can be found by the Node's name.
        pub lookup_by_name: bool,
        /// A new machine never gets the ID of a deleted one. Not the case where IDs are derived from names.
        pub unique_ids: bool,
        /// Stopped machines are distinguished from running ones.
        pub shutdown_state: bool,
        /// The zone and region of a machine are known.
        pub zones: bool,
        /// Machines have further labels for their Nodes.
        pub additional_labels: bool,
        /// Machines have annotations for their Nodes.
        pub additional_annotations: bool,
        /// The cloud assigns pod CIDRs to machines by itself, and reports them.
        pub pod_cidrs: bool,
        /// A pod CIDR can be assigned to a machine.
        pub assign_pod_cidrs: bool,
    }
}

/// Meaning of a machine's absence from a complete listing. An empty listing, or one with a machine that could not be decoded, never
/// proves an absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Absence {
    /// The machine may exist: some clouds do not list a machine that is being deleted or belongs to another project. The layers
    /// look it up with [`find`](crate::Instances::find).
    #[default]
    Question,
    /// The machine is gone: every machine that exists is listed. Saves the lookup.
    Proof,
    /// `Proof` for names, `Question` for IDs: for clouds whose search by name finds only listed machines. A name is still looked up
    /// if a listed name differs from it only in case, because such a search may ignore case.
    ProofForNames,
}

group! {
    /// Load balancers, of one kind or several.
    pub struct LoadBalancerCapabilities {
        /// Load balancers are marked with the UID of their Service. Otherwise a new Service takes over what an earlier Service of
        /// the same name left behind.
        pub marks_uid: bool,
        /// Preferred number of load balancers in one call of [`observe`](crate::LoadBalancers::observe); 0 and 1 both mean one by
        /// one.
        pub batch_observe: usize,
        /// The kind of a load balancer is fixed at its creation. A Service that requests another kind later keeps the one that it has:
        /// the load balancer is never replaced.
        pub fixed_kind: bool,
        /// Kinds of load balancers, at least one. A Service that requests no other gets the first.
        pub kinds: Vec<LoadBalancerKind>,
    }
}

group! {
    /// One kind of load balancer: classic or network, external or internal.
    #[derive(Default)]
    pub struct LoadBalancerKind {
        /// Name of the kind, as the cloud calls it; may be empty if there is only one kind.
        pub name: &'static str,
        /// Annotations by which a Service requests this kind; none for the first kind.
        pub requested_by: &'static [(&'static str, &'static str)],
        /// The provider itself checks the fields of a Service's spec, and reports each one that it does not support with an error of
        /// [`plan`](crate::LoadBalancers::plan) or a warning. Limits and the common annotations are checked for it.
        pub checks_spec: bool,
        /// TCP ports.
        pub tcp: bool,
        /// UDP ports.
        pub udp: bool,
        /// SCTP ports.
        pub sctp: bool,
        /// Ports of several protocols on one load balancer.
        pub mixed_protocols: bool,
        /// Clients can be limited to source ranges.
        pub source_ranges: bool,
        /// Session affinity by client IP.
        pub session_affinity: bool,
        /// `externalTrafficPolicy: Local`: only Nodes with a ready Pod of the Service get traffic.
        pub local_traffic_policy: bool,
        /// Versions of the PROXY protocol, which passes the client's address to the backend.
        pub proxy_protocol: Vec<ProxyProtocol>,
        /// The user may choose the address.
        pub requested_address: bool,
        /// Connections of a target that is removed are drained.
        pub drain: bool,
        /// Several Services may share one address (`bowline.dev/share-group`).
        pub shared: bool,
        /// Reachable only from inside the cloud's network (`bowline.dev/internal`).
        pub internal: bool,
        /// The idle timeout of connections can be set.
        pub idle_timeout: bool,
        /// Path, port and interval of health checks can be set.
        pub health_check_settings: bool,
        /// An existing load balancer can be adopted (`bowline.dev/adopt`).
        pub adoption: bool,
        /// A load balancer can be left behind without this cluster's mark (`bowline.dev/policy: retain`).
        pub retention: bool,
        /// Services without node ports.
        pub without_node_ports: bool,
        /// A load balancer needs a target. Without one, nothing is created or changed, and the Service waits for a Node.
        pub needs_targets: bool,
        /// IP families.
        pub ip_families: Vec<IpFamily>,
        /// Two IP families on one load balancer.
        pub dual_stack: bool,
        /// Without `dual_stack`, a Service with two IP families gets the first one; otherwise it is rejected.
        pub first_family: bool,
        /// Maximum number of ports per load balancer.
        pub max_ports: Option<usize>,
        /// Maximum number of targets per load balancer.
        pub max_targets: Option<usize>,
    }
}

group! {
    /// Routes.
    #[derive(Default)]
    pub struct RouteCapabilities {
        /// IP families.
        pub ip_families: Vec<IpFamily>,
        /// Maximum number of routes per cluster, if the cloud's limit is known. The layers do not enforce it, because other entries
        /// of the table count as well and only the cloud knows them. The provider returns
        /// [`QuotaExceeded`](crate::ErrorKind::QuotaExceeded) when the table is full.
        pub max_routes: Option<usize>,
        /// Maximum number of concurrent calls.
        pub max_parallel: usize,
        /// Maximum number of routes in one [`create`](crate::Routes::create) or [`delete`](crate::Routes::delete); 1 for a cloud
        /// that writes one route per call.
        pub batch: usize,
        /// Routes are marked with the UID of the cluster that created them. Otherwise two clusters with the same name and pod CIDRs
        /// cannot be distinguished.
        pub marks_cluster_uid: bool,
        /// The cloud knows the target machine of a route. Otherwise a route leads to an address, whether or not a machine has it.
        pub knows_machines: bool,
    }
}

impl LoadBalancerCapabilities {
    /// Load balancers of one kind, marked with the UID of their Service and observed one by one.
    pub fn of(kind: LoadBalancerKind) -> LoadBalancerCapabilities {
        LoadBalancerCapabilities { marks_uid: true, batch_observe: 1, fixed_kind: false, kinds: vec![kind] }
    }

    /// Returns the kind of this name, or the first kind if no name is given; `None` if the name is not declared.
    pub fn kind(&self, name: Option<&str>) -> Option<&LoadBalancerKind> {
        match name {
            Some(name) => self.kinds.iter().find(|kind| kind.name == name),
            None => self.kinds.first(),
        }
    }
}

impl LoadBalancerKind {
    /// Name of the kind that [`to_internal`](LoadBalancerKind::to_internal) returns.
    pub const INTERNAL: &str = "internal";

    /// Returns the internal variant of an external kind, which a Service requests with `bowline.dev/internal`.
    pub fn to_internal(&self) -> LoadBalancerKind {
        let requested_by = &[(INTERNAL.key, "true")];
        LoadBalancerKind { name: LoadBalancerKind::INTERNAL, requested_by, internal: true, ..self.clone() }
    }

    /// Returns whether only the first IP family of a Service is served.
    pub fn serves_first_family(&self) -> bool {
        self.first_family && !self.dual_stack
    }
}

impl Default for InstanceCapabilities {
    /// Minimal capabilities: single lookups by ID.
    fn default() -> InstanceCapabilities {
        InstanceCapabilities {
            batch_lookup: 1,
            list_page: None,
            page_cost: None,
            numbered_pages: false,
            absence: Absence::default(),
            max_parallel: 8,
            lookup_by_name: false,
            unique_ids: false,
            shutdown_state: false,
            zones: false,
            additional_labels: false,
            additional_annotations: false,
            pod_cidrs: false,
            assign_pod_cidrs: false,
        }
    }
}
