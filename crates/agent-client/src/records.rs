//! Records of load balancers and their addresses.

use std::fmt;
use std::net::IpAddr;

use bowline_core::annotations::ProxyProtocol;
use bowline_core::{IpFamily, LoadBalancerKey, Protocol};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::targets::Targets;

/// Address of load balancers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudAddress {
    /// ID.
    pub id: String,
    /// IP address.
    pub ip: IpAddr,
    /// Whether it is from the internal pool.
    #[serde(default)]
    pub internal: bool,
    /// Share group: Services of one namespace with this group share the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_group: Option<String>,
    /// Owners: several in a share group, none if it is retained.
    #[serde(default)]
    pub owners: Vec<LoadBalancerKey>,
}

/// Load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Balancer {
    /// ID.
    pub id: String,
    /// Unique name.
    pub name: String,
    /// Owner; `None` if it was created manually or is retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<LoadBalancerKey>,
    /// IDs of its addresses, in the order of the status.
    pub addresses: Vec<String>,
    /// Settings.
    pub settings: BalancerSettings,
    /// Targets.
    pub targets: Targets,
}

/// Settings of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BalancerSettings {
    /// Internal load balancer.
    pub internal: bool,
    /// Listeners.
    pub listeners: Vec<Listener>,
    /// Allowed client CIDRs; empty allows all.
    pub source_ranges: Vec<IpNet>,
    /// Session affinity by client IP: timeout after the last connection.
    pub affinity_seconds: Option<u32>,
    /// Health check; without it all targets count as healthy.
    pub health_check: Option<BalancerCheck>,
    /// PROXY protocol version, if enabled.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Idle timeout of connections; `None` is the default of the cloud.
    pub idle_timeout_millis: Option<u64>,
}

/// Listener of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Listener {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Port for clients.
    pub port: u16,
    /// Node port of the targets.
    pub node_port: u16,
}

/// Health check of targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BalancerCheck {
    /// Path of an HTTP check, which succeeds with a status from 200 to 399; without it a TCP connection is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Port. Default: the node port of each listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Interval of checks.
    pub interval_millis: u64,
}

/// Target of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BalancerTarget {
    /// Name of the Node.
    pub name: String,
    /// ID of the machine, if it belongs to this cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Addresses, at most one per family. Default: those of the machine.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Draining: keeps its connections and gets no new ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

/// Load balancer to create manually, with addresses from the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NewBalancer {
    /// Name.
    pub name: String,
    /// Owner, if any.
    pub owner: Option<LoadBalancerKey>,
    /// IP families, with one address each.
    pub families: Vec<IpFamily>,
    /// Specific address, which is then the only one.
    pub ip: Option<IpAddr>,
    /// Share group of the address.
    pub share_group: Option<String>,
    /// Settings.
    pub settings: BalancerSettings,
    /// Targets.
    pub targets: Vec<BalancerTarget>,
}

impl Default for NewBalancer {
    fn default() -> NewBalancer {
        NewBalancer {
            name: String::new(),
            owner: None,
            families: vec![IpFamily::IPv4],
            ip: None,
            share_group: None,
            settings: BalancerSettings::default(),
            targets: Vec::new(),
        }
    }
}

impl CloudAddress {
    /// IP family.
    pub fn family(&self) -> IpFamily {
        family_of(&self.ip)
    }

    /// Whether it carries this mark.
    pub fn is_owned_by(&self, key: &LoadBalancerKey) -> bool {
        self.owners.contains(key)
    }
}

impl Listener {
    /// Whether both listeners cannot share an address.
    pub fn conflicts_with(&self, other: &Listener) -> bool {
        (self.protocol, self.port) == (other.protocol, other.port)
    }
}

/// IP family of an address.
pub fn family_of(ip: &IpAddr) -> IpFamily {
    if ip.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 }
}

/// Displays an owner in messages.
pub struct OwnerName<'a>(
    /// The owner; `None` if there is none.
    pub Option<&'a LoadBalancerKey>,
);

impl fmt::Display for OwnerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(key) => write!(
                f,
                "the Service {}/{} (UID {}) of the cluster {:?}",
                key.namespace,
                key.service,
                key.uid,
                key.cluster.as_str()
            ),
            None => f.write_str("no Service"),
        }
    }
}
