//! Octavia: load balancers.

mod checks;
mod flavors;
mod listeners;
mod load_balancers;
mod members;
mod monitors;
mod pools;
mod quotas;
mod skeletons;
mod views;
mod work;

use serde_json::{Value, json};

use crate::identity;
use crate::listing;
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(crate) use load_balancers::add as add_balancer;
pub(crate) use views::view;
pub(crate) use work::{Workload, finish_all, settle};

/// Role that every request to Octavia requires.
const ROLE: &str = "load-balancer_member";

pub(crate) fn answer(state: &mut State, call: &Call) -> Outcome {
    if call.path.is_empty() {
        return Ok(versions(state, call));
    }
    let roles = identity::check_token(state, call)?;
    if !roles.iter().any(|role| role == ROLE) {
        return Err(forbidden());
    }
    route(state, call)
}

fn route(state: &mut State, call: &Call) -> Outcome {
    let resource = call.resource();
    match (call.method.as_str(), resource.as_slice()) {
        ("GET", ["providers"]) => Ok(providers(state)),
        ("GET", ["quotas", "defaults"]) => Err(forbidden()),
        ("GET", ["flavors", rest @ ..]) => flavors::answer(state, call, flavors::flavor(state), rest),
        ("GET", ["availabilityzones", rest @ ..]) => flavors::answer(state, call, flavors::zone(state), rest),
        ("GET", ["quotas", _]) => Ok(quotas::limits(state)),
        ("POST", ["loadbalancers"]) => load_balancers::create(state, call),
        ("PUT", ["loadbalancers", id]) => load_balancers::update(state, call, id),
        ("DELETE", ["loadbalancers", id]) => load_balancers::delete(state, call, id),
        ("POST", ["listeners"]) => listeners::create(state, call),
        ("PUT", ["listeners", id]) => listeners::update(state, call, id),
        ("DELETE", ["listeners", id]) => delete(state, Kind::Listener, id),
        ("POST", ["pools"]) => pools::create(state, call),
        ("PUT", ["pools", id]) => pools::update(state, call, id),
        ("DELETE", ["pools", id]) => delete(state, Kind::Pool, id),
        ("POST", ["healthmonitors"]) => monitors::create(state, call),
        ("PUT", ["healthmonitors", id]) => monitors::update(state, call, id),
        ("DELETE", ["healthmonitors", id]) => monitors::delete(state, id),
        (_, ["pools", pool, "members", rest @ ..]) => members::answer(state, call, pool, rest),
        ("GET", [plural]) => list(state, call, kind(plural)?, None),
        ("GET", ["loadbalancers", id, "status"]) => views::statuses(state, id),
        ("GET", [plural, id]) => get(state, call, kind(plural)?, id),
        _ => Err(no_such_path()),
    }
}

fn kind(plural: &str) -> Result<Kind, Reply> {
    match plural {
        "loadbalancers" => Ok(Kind::LoadBalancer),
        "listeners" => Ok(Kind::Listener),
        "pools" => Ok(Kind::Pool),
        "healthmonitors" => Ok(Kind::HealthMonitor),
        _ => Err(no_such_path()),
    }
}

/// Name of the kind in request and response bodies, and in messages.
fn nouns(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::LoadBalancer => ("loadbalancer", "Load Balancer"),
        Kind::Listener => ("listener", "Listener"),
        Kind::Pool => ("pool", "Pool"),
        Kind::Member => ("member", "Member"),
        _ => ("healthmonitor", "Health Monitor"),
    }
}

fn versions(state: &State, call: &Call) -> Reply {
    let newest = state.options.octavia_minor;
    let version = |minor: u32| {
        let status = if minor == newest { "CURRENT" } else { "SUPPORTED" };
        let links = json!([{"href": call.url("v2"), "rel": "self"}]);
        json!({"id": format!("v2.{minor}"), "status": status, "updated": "2020-04-29T00:00:00Z", "links": links})
    };
    Reply::json(200, json!({"versions": (0..=newest).map(version).collect::<Vec<_>>()}))
}

fn providers(state: &State) -> Reply {
    let provider = |name: &String| json!({"name": name, "description": name});
    Reply::json(200, json!({"providers": state.options.octavia_providers.iter().map(provider).collect::<Vec<_>>()}))
}

/// Lists all records of a kind, or those of one owner.
fn list(state: &State, call: &Call, kind: Kind, owner: Option<&str>) -> Outcome {
    check_filters(state, call, kind)?;
    let invalid = |limit| format!("Supplied pagination limit '{limit}' is not valid.");
    let limit = listing::limit(call, None)
        .map_err(|limit| Reply::text(400, format!("400 Bad Request\n\n{}", invalid(limit))))?;
    let rows = state.records.of(kind).oldest_first().into_iter();
    let rows = rows.filter(|row| owner.is_none_or(|owner| row.owner == owner));
    let matches = |record: &Record, owner: &str| {
        listing::filters(call).all(|(field, values)| match field {
            "loadbalancer_id" | "pool_id" => values.contains(&owner),
            _ => listing::matches(record, field, &values),
        })
    };
    let views = rows.map(|row| (view(state, kind, &row.record), row.owner.as_str()));
    let records = views.filter(|(record, owner)| matches(record, owner)).map(|(record, _)| record).collect();
    let invalid = |marker| fault(400, &format!("Supplied pagination marker '{marker}' is not valid."));
    let page = listing::page(call, records, limit).map_err(invalid)?;
    let plural = format!("{}s", nouns(kind).0);
    // Octavia's links omit the filters.
    let previous = page.first.filter(|_| limit.is_some() && call.value("marker").is_some());
    let previous = previous.map(|first| listing::link(call, "previous", &first, false, true));
    let next = page.next.map(|last| listing::link(call, "next", &last, false, false));
    let links: Vec<Value> = previous.into_iter().chain(next).collect();
    let mut body = Record::new();
    body.set(&plural, page.items);
    body.set(&format!("{plural}_links"), links);
    Ok(Reply::json(200, Value::Object(body)))
}

fn check_filters(state: &State, call: &Call, kind: Kind) -> Result<(), Reply> {
    let by_owner = match kind {
        Kind::Listener | Kind::Pool => "loadbalancer_id",
        Kind::HealthMonitor => "pool_id",
        _ => "",
    };
    let known = skeletons::of(state, kind);
    for (field, values) in listing::filters(call) {
        let is_tags = listing::TAG_FILTERS.contains(&field);
        if !known.contains_key(field) && field != by_owner && !is_tags {
            return Err(fault(400, "One or more arguments are either duplicate or invalid"));
        }
        if values.len() > 1 && !is_tags {
            let message = "(pymysql.err.OperationalError) (4078, \"Illegal parameter data types varchar and row for operation '='\")";
            return Err(server_fault(message));
        }
    }
    Ok(())
}

fn get(state: &State, call: &Call, kind: Kind, id: &str) -> Outcome {
    let record = state.records.get(kind, id).ok_or_else(|| not_found(kind, id))?;
    let view = listing::select(call, view(state, kind, record));
    Ok(Reply::one(200, nouns(kind).0, view))
}

/// ID of the owner of a record: the load balancer of a listener or pool, the pool of a health monitor.
fn owner_of(state: &State, kind: Kind, id: &str) -> Result<String, Reply> {
    let row = state.records.of(kind).row(id).ok_or_else(|| not_found(kind, id))?;
    Ok(row.owner.clone())
}

/// Updates a record with the sent fields and returns it.
fn change(state: &mut State, kind: Kind, id: &str, sent: Record) -> Outcome {
    let record = state.records.get_mut(kind, id).ok_or_else(|| not_found(kind, id))?;
    record.extend(sent);
    let record = record.clone();
    Ok(Reply::one(200, nouns(kind).0, view(state, kind, &record)))
}

/// Deletes a listener or a pool.
fn delete(state: &mut State, kind: Kind, id: &str) -> Outcome {
    let balancer = owner_of(state, kind, id)?;
    work::check_mutable(state, &balancer, (Kind::LoadBalancer, &balancer))?;
    work::begin(state, &balancer, &[(kind, id)], "PENDING_DELETE");
    Ok(Reply::empty(204))
}

/// Client error in Octavia's format.
pub(crate) fn fault(status: u16, message: &str) -> Reply {
    Reply::json(status, json!({"faultcode": "Client", "faultstring": message, "debuginfo": null}))
}

fn forbidden() -> Reply {
    fault(403, "Policy does not allow this request to be performed.")
}

fn server_fault(message: &str) -> Reply {
    Reply::json(500, json!({"faultcode": "Server", "faultstring": message, "debuginfo": null}))
}

fn not_found(kind: Kind, id: &str) -> Reply {
    fault(404, &format!("{} {id} not found.", nouns(kind).1))
}

fn no_such_path() -> Reply {
    Reply::text(404, "404 Not Found\n\nThe resource could not be found.\n\n   ")
}

/// Returns the fields in the request body.
fn sent(call: &Call, kind: Kind) -> Result<Record, Reply> {
    if call.json().is_none() {
        return Err(fault(400, "Request is not in valid JSON format"));
    }
    let nothing = || server_fault("'UnsetType' object has no attribute 'project_id'");
    let mut sent = call.object(nouns(kind).0).ok_or_else(nothing)?;
    // Octavia ignores null, except in fields that null resets.
    sent.retain(|field, value| !value.is_null() || NULLABLE.contains(&field.as_str()));
    Ok(sent)
}

/// Fields that null resets.
const NULLABLE: [&str; 3] = ["session_persistence", "allowed_cidrs", "default_tls_container_ref"];
