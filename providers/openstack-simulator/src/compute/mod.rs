//! Nova: servers and flavors.

mod pattern;

use serde_json::{Value, json};

use crate::identity;
use crate::listing::{self, one};
use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::wire::{Call, Outcome, Reply};
use pattern::Pattern;

pub(crate) fn answer(state: &mut State, call: &Call) -> Outcome {
    let resource = call.resource();
    if resource.is_empty() {
        return Ok(version(call));
    }
    identity::check_token(state, call)?;
    match (call.method.as_str(), resource.as_slice()) {
        ("GET", ["servers", "detail"]) => servers(state, call),
        ("GET", ["servers", id]) => server(state, call, id),
        ("GET", ["flavors"] | ["flavors", "detail"]) => Ok(flavors(state, call)),
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
    let pattern = match call.value("name") {
        Some(text) => Some(Pattern::read(text).ok_or_else(|| bad_name(text))?),
        None => None,
    };
    let most = Some(state.options.servers_per_page);
    let limit = listing::limit(call, most).map_err(|limit| bad_limit(&limit))?;
    // Nova shows the newest first.
    let newest = state.records.of(Kind::Server).oldest_first().into_iter().rev().map(|row| &row.record);
    let wanted = newest.filter(|server| pattern.as_ref().is_none_or(|name| name.matches(server.text("name"))));
    let records = wanted.map(|server| shown(call, server)).collect();
    let page =
        listing::page(call, records, limit).map_err(|marker| bad_request(&format!("marker [{marker}] not found")))?;
    let mut body = json!({"servers": page.items});
    if let Some(last) = page.next {
        body["servers_links"] = json!([listing::link(call, "next", &last, true, false)]);
    }
    Ok(Reply::json(200, body))
}

fn server(state: &State, call: &Call, id: &str) -> Outcome {
    let missing = || not_found(&format!("Instance {id} could not be found."));
    let server = state.records.get(Kind::Server, id).ok_or_else(missing)?;
    Ok(one(200, "server", shown(call, server)))
}

fn flavors(state: &State, call: &Call) -> Reply {
    let flavors = state.records.of(Kind::Flavor).iter().map(|row| with_links(call, &row.record, "flavors").into());
    Reply::json(200, json!({"flavors": flavors.collect::<Vec<Value>>()}))
}

fn flavor(state: &State, call: &Call, id: &str) -> Outcome {
    let missing = || not_found(&format!("Flavor {id} could not be found."));
    let flavor = state.records.get(Kind::Flavor, id).ok_or_else(missing)?;
    Ok(one(200, "flavor", with_links(call, flavor, "flavors")))
}

fn shown(call: &Call, server: &Record) -> Record {
    let mut shown = with_links(call, server, "servers");
    for (field, collection) in [("flavor", "flavors"), ("image", "images")] {
        if let Some(Value::Object(thing)) = shown.get_mut(field) {
            let href = call.url(&format!("{collection}/{}", thing.text("id")));
            thing.set("links", json!([{"rel": "bookmark", "href": href}]));
        }
    }
    shown
}

fn with_links(call: &Call, record: &Record, collection: &str) -> Record {
    let (mut shown, id) = (record.clone(), record.text("id"));
    let own = json!({"rel": "self", "href": call.url(&format!("v2.1/{collection}/{id}"))});
    shown.set("links", json!([own, {"rel": "bookmark", "href": call.url(&format!("{collection}/{id}"))}]));
    shown
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
