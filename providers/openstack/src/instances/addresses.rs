//! Addresses of a server for its Node, and their order.
//!
//! ```text
//!  active ports ──► access IPs ──► hostname ──► networks by name: floating, public, internal, or left out ──► sort order
//! ```
//!
//! The order decides which addresses Node and Pods use; it is that of the Go manager in every detail.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bowline_core::{Address, AddressType};
use ipnet::IpNet;

use crate::api::compute::{Server, ServerAddress};
use crate::api::network::Port;
use crate::config::Networking;

/// A trunk subport of a server, with the name of its network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrunkPort {
    pub(crate) network: String,
    pub(crate) port: Port,
}

/// Returns the addresses of a server with these ports, in Neutron's order, and these trunk subports.
pub(crate) fn addresses(
    server: &Server,
    ports: &[&Port],
    trunk_ports: &[TrunkPort],
    options: &Networking,
) -> Vec<Address> {
    let mut list = List { entries: Vec::new(), options };
    for port in ports.iter().filter(|port| port.status == "ACTIVE") {
        port.fixed_ips.iter().for_each(|fixed| list.add(AddressType::InternalIP, &fixed.ip_address));
    }
    list.add_access(server);
    for (network, entries) in networks(server, trunk_ports) {
        entries.iter().for_each(|entry| list.add_of_network(network, entry));
    }
    sorted(list.entries, &options.sort_order)
}

/// Returns Nova's addresses by network name, and those of trunk subports.
fn networks<'a>(server: &'a Server, trunk_ports: &'a [TrunkPort]) -> BTreeMap<&'a str, Vec<ServerAddress>> {
    let mut networks: BTreeMap<&str, Vec<ServerAddress>> =
        server.addresses.iter().map(|(name, entries)| (name.as_str(), entries.clone())).collect();
    for TrunkPort { network, port } in trunk_ports {
        let fixed = |addr: &str| ServerAddress { addr: addr.to_owned(), kind: "fixed".to_owned() };
        let entries = port.fixed_ips.iter().map(|fixed_ip| fixed(&fixed_ip.ip_address));
        networks.entry(network).or_default().extend(entries);
    }
    networks
}

/// The addresses so far.
struct List<'a> {
    entries: Vec<Address>,
    options: &'a Networking,
}

impl List<'_> {
    /// Adds an address, unless it exists with this type or is IPv6 and that is disabled.
    fn add(&mut self, kind: AddressType, address: &str) {
        if self.options.ipv6_disabled && is_ipv6(address) {
            return;
        }
        self.add_text(kind, address);
    }

    fn add_text(&mut self, kind: AddressType, text: &str) {
        let entry = Address::new(kind, text);
        if !self.entries.contains(&entry) {
            self.entries.push(entry);
        }
    }

    fn add_access(&mut self, server: &Server) {
        // upstream: accessIPv4 is not validated.
        if !server.access_ipv4.is_empty() {
            self.add_text(AddressType::ExternalIP, &server.access_ipv4);
        }
        if !server.access_ipv6.is_empty() && !self.options.ipv6_disabled {
            self.add_text(AddressType::ExternalIP, &server.access_ipv6);
        }
        if let Some(hostname) = server.metadata.get("hostname").filter(|hostname| !hostname.is_empty()) {
            self.add_text(AddressType::Hostname, hostname);
        }
    }

    fn add_of_network(&mut self, network: &str, entry: &ServerAddress) {
        let is_in = |names: &[String]| names.iter().any(|name| name == network);
        let internal = &self.options.internal_networks;
        let kind = if entry.kind == "floating" {
            AddressType::ExternalIP
        } else if is_in(&self.options.public_networks) {
            // Its port has added it as internal.
            self.remove(&entry.addr);
            AddressType::ExternalIP
        } else if internal.is_empty() || is_in(internal) {
            AddressType::InternalIP
        } else {
            return self.remove(&entry.addr);
        };
        self.add(kind, &entry.addr);
    }

    /// Removes the address, whatever its type.
    fn remove(&mut self, address: &str) {
        self.entries.retain(|entry| entry.address != address);
    }
}

// upstream: everything that is not IPv4 counts as IPv6; an IPv4-mapped address is IPv4.
fn is_ipv6(address: &str) -> bool {
    !parsed(address).is_some_and(|ip| ip.is_ipv4())
}

fn parsed(address: &str) -> Option<IpAddr> {
    address.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// Sorts addresses of the first CIDR first, numerically, then those of the second, and so on; the others last, in their order.
fn sorted(mut entries: Vec<Address>, order: &[IpNet]) -> Vec<Address> {
    if !order.is_empty() {
        entries.sort_by_cached_key(|entry| rank(&entry.address, order));
    }
    entries
}

/// Returns the index of the first CIDR that contains the address, and the address; all others are equal.
fn rank(address: &str, order: &[IpNet]) -> (usize, Option<IpAddr>) {
    let ip = parsed(address);
    let place = ip.and_then(|ip| order.iter().position(|range| range.contains(&ip)));
    place.map_or((order.len(), None), |place| (place, ip))
}

#[cfg(test)]
mod tests;
