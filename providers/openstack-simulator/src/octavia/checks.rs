//! What Octavia refuses before it begins.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{fault, skeletons, words};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::Reply;

/// Protocols of listeners, and the minor version that brought them.
const LISTENERS: [(&str, u32); 7] =
    [("TCP", 0), ("TERMINATED_HTTPS", 0), ("HTTP", 0), ("HTTPS", 0), ("SCTP", 23), ("UDP", 0), ("PROMETHEUS", 25)];

/// Protocols of pools.
const POOLS: [(&str, u32); 7] =
    [("TCP", 0), ("HTTP", 0), ("HTTPS", 0), ("UDP", 0), ("PROXY", 0), ("SCTP", 23), ("PROXYV2", 22)];

/// How a pool may choose.
const ALGORITHMS: [(&str, u32); 4] =
    [("SOURCE_IP_PORT", 13), ("LEAST_CONNECTIONS", 0), ("SOURCE_IP", 0), ("ROUND_ROBIN", 0)];

/// How members may be watched.
const MONITORS: [(&str, u32); 7] =
    [("HTTP", 0), ("HTTPS", 0), ("PING", 0), ("SCTP", 23), ("TCP", 0), ("TLS-HELLO", 0), ("UDP-CONNECT", 0)];

/// Fields that only creation has, beside those of the record.
const ONLY_NEW: [(&str, &[&str]); 5] = [
    ("loadbalancer", &["project_id", "tenant_id", "flavor"]),
    ("listener", &["project_id", "tenant_id", "loadbalancer_id", "default_pool"]),
    ("pool", &["project_id", "tenant_id", "loadbalancer_id", "listener_id", "healthmonitor"]),
    ("member", &["project_id", "tenant_id"]),
    ("healthmonitor", &["project_id", "tenant_id", "pool_id"]),
];

/// Fields that stay as they were made.
const FIXED: &str = "protocol protocol_port address subnet_id type provider flavor_id availability_zone vip_address \
    vip_port_id vip_subnet_id vip_network_id listeners pools";

/// Fields that are shown, and never sent.
const SHOWN: &str =
    "id provisioning_status operating_status created_at updated_at loadbalancers healthmonitor_id project_id";

fn is_among(fields: &str, field: &str) -> bool {
    fields.split(' ').any(|one| one == field)
}

/// Refuses fields that a new one cannot have.
pub(super) fn new_fields(state: &State, kind: Kind, sent: &Record) -> Result<(), Reply> {
    let more = ONLY_NEW.iter().find(|(one, _)| *one == words(kind).0).map_or(&[][..], |(_, more)| *more);
    let known = skeletons::of(state, kind);
    let is_known = |field: &str| more.contains(&field) || known.contains_key(field) && !is_among(SHOWN, field);
    unknown(kind, sent, is_known)
}

/// Refuses fields that cannot be changed.
pub(super) fn changed_fields(state: &State, kind: Kind, sent: &Record) -> Result<(), Reply> {
    let known = skeletons::of(state, kind);
    let is_known = |field: &str| known.contains_key(field) && !is_among(SHOWN, field) && !is_among(FIXED, field);
    unknown(kind, sent, is_known)
}

fn unknown(kind: Kind, sent: &Record, is_known: impl Fn(&str) -> bool) -> Result<(), Reply> {
    let one = words(kind).0;
    let argument = if kind == Kind::LoadBalancer { "load_balancer".to_owned() } else { format!("{one}_") };
    match sent.keys().find(|field| !is_known(field)) {
        Some(field) => Err(fault(400, &format!("Unknown attribute for argument {argument}.{one}: {field}"))),
        None => Ok(()),
    }
}

/// Checks the values of a listener.
pub(super) fn listener(state: &State, sent: &Record, provider: &str) -> Result<(), Reply> {
    one_of(state, sent, "protocol", &LISTENERS)?;
    port(sent, "protocol_port")?;
    for cidr in sent.texts("allowed_cidrs") {
        if cidr.parse::<IpNet>().is_err() {
            let message = format!("Value: '['{cidr}']'. Value should be IPv4 or IPv6 CIDR format");
            return Err(invalid("allowed_cidrs", &message));
        }
    }
    for field in ["timeout_client_data", "timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect"] {
        let value = sent.get(field).and_then(Value::as_i64).unwrap_or_default();
        if value < 0 {
            return Err(invalid(field, &format!("Value: '{value}'. Value should be greater or equal to 0")));
        }
    }
    let is_l4 = ["", "TCP", "UDP", "SCTP"].contains(&sent.text("protocol"));
    not_by_ovn(provider, !is_l4, "protocol")?;
    not_by_ovn(provider, sent.contains_key("allowed_cidrs"), "allowed_cidrs")
}

/// Headers are inserted where there are headers.
pub(super) fn headers(sent: &Record, protocol: &str) -> Result<(), Reply> {
    let asked = sent.get("insert_headers").and_then(Value::as_object).is_some_and(|headers| !headers.is_empty());
    if asked && !["HTTP", "TERMINATED_HTTPS"].contains(&protocol) {
        return Err(fault(400, &format!("insert-headers is not a valid option for a {protocol} protocol listener.")));
    }
    Ok(())
}

/// What a listener shows to its clients must be there.
pub(super) fn certificate(state: &State, sent: &Record) -> Result<(), Reply> {
    let reference = sent.text("default_tls_container_ref");
    let id = reference.rsplit('/').next().unwrap_or_default();
    let known = [Kind::Secret, Kind::Container].iter().any(|kind| state.records.get(*kind, id).is_some());
    if reference.is_empty() || known {
        return Ok(());
    }
    Err(fault(400, &format!("Could not retrieve certificate: ['{reference}']")))
}

/// Checks the values of a pool.
pub(super) fn pool(state: &State, sent: &Record, provider: &str) -> Result<(), Reply> {
    one_of(state, sent, "protocol", &POOLS)?;
    one_of(state, sent, "lb_algorithm", &ALGORITHMS)?;
    let algorithm = sent.text("lb_algorithm");
    not_by_ovn(provider, !algorithm.is_empty() && algorithm != "SOURCE_IP_PORT", "lb_algorithm")?;
    let is_l4 = ["", "TCP", "UDP", "SCTP"].contains(&sent.text("protocol"));
    not_by_ovn(provider, !is_l4, "protocol")
}

/// Checks that a listener of one protocol may lead to a pool of another.
pub(super) fn pair(listener: &str, pool: &str) -> Result<(), Reply> {
    let fits = match listener {
        "TCP" => !["UDP", "SCTP"].contains(&pool),
        "HTTP" | "TERMINATED_HTTPS" => ["HTTP", "PROXY", "PROXYV2"].contains(&pool),
        "HTTPS" => ["HTTPS", "PROXY", "PROXYV2", "TCP"].contains(&pool),
        other => other == pool,
    };
    if fits {
        return Ok(());
    }
    let message = format!("The pool protocol '{pool}' is invalid while the listener protocol is '{listener}'.");
    Err(fault(400, &format!("Validation failure: {message}")))
}

/// Checks the values of a member.
pub(super) fn member(state: &State, sent: &Record) -> Result<(), Reply> {
    port(sent, "protocol_port")?;
    port(sent, "monitor_port")?;
    let address = sent.text("address");
    if address.parse::<IpAddr>().is_err() {
        return Err(invalid("address", &format!("Value: '{address}'. Value should be IPv4 or IPv6 format")));
    }
    let subnet = sent.text("subnet_id");
    if !subnet.is_empty() && state.records.get(Kind::Subnet, subnet).is_none() {
        return Err(fault(400, &format!("Subnet {subnet} not found.")));
    }
    Ok(())
}

/// Checks the values of a health monitor.
pub(super) fn monitor(state: &State, sent: &Record, provider: &str) -> Result<(), Reply> {
    one_of(state, sent, "type", &MONITORS)?;
    for (field, most) in [("delay", u64::MAX), ("timeout", u64::MAX), ("max_retries", 10), ("max_retries_down", 10)] {
        let Some(value) = sent.get(field) else { continue };
        if value.as_u64().is_none_or(|value| value < 1 || value > most) {
            return Err(invalid(field, &format!("Value: '{value}'. Value should be greater or equal to 1")));
        }
    }
    let delay = sent.get("delay").and_then(Value::as_u64).unwrap_or(u64::MAX);
    if sent.text("type") == "UDP-CONNECT" && delay < 3 {
        let message = "The request delay value %s should be larger than 3 for health monitor type UDP-CONNECT.";
        return Err(fault(400, &format!("Validation failure: {}", message.replace("%s", &delay.to_string()))));
    }
    let watched = ["", "TCP", "UDP-CONNECT"].contains(&sent.text("type"));
    not_by_ovn(provider, !watched, "type")
}

fn one_of(state: &State, sent: &Record, field: &str, allowed: &[(&str, u32)]) -> Result<(), Reply> {
    let Some(value) = sent.get(field).and_then(Value::as_str) else { return Ok(()) };
    let known = allowed.iter().filter(|(_, since)| state.options.octavia_minor >= *since).map(|(name, _)| *name);
    let known: Vec<_> = known.collect();
    if known.contains(&value) {
        return Ok(());
    }
    Err(invalid(field, &format!("Value: '{value}'. Value should be one of: {}", known.join(", "))))
}

fn port(sent: &Record, field: &str) -> Result<(), Reply> {
    match sent.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_u64().is_some_and(|port| (1..=65535).contains(&port)) => Ok(()),
        Some(value) => Err(invalid(field, &format!("Value: '{value}'. Value should be greater or equal to 1"))),
    }
}

fn invalid(field: &str, message: &str) -> Reply {
    fault(400, &format!("Invalid input for field/attribute {field}. {message}"))
}

/// What the ovn provider cannot do, it says.
fn not_by_ovn(provider: &str, asked: bool, option: &str) -> Result<(), Reply> {
    if provider != "ovn" || !asked {
        return Ok(());
    }
    let message = format!("Provider 'ovn' does not support a requested option: OVN provider does not support {option}");
    Err(Reply::json(501, json!({"faultcode": "Server", "faultstring": message, "debuginfo": null})))
}
