//! What the cloud tells an asker: all that carries its mark, and what stands in the way of what it wants.

use std::net::IpAddr;
use std::sync::Arc;

use bowline_core::{LoadBalancerKey, Protocol};
use serde::{Deserialize, Serialize};

use super::{AddressWish, Asking, Balancer, BalancerOptions, BalancerTarget, Balancers, CloudAddress, Listener};

/// All that there is for an asker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    /// Who asked.
    pub(crate) key: LoadBalancerKey,
    /// The addresses with its mark, by ID.
    pub(crate) addresses: Vec<Arc<CloudAddress>>,
    /// The balancer with its mark.
    pub(crate) balancer: Option<Arc<Balancer>>,
    /// The cloud is at work on an earlier change for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busy_millis: Option<u64>,
    /// The last change has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) failed: bool,
    /// What the balancer cannot listen on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<ListenerError>,
    /// Another's balancer with the name that a new one would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namesake: Option<Arc<Balancer>>,
    /// The balancer that is to be adopted, whosever it is, unless it is the asker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adoptee: Option<Adoptee>,
    /// What stands where an address is wanted; one for each wish.
    #[serde(default)]
    pub(crate) standings: Vec<Standing>,
}

/// A balancer that is to be adopted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Adoptee {
    pub(crate) balancer: Arc<Balancer>,
    pub(crate) addresses: Vec<Arc<CloudAddress>>,
}

/// What stands where an address is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Standing {
    /// The address that is asked for by number, or the group's, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<Arc<CloudAddress>>,
    /// The address that is asked for by number is none that the cloud can give.
    #[serde(default)]
    pub(crate) outside_pool: bool,
    /// What others listen on there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) taken: Vec<Taken>,
}

/// A port that another balancer has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Taken {
    pub(crate) listener: Listener,
    pub(crate) balancer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<LoadBalancerKey>,
}

/// What a balancer cannot listen on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListenerError {
    pub(crate) ip: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    pub(crate) message: String,
}

impl Observation {
    /// Of one for whom there is nothing, and nothing in the way.
    pub(crate) fn nothing(key: LoadBalancerKey) -> Observation {
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

    /// Approximate number of bytes in an answer. Targets are what makes an answer large.
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

    /// Nothing carries the mark.
    pub(crate) fn is_bare(&self) -> bool {
        self.balancer.is_none() && self.addresses.is_empty()
    }

    /// Nothing carries the mark, and there is nothing that a plan would have to know of.
    pub(crate) fn is_nothing(&self) -> bool {
        let clear = |standing: &Standing| standing.address.is_none() && !standing.outside_pool;
        self.is_bare() && self.namesake.is_none() && self.adoptee.is_none() && self.standings.iter().all(clear)
    }
}

impl Balancers {
    /// What this asker gets to see. Time and sockets are not known here.
    pub(crate) fn observe(&self, options: &BalancerOptions, asking: &Asking) -> Observation {
        let key = &asking.key;
        let foreign = |found: &&Arc<Balancer>| found.owner.as_ref() != Some(key);
        Observation {
            addresses: self.owned_addresses(key).cloned().collect(),
            balancer: self.balancer_of(key).cloned(),
            namesake: asking.name.as_deref().and_then(|name| self.named(name)).filter(foreign).cloned(),
            adoptee: asking.adopt.as_deref().and_then(|adopt| self.adoptee(adopt)).filter(foreign).map(|found| {
                Adoptee { balancer: found.clone(), addresses: self.addresses_of(found).cloned().collect() }
            }),
            standings: asking.addresses.iter().map(|desired| self.standing(options, key, desired)).collect(),
            ..Observation::nothing(key.clone())
        }
    }

    /// By ID or name.
    fn adoptee(&self, adopt: &str) -> Option<&Arc<Balancer>> {
        self.balancer(adopt).ok().or_else(|| self.named(adopt))
    }

    fn standing(&self, options: &BalancerOptions, key: &LoadBalancerKey, desired: &AddressWish) -> Standing {
        let asked = desired.ip.and_then(|ip| self.at(&ip));
        let shared =
            desired.share_group.as_ref().and_then(|_| self.addresses().find(|there| desired.is_of_group(key, there)));
        let address = shared.or(asked);
        let taken = address.map(|address| self.taken(key, address)).unwrap_or_default();
        let outside_pool = asked.is_none() && desired.ip.is_some_and(|ip| !options.holds(&ip, desired.internal));
        Standing { address: address.cloned(), outside_pool, taken }
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
