//! Nova: servers and flavors.

use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};

use crate::identity;
use crate::listing;
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};

pub(crate) fn answer(state: &mut State, call: &Call) -> Outcome {
    let resource = call.resource();
    if resource.is_empty() {
        return Ok(version(call));
    }
    identity::check_token(state, call)?;
    match (call.method.as_str(), resource.as_slice()) {
        ("GET", ["servers", "detail"]) => servers(state, call),
        ("GET", ["servers", id]) => server(state, call, id),
        ("GET", ["flavors" | "servers"]) => Ok(brief(state, call, resource.contains(&"servers"))),
        ("GET", ["flavors", "detail"]) => Ok(flavors(state, call)),
        ("GET", ["flavors", id]) => flavor(state, call, id),
        _ => Err(Reply::text(404, "404 Not Found\n\nThe resource could not be found.\n\n   ")),
    }
}

fn version(call: &Call) -> Reply {
    let links = json!([{"rel": "self", "href": call.url("v2.1/")}]);
    let version = json!({"id": "v2.1", "status": "CURRENT", "version": "2.93", "min_version": "2.1",
        "updated": "2013-07-23T11:33:21Z", "links": links});
    Reply::json(200, json!({"version": version}))
}

fn servers(state: &State, call: &Call) -> Outcome {
    if call.value("all_tenants").is_some() {
        let message = "Policy doesn't allow os_compute_api:servers:detail:get_all_tenants to be performed.";
        return Err(Reply::json(403, json!({"forbidden": {"code": 403, "message": message}})));
    }
    let pattern = call.value("name").map(pattern).transpose()?;
    let maximum = Some(state.options.servers_per_page);
    let limit = listing::limit(call, maximum).map_err(|limit| bad_limit(&limit))?;
    // Nova lists the newest server first.
    let newest = state.records.of(Kind::Server).oldest_first().into_iter().rev().map(|row| &row.record);
    // Nova lists soft-deleted servers only for administrators.
    let newest = newest.filter(|server| server.text("status") != "SOFT_DELETED");
    let matching = newest.filter(|server| pattern.as_ref().is_none_or(|name| name.is_match(server.text("name"))));
    let records = matching.map(|server| view(state, call, server)).collect();
    let page =
        listing::page(call, records, limit).map_err(|marker| bad_request(&format!("marker [{marker}] not found")))?;
    let mut body = json!({"servers": page.items});
    if let Some(last) = page.next {
        body["servers_links"] = json!([listing::link(call, "next", &last, true, false)]);
    }
    Ok(Reply::json(200, body))
}

/// Compiles a name filter. Nova's database matches it anywhere in the name and, in MySQL, ignores case.
fn pattern(text: &str) -> Result<Regex, Reply> {
    RegexBuilder::new(text).case_insensitive(true).build().map_err(|_| bad_name(text))
}

fn server(state: &State, call: &Call, id: &str) -> Outcome {
    let missing = || not_found(&format!("Instance {id} could not be found."));
    let server = state.records.get(Kind::Server, id).ok_or_else(missing)?;
    Ok(Reply::one(200, "server", view(state, call, server)))
}

fn flavors(state: &State, call: &Call) -> Reply {
    let flavors = state.records.of(Kind::Flavor).iter().map(|row| with_links(call, &row.record, "flavors").into());
    Reply::json(200, json!({"flavors": flavors.collect::<Vec<Value>>()}))
}

/// Lists IDs, names and links only.
fn brief(state: &State, call: &Call, servers: bool) -> Reply {
    let (kind, many) = if servers { (Kind::Server, "servers") } else { (Kind::Flavor, "flavors") };
    let rows = state.records.of(kind).oldest_first().into_iter().map(|row| {
        let mut view = with_links(call, &row.record, many);
        view.retain(|field, _| ["id", "name", "links"].contains(&field.as_str()));
        view.into()
    });
    Reply::one(200, many, rows.collect::<Vec<Value>>())
}

fn flavor(state: &State, call: &Call, id: &str) -> Outcome {
    let missing = || not_found(&format!("Flavor {id} could not be found."));
    let flavor = state.records.get(Kind::Flavor, id).ok_or_else(missing)?;
    Ok(Reply::one(200, "flavor", with_links(call, flavor, "flavors")))
}

fn view(state: &State, call: &Call, server: &Record) -> Record {
    let mut view = with_links(call, server, "servers");
    add_floating_ips(state, &mut view);
    for (field, collection) in [("flavor", "flavors"), ("image", "images")] {
        if let Some(Value::Object(reference)) = view.get_mut(field) {
            let href = call.url(&format!("{collection}/{}", reference.text("id")));
            reference.set("links", json!([{"rel": "bookmark", "href": href}]));
        }
    }
    view
}

/// Adds the floating IPs of the server's ports to its addresses.
fn add_floating_ips(state: &State, server: &mut Record) {
    let ips = state.records.of(Kind::FloatingIp).iter().map(|row| &row.record);
    for ip in ips {
        let Some(port) = state.records.get(Kind::Port, ip.text("port_id")) else { continue };
        let network = state.records.get(Kind::Network, port.text("network_id"));
        let name = network.map_or("", |network| network.text("name"));
        if port.text("device_id") != server.text("id") {
            continue;
        }
        if let Some(Value::Array(list)) = server.get_mut("addresses").and_then(|all| all.get_mut(name)) {
            let (address, mac) = (ip.text("floating_ip_address"), port.text("mac_address"));
            list.push(
                json!({"version": 4, "addr": address, "OS-EXT-IPS:type": "floating", "OS-EXT-IPS-MAC:mac_addr": mac}),
            );
        }
    }
}

fn with_links(call: &Call, record: &Record, collection: &str) -> Record {
    let (mut view, id) = (record.clone(), record.text("id"));
    let own = json!({"rel": "self", "href": call.url(&format!("v2.1/{collection}/{id}"))});
    view.set("links", json!([own, {"rel": "bookmark", "href": call.url(&format!("{collection}/{id}"))}]));
    view
}

fn not_found(message: &str) -> Reply {
    Reply::json(404, json!({"itemNotFound": {"code": 404, "message": message}}))
}

fn bad_request(message: &str) -> Reply {
    Reply::json(400, json!({"badRequest": {"code": 400, "message": message}}))
}

fn bad_name(text: &str) -> Reply {
    bad_request(&format!("Invalid input for query parameters name. Value: {text}. '{text}' is not a 'regex'"))
}

fn bad_limit(text: &str) -> Reply {
    bad_request(&format!("Invalid input for query parameters limit. Value: {text}. '{text}' does not match '^[0-9]*$'"))
}
