//! How the members of a pool are watched.

use std::fmt;

use bowline_core::{FieldChange, PortSpec, Verb};
use serde_json::{Map, Value, json};

use super::super::change::{Change, PoolRef};
use super::super::names::Part;
use super::super::observation::SeenPool;
use super::super::settings::MonitorKind;
use super::{Context, Draft, field};
use crate::api::octavia::{HEALTH_MONITORS, HealthMonitor, Listener};
use crate::config::MonitorTimes;

/// A monitor as it is to be, but for its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    kind: MonitorKind,
    times: MonitorTimes,
}

/// The monitor of a port's pool, if members are watched.
pub(super) fn wanted(context: &Context<'_>, port: &PortSpec) -> Option<Wanted> {
    let desired = context.settings.monitor.as_ref()?;
    let provider = &context.config.load_balancer.provider;
    Some(Wanted { kind: desired.kind(port.protocol, context.seen.features, provider), times: desired.times })
}

impl Wanted {
    /// Where members are asked instead of on their own port.
    pub(super) fn port(&self) -> Option<u16> {
        self.kind.port
    }

    pub(super) fn body(&self, name: &str) -> Map<String, Value> {
        let mut body = self.numbers();
        body.insert("name".to_owned(), json!(name));
        body.insert("type".to_owned(), json!(self.kind.kind));
        if let Some(path) = &self.kind.path {
            body.insert("url_path".to_owned(), json!(path));
            body.insert("http_method".to_owned(), json!("GET"));
            body.insert("expected_codes".to_owned(), json!("200"));
        }
        body
    }

    // upstream: a number of bad answers that is 0 is not sent, and Octavia chooses one.
    fn numbers(&self) -> Map<String, Value> {
        let MonitorTimes { delay, timeout, max_retries, max_retries_down } = self.times;
        let all = [
            ("delay", delay),
            ("timeout", timeout),
            ("max_retries", max_retries),
            ("max_retries_down", max_retries_down),
        ];
        all.into_iter().filter(|(_, value)| *value != 0).map(|(key, value)| (key.to_owned(), json!(value))).collect()
    }

    fn differences(&self, name: &str, now: &HealthMonitor) -> Vec<FieldChange> {
        let MonitorTimes { delay, timeout, max_retries, max_retries_down } = self.times;
        let down = if max_retries_down == 0 { now.max_retries_down } else { max_retries_down };
        let numbers = [
            ("delay", now.delay, delay),
            ("timeout", now.timeout, timeout),
            ("max_retries", now.max_retries, max_retries),
            ("max_retries_down", now.max_retries_down, down),
        ];
        let path = self.kind.path.clone().unwrap_or_else(|| now.url_path.clone());
        let texts = [("name", now.name.clone(), name.to_owned()), ("url_path", now.url_path.clone(), path)];
        let numbers = numbers.map(|(key, now, then)| (key, now.to_string(), then.to_string()));
        let differing = texts.into_iter().chain(numbers).filter(|(_, now, then)| now != then);
        differing.map(|(key, now, then)| field(key, Some(now), Some(then))).collect()
    }
}

/// What is there becomes what is wanted.
pub(super) fn steps(
    context: &Context<'_>,
    index: usize,
    port: &PortSpec,
    seen: Option<&SeenPool>,
    listener: Option<&Listener>,
    pool: &PoolRef,
    draft: &mut Draft,
) {
    let name = context.names.part(Part::Monitor, index);
    match (seen.and_then(|seen| seen.monitor.as_ref()), wanted(context, port)) {
        (None, None) => {}
        (None, Some(wanted)) => create(&name, &wanted, pool, draft),
        (Some(there), None) => delete(there, draft),
        (Some(there), Some(wanted)) if there.kind != wanted.kind.kind => {
            delete(there, draft);
            create(&name, &wanted, pool, draft);
        }
        (Some(there), Some(wanted)) => update(&right_name(context, name, listener, there), &wanted, there, draft),
    }
}

/// A name with the number that the listener has is as good: ports may change places in the Service, and nothing else does.
fn right_name(context: &Context<'_>, name: String, listener: Option<&Listener>, there: &HealthMonitor) -> String {
    let number = listener.and_then(|listener| Part::Listener.number(&listener.name));
    let other = number.map(|number| context.names.part(Part::Monitor, number));
    other.filter(|other| *other == there.name).unwrap_or(name)
}

fn create(name: &str, wanted: &Wanted, pool: &PoolRef, draft: &mut Draft) {
    let changes = vec![field("watches", None, Some(wanted.to_string()))];
    let body = Value::Object(wanted.body(name));
    let change = Change::CreateMonitor { pool: pool.clone(), body };
    draft.octavia(Verb::Create, HEALTH_MONITORS.resource.name, name, changes, change);
}

fn delete(there: &HealthMonitor, draft: &mut Draft) {
    let changes = vec![field("type", Some(there.kind.clone()), None)];
    draft.delete(HEALTH_MONITORS.resource, &there.id, &there.name, changes);
}

/// All numbers and the name, if any of them differs.
fn update(name: &str, wanted: &Wanted, there: &HealthMonitor, draft: &mut Draft) {
    let changes = wanted.differences(name, there);
    if changes.is_empty() {
        return;
    }
    let mut body = wanted.numbers();
    body.insert("name".to_owned(), json!(name));
    if let Some(path) = wanted.kind.path.as_ref().filter(|path| **path != there.url_path) {
        body.insert("url_path".to_owned(), json!(path));
    }
    draft.update(HEALTH_MONITORS.resource, &there.id, &there.name, changes, Value::Object(body));
}

/// `HTTP /healthz at 31000 every 5 s`.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.kind)?;
        self.kind.path.as_ref().map_or(Ok(()), |path| write!(f, " {path}"))?;
        self.kind.port.map_or(Ok(()), |port| write!(f, " at {port}"))?;
        write!(f, " every {} s", self.times.delay)
    }
}
