//! The router: what Neutron can do with it, what is beside it, and changing its routes.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use ipnet::IpNet;
use serde_json::json;
use tokio::sync::OnceCell;

use super::pairs::Pair;
use super::{Hop, is_about_one};
use crate::OpenStack;
use crate::api::network::{self, ExtraRoute, Port};

/// What is known of Neutron and the router.
#[derive(Default)]
pub(crate) struct RouterMemory {
    support: OnceCell<Support>,
    beside: Mutex<Option<Arc<Beside>>>,
}

/// Direction of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

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
        let ask = || async {
            let extensions = network::extensions(&self.session).await.map_err(|error| error.during(operation))?;
            let message = "Neutron has neither the extension extraroute nor extraroute-atomic: no route can be made; \
                           take router-id out of cloud.conf, or have the extension installed";
            Support::of(&extensions).ok_or_else(|| Error::new(ErrorKind::Unsupported, operation, message))
        };
        self.routing.support.get_or_try_init(ask).await.copied()
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
        let ports = network::PORTS.list(&self.session, &[("device_id", self.router_id()?)]).await;
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
        let subnets = network::SUBNETS.list(&self.session, &query).await.map_err(|error| error.during(operation))?;
        Ok(subnets.iter().filter_map(|subnet| subnet.cidr.parse().ok()).collect())
    }
}

// ---- writes

impl OpenStack {
    /// Writes the routes whose pairs are ready; the others keep their errors.
    pub(super) async fn write_routes(
        &self,
        change: Change,
        hops: &[Hop],
        pairs: &[Result<Pair>],
        support: Support,
    ) -> Vec<Result<()>> {
        let ready = hops.iter().zip(pairs).filter(|(_, pair)| pair.is_ok()).map(|(hop, _)| hop.route.clone());
        let mut written = self.write_each(change, &ready.collect::<Vec<_>>(), support).await.into_iter();
        let answer = |pair: &Result<Pair>| match pair {
            Ok(_) => written.next(),
            Err(error) => Some(Err(error.clone())),
        };
        pairs.iter().filter_map(answer).collect()
    }

    /// Writes all at once; if Neutron refuses that, one by one, so that one bad route does not fail the others.
    async fn write_each(&self, change: Change, routes: &[ExtraRoute], support: Support) -> Vec<Result<()>> {
        if routes.is_empty() {
            return Vec::new();
        }
        match self.write_at_once(change, routes, support).await {
            Err(error) if routes.len() > 1 && is_about_one(&error) => {
                let mut answers = Vec::with_capacity(routes.len());
                for route in routes {
                    answers.push(self.write_at_once(change, std::slice::from_ref(route), support).await);
                }
                answers
            }
            answer => routes.iter().map(|_| answer.clone()).collect(),
        }
    }

    async fn write_at_once(&self, change: Change, routes: &[ExtraRoute], support: Support) -> Result<()> {
        let (router, session) = (self.router_id()?, &self.session);
        let written = match (support.atomic, change) {
            (true, Change::Add) => network::change_routes(session, router, "add_extraroutes", routes).await,
            (true, Change::Remove) => network::change_routes(session, router, "remove_extraroutes", routes).await,
            (false, _) => self.rewrite_routes(router, change, routes).await,
        };
        written.map_err(|error| error.during(change.operation()))
    }

    /// Reads all routes and writes them as they should be, unless they are so already.
    async fn rewrite_routes(&self, router: &str, change: Change, routes: &[ExtraRoute]) -> Result<()> {
        let before = network::ROUTERS.get(&self.session, router).await?.routes;
        let mut after = before.clone();
        match change {
            Change::Add => after.extend(routes.iter().filter(|route| !before.contains(route)).cloned()),
            Change::Remove => after.retain(|route| !routes.contains(route)),
        }
        if after == before {
            return Ok(());
        }
        network::ROUTERS.resource.update(&self.session, router, &json!({ "routes": after })).await
    }
}

impl Change {
    pub(super) fn operation(self) -> &'static str {
        match self {
            Change::Add => super::CREATE,
            Change::Remove => super::DELETE,
        }
    }
}

/// Another client has changed the port between each read and write.
pub(super) fn contended(operation: &str, port: &str) -> Error {
    let message = format!("another client changed the port at {port} each time before it could be written");
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
