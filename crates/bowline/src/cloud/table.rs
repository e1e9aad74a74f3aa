//! What a cloud has, in columns, as kubectl writes them.

use std::fmt::Write as _;

use bowline_core::LoadBalancerKey;
use bowline_local::{BalancerTarget, BalancerView, CloudAddress, Machine, MachineState};

/// All machines.
pub(super) fn machines(machines: &[Machine]) -> String {
    let head = ["ID", "NAME", "STATE", "TYPE", "ZONE", "ADDRESSES"];
    table(head, machines.iter().map(machine))
}

fn machine(machine: &Machine) -> [String; 6] {
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
    ]
}

/// All balancers.
pub(super) fn balancers(balancers: &[BalancerView]) -> String {
    let head = ["ID", "NAME", "OWNER", "ADDRESSES", "PORTS", "TARGETS"];
    table(head, balancers.iter().map(balancer))
}

fn balancer(view: &BalancerView) -> [String; 6] {
    let balancer = &view.balancer;
    let ports = balancer.settings.listeners.iter().map(|port| format!("{}/{}", port.port, protocol(port.protocol)));
    [
        balancer.id.clone(),
        balancer.name.clone(),
        owner(balancer.owner.as_ref()),
        joined(view.addresses.iter().map(|address| address.ip)),
        joined(ports),
        joined(balancer.targets.iter().map(target)),
    ]
}

fn target(target: &BalancerTarget) -> String {
    format!("{}{}", target.name, if target.draining { "(draining)" } else { "" })
}

/// All addresses.
pub(super) fn addresses(addresses: &[CloudAddress]) -> String {
    let head = ["ID", "ADDRESS", "INTERNAL", "GROUP", "OWNERS"];
    table(head, addresses.iter().map(address))
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

fn owner(key: Option<&LoadBalancerKey>) -> String {
    or_none(key.map(|key| format!("{}:{}/{}", key.cluster, key.namespace, key.service)).unwrap_or_default())
}

fn protocol(protocol: bowline_core::Protocol) -> String {
    format!("{protocol:?}").to_uppercase()
}

fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    or_none(items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(","))
}

fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

/// Rows below their heads, each column as wide as its widest cell.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
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

    #[test]
    fn machines_are_listed_in_columns() {
        let spec = NewMachine { id: "i-1".to_owned(), name: "worker-1".to_owned(), ..NewMachine::default() };
        let text = machines(&[Machine { spec, state: MachineState::Stopped }]);
        let head = "ID    NAME       STATE     TYPE     ZONE     ADDRESSES\n";
        assert_eq!(text, format!("{head}i-1   worker-1   stopped   <none>   <none>   <none>\n"));
    }
}
