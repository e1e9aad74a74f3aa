//! The header of the PROXY protocol.

use std::net::SocketAddr;

use crate::ProxyProtocol;

/// What is sent to a target before anything else.
pub(crate) fn header(_version: ProxyProtocol, client: SocketAddr, listener: SocketAddr) -> Vec<u8> {
    let (from, to) = (client.ip(), listener.ip());
    format!("PROXY TCP4 {from} {to} {} {}\r\n", client.port(), listener.port()).into_bytes()
}
