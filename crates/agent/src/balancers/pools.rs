//! Pools of external and internal addresses.

use std::net::IpAddr;

use bowline_core::IpFamily;

use super::{Pool, RuleError};

/// Addresses that load balancers may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools {
    /// Pools of external load balancers, in the order of allocation.
    pub external: Vec<Pool>,
    /// Pools of internal load balancers, in the order of allocation.
    pub internal: Vec<Pool>,
}

impl Pools {
    fn of(&self, internal: bool) -> &[Pool] {
        if internal { &self.internal } else { &self.external }
    }

    /// Whether a pool contains the address.
    pub fn contains(&self, ip: &IpAddr, internal: bool) -> bool {
        self.of(internal).iter().any(|pool| pool.contains(ip))
    }

    /// First free address of a family.
    pub fn first_free(
        &self,
        family: IpFamily,
        internal: bool,
        taken: impl Fn(&IpAddr) -> bool,
    ) -> Result<IpAddr, RuleError> {
        let pools = self.of(internal).iter().filter(|pool| pool.family() == family);
        pools.flat_map(Pool::addresses).find(|ip| !taken(ip)).ok_or_else(|| {
            let inside = if internal { "internal " } else { "" };
            RuleError::Exhausted(format!("the {inside}pool has no {family:?} address left"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_address_of_the_family_is_allocated_until_none_is_left() {
        let pools = ["fd00::/127", "10.0.0.0/30", "10.1.0.7/32", "10.1.0.9-10.1.0.10"];
        let pools = Pools { external: pools.map(|pool| pool.parse().unwrap()).to_vec(), internal: Vec::new() };
        let mut taken = Vec::new();
        while let Ok(ip) = pools.first_free(IpFamily::IPv4, false, |ip| taken.contains(ip)) {
            taken.push(ip);
        }
        let taken: Vec<_> = taken.iter().map(ToString::to_string).collect();
        assert_eq!(taken, ["10.0.0.1", "10.0.0.2", "10.1.0.7", "10.1.0.9", "10.1.0.10"]);
        let error = pools.first_free(IpFamily::IPv4, false, |_| true).unwrap_err();
        assert_eq!(error.to_string(), "the pool has no IPv4 address left");
        assert!(pools.first_free(IpFamily::IPv6, true, |_| false).is_err());
    }
}
