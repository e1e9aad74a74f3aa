//! What Octavia says. Everything may be null or missing, and is then empty.

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
        /// Its other addresses, at the same port.
        additional_vips: Vec<AdditionalVip>,
        tags: Vec<String>,
    }

    /// One more address of a balancer.
    AdditionalVip { ip_address: String, }

    /// What it listens on.
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
        /// In listings of all balancers: whose it is.
        loadbalancers: Vec<Named>,
    }

    /// Where a listener sends traffic.
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

    /// Whether connections of one client stay together.
    SessionPersistence { kind: String = "type", }

    /// A machine behind a pool.
    Member {
        id: String,
        name: String,
        address: String,
        protocol_port: u16,
        monitor_port: u16,
        subnet_id: String,
    }

    /// How members are watched.
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

    /// What makes balancers.
    Provider { name: String, }

    /// A version of the interface.
    Version {
        /// Such as `v2.26`.
        id: String,
    }
}

pub(crate) const LOAD_BALANCERS: Collection<LoadBalancer> =
    collection!(LoadBalancer, "load balancer", "loadbalancers", "loadbalancer", "loadbalancers", "loadbalancer");
pub(crate) const LISTENERS: Collection<Listener> =
    collection!(LoadBalancer, "listener", "listeners", "listener", "listeners", "loadbalancer_listener");
pub(crate) const POOLS: Collection<Pool> =
    collection!(LoadBalancer, "pool", "pools", "pool", "pools", "loadbalancer_pool");
pub(crate) const HEALTH_MONITORS: Collection<HealthMonitor> = collection!(
    LoadBalancer,
    "health monitor",
    "healthmonitors",
    "healthmonitor",
    "healthmonitors",
    "loadbalancer_healthmonitor"
);

/// The versions that this Octavia speaks, in its order.
pub(crate) async fn versions(session: &Session) -> Result<Vec<Version>, Error> {
    session.call("version_list", Service::LoadBalancerRoot, Method::GET, &[]).list("versions").await
}

/// Deletes a balancer; with `cascade`, with all that hangs on it.
pub(crate) async fn delete_load_balancer(session: &Session, id: &str, cascade: bool) -> Result<(), Error> {
    let call = session.call("loadbalancer_delete", Service::LoadBalancer, Method::DELETE, &["loadbalancers", id]);
    let call = if cascade { call.query(&[("cascade", "true")]) } else { call };
    call.gone().await
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
