//! Resources of the local cloud as tables in the style of kubectl.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bowline_core::LoadBalancerKey;
use bowline_local::{BalancerTarget, BalancerView, CloudAddress, Machine, MachineState, RouteProblem, RouteRecord};

/// Formats machines.
pub(super) fn machines(machines: &[Machine]) -> String {
    let header = ["ID", "NAME", "STATE", "TYPE", "ZONE", "ADDRESSES", "POD-CIDRS"];
    table(header, machines.iter().map(machine))
}

fn machine(machine: &Machine) -> [String; 7] {
    let spec = &machine.spec;
    let state = match machine.state {
        MachineState::Running => "running",
        MachineState::Stopped => "stopped",
    };
    [
        spec.id.clone(),
        spec.name.clone(),
        state.to_owned(),
        or_none(spec.instance_type.clone()),
        or_none(spec.zone.clone()),
        joined(&spec.addresses),
        joined(&spec.pod_ranges),
    ]
}

/// Formats load balancers.
pub(super) fn balancers(balancers: &[BalancerView]) -> String {
    let header = ["ID", "NAME", "OWNER", "ADDRESSES", "PORTS", "TARGETS", "OPEN", "ACCEPTED", "IN", "OUT"];
    table(header, balancers.iter().map(balancer))
}

fn balancer(view: &BalancerView) -> [String; 10] {
    let balancer = &view.balancer;
    let ports = balancer.settings.listeners.iter().map(|port| format!("{}/{}", port.port, port.protocol));
    let [open, accepted, inwards, outwards] = traffic(view);
    [
        balancer.id.clone(),
        balancer.name.clone(),
        owner(balancer.owner.as_ref()),
        joined(view.addresses.iter().map(|address| address.ip)),
        joined(ports),
        joined(balancer.targets.iter().map(|it| target(it, view))),
        open,
        accepted,
        inwards,
        outwards,
    ]
}

/// Sums the traffic of all listeners; unknown without a data plane.
fn traffic(view: &BalancerView) -> [String; 4] {
    let Some(status) = &view.status else { return [(); 4].map(|()| "-".to_owned()) };
    let counters = status.listeners.iter().map(|listener| listener.counters);
    let sums = counters.fold([0; 4], |[open, accepted, inwards, outwards], it| {
        [open + it.open, accepted + it.accepted, inwards + it.bytes_in, outwards + it.bytes_out]
    });
    sums.map(|sum| sum.to_string())
}

/// Formats a target with its health, the worst of all ports.
fn target(target: &BalancerTarget, view: &BalancerView) -> String {
    let listeners = view.status.iter().flat_map(|status| &status.listeners);
    let seen = listeners.flat_map(|listener| &listener.targets);
    let seen = seen.filter(|seen| target.addresses.contains(&seen.address.ip()));
    let mut healths: Vec<_> = seen.map(|seen| format!("{:?}", seen.health).to_lowercase()).collect();
    healths.sort_by_key(|health| health != "unhealthy");
    let health = healths.first().map(|health| format!("({health})")).unwrap_or_default();
    format!("{}{health}{}", target.name, if target.draining { "(draining)" } else { "" })
}

/// Formats load balancer addresses.
pub(super) fn addresses(addresses: &[CloudAddress]) -> String {
    let header = ["ID", "ADDRESS", "INTERNAL", "GROUP", "OWNERS"];
    table(header, addresses.iter().map(address))
}

fn address(address: &CloudAddress) -> [String; 5] {
    [
        address.id.clone(),
        address.ip.to_string(),
        address.internal.to_string(),
        or_none(address.share_group.clone().unwrap_or_default()),
        joined(address.owners.iter().map(|key| owner(Some(key)))),
    ]
}

/// Formats the routes of all clusters.
pub(super) fn routes(tables: &BTreeMap<String, Vec<RouteRecord>>) -> String {
    let header = ["CLUSTER", "ID", "DESTINATION", "MACHINE", "NODE", "STATE", "MARKED"];
    let rows = tables.iter().flat_map(|(cluster, routes)| routes.iter().map(move |record| route(cluster, record)));
    table(header, rows)
}

/// Formats kernel errors about these routes, one per line; usually there are none.
pub(super) fn errors(errors: &[RouteProblem]) -> String {
    errors.iter().fold(String::new(), |mut lines, problem| {
        let _ = writeln!(lines, "! {problem}");
        lines
    })
}

fn route(cluster: &str, record: &RouteRecord) -> [String; 7] {
    let state = if record.blackhole { "blackhole" } else { "active" };
    [
        cluster.to_owned(),
        record.id.clone(),
        record.spec.destination.to_string(),
        record.spec.machine.clone(),
        or_none(record.node.clone().unwrap_or_default()),
        state.to_owned(),
        record.spec.stamped.to_string(),
    ]
}

fn owner(key: Option<&LoadBalancerKey>) -> String {
    or_none(key.map(|key| format!("{}:{}/{}", key.cluster, key.namespace, key.service)).unwrap_or_default())
}

fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    or_none(items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(","))
}

fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// Formats rows with a header; each column is as wide as its widest cell.
fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
    }
    let mut text = String::new();
    for row in &rows {
        let cells: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}   ")).collect();
        let _ = writeln!(text, "{}", cells.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_local::NewMachine;
    use serde_json::json;

    #[test]
    fn machines_are_listed_in_columns() {
        let spec = NewMachine {
            id: "i-1".to_owned(),
            name: "worker-1".to_owned(),
            pod_ranges: vec!["10.244.1.0/24".parse().unwrap()],
            ..NewMachine::default()
        };
        let text = machines(&[Machine { spec, state: MachineState::Stopped }]);
        let header = "ID    NAME       STATE     TYPE     ZONE     ADDRESSES   POD-CIDRS\n";
        assert_eq!(text, format!("{header}i-1   worker-1   stopped   <none>   <none>   <none>      10.244.1.0/24\n"));
    }

    #[test]
    fn a_load_balancer_is_listed_with_the_health_of_its_targets_and_its_traffic() {
        let key = json!({"cluster": "kubernetes", "namespace": "default", "service": "web", "uid": "u-1"});
        let target = |name: &str, ip: &str| json!({"name": name, "addresses": [ip]});
        let seen = |ip: &str, health: &str| json!({"address": format!("{ip}:30080"), "health": health, "draining": false, "open": 1, "total": 2});
        let counters = json!({
            "accepted": 7, "open": 2, "denied": 0, "failed": 0, "idled": 0, "bytesIn": 10, "bytesOut": 20,
        });
        let listener = json!({
            "address": "127.0.32.1", "transport": "TCP", "port": 80, "counters": counters,
            "targets": [seen("10.0.0.1", "healthy"), seen("10.0.0.2", "unhealthy")],
        });
        let view = json!({
            "balancer": {
                "id": "lb-0002",
                "name": "a1",
                "owner": key,
                "addresses": ["ip-0001"],
                "settings": {"listeners": [{"protocol": "TCP", "port": 80, "nodePort": 30080}]},
                "targets": [target("n1", "10.0.0.1"), target("n2", "10.0.0.2")],
            },
            "addresses": [{"id": "ip-0001", "ip": "127.0.32.1", "owners": [key]}],
            "status": {"listeners": [listener, listener]},
        });
        let view: BalancerView = serde_json::from_value(view).unwrap();
        let cells = |text: &str| text.lines().nth(1).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let owner = "kubernetes:default/web";
        let targets = "n1(healthy),n2(unhealthy)";
        let expected = ["lb-0002", "a1", owner, "127.0.32.1", "80/TCP", targets, "4", "14", "20", "40"];
        assert_eq!(cells(&balancers(std::slice::from_ref(&view))), expected);
        assert_eq!(cells(&addresses(&view.addresses)), ["ip-0001", "127.0.32.1", "false", "<none>", owner]);
        let record = BalancerView { status: None, ..view };
        assert_eq!(cells(&balancers(&[record]))[5..], ["n1,n2", "-", "-", "-", "-"]);
    }
}
