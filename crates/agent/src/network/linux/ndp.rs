//! Ethernet frames of neighbour discovery in IPv6 (RFC 4861).

use std::net::Ipv6Addr;

use super::conflicts::Claim;
use crate::network::MacAddress;

/// EtherType of IPv6.
pub(super) const ETHERTYPE: u16 = 0x86dd;

/// Offset of the IPv6 field "next header".
pub(super) const NEXT_HEADER: u32 = 20;

/// Offset of the ICMPv6 type.
pub(super) const TYPE: u32 = 54;

/// Protocol number of ICMPv6.
pub(super) const ICMPV6: u8 = 58;

/// ICMPv6 type of an advertisement.
pub(super) const ADVERTISEMENT: u8 = 136;

const SOLICITATION: u8 = 135;

/// Packets with another hop limit come from another segment.
const HOP_LIMIT: u8 = 255;

/// Flag of an advertisement that answers a solicitation.
const SOLICITED: u8 = 0x40;

/// Flag of an advertisement that replaces the link address in caches.
const OVERRIDE: u8 = 0x20;

const TARGET_LINK_ADDRESS: u8 = 2;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns the unsolicited advertisement of an address. The source is the address itself, as in the kernel's own advertisements.
pub(super) fn announcement(mac: MacAddress, address: Ipv6Addr) -> Vec<u8> {
    let option = [&[TARGET_LINK_ADDRESS, 1][..], &mac.octets()].concat();
    frame(mac, (address, ALL_NODES), [ADVERTISEMENT, OVERRIDE], address, &option)
}

/// Returns the probe for an address: a solicitation without a source, so that no cache changes (RFC 4862, section 5.4.2).
pub(super) fn probe(mac: MacAddress, address: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = address.octets();
    let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
    frame(mac, (Ipv6Addr::UNSPECIFIED, group), [SOLICITATION, 0], address, &[])
}

/// Returns the address that a neighbour advertisement claims; `None` for anything else.
pub(super) fn decode(frame: &[u8]) -> Option<Claim> {
    let (ethernet, packet) = frame.split_at_checked(14)?;
    let (ip, rest) = packet.split_at_checked(40)?;
    let length = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
    let message = rest.get(..length)?;
    let is_advertisement = ethernet.ends_with(&ETHERTYPE.to_be_bytes())
        && ip.first()? >> 4 == 6
        && ip.get(6..8)? == [ICMPV6, HOP_LIMIT]
        && message.get(..2)? == [ADVERTISEMENT, 0];
    if !is_advertisement || checksum(ip.get(8..40)?, message) != 0 {
        return None;
    }
    let target: [u8; 16] = message.get(8..24)?.try_into().ok()?;
    let target = Ipv6Addr::from(target);
    let sender: [u8; 6] = ethernet.get(6..12)?.try_into().ok()?;
    let by = link_address(message.get(24..)?)?.unwrap_or(sender.into());
    let is_announcement = message.get(4)? & SOLICITED == 0;
    (!target.is_multicast()).then(|| Claim { address: target.into(), by, is_announcement })
}

/// Returns the target link address among options; `None` if the options are malformed.
fn link_address(mut options: &[u8]) -> Option<Option<MacAddress>> {
    while let [kind, units, ..] = *options {
        let (option, rest) = options.split_at_checked(usize::from(units) * 8)?;
        match option {
            [] => return None,
            [_, _, mac @ ..] if kind == TARGET_LINK_ADDRESS => {
                return Some(mac.first_chunk::<6>().map(|mac| MacAddress::from(*mac)));
            }
            _ => options = rest,
        }
    }
    options.is_empty().then_some(None)
}

/// Builds a frame to a multicast address of the segment.
fn frame(
    mac: MacAddress,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    [kind, flags]: [u8; 2],
    target: Ipv6Addr,
    option: &[u8],
) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &target.octets(), option].concat();
    let addresses = [source.octets(), destination.octets()].concat();
    let sum = checksum(&addresses, &message).to_be_bytes();
    message.splice(2..4, sum);
    let [.., a, b, c, d] = destination.octets();
    let length = u8::try_from(message.len()).unwrap_or(u8::MAX);
    [
        &[0x33, 0x33, a, b, c, d][..],
        &mac.octets(),
        &ETHERTYPE.to_be_bytes(),
        &[0x60, 0, 0, 0, 0, length, ICMPV6, HOP_LIMIT],
        &addresses,
        &message,
    ]
    .concat()
}

/// Checksum of an ICMPv6 message with its pseudo header; 0 for a message that contains its correct checksum.
fn checksum(addresses: &[u8], message: &[u8]) -> u16 {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let words = addresses.chunks(2).chain(message.chunks(2)).map(|word| match *word {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum = words.fold(u32::from(length) + u32::from(ICMPV6), u32::wrapping_add);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0x5e, 0x10, 0, 1];
    const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x100);

    #[rustfmt::skip]
    const ANNOUNCEMENT: [u8; 86] = [
        0x33, 0x33, 0, 0, 0, 1, 2, 0, 0x5e, 0x10, 0, 1, 0x86, 0xdd,
        0x60, 0, 0, 0, 0, 32, 58, 255,
        0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        136, 0, 0x99, 0x1c, 0x20, 0, 0, 0,
        0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
        2, 1, 2, 0, 0x5e, 0x10, 0, 1,
    ];

    #[rustfmt::skip]
    const PROBE: [u8; 78] = [
        0x33, 0x33, 0xff, 0, 1, 0, 2, 0, 0x5e, 0x10, 0, 1, 0x86, 0xdd,
        0x60, 0, 0, 0, 0, 24, 58, 255,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 1, 0,
        135, 0, 0x4a, 0xef, 0, 0, 0, 0,
        0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
    ];

    #[test]
    fn frames_are_as_on_the_wire() {
        assert_eq!(announcement(MAC.into(), ADDRESS), ANNOUNCEMENT);
        assert_eq!(probe(MAC.into(), ADDRESS), PROBE);
    }

    #[test]
    fn an_advertisement_claims_its_target() {
        let claim = Some(Claim { address: ADDRESS.into(), by: MAC.into(), is_announcement: true });
        assert_eq!(decode(&ANNOUNCEMENT), claim);
        // Ethernet padding is no part of the packet.
        assert_eq!(decode(&[&ANNOUNCEMENT[..], &[0xaa; 4]].concat()), claim);
        // Without the option, the sender of the frame counts.
        assert_eq!(decode(&frame(MAC.into(), (ADDRESS, ALL_NODES), [ADVERTISEMENT, 0], ADDRESS, &[])), claim);
        let answer = frame(MAC.into(), (ADDRESS, ALL_NODES), [ADVERTISEMENT, SOLICITED], ADDRESS, &[]);
        assert_eq!(decode(&answer), claim.map(|claim| Claim { is_announcement: false, ..claim }));
        // Options of other kinds are skipped.
        let options = [&[14, 1, 0, 0, 0, 0, 0, 0, 2, 1][..], &[9; 6]].concat();
        let of_another_host = Some(Claim { address: ADDRESS.into(), by: [9; 6].into(), is_announcement: true });
        let advertisement = frame(MAC.into(), (ADDRESS, ALL_NODES), [ADVERTISEMENT, 0], ADDRESS, &options);
        assert_eq!(decode(&advertisement), of_another_host);
    }

    #[test]
    fn other_frames_claim_nothing() {
        assert_eq!(decode(&PROBE), None);
        for length in 0..ANNOUNCEMENT.len() {
            assert_eq!(decode(&ANNOUNCEMENT[..length]), None, "{length} bytes");
        }
        // EtherType, version, length, next header, hop limit, type, code, checksum, and content that it does not match.
        for at in [12, 14, 19, 20, 21, 54, 55, 56, 70] {
            let mut other = ANNOUNCEMENT;
            other[at] ^= 0x55;
            assert_eq!(decode(&other), None, "byte {at}");
        }
        let multicast = frame(MAC.into(), (ADDRESS, ALL_NODES), [ADVERTISEMENT, 0], ALL_NODES, &[]);
        assert_eq!(decode(&multicast), None);
        for malformed in [&[2, 0, 0, 0, 0, 0, 0, 0][..], &[2, 2, 0, 0, 0, 0, 0, 0], &[2]] {
            let advertisement = frame(MAC.into(), (ADDRESS, ALL_NODES), [ADVERTISEMENT, 0], ADDRESS, malformed);
            assert_eq!(decode(&advertisement), None, "{malformed:?}");
        }
    }
}
