//! What the cloud keeps of balancers and their addresses.

use std::fmt;
use std::net::IpAddr;

use bowline_core::annotations::ProxyProtocol;
use bowline_core::{IpFamily, LoadBalancerKey, Protocol};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::targets::Targets;

/// An address on which balancers listen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudAddress {
    /// Its key.
    pub id: String,
    /// The address itself.
    pub ip: IpAddr,
    /// It comes from the pool for the inside.
    #[serde(default)]
    pub internal: bool,
    /// Balancers of one namespace whose Services name this group share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_group: Option<String>,
    /// Whose it is: more than one only in a share group, nobody's if it was left behind.
    #[serde(default)]
    pub owners: Vec<LoadBalancerKey>,
}

/// A balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Balancer {
    /// Its key.
    pub id: String,
    /// Its name; no two have the same.
    pub name: String,
    /// Whose it is; `None` if it was made by hand or left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<LoadBalancerKey>,
    /// The IDs of its addresses, in the order in which clients should know them.
    pub addresses: Vec<String>,
    /// What it does.
    pub settings: BalancerSettings,
    /// Who takes its traffic.
    pub targets: Targets,
}

/// What a balancer does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct BalancerSettings {
    /// It is reached from inside only.
    pub internal: bool,
    /// What it listens on.
    pub listeners: Vec<Listener>,
    /// Who may connect; empty means everybody.
    pub source_ranges: Vec<IpNet>,
    /// Connections of one client address stay together until this long after the last one.
    pub affinity_seconds: Option<u32>,
    /// How targets are asked whether they work; without it all are taken to.
    pub health_check: Option<BalancerCheck>,
    /// How targets are told the client's address.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// After how long a silent connection is closed; `None` leaves it to the cloud.
    pub idle_timeout_millis: Option<u64>,
}

/// A port of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Listener {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Where clients connect.
    pub port: u16,
    /// Where it goes on each target.
    pub node_port: u16,
}

/// How targets are asked whether they work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BalancerCheck {
    /// `GET` of this path must be answered with a status from 200 to 399; without it a TCP connection suffices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// On this port; without it on the node port of each listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The pause between two questions.
    pub interval_millis: u64,
}

/// One that takes a balancer's traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BalancerTarget {
    /// What people call it: the node's name.
    pub name: String,
    /// The ID of its machine, if it is one of this cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Where it is reached, at most one of each family; without any, where its machine is.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// It keeps the connections that it has and gets no new ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
}

/// A balancer to make by hand. Its addresses are taken from the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NewBalancer {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: Option<LoadBalancerKey>,
    /// One address of each of these families.
    pub families: Vec<IpFamily>,
    /// This very address; then there is no other one.
    pub ip: Option<IpAddr>,
    /// The group that shares the address.
    pub share_group: Option<String>,
    /// What it does.
    pub settings: BalancerSettings,
    /// Who takes its traffic.
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
    /// Its family.
    pub fn family(&self) -> IpFamily {
        family_of(&self.ip)
    }

    /// It carries this mark.
    pub fn is_owned_by(&self, key: &LoadBalancerKey) -> bool {
        self.owners.contains(key)
    }
}

/// The family of an address.
pub(crate) fn family_of(ip: &IpAddr) -> IpFamily {
    if ip.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 }
}

/// An owner, or nobody, for people.
pub(crate) struct Whose<'a>(pub(crate) Option<&'a LoadBalancerKey>);

impl fmt::Display for Whose<'_> {
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
            None => f.write_str("nobody"),
        }
    }
}
