//! Source ranges: the networks from which clients may connect (H1 to H4).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Service;
use crate::well_known::SOURCE_RANGES;
use crate::{IpFamily, annotations, parse_cidr};

/// The name of the field.
const FIELD: &str = "spec.loadBalancerSourceRanges";

const EVERYBODY: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));

const EVERYBODY_V6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0));

/// A range that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {}", said_of(text))]
pub struct SourceRangeError {
    /// The field or the annotation.
    pub place: &'static str,
    /// What stands there.
    pub text: String,
}

impl SourceRangeError {
    /// What is wrong, and what would be right, without the place.
    pub fn message(&self) -> String {
        said_of(&self.text)
    }
}

fn said_of(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(address @ IpAddr::V4(_)) => format!("{text:?} is an address and not a range; write {address}/32"),
        Ok(address @ IpAddr::V6(_)) => format!("{text:?} is an address and not a range; write {address}/128"),
        Err(_) => format!("{text:?} is not a range like 10.0.0.0/8 or 2001:db8::/32"),
    }
}

/// The ranges from which clients may connect: those of the field, else of our annotation, else of the old annotation, else
/// `0.0.0.0/0`. As a set of networks: host bits are cleared, and doubles are one.
pub fn source_ranges(service: &Service) -> Result<BTreeSet<IpNet>, SourceRangeError> {
    let (ranges, wrong) = find(service);
    wrong.into_iter().next().map_or(Ok(ranges), Err)
}

/// Like [`source_ranges`], with all that is wrong.
pub(super) fn find(service: &Service) -> (BTreeSet<IpNet>, Vec<SourceRangeError>) {
    if !service.source_ranges.is_empty() {
        return parse_all(FIELD, service.source_ranges.iter().map(String::as_str));
    }
    let annotation = |key| Some((key, service.annotations.get(key)?.trim()));
    let places = [annotations::SOURCE_RANGES.key, SOURCE_RANGES];
    match places.into_iter().filter_map(annotation).find(|(_, list)| !list.is_empty()) {
        Some((key, list)) => parse_all(key, list.split(',')),
        None => (BTreeSet::from([EVERYBODY]), Vec::new()),
    }
}

/// The ranges in this list, and what is none.
pub(crate) fn parse_all<'a>(
    place: &'static str,
    texts: impl Iterator<Item = &'a str>,
) -> (BTreeSet<IpNet>, Vec<SourceRangeError>) {
    let (mut ranges, mut wrong) = (BTreeSet::new(), Vec::new());
    for text in texts.map(str::trim) {
        match parse_cidr(text) {
            Some(range) => drop(ranges.insert(range)),
            None => wrong.push(SourceRangeError { place, text: text.to_owned() }),
        }
    }
    (ranges, wrong)
}

/// Everybody may connect: `0.0.0.0/0` is among them.
// upstream: `::/0` does not count.
pub fn is_allow_all(ranges: &BTreeSet<IpNet>) -> bool {
    ranges.contains(&EVERYBODY)
}

/// No range keeps anybody out, of the families that a balancer has.
///
/// [`is_allow_all`] alone would let every IPv6 client in where `0.0.0.0/0` stands beside an IPv6 range.
pub(super) fn leave_everybody_in(ranges: &BTreeSet<IpNet>, families: &[IpFamily]) -> bool {
    let all_v6 = ranges.contains(&EVERYBODY_V6);
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

    fn shown(service: &Service) -> Vec<String> {
        source_ranges(service).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn h01_what_is_no_range_is_an_error_in_field_and_annotations() {
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
        assert!(source_ranges(&in_field(&[""])).is_err(), "an empty text is no range, other than an empty list");
    }

    #[test]
    fn the_error_names_the_place_and_what_would_be_right() {
        let said = |service: &Service| source_ranges(service).unwrap_err().to_string();
        assert_eq!(
            said(&in_field(&["10.0.0.1"])),
            "spec.loadBalancerSourceRanges: \"10.0.0.1\" is an address and not a range; write 10.0.0.1/32"
        );
        assert_eq!(
            said(&in_annotation(annotations::SOURCE_RANGES.key, "10.0.0.0/8,")),
            "bowline.dev/source-ranges: \"\" is not a range like 10.0.0.0/8 or 2001:db8::/32"
        );
        let old = said(&in_annotation(SOURCE_RANGES, "2001:DB8::1"));
        assert!(old.starts_with("service.beta.kubernetes.io/load-balancer-source-ranges: "), "{old}");
        assert!(old.ends_with("write 2001:db8::1/128"), "{old}");
    }

    #[test]
    fn h02_ranges_are_a_set_of_networks() {
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
            assert_eq!(shown(&in_field(given)), expected, "H2, field: {given:?}");
            assert_eq!(shown(&in_annotation(SOURCE_RANGES, &given.join(","))), expected, "H2, annotation: {given:?}");
        }
    }

    #[test]
    fn h03_nothing_said_is_everybody() {
        let empty = [in_field(&[]), in_annotation(SOURCE_RANGES, ""), in_annotation(SOURCE_RANGES, " \t")];
        for service in empty {
            assert_eq!(shown(&service), ["0.0.0.0/0"], "H3");
            assert!(is_allow_all(&source_ranges(&service).unwrap()), "H3");
        }
    }

    #[test]
    fn h04_everybody_is_in_if_the_range_of_all_of_ipv4_is() {
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
    fn the_field_goes_before_our_annotation_and_that_before_the_old_one() {
        let all = annotated(
            in_field(&["10.0.0.0/8"]),
            &[(annotations::SOURCE_RANGES.key, "11.0.0.0/8"), (SOURCE_RANGES, "12.0.0.0/8")],
        );
        assert_eq!(shown(&all), ["10.0.0.0/8"]);
        let ours = Service { source_ranges: vec![], ..all };
        assert_eq!(shown(&ours), ["11.0.0.0/8"]);
        assert_eq!(shown(&annotated(ours, &[(annotations::SOURCE_RANGES.key, " ")])), ["12.0.0.0/8"]);
        let unused = annotated(in_field(&["10.0.0.0/8"]), &[(SOURCE_RANGES, "rubbish")]);
        assert_eq!(shown(&unused), ["10.0.0.0/8"], "what does not count is not read");
    }

    #[test]
    fn ranges_limit_only_if_they_keep_somebody_out() {
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
            assert_eq!(leave_everybody_in(&set, families), expected, "{ranges:?} {families:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic_and_what_is_read_reads_the_same_again(text in "[0-9a-f:./]{0,24}|.*") {
            if let Some(range) = parse_cidr(&text) {
                prop_assert_eq!(parse_cidr(&range.to_string()), Some(range));
                prop_assert_eq!(range, range.trunc());
            }
        }

        #[test]
        fn what_the_library_reads_is_read_the_same(address in any::<[u8; 4]>(), length in 0..=32u8) {
            let text = format!("{}/{length}", Ipv4Addr::from(address));
            prop_assert_eq!(parse_cidr(&text), text.parse::<IpNet>().ok().map(|range| range.trunc()));
        }
    }
}
