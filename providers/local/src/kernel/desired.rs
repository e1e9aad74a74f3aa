//! Desired routes of each namespace.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bowline_agent::{DesiredRoutes, Hop, Namespace, RouteProblem, Routes};
use bowline_core::AddressType;
use ipnet::IpNet;

use crate::cloud::Machine;
use crate::routes::RouteRecord;

/// Route of all namespaces except that of its machine.
#[derive(Clone, Copy)]
struct MachineRoute<'a> {
    hop: Hop,
    machine: &'a str,
    /// Cluster of the table; `None` for a pod CIDR that the cloud itself routes to the machine.
    cluster: Option<&'a str>,
}

/// Computes the desired routes from the machines and the tables of all clusters.
pub(super) fn desired_routes<'a>(
    machines: impl Iterator<Item = &'a Arc<Machine>>,
    routes: impl Iterator<Item = (&'a str, &'a Arc<RouteRecord>)>,
) -> DesiredRoutes {
    let machines: BTreeMap<&str, &Machine> =
        machines.map(|machine| (machine.spec.id.as_str(), machine.as_ref())).collect();
    let namespaces = machines_by_namespace(&machines);
    // Without namespaces there are no kernel routes.
    if namespaces.is_empty() {
        return DesiredRoutes::default();
    }
    let mut problems = Vec::new();
    let all = all_routes(&machines, routes, &mut problems);
    let namespaces = namespaces
        .into_iter()
        .map(|(name, local)| (Namespace::Named(name.to_owned()), routes_of(&local, &all)))
        .collect();
    DesiredRoutes { namespaces, problems }
}

/// Machines by namespace. Several machines may share one.
fn machines_by_namespace<'a>(machines: &BTreeMap<&'a str, &'a Machine>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut namespaces = BTreeMap::<_, Vec<_>>::new();
    for (id, machine) in machines {
        if let Some(name) = &machine.spec.network_namespace {
            namespaces.entry(name.as_str()).or_default().push(*id);
        }
    }
    namespaces
}

fn routes_of(local: &[&str], all: &BTreeMap<IpNet, MachineRoute<'_>>) -> Routes {
    let is_remote = |route: &MachineRoute<'_>| route.hop == Hop::Blackhole || !local.contains(&route.machine);
    let remote = all.iter().filter(|(_, route)| is_remote(route));
    remote.map(|(destination, route)| (*destination, route.hop)).collect()
}

/// All routes, by destination.
fn all_routes<'a>(
    machines: &BTreeMap<&'a str, &'a Machine>,
    routes: impl Iterator<Item = (&'a str, &'a Arc<RouteRecord>)>,
    problems: &mut Vec<RouteProblem>,
) -> BTreeMap<IpNet, MachineRoute<'a>> {
    let of_machine = |machine: &'a Machine| machine.spec.pod_ranges.iter().map(move |cidr| (cidr, machine));
    let pod_cidrs = machines.values().copied().flat_map(of_machine).map(|(cidr, machine)| {
        let route = |hop| MachineRoute { hop, machine: &machine.spec.id, cluster: None };
        (cidr.trunc(), via(machine, cidr).map(route))
    });
    let in_tables = routes.map(|(cluster, route)| {
        let to_machine = |hop| MachineRoute { hop, machine: &route.spec.machine, cluster: Some(cluster) };
        (route.spec.destination.trunc(), hop(machines, route).map(to_machine))
    });
    let mut all = BTreeMap::new();
    for (destination, route) in pod_cidrs.chain(in_tables) {
        if let Err(message) = route.and_then(|route| put(&mut all, destination, route)) {
            problems.push(RouteProblem { namespace: None, destination: Some(destination), message });
        }
    }
    all
}

/// Adds a route. The first route to a destination wins; an equal one is no problem.
fn put<'a>(
    all: &mut BTreeMap<IpNet, MachineRoute<'a>>,
    destination: IpNet,
    route: MachineRoute<'a>,
) -> Result<(), String> {
    let first = all.entry(destination).or_insert(route);
    if (first.hop, first.machine) == (route.hop, route.machine) {
        return Ok(());
    }
    let describe = |route: &MachineRoute<'_>| match route.cluster {
        Some(cluster) => format!("that of the cluster {cluster:?} to the machine {:?}", route.machine),
        None => format!("that of the pod CIDR of the machine {:?}", route.machine),
    };
    Err(format!(
        "two routes have this destination, and the kernel has {}, not {}; use different CIDRs for every cluster and machine",
        describe(first),
        describe(&route)
    ))
}

fn hop(machines: &BTreeMap<&str, &Machine>, route: &RouteRecord) -> Result<Hop, String> {
    let Some(machine) = machines.get(route.spec.machine.as_str()).filter(|_| !route.blackhole) else {
        return Ok(Hop::Blackhole);
    };
    via(machine, &route.spec.destination)
}

/// Next hop: the `InternalIP` of the machine with the same family.
fn via(machine: &Machine, destination: &IpNet) -> Result<Hop, String> {
    let family = if destination.addr().is_ipv4() { "IPv4" } else { "IPv6" };
    let address = internal_ips(machine).find(|ip| ip.is_ipv4() == destination.addr().is_ipv4());
    address
        .map(Hop::Via)
        .ok_or_else(|| format!("the machine {:?} has no {family} InternalIP; add one", machine.spec.id))
}

fn internal_ips(machine: &Machine) -> impl Iterator<Item = IpAddr> {
    let internal = machine.spec.addresses.iter().filter(|address| address.kind == AddressType::InternalIP);
    internal.filter_map(|address| address.address.parse().ok())
}

#[cfg(test)]
mod tests {
    use bowline_core::Address;

    use super::*;
    use crate::cloud::{MachineState, NewMachine};
    use crate::routes::NewRoute;

    fn machine(id: &str, namespace: Option<&str>, addresses: &[&str]) -> Arc<Machine> {
        let addresses = addresses.iter().map(|address| Address::new(AddressType::InternalIP, *address)).collect();
        let network_namespace = namespace.map(str::to_owned);
        let spec =
            NewMachine { id: id.to_owned(), name: id.to_owned(), addresses, network_namespace, ..Default::default() };
        Arc::new(Machine { spec, state: MachineState::Running })
    }

    fn route(destination: &str, machine: &str) -> Arc<RouteRecord> {
        Arc::new(record(destination, machine, false))
    }

    fn record(destination: &str, machine: &str, blackhole: bool) -> RouteRecord {
        let (name, destination, machine) = (String::new(), net(destination), machine.to_owned());
        let spec = NewRoute { name, destination, machine, addresses: None, stamped: true, cluster_uid: None };
        RouteRecord { id: spec.destination.to_string(), spec, node: None, blackhole }
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ns(name: &str) -> Namespace {
        Namespace::Named(name.to_owned())
    }

    fn hop_via(text: &str) -> Hop {
        Hop::Via(text.parse().unwrap())
    }

    fn of_one_cluster(machines: &[Arc<Machine>], routes: &[Arc<RouteRecord>]) -> DesiredRoutes {
        desired_routes(machines.iter(), routes.iter().map(|route| ("c", route)))
    }

    #[test]
    fn every_namespace_has_routes_to_all_machines_but_its_own() {
        let machines = [
            machine("a", Some("ns-a"), &["192.0.2.1", "fd00::1"]),
            machine("b", Some("ns-b"), &["192.0.2.2", "fd00::2"]),
            machine("elsewhere", None, &["192.0.2.3"]),
        ];
        let routes = [
            route("10.0.1.0/24", "a"),
            route("fd00:1::/64", "a"),
            route("10.0.2.7/24", "b"),
            route("10.0.3.0/24", "elsewhere"),
        ];
        let desired = of_one_cluster(&machines, &routes);
        let to_elsewhere = (net("10.0.3.0/24"), hop_via("192.0.2.3"));
        let of_a = Routes::from([(net("10.0.2.0/24"), hop_via("192.0.2.2")), to_elsewhere]);
        let of_b = Routes::from([
            (net("10.0.1.0/24"), hop_via("192.0.2.1")),
            (net("fd00:1::/64"), hop_via("fd00::1")),
            to_elsewhere,
        ]);
        assert_eq!(desired.namespaces, BTreeMap::from([(ns("ns-a"), of_a), (ns("ns-b"), of_b)]));
        assert_eq!(desired.problems, []);
    }

    #[test]
    fn a_namespace_without_routes_is_synced() {
        let desired = of_one_cluster(&[machine("a", Some("ns-a"), &[])], &[]);
        assert_eq!(desired.namespaces, BTreeMap::from([(ns("ns-a"), Routes::new())]));
    }

    #[test]
    fn a_shared_namespace_has_no_routes_to_its_machines() {
        let machines = [machine("a", Some("ns"), &["192.0.2.1"]), machine("b", Some("ns"), &["192.0.2.2"])];
        let desired = of_one_cluster(&machines, &[route("10.0.1.0/24", "a"), route("10.0.2.0/24", "b")]);
        assert_eq!(desired.namespaces, BTreeMap::from([(ns("ns"), Routes::new())]));
    }

    #[test]
    fn a_route_of_a_deleted_machine_is_a_blackhole() {
        let marked = Arc::new(record("10.0.1.0/24", "a", true));
        let desired =
            of_one_cluster(&[machine("a", Some("ns"), &["192.0.2.1"])], &[marked, route("10.0.2.0/24", "gone")]);
        let blackholes = [net("10.0.1.0/24"), net("10.0.2.0/24")].map(|destination| (destination, Hop::Blackhole));
        assert_eq!(desired.namespaces, BTreeMap::from([(ns("ns"), Routes::from(blackholes))]));
    }

    #[test]
    fn a_machine_without_an_address_of_the_family_is_a_problem() {
        let machines = [machine("a", Some("ns-a"), &["192.0.2.1", "not an address"]), machine("b", Some("ns-b"), &[])];
        let desired = of_one_cluster(&machines, &[route("fd00:1::/64", "a")]);
        assert_eq!(desired.namespaces[&ns("ns-b")], Routes::new());
        let problem = desired.problems[0].to_string();
        assert_eq!(problem, "route to fd00:1::/64: the machine \"a\" has no IPv6 InternalIP; add one");
    }

    #[test]
    fn a_destination_of_two_clusters_is_a_problem_and_the_first_wins() {
        let machines =
            [machine("a", None, &["192.0.2.1"]), machine("b", None, &["192.0.2.2"]), machine("home", Some("ns"), &[])];
        let (first, second) = (route("10.0.1.0/24", "a"), route("10.0.1.0/24", "b"));
        let desired = desired_routes(machines.iter(), [("one", &first), ("two", &second)].into_iter());
        assert_eq!(desired.namespaces[&ns("ns")], Routes::from([(net("10.0.1.0/24"), hop_via("192.0.2.1"))]));
        assert!(
            desired.problems[0].message.contains("has that of the cluster \"one\" to the machine \"a\", not"),
            "{:?}",
            desired.problems
        );
    }

    #[test]
    fn pod_cidrs_of_machines_are_routed_and_an_equal_route_is_no_problem() {
        let with_range = |id: &str, address: &str, range: &str| {
            let mut machine = Machine::clone(&machine(id, Some(id), &[address]));
            machine.spec.pod_ranges = vec![net(range)];
            Arc::new(machine)
        };
        let machines = [with_range("a", "192.0.2.1", "10.0.1.0/24"), with_range("b", "192.0.2.2", "10.0.2.0/24")];
        let desired = of_one_cluster(&machines, &[route("10.0.1.0/24", "a"), route("10.0.2.0/24", "a")]);
        assert_eq!(desired.namespaces[&ns("b")], Routes::from([(net("10.0.1.0/24"), hop_via("192.0.2.1"))]));
        assert_eq!(desired.namespaces[&ns("a")], Routes::from([(net("10.0.2.0/24"), hop_via("192.0.2.2"))]));
        let messages: Vec<_> = desired.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(matches!(messages[..], [message] if message.contains("pod CIDR of the machine \"b\"")), "{messages:?}");
    }

    #[test]
    fn without_namespaces_there_are_no_routes() {
        let desired = of_one_cluster(&[machine("a", None, &[])], &[route("10.0.1.0/24", "a")]);
        assert_eq!(desired, DesiredRoutes::default());
    }
}
