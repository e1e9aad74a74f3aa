//! Source ranges: the networks from which clients may connect (H1 to H4).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Service;
use crate::well_known::SOURCE_RANGES;
use crate::{IpFamily, annotations, parse_cidr};

/// Field path in error messages.
const FIELD: &str = "spec.loadBalancerSourceRanges";

/// All IPv4 addresses.
const ANY_V4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));

/// All IPv6 addresses.
const ANY_V6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0));

/// An invalid source range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {}", message(text))]
pub struct SourceRangeError {
    /// Field path or annotation key.
    pub field: &'static str,
    /// Invalid value.
    pub text: String,
}

impl SourceRangeError {
    /// Returns the error message without the field: the reason, with the expected value.
    pub fn message(&self) -> String {
        message(&self.text)
    }
}

fn message(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(address @ IpAddr::V4(_)) => format!("{text:?} is an address and not a CIDR; write {address}/32"),
        Ok(address @ IpAddr::V6(_)) => format!("{text:?} is an address and not a CIDR; write {address}/128"),
        Err(_) => format!("{text:?} is not a CIDR such as 10.0.0.0/8 or 2001:db8::/32"),
    }
}

/// Returns the CIDRs from which clients may connect: those of the field, else of Bowline's annotation, else of the legacy
/// annotation, else `0.0.0.0/0`. Host bits are cleared, and duplicates removed.
pub fn source_ranges(service: &Service) -> Result<BTreeSet<IpNet>, SourceRangeError> {
    let (ranges, errors) = find(service);
    errors.into_iter().next().map_or(Ok(ranges), Err)
}

/// Like [`source_ranges`], but returns all errors.
pub(super) fn find(service: &Service) -> (BTreeSet<IpNet>, Vec<SourceRangeError>) {
    if !service.source_ranges.is_empty() {
        return parse_all(FIELD, service.source_ranges.iter().map(String::as_str));
    }
    let annotation = |key| Some((key, service.annotations.get(key)?.trim()));
    let keys = [annotations::SOURCE_RANGES.key, SOURCE_RANGES];
    match keys.into_iter().filter_map(annotation).find(|(_, list)| !list.is_empty()) {
        Some((key, list)) => parse_all(key, list.split(',')),
        None => (BTreeSet::from([ANY_V4]), Vec::new()),
    }
}

/// Parses a list of CIDRs. Returns the valid ones, and an error for each invalid one.
pub(crate) fn parse_all<'a>(
    field: &'static str,
    texts: impl Iterator<Item = &'a str>,
) -> (BTreeSet<IpNet>, Vec<SourceRangeError>) {
    let (mut ranges, mut errors) = (BTreeSet::new(), Vec::new());
    for text in texts.map(str::trim) {
        match parse_cidr(text) {
            Some(range) => drop(ranges.insert(range)),
            None => errors.push(SourceRangeError { field, text: text.to_owned() }),
        }
    }
    (ranges, errors)
}

/// Returns whether the ranges contain `0.0.0.0/0`.
// upstream: ignores `::/0`.
pub fn is_allow_all(ranges: &BTreeSet<IpNet>) -> bool {
    ranges.contains(&ANY_V4)
}

/// Returns whether the ranges allow all clients of the IP families of a load balancer.
///
/// [`is_allow_all`] alone would allow every IPv6 client if the ranges contain `0.0.0.0/0` and an IPv6 CIDR.
pub(super) fn allow_all_clients(ranges: &BTreeSet<IpNet>, families: &[IpFamily]) -> bool {
    let all_v6 = ranges.contains(&ANY_V6);
    let some_v6 = ranges.iter().any(|range| matches!(range, IpNet::V6(_)));
    let is_v6_only = !families.is_empty() && families.iter().all(|family| *family == IpFamily::IPv6);
    if is_allow_all(ranges) { all_v6 || !some_v6 } else { all_v6 && is_v6_only }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{annotated, service};

    fn in_field(ranges: &[&str]) -> Service {
        let source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        Service { source_ranges, ..service("default/web") }
    }

    fn in_annotation(key: &str, ranges: &str) -> Service {
        annotated(service("default/web"), &[(key, ranges)])
    }

    fn ranges_of(service: &Service) -> Vec<String> {
        source_ranges(service).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn h01_an_invalid_cidr_is_an_error_in_the_field_and_the_annotations() {
        let cases: [&[&str]; 14] = [
            &["10.0.0.1/33"],
            &["foo.bar"],
            &["10.0.0.1/32", "*"],
            &["10.0.0.1"],
            &["2001:db8::1"],
            &["2001:db8::/129"],
            &["10.0.0.1/32", ""],
            &["10.0.0/8"],
            &["10.0.0.0.0/8"],
            &["10.0.0.256/32"],
            &["10.0.0.0/"],
            &["10.0.0.0/+8"],
            &["10.0.0.0/-1"],
            &["fe80::1%eth0/64"],
        ];
        for ranges in cases {
            assert!(source_ranges(&in_field(ranges)).is_err(), "H1, field: {ranges:?}");
            for key in [annotations::SOURCE_RANGES.key, SOURCE_RANGES] {
                assert!(source_ranges(&in_annotation(key, &ranges.join(","))).is_err(), "H1, {key}: {ranges:?}");
            }
        }
        assert!(source_ranges(&in_field(&[""])).is_err(), "an empty string is invalid, unlike an empty list");
    }

    #[test]
    fn the_error_names_the_field_and_the_expected_value() {
        let error = |service: &Service| source_ranges(service).unwrap_err().to_string();
        assert_eq!(
            error(&in_field(&["10.0.0.1"])),
            "spec.loadBalancerSourceRanges: \"10.0.0.1\" is an address and not a CIDR; write 10.0.0.1/32"
        );
        assert_eq!(
            error(&in_annotation(annotations::SOURCE_RANGES.key, "10.0.0.0/8,")),
            "bowline.dev/source-ranges: \"\" is not a CIDR such as 10.0.0.0/8 or 2001:db8::/32"
        );
        let legacy = error(&in_annotation(SOURCE_RANGES, "2001:DB8::1"));
        assert!(legacy.starts_with("service.beta.kubernetes.io/load-balancer-source-ranges: "), "{legacy}");
        assert!(legacy.ends_with("write 2001:db8::1/128"), "{legacy}");
    }

    #[test]
    fn h02_ranges_are_a_set_of_cidrs() {
        let cases: [(&[&str], &[&str]); 9] = [
            (&["192.168.0.1/32"], &["192.168.0.1/32"]),
            (&["192.168.0.1/32", "192.168.0.2/32"], &["192.168.0.1/32", "192.168.0.2/32"]),
            (&["192.168.0.1/32", "192.168.0.1/32"], &["192.168.0.1/32"]),
            (&["10.1.2.3/8", "10.0.0.0/8"], &["10.0.0.0/8"]),
            (&[" 10.0.0.0/8\t", "\n11.0.0.0/8"], &["10.0.0.0/8", "11.0.0.0/8"]),
            (&["2001:DB8::1/32", "2001:db8:0::/32"], &["2001:db8::/32"]),
            (&["10.0.0.0/8", "2001:db8::/32"], &["10.0.0.0/8", "2001:db8::/32"]),
            (&["010.000.0.1/08"], &["10.0.0.0/8"]),
            (&["::ffff:10.0.0.1/104"], &["10.0.0.0/8"]),
        ];
        for (given, expected) in cases {
            assert_eq!(ranges_of(&in_field(given)), expected, "H2, field: {given:?}");
            assert_eq!(
                ranges_of(&in_annotation(SOURCE_RANGES, &given.join(","))),
                expected,
                "H2, annotation: {given:?}"
            );
        }
    }

    #[test]
    fn h03_without_ranges_all_clients_are_allowed() {
        let empty = [in_field(&[]), in_annotation(SOURCE_RANGES, ""), in_annotation(SOURCE_RANGES, " \t")];
        for service in empty {
            assert_eq!(ranges_of(&service), ["0.0.0.0/0"], "H3");
            assert!(is_allow_all(&source_ranges(&service).unwrap()), "H3");
        }
    }

    #[test]
    fn h04_all_clients_are_allowed_if_the_ranges_contain_all_of_ipv4() {
        let cases: [(&[&str], bool); 7] = [
            (&["10.0.0.1/32"], false),
            (&["0.0.0.0/0"], true),
            (&["192.168.0.1/32", "0.0.0.0/0"], true),
            (&["192.168.0.1/0"], true),
            (&["::/0"], false),
            (&["0.0.0.0/1", "128.0.0.0/1"], false),
            (&["::ffff:0:0/96"], true),
        ];
        for (ranges, expected) in cases {
            assert_eq!(is_allow_all(&source_ranges(&in_field(ranges)).unwrap()), expected, "H4: {ranges:?}");
        }
        assert!(!is_allow_all(&BTreeSet::new()));
    }

    #[test]
    fn the_field_takes_precedence_over_the_annotation_and_that_over_the_legacy_one() {
        let all = annotated(
            in_field(&["10.0.0.0/8"]),
            &[(annotations::SOURCE_RANGES.key, "11.0.0.0/8"), (SOURCE_RANGES, "12.0.0.0/8")],
        );
        assert_eq!(ranges_of(&all), ["10.0.0.0/8"]);
        let ours = Service { source_ranges: vec![], ..all };
        assert_eq!(ranges_of(&ours), ["11.0.0.0/8"]);
        assert_eq!(ranges_of(&annotated(ours, &[(annotations::SOURCE_RANGES.key, " ")])), ["12.0.0.0/8"]);
        let unused = annotated(in_field(&["10.0.0.0/8"]), &[(SOURCE_RANGES, "rubbish")]);
        assert_eq!(ranges_of(&unused), ["10.0.0.0/8"], "an unused annotation is not parsed");
    }

    #[test]
    fn ranges_that_allow_all_clients_are_recognised_by_ip_family() {
        use IpFamily::{IPv4, IPv6};
        let cases: [(&[&str], &[IpFamily], bool); 9] = [
            (&["0.0.0.0/0"], &[IPv4], true),
            (&["0.0.0.0/0"], &[IPv4, IPv6], true),
            (&["0.0.0.0/0"], &[IPv6], true),
            (&["0.0.0.0/0", "::/0"], &[IPv4, IPv6], true),
            (&["0.0.0.0/0", "2001:db8::/32"], &[IPv4, IPv6], false),
            (&["::/0"], &[IPv6], true),
            (&["::/0"], &[IPv4, IPv6], false),
            (&["::/0"], &[], false),
            (&["10.0.0.0/8"], &[IPv4], false),
        ];
        for (ranges, families, expected) in cases {
            let set = source_ranges(&in_field(ranges)).unwrap();
            assert_eq!(allow_all_clients(&set, families), expected, "{ranges:?} {families:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_a_cidr_never_panics_and_round_trips(text in "[0-9a-f:./]{0,24}|.*") {
            if let Some(range) = parse_cidr(&text) {
                prop_assert_eq!(parse_cidr(&range.to_string()), Some(range));
                prop_assert_eq!(range, range.trunc());
            }
        }

        #[test]
        fn cidrs_are_parsed_as_by_the_ipnet_library(address in any::<[u8; 4]>(), length in 0..=32u8) {
            let text = format!("{}/{length}", Ipv4Addr::from(address));
            prop_assert_eq!(parse_cidr(&text), text.parse::<IpNet>().ok().map(|range| range.trunc()));
        }
    }
}
