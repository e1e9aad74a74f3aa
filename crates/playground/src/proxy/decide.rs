//! Who answers, where, and for whom: the rules of kube-proxy, as far as node ports go, and those of a network in which the
//! cloud leads pod ranges to machines.
//!
//! * Every node with power answers on every node port of a Service that has a ready Pod somewhere.
//! * With `externalTrafficPolicy: Local`, only nodes that have one themselves do, and only for those; the health-check node
//!   port says on every node how many that are.
//! * A Pod that is terminating or not ready, or whose machine is off, does not count.
//! * A Pod answers at its own address, on the ports of its containers, as long as the cloud has a route for that address to
//!   the machine that the Pod is on.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bowline_core::AddressType;
use bowline_local::{Machine, MachineState, RouteRecord};
use ipnet::IpNet;
use kube::ResourceExt as _;

use crate::objects::{Pod, Service};

/// Where a node answers.
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

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// One of these Pods does; there is at least one. `sticky`: always the same for one client address.
    Pods { pods: Vec<Backend>, sticky: bool },
    /// How many Pods of a Service there are on this node.
    Health { namespace: String, service: String, local: usize },
}

/// A Pod that takes traffic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Backend {
    pub(super) pod: String,
    pub(super) node: String,
}

/// All sockets, and what is answered there.
pub(super) type Doors = BTreeMap<Socket, Answer>;

/// A machine that has power, behind a Node.
struct Host<'a> {
    id: &'a str,
    address: IpAddr,
}

/// The Nodes whose machines have power.
type Hosts<'a> = HashMap<&'a str, Host<'a>>;

/// What there is to answer.
pub(super) fn decide(
    services: &[Arc<Service>],
    pods: &[Arc<Pod>],
    machines: &[Arc<Machine>],
    routes: &[RouteRecord],
) -> Doors {
    let hosts: Hosts<'_> = machines.iter().filter_map(|machine| reachable(machine)).collect();
    let mut doors = Doors::new();
    for service in services {
        let backends = backends(service, pods, &hosts);
        for (node, host) in &hosts {
            node_doors(service, &backends, node, host.address, &mut doors);
        }
    }
    let led = ranges_by_machine(routes);
    pods.iter()
        .filter(|pod| pod.has_ports() && pod.is_ready())
        .for_each(|pod| pod_doors(pod, &hosts, &led, &mut doors));
    doors
}

/// The Node of a machine that has power. Nothing is ever opened to the world: only loopback counts.
fn reachable(machine: &Machine) -> Option<(&str, Host<'_>)> {
    let internal = machine.spec.addresses.iter().find(|address| address.kind == AddressType::InternalIP)?;
    let address: IpAddr = internal.address.parse().ok()?;
    let host = Host { id: &machine.spec.id, address };
    (machine.state == MachineState::Running && address.is_loopback()).then_some((&*machine.spec.name, host))
}

/// What the cloud leads to each machine.
fn ranges_by_machine(routes: &[RouteRecord]) -> HashMap<&str, Vec<IpNet>> {
    let mut led: HashMap<&str, Vec<IpNet>> = HashMap::new();
    for route in routes.iter().filter(|route| !route.blackhole) {
        led.entry(&route.spec.machine).or_default().push(route.spec.destination);
    }
    led
}

/// The ready Pods of a Service. One without a selector has none: somebody else keeps its endpoints.
fn backends(service: &Service, pods: &[Arc<Pod>], hosts: &Hosts<'_>) -> Vec<Backend> {
    let taken = pods.iter().filter(|pod| service.selects(pod) && pod.is_ready());
    taken.filter_map(|pod| Backend::of(pod)).filter(|backend| hosts.contains_key(&*backend.node)).collect()
}

/// What one node does for one Service.
fn node_doors(service: &Service, backends: &[Backend], node: &str, address: IpAddr, doors: &mut Doors) {
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
        doors.entry(Socket { address, transport: Transport::Tcp }).or_insert(answer);
    }
    // upstream: without a Pod, connections are refused.
    if pods.is_empty() {
        return;
    }
    for port in spec.ports.iter().filter(|port| port.node_port != 0) {
        let Some(transport) = Transport::of(&port.protocol) else { continue };
        let socket = Socket { address: SocketAddr::new(address, port.node_port), transport };
        let answer = Answer::Pods { pods: pods.clone(), sticky: spec.session_affinity == "ClientIP" };
        doors.entry(socket).or_insert(answer);
    }
}

/// What one Pod does at its own addresses.
fn pod_doors(pod: &Pod, hosts: &Hosts<'_>, led: &HashMap<&str, Vec<IpNet>>, doors: &mut Doors) {
    let Some(backend) = Backend::of(pod) else { return };
    let Some(ranges) = hosts.get(&*backend.node).and_then(|host| led.get(host.id)) else { return };
    let is_led = |address: &IpAddr| address.is_loopback() && ranges.iter().any(|range| range.contains(address));
    for address in pod.addresses().filter(is_led) {
        for port in pod.spec.containers.iter().flat_map(|container| &container.ports) {
            let Some(transport) = Transport::of(&port.protocol) else { continue };
            let socket = Socket { address: SocketAddr::new(address, port.container_port), transport };
            doors.entry(socket).or_insert(Answer::Pods { pods: vec![backend.clone()], sticky: false });
        }
    }
}

impl Backend {
    fn of(pod: &Pod) -> Option<Backend> {
        Some(Backend { pod: pod.name_any(), node: pod.node()?.to_owned() })
    }
}

impl Transport {
    /// SCTP is left out.
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

/// An answer by these Pods, all on the Node `n`.
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

    /// `ADDRESS/TRANSPORT who`, one for each door.
    fn list(doors: &Doors) -> Vec<String> {
        let who = |answer: &Answer| match answer {
            Answer::Pods { pods, .. } => pods.iter().map(|backend| &*backend.pod).collect::<Vec<_>>().join(","),
            Answer::Health { local, .. } => format!("health={local}"),
        };
        doors.iter().map(|(socket, answer)| format!("{socket} {}", who(answer))).collect()
    }

    #[test]
    fn with_the_policy_cluster_every_node_answers_by_any_pod() {
        let doors = decide(&[service(cluster())], &[pod("p", "a", json!({}))], &two_nodes(), &[]);
        let expected =
            ["127.64.0.1:30053/UDP p", "127.64.0.1:30080/TCP p", "127.64.0.2:30053/UDP p", "127.64.0.2:30080/TCP p"];
        assert_eq!(list(&doors), expected);
    }

    #[test]
    fn with_the_policy_local_a_node_answers_by_its_own_pods_and_says_how_many_it_has() {
        let pods = [pod("p", "a", json!({})), pod("q", "a", json!({}))];
        let doors = decide(&[service(local())], &pods, &two_nodes(), &[]);
        let expected = ["127.64.0.1:30080/TCP p,q", "127.64.0.1:31000/TCP health=2", "127.64.0.2:31000/TCP health=0"];
        assert_eq!(list(&doors), expected);
    }

    #[test]
    fn a_pod_that_is_no_backend_leaves_the_ports_closed() {
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
    fn a_pod_answers_at_its_own_address_while_the_cloud_leads_it_there() {
        let ports =
            json!([{"name": "c", "ports": [{"containerPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]}]);
        let addressed = |ip: &str| {
            let status = json!({"podIPs": [{"ip": ip}]});
            pod("p", "a", json!({"spec": {"containers": ports}, "status": status}))
        };
        let open = |ip: &str, route: RouteRecord| list(&decide(&[], &[addressed(ip)], &two_nodes(), &[route]));
        let own = "127.128.0.2";
        assert_eq!(open(own, route("127.128.0.0/24", "a", false)), ["127.128.0.2:53/UDP p", "127.128.0.2:8080/TCP p"]);
        assert_eq!(open(own, route("127.128.1.0/24", "a", false)), [""; 0], "another range");
        assert_eq!(open(own, route("127.128.0.0/24", "b", false)), [""; 0], "to another machine");
        assert_eq!(open(own, route("127.128.0.0/24", "a", true)), [""; 0], "to nowhere");
        assert_eq!(open("10.244.0.2", route("10.244.0.0/24", "a", false)), [""; 0], "nothing is opened to the world");
    }

    #[test]
    fn nothing_is_opened_to_the_world() {
        for address in ["0.0.0.0", "10.0.0.1", "::", "nonsense"] {
            let machines = [machine("a", address, MachineState::Running)];
            assert!(decide(&[service(cluster())], &[pod("p", "a", json!({}))], &machines, &[]).is_empty(), "{address}");
        }
    }
}
