//! The value types of flags: how a text becomes a value, and what the user reads when it does not. clap puts the flag
//! and the text in front of each message, so a message here says what would be right.

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

/// The value of a flag, or what is wrong with it.
pub type Given<T> = Result<T, ConfigError>;

/// Reads with `parse`, and keeps what is wrong as a value: clap would end the program at the first flag that is wrong,
/// and the others would be found one start at a time.
pub fn given<T, E, F: Fn(&str) -> Result<T, E>>(parse: F) -> Lenient<F> {
    Lenient(parse)
}

/// See [`given`].
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
        let wrong = |what: &dyn fmt::Display| ConfigError::flag(name, format!("{value:?} is not right: {what}"));
        Ok(match value.to_str() {
            Some(text) => (self.0)(text).map_err(|error| wrong(&error)),
            None => Err(wrong(&"it is not UTF-8 text")),
        })
    }
}

/// An address to listen on. Names are not looked up: what a name resolves to may change between machines.
pub fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:6443 or [::1]:6443")
}

/// An address of this machine to listen on: what is served there has no door.
pub fn loopback(text: &str) -> Result<SocketAddr, &'static str> {
    let address = address(text)?;
    if !address.ip().is_loopback() {
        return Err("only addresses of this machine are allowed here, such as 127.0.0.1:0 or [::1]:0");
    }
    Ok(address)
}

/// An address to listen at, all of them if it is empty.
pub fn bind_address(text: &str) -> Result<IpAddr, &'static str> {
    if text.is_empty() {
        return Ok(Ipv4Addr::UNSPECIFIED.into());
    }
    text.parse().map_err(|_| "expected an IP address, such as 0.0.0.0, 127.0.0.1 or ::")
}

/// The path of a file or folder. An empty one is none, as in Go; clap's own reader would refuse it.
pub fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

/// A duration, in Go's syntax.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}

/// A duration between two rounds of something, which without any pause would take a whole core.
pub fn pause(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be longer than 0".to_owned()),
        pause => Ok(pause),
    }
}

/// A whole number.
// upstream: 32 bits, and a sign, so that what is too small can be told from what is no number.
pub fn int32(text: &str) -> Result<i32, &'static str> {
    text.parse().map_err(|_| "expected a whole number, such as 16")
}

/// A whole number whose bounds somebody else looks at.
// upstream: Go's int, which takes the prefixes of its literals, too; nobody writes a port that way.
pub fn integer(text: &str) -> Result<i64, &'static str> {
    text.parse().map_err(|_| "expected a whole number, such as 10258")
}

/// A size in bytes, as quantities are written in Kubernetes.
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

/// A number. Not one of those that a computer calls not a number, or infinite.
pub fn number(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or("expected a number, such as 20 or 0.5")
}

/// A part of a whole.
pub fn share(text: &str) -> Result<f64, &'static str> {
    let share = number(text).ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("expected a share from 0 to 1, such as 0.34 for a third")
}

/// The name of a namespace.
pub fn label(text: &str) -> Result<String, &'static str> {
    let is_inner = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
    let is_sound = !text.is_empty() && text.len() <= 63 && text.chars().all(is_inner);
    if is_sound && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("expected up to 63 lower-case letters, digits and dashes, with a dash at neither end")
}

/// A label of an object and its value, which may be empty.
pub fn label_and_value(text: &str) -> Result<(String, String), &'static str> {
    const EXPECTED: &str = "expected KEY=VALUE, such as node-role.kubernetes.io/control-plane=true";
    let (key, value) = text.split_once('=').ok_or(EXPECTED)?;
    let is_sound = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
    let key_is_sound = !key.is_empty() && key.chars().all(|character| is_sound(character) || character == '/');
    let value_is_sound = value.len() <= 63 && value.chars().all(is_sound);
    if key_is_sound && value_is_sound { Ok((key.to_owned(), value.to_owned())) } else { Err(EXPECTED) }
}

/// A host, by name or address, and a port of it.
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

/// A text with something in it.
pub fn not_empty(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() { Err("it is empty; leave the flag out for the default") } else { Ok(text.to_owned()) }
}

/// A boolean.
// upstream: Go's flags take exactly these spellings.
pub fn go_bool(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false"),
    }
}

/// The syntax of a flag that [`go_bool`] reads.
pub trait Switch {
    /// `--flag` and `--flag=false`, never `--flag false`.
    // upstream: Go takes the word after such a flag for an argument of its own.
    fn switch(self) -> Arg;
}

impl Switch for Arg {
    fn switch(self) -> Arg {
        let switch = self.value_name("true|false").action(ArgAction::Set);
        switch.num_args(0..=1).require_equals(true).default_missing_value("true")
    }
}

/// Which nodes become targets of load balancers.
pub fn node_set(text: &str) -> Result<NodeSet, &'static str> {
    match text {
        "initialized" => Ok(NodeSet::Initialized),
        "all" => Ok(NodeSet::All),
        _ => Err("expected initialized or all"),
    }
}

/// Types of node addresses, separated by commas, each once.
pub fn address_types(text: &str) -> Result<Vec<AddressType>, String> {
    use AddressType::{ExternalDNS, ExternalIP, Hostname, InternalDNS, InternalIP};
    const ALL: [AddressType; 5] = [Hostname, InternalIP, ExternalIP, InternalDNS, ExternalDNS];
    let mut types = Vec::new();
    for name in text.split(',').map(str::trim) {
        let found = ALL.into_iter().find(|kind| kind.to_string() == name);
        let kind = found
            .ok_or_else(|| format!("expected some of {}, not {name:?}", ALL.map(|it| it.to_string()).join(", ")))?;
        if types.contains(&kind) {
            return Err(format!("{name} is there twice"));
        }
        types.push(kind);
    }
    Ok(types)
}

/// Ranges of addresses, separated by commas.
pub fn cidrs(text: &str) -> Result<Vec<IpNet>, String> {
    text.split(',').map(|range| cidr(range.trim())).collect()
}

/// A range of addresses, named by its first.
pub fn cidr(text: &str) -> Result<IpNet, String> {
    let net: IpNet = text.parse().map_err(|_| "expected a range such as 10.96.0.0/16 or fd00:10:96::/112")?;
    if net != net.trunc() {
        return Err(format!("bits are set behind the prefix; the range is written {}", net.trunc()));
    }
    // One range in two spellings would pass for two.
    if let (IpNet::V6(_), Some(range @ IpNet::V4(_))) = (net, parse_cidr(text)) {
        return Err(format!("it is a range of IPv4 in the clothes of IPv6; it is written {range}"));
    }
    Ok(net)
}

/// A range of ports, such as `30000-32767`.
pub fn port_range(text: &str) -> Result<PortRange, &'static str> {
    const EXPECTED: &str = "expected two ports, the lower one first and above 0, such as 30000-32767";
    let (first, last) = text.split_once('-').ok_or(EXPECTED)?;
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(PortRange { first, last }),
        _ => Err(EXPECTED),
    }
}

/// The issuer of tokens: an https URL, as those who check tokens elsewhere require.
pub fn issuer(text: &str) -> Result<String, &'static str> {
    match text.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err("expected a URL that starts with https://, such as https://kubernetes.default.svc"),
    }
}

/// The first and the last port of a range.
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
    fn port_ranges_that_make_no_sense_are_refused() {
        for text in ["", "-", "30000", "30000-", "-32767", "0-10", "2-1", "30000-70000", "a-b", "1-2-3"] {
            assert!(port_range(text).is_err(), "{text}");
        }
        assert_eq!(port_range("30000-30000"), Ok(PortRange { first: 30_000, last: 30_000 }));
    }

    #[test]
    fn lists_of_address_types_and_networks_are_read_or_refused() {
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
    fn a_port_range_prints_as_it_is_written() {
        assert_eq!(port_range("30000-32767").unwrap().to_string(), "30000-32767");
    }

    #[test]
    fn booleans_of_other_languages_are_refused() {
        for text in ["", "yes", "no", "on", "tRUE", "2"] {
            assert!(go_bool(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_outside_their_range_are_refused() {
        for text in ["", "many", "NaN", "inf", "-0.1", "1.1", "34%"] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!((share("0"), share("1"), share("0.34")), (Ok(0.0), Ok(1.0), Ok(0.34)));
        for text in ["", "1.5", "2147483648", "0x10", "1e3"] {
            assert!(int32(text).is_err(), "{text}");
        }
        assert!(pause("0").unwrap_err().contains("longer than 0"));
        assert!(number("NaN").is_err() && number("1e999").is_err());
    }

    #[test]
    fn sizes_are_written_as_kubernetes_writes_quantities() {
        let cases = [("0", 0), ("512", 512), ("1Ki", 1024), ("2M", 2_000_000), ("1Gi", 1 << 30)];
        for (text, expected) in cases {
            assert_eq!(quantity(text), Ok(expected), "{text}");
        }
        for text in ["", "Ki", "-1", "1.5M", "1KiB", "99999999999G", "1 Ki"] {
            assert!(quantity(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_address_to_listen_at_means_all() {
        assert_eq!(bind_address(""), bind_address("0.0.0.0"));
        assert!(bind_address("::").is_ok() && bind_address("fe80::1").is_ok());
        assert!(bind_address("localhost").is_err() && bind_address("127.0.0.1:80").is_err());
    }

    #[test]
    fn what_has_no_door_is_served_on_this_machine_only() {
        for text in ["0.0.0.0:80", "10.0.0.1:80", "[::]:80", "localhost:80"] {
            assert!(loopback(text).is_err(), "{text}");
        }
        assert!(loopback("127.0.0.1:0").is_ok() && loopback("[::1]:0").is_ok());
    }

    #[test]
    fn a_range_that_is_written_oddly_is_refused_with_the_range_it_meant() {
        assert_eq!(
            cidr("10.96.3.0/16").unwrap_err(),
            "bits are set behind the prefix; the range is written 10.96.0.0/16"
        );
        let mapped = cidr("::ffff:10.96.0.0/112").unwrap_err();
        assert!(mapped.ends_with("it is written 10.96.0.0/16"), "{mapped}");
        assert!(cidr("fd00::ffff:0:0/96").is_ok());
    }
}
