//! Selection of node addresses by policy, for every provider: the order of types, and the networks that count.
//!
//! ```text
//!  cloud's list ──► IP addresses outside of the networks go ──► sorted by type, then by network ──► addresses::decide
//! ```

use std::borrow::Cow;

use ipnet::IpNet;

use crate::{Address, AddressType, Instance};

/// Which addresses of a machine its Node gets, and in which order. The default changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressPolicy {
    /// `--node-address-order`: types that come first, in this order. The others follow as the cloud has them.
    pub order: Vec<AddressType>,
    /// `--node-address-cidrs`: networks whose addresses count, the preferred one first; empty for all. Names are not affected.
    pub networks: Vec<IpNet>,
}

impl AddressPolicy {
    /// Returns the machine with the addresses that its Node gets. A machine without any address in the networks keeps all,
    /// because a Node without addresses is of no use.
    pub fn apply<'a>(&self, instance: &'a Instance) -> Cow<'a, Instance> {
        if *self == AddressPolicy::default() || instance.addresses.is_empty() {
            return Cow::Borrowed(instance);
        }
        let is_limited = !self.networks.is_empty() && self.matches(instance);
        let counts = |address: &&Address| !is_limited || address.ip().is_none() || self.network(address).is_some();
        let mut addresses: Vec<Address> = instance.addresses.iter().filter(counts).cloned().collect();
        addresses.sort_by_key(|address| (self.rank(address.kind, instance), self.network(address)));
        Cow::Owned(Instance { addresses, ..instance.clone() })
    }

    /// Whether the networks have any address of this machine, or there are no networks.
    pub fn matches(&self, instance: &Instance) -> bool {
        self.networks.is_empty() || instance.addresses.iter().any(|address| self.network(address).is_some())
    }

    /// Position of the first network that has this address.
    fn network(&self, address: &Address) -> Option<usize> {
        let ip = address.ip()?;
        self.networks.iter().position(|network| network.contains(&ip))
    }

    /// Position of this type: as configured, then as in the cloud's list.
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
