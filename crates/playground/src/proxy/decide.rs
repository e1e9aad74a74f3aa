//! Computes the listeners of all nodes and Pods, by the rules of kube-proxy for node ports and of a network with cloud routes.
//!
//! * Every running node answers on every node port of a Service that has a ready Pod.
//! * With `externalTrafficPolicy: Local`, only nodes with a ready Pod of the Service answer, and only for their own Pods; the
//!   health-check node port of every node reports their number.
//! * A Pod that is terminating or not ready, or whose machine is stopped, is ignored.
//! * A Pod answers at its own address, on the ports of its containers, as long as the cloud has a route for that address to the
//!   Pod's machine.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bowline_core::AddressType;
use bowline_local::{Machine, MachineState, RouteRecord};
use ipnet::IpNet;
use kube::ResourceExt as _;

use crate::objects::{Pod, Service};

/// A listening socket of a node or Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Socket {
    pub(super) address: SocketAddr,
    pub(super) transport: Transport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// Answer of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// One of these Pods answers; there is at least one. `sticky`: always the same Pod for one client address.
    Pods { pods: Vec<Backend>, sticky: bool },
    /// The number of Pods of a Service on this node.
    Health { namespace: String, service: String, local: usize },
}

/// A Pod that receives traffic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Backend {
    pub(super) pod: String,
    pub(super) node: String,
}

/// All listeners with their answers.
pub(super) type Listeners = BTreeMap<Socket, Answer>;

/// The running machine of a Node.
struct Host<'a> {
    id: &'a str,
    address: IpAddr,
}

/// Running machines by Node name.
type Hosts<'a> = HashMap<&'a str, Host<'a>>;

/// Computes all listeners.
pub(super) fn decide(
    services: &[Arc<Service>],
    pods: &[Arc<Pod>],
    machines: &[Arc<Machine>],
    routes: &[RouteRecord],
) -> Listeners {
    let hosts: Hosts<'_> = machines.iter().filter_map(|machine| reachable(machine)).collect();
    let mut listeners = Listeners::new();
    for service in services {
        let backends = backends(service, pods, &hosts);
        for (node, host) in &hosts {
            node_listeners(service, &backends, node, host.address, &mut listeners);
        }
    }
    let routed = pod_cidrs_by_machine(routes);
    pods.iter()
        .filter(|pod| pod.has_ports() && pod.is_ready())
        .for_each(|pod| pod_listeners(pod, &hosts, &routed, &mut listeners));
    listeners
}

/// Returns the Node name and host of a running machine. Only loopback addresses count: no listener is reachable from other
/// machines.
fn reachable(machine: &Machine) -> Option<(&str, Host<'_>)> {
    let internal = machine.spec.addresses.iter().find(|address| address.kind == AddressType::InternalIP)?;
    let address: IpAddr = internal.address.parse().ok()?;
    let host = Host { id: &machine.spec.id, address };
    (machine.state == MachineState::Running && address.is_loopback()).then_some((&*machine.spec.name, host))
}

/// Returns the routed pod CIDRs of each machine.
fn pod_cidrs_by_machine(routes: &[RouteRecord]) -> HashMap<&str, Vec<IpNet>> {
    let mut routed: HashMap<&str, Vec<IpNet>> = HashMap::new();
    for route in routes.iter().filter(|route| !route.blackhole) {
        routed.entry(&route.spec.machine).or_default().push(route.spec.destination);
    }
    routed
}

/// Returns the ready Pods of a Service. A Service without a selector has none: its endpoints are managed by another client.
fn backends(service: &Service, pods: &[Arc<Pod>], hosts: &Hosts<'_>) -> Vec<Backend> {
    let taken = pods.iter().filter(|pod| service.selects(pod) && pod.is_ready());
    taken.filter_map(|pod| Backend::of(pod)).filter(|backend| hosts.contains_key(&*backend.node)).collect()
}

/// Adds the listeners of one node for one Service.
fn node_listeners(service: &Service, backends: &[Backend], node: &str, address: IpAddr, listeners: &mut Listeners) {
    let spec = &service.spec;
    let local = spec.external_traffic_policy == "Local";
    let pods: Vec<_> = backends.iter().filter(|backend| !local || backend.node == node).cloned().collect();
    if local && spec.health_check_node_port != 0 {
        let answer = Answer::Health {
            namespace: service.metadata.namespace.clone().unwrap_or_default(),
            service: service.name_any(),
            local: pods.len(),
        };
        let address = SocketAddr::new(address, spec.health_check_node_port);
        listeners.entry(Socket { address, transport: Transport::Tcp }).or_insert(answer);
    }
    // upstream: without a Pod, connections are refused.
    if pods.is_empty() {
        return;
    }
    for port in spec.ports.iter().filter(|port| port.node_port != 0) {
        let Some(transport) = Transport::of(&port.protocol) else { continue };
        let socket = Socket { address: SocketAddr::new(address, port.node_port), transport };
        let answer = Answer::Pods { pods: pods.clone(), sticky: spec.session_affinity == "ClientIP" };
        listeners.entry(socket).or_insert(answer);
    }
}

/// Adds the listeners of one Pod at its own addresses.
fn pod_listeners(pod: &Pod, hosts: &Hosts<'_>, routed: &HashMap<&str, Vec<IpNet>>, listeners: &mut Listeners) {
    let Some(backend) = Backend::of(pod) else { return };
    let Some(ranges) = hosts.get(&*backend.node).and_then(|host| routed.get(host.id)) else { return };
    let is_routed = |address: &IpAddr| address.is_loopback() && ranges.iter().any(|range| range.contains(address));
    for address in pod.addresses().filter(is_routed) {
        for port in pod.spec.containers.iter().flat_map(|container| &container.ports) {
            let Some(transport) = Transport::of(&port.protocol) else { continue };
            let socket = Socket { address: SocketAddr::new(address, port.container_port), transport };
            listeners.entry(socket).or_insert(Answer::Pods { pods: vec![backend.clone()], sticky: false });
        }
    }
}

impl Backend {
    fn of(pod: &Pod) -> Option<Backend> {
        Some(Backend { pod: pod.name_any(), node: pod.node()?.to_owned() })
    }
}

impl Transport {
    /// Parses a protocol; SCTP is not supported.
    fn of(protocol: &str) -> Option<Transport> {
        match protocol {
            "TCP" | "" => Some(Transport::Tcp),
            "UDP" => Some(Transport::Udp),
            _ => None,
        }
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = if self.transport == Transport::Tcp { "TCP" } else { "UDP" };
        write!(f, "{}/{transport}", self.address)
    }
}

/// Returns an answer by these Pods, all on the Node `n`.
#[cfg(test)]
pub(super) fn pods_of(names: &[&str]) -> Answer {
    let backend = |name: &&str| Backend { pod: (*name).to_owned(), node: "n".to_owned() };
    Answer::Pods { pods: names.iter().map(backend).collect(), sticky: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::Address;
    use bowline_local::NewMachine;
    use serde_json::{Value, json};

    fn service(spec: Value) -> Arc<Service> {
        let value = json!({"metadata": {"name": "s", "namespace": "default"}, "spec": spec});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn cluster() -> Value {
        json!({
            "selector": {"app": "web"}, "externalTrafficPolicy": "Cluster",
            "ports": [{"protocol": "TCP", "nodePort": 30080}, {"protocol": "UDP", "nodePort": 30053}, {"protocol": "TCP"}],
        })
    }

    fn local() -> Value {
        json!({
            "selector": {"app": "web"}, "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "ports": [{"protocol": "TCP", "nodePort": 30080}],
        })
    }

    fn pod(name: &str, node: &str, change: Value) -> Arc<Pod> {
        let mut value = json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"containers": [], "nodeName": node},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        for (part, fields) in change.as_object().into_iter().flatten() {
            for (field, to) in fields.as_object().into_iter().flatten() {
                value[part][field] = to.clone();
            }
        }
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn machine(name: &str, address: &str, state: MachineState) -> Arc<Machine> {
        let addresses = vec![Address::new(AddressType::InternalIP, address)];
        let spec = NewMachine { name: name.to_owned(), id: name.to_owned(), addresses, ..NewMachine::default() };
        Arc::new(Machine { spec, state })
    }

    fn two_nodes() -> [Arc<Machine>; 2] {
        [("a", "127.64.0.1"), ("b", "127.64.0.2")].map(|(name, ip)| machine(name, ip, MachineState::Running))
    }

    /// Returns `ADDRESS/TRANSPORT ANSWER` for each listener.
    fn list(listeners: &Listeners) -> Vec<String> {
        let who = |answer: &Answer| match answer {
            Answer::Pods { pods, .. } => pods.iter().map(|backend| &*backend.pod).collect::<Vec<_>>().join(","),
            Answer::Health { local, .. } => format!("health={local}"),
        };
        listeners.iter().map(|(socket, answer)| format!("{socket} {}", who(answer))).collect()
    }

    #[test]
    fn with_policy_cluster_every_node_answers_for_any_pod() {
        let listeners = decide(&[service(cluster())], &[pod("p", "a", json!({}))], &two_nodes(), &[]);
        let expected =
            ["127.64.0.1:30053/UDP p", "127.64.0.1:30080/TCP p", "127.64.0.2:30053/UDP p", "127.64.0.2:30080/TCP p"];
        assert_eq!(list(&listeners), expected);
    }

    #[test]
    fn with_policy_local_a_node_answers_for_its_own_pods_and_reports_their_number() {
        let pods = [pod("p", "a", json!({})), pod("q", "a", json!({}))];
        let listeners = decide(&[service(local())], &pods, &two_nodes(), &[]);
        let expected = ["127.64.0.1:30080/TCP p,q", "127.64.0.1:31000/TCP health=2", "127.64.0.2:31000/TCP health=0"];
        assert_eq!(list(&listeners), expected);
    }

    #[test]
    fn without_a_ready_pod_node_ports_are_closed() {
        let cases = [
            ("terminating", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            ("not running", json!({"status": {"phase": "Pending"}})),
            ("not ready", json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})),
            ("of another app", json!({"metadata": {"labels": {"app": "other"}}})),
            ("of another namespace", json!({"metadata": {"namespace": "other"}})),
            ("without a node", json!({"spec": {"nodeName": ""}})),
            ("on a node that is off", json!({"spec": {"nodeName": "off"}})),
        ];
        let [a, b] = two_nodes();
        let machines = [a, b, machine("off", "127.64.0.3", MachineState::Stopped)];
        for (why, change) in cases {
            assert_eq!(
                list(&decide(&[service(cluster())], &[pod("p", "a", change)], &machines, &[])),
                [""; 0],
                "{why}"
            );
        }
    }

    #[test]
    fn a_service_without_a_selector_has_no_pods() {
        let mut spec = cluster();
        spec["selector"] = json!({});
        assert!(decide(&[service(spec)], &[pod("p", "a", json!({}))], &two_nodes(), &[]).is_empty());
    }

    fn route(range: &str, machine: &str, blackhole: bool) -> RouteRecord {
        let value = json!({"id": "r", "destination": range, "machine": machine, "blackhole": blackhole});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pod_answers_at_its_own_address_while_the_cloud_has_a_route() {
        let ports =
            json!([{"name": "c", "ports": [{"containerPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]}]);
        let addressed = |ip: &str| {
            let status = json!({"podIPs": [{"ip": ip}]});
            pod("p", "a", json!({"spec": {"containers": ports}, "status": status}))
        };
        let open = |ip: &str, route: RouteRecord| list(&decide(&[], &[addressed(ip)], &two_nodes(), &[route]));
        let own = "127.128.0.2";
        assert_eq!(open(own, route("127.128.0.0/24", "a", false)), ["127.128.0.2:53/UDP p", "127.128.0.2:8080/TCP p"]);
        assert_eq!(open(own, route("127.128.1.0/24", "a", false)), [""; 0], "another pod CIDR");
        assert_eq!(open(own, route("127.128.0.0/24", "b", false)), [""; 0], "to another machine");
        assert_eq!(open(own, route("127.128.0.0/24", "a", true)), [""; 0], "blackhole");
        assert_eq!(open("10.244.0.2", route("10.244.0.0/24", "a", false)), [""; 0], "not a loopback address");
    }

    #[test]
    fn only_loopback_addresses_have_listeners() {
        for address in ["0.0.0.0", "10.0.0.1", "::", "nonsense"] {
            let machines = [machine("a", address, MachineState::Running)];
            assert!(decide(&[service(cluster())], &[pod("p", "a", json!({}))], &machines, &[]).is_empty(), "{address}");
        }
    }
}
