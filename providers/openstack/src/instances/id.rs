//! Provider IDs: which server of which region a Node is. Pure.
//!
//! ```text
//!  openstack:///8f2c…           the server, wherever we are
//!  openstack://RegionOne/8f2c…  the server of that region; written with OS_CCM_REGIONAL=true
//!  /8f2c…  RegionOne/8f2c…      the same without the mark, as they were once written
//! ```
//!
//! What stands on a Node is never rewritten, so that all spellings are understood for ever.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::ProviderId;

use crate::provider::NAME;

/// How provider IDs are written and read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    /// Where we are; empty if that is not said.
    region: String,
    /// The region is part of what is written.
    regional: bool,
}

impl Ids {
    pub(crate) fn new(region: &str, regional: bool) -> Ids {
        Ids { region: region.to_owned(), regional }
    }

    /// What a Node of this server is given.
    pub(crate) fn write(&self, server: &str) -> ProviderId {
        let region = if self.regional { self.region.as_str() } else { "" };
        ProviderId::of(NAME, &format!("{region}/{server}"))
    }

    /// The server is in another region than ours.
    pub(crate) fn is_elsewhere(&self, id: &ProviderId) -> bool {
        parts(id).is_some_and(|(region, _)| !region.is_empty() && region != self.region)
    }

    /// The ID of the server in small letters, as Nova and Neutron tell it, though both find it in capitals, too. For one of
    /// another region an error, because nothing that is said here about a server of that ID would be about the one that is
    /// meant.
    pub(crate) fn read(&self, id: &ProviderId) -> Result<String> {
        let Some((region, server)) = parts(id) else {
            let message = format!(
                "the provider ID {id:?} is not understood: it should be openstack:///ID or openstack://REGION/ID"
            );
            return Err(Error::new(ErrorKind::InvalidConfig, "read provider ID", message));
        };
        if self.is_elsewhere(id) {
            let message = format!(
                "the provider ID {id:?} is one of the region {region:?}, and this is {:?}: its node is left alone",
                self.region
            );
            return Err(Error::new(ErrorKind::InvalidConfig, "read provider ID", message));
        }
        Ok(server.to_ascii_lowercase())
    }
}

/// The ID is one of OpenStack's: it says so, or it says nothing and looks like one.
pub(crate) fn owns(id: &ProviderId) -> bool {
    match id.prefix() {
        Some(prefix) => prefix == NAME,
        None => parts(id).is_some(),
    }
}

/// Region, which may be empty, and server.
fn parts(id: &ProviderId) -> Option<(&str, &str)> {
    let path = match id.prefix() {
        Some(NAME) => id.rest()?,
        Some(_) => return None,
        // upstream: an ID without `://` is read as if `openstack://` stood before it.
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
    fn case_034_both_spellings_are_read_whichever_is_written() {
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
        assert!(Ids::new("r2", false).read(&id("openstack://R2/abc")).is_err(), "letters count");
    }

    #[test]
    fn case_036_an_id_of_another_cloud_is_not_ours() {
        for text in ["aws:///abc", "Openstack:///abc", "abc", "a/b/c", "x://R1/abc"] {
            assert!(!owns(&id(text)), "{text}");
            assert!(Ids::new("R1", false).read(&id(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_of_ours_that_names_no_server_is_an_error() {
        for text in ["openstack://", "openstack:///", "openstack://abc", "openstack:///a/b", "openstack://R1/"] {
            assert!(owns(&id(text)), "{text}");
            let error = Ids::new("R1", false).read(&id(text)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
        }
    }
}
