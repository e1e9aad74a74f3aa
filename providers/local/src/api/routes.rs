//! Routes over the API: what users ask and order, and what the owner does.

use std::collections::BTreeMap;

use bowline_core::{Address, ClusterName, NodeName};
use bytes::Bytes;
use http::Method;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::cloud::{LocalCloud, World};
use crate::kernel::RouteProblem;
use crate::routes::{self, RouteRecord};

use super::instances::Key;
use super::reply::{Outcome, Refusal, done, good, made, parse};
use super::users::{look, order};
use super::{Place, Query};

/// Whose routes to show.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRoutesRequest {
    pub(crate) cluster: ClusterName,
}

/// All routes of a cluster, by range.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListRoutesReply {
    pub(crate) routes: Vec<RouteView>,
}

/// A route as the cloud's users see it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouteView {
    pub(crate) route: RouteRecord,
    /// What the machine is called; nothing if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine_name: Option<String>,
}

/// Which range to lead to which machine. The route carries the cluster's mark.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateRouteRequest {
    pub(crate) cluster: ClusterName,
    pub(crate) machine: Key,
    /// For which node.
    pub(crate) node: NodeName,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) destination: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) addresses: Option<Vec<Address>>,
    /// The asker wants no more than so many routes in its table, even if the cloud would have room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster_uid: Option<String>,
}

/// Which route to remove.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteRouteRequest {
    pub(crate) cluster: ClusterName,
    pub(crate) id: String,
}

/// The routes of all clusters that have any, or of one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RouteTablesReply {
    pub(crate) tables: BTreeMap<String, Vec<RouteRecord>>,
    /// What keeps the kernel's routes from being what the tables say.
    #[serde(default)]
    pub(crate) problems: Vec<RouteProblem>,
}

// ---- calls of the cloud's users

pub(super) async fn list(cloud: &LocalCloud, asked: ListRoutesRequest) -> Outcome {
    let show =
        |world: Option<&World>| good(&ListRoutesReply { routes: cloud.list_routes(world, asked.cluster.as_str()) });
    look(cloud, routes::LIST, show, || good(&ListRoutesReply { routes: Vec::new() })).await
}

pub(super) async fn create(cloud: &LocalCloud, asked: CreateRouteRequest) -> Outcome {
    order(cloud, routes::CREATE, async { good(&cloud.lead(asked)?) }).await
}

pub(super) async fn delete(cloud: &LocalCloud, asked: DeleteRouteRequest) -> Outcome {
    order(cloud, routes::DELETE, async { done(cloud.remove_route(asked.cluster.as_str(), &asked.id)) }).await
}

// ---- the owner's

/// What is done at a place of routes.
pub(super) fn manage(cloud: &LocalCloud, method: &Method, place: &Place<'_>, query: &Query, body: &Bytes) -> Outcome {
    match (method, place) {
        (&Method::GET, Place::Routes) => {
            good(&RouteTablesReply { tables: tables(cloud, query), problems: cloud.route_problems() })
        }
        (&Method::POST, Place::Routes) => made(&cloud.add_route(cluster(query)?, parse(body)?)?),
        (&Method::DELETE, Place::Route(id)) => done(cloud.remove_route(cluster(query)?, id)),
        (method, place) => Err(Refusal::wrong_method(method, place.methods())),
    }
}

fn tables(cloud: &LocalCloud, query: &Query) -> BTreeMap<String, Vec<RouteRecord>> {
    match &query.cluster {
        Some(cluster) => [(cluster.clone(), cloud.routes(cluster))].into(),
        None => cloud.route_tables(),
    }
}

fn cluster(query: &Query) -> Result<&str, Refusal> {
    let missing = || Refusal::invalid("cluster=NAME is wanted: every cluster has a table of its own".to_owned());
    query.cluster.as_deref().ok_or_else(missing)
}
