//! Observation of a Service: the resources with its mark, and conflicting ones.

use std::net::IpAddr;
use std::sync::Arc;

use bowline_core::{LoadBalancerKey, Protocol};
use serde::{Deserialize, Serialize};

use crate::records::{Balancer, BalancerTarget, CloudAddress, Listener};

/// Resources of a Service, and conflicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// Service.
    pub key: LoadBalancerKey,
    /// Addresses with its mark, by ID.
    pub addresses: Vec<Arc<CloudAddress>>,
    /// Load balancer with its mark.
    pub balancer: Option<Arc<Balancer>>,
    /// Remaining time of a change in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_millis: Option<u64>,
    /// The last change has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Failed listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ListenerError>,
    /// Conditions of the agents that concern every Service, such as an unreachable standby. They become Events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Load balancer of another owner with the name of a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namesake: Option<Arc<Balancer>>,
    /// Load balancer to adopt, unless the Service already owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoptee: Option<Adoptee>,
    /// Status of each requested address.
    #[serde(default)]
    pub standings: Vec<AddressStatus>,
}

/// Load balancer to adopt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adoptee {
    /// The load balancer.
    pub balancer: Arc<Balancer>,
    /// Its addresses.
    pub addresses: Vec<Arc<CloudAddress>>,
}

/// Status of a requested address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// Existing address: the specific one, or that of the share group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Arc<CloudAddress>>,
    /// The specific address is not in the pool.
    #[serde(default)]
    pub outside_pool: bool,
    /// Ports in use by other load balancers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
}

/// Port in use by another load balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    /// Listener with the port.
    pub listener: Listener,
    /// Name of the load balancer.
    pub balancer: String,
    /// Its owner, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<LoadBalancerKey>,
}

/// Failed listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListenerError {
    /// Address.
    pub ip: IpAddr,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Port for clients.
    pub port: u16,
    /// Cause, and its fix.
    pub message: String,
}

impl Observation {
    /// Observation without resources and conflicts.
    pub fn empty(key: LoadBalancerKey) -> Observation {
        Observation {
            key,
            addresses: Vec::new(),
            balancer: None,
            busy_millis: None,
            failed: false,
            errors: Vec::new(),
            warnings: Vec::new(),
            namesake: None,
            adoptee: None,
            standings: Vec::new(),
        }
    }

    /// Approximate size in a response, in bytes. The targets dominate.
    pub fn size(&self) -> usize {
        let balancers =
            [self.balancer.as_ref(), self.namesake.as_ref(), self.adoptee.as_ref().map(|found| &found.balancer)];
        let targets = balancers.into_iter().flatten().flat_map(|balancer| balancer.targets.iter());
        let target = |target: &BalancerTarget| {
            let machine = target.machine.as_ref().map_or(0, String::len);
            64 + target.name.len() + machine + 42 * target.addresses.len()
        };
        4_096 + targets.map(target).sum::<usize>()
    }

    /// Whether no resource carries the mark.
    pub fn has_no_resources(&self) -> bool {
        self.balancer.is_none() && self.addresses.is_empty()
    }

    /// Whether there are neither resources nor conflicts.
    pub fn is_empty(&self) -> bool {
        let is_free = |status: &AddressStatus| status.address.is_none() && !status.outside_pool;
        self.has_no_resources()
            && self.namesake.is_none()
            && self.adoptee.is_none()
            && self.standings.iter().all(is_free)
    }
}
