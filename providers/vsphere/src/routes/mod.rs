//! Routes: static routes of a tier-0 or tier-1 gateway, with the address of a Node as next hop.
//!
//! ```text
//!  list:   every static route of the gateway ──► those with the tag of the cluster
//!  create: one listing for the batch ──► PATCH ──► realised state, until REALIZED or ERROR
//!  delete: one listing for the batch ──► DELETE; a route that is gone already is a success
//! ```
//!
//! A listing of the gateway has no delay and only its own routes. The search of the Go manager covers the whole NSX manager, where
//! another cluster may have the same name, and lags behind.

mod gateway;
mod static_route;

use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result, Retry, RouteCapabilities, Routes};
use bowline_core::{ClusterName, IpFamily, Route, RouteSpec};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use tokio::time::{Instant, sleep};

use crate::nsx::{Listing, Nsx, Realization, Record};
use static_route::StaticRoute;

pub(crate) use gateway::Gateway;

/// Number of routes that are created with one listing.
const BATCH: usize = 32;

/// Number of concurrent calls of a batch.
const PARALLEL: usize = 8;

/// Pauses between polls of a new route, and the time for which it is polled.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(10);

/// Routes of NSX.
pub(crate) struct NsxRoutes {
    nsx: Nsx,
    gateway: Gateway,
}

impl NsxRoutes {
    pub(crate) fn new(nsx: Nsx, gateway: Gateway) -> NsxRoutes {
        NsxRoutes { nsx, gateway }
    }

    async fn table(&self) -> Result<Listing> {
        self.nsx.list("list_static_routes", &self.gateway.routes()).await
    }

    async fn create_one(&self, cluster: &ClusterName, spec: &RouteSpec, table: &Listing) -> Result<Route> {
        let wanted = StaticRoute::of(cluster, spec)?.without_ids(&table.deleted);
        match existing(cluster, &wanted, &table.objects)? {
            Some(existing) => self.realized(existing).await,
            None => {
                self.nsx.patch("patch_static_route", &self.gateway.route(&wanted.id), &wanted.body()).await?;
                self.realized(wanted).await
            }
        }
    }

    /// Waits until NSX has realised the route. A route that it cannot realise yet stays, and is checked again by the next creation.
    async fn realized(&self, route: StaticRoute) -> Result<Route> {
        let path = self.gateway.route_path(&route.id);
        let fails = |kind, message: String| Err(Error::new(kind, "create route", message).outcome_unknown());
        let (end, mut pause) = (Instant::now() + DEADLINE, FIRST_PAUSE);
        loop {
            let state = self
                .nsx
                .realization(&path)
                .await
                .map_err(|error| error.during(format!("get route {path} realized state failed")));
            match state.map_err(Error::outcome_unknown)? {
                Realization::Realized { .. } => return Ok(route.into_route()),
                Realization::Failed { message, .. } => {
                    return fails(ErrorKind::Unavailable, format!("NSX cannot realise static route {path}: {message}"));
                }
                Realization::Pending if Instant::now() + pause > end => {
                    return fails(ErrorKind::Unavailable, format!("timed out waiting for static route {path}"));
                }
                Realization::Pending => sleep(pause).await,
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Deletes a route, unless it is gone or another client has replaced it since the listing.
    async fn delete_one(&self, cluster: &ClusterName, route: &Route, table: &[Record]) -> Result<()> {
        let found = table.iter().find(|record| record.id() == route.id);
        match found.and_then(|found| StaticRoute::of_record(cluster, found)).is_some_and(|found| found.is(route)) {
            true => self.nsx.delete("delete_static_route", &self.gateway.route(&route.id)).await,
            false => Ok(()),
        }
    }
}

/// Returns the route of this cluster that leads to the same Node already. Any other route of the same destination is an error: NSX
/// would distribute the packets over both.
fn existing(cluster: &ClusterName, wanted: &StaticRoute, table: &[Record]) -> Result<Option<StaticRoute>> {
    let taken = |record: &Record| {
        let message = format!(
            "static route {} ({}) already has destination {} with next hop {}; fix: delete it, or change the pod CIDR of the Node",
            record.name(),
            record.id(),
            wanted.destination,
            static_route::next_hops(record).join(", "),
        );
        Err(Error::new(ErrorKind::AlreadyExists, "create route", message).retry(Retry::Backoff))
    };
    let mut found = None;
    for record in table.iter().filter(|record| static_route::destination(record) == Some(wanted.destination)) {
        match StaticRoute::of_record(cluster, record) {
            Some(own) if own.leads_as(wanted) => found = Some(own),
            _ => return taken(record),
        }
    }
    Ok(found)
}

#[async_trait]
impl Routes for NsxRoutes {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let own = self.table().await?.objects;
        let own = own.iter().filter_map(|record| StaticRoute::of_record(cluster, record));
        Ok(own.map(StaticRoute::into_route).collect())
    }

    async fn create(&self, cluster: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>> {
        match self.table().await.map_err(Error::not_executed) {
            Ok(table) => {
                in_parallel(routes.iter().map(|spec| self.create_one(cluster, spec, &table).boxed()).collect()).await
            }
            Err(error) => routes.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        match self.table().await.map_err(Error::not_executed) {
            Ok(table) => {
                in_parallel(
                    routes.iter().map(|route| self.delete_one(cluster, route, &table.objects).boxed()).collect(),
                )
                .await
            }
            Err(error) => routes.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// Runs the calls of a batch, and returns their results in order.
async fn in_parallel<T>(calls: Vec<BoxFuture<'_, Result<T>>>) -> Vec<Result<T>> {
    stream::iter(calls).buffered(PARALLEL).collect().await
}

/// Returns the capabilities.
pub(crate) fn capabilities() -> RouteCapabilities {
    RouteCapabilities {
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        max_routes: None,
        max_parallel: PARALLEL,
        batch: BATCH,
        marks_cluster_uid: true,
        // A next hop is an address, whether or not a machine has it.
        knows_machines: false,
    }
}
