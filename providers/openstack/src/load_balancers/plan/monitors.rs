//! Health monitors of pools.

use std::fmt;

use bowline_core::{FieldChange, PortSpec, Verb};
use serde_json::{Value, json};

use super::super::change::{Change, PoolRef};
use super::super::names::Part;
use super::super::observation::PoolState;
use super::super::settings::MonitorKind;
use super::{Context, Draft, field};
use crate::api::octavia::{HEALTH_MONITORS, HealthMonitor, Listener};
use crate::config::MonitorTimes;

/// Desired health monitor, without its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DesiredMonitor {
    kind: MonitorKind,
    times: MonitorTimes,
}

/// Returns the health monitor of a port's pool, if one is desired.
pub(super) fn desired(context: &Context<'_>, port: &PortSpec) -> Option<DesiredMonitor> {
    let desired = context.settings.monitor.as_ref()?;
    let provider = &context.config.load_balancer.provider;
    Some(DesiredMonitor { kind: desired.kind(port.protocol, context.seen.features, provider), times: desired.times })
}

impl DesiredMonitor {
    /// Returns the port that is probed instead of the member's own.
    pub(super) fn port(&self) -> Option<u16> {
        self.kind.port
    }

    pub(super) fn body(&self, name: &str) -> Value {
        let mut body = self.numbers();
        body["name"] = json!(name);
        body["type"] = json!(self.kind.kind);
        if let Some(path) = &self.kind.path {
            body["url_path"] = json!(path);
            body["http_method"] = json!("GET");
            body["expected_codes"] = json!("200");
        }
        body
    }

    // upstream: max_retries_down is not sent if it is 0, and Octavia chooses it.
    fn numbers(&self) -> Value {
        let MonitorTimes { delay, timeout, max_retries, max_retries_down } = self.times;
        let mut numbers = json!({"delay": delay, "timeout": timeout, "max_retries": max_retries});
        if max_retries_down != 0 {
            numbers["max_retries_down"] = json!(max_retries_down);
        }
        numbers
    }

    fn differences(&self, name: &str, now: &HealthMonitor) -> Vec<FieldChange> {
        let MonitorTimes { delay, timeout, max_retries, max_retries_down } = self.times;
        let down = if max_retries_down == 0 { now.max_retries_down } else { max_retries_down };
        let path = self.kind.path.clone().unwrap_or_else(|| now.url_path.clone());
        let fields = [
            ("name", now.name.clone(), name.to_owned()),
            ("url_path", now.url_path.clone(), path),
            ("delay", now.delay.to_string(), delay.to_string()),
            ("timeout", now.timeout.to_string(), timeout.to_string()),
            ("max_retries", now.max_retries.to_string(), max_retries.to_string()),
            ("max_retries_down", now.max_retries_down.to_string(), down.to_string()),
        ];
        let differing = fields.into_iter().filter(|(_, now, then)| now != then);
        differing.map(|(key, now, then)| field(key, Some(now), Some(then))).collect()
    }
}

/// Adds the steps from the observed to the desired health monitor.
pub(super) fn steps(
    context: &Context<'_>,
    index: usize,
    port: &PortSpec,
    seen: Option<&PoolState>,
    listener: Option<&Listener>,
    pool: &PoolRef,
    draft: &mut Draft,
) {
    let name = context.names.part(Part::Monitor, index);
    match (seen.and_then(|seen| seen.monitor.as_ref()), desired(context, port)) {
        (None, None) => {}
        (None, Some(wanted)) => create(&name, &wanted, pool, draft),
        (Some(existing), None) => delete(existing, draft),
        (Some(existing), Some(wanted)) if existing.kind != wanted.kind.kind => {
            delete(existing, draft);
            create(&name, &wanted, pool, draft);
        }
        (Some(existing), Some(wanted)) => {
            update(&accepted_name(context, name, listener, existing), &wanted, existing, draft)
        }
    }
}

/// Accepts a name with the number of the listener: the ports of a Service may be reordered, and nothing else changes.
fn accepted_name(context: &Context<'_>, name: String, listener: Option<&Listener>, existing: &HealthMonitor) -> String {
    let number = listener.and_then(|listener| Part::Listener.number(&listener.name));
    let other = number.map(|number| context.names.part(Part::Monitor, number));
    other.filter(|other| *other == existing.name).unwrap_or(name)
}

fn create(name: &str, wanted: &DesiredMonitor, pool: &PoolRef, draft: &mut Draft) {
    let changes = vec![field("watches", None, Some(wanted.to_string()))];
    let change = Change::CreateMonitor { pool: pool.clone(), body: wanted.body(name) };
    draft.octavia(Verb::Create, HEALTH_MONITORS.resource.name, name, changes, change);
}

fn delete(existing: &HealthMonitor, draft: &mut Draft) {
    let changes = vec![field("type", Some(existing.kind.clone()), None)];
    draft.delete(HEALTH_MONITORS.resource, &existing.id, &existing.name, changes);
}

/// Updates all numbers and the name if any of them differs.
fn update(name: &str, wanted: &DesiredMonitor, existing: &HealthMonitor, draft: &mut Draft) {
    let changes = wanted.differences(name, existing);
    if changes.is_empty() {
        return;
    }
    let mut body = wanted.numbers();
    body["name"] = json!(name);
    if let Some(path) = wanted.kind.path.as_ref().filter(|path| **path != existing.url_path) {
        body["url_path"] = json!(path);
    }
    draft.update(HEALTH_MONITORS.resource, &existing.id, &existing.name, changes, body);
}

/// `HTTP /healthz at 31000 every 5 s`.
impl fmt::Display for DesiredMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.kind)?;
        self.kind.path.as_ref().map_or(Ok(()), |path| write!(f, " {path}"))?;
        self.kind.port.map_or(Ok(()), |port| write!(f, " at {port}"))?;
        write!(f, " every {} s", self.times.delay)
    }
}
