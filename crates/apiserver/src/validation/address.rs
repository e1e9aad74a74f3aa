//! Validation of IP addresses and CIDRs in object fields.
//!
//! There are two rules. Fields older than strict validation accept any unambiguous notation ([`is_valid_ip_legacy`],
//! [`is_valid_cidr_legacy`]) and warn about non-canonical ones; newer fields require the canonical notation
//! ([`is_valid_ip`]). Both parse leniently first, to distinguish an invalid address from an address with leading zeros.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::field_error::FieldError;

/// An address and prefix length as written, with bits beyond the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

impl Cidr {
    /// The network that contains the address.
    pub(crate) fn network(&self) -> Option<IpNet> {
        IpNet::new(self.address, self.prefix).ok().map(|net| net.trunc())
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.address.to_canonical().is_ipv4()
    }
}

// === Parsing ===

/// Parses an address and accepts leading zeros. An IPv4-mapped IPv6 address becomes IPv4.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    parse_uncanonical(text).map(|ip| ip.to_canonical())
}

/// Parses a CIDR and accepts leading zeros.
pub(crate) fn parse_cidr(text: &str) -> Option<Cidr> {
    let (address, length) = text.split_once('/')?;
    let address = parse_uncanonical(address)?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let prefix: u8 = digits.then(|| without_leading_zeros(length).parse().ok())??;
    let max_prefix = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= max_prefix).then_some(Cidr { address, prefix })
}

fn parse_uncanonical(text: &str) -> Option<IpAddr> {
    match text.contains(':') {
        true => parse_v6(text).map(IpAddr::V6),
        false => parse_v4(text).map(IpAddr::V4),
    }
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let octets: Vec<&str> = text.split('.').map(without_leading_zeros).collect();
    octets.join(".").parse().ok()
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    let groups: Vec<String> = text.split(':').map(trimmed_group).collect();
    groups.join(":").parse().ok()
}

fn trimmed_group(group: &str) -> String {
    group.split('.').map(without_leading_zeros).collect::<Vec<_>>().join(".")
}

/// The digits without leading zeros; a single zero is kept.
fn without_leading_zeros(digits: &str) -> &str {
    match digits.trim_start_matches('0') {
        "" if !digits.is_empty() => "0",
        rest => rest,
    }
}

// === Validation ===

/// Validates an address in a field that predates strict validation. Values of the old object are not validated.
pub(crate) fn is_valid_ip_legacy(field: &str, value: &str, old: &[&str]) -> Vec<FieldError> {
    if old.contains(&value) {
        return Vec::new();
    }
    let Some(_) = parse_ip(value) else {
        return vec![FieldError::invalid(
            field,
            value,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        )];
    };
    match value.parse::<IpAddr>() {
        Err(_) => vec![FieldError::invalid(field, value, "must not have leading 0s")],
        Ok(ip) if is_mapped(ip) => {
            vec![FieldError::invalid(field, value, "must not be an IPv4-mapped IPv6 address")]
        }
        Ok(_) => Vec::new(),
    }
}

/// Validates an address that must be in canonical form.
pub(crate) fn is_valid_ip(field: &str, value: &str) -> Vec<FieldError> {
    let errors = is_valid_ip_legacy(field, value, &[]);
    let canonical = parse_ip(value).map(|ip| ip.to_string());
    match canonical {
        Some(canonical) if errors.is_empty() && canonical != value => {
            vec![FieldError::invalid(field, value, format!("must be in canonical form ({canonical:?})"))]
        }
        _ => errors,
    }
}

/// Validates a CIDR in a field that predates strict validation. Values of the old object are not validated.
pub(crate) fn is_valid_cidr_legacy(field: &str, value: &str, old: &[&str]) -> Vec<FieldError> {
    if old.contains(&value) {
        return Vec::new();
    }
    let detail = match parse_cidr(value) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some(_) if !is_strict_cidr(value) => "must not have leading 0s in IP or prefix length",
        Some(cidr) if is_mapped(cidr.address) => "must not have an IPv4-mapped IPv6 address",
        Some(cidr) if cidr.network().is_none_or(|net| net.network() != cidr.address) => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return Vec::new(),
    };
    vec![FieldError::invalid(field, value, detail)]
}

/// Validates an endpoint address, which other machines must be able to reach.
pub(crate) fn endpoint_ip(field: &str, value: &str) -> Vec<FieldError> {
    let Some(ip) = parse_ip(value) else {
        return vec![FieldError::invalid(field, value, "must be a valid IP address")];
    };
    let unspecified = format!("may not be unspecified ({value})");
    let checks = [
        (ip.is_unspecified(), unspecified.as_str()),
        (ip.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (is_link_local(ip), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (is_link_local_multicast(ip), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ];
    checks.iter().filter(|(wrong, _)| *wrong).map(|(_, text)| FieldError::invalid(field, value, *text)).collect()
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn is_strict_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, length)| {
        address.parse::<IpAddr>().is_ok() && (length == "0" || !length.starts_with('0'))
    })
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

// === Warnings ===

/// A warning about a valid IPv6 address in non-canonical notation.
pub(crate) fn ip_warning(field: &str, value: &str) -> Option<String> {
    let ip: Ipv6Addr = value.parse().ok()?;
    let canonical = ip.to_string();
    (canonical != value)
        .then(|| format!("{field}: IPv6 address {value:?} should be in RFC 5952 canonical format ({canonical:?})"))
}

/// A warning about a valid IPv6 CIDR in non-canonical notation.
pub(crate) fn cidr_warning(field: &str, value: &str) -> Option<String> {
    let (address, length) = value.split_once('/')?;
    let address: Ipv6Addr = address.parse().ok()?;
    let canonical = format!("{address}/{length}");
    (canonical != value)
        .then(|| format!("{field}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({canonical:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(|e| e.body().split(": ").skip(2).collect::<Vec<_>>().join(": ")).collect()
    }

    #[test]
    fn leading_zeros_are_accepted_by_the_parser() {
        assert_eq!(parse_ip("010.002.003.004"), "10.2.3.4".parse().ok());
        assert_eq!(parse_ip("2001:0db8:00000::0001"), "2001:db8::1".parse().ok());
        assert_eq!(parse_ip("::ffff:1.2.3.4"), "1.2.3.4".parse().ok());
        for bad in ["", "bad", "1.2.3", "1.2.3.4.5", "256.1.1.1", "1..2.3", "fe80::1%eth0", "1.2.3.4/8"] {
            assert_eq!(parse_ip(bad), None, "{bad}");
        }
    }

    #[test]
    fn address_errors_are_specific() {
        let cases: &[(&str, &[&str])] = &[
            ("10.1.2.3", &[]),
            ("FE80:0:0:0:0:0:0:0abc", &[]),
            ("x", &["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
            ("010.1.2.3", &["must not have leading 0s"]),
            ("::ffff:1.2.3.4", &["must not be an IPv4-mapped IPv6 address"]),
        ];
        for (value, wanted) in cases {
            assert_eq!(details(&is_valid_ip_legacy("f", value, &[])), *wanted, "{value}");
        }
        assert_eq!(is_valid_ip_legacy("f", "010.1.2.3", &["010.1.2.3"]), []);
        assert_eq!(details(&is_valid_ip("f", "2001:DB8::1")), ["must be in canonical form (\"2001:db8::1\")"]);
    }

    #[test]
    fn cidr_errors_are_specific() {
        let cases: &[(&str, &[&str])] = &[
            ("10.244.0.0/24", &[]),
            ("2001:DB8::/64", &[]),
            ("0.0.0.0/0", &[]),
            ("bad", &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
            ("10.0.0.0/33", &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
            ("10.0.0.0/+8", &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
            ("10.0.0.0/08", &["must not have leading 0s in IP or prefix length"]),
            ("::ffff:1.2.3.0/120", &["must not have an IPv4-mapped IPv6 address"]),
            ("10.0.0.1/8", &["must not have bits set beyond the prefix length"]),
        ];
        for (value, wanted) in cases {
            assert_eq!(details(&is_valid_cidr_legacy("f", value, &[])), *wanted, "{value}");
        }
    }

    #[test]
    fn endpoints_must_be_reachable_from_other_machines() {
        let cases: &[(&str, &[&str])] = &[
            ("10.1.2.3", &[]),
            ("bad", &["must be a valid IP address"]),
            ("0.0.0.0", &["may not be unspecified (0.0.0.0)"]),
            ("127.0.0.1", &["may not be in the loopback range (127.0.0.0/8, ::1/128)"]),
            ("169.254.1.1", &["may not be in the link-local range (169.254.0.0/16, fe80::/10)"]),
            ("224.0.0.5", &["may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"]),
        ];
        for (value, wanted) in cases {
            assert_eq!(details(&endpoint_ip("f", value)), *wanted, "{value}");
        }
    }

    #[test]
    fn non_canonical_ipv6_notation_causes_a_warning() {
        assert_eq!(ip_warning("f", "10.0.0.1"), None);
        assert_eq!(
            ip_warning("f", "2001:DB8::1").as_deref(),
            Some("f: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")")
        );
        assert_eq!(
            cidr_warning("f", "2001:db8:0::/64").as_deref(),
            Some("f: IPv6 CIDR value \"2001:db8:0::/64\" should be in RFC 5952 canonical format (\"2001:db8::/64\")")
        );
    }
}
