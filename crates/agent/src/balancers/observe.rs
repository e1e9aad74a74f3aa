//! Observation of a Service: the resources with its mark, and conflicting ones.

use std::sync::Arc;

use bowline_agent_client::{
    AddressRequest, AddressStatus, Adoptee, Balancer, CloudAddress, Listener, Observation, Query, Taken,
};

use bowline_core::LoadBalancerKey;

use super::{Balancers, Pools};

/// Approximate maximum size of a response; a larger load balancer is returned alone. Half of what a client reads.
const MAX_RESPONSE: usize = 8 << 20;

/// Takes as many observations as fit into one response, at least one.
pub fn fit_response(observations: impl Iterator<Item = Observation>) -> Vec<Observation> {
    let mut size = 0;
    let mut found = Vec::new();
    for observation in observations {
        size += observation.size();
        if size > MAX_RESPONSE && !found.is_empty() {
            break;
        }
        found.push(observation);
    }
    found
}

impl Balancers {
    /// Observes a Service, without changes in progress and listener errors.
    pub fn observe(&self, pools: &Pools, query: &Query) -> Observation {
        let key = &query.key;
        let foreign = |found: &&Arc<Balancer>| found.owner.as_ref() != Some(key);
        Observation {
            addresses: self.owned_addresses(key).cloned().collect(),
            balancer: self.balancer_of(key).cloned(),
            namesake: query.name.as_deref().and_then(|name| self.named(name)).filter(foreign).cloned(),
            adoptee: query.adopt.as_deref().and_then(|adopt| self.adoptee(adopt)).filter(foreign).map(|found| {
                Adoptee { balancer: found.clone(), addresses: self.addresses_of(found).cloned().collect() }
            }),
            standings: query.addresses.iter().map(|desired| self.address_status(pools, key, desired)).collect(),
            ..Observation::empty(key.clone())
        }
    }

    /// Load balancer by ID or name.
    fn adoptee(&self, adopt: &str) -> Option<&Arc<Balancer>> {
        self.balancer(adopt).ok().or_else(|| self.named(adopt))
    }

    fn address_status(&self, pools: &Pools, key: &LoadBalancerKey, desired: &AddressRequest) -> AddressStatus {
        let specific = desired.ip.and_then(|ip| self.at(&ip));
        let shared = desired
            .share_group
            .as_ref()
            .and_then(|_| self.addresses().find(|address| desired.is_of_group(key, address)));
        let address = shared.or(specific);
        let taken = address.map(|address| self.taken(key, address)).unwrap_or_default();
        let outside_pool = specific.is_none() && desired.ip.is_some_and(|ip| !pools.contains(&ip, desired.internal));
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
