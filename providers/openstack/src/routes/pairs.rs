//! Allowed address pairs: a port lets out only what has its own address, unless it is told of others.

use bowline_cloud::{Error, ErrorKind, Result};
use serde_json::json;

use super::router::contended;
use super::table::{self, Neighbours};
use crate::OpenStack;
use crate::api::network::{self, AddressPair, ExtraRoute, Port};

/// How often a port is read again because somebody else has changed it meanwhile.
const ATTEMPTS: usize = 5;

/// What became of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pair {
    Added,
    AsItWas,
}

impl OpenStack {
    /// Lets pods of the range speak through the port of the next hop, which is to be this server's, if one is named.
    pub(super) async fn allow(&self, route: &ExtraRoute, server: Option<&str>, operation: &str) -> Result<Pair> {
        let _turn = self.turn(server.unwrap_or(&route.nexthop)).await;
        for _ in 0..ATTEMPTS {
            let Some(port) = self.port_at(&route.nexthop, operation).await? else {
                return Err(nobody(&route.nexthop, operation));
            };
            of_server(&port, server, &route.nexthop, operation)?;
            if port.port_security_enabled == Some(false) {
                tracing::warn!(port = port.id, "port security is off: the port needs no allowed address pair");
                return Ok(Pair::AsItWas);
            }
            let Some(pairs) = table::pairs_with(&port.allowed_address_pairs, &route.destination) else {
                return Ok(Pair::AsItWas);
            };
            if self.write_pairs(&port, &pairs, operation).await? {
                return Ok(Pair::Added);
            }
        }
        Err(contended(operation, &route.nexthop))
    }

    /// Takes that back. A port that is gone, or somebody else's by now, needs nothing.
    pub(super) async fn disallow(&self, route: &ExtraRoute, server: Option<&str>, operation: &str) -> Result<()> {
        let _turn = self.turn(server.unwrap_or(&route.nexthop)).await;
        for _ in 0..ATTEMPTS {
            let Some(port) = self.port_at(&route.nexthop, operation).await? else { return Ok(()) };
            if of_server(&port, server, &route.nexthop, operation).is_err() {
                return Ok(());
            }
            let Some(pairs) = table::pairs_without(&port.allowed_address_pairs, &route.destination) else {
                return Ok(());
            };
            if self.write_pairs(&port, &pairs, operation).await? {
                return Ok(());
            }
        }
        Err(contended(operation, &route.nexthop))
    }

    /// Takes back a pair that is of no use, as far as that works: the error that led here is what counts.
    pub(super) async fn take_back(&self, route: &ExtraRoute, server: Option<&str>) {
        if let Err(error) = self.disallow(route, server, "take back an allowed address pair").await {
            tracing::warn!(%error, ?route, "an allowed address pair stays at the port, though the route was refused");
        }
    }

    /// Writes the pairs of a port; `false` if somebody has changed the port since it was read.
    async fn write_pairs(&self, port: &Port, pairs: &[AddressPair], operation: &str) -> Result<bool> {
        let body = json!({ "allowed_address_pairs": pairs });
        match network::update_port(&self.session, &port.id, &body, port.revision_number).await {
            Ok(()) => Ok(true),
            Err(error) if error.status() == Some(412) => Ok(false),
            Err(error) => Err(error.during(operation)),
        }
    }

    /// The port of this address in the router's networks, also in one that it was connected to only now.
    async fn port_at(&self, address: &str, operation: &str) -> Result<Option<Port>> {
        let known = self.beside_router(operation).await?;
        if let Some(port) = self.port_in(address, &known.networks, operation).await? {
            return Ok(Some(port));
        }
        let now = self.look_beside_router(operation).await?;
        if now.networks == known.networks { Ok(None) } else { self.port_in(address, &now.networks, operation).await }
    }

    async fn port_in(&self, address: &str, networks: &[String], operation: &str) -> Result<Option<Port>> {
        let ports = self.ports_beside(&[address], networks, operation).await?;
        Ok(Neighbours::new(&ports, networks).at(address).cloned())
    }
}

/// The port is this server's, as far as that can be said: one that hangs on a trunk has the trunk's name on it.
fn of_server(port: &Port, server: Option<&str>, address: &str, operation: &str) -> Result<()> {
    match (table::server_of(port), server) {
        (Some(owner), Some(server)) if owner != server => {
            let message = format!("the address {address} is that of the server {owner}, and not of {server}");
            Err(Error::new(ErrorKind::NotFound, operation, message))
        }
        _ => Ok(()),
    }
}

fn nobody(address: &str, operation: &str) -> Error {
    let message = format!(
        "no port in the router's networks has the address {address}, or several have: no range can be led there; connect the \
         router of [Route] in cloud.conf to the nodes' network"
    );
    Error::new(ErrorKind::NotFound, operation, message)
}
