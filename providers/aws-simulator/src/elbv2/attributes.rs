//! Attributes of load balancers and target groups.

use bowline_simulator::{Fields, Record};
use serde_json::{Value, json};

use super::{check_arns, find};
use crate::fixture;
use crate::params::{Params, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

/// Default attributes of a new record.
pub(super) fn defaults(kind: &str) -> Value {
    fixture::attributes(kind)
}

pub(super) fn describe(state: &mut State, kind: &'static str, arn: &str) -> Outcome {
    check_arns(state, kind, &[arn])?;
    Ok(json!({"Attributes": state.records.get(kind, arn).map_or(Vec::new(), shown)}))
}

/// Changes attributes, and returns all of them.
pub(super) fn modify(state: &mut State, kind: &'static str, arn: &str, params: &Params) -> Outcome {
    let record = find(state, kind, arn)?;
    let mut attributes = record.get("_attributes").cloned().unwrap_or_default();
    for change in params.items("Attributes") {
        let (key, value) = (text(change, "Key"), text(change, "Value"));
        let unknown =
            || Failure::validation(format!("{} attribute key '{key}' is not recognized", kind.replace('_', " ")));
        require(!attributes[key].is_null(), unknown)?;
        let is_flag = key.ends_with(".enabled") && text(&attributes, key) != "use_load_balancer_configuration";
        let is_valid = !is_flag || ["true", "false"].contains(&value);
        require(is_valid, || {
            Failure::validation(format!("The value of attribute '{key}' must be either true or false"))
        })?;
        attributes[key] = value.into();
    }
    check(record, &attributes)?;
    record.set("_attributes", attributes);
    Ok(json!({"Attributes": shown(record)}))
}

/// Checks rules between attributes.
fn check(record: &Record, attributes: &Value) -> Result<(), Failure> {
    let conflict = |message: &str| Failure::new("InvalidConfigurationRequest", message);
    let has_log = attributes["access_logs.s3.enabled"] != "true" || attributes["access_logs.s3.bucket"] != "";
    require(has_log, || conflict("The access logs require an S3 bucket"))?;
    let is_udp = record.text("Protocol").contains("UDP");
    let preserves = !is_udp || attributes["preserve_client_ip.enabled"] == "true";
    require(preserves, || conflict("Client IP preservation cannot be disabled for UDP and TCP_UDP target groups"))
}

fn shown(record: &Record) -> Vec<Value> {
    let attributes = record.get("_attributes").and_then(Value::as_object).into_iter().flatten();
    attributes.map(|(key, value)| json!({"Key": key, "Value": value})).collect()
}
