//! Which routes each namespace should have.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bowline_core::AddressType;
use ipnet::IpNet;

use super::diff::{Hop, Routes};
use crate::cloud::Machine;
use crate::kernel::RouteProblem;
use crate::routes::RouteRecord;

/// What each namespace should have, by the name that machines give it, and what cannot be had.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) namespaces: BTreeMap<String, Routes>,
    pub(super) problems: Vec<RouteProblem>,
}

/// A route as all namespaces have it, but for that of its own machine.
#[derive(Clone, Copy)]
struct Led<'a> {
    hop: Hop,
    machine: &'a str,
    /// Whose table it is in; `None` for a pod range that the cloud itself leads to the machine.
    cluster: Option<&'a str>,
}

/// From the machines and the tables of all clusters.
pub(super) fn wanted<'a>(
    machines: impl Iterator<Item = &'a Arc<Machine>>,
    routes: impl Iterator<Item = (&'a str, &'a Arc<RouteRecord>)>,
) -> Wanted {
    let machines: BTreeMap<&str, &Machine> =
        machines.map(|machine| (machine.spec.id.as_str(), machine.as_ref())).collect();
    let homes = homes(&machines);
    // Without a namespace there is no kernel that a route could be missing from.
    if homes.is_empty() {
        return Wanted::default();
    }
    let mut problems = Vec::new();
    let led = led(&machines, routes, &mut problems);
    let namespaces = homes.into_iter().map(|(name, at_home)| (name.to_owned(), routes_of(&at_home, &led))).collect();
    Wanted { namespaces, problems }
}

/// Who lives in which namespace. Several machines may share one.
fn homes<'a>(machines: &BTreeMap<&'a str, &'a Machine>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut homes = BTreeMap::<_, Vec<_>>::new();
    for (id, machine) in machines {
        if let Some(name) = &machine.spec.network_namespace {
            homes.entry(name.as_str()).or_default().push(*id);
        }
    }
    homes
}

fn routes_of(at_home: &[&str], led: &BTreeMap<IpNet, Led<'_>>) -> Routes {
    let is_elsewhere = |route: &Led<'_>| route.hop == Hop::Blackhole || !at_home.contains(&route.machine);
    let elsewhere = led.iter().filter(|(_, route)| is_elsewhere(route));
    elsewhere.map(|(destination, route)| (*destination, route.hop)).collect()
}

/// All routes, each range once.
fn led<'a>(
    machines: &BTreeMap<&'a str, &'a Machine>,
    routes: impl Iterator<Item = (&'a str, &'a Arc<RouteRecord>)>,
    problems: &mut Vec<RouteProblem>,
) -> BTreeMap<IpNet, Led<'a>> {
    let of_machine = |machine: &'a Machine| machine.spec.pod_ranges.iter().map(move |range| (range, machine));
    let pod_ranges = machines.values().copied().flat_map(of_machine).map(|(range, machine)| {
        let led = |hop| Led { hop, machine: &machine.spec.id, cluster: None };
        (range.trunc(), via(machine, range).map(led))
    });
    let in_tables = routes.map(|(cluster, route)| {
        let led = |hop| Led { hop, machine: &route.spec.machine, cluster: Some(cluster) };
        (route.spec.destination.trunc(), hop(machines, route).map(led))
    });
    let mut led = BTreeMap::new();
    for (destination, route) in pod_ranges.chain(in_tables) {
        if let Err(message) = route.and_then(|route| put(&mut led, destination, route)) {
            problems.push(RouteProblem { namespace: None, destination: Some(destination), message });
        }
    }
    led
}

/// The first has the place. Another that leads the same way is no problem.
fn put<'a>(led: &mut BTreeMap<IpNet, Led<'a>>, destination: IpNet, route: Led<'a>) -> Result<(), String> {
    let first = led.entry(destination).or_insert(route);
    if (first.hop, first.machine) == (route.hop, route.machine) {
        return Ok(());
    }
    let whose = |route: &Led<'_>| match route.cluster {
        Some(cluster) => format!("that of the cluster {cluster:?}, to the machine {:?}", route.machine),
        None => format!("that of the pod range of the machine {:?}", route.machine),
    };
    Err(format!(
        "there are two, and the kernel has {}, not {}; give every cluster and machine ranges of its own",
        whose(first),
        whose(&route)
    ))
}

fn hop(machines: &BTreeMap<&str, &Machine>, route: &RouteRecord) -> Result<Hop, String> {
    let Some(machine) = machines.get(route.spec.machine.as_str()).filter(|_| !route.blackhole) else {
        return Ok(Hop::Blackhole);
    };
    via(machine, &route.spec.destination)
}

/// By way of the machine's address of the same family.
fn via(machine: &Machine, destination: &IpNet) -> Result<Hop, String> {
    let family = if destination.addr().is_ipv4() { "IPv4" } else { "IPv6" };
    let address = internal_ips(machine).find(|ip| ip.is_ipv4() == destination.addr().is_ipv4());
    address
        .map(Hop::Via)
        .ok_or_else(|| format!("the machine {:?} has no InternalIP of {family}; give it one", machine.spec.id))
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

    fn hop_via(text: &str) -> Hop {
        Hop::Via(text.parse().unwrap())
    }

    fn of_one_cluster(machines: &[Arc<Machine>], routes: &[Arc<RouteRecord>]) -> Wanted {
        wanted(machines.iter(), routes.iter().map(|route| ("c", route)))
    }

    #[test]
    fn every_namespace_leads_to_all_machines_but_its_own() {
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
        let wanted = of_one_cluster(&machines, &routes);
        let to_elsewhere = (net("10.0.3.0/24"), hop_via("192.0.2.3"));
        let of_a = Routes::from([(net("10.0.2.0/24"), hop_via("192.0.2.2")), to_elsewhere]);
        let of_b = Routes::from([
            (net("10.0.1.0/24"), hop_via("192.0.2.1")),
            (net("fd00:1::/64"), hop_via("fd00::1")),
            to_elsewhere,
        ]);
        assert_eq!(wanted.namespaces, BTreeMap::from([("ns-a".to_owned(), of_a), ("ns-b".to_owned(), of_b)]));
        assert_eq!(wanted.problems, []);
    }

    #[test]
    fn a_namespace_without_routes_is_still_looked_after() {
        let wanted = of_one_cluster(&[machine("a", Some("ns-a"), &[])], &[]);
        assert_eq!(wanted.namespaces, BTreeMap::from([("ns-a".to_owned(), Routes::new())]));
    }

    #[test]
    fn a_shared_namespace_is_home_to_all_its_machines() {
        let machines = [machine("a", Some("ns"), &["192.0.2.1"]), machine("b", Some("ns"), &["192.0.2.2"])];
        let wanted = of_one_cluster(&machines, &[route("10.0.1.0/24", "a"), route("10.0.2.0/24", "b")]);
        assert_eq!(wanted.namespaces, BTreeMap::from([("ns".to_owned(), Routes::new())]));
    }

    #[test]
    fn a_route_whose_machine_is_gone_leads_nowhere() {
        let marked = Arc::new(record("10.0.1.0/24", "a", true));
        let wanted =
            of_one_cluster(&[machine("a", Some("ns"), &["192.0.2.1"])], &[marked, route("10.0.2.0/24", "gone")]);
        let nowhere = [net("10.0.1.0/24"), net("10.0.2.0/24")].map(|destination| (destination, Hop::Blackhole));
        assert_eq!(wanted.namespaces, BTreeMap::from([("ns".to_owned(), Routes::from(nowhere))]));
    }

    #[test]
    fn a_machine_without_an_address_of_the_family_is_a_problem() {
        let machines = [machine("a", Some("ns-a"), &["192.0.2.1", "not an address"]), machine("b", Some("ns-b"), &[])];
        let wanted = of_one_cluster(&machines, &[route("fd00:1::/64", "a")]);
        assert_eq!(wanted.namespaces["ns-b"], Routes::new());
        let problem = wanted.problems[0].to_string();
        assert_eq!(problem, "the route to fd00:1::/64: the machine \"a\" has no InternalIP of IPv6; give it one");
    }

    #[test]
    fn a_range_of_two_clusters_is_a_problem_and_the_first_has_it() {
        let machines =
            [machine("a", None, &["192.0.2.1"]), machine("b", None, &["192.0.2.2"]), machine("home", Some("ns"), &[])];
        let (first, second) = (route("10.0.1.0/24", "a"), route("10.0.1.0/24", "b"));
        let wanted = wanted(machines.iter(), [("one", &first), ("two", &second)].into_iter());
        assert_eq!(wanted.namespaces["ns"], Routes::from([(net("10.0.1.0/24"), hop_via("192.0.2.1"))]));
        assert!(
            wanted.problems[0].message.contains("has that of the cluster \"one\", to the machine \"a\", not"),
            "{:?}",
            wanted.problems
        );
    }

    #[test]
    fn pod_ranges_of_the_cloud_are_led_too_and_a_route_to_the_same_machine_is_no_problem() {
        let with_range = |id: &str, address: &str, range: &str| {
            let mut machine = Machine::clone(&machine(id, Some(id), &[address]));
            machine.spec.pod_ranges = vec![net(range)];
            Arc::new(machine)
        };
        let machines = [with_range("a", "192.0.2.1", "10.0.1.0/24"), with_range("b", "192.0.2.2", "10.0.2.0/24")];
        let wanted = of_one_cluster(&machines, &[route("10.0.1.0/24", "a"), route("10.0.2.0/24", "a")]);
        assert_eq!(wanted.namespaces["b"], Routes::from([(net("10.0.1.0/24"), hop_via("192.0.2.1"))]));
        assert_eq!(wanted.namespaces["a"], Routes::from([(net("10.0.2.0/24"), hop_via("192.0.2.2"))]));
        let messages: Vec<_> = wanted.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(
            matches!(messages[..], [message] if message.contains("pod range of the machine \"b\"")),
            "{messages:?}"
        );
    }

    #[test]
    fn nothing_is_asked_where_no_machine_has_a_namespace() {
        let wanted = of_one_cluster(&[machine("a", None, &[])], &[route("10.0.1.0/24", "a")]);
        assert_eq!(wanted, Wanted::default());
    }
}
