//! Network addresses.

use std::net::IpAddr;

use ipnet::IpNet;

/// All addresses from `start` to `end`; empty if they have different IP families.
pub fn range(start: IpAddr, end: IpAddr) -> Box<dyn Iterator<Item = IpAddr>> {
    match (start, end) {
        (IpAddr::V4(start), IpAddr::V4(end)) => {
            Box::new((start.to_bits()..=end.to_bits()).map(|bits| IpAddr::V4(bits.into())))
        }
        (IpAddr::V6(start), IpAddr::V6(end)) => {
            Box::new((start.to_bits()..=end.to_bits()).map(|bits| IpAddr::V6(bits.into())))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// First and last host address of a network, without the network address and the broadcast address.
pub fn hosts(net: IpNet) -> Option<(IpAddr, IpAddr)> {
    let first = range(net.network(), net.broadcast()).nth(1)?;
    let last = match net.broadcast() {
        IpAddr::V4(broadcast) => IpAddr::V4(broadcast.to_bits().checked_sub(1)?.into()),
        last => last,
    };
    Some((first, last))
}
