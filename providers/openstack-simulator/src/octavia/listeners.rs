//! Listeners.

use serde_json::{Value, json};

use super::{change, checks, fault, not_found, owner_of, pools, quotas, sent, skeletons, view, work};
use crate::records::{Fields, Kind, Record, object};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    let mut sent = sent(call, Kind::Listener)?;
    checks::new_fields(state, Kind::Listener, &sent)?;
    let balancer = take_load_balancer_id(&mut sent)?;
    state.records.get(Kind::LoadBalancer, &balancer).ok_or_else(|| not_found(Kind::LoadBalancer, &balancer))?;
    checks::listener(state, &sent, &provider(state, &balancer))?;
    check_port(state, &balancer, &sent)?;
    work::check_mutable(state, &balancer, (Kind::LoadBalancer, &balancer))?;
    quotas::check(state, Kind::Listener, 1)?;
    let before = state.records.clone();
    let listener = add(state, &balancer, sent).inspect_err(|_| state.records = before)?;
    work::begin(state, &balancer, &[], "PENDING_CREATE");
    Ok(Reply::one(201, "listener", view(state, Kind::Listener, &listener)))
}

fn take_load_balancer_id(sent: &mut Record) -> Result<String, Reply> {
    let missing =
        || fault(400, "Invalid input for field/attribute loadbalancer_id. Value: 'None'. Mandatory field missing.");
    sent.remove("loadbalancer_id").and_then(|id| id.as_str().map(str::to_owned)).ok_or_else(missing)
}

/// Octavia provider of the load balancer.
pub(super) fn provider(state: &State, balancer: &str) -> String {
    state.records.get(Kind::LoadBalancer, balancer).map_or("", |found| found.text("provider")).to_owned()
}

/// Creates a listener, with its default pool if the request has one.
pub(super) fn add(state: &mut State, balancer: &str, mut sent: Record) -> Result<Record, Reply> {
    check_port(state, balancer, &sent)?;
    checks::headers(&sent, sent.text("protocol"))?;
    checks::certificate(state, &sent)?;
    let pool = sent.remove("default_pool").map(object);
    let mut listener = skeletons::new(state, Kind::Listener);
    listener.extend(sent);
    if let Some(pool) = pool {
        listener.set("updated_at", state.without_zone());
        listener.set("default_pool_id", default_pool(state, balancer, listener.text("protocol"), pool)?);
    }
    state.records.of_mut(Kind::Listener).insert(balancer, listener.clone());
    Ok(listener)
}

/// Returns the ID of the listener's default pool: a new pool, or a pool of the same request by its name.
fn default_pool(state: &mut State, balancer: &str, protocol: &str, pool: Record) -> Result<String, Reply> {
    if pool.contains_key("protocol") {
        checks::pair(protocol, pool.text("protocol"))?;
        return Ok(pools::add(state, balancer, pool)?.text("id").to_owned());
    }
    let name = pool.text("name");
    let pools = state.records.of(Kind::Pool).owned_by(balancer).into_iter();
    let found = pools.map(|row| &row.record).find(|found| found.text("name") == name);
    let missing = || fault(400, &format!("Pool '{name}' not found."));
    found.map(|found| found.text("id").to_owned()).ok_or_else(missing)
}

/// Checks that no other listener uses the port with the same layer4 protocol.
fn check_port(state: &State, balancer: &str, sent: &Record) -> Result<(), Reply> {
    let port = sent.get("protocol_port").cloned().unwrap_or_default();
    let taken = state.records.of(Kind::Listener).owned_by(balancer).into_iter().map(|row| &row.record).find(|other| {
        layer4(other.text("protocol")) == layer4(sent.text("protocol")) && other.get("protocol_port") == Some(&port)
    });
    taken.map_or(Ok(()), |other| {
        let protocol = other.text("protocol");
        let message = "Another Listener on this Load Balancer is already using protocol";
        Err(fault(409, &format!("{message} {protocol} and protocol_port {port}")))
    })
}

fn layer4(protocol: &str) -> &str {
    if ["UDP", "SCTP"].contains(&protocol) { protocol } else { "TCP" }
}

pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let mut sent = sent(call, Kind::Listener)?;
    checks::changed_fields(state, Kind::Listener, &sent)?;
    let balancer = owner_of(state, Kind::Listener, id)?;
    checks::listener(state, &sent, &provider(state, &balancer))?;
    let protocol = state.records.get(Kind::Listener, id).map_or("", |found| found.text("protocol"));
    checks::headers(&sent, protocol)?;
    checks::certificate(state, &sent)?;
    work::check_mutable(state, &balancer, (Kind::LoadBalancer, &balancer))?;
    work::begin(state, &balancer, &[(Kind::Listener, id)], "PENDING_UPDATE");
    // An empty list allows all sources.
    if sent.get("allowed_cidrs") == Some(&json!([])) {
        sent.set("allowed_cidrs", Value::Null);
    }
    change(state, Kind::Listener, id, sent)
}
