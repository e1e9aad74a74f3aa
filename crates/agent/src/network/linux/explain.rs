//! Causes of errors, and their fixes.

use std::io;
use std::net::IpAddr;

use nix::errno::Errno;
use rtnetlink::Error;

/// Explains why the kernel rejected an address.
pub(super) fn address(error: &Error, interface: &str, address: IpAddr) -> String {
    match errno(error) {
        Some(Errno::EEXIST) => {
            format!("another program has just added it; fix: remove it from {interface}, or from `pool`")
        }
        Some(Errno::EACCES | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT) if address.is_ipv6() => format!(
            "IPv6 is disabled on this interface; fix: set the sysctl net.ipv6.conf.{interface}.disable_ipv6 to 0, or remove the \
             IPv6 addresses from `pool`"
        ),
        Some(Errno::EINVAL | Errno::EADDRNOTAVAIL | Errno::EACCES) => {
            "the kernel accepts only unicast addresses; fix: remove it from `pool`".to_owned()
        }
        _ => request(error),
    }
}

/// Explains why a netlink request failed.
pub(super) fn request(error: &Error) -> String {
    match errno(error) {
        Some(Errno::EPERM) => {
            "changing addresses requires CAP_NET_ADMIN; fix: grant it (systemd: `AmbientCapabilities=CAP_NET_ADMIN`), or run the \
             agent as root"
                .to_owned()
        }
        Some(Errno::ENODEV) => "the interface has just disappeared".to_owned(),
        Some(errno) => format!("the kernel rejected the request: {}", errno.desc()),
        None => format!("netlink request failed: {error}"),
    }
}

/// Explains why a packet socket failed.
pub(super) fn packet_socket(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => {
            "announcing addresses requires CAP_NET_RAW; fix: grant it (systemd: `AmbientCapabilities=CAP_NET_RAW`), or run the \
             agent as root"
                .to_owned()
        }
        Some(Errno::ENODEV | Errno::ENXIO) => "the interface has just disappeared".to_owned(),
        _ => format!("cannot open a packet socket to announce addresses: {error}"),
    }
}

/// Error number of the kernel; `None` if the request did not reach it.
pub(super) fn errno(error: &Error) -> Option<Errno> {
    let Error::NetlinkError(message) = error else { return None };
    Some(Errno::from_raw(message.raw_code().saturating_neg()))
}
