//! Validation of load balancers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bowline_simulator::{Fields, Record, Reply};
use ipnet::IpNet;
use serde_json::Value;

use super::build::{FIXED, SIZES};
use crate::fixture::items;
use crate::simulator::State;
use crate::wire::{error, is_name, require};

/// Values of fields that have a fixed set of them.
const ENUMERATED: [(&str, &[&str]); 4] = [
    ("type", &["REGIONAL", "REGIONAL_NETWORK", "GLOBAL"]),
    ("network", &["EXTERNAL", "INTERNAL"]),
    ("network_stack", &["IPV4", "DUALSTACK"]),
    ("algorithm", &["round_robin", "least_connections"]),
];

/// Ranges of the numbers of a health check.
const HEALTH_CHECK: [(&str, u64, u64); 5] = [
    ("port", 1, 65535),
    ("check_interval_seconds", 3, 300),
    ("response_timeout_seconds", 3, 300),
    ("unhealthy_threshold", 2, 10),
    ("healthy_threshold", 2, 10),
];

/// Ports that load balancers use themselves.
const RESERVED: std::ops::RangeInclusive<u64> = 50053..=50055;

/// Minimum time between two changes of the size.
const RESIZE: Duration = Duration::from_secs(3600);

/// Validates a load balancer that a request describes.
pub(super) fn check(state: &State, new: &Record, body: &Record, old: Option<&Record>) -> Result<(), Reply> {
    check_name(state, new)?;
    for (field, values) in ENUMERATED {
        require(values.contains(&new.text(field)), format!("{field} is invalid"))?;
    }
    for field in FIXED {
        require(old.is_none_or(|old| old.get(field) == new.get(field)), format!("{field} cannot be changed"))?;
    }
    let is_internal_dual = new.text("network") == "INTERNAL" && new.text("network_stack") == "DUALSTACK";
    require(!is_internal_dual, "internal load balancers do not support dual stack networking")?;
    let fields = Value::Object(new.clone());
    require(fields["region"]["available"] == true, "region is invalid")?;
    let vpc = state.records.get("vpcs", new.text("vpc_uuid"));
    require(vpc.is_some_and(|vpc| fields["region"]["slug"] == vpc.text("region")), "vpc_uuid is invalid")?;
    check_size(state, new, body, old)?;
    check_droplets(state, new, body)?;
    check_rules(state, new)?;
    check_health_check(&fields["health_check"])?;
    check_sticky_sessions(&fields["sticky_sessions"])?;
    within(new.get("http_idle_timeout_seconds"), 30, 600, "http_idle_timeout_seconds")?;
    check_firewall(&fields["firewall"])
}

fn within(value: Option<&Value>, low: u64, high: u64, name: &str) -> Result<(), Reply> {
    let fits = value.and_then(Value::as_u64).is_some_and(|value| (low..=high).contains(&value));
    require(fits, format!("{name} must be an integer between {low} and {high}"))
}

fn check_name(state: &State, new: &Record) -> Result<(), Reply> {
    let name = new.text("name");
    require(is_name(name) && !name.ends_with('-'), "name is invalid")?;
    let mut others = state.records.of("load_balancers").iter().map(|row| &row.record);
    let is_taken = others.any(|other| other.text("name") == name && other.text("id") != new.text("id"));
    require(!is_taken, "name is already in use")
}

fn check_size(state: &State, new: &Record, body: &Record, old: Option<&Record>) -> Result<(), Reply> {
    let slug = body.text("size");
    require(slug.is_empty() || SIZES.iter().any(|(known, _)| *known == slug), "size is invalid")?;
    require(slug.is_empty() || !body.contains_key("size_unit"), "only one of size and size_unit can be specified")?;
    within(new.get("size_unit"), 1, 100, "size_unit")?;
    let is_resized = old.is_some_and(|old| old.get("size_unit") != new.get("size_unit"));
    let last = state.resized.get(new.text("id"));
    let is_recent = last.is_some_and(|last| last.elapsed() < RESIZE);
    require(!is_resized || !is_recent, "load balancers can only be resized once per hour")
}

fn check_droplets(state: &State, new: &Record, body: &Record) -> Result<(), Reply> {
    let ids = items(new, "droplet_ids");
    require(ids.is_empty() || body.text("tag").is_empty(), "only one of droplet_ids and tag can be specified")?;
    let message = "some of the specified target droplets don't belong to the same VPC as the Load Balancer";
    for id in ids {
        let droplet = state.records.get("droplets", &id.to_string());
        let droplet = droplet.ok_or_else(|| error(422, format!("droplet {id} not found")))?;
        require(droplet.get("vpc_uuid") == new.get("vpc_uuid"), message)?;
    }
    Ok(())
}

fn check_rules(state: &State, new: &Record) -> Result<(), Reply> {
    let rules = items(new, "forwarding_rules");
    require(!rules.is_empty(), "forwarding_rules must not be empty")?;
    let mut taken = BTreeSet::new();
    for rule in rules {
        check_ports(rule, new.text("type") == "REGIONAL_NETWORK")?;
        check_tls(state, rule)?;
        let is_udp = rule["entry_protocol"] == "udp" || rule["entry_protocol"] == "http3";
        require(taken.insert((rule["entry_port"].as_u64(), is_udp)), "entry port is used by more than one rule")?;
    }
    let has = |protocol: &str| rules.iter().any(|rule| rule["entry_protocol"] == protocol);
    require(!has("http3") || has("https") || has("http2"), "an http3 rule requires an https or http2 rule")
}

fn check_ports(rule: &Value, is_network: bool) -> Result<(), Reply> {
    let [entry, target] = ["entry_protocol", "target_protocol"].map(|field| rule[field].as_str().unwrap_or_default());
    let protocols: &[&str] = if is_network { &["tcp", "udp"] } else { &["http", "https", "http2", "tcp", "udp"] };
    require(protocols.contains(&entry) || entry == "http3" && !is_network, "entry protocol is invalid")?;
    require(protocols.contains(&target), "target protocol is invalid")?;
    require((entry == "udp") == (target == "udp"), "udp must be the protocol of both sides of a rule")?;
    within(rule.get("entry_port"), 1, 65535, "entry port")?;
    within(rule.get("target_port"), 1, 65535, "target port")?;
    require(!rule["entry_port"].as_u64().is_some_and(|port| RESERVED.contains(&port)), "entry port is invalid")?;
    require(!is_network || rule["entry_port"] == rule["target_port"], "entry port and target port must be equal")
}

fn check_tls(state: &State, rule: &Value) -> Result<(), Reply> {
    let certificate = rule["certificate_id"].as_str().unwrap_or_default();
    let is_known = certificate.is_empty() || state.records.get("certificates", certificate).is_some();
    require(is_known, format!("certificate {certificate} not found"))?;
    let (entry, passes) = (rule["entry_protocol"].as_str().unwrap_or_default(), rule["tls_passthrough"] == true);
    let is_tls = ["https", "http2", "http3"].contains(&entry);
    require(!is_tls || certificate.is_empty() == passes, "either a certificate or TLS passthrough is required")?;
    require(entry != "http3" || !passes, "TLS passthrough is not supported for http3")
}

fn check_health_check(check: &Value) -> Result<(), Reply> {
    let protocol = check["protocol"].as_str().unwrap_or_default();
    require(["http", "https", "tcp"].contains(&protocol), "health check protocol is invalid")?;
    let mut ranges = HEALTH_CHECK.into_iter();
    ranges.try_for_each(|(field, low, high)| within(check.get(field), low, high, &format!("health check {field}")))
}

fn check_sticky_sessions(sticky: &Value) -> Result<(), Reply> {
    require(sticky["type"] == "none" || sticky["type"] == "cookies", "sticky session type is invalid")?;
    if sticky["type"] == "none" {
        return Ok(());
    }
    require(sticky["cookie_name"].as_str().is_some_and(|name| !name.is_empty()), "cookie_name is required")?;
    within(sticky.get("cookie_ttl_seconds"), 1, 34650, "cookie_ttl_seconds")
}

fn check_firewall(firewall: &Value) -> Result<(), Reply> {
    let mut rules = ["allow", "deny"].into_iter().flat_map(|list| firewall[list].as_array().into_iter().flatten());
    let is_valid = |rule: &Value| match rule.as_str().unwrap_or_default().split_once(':') {
        Some(("ip", address)) => address.parse::<IpAddr>().is_ok(),
        Some(("cidr", network)) => network.parse::<IpNet>().is_ok(),
        _ => false,
    };
    require(rules.all(is_valid), "firewall rules are invalid")
}
