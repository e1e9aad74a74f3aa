//! Observation of a Service: the resources with its mark, and conflicting ones.

use std::net::IpAddr;
use std::sync::Arc;

use bowline_core::{LoadBalancerKey, Protocol};
use serde::{Deserialize, Serialize};

use super::{AddressRequest, Balancer, BalancerOptions, BalancerTarget, Balancers, CloudAddress, Listener, Query};

/// Resources of a Service, and conflicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// Service.
    pub(crate) key: LoadBalancerKey,
    /// Addresses with its mark, by ID.
    pub(crate) addresses: Vec<Arc<CloudAddress>>,
    /// Load balancer with its mark.
    pub(crate) balancer: Option<Arc<Balancer>>,
    /// Remaining time of a change in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busy_millis: Option<u64>,
    /// The last change has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) failed: bool,
    /// Failed listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<ListenerError>,
    /// Load balancer of another owner with the name of a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namesake: Option<Arc<Balancer>>,
    /// Load balancer to adopt, unless the Service already owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adoptee: Option<Adoptee>,
    /// Status of each requested address.
    #[serde(default)]
    pub(crate) standings: Vec<AddressStatus>,
}

/// Load balancer to adopt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Adoptee {
    pub(crate) balancer: Arc<Balancer>,
    pub(crate) addresses: Vec<Arc<CloudAddress>>,
}

/// Status of a requested address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddressStatus {
    /// Existing address: the specific one, or that of the share group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<Arc<CloudAddress>>,
    /// The specific address is not in the pool.
    #[serde(default)]
    pub(crate) outside_pool: bool,
    /// Ports in use by other load balancers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) taken: Vec<Taken>,
}

/// Port in use by another load balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Taken {
    pub(crate) listener: Listener,
    pub(crate) balancer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<LoadBalancerKey>,
}

/// Failed listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListenerError {
    pub(crate) ip: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) message: String,
}

impl Observation {
    /// Observation without resources and conflicts.
    pub(crate) fn empty(key: LoadBalancerKey) -> Observation {
        Observation {
            key,
            addresses: Vec::new(),
            balancer: None,
            busy_millis: None,
            failed: false,
            errors: Vec::new(),
            namesake: None,
            adoptee: None,
            standings: Vec::new(),
        }
    }

    /// Approximate size in a response, in bytes. The targets dominate.
    pub(crate) fn size(&self) -> usize {
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
    pub(crate) fn has_no_resources(&self) -> bool {
        self.balancer.is_none() && self.addresses.is_empty()
    }

    /// Whether there are neither resources nor conflicts.
    pub(crate) fn is_empty(&self) -> bool {
        let is_free = |status: &AddressStatus| status.address.is_none() && !status.outside_pool;
        self.has_no_resources()
            && self.namesake.is_none()
            && self.adoptee.is_none()
            && self.standings.iter().all(is_free)
    }
}

impl Balancers {
    /// Observes a Service, without changes in progress and listener errors.
    pub(crate) fn observe(&self, options: &BalancerOptions, query: &Query) -> Observation {
        let key = &query.key;
        let foreign = |found: &&Arc<Balancer>| found.owner.as_ref() != Some(key);
        Observation {
            addresses: self.owned_addresses(key).cloned().collect(),
            balancer: self.balancer_of(key).cloned(),
            namesake: query.name.as_deref().and_then(|name| self.named(name)).filter(foreign).cloned(),
            adoptee: query.adopt.as_deref().and_then(|adopt| self.adoptee(adopt)).filter(foreign).map(|found| {
                Adoptee { balancer: found.clone(), addresses: self.addresses_of(found).cloned().collect() }
            }),
            standings: query.addresses.iter().map(|desired| self.address_status(options, key, desired)).collect(),
            ..Observation::empty(key.clone())
        }
    }

    /// Load balancer by ID or name.
    fn adoptee(&self, adopt: &str) -> Option<&Arc<Balancer>> {
        self.balancer(adopt).ok().or_else(|| self.named(adopt))
    }

    fn address_status(
        &self,
        options: &BalancerOptions,
        key: &LoadBalancerKey,
        desired: &AddressRequest,
    ) -> AddressStatus {
        let specific = desired.ip.and_then(|ip| self.at(&ip));
        let shared = desired
            .share_group
            .as_ref()
            .and_then(|_| self.addresses().find(|address| desired.is_of_group(key, address)));
        let address = shared.or(specific);
        let taken = address.map(|address| self.taken(key, address)).unwrap_or_default();
        let outside_pool = specific.is_none() && desired.ip.is_some_and(|ip| !options.contains(&ip, desired.internal));
        AddressStatus { address: address.cloned(), outside_pool, taken }
    }

    fn taken(&self, key: &LoadBalancerKey, address: &CloudAddress) -> Vec<Taken> {
        let others = self.users_of(&address.id).filter(|user| user.owner.as_ref() != Some(key));
        let ports = others.flat_map(|other| {
            let taken = |listener: &Listener| Taken {
                listener: listener.clone(),
                balancer: other.name.clone(),
                owner: other.owner.clone(),
            };
            other.settings.listeners.iter().map(taken).collect::<Vec<_>>()
        });
        ports.collect()
    }
}
