//! Load balancers.

mod build;
mod checks;

use std::net::Ipv4Addr;

use bowline_simulator::{Call, Fields, Record, Reply};
use serde_json::json;
use tokio::time::Instant;

use crate::fixture::{items, toggle};
use crate::simulator::State;
use crate::tags;
use crate::wire::{Outcome, not_found, require, sent};

/// Creates a load balancer, which is `new` and has no address until its creation completes.
pub(crate) fn create(state: &mut State, call: &Call) -> Outcome {
    let body = sent(call)?;
    let mut described = build::record(state, &body, None);
    checks::check(state, &described, &body, None)?;
    let limit = state.options.load_balancer_limit.unwrap_or(usize::MAX);
    let is_below = state.records.of("load_balancers").len() < limit;
    require(is_below, "creating this load balancer will exceed your load balancer limit")?;
    if is_validation(&body) {
        described.retain(|field, _| field != "id" && field != "created_at");
        return Ok(Reply::one(202, "load_balancer", described));
    }
    let id = insert(state, described);
    state.resized.insert(id.clone(), Instant::now());
    state.jobs.begin(("load_balancers", id.clone()), state.options.work);
    state.show(202, "load_balancers", &id)
}

fn insert(state: &mut State, described: Record) -> String {
    tags::create_all(state, &described);
    state.put("load_balancers", described)
}

/// Creates a load balancer without validation. Without `status`, it is active and has addresses.
pub(crate) fn put(state: &mut State, mut fields: Record) -> String {
    fields.entry("region").or_insert(json!(state.options.region));
    let described = build::record(state, &fields, Some(&fields));
    let id = insert(state, described);
    if !fields.contains_key("status") {
        finish(state, &id, false);
    }
    id
}

/// Replaces a load balancer. Fields that the request leaves out get their defaults.
pub(crate) fn update(state: &mut State, call: &Call, id: &str) -> Outcome {
    replace(state, id, &sent(call)?)?;
    state.show(200, "load_balancers", id)
}

fn replace(state: &mut State, id: &str, body: &Record) -> Result<(), Reply> {
    let old = get(state, id)?.clone();
    let described = build::record(state, body, Some(&old));
    checks::check(state, &described, body, Some(&old))?;
    if is_validation(body) {
        return Ok(());
    }
    if described.get("size_unit") != old.get("size_unit") {
        state.resized.insert(id.to_owned(), Instant::now());
    }
    tags::create_all(state, &described);
    if let Some(record) = state.records.get_mut("load_balancers", id) {
        *record = described;
    }
    Ok(())
}

/// Adds Droplets or forwarding rules to a load balancer, or removes them.
pub(crate) fn change_list(state: &mut State, call: &Call, id: &str, list: &str) -> Outcome {
    let field = if list == "droplets" { "droplet_ids" } else { list };
    let mut body = get(state, id)?.clone();
    let slug = body.get("region").map(|region| region["slug"].clone());
    body.set("region", slug);
    body.remove("size");
    for item in items(&sent(call)?, field) {
        toggle(&mut body, field, &build::rule(item), call.method == "POST");
    }
    replace(state, id, &body)?;
    Ok(Reply::empty(204))
}

/// Whether the request only validates a load balancer.
pub(crate) fn is_validation(body: &Record) -> bool {
    body.get("validate_only") == Some(&json!(true))
}

fn get<'a>(state: &'a State, id: &str) -> Result<&'a Record, Reply> {
    state.records.get("load_balancers", id).ok_or_else(|| not_found("load_balancers"))
}

/// Completes the creation of a load balancer.
pub(crate) fn finish(state: &mut State, id: &str, fails: bool) {
    state.count += 1;
    let (count, public) = (state.count, Ipv4Addr::new(198, 19, 0, 0).to_bits());
    let Some(record) = state.records.get("load_balancers", id) else { return };
    let internal = state.range(record.text("vpc_uuid")).filter(|_| record.text("network") == "INTERNAL");
    let ip = internal.map_or(public.wrapping_add(count), |net| net.broadcast().to_bits().wrapping_sub(count));
    let Some(record) = state.records.get_mut("load_balancers", id) else { return };
    record.set("status", if fails { "errored" } else { "active" });
    if !fails && record.text("ip").is_empty() {
        record.set("ip", Ipv4Addr::from_bits(ip).to_string());
    }
    if !fails && record.text("network_stack") == "DUALSTACK" {
        record.set("ipv6", format!("2604:a880:400:d0::{count:x}"));
    }
}

/// Switches forwarding rules to another certificate.
pub(crate) fn replace_certificate(state: &mut State, old: &str, new: &str) {
    for row in state.records.of_mut("load_balancers").iter_mut() {
        let mut rules = items(&row.record, "forwarding_rules").to_vec();
        for rule in rules.iter_mut().filter(|rule| rule["certificate_id"] == old) {
            rule["certificate_id"] = json!(new);
        }
        row.record.set("forwarding_rules", rules);
    }
}
