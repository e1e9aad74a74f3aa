//! State of an interface.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use nix::errno::Errno;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Error, Handle};

use super::explain::errno;
use crate::network::MacAddress;

/// Interface of the service addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    /// `None` for an interface without ARP, such as `dummy` and loopback: its addresses are not announced.
    pub(super) mac: Option<MacAddress>,
    pub(super) is_up: bool,
    pub(super) has_carrier: bool,
}

/// Returns the interface with a name, if it exists.
pub(super) async fn find(kernel: &Handle, name: &str) -> Result<Option<Link>, Error> {
    let mut found = Box::pin(kernel.link().get().match_name(name.to_owned()).execute());
    match found.try_next().await {
        Ok(message) => Ok(message.as_ref().map(link)),
        Err(error) if errno(&error) == Some(Errno::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the link addresses of all interfaces of this host.
pub(super) async fn addresses_of_host(kernel: &Handle) -> Result<BTreeSet<MacAddress>, Error> {
    let links = kernel.link().get().execute();
    links.try_filter_map(async |message| Ok(mac(&message))).try_collect().await
}

fn link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let is_announced = !flags.intersects(LinkFlags::Noarp | LinkFlags::Loopback);
    Link {
        index: message.header.index,
        mac: mac(message).filter(|_| is_announced),
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
    }
}

fn mac(message: &LinkMessage) -> Option<MacAddress> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(octets) => Some(MacAddress::from(*octets.as_array::<6>()?)),
        _ => None,
    })
}
