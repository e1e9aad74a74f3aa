//! Machines of a playground.

use bowline_core::{Address, AddressType};
use bowline_local::NewMachine;

use crate::subnet::Subnet;

/// Region of all machines.
const REGION: &str = "harbour";

/// Instance types, assigned in turn.
const TYPES: [&str; 2] = ["dinghy.2cpu.4g", "sloop.4cpu.16g"];

/// Zones, assigned in turn.
const ZONES: [&str; 3] = ["harbour-east", "harbour-north", "harbour-west"];

/// Returns the machine of this number, from 1, in this subnet: `m-1`, which becomes the Node `node-1`.
pub fn machine(number: usize, subnet: Subnet) -> NewMachine {
    let name = format!("node-{number}");
    let in_turn =
        |names: &[&str]| names.get((number + names.len() - 1) % names.len()).copied().unwrap_or_default().to_owned();
    let (high, low) = (number / 250 % 256, number % 250 + 1);
    NewMachine {
        id: format!("m-{number}"),
        instance_type: in_turn(&TYPES),
        zone: in_turn(&ZONES),
        region: REGION.to_owned(),
        // 198.18.0.0/15 is reserved for benchmarks (RFC 2544): it looks like a public address and is not routed.
        addresses: vec![
            Address::new(AddressType::InternalIP, subnet.machine(number).to_string()),
            Address::new(AddressType::ExternalIP, format!("198.18.{high}.{low}")),
            Address::new(AddressType::Hostname, name.clone()),
        ],
        name,
        ..NewMachine::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_machines_share_a_name_or_an_address() {
        let mut seen = BTreeSet::new();
        for number in 1..=5_000 {
            let machine = machine(number, Subnet::Loopback(64));
            assert!(seen.insert(machine.id.clone()) && seen.insert(machine.name), "{}", machine.id);
            let own: BTreeSet<_> = machine.addresses.into_iter().take(2).map(|address| address.address).collect();
            assert!(own.into_iter().all(|address| seen.insert(address)), "{}", machine.id);
        }
    }
}
