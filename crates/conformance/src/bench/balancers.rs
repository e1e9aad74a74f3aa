//! Hands to look at, and to prepare, what a cloud has for balancers.
//!
//! They reach past the provider: what it forgot, doubled or took from somebody else is seen because the cloud itself is
//! asked.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{LoadBalancerKey, Protocol, SessionAffinity};
use ipnet::IpNet;

use super::BenchResult;

/// One thing in the cloud that is there for balancers: a balancer, a listener, a floating IP, a rule of a firewall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenResource {
    /// What kind of thing, in the cloud's own word.
    pub kind: String,
    /// Its ID, which no other thing of this kind has or ever had.
    pub id: String,
    /// Its name; may be empty.
    pub name: String,
    /// Whose mark it bears: nobody's, one balancer's, or those of all that share it; without UID where marks do not tell it. A
    /// thing that cannot be marked has the owners of what it hangs on.
    pub owners: Vec<LoadBalancerKey>,
    /// All else about it, as text, without the marks: two looks differ if anything was changed in between.
    pub summary: String,
}

/// What a balancer does in effect, in words that every cloud shares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SeenLoadBalancer {
    /// The [`SeenResource::id`] of what makes it one.
    pub id: String,
    /// Its name; may be empty.
    pub name: String,
    /// Where clients connect.
    pub addresses: Vec<IpAddr>,
    /// What it listens on for this Service.
    pub listeners: Vec<SeenListener>,
    /// The machines behind it.
    pub targets: Vec<SeenTarget>,
    /// Who may connect; empty means everybody.
    pub source_ranges: Vec<IpNet>,
    /// Whether connections of one client stay together.
    pub affinity: Option<SessionAffinity>,
    /// What a machine is asked, if it is asked over HTTP.
    pub health_check: Option<SeenHealthCheck>,
    /// How machines are told the client's address.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// After which a silent connection is closed, if somebody chose.
    pub idle_timeout: Option<Duration>,
    /// Reachable only from inside the cloud's network; `None` where internal and external ones look the same.
    pub internal: Option<bool>,
}

/// A port that a balancer listens on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenListener {
    /// What is spoken.
    pub protocol: Protocol,
    /// Where clients connect.
    pub port: u16,
    /// Where it goes on the machine; `None` if it does not go to a node port, or to no machine.
    pub node_port: Option<u16>,
}

/// A machine behind a balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenTarget {
    /// The [`Instance::id`](bowline_core::Instance::id) of the machine.
    pub machine: String,
    /// It gets no new connections.
    pub draining: bool,
}

/// What a machine is asked over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenHealthCheck {
    /// The path.
    pub path: String,
    /// The port; 0 if it cannot be told because no machine is there to be asked.
    pub port: u16,
    /// How often, if somebody chose.
    pub interval: Option<Duration>,
}

/// A balancer that no plan of ours made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForeignLoadBalancer {
    /// Its name, where names are chosen.
    pub name: String,
    /// Whose mark it bears: nobody's, or that of another cluster or Service, put as a manager would.
    pub owner: Option<LoadBalancerKey>,
    /// The address that it is to have, if one is asked for.
    pub address: Option<IpAddr>,
}

/// Hands for balancers. As long as nothing else is said, the cloud shows at once what it has. It need not be fast: whenever the
/// provider says `InProgress`, the suite lets it [settle](BalancerBench::settle) and goes on where it was.
#[async_trait]
pub trait LoadBalancerBench: Send + Sync {
    /// Everything that the cloud has for balancers, whoever made it and in whatever state it is.
    async fn resources(&self) -> Vec<SeenResource>;

    /// What the balancer of this Service does; `None` if there is none, or not enough of one to do anything.
    async fn balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer>;

    /// Puts a balancer with a listener there, as somebody else would, and returns the thing that `bowline.dev/adopt` would
    /// name. `None` if this bench cannot.
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

    /// Whether the cloud lets one choose for how long connections of one client stay together. If it does not, that they do
    /// is all that is looked at.
    fn affinity_is_timed(&self) -> bool {
        true
    }

    /// Calls so far that changed something in the cloud, or would have; `None` if it does not count them.
    async fn writes(&self) -> Option<u64> {
        None
    }

    /// From now on what is made is not shown to those who look for it until [`settle`](BalancerBench::settle), although it
    /// is there and its name, if names are unique, is taken.
    async fn stale(&self) -> BenchResult {
        BenchResult::Cannot
    }

    /// From now on every change takes the cloud some time, which ends with [`settle`](BalancerBench::settle).
    async fn slow(&self) -> BenchResult {
        BenchResult::Cannot
    }

    /// This many of the next changes that the cloud accepts fail: the cloud is at work on each, and it ends in failure with
    /// [`settle`](BalancerBench::settle). Called after [`slow`](BalancerBench::slow); 0 takes it back.
    async fn fail_next(&self, changes: u64) -> BenchResult {
        let _ = changes;
        BenchResult::Cannot
    }

    /// Waits, or turns the cloud's clock, until its work is done and all that it has is shown. It stays slow or stale for
    /// what comes then.
    async fn settle(&self) {}
}
