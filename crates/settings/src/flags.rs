//! Value parsers of flags and their error messages. The flag and its value are put in front of each message, so a message says
//! what is expected.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bowline_config::{ConfigError, parse_duration};
use bowline_core::service::NodeSet;
use bowline_core::{AddressType, parse_cidr};
use clap::builder::TypedValueParser;
use clap::{Arg, ArgAction};
use ipnet::IpNet;

/// Value of a flag, or the error in it.
pub type Given<T> = Result<T, ConfigError>;

/// Parses with `parse` and keeps an error as a value: clap would exit at the first invalid flag, and the user would find the
/// others one start at a time.
pub fn given<T, E, F: Fn(&str) -> Result<T, E>>(parse: F) -> Lenient<F> {
    Lenient(parse)
}

/// Value parser of [`given`].
#[derive(Clone)]
pub struct Lenient<F>(F);

impl<T, E, F> TypedValueParser for Lenient<F>
where
    F: Fn(&str) -> Result<T, E> + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    E: fmt::Display,
{
    type Value = Given<T>;

    fn parse_ref(&self, _: &clap::Command, flag: Option<&Arg>, value: &OsStr) -> Result<Given<T>, clap::Error> {
        let name = flag.and_then(Arg::get_long).unwrap_or_default();
        let invalid = |what: &dyn fmt::Display| ConfigError::flag(name, format!("invalid value {value:?}: {what}"));
        Ok(match value.to_str() {
            Some(text) => (self.0)(text).map_err(|error| invalid(&error)),
            None => Err(invalid(&"not UTF-8 text")),
        })
    }
}

/// Address to listen on. Host names are rejected, because they may resolve differently on another machine.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:6443 or [::1]:6443")
}

/// Loopback address to listen on, for endpoints without authentication.
pub fn loopback(text: &str) -> Result<SocketAddr, &'static str> {
    let address = address(text)?;
    if !address.ip().is_loopback() {
        return Err("expected a loopback address, such as 127.0.0.1:0 or [::1]:0");
    }
    Ok(address)
}

/// IP address to listen on; empty for all addresses.
pub fn bind_address(text: &str) -> Result<IpAddr, &'static str> {
    if text.is_empty() {
        return Ok(Ipv4Addr::UNSPECIFIED.into());
    }
    text.parse().map_err(|_| "expected an IP address, such as 0.0.0.0, 127.0.0.1 or ::")
}

/// Path of a file or directory. An empty path means unset, as in Go; clap's own parser would reject it.
pub fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

/// Duration in Go's syntax.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}

/// Interval of a periodic task. It must not be 0, because the task would then take a whole core.
pub fn pause(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be greater than 0".to_owned()),
        pause => Ok(pause),
    }
}

/// Whole number.
// upstream: signed 32 bits, so that a negative number gets its own error message.
pub fn int32(text: &str) -> Result<i32, &'static str> {
    text.parse().map_err(|_| "expected a whole number, such as 16")
}

/// Whole number whose range the caller validates.
// upstream: Go's int, which also accepts literals such as 0x10.
pub fn integer(text: &str) -> Result<i64, &'static str> {
    text.parse().map_err(|_| "expected a whole number, such as 10258")
}

/// Port to listen on.
pub fn port(text: &str) -> Result<u16, &'static str> {
    text.parse().map_err(|_| "expected a port from 0 to 65535, such as 9443")
}

/// Size in bytes, as a Kubernetes quantity.
pub fn quantity(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "expected a size such as 512, 1Ki or 2M";
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match text.get(digits.len()..).unwrap_or_default() {
        "" => 1,
        "k" => 1_000,
        "Ki" => 1 << 10,
        "M" => 1_000_000,
        "Mi" => 1 << 20,
        "G" => 1_000_000_000,
        "Gi" => 1 << 30,
        _ => return Err(EXPECTED),
    };
    digits.parse().ok().and_then(|number: u64| number.checked_mul(unit)).ok_or(EXPECTED)
}

/// Finite floating point number.
pub fn number(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or("expected a number, such as 20 or 0.5")
}

/// Share from 0 to 1.
pub fn share(text: &str) -> Result<f64, &'static str> {
    let share = number(text).ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("expected a share from 0 to 1, such as 0.34 for a third")
}

/// Name of a namespace, an RFC 1123 label.
pub fn label(text: &str) -> Result<String, &'static str> {
    let is_inner = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    let is_sound = !text.is_empty() && text.len() <= 63 && text.chars().all(is_inner);
    if is_sound && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("expected at most 63 lowercase letters, digits and '-', starting and ending with a letter or digit")
}

/// Label key and value; the value may be empty.
pub fn label_and_value(text: &str) -> Result<(String, String), &'static str> {
    const EXPECTED: &str = "expected KEY=VALUE, such as node-role.kubernetes.io/control-plane=true";
    let (key, value) = text.split_once('=').ok_or(EXPECTED)?;
    let is_sound = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
    let key_is_sound = !key.is_empty() && key.chars().all(|character| is_sound(character) || character == '/');
    let value_is_sound = value.len() <= 63 && value.chars().all(is_sound);
    if key_is_sound && value_is_sound { Ok((key.to_owned(), value.to_owned())) } else { Err(EXPECTED) }
}

/// Key and value of an annotation.
pub fn annotation(text: &str) -> Result<(String, String), &'static str> {
    const EXPECTED: &str = "expected KEY=VALUE, such as example.com/role=manager";
    let (key, value) = text.split_once('=').ok_or(EXPECTED)?;
    let is_sound = |character: char| character.is_ascii_alphanumeric() || "-._/".contains(character);
    let is_key = !key.is_empty() && key.chars().all(is_sound);
    if is_key { Ok((key.to_owned(), value.to_owned())) } else { Err(EXPECTED) }
}

/// Host name or IP address, and port.
pub fn host_and_port(text: &str) -> Result<(String, u16), &'static str> {
    const EXPECTED: &str = "expected HOST:PORT, such as 10.0.0.1:6443 or [fd00::1]:6443, without https://";
    let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or(EXPECTED)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_address = bare.parse::<std::net::Ipv6Addr>().is_ok();
    let is_sound = |character: char| character.is_ascii_alphanumeric() || "-.".contains(character);
    let is_name = !bare.is_empty() && bare.chars().all(is_sound);
    if is_address || is_name { Ok((bare.to_owned(), port)) } else { Err(EXPECTED) }
}

/// Non-empty text.
pub fn not_empty(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() { Err("must not be empty; remove the flag for the default") } else { Ok(text.to_owned()) }
}

/// Boolean.
// upstream: Go accepts exactly these spellings.
pub fn go_bool(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false"),
    }
}

/// Syntax of a boolean flag with [`go_bool`].
pub trait Switch {
    /// Accepts `--flag` and `--flag=false`, but not `--flag false`.
    // upstream: Go parses the argument after a boolean flag as a positional argument.
    fn switch(self) -> Arg;
}

impl Switch for Arg {
    fn switch(self) -> Arg {
        let switch = self.value_name("true|false").action(ArgAction::Set);
        switch.num_args(0..=1).require_equals(true).default_missing_value("true")
    }
}

/// Set of nodes that become targets of load balancers.
pub fn node_set(text: &str) -> Result<NodeSet, &'static str> {
    match text {
        "initialized" => Ok(NodeSet::Initialized),
        "all" => Ok(NodeSet::All),
        _ => Err("expected initialized or all"),
    }
}

/// Comma-separated node address types without duplicates.
pub fn address_types(text: &str) -> Result<Vec<AddressType>, String> {
    use AddressType::{ExternalDNS, ExternalIP, Hostname, InternalDNS, InternalIP};
    const ALL: [AddressType; 5] = [Hostname, InternalIP, ExternalIP, InternalDNS, ExternalDNS];
    let mut types = Vec::new();
    for name in text.split(',').map(str::trim) {
        let found = ALL.into_iter().find(|kind| kind.to_string() == name);
        let kind = found
            .ok_or_else(|| format!("expected types of {}, not {name:?}", ALL.map(|it| it.to_string()).join(", ")))?;
        if types.contains(&kind) {
            return Err(format!("duplicate address type {name}"));
        }
        types.push(kind);
    }
    Ok(types)
}

/// Comma-separated CIDRs.
pub fn cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    text.split(',').map(|range| cidr(range.trim())).collect()
}

/// CIDR without host bits.
pub fn cidr(text: &str) -> Result<IpNet, String> {
    let net: IpNet = text.parse().map_err(|_| "expected a CIDR such as 10.96.0.0/16 or fd00:10:96::/112")?;
    if net != net.trunc() {
        return Err(format!("host bits are set; use {}", net.trunc()));
    }
    // The same range in two spellings would count as two ranges.
    if let (IpNet::V6(_), Some(range @ IpNet::V4(_))) = (net, parse_cidr(text)) {
        return Err(format!("IPv4-mapped IPv6 range; use {range}"));
    }
    Ok(net)
}

/// Port range, such as `30000-32767`.
pub fn port_range(text: &str) -> Result<PortRange, &'static str> {
    const EXPECTED: &str = "expected two ports, the lower one first and above 0, such as 30000-32767";
    let (first, last) = text.split_once('-').ok_or(EXPECTED)?;
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(PortRange { first, last }),
        _ => Err(EXPECTED),
    }
}

/// Token issuer: an https URL, as OIDC clients require.
pub fn issuer(text: &str) -> Result<String, &'static str> {
    match text.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err("expected a URL that starts with https://, such as https://kubernetes.default.svc"),
    }
}

/// Port range, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl From<(u16, u16)> for PortRange {
    fn from((first, last): (u16, u16)) -> PortRange {
        PortRange { first, last }
    }
}

impl From<PortRange> for (u16, u16) {
    fn from(range: PortRange) -> (u16, u16) {
        (range.first, range.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_port_ranges_are_rejected() {
        for text in ["", "-", "30000", "30000-", "-32767", "0-10", "2-1", "30000-70000", "a-b", "1-2-3"] {
            assert!(port_range(text).is_err(), "{text}");
        }
        assert_eq!(port_range("30000-30000"), Ok(PortRange { first: 30_000, last: 30_000 }));
    }

    #[test]
    fn lists_of_address_types_and_networks_are_parsed_or_rejected() {
        assert_eq!(address_types("InternalIP, Hostname"), Ok(vec![AddressType::InternalIP, AddressType::Hostname]));
        for text in ["", "InternalIP,", "internalip", "InternalIP,InternalIP"] {
            assert!(address_types(text).is_err(), "{text}");
        }
        assert_eq!(cidrs("10.0.0.0/8, fd00::/8").map(|networks| networks.len()), Ok(2));
        for text in ["", "10.0.0.0/8,", "10.0.0.1/8", "10.0.0.0"] {
            assert!(cidrs(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_range_is_printed_in_its_flag_syntax() {
        assert_eq!(port_range("30000-32767").unwrap().to_string(), "30000-32767");
    }

    #[test]
    fn booleans_that_go_does_not_accept_are_rejected() {
        for text in ["", "yes", "no", "on", "tRUE", "2"] {
            assert!(go_bool(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_outside_their_range_are_rejected() {
        for text in ["", "many", "NaN", "inf", "-0.1", "1.1", "34%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!((share("0"), share("1"), share("0.34")), (Ok(0.0), Ok(1.0), Ok(0.34)));
        for text in ["", "1.5", "2147483648", "0x10", "1e3"] {
            assert!(int32(text).is_err(), "{text}");
        }
        assert!(pause("0").unwrap_err().contains("greater than 0"));
        assert!(number("NaN").is_err() && number("1e999").is_err());
    }

    #[test]
    fn sizes_are_kubernetes_quantities() {
        let cases = [("0", 0), ("512", 512), ("1Ki", 1024), ("2M", 2_000_000), ("1Gi", 1 << 30)];
        for (text, expected) in cases {
            assert_eq!(quantity(text), Ok(expected), "{text}");
        }
        for text in ["", "Ki", "-1", "1.5M", "1KiB", "99999999999G", "1 Ki"] {
            assert!(quantity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_bind_address_means_all_addresses() {
        assert_eq!(bind_address(""), bind_address("0.0.0.0"));
        assert!(bind_address("::").is_ok() && bind_address("fe80::1").is_ok());
        assert!(bind_address("localhost").is_err() && bind_address("127.0.0.1:80").is_err());
    }

    #[test]
    fn endpoints_without_authentication_accept_loopback_addresses_only() {
        for text in ["0.0.0.0:80", "10.0.0.1:80", "[::]:80", "localhost:80"] {
            assert!(loopback(text).is_err(), "{text}");
        }
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:0").is_ok());
    }

    #[test]
    fn a_non_canonical_cidr_is_rejected_with_its_canonical_form() {
        assert_eq!(cidr("10.96.3.0/16").unwrap_err(), "host bits are set; use 10.96.0.0/16");
        let mapped = cidr("::ffff:10.96.0.0/112").unwrap_err();
        assert!(mapped.ends_with("use 10.96.0.0/16"), "{mapped}");
        assert!(cidr("fd00::ffff:0:0/96").is_ok());
    }
}
