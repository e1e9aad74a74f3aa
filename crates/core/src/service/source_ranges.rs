//! Who may connect (helper 1.8, H1 to H4).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Service;
use crate::well_known::SOURCE_RANGES;
use crate::{IpFamily, annotations};

/// The name of the field.
const FIELD: &str = "spec.loadBalancerSourceRanges";

const EVERYBODY: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));

const EVERYBODY_V6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0));

/// A range that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {}", said_of(text))]
pub struct RangeError {
    /// The field or the annotation.
    pub place: &'static str,
    /// What stands there.
    pub text: String,
}

impl RangeError {
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
pub fn source_ranges(service: &Service) -> Result<BTreeSet<IpNet>, RangeError> {
    let (ranges, wrong) = find(service);
    wrong.into_iter().next().map_or(Ok(ranges), Err)
}

/// Like [`source_ranges`], with all that is wrong.
pub(super) fn find(service: &Service) -> (BTreeSet<IpNet>, Vec<RangeError>) {
    if !service.source_ranges.is_empty() {
        return parse_all(FIELD, service.source_ranges.iter().map(String::as_str));
    }
    let annotation = |key| Some((key, service.annotations.get(key)?.trim()));
    let places = [annotations::SOURCE_RANGES, SOURCE_RANGES];
    match places.into_iter().filter_map(annotation).find(|(_, list)| !list.is_empty()) {
        Some((key, list)) => parse_all(key, list.split(',')),
        None => (BTreeSet::from([EVERYBODY]), Vec::new()),
    }
}

/// The ranges in this list, and what is none.
pub(crate) fn parse_all<'a>(
    place: &'static str,
    texts: impl Iterator<Item = &'a str>,
) -> (BTreeSet<IpNet>, Vec<RangeError>) {
    let (mut ranges, mut wrong) = (BTreeSet::new(), Vec::new());
    for text in texts.map(str::trim) {
        match parse(text) {
            Some(range) => drop(ranges.insert(range)),
            None => wrong.push(RangeError { place, text: text.to_owned() }),
        }
    }
    (ranges, wrong)
}

/// One range, without host bits. A range of IPv4 addresses in the guise of IPv6 is one of IPv4.
fn parse(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let length = decimal(length)?;
    let address = if address.contains(':') { address.parse().ok()? } else { IpAddr::V4(parse_v4(address)?) };
    let range = IpNet::new(address, length).ok()?.trunc();
    Some(match range {
        IpNet::V6(range) => mapped(range).map_or(IpNet::V6(range), IpNet::V4),
        IpNet::V4(_) => range,
    })
}

fn mapped(range: Ipv6Net) -> Option<Ipv4Net> {
    Ipv4Net::new(range.network().to_ipv4_mapped()?, range.prefix_len().checked_sub(96)?).ok()
}

// upstream: `010.0.0.0/8` is `10.0.0.0/8`. The API server takes it, so there are Services that say it.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let octets = text.split('.').map(decimal).collect::<Option<Vec<u8>>>()?;
    <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
}

/// Digits and nothing else; zeros may lead.
fn decimal(text: &str) -> Option<u8> {
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let zeros_cut = text.trim_start_matches('0');
    if zeros_cut.is_empty() { digits.then_some(0) } else { zeros_cut.parse().ok().filter(|_| digits) }
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
