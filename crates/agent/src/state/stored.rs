//! State as JSON: in the state file, and when a standby copies all of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_agent_client::{Balancer, CloudAddress, RouteRecord};
use serde::{Deserialize, Serialize};

use super::{State, World};
use crate::balancers::Balancers;
use crate::routes::RouteTable;
use crate::version::{ClaimId, Position, Version};

/// Version of the format.
const FORMAT: u32 = 1;

/// Maximum last ID number, so that numbers do not run out.
const MAX_LAST_ID: u64 = u64::MAX / 2;

/// State as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Stored {
    format: u32,
    version: Version,
    accepted: ClaimId,
    last_balancer_id: u64,
    addresses: Vec<Arc<CloudAddress>>,
    balancers: Vec<Arc<Balancer>>,
    last_route_id: u64,
    routes: BTreeMap<String, Vec<Arc<RouteRecord>>>,
}

impl From<&State> for Stored {
    fn from(state: &State) -> Stored {
        let State { position, world: World { balancers, routes } } = state;
        let mut by_cluster = BTreeMap::<String, Vec<_>>::new();
        for (cluster, route) in routes.iter() {
            by_cluster.entry(cluster.to_owned()).or_default().push(route.clone());
        }
        Stored {
            format: FORMAT,
            version: position.version,
            accepted: position.accepted,
            last_balancer_id: balancers.last(),
            addresses: balancers.addresses().cloned().collect(),
            balancers: balancers.balancers().cloned().collect(),
            last_route_id: routes.last(),
            routes: by_cluster,
        }
    }
}

impl Stored {
    /// Version and claim.
    pub(crate) fn position(&self) -> Position {
        Position { accepted: self.accepted, version: self.version }
    }

    /// Checks and restores the state. The error is a message without the origin of the text.
    pub(crate) fn restore(self) -> Result<State, String> {
        if self.format != FORMAT {
            let message = format!("has format {}, and this program reads format {FORMAT}", self.format);
            return Err(format!("{message}; use the version of the program that wrote it"));
        }
        for (key, last) in [("lastBalancerId", self.last_balancer_id), ("lastRouteId", self.last_route_id)] {
            if last > MAX_LAST_ID {
                return Err(format!("is invalid: {key} {last} is too high"));
            }
        }
        let position = self.position();
        let owned = |records: Vec<Arc<CloudAddress>>| records.into_iter().map(Arc::unwrap_or_clone).collect();
        let balancers = self.balancers.into_iter().map(Arc::unwrap_or_clone).collect();
        let balancers = Balancers::restore(owned(self.addresses), balancers, self.last_balancer_id)
            .map_err(|error| format!("is invalid: {error}"))?;
        let routes = self.routes.into_iter();
        let routes = routes.flat_map(|(cluster, routes)| routes.into_iter().map(move |route| (cluster.clone(), route)));
        let routes = RouteTable::restore(routes, self.last_route_id).map_err(|error| format!("is invalid: {error}"))?;
        Ok(State { position, world: World { balancers, routes } })
    }
}
