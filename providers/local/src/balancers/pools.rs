//! Address pools.

use std::net::IpAddr;
use std::time::Duration;

use bowline_core::IpFamily;
use ipnet::IpNet;

use crate::cloud::CloudError;

use super::records::family_of;

/// Options of load balancers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalancerOptions {
    /// Address pool. Default: `127.0.32.0/20` and the single address `::1/128`, which are loopback addresses, so that listening
    /// needs no privileges.
    pub pool: Vec<IpNet>,
    /// Address pool of internal load balancers. Default: `127.0.48.0/20`.
    pub internal_pool: Vec<IpNet>,
    /// Enables the data plane: sockets that forward traffic. The cloud must then be opened on a Tokio runtime. Without it, load
    /// balancers are records only.
    pub data_plane: bool,
    /// Duration of each change for a Service, during which the cloud rejects further changes for that Service.
    pub work_time: Duration,
}

impl Default for BalancerOptions {
    fn default() -> BalancerOptions {
        let net = |a, b, c, d, length| IpNet::new([a, b, c, d].into(), length).ok();
        let localhost = IpNet::from(IpAddr::from(std::net::Ipv6Addr::LOCALHOST));
        BalancerOptions {
            pool: net(127, 0, 32, 0, 20).into_iter().chain([localhost]).collect(),
            internal_pool: net(127, 0, 48, 0, 20).into_iter().collect(),
            data_plane: false,
            work_time: Duration::ZERO,
        }
    }
}

impl BalancerOptions {
    fn pool(&self, internal: bool) -> &[IpNet] {
        if internal { &self.internal_pool } else { &self.pool }
    }

    /// Whether the pool contains the address.
    pub(crate) fn contains(&self, ip: &IpAddr, internal: bool) -> bool {
        self.pool(internal).iter().any(|net| net.contains(ip))
    }

    /// First free address of a family.
    pub(crate) fn first_free(
        &self,
        family: IpFamily,
        internal: bool,
        taken: impl Fn(&IpAddr) -> bool,
    ) -> Result<IpAddr, CloudError> {
        let pools = self.pool(internal).iter().filter(|net| family_of(&net.addr()) == family);
        pools.flat_map(usable).find(|ip| !taken(ip)).ok_or_else(|| {
            let inside = if internal { "internal " } else { "" };
            CloudError::Exhausted(format!("the {inside}pool has no {family:?} address left"))
        })
    }
}

/// Usable addresses: the first address of an IPv6 network is the subnet-router anycast address.
fn usable(net: &IpNet) -> impl Iterator<Item = IpAddr> {
    let (first, alone) = (net.network(), net.max_prefix_len() - net.prefix_len() < 2);
    net.hosts().filter(move |ip| alone || *ip != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_address_of_the_family_is_allocated_until_none_is_left() {
        let options = BalancerOptions {
            pool: vec!["fd00::/127".parse().unwrap(), "10.0.0.0/30".parse().unwrap(), "10.1.0.7/32".parse().unwrap()],
            ..BalancerOptions::default()
        };
        let mut taken = Vec::new();
        while let Ok(ip) = options.first_free(IpFamily::IPv4, false, |ip| taken.contains(ip)) {
            taken.push(ip);
        }
        assert_eq!(taken.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.1", "10.0.0.2", "10.1.0.7"]);
        let error = options.first_free(IpFamily::IPv4, false, |_| true).unwrap_err();
        assert_eq!(error.to_string(), "the pool has no IPv4 address left");
        assert!(options.first_free(IpFamily::IPv6, true, |_| false).is_err());
    }
}
