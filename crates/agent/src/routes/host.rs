//! Kernel routes of the host that an agent runs on.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bowline_agent_client::RouteRecord;
use bowline_core::AddressType;
use ipnet::IpNet;

use super::RouteTable;
use crate::kernel_routes::{Hop, Routes};

impl RouteTable {
    /// Routes of this host: all of the group but those to the host itself, which has the pod CIDR.
    pub(crate) fn of_host(&self) -> Routes {
        let own = host_addresses();
        self.routes_except(&own)
    }

    fn routes_except(&self, own: &BTreeSet<IpAddr>) -> Routes {
        let hop = |route: &RouteRecord| next_hop(route, own).map(|hop| (route.destination, Hop::Via(hop)));
        self.iter().filter_map(|(_, route)| hop(route)).collect::<std::collections::BTreeMap<IpNet, Hop>>()
    }
}

/// Internal address of the Node in the family of the destination; `None` for a Node that is this host.
fn next_hop(route: &RouteRecord, own: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let internal = route.addresses.iter().filter(|address| address.kind == AddressType::InternalIP);
    let internal: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
    if internal.iter().any(|ip| own.contains(ip)) {
        return None;
    }
    let is_ipv4 = route.destination.addr().is_ipv4();
    internal.into_iter().find(|ip| ip.is_ipv4() == is_ipv4)
}

/// Addresses of this host.
#[cfg(target_os = "linux")]
pub(crate) fn host_addresses() -> BTreeSet<IpAddr> {
    let found = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let ip = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    };
    found.filter_map(|found| ip(found.address?)).collect()
}

/// Addresses of this host.
#[cfg(not(target_os = "linux"))]
pub(crate) fn host_addresses() -> BTreeSet<IpAddr> {
    BTreeSet::new()
}

#[cfg(test)]
mod tests {
    use bowline_agent_client::CreateRouteRequest;
    use bowline_core::testing::addresses;

    use super::*;

    #[test]
    fn the_next_hop_is_the_internal_address_of_the_family_and_own_pod_cidrs_have_no_route() {
        let mut table = RouteTable::default();
        for (cidr, node, list) in [
            ("10.1.0.0/24", "n-1", "I192.0.2.1 Ifd00::1"),
            ("fd01::/64", "n-1", "I192.0.2.1 Ifd00::1"),
            ("10.2.0.0/24", "n-2", "E203.0.113.2"),
            ("10.3.0.0/24", "n-3", "I192.0.2.3"),
        ] {
            let request = CreateRouteRequest {
                cluster: "c".into(),
                name: String::new(),
                destination: cidr.parse().unwrap(),
                node: node.into(),
                provider_id: None,
                addresses: addresses(list),
                cluster_uid: None,
                limit: None,
            };
            table.create(request).unwrap();
        }
        let own = BTreeSet::from(["192.0.2.3".parse().unwrap()]);
        let routes: Vec<_> =
            table.routes_except(&own).into_iter().map(|(cidr, hop)| format!("{cidr} {hop:?}")).collect();
        assert_eq!(routes, ["10.1.0.0/24 Via(192.0.2.1)", "fd01::/64 Via(fd00::1)"]);
        assert!(host_addresses().contains(&"127.0.0.1".parse().unwrap()));
    }
}
