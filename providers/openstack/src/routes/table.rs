//! Routes of a router and the ports of their next hops.

use std::collections::HashMap;
use std::net::IpAddr;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{Address, AddressType, parse_cidr};
use ipnet::IpNet;

use crate::api::network::{AddressPair, ExtraRoute, Port};

/// Separator in route IDs. A router has each combination of CIDR and next hop once.
const VIA: &str = " via ";

/// Returns the ID of a route.
pub(super) fn id(route: &ExtraRoute) -> String {
    format!("{}{VIA}{}", route.destination, route.nexthop)
}

/// Parses a route ID, in the spelling of the router.
pub(super) fn parse_id(id: &str) -> Result<ExtraRoute> {
    let Some((destination, nexthop)) = id.split_once(VIA) else {
        let message = format!("{id:?} is not a route ID: expected CIDR{VIA}ADDRESS");
        return Err(Error::new(ErrorKind::InvalidConfig, "read a route's ID", message));
    };
    Ok(ExtraRoute { destination: destination.to_owned(), nexthop: nexthop.to_owned() })
}

/// Returns the next hop for a CIDR: the first InternalIP of its family.
pub(super) fn next_hop(addresses: &[Address], range: IpNet) -> Option<&str> {
    let fits = |address: &&Address| {
        let ip = parsed(&address.address);
        address.kind == AddressType::InternalIP && ip.is_some_and(|ip| ip.is_ipv4() == range.addr().is_ipv4())
    };
    addresses.iter().find(fits).map(|address| address.address.as_str())
}

pub(super) fn parsed(address: &str) -> Option<IpAddr> {
    address.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// Ports of a router's networks by address.
pub(super) struct PortIndex<'a> {
    by_address: HashMap<IpAddr, Vec<&'a Port>>,
    /// In the router's order.
    networks: &'a [String],
}

impl<'a> PortIndex<'a> {
    pub(super) fn new(ports: &'a [Port], networks: &'a [String]) -> PortIndex<'a> {
        let mut by_address: HashMap<_, Vec<_>> = HashMap::new();
        for port in ports {
            for address in port.fixed_ips.iter().filter_map(|fixed| parsed(&fixed.ip_address)) {
                by_address.entry(address).or_default().push(port);
            }
        }
        PortIndex { by_address, networks }
    }

    /// Returns the port with this address. A router may have one address in several of its networks: the first network with exactly
    /// one such port counts.
    pub(super) fn at(&self, address: &str) -> Option<&'a Port> {
        let ports = self.by_address.get(&parsed(address)?)?;
        self.networks.iter().find_map(|network| {
            let mut here = ports.iter().filter(|port| port.network_id == *network);
            here.next().copied().filter(|_| here.next().is_none())
        })
    }
}

/// Returns the server of a port; `None` for a port of a trunk, of a load balancer, or unbound.
pub(super) fn server_of(port: &Port) -> Option<&str> {
    let is_servers = port.device_owner.starts_with("compute:") || port.device_owner.starts_with("baremetal:");
    (is_servers && !port.device_id.is_empty()).then_some(port.device_id.as_str())
}

/// Adds a pair for this CIDR; `None` if it exists.
pub(super) fn pairs_with(pairs: &[AddressPair], range: &str) -> Option<Vec<AddressPair>> {
    if pairs.iter().any(|pair| is_for(pair, range)) {
        return None;
    }
    let new = AddressPair { ip_address: range.to_owned(), mac_address: None };
    Some(pairs.iter().cloned().chain([new]).collect())
}

/// Removes the pairs for this CIDR; `None` if there is none.
pub(super) fn pairs_without(pairs: &[AddressPair], range: &str) -> Option<Vec<AddressPair>> {
    let others: Vec<_> = pairs.iter().filter(|pair| !is_for(pair, range)).cloned().collect();
    (others.len() < pairs.len()).then_some(others)
}

/// Returns whether the port accepts this source CIDR.
pub(super) fn allows_source(port: &Port, range: &str) -> bool {
    let wanted = parse_cidr(range);
    let covers = |pair: &AddressPair| {
        is_for(pair, range)
            || wanted.zip(parse_cidr(&pair.ip_address)).is_some_and(|(range, pair)| pair.contains(&range))
    };
    port.port_security_enabled == Some(false) || port.allowed_address_pairs.iter().any(covers)
}

fn is_for(pair: &AddressPair, range: &str) -> bool {
    pair.ip_address == range || parse_cidr(range).is_some_and(|range| parse_cidr(&pair.ip_address) == Some(range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::network::FixedIp;

    fn port(id: &str, network: &str, address: &str) -> Port {
        Port {
            id: id.to_owned(),
            network_id: network.to_owned(),
            fixed_ips: vec![FixedIp { ip_address: address.to_owned(), ..FixedIp::default() }],
            ..Port::default()
        }
    }

    #[test]
    fn a_route_id_has_the_spelling_of_the_router() {
        let route = ExtraRoute { destination: "FD00::/64".to_owned(), nexthop: "fd00::1".to_owned() };
        assert_eq!(id(&route), "FD00::/64 via fd00::1");
        assert_eq!(parse_id(&id(&route)).unwrap(), route);
        assert_eq!(parse_id("10.0.0.0/24 to node-1").unwrap_err().kind(), ErrorKind::InvalidConfig);
    }

    #[test]
    fn case_178_the_next_hop_is_the_first_internal_ip_of_the_family() {
        let address = |kind, text: &str| Address::new(kind, text);
        let addresses = [
            address(AddressType::ExternalIP, "203.0.113.1"),
            address(AddressType::Hostname, "10.0.0.9"),
            address(AddressType::InternalIP, "fd00::5"),
            address(AddressType::InternalIP, "10.0.0.5"),
            address(AddressType::InternalIP, "10.0.0.4"),
        ];
        let hop = |range: &str, count: usize| next_hop(addresses.get(..count).unwrap(), range.parse().unwrap());
        assert_eq!(hop("10.244.1.0/24", 5), Some("10.0.0.5"));
        assert_eq!(hop("fd00:244::/64", 5), Some("fd00::5"));
        assert_eq!(hop("10.244.1.0/24", 3), None);
    }

    #[test]
    fn case_176_the_first_network_with_exactly_one_port_of_the_address_counts() {
        let networks = ["a", "b", "c"].map(str::to_owned);
        let ports = [
            port("a1", "a", "10.0.0.5"),
            port("a2", "a", "10.0.0.5"),
            port("c1", "c", "10.0.0.5"),
            port("b1", "b", "10.0.0.5"),
            port("x1", "elsewhere", "10.0.0.6"),
        ];
        let index = PortIndex::new(&ports, &networks);
        let at = |address: &str| index.at(address).map(|port| port.id.as_str());
        assert_eq!(at("10.0.0.5"), Some("b1"));
        assert_eq!(at("10.0.0.6"), None, "that network is not one of the router's");
        assert_eq!((at("10.0.0.7"), at("nonsense")), (None, None));
    }

    #[test]
    fn only_ports_of_servers_have_a_server() {
        let owned = |owner: &str, device: &str| {
            let port = Port { device_owner: owner.to_owned(), device_id: device.to_owned(), ..Port::default() };
            server_of(&port).map(str::to_owned)
        };
        assert_eq!(owned("compute:az-1", "s"), Some("s".to_owned()));
        assert_eq!(owned("baremetal:none", "s"), Some("s".to_owned()));
        for (owner, device) in
            [("trunk:subport", "t"), ("Octavia", "lb-1"), ("network:dhcp", "d"), ("compute:az-1", ""), ("", "")]
        {
            assert_eq!(owned(owner, device), None, "{owner} {device}");
        }
    }

    #[test]
    fn other_pairs_are_kept_and_ours_is_added_once() {
        let pair = |range: &str, mac: Option<&str>| AddressPair {
            ip_address: range.to_owned(),
            mac_address: mac.map(str::to_owned),
        };
        let others = [pair("10.0.0.99", Some("fa:16:3e:00:00:01")), pair("10.244.0.0/16", None)];
        let all = pairs_with(&others, "10.244.1.0/24").unwrap();
        assert_eq!(all, [others.as_slice(), &[pair("10.244.1.0/24", None)]].concat());
        assert_eq!(pairs_with(&all, "10.244.1.0/24"), None);
        assert_eq!(pairs_without(&all, "10.244.1.0/24"), Some(others.to_vec()));
        assert_eq!(pairs_without(&others, "10.244.1.0/24"), None);
        let spelled = [pair("FD00:0::/64", None)];
        assert_eq!(pairs_with(&spelled, "fd00::/64"), None, "however it is spelled");
    }

    #[test]
    fn a_port_accepts_sources_of_its_pairs_and_all_without_port_security() {
        let allows_source = |ip_address: &str, port_security_enabled, range: &str| {
            let pair = AddressPair { ip_address: ip_address.to_owned(), mac_address: None };
            allows_source(&Port { allowed_address_pairs: vec![pair], port_security_enabled, ..Port::default() }, range)
        };
        for (pair, is_allowed) in [
            ("10.244.1.0/24", true),
            ("10.244.0.0/16", true),
            ("0.0.0.0/0", true),
            ("10.244.1.0/25", false),
            ("10.244.1.0", false),
            ("::/0", false),
            ("", false),
        ] {
            assert_eq!(allows_source(pair, None, "10.244.1.0/24"), is_allowed, "{pair}");
        }
        assert!(allows_source("", Some(false), "10.244.1.0/24") && !allows_source("", Some(true), "10.244.1.0/24"));
    }
}
