//! Allowed address pairs: a port drops packets from other source addresses than its own, unless a pair allows them.

use std::collections::{BTreeSet, HashMap};

use bowline_cloud::{Error, ErrorKind, Result};
use futures::stream::{self, StreamExt as _};
use serde_json::json;

use super::router::{Change, contended};
use super::table::{self, PortIndex};
use super::{CREATE, Hop, is_about_one};
use crate::OpenStack;
use crate::api::network::{self, AddressPair, Port};

/// Maximum number of reads of a port that other clients keep changing.
const ATTEMPTS: usize = 5;

/// Maximum number of concurrent port writes.
const AT_ONCE: usize = 8;

/// Outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pair {
    Changed,
    Unchanged,
}

/// Changes the pairs of a port for a route; returns whether anything changed.
fn edit(change: Change, hop: &Hop, port: Option<&mut Port>) -> Result<bool> {
    let pairs = match change {
        Change::Add => pairs_added(hop, port.as_deref())?,
        Change::Remove => pairs_removed(hop, port.as_deref()),
    };
    let changed = port.zip(pairs).map(|(port, pairs)| port.allowed_address_pairs = pairs);
    Ok(changed.is_some())
}

/// Returns the pairs with which Pods of the route's CIDR can send through the port of its next hop; `None` if they can already. The
/// port must belong to the server of the Node, if that is known.
fn pairs_added(hop: &Hop, port: Option<&Port>) -> Result<Option<Vec<AddressPair>>> {
    let port = port.ok_or_else(|| no_port(&hop.route.nexthop))?;
    of_server(port, hop)?;
    if port.port_security_enabled == Some(false) {
        tracing::warn!(port = port.id, "port security is off: the port needs no allowed address pair");
        return Ok(None);
    }
    Ok(table::pairs_with(&port.allowed_address_pairs, &hop.route.destination))
}

/// Reverts [`pairs_added`]. A port that is deleted, or belongs to another server by now, needs nothing.
fn pairs_removed(hop: &Hop, port: Option<&Port>) -> Option<Vec<AddressPair>> {
    let port = port.filter(|port| of_server(port, hop).is_ok())?;
    table::pairs_without(&port.allowed_address_pairs, &hop.route.destination)
}

/// A route whose pair is being changed.
struct Slot<'a> {
    hop: &'a Hop,
    /// Index of the port to write for it.
    port: Option<usize>,
    outcome: Option<Result<Pair>>,
}

/// Ports by the queried addresses.
#[derive(Default)]
struct HopPorts {
    ports: Vec<Port>,
    by_address: HashMap<String, usize>,
}

impl OpenStack {
    /// Changes the pairs of these routes: ports are read in one call, and each is written once. If Neutron rejects that, each route
    /// is written separately, so that one bad route does not fail the others.
    pub(super) async fn change_pairs(&self, change: Change, hops: &[Hop]) -> Vec<Result<Pair>> {
        let mut outcomes = self.change_pairs_together(change, hops).await;
        for (hop, outcome) in hops.iter().zip(&mut outcomes).filter(|_| hops.len() > 1) {
            if outcome.as_ref().is_err_and(is_about_one) {
                let alone = self.change_pairs_together(change, std::slice::from_ref(hop)).await.pop();
                *outcome = alone.unwrap_or(Ok(Pair::Unchanged));
            }
        }
        outcomes
    }

    async fn change_pairs_together(&self, change: Change, hops: &[Hop]) -> Vec<Result<Pair>> {
        let slot = |hop| Slot { hop, port: None, outcome: hop.has_no_port.then_some(Ok(Pair::Unchanged)) };
        let mut slots: Vec<Slot<'_>> = hops.iter().map(slot).collect();
        for _ in 0..ATTEMPTS {
            let mut open: Vec<_> = slots.iter_mut().filter(|slot| slot.outcome.is_none()).collect();
            if open.is_empty() {
                break;
            }
            if let Err(error) = self.change_open_pairs(change, &mut open).await {
                open.into_iter().for_each(|slot| slot.outcome = Some(Err(error.clone())));
            }
        }
        let outcome = |slot: Slot<'_>| {
            slot.outcome.unwrap_or_else(|| Err(contended(change.operation(), &slot.hop.route.nexthop)))
        };
        slots.into_iter().map(outcome).collect()
    }

    /// Reads the ports of these routes and writes those that change. A route whose port another client has changed meanwhile stays
    /// open.
    async fn change_open_pairs(&self, change: Change, open: &mut [&mut Slot<'_>]) -> Result<()> {
        let operation = change.operation();
        let addresses: BTreeSet<&str> = open.iter().map(|slot| slot.hop.route.nexthop.as_str()).collect();
        let mut ports_of_hops = self.ports_at(&addresses.into_iter().collect::<Vec<_>>(), operation).await?;
        for slot in open.iter_mut() {
            let at = ports_of_hops.by_address.get(&slot.hop.route.nexthop).copied();
            slot.port = None;
            match edit(change, slot.hop, at.and_then(|at| ports_of_hops.ports.get_mut(at))) {
                Ok(true) => slot.port = at,
                Ok(false) => slot.outcome = Some(Ok(Pair::Unchanged)),
                Err(error) => slot.outcome = Some(Err(error)),
            }
        }
        let changed: BTreeSet<usize> = open.iter().filter_map(|slot| slot.port).collect();
        let ports: Vec<_> =
            ports_of_hops.ports.into_iter().enumerate().filter(|(at, _)| changed.contains(at)).collect();
        let write = async |(at, port): (usize, Port)| (at, self.write_pairs(&port, operation).await);
        let written: HashMap<_, _> = stream::iter(ports).map(write).buffered(AT_ONCE).collect().await;
        for slot in open.iter_mut() {
            slot.outcome = match slot.port.and_then(|at| written.get(&at)) {
                Some(Ok(true)) => Some(Ok(Pair::Changed)),
                Some(Err(error)) => Some(Err(error.clone())),
                Some(Ok(false)) | None => slot.outcome.take(),
            };
        }
        Ok(())
    }

    /// Removes the pairs that were added for rejected routes, on a best-effort basis: the rejection is the error that is returned.
    /// A write without a response may have added the route, which then needs its pair.
    pub(super) async fn revert_pairs(&self, hops: &[Hop], allowed: &[Result<Pair>], added: &[Result<()>]) {
        let is_rejected = |(_, (pair, added)): &(&Hop, (&Result<Pair>, &Result<()>))| {
            matches!(pair, Ok(Pair::Changed)) && added.as_ref().is_err_and(|error| error.kind().is_rejection())
        };
        let rejected = hops.iter().zip(allowed.iter().zip(added)).filter(is_rejected);
        let rejected: Vec<Hop> = rejected.map(|(hop, _)| hop.clone()).collect();
        if rejected.is_empty() {
            return;
        }
        let removed = self.change_pairs(Change::Remove, &rejected).await;
        for (hop, removed) in rejected.iter().zip(removed) {
            if let Err(error) = removed {
                tracing::warn!(%error, route = ?hop.route, "could not remove the allowed address pair of a rejected route");
            }
        }
    }

    /// Writes the pairs of a port; `false` if another client has changed the port since it was read.
    async fn write_pairs(&self, port: &Port, operation: &str) -> Result<bool> {
        let body = json!({ "allowed_address_pairs": port.allowed_address_pairs });
        let mut last = self.load_balancer_cache.write_cache.port(&port.id).await;
        match network::update_port(&self.session, &port.id, &body, port.revision_number).await {
            Ok(written) => {
                *last = Some(written);
                Ok(true)
            }
            Err(error) if error.status() == Some(412) => Ok(false),
            Err(error) => Err(error.during(operation)),
        }
    }

    /// Reads the ports of these addresses in the router's networks, including newly attached ones.
    async fn ports_at(&self, addresses: &[&str], operation: &str) -> Result<HopPorts> {
        let known = self.attachments(operation).await?;
        let ports_of_hops = self.ports_in(addresses, &known.networks, operation).await?;
        if ports_of_hops.by_address.len() == addresses.len() {
            return Ok(ports_of_hops);
        }
        let now = self.read_attachments(operation).await?;
        if now.networks == known.networks {
            Ok(ports_of_hops)
        } else {
            self.ports_in(addresses, &now.networks, operation).await
        }
    }

    async fn ports_in(&self, addresses: &[&str], networks: &[String], operation: &str) -> Result<HopPorts> {
        let ports = self.ports_with(addresses, networks, operation).await?;
        let index = PortIndex::new(&ports, networks);
        let mut ports_of_hops = HopPorts::default();
        for (address, port) in addresses.iter().filter_map(|address| Some((*address, index.at(address)?))) {
            ports_of_hops.add(address, port);
        }
        Ok(ports_of_hops)
    }
}

impl HopPorts {
    /// Adds a port, which may have several of the addresses.
    fn add(&mut self, address: &str, port: &Port) {
        let known = self.ports.iter().position(|known| known.id == port.id);
        let at = known.unwrap_or(self.ports.len());
        if known.is_none() {
            self.ports.push(port.clone());
        }
        self.by_address.insert(address.to_owned(), at);
    }
}

/// Fails if the port belongs to another server. A trunk subport belongs to the trunk, not to a server.
fn of_server(port: &Port, hop: &Hop) -> Result<()> {
    match (table::server_of(port), &hop.server) {
        (Some(owner), Some(server)) if owner != server => {
            let address = &hop.route.nexthop;
            let message = format!("the address {address} belongs to server {owner}, not to {server}");
            Err(Error::new(ErrorKind::NotFound, CREATE, message))
        }
        _ => Ok(()),
    }
}

fn no_port(address: &str) -> Error {
    let message = format!(
        "not exactly one port in the router's networks has the address {address}, so it cannot be a next hop; attach the router of \
         [Route] in cloud.conf to the network of the nodes"
    );
    Error::new(ErrorKind::NotFound, CREATE, message)
}
