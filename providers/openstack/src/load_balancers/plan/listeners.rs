//! Listeners. Octavia has one listener for each port and transport protocol: TCP with everything over it, UDP, SCTP.

use std::collections::BTreeSet;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::{FieldChange, PortSpec, Verb};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::super::change::{Change, Joining, ListenerRef, PoolRef};
use super::super::names::Part;
use super::super::settings::Timeouts;
use super::{Context, Draft, PLAN, field, members, pools};
use crate::api::octavia::{LISTENERS, Listener, POOLS};

pub(in super::super) const CERTIFICATE: &str = "certificate";

/// Header with the client's address.
const FORWARDED_FOR: &str = "X-Forwarded-For";

/// Returns the transport protocol: two listeners of one cannot have the same port.
fn family(protocol: &str) -> &str {
    match protocol {
        "UDP" | "SCTP" => protocol,
        _ => "TCP",
    }
}

/// Adds steps for each port, then removes the remaining listeners.
pub(super) fn steps(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    check_ports(context)?;
    check_conflicts(context)?;
    draft.warn(members::skipped(context));
    let mut served = BTreeSet::new();
    for (index, port) in context.spec.ports.iter().enumerate() {
        let (matching, stale) = listeners_at(context, port);
        if matching.is_none() && lacks_certificate(context) {
            served.extend(stale.iter().map(|listener| listener.id.clone()));
            retain(context, index, port, &stale, draft)?;
            continue;
        }
        // Octavia rejects the new one as long as the old one exists.
        for listener in &stale {
            remove(context, listener, draft)?;
        }
        served.extend(stale.iter().chain(&matching).map(|listener| listener.id.clone()));
        let reference = match matching {
            Some(listener) => {
                update(context, listener, draft);
                ListenerRef::Id(listener.id.clone())
            }
            None => {
                check_source_ranges(context)?;
                create(context, index, port, draft)
            }
        };
        pools::steps(context, index, port, matching, reference, draft)?;
    }
    let left_over = context.seen.listeners.iter().filter(|listener| !served.contains(&listener.id));
    for listener in left_over.filter(|listener| is_ours(context, listener)) {
        remove(context, listener, draft)?;
    }
    Ok(())
}

/// Returns the listener with the protocol of a port, and those with another protocol on it.
fn listeners_at<'a>(context: &Context<'a>, port: &PortSpec) -> (Option<&'a Listener>, Vec<&'a Listener>) {
    let protocol = context.settings.listener_protocol(port.protocol);
    let seen: &'a [Listener] = &context.seen.listeners;
    let existing =
        seen.iter().filter(|one| one.protocol_port == port.port && family(&one.protocol) == family(protocol));
    let (matching, stale): (Vec<_>, Vec<_>) = existing.partition(|listener| listener.protocol == protocol);
    (matching.into_iter().next(), stale)
}

/// Returns whether it was created for this Service, or before listeners were tagged.
fn is_ours(context: &Context<'_>, listener: &Listener) -> bool {
    let mut tags = listener.tags.iter().filter(|tag| !tag.is_empty()).peekable();
    if tags.peek().is_none() { context.owner } else { tags.any(|tag| *tag == context.names.balancer()) }
}

/// Returns whether the desired certificate cannot be used.
fn lacks_certificate(context: &Context<'_>) -> bool {
    context.seen.errors.certificate.is_some()
}

/// Updates the members of listeners that cannot be replaced yet.
fn retain(context: &Context<'_>, index: usize, port: &PortSpec, stale: &[&Listener], draft: &mut Draft) -> Result<()> {
    for listener in stale {
        if let Some(seen) = pools::of_listener(context, listener)? {
            let pool = PoolRef::Id(seen.pool.id.clone());
            members::steps(context, index, port, Some(seen), &pool, draft);
        }
    }
    Ok(())
}

// ---- errors

/// Fails if two ports of the Service result in the same listener.
pub(super) fn check_ports(context: &Context<'_>) -> Result<()> {
    let mut seen = BTreeSet::new();
    let place = |port: &PortSpec| (family(context.settings.listener_protocol(port.protocol)), port.port);
    let Some(port) = context.spec.ports.iter().find(|port| !seen.insert(place(port))) else { return Ok(()) };
    let protocol = context.settings.listener_protocol(port.protocol);
    let message = format!(
        "two ports of the Service need the same listener, {protocol} on port {}: with TLS or X-Forwarded-For all ports use HTTP",
        port.port
    );
    Err(Error::new(ErrorKind::InvalidConfig, PLAN, message))
}

/// Fails if the source ranges of a new listener might be ignored: it would accept every client.
fn check_source_ranges(context: &Context<'_>) -> Result<()> {
    let features = context.seen.features;
    if !features.guessed || features.allowed_cidrs || context.settings.source_ranges.is_empty() {
        return Ok(());
    }
    let message = "no listener is created while Octavia does not list its versions: it might ignore loadBalancerSourceRanges and be \
                   open to all clients";
    Err(Error::new(ErrorKind::Unavailable, PLAN, message))
}

fn check_conflicts(context: &Context<'_>) -> Result<()> {
    for port in &context.spec.ports {
        let (matching, stale) = listeners_at(context, port);
        let foreign = matching.into_iter().chain(stale).find(|listener| !is_ours(context, listener));
        if let Some(listener) = foreign {
            return Err(conflict(context, port, listener));
        }
    }
    Ok(())
}

fn conflict(context: &Context<'_>, port: &PortSpec, listener: &Listener) -> Error {
    let Listener { id, protocol, tags, .. } = listener;
    let owner = tags.iter().find(|tag| !tag.is_empty()).map_or("no Service (it has no tag)", String::as_str);
    let balancer = context.balancer.map(|balancer| balancer.id.as_str()).unwrap_or_default();
    let message = format!(
        "the listener port {} already exists on load balancer {balancer}: {protocol} listener {id} belongs to {owner}; choose \
         another port, or another load balancer",
        port.port
    );
    Error::new(ErrorKind::AlreadyExists, PLAN, message).retry(Retry::Backoff)
}

// ---- create, update, delete

/// Returns the request body of a new listener, without its pool.
pub(super) fn body(context: &Context<'_>, index: usize, port: &PortSpec) -> Value {
    let fixed = [
        ("name", json!(context.names.part(Part::Listener, index))),
        ("protocol", json!(context.settings.listener_protocol(port.protocol))),
        ("protocol_port", json!(port.port)),
    ];
    let others = wanted(context, &Listener::default()).into_iter().map(|(key, _, then)| (key, then));
    let others = others.filter(|(_, then)| *then != json!("") && *then != json!({}));
    fixed.into_iter().chain(others).map(|(key, value)| (key.to_owned(), value)).collect()
}

fn create(context: &Context<'_>, index: usize, port: &PortSpec, draft: &mut Draft) -> ListenerRef {
    let body = body(context, index, port);
    let changes = created(&body);
    let name = context.names.part(Part::Listener, index);
    let max = context.config.load_balancer.max_shared;
    let joins = (!context.owner).then(|| Joining { tag: context.names.balancer(), max });
    draft.octavia(Verb::Create, LISTENERS.resource.name, &name, changes, Change::CreateListener { body, joins });
    let protocol = context.settings.listener_protocol(port.protocol).to_owned();
    ListenerRef::At { protocol, port: port.port }
}

/// Adds one step with all fields that differ.
fn update(context: &Context<'_>, listener: &Listener, draft: &mut Draft) {
    let differing: Vec<(&str, Value, Value)> =
        wanted(context, listener).into_iter().filter(|(_, now, then)| now != then).collect();
    if differing.is_empty() {
        return;
    }
    let changes: Vec<FieldChange> =
        differing.iter().map(|(key, now, then)| field(key, Some(text(now)), Some(text(then)))).collect();
    let body = differing.into_iter().map(|(key, _, then)| (key.to_owned(), then)).collect();
    draft.update(LISTENERS.resource, &listener.id, &listener.name, changes, Value::Object(body));
}

/// Returns each mutable field with its current and desired value. Sets are sorted in both. A new listener has none of them yet.
fn wanted(context: &Context<'_>, listener: &Listener) -> Vec<(&'static str, Value, Value)> {
    let (settings, features) = (context.settings, context.seen.features);
    let mut all = vec![("connection_limit", json!(listener.connection_limit), json!(settings.connection_limit))];
    all.push(("insert_headers", json!(listener.insert_headers), json!(headers(context, listener))));
    if !lacks_certificate(context) {
        let (now, then) = (&listener.default_tls_container_ref, &settings.tls_container_ref);
        all.push(("default_tls_container_ref", json!(now), json!(then)));
    }
    if features.tags {
        all.push(("tags", json!(listener.tags), json!(tags(context, listener))));
    }
    if features.timeouts {
        let Timeouts { client_data, member_connect, member_data, tcp_inspect } = settings.timeouts;
        let timeouts = [
            ("timeout_client_data", listener.timeout_client_data, client_data),
            ("timeout_member_connect", listener.timeout_member_connect, member_connect),
            ("timeout_member_data", listener.timeout_member_data, member_data),
            ("timeout_tcp_inspect", listener.timeout_tcp_inspect, tcp_inspect),
        ];
        all.extend(timeouts.map(|(key, now, then)| (key, json!(now), json!(then))));
    }
    if features.allowed_cidrs {
        let now = ranges(&listener.allowed_cidrs);
        let then = allowed(context, &now);
        all.push(("allowed_cidrs", json!(now), json!(then)));
    }
    all
}

/// Returns the current tags and that of the Service.
fn tags(context: &Context<'_>, listener: &Listener) -> Vec<String> {
    let own = context.names.balancer();
    if listener.tags.contains(&own) {
        return listener.tags.clone();
    }
    listener.tags.iter().filter(|tag| !tag.is_empty()).cloned().chain([own]).collect()
}

/// Returns the current headers with or without the one that is managed.
fn headers(context: &Context<'_>, listener: &Listener) -> std::collections::BTreeMap<String, String> {
    let mut headers = listener.insert_headers.clone();
    let is_current = headers.get(FORWARDED_FOR).is_some_and(|value| value == "true");
    match context.settings.x_forwarded_for {
        wanted if wanted == is_current => {}
        true => drop(headers.insert(FORWARDED_FOR.to_owned(), "true".to_owned())),
        false => drop(headers.remove(FORWARDED_FOR)),
    }
    headers
}

/// Returns the desired ranges, and those of the current ones that may stay.
fn allowed(context: &Context<'_>, now: &BTreeSet<String>) -> BTreeSet<String> {
    let families = context.families();
    let texts = |ranges: BTreeSet<IpNet>| ranges.into_iter().map(|range| range.to_string()).collect::<BTreeSet<_>>();
    let tolerated = texts(context.settings.tolerated_cidrs(&families));
    texts(context.settings.allowed_cidrs(&families)).into_iter().chain(tolerated.intersection(now).cloned()).collect()
}

/// Returns the ranges sorted and in canonical form.
fn ranges(texts: &[String]) -> BTreeSet<String> {
    let canonical =
        |text: &String| text.parse().map_or_else(|_| text.clone(), |range: IpNet| range.trunc().to_string());
    texts.iter().map(canonical).collect()
}

/// Deletes the listener and its pool, unless another listener uses the pool.
fn remove(context: &Context<'_>, listener: &Listener, draft: &mut Draft) -> Result<()> {
    if let Some(seen) = pools::of_listener(context, listener)? {
        let is_shared = seen.pool.listeners.iter().any(|other| other.id != listener.id);
        if !is_shared {
            draft.delete(POOLS.resource, &seen.pool.id, &seen.pool.name, Vec::new());
        }
    }
    let changes = vec![field("port", Some(format!("{}:{}", listener.protocol, listener.protocol_port)), None)];
    draft.delete(LISTENERS.resource, &listener.id, &listener.name, changes);
    Ok(())
}

/// Returns the fields of a new resource for the printed plan, without name and tags.
pub(super) fn created(body: &Value) -> Vec<FieldChange> {
    let fields = body.as_object().into_iter().flatten().filter(|(key, _)| !matches!(key.as_str(), "name" | "tags"));
    fields.map(|(key, value)| field(key, None, Some(text(value)))).collect()
}

/// Formats a value for the printed plan, without quotes and braces.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(fields) if fields.is_empty() => "none".to_owned(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| format!("{key}: {}", text(value))).collect::<Vec<_>>().join(", ")
        }
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}
