//! Load balancers and their addresses: records, indexes and rules.
//!
//! A plain value with the rules about names, marks, pools and ports; it knows nothing of files, time, faults or sockets.
//!
//! ```text
//!  address ip-0001 127.0.32.1  owners: web/front ◄──── load balancer lb-0002 "a1b2…"  owner: web/front
//!                              (several in a share group)      listeners, settings, targets
//! ```
//!
//! Resources of a Service carry its key as a mark and are found by it: creating an address or a load balancer with the same mark
//! twice returns the same resource.

mod changes;
mod observe;
#[cfg(feature = "daemon")]
mod patch;
mod pool;
mod pools;
mod rule_error;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use bowline_agent_client::{Balancer, CloudAddress};
use bowline_core::{ClusterName, LoadBalancerKey};

pub use observe::fit_response;
#[cfg(feature = "daemon")]
pub(crate) use patch::BalancersPatch;
pub use pool::{Pool, PoolError};
pub use pools::Pools;
pub use rule_error::{MAX_NAME_LENGTH, RuleError, check_name};

/// All load balancers and addresses. Clones share the records, so an old version is cheap to keep.
#[derive(Debug, Clone, Default)]
pub struct Balancers {
    balancers: BTreeMap<String, Arc<Balancer>>,
    addresses: BTreeMap<String, Arc<CloudAddress>>,
    owned: HashMap<LoadBalancerKey, Owned>,
    names: HashMap<String, String>,
    ips: HashMap<IpAddr, String>,
    /// Load balancers of each address.
    users: HashMap<String, BTreeSet<String>>,
    /// Number of the last generated ID.
    last: u64,
}

/// IDs of the resources with one mark.
#[derive(Debug, Clone, Default)]
struct Owned {
    balancer: Option<String>,
    addresses: BTreeSet<String>,
}

impl Balancers {
    /// Restores records; `last` is the number of the last generated ID.
    pub fn restore(addresses: Vec<CloudAddress>, balancers: Vec<Balancer>, last: u64) -> Result<Balancers, RuleError> {
        let mut all = Balancers { last, ..Balancers::default() };
        for address in addresses {
            if all.ips.contains_key(&address.ip) || all.addresses.contains_key(&address.id) {
                return Err(RuleError::Invalid(format!("duplicate address {} or {}", address.id, address.ip)));
            }
            all.put_address(address);
        }
        for balancer in balancers {
            all.check_restored(&balancer)?;
            all.put_balancer(balancer);
        }
        Ok(all)
    }

    fn check_restored(&self, balancer: &Balancer) -> Result<(), RuleError> {
        let Balancer { id, name, .. } = balancer;
        if self.balancers.contains_key(id) || self.names.contains_key(name) {
            return Err(RuleError::Invalid(format!("duplicate load balancer {id} or {name:?}")));
        }
        balancer.addresses.iter().try_for_each(|address| self.address(address).map(drop))
    }

    /// Number of the last generated ID.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// All load balancers, by ID.
    pub fn balancers(&self) -> impl Iterator<Item = &Arc<Balancer>> {
        self.balancers.values()
    }

    /// All addresses, by ID.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<CloudAddress>> {
        self.addresses.values()
    }

    /// Returns the load balancer with this ID.
    pub fn balancer(&self, id: &str) -> Result<&Arc<Balancer>, RuleError> {
        self.balancers.get(id).ok_or_else(|| RuleError::NoSuchBalancer(id.to_owned()))
    }

    /// Returns the address with this ID.
    pub fn address(&self, id: &str) -> Result<&Arc<CloudAddress>, RuleError> {
        self.addresses.get(id).ok_or_else(|| RuleError::NoSuchAddress(id.to_owned()))
    }

    /// Addresses of a load balancer, in order.
    pub fn addresses_of(&self, balancer: &Balancer) -> impl Iterator<Item = &Arc<CloudAddress>> {
        balancer.addresses.iter().filter_map(|id| self.addresses.get(id))
    }

    /// Load balancer with this mark.
    pub fn balancer_of(&self, key: &LoadBalancerKey) -> Option<&Arc<Balancer>> {
        self.balancers.get(self.owned.get(key)?.balancer.as_ref()?)
    }

    /// Addresses with this mark, by ID.
    fn owned_addresses(&self, key: &LoadBalancerKey) -> impl Iterator<Item = &Arc<CloudAddress>> {
        self.owned.get(key).into_iter().flat_map(|owned| &owned.addresses).filter_map(|id| self.addresses.get(id))
    }

    /// Load balancers of an address.
    fn users_of(&self, address: &str) -> impl Iterator<Item = &Arc<Balancer>> {
        self.users.get(address).into_iter().flatten().filter_map(|id| self.balancers.get(id))
    }

    fn named(&self, name: &str) -> Option<&Arc<Balancer>> {
        self.balancers.get(self.names.get(name)?)
    }

    fn at(&self, ip: &IpAddr) -> Option<&Arc<CloudAddress>> {
        self.addresses.get(self.ips.get(ip)?)
    }

    /// IDs of load balancers with targets that have no addresses and are resolved by machine.
    pub fn with_machine_targets(&self) -> Vec<String> {
        let by_machine = |balancer: &&Arc<Balancer>| balancer.targets.iter().any(|target| target.addresses.is_empty());
        self.balancers.values().filter(by_machine).map(|balancer| balancer.id.clone()).collect()
    }

    /// Returns at most `limit` owners of this cluster after this one, sorted, and whether there are more.
    pub fn owners(
        &self,
        cluster: &ClusterName,
        after: Option<&LoadBalancerKey>,
        limit: usize,
    ) -> (Vec<LoadBalancerKey>, bool) {
        let mut owners: Vec<_> = self.owned.keys().filter(|key| key.cluster == *cluster).collect();
        owners.retain(|key| after.is_none_or(|after| order(key) > order(after)));
        owners.sort_unstable_by(|left, right| order(left).cmp(&order(right)));
        (owners.iter().take(limit).map(|key| LoadBalancerKey::clone(key)).collect(), owners.len() > limit)
    }

    // ---- records and their indexes

    fn new_id(&mut self, prefix: &str) -> String {
        self.last = self.last.saturating_add(1);
        format!("{prefix}-{:04}", self.last)
    }

    fn put_address(&mut self, address: CloudAddress) -> Arc<CloudAddress> {
        self.remove_address(&address.id);
        for owner in &address.owners {
            self.owned.entry(owner.clone()).or_default().addresses.insert(address.id.clone());
        }
        self.ips.insert(address.ip, address.id.clone());
        let address = Arc::new(address);
        self.addresses.insert(address.id.clone(), address.clone());
        address
    }

    fn remove_address(&mut self, id: &str) {
        let Some(old) = self.addresses.remove(id) else { return };
        self.ips.remove(&old.ip);
        for owner in &old.owners {
            self.disown(owner, |owned| _ = owned.addresses.remove(id));
        }
    }

    fn put_balancer(&mut self, balancer: Balancer) -> Arc<Balancer> {
        self.remove_balancer(&balancer.id);
        if let Some(owner) = &balancer.owner {
            self.owned.entry(owner.clone()).or_default().balancer = Some(balancer.id.clone());
        }
        self.names.insert(balancer.name.clone(), balancer.id.clone());
        for address in &balancer.addresses {
            self.users.entry(address.clone()).or_default().insert(balancer.id.clone());
        }
        let balancer = Arc::new(balancer);
        self.balancers.insert(balancer.id.clone(), balancer.clone());
        balancer
    }

    fn remove_balancer(&mut self, id: &str) {
        let Some(old) = self.balancers.remove(id) else { return };
        self.names.remove(&old.name);
        if let Some(owner) = &old.owner {
            self.disown(owner, |owned| owned.balancer = None);
        }
        for address in &old.addresses {
            self.remove_user(address, id);
        }
    }

    fn remove_user(&mut self, address: &str, balancer: &str) {
        let Some(users) = self.users.get_mut(address) else { return };
        users.remove(balancer);
        if users.is_empty() {
            self.users.remove(address);
        }
    }

    fn disown(&mut self, owner: &LoadBalancerKey, remove: impl FnOnce(&mut Owned)) {
        let Some(owned) = self.owned.get_mut(owner) else { return };
        remove(owned);
        if owned.balancer.is_none() && owned.addresses.is_empty() {
            self.owned.remove(owner);
        }
    }
}

/// Sort key of owners.
fn order(key: &LoadBalancerKey) -> (&str, &str, &str) {
    (&key.namespace, &key.service, &key.uid)
}
