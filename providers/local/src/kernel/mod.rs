//! The routes behind the records: real ones, of the Linux kernel, in the network namespaces of machines.
//!
//! ```text
//!  tables, machines ──► wanted ──┐
//!                                ├─► diff ──► apply, in each namespace
//!  the kernel ────────► found ───┘
//! ```
//!
//! A machine may name a network namespace. With [`RouteOptions::kernel`] there is, in each such namespace, a route of the
//! kernel for every route of the tables: by way of the `InternalIP` of the machine that it leads to. Not in that machine's
//! own namespace, where the range lives. What is there is compared with what should be after each change, at the start, and
//! now and then; so it does not matter how many changes there were, who else was at work, or what was missed.
//!
//! Routes of the cloud carry a protocol number of their own. No other route is ever touched.

#[cfg(not(all(feature = "netlink", target_os = "linux")))]
mod absent;
#[cfg(all(feature = "netlink", target_os = "linux"))]
mod linux;
mod namespace;

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

#[cfg(not(all(feature = "netlink", target_os = "linux")))]
pub(crate) use absent::Forwarding;
#[cfg(all(feature = "netlink", target_os = "linux"))]
pub(crate) use linux::Forwarding;
pub(crate) use namespace::check_namespace;

use crate::LocalCloud;

/// How packets are led.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteOptions {
    /// Makes routes of the kernel in the network namespaces of machines. Needs Linux, a build with the feature `netlink`, and
    /// the rights of root (`CAP_SYS_ADMIN` to enter a namespace, `CAP_NET_ADMIN` to change its routes). Without it routes are
    /// records only.
    pub kernel: bool,
}

/// A route that should be in the kernel and is not, or the other way round. It is tried again until it works.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteProblem {
    /// The network namespace, as machines name it; `None` if it is a matter of the records.
    pub namespace: Option<String>,
    /// The range, if it is about one.
    pub destination: Option<IpNet>,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl fmt::Display for RouteProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "the network namespace {namespace:?}: ")?;
        }
        if let Some(destination) = &self.destination {
            write!(f, "the route to {destination}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl LocalCloud {
    /// What keeps the kernel's routes from being what the tables say, as of the last attempt; nothing without
    /// [`RouteOptions::kernel`].
    pub fn route_problems(&self) -> Vec<RouteProblem> {
        self.shared.kernel.as_ref().map(Forwarding::problems).unwrap_or_default()
    }
}
