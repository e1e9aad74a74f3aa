//! Zones: their regions and their IDs.
//!
//! The name of a zone (`us-east-1a`) means another datacenter in each account; its ID (`use1-az4`) means the same one in all.

use std::collections::BTreeMap;

use bowline_cloud::{Error, ErrorKind, Result};
use tokio::sync::Mutex;

use crate::api::ec2::{AvailabilityZone, Ec2};

/// Zones of the region. They are read when an unknown zone is requested, and kept.
#[derive(Default)]
pub(crate) struct Zones {
    known: Mutex<BTreeMap<String, AvailabilityZone>>,
}

impl Zones {
    /// Returns the zones of the region, and reads them if one of `names` is unknown. A zone that AWS does not list is missing.
    pub(crate) async fn read<'a>(
        &self,
        ec2: &Ec2,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<String, AvailabilityZone>> {
        // The lock is held during the call, so that concurrent lookups wait for one response.
        let mut known = self.known.lock().await;
        if !names.into_iter().all(|name| name.is_empty() || known.contains_key(name)) {
            let read = ec2.availability_zones().await;
            let read = read.map_err(|error| error.during("error listing AWS availability zones"))?;
            *known = read.into_iter().map(|zone| (zone.name.clone(), zone)).collect();
        }
        Ok(known.clone())
    }
}

/// Returns the ID of a zone.
pub(super) fn id_of(zones: &Result<BTreeMap<String, AvailabilityZone>>, name: &str) -> Result<Option<String>> {
    if name.is_empty() {
        return Ok(None);
    }
    let zones = zones.as_ref().map_err(Clone::clone)?;
    let unknown = || {
        let message = format!("Could not get zone ID from zone name {name}");
        Error::new(ErrorKind::Unexpected, "find instances", message)
    };
    let id = zones.get(name).map(|zone| zone.id.clone()).filter(|id| !id.is_empty());
    id.map(Some).ok_or_else(unknown)
}

/// Returns the region of a zone: words that end with `-`, and the number after them.
pub(crate) fn region_of(zone: &str) -> Option<&str> {
    let number = zone.find(|c: char| c.is_ascii_digit())?;
    let words = zone.get(..number)?.strip_suffix('-')?;
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|letter| letter.is_ascii_alphabetic());
    let digits = zone.get(number..)?.bytes().take_while(u8::is_ascii_digit).count();
    if words.split('-').all(is_word) { zone.get(..number + digits) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_the_beginning_of_the_zone() {
        for (zone, expected) in [
            ("us-east-1a", Some("us-east-1")),
            ("us-west-2-lax-1a", Some("us-west-2")),
            ("us-east-1-wl1-bos-wlz-1", Some("us-east-1")),
            ("us-gov-east-1a", Some("us-gov-east-1")),
            ("cn-north-1b", Some("cn-north-1")),
            ("xx-yy-12c", Some("xx-yy-12")),
            ("", None),
            ("a", None),
            ("1a", None),
            ("-1a", None),
            ("us--1a", None),
            ("useast1a", None),
        ] {
            assert_eq!(region_of(zone), expected, "{zone}");
        }
    }

    #[test]
    fn a_zone_that_is_not_listed_is_an_error() {
        let zone = AvailabilityZone { name: "us-east-1a".to_owned(), id: "use1-az4".to_owned(), kind: String::new() };
        let zones = Ok([(zone.name.clone(), zone)].into());
        assert_eq!(id_of(&zones, "us-east-1a").unwrap(), Some("use1-az4".to_owned()));
        assert_eq!(id_of(&zones, "").unwrap(), None);
        assert_eq!(
            id_of(&zones, "us-east-1b").unwrap_err().message(),
            "Could not get zone ID from zone name us-east-1b"
        );
    }
}
