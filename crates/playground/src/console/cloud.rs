//! Source of the cloud's own resources: machines, load balancers with their traffic, routes, faults.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bowline_console::document::{self, Health, Level};
use bowline_console::{Document, Source};
use bowline_local::{
    Balancer, CloudAddress, Fault, ListenerStatus, LoadBalancerStatus, LocalCloud, Machine, MachineState, RouteRecord,
    TargetHealth, TargetStatus, Transport,
};

use super::{CLOUD, faults};
use crate::CLUSTER;

/// Reads the cloud as its owner: neither latency nor faults affect it.
pub(super) struct CloudSource(LocalCloud);

impl CloudSource {
    pub(super) fn new(cloud: LocalCloud) -> CloudSource {
        CloudSource(cloud)
    }
}

impl Source for CloudSource {
    fn fill(&self, document: &mut Document) {
        let (machines, in_force) = (self.0.fleet(), in_force(&self.0));
        let hidden = in_force.contains(&Fault::Empty);
        document.machine.extend(machines.iter().map(|found| (key(&found.spec.id), machine(found, hidden))));
        document.route.extend(self.0.routes(CLUSTER).iter().map(|found| {
            let destination = found.spec.destination.to_string();
            (key(&destination), route(found, &machines))
        }));
        let (names, addresses) = (names(&machines), self.0.addresses());
        document.load_balancer.extend(self.0.balancers().iter().map(|found| {
            let status = self.0.balancer_status(&found.id);
            (key(&found.name), load_balancer(found, status.as_ref(), &addresses, &names))
        }));
        document.fault.extend(faults::all().into_iter().map(|known| {
            let on = in_force.iter().any(|fault| faults::name(fault) == known.name);
            (known.name.to_owned(), document::Fault { text: known.text.to_owned(), on })
        }));
    }
}

fn in_force(cloud: &LocalCloud) -> Vec<Fault> {
    cloud.faults().into_iter().map(|(_, fault)| fault).collect()
}

fn key(name: &str) -> String {
    format!("{CLOUD}/{name}")
}

// ---- machines

fn machine(machine: &Machine, hidden: bool) -> document::Machine {
    let Machine { spec, state } = machine;
    let (name, health) = match state {
        MachineState::Running if hidden => ("running", Health::new(Level::Warning, "Hidden", HIDDEN)),
        MachineState::Running => ("running", Health::ok()),
        MachineState::Stopped => ("stopped", Health::new(Level::Warning, "Stopped", STOPPED)),
    };
    document::Machine {
        health,
        cloud: CLOUD.to_owned(),
        id: spec.id.clone(),
        node: spec.name.clone(),
        state: name.to_owned(),
        hidden,
        instance_type: spec.instance_type.clone(),
        zone: spec.zone.clone(),
        addresses: spec.addresses.iter().map(|found| format!("{} {}", found.kind, found.address)).collect(),
    }
}

const HIDDEN: &str = "The machine runs, but the cloud leaves it out of its answers. Fix: turn off the fault \"empty\".";

const STOPPED: &str =
    "The machine is stopped, so its kubelet sends no heartbeats. Fix: start the machine, or delete it.";

/// Names of the machines by their addresses.
fn names(machines: &[Arc<Machine>]) -> BTreeMap<IpAddr, String> {
    let of = |machine: &Arc<Machine>| {
        let name = machine.spec.name.clone();
        let addresses = machine.spec.addresses.iter().filter_map(|address| address.address.parse().ok());
        addresses.map(move |address| (address, name.clone())).collect::<Vec<(IpAddr, String)>>()
    };
    machines.iter().flat_map(of).collect()
}

// ---- routes

fn route(route: &RouteRecord, machines: &[Arc<Machine>]) -> document::Route {
    let node = route.node.clone().unwrap_or_else(|| {
        let machine = machines.iter().find(|machine| machine.spec.id == route.spec.machine);
        machine.map_or_else(|| route.spec.machine.clone(), |machine| machine.spec.name.clone())
    });
    let health = match route.blackhole {
        true => Health::new(
            Level::Warning,
            "Blackhole",
            "The machine is deleted, so the cloud drops the packets. The node-route-controller deletes the route with the Node.",
        ),
        false => Health::ok(),
    };
    document::Route { health, cloud: CLOUD.to_owned(), destination: route.spec.destination.to_string(), node }
}

// ---- load balancers

fn load_balancer(
    balancer: &Balancer,
    status: Option<&LoadBalancerStatus>,
    addresses: &[CloudAddress],
    names: &BTreeMap<IpAddr, String>,
) -> document::LoadBalancer {
    let address = |id: &String| addresses.iter().find(|known| known.id == *id).map(|known| known.ip.to_string());
    let owner = balancer.owner.as_ref().filter(|owner| !owner.namespace.is_empty());
    let listeners = status.map(|status| &status.listeners[..]).unwrap_or_default();
    let sum = |count: fn(&ListenerStatus) -> u64| listeners.iter().map(count).sum();
    document::LoadBalancer {
        health: status.map_or_else(no_data_plane, |_| health(listeners)),
        cloud: CLOUD.to_owned(),
        service: owner.map(|owner| format!("{}/{}", owner.namespace, owner.service)),
        addresses: balancer.addresses.iter().filter_map(address).collect(),
        listeners: listeners.iter().map(|found| listener(found, names)).collect(),
        connections: sum(|listener| listener.counters.accepted),
        bytes: sum(|listener| listener.counters.bytes_in + listener.counters.bytes_out),
    }
}

fn no_data_plane() -> Health {
    Health::new(
        Level::Unknown,
        "NoTraffic",
        "This system has one loopback address, so the load balancer forwards no traffic.",
    )
}

/// Health of a load balancer: the health of its worst listener.
fn health(listeners: &[ListenerStatus]) -> Health {
    let worst = listeners.iter().map(listener_health).max_by_key(|health| health.level);
    worst.unwrap_or_else(|| Health::new(Level::Progressing, "NoListener", "The load balancer has no listener yet."))
}

fn listener_health(listener: &ListenerStatus) -> Health {
    let gets_traffic = |target: &TargetStatus| target.health != TargetHealth::Unhealthy && !target.draining;
    let port = port(listener);
    match &listener.error {
        Some(error) => Health::new(Level::Error, "NotListening", format!("{port}: {error}")),
        None if listener.targets.is_empty() => {
            Health::new(Level::Warning, "NoTarget", format!("{port} has no target: no Node can receive its traffic."))
        }
        None if !listener.targets.iter().any(gets_traffic) => {
            let why = "no target passes the health check. Fix: check that the Service has ready Pods.";
            Health::new(Level::Warning, "NoHealthyTarget", format!("{port}: {why}"))
        }
        None => Health::ok(),
    }
}

fn port(listener: &ListenerStatus) -> String {
    let transport = match listener.transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    };
    format!("{transport} {}", listener.port)
}

fn listener(listener: &ListenerStatus, names: &BTreeMap<IpAddr, String>) -> document::Listener {
    document::Listener {
        port: port(listener),
        targets: listener.targets.iter().map(|found| target(found, names)).collect(),
    }
}

fn target(target: &TargetStatus, names: &BTreeMap<IpAddr, String>) -> document::ListenerTarget {
    let address: SocketAddr = target.address;
    let state = match target.health {
        _ if target.draining => "draining",
        TargetHealth::Healthy => "healthy",
        TargetHealth::Unhealthy => "unhealthy",
        TargetHealth::Unknown => "unknown",
    };
    document::ListenerTarget {
        node: names.get(&address.ip()).cloned().unwrap_or_else(|| address.ip().to_string()),
        address: address.to_string(),
        state: state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bowline_local::{CloudOptions, FaultSpec};
    use serde_json::{Value, json};

    use super::*;
    use crate::machines;
    use crate::subnet::Subnet;

    fn fleet(count: usize) -> LocalCloud {
        let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
        (1..=count).for_each(|number| _ = cloud.add(machines::machine(number, Subnet::Loopback(64))).unwrap());
        cloud
    }

    fn read(cloud: &LocalCloud) -> Document {
        let mut document = Document::default();
        CloudSource::new(cloud.clone()).fill(&mut document);
        document
    }

    #[test]
    fn machines_have_their_state_whatever_the_faults() {
        let cloud = fleet(2);
        cloud.stop("m-1").unwrap();
        let states = |cloud: &LocalCloud| -> Vec<_> {
            let machines = read(cloud).machine;
            machines
                .into_iter()
                .map(|(key, machine)| (key, machine.state, machine.health.reason, machine.hidden))
                .collect()
        };
        let state = |key: &str, state: &str, reason: &str, hidden| {
            (format!("local/{key}"), state.to_owned(), reason.to_owned(), hidden)
        };
        assert_eq!(states(&cloud), [state("m-1", "stopped", "Stopped", false), state("m-2", "running", "Ok", false)]);
        cloud.inject(FaultSpec::always(Fault::Empty));
        assert_eq!(states(&cloud), [state("m-1", "stopped", "Stopped", true), state("m-2", "running", "Hidden", true)]);
        let on: Vec<_> = read(&cloud).fault.into_iter().filter(|(_, fault)| fault.on).map(|(name, _)| name).collect();
        assert_eq!(on, ["empty"]);
    }

    #[test]
    fn a_route_to_a_deleted_machine_is_a_blackhole() {
        let cloud = fleet(1);
        let route = json!({"destination": "10.0.0.0/24", "machine": "m-1"});
        cloud.add_route(CLUSTER, serde_json::from_value(route).unwrap()).unwrap();
        let route = |cloud: &LocalCloud| read(cloud).route.remove("local/10.0.0.0/24").unwrap();
        assert_eq!((route(&cloud).node.as_str(), route(&cloud).health.level), ("node-1", Level::Ok));
        cloud.delete("m-1").unwrap();
        assert_eq!(route(&cloud).health.reason, "Blackhole");
    }

    fn listener(error: Option<&str>, targets: &[(&str, bool)]) -> ListenerStatus {
        let target = |(health, draining): &(&str, bool)| json!({"address": "127.64.0.2:30000", "health": health, "draining": draining, "open": 0, "total": 0});
        let counters = json!({
            "accepted": 3, "open": 1, "denied": 0, "failed": 0, "idled": 0, "bytesIn": 10, "bytesOut": 200,
        });
        let targets: Vec<Value> = targets.iter().map(target).collect();
        let status = json!({
            "address": "127.64.200.1", "transport": "TCP", "port": 4080, "error": error, "counters": counters,
            "targets": targets,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn a_load_balancer_is_as_healthy_as_its_worst_listener() {
        let (healthy, draining) = (("healthy", false), ("healthy", true));
        let cases = [
            (vec![], "NoListener"),
            (vec![listener(None, &[("unhealthy", false), healthy])], "Ok"),
            (vec![listener(None, &[("unknown", false)])], "Ok"),
            (vec![listener(None, &[healthy]), listener(None, &[])], "NoTarget"),
            (vec![listener(None, &[("unhealthy", false), draining]), listener(None, &[healthy])], "NoHealthyTarget"),
            (vec![listener(None, &[]), listener(Some("in use"), &[healthy])], "NotListening"),
        ];
        for (listeners, expected) in cases {
            assert_eq!(health(&listeners).reason, expected, "{listeners:?}");
        }
    }

    #[test]
    fn a_load_balancer_has_its_service_targets_and_traffic() {
        let cloud = fleet(1);
        let new = json!({
            "name": "web", "families": ["IPv4"],
            "owner": {"cluster": CLUSTER, "namespace": "default", "service": "web", "uid": "u"},
        });
        let created = cloud.add_balancer(serde_json::from_value(new).unwrap()).unwrap();
        let listeners = vec![listener(None, &[("healthy", false), ("unhealthy", false)]), listener(None, &[])];
        let status = LoadBalancerStatus { listeners };
        let item = load_balancer(&created, Some(&status), &cloud.addresses(), &names(&cloud.fleet()));
        assert_eq!((item.service.as_deref(), item.connections, item.bytes), (Some("default/web"), 6, 420));
        assert_eq!(item.addresses, [cloud.addresses()[0].ip.to_string()]);
        let targets: Vec<_> = item.listeners[0].targets.iter().map(|target| (&*target.node, &*target.state)).collect();
        assert_eq!(
            (&*item.listeners[0].port, &targets[..]),
            ("TCP 4080", &[("node-1", "healthy"), ("node-1", "unhealthy")][..])
        );
        let without_traffic = read(&cloud).load_balancer.into_values().next().unwrap();
        assert_eq!((&*without_traffic.health.reason, without_traffic.addresses.len()), ("NoTraffic", 1));
    }
}
