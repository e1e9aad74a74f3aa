//! What the writing calls do, and the rules that each of them has to keep.

use std::collections::HashSet;
use std::net::IpAddr;

use bowline_core::{LoadBalancerKey, Protocol};

use crate::cloud::CloudError;
use crate::fleet::check_name;

use super::calls::{AddressWish, Asking, Change, TargetChange};
use super::records::{Balancer, BalancerSettings, CloudAddress, Listener, NewBalancer, family_of};
use super::targets::Targets;
use super::{BalancerOptions, Balancers};

impl Balancers {
    /// Carries out a call; whether it changed anything.
    pub(crate) fn carry_out(
        &mut self,
        options: &BalancerOptions,
        asking: &Asking,
        change: Change,
    ) -> Result<bool, CloudError> {
        let key = &asking.key;
        match change {
            Change::CreateAddress { desired } => self.allocate(options, key, &desired).map(|(_, new)| new),
            Change::CreateBalancer { name, settings, targets } => self.create(asking, name, settings, targets),
            Change::UpdateBalancer { id, settings, targets } => self.update(asking, &id, settings, targets),
            Change::UpdateTargets { id, targets } => self.update_targets(key, &id, targets),
            Change::AdoptBalancer { id } => self.adopt(key, &id),
            Change::ReleaseBalancer { id } => self.release(key, &id),
            Change::DeleteBalancer { id } => self.delete(key, &id),
            Change::ReleaseAddress { id } => self.unmark_address(key, &id),
            Change::DeleteAddress { id } => self.give_back(key, &id),
        }
    }

    // ---- addresses

    /// The address with this mark that is wanted: the one that there is, the group's, or a new one. Whether the mark is
    /// new on it comes with it.
    fn allocate(
        &mut self,
        options: &BalancerOptions,
        key: &LoadBalancerKey,
        desired: &AddressWish,
    ) -> Result<(String, bool), CloudError> {
        if let Some(own) = self.owned_addresses(key).find(|address| desired.fits(address)) {
            return Ok((own.id.clone(), false));
        }
        let shared = self.addresses().find(|address| desired.is_of_group(key, address)).map(|found| (**found).clone());
        let mut address = match shared {
            Some(shared) if desired.fits(&shared) => shared,
            Some(shared) => return Err(CloudError::Invalid(other_group_address(desired, &shared))),
            None => self.new_address(options, desired)?,
        };
        address.owners.push(key.clone());
        Ok((self.put_address(address).id.clone(), true))
    }

    fn new_address(&mut self, options: &BalancerOptions, desired: &AddressWish) -> Result<CloudAddress, CloudError> {
        let ip = match desired.ip {
            Some(ip) => self.check_free(options, ip, desired).map(|()| ip)?,
            None => options.first_free(desired.family, desired.internal, |ip| self.ips.contains_key(ip))?,
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

    fn check_free(&self, options: &BalancerOptions, ip: IpAddr, desired: &AddressWish) -> Result<(), CloudError> {
        if let Some(held) = self.at(&ip) {
            return Err(CloudError::AddressTaken(ip, held.owners.first().cloned()));
        }
        if !options.holds(&ip, desired.internal) || family_of(&ip) != desired.family {
            return Err(CloudError::Invalid(outside_pool(&ip, desired.internal)));
        }
        Ok(())
    }

    /// Takes the mark away. An address that does not carry it has lost it already.
    fn unmark_address(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, CloudError> {
        let mut address = CloudAddress::clone(self.address(id)?);
        if !address.is_owned_by(key) {
            return Ok(false);
        }
        address.owners.retain(|owner| owner != key);
        self.put_address(address);
        Ok(true)
    }

    fn give_back(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, CloudError> {
        if let Some(user) = self.users_of(id).find(|user| user.owner.as_ref() == Some(key)) {
            return Err(CloudError::InUse(id.to_owned(), user.name.clone()));
        }
        let marked = self.unmark_address(key, id)?;
        // One that was nobody's before was left behind on purpose.
        if marked {
            self.free_if_unused(id);
        }
        Ok(marked)
    }

    fn free_if_unused(&mut self, id: &str) {
        let unowned = self.addresses.get(id).is_some_and(|address| address.owners.is_empty());
        if unowned && !self.users.contains_key(id) {
            self.take_address(id);
        }
    }

    // ---- balancers

    /// Makes a balancer with this mark, unless there is one.
    fn create(
        &mut self,
        asking: &Asking,
        name: String,
        settings: BalancerSettings,
        targets: Targets,
    ) -> Result<bool, CloudError> {
        if self.balancer_of(&asking.key).is_some() {
            return Ok(false);
        }
        let addresses = self.marked_for(asking)?;
        self.make(name, Some(asking.key.clone()), addresses, settings, targets).map(|_| true)
    }

    fn make(
        &mut self,
        name: String,
        owner: Option<LoadBalancerKey>,
        addresses: Vec<String>,
        settings: BalancerSettings,
        targets: Targets,
    ) -> Result<String, CloudError> {
        check_name(&name)?;
        if let Some(namesake) = self.named(&name) {
            return Err(CloudError::NameTaken(name, namesake.owner.clone()));
        }
        check_settings(&settings)?;
        self.check_ports(None, &addresses, &settings.listeners)?;
        let id = self.new_id("lb");
        self.put_balancer(Balancer { id: id.clone(), name, owner, addresses, settings, targets });
        Ok(id)
    }

    fn update(
        &mut self,
        asking: &Asking,
        id: &str,
        settings: BalancerSettings,
        targets: TargetChange,
    ) -> Result<bool, CloudError> {
        let old = self.own(&asking.key, id)?;
        let addresses = self.marked_for(asking)?;
        check_settings(&settings)?;
        self.check_ports(Some(id), &addresses, &settings.listeners)?;
        let targets = targets.apply(&old.targets);
        self.put_balancer(Balancer { addresses, settings, targets, ..old });
        Ok(true)
    }

    fn update_targets(&mut self, key: &LoadBalancerKey, id: &str, targets: TargetChange) -> Result<bool, CloudError> {
        let balancer = self.own(key, id)?;
        let targets = targets.apply(&balancer.targets);
        self.put_balancer(Balancer { targets, ..balancer });
        Ok(true)
    }

    fn adopt(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, CloudError> {
        let mut balancer = Balancer::clone(self.balancer(id)?);
        match (&balancer.owner, self.balancer_of(key)) {
            (Some(owner), _) if owner == key => return Ok(false),
            (Some(owner), _) => return Err(CloudError::Foreign(balancer.name, Some(owner.clone()))),
            (None, Some(own)) => return Err(CloudError::Invalid(has_another(&own.name, &balancer.name))),
            (None, None) => balancer.owner = Some(key.clone()),
        }
        for address in self.unowned_addresses(&balancer)? {
            self.put_address(CloudAddress { owners: vec![key.clone()], ..address });
        }
        self.put_balancer(balancer);
        Ok(true)
    }

    /// The addresses of a balancer that is nobody's, which must be nobody's as well.
    fn unowned_addresses(&self, balancer: &Balancer) -> Result<Vec<CloudAddress>, CloudError> {
        let addresses = self.addresses_of(balancer).map(|address| CloudAddress::clone(address));
        let unowned = addresses.map(|address| match address.owners.first() {
            Some(owner) => Err(CloudError::AddressTaken(address.ip, Some(owner.clone()))),
            None => Ok(address),
        });
        unowned.collect()
    }

    fn release(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, CloudError> {
        if self.balancer(id)?.owner.is_none() {
            return Ok(false);
        }
        let balancer = Balancer { owner: None, ..self.own(key, id)? };
        for address in &balancer.addresses {
            self.unmark_address(key, address)?;
        }
        self.put_balancer(balancer);
        Ok(true)
    }

    fn delete(&mut self, key: &LoadBalancerKey, id: &str) -> Result<bool, CloudError> {
        self.own(key, id)?;
        self.take_balancer(id);
        Ok(true)
    }

    // ---- by hand

    /// Makes a balancer by hand, with addresses from the pool.
    pub(crate) fn add(&mut self, options: &BalancerOptions, new: NewBalancer) -> Result<Balancer, CloudError> {
        if let Some(own) = new.owner.as_ref().and_then(|owner| self.balancer_of(owner)) {
            return Err(CloudError::Invalid(has_another(&own.name, &new.name)));
        }
        // Of a balancer that cannot be made no address is left.
        let mut after = self.clone();
        let addresses = after.addresses_by_hand(options, &new)?;
        let id = after.make(new.name, new.owner, addresses, new.settings, new.targets.into())?;
        *self = after;
        self.balancer(&id).map(|made| Balancer::clone(made))
    }

    fn addresses_by_hand(&mut self, options: &BalancerOptions, new: &NewBalancer) -> Result<Vec<String>, CloudError> {
        let families = new.ip.map_or_else(|| new.families.clone(), |ip| vec![family_of(&ip)]);
        let desired = |family| AddressWish {
            family,
            internal: new.settings.internal,
            share_group: new.share_group.clone(),
            ip: new.ip,
        };
        let wanted: Vec<_> = families.into_iter().map(desired).collect();
        wanted.iter().map(|desired| self.address_by_hand(options, new, desired)).collect()
    }

    fn address_by_hand(
        &mut self,
        options: &BalancerOptions,
        new: &NewBalancer,
        desired: &AddressWish,
    ) -> Result<String, CloudError> {
        match &new.owner {
            Some(owner) => self.allocate(options, owner, desired).map(|(id, _)| id),
            None => {
                let address = self.new_address(options, desired)?;
                Ok(self.put_address(address).id.clone())
            }
        }
    }

    /// Removes a balancer by hand, and gives its addresses back that nobody else has.
    pub(crate) fn remove(&mut self, id: &str) -> Result<(), CloudError> {
        let gone = Balancer::clone(self.balancer(id)?);
        self.take_balancer(id);
        for address in &gone.addresses {
            if let Some(owner) = &gone.owner {
                self.unmark_address(owner, address)?;
            }
            self.free_if_unused(address);
        }
        Ok(())
    }

    // ---- rules

    /// The balancer, if it carries this mark.
    fn own(&self, key: &LoadBalancerKey, id: &str) -> Result<Balancer, CloudError> {
        let balancer = self.balancer(id)?;
        if balancer.owner.as_ref() != Some(key) {
            return Err(CloudError::Foreign(balancer.name.clone(), balancer.owner.clone()));
        }
        Ok(Balancer::clone(balancer))
    }

    /// The addresses that the asker wants, which must be there with its mark.
    fn marked_for(&self, asking: &Asking) -> Result<Vec<String>, CloudError> {
        let find = |desired: &AddressWish| self.owned_addresses(&asking.key).find(|address| desired.fits(address));
        let missing =
            || CloudError::Changed("an address that this balancer was to have is not there any more".to_owned());
        asking.addresses.iter().map(|desired| find(desired).map(|found| found.id.clone()).ok_or_else(missing)).collect()
    }

    /// No two balancers listen on one port of one address.
    fn check_ports(&self, id: Option<&str>, addresses: &[String], listeners: &[Listener]) -> Result<(), CloudError> {
        for address in addresses {
            let others = self.users_of(address).filter(|other| Some(other.id.as_str()) != id);
            for other in others {
                let clash =
                    other.settings.listeners.iter().find(|taken| listeners.iter().any(|new| new.clashes(taken)));
                if let Some(clash) = clash {
                    let ip = self.address(address)?.ip;
                    return Err(CloudError::PortTaken(ip, clash.protocol, clash.port, other.owner.clone()));
                }
            }
        }
        Ok(())
    }
}

impl Listener {
    /// They cannot both be at one address.
    pub(crate) fn clashes(&self, other: &Listener) -> bool {
        (self.protocol, self.port) == (other.protocol, other.port)
    }
}

fn check_settings(settings: &BalancerSettings) -> Result<(), CloudError> {
    let mut seen = HashSet::new();
    for Listener { protocol, port, node_port } in &settings.listeners {
        if *port == 0 || *node_port == 0 {
            return Err(CloudError::Invalid("a port is a number from 1".to_owned()));
        }
        if *protocol == Protocol::Sctp {
            return Err(CloudError::Invalid("balancers here speak TCP and UDP, not SCTP".to_owned()));
        }
        if !seen.insert((*protocol, *port)) {
            return Err(CloudError::Invalid(format!("the port {port} is there twice")));
        }
    }
    let interval = settings.health_check.as_ref().map(|check| check.interval_millis);
    if [interval, settings.idle_timeout_millis, settings.affinity_seconds.map(u64::from)].contains(&Some(0)) {
        return Err(CloudError::Invalid("a timeout, an interval or an affinity of 0 makes no sense".to_owned()));
    }
    Ok(())
}

/// Why an address cannot be had.
pub(crate) fn outside_pool(ip: &IpAddr, internal: bool) -> String {
    let inside = if internal { "internal " } else { "" };
    format!("the address {ip} is not in the cloud's {inside}pool; ask for one that is, or for none")
}

/// Why a group's address cannot be had.
pub(crate) fn other_group_address(desired: &AddressWish, shared: &CloudAddress) -> String {
    let (group, ip) = (desired.share_group.as_deref().unwrap_or_default(), shared.ip);
    format!("the share group {group:?} has the address {ip}; ask for that one, or for none")
}

/// Why a balancer cannot be adopted or made.
pub(crate) fn has_another(own: &str, other: &str) -> String {
    format!("this Service has the balancer {own:?} already and cannot have {other:?} as well")
}
