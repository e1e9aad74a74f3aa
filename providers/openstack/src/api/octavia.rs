//! What Octavia says. Everything may be null or missing, and is then empty.

use std::collections::BTreeMap;

use bowline_cloud::Error;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Collection, Named, collection, nullable};
use crate::session::{Service, Session};

/// A load balancer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancer {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) description: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) provider: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) provisioning_status: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) vip_address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) vip_port_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) vip_subnet_id: String,
    /// Its other addresses, at the same port.
    #[serde(deserialize_with = "nullable")]
    pub(crate) additional_vips: Vec<AdditionalVip>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
}

/// One more address of a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AdditionalVip {
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_address: String,
}

/// What it listens on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Listener {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol_port: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) connection_limit: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) insert_headers: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) default_tls_container_ref: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_client_data: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_member_connect: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_member_data: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout_tcp_inspect: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) allowed_cidrs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
    /// In listings of all balancers: whose it is.
    #[serde(deserialize_with = "nullable")]
    pub(crate) loadbalancers: Vec<Named>,
}

/// Where a listener sends traffic.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) lb_algorithm: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) session_persistence: Option<SessionPersistence>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) listeners: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) loadbalancers: Vec<Named>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) healthmonitor_id: String,
}

/// Whether connections of one client stay together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SessionPersistence {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub(crate) kind: String,
}

/// A machine behind a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Member {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol_port: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) monitor_port: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subnet_id: String,
}

/// How members are watched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HealthMonitor {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) delay: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) timeout: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) max_retries: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) max_retries_down: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) url_path: String,
}

/// What makes balancers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Provider {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
}

/// A version of the interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Version {
    /// Such as `v2.26`.
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
}

const LOAD_BALANCERS: Collection =
    collection!(LoadBalancer, "loadbalancers", "loadbalancer", "loadbalancers", "loadbalancer");
const LISTENERS: Collection = collection!(LoadBalancer, "listeners", "listener", "listeners", "loadbalancer_listener");
const POOLS: Collection = collection!(LoadBalancer, "pools", "pool", "pools", "loadbalancer_pool");
const HEALTH_MONITORS: Collection =
    collection!(LoadBalancer, "healthmonitors", "healthmonitor", "healthmonitors", "loadbalancer_healthmonitor");

/// The versions that this Octavia speaks, in its order.
pub(crate) async fn versions(session: &Session) -> Result<Vec<Version>, Error> {
    session.call("version_list", Service::LoadBalancerRoot, Method::GET, &[]).list("versions").await
}

/// All balancers that fit.
pub(crate) async fn load_balancers(session: &Session, query: &[(&str, &str)]) -> Result<Vec<LoadBalancer>, Error> {
    LOAD_BALANCERS.list(session, query).await
}

/// One balancer.
pub(crate) async fn load_balancer(session: &Session, id: &str) -> Result<LoadBalancer, Error> {
    LOAD_BALANCERS.get(session, id).await
}

/// Makes a balancer, with all that the body has in it.
pub(crate) async fn create_load_balancer(session: &Session, body: &Value) -> Result<LoadBalancer, Error> {
    LOAD_BALANCERS.create(session, body).await
}

/// Changes a balancer.
pub(crate) async fn update_load_balancer(session: &Session, id: &str, body: &Value) -> Result<(), Error> {
    LOAD_BALANCERS.update(session, id, body).await
}

/// Deletes a balancer; with `cascade`, with all that hangs on it.
pub(crate) async fn delete_load_balancer(session: &Session, id: &str, cascade: bool) -> Result<(), Error> {
    let call = session.call("loadbalancer_delete", Service::LoadBalancer, Method::DELETE, &["loadbalancers", id]);
    let call = if cascade { call.query(&[("cascade", "true")]) } else { call };
    call.gone().await
}

/// All listeners that fit.
pub(crate) async fn listeners(session: &Session, query: &[(&str, &str)]) -> Result<Vec<Listener>, Error> {
    LISTENERS.list(session, query).await
}

/// Makes a listener.
pub(crate) async fn create_listener(session: &Session, body: &Value) -> Result<Listener, Error> {
    LISTENERS.create(session, body).await
}

/// Changes a listener.
pub(crate) async fn update_listener(session: &Session, id: &str, body: &Value) -> Result<(), Error> {
    LISTENERS.update(session, id, body).await
}

/// Deletes a listener.
pub(crate) async fn delete_listener(session: &Session, id: &str) -> Result<(), Error> {
    LISTENERS.delete(session, id).await
}

/// All pools that fit.
pub(crate) async fn pools(session: &Session, query: &[(&str, &str)]) -> Result<Vec<Pool>, Error> {
    POOLS.list(session, query).await
}

/// Makes a pool.
pub(crate) async fn create_pool(session: &Session, body: &Value) -> Result<Pool, Error> {
    POOLS.create(session, body).await
}

/// Changes a pool.
pub(crate) async fn update_pool(session: &Session, id: &str, body: &Value) -> Result<(), Error> {
    POOLS.update(session, id, body).await
}

/// Deletes a pool, with its members and its monitor.
pub(crate) async fn delete_pool(session: &Session, id: &str) -> Result<(), Error> {
    POOLS.delete(session, id).await
}

/// What is behind a pool.
pub(crate) async fn members(session: &Session, pool: &str) -> Result<Vec<Member>, Error> {
    let path = ["pools", pool, "members"];
    session.call("loadbalancer_member_list", Service::LoadBalancer, Method::GET, &path).list("members").await
}

/// Makes these, and no others, the members of a pool.
pub(crate) async fn set_members(session: &Session, pool: &str, members: &[Value]) -> Result<(), Error> {
    let path = ["pools", pool, "members"];
    let call = session.call("loadbalancer_members_update", Service::LoadBalancer, Method::PUT, &path);
    call.body("members", &Value::from(members.to_vec())).done().await
}

/// Adds a member to a pool.
pub(crate) async fn create_member(session: &Session, pool: &str, body: &Value) -> Result<Member, Error> {
    let path = ["pools", pool, "members"];
    let call = session.call("loadbalancer_member_create", Service::LoadBalancer, Method::POST, &path);
    call.body("member", body).read("member").await
}

/// Takes a member from a pool.
pub(crate) async fn delete_member(session: &Session, pool: &str, id: &str) -> Result<(), Error> {
    let path = ["pools", pool, "members", id];
    session.call("loadbalancer_member_delete", Service::LoadBalancer, Method::DELETE, &path).gone().await
}

/// All health monitors that fit.
pub(crate) async fn health_monitors(session: &Session, query: &[(&str, &str)]) -> Result<Vec<HealthMonitor>, Error> {
    HEALTH_MONITORS.list(session, query).await
}

/// One health monitor.
pub(crate) async fn health_monitor(session: &Session, id: &str) -> Result<HealthMonitor, Error> {
    HEALTH_MONITORS.get(session, id).await
}

/// Makes a health monitor.
pub(crate) async fn create_health_monitor(session: &Session, body: &Value) -> Result<HealthMonitor, Error> {
    HEALTH_MONITORS.create(session, body).await
}

/// Changes a health monitor.
pub(crate) async fn update_health_monitor(session: &Session, id: &str, body: &Value) -> Result<(), Error> {
    HEALTH_MONITORS.update(session, id, body).await
}

/// Deletes a health monitor.
pub(crate) async fn delete_health_monitor(session: &Session, id: &str) -> Result<(), Error> {
    HEALTH_MONITORS.delete(session, id).await
}

/// Whether there is such a flavor, by an error if there is not.
pub(crate) async fn flavor_exists(session: &Session, id: &str) -> Result<(), Error> {
    session.call("loadbalancer_flavor_get", Service::LoadBalancer, Method::GET, &["flavors", id]).done().await
}

/// Whether there is such an availability zone, by an error if there is not.
pub(crate) async fn zone_exists(session: &Session, name: &str) -> Result<(), Error> {
    let path = ["availabilityzones", name];
    session.call("loadbalancer_availabilityzone_get", Service::LoadBalancer, Method::GET, &path).done().await
}

/// Whether Octavia answers us at all.
pub(crate) async fn answers(session: &Session) -> Result<(), Error> {
    let call = session.call("loadbalancer_list", Service::LoadBalancer, Method::GET, &["loadbalancers"]);
    call.query(&[("limit", "1"), ("fields", "id")]).done().await
}

/// What makes balancers here.
pub(crate) async fn providers(session: &Session) -> Result<Vec<Provider>, Error> {
    let call = session.call("loadbalancer_provider_list", Service::LoadBalancer, Method::GET, &["providers"]);
    call.list("providers").await
}

/// How much of everything the project may have; below zero for any number.
pub(crate) async fn quotas(session: &Session, project: &str) -> Result<BTreeMap<String, Option<i64>>, Error> {
    let path = ["quotas", project];
    session.call("loadbalancer_quota_get", Service::LoadBalancer, Method::GET, &path).read("quota").await
}

/// How many the project has of a kind: `loadbalancers`, `listeners`, `pools`.
pub(crate) async fn count(session: &Session, kind: &str) -> Result<usize, Error> {
    let call = session.call("loadbalancer_count", Service::LoadBalancer, Method::GET, &[kind]);
    call.query(&[("fields", "id")]).list::<Named>(kind).await.map(|all| all.len())
}
