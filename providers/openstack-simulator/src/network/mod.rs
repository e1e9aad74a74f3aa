//! Neutron: networks, ports, routers, floating IPs and security groups.

pub(crate) mod addresses;
mod floating_ips;
mod ports;
mod quotas;
mod routers;
mod security_groups;
pub(crate) mod skeletons;
mod tags;

use serde_json::{Value, json};

use crate::identity;
use crate::listing;
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(crate) use ports::remove as remove_port;
pub(crate) use security_groups::add as add_group;

/// Collections with generic list and get requests.
const COLLECTIONS: [Collection; 7] = [
    Collection::new(Kind::Network, "network", "networks", "NetworkNotFound", "Network"),
    Collection::new(Kind::Subnet, "subnet", "subnets", "SubnetNotFound", "Subnet"),
    Collection::new(Kind::Port, "port", "ports", "PortNotFound", "Port"),
    Collection::new(Kind::Router, "router", "routers", "RouterNotFound", "Router"),
    Collection::new(Kind::FloatingIp, "floatingip", "floatingips", "FloatingIPNotFound", "Floating IP"),
    Collection::new(
        Kind::SecurityGroup,
        "security_group",
        "security-groups",
        "SecurityGroupNotFound",
        "Security group",
    ),
    Collection::new(
        Kind::SecurityGroupRule,
        "security_group_rule",
        "security-group-rules",
        "SecurityGroupRuleNotFound",
        "Security group rule",
    ),
];

/// Names of one kind in paths, bodies and error messages.
pub(crate) struct Collection {
    kind: Kind,
    singular: &'static str,
    plural: &'static str,
    fault: &'static str,
    noun: &'static str,
}

impl Collection {
    const fn new(
        kind: Kind,
        singular: &'static str,
        plural: &'static str,
        fault: &'static str,
        noun: &'static str,
    ) -> Collection {
        Collection { kind, singular, plural, fault, noun }
    }

    fn of(kind: Kind) -> Option<&'static Collection> {
        COLLECTIONS.iter().find(|collection| collection.kind == kind)
    }

    fn not_found(&self, id: &str) -> Reply {
        let end = match self.kind {
            Kind::SecurityGroup | Kind::SecurityGroupRule => "does not exist",
            Kind::Router | Kind::FloatingIp => "could not be found",
            _ => "could not be found.",
        };
        fault(404, self.fault, &format!("{} {id} {end}", self.noun))
    }
}

pub(crate) fn answer(state: &mut State, call: &Call) -> Outcome {
    let resource = call.resource();
    if call.path.is_empty() {
        return Ok(versions(call));
    }
    identity::check_token(state, call)?;
    match (call.method.as_str(), resource.as_slice()) {
        ("GET", ["extensions"]) => Ok(extensions(state)),
        ("GET", ["quotas", _]) => Ok(quotas::limits(state)),
        ("GET", ["quotas", _, "details" | "details.json"]) => Ok(quotas::details(state)),
        ("POST", ["ports"]) => ports::create(state, call),
        ("PUT", ["ports", id]) => ports::update(state, call, id),
        ("DELETE", ["ports", id]) => ports::delete(state, id),
        (_, ["ports", id, "tags", ..]) => tags::answer(state, call, id),
        ("PUT", ["routers", id]) => routers::update(state, call, id),
        ("PUT", ["routers", id, "add_extraroutes"]) => routers::add_routes(state, call, id),
        ("PUT", ["routers", id, "remove_extraroutes"]) => routers::remove_routes(state, call, id),
        ("POST", ["floatingips"]) => floating_ips::create(state, call),
        ("PUT", ["floatingips", id]) => floating_ips::update(state, call, id),
        ("DELETE", ["floatingips", id]) => delete(state, Kind::FloatingIp, id),
        ("POST", ["security-groups"]) => security_groups::create(state, call),
        ("PUT", ["security-groups", id]) => security_groups::update(state, call, id),
        ("DELETE", ["security-groups", id]) => security_groups::delete(state, id),
        ("POST", ["security-group-rules"]) => security_groups::create_rule(state, call),
        ("DELETE", ["security-group-rules", id]) => delete(state, Kind::SecurityGroupRule, id),
        ("GET", [plural]) => list(state, call, collection(plural)?),
        ("GET", [plural, id]) => get(state, collection(plural)?, id),
        _ => Err(no_such_path()),
    }
}

fn collection(plural: &str) -> Result<&'static Collection, Reply> {
    COLLECTIONS.iter().find(|collection| collection.plural == plural).ok_or_else(no_such_path)
}

fn no_such_path() -> Reply {
    fault(404, "HTTPNotFound", "The resource could not be found.")
}

fn versions(call: &Call) -> Reply {
    let links = json!([{"rel": "self", "href": call.url("v2.0/")}]);
    Reply::json(200, json!({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}))
}

fn extensions(state: &State) -> Reply {
    let extension = |alias: &String| json!({"name": alias, "alias": alias, "description": alias, "updated": "2013-02-01T10:00:00-00:00", "links": []});
    Reply::json(200, json!({"extensions": state.options.extensions.iter().map(extension).collect::<Vec<_>>()}))
}

fn list(state: &State, call: &Call, collection: &Collection) -> Outcome {
    let known = skeletons::of(collection.kind);
    let is_known = |field: &str| known.contains_key(field) || listing::TAG_FILTERS.contains(&field);
    let unknown: Vec<&str> = listing::filters(call).map(|(field, _)| field).filter(|field| !is_known(field)).collect();
    if !unknown.is_empty() {
        return Err(bad_request("HTTPBadRequest", &format!("{unknown:?} is invalid attribute for filtering")));
    }
    let bad_limit = |limit| format!("Bad limit request: Limit must be an integer 0 or greater and not '{limit}'.");
    let limit = listing::limit(call, state.options.records_per_page);
    let limit = limit.map_err(|limit| bad_request("BadRequest", &bad_limit(limit)))?;
    let rows = state.records.of(collection.kind).iter().filter(|row| is_visible(state, collection.kind, &row.record));
    let rows = rows.map(|row| view(state, collection.kind, &row.record));
    let records =
        rows.filter(|record| listing::filters(call).all(|(field, values)| listing::matches(record, field, &values)));
    let page = listing::page(call, records.collect(), limit).map_err(|marker| collection.not_found(&marker))?;
    Ok(Reply::json(200, with_links(call, collection, page, limit.is_some())))
}

/// Renders a page. Neutron links to the next page whenever this one is full, and always to the previous one.
fn with_links(call: &Call, collection: &Collection, page: listing::Page, is_paged: bool) -> Value {
    let plural = collection.plural.replace('-', "_");
    let mut links = Vec::new();
    links.extend(page.next.map(|last| listing::link(call, "next", &last, true, false)));
    links.extend(page.first.map(|first| listing::link(call, "previous", &first, true, true)));
    let mut body = Record::new();
    body.set(&plural, page.items);
    if is_paged && !links.is_empty() {
        body.set(&format!("{plural}_links"), links);
    }
    Value::Object(body)
}

fn get(state: &State, collection: &Collection, id: &str) -> Outcome {
    let record = state.records.get(collection.kind, id).filter(|record| is_visible(state, collection.kind, record));
    let record = record.ok_or_else(|| collection.not_found(id))?;
    Ok(Reply::one(200, collection.singular, view(state, collection.kind, record)))
}

/// Whether the project may see the record.
fn is_visible(state: &State, kind: Kind, record: &Record) -> bool {
    let is_external = |network: &Record| network.get("router:external") == Some(&json!(true));
    state.options.external_subnets_visible
        || kind != Kind::Subnet
        || !state.records.get(Kind::Network, record.text("network_id")).is_some_and(is_external)
}

fn delete(state: &mut State, kind: Kind, id: &str) -> Outcome {
    match state.records.of_mut(kind).remove(id) {
        Some(_) => Ok(Reply::empty(204)),
        None => Err(not_found(kind, id)),
    }
}

/// Record as responses show it, with references to related records.
pub(crate) fn view(state: &State, kind: Kind, record: &Record) -> Record {
    let (mut view, id) = (record.clone(), record.text("id"));
    match kind {
        Kind::Network => {
            let subnets = state.records.of(Kind::Subnet).iter().filter(|row| row.record.text("network_id") == id);
            view.set("subnets", subnets.map(|row| json!(row.record.text("id"))).collect::<Vec<_>>());
        }
        Kind::SecurityGroup => {
            let rules = state.records.of(Kind::SecurityGroupRule).iter();
            let rules = rules.filter(|row| row.record.text("security_group_id") == id);
            view.set("security_group_rules", rules.map(|row| with_tags(&row.record)).collect::<Vec<Value>>());
        }
        Kind::FloatingIp => view.set("port_details", floating_ips::port_details(state, record)),
        _ => {}
    }
    view
}

/// Adds `tags`, which a rule only has within its group.
fn with_tags(rule: &Record) -> Value {
    let mut rule = rule.clone();
    rule.set("tags", json!([]));
    rule.into()
}

/// Error in Neutron's format.
pub(crate) fn fault(status: u16, kind: &str, message: &str) -> Reply {
    Reply::json(status, json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}))
}

fn bad_request(kind: &str, message: &str) -> Reply {
    fault(400, kind, message)
}

fn not_found(kind: Kind, id: &str) -> Reply {
    Collection::of(kind).map_or_else(no_such_path, |collection| collection.not_found(id))
}

/// Returns the fields in the request body.
fn sent(call: &Call, name: &str) -> Result<Record, Reply> {
    if call.json().is_none() {
        return Err(bad_request("MalformedRequestBody", "Malformed request body: Cannot understand JSON."));
    }
    let missing = || bad_request("HTTPBadRequest", &format!("Unable to find '{name}' in request body"));
    let sent = call.object(name).ok_or_else(missing)?;
    Ok(sent)
}

/// Rejects unknown fields.
fn check_fields(kind: Kind, sent: &Record) -> Result<(), Reply> {
    let known = skeletons::of(kind);
    match sent.keys().find(|field| !known.contains_key(*field) && *field != "subnet_id") {
        Some(field) => Err(bad_request("HTTPBadRequest", &format!("Unrecognized attribute(s) '{field}'"))),
        None => Ok(()),
    }
}

/// Rejects an update whose `If-Match` revision is not the current one.
fn check_revision(call: &Call, record: &Record) -> Result<(), Reply> {
    let Some(expected) = call.header("if-match").and_then(|text| text.strip_prefix("revision_number=")) else {
        return Ok(());
    };
    let current = record.get("revision_number").and_then(Value::as_u64).unwrap_or_default();
    if expected == current.to_string() {
        return Ok(());
    }
    let message = format!("Constrained to {expected}, but current revision is {current}");
    Err(fault(412, "RevisionNumberConstraintFailed", &message))
}

/// Updates revision number and date after a change.
pub(crate) fn touch(record: &mut Record, date: &str) {
    let revision = record.get("revision_number").and_then(Value::as_u64).unwrap_or_default();
    record.set("revision_number", revision + 1);
    record.set("updated_at", date);
}
