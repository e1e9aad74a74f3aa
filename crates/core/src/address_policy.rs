//! Policy for Node addresses, applied to every provider: order of the address types, and allowed networks.
//!
//! ```text
//!  addresses from the cloud ──► drop IPs outside the networks ──► sort by type, then by network ──► addresses::decide
//! ```

use std::borrow::Cow;

use ipnet::IpNet;

use crate::{Address, AddressType, Instance};

/// Selection and order of the addresses that a Node gets from its machine. The default changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressPolicy {
    /// `--node-address-order`: address types that come first, in this order. Other types follow in the order of the cloud.
    pub order: Vec<AddressType>,
    /// `--node-address-cidrs`: networks whose addresses are used, the preferred one first; empty for all. Names are not affected.
    pub networks: Vec<IpNet>,
}

impl AddressPolicy {
    /// Returns the machine with the selected addresses. A machine without any address in the networks keeps all of them, because a
    /// Node without addresses is useless.
    pub fn apply<'a>(&self, instance: &'a Instance) -> Cow<'a, Instance> {
        if *self == AddressPolicy::default() || instance.addresses.is_empty() {
            return Cow::Borrowed(instance);
        }
        let is_limited = !self.networks.is_empty() && self.matches(instance);
        let is_selected = |address: &&Address| !is_limited || address.ip().is_none() || self.network(address).is_some();
        let mut addresses: Vec<Address> = instance.addresses.iter().filter(is_selected).cloned().collect();
        addresses.sort_by_key(|address| (self.rank(address.kind, instance), self.network(address)));
        Cow::Owned(Instance { addresses, ..instance.clone() })
    }

    /// Returns whether any address of the machine is in the networks, or there are no networks.
    pub fn matches(&self, instance: &Instance) -> bool {
        self.networks.is_empty() || instance.addresses.iter().any(|address| self.network(address).is_some())
    }

    /// Returns the index of the first network that contains the address.
    fn network(&self, address: &Address) -> Option<usize> {
        let ip = address.ip()?;
        self.networks.iter().position(|network| network.contains(&ip))
    }

    /// Returns the sort key of an address type: its configured position, then its position in the list of the cloud.
    fn rank(&self, kind: AddressType, instance: &Instance) -> (usize, Option<usize>) {
        let configured = self.order.iter().position(|first| *first == kind);
        let found = instance.addresses.iter().position(|address| address.kind == kind);
        (configured.unwrap_or(self.order.len()), found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::addresses as list;

    fn applied(order: &[AddressType], networks: &[&str], addresses: &str) -> Vec<Address> {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        let policy = AddressPolicy { order: order.to_vec(), networks };
        let instance = Instance { addresses: list(addresses), ..Instance::default() };
        policy.apply(&instance).addresses.clone()
    }

    #[test]
    fn addresses_are_ordered_by_type_and_network_and_limited_to_the_networks() {
        use AddressType::{ExternalIP, Hostname, InternalIP};
        const ALL: &str = "E203.0.113.1 I10.0.0.1 Hn I192.168.0.1 Ifd00::1";
        let cases: [(&[AddressType], &[&str], &str); 8] = [
            (&[], &[], ALL),
            (&[InternalIP], &[], "I10.0.0.1 I192.168.0.1 Ifd00::1 E203.0.113.1 Hn"),
            (&[Hostname, InternalIP, ExternalIP], &[], "Hn I10.0.0.1 I192.168.0.1 Ifd00::1 E203.0.113.1"),
            (&[], &["192.168.0.0/16"], "I192.168.0.1 Hn"),
            (&[InternalIP], &["192.168.0.0/16", "10.0.0.0/8"], "I192.168.0.1 I10.0.0.1 Hn"),
            (&[InternalIP], &["fd00::/8", "10.0.0.0/8"], "Ifd00::1 I10.0.0.1 Hn"),
            (&[], &["0.0.0.0/0"], "E203.0.113.1 I10.0.0.1 I192.168.0.1 Hn"),
            (&[], &["172.16.0.0/12"], "E203.0.113.1 I10.0.0.1 I192.168.0.1 Ifd00::1 Hn"),
        ];
        for (order, networks, expected) in cases {
            assert_eq!(applied(order, networks, ALL), list(expected), "{order:?} {networks:?}");
        }
        assert_eq!(applied(&[ExternalIP], &["10.0.0.0/8"], ""), []);
    }
}
