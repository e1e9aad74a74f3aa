//! Routes in the kernel's words.

use std::net::IpAddr;

use futures::TryStreamExt;
use ipnet::IpNet;
use nix::errno::Errno;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use rtnetlink::{Error, Handle, RouteMessageBuilder};

use super::diff::{Found, Hop};

/// The mark on our routes: `proto 176` in `ip route`. Neither the kernel nor a routing daemon that registered a number has
/// this one (`/etc/iproute2/rt_protos`).
const OURS: RouteProtocol = RouteProtocol::Other(0xb0);

/// Our routes in this namespace.
pub(super) async fn dump(kernel: &Handle) -> Result<Vec<Found>, Error> {
    let mut ours = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut any = RouteMessage::default();
        any.header.address_family = family;
        let mut routes = Box::pin(kernel.route().get(any).execute());
        while let Some(route) = routes.try_next().await? {
            ours.extend(found(&route));
        }
    }
    Ok(ours)
}

/// Makes a route; never in the place of another one.
pub(super) async fn add(kernel: &Handle, destination: IpNet, hop: Hop) -> Result<(), Error> {
    kernel.route().add(message(destination, Some(hop))).execute().await
}

/// Removes a route of ours; succeeds if there is none.
pub(super) async fn remove(kernel: &Handle, route: &Found) -> Result<(), Error> {
    let mut exactly = message(route.destination, route.hop);
    if route.priority != 0 {
        exactly.attributes.push(RouteAttribute::Priority(route.priority));
    }
    match kernel.route().del(exactly).execute().await {
        Err(error) if errno(&error) == Some(Errno::ESRCH) => Ok(()),
        outcome => outcome,
    }
}

/// What went wrong, and what to do about it.
pub(super) fn explain(error: &Error, hop: Option<Hop>) -> String {
    match (errno(error), hop) {
        (Some(Errno::EEXIST), _) => "there is another one, which is not the cloud's and stays; remove that".to_owned(),
        (Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EINVAL), Some(Hop::Via(via))) => {
            format!(
                "{via} is on no network of this namespace; give an interface there an address next to it, and set it up"
            )
        }
        (Some(Errno::ENETDOWN), _) => "the interface to it is down; set it up".to_owned(),
        (Some(Errno::EPERM | Errno::EACCES), _) => {
            "changing routes needs CAP_NET_ADMIN there; run the cloud as root".to_owned()
        }
        (Some(errno), _) => format!("the kernel refuses: {}", errno.desc()),
        (None, _) => format!("the kernel cannot be asked: {error}"),
    }
}

fn errno(error: &Error) -> Option<Errno> {
    let Error::NetlinkError(refusal) = error else { return None };
    Some(Errno::from_raw(refusal.raw_code().saturating_neg()))
}

/// The message for a route of ours, in the main table.
fn message(destination: IpNet, hop: Option<Hop>) -> RouteMessage {
    let mut message = RouteMessageBuilder::<IpAddr>::new().protocol(OURS).build();
    let address = destination.addr();
    message.header.address_family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.destination_prefix_length = destination.prefix_len();
    message.attributes.push(RouteAttribute::Destination(address.into()));
    match hop {
        Some(Hop::Via(via)) => message.attributes.push(RouteAttribute::Gateway(via.into())),
        Some(Hop::Blackhole) => message.header.kind = RouteType::BlackHole,
        // As one that is to go: whatever it is.
        None => message.header.kind = RouteType::Unspec,
    }
    message
}

/// What this says of a route of ours; `None` if it is not ours.
fn found(message: &RouteMessage) -> Option<Found> {
    let header = &message.header;
    if header.protocol != OURS || header.table != RouteHeader::RT_TABLE_MAIN {
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
    // The kernel leaves out the address of the range that is everything.
    let to = to.or_else(|| anywhere(header.address_family))?;
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

fn anywhere(family: AddressFamily) -> Option<IpAddr> {
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
    fn what_is_made_is_recognised() {
        for (destination, hop) in routes() {
            let expected = Found { destination, hop: Some(hop), priority: 0 };
            assert_eq!(found(&message(destination, Some(hop))), Some(expected));
        }
    }

    #[test]
    fn what_others_made_is_not_ours() {
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
    fn the_range_that_is_everything_has_no_address() {
        for (family, everything) in [(AddressFamily::Inet, "0.0.0.0/0"), (AddressFamily::Inet6, "::/0")] {
            let mut bare = RouteMessageBuilder::<IpAddr>::new().protocol(OURS).build();
            bare.header.address_family = family;
            let found = found(&bare).unwrap();
            assert_eq!((found.destination.to_string().as_str(), found.hop), (everything, None));
        }
    }
}
