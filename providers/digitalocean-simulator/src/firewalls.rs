//! Cloud firewalls.

use std::net::IpAddr;

use bowline_simulator::{Call, Fields, Record, Reply};
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::fixture::items;
use crate::simulator::State;
use crate::wire::{Outcome, error, is_name, not_found, require, sent};

/// Directions of rules, each with the name of the other side.
const DIRECTIONS: [(&str, &str); 2] = [("inbound_rules", "sources"), ("outbound_rules", "destinations")];

/// Creates a firewall, or replaces the one with this ID.
pub(crate) fn write(state: &mut State, call: &Call, id: Option<&str>) -> Outcome {
    let old = id.map(|id| state.records.get("firewalls", id).cloned().ok_or_else(|| not_found("firewalls")));
    let old = old.transpose()?.unwrap_or_default();
    let mut body = sent(call)?;
    check(state, &body, old.text("id"))?;
    body.remove("id");
    body.extend(old.into_iter().filter(|(field, _)| ["id", "created_at"].contains(&field.as_str())));
    let stored = store(state, body);
    state.show(if id.is_some() { 200 } else { 202 }, "firewalls", &stored)
}

/// Stores a firewall, which is `waiting` until the change completes, and returns its ID.
pub(crate) fn store(state: &mut State, mut body: Record) -> String {
    for (direction, _) in DIRECTIONS {
        body.set(direction, items(&body, direction).iter().cloned().map(shown).collect::<Vec<_>>());
    }
    let pending = |id: &Value| json!({"droplet_id": id, "removing": false, "status": "waiting"});
    body.set("pending_changes", items(&body, "droplet_ids").iter().map(pending).collect::<Vec<_>>());
    body.set("status", "waiting");
    let id = state.put("firewalls", body);
    state.jobs.begin(("firewalls", id.clone()), state.options.work);
    id
}

/// Rule as responses show it: "all ports" is `0`.
fn shown(mut rule: Value) -> Value {
    if ["", "all"].contains(&rule["ports"].as_str().unwrap_or_default()) {
        rule["ports"] = json!("0");
    }
    rule
}

fn check(state: &State, body: &Record, id: &str) -> Result<(), Reply> {
    let name = body.text("name");
    require(is_name(name) && name.len() > 1, "name is invalid")?;
    let mut firewalls = state.records.of("firewalls").iter().map(|row| &row.record);
    if firewalls.any(|other| other.text("id") != id && other.text("name") == name) {
        return Err(error(409, "duplicate name"));
    }
    let rules = DIRECTIONS.map(|(direction, peers)| (items(body, direction), peers));
    require(rules.iter().any(|(rules, _)| !rules.is_empty()), "firewall must have at least one rule")?;
    rules.iter().try_for_each(|(rules, peers)| rules.iter().try_for_each(|rule| check_rule(rule, &rule[*peers], peers)))
}

fn check_rule(rule: &Value, peers: &Value, side: &str) -> Result<(), Reply> {
    let protocol = rule["protocol"].as_str().unwrap_or_default();
    require(["tcp", "udp", "icmp"].contains(&protocol), "protocol is invalid")?;
    require(protocol == "icmp" || are_ports(rule["ports"].as_str().unwrap_or_default()), "ports are invalid")?;
    require(peers.as_object().is_some_and(|peers| !peers.is_empty()), format!("{side} must not be empty"))?;
    let is_address = |text: &str| text.parse::<IpNet>().is_ok() || text.parse::<IpAddr>().is_ok();
    let mut addresses = peers["addresses"].as_array().into_iter().flatten();
    require(addresses.all(|address| address.as_str().is_some_and(is_address)), "addresses are invalid")
}

/// Whether the text is a port, a range of ports, or all ports.
fn are_ports(text: &str) -> bool {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    ["all", "0"].contains(&text) || is_port(first) && is_port(last)
}
