//! Records with what they say about their neighbours.

use serde_json::{Value, json};

use crate::records::{Fields, Kind, Record, Row};
use crate::simulator::State;
use crate::wire::{Outcome, Reply};

use super::not_found;

/// A record as it is shown by itself and in lists.
pub(crate) fn view(state: &State, kind: Kind, record: &Record) -> Record {
    let (mut shown, id) = (record.clone(), record.text("id"));
    let owner = state.records.of(kind).row(id).map(|row| row.owner.clone()).unwrap_or_default();
    match kind {
        Kind::LoadBalancer => {
            shown.set("listeners", owned(state, Kind::Listener, id));
            shown.set("pools", owned(state, Kind::Pool, id));
        }
        Kind::Listener => shown.set("loadbalancers", json!([{"id": owner}])),
        Kind::Pool => {
            shown.set("loadbalancers", json!([{"id": owner}]));
            shown.set("listeners", listeners_of(state, id));
            shown.set("members", owned(state, Kind::Member, id));
            // Without one there is not even the field.
            shown.remove("healthmonitor_id");
            if let Some(monitor) = state.records.of(Kind::HealthMonitor).owned_by(id).first() {
                shown.set("healthmonitor_id", monitor.record.text("id"));
            }
        }
        Kind::HealthMonitor => shown.set("pools", json!([{"id": owner}])),
        _ => {}
    }
    shown
}

/// A new balancer with all below it, as the answer to its creation shows it.
pub(super) fn tree(state: &State, balancer: &Record) -> Record {
    let mut shown = view(state, Kind::LoadBalancer, balancer);
    let id = balancer.text("id");
    let listeners = state.records.of(Kind::Listener).owned_by(id);
    let listeners: Vec<Value> = listeners.into_iter().map(|row| without(&row.record, &["loadbalancers"])).collect();
    let pools = state.records.of(Kind::Pool).owned_by(id).into_iter().map(|row| pool_tree(state, row));
    shown.set("pools", pools.collect::<Vec<_>>());
    shown.set("listeners", listeners);
    shown
}

fn pool_tree(state: &State, row: &Row) -> Value {
    let mut pool = view(state, Kind::Pool, &row.record);
    let members = state.records.of(Kind::Member).owned_by(row.record.text("id"));
    pool.set("members", members.into_iter().map(|row| row.record.clone().into()).collect::<Vec<Value>>());
    // Octavia has not read it back yet.
    pool.set("healthmonitor", Value::Null);
    without(&pool, &["loadbalancers", "healthmonitor_id"])
}

/// A balancer and all below it, with nothing but how they are.
pub(super) fn statuses(state: &State, id: &str) -> Outcome {
    let balancer = state.records.get(Kind::LoadBalancer, id).ok_or_else(|| not_found(Kind::LoadBalancer, id))?;
    let listeners = state.records.of(Kind::Listener).owned_by(id).into_iter().map(|row| {
        let pool = state.records.of(Kind::Pool).row(row.record.text("default_pool_id"));
        let mut shown = brief(&row.record, &[]);
        shown["pools"] = pool.into_iter().map(|pool| pool_status(state, &pool.record)).collect();
        shown
    });
    let mut shown = brief(balancer, &[]);
    shown["listeners"] = listeners.collect();
    Ok(Reply::json(200, json!({"statuses": {"loadbalancer": shown}})))
}

fn pool_status(state: &State, pool: &Record) -> Value {
    let id = pool.text("id");
    let mut shown = brief(pool, &[]);
    let members = state.records.of(Kind::Member).owned_by(id);
    shown["members"] = members.into_iter().map(|row| brief(&row.record, &["address", "protocol_port"])).collect();
    if let Some(monitor) = state.records.of(Kind::HealthMonitor).owned_by(id).first() {
        shown["health_monitor"] = brief(&monitor.record, &["type"]);
    }
    shown
}

fn brief(record: &Record, more: &[&str]) -> Value {
    let usual = ["id", "name", "operating_status", "provisioning_status"];
    let fields = usual.iter().chain(more);
    fields.map(|field| ((*field).to_owned(), record.get(*field).cloned().unwrap_or_default())).collect()
}

fn without(record: &Record, fields: &[&str]) -> Value {
    record.iter().filter(|(field, _)| !fields.contains(&field.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn owned(state: &State, kind: Kind, owner: &str) -> Vec<Value> {
    let rows = state.records.of(kind).owned_by(owner);
    rows.into_iter().map(|row| json!({"id": row.record.text("id")})).collect()
}

fn listeners_of(state: &State, pool: &str) -> Vec<Value> {
    let rows = state.records.of(Kind::Listener).oldest_first().into_iter();
    let with_pool = rows.filter(|row| row.record.text("default_pool_id") == pool);
    with_pool.map(|row| json!({"id": row.record.text("id")})).collect()
}
