//! Difference between desired addresses and addresses of the kernel. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Address of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
    /// Index of the interface.
    pub(super) link: u32,
    /// The kernel reports the protocol number of the agent; `None` if it reports none, as before Linux 5.18.
    pub(super) has_our_protocol: Option<bool>,
}

/// Context of a comparison.
pub(super) struct Scope<'a> {
    /// Index of the interface of the service addresses.
    pub(super) link: u32,
    /// Addresses that this process added.
    pub(super) added: &'a BTreeSet<IpAddr>,
    /// Whether an address belongs to the group: another group may use the same host.
    pub(super) in_pool: &'a dyn Fn(IpAddr) -> bool,
}

/// Changes that lead to the desired addresses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) add: Vec<IpAddr>,
    pub(super) renew: Vec<IpAddr>,
    pub(super) remove: Vec<IpAddr>,
    /// Desired addresses that another program added, with the index of their interface. They stay as they are.
    pub(super) foreign: BTreeMap<IpAddr, u32>,
}

/// Compares desired addresses with all addresses of the kernel.
pub(super) fn diff(desired: &BTreeSet<IpAddr>, found: &[Found], scope: &Scope<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut present = BTreeSet::new();
    for one in found {
        let is_desired = desired.contains(&one.address);
        match (scope.is_ours(one), is_desired) {
            (true, true) => _ = present.insert(one.address),
            (true, false) if scope.may_remove(one.address) => plan.remove.push(one.address),
            (false, true) => _ = plan.foreign.insert(one.address, one.link),
            _ => {}
        }
    }
    for address in desired.iter().filter(|address| !plan.foreign.contains_key(*address)) {
        let list = if present.contains(address) { &mut plan.renew } else { &mut plan.add };
        list.push(*address);
    }
    plan
}

impl Scope<'_> {
    fn is_ours(&self, found: &Found) -> bool {
        let is_host_prefix = found.prefix == if found.address.is_ipv4() { 32 } else { 128 };
        let has_mark = found.has_our_protocol.unwrap_or_else(|| self.added.contains(&found.address));
        found.link == self.link && is_host_prefix && has_mark
    }

    fn may_remove(&self, address: IpAddr) -> bool {
        self.added.contains(&address) || (self.in_pool)(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: u32 = 2;

    fn found(text: &str, link: u32, has_our_protocol: Option<bool>) -> Found {
        let (address, prefix) = text.split_once('/').unwrap();
        Found { address: address.parse().unwrap(), prefix: prefix.parse().unwrap(), link, has_our_protocol }
    }

    fn ips(addresses: &[&str]) -> Vec<IpAddr> {
        addresses.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn plan(desired: &[&str], added: &[&str], found: &[Found]) -> Plan {
        let added = ips(added).into_iter().collect();
        let in_pool = |address: IpAddr| address.is_ipv6() || address.to_string().starts_with("192.0.2.");
        diff(&ips(desired).into_iter().collect(), found, &Scope { link: LINK, added: &added, in_pool: &in_pool })
    }

    #[test]
    fn addresses_are_added_renewed_and_removed() {
        let kernel = [
            found("192.0.2.201/32", LINK, Some(true)),
            found("192.0.2.202/32", LINK, Some(true)),
            found("2001:db8::101/128", LINK, Some(true)),
            found("2001:db8::102/128", LINK, Some(true)),
            found("192.0.2.1/24", LINK, None),
        ];
        let desired = ["192.0.2.200", "192.0.2.201", "2001:db8::100", "2001:db8::101"];
        let expected = Plan {
            add: ips(&["192.0.2.200", "2001:db8::100"]),
            renew: ips(&["192.0.2.201", "2001:db8::101"]),
            remove: ips(&["192.0.2.202", "2001:db8::102"]),
            foreign: BTreeMap::new(),
        };
        assert_eq!(plan(&desired, &[], &kernel), expected);
    }

    #[test]
    fn the_result_of_a_plan_needs_only_renewals() {
        let desired = ["192.0.2.200", "2001:db8::100"];
        let kernel = [found("192.0.2.200/32", LINK, Some(true)), found("2001:db8::100/128", LINK, Some(true))];
        assert_eq!(plan(&desired, &[], &kernel), Plan { renew: ips(&desired), ..Plan::default() });
    }

    #[test]
    fn addresses_of_other_programs_are_neither_changed_nor_removed() {
        let kernel = [
            found("192.0.2.200/32", LINK, None),
            found("192.0.2.201/24", LINK, Some(true)),
            found("192.0.2.202/32", 3, Some(true)),
            found("192.0.2.203/32", LINK, Some(false)),
        ];
        assert_eq!(plan(&[], &[], &kernel), Plan::default());
        let desired = ["192.0.2.200", "192.0.2.201", "192.0.2.202", "192.0.2.203"];
        let foreign = ips(&desired).into_iter().zip([LINK, LINK, 3, LINK]).collect();
        assert_eq!(plan(&desired, &[], &kernel), Plan { foreign, ..Plan::default() });
    }

    #[test]
    fn an_old_kernel_needs_the_record_of_added_addresses() {
        let kernel = [found("192.0.2.200/32", LINK, None), found("192.0.2.201/32", LINK, None)];
        let added = ["192.0.2.200", "192.0.2.201"];
        let expected = Plan { renew: ips(&added[..1]), remove: ips(&added[1..]), ..Plan::default() };
        assert_eq!(plan(&added[..1], &added, &kernel), expected);
    }

    #[test]
    fn addresses_of_another_group_on_the_same_interface_stay() {
        let kernel = [found("203.0.113.1/32", LINK, Some(true)), found("203.0.113.2/32", LINK, Some(true))];
        let expected = Plan { remove: ips(&["203.0.113.2"]), ..Plan::default() };
        assert_eq!(plan(&[], &["203.0.113.2"], &kernel), expected);
    }
}
