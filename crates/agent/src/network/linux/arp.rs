//! Ethernet frames of ARP (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

use super::conflicts::Claim;
use crate::network::MacAddress;

/// Length of a frame without padding.
pub(super) const FRAME: usize = 42;

/// EtherType of ARP.
pub(super) const ETHERTYPE: u16 = 0x0806;

/// Offset of the sender's protocol address.
pub(super) const SENDER: u32 = 28;

/// Ethernet as hardware, IPv4 as protocol, with the lengths of both addresses.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// Returns the gratuitous request for an address: RFC 5227 recommends this form.
pub(super) fn announcement(mac: MacAddress, address: Ipv4Addr) -> [u8; FRAME] {
    frame(REQUEST, (mac, address), ([0; 6].into(), address))
}

/// Returns the gratuitous reply for an address: some hosts and switches follow only replies.
pub(super) fn gratuitous_reply(mac: MacAddress, address: Ipv4Addr) -> [u8; FRAME] {
    frame(REPLY, (mac, address), (mac, address))
}

/// Returns the probe for an address: a request without a sender, so that no cache changes.
pub(super) fn probe(mac: MacAddress, address: Ipv4Addr) -> [u8; FRAME] {
    frame(REQUEST, (mac, Ipv4Addr::UNSPECIFIED), ([0; 6].into(), address))
}

/// Returns the address that the sender of a frame claims; `None` for probes and anything else.
pub(super) fn decode(frame: &[u8]) -> Option<Claim> {
    let packet = frame.get(12..FRAME)?;
    let (head, body) = packet.split_at(8);
    if head != [&ETHERTYPE.to_be_bytes()[..], &ETHERNET_IPV4].concat() {
        return None;
    }
    let operation = u16::from_be_bytes(body.first_chunk().copied()?);
    let by: [u8; 6] = body.get(2..8)?.try_into().ok()?;
    let address: [u8; 4] = body.get(8..12)?.try_into().ok()?;
    let address = Ipv4Addr::from(address);
    let is_announcement = body.get(18..22)? == address.octets();
    let is_claim = matches!(operation, REQUEST | REPLY) && !address.is_unspecified();
    is_claim.then(|| Claim { address: address.into(), by: by.into(), is_announcement })
}

fn frame(operation: u16, sender: (MacAddress, Ipv4Addr), target: (MacAddress, Ipv4Addr)) -> [u8; FRAME] {
    let parts: [&[u8]; 9] = [
        &MacAddress::BROADCAST.octets(),
        &sender.0.octets(),
        &ETHERTYPE.to_be_bytes(),
        &ETHERNET_IPV4,
        &operation.to_be_bytes(),
        &sender.0.octets(),
        &sender.1.octets(),
        &target.0.octets(),
        &target.1.octets(),
    ];
    let mut frame = [0; FRAME];
    for (byte, value) in frame.iter_mut().zip(parts.concat()) {
        *byte = value;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0x5e, 0x10, 0, 1];
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);

    #[rustfmt::skip]
    const ANNOUNCEMENT: [u8; FRAME] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0x5e, 0x10, 0, 1, 8, 6,
        0, 1, 8, 0, 6, 4, 0, 1,
        2, 0, 0x5e, 0x10, 0, 1, 192, 0, 2, 200,
        0, 0, 0, 0, 0, 0, 192, 0, 2, 200,
    ];

    #[test]
    fn frames_are_as_on_the_wire() {
        let mac = MacAddress::from(MAC);
        assert_eq!(announcement(mac, ADDRESS), ANNOUNCEMENT);
        let mut reply = ANNOUNCEMENT;
        reply[21] = 2;
        reply[32..38].copy_from_slice(&MAC);
        assert_eq!(gratuitous_reply(mac, ADDRESS), reply);
        let mut probing = ANNOUNCEMENT;
        probing[28..32].fill(0);
        assert_eq!(probe(mac, ADDRESS), probing);
    }

    #[test]
    fn the_sender_of_a_frame_claims_its_address() {
        let claim = Some(Claim { address: ADDRESS.into(), by: MAC.into(), is_announcement: true });
        assert_eq!(decode(&ANNOUNCEMENT), claim);
        assert_eq!(decode(&gratuitous_reply(MAC.into(), ADDRESS)), claim);
        // Switches pad frames to 60 bytes.
        assert_eq!(decode(&[&ANNOUNCEMENT[..], &[0; 18]].concat()), claim);
        let mut ordinary_request = ANNOUNCEMENT;
        ordinary_request[41] = 7;
        assert_eq!(decode(&ordinary_request), claim.map(|claim| Claim { is_announcement: false, ..claim }));
    }

    #[test]
    fn other_frames_claim_nothing() {
        assert_eq!(decode(&probe(MAC.into(), ADDRESS)), None);
        for length in 0..FRAME {
            assert_eq!(decode(&ANNOUNCEMENT[..length]), None);
        }
        for (at, value) in [(12, 0x86), (15, 6), (16, 9), (18, 8), (19, 16), (20, 1), (21, 3)] {
            let mut other = ANNOUNCEMENT;
            other[at] = value;
            assert_eq!(decode(&other), None, "byte {at}");
        }
    }
}
