//! Health check and attributes of classic load balancers.

use bowline_simulator::Fields;
use serde_json::{Value, json};

use super::named;
use crate::balancing::{check_port, check_range};
use crate::params::{Params, items, text};
use crate::simulator::State;
use crate::wire::{Failure, Outcome, require};

pub(super) const HEALTH_CHECK: &str =
    "LoadBalancerName! HealthCheck.{Target!,Interval!,Timeout!,UnhealthyThreshold!,HealthyThreshold!}";

pub(super) const ATTRIBUTES: &str = "LoadBalancerName! LoadBalancerAttributes.{CrossZoneLoadBalancing.Enabled,\
AccessLog.{Enabled,S3BucketName,EmitInterval,S3BucketPrefix},ConnectionDraining.{Enabled,Timeout},ConnectionSettings.IdleTimeout,\
AdditionalAttributes.#.{Key,Value}}";

/// Ranges of the numbers of a health check.
const NUMBERS: [(&str, u64, u64); 4] =
    [("Interval", 5, 300), ("Timeout", 2, 60), ("UnhealthyThreshold", 2, 10), ("HealthyThreshold", 2, 10)];

pub(super) fn configure_health_check(state: &mut State, params: &Params) -> Outcome {
    let check = params.value("HealthCheck").clone();
    let record = named(state, params)?;
    check_target(text(&check, "Target"))?;
    for (field, low, high) in NUMBERS {
        check_range(&format!("HealthCheck {field}"), text(&check, field), low, high)?;
    }
    let number = |field: &str| text(&check, field).parse::<u64>().unwrap_or_default();
    let message = "HealthCheck timeout must be less than interval";
    require(number("Timeout") < number("Interval"), || Failure::validation(message))?;
    record.set("HealthCheck", check.clone());
    Ok(json!({"HealthCheck": check}))
}

/// Checks a target: `TCP:80`, `SSL:443`, `HTTP:80/path` or `HTTPS:443/path`.
fn check_target(target: &str) -> Result<(), Failure> {
    let invalid = || Failure::validation(format!("HealthCheck Target '{target}' is invalid"));
    let (protocol, rest) = target.split_once(':').ok_or_else(invalid)?;
    let (port, path) = rest.split_once('/').map_or((rest, None), |(port, path)| (port, Some(path)));
    let has_path = match protocol.to_uppercase().as_str() {
        "TCP" | "SSL" => false,
        "HTTP" | "HTTPS" => true,
        _ => return Err(invalid()),
    };
    require(path.is_some() == has_path && path.is_none_or(|path| path.len() < 1024), invalid)?;
    check_port(port)
}

pub(super) fn describe(state: &mut State, params: &Params) -> Outcome {
    if state.is_empty_view() {
        return Ok(json!({"LoadBalancerAttributes": {}}));
    }
    Ok(json!({"LoadBalancerAttributes": named(state, params)?.get("_attributes")}))
}

/// Changes attributes. Those that the request leaves out are kept.
pub(super) fn modify(state: &mut State, params: &Params) -> Outcome {
    let sent = params.value("LoadBalancerAttributes").clone();
    let record = named(state, params)?;
    let name = record.text("LoadBalancerName").to_owned();
    check(&sent)?;
    let mut attributes = record.get("_attributes").cloned().unwrap_or_default();
    for (group, fields) in sent.as_object().into_iter().flatten() {
        if let Some(fields) = fields.as_object() {
            fields.iter().for_each(|(field, value)| attributes[group][field] = value.clone());
        }
    }
    for change in items(&sent, "AdditionalAttributes") {
        let list = attributes["AdditionalAttributes"].as_array_mut().into_iter().flatten();
        let unknown = || {
            Failure::new("InvalidConfigurationRequest", format!("Unknown attribute {}", text(change, "Key")))
                .with_status(409)
        };
        *list.into_iter().find(|held| held["Key"] == change["Key"]).ok_or_else(unknown)? = change.clone();
    }
    record.set("_attributes", attributes.clone());
    Ok(json!({"LoadBalancerName": name, "LoadBalancerAttributes": attributes}))
}

fn check(sent: &Value) -> Result<(), Failure> {
    let log = &sent["AccessLog"];
    let message = "An S3 bucket name is required to enable access logs";
    let has_bucket = text(log, "Enabled") != "true" || !text(log, "S3BucketName").is_empty();
    require(has_bucket, || Failure::new("InvalidConfigurationRequest", message).with_status(409))?;
    require(["", "5", "60"].contains(&text(log, "EmitInterval")), || {
        Failure::validation("EmitInterval must be 5 or 60")
    })?;
    for group in ["CrossZoneLoadBalancing", "AccessLog", "ConnectionDraining"] {
        let is_flag = ["", "true", "false"].contains(&text(&sent[group], "Enabled"));
        require(is_flag, || Failure::validation(format!("{group}.Enabled must be true or false")))?;
    }
    for (group, field, low, high) in
        [("ConnectionSettings", "IdleTimeout", 1, 4000), ("ConnectionDraining", "Timeout", 1, 3600)]
    {
        if !sent[group][field].is_null() {
            check_range(field, text(&sent[group], field), low, high)?;
        }
    }
    Ok(())
}
