//! Packet socket: whole Ethernet frames of one type on one interface.
//!
//! Both families use packet sockets. A raw ICMPv6 socket would neither send solicitations from the unspecified address nor
//! advertisements while the interface has no link-local address, and it would not show the link address of a sender.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, bind};
use socket2::{Domain, Protocol, SockFilter, SockRef, Socket, Type};
use tokio::net::UdpSocket;

use super::filter;
use crate::network::MacAddress;

/// Hardware type of Ethernet.
const ETHERNET: u16 = 1;

/// Packet socket that is bound to an interface.
pub(super) struct PacketSocket {
    /// Tokio has no type for packet sockets. To send and to receive without addresses is the same for all datagram sockets.
    socket: UdpSocket,
}

impl PacketSocket {
    /// Opens a socket on an interface.
    pub(super) fn open(interface: &str, ethertype: u16, filter: &[SockFilter]) -> io::Result<PacketSocket> {
        // The kernel expects the EtherType in the byte order of the network.
        let protocol = Protocol::from(i32::from(ethertype.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol))?;
        socket.set_nonblocking(true)?;
        // Before it is bound, the socket receives packets of all interfaces: they are discarded.
        socket.attach_filter(&filter::drop_all())?;
        bind(socket.as_raw_fd(), &link_address(interface)?)?;
        while (&socket).read(&mut [0; 1]).is_ok() {}
        socket.attach_filter(filter)?;
        Ok(PacketSocket { socket: UdpSocket::from_std(OwnedFd::from(socket).into())? })
    }

    /// Replaces the filter.
    pub(super) fn set_filter(&self, filter: &[SockFilter]) -> io::Result<()> {
        SockRef::from(&self.socket).attach_filter(filter)
    }

    /// Sends a frame. A full transmit queue is an error.
    pub(super) async fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame).await.map(drop)
    }

    /// Receives the start of a frame.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buffer).await
    }
}

/// Returns the link address of an Ethernet interface.
pub(super) fn mac_address(interface: &str) -> Option<MacAddress> {
    let link = link_address(interface).ok()?;
    link.addr().filter(|_| link.hatype() == ETHERNET).map(MacAddress::from)
}

/// Address of an interface for a packet socket. A zero protocol in it keeps the protocol of the socket.
fn link_address(interface: &str) -> io::Result<LinkAddr> {
    let mut addresses =
        getifaddrs()?.filter(|entry| entry.interface_name == interface).filter_map(|entry| entry.address);
    let link = addresses.find_map(|address| address.as_link_addr().copied());
    link.ok_or_else(|| Errno::ENODEV.into())
}
