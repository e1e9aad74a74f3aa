//! The router: Neutron's extensions, attached networks, and its routes.

use std::sync::{Arc, Mutex, PoisonError};

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use ipnet::IpNet;
use serde_json::json;
use tokio::sync::OnceCell;

use super::is_about_one;
use crate::OpenStack;
use crate::api::network::{self, ExtraRoute, Port};

/// Cached properties of Neutron and the router.
#[derive(Default)]
pub(crate) struct RouterCache {
    support: OnceCell<Support>,
    attachments: Mutex<Option<Arc<Attachments>>>,
}

/// Direction of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

/// Supported extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Support {
    /// Adds and removes single routes (`extraroute-atomic`).
    atomic: bool,
    /// Ports have allowed address pairs (`allowed-address-pairs`).
    pub(super) pairs: bool,
}

/// Networks and subnets that the router is attached to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Attachments {
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

impl Attachments {
    fn of(ports: Vec<Port>) -> Attachments {
        let mut attachments = Attachments::default();
        for port in ports {
            add_once(&mut attachments.networks, port.network_id);
            port.fixed_ips.into_iter().for_each(|fixed| add_once(&mut attachments.subnets, fixed.subnet_id));
        }
        attachments
    }
}

fn add_once(ids: &mut Vec<String>, id: String) {
    if !id.is_empty() && !ids.contains(&id) {
        ids.push(id);
    }
}

impl OpenStack {
    /// Returns the configured router ID.
    pub(super) fn router_id(&self) -> Result<&str> {
        let missing = || Error::new(ErrorKind::Unsupported, "routes", "there is no router-id in [Route] of cloud.conf");
        self.config.router_id.as_deref().ok_or_else(missing)
    }

    /// Returns the supported extensions; cached.
    pub(super) async fn route_support(&self, operation: &str) -> Result<Support> {
        let read = || async {
            let extensions = network::extensions(&self.session).await.map_err(|error| error.during(operation))?;
            let message = "Neutron has neither the extension extraroute nor extraroute-atomic: routes cannot be created; \
                           remove router-id from cloud.conf, or install the extension";
            Support::of(&extensions).ok_or_else(|| Error::new(ErrorKind::Unsupported, operation, message))
        };
        self.router_cache.support.get_or_try_init(read).await.copied()
    }

    /// Returns the attached networks; cached.
    pub(super) async fn attachments(&self, operation: &str) -> Result<Arc<Attachments>> {
        let known = self.router_cache.attachments.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(known) => Ok(known),
            None => self.read_attachments(operation).await,
        }
    }

    /// Reads the attached networks.
    pub(super) async fn read_attachments(&self, operation: &str) -> Result<Arc<Attachments>> {
        let ports = network::PORTS.list(&self.session, &[("device_id", self.router_id()?)]).await;
        let attachments = Arc::new(Attachments::of(ports.map_err(|error| error.during(operation))?));
        *self.router_cache.attachments.lock().unwrap_or_else(PoisonError::into_inner) = Some(attachments.clone());
        Ok(attachments)
    }

    /// Reads the CIDRs of the attached subnets.
    pub(super) async fn attached_cidrs(&self, attachments: &Attachments, operation: &str) -> Result<Vec<IpNet>> {
        if attachments.subnets.is_empty() {
            return Ok(Vec::new());
        }
        let query: Vec<_> = attachments.subnets.iter().map(|id| ("id", id.as_str())).collect();
        let subnets = network::SUBNETS.list(&self.session, &query).await.map_err(|error| error.during(operation))?;
        Ok(subnets.iter().filter_map(|subnet| subnet.cidr.parse().ok()).collect())
    }
}

// ---- writes

impl OpenStack {
    /// Writes all at once; if Neutron rejects that, one by one, so that one bad route does not fail the others.
    pub(super) async fn write_routes(
        &self,
        change: Change,
        routes: &[ExtraRoute],
        support: Support,
    ) -> Vec<Result<()>> {
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

    /// Reads all routes and writes them with the change, unless nothing changes.
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

/// Another client changed the port between each read and write.
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
    fn extensions_determine_how_routes_are_written() {
        assert_eq!(support(&["router", "allowed-address-pairs"]), None);
        assert_eq!(support(&["extraroute"]), Some(Support { atomic: false, pairs: false }));
        assert_eq!(support(&["extraroute-atomic"]), Some(Support { atomic: true, pairs: false }));
        assert_eq!(
            support(&["allowed-address-pairs", "extraroute", "extraroute-atomic"]),
            Some(Support { atomic: true, pairs: true })
        );
    }
}
