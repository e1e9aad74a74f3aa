//! Wire type of Services.

use std::sync::Arc;

use serde::Deserialize;

use super::shapes::{List, Number, NumberOrText, Record, Text, Texts};
use crate::service::{Condition, ServicePort, ServiceType, TargetPort};
use crate::{
    Ingress, IpFamily, IpMode, LoadBalancerStatus, PortStatus, Protocol, Service, SessionAffinity, TrafficPolicy,
};

/// Default session affinity timeout of the API server.
const DEFAULT_AFFINITY_SECONDS: u32 = 10_800;

/// Service as the API server sends it, with the fields that the manager reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ServiceObject {
    metadata: Record<Metadata>,
    spec: Record<ServiceSpec>,
    status: Record<ServiceStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: Text,
    load_balancer_class: Text,
    ports: List<Record<WirePort>>,
    load_balancer_source_ranges: List<Text>,
    #[serde(rename = "externalIPs")]
    external_ips: List<Text>,
    #[serde(rename = "loadBalancerIP")]
    load_balancer_ip: Text,
    session_affinity: Text,
    session_affinity_config: Record<AffinityConfig>,
    external_traffic_policy: Text,
    health_check_node_port: Number,
    ip_families: List<Text>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WirePort {
    name: Text,
    protocol: Text,
    port: Number,
    node_port: Number,
    target_port: NumberOrText,
    app_protocol: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Record<ClientIp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientIp {
    timeout_seconds: Number,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceStatus {
    load_balancer: Record<WireStatus>,
    conditions: List<Record<WireCondition>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    ingress: List<Record<WireIngress>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireIngress {
    ip: Text,
    hostname: Text,
    ip_mode: Text,
    ports: List<Record<WirePortStatus>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WirePortStatus {
    port: Number,
    protocol: Text,
    error: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireCondition {
    #[serde(rename = "type")]
    kind: Text,
    status: Text,
    reason: Text,
    message: Text,
    last_transition_time: Text,
}

/// Metadata without labels and managed fields, which are not used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Text,
    namespace: Text,
    uid: Text,
    resource_version: Text,
    creation_timestamp: Text,
    deletion_timestamp: Text,
    annotations: Texts,
    finalizers: List<Text>,
}

impl ServiceObject {
    /// Returns `metadata.uid`.
    pub fn uid(&self) -> Option<&str> {
        self.metadata.0.uid.0.as_deref()
    }

    /// Returns `metadata.resourceVersion`.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.0.resource_version.0.as_deref()
    }

    /// Sets the namespace and the name, each if the object has none: a Service that is about to be created may lack them.
    pub fn or_named(mut self, namespace: &str, name: &str) -> ServiceObject {
        let metadata = &mut self.metadata.0;
        metadata.namespace.0.get_or_insert_with(|| namespace.to_owned());
        metadata.name.0.get_or_insert_with(|| name.to_owned());
        self
    }

    /// Converts to the domain type; `None` if the object has no name or no namespace, which no stored object lacks.
    pub fn into_service(self) -> Option<Service> {
        let ServiceObject { metadata: Record(metadata), spec: Record(spec), status: Record(status) } = self;
        Some(Service {
            created: metadata.creation_timestamp.time(),
            deleting: metadata.deletion_timestamp.time().is_some(),
            namespace: metadata.namespace.0?,
            name: metadata.name.0?,
            uid: metadata.uid.0.unwrap_or_default(),
            resource_version: metadata.resource_version.0.unwrap_or_default(),
            annotations: Arc::new(metadata.annotations.0),
            finalizers: metadata.finalizers.texts(),
            kind: service_type(&spec.kind),
            class: spec.load_balancer_class.non_empty(),
            ports: spec.ports.0.into_iter().filter_map(|Record(port)| port.into_port()).collect(),
            source_ranges: spec.load_balancer_source_ranges.texts(),
            external_ips: spec.external_ips.texts(),
            load_balancer_ip: spec.load_balancer_ip.non_empty(),
            session_affinity: affinity(&spec.session_affinity, &spec.session_affinity_config),
            traffic_policy: traffic_policy(&spec.external_traffic_policy),
            health_check_node_port: spec.health_check_node_port.port(),
            ip_families: spec.ip_families.0.iter().filter_map(ip_family).collect(),
            status: status.load_balancer.0.into(),
            conditions: status
                .conditions
                .0
                .into_iter()
                .filter_map(|Record(condition)| condition.into_condition())
                .collect(),
        })
    }
}

fn service_type(kind: &Text) -> ServiceType {
    match kind.0.as_deref() {
        Some("NodePort") => ServiceType::NodePort,
        Some("LoadBalancer") => ServiceType::LoadBalancer,
        Some("ExternalName") => ServiceType::ExternalName,
        _ => ServiceType::ClusterIP,
    }
}

fn affinity(affinity: &Text, Record(config): &Record<AffinityConfig>) -> SessionAffinity {
    if !affinity.is("ClientIP") {
        return SessionAffinity::None;
    }
    let seconds = config.client_ip.0.timeout_seconds.0.and_then(|seconds| u32::try_from(seconds).ok());
    SessionAffinity::ClientIp { timeout_seconds: seconds.unwrap_or(DEFAULT_AFFINITY_SECONDS) }
}

fn traffic_policy(policy: &Text) -> TrafficPolicy {
    if policy.is("Local") { TrafficPolicy::Local } else { TrafficPolicy::Cluster }
}

fn ip_family(family: &Text) -> Option<IpFamily> {
    match family.0.as_deref()? {
        "IPv4" => Some(IpFamily::IPv4),
        "IPv6" => Some(IpFamily::IPv6),
        _ => None,
    }
}

/// Parses the protocol; `None` for an unknown one, because a default would open a port that the Service does not specify.
fn protocol(protocol: &Text) -> Option<Protocol> {
    match protocol.0.as_deref() {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

impl WirePort {
    /// Converts the port; `None` without a valid number or with an unknown protocol.
    fn into_port(self) -> Option<ServicePort> {
        let port = self.port.port()?;
        Some(ServicePort {
            name: self.name.0.unwrap_or_default(),
            protocol: protocol(&self.protocol)?,
            port,
            node_port: self.node_port.port(),
            target_port: match self.target_port {
                NumberOrText::Number(number) => TargetPort::Number(number),
                NumberOrText::Text(name) => TargetPort::Name(name),
                NumberOrText::Neither => TargetPort::Number(port.into()),
            },
            app_protocol: self.app_protocol.0,
        })
    }
}

impl From<WireStatus> for LoadBalancerStatus {
    fn from(status: WireStatus) -> LoadBalancerStatus {
        LoadBalancerStatus { ingress: status.ingress.0.into_iter().map(|Record(ingress)| ingress.into()).collect() }
    }
}

impl From<WireIngress> for Ingress {
    fn from(ingress: WireIngress) -> Ingress {
        Ingress {
            ip: ingress.ip.non_empty(),
            hostname: ingress.hostname.non_empty(),
            ip_mode: match ingress.ip_mode.0.as_deref() {
                Some("VIP") => Some(IpMode::Vip),
                Some("Proxy") => Some(IpMode::Proxy),
                _ => None,
            },
            ports: ingress.ports.0.into_iter().filter_map(|Record(port)| port.into_port()).collect(),
        }
    }
}

impl WirePortStatus {
    fn into_port(self) -> Option<PortStatus> {
        Some(PortStatus { port: self.port.port()?, protocol: protocol(&self.protocol)?, error: self.error.0 })
    }
}

impl WireCondition {
    /// Converts the condition; `None` without a type.
    fn into_condition(self) -> Option<Condition> {
        Some(Condition {
            kind: self.kind.0?,
            status: self.status.0.unwrap_or_default(),
            reason: self.reason.0.unwrap_or_default(),
            message: self.message.0.unwrap_or_default(),
            last_transition_time: self.last_transition_time.0.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::wire::shapes::any_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(object: &Value) -> Option<Service> {
        serde_json::from_str::<ServiceObject>(&object.to_string()).unwrap().into_service()
    }

    #[test]
    fn a_service_is_parsed_with_all_fields_in_order() {
        let service = read(&json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "namespace": "default", "name": "web", "uid": "u1", "resourceVersion": "7",
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
                "labels": {"a": "1"}, "annotations": {"b": "2"}, "finalizers": ["z", "a"],
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": "example.com/lb", "clusterIP": "10.0.0.1",
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080, "targetPort": "web",
                     "appProtocol": "http"},
                    {"protocol": "UDP", "port": 53, "targetPort": 5353},
                    {"port": 81},
                ],
                "loadBalancerSourceRanges": ["10.0.0.0/8", " junk"], "externalIPs": ["1.2.3.4"],
                "loadBalancerIP": "5.6.7.8", "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "ipFamilies": ["IPv6", "IPv4"],
            },
            "status": {
                "loadBalancer": {"ingress": [
                    {"ip": "1.1.1.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP", "error": "Taken"}]},
                    {"hostname": "lb.example.com"},
                ]},
                "conditions": [{"type": "T", "status": "True", "reason": "R", "message": "M",
                                "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 3}],
            },
        }));
        let port = |name: &str, protocol, port, node_port, target_port, app_protocol: Option<&str>| ServicePort {
            name: name.into(),
            protocol,
            port,
            node_port,
            target_port,
            app_protocol: app_protocol.map(str::to_owned),
        };
        let taken = PortStatus { port: 80, protocol: Protocol::Tcp, error: Some("Taken".into()) };
        let expected = Service {
            namespace: "default".into(),
            name: "web".into(),
            uid: "u1".into(),
            resource_version: "7".into(),
            created: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            deleting: true,
            annotations: Arc::new([("b".into(), "2".into())].into()),
            finalizers: vec!["z".into(), "a".into()],
            kind: ServiceType::LoadBalancer,
            class: Some("example.com/lb".into()),
            ports: vec![
                port("http", Protocol::Tcp, 80, Some(30080), TargetPort::Name("web".into()), Some("http")),
                port("", Protocol::Udp, 53, None, TargetPort::Number(5353), None),
                port("", Protocol::Tcp, 81, None, TargetPort::Number(81), None),
            ],
            source_ranges: vec!["10.0.0.0/8".into(), " junk".into()],
            external_ips: vec!["1.2.3.4".into()],
            load_balancer_ip: Some("5.6.7.8".into()),
            session_affinity: SessionAffinity::ClientIp { timeout_seconds: 60 },
            traffic_policy: TrafficPolicy::Local,
            health_check_node_port: Some(31000),
            ip_families: vec![IpFamily::IPv6, IpFamily::IPv4],
            status: LoadBalancerStatus {
                ingress: vec![
                    Ingress {
                        ip: Some("1.1.1.1".into()),
                        ip_mode: Some(IpMode::Proxy),
                        ports: vec![taken],
                        ..Ingress::default()
                    },
                    Ingress { hostname: Some("lb.example.com".into()), ..Ingress::default() },
                ],
            },
            conditions: vec![Condition {
                kind: "T".into(),
                status: "True".into(),
                reason: "R".into(),
                message: "M".into(),
                last_transition_time: "2026-01-02T03:04:05Z".into(),
            }],
        };
        assert_eq!(service, Some(expected));
    }

    #[test]
    fn missing_fields_have_the_defaults_of_the_api() {
        let service = read(&json!({"metadata": {"namespace": "default", "name": "web"}})).unwrap();
        assert_eq!((service.kind, service.class), (ServiceType::ClusterIP, None));
        assert_eq!((service.session_affinity, service.traffic_policy), (SessionAffinity::None, TrafficPolicy::Cluster));
        let spec =
            json!({"sessionAffinity": "ClientIP", "healthCheckNodePort": 0, "loadBalancerIP": "", "type": "New"});
        let service = read(&json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec})).unwrap();
        assert_eq!(service.session_affinity, SessionAffinity::ClientIp { timeout_seconds: 10_800 });
        assert_eq!((service.health_check_node_port, service.load_balancer_ip), (None, None));
        assert_eq!(service.kind, ServiceType::ClusterIP);
    }

    #[test]
    fn invalid_ports_are_skipped() {
        let ports = json!([
            {"port": 0}, {"port": 65536}, {"port": -1}, {"port": "80"}, {"port": 80.5}, {"name": "none"}, 80,
            {"port": 80, "protocol": "QUIC"}, {"port": 443, "nodePort": 65536},
        ]);
        let object = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {"ports": ports}});
        let ports: Vec<_> = read(&object).unwrap().ports.iter().map(|port| (port.port, port.node_port)).collect();
        assert_eq!(ports, [(443, None)]);
    }

    #[test]
    fn a_field_of_an_unexpected_type_counts_as_missing() {
        for odd in [json!(null), json!(1), json!(-1.5), json!(true), json!([[1]]), json!({"x": {"y": 1}})] {
            let service = read(&json!({
                "metadata": {"namespace": "default", "name": "web", "uid": odd, "finalizers": [odd, "f"],
                             "annotations": {"good": "1", "bad": odd}, "deletionTimestamp": odd},
                "spec": {"type": odd, "loadBalancerClass": odd, "externalIPs": odd, "sessionAffinity": "ClientIP",
                         "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": {"x": odd}}},
                         "ports": [odd, {"name": odd, "port": 80, "targetPort": [odd], "appProtocol": odd}]},
                "status": {"loadBalancer": {"ingress": [{"ip": odd, "hostname": "h", "ipMode": odd, "ports": odd}]},
                           "conditions": [odd, {"type": "T", "status": odd}]},
            }));
            let service = service.unwrap();
            assert_eq!((service.uid.as_str(), service.annotations.len()), ("", 1), "{odd}");
            assert_eq!((service.finalizers, service.kind), (vec!["f".to_owned()], ServiceType::ClusterIP), "{odd}");
            assert_eq!(service.ports.first().unwrap().target_port, TargetPort::Number(80), "{odd}");
            let ingress = Ingress { hostname: Some("h".into()), ..Ingress::default() };
            assert_eq!(service.status.ingress, [ingress], "{odd}");
            assert_eq!(service.conditions.len(), 1, "{odd}");
            assert!(!service.deleting && service.class.is_none() && service.external_ips.is_empty(), "{odd}");
        }
    }

    #[test]
    fn an_object_without_a_name_or_namespace_is_none() {
        for metadata in [json!({}), json!(null), json!({"name": "web"}), json!({"namespace": "default"})] {
            assert_eq!(read(&json!({"metadata": metadata})), None);
        }
    }

    #[test]
    fn a_missing_name_or_namespace_is_filled_in() {
        let named = |metadata: Value| {
            let object: ServiceObject = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            object.or_named("ns", "n").into_service().unwrap().key().to_string()
        };
        assert_eq!(named(json!({})), "ns/n");
        assert_eq!(named(json!({"name": "web"})), "ns/web");
        assert_eq!(named(json!({"name": "web", "namespace": "default"})), "default/web");
    }

    const KEYS: &str = "metadata|name|finalizers|spec|ports|port|targetPort|sessionAffinityConfig|clientIP|\
                        timeoutSeconds|status|loadBalancer|ingress|ip|conditions|type|ipFamilies";

    proptest! {
        #[test]
        fn any_json_object_is_parsed(
            metadata in any_json(KEYS), spec in any_json(KEYS), status in any_json(KEYS),
        ) {
            let text = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
            prop_assert!(serde_json::from_str::<ServiceObject>(&text).is_ok());
        }
    }
}
