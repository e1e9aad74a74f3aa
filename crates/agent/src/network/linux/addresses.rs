//! Netlink messages of addresses.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use nix::errno::Errno;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Error, Handle};

use super::diff::Found;
use super::explain::errno;
use crate::network::LIFETIME;

/// Protocol number of the agent's addresses: `proto 176` in `ip address`, as of its routes.
const PROTOCOL: AddressProtocol = AddressProtocol::Other(0xb0);

/// Maximum number of requests in flight. The replies to many more would not fit into the receive buffer of the socket.
pub(super) const PIPELINE: usize = 64;

/// Meaning of a request to put an address on the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// Fails if the address exists: another program has just added it.
    Add,
    /// Renews the lifetime. Adds the address if it has just expired.
    Renew,
}

/// Lists the addresses of the network namespace.
pub(super) async fn dump(kernel: &Handle) -> Result<Vec<Found>, Error> {
    let messages = kernel.address().get().execute();
    messages.try_filter_map(async |message| Ok(found(&message))).try_collect().await
}

/// Puts at most [`PIPELINE`] addresses on an interface. Returns the result of each.
pub(super) async fn put(
    kernel: &Handle,
    link: u32,
    addresses: &[IpAddr],
    put: Put,
) -> Vec<(IpAddr, Result<(), Error>)> {
    let flags = match put {
        Put::Add => NLM_F_CREATE | NLM_F_EXCL,
        Put::Renew => NLM_F_CREATE | NLM_F_REPLACE,
    };
    pipeline(kernel, addresses, flags, |address| RouteNetlinkMessage::NewAddress(new(link, address))).await
}

/// Removes at most [`PIPELINE`] addresses of the agent from an interface. Succeeds for an address that does not exist.
pub(super) async fn remove(kernel: &Handle, link: u32, addresses: &[IpAddr]) -> Vec<(IpAddr, Result<(), Error>)> {
    let mut results =
        pipeline(kernel, addresses, 0, |address| RouteNetlinkMessage::DelAddress(bare(link, address))).await;
    for (_, result) in &mut results {
        if matches!(result, Err(error) if errno(error) == Some(Errno::EADDRNOTAVAIL)) {
            *result = Ok(());
        }
    }
    results
}

async fn pipeline(
    kernel: &Handle,
    addresses: &[IpAddr],
    flags: u16,
    message: impl Fn(IpAddr) -> RouteNetlinkMessage,
) -> Vec<(IpAddr, Result<(), Error>)> {
    let requests = addresses.iter().map(|address| request(kernel, flags, message(*address)));
    addresses.iter().copied().zip(join_all(requests).await).collect()
}

async fn request(kernel: &Handle, flags: u16, message: RouteNetlinkMessage) -> Result<(), Error> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut replies = kernel.clone().request(request)?;
    while let Some(reply) = replies.next().await {
        if let NetlinkPayload::Error(error) = reply.payload {
            return Err(Error::NetlinkError(error));
        }
    }
    Ok(())
}

fn new(link: u32, address: IpAddr) -> AddressMessage {
    let mut message = bare(link, address);
    let mut lifetime = CacheInfo::default();
    lifetime.ifa_valid = seconds(LIFETIME);
    // Deprecated: accepted as a destination, but never chosen as the source of other connections of this host.
    lifetime.ifa_preferred = 0;
    message.attributes.push(AddressAttribute::CacheInfo(lifetime));
    message.attributes.push(AddressAttribute::Protocol(PROTOCOL));
    if address.is_ipv6() {
        // The agent itself looks for duplicates. A prefix route of one address has no use.
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Noprefixroute));
    }
    message
}

/// Message with what identifies an address.
fn bare(link: u32, address: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = link;
    (message.header.family, message.header.prefix_len) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn found(message: &AddressMessage) -> Option<Found> {
    let (mut address, mut local, mut protocol) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Protocol(number) => protocol = Some(*number),
            _ => {}
        }
    }
    Some(Found {
        // On a point-to-point interface, the other attribute is the address of the other end.
        address: local.or(address)?,
        prefix: message.header.prefix_len,
        link: message.header.index,
        has_our_protocol: protocol.map(|protocol| protocol == PROTOCOL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_addresses_are_recognised() {
        for (text, prefix) in [("192.0.2.200", 32), ("2001:db8::100", 128)] {
            let address = text.parse().unwrap();
            let expected = Found { address, prefix, link: 7, has_our_protocol: Some(true) };
            assert_eq!(found(&new(7, address)), Some(expected));
        }
    }

    #[test]
    fn addresses_of_other_programs_are_recognised() {
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let mut message = bare(7, address);
        message.attributes[1] = AddressAttribute::Address("192.0.2.2".parse().unwrap());
        message.header.prefix_len = 24;
        let expected = Found { address, prefix: 24, link: 7, has_our_protocol: None };
        assert_eq!(found(&message), Some(expected));
        message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Loopback));
        assert_eq!(found(&message), Some(Found { has_our_protocol: Some(false), ..expected }));
    }
}
