//! Health monitors.

use serde_json::Value;

use super::{change, checks, fault, listeners, owner_of, quotas, sent, skeletons, view, work};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn create(state: &mut State, call: &Call) -> Outcome {
    let mut sent = sent(call, Kind::HealthMonitor)?;
    checks::new_fields(state, Kind::HealthMonitor, &sent)?;
    let pool = sent.remove("pool_id").and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default();
    let balancer = owner_of(state, Kind::Pool, &pool)?;
    if !state.records.of(Kind::HealthMonitor).owned_by(&pool).is_empty() {
        return Err(fault(409, "This pool already has a health monitor"));
    }
    checks::monitor(state, &sent, &listeners::provider(state, &balancer))?;
    work::check_mutable(state, &balancer, (Kind::Pool, &pool))?;
    quotas::check(state, Kind::HealthMonitor, 1)?;
    let monitor = add(state, &pool, sent);
    work::begin(state, &balancer, &[(Kind::Pool, &pool)], "PENDING_UPDATE");
    Ok(Reply::one(201, "healthmonitor", view(state, Kind::HealthMonitor, &monitor)))
}

/// Creates the health monitor of a pool.
pub(super) fn add(state: &mut State, pool: &str, sent: Record) -> Record {
    let mut monitor = skeletons::new(state, Kind::HealthMonitor);
    if ["HTTP", "HTTPS"].contains(&sent.text("type")) {
        for (field, value) in [("http_method", "GET"), ("url_path", "/"), ("expected_codes", "200")] {
            monitor.set(field, value);
        }
    }
    monitor.extend(sent);
    state.records.of_mut(Kind::HealthMonitor).insert(pool, monitor.clone());
    monitor
}

pub(super) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    let mut sent = sent(call, Kind::HealthMonitor)?;
    checks::changed_fields(state, Kind::HealthMonitor, &sent)?;
    sent.retain(|_, value| *value != Value::Null);
    let (pool, balancer) = owners(state, id)?;
    checks::monitor(state, &sent, &listeners::provider(state, &balancer))?;
    work::check_mutable(state, &balancer, (Kind::Pool, &pool))?;
    work::begin(state, &balancer, &[(Kind::Pool, &pool), (Kind::HealthMonitor, id)], "PENDING_UPDATE");
    change(state, Kind::HealthMonitor, id, sent)
}

pub(super) fn delete(state: &mut State, id: &str) -> Outcome {
    let (pool, balancer) = owners(state, id)?;
    work::check_mutable(state, &balancer, (Kind::Pool, &pool))?;
    work::begin(state, &balancer, &[(Kind::Pool, &pool)], "PENDING_UPDATE");
    work::mark(state, Kind::HealthMonitor, id, "PENDING_DELETE");
    Ok(Reply::empty(204))
}

/// Pool of a health monitor, and load balancer of that pool.
fn owners(state: &State, id: &str) -> Result<(String, String), Reply> {
    let pool = owner_of(state, Kind::HealthMonitor, id)?;
    let balancer = owner_of(state, Kind::Pool, &pool)?;
    Ok((pool, balancer))
}
