//! What tests say about Nodes, Services and balancers with few words, here and in the crates above this one (the feature
//! `testing`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::annotations::LoadBalancerSettings;
use crate::service::{self, ServicePort, TargetPort};
use crate::well_known::LOAD_BALANCER_CLEANUP;
use crate::{
    Address, AddressType, ClusterName, DesiredLoadBalancer, Ingress, IpFamily, LoadBalancerStatus, Node, Protocol,
    ProviderId, Ready, Service, ServiceKey, ServiceType, SessionAffinity, Taint, TargetNode, TargetSet, TrafficPolicy,
};

/// A Node that was just registered and of which nothing else is known.
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

/// A taint without value and time.
pub fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: String::new(), effect: effect.to_owned(), time_added: None }
}

/// `I10.0.0.1 Ehost …`, the notation of the cases: I, E, H for internal IP, external IP and hostname; D and X for internal and external DNS.
pub fn addresses(text: &str) -> Vec<Address> {
    text.split_whitespace().map(address).collect()
}

/// One address, in the notation of [`addresses`].
#[allow(clippy::panic, reason = "a test with a slip in it fails")]
pub fn address(text: &str) -> Address {
    let mut letters = text.chars();
    let kind = match letters.next() {
        Some('I') => AddressType::InternalIP,
        Some('E') => AddressType::ExternalIP,
        Some('H') => AddressType::Hostname,
        Some('D') => AddressType::InternalDNS,
        Some('X') => AddressType::ExternalDNS,
        _ => panic!("no type of address: {text:?}"),
    };
    Address::new(kind, letters.as_str())
}

/// The Service `namespace/name` of type LoadBalancer, just made: the TCP port 80 at the node port 30080, IPv4, without
/// finalizer and status.
#[allow(clippy::panic, reason = "a test with a slip in it fails")]
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

/// A port without name whose node port is 30000 more, as far as there are ports.
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

/// This Service, with these annotations besides those that it has.
pub fn annotated(mut service: Service, annotations: &[(&str, &str)]) -> Service {
    let more = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Arc::make_mut(&mut service.annotations).extend(more);
    service
}

/// This Service, with our finalizer behind those that it has.
pub fn finalized(mut service: Service) -> Service {
    service.finalizers.push(LOAD_BALANCER_CLEANUP.to_owned());
    service
}

/// The status with these addresses, without modes and ports.
pub fn status(addresses: &[&str]) -> LoadBalancerStatus {
    let ingress = |ip: &&str| Ingress { ip: Some((*ip).to_owned()), ..Ingress::default() };
    LoadBalancerStatus { ingress: addresses.iter().map(ingress).collect() }
}

/// What [`service()`] wishes of the cluster `kubernetes`, with these Nodes behind it.
#[allow(clippy::panic, reason = "a test with a slip in it fails")]
pub fn desired(key: &str, nodes: &[&str]) -> DesiredLoadBalancer {
    let targets: TargetSet = nodes.iter().map(|node| target(node)).collect();
    service::desired(&ClusterName::from("kubernetes"), &service(key), &LoadBalancerSettings::default(), targets)
        .unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

/// What [`service()`] wishes of the cluster `kubernetes` when it wants no balancer any more.
pub fn desired_cleanup(key: &str) -> DesiredLoadBalancer {
    service::desired_cleanup(&ClusterName::from("kubernetes"), &service(key), &LoadBalancerSettings::default())
}

/// The Node of this name behind a balancer: its machine is `fake://id-of-…`, and nothing says where it is reached.
pub fn target(node: &str) -> TargetNode {
    let provider_id = Some(ProviderId::of("fake", &format!("id-of-{node}")));
    TargetNode { node: node.into(), provider_id, addresses: Vec::new(), draining: false }
}
