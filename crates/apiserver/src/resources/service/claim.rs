//! What one write takes from the pools and gives back to them.
//!
//! Taking happens at once, giving back only when the write goes through. A claim that is dropped without a
//! commit puts back what it took. A dry run takes nothing, but answers as if.

use std::net::IpAddr;

use super::pools::{Pools, Refusal};
use crate::resources::Reservation;

pub(super) struct Claim {
    pools: Pools,
    dry_run: bool,
    taken_addresses: Vec<IpAddr>,
    taken_ports: Vec<i64>,
    freed_addresses: Vec<IpAddr>,
    freed_ports: Vec<i64>,
}

impl Claim {
    pub(super) fn new(pools: &Pools, dry_run: bool) -> Claim {
        Claim {
            pools: pools.clone(),
            dry_run,
            taken_addresses: Vec::new(),
            taken_ports: Vec::new(),
            freed_addresses: Vec::new(),
            freed_ports: Vec::new(),
        }
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn take_address(&mut self, ip: IpAddr) -> Result<(), Refusal> {
        if !self.dry_run {
            self.pools.take_address(ip)?;
            self.taken_addresses.push(ip);
        } else if !self.pools.covers(ip) {
            return Err(Refusal::AddressNotInRange { ip, range: self.pools.range() });
        }
        Ok(())
    }

    pub(super) fn take_any_address(&mut self) -> Result<IpAddr, Refusal> {
        if self.dry_run {
            // upstream: a dry run does not look for a free one; it shows the network's own address.
            return Ok(self.pools.range().network());
        }
        let ip = self.pools.take_any_address()?;
        self.taken_addresses.push(ip);
        Ok(ip)
    }

    pub(super) fn take_port(&mut self, port: i64) -> Result<(), Refusal> {
        if !self.dry_run {
            self.pools.take_port(port)?;
        } else if self.pools.has_port(port) || self.taken_ports.contains(&port) {
            // upstream: a dry run checks for this, but not for the range.
            return Err(Refusal::PortTaken);
        }
        self.taken_ports.push(port);
        Ok(())
    }

    pub(super) fn take_any_port(&mut self) -> Result<i64, Refusal> {
        /// upstream: what a dry run shows when it has nothing to count on from.
        const LAST_GUESS: i64 = 32_768;
        let port = match self.dry_run {
            true => self.taken_ports.iter().max().unwrap_or(&LAST_GUESS).saturating_add(1),
            false => self.pools.take_any_port()?,
        };
        self.taken_ports.push(port);
        Ok(port)
    }

    /// Gives an address back when the write goes through.
    pub(super) fn free_address(&mut self, ip: IpAddr) {
        self.freed_addresses.push(ip);
    }

    /// Gives a port back when the write goes through.
    pub(super) fn free_port(&mut self, port: i64) {
        self.freed_ports.push(port);
    }

    /// `None` where the pools stay as they are, whatever becomes of the write.
    pub(super) fn into_reservation(self) -> Option<Reservation> {
        let lists = [&self.taken_ports, &self.freed_ports];
        let addresses = [&self.taken_addresses, &self.freed_addresses];
        let idle = lists.iter().all(|l| l.is_empty()) && addresses.iter().all(|l| l.is_empty());
        if self.dry_run || idle {
            return None;
        }
        // Not committed, the claim goes down with the reservation, and that puts everything back.
        Some(Reservation::new(move || self.commit(), || ()))
    }

    fn commit(mut self) {
        self.taken_addresses.clear();
        self.taken_ports.clear();
        self.freed_addresses.iter().for_each(|&ip| self.pools.release_address(ip));
        self.freed_ports.iter().for_each(|&port| self.pools.release_port(port));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.dry_run {
            self.taken_addresses.iter().for_each(|&ip| self.pools.release_address(ip));
            self.taken_ports.iter().for_each(|&port| self.pools.release_port(port));
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
    fn a_dropped_claim_puts_everything_back() {
        let pools = pools();
        let mut claim = Claim::new(&pools, false);
        claim.take_port(30_001).unwrap();
        claim.take_address("10.96.0.9".parse().unwrap()).unwrap();
        drop(claim.into_reservation());
        assert_eq!(pools.take_port(30_001), Ok(()));
        assert_eq!(pools.take_address("10.96.0.9".parse().unwrap()), Ok(()));
    }

    #[test]
    fn a_commit_keeps_what_was_taken_and_frees_the_rest() {
        let pools = pools();
        pools.take_port(30_002).unwrap();
        let mut claim = Claim::new(&pools, false);
        claim.take_port(30_001).unwrap();
        claim.free_port(30_002);
        assert!(pools.has_port(30_002), "not before the commit");
        claim.into_reservation().unwrap().commit();
        assert!(pools.has_port(30_001));
        assert!(!pools.has_port(30_002));
    }

    #[test]
    fn a_write_that_fails_frees_nothing() {
        let pools = pools();
        pools.take_port(30_002).unwrap();
        let mut claim = Claim::new(&pools, false);
        claim.free_port(30_002);
        drop(claim.into_reservation());
        assert!(pools.has_port(30_002));
    }

    #[test]
    fn a_dry_run_leaves_the_pools_alone() {
        let pools = pools();
        pools.take_port(30_003).unwrap();
        let mut claim = Claim::new(&pools, true);
        assert_eq!(claim.take_port(30_003), Err(Refusal::PortTaken));
        assert_eq!(claim.take_port(30_013), Ok(()));
        assert_eq!(claim.take_port(30_013), Err(Refusal::PortTaken));
        assert_eq!(claim.take_any_port(), Ok(30_014));
        assert_eq!(claim.take_any_address(), Ok("10.96.0.0".parse().unwrap()));
        let outside = claim.take_address("192.0.2.1".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            outside,
            "the provided IP (192.0.2.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16"
        );
        claim.free_port(30_003);
        assert!(claim.into_reservation().is_none());
        assert!(pools.has_port(30_003));
        assert!(!pools.has_port(30_013));
    }
}
