//! Netlink messages of routes.

use std::net::IpAddr;

use futures::TryStreamExt;
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use rtnetlink::{Error, Handle, RouteMessageBuilder};

use super::diff::Found;
use crate::kernel_routes::{Hop, Namespace};

/// Protocol number of the routes of this program: `proto 176` in `ip route`. Neither the kernel nor a registered routing
/// daemon uses it (`/etc/iproute2/rt_protos`).
const PROTOCOL: RouteProtocol = RouteProtocol::Other(0xb0);

/// Lists the routes of this program in the namespace.
pub(super) async fn dump(kernel: &Handle) -> Result<Vec<Found>, Error> {
    let mut routes_found = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut any = RouteMessage::default();
        any.header.address_family = family;
        let mut routes = Box::pin(kernel.route().get(any).execute());
        while let Some(route) = routes.try_next().await? {
            routes_found.extend(found(&route));
        }
    }
    Ok(routes_found)
}

/// Adds a route; never replaces one.
pub(super) async fn add(kernel: &Handle, destination: IpNet, hop: Hop) -> Result<(), Error> {
    kernel.route().add(message(destination, Some(hop))).execute().await
}

/// Removes a route of this program. Succeeds if it does not exist.
pub(super) async fn remove(kernel: &Handle, route: &Found) -> Result<(), Error> {
    let mut exactly = message(route.destination, route.hop);
    if route.priority != 0 {
        exactly.attributes.push(RouteAttribute::Priority(route.priority));
    }
    match kernel.route().del(exactly).execute().await {
        Err(error) if errno(&error) == Some(Errno::ESRCH) => Ok(()),
        result => result,
    }
}

/// Cause of an error, and its fix.
pub(super) fn explain(error: &Error, namespace: &Namespace, hop: Option<Hop>) -> String {
    let (place, advice) = match namespace {
        Namespace::Own => ("this host", "grant it to this program, or disable routes"),
        Namespace::Named(_) => ("this namespace", "run the cloud as root"),
    };
    match (errno(error), hop) {
        (Some(Errno::EEXIST), _) => "another program has created a route to this destination; remove it".to_owned(),
        (Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EINVAL), Some(Hop::Via(via))) => {
            format!(
                "{via} is on no network of {place}; assign an address of its network to an interface there, and bring it up"
            )
        }
        (Some(Errno::ENETDOWN), _) => "the interface is down; bring it up".to_owned(),
        (Some(Errno::EPERM | Errno::EACCES), _) => {
            format!("changing routes requires CAP_NET_ADMIN; {advice}")
        }
        (Some(errno), _) => format!("the kernel rejected the request: {}", errno.desc()),
        (None, _) => format!("netlink request failed: {error}"),
    }
}

fn errno(error: &Error) -> Option<Errno> {
    let Error::NetlinkError(message) = error else { return None };
    Some(Errno::from_raw(message.raw_code().saturating_neg()))
}

/// Message for a route of this program, in the main table.
fn message(destination: IpNet, hop: Option<Hop>) -> RouteMessage {
    let mut message = RouteMessageBuilder::<IpAddr>::new().protocol(PROTOCOL).build();
    let address = destination.addr();
    message.header.address_family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.destination_prefix_length = destination.prefix_len();
    message.attributes.push(RouteAttribute::Destination(address.into()));
    match hop {
        Some(Hop::Via(via)) => message.attributes.push(RouteAttribute::Gateway(via.into())),
        Some(Hop::Blackhole) => message.header.kind = RouteType::BlackHole,
        // For a removal: any kind.
        None => message.header.kind = RouteType::Unspec,
    }
    message
}

/// Parses a route of this program; `None` for any other route.
fn found(message: &RouteMessage) -> Option<Found> {
    let header = &message.header;
    if header.protocol != PROTOCOL || header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    let (mut to, mut via, mut priority) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address),
            RouteAttribute::Gateway(address) => via = ip(address),
            RouteAttribute::Priority(number) => priority = *number,
            _ => {}
        }
    }
    // The kernel omits the address of a default route.
    let to = to.or_else(|| unspecified(header.address_family))?;
    let destination = IpNet::new(to, header.destination_prefix_length).ok()?;
    Some(Found { destination, hop: hop(header.kind, via), priority })
}

fn hop(kind: RouteType, via: Option<IpAddr>) -> Option<Hop> {
    match kind {
        RouteType::Unicast => via.map(Hop::Via),
        RouteType::BlackHole => Some(Hop::Blackhole),
        _ => None,
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn unspecified(family: AddressFamily) -> Option<IpAddr> {
    match family {
        AddressFamily::Inet => Some(IpAddr::from([0; 4])),
        AddressFamily::Inet6 => Some(IpAddr::from([0; 16])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Vec<(IpNet, Hop)> {
        let via = |text: &str| Hop::Via(text.parse().unwrap());
        [
            ("10.0.1.0/24", via("192.0.2.1")),
            ("fd00:1::/64", via("fd00::1")),
            ("10.0.2.0/24", Hop::Blackhole),
            ("0.0.0.0/0", via("192.0.2.1")),
        ]
        .map(|(destination, hop)| (destination.parse().unwrap(), hop))
        .to_vec()
    }

    #[test]
    fn added_routes_are_recognised() {
        for (destination, hop) in routes() {
            let expected = Found { destination, hop: Some(hop), priority: 0 };
            assert_eq!(found(&message(destination, Some(hop))), Some(expected));
        }
    }

    #[test]
    fn routes_of_other_programs_are_ignored() {
        for (destination, hop) in routes() {
            let ours = message(destination, Some(hop));
            let mut of_an_operator = ours.clone();
            of_an_operator.header.protocol = RouteProtocol::Static;
            let mut of_another_table = ours;
            of_another_table.header.table = RouteHeader::RT_TABLE_MAIN + 1;
            assert_eq!([found(&of_an_operator), found(&of_another_table)], [None, None]);
        }
    }

    #[test]
    fn a_default_route_has_no_address() {
        for (family, default_route) in [(AddressFamily::Inet, "0.0.0.0/0"), (AddressFamily::Inet6, "::/0")] {
            let mut bare = RouteMessageBuilder::<IpAddr>::new().protocol(PROTOCOL).build();
            bare.header.address_family = family;
            let found = found(&bare).unwrap();
            assert_eq!((found.destination.to_string().as_str(), found.hop), (default_route, None));
        }
    }
}
