//! Routes of a router and the ports that they lead to. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{Address, AddressType, parse_cidr};
use ipnet::IpNet;

use crate::api::network::{AddressPair, ExtraRoute, Port};

/// What stands between the range and the next hop in the ID of a route. A router has each pair of them once.
const VIA: &str = " via ";

/// What a route is known by.
pub(super) fn id(route: &ExtraRoute) -> String {
    format!("{}{VIA}{}", route.destination, route.nexthop)
}

/// The route of this ID, in the very words that the router has it in.
pub(super) fn parse_id(id: &str) -> Result<ExtraRoute> {
    let Some((destination, nexthop)) = id.split_once(VIA) else {
        let message = format!("{id:?} is no route of a router: it should be RANGE{VIA}ADDRESS");
        return Err(Error::new(ErrorKind::InvalidConfig, "read a route's ID", message));
    };
    Ok(ExtraRoute { destination: destination.to_owned(), nexthop: nexthop.to_owned() })
}

/// The address of a Node that this range is led to: its first internal one of the range's family.
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

/// Ports of a router's networks, by their addresses.
pub(super) struct Neighbours<'a> {
    by_address: HashMap<IpAddr, Vec<&'a Port>>,
    /// In the router's order.
    networks: &'a [String],
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(ports: &'a [Port], networks: &'a [String]) -> Neighbours<'a> {
        let mut by_address: HashMap<_, Vec<_>> = HashMap::new();
        for port in ports {
            for address in port.fixed_ips.iter().filter_map(|fixed| parsed(&fixed.ip_address)) {
                by_address.entry(address).or_default().push(port);
            }
        }
        Neighbours { by_address, networks }
    }

    /// The port that has this address. A router may meet one address in several of its networks: the first one in which it
    /// is clear whose it is decides.
    pub(super) fn at(&self, address: &str) -> Option<&'a Port> {
        let ports = self.by_address.get(&parsed(address)?)?;
        self.networks.iter().find_map(|network| {
            let mut here = ports.iter().filter(|port| port.network_id == *network);
            here.next().copied().filter(|_| here.next().is_none())
        })
    }
}

/// The server whose port this is; `None` for what is no server's by itself: a port of a trunk, of a balancer, of nobody.
pub(super) fn server_of(port: &Port) -> Option<&str> {
    let is_servers = port.device_owner.starts_with("compute:") || port.device_owner.starts_with("baremetal:");
    (is_servers && !port.device_id.is_empty()).then_some(port.device_id.as_str())
}

/// The pairs with one for this range; `None` if there is one.
pub(super) fn pairs_with(pairs: &[AddressPair], range: &str) -> Option<Vec<AddressPair>> {
    if pairs.iter().any(|pair| is_for(pair, range)) {
        return None;
    }
    let new = AddressPair { ip_address: range.to_owned(), mac_address: None };
    Some(pairs.iter().cloned().chain([new]).collect())
}

/// The pairs without those for this range; `None` if there is none.
pub(super) fn pairs_without(pairs: &[AddressPair], range: &str) -> Option<Vec<AddressPair>> {
    let others: Vec<_> = pairs.iter().filter(|pair| !is_for(pair, range)).cloned().collect();
    (others.len() < pairs.len()).then_some(others)
}

/// The port lets this range out, or need not be told to.
pub(super) fn lets_out(port: &Port, range: &str) -> bool {
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
    fn an_id_says_what_the_router_says() {
        let route = ExtraRoute { destination: "FD00::/64".to_owned(), nexthop: "fd00::1".to_owned() };
        assert_eq!(id(&route), "FD00::/64 via fd00::1");
        assert_eq!(parse_id(&id(&route)).unwrap(), route);
        assert_eq!(parse_id("10.0.0.0/24 to node-1").unwrap_err().kind(), ErrorKind::InvalidConfig);
    }

    #[test]
    fn case_178_the_next_hop_is_the_first_internal_address_of_the_ranges_family() {
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
    fn case_176_the_first_network_with_exactly_one_port_of_the_address_decides() {
        let networks = ["a", "b", "c"].map(str::to_owned);
        let ports = [
            port("a1", "a", "10.0.0.5"),
            port("a2", "a", "10.0.0.5"),
            port("c1", "c", "10.0.0.5"),
            port("b1", "b", "10.0.0.5"),
            port("x1", "elsewhere", "10.0.0.6"),
        ];
        let neighbours = Neighbours::new(&ports, &networks);
        let at = |address: &str| neighbours.at(address).map(|port| port.id.as_str());
        assert_eq!(at("10.0.0.5"), Some("b1"));
        assert_eq!(at("10.0.0.6"), None, "that network is not one of the router's");
        assert_eq!((at("10.0.0.7"), at("nonsense")), (None, None));
    }

    #[test]
    fn only_a_port_of_a_server_leads_to_one() {
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
    fn pairs_of_others_are_echoed_and_ours_come_once() {
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
    fn a_port_lets_out_what_a_pair_has_or_contains_and_everything_without_port_security() {
        let lets_out = |ip_address: &str, port_security_enabled, range: &str| {
            let pair = AddressPair { ip_address: ip_address.to_owned(), mac_address: None };
            lets_out(&Port { allowed_address_pairs: vec![pair], port_security_enabled, ..Port::default() }, range)
        };
        for (pair, is_let_out) in [
            ("10.244.1.0/24", true),
            ("10.244.0.0/16", true),
            ("0.0.0.0/0", true),
            ("10.244.1.0/25", false),
            ("10.244.1.0", false),
            ("::/0", false),
            ("", false),
        ] {
            assert_eq!(lets_out(pair, None, "10.244.1.0/24"), is_let_out, "{pair}");
        }
        assert!(lets_out("", Some(false), "10.244.1.0/24") && !lets_out("", Some(true), "10.244.1.0/24"));
    }
}
