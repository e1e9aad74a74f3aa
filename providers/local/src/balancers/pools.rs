//! Where addresses come from.

use std::net::IpAddr;
use std::time::Duration;

use bowline_core::IpFamily;
use ipnet::IpNet;

use crate::cloud::CloudError;

use super::records::family_of;

/// How a cloud balances load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalancerOptions {
    /// Where the addresses of balancers come from. By default `127.0.32.0/20`, of which every address is this machine, so
    /// that no rights are needed to listen there, and `::1/128`, which is a single one.
    pub pool: Vec<IpNet>,
    /// The same for balancers that are reached from inside only; by default `127.0.48.0/20`.
    pub internal_pool: Vec<IpNet>,
    /// Whether there is a data plane: sockets that carry traffic. Without one a balancer is a record. With one the cloud
    /// must be opened on a Tokio runtime.
    pub data_plane: bool,
    /// After each change for a Service the cloud is at work for this long, and takes no further change for that Service.
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

    /// Whether the cloud has this address to give.
    pub(crate) fn holds(&self, ip: &IpAddr, internal: bool) -> bool {
        self.pool(internal).iter().any(|net| net.contains(ip))
    }

    /// The first address of a family that is not taken.
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

/// The addresses that can be given: the first of an IPv6 network means every router in it.
fn usable(net: &IpNet) -> impl Iterator<Item = IpAddr> {
    let (first, alone) = (net.network(), net.max_prefix_len() - net.prefix_len() < 2);
    net.hosts().filter(move |ip| alone || *ip != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_address_of_the_family_is_given_until_none_is_left() {
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
