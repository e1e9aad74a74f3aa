//! Members, changed one at a time or as a batch.

use serde_json::Value;

use super::{change, checks, fault, list, no_such_path, not_found, owner_of, quotas, sent, skeletons, work};
use crate::records::{Fields, Kind, Record, object};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn answer(state: &mut State, call: &Call, pool: &str, rest: &[&str]) -> Outcome {
    let balancer = owner_of(state, Kind::Pool, pool).map_err(|error| no_pool(call, pool, error))?;
    match (call.method.as_str(), rest) {
        ("GET", []) => list(state, call, Kind::Member, Some(pool)),
        ("GET", [id]) => {
            let member = state.records.get(Kind::Member, id).ok_or_else(|| not_found(Kind::Member, id))?;
            Ok(Reply::one(200, "member", member.clone()))
        }
        ("PUT", []) => replace(state, call, &balancer, pool),
        ("POST", []) => create(state, call, &balancer, pool),
        ("PUT", [id]) => update(state, call, &balancer, pool, id),
        ("DELETE", [id]) => delete(state, &balancer, pool, id),
        _ => Err(no_such_path()),
    }
}

/// Error for a missing pool. Octavia answers reads and batch updates with plain text.
fn no_pool(call: &Call, pool: &str, error: Reply) -> Reply {
    let prose = "The server could not comply with the request since it is either malformed or otherwise incorrect.";
    match (call.is_read(), call.resource().len()) {
        (true, _) | (_, 3) => Reply::text(404, format!("404 Bad Request\n\n{prose}\n\n Pool {pool} not found.  ")),
        _ => error,
    }
}

/// Address and port, by which Octavia identifies members.
fn key(member: &Record) -> (String, Value) {
    (member.text("address").to_owned(), member.get("protocol_port").cloned().unwrap_or_default())
}

/// Adds a member to a pool.
pub(super) fn add(state: &mut State, pool: &str, sent: Record) -> Result<Record, Reply> {
    checks::new_fields(state, Kind::Member, &sent)?;
    checks::member(state, &sent)?;
    let taken = state.records.of(Kind::Member).owned_by(pool).into_iter().any(|row| key(&row.record) == key(&sent));
    if taken {
        let (address, port) = key(&sent);
        let message = format!("Another member on this pool is already using ip {address} on protocol_port {port}");
        return Err(fault(409, &message));
    }
    let mut member = skeletons::new(state, Kind::Member);
    member.set("operating_status", "NO_MONITOR");
    member.extend(sent);
    state.records.of_mut(Kind::Member).insert(pool, member.clone());
    Ok(member)
}

fn create(state: &mut State, call: &Call, balancer: &str, pool: &str) -> Outcome {
    let sent = sent(call, Kind::Member)?;
    work::check_mutable(state, balancer, (Kind::Pool, pool))?;
    quotas::check(state, Kind::Member, 1)?;
    let member = add(state, pool, sent)?;
    work::begin(state, balancer, &[(Kind::Pool, pool)], "PENDING_UPDATE");
    Ok(Reply::one(201, "member", member))
}

fn update(state: &mut State, call: &Call, balancer: &str, pool: &str, id: &str) -> Outcome {
    let sent = sent(call, Kind::Member)?;
    checks::changed_fields(state, Kind::Member, &sent)?;
    state.records.get(Kind::Member, id).ok_or_else(|| not_found(Kind::Member, id))?;
    work::check_mutable(state, balancer, (Kind::Pool, pool))?;
    work::begin(state, balancer, &[(Kind::Pool, pool), (Kind::Member, id)], "PENDING_UPDATE");
    change(state, Kind::Member, id, sent)
}

fn delete(state: &mut State, balancer: &str, pool: &str, id: &str) -> Outcome {
    state.records.get(Kind::Member, id).ok_or_else(|| not_found(Kind::Member, id))?;
    work::check_mutable(state, balancer, (Kind::Pool, pool))?;
    work::begin(state, balancer, &[(Kind::Pool, pool)], "PENDING_UPDATE");
    work::mark(state, Kind::Member, id, "PENDING_DELETE");
    Ok(Reply::empty(204))
}

/// Replaces all members: updates those with the same address and port, creates new ones and deletes the rest.
fn replace(state: &mut State, call: &Call, balancer: &str, pool: &str) -> Outcome {
    let sent = call.json().ok_or_else(|| fault(400, "Request is not in valid JSON format"))?;
    let sent = sent.get("members").and_then(Value::as_array).cloned().unwrap_or_default();
    let sent: Vec<Record> = sent.into_iter().map(object).collect();
    for member in &sent {
        checks::new_fields(state, Kind::Member, member)?;
        checks::member(state, member)?;
    }
    work::check_mutable(state, balancer, (Kind::Pool, pool))?;
    let existing: Vec<Record> =
        state.records.of(Kind::Member).owned_by(pool).iter().map(|row| row.record.clone()).collect();
    let is_new = |member: &&Record| !existing.iter().any(|old| key(old) == key(member));
    quotas::check(state, Kind::Member, sent.iter().filter(is_new).count())?;
    let before = state.records.clone();
    apply_batch(state, balancer, pool, &existing, &sent).inspect_err(|_| state.records = before)
}

fn apply_batch(state: &mut State, balancer: &str, pool: &str, existing: &[Record], sent: &[Record]) -> Outcome {
    let defaults = skeletons::of(state, Kind::Member);
    let mut has_duplicates = false;
    let mut changed: Vec<&str> = Vec::new();
    for member in sent {
        match existing.iter().find(|old| key(old) == key(member)) {
            None => drop(add(state, pool, member.clone())?),
            Some(old) => {
                let id = old.text("id");
                has_duplicates |= changed.contains(&id);
                changed.push(id);
                if let Some(kept) = state.records.get_mut(Kind::Member, id) {
                    // Octavia resets omitted fields to their defaults, except the subnet.
                    for field in ["weight", "backup", "monitor_address", "monitor_port"] {
                        kept.set(field, defaults.get(field).cloned().unwrap_or_default());
                    }
                    kept.extend(member.clone());
                }
            }
        }
    }
    work::begin(state, balancer, &[(Kind::Pool, pool)], "PENDING_UPDATE");
    for old in existing {
        let id = old.text("id");
        let status = if changed.contains(&id) { "PENDING_UPDATE" } else { "PENDING_DELETE" };
        work::mark(state, Kind::Member, id, status);
    }
    if has_duplicates {
        // A duplicate member crashes Octavia's worker: the change never completes.
        work::lose(state, balancer);
    }
    Ok(Reply::empty(202))
}
