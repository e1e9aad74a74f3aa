//! Model of the Octavia state after a step, as far as plans depend on it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::change::{Change, ListenerRef, Payload, PoolRef, TagChange};
use super::super::observation::{Found, Observation, PoolState};
use crate::api::network::FloatingIp;
use crate::api::octavia::{
    HEALTH_MONITORS, HealthMonitor, LISTENERS, LOAD_BALANCERS, Listener, LoadBalancer, Member, POOLS, Pool,
};
use crate::api::{Named, Resource};

/// Applies a step.
pub(super) fn apply(seen: &mut Observation, payload: Payload) {
    match payload.change {
        Change::CreateLoadBalancer { body } => create_balancer(seen, &body),
        Change::CreateListener { body, .. } => drop(create_listener(seen, &body)),
        Change::CreatePool { listener, body } => {
            let listener = listener_id(seen, &listener);
            assert!(pool_of(seen, &listener).is_none(), "Octavia has one pool for a listener");
            create_pool(seen, listener, &body);
        }
        Change::SetMembers { pool: reference, members } => {
            let members = members.iter().map(member).collect();
            let id = pool_id(seen, &reference);
            pool(seen, &id).members = members;
        }
        Change::CreateMember { pool: reference, body } => {
            let id = pool_id(seen, &reference);
            pool(seen, &id).members.push(member(&body));
        }
        Change::DeleteMember { pool: of, id } => pool(seen, &of).members.retain(|one| one.id != id),
        Change::CreateMonitor { pool: reference, body } => {
            let id = pool_id(seen, &reference);
            pool(seen, &id).monitor = Some(monitor(&id, &body));
        }
        Change::Update { resource, id, body, tags } => update(seen, resource, &id, &body, &tags),
        Change::Delete { resource, id } => delete(seen, resource, &id),
        Change::CreateFloatingIp { body, .. } => {
            let mut created: FloatingIp = read(&body);
            created.id = "fip".to_owned();
            created.floating_ip_address = "203.0.113.10".to_owned();
            seen.floating.attached = Some(created);
        }
        other => panic!("the model does not support the step {other:?}"),
    }
}

fn update(seen: &mut Observation, resource: Resource, id: &str, body: &Value, tags: &TagChange) {
    if resource == LOAD_BALANCERS.resource {
        let balancer = balancer(seen);
        merge(balancer, body);
        balancer.tags = tags.applied_to(&balancer.tags);
    } else if resource == LISTENERS.resource {
        let listener = find(&mut seen.listeners, |one| one.id == id);
        merge(listener, body);
        listener.tags = if tags.is_empty() { listener.tags.clone() } else { tags.applied_to(&listener.tags) };
    } else if resource == POOLS.resource {
        merge(&mut pool(seen, id).pool, body);
    } else if resource == HEALTH_MONITORS.resource {
        let monitors = seen.pools.iter_mut().filter_map(|one| one.monitor.as_mut());
        merge(monitors.into_iter().find(|one| one.id == id).unwrap(), body);
    } else {
        panic!("the model does not update {resource:?}");
    }
}

fn delete(seen: &mut Observation, resource: Resource, id: &str) {
    if resource == LISTENERS.resource {
        seen.listeners.retain(|one| one.id != id);
    } else if resource == POOLS.resource {
        seen.pools.retain(|one| one.pool.id != id);
    } else if resource == HEALTH_MONITORS.resource {
        let has_it = |one: &&mut PoolState| one.monitor.as_ref().is_some_and(|monitor| monitor.id == id);
        seen.pools.iter_mut().find(has_it).unwrap().monitor = None;
    } else {
        panic!("the model does not delete {resource:?}");
    }
}

fn create_balancer(seen: &mut Observation, body: &Value) {
    let mut created: LoadBalancer = read(body);
    created.id = "lb".to_owned();
    created.provisioning_status = "ACTIVE".to_owned();
    created.vip_port_id = "vip-port".to_owned();
    if created.vip_address.is_empty() {
        created.vip_address = "10.0.0.100".to_owned();
    }
    seen.found = Found::One { balancer: Box::new(created), by_id: false, adopted: false, fresh: false };
    for tree in body["listeners"].as_array().into_iter().flatten() {
        let listener = create_listener(seen, tree);
        let default_pool = &tree["default_pool"];
        let id = create_pool(seen, listener, default_pool);
        let pool = pool(seen, &id);
        pool.members = default_pool["members"].as_array().into_iter().flatten().map(member).collect();
        pool.monitor = default_pool.get("healthmonitor").map(|body| monitor(&id, body));
    }
}

fn create_listener(seen: &mut Observation, body: &Value) -> String {
    let mut created: Listener = read(body);
    created.id = format!("listener-{}-{}", created.protocol, created.protocol_port);
    let family =
        |protocol: &str| if matches!(protocol, "UDP" | "SCTP") { protocol.to_owned() } else { "TCP".to_owned() };
    let place = |one: &Listener| (family(&one.protocol), one.protocol_port);
    let is_used = seen.listeners.iter().any(|one| place(one) == place(&created));
    assert!(!is_used, "Octavia has one listener for a port: {created:?}");
    let id = created.id.clone();
    seen.listeners.push(created);
    id
}

fn create_pool(seen: &mut Observation, listener: String, body: &Value) -> String {
    let mut pool: Pool = read(body);
    pool.id = format!("pool-of-{listener}");
    pool.listeners = vec![Named { id: listener }];
    let id = pool.id.clone();
    seen.pools.push(PoolState { pool, members: Vec::new(), monitor: None });
    id
}

fn member(body: &Value) -> Member {
    let created: Member = read(body);
    Member { id: format!("member-{}-{}", created.address, created.protocol_port), ..created }
}

fn monitor(pool: &str, body: &Value) -> HealthMonitor {
    HealthMonitor { id: format!("monitor-of-{pool}"), ..read(body) }
}

// ---- lookups

fn balancer(seen: &mut Observation) -> &mut LoadBalancer {
    match &mut seen.found {
        Found::One { balancer, .. } => balancer,
        other => panic!("no load balancer: {other:?}"),
    }
}

fn listener_id(seen: &Observation, reference: &ListenerRef) -> String {
    match reference {
        ListenerRef::Id(id) => id.clone(),
        ListenerRef::At { protocol, port } => {
            let at = |one: &&Listener| one.protocol == *protocol && one.protocol_port == *port;
            seen.listeners.iter().find(at).unwrap().id.clone()
        }
    }
}

fn pool_of(seen: &Observation, listener: &str) -> Option<String> {
    let of = |one: &&PoolState| one.pool.listeners.iter().any(|of| of.id == listener);
    seen.pools.iter().find(of).map(|one| one.pool.id.clone())
}

fn pool_id(seen: &Observation, reference: &PoolRef) -> String {
    match reference {
        PoolRef::Id(id) => id.clone(),
        PoolRef::Of(listener) => pool_of(seen, &listener_id(seen, listener)).unwrap(),
    }
}

fn pool<'a>(seen: &'a mut Observation, id: &str) -> &'a mut PoolState {
    find(&mut seen.pools, |one| one.pool.id == id)
}

fn find<T>(all: &mut [T], is_it: impl Fn(&T) -> bool) -> &mut T {
    all.iter_mut().find(|one| is_it(one)).unwrap()
}

// ---- bodies

fn read<T: DeserializeOwned>(body: &Value) -> T {
    let mut body = body.clone();
    // Only the fields of the resource itself, without its parts.
    body.as_object_mut()
        .unwrap()
        .retain(|key, _| !matches!(key.as_str(), "listeners" | "default_pool" | "healthmonitor"));
    serde_json::from_value(body).unwrap()
}

fn merge<T: Serialize + DeserializeOwned>(thing: &mut T, body: &Value) {
    let mut merged = json!(thing);
    merged.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    *thing = serde_json::from_value(merged).unwrap();
}
