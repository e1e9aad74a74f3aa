//! Taking an address.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::ServingOptions;

/// How many connections may wait to be taken.
const BACKLOG: i32 = 1024;

/// Why an address could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has it.
    #[error("cannot listen on {0}: the port is in use; stop what listens there, or choose another port")]
    InUse(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, io::Error),
}

/// Takes the address; all interfaces of both families if it is an unspecified one.
pub(crate) fn listen(options: &ServingOptions) -> Result<std::net::TcpListener, ListenError> {
    let wanted = SocketAddr::new(options.bind_address, options.port);
    let taken = match options.bind_address {
        address if address.is_unspecified() => on_all_interfaces(options),
        _ => open(wanted, false, options),
    };
    taken.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse(wanted),
        _ => ListenError::Other(wanted, error),
    })
}

/// One socket for both families, or one for IPv4 where the machine knows no other.
fn on_all_interfaces(options: &ServingOptions) -> io::Result<std::net::TcpListener> {
    let address = |ip: IpAddr| SocketAddr::new(ip, options.port);
    match open(address(Ipv6Addr::UNSPECIFIED.into()), true, options) {
        // Another family does not help against that one.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            open(address(std::net::Ipv4Addr::UNSPECIFIED.into()), false, options)
        }
        taken => taken,
    }
}

fn open(address: SocketAddr, dual_stack: bool, options: &ServingOptions) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if dual_stack {
        socket.set_only_v6(false)?;
    }
    // As Go does without being asked: an address whose last connections are still going away can be taken. While somebody
    // listens there, it cannot. `--permit-address-sharing` asks for the same.
    socket.set_reuse_address(true)?;
    if options.share_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    fn options(bind_address: IpAddr, port: u16) -> ServingOptions {
        ServingOptions { bind_address, port, ..ServingOptions::default() }
    }

    #[test]
    fn an_unspecified_address_is_reached_over_both_families() {
        let listener = listen(&options(Ipv4Addr::UNSPECIFIED.into(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        match std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
            Ok(_) => drop(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap()),
            Err(error) => eprintln!("SKIPPED: no IPv6 here: {error}"),
        }
    }

    #[test]
    fn a_port_in_use_is_named_and_can_be_shared_if_both_want_to() {
        let first = listen(&options(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let refused = listen(&options(Ipv4Addr::LOCALHOST.into(), port)).unwrap_err();
        assert!(matches!(refused, ListenError::InUse(address) if address.port() == port), "{refused}");
        assert!(listen(&options(Ipv4Addr::UNSPECIFIED.into(), port)).is_err());
        let shared = |port| ServingOptions { share_port: true, ..options(Ipv4Addr::LOCALHOST.into(), port) };
        let first = listen(&shared(0)).unwrap();
        listen(&shared(first.local_addr().unwrap().port())).unwrap();
    }
}
