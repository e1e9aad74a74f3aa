//! What a node does to a container: probes and lifecycle hooks.

use serde_json::Value;

use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

/// What handlers need to know of their pod.
#[derive(Clone, Copy)]
pub(super) struct PodFacts<'a> {
    pub(super) grace_seconds: Option<i64>,
    /// `spec.os.name`, if the pod says what it runs on.
    pub(super) os: Option<&'a str>,
}

/// Checks the probes and hooks of a container that may have them.
pub(super) fn validate(container: &Value, pod: PodFacts<'_>, at: Path<'_>, found: &mut Findings) {
    if let Some(lifecycle) = container.get("lifecycle") {
        hooks(lifecycle, pod, at.child("lifecycle"), found);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(given) = container.get(name) {
            probe(name, given, pod, at.child(name), found);
        }
    }
}

fn hooks(lifecycle: &Value, pod: PodFacts<'_>, at: Path<'_>, found: &mut Findings) {
    for name in ["postStart", "preStop"] {
        if let Some(given) = lifecycle.get(name) {
            handler(given, pod, at.child(name), found);
        }
    }
    if let Some(signal) = lifecycle.get("stopSignal").and_then(Value::as_str) {
        match pod.os {
            None => found.forbidden(at.child("stopSignal"), "may not be set for containers with empty `spec.os.name`"),
            Some("windows") => found.one_of(at.child("stopSignal"), signal, &["SIGKILL", "SIGTERM"]),
            Some(_) => {}
        }
    }
}

fn probe(name: &str, probe: &Value, pod: PodFacts<'_>, at: Path<'_>, found: &mut Findings) {
    handler(probe, pod, at, found);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        found.not_negative(at.child(field), probe.int(field).unwrap_or(0));
    }
    let grace = at.child("terminationGracePeriodSeconds");
    let seconds = probe.int("terminationGracePeriodSeconds");
    if let Some(seconds) = seconds.filter(|s| *s <= 0) {
        found.invalid(grace, seconds, "must be greater than 0");
    }
    match (name, seconds, probe.int("successThreshold")) {
        ("readinessProbe", Some(seconds), _) => {
            found.invalid(grace, seconds, "must not be set for readinessProbes");
        }
        ("livenessProbe" | "startupProbe", _, threshold) if threshold != Some(1) => {
            found.invalid(at.child("successThreshold"), threshold.unwrap_or(0), "must be 1");
        }
        _ => {}
    }
}

/// The ways to act on a container; exactly one must be given.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

fn handler(holder: &Value, pod: PodFacts<'_>, at: Path<'_>, found: &mut Findings) {
    let mut given = HANDLERS.into_iter().filter(|name| holder.has(name));
    match given.next() {
        Some(first) => action(first, holder.at(first), pod, at.child(first), found),
        None => found.required(at, "must specify a handler type"),
    }
    for further in given {
        found.forbidden(at.child(further), "may not specify more than 1 handler type");
    }
}

fn action(name: &str, action: &Value, pod: PodFacts<'_>, at: Path<'_>, found: &mut Findings) {
    match name {
        "exec" if action.list("command").is_empty() => found.required(at.child("command"), ""),
        "httpGet" => http_get(action, at, found),
        "tcpSocket" => port(action.at("port"), at.child("port"), found),
        "grpc" => port(action.at("port"), at.child("port"), found),
        "sleep" => sleep(action.int("seconds").unwrap_or(0), pod.grace_seconds, at, found),
        _ => {}
    }
}

fn http_get(action: &Value, at: Path<'_>, found: &mut Findings) {
    if action.text("path").is_empty() {
        found.required(at.child("path"), "");
    }
    port(action.at("port"), at.child("port"), found);
    found.one_of(at.child("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
    for header in action.list("httpHeaders") {
        let name = header.text("name");
        found.form(at.child("httpHeaders"), name, validation::http_header_name(name));
    }
}

fn port(port: &Value, at: Path<'_>, found: &mut Findings) {
    match port {
        Value::String(name) => found.form(at, name, validation::is_valid_port_name(name)),
        number => found.in_range(at, number.as_i64().unwrap_or(0), 1, 65535),
    }
}

fn sleep(seconds: i64, grace: Option<i64>, at: Path<'_>, found: &mut Findings) {
    if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        found.invalid(at, seconds, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(container: Value) -> Vec<String> {
        let mut found = Findings::default();
        validate(&container, PodFacts { grace_seconds: Some(30), os: None }, Path::new("c"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    fn liveness(handler: Value) -> Value {
        let mut probe = handler;
        for (field, number) in
            [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
        {
            probe[field] = number.into();
        }
        json!({"livenessProbe": probe})
    }

    #[test]
    fn a_handler_is_one_thing() {
        assert_eq!(complaints(liveness(json!({}))), ["c.livenessProbe: Required value: must specify a handler type"]);
        let both = json!({"exec": {"command": ["x"]}, "tcpSocket": {"port": 80}});
        assert_eq!(
            complaints(liveness(both)),
            ["c.livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"]
        );
    }

    #[test]
    fn actions_are_checked() {
        let http = |fields: Value| {
            let mut action = json!({"path": "/", "port": 80, "scheme": "HTTP"});
            action.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            complaints(liveness(json!({"httpGet": action}))).len()
        };
        assert_eq!(http(json!({})), 0);
        assert_eq!(http(json!({"port": 0})), 1);
        assert_eq!(http(json!({"port": "http"})), 0);
        assert_eq!(http(json!({"port": "Http_"})), 1);
        assert_eq!(http(json!({"scheme": "ftp"})), 1);
        assert_eq!(http(json!({"httpHeaders": [{"name": "bad header"}]})), 1);
        assert_eq!(complaints(liveness(json!({"exec": {}}))), ["c.livenessProbe.exec.command: Required value"]);
    }

    #[test]
    fn thresholds_depend_on_the_probe() {
        let mut probe = liveness(json!({"exec": {"command": ["x"]}}));
        probe["livenessProbe"]["successThreshold"] = 2.into();
        assert_eq!(complaints(probe), ["c.livenessProbe.successThreshold: Invalid value: 2: must be 1"]);
        let readiness = json!({"exec": {"command": ["x"]}, "successThreshold": 2, "terminationGracePeriodSeconds": 3});
        assert_eq!(
            complaints(json!({"readinessProbe": readiness})),
            ["c.readinessProbe.terminationGracePeriodSeconds: Invalid value: 3: must not be set for readinessProbes"]
        );
    }

    #[test]
    fn a_hook_sleeps_no_longer_than_the_pod_may() {
        let with = |seconds: i64| complaints(json!({"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}})).len();
        assert_eq!((with(30), with(31), with(-1)), (0, 1, 1));
    }
}
