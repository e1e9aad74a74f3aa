//! Allocations and releases of one write.
//!
//! A claim allocates immediately and releases only on commit. If it is dropped without a commit, it rolls back its
//! allocations. A dry run allocates nothing and returns simulated results.

use std::net::IpAddr;

use super::pools::{AllocationError, Pools};
use crate::resources::Reservation;

pub(super) struct Claim {
    pools: Pools,
    dry_run: bool,
    allocated_addresses: Vec<IpAddr>,
    allocated_ports: Vec<i64>,
    released_addresses: Vec<IpAddr>,
    released_ports: Vec<i64>,
}

impl Claim {
    pub(super) fn new(pools: &Pools, dry_run: bool) -> Claim {
        Claim {
            pools: pools.clone(),
            dry_run,
            allocated_addresses: Vec::new(),
            allocated_ports: Vec::new(),
            released_addresses: Vec::new(),
            released_ports: Vec::new(),
        }
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn allocate_address(&mut self, ip: IpAddr) -> Result<(), AllocationError> {
        if !self.dry_run {
            self.pools.allocate_address(ip)?;
            self.allocated_addresses.push(ip);
        } else if !self.pools.covers(ip) {
            return Err(AllocationError::AddressOutOfRange { ip, range: self.pools.range() });
        }
        Ok(())
    }

    pub(super) fn allocate_next_address(&mut self) -> Result<IpAddr, AllocationError> {
        if self.dry_run {
            // upstream: a dry run does not search for a free address and returns the network address.
            return Ok(self.pools.range().network());
        }
        let ip = self.pools.allocate_next_address()?;
        self.allocated_addresses.push(ip);
        Ok(ip)
    }

    pub(super) fn allocate_port(&mut self, port: i64) -> Result<(), AllocationError> {
        if !self.dry_run {
            self.pools.allocate_port(port)?;
        } else if self.pools.has_port(port) || self.allocated_ports.contains(&port) {
            // upstream: a dry run does not check the range.
            return Err(AllocationError::PortAllocated);
        }
        self.allocated_ports.push(port);
        Ok(())
    }

    pub(super) fn allocate_next_port(&mut self) -> Result<i64, AllocationError> {
        /// upstream: a dry run counts from here if no port is allocated yet.
        const DRY_RUN_BASE: i64 = 32_768;
        let port = match self.dry_run {
            true => self.allocated_ports.iter().max().unwrap_or(&DRY_RUN_BASE).saturating_add(1),
            false => self.pools.allocate_next_port()?,
        };
        self.allocated_ports.push(port);
        Ok(port)
    }

    /// Releases an address on commit.
    pub(super) fn release_address(&mut self, ip: IpAddr) {
        self.released_addresses.push(ip);
    }

    /// Releases a port on commit.
    pub(super) fn release_port(&mut self, port: i64) {
        self.released_ports.push(port);
    }

    /// Returns `None` if there is nothing to commit or roll back.
    pub(super) fn into_reservation(self) -> Option<Reservation> {
        let lists = [&self.allocated_ports, &self.released_ports];
        let addresses = [&self.allocated_addresses, &self.released_addresses];
        let idle = lists.iter().all(|l| l.is_empty()) && addresses.iter().all(|l| l.is_empty());
        if self.dry_run || idle {
            return None;
        }
        // Without a commit the claim is dropped together with the reservation, which rolls back its allocations.
        Some(Reservation::new(move || self.commit(), || ()))
    }

    fn commit(mut self) {
        self.allocated_addresses.clear();
        self.allocated_ports.clear();
        self.released_addresses.iter().for_each(|&ip| self.pools.release_address(ip));
        self.released_ports.iter().for_each(|&port| self.pools.release_port(port));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.dry_run {
            self.allocated_addresses.iter().for_each(|&ip| self.pools.release_address(ip));
            self.allocated_ports.iter().for_each(|&port| self.pools.release_port(port));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools() -> Pools {
        Pools::new("10.96.0.0/16".parse().unwrap(), (30_000, 32_767))
    }

    #[test]
    fn dropped_claim_rolls_back_its_allocations() {
        let pools = pools();
        let mut claim = Claim::new(&pools, false);
        claim.allocate_port(30_001).unwrap();
        claim.allocate_address("10.96.0.9".parse().unwrap()).unwrap();
        drop(claim.into_reservation());
        assert_eq!(pools.allocate_port(30_001), Ok(()));
        assert_eq!(pools.allocate_address("10.96.0.9".parse().unwrap()), Ok(()));
    }

    #[test]
    fn commit_keeps_allocations_and_applies_releases() {
        let pools = pools();
        pools.allocate_port(30_002).unwrap();
        let mut claim = Claim::new(&pools, false);
        claim.allocate_port(30_001).unwrap();
        claim.release_port(30_002);
        assert!(pools.has_port(30_002), "not before the commit");
        claim.into_reservation().unwrap().commit();
        assert!(pools.has_port(30_001));
        assert!(!pools.has_port(30_002));
    }

    #[test]
    fn failed_write_releases_nothing() {
        let pools = pools();
        pools.allocate_port(30_002).unwrap();
        let mut claim = Claim::new(&pools, false);
        claim.release_port(30_002);
        drop(claim.into_reservation());
        assert!(pools.has_port(30_002));
    }

    #[test]
    fn dry_run_does_not_change_the_pools() {
        let pools = pools();
        pools.allocate_port(30_003).unwrap();
        let mut claim = Claim::new(&pools, true);
        assert_eq!(claim.allocate_port(30_003), Err(AllocationError::PortAllocated));
        assert_eq!(claim.allocate_port(30_013), Ok(()));
        assert_eq!(claim.allocate_port(30_013), Err(AllocationError::PortAllocated));
        assert_eq!(claim.allocate_next_port(), Ok(30_014));
        assert_eq!(claim.allocate_next_address(), Ok("10.96.0.0".parse().unwrap()));
        let outside = claim.allocate_address("192.0.2.1".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            outside,
            "the provided IP (192.0.2.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16"
        );
        claim.release_port(30_003);
        assert!(claim.into_reservation().is_none());
        assert!(pools.has_port(30_003));
        assert!(!pools.has_port(30_013));
    }
}
