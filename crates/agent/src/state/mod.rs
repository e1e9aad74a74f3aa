//! State of a group: load balancers, addresses and routes, with its version.
//!
//! ```text
//!  active agent:  State ── edit ──► State' ──► file ──► Delta to the standbys ──► acknowledged
//!  standby:                                                  └─► State' ──► file
//! ```

mod delta;
mod file;
mod stored;

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::balancers::Balancers;
use crate::routes::RouteTable;
use crate::version::Position;

pub(crate) use delta::Delta;
pub use file::StateError;
pub(crate) use file::StateFile;
pub(crate) use stored::Stored;

/// Resources of the group. Clones share the records.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) balancers: Balancers,
    pub(crate) routes: RouteTable,
}

/// Resources with their version.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) position: Position,
    pub(crate) world: World,
}

impl World {
    /// Addresses of load balancers, which the active agent holds. A retained address stays reserved, but no load balancer has it.
    pub(crate) fn held_addresses(&self) -> BTreeSet<IpAddr> {
        let balancers = self.balancers.balancers();
        balancers.flat_map(|balancer| self.balancers.addresses_of(balancer)).map(|address| address.ip).collect()
    }
}
