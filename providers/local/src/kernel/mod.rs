//! Kernel routes: routes of the Linux kernel in the network namespaces of machines.
//!
//! ```text
//!  tables, machines ──► desired ──┐
//!                                 ├─► diff ──► apply, in each namespace
//!  the kernel ────────► found ────┘
//! ```
//!
//! A machine may have a network namespace. With [`RouteOptions::kernel`], each of these namespaces has a kernel route for every
//! route of the tables, with the `InternalIP` of the target machine as next hop; except the namespace of that machine itself,
//! which owns the pod CIDR. Desired and actual routes are compared at the start, after each change and periodically, so missed
//! changes and changes by other programs are corrected.
//!
//! Routes of the cloud have their own protocol number. Other routes are never touched.

#[cfg(not(all(feature = "netlink", target_os = "linux")))]
mod absent;
#[cfg(all(feature = "netlink", target_os = "linux"))]
mod linux;
mod namespace;

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

#[cfg(not(all(feature = "netlink", target_os = "linux")))]
pub(crate) use absent::KernelRoutes;
#[cfg(all(feature = "netlink", target_os = "linux"))]
pub(crate) use linux::KernelRoutes;
pub(crate) use namespace::check_namespace;

use crate::LocalCloud;

/// Options of routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteOptions {
    /// Creates kernel routes in the network namespaces of machines. Requires Linux, a build with the feature `netlink`, and root
    /// privileges (`CAP_SYS_ADMIN` to enter a namespace, `CAP_NET_ADMIN` to change its routes). Without it, routes are records
    /// only.
    pub kernel: bool,
}

/// Kernel route that is missing or could not be removed. It is retried until it succeeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteProblem {
    /// Network namespace of the machine; `None` if the records are inconsistent.
    pub namespace: Option<String>,
    /// Destination, if the problem is about one.
    pub destination: Option<IpNet>,
    /// Problem and fix.
    pub message: String,
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

impl LocalCloud {
    /// Problems of kernel routes, as of the last sync; empty without [`RouteOptions::kernel`].
    pub fn route_problems(&self) -> Vec<RouteProblem> {
        self.shared.kernel.as_ref().map(KernelRoutes::problems).unwrap_or_default()
    }
}
