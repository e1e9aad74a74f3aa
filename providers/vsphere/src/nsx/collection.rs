//! Collections of load balancer objects: their paths, and the names of their calls.

/// A collection of objects below `/infra`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// Segment of the path.
    pub segment: &'static str,
    /// What one object is, in messages.
    pub kind: &'static str,
    pub list: &'static str,
    pub get: &'static str,
    pub put: &'static str,
    pub delete: &'static str,
}

pub(crate) const MONITORS: Collection = Collection {
    segment: "lb-monitor-profiles",
    kind: "monitor",
    list: "list_lb_monitor_profiles",
    get: "get_lb_monitor_profile",
    put: "put_lb_monitor_profile",
    delete: "delete_lb_monitor_profile",
};

pub(crate) const POOLS: Collection = Collection {
    segment: "lb-pools",
    kind: "server pool",
    list: "list_lb_pools",
    get: "get_lb_pool",
    put: "put_lb_pool",
    delete: "delete_lb_pool",
};

pub(crate) const VIRTUAL_SERVERS: Collection = Collection {
    segment: "lb-virtual-servers",
    kind: "virtual server",
    list: "list_lb_virtual_servers",
    get: "get_lb_virtual_server",
    put: "put_lb_virtual_server",
    delete: "delete_lb_virtual_server",
};

pub(crate) const SERVICES: Collection = Collection {
    segment: "lb-services",
    kind: "LB service",
    list: "list_lb_services",
    get: "get_lb_service",
    put: "put_lb_service",
    delete: "delete_lb_service",
};

impl Collection {
    /// Path of all objects.
    pub(crate) fn all(&self) -> [&'static str; 2] {
        ["infra", self.segment]
    }

    /// Path of one object.
    pub(crate) fn one<'a>(&self, id: &'a str) -> [&'a str; 3] {
        ["infra", self.segment, id]
    }

    /// Policy path of one object.
    pub(crate) fn policy_path(&self, id: &str) -> String {
        format!("/infra/{}/{id}", self.segment)
    }
}
