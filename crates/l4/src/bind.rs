//! Sockets that listen, and what to tell a person when there can be none.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::Transport;

/// How many connections wait to be accepted; the kernel takes less if `net.core.somaxconn` says so.
const BACKLOG: i32 = 4096;

/// An address, transport and port: what only one can listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(crate) address: IpAddr,
    pub(crate) transport: Transport,
    pub(crate) port: u16,
}

impl Spot {
    pub(crate) fn socket_address(self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// Listens for connections.
pub(crate) fn tcp(address: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // What is left of earlier connections does not keep the port; another listener still does.
    socket.set_reuse_address(true)?;
    // Accepted connections inherit this from their listener.
    socket.set_tcp_nodelay(true)?;
    bind(&socket, address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Takes datagrams. Without `SO_REUSEADDR`, which would let two sockets take them.
pub(crate) fn udp(address: SocketAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    bind(&socket, address)?;
    Ok(socket.into())
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<()> {
    if address.is_ipv6() {
        // An IPv4 address is listened on by its own socket.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())
}

/// What went wrong and what to do about it.
pub(crate) fn explain(spot: Spot, error: &Error) -> String {
    let address = spot.socket_address();
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("address in use: something else listens on {address}; stop it, or use another address or port")
        }
        ErrorKind::PermissionDenied if spot.port < 1024 => format!(
            "no permission to listen on port {}: use a port of 1024 or higher, or allow it with \
             sysctl net.ipv4.ip_unprivileged_port_start={}",
            spot.port, spot.port
        ),
        ErrorKind::AddrNotAvailable => {
            format!("{} is not an address of this machine: add it to one of its interfaces", spot.address)
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(port: u16, kind: ErrorKind) -> String {
        let spot = Spot { address: [127, 0, 0, 1].into(), transport: Transport::Tcp, port };
        explain(spot, &Error::from(kind))
    }

    #[test]
    fn a_low_port_without_permission_says_what_to_do() {
        let told = explained(80, ErrorKind::PermissionDenied);
        assert!(
            told.contains("use a port of 1024 or higher, or allow it with sysctl net.ipv4.ip_unprivileged_port_start")
        );
    }

    #[test]
    fn a_high_port_without_permission_does_not_talk_of_low_ports() {
        assert!(!explained(8080, ErrorKind::PermissionDenied).contains("1024"));
    }

    #[test]
    fn an_address_that_is_not_here_is_said_to_be_so() {
        let error = tcp(SocketAddr::from(([192, 0, 2, 1], 8080))).unwrap_err();
        let spot = Spot { address: [192, 0, 2, 1].into(), transport: Transport::Tcp, port: 8080 };
        assert!(explain(spot, &error).contains("not an address of this machine"), "{error}");
    }
}
