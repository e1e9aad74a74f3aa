//! Provider IDs: server and region of a Node.
//!
//! ```text
//!  openstack:///8f2c…           a server in the configured region
//!  openstack://RegionOne/8f2c…  a server of that region; written with OS_CCM_REGIONAL=true
//!  /8f2c…  RegionOne/8f2c…      the same without the prefix, as early releases wrote them
//! ```
//!
//! The provider ID of a Node is immutable, so all forms must be accepted for ever.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::ProviderId;

use crate::provider::NAME;

/// Format of provider IDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    /// The configured region; empty if there is none.
    region: String,
    /// Provider IDs are written with the region.
    regional: bool,
}

impl Ids {
    pub(crate) fn new(region: &str, regional: bool) -> Ids {
        Ids { region: region.to_owned(), regional }
    }

    /// Returns the provider ID of a server.
    pub(crate) fn write(&self, server: &str) -> ProviderId {
        let region = if self.regional { self.region.as_str() } else { "" };
        ProviderId::of(NAME, &format!("{region}/{server}"))
    }

    /// Returns whether the server is in another region.
    pub(crate) fn is_elsewhere(&self, id: &ProviderId) -> bool {
        parts(id).is_some_and(|(region, _)| !region.is_empty() && region != self.region)
    }

    /// Returns the server ID in lower case, as Nova and Neutron return it; both accept upper case as well. A server of another
    /// region is an error, because a server of that ID here would be another one.
    pub(crate) fn read(&self, id: &ProviderId) -> Result<String> {
        let Some((region, server)) = parts(id) else {
            let message =
                format!("the provider ID {id:?} is invalid: expected openstack:///ID or openstack://REGION/ID");
            return Err(Error::new(ErrorKind::InvalidConfig, "read provider ID", message));
        };
        if self.is_elsewhere(id) {
            let message = format!(
                "the provider ID {id:?} is of region {region:?}, and this is region {:?}: the Node is not managed",
                self.region
            );
            return Err(Error::new(ErrorKind::InvalidConfig, "read provider ID", message));
        }
        Ok(server.to_ascii_lowercase())
    }
}

/// Returns whether the ID belongs to OpenStack: by its prefix, or by its form without one.
pub(crate) fn owns(id: &ProviderId) -> bool {
    match id.prefix() {
        Some(prefix) => prefix == NAME,
        None => parts(id).is_some(),
    }
}

/// Returns the region, which may be empty, and the server.
fn parts(id: &ProviderId) -> Option<(&str, &str)> {
    let path = match id.prefix() {
        Some(NAME) => id.rest()?,
        Some(_) => return None,
        // upstream: an ID without `://` is read as if it had the prefix `openstack://`.
        None => id.as_str(),
    };
    let (region, server) = path.split_once('/')?;
    (!server.is_empty() && !server.contains('/')).then_some((region, server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ProviderId {
        ProviderId::new(text).unwrap()
    }

    #[test]
    fn case_034_both_forms_are_read() {
        for regional in [false, true] {
            let ids = Ids::new("R1", regional);
            for text in ["openstack:///abc", "openstack://R1/abc", "/abc", "R1/abc", "openstack:///ABC"] {
                assert_eq!(ids.read(&id(text)).unwrap(), "abc", "{text}");
                assert!(!ids.is_elsewhere(&id(text)), "{text}");
                assert!(owns(&id(text)), "{text}");
            }
        }
        assert_eq!(Ids::new("R1", true).write("abc"), *"openstack://R1/abc");
        assert_eq!(Ids::new("R1", false).write("abc"), *"openstack:///abc");
        assert_eq!(Ids::new("", true).write("abc"), *"openstack:///abc");
    }

    #[test]
    fn case_035_an_id_of_another_region_is_an_error() {
        for region in ["R1", ""] {
            let ids = Ids::new(region, true);
            assert!(ids.is_elsewhere(&id("openstack://R2/abc")));
            let error = ids.read(&id("openstack://R2/abc")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains("R2"), "{error}");
        }
        assert!(Ids::new("r2", false).read(&id("openstack://R2/abc")).is_err(), "regions are case-sensitive");
    }

    #[test]
    fn case_036_an_id_of_another_cloud_is_not_owned() {
        for text in ["aws:///abc", "Openstack:///abc", "abc", "a/b/c", "x://R1/abc"] {
            assert!(!owns(&id(text)), "{text}");
            assert!(Ids::new("R1", false).read(&id(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn an_openstack_id_without_a_server_is_an_error() {
        for text in ["openstack://", "openstack:///", "openstack://abc", "openstack:///a/b", "openstack://R1/"] {
            assert!(owns(&id(text)), "{text}");
            let error = Ids::new("R1", false).read(&id(text)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
        }
    }
}
