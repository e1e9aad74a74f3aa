//! Records with what they say about their neighbours.

use serde_json::{Value, json};

use crate::records::{Fields, Kind, Record, Row};
use crate::simulator::State;

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
            let monitors = state.records.of(Kind::HealthMonitor).owned_by(id);
            shown.set("healthmonitor_id", monitors.first().map_or(Value::Null, |row| json!(row.record.text("id"))));
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
