//! Service addresses on an interface of this host.
//!
//! ```text
//!  addresses (the group) ──hold──► diff ──► netlink: add, renew, remove ──► the kernel
//!                                   │
//!                                   └─────► announcer: ARP, NDP ──────────► the segment
//!  observations ◄── conflicts ◄── packet sockets ◄────────────────────────── the segment
//! ```
//!
//! The active agent puts every service address on the interface, as /32 or /128, with a lifetime of [`LIFETIME`], and renews it
//! with each [`Network::hold`]. If the agent is killed or hangs, the kernel removes the addresses without its help: the lifetime is
//! the fence that keeps two hosts from serving one address.
//!
//! A new address is announced with gratuitous ARP packets and unsolicited neighbour advertisements, so that neighbours and switches
//! replace their entries at once. The first address of each family is announced every 400 ms, as a beacon by which standby agents
//! recognise an active agent that they cannot reach otherwise.
//!
//! The addresses have a protocol number of their own (`proto 176` in `ip address`; Linux 5.18 and later). Addresses that other
//! programs added are never changed.

#[cfg(not(target_os = "linux"))]
mod absent;
#[cfg(target_os = "linux")]
mod linux;
mod mac;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

#[cfg(not(target_os = "linux"))]
pub use absent::{Network, addresses_of_others};
#[cfg(target_os = "linux")]
pub use linux::{Network, addresses_of_others};
pub use mac::{InvalidMacAddress, MacAddress};

use crate::Pool;

/// Lifetime of an address on the interface. Call [`Network::hold`] every quarter of it.
pub const LIFETIME: Duration = Duration::from_secs(2);

/// Options of [`Network::open`].
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// Interface of the service addresses.
    pub interface: String,
    /// Pools of the group. Announcements of other addresses by other hosts are ignored.
    pub pools: Vec<Pool>,
}

impl NetworkOptions {
    /// Whether an address belongs to the pool of the group.
    fn contains(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| pool.contains(&address))
    }
}

/// Reason why the interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No interface has the configured name.
    #[error(
        "interface {name:?} does not exist; this host has {existing}; fix: set `interface` to the interface of the service addresses"
    )]
    NoSuchInterface {
        /// Configured name.
        name: String,
        /// Names of the interfaces of this host.
        existing: String,
    },
    /// The process lacks a capability.
    #[error(
        "interface {interface}: this process lacks {missing}, which {purpose} requires; fix: grant {missing} (systemd: \
         `AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE`; container: `capabilities.add`), or run the agent as root"
    )]
    MissingCapability {
        /// Configured name.
        interface: String,
        /// Name of the capability.
        missing: &'static str,
        /// Operation that needs it.
        purpose: &'static str,
    },
    /// This operating system is not supported.
    #[error("service addresses on an interface require Linux; fix: remove `interface`")]
    Unsupported,
    /// The kernel rejected a request.
    #[error("interface {interface}: {message}")]
    Kernel {
        /// Configured name.
        interface: String,
        /// Failed operation and its cause.
        message: String,
    },
}

/// Result of [`Network::hold`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldReport {
    /// Addresses that are on the interface for at least [`LIFETIME`] from the start of the call.
    pub held: BTreeSet<IpAddr>,
    /// Problems of the interface and of addresses, without repetitions.
    pub problems: BTreeSet<NetworkProblem>,
}

/// Condition that keeps an address from working. The next call retries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkProblem {
    /// Interface of the service addresses.
    pub interface: String,
    /// Address; `None` if the problem concerns all of them.
    pub address: Option<IpAddr>,
    /// Cause and fix.
    pub message: String,
}

impl fmt::Display for NetworkProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "interface {}: address {address}: {}", self.interface, self.message),
            None => write!(f, "interface {}: {}", self.interface, self.message),
        }
    }
}

/// Observation on the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Meaning.
    pub kind: SeenKind,
    /// Address that the other host announced.
    pub address: IpAddr,
    /// Link address of the other host.
    pub by: MacAddress,
    /// Time of the latest such packet.
    pub at: Instant,
}

/// Meaning of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeenKind {
    /// A peer holds a service address.
    Beacon,
    /// A host that is no peer uses an address that this agent holds.
    Conflict,
    /// A host that is no known peer uses an address of the pool that this agent does not hold.
    Foreign,
}
