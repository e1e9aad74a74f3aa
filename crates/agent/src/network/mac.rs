//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// Ethernet (MAC) address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress([u8; 6]);

/// Text that is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an Ethernet address such as 02:00:5e:10:00:01")]
pub struct InvalidMacAddress(String);

impl MacAddress {
    /// Broadcast address.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Returns the bytes in the order of the wire.
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(octets: [u8; 6]) -> MacAddress {
        MacAddress(octets)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = InvalidMacAddress;

    fn from_str(text: &str) -> Result<MacAddress, InvalidMacAddress> {
        parse(text).ok_or_else(|| InvalidMacAddress(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<MacAddress> {
    let parts = text.split(':').map(|part| match part.len() {
        2 if part.bytes().all(|digit| digit.is_ascii_hexdigit()) => u8::from_str_radix(part, 16).ok(),
        _ => None,
    });
    let octets: Option<Vec<u8>> = parts.collect();
    Some(MacAddress(octets?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_octets_are_the_same() {
        let mac = MacAddress::from([0x02, 0, 0x5e, 0x10, 0, 0xff]);
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        assert_eq!("02:00:5E:10:00:ff".parse(), Ok(mac));
        for invalid in ["", "02:00:5e:10:00", "02:00:5e:10:00:ff:01", "2:0:5e:10:0:ff", "02:00:5e:10:00:+f", "x"] {
            assert_eq!(invalid.parse::<MacAddress>(), Err(InvalidMacAddress(invalid.to_owned())));
        }
    }
}
