//! The router: what Neutron can do with it, what is beside it, and changing its routes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use ipnet::IpNet;
use serde_json::json;

use crate::OpenStack;
use crate::api::network::{self, ExtraRoute, Port};

/// What is known of the router, and whose turn it is.
#[derive(Default)]
pub(crate) struct RouterMemory {
    support: Mutex<Option<Support>>,
    beside: Mutex<Option<Arc<Beside>>>,
    /// Without the atomic calls, the whole list of routes is read and written: one at a time.
    classic: tokio::sync::Mutex<()>,
    /// A port's pairs are read and written whole: whoever changes those of a machine holds its turn.
    turns: Mutex<HashMap<String, Turn>>,
}

type Turn = Arc<tokio::sync::Mutex<()>>;

/// What Neutron can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Support {
    /// Single routes are added and removed (`extraroute-atomic`).
    atomic: bool,
    /// Ports may be allowed further addresses (`allowed-address-pairs`).
    pub(super) pairs: bool,
}

/// What the router is connected to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) networks: Vec<String>,
    subnets: Vec<String>,
}

impl Support {
    fn of(extensions: &[network::Extension]) -> Option<Support> {
        let has = |alias: &str| extensions.iter().any(|extension| extension.alias == alias);
        let atomic = has("extraroute-atomic");
        (atomic || has("extraroute")).then(|| Support { atomic, pairs: has("allowed-address-pairs") })
    }
}

impl Beside {
    fn of(ports: Vec<Port>) -> Beside {
        let mut beside = Beside::default();
        for port in ports {
            add_once(&mut beside.networks, port.network_id);
            port.fixed_ips.into_iter().for_each(|fixed| add_once(&mut beside.subnets, fixed.subnet_id));
        }
        beside
    }
}

fn add_once(ids: &mut Vec<String>, id: String) {
    if !id.is_empty() && !ids.contains(&id) {
        ids.push(id);
    }
}

impl OpenStack {
    /// The router's ID, as the configuration has it.
    pub(super) fn router_id(&self) -> Result<&str> {
        let missing = || Error::new(ErrorKind::Unsupported, "routes", "there is no router-id in [Route] of cloud.conf");
        self.config.router_id.as_deref().ok_or_else(missing)
    }

    /// What Neutron can do; asked for once.
    pub(super) async fn route_support(&self, operation: &str) -> Result<Support> {
        if let Some(known) = *self.routing.support.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(known);
        }
        let extensions = network::extensions(&self.session).await.map_err(|error| error.during(operation))?;
        let Some(support) = Support::of(&extensions) else {
            let message = "Neutron has neither the extension extraroute nor extraroute-atomic: no route can be made; \
                           take router-id out of cloud.conf, or have the extension installed";
            return Err(Error::new(ErrorKind::Unsupported, operation, message));
        };
        *self.routing.support.lock().unwrap_or_else(PoisonError::into_inner) = Some(support);
        Ok(support)
    }

    /// What the router is connected to, as it was last seen.
    pub(super) async fn beside_router(&self, operation: &str) -> Result<Arc<Beside>> {
        let known = self.routing.beside.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(known) => Ok(known),
            None => self.look_beside_router(operation).await,
        }
    }

    /// What the router is connected to now.
    pub(super) async fn look_beside_router(&self, operation: &str) -> Result<Arc<Beside>> {
        let ports = network::ports(&self.session, &[("device_id", self.router_id()?)]).await;
        let beside = Arc::new(Beside::of(ports.map_err(|error| error.during(operation))?));
        *self.routing.beside.lock().unwrap_or_else(PoisonError::into_inner) = Some(beside.clone());
        Ok(beside)
    }

    /// The ranges of the router's own subnets.
    pub(super) async fn ranges_beside_router(&self, beside: &Beside, operation: &str) -> Result<Vec<IpNet>> {
        if beside.subnets.is_empty() {
            return Ok(Vec::new());
        }
        let query: Vec<_> = beside.subnets.iter().map(|id| ("id", id.as_str())).collect();
        let subnets = network::subnets(&self.session, &query).await.map_err(|error| error.during(operation))?;
        Ok(subnets.iter().filter_map(|subnet| subnet.cidr.parse().ok()).collect())
    }

    /// Waits until nobody else changes the ports of this machine.
    pub(super) async fn turn(&self, machine: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.routing.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(machine.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

// ---- writes

impl OpenStack {
    /// The router has this route from now on.
    pub(super) async fn add_route(&self, route: &ExtraRoute, support: Support, operation: &str) -> Result<()> {
        if support.atomic {
            let added = network::add_routes(&self.session, self.router_id()?, std::slice::from_ref(route)).await;
            return added.map_err(|error| error.during(operation));
        }
        let with = |mut routes: Vec<ExtraRoute>| {
            let is_new = !routes.contains(route);
            routes.push(route.clone());
            is_new.then_some(routes)
        };
        self.change_routes(with, operation).await
    }

    /// The router does not have this route from now on.
    pub(super) async fn remove_route(&self, route: &ExtraRoute, support: Support, operation: &str) -> Result<()> {
        if support.atomic {
            let removed = network::remove_routes(&self.session, self.router_id()?, std::slice::from_ref(route)).await;
            return removed.map_err(|error| error.during(operation));
        }
        let without = |mut routes: Vec<ExtraRoute>| {
            let before = routes.len();
            routes.retain(|one| one != route);
            (routes.len() < before).then_some(routes)
        };
        self.change_routes(without, operation).await
    }

    /// Reads all routes and writes them as they should be, unless they are so already.
    async fn change_routes(
        &self,
        change: impl FnOnce(Vec<ExtraRoute>) -> Option<Vec<ExtraRoute>> + Send,
        operation: &str,
    ) -> Result<()> {
        let router = self.router_id()?;
        let _alone = self.routing.classic.lock().await;
        let found = network::router(&self.session, router).await.map_err(|error| error.during(operation))?;
        let Some(routes) = change(found.routes) else { return Ok(()) };
        let written = network::update_router(&self.session, router, &json!({ "routes": routes })).await;
        written.map_err(|error| error.during(operation))
    }
}

/// Somebody else has changed a port again and again meanwhile.
pub(super) fn contended(operation: &str, port: &str) -> Error {
    let message = format!("the port {port} was changed by somebody else each time that it was to be changed here");
    Error::new(ErrorKind::Conflict, operation, message).retry(Retry::Backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support(aliases: &[&str]) -> Option<Support> {
        let extensions: Vec<_> =
            aliases.iter().map(|alias| network::Extension { alias: (*alias).to_owned() }).collect();
        Support::of(&extensions)
    }

    #[test]
    fn extensions_say_how_routes_are_written() {
        assert_eq!(support(&["router", "allowed-address-pairs"]), None);
        assert_eq!(support(&["extraroute"]), Some(Support { atomic: false, pairs: false }));
        assert_eq!(support(&["extraroute-atomic"]), Some(Support { atomic: true, pairs: false }));
        assert_eq!(
            support(&["allowed-address-pairs", "extraroute", "extraroute-atomic"]),
            Some(Support { atomic: true, pairs: true })
        );
    }
}
