//! Tags of EC2 resources.

use bowline_simulator::Fields;
use serde_json::{Value, json};

use super::{GROUPS, INSTANCES, INTERFACES, List, ROUTE_TABLES, SUBNETS, check_ids};
use crate::params::{Params, items, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

/// Maximum number of tags of a resource.
const LIMIT: usize = 50;

/// Tags of a request, or of a [`NewInstance`](crate::NewInstance), as responses show them.
pub(crate) fn tag_set<'a>(tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    tags.into_iter().map(|(key, value)| json!({"key": key, "value": value})).collect::<Vec<_>>().into()
}

/// Keys and values of tags in a request. A missing value is empty.
pub(crate) fn pairs(tags: &[Value]) -> impl Iterator<Item = (&str, &str)> {
    tags.iter().map(|tag| (text(tag, "Key"), text(tag, "Value")))
}

/// Checks keys and values of new tags.
pub(super) fn check(tags: &[Value]) -> Result<(), Failure> {
    for (key, value) in pairs(tags) {
        let is_reserved = key.to_ascii_lowercase().starts_with("aws:");
        require(!is_reserved, || Failure::invalid("Tag keys starting with 'aws:' are reserved for internal use"))?;
        let fits = (1..=128).contains(&key.len()) && value.len() <= 256;
        require(fits, || Failure::invalid(format!("Tag key or value exceeds the maximum length: '{key}'")))?;
    }
    Ok(())
}

pub(super) fn create(state: &mut State, params: &Params) -> Outcome {
    let tags = params.items("Tag");
    check(tags)?;
    for (kind, id) in resources(state, params)? {
        let held = state.records.get(kind, &id).and_then(|record| record.get("tagSet")).cloned().unwrap_or_default();
        let mut kept = held.as_array().cloned().unwrap_or_default();
        kept.retain(|tag| !pairs(tags).any(|(key, _)| tag["key"] == key));
        kept.extend(items(&json!({"new": tag_set(pairs(tags))}), "new").iter().cloned());
        let message = "The maximum number of Tags for a resource has been reached.";
        require(kept.len() <= LIMIT, || Failure::new("TagLimitExceeded", message))?;
        set(state, kind, &id, kept);
    }
    Ok(json!({"return": true}))
}

pub(super) fn delete(state: &mut State, params: &Params) -> Outcome {
    let tags = params.items("Tag");
    // A tag with a value is deleted only if it has that value; one without a value in the request is deleted whatever its value is.
    let is_deleted = |held: &Value| {
        tags.iter().any(|tag| held["key"] == tag["Key"] && (tag["Value"].is_null() || held["value"] == tag["Value"]))
    };
    for (kind, id) in resources(state, params)? {
        let held = state.records.get(kind, &id).and_then(|record| record.get("tagSet")).cloned().unwrap_or_default();
        let kept = held.as_array().into_iter().flatten().filter(|held| !tags.is_empty() && !is_deleted(held));
        set(state, kind, &id, kept.cloned().collect());
    }
    Ok(json!({"return": true}))
}

/// Kinds and IDs of all resources in a request. Fails for all of them if one does not exist.
fn resources(state: &State, params: &Params) -> Result<Vec<(&'static str, String)>, Failure> {
    let ids = params.texts("ResourceId");
    let lists: [&List; 5] = [&INSTANCES, &GROUPS, &SUBNETS, &ROUTE_TABLES, &INTERFACES];
    let kind_of = |id: &str| lists.into_iter().find(|list| id.starts_with(list.prefix));
    for list in lists {
        let of_kind: Vec<&str> = ids.iter().filter(|id| id.starts_with(list.prefix)).copied().collect();
        check_ids(state, list, &of_kind)?;
    }
    let unknown = |id: &str| Failure::new("InvalidID", format!("The ID '{id}' is not valid"));
    ids.into_iter().map(|id| Ok((kind_of(id).ok_or_else(|| unknown(id))?.kind, id.to_owned()))).collect()
}

fn set(state: &mut State, kind: &'static str, id: &str, tags: Vec<Value>) {
    if let Some(record) = state.records.get_mut(kind, id) {
        record.set("tagSet", tags);
    }
}
