//! Which addresses a server has as a Node, and in which order. Pure.
//!
//! ```text
//!  active ports ──► access IPs ──► hostname ──► networks by name: floating, public, internal, or left out ──► sort order
//! ```
//!
//! The order decides what the Node is reached by, and what its pods are told; it is the Go manager's in every detail.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bowline_core::{Address, AddressType};
use ipnet::IpNet;

use crate::api::compute::{Server, ServerAddress};
use crate::api::network::Port;
use crate::config::Networking;

/// A port that hangs on a server's trunk, with the name of its network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrunkPort {
    pub(crate) network: String,
    pub(crate) port: Port,
}

/// The addresses of a server with these ports, in the order that Neutron tells them in, and these ports of its trunks.
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

/// What Nova tells of each network, by its name, and then what hangs on trunks.
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
    /// Adds it, unless it is there already under this type, or is one that is not wanted.
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
        // upstream: what stands in accessIPv4 is taken for IPv4 unseen.
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
            // Its port has made it an internal one.
            self.remove(&entry.addr);
            AddressType::ExternalIP
        } else if internal.is_empty() || is_in(internal) {
            AddressType::InternalIP
        } else {
            return self.remove(&entry.addr);
        };
        self.add(kind, &entry.addr);
    }

    /// Takes the address out, whatever its type.
    fn remove(&mut self, address: &str) {
        self.entries.retain(|entry| entry.address != address);
    }
}

// upstream: whatever is not IPv4 is taken for IPv6; IPv4 in the clothes of IPv6 is IPv4.
fn is_ipv6(address: &str) -> bool {
    !parsed(address).is_some_and(|ip| ip.is_ipv4())
}

fn parsed(address: &str) -> Option<IpAddr> {
    address.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// Those of the first range first, by number; then those of the second, and so on; those of none last, as they stood.
fn sorted(mut entries: Vec<Address>, order: &[IpNet]) -> Vec<Address> {
    if !order.is_empty() {
        entries.sort_by_cached_key(|entry| rank(&entry.address, order));
    }
    entries
}

/// The place of the first range that has the address, and the address; all that are in none are alike.
fn rank(address: &str, order: &[IpNet]) -> (usize, Option<IpAddr>) {
    let ip = parsed(address);
    let place = ip.and_then(|ip| order.iter().position(|range| range.contains(&ip)));
    place.map_or((order.len(), None), |place| (place, ip))
}

#[cfg(test)]
mod tests;
