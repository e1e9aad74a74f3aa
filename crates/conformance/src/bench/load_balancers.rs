//! Controls for a cloud's load balancers.
//!
//! They read the cloud directly and not through the provider, so that the suite detects resources that the provider forgot,
//! duplicated or took from another owner.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{LoadBalancerKey, Protocol, SessionAffinity};
use ipnet::IpNet;

use super::BenchResult;

/// A cloud resource that serves load balancers: a load balancer, a listener, a floating IP, a firewall rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenResource {
    /// Kind of resource, in the cloud's own terms.
    pub kind: String,
    /// ID, unique within this kind for all time.
    pub id: String,
    /// Name; may be empty.
    pub name: String,
    /// Owners that the marks on the resource name, as [`list`](bowline_cloud::LoadBalancers::list) returns them: none, one, or all
    /// that share it. Without UID if marks do not contain it, and with nothing but a name if marks are names. A resource that cannot be marked has the owners of the resource that it belongs to.
    pub owners: Vec<LoadBalancerKey>,
    /// Everything else about the resource as text, without the marks. It changes whenever the resource changes.
    pub summary: String,
}

/// Effective behaviour of a load balancer, in terms that all clouds share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenLoadBalancer {
    /// [`SeenResource::id`] of the main resource.
    pub id: String,
    /// Name; may be empty.
    pub name: String,
    /// Addresses that clients connect to.
    pub addresses: Vec<IpAddr>,
    /// Listeners for this Service.
    pub listeners: Vec<SeenListener>,
    /// Machines behind the load balancer.
    pub targets: Vec<SeenTarget>,
    /// CIDRs that may connect; empty means all.
    pub source_ranges: Vec<IpNet>,
    /// Session affinity.
    pub affinity: Option<SessionAffinity>,
    /// HTTP health check of the machines, if there is one.
    pub health_check: Option<SeenHealthCheck>,
    /// Version of the PROXY protocol that the load balancer sends to the machines.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Idle timeout of connections, if one was configured.
    pub idle_timeout: Option<Duration>,
    /// Whether it is reachable only from inside the cloud's network; `None` if the cloud does not distinguish.
    pub internal: Option<bool>,
}

/// A port that a load balancer listens on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenListener {
    /// Protocol.
    pub protocol: Protocol,
    /// Port that clients connect to.
    pub port: u16,
    /// Node port on the machines; `None` if there is no node port or no machine.
    pub node_port: Option<u16>,
}

/// A machine behind a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenTarget {
    /// [`Instance::id`](bowline_core::Instance::id) of the machine.
    pub machine: String,
    /// Whether the machine is draining: it gets no new connections.
    pub draining: bool,
}

/// HTTP health check of the machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenHealthCheck {
    /// Path.
    pub path: String,
    /// Port; 0 if it is unknown because there is no machine.
    pub port: u16,
    /// Interval, if one was configured.
    pub interval: Option<Duration>,
}

/// A load balancer that the provider under test did not create.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForeignLoadBalancer {
    /// Name, if the cloud lets users choose names.
    pub name: String,
    /// Owner in its mark: another cluster or Service, marked as a manager would; `None` for no mark.
    pub owner: Option<LoadBalancerKey>,
    /// Requested address, if any.
    pub address: Option<IpAddr>,
    /// Kind of load balancer, where the kind is fixed at creation; otherwise any kind will do.
    pub kind: Option<&'static str>,
}

/// Controls for load balancers. By default the cloud shows its resources at once. It need not be fast: whenever the provider returns
/// `InProgress`, the suite calls [`settle`](LoadBalancerBench::settle) and continues.
#[async_trait]
pub trait LoadBalancerBench: Send + Sync {
    /// All resources that serve load balancers, of any owner and in any state.
    async fn resources(&self) -> Vec<SeenResource>;

    /// Load balancer of this Service; `None` if there is none, or too little of it to forward traffic.
    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer>;

    /// Creates a load balancer with a listener, as another client of the cloud would, and returns the resource that
    /// `bowline.dev/adopt` would name. Returns `None` if the bench cannot.
    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let _ = foreign;
        None
    }

    /// Number of load balancers that one page of the cloud's listing holds, small enough to be exceeded by a test. `None` if
    /// the listing that the provider reads has no pages.
    fn list_page(&self) -> Option<usize>;

    /// An address that a Service may request for a load balancer of this kind; `None` if the cloud does not let users choose.
    async fn free_address(&self, kind: Option<&str>) -> Option<IpAddr> {
        let _ = kind;
        None
    }

    /// Whether load balancers of this kind forward to node ports. Otherwise packets keep the port of the Service, and
    /// [`SeenListener::node_port`] is `None`.
    fn uses_node_ports(&self, kind: Option<&str>) -> bool {
        let _ = kind;
        true
    }

    /// Whether the machines behind load balancers of this kind enforce the source ranges. Without targets, no range is shown then.
    fn source_ranges_need_targets(&self, kind: Option<&str>) -> bool {
        let _ = kind;
        false
    }

    /// Whether the name of a Service's load balancer is its mark: one with that name, and without the mark of a cluster, belongs
    /// to the Service, even if another client created it.
    fn names_are_marks(&self) -> bool {
        false
    }

    /// Whether the cloud supports a timeout of session affinity. If it does not, the suite checks only whether affinity is on.
    fn affinity_is_timed(&self) -> bool {
        true
    }

    /// Number of write calls so far, including failed ones; `None` if the cloud does not count them.
    async fn writes(&self) -> Option<u64> {
        None
    }

    /// Hides new resources from readers until [`settle`](LoadBalancerBench::settle), although they exist and their names, if names
    /// are unique, are taken.
    async fn stale(&self) -> BenchResult {
        BenchResult::Cannot
    }

    /// Makes every later change stay in progress until [`settle`](LoadBalancerBench::settle).
    async fn slow(&self) -> BenchResult {
        BenchResult::Cannot
    }

    /// Makes this many of the next accepted changes fail: each is in progress until [`settle`](LoadBalancerBench::settle) and then
    /// fails. Called after [`slow`](LoadBalancerBench::slow); 0 cancels it.
    async fn fail_next(&self, changes: u64) -> BenchResult {
        let _ = changes;
        BenchResult::Cannot
    }

    /// Waits, or advances the cloud's clock, until all changes have ended and all resources are visible. The cloud stays slow or
    /// stale for later changes.
    async fn settle(&self) {}
}
