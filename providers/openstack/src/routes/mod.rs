//! Extra routes of one router, and allowed address pairs at the ports of their next hops.
//!
//! ```text
//!  create: ports of the next hops allow the CIDRs ──► router gets all routes ──rejected──► one by one ──rejected──► pair removed
//!  delete: pairs removed ──► routes removed
//!  list:   all routes of the router, each with the server whose port has the next hop
//! ```
//!
//! A batch reads its ports in one call, writes each port once, and writes the router once. The router is the lock of all writes:
//! the pairs of a port and, without `extraroute-atomic`, the routes of the router are read and written as a whole.
//!
//! Routes are listed from the router, so they are added last and removed last: after a crash in between, the work is incomplete and
//! is repeated. A pair without a route is harmless. A route without a pair leads to a port that drops the replies: it is listed
//! without an address of its Node, and so created again, with its pair.
//!
//! Routes have no marks. All routes of the router are listed; those with a CIDR of the cluster are ours.

mod pairs;
mod router;
mod table;

use std::collections::BTreeSet;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result, Routes};
use bowline_core::{ClusterName, Route, RouteSpec, parse_cidr};

use crate::OpenStack;
use crate::api::network::{self, ExtraRoute, Port};
use pairs::Pair;
pub(crate) use router::RouterCache;
use router::{Attachments, Change};
use table::PortIndex;

const LIST: &str = "list routes";
const CREATE: &str = "create route";
const DELETE: &str = "delete route";

/// Maximum number of next hops that are queried by address, and so of routes in a batch; for more, all ports of the networks are
/// read. Proxies reject a line of more than 8,000 bytes, and an IPv6 address takes 80.
pub(crate) const FEW_HOPS: usize = 50;

/// A route to be written.
#[derive(Debug, Clone)]
struct Hop {
    route: ExtraRoute,
    /// Server ID of the Node.
    server: Option<String>,
    /// No port has the next hop any more, so there is no pair to change.
    has_no_port: bool,
}

#[async_trait]
impl Routes for OpenStack {
    async fn list(&self, _: &ClusterName) -> Result<Vec<Route>> {
        let support = self.route_support(LIST).await?;
        let router = async {
            let router = network::ROUTERS.get(&self.session, self.router_id()?).await;
            router.map_err(|error| error.during(LIST))
        };
        let (router, attachments) = futures::try_join!(router, self.read_attachments(LIST))?;
        let hops: BTreeSet<_> = router.routes.iter().map(|route| route.nexthop.as_str()).collect();
        let ports = self.ports_with(&hops.into_iter().collect::<Vec<_>>(), &attachments.networks, LIST).await?;
        let index = PortIndex::new(&ports, &attachments.networks);
        let listed = |route: &ExtraRoute| {
            let port = index.at(&route.nexthop);
            // A port without a server is a valid next hop as well.
            let listed = self.as_route(route, port.and_then(table::server_of), port.is_none())?;
            let is_complete = !support.pairs || port.is_none_or(|port| table::allows_source(port, &route.destination));
            // Without its pair, the Node cannot reply through the route: it is listed without an address of its Node.
            Some(if is_complete { listed } else { Route { node_addresses: Some(Vec::new()), ..listed } })
        };
        let routes = router.routes.iter().filter_map(listed).collect();
        self.without_foreign(routes, &attachments).await
    }

    async fn create(&self, _: &ClusterName, specs: &[RouteSpec]) -> Vec<Result<Route>> {
        let (hops, failed) = split(specs.iter().map(|spec| self.wanted(spec)));
        let written = self.write_hops(Change::Add, &hops).await;
        let created = hops.iter().zip(written).map(|(hop, written)| written.and_then(|()| self.created(hop)));
        let created = merged(failed, created.collect());
        let of_spec = |(created, spec): (Result<Route>, &RouteSpec)| {
            created.map(|route| named(route, spec)).map_err(|error| error.context("node", spec.node.as_str()))
        };
        created.into_iter().zip(specs).map(of_spec).collect()
    }

    async fn delete(&self, _: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        let (hops, failed) = split(routes.iter().map(|route| self.listed_hop(route)));
        merged(failed, self.write_hops(Change::Remove, &hops).await)
    }

    fn lock(&self, _: &ClusterName) -> Option<String> {
        self.config.router_id.as_ref().map(|id| format!("router {id}"))
    }
}

impl OpenStack {
    /// Writes the pairs, then the routes whose pairs were written.
    async fn write_hops(&self, change: Change, hops: &[Hop]) -> Vec<Result<()>> {
        if hops.is_empty() {
            return Vec::new();
        }
        let support = match self.route_support(change.operation()).await {
            Ok(support) => support,
            Err(error) => return hops.iter().map(|_| Err(error.clone())).collect(),
        };
        let pairs = match support.pairs {
            true => self.change_pairs(change, hops).await,
            false => hops.iter().map(|_| Ok(Pair::Unchanged)).collect(),
        };
        let ready = hops.iter().zip(&pairs).map(|(hop, pair)| pair.clone().map(|_| hop.route.clone()));
        let (ready, failed) = split(ready);
        let written = merged(failed, self.write_routes(change, &ready, support).await);
        if change == Change::Add {
            self.revert_pairs(hops, &pairs, &written).await;
        }
        written
    }

    /// Returns the desired route.
    fn wanted(&self, spec: &RouteSpec) -> Result<Hop> {
        let server = spec.provider_id.as_ref().map(|id| self.ids().read(id)).transpose()?;
        let destination = spec.destination.trunc();
        let Some(nexthop) = table::next_hop(&spec.node_addresses, destination) else {
            let message = format!("no address: the Node has no InternalIP of the IP family of {destination}");
            return Err(Error::new(ErrorKind::InvalidConfig, CREATE, message));
        };
        let route = ExtraRoute { destination: destination.to_string(), nexthop: nexthop.to_owned() };
        Ok(Hop { route, server, has_no_port: false })
    }

    fn created(&self, hop: &Hop) -> Result<Route> {
        self.as_route(&hop.route, hop.server.as_deref(), hop.server.is_none()).ok_or_else(|| unreadable(&hop.route))
    }

    fn listed_hop(&self, route: &Route) -> Result<Hop> {
        let server = route.provider_id.as_ref().and_then(|id| self.ids().read(id).ok());
        Ok(Hop { route: table::parse_id(&route.id)?, server, has_no_port: route.blackhole })
    }

    /// Reads the ports of these networks with one of these addresses, and possibly others.
    async fn ports_with(&self, addresses: &[&str], networks: &[String], operation: &str) -> Result<Vec<Port>> {
        if addresses.is_empty() || networks.is_empty() {
            return Ok(Vec::new());
        }
        let addresses: Vec<_> = addresses.iter().map(|address| format!("ip_address={address}")).collect();
        let few =
            addresses.iter().filter(|_| addresses.len() <= FEW_HOPS).map(|address| ("fixed_ips", address.as_str()));
        let query: Vec<_> = few.chain(networks.iter().map(|id| ("network_id", id.as_str()))).collect();
        network::PORTS.list(&self.session, &query).await.map_err(|error| error.during(operation))
    }

    /// Converts a route of the router; `None` if its CIDR is invalid.
    fn as_route(&self, route: &ExtraRoute, server: Option<&str>, blackhole: bool) -> Option<Route> {
        let Some(destination) = parse_cidr(&route.destination) else {
            tracing::warn!(?route, "the router has a route with an invalid CIDR, which is ignored");
            return None;
        };
        Some(Route {
            id: table::id(route),
            node: None,
            provider_id: server.map(|server| self.ids().write(server)),
            node_addresses: None,
            next_hop: table::parsed(&route.nexthop),
            destination,
            blackhole,
            stamped: false,
            cluster_uid: None,
        })
    }

    /// Removes routes without a port whose next hop is in none of the router's subnets: they were created by another client.
    async fn without_foreign(&self, mut routes: Vec<Route>, attachments: &Attachments) -> Result<Vec<Route>> {
        if routes.iter().any(|route| route.blackhole) {
            let ranges = self.attached_cidrs(attachments, LIST).await?;
            let is_attached =
                |route: &Route| route.next_hop.is_some_and(|hop| ranges.iter().any(|near| near.contains(&hop)));
            routes.retain(|route| !route.blackhole || is_attached(route));
        }
        Ok(routes)
    }
}

/// A Node without a provider ID is identified by its name.
fn named(route: Route, spec: &RouteSpec) -> Route {
    match spec.provider_id {
        Some(_) => route,
        None => Route { node: Some(spec.node.clone()), blackhole: false, ..route },
    }
}

/// Separates the items of a batch from the errors.
fn split<T>(all: impl Iterator<Item = Result<T>>) -> (Vec<T>, Vec<Option<Error>>) {
    let mut good = Vec::new();
    let failed = all.map(|one| one.map(|one| good.push(one)).err()).collect();
    (good, failed)
}

/// Inserts the errors of [`split`] into the results of the batch.
fn merged<T>(failed: Vec<Option<Error>>, answers: Vec<Result<T>>) -> Vec<Result<T>> {
    let mut answers = answers.into_iter();
    failed.into_iter().filter_map(|failed| failed.map(Err).or_else(|| answers.next())).collect()
}

/// Returns whether Neutron rejects one route or pair of a batch, rather than every call.
fn is_about_one(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidConfig | ErrorKind::QuotaExceeded | ErrorKind::AlreadyExists)
}

fn unreadable(route: &ExtraRoute) -> Error {
    Error::new(ErrorKind::Unexpected, CREATE, format!("the created route has an invalid CIDR: {route:?}"))
}
