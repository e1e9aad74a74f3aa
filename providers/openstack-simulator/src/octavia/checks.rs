//! Validation of requests to Octavia.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{fault, nouns, skeletons};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::Reply;

/// Listener protocols, each with the minor version that introduced it.
const LISTENERS: [(&str, u32); 7] =
    [("TCP", 0), ("TERMINATED_HTTPS", 0), ("HTTP", 0), ("HTTPS", 0), ("SCTP", 23), ("UDP", 0), ("PROMETHEUS", 25)];

/// Pool protocols, each with its minor version.
const POOLS: [(&str, u32); 7] =
    [("TCP", 0), ("HTTP", 0), ("HTTPS", 0), ("UDP", 0), ("PROXY", 0), ("SCTP", 23), ("PROXYV2", 22)];

/// Load balancing algorithms, each with its minor version.
const ALGORITHMS: [(&str, u32); 4] =
    [("SOURCE_IP_PORT", 13), ("LEAST_CONNECTIONS", 0), ("SOURCE_IP", 0), ("ROUND_ROBIN", 0)];

/// Health monitor types, each with its minor version.
const MONITORS: [(&str, u32); 7] =
    [("HTTP", 0), ("HTTPS", 0), ("PING", 0), ("SCTP", 23), ("TCP", 0), ("TLS-HELLO", 0), ("UDP-CONNECT", 0)];

/// Fields that only create requests have, in addition to those of the record.
const CREATE_ONLY: [(&str, &[&str]); 5] = [
    ("loadbalancer", &["project_id", "tenant_id", "flavor"]),
    ("listener", &["project_id", "tenant_id", "loadbalancer_id", "default_pool"]),
    ("pool", &["project_id", "tenant_id", "loadbalancer_id", "listener_id", "healthmonitor"]),
    ("member", &["project_id", "tenant_id"]),
    ("healthmonitor", &["project_id", "tenant_id", "pool_id"]),
];

/// Fields that cannot be changed.
const IMMUTABLE: &str = "protocol protocol_port address subnet_id type provider flavor_id availability_zone vip_address \
    vip_port_id vip_subnet_id vip_network_id listeners pools";

/// Fields of responses that requests must not have.
const READ_ONLY: &str =
    "id provisioning_status operating_status created_at updated_at loadbalancers healthmonitor_id project_id";

fn has(fields: &str, field: &str) -> bool {
    fields.split(' ').any(|name| name == field)
}

/// Rejects unknown fields in a create request.
pub(super) fn new_fields(state: &State, kind: Kind, sent: &Record) -> Result<(), Reply> {
    let more = CREATE_ONLY.iter().find(|(name, _)| *name == nouns(kind).0).map_or(&[][..], |(_, more)| *more);
    let known = skeletons::of(state, kind);
    let is_known = |field: &str| more.contains(&field) || known.contains_key(field) && !has(READ_ONLY, field);
    check_known(kind, sent, is_known)
}

/// Rejects unknown and immutable fields in an update request.
pub(super) fn changed_fields(state: &State, kind: Kind, sent: &Record) -> Result<(), Reply> {
    let known = skeletons::of(state, kind);
    let is_known = |field: &str| known.contains_key(field) && !has(READ_ONLY, field) && !has(IMMUTABLE, field);
    check_known(kind, sent, is_known)
}

fn check_known(kind: Kind, sent: &Record, is_known: impl Fn(&str) -> bool) -> Result<(), Reply> {
    let noun = nouns(kind).0;
    let argument = if kind == Kind::LoadBalancer { "load_balancer".to_owned() } else { format!("{noun}_") };
    match sent.keys().find(|field| !is_known(field)) {
        Some(field) => Err(fault(400, &format!("Unknown attribute for argument {argument}.{noun}: {field}"))),
        None => Ok(()),
    }
}

/// Validates a listener.
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
    check_ovn(provider, !is_l4, "protocol")?;
    check_ovn(provider, sent.contains_key("allowed_cidrs"), "allowed_cidrs")
}

/// Rejects `insert_headers` on listeners that do not speak HTTP.
pub(super) fn headers(sent: &Record, protocol: &str) -> Result<(), Reply> {
    let requested = sent.get("insert_headers").and_then(Value::as_object).is_some_and(|headers| !headers.is_empty());
    if requested && !["HTTP", "TERMINATED_HTTPS"].contains(&protocol) {
        return Err(fault(400, &format!("insert-headers is not a valid option for a {protocol} protocol listener.")));
    }
    Ok(())
}

/// Checks that the certificate of a listener exists.
pub(super) fn certificate(state: &State, sent: &Record) -> Result<(), Reply> {
    let reference = sent.text("default_tls_container_ref");
    let id = reference.rsplit('/').next().unwrap_or_default();
    let known = [Kind::Secret, Kind::Container].iter().any(|kind| state.records.get(*kind, id).is_some());
    if reference.is_empty() || known {
        return Ok(());
    }
    Err(fault(400, &format!("Could not retrieve certificate: ['{reference}']")))
}

/// Validates a pool.
pub(super) fn pool(state: &State, sent: &Record, provider: &str) -> Result<(), Reply> {
    one_of(state, sent, "protocol", &POOLS)?;
    one_of(state, sent, "lb_algorithm", &ALGORITHMS)?;
    let algorithm = sent.text("lb_algorithm");
    check_ovn(provider, !algorithm.is_empty() && algorithm != "SOURCE_IP_PORT", "lb_algorithm")?;
    let is_l4 = ["", "TCP", "UDP", "SCTP"].contains(&sent.text("protocol"));
    check_ovn(provider, !is_l4, "protocol")
}

/// Checks that a listener protocol is compatible with a pool protocol.
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

/// Validates a member.
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

/// Validates a health monitor.
pub(super) fn monitor(state: &State, sent: &Record, provider: &str) -> Result<(), Reply> {
    one_of(state, sent, "type", &MONITORS)?;
    for (field, max) in [("delay", u64::MAX), ("timeout", u64::MAX), ("max_retries", 10), ("max_retries_down", 10)] {
        let Some(value) = sent.get(field) else { continue };
        if value.as_u64().is_none_or(|value| value < 1 || value > max) {
            return Err(invalid(field, &format!("Value: '{value}'. Value should be greater or equal to 1")));
        }
    }
    let delay = sent.get("delay").and_then(Value::as_u64).unwrap_or(u64::MAX);
    if sent.text("type") == "UDP-CONNECT" && delay < 3 {
        let message = "The request delay value %s should be larger than 3 for health monitor type UDP-CONNECT.";
        return Err(fault(400, &format!("Validation failure: {}", message.replace("%s", &delay.to_string()))));
    }
    let supported = ["", "TCP", "UDP-CONNECT"].contains(&sent.text("type"));
    check_ovn(provider, !supported, "type")
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

/// Rejects an option that the ovn provider does not support.
fn check_ovn(provider: &str, requested: bool, option: &str) -> Result<(), Reply> {
    if provider != "ovn" || !requested {
        return Ok(());
    }
    let message = format!("Provider 'ovn' does not support a requested option: OVN provider does not support {option}");
    Err(Reply::json(501, json!({"faultcode": "Server", "faultstring": message, "debuginfo": null})))
}
