//! Where a node is reached.

use std::net::IpAddr;

use bowline_core::{Address, AddressType, IpFamily, TargetNode};

/// The address of a node that a balancer sends to: the first internal one of the family, else the first external one of it.
/// Without a family any will do.
pub(crate) fn address(node: &TargetNode, family: Option<IpFamily>) -> Option<&str> {
    let of_kind = |kind: AddressType| {
        let mut addresses = node.addresses.iter().filter(move |address| address.kind == kind);
        addresses.find(|address| family.is_none_or(|family| family_of(&address.address) == Some(family)))
    };
    of_kind(AddressType::InternalIP)
        .or_else(|| of_kind(AddressType::ExternalIP))
        .map(|address| address.address.as_str())
}

/// The same where members are made one by one.
// upstream: of whatever family, and a name if there is nothing else.
pub(crate) fn serial_address(node: &TargetNode) -> Option<&str> {
    let is_internal = |address: &&Address| address.kind == AddressType::InternalIP;
    let found = node.addresses.iter().find(is_internal).or(node.addresses.first());
    found.map(|address| address.address.as_str())
}

fn family_of(address: &str) -> Option<IpFamily> {
    match address.parse().ok()? {
        IpAddr::V4(_) => Some(IpFamily::IPv4),
        IpAddr::V6(_) => Some(IpFamily::IPv6),
    }
}

#[cfg(test)]
mod tests {
    use bowline_core::testing::{addresses, target};

    use super::*;

    #[test]
    fn a_node_is_reached_at_its_first_internal_address_of_the_family_else_at_an_external_one() {
        let (v4, v6) = (Some(IpFamily::IPv4), Some(IpFamily::IPv6));
        let table = [
            ("I10.0.0.1 I10.0.0.2", v4, Some("10.0.0.1")),
            ("E203.0.113.1 I10.0.0.1", v4, Some("10.0.0.1")),
            ("Ifd00::1 I10.0.0.1", v4, Some("10.0.0.1")),
            ("Ifd00::1 I10.0.0.1", None, Some("fd00::1")),
            ("Ifd00::1 E203.0.113.1", v4, Some("203.0.113.1")),
            ("I10.0.0.1", v6, None),
            ("Hn1 Dn1.internal", None, None),
            ("", v4, None),
        ];
        for (text, family, expected) in table {
            let node = TargetNode { addresses: addresses(text), ..target("n1") };
            assert_eq!(address(&node, family), expected, "{text:?} {family:?}");
        }
    }

    #[test]
    fn one_by_one_any_address_will_do() {
        for (text, expected) in [("Hn1 I10.0.0.1", Some("10.0.0.1")), ("Hn1 E203.0.113.1", Some("n1")), ("", None)] {
            let node = TargetNode { addresses: addresses(text), ..target("n1") };
            assert_eq!(serial_address(&node), expected, "{text:?}");
        }
    }
}
