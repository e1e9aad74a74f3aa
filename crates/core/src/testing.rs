//! Builders of Nodes, Services and load balancers for tests, here and in dependent crates (feature `testing`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::annotations::LoadBalancerSettings;
use crate::service::{self, ServicePort, TargetPort};
use crate::well_known::LOAD_BALANCER_CLEANUP;
use crate::{
    Address, AddressType, ClusterName, DesiredLoadBalancer, Ingress, IpFamily, LoadBalancerStatus, Node, Protocol,
    ProviderId, Ready, Service, ServiceKey, ServiceType, SessionAffinity, Taint, TargetNode, TargetSet, TrafficPolicy,
};

/// Returns a newly registered Node without labels, taints or addresses.
pub fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        resource_version: "1".to_owned(),
        created: None,
        deleting: false,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        provider_id: None,
        taints: Vec::new(),
        pod_cidrs: Vec::new(),
        addresses: Vec::new(),
        ready: Ready::Unknown,
        network: None,
        system_uuid: None,
    }
}

/// Returns a taint without a value and a time.
pub fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: String::new(), effect: effect.to_owned(), time_added: None }
}

/// Parses addresses in the notation of the test cases, such as `I10.0.0.1 Ehost`: I, E and H stand for internal IP, external IP and
/// hostname; D and X for internal and external DNS.
pub fn addresses(text: &str) -> Vec<Address> {
    text.split_whitespace().map(address).collect()
}

/// Parses one address in the notation of [`addresses`].
#[allow(clippy::panic, reason = "invalid input is a bug of the test")]
pub fn address(text: &str) -> Address {
    let mut letters = text.chars();
    let kind = match letters.next() {
        Some('I') => AddressType::InternalIP,
        Some('E') => AddressType::ExternalIP,
        Some('H') => AddressType::Hostname,
        Some('D') => AddressType::InternalDNS,
        Some('X') => AddressType::ExternalDNS,
        _ => panic!("unknown address type: {text:?}"),
    };
    Address::new(kind, letters.as_str())
}

/// Returns the new Service `namespace/name` of type LoadBalancer: TCP port 80 with node port 30080, IPv4, without a finalizer and
/// a status.
#[allow(clippy::panic, reason = "invalid input is a bug of the test")]
pub fn service(key: &str) -> Service {
    let Ok(ServiceKey { namespace, name }) = key.parse() else { panic!("not namespace/name: {key:?}") };
    Service {
        namespace: namespace.to_string(),
        name: name.to_string(),
        uid: format!("uid-of-{name}"),
        resource_version: "1".to_owned(),
        created: None,
        deleting: false,
        annotations: Arc::default(),
        finalizers: Vec::new(),
        kind: ServiceType::LoadBalancer,
        class: None,
        ports: vec![service_port(Protocol::Tcp, 80)],
        source_ranges: Vec::new(),
        external_ips: Vec::new(),
        load_balancer_ip: None,
        session_affinity: SessionAffinity::None,
        traffic_policy: TrafficPolicy::Cluster,
        health_check_node_port: None,
        ip_families: vec![IpFamily::IPv4],
        status: LoadBalancerStatus::default(),
        conditions: Vec::new(),
    }
}

/// Returns a port without a name; its node port is `port + 30000`, if that is a valid port.
pub fn service_port(protocol: Protocol, port: u16) -> ServicePort {
    ServicePort {
        name: String::new(),
        protocol,
        port,
        node_port: port.checked_add(30000),
        target_port: TargetPort::Number(i64::from(port)),
        app_protocol: None,
    }
}

/// Adds annotations to a Service.
pub fn annotated(mut service: Service, annotations: &[(&str, &str)]) -> Service {
    let more = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Arc::make_mut(&mut service.annotations).extend(more);
    service
}

/// Appends Bowline's finalizer to a Service.
pub fn finalized(mut service: Service) -> Service {
    service.finalizers.push(LOAD_BALANCER_CLEANUP.to_owned());
    service
}

/// Returns a status with these addresses, without IP modes and ports.
pub fn status(addresses: &[&str]) -> LoadBalancerStatus {
    let ingress = |ip: &&str| Ingress { ip: Some((*ip).to_owned()), ..Ingress::default() };
    LoadBalancerStatus { ingress: addresses.iter().map(ingress).collect() }
}

/// Returns the desired load balancer of [`service()`] in the cluster `kubernetes`, with these Nodes as targets.
#[allow(clippy::panic, reason = "invalid input is a bug of the test")]
pub fn desired(key: &str, nodes: &[&str]) -> DesiredLoadBalancer {
    let targets: TargetSet = nodes.iter().map(|node| target(node)).collect();
    service::desired(&ClusterName::from("kubernetes"), &service(key), &LoadBalancerSettings::default(), targets)
        .unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Returns the desired state of [`service()`] in the cluster `kubernetes` when its load balancer is to be deleted.
pub fn desired_cleanup(key: &str) -> DesiredLoadBalancer {
    service::desired_cleanup(&ClusterName::from("kubernetes"), &service(key), &LoadBalancerSettings::default())
}

/// Returns the Node of this name as a target: its machine is `fake://id-of-…`, and it has no addresses.
pub fn target(node: &str) -> TargetNode {
    let provider_id = Some(ProviderId::of("fake", &format!("id-of-{node}")));
    TargetNode { node: node.into(), provider_id, addresses: Vec::new(), draining: false }
}
