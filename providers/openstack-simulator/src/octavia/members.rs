//! Members, one by one and all at once.

use serde_json::Value;

use super::{change, checks, fault, list, no_such_path, not_found, owner_of, quotas, sent, skeletons, work};
use crate::records::{Fields, Kind, Record, object};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(super) fn answer(state: &mut State, call: &Call, pool: &str, rest: &[&str]) -> Outcome {
    let balancer = owner_of(state, Kind::Pool, pool).map_err(|refusal| no_pool(call, pool, refusal))?;
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

/// Who asks for the members of a pool that is gone hears of it in prose.
fn no_pool(call: &Call, pool: &str, refusal: Reply) -> Reply {
    let prose = "The server could not comply with the request since it is either malformed or otherwise incorrect.";
    match (call.is_read(), call.resource().len()) {
        (true, _) | (_, 3) => Reply::text(404, format!("404 Bad Request\n\n{prose}\n\n Pool {pool} not found.  ")),
        _ => refusal,
    }
}

/// What Octavia tells members apart by.
fn place(member: &Record) -> (String, Value) {
    (member.text("address").to_owned(), member.get("protocol_port").cloned().unwrap_or_default())
}

/// Makes a member of a pool.
pub(super) fn add(state: &mut State, pool: &str, sent: Record) -> Result<Record, Reply> {
    checks::new_fields(state, Kind::Member, &sent)?;
    checks::member(state, &sent)?;
    let taken = state.records.of(Kind::Member).owned_by(pool).into_iter().any(|row| place(&row.record) == place(&sent));
    if taken {
        let (address, port) = place(&sent);
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

/// Writes all members anew: those at a place that there is are changed, others made, and what is not named goes.
fn replace(state: &mut State, call: &Call, balancer: &str, pool: &str) -> Outcome {
    let sent = call.json().ok_or_else(|| fault(400, "Request is not in valid JSON format"))?;
    let sent = sent.get("members").and_then(Value::as_array).cloned().unwrap_or_default();
    let sent: Vec<Record> = sent.into_iter().map(object).collect();
    for member in &sent {
        checks::new_fields(state, Kind::Member, member)?;
        checks::member(state, member)?;
    }
    work::check_mutable(state, balancer, (Kind::Pool, pool))?;
    let held: Vec<Record> =
        state.records.of(Kind::Member).owned_by(pool).iter().map(|row| row.record.clone()).collect();
    let is_new = |member: &&Record| !held.iter().any(|old| place(old) == place(member));
    quotas::check(state, Kind::Member, sent.iter().filter(is_new).count())?;
    let before = state.records.clone();
    carry_out(state, balancer, pool, &held, &sent).inspect_err(|_| state.records = before)
}

fn carry_out(state: &mut State, balancer: &str, pool: &str, held: &[Record], sent: &[Record]) -> Outcome {
    let usual = skeletons::of(state, Kind::Member);
    let mut twice = false;
    let mut changed: Vec<&str> = Vec::new();
    for member in sent {
        match held.iter().find(|old| place(old) == place(member)) {
            None => drop(add(state, pool, member.clone())?),
            Some(old) => {
                let id = old.text("id");
                twice |= changed.contains(&id);
                changed.push(id);
                if let Some(kept) = state.records.get_mut(Kind::Member, id) {
                    // What is not said is as in a new one, but for the subnet.
                    for field in ["weight", "backup", "monitor_address", "monitor_port"] {
                        kept.set(field, usual.get(field).cloned().unwrap_or_default());
                    }
                    kept.extend(member.clone());
                }
            }
        }
    }
    work::begin(state, balancer, &[(Kind::Pool, pool)], "PENDING_UPDATE");
    for old in held {
        let id = old.text("id");
        let status = if changed.contains(&id) { "PENDING_UPDATE" } else { "PENDING_DELETE" };
        work::mark(state, Kind::Member, id, status);
    }
    if twice {
        // A member that is named twice stops Octavia's worker: nothing comes of it, for ever.
        work::lose(state, balancer);
    }
    Ok(Reply::empty(202))
}
