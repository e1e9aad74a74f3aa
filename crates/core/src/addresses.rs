//! Addresses of a Node, from the cloud and the kubelet (NODE-19 to NODE-25).
//!
//! ```text
//!  addresses from the cloud ──► + the kubelet's Hostname, if the cloud reports none (NODE-21)
//!                           ──► filtered by the --node-ip annotation (NODE-22, NODE-23)
//!                           ──► grouped by type and deduplicated, as the API server stores them
//!                           ──► written if the list differs from the Node's, order included (NODE-25)
//! ```

use std::net::IpAddr;

use crate::well_known::PROVIDED_NODE_IP;
use crate::{Address, AddressType, Node};

/// Conflict between the `--node-ip` annotation and the addresses from the cloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The annotation is neither one address nor a dual-stack pair.
    #[error("failed to parse node IP {value:?}: {reason}")]
    Malformed {
        /// Value of the annotation.
        value: String,
        /// Reason.
        reason: String,
    },
    /// The machine does not have the address according to the cloud.
    #[error("failed to get node address from cloud provider that matches ip: {ip}")]
    NoMatch {
        /// Address from the annotation.
        ip: IpAddr,
    },
}

/// Returns the desired addresses of `node`; `None` if the cloud reports none, so that the Node keeps its addresses.
pub fn desired(node: &Node, cloud: &[Address]) -> Result<Option<Vec<Address>>, AddressError> {
    if cloud.is_empty() {
        return Ok(None);
    }
    let all = with_hostname(node, cloud);
    match node.annotations.get(PROVIDED_NODE_IP) {
        Some(value) => filter(&parse_node_ips(value)?, &all).map(|list| Some(as_stored(&list))),
        None => Ok(Some(as_stored(&all))),
    }
}

/// Returns the list as the API server stores it: grouped by type in order of first appearance, and without duplicates, which the
/// API server rejects. A list in any other form would differ from the stored one at every sync.
fn as_stored(list: &[Address]) -> Vec<Address> {
    let mut stored = Vec::with_capacity(list.len());
    append_missing(&mut stored, list);
    stored.sort_by_key(|address| list.iter().position(|first| first.kind == address.kind));
    stored
}

/// Returns the addresses to write, or `None` if the Node has them already.
// upstream: compares the last address of each type, so that a Node with two addresses of one type is updated at every sync and a
// change of order is missed (NODE-25). The order matters, so Bowline compares the whole lists.
pub fn decide(node: &Node, cloud: &[Address]) -> Result<Option<Vec<Address>>, AddressError> {
    Ok(desired(node, cloud)?.filter(|desired| *desired != node.addresses))
}

/// Checks the `--node-ip` annotation, if the Node has it, against the addresses from the cloud, even if there are none (NODE-11).
pub fn check_node_ip(node: &Node, cloud: &[Address]) -> Result<(), AddressError> {
    match node.annotations.get(PROVIDED_NODE_IP) {
        Some(value) => filter(&parse_node_ips(value)?, cloud).map(drop),
        None => Ok(()),
    }
}

/// Appends the addresses of `more` that `list` does not contain yet.
pub fn append_missing(list: &mut Vec<Address>, more: &[Address]) {
    for address in more {
        if !list.contains(address) {
            list.push(address.clone());
        }
    }
}

/// Adds the kubelet's hostnames to the addresses from the cloud if those contain no hostname (NODE-21).
fn with_hostname(node: &Node, cloud: &[Address]) -> Vec<Address> {
    let mut all = cloud.to_vec();
    if !cloud.iter().any(is_hostname) {
        all.extend(node.addresses.iter().filter(|address| is_hostname(address)).cloned());
    }
    all
}

fn is_hostname(address: &Address) -> bool {
    address.kind == AddressType::Hostname
}

/// Returns the provided addresses in the order of the annotation, followed by all addresses of other types (NODE-23).
fn filter(provided: &[IpAddr], cloud: &[Address]) -> Result<Vec<Address>, AddressError> {
    let mut matched = Vec::new();
    for &ip in provided {
        let before = matched.len();
        matched.extend(cloud.iter().filter(|address| parse_ip(&address.address) == Some(ip)).cloned());
        if matched.len() == before {
            return Err(AddressError::NoMatch { ip });
        }
    }
    let of_another_type = |address: &&Address| matched.iter().all(|found| found.kind != address.kind);
    let rest: Vec<Address> = cloud.iter().filter(of_another_type).cloned().collect();
    matched.extend(rest);
    Ok(matched)
}

/// Parses the annotation: one address or a dual-stack pair (NODE-22).
fn parse_node_ips(value: &str) -> Result<Vec<IpAddr>, AddressError> {
    let malformed = |reason: String| AddressError::Malformed { value: value.to_owned(), reason };
    let ips = value
        .split(',')
        .map(|part| parse_ip(part).ok_or_else(|| malformed(format!("could not parse {part:?}"))))
        .collect::<Result<Vec<IpAddr>, AddressError>>()?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [first, second] if first.is_ipv6() == second.is_ipv6() => Err(malformed(NOT_A_PAIR.to_owned())),
        [first, second] if first.is_unspecified() || second.is_unspecified() => Err(malformed(UNSPECIFIED.to_owned())),
        [_, _] => Ok(ips),
        _ => Err(malformed(NOT_A_PAIR.to_owned())),
    }
}

const NOT_A_PAIR: &str = "must contain either a single IP or a dual-stack pair of IPs";
const UNSPECIFIED: &str = "dual-stack node IP cannot include '0.0.0.0' or '::'";

/// Parses an address as Kubernetes does: leading zeros are ignored, and an IPv4-mapped IPv6 address is an IPv4 address.
// upstream: keeps the parser from before Go 1.17, which began to reject leading zeros, so that existing addresses stay valid.
// Rust's parser is strict as well; with the zeros removed, both agree.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let mut plain = String::with_capacity(text.len());
    for group in text.split_inclusive([':', '.']) {
        let digits = group.trim_start_matches('0');
        let was_all_zeros = !digits.starts_with(|c: char| c.is_ascii_hexdigit()) && digits.len() < group.len();
        plain.push_str(if was_all_zeros { "0" } else { "" });
        plain.push_str(digits);
    }
    plain.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{addresses as list, node};

    fn annotated(value: &str) -> Node {
        let mut node = node("n");
        node.annotations.insert(PROVIDED_NODE_IP.to_owned(), value.to_owned());
        node
    }

    fn recorded(addresses: &str) -> Node {
        Node { addresses: list(addresses), ..node("n") }
    }

    #[test]
    fn the_node_ip_annotation_orders_and_filters_the_addresses_from_the_cloud() {
        let pair = "10.1.1.1,fc01:1234::5678";
        let five = "I10.1.1.1 E55.55.55.55 Dn.int Xn.ext Hn";
        let cases = [
            ("P1", "10.1.1.1", "I10.1.1.1 Hn", "I10.1.1.1 Hn"),
            ("P2", "55.55.55.55", "I10.1.1.1 E55.55.55.55 Hn", "E55.55.55.55 I10.1.1.1 Hn"),
            ("P3", "10.1.1.1", five, five),
            ("P4", "10.1.1.1", "I10.1.1.1 I10.2.2.2 I10.3.3.3 E55.55.55.55 Hn", "I10.1.1.1 E55.55.55.55 Hn"),
            ("P6", pair, "I10.1.1.1 Ifc01:1234::5678 Hn", "I10.1.1.1 Ifc01:1234::5678 Hn"),
            ("P7", pair, "Ifc01:1234::5678 I10.1.1.1 Hn", "I10.1.1.1 Ifc01:1234::5678 Hn"),
            ("P8", pair, "I10.1.1.1 I10.1.1.2 Ifc01:1234::1234 Ifc01:1234::5678 Hn", "I10.1.1.1 Ifc01:1234::5678 Hn"),
            (
                "P9",
                pair,
                "I10.1.1.1 E55.55.55.55 Ifc01:1234::1234 Ifc01:1234::5678 Hn",
                "I10.1.1.1 Ifc01:1234::5678 E55.55.55.55 Hn",
            ),
            ("same IP under two types", "10.1.1.1", "I10.1.1.1 E10.1.1.1 I10.2.2.2 Hn", "I10.1.1.1 E10.1.1.1 Hn"),
            ("the spelling of the cloud is kept", "fc01::1", "Ifc01:0:0::0001 I10.1.1.1", "Ifc01:0:0::0001"),
            ("mapped is the same", "10.1.1.1", "I::ffff:10.1.1.1 I10.1.1.2", "I::ffff:10.1.1.1"),
            (
                "a hostname that is an IP address matches",
                "10.1.1.1",
                "H10.1.1.1 Hother I10.2.2.2",
                "H10.1.1.1 I10.2.2.2",
            ),
        ];
        for (case, annotation, cloud, expected) in cases {
            assert_eq!(desired(&annotated(annotation), &list(cloud)), Ok(Some(list(expected))), "{case}");
        }
    }

    #[test]
    fn p05_an_address_that_the_cloud_does_not_report_is_an_error() {
        let error = desired(&annotated("10.2.2.2"), &list("I10.1.1.1 E55.55.55.55 Hn")).unwrap_err();
        assert_eq!(error.to_string(), "failed to get node address from cloud provider that matches ip: 10.2.2.2");
        let pair = desired(&annotated("10.1.1.1,fc01::2"), &list("I10.1.1.1 Ifc01::1")).unwrap_err();
        assert_eq!(pair.to_string(), "failed to get node address from cloud provider that matches ip: fc01::2");
    }

    #[test]
    fn p10_internal_addresses_are_those_of_the_annotation_in_its_order() {
        let cloud = list("Hn I192.168.0.1 Ifd00:1:2:3:4:: I172.16.0.1 I2001:db2::1 I10.0.0.9 E132.143.154.163");
        let cases = [
            ("192.168.0.1", "I192.168.0.1"),
            ("2001:db2::1", "I2001:db2::1"),
            ("2001:db2::1,172.16.0.1", "I2001:db2::1 I172.16.0.1"),
            ("192.168.0.1,fd00:1:2:3:4::", "I192.168.0.1 Ifd00:1:2:3:4::"),
        ];
        for (annotation, internal) in cases {
            let expected = list(&format!("{internal} Hn E132.143.154.163"));
            assert_eq!(desired(&annotated(annotation), &cloud), Ok(Some(expected)), "P10 {annotation}");
        }
    }

    #[test]
    fn an_annotation_that_is_not_an_address_or_a_pair_is_rejected_with_the_reason() {
        let not_a_pair = NOT_A_PAIR;
        let cases = [
            ("P11", "", r#"could not parse """#),
            ("P12", "blah", r#"could not parse "blah""#),
            ("P12", "1.2.3", r#"could not parse "1.2.3""#),
            ("P12", "1.2.3.0/24", r#"could not parse "1.2.3.0/24""#),
            ("P12", "1.2.3.4,not-an-IPv6-address", r#"could not parse "not-an-IPv6-address""#),
            ("P14", "1.2.3.4,5.6.7.8", not_a_pair),
            ("P14", "abcd::1,abcd::2", not_a_pair),
            ("mapped is IPv4", "1.2.3.4,::ffff:5.6.7.8", not_a_pair),
            ("three", "1.2.3.4,abcd::1,abcd::2", not_a_pair),
            ("P16", "1.2.3.4,::", "dual-stack node IP cannot include '0.0.0.0' or '::'"),
            ("P16", "0.0.0.0,abcd::1", "dual-stack node IP cannot include '0.0.0.0' or '::'"),
            ("no trimming", "1.2.3.4, abcd::1", r#"could not parse " abcd::1""#),
            ("trailing comma", "1.2.3.4,", r#"could not parse """#),
            ("zone", "fe80::1%eth0", r#"could not parse "fe80::1%eth0""#),
        ];
        for (case, value, reason) in cases {
            let error = parse_node_ips(value).unwrap_err();
            assert_eq!(error.to_string(), format!("failed to parse node IP {value:?}: {reason}"), "{case}");
        }
    }

    #[test]
    fn an_address_or_a_dual_stack_pair_parses() {
        let cases = [
            ("P13", "1.2.3.4", vec!["1.2.3.4"]),
            ("P13", "abcd::ef01", vec!["abcd::ef01"]),
            ("P13", "1.2.3.4,abcd::ef01", vec!["1.2.3.4", "abcd::ef01"]),
            ("P15", "0.0.0.0", vec!["0.0.0.0"]),
            ("P17", "abcd:0abc:00ab:0000:0000::1", vec!["abcd:abc:ab::1"]),
            ("leading zeros are decimal", "010.000.0001.09", vec!["10.0.1.9"]),
            ("more than four digits", "000abcd::00000", vec!["abcd::"]),
            ("mapped, with zeros", "::FFFF:010.1.1.1", vec!["10.1.1.1"]),
        ];
        for (case, value, expected) in cases {
            let ips: Vec<String> = parse_node_ips(value).unwrap().iter().map(IpAddr::to_string).collect();
            assert_eq!(ips, expected, "{case}");
        }
    }

    #[test]
    fn an_invalid_address_stays_invalid_without_its_zeros() {
        for text in [
            "",
            ".",
            ":",
            "0",
            "00",
            "1..2.3",
            "1.2.3.",
            "1.2.3.4.",
            "0x1.2.3.4",
            "1.2.3.256",
            "1:2",
            ":::",
            "+1.2.3.4",
        ] {
            assert_eq!(parse_ip(text), None, "{text:?}");
        }
    }

    #[test]
    fn no_address_is_appended_twice() {
        let mut p18 = list("E1.1.1.1 I10.1.1.1");
        append_missing(&mut p18, &list("E1.1.1.1 Hlocalhost"));
        assert_eq!(p18, list("E1.1.1.1 I10.1.1.1 Hlocalhost"), "P18");

        let mut p19 = Vec::new();
        append_missing(&mut p19, &list("E1.1.1.1 E1.1.1.1"));
        assert_eq!(p19, list("E1.1.1.1"), "P19");
    }

    #[test]
    fn the_addresses_are_written_if_they_differ_in_any_way() {
        let cases = [
            ("A1", "I10.0.0.1 E1.1.1.1", "I10.0.0.1 E1.1.1.1", None),
            ("A2", "I10.0.0.1 E1.1.1.1", "I10.0.0.1 E2.2.2.2", Some("I10.0.0.1 E2.2.2.2")),
            ("A3, the hostname is kept, last", "Hn I10.0.0.1", "I10.0.0.1", Some("I10.0.0.1 Hn")),
            ("A3, other type", "I10.0.0.1 E1.1.1.1", "I10.0.0.1", Some("I10.0.0.1")),
            ("A4", "I10.0.0.1", "I10.0.0.1 Hn", Some("I10.0.0.1 Hn")),
            ("A8", "I10.0.0.1", "", None),
            ("NODE-25, order", "I10.0.0.1 E1.1.1.1", "E1.1.1.1 I10.0.0.1", Some("E1.1.1.1 I10.0.0.1")),
            ("NODE-25, two of a type", "I10.0.0.1 I10.0.0.2", "I10.0.0.1 I10.0.0.2", None),
            ("interleaved types", "", "E1.1.1.1 I1.2.3.4 I::1 E1.1.1.2", Some("E1.1.1.1 E1.1.1.2 I1.2.3.4 I::1")),
            ("interleaved, as stored", "E1.1.1.1 E1.1.1.2 I1.2.3.4", "E1.1.1.1 I1.2.3.4 E1.1.1.2", None),
            ("the same twice", "I10.0.0.1", "I10.0.0.1 I10.0.0.1", None),
            ("NODE-21, every hostname", "Ha I1.1.1.1 Hb", "I1.1.1.1", Some("I1.1.1.1 Ha Hb")),
            ("NODE-21, the hostname from the cloud wins", "Ha", "Hb I1.1.1.1", Some("Hb I1.1.1.1")),
        ];
        for (case, now, cloud, expected) in cases {
            assert_eq!(decide(&recorded(now), &list(cloud)), Ok(expected.map(list)), "{case}");
        }
    }

    #[test]
    fn the_check_before_initialisation_fails_without_any_address_from_the_cloud() {
        assert_eq!(check_node_ip(&node("n"), &[]), Ok(()));
        assert_eq!(check_node_ip(&annotated("10.0.0.1"), &list("I10.0.0.1")), Ok(()));
        let ip = "10.0.0.1".parse().unwrap();
        assert_eq!(check_node_ip(&annotated("10.0.0.1"), &[]), Err(AddressError::NoMatch { ip }), "N22");
        assert_eq!(desired(&annotated("10.0.0.1"), &[]), Ok(None), "NODE-21 comes first");
        assert!(matches!(check_node_ip(&annotated("x"), &list("I10.0.0.1")), Err(AddressError::Malformed { .. })));
    }
}
