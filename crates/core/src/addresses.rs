//! Which addresses a Node should have (NODE-19 to NODE-25).
//!
//! ```text
//!  cloud's list ──► + the kubelet's Hostname, if the cloud has none (NODE-21)
//!               ──► filtered by the annotation of --node-ip (NODE-22, NODE-23)
//!               ──► those of a type together, each once, as the API server stores them
//!               ──► written, if it differs from the Node's list in any way, order included (NODE-25)
//! ```

use std::net::IpAddr;

use crate::well_known::PROVIDED_NODE_IP;
use crate::{Address, AddressType, Node};

/// Why the annotation of `--node-ip` and the cloud's addresses do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The annotation is not one address or a dual-stack pair.
    #[error("failed to parse node IP {value:?}: {reason}")]
    Malformed {
        /// The annotation.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The cloud does not know that address of this machine.
    #[error("failed to get node address from cloud provider that matches ip: {ip}")]
    NoMatch {
        /// The address that the kubelet was told to use.
        ip: IpAddr,
    },
}

/// The list that `node` should have, given what the cloud says; `None` if the cloud says nothing, and so nothing changes.
pub fn wanted(node: &Node, cloud: &[Address]) -> Result<Option<Vec<Address>>, AddressError> {
    if cloud.is_empty() {
        return Ok(None);
    }
    let all = with_hostname(node, cloud);
    match node.annotations.get(PROVIDED_NODE_IP) {
        Some(value) => filter(&parse_node_ips(value)?, &all).map(|list| Some(as_stored(&list))),
        None => Ok(Some(as_stored(&all))),
    }
}

/// The list as the API server stores it: it puts those of a type together, where the first of them stands, and refuses a
/// list that names one twice. A list in another form would look changed for ever.
fn as_stored(list: &[Address]) -> Vec<Address> {
    let mut stored = Vec::with_capacity(list.len());
    add(&mut stored, list);
    stored.sort_by_key(|address| list.iter().position(|first| first.kind == address.kind));
    stored
}

/// The list to write, if the Node has another one.
// upstream: compares per type, the last of a type winning, so that two addresses of one type look changed for ever and a
// change of order is not seen (NODE-25). The order has meaning, so ours compares the lists as they are.
pub fn decide(node: &Node, cloud: &[Address]) -> Result<Option<Vec<Address>>, AddressError> {
    Ok(wanted(node, cloud)?.filter(|wanted| *wanted != node.addresses))
}

/// Checks the annotation of `--node-ip`, if there is one, against what the cloud says, also if that is nothing (NODE-11).
pub fn check(node: &Node, cloud: &[Address]) -> Result<(), AddressError> {
    match node.annotations.get(PROVIDED_NODE_IP) {
        Some(value) => filter(&parse_node_ips(value)?, cloud).map(drop),
        None => Ok(()),
    }
}

/// Appends those of `more` that are not in `list` yet.
pub fn add(list: &mut Vec<Address>, more: &[Address]) {
    for address in more {
        if !list.contains(address) {
            list.push(address.clone());
        }
    }
}

/// The cloud's list; the names that the kubelet gave are kept if the cloud has none (NODE-21).
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

/// The provided addresses first, in the annotation's order; then whatever is of a type that none of them has (NODE-23).
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

/// The annotation's one address or dual-stack pair (NODE-22).
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

/// An address as Kubernetes reads it: leading zeros mean nothing, and an IPv4 address in IPv6 clothes is an IPv4 address.
// upstream: addresses that were written before Go 1.17 began to refuse leading zeros must stay readable, so it keeps the
// older parser. The standard library's is strict, too; without the zeros the two agree.
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
    fn the_annotation_of_node_ip_orders_and_filters_the_clouds_list() {
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
            ("the cloud's spelling stays", "fc01::1", "Ifc01:0:0::0001 I10.1.1.1", "Ifc01:0:0::0001"),
            ("mapped is the same", "10.1.1.1", "I::ffff:10.1.1.1 I10.1.1.2", "I::ffff:10.1.1.1"),
            ("a name that is an address counts", "10.1.1.1", "H10.1.1.1 Hother I10.2.2.2", "H10.1.1.1 I10.2.2.2"),
        ];
        for (case, annotation, cloud, expected) in cases {
            assert_eq!(wanted(&annotated(annotation), &list(cloud)), Ok(Some(list(expected))), "{case}");
        }
    }

    #[test]
    fn p05_an_address_that_the_cloud_does_not_know_is_an_error() {
        let error = wanted(&annotated("10.2.2.2"), &list("I10.1.1.1 E55.55.55.55 Hn")).unwrap_err();
        assert_eq!(error.to_string(), "failed to get node address from cloud provider that matches ip: 10.2.2.2");
        let pair = wanted(&annotated("10.1.1.1,fc01::2"), &list("I10.1.1.1 Ifc01::1")).unwrap_err();
        assert_eq!(pair.to_string(), "failed to get node address from cloud provider that matches ip: fc01::2");
    }

    #[test]
    fn p10_the_internal_addresses_are_the_annotated_ones_in_the_annotations_order() {
        let cloud = list("Hn I192.168.0.1 Ifd00:1:2:3:4:: I172.16.0.1 I2001:db2::1 I10.0.0.9 E132.143.154.163");
        let cases = [
            ("192.168.0.1", "I192.168.0.1"),
            ("2001:db2::1", "I2001:db2::1"),
            ("2001:db2::1,172.16.0.1", "I2001:db2::1 I172.16.0.1"),
            ("192.168.0.1,fd00:1:2:3:4::", "I192.168.0.1 Ifd00:1:2:3:4::"),
        ];
        for (annotation, internal) in cases {
            let expected = list(&format!("{internal} Hn E132.143.154.163"));
            assert_eq!(wanted(&annotated(annotation), &cloud), Ok(Some(expected)), "P10 {annotation}");
        }
    }

    #[test]
    fn an_annotation_that_is_not_an_address_or_a_pair_is_refused_with_the_reason() {
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
    fn what_is_no_address_does_not_become_one_by_losing_its_zeros() {
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
    fn adding_addresses_adds_none_twice() {
        let mut p18 = list("E1.1.1.1 I10.1.1.1");
        add(&mut p18, &list("E1.1.1.1 Hlocalhost"));
        assert_eq!(p18, list("E1.1.1.1 I10.1.1.1 Hlocalhost"), "P18");

        let mut p19 = Vec::new();
        add(&mut p19, &list("E1.1.1.1 E1.1.1.1"));
        assert_eq!(p19, list("E1.1.1.1"), "P19");
    }

    #[test]
    fn the_list_is_written_if_it_differs_in_any_way() {
        let cases = [
            ("A1", "I10.0.0.1 E1.1.1.1", "I10.0.0.1 E1.1.1.1", None),
            ("A2", "I10.0.0.1 E1.1.1.1", "I10.0.0.1 E2.2.2.2", Some("I10.0.0.1 E2.2.2.2")),
            ("A3, the name is kept, last", "Hn I10.0.0.1", "I10.0.0.1", Some("I10.0.0.1 Hn")),
            ("A3, other type", "I10.0.0.1 E1.1.1.1", "I10.0.0.1", Some("I10.0.0.1")),
            ("A4", "I10.0.0.1", "I10.0.0.1 Hn", Some("I10.0.0.1 Hn")),
            ("A8", "I10.0.0.1", "", None),
            ("NODE-25, order", "I10.0.0.1 E1.1.1.1", "E1.1.1.1 I10.0.0.1", Some("E1.1.1.1 I10.0.0.1")),
            ("NODE-25, two of a type", "I10.0.0.1 I10.0.0.2", "I10.0.0.1 I10.0.0.2", None),
            ("interleaved types", "", "E1.1.1.1 I1.2.3.4 I::1 E1.1.1.2", Some("E1.1.1.1 E1.1.1.2 I1.2.3.4 I::1")),
            ("interleaved, as stored", "E1.1.1.1 E1.1.1.2 I1.2.3.4", "E1.1.1.1 I1.2.3.4 E1.1.1.2", None),
            ("the same twice", "I10.0.0.1", "I10.0.0.1 I10.0.0.1", None),
            ("NODE-21, every name", "Ha I1.1.1.1 Hb", "I1.1.1.1", Some("I1.1.1.1 Ha Hb")),
            ("NODE-21, the cloud's name wins", "Ha", "Hb I1.1.1.1", Some("Hb I1.1.1.1")),
        ];
        for (case, now, cloud, expected) in cases {
            assert_eq!(decide(&recorded(now), &list(cloud)), Ok(expected.map(list)), "{case}");
        }
    }

    #[test]
    fn the_check_before_initialisation_fails_also_without_any_cloud_address() {
        assert_eq!(check(&node("n"), &[]), Ok(()));
        assert_eq!(check(&annotated("10.0.0.1"), &list("I10.0.0.1")), Ok(()));
        let ip = "10.0.0.1".parse().unwrap();
        assert_eq!(check(&annotated("10.0.0.1"), &[]), Err(AddressError::NoMatch { ip }), "N22");
        assert_eq!(wanted(&annotated("10.0.0.1"), &[]), Ok(None), "NODE-21 comes first");
        assert!(matches!(check(&annotated("x"), &list("I10.0.0.1")), Err(AddressError::Malformed { .. })));
    }
}
