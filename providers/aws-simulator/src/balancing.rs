//! Parts that both load balancing APIs share: pages, names, tags, subnets, security groups and instances.

use std::collections::BTreeSet;

use bowline_simulator::{Fields, Record};
use serde_json::{Map, Value, json};

use crate::params::{Params, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

/// Maximum number of tags of a resource.
const TAG_LIMIT: usize = 50;

/// One page of items, which have at most as many items as the options allow.
pub(crate) fn page(state: &State, params: &Params, set: &str, items: Vec<Value>) -> Outcome {
    let size = params.number("PageSize")?.unwrap_or(state.options.elb_page);
    require((1..=400).contains(&size), || Failure::validation("PageSize must be between 1 and 400"))?;
    let start = params.given("Marker").map_or(Some(0), |marker| marker.strip_prefix("page-")?.parse().ok());
    let start = start.filter(|start| *start <= items.len()).ok_or_else(|| Failure::validation("Invalid marker"))?;
    let end = (start + size.min(state.options.elb_page)).min(items.len());
    let mut content = Map::new();
    if end < items.len() {
        content.set("NextMarker", format!("page-{end}"));
    }
    content.set(set, items.get(start..end).unwrap_or_default());
    Ok(content.into())
}

/// Checks a name of a load balancer or target group: letters, digits and inner dashes, at most 32.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let is_legal = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && (1..=32).contains(&name.len());
    let is_name = is_legal && !name.starts_with('-') && !name.ends_with('-');
    let message = format!(
        "The name '{name}' can only contain characters that are alphanumeric characters and hyphens(-), and 32 of them"
    );
    require(is_name, || Failure::validation(message))
}

/// Checks that a port is between 1 and 65535.
pub(crate) fn check_port(port: &str) -> Result<(), Failure> {
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    require(is_port, || Failure::validation(format!("Port '{port}' is not between 1 and 65535")))
}

/// Checks that a number is in a range.
pub(crate) fn check_range(name: &str, value: &str, low: u64, high: u64) -> Result<(), Failure> {
    let fits = value.parse::<u64>().is_ok_and(|value| (low..=high).contains(&value));
    require(fits, || Failure::validation(format!("{name} '{value}' must be between {low} and {high}")))
}

/// Checks that a certificate exists.
pub(crate) fn check_certificate(state: &State, arn: &str) -> Result<(), Failure> {
    let missing = || Failure::new("CertificateNotFound", format!("Certificate '{arn}' not found"));
    require(state.records.get("certificate", arn).is_some(), missing)
}

/// Checks that security groups exist in the VPC.
pub(crate) fn check_groups(state: &State, vpc: &str, groups: &[&str]) -> Result<(), Failure> {
    let is_known = |id: &&str| state.records.get("security_group", id).is_some_and(|group| group.text("vpcId") == vpc);
    match groups.iter().find(|id| !is_known(id)) {
        Some(id) => Err(Failure::new("InvalidSecurityGroup", format!("Security group '{id}' is not valid"))),
        None => Ok(()),
    }
}

/// Subnets with these IDs. They must be in one VPC and in different zones.
pub(crate) fn subnets(state: &State, ids: &[&str]) -> Result<Vec<Record>, Failure> {
    let missing = |id: &str| Failure::new("SubnetNotFound", format!("The subnet ID '{id}' does not exist"));
    let find = |id: &&str| state.records.get("subnet", id).cloned().ok_or_else(|| missing(id));
    let subnets = ids.iter().map(find).collect::<Result<Vec<Record>, Failure>>()?;
    let values = |field| subnets.iter().map(|subnet| subnet.text(field)).collect::<BTreeSet<_>>().len();
    require(!subnets.is_empty(), || Failure::validation("At least one subnet must be specified"))?;
    require(values("vpcId") == 1, || Failure::new("InvalidSubnet", "All subnets must be in the same VPC"))?;
    let message = "A load balancer cannot be attached to multiple subnets in the same Availability Zone";
    require(values("availabilityZone") == subnets.len(), || Failure::new("InvalidConfigurationRequest", message))?;
    Ok(subnets)
}

/// Names of the zones of these subnets, sorted.
pub(crate) fn zones(subnets: &[Record]) -> Vec<String> {
    let mut zones: Vec<String> = subnets.iter().map(|subnet| subnet.text("availabilityZone").to_owned()).collect();
    zones.sort();
    zones
}

/// State of an instance; `None` if it does not exist in this VPC.
pub(crate) fn instance_state<'a>(state: &'a State, vpc: &str, id: &str) -> Option<&'a str> {
    let instance = state.records.get("instance", id).filter(|instance| instance.text("vpcId") == vpc)?;
    instance.get("instanceState").map(|state| text(state, "name"))
}

// ---- tags

/// Tags with these keys and values.
pub(crate) fn tags(tags: &[(&str, &str)]) -> Value {
    tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect::<Vec<_>>().into()
}

/// Tags of a creation request. A missing value is empty.
pub(crate) fn new_tags(params: &Params) -> Result<Value, Failure> {
    let mut record = Record::new();
    add_tags(&mut record, params.items("Tags"))?;
    Ok(record.remove("_tags").unwrap_or_default())
}

/// Adds tags to a record; equal keys are replaced.
pub(crate) fn add_tags(record: &mut Record, added: &[Value]) -> Result<(), Failure> {
    let keys: BTreeSet<&str> = added.iter().map(|tag| text(tag, "Key")).collect();
    let message = "The request contains a duplicate tag key";
    require(keys.len() == added.len(), || Failure::new("DuplicateTagKeys", message))?;
    for tag in added {
        let (key, value) = (text(tag, "Key"), text(tag, "Value"));
        let is_valid = (1..=128).contains(&key.len()) && value.len() <= 256 && !key.starts_with("aws:");
        require(is_valid, || Failure::validation(format!("The tag '{key}' is invalid")))?;
    }
    let held = record.get("_tags").cloned().unwrap_or_default();
    let mut kept: Vec<Value> = held.as_array().cloned().unwrap_or_default();
    kept.retain(|tag| !keys.contains(text(tag, "Key")));
    kept.extend(added.iter().map(|tag| json!({"Key": tag["Key"], "Value": text(tag, "Value")})));
    require(kept.len() <= TAG_LIMIT, || {
        Failure::new("TooManyTags", "The quota for the number of tags has been reached")
    })?;
    record.set("_tags", kept);
    Ok(())
}

/// Removes tags with these keys.
pub(crate) fn remove_tags(record: &mut Record, keys: &[&str]) {
    crate::instances::retain(record, "_tags", |tag| !keys.contains(&text(tag, "Key")));
}

/// Items of a list field of a record.
pub(crate) fn list(record: &Record, field: &str) -> Vec<Value> {
    record.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Texts in a field of the items of a list parameter.
pub(crate) fn texts_of<'a>(params: &'a Params, list: &str, field: &str) -> Vec<&'a str> {
    params.items(list).iter().map(|item| text(item, field)).collect()
}

/// Limits in the format of both APIs.
pub(crate) fn limits(limits: &[(&str, usize)]) -> Value {
    let limits: Vec<Value> = limits.iter().map(|(name, max)| json!({"Name": name, "Max": max.to_string()})).collect();
    json!({"Limits": limits})
}

/// Whether all values of a request are equal to those of a record.
pub(crate) fn agrees(record: &Record, fields: &[(&str, &str)]) -> bool {
    fields.iter().all(|(field, value)| value.is_empty() || record.text(field) == *value)
}

/// Sorted texts, for comparison.
pub(crate) fn sorted<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut texts: Vec<&str> = texts.into_iter().collect();
    texts.sort_unstable();
    texts
}
