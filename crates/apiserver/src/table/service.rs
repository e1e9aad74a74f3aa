//! Printer of Service.

use std::collections::BTreeSet;

use serde_json::Value;

use super::age::Clock;
use super::{AGE, Column, NAME, Printer, labels, name, or, text, wide};
use crate::value::Json;

pub(super) static SERVICE: Printer = Printer::new(COLUMNS, cells);

const COLUMNS: &[Column] = &[
    NAME,
    text("Type", "Type of the service."),
    text("Cluster-IP", "First cluster IP."),
    text("External-IP", "External IP addresses and hostnames."),
    text("Port(s)", "Ports with node port, if any, and protocol."),
    AGE,
    wide("Selector", "Labels of the pods that the service selects."),
];

fn cells(service: &Value, clock: Clock) -> Vec<Value> {
    vec![
        name(service),
        service.text("spec.type").into(),
        service.texts("spec.clusterIPs").first().copied().unwrap_or("<none>").into(),
        external(service).into(),
        or(&ports(service), "<none>").into(),
        clock.age(service),
        labels(service.map("spec.selector")).into(),
    ]
}

fn external(service: &Value) -> String {
    let external_ips = service.texts("spec.externalIPs");
    match service.text("spec.type") {
        "ExternalName" => service.text("spec.externalName").to_owned(),
        "ClusterIP" | "NodePort" => or(&external_ips.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let points: Vec<&str> = load_balancer(service).into_iter().chain(external_ips).collect();
            or(&points.join(","), "<pending>").to_owned()
        }
        _ => "<unknown>".to_owned(),
    }
}

/// Returns the IP address of each ingress point, or its hostname if it has none.
fn load_balancer(service: &Value) -> BTreeSet<&str> {
    let ingress = service.list("status.loadBalancer.ingress").iter();
    ingress.map(|point| or(point.text("ip"), point.text("hostname"))).filter(|point| !point.is_empty()).collect()
}

fn ports(service: &Value) -> String {
    let ports = service.list("spec.ports").iter().map(|port| {
        let number = port.int("port").unwrap_or(0);
        let protocol = port.text("protocol");
        match port.int("nodePort") {
            Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    Vec::from_iter(ports).join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn external_ip_column_depends_on_the_type() {
        let cases = [
            (json!({"spec": {"type": "ClusterIP"}}), "<none>"),
            (json!({"spec": {"type": "NodePort", "externalIPs": ["192.0.2.8", "192.0.2.1"]}}), "192.0.2.8,192.0.2.1"),
            (json!({"spec": {"type": "LoadBalancer"}}), "<pending>"),
            (json!({"spec": {"type": "LoadBalancer", "externalIPs": ["192.0.2.8"]}}), "192.0.2.8"),
            (json!({"spec": {"type": "ExternalName", "externalName": "ex.com"}}), "ex.com"),
            (json!({}), "<unknown>"),
        ];
        for (service, text) in cases {
            assert_eq!(external(&service), text, "{service}");
        }
    }

    #[test]
    fn ingress_points_are_sorted_and_precede_external_ips() {
        let service = json!({
            "spec": {"type": "LoadBalancer", "externalIPs": ["192.0.2.0"]},
            "status": {"loadBalancer": {"ingress": [
                {"ip": "192.0.2.9", "hostname": "x"}, {"hostname": "lb.example.com"}, {"ip": "192.0.2.1"}, {}]}}});
        assert_eq!(external(&service), "192.0.2.1,192.0.2.9,lb.example.com,192.0.2.0");
    }

    #[test]
    fn row_has_ports_and_selector() {
        let service = json!({"metadata": {"name": "a"}, "spec": {
            "type": "NodePort", "clusterIPs": ["10.96.0.7", "fd00::7"], "selector": {"b": "2", "a": "1"},
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
        let row = cells(&service, Clock::at("2024-01-01T00:00:00Z".parse().unwrap()));
        let expected = json!(["a", "NodePort", "10.96.0.7", "<none>", "80:30080/TCP,53/UDP", "<unknown>", "a=1,b=2"]);
        assert_eq!(Value::Array(row), expected);
    }
}
