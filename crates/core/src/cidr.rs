//! CIDRs, parsed as leniently as the API server parses them (K-10).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Parses a CIDR. Host bits are cleared, and an IPv4-mapped IPv6 CIDR becomes an IPv4 CIDR.
pub fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let length = decimal(length)?;
    let address = if address.contains(':') { address.parse().ok()? } else { IpAddr::V4(parse_v4(address)?) };
    Some(canonical_cidr(IpNet::new(address, length).ok()?))
}

/// Returns the canonical form of a CIDR: host bits are cleared, and an IPv4-mapped IPv6 CIDR becomes an IPv4 CIDR.
pub fn canonical_cidr(range: IpNet) -> IpNet {
    match range.trunc() {
        IpNet::V6(range) => mapped(range).map_or(IpNet::V6(range), IpNet::V4),
        range @ IpNet::V4(_) => range,
    }
}

fn mapped(range: Ipv6Net) -> Option<Ipv4Net> {
    Ipv4Net::new(range.network().to_ipv4_mapped()?, range.prefix_len().checked_sub(96)?).ok()
}

// upstream: `010.0.0.0/8` is `10.0.0.0/8`. The API server accepts it, so stored objects may contain it.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let octets = text.split('.').map(decimal).collect::<Option<Vec<u8>>>()?;
    <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
}

/// Parses decimal digits; leading zeros are allowed, a sign is not.
fn decimal(text: &str) -> Option<u8> {
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let zeros_cut = text.trim_start_matches('0');
    if zeros_cut.is_empty() { digits.then_some(0) } else { zeros_cut.parse().ok().filter(|_| digits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cidrs_are_parsed_as_leniently_as_by_the_api_server() {
        let table = [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("010.0.0.0/08", Some("10.0.0.0/8")),
            ("FD00:0::1/64", Some("fd00::/64")),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8")),
            (" 10.0.0.0/8", None),
            ("10.0.0.0", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/-1", None),
            ("10.0.0/8", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_cidr(text).map(|range| range.to_string()).as_deref(), expected, "{text:?}");
        }
    }
}
