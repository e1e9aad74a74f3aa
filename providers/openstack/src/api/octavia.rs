//! Octavia records and calls. Fields that are null or missing are empty.

use std::collections::BTreeMap;

use bowline_cloud::Error;
use http::Method;
use serde_json::Value;

use super::{Collection, Named, collection, record};
use crate::session::{Service, Session};

record! {
    /// A load balancer.
    LoadBalancer {
        id: String,
        name: String,
        description: String,
        provider: String,
        provisioning_status: String,
        vip_address: String,
        vip_port_id: String,
        vip_subnet_id: String,
        /// Further VIPs at the same port.
        additional_vips: Vec<AdditionalVip>,
        tags: Vec<String>,
    }

    /// A further VIP.
    AdditionalVip { ip_address: String, }

    /// A listener.
    Listener {
        id: String,
        name: String,
        protocol: String,
        protocol_port: u16,
        connection_limit: i64,
        insert_headers: BTreeMap<String, String>,
        default_tls_container_ref: String,
        timeout_client_data: i64,
        timeout_member_connect: i64,
        timeout_member_data: i64,
        timeout_tcp_inspect: i64,
        allowed_cidrs: Vec<String>,
        tags: Vec<String>,
        /// In project listings: the load balancer.
        loadbalancers: Vec<Named>,
    }

    /// A pool.
    Pool {
        id: String,
        name: String,
        protocol: String,
        lb_algorithm: String,
        session_persistence: Option<SessionPersistence>,
        listeners: Vec<Named>,
        loadbalancers: Vec<Named>,
        healthmonitor_id: String,
    }

    /// Session persistence of a pool.
    SessionPersistence { kind: String = "type", }

    /// A member of a pool.
    Member {
        id: String,
        name: String,
        address: String,
        protocol_port: u16,
        monitor_port: u16,
        subnet_id: String,
    }

    /// A health monitor.
    HealthMonitor {
        id: String,
        name: String,
        kind: String = "type",
        delay: i64,
        timeout: i64,
        max_retries: i64,
        max_retries_down: i64,
        url_path: String,
    }

    /// An Octavia provider.
    Provider { name: String, }

    /// An API version.
    Version {
        /// Such as `v2.26`.
        id: String,
    }
}

pub(crate) const LOAD_BALANCERS: Collection<LoadBalancer> =
    collection!(LoadBalancer, "load balancer", "loadbalancer", "loadbalancer");
pub(crate) const LISTENERS: Collection<Listener> =
    collection!(LoadBalancer, "listener", "listener", "loadbalancer_listener");
pub(crate) const POOLS: Collection<Pool> = collection!(LoadBalancer, "pool", "pool", "loadbalancer_pool");
pub(crate) const HEALTH_MONITORS: Collection<HealthMonitor> =
    collection!(LoadBalancer, "health monitor", "healthmonitor", "loadbalancer_healthmonitor");

/// Lists the API versions.
pub(crate) async fn versions(session: &Session) -> Result<Vec<Version>, Error> {
    session.call("version_list", Service::LoadBalancerRoot, Method::GET, &[]).list("versions").await
}

/// Deletes a load balancer; with `cascade`, including all its parts.
pub(crate) async fn delete_load_balancer(session: &Session, id: &str, cascade: bool) -> Result<(), Error> {
    let call = session.call("loadbalancer_delete", Service::LoadBalancer, Method::DELETE, &["loadbalancers", id]);
    let call = if cascade { call.query(&[("cascade", "true")]) } else { call };
    call.send_delete().await
}

/// Lists the members of a pool.
pub(crate) async fn members(session: &Session, pool: &str) -> Result<Vec<Member>, Error> {
    let path = ["pools", pool, "members"];
    session.call("loadbalancer_member_list", Service::LoadBalancer, Method::GET, &path).list("members").await
}

/// Replaces all members of a pool.
pub(crate) async fn set_members(session: &Session, pool: &str, members: &[Value]) -> Result<(), Error> {
    let path = ["pools", pool, "members"];
    let call = session.call("loadbalancer_members_update", Service::LoadBalancer, Method::PUT, &path);
    call.body("members", &Value::from(members.to_vec())).send().await
}

/// Adds a member to a pool.
pub(crate) async fn create_member(session: &Session, pool: &str, body: &Value) -> Result<Member, Error> {
    let path = ["pools", pool, "members"];
    let call = session.call("loadbalancer_member_create", Service::LoadBalancer, Method::POST, &path);
    call.body("member", body).read("member").await
}

/// Removes a member from a pool.
pub(crate) async fn delete_member(session: &Session, pool: &str, id: &str) -> Result<(), Error> {
    let path = ["pools", pool, "members", id];
    session.call("loadbalancer_member_delete", Service::LoadBalancer, Method::DELETE, &path).send_delete().await
}

/// Fails if the flavor does not exist.
pub(crate) async fn flavor_exists(session: &Session, id: &str) -> Result<(), Error> {
    session.call("loadbalancer_flavor_get", Service::LoadBalancer, Method::GET, &["flavors", id]).send().await
}

/// Fails if the availability zone does not exist.
pub(crate) async fn zone_exists(session: &Session, name: &str) -> Result<(), Error> {
    let path = ["availabilityzones", name];
    session.call("loadbalancer_availabilityzone_get", Service::LoadBalancer, Method::GET, &path).send().await
}

/// Lists the Octavia providers.
pub(crate) async fn providers(session: &Session) -> Result<Vec<Provider>, Error> {
    let call = session.call("loadbalancer_provider_list", Service::LoadBalancer, Method::GET, &["providers"]);
    call.list("providers").await
}

/// Reads the limits of the project; negative for no limit.
pub(crate) async fn quotas(session: &Session, project: &str) -> Result<BTreeMap<String, Option<i64>>, Error> {
    let path = ["quotas", project];
    session.call("loadbalancer_quota_get", Service::LoadBalancer, Method::GET, &path).read("quota").await
}

/// Counts the resources of a kind in the project: `loadbalancers`, `listeners`, `pools`.
pub(crate) async fn count(session: &Session, kind: &str) -> Result<usize, Error> {
    let call = session.call("loadbalancer_count", Service::LoadBalancer, Method::GET, &[kind]);
    call.query(&[("fields", "id")]).list::<Named>(kind).await.map(|all| all.len())
}
