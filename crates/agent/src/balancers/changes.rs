//! Write calls and their rules.

use std::collections::HashSet;
use std::net::IpAddr;

use bowline_agent_client::{
    AddressRequest, Balancer, BalancerSettings, Change, CloudAddress, Listener, NewBalancer, Query, TargetChange,
    Targets, family_of, has_another, other_group_address, outside_pool,
};
use bowline_core::{LoadBalancerKey, Protocol};

use super::{Balancers, Pools, RuleError, check_name};

impl Balancers {
    /// Applies a call. Returns whether it changed anything.
    pub fn apply(&mut self, pools: &Pools, query: &Query, change: Change) -> Result<bool, RuleError> {
        let key = &query.key;
        match change {
            Change::CreateAddress { desired } => self.allocate(pools, key, &desired).map(|(_, new)| new),
            Change::CreateBalancer { name, settings, targets } => self.create(query, name, settings, targets),
            Change::UpdateBalancer { id, settings, targets } => self.update(query, &id, settings, targets),
            Change::UpdateTargets { id, targets } => self.update_targets(key, &id, targets),
            Change::AdoptBalancer { id } => self.adopt(key, &id),
            Change::ReleaseBalancer { id } => self.release(key, &id),
            Change::DeleteBalancer { id } => self.delete(key, &id),
            Change::ReleaseAddress { id } => self.unmark_address(key, &id),
            Change::DeleteAddress { id } => self.delete_address(key, &id),
        }
    }

    // ---- addresses

    /// Returns the requested address with this mark: the existing one, that of the share group, or a new one; and whether the mark
    /// is new.
    fn allocate(
        &mut self,
        pools: &Pools,
        key: &LoadBalancerKey,
        desired: &AddressRequest,
    ) -> Result<(String, bool), RuleError> {
        if let Some(owned) = self.owned_addresses(key).find(|address| desired.matches(address)) {
            return Ok((owned.id.clone(), false));
        }
        let shared = self.addresses().find(|address| desired.is_of_group(key, address)).map(|found| (**found).clone());
        let mut address = match shared {
            Some(shared) if desired.matches(&shared) => shared,
            Some(shared) => return Err(RuleError::Invalid(other_group_address(desired, &shared))),
            None => self.new_address(pools, desired)?,
        };
        address.owners.push(key.clone());
        Ok((self.put_address(address).id.clone(), true))
    }

    fn new_address(&mut self, pools: &Pools, desired: &AddressRequest) -> Result<CloudAddress, RuleError> {
        let ip = match desired.ip {
            Some(ip) => self.check_free(pools, ip, desired).map(|()| ip)?,
            None => pools.first_free(desired.family, desired.internal, |ip| self.ips.contains_key(ip))?,
        };
        let id = self.new_id("ip");
        Ok(CloudAddress {
            id,
            ip,
            internal: desired.internal,
            share_group: desired.share_group.clone(),
            owners: Vec::new(),
        })
    }

    fn check_free(&self, pools: &Pools, ip: IpAddr, desired: &AddressRequest) -> Result<(), RuleError> {
        if let Some(found) = self.at(&ip) {
            return Err(RuleError::AddressTaken(ip, found.owners.first().cloned()));
        }
        if !pools.contains(&ip, desired.internal) || family_of(&ip) != desired.family {
            return Err(RuleError::Invalid(outside_pool(&ip, desired.internal)));
        }
        Ok(())
    }

    /// Removes the mark from an address. Idempotent.
    fn unmark_address(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, RuleError> {
        let mut address = CloudAddress::clone(self.address(id)?);
        if !address.is_owned_by(key) {
            return Ok(false);
        }
        address.owners.retain(|owner| owner != key);
        self.put_address(address);
        Ok(true)
    }

    fn delete_address(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, RuleError> {
        if let Some(user) = self.users_of(id).find(|user| user.owner.as_ref() == Some(key)) {
            return Err(RuleError::InUse(id.to_owned(), user.name.clone()));
        }
        let was_marked = self.unmark_address(key, id)?;
        // An address without an owner was retained on purpose.
        if was_marked {
            self.free_if_unused(id);
        }
        Ok(was_marked)
    }

    fn free_if_unused(&mut self, id: &str) {
        let unowned = self.addresses.get(id).is_some_and(|address| address.owners.is_empty());
        if unowned && !self.users.contains_key(id) {
            self.remove_address(id);
        }
    }

    // ---- load balancers

    /// Creates a load balancer with this mark, unless there is one.
    fn create(
        &mut self,
        query: &Query,
        name: String,
        settings: BalancerSettings,
        targets: Targets,
    ) -> Result<bool, RuleError> {
        if self.balancer_of(&query.key).is_some() {
            return Ok(false);
        }
        let addresses = self.owned_address_ids(query)?;
        self.create_record(name, Some(query.key.clone()), addresses, settings, targets).map(|_| true)
    }

    fn create_record(
        &mut self,
        name: String,
        owner: Option<LoadBalancerKey>,
        addresses: Vec<String>,
        settings: BalancerSettings,
        targets: Targets,
    ) -> Result<String, RuleError> {
        check_name(&name)?;
        if let Some(namesake) = self.named(&name) {
            return Err(RuleError::NameTaken(name, namesake.owner.clone()));
        }
        check_settings(&settings)?;
        self.check_ports(None, &addresses, &settings.listeners)?;
        let id = self.new_id("lb");
        self.put_balancer(Balancer { id: id.clone(), name, owner, addresses, settings, targets });
        Ok(id)
    }

    fn update(
        &mut self,
        query: &Query,
        id: &str,
        settings: BalancerSettings,
        targets: TargetChange,
    ) -> Result<bool, RuleError> {
        let old = self.owned(&query.key, id)?;
        let addresses = self.owned_address_ids(query)?;
        check_settings(&settings)?;
        self.check_ports(Some(id), &addresses, &settings.listeners)?;
        let targets = targets.apply(&old.targets);
        self.put_balancer(Balancer { addresses, settings, targets, ..old });
        Ok(true)
    }

    fn update_targets(&mut self, key: &LoadBalancerKey, id: &str, targets: TargetChange) -> Result<bool, RuleError> {
        let balancer = self.owned(key, id)?;
        let targets = targets.apply(&balancer.targets);
        self.put_balancer(Balancer { targets, ..balancer });
        Ok(true)
    }

    fn adopt(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, RuleError> {
        let mut balancer = Balancer::clone(self.balancer(id)?);
        match (&balancer.owner, self.balancer_of(key)) {
            (Some(owner), _) if owner == key => return Ok(false),
            (Some(owner), _) => return Err(RuleError::Foreign(balancer.name, Some(owner.clone()))),
            (None, Some(own)) => return Err(RuleError::Invalid(has_another(&own.name, &balancer.name))),
            (None, None) => balancer.owner = Some(key.clone()),
        }
        for address in self.unowned_addresses(&balancer)? {
            self.put_address(CloudAddress { owners: vec![key.clone()], ..address });
        }
        self.put_balancer(balancer);
        Ok(true)
    }

    /// Addresses of a load balancer without an owner, which must have no owner either.
    fn unowned_addresses(&self, balancer: &Balancer) -> Result<Vec<CloudAddress>, RuleError> {
        let addresses = self.addresses_of(balancer).map(|address| CloudAddress::clone(address));
        let unowned = addresses.map(|address| match address.owners.first() {
            Some(owner) => Err(RuleError::AddressTaken(address.ip, Some(owner.clone()))),
            None => Ok(address),
        });
        unowned.collect()
    }

    fn release(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, RuleError> {
        if self.balancer(id)?.owner.is_none() {
            return Ok(false);
        }
        let balancer = Balancer { owner: None, ..self.owned(key, id)? };
        for address in &balancer.addresses {
            self.unmark_address(key, address)?;
        }
        self.put_balancer(balancer);
        Ok(true)
    }

    fn delete(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, RuleError> {
        self.owned(key, id)?;
        self.remove_balancer(id);
        Ok(true)
    }

    // ---- management calls

    /// Creates a load balancer with addresses from the pool.
    pub fn add(&mut self, pools: &Pools, new: NewBalancer) -> Result<Balancer, RuleError> {
        if let Some(own) = new.owner.as_ref().and_then(|owner| self.balancer_of(owner)) {
            return Err(RuleError::Invalid(has_another(&own.name, &new.name)));
        }
        // On failure, no address is allocated.
        let mut after = self.clone();
        let addresses = after.allocate_all(pools, &new)?;
        let id = after.create_record(new.name, new.owner, addresses, new.settings, new.targets.into())?;
        *self = after;
        self.balancer(&id).map(|created| Balancer::clone(created))
    }

    fn allocate_all(&mut self, pools: &Pools, new: &NewBalancer) -> Result<Vec<String>, RuleError> {
        let families = new.ip.map_or_else(|| new.families.clone(), |ip| vec![family_of(&ip)]);
        let desired = |family| AddressRequest {
            family,
            internal: new.settings.internal,
            share_group: new.share_group.clone(),
            ip: new.ip,
        };
        let requests: Vec<_> = families.into_iter().map(desired).collect();
        requests.iter().map(|desired| self.allocate_for(pools, new, desired)).collect()
    }

    fn allocate_for(
        &mut self,
        pools: &Pools,
        new: &NewBalancer,
        desired: &AddressRequest,
    ) -> Result<String, RuleError> {
        match &new.owner {
            Some(owner) => self.allocate(pools, owner, desired).map(|(id, _)| id),
            None => {
                let address = self.new_address(pools, desired)?;
                Ok(self.put_address(address).id.clone())
            }
        }
    }

    /// Deletes a load balancer, and returns its addresses without other users to the pool.
    pub fn remove(&mut self, id: &str) -> Result<(), RuleError> {
        let removed = Balancer::clone(self.balancer(id)?);
        self.remove_balancer(id);
        for address in &removed.addresses {
            if let Some(owner) = &removed.owner {
                self.unmark_address(owner, address)?;
            }
            self.free_if_unused(address);
        }
        Ok(())
    }

    // ---- rules

    /// Returns the load balancer, if it carries this mark.
    fn owned(&self, key: &LoadBalancerKey, id: &str) -> Result<Balancer, RuleError> {
        let balancer = self.balancer(id)?;
        if balancer.owner.as_ref() != Some(key) {
            return Err(RuleError::Foreign(balancer.name.clone(), balancer.owner.clone()));
        }
        Ok(Balancer::clone(balancer))
    }

    /// IDs of the requested addresses, which must exist with the mark.
    fn owned_address_ids(&self, query: &Query) -> Result<Vec<String>, RuleError> {
        let find = |desired: &AddressRequest| self.owned_addresses(&query.key).find(|address| desired.matches(address));
        let missing = || RuleError::Changed("an address of this load balancer no longer exists".to_owned());
        query.addresses.iter().map(|desired| find(desired).map(|found| found.id.clone()).ok_or_else(missing)).collect()
    }

    /// Checks that no other load balancer uses a port of an address.
    fn check_ports(&self, id: Option<&str>, addresses: &[String], listeners: &[Listener]) -> Result<(), RuleError> {
        for address in addresses {
            let others = self.users_of(address).filter(|other| Some(other.id.as_str()) != id);
            for other in others {
                let conflicting =
                    other.settings.listeners.iter().find(|taken| listeners.iter().any(|new| new.conflicts_with(taken)));
                if let Some(taken) = conflicting {
                    let ip = self.address(address)?.ip;
                    return Err(RuleError::PortTaken(ip, taken.protocol, taken.port, other.owner.clone()));
                }
            }
        }
        Ok(())
    }
}

fn check_settings(settings: &BalancerSettings) -> Result<(), RuleError> {
    let mut ports = HashSet::new();
    for Listener { protocol, port, node_port } in &settings.listeners {
        if *port == 0 || *node_port == 0 {
            return Err(RuleError::Invalid("ports must be at least 1".to_owned()));
        }
        if *protocol == Protocol::Sctp {
            return Err(RuleError::Invalid("load balancers support TCP and UDP, not SCTP".to_owned()));
        }
        if !ports.insert((*protocol, *port)) {
            return Err(RuleError::Invalid(format!("duplicate port {port}")));
        }
    }
    let interval = settings.health_check.as_ref().map(|check| check.interval_millis);
    if [interval, settings.idle_timeout_millis, settings.affinity_seconds.map(u64::from)].contains(&Some(0)) {
        return Err(RuleError::Invalid("timeouts, intervals and affinity must be greater than 0".to_owned()));
    }
    Ok(())
}
