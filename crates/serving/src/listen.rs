//! Binds the listening socket.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::ServingOptions;

/// Maximum length of the accept queue.
const BACKLOG: i32 = 1024;

/// A failure to listen on an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another socket listens there.
    #[error(
        "cannot listen on {0}: address already in use; stop the process that listens there, or choose another port"
    )]
    InUse(SocketAddr),
    /// Any other error of the operating system.
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, io::Error),
}

/// Listens on the address. An unspecified address means all interfaces of both IP families.
pub(crate) fn listen(options: &ServingOptions) -> Result<std::net::TcpListener, ListenError> {
    let address = SocketAddr::new(options.bind_address, options.port);
    let listener = match options.bind_address {
        address if address.is_unspecified() => on_all_interfaces(options),
        _ => open(address, false, options),
    };
    listener.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse(address),
        _ => ListenError::Other(address, error),
    })
}

/// Opens one dual-stack socket, or one for IPv4 on a host without IPv6.
fn on_all_interfaces(options: &ServingOptions) -> io::Result<std::net::TcpListener> {
    let address = |ip: IpAddr| SocketAddr::new(ip, options.port);
    match open(address(Ipv6Addr::UNSPECIFIED.into()), true, options) {
        // A socket of the other family would fail with the same error.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            open(address(std::net::Ipv4Addr::UNSPECIFIED.into()), false, options)
        }
        listener => listener,
    }
}

fn open(address: SocketAddr, dual_stack: bool, options: &ServingOptions) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if dual_stack {
        socket.set_only_v6(false)?;
    }
    // Go sets SO_REUSEADDR by default: an address whose last connections are in TIME_WAIT can be bound, one with a listener
    // cannot. `--permit-address-sharing` asks for the same.
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
    fn an_unspecified_address_listens_on_both_ip_families() {
        let listener = listen(&options(Ipv4Addr::UNSPECIFIED.into(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        match std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
            Ok(_) => drop(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap()),
            Err(error) => eprintln!("SKIPPED: no IPv6 here: {error}"),
        }
    }

    #[test]
    fn a_port_in_use_is_an_error_unless_both_listeners_share_it() {
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
