//! Routes of a route table, and what they mean for a desired or a listed route.

use std::collections::BTreeMap;

use bowline_core::{ProviderId, Route, parse_cidr};
use ipnet::IpNet;

use crate::api::ec2;

/// State of a route whose target does not exist.
const BLACKHOLE: &str = "blackhole";

/// Target in the ID of a route without an instance.
const NOTHING: &str = "nothing";

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) id: String,
    /// Routes with an IPv4 destination. A table has at most one for each.
    entries: BTreeMap<IpNet, Entry>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) destination: IpNet,
    /// Destination as EC2 writes it.
    pub(super) text: String,
    /// Target; empty if it is not an instance.
    pub(super) instance: String,
    pub(super) is_blackhole: bool,
}

/// Meaning of a table for a desired route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Existing {
    /// No route has the CIDR.
    Absent,
    /// The route exists.
    Same,
    /// A route with the CIDR drops its traffic, so it is replaced.
    Blackhole(String),
    /// The CIDR is routed to another target.
    Taken(String),
}

impl Table {
    pub(super) fn new(table: ec2::RouteTable) -> Table {
        let entries = table.routes.into_iter().filter_map(Entry::new);
        Table { id: table.id, entries: entries.map(|entry| (entry.destination, entry)).collect() }
    }

    /// Returns the routes that may be the cluster's: to an instance, or without a target.
    pub(super) fn listed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.is_blackhole || !entry.instance.is_empty())
    }

    /// Returns the instances that routes lead to, each once.
    pub(super) fn instances(&self) -> Vec<String> {
        let active = self.listed().filter(|entry| !entry.is_blackhole);
        let mut instances: Vec<_> = active.map(|entry| entry.instance.clone()).collect();
        instances.sort();
        instances.dedup();
        instances
    }

    /// Returns what the table has at the destination of a desired route.
    pub(super) fn existing(&self, destination: IpNet, instance: &str) -> Existing {
        match self.entries.get(&destination) {
            None => Existing::Absent,
            Some(entry) if entry.is_blackhole => Existing::Blackhole(entry.text.clone()),
            Some(entry) if entry.instance == instance => Existing::Same,
            Some(entry) if entry.instance.is_empty() => Existing::Taken("another target".to_owned()),
            Some(entry) => Existing::Taken(entry.instance.clone()),
        }
    }

    /// Returns the route to delete for a listed one: the same one, or what is left of it after its instance was deleted.
    pub(super) fn to_delete(&self, listed: &Route) -> Option<&Entry> {
        let entry = self.entries.get(&listed.destination)?;
        let is_left = || entry.is_blackhole && entry.instance.is_empty();
        (id(entry) == listed.id || is_left()).then_some(entry)
    }
}

impl Entry {
    /// Reads a route; `None` if its destination is not an IPv4 CIDR.
    fn new(route: ec2::Route) -> Option<Entry> {
        let text = route.destination_cidr_block;
        let destination = parse_cidr(&text).filter(|cidr| matches!(cidr, IpNet::V4(_)))?;
        Some(Entry { destination, text, instance: route.instance_id, is_blackhole: route.state == BLACKHOLE })
    }

    /// Returns a new route to an instance.
    pub(super) fn to(destination: IpNet, instance: &str) -> Entry {
        Entry { destination, text: destination.to_string(), instance: instance.to_owned(), is_blackhole: false }
    }

    /// Converts the route. `machine` is the provider ID of its instance.
    pub(super) fn to_route(&self, machine: Option<ProviderId>) -> Route {
        Route {
            id: id(self),
            node: None,
            provider_id: machine,
            node_addresses: None,
            next_hop: None,
            destination: self.destination,
            blackhole: self.is_blackhole,
            stamped: false,
            cluster_uid: None,
        }
    }
}

/// Returns the identity of a route: a newer route of the same CIDR has another one.
fn id(entry: &Entry) -> String {
    let target = if entry.instance.is_empty() { NOTHING } else { &entry.instance };
    format!("{} to {target}", entry.destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(routes: &[(&str, &str, &str, &str)]) -> Table {
        let route = |(cidr, gateway, instance, state): &(&str, &str, &str, &str)| ec2::Route {
            destination_cidr_block: (*cidr).to_owned(),
            gateway_id: (*gateway).to_owned(),
            instance_id: (*instance).to_owned(),
            state: (*state).to_owned(),
        };
        let routes = routes.iter().map(route).collect();
        Table::new(ec2::RouteTable { id: "rtb-1".to_owned(), routes, ..ec2::RouteTable::default() })
    }

    fn cidr(text: &str) -> IpNet {
        text.parse().expect("a CIDR")
    }

    fn example() -> Table {
        table(&[
            ("10.0.0.0/16", "local", "", "active"),
            ("0.0.0.0/0", "igw-1", "", "active"),
            ("10.1.1.0/24", "", "i-1", "active"),
            ("10.1.2.0/24", "", "i-2", "blackhole"),
            ("10.1.3.0/24", "", "", "blackhole"),
            ("10.1.4.0/24", "", "i-1", "active"),
            ("", "", "i-1", "active"),
            ("fd00::/64", "", "i-1", "active"),
        ])
    }

    #[test]
    fn routes_to_instances_and_blackholes_are_listed() {
        let table = example();
        let listed: Vec<_> = table.listed().map(id).collect();
        let expected = ["10.1.1.0/24 to i-1", "10.1.2.0/24 to i-2", "10.1.3.0/24 to nothing", "10.1.4.0/24 to i-1"];
        assert_eq!(listed, expected);
        assert_eq!(table.instances(), ["i-1"], "the instance of a blackhole need not exist");
    }

    #[test]
    fn a_desired_route_may_exist_or_be_in_the_way() {
        let table = example();
        for (destination, instance, expected) in [
            ("10.1.9.0/24", "i-1", Existing::Absent),
            ("10.1.1.0/24", "i-1", Existing::Same),
            ("10.1.1.0/24", "i-9", Existing::Taken("i-1".to_owned())),
            ("10.1.2.0/24", "i-9", Existing::Blackhole("10.1.2.0/24".to_owned())),
            ("10.1.3.0/24", "i-2", Existing::Blackhole("10.1.3.0/24".to_owned())),
            ("10.0.0.0/16", "i-1", Existing::Taken("another target".to_owned())),
        ] {
            assert_eq!(table.existing(cidr(destination), instance), expected, "{destination} {instance}");
        }
    }

    #[test]
    fn a_route_is_deleted_by_its_identity() {
        let table = example();
        let listed = |destination: &str, instance: &str| Entry::to(cidr(destination), instance).to_route(None);
        for (destination, instance, expected) in [
            ("10.1.1.0/24", "i-1", true),
            // A newer route has the CIDR.
            ("10.1.1.0/24", "i-0", false),
            ("10.1.1.0/24", "", false),
            ("10.1.2.0/24", "i-2", true),
            ("10.1.2.0/24", "i-0", false),
            ("10.1.3.0/24", "", true),
            // The instance was deleted since the route was created.
            ("10.1.3.0/24", "i-3", true),
            ("10.1.9.0/24", "i-1", false),
        ] {
            let deleted = table.to_delete(&listed(destination, instance)).is_some();
            assert_eq!(deleted, expected, "{destination} {instance}");
        }
    }
}
