//! PROXY protocol header, which passes the client address to a target: a line of text (version 1) or binary data (version 2) before
//! the data of the client. See HAProxy's `doc/proxy-protocol.txt`, sections 2.1 and 2.2.
//!
//! Both addresses must have the same family. On a dual-stack socket, IPv4 addresses appear as `::ffff:…` and are sent as IPv4. If
//! the families differ nevertheless, the header has no addresses (`UNKNOWN`, `LOCAL`), and the target uses those of the connection.

use std::net::{IpAddr, SocketAddr};

use crate::ProxyProtocol;

/// Signature of a version 2 header. No text protocol starts with these bytes, so a target that does not expect the header fails
/// early.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, command LOCAL: the connection has no client.
const LOCAL: u8 = 0x20;
/// Version 2, command PROXY: the connection is forwarded for a client.
const PROXY: u8 = 0x21;

/// Unspecified family and transport.
const UNSPECIFIED: u8 = 0x00;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// Returns the header for a connection from `client` to `listener`.
pub(crate) fn header(version: ProxyProtocol, client: SocketAddr, listener: SocketAddr) -> Vec<u8> {
    match version {
        ProxyProtocol::V1 => line(client, listener).into_bytes(),
        ProxyProtocol::V2 => block(client, listener),
    }
}

fn line(client: SocketAddr, listener: SocketAddr) -> String {
    let (from, to) = (client.ip().to_canonical(), listener.ip().to_canonical());
    let family = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => "TCP4",
        (IpAddr::V6(_), IpAddr::V6(_)) => "TCP6",
        _ => return "PROXY UNKNOWN\r\n".to_owned(),
    };
    format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), listener.port())
}

fn block(client: SocketAddr, listener: SocketAddr) -> Vec<u8> {
    let mut addresses = Vec::with_capacity(36);
    let (command, family) = match (client.ip().to_canonical(), listener.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            addresses.extend(from.octets().into_iter().chain(to.octets()));
            (PROXY, TCP_OVER_IPV4)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            addresses.extend(from.octets().into_iter().chain(to.octets()));
            (PROXY, TCP_OVER_IPV6)
        }
        _ => (LOCAL, UNSPECIFIED),
    };
    if command == PROXY {
        addresses.extend([client.port(), listener.port()].into_iter().flat_map(u16::to_be_bytes));
    }
    // At most 36, so the cast cannot truncate.
    let length = addresses.len() as u16;
    let mut block = SIGNATURE.to_vec();
    block.extend([command, family]);
    block.extend(length.to_be_bytes());
    block.extend(addresses);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(client: &str, listener: &str) -> String {
        let bytes = header(ProxyProtocol::V1, client.parse().unwrap(), listener.parse().unwrap());
        String::from_utf8(bytes).unwrap()
    }

    fn bytes(client: &str, listener: &str) -> Vec<u8> {
        header(ProxyProtocol::V2, client.parse().unwrap(), listener.parse().unwrap())
    }

    #[test]
    fn version_1_is_a_line_of_text() {
        let cases = [
            ("192.0.2.1:56324", "198.51.100.2:443", "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"),
            ("[2001:db8::1]:1", "[2001:db8::2]:65535", "PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n"),
            ("[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:2", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
            ("192.0.2.1:1", "[::ffff:192.0.2.2]:2", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
            ("192.0.2.1:1", "[2001:db8::2]:2", "PROXY UNKNOWN\r\n"),
            ("[2001:db8::1]:1", "192.0.2.2:2", "PROXY UNKNOWN\r\n"),
        ];
        for (client, listener, expected) in cases {
            assert_eq!(text(client, listener), expected);
        }
    }

    #[test]
    fn the_longest_version_1_header_fits_in_the_107_bytes_that_receivers_read() {
        let v6 = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
        assert_eq!(text(v6, v6).len(), 104);
        let v4 = "255.255.255.255:65535";
        assert_eq!(text(v4, v4).len(), 56);
    }

    #[test]
    fn the_scope_of_a_link_local_client_is_omitted() {
        assert_eq!(text("[fe80::1%3]:1", "[fe80::2%3]:2"), "PROXY TCP6 fe80::1 fe80::2 1 2\r\n");
    }

    #[test]
    fn version_2_over_ipv4_has_28_bytes() {
        #[rustfmt::skip]
        let expected = [
            0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a,
            0x21, 0x11, 0x00, 0x0c,
            192, 0, 2, 1,   198, 51, 100, 2,
            0xdc, 0x04,     0x01, 0xbb,
        ];
        assert_eq!(bytes("192.0.2.1:56324", "198.51.100.2:443"), expected);
        assert_eq!(bytes("[::ffff:192.0.2.1]:56324", "[::ffff:198.51.100.2]:443"), expected);
    }

    #[test]
    fn version_2_over_ipv6_has_52_bytes() {
        #[rustfmt::skip]
        let expected = [
            0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a,
            0x21, 0x21, 0x00, 0x24,
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01,
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02,
            0x00, 0x50, 0x1f, 0x90,
        ];
        assert_eq!(bytes("[2001:db8::1]:80", "[2001:db8::2]:8080"), expected);
    }

    #[test]
    fn version_2_with_different_families_is_local_without_addresses() {
        #[rustfmt::skip]
        let expected = [
            0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a,
            0x20, 0x00, 0x00, 0x00,
        ];
        assert_eq!(bytes("192.0.2.1:1", "[2001:db8::2]:2"), expected);
        assert_eq!(bytes("[2001:db8::1]:1", "192.0.2.2:2"), expected);
    }
}
