//! Listening sockets, and error messages for those that cannot be bound.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::Transport;

/// Length of the accept queue; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Address, transport and port of a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    pub(crate) address: IpAddr,
    pub(crate) transport: Transport,
    pub(crate) port: u16,
}

impl Binding {
    pub(crate) fn socket_address(self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// Binds a TCP listener.
pub(crate) fn tcp(address: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Allows binding while connections of an earlier socket are in TIME_WAIT, but not while another listener has the port.
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit this option.
    socket.set_tcp_nodelay(true)?;
    bind(&socket, address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Binds a UDP socket. Without `SO_REUSEADDR`, which would let two sockets bind the same port.
pub(crate) fn udp(address: SocketAddr) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    bind(&socket, address)?;
    Ok(socket.into())
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<()> {
    if address.is_ipv6() {
        // IPv4 addresses have their own sockets.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())
}

/// Describes a bind error and how to fix it.
pub(crate) fn to_message(binding: Binding, error: &Error) -> String {
    let address = binding.socket_address();
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("address in use: another process listens on {address}; stop it, or use another address or port")
        }
        ErrorKind::PermissionDenied if binding.port < 1024 => format!(
            "permission denied for port {}: use port 1024 or higher, or allow it with \
             sysctl net.ipv4.ip_unprivileged_port_start={}",
            binding.port, binding.port
        ),
        ErrorKind::AddrNotAvailable => {
            format!("{} is not an address of this machine: add it to a network interface", binding.address)
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(port: u16, kind: ErrorKind) -> String {
        let binding = Binding { address: [127, 0, 0, 1].into(), transport: Transport::Tcp, port };
        to_message(binding, &Error::from(kind))
    }

    #[test]
    fn permission_denied_for_a_low_port_suggests_a_fix() {
        let message = message(80, ErrorKind::PermissionDenied);
        assert!(
            message.contains("use port 1024 or higher, or allow it with sysctl net.ipv4.ip_unprivileged_port_start")
        );
    }

    #[test]
    fn permission_denied_for_a_high_port_does_not_mention_low_ports() {
        assert!(!message(8080, ErrorKind::PermissionDenied).contains("1024"));
    }

    #[test]
    fn an_address_of_another_machine_is_reported() {
        let error = tcp(SocketAddr::from(([192, 0, 2, 1], 8080))).unwrap_err();
        let binding = Binding { address: [192, 0, 2, 1].into(), transport: Transport::Tcp, port: 8080 };
        assert!(to_message(binding, &error).contains("not an address of this machine"), "{error}");
    }
}
