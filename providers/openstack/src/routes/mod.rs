//! Extra routes of one router, and allowed address pairs at the ports that they lead to.
//!
//! ```text
//!  create: port of ADDRESS lets RANGE out ──► router gets RANGE via ADDRESS ──refused──► the pair goes again
//!  delete: the pair goes ──► the route goes
//!  list:   all routes of the router, each with the server whose port has the next hop
//! ```
//!
//! The router's route is what is listed, so it comes last and goes last: whoever is killed in between finds the work undone,
//! and does it again. A pair without a route harms nobody, a route without a pair leads to a port that drops what comes back: it
//! is listed as one that leads to no address of its Node, and so made anew, with its pair.
//!
//! Routes carry no marks. All of the router's are listed, and those are ours whose range is one of the cluster's.

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
use router::Beside;
pub(crate) use router::RouterMemory;
use table::Neighbours;

const LIST: &str = "list routes";
const CREATE: &str = "create route";
const DELETE: &str = "delete route";

/// So many next hops are looked up by address; with more of them, the whole networks are read. Proxies refuse a line of more
/// than 8,000 bytes, and an address of IPv6 takes 80.
const FEW_HOPS: usize = 50;

#[async_trait]
impl Routes for OpenStack {
    async fn list(&self, _: &ClusterName) -> Result<Vec<Route>> {
        let support = self.route_support(LIST).await?;
        let router = async {
            let router = network::router(&self.session, self.router_id()?).await;
            router.map_err(|error| error.during(LIST))
        };
        let (router, beside) = futures::try_join!(router, self.look_beside_router(LIST))?;
        let hops: BTreeSet<_> = router.routes.iter().map(|route| route.nexthop.as_str()).collect();
        let ports = self.ports_beside(&hops.into_iter().collect::<Vec<_>>(), &beside.networks, LIST).await?;
        let neighbours = Neighbours::new(&ports, &beside.networks);
        let listed = |route: &ExtraRoute| {
            let port = neighbours.at(&route.nexthop);
            let listed = self.as_route(route, port.and_then(table::server_of))?;
            let is_whole = !support.pairs || port.is_none_or(|port| table::lets_out(port, &route.destination));
            Some(if is_whole { listed } else { unfit(listed) })
        };
        let routes = router.routes.iter().filter_map(listed).collect();
        self.without_distant(routes, &beside).await
    }

    async fn create(&self, _: &ClusterName, spec: &RouteSpec) -> Result<Route> {
        let told = |error: Error| error.context("node", spec.node.as_str());
        let server = self.server_of_spec(spec).map_err(told)?;
        let route = wanted(spec).map_err(told)?;
        let support = self.route_support(CREATE).await?;
        let allowed = match support.pairs {
            true => self.allow(&route, server.as_deref(), CREATE).await.map_err(told)?,
            false => Pair::AsItWas,
        };
        if let Err(error) = self.add_route(&route, support, CREATE).await {
            // Without an answer the route may be there, and needs its pair.
            if allowed == Pair::Added && error.kind().is_refusal() {
                self.take_back(&route, server.as_deref()).await;
            }
            return Err(told(error));
        }
        let made = self.as_route(&route, server.as_deref());
        made.map(|made| named(made, spec)).ok_or_else(|| told(unreadable(&route)))
    }

    async fn delete(&self, _: &ClusterName, route: &Route) -> Result<()> {
        let gone = table::parse_id(&route.id)?;
        let support = self.route_support(DELETE).await?;
        if support.pairs && !route.blackhole {
            let server = route.provider_id.as_ref().and_then(|id| self.ids().read(id).ok());
            self.disallow(&gone, server.as_deref(), DELETE).await?;
        }
        self.remove_route(&gone, support, DELETE).await
    }
}

impl OpenStack {
    /// The server that the Node says it is.
    fn server_of_spec(&self, spec: &RouteSpec) -> Result<Option<String>> {
        spec.provider_id.as_ref().map(|id| self.ids().read(id)).transpose()
    }

    /// Ports of these networks that have one of these addresses, and perhaps others.
    async fn ports_beside(&self, addresses: &[&str], networks: &[String], operation: &str) -> Result<Vec<Port>> {
        if addresses.is_empty() || networks.is_empty() {
            return Ok(Vec::new());
        }
        let addresses: Vec<_> = addresses.iter().map(|address| format!("ip_address={address}")).collect();
        let few =
            addresses.iter().filter(|_| addresses.len() <= FEW_HOPS).map(|address| ("fixed_ips", address.as_str()));
        let query: Vec<_> = few.chain(networks.iter().map(|id| ("network_id", id.as_str()))).collect();
        network::ports(&self.session, &query).await.map_err(|error| error.during(operation))
    }

    /// A route of the router in the words of the contract; `None` if its range makes no sense.
    fn as_route(&self, route: &ExtraRoute, server: Option<&str>) -> Option<Route> {
        let Some(destination) = parse_cidr(&route.destination) else {
            tracing::warn!(?route, "the router has a route whose range is not understood; it is left alone");
            return None;
        };
        Some(Route {
            id: table::id(route),
            node: None,
            provider_id: server.map(|server| self.ids().write(server)),
            node_addresses: None,
            next_hop: table::parsed(&route.nexthop),
            destination,
            blackhole: server.is_none(),
            stamped: false,
        })
    }

    /// Without those that lead nowhere and never led to a machine beside the router: somebody else has made them.
    async fn without_distant(&self, mut routes: Vec<Route>, beside: &Beside) -> Result<Vec<Route>> {
        if routes.iter().any(|route| route.blackhole) {
            let ranges = self.ranges_beside_router(beside, LIST).await?;
            let is_near =
                |route: &Route| route.next_hop.is_some_and(|hop| ranges.iter().any(|near| near.contains(&hop)));
            routes.retain(|route| !route.blackhole || is_near(route));
        }
        Ok(routes)
    }
}

/// A route whose Node cannot answer through it.
fn unfit(route: Route) -> Route {
    match route.blackhole {
        true => route,
        false => Route { node_addresses: Some(Vec::new()), ..route },
    }
}

/// The route that this asks for.
fn wanted(spec: &RouteSpec) -> Result<ExtraRoute> {
    let destination = spec.destination.trunc();
    let Some(hop) = table::next_hop(&spec.node_addresses, destination) else {
        let message = format!("no address: the node has no InternalIP of the family of {destination}");
        return Err(Error::new(ErrorKind::InvalidConfig, CREATE, message));
    };
    Ok(ExtraRoute { destination: destination.to_string(), nexthop: hop.to_owned() })
}

/// A Node that does not say which server it is is known by its name.
fn named(route: Route, spec: &RouteSpec) -> Route {
    match spec.provider_id {
        Some(_) => route,
        None => Route { node: Some(spec.node.clone()), blackhole: false, ..route },
    }
}

fn unreadable(route: &ExtraRoute) -> Error {
    Error::new(ErrorKind::Unexpected, CREATE, format!("what was made is not understood: {route:?}"))
}
