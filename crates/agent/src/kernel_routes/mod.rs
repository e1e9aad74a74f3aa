//! Kernel routes: routes of the Linux kernel, on this host or in network namespaces.
//!
//! ```text
//!  records ──► desired, by namespace ──┐
//!                                      ├─► diff ──► apply, in each namespace
//!  the kernel ─────────► found ────────┘
//! ```
//!
//! The caller computes the [`DesiredRoutes`]: an agent those of its own host, the local cloud those of the namespaces of its
//! machines. Desired and actual routes are compared at the start, after each change and periodically, so missed changes and
//! changes by other programs are corrected.
//!
//! The routes have their own protocol number. Routes of other programs are never touched, so only one program per namespace
//! may have kernel routes.

#[cfg(not(all(feature = "netlink", target_os = "linux")))]
mod absent;
#[cfg(all(feature = "netlink", target_os = "linux"))]
mod linux;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

#[cfg(not(all(feature = "netlink", target_os = "linux")))]
pub use absent::KernelRoutes;
#[cfg(all(feature = "netlink", target_os = "linux"))]
pub use linux::KernelRoutes;

/// Network namespace that has routes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespace {
    /// The one that this process runs in. Requires `CAP_NET_ADMIN`.
    Own,
    /// A name under `/run/netns`, or a path. Also requires `CAP_SYS_ADMIN`, to enter it.
    Named(String),
}

/// Next hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// Gateway address, on a network of the namespace.
    Via(IpAddr),
    /// Packets are dropped.
    Blackhole,
}

/// Desired routes of a namespace, by destination.
pub type Routes = BTreeMap<IpNet, Hop>;

/// Desired routes by namespace, and problems.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DesiredRoutes {
    /// Routes of each namespace. From a namespace that is no longer listed, the routes are removed.
    pub namespaces: BTreeMap<Namespace, Routes>,
    /// Routes that no namespace has because the records are inconsistent.
    pub problems: Vec<RouteProblem>,
}

/// Kernel route that is missing or could not be removed. It is retried until it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteProblem {
    /// Name of the network namespace; `None` for the one of this process, or if the records are inconsistent.
    pub namespace: Option<String>,
    /// Destination, if the problem is about one.
    pub destination: Option<IpNet>,
    /// Problem and fix.
    pub message: String,
}

/// Reason why there are no kernel routes at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelRoutesError {
    /// Another system, or a build without the feature `netlink`.
    #[error(
        "kernel routes require Linux and a build with the Cargo feature netlink; disable them, or enable the feature"
    )]
    Unsupported,
    /// The process cannot enter a network namespace.
    #[error("kernel routes: network namespace: {0}")]
    CannotEnter(String),
}

impl DesiredRoutes {
    /// Desired routes of the namespace that this process runs in.
    pub fn of_host(routes: Routes) -> DesiredRoutes {
        DesiredRoutes { namespaces: BTreeMap::from([(Namespace::Own, routes)]), problems: Vec::new() }
    }
}

impl Namespace {
    /// Name of another namespace; `None` for the own one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Namespace::Own => None,
            Namespace::Named(name) => Some(name),
        }
    }
}

impl fmt::Display for RouteProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "network namespace {namespace:?}: ")?;
        }
        if let Some(destination) = &self.destination {
            write!(f, "route to {destination}: ")?;
        }
        f.write_str(&self.message)
    }
}
