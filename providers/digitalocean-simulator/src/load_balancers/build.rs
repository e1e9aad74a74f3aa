//! Load balancers as requests describe them, with defaults for everything else.

use bowline_simulator::{Fields, Record, object};
use serde_json::{Value, json};

use crate::fixture::{fields, items};
use crate::simulator::State;

/// Fields that are fixed at creation.
pub(super) const FIXED: [&str; 4] = ["type", "network", "network_stack", "vpc_uuid"];

/// Size slugs and their size in units.
pub(super) const SIZES: [(&str, u64); 3] = [("lb-small", 1), ("lb-medium", 3), ("lb-large", 6)];

/// Fields that only the cloud changes after the creation.
const KEPT: [&str; 5] = ["id", "ip", "ipv6", "status", "created_at"];

/// Fields that are stored as sent.
const SETTABLE: &str = "name algorithm type network network_stack vpc_uuid subnet_uuid size tag tags sticky_sessions \
    redirect_http_to_https enable_proxy_protocol enable_backend_keepalive disable_lets_encrypt_dns_records \
    http_idle_timeout_seconds project_id tls_cipher_policy domains";

/// Load balancer that this request describes. Fixed fields that an update leaves out keep their value.
pub(super) fn record(state: &State, body: &Record, old: Option<&Record>) -> Record {
    let mut record = fields("load_balancers", Record::new());
    record.set("vpc_uuid", state.default_vpc(body.text("region")));
    record.extend(KEPT.iter().chain(&FIXED).filter_map(|field| Some(((*field).to_owned(), old?.get(*field)?.clone()))));
    let is_settable = |field: &str| SETTABLE.split(' ').any(|name| name == field) || field == "ip" && old.is_none();
    let is_empty = |value: &Value| value.is_null() || value == "";
    for (field, value) in body.iter().filter(|(field, value)| is_settable(field) && !is_empty(value)) {
        record.set(field, value.clone());
    }
    let mut droplets = items(body, "droplet_ids").to_vec();
    droplets.sort_by_key(Value::as_u64);
    record.set("droplet_ids", droplets);
    record.set("forwarding_rules", items(body, "forwarding_rules").iter().map(rule).collect::<Vec<_>>());
    let part = |field: &str| body.get(field).cloned().map(object).unwrap_or_default();
    record.set("health_check", health_check(part("health_check")));
    record.set("firewall", fields("firewall", part("firewall")));
    record.set("region", state.region(body.text("region")));
    let unit = SIZES.iter().find(|(slug, _)| *slug == body.text("size")).map(|(_, unit)| json!(unit));
    record.set("size_unit", unit.or_else(|| body.get("size_unit").cloned()).unwrap_or(json!(1)));
    record
}

/// Forwarding rule as responses show it. Other values remain as they are.
pub(super) fn rule(sent: &Value) -> Value {
    sent.as_object().map_or_else(|| sent.clone(), |rule| fields("forwarding_rule", rule.clone()).into())
}

/// A TCP health check has no default path.
fn health_check(sent: Record) -> Record {
    let has_path = sent.text("protocol") != "tcp" || sent.contains_key("path");
    let mut check = fields("health_check", sent);
    check.retain(|field, _| has_path || field != "path");
    check
}
