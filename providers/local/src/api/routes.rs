//! API of routes: user calls and management calls.

use std::collections::BTreeMap;

use bowline_agent::RouteProblem;
use bowline_core::{Address, ClusterName, NodeName};
use bytes::Bytes;
use http::Method;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::cloud::{LocalCloud, World};
use crate::routes::{self, RouteRecord};

use super::instances::Key;
use super::reply::{ApiError, ApiResult, created, empty, ok, parse};
use super::users::{read, write};
use super::{Resource, UrlQuery};

/// Cluster whose routes are listed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRoutesRequest {
    pub(crate) cluster: ClusterName,
}

/// All routes of a cluster, by destination.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListRoutesReply {
    pub(crate) routes: Vec<RouteView>,
}

/// Route with the name of its machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouteView {
    pub(crate) route: RouteRecord,
    /// Name of the machine; `None` if it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine_name: Option<String>,
}

/// Route to create. It carries the mark of the cluster.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateRouteRequest {
    pub(crate) cluster: ClusterName,
    pub(crate) machine: Key,
    /// Node of the route.
    pub(crate) node: NodeName,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) destination: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) addresses: Option<Vec<Address>>,
    /// Maximum number of routes in the table that the client accepts, in addition to the limit of the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster_uid: Option<String>,
}

/// Route to delete.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteRouteRequest {
    pub(crate) cluster: ClusterName,
    pub(crate) id: String,
}

/// Route tables of all clusters, or of one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RouteTablesReply {
    pub(crate) tables: BTreeMap<String, Vec<RouteRecord>>,
    /// Kernel routes that differ from the tables.
    #[serde(default)]
    pub(crate) problems: Vec<RouteProblem>,
}

// ---- user calls

pub(super) async fn list(cloud: &LocalCloud, request: ListRoutesRequest) -> ApiResult {
    let show =
        |world: Option<&World>| ok(&ListRoutesReply { routes: cloud.list_routes(world, request.cluster.as_str()) });
    read(cloud, routes::LIST, show, || ok(&ListRoutesReply { routes: Vec::new() })).await
}

pub(super) async fn create(cloud: &LocalCloud, request: CreateRouteRequest) -> ApiResult {
    write(cloud, routes::CREATE, async { ok(&cloud.create_route(request)?) }).await
}

pub(super) async fn delete(cloud: &LocalCloud, request: DeleteRouteRequest) -> ApiResult {
    write(cloud, routes::DELETE, async { empty(cloud.remove_route(request.cluster.as_str(), &request.id)) }).await
}

// ---- management calls

/// Management calls for routes.
pub(super) fn manage(
    cloud: &LocalCloud,
    method: &Method,
    resource: &Resource<'_>,
    query: &UrlQuery,
    body: &Bytes,
) -> ApiResult {
    match (method, resource) {
        (&Method::GET, Resource::Routes) => {
            ok(&RouteTablesReply { tables: tables(cloud, query), problems: cloud.route_problems() })
        }
        (&Method::POST, Resource::Routes) => created(&cloud.add_route(cluster(query)?, parse(body)?)?),
        (&Method::DELETE, Resource::Route(id)) => empty(cloud.remove_route(cluster(query)?, id)),
        (method, resource) => Err(ApiError::wrong_method(method, resource.methods())),
    }
}

fn tables(cloud: &LocalCloud, query: &UrlQuery) -> BTreeMap<String, Vec<RouteRecord>> {
    match &query.cluster {
        Some(cluster) => [(cluster.clone(), cloud.routes(cluster))].into(),
        None => cloud.route_tables(),
    }
}

fn cluster(query: &UrlQuery) -> Result<&str, ApiError> {
    let missing = || {
        ApiError::invalid("the query parameter cluster=NAME is required: every cluster has its own table".to_owned())
    };
    query.cluster.as_deref().ok_or_else(missing)
}
