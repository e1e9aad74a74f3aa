//! Validation of `spec.ports`.

use std::collections::HashSet;

use serde_json::Value;

use super::shape::{self, ServiceType};
use crate::field_error::FieldError;
use crate::validation;
use crate::value::Json;

const PORTS: &str = "spec.ports";

/// Requires at least one port, except for headless and ExternalName Services.
pub(super) fn presence(svc: &Value) -> Option<FieldError> {
    let needed = !shape::is_headless(svc) && !shape::is_external_name(svc);
    (needed && svc.list(PORTS).is_empty()).then(|| FieldError::required(PORTS, ""))
}

/// Validates each port.
pub(super) fn each(svc: &Value) -> Vec<FieldError> {
    let ports = svc.list(PORTS);
    let mut names: HashSet<&str> = HashSet::new();
    let mut errors = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let at = format!("{PORTS}[{i}]");
        errors.extend(validate_name(&format!("{at}.name"), port.text("name"), ports.len() > 1, &mut names));
        let number = port.int("port").unwrap_or_default();
        errors.extend(validate_port_number(&format!("{at}.port"), number));
        errors.extend(validation::protocol(&format!("{at}.protocol"), port.text("protocol")));
        errors.extend(validate_target_port(&format!("{at}.targetPort"), port.at("targetPort")));
        if let Some(protocol) = port.at("appProtocol").as_str() {
            let texts = validation::qualified_name(protocol);
            errors.extend(validation::invalid_each(&format!("{at}.appProtocol"), protocol, texts));
        }
    }
    errors
}

fn validate_name<'a>(field: &str, name: &'a str, needed: bool, names: &mut HashSet<&'a str>) -> Vec<FieldError> {
    if name.is_empty() {
        return Vec::from_iter(needed.then(|| FieldError::required(field, "")));
    }
    let mut errors = validation::invalid_each(field, name, validation::dns_label(name));
    if !names.insert(name) {
        errors.push(FieldError::duplicate(field, name));
    }
    errors
}

fn validate_port_number(field: &str, port: i64) -> Vec<FieldError> {
    validation::port_number(port).into_iter().map(|text| FieldError::invalid(field, port, text)).collect()
}

fn validate_target_port(field: &str, target: &Value) -> Vec<FieldError> {
    match target.as_str() {
        Some(name) => validation::invalid_each(field, name, validation::is_valid_port_name(name)),
        None => validate_port_number(field, target.as_i64().unwrap_or_default()),
    }
}

/// Validates all ports together: node ports of the type, and duplicates.
pub(super) fn together(svc: &Value) -> Vec<FieldError> {
    let mut errors = forbidden_node_ports(svc);
    errors.extend(duplicate_node_ports(svc));
    errors.extend(duplicate_ports(svc));
    errors
}

fn forbidden_node_ports(svc: &Value) -> Vec<FieldError> {
    if shape::type_of(svc) != ServiceType::ClusterIp {
        return Vec::new();
    }
    let forbidden =
        |i| FieldError::forbidden(format!("{PORTS}[{i}].nodePort"), "may not be used when `type` is 'ClusterIP'");
    let ports = svc.list(PORTS).iter().enumerate();
    ports.filter(|(_, port)| shape::node_port(port) != 0).map(|(i, _)| forbidden(i)).collect()
}

fn duplicate_node_ports(svc: &Value) -> Vec<FieldError> {
    let mut seen: HashSet<(&str, i64)> = HashSet::new();
    let mut errors = Vec::new();
    for (i, port) in svc.list(PORTS).iter().enumerate() {
        let node_port = shape::node_port(port);
        if node_port != 0 && !seen.insert((port.text("protocol"), node_port)) {
            errors.push(FieldError::duplicate(format!("{PORTS}[{i}].nodePort"), node_port));
        }
    }
    errors
}

fn duplicate_ports(svc: &Value) -> Vec<FieldError> {
    let mut seen: HashSet<(&str, i64)> = HashSet::new();
    let mut errors = Vec::new();
    for (i, port) in svc.list(PORTS).iter().enumerate() {
        let key = (port.text("protocol"), port.int("port").unwrap_or_default());
        if !seen.insert(key) {
            errors.push(FieldError::duplicate_as(format!("{PORTS}[{i}]"), format_key(key), ""));
        }
    }
    errors
}

/// upstream: the key is formatted as a port without other values, with Go's field names.
fn format_key((protocol, port): (&str, i64)) -> String {
    let protocol = Value::from(protocol);
    format!(r#"{{"Name":"","Protocol":{protocol},"AppProtocol":null,"Port":{port},"TargetPort":0,"NodePort":0}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn multiple_ports_need_unique_names() {
        let svc = |ports: Value| json!({"spec": {"ports": ports}});
        let port = |name: &str| json!({"name": name, "port": 80, "targetPort": 80, "protocol": "TCP"});
        assert!(each(&svc(json!([port("")]))).is_empty());
        assert_eq!(
            texts(each(&svc(json!([port(""), port("")])))),
            ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"]
        );
        assert_eq!(texts(each(&svc(json!([port("a"), port("a")])))), ["spec.ports[1].name: Duplicate value: \"a\""]);
    }

    #[test]
    fn all_fields_of_a_port_are_validated() {
        let svc =
            json!({"spec": {"ports": [{"port": 70_000, "protocol": "ICMP", "targetPort": "-", "appProtocol": "a b"}]}});
        let errors = texts(each(&svc));
        let starts = [
            "spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            "spec.ports[0].targetPort: Invalid value: \"-\": must contain at least one letter (a-z)",
            "spec.ports[0].targetPort: Invalid value: \"-\": must not begin or end with a hyphen",
            "spec.ports[0].appProtocol: Invalid value: \"a b\": name part must consist of",
        ];
        assert_eq!(errors.len(), starts.len(), "{errors:?}");
        for (text, start) in errors.iter().zip(starts) {
            assert!(text.starts_with(start), "{text}");
        }
    }

    #[test]
    fn duplicate_ports_are_formatted_as_go_structs() {
        let svc = json!({"spec": {"type": "NodePort", "ports": [
            {"port": 80, "protocol": "TCP", "nodePort": 30_001},
            {"port": 80, "protocol": "TCP", "nodePort": 30_001},
            {"port": 80, "protocol": "UDP", "nodePort": 30_001},
        ]}});
        assert_eq!(
            texts(together(&svc)),
            [
                "spec.ports[1].nodePort: Duplicate value: 30001".to_owned(),
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#
                    .to_owned(),
            ]
        );
    }

    #[test]
    fn cluster_ip_service_rejects_node_ports() {
        let svc = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80}, {"port": 81, "nodePort": 30_001}]}});
        assert_eq!(
            texts(together(&svc)),
            ["spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]
        );
    }
}
