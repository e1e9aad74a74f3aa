//! Creates a load balancer in one request with all its parts. Providers that do not support that get one request per resource.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::{FieldChange, PortSpec, Verb};
use serde_json::{Map, Value};

use super::super::change::Change;
use super::super::names::Part;
use super::{Context, Draft, PLAN, field, listeners, members, monitors, pools};

pub(super) fn steps(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    listeners::check_ports(context)?;
    check_vip(context)?;
    let serial = context.config.load_balancer.serial;
    let mut body = balancer(context);
    let mut changes = described(context, &body);
    if !serial {
        draft.warn(members::skipped(context));
        let ports = context.spec.ports.iter().enumerate();
        let trees: Vec<Value> = ports.map(|(index, port)| tree(context, index, port)).collect();
        changes.extend(context.spec.ports.iter().map(|port| described_port(context, port)));
        changes.push(field("members", None, Some(members::described(context))));
        body.insert("listeners".to_owned(), Value::Array(trees));
    }
    let change = Change::CreateLoadBalancer { body: Value::Object(body) };
    // No load balancer to wait for exists yet.
    draft.push(None, Verb::Create, "load balancer", &context.names.balancer(), changes, change);
    if serial { listeners::steps(context, draft) } else { Ok(()) }
}

fn check_vip(context: &Context<'_>) -> Result<()> {
    let Some(port) = &context.seen.placement.vip_holder else { return Ok(()) };
    let address = context.spec.requested_address.as_deref().unwrap_or_default();
    let message = format!(
        "the address {address} is not available: port {} has it; request another in spec.loadBalancerIP, or delete the port",
        port.id
    );
    Err(Error::new(ErrorKind::AlreadyExists, PLAN, message).retry(Retry::Backoff))
}

/// Returns the request body of the load balancer alone, without empty fields.
fn balancer(context: &Context<'_>) -> Map<String, Value> {
    let (settings, features, places) = (context.settings, context.seen.features, &context.seen.placement);
    let mut body = Map::new();
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            body.insert(key.to_owned(), Value::from(value));
        }
    };
    put("name", &context.names.balancer());
    put("description", &context.names.balancer_description());
    put("provider", &context.config.load_balancer.provider);
    if features.flavors {
        put("flavor_id", &settings.flavor_id);
    }
    if features.availability_zones {
        put("availability_zone", &settings.availability_zone);
    }
    if settings.placement.vip_port_id.is_empty() {
        put("vip_subnet_id", &places.vip_subnet_id);
        put("vip_network_id", &places.vip_network_id);
    } else {
        put("vip_port_id", &settings.placement.vip_port_id);
    }
    put("vip_address", settings.vip_address(context.spec).unwrap_or_default());
    if features.tags {
        body.insert("tags".to_owned(), Value::from(vec![context.names.balancer()]));
    }
    body
}

/// Returns the listener of a port with pool, members and health monitor.
fn tree(context: &Context<'_>, index: usize, port: &PortSpec) -> Value {
    let mut pool = pools::body(context, index, port);
    let members: Vec<Value> = members::desired(context, port).iter().map(members::DesiredMember::body).collect();
    if !members.is_empty() {
        pool["members"] = Value::Array(members);
    }
    if let Some(wanted) = monitors::desired(context, port) {
        pool["healthmonitor"] = wanted.body(&context.names.part(Part::Monitor, index));
    }
    let mut listener = listeners::body(context, index, port);
    listener["default_pool"] = pool;
    listener
}

// ---- printed plan

/// Returns the fields that differ between Services.
fn described(context: &Context<'_>, body: &Map<String, Value>) -> Vec<FieldChange> {
    let chosen_fields = body.iter().filter(|(key, _)| !matches!(key.as_str(), "name" | "description" | "tags"));
    chosen_fields
        .map(|(key, value)| field(key, None, value.as_str().map(str::to_owned)))
        .chain(chosen(context))
        .collect()
}

fn chosen(context: &Context<'_>) -> impl Iterator<Item = FieldChange> {
    let settings = context.settings;
    let ranges =
        settings.allowed_cidrs(&context.families()).iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let is_limited = !settings.source_ranges.is_empty() && context.seen.features.allowed_cidrs;
    let ranges = is_limited.then(|| field("allowed_cidrs", None, Some(ranges)));
    let affinity = settings.sticky.then(|| field("session_persistence", None, Some(pools::BY_ADDRESS.to_owned())));
    ranges.into_iter().chain(affinity)
}

fn described_port(context: &Context<'_>, port: &PortSpec) -> FieldChange {
    let settings = context.settings;
    let to = members::node_port(port).map_or_else(|| "no node port".to_owned(), |port| format!("node port {port}"));
    let monitor = monitors::desired(context, port);
    let monitor = monitor.map_or_else(String::new, |wanted| format!(", health monitor {wanted}"));
    let text = format!("to {to}, pool {} {}{monitor}", settings.pool_protocol(port.protocol), settings.method);
    field(&format!("listener {}:{}", settings.listener_protocol(port.protocol), port.port), None, Some(text))
}
