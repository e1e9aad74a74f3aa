//! What routes a cloud has, as far as we know: a listing, brought up to date by each of our own writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Address, Node, NodeName, ProviderId, Route};

/// The routes of one cloud, by ID, found by whom they lead to and by their range.
#[derive(Debug, Clone, Default)]
pub struct Table {
    routes: BTreeMap<String, Route>,
    by_node: HashMap<NodeName, BTreeSet<String>>,
    by_machine: HashMap<ProviderId, BTreeSet<String>>,
    by_next_hop: HashMap<IpAddr, BTreeSet<String>>,
    by_destination: HashMap<IpNet, BTreeSet<String>>,
    /// IDs of the routes that led to a Node of this cluster at some time.
    ours: BTreeSet<String>,
}

impl Table {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// There is this one. Where a cloud gives the ID of a route that is gone to the next one of its range, that leads to
    /// another Node, and is another one.
    pub fn has(&self, route: &Route) -> bool {
        let is_same = |known: &Route| match (&known.node, &route.node) {
            (Some(one), Some(other)) => one == other,
            // It may have lost its machine since.
            _ => true,
        };
        self.routes
            .get(&route.id)
            .is_some_and(|known| known.destination.trunc() == route.destination.trunc() && is_same(known))
    }

    /// There is one with this ID, or one of this range: it is known what has become of the route.
    pub fn explains(&self, route: &Route) -> bool {
        self.routes.contains_key(&route.id) || self.to(route.destination).next().is_some()
    }

    /// All of them, by ID.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.values()
    }

    /// Those that lead to this Node: by its name, or by its machine where the cloud knows no names.
    pub fn for_node<'a>(&'a self, node: &Node) -> impl Iterator<Item = &'a Route> + use<'a> {
        let by_name = self.by_node.get(&node.name);
        let by_machine = node.provider_id.as_ref().and_then(|id| self.by_machine.get(id));
        by_name.into_iter().chain(by_machine).flatten().filter_map(|id| self.routes.get(id))
    }

    /// Those that lead to an address of this Node and name no Node; some of them may lead to another one's machine.
    pub fn for_addresses<'a>(&'a self, node: &Node) -> impl Iterator<Item = &'a Route> + use<'a> {
        let hops = node.addresses.iter().filter_map(Address::ip);
        let ids = hops.filter_map(|ip| self.by_next_hop.get(&ip)).flatten().collect::<BTreeSet<_>>();
        ids.into_iter().filter_map(|id| self.routes.get(id))
    }

    /// Those of this range.
    pub fn to(&self, destination: IpNet) -> impl Iterator<Item = &Route> {
        self.by_destination.get(&destination.trunc()).into_iter().flatten().filter_map(|id| self.routes.get(id))
    }

    /// The route led to a Node of this cluster at some time.
    pub fn was_ours(&self, id: &str) -> bool {
        self.ours.contains(id)
    }

    /// Remembers that these routes lead to a Node of this cluster.
    pub fn claim(&mut self, ids: impl IntoIterator<Item = String>) {
        self.ours.extend(ids.into_iter().filter(|id| self.routes.contains_key(id)));
    }

    /// Remembers of an older table which of the routes were this cluster's.
    pub fn inherit(&mut self, older: &Table) {
        self.claim(older.ours.iter().cloned());
    }

    /// It is there.
    pub fn insert(&mut self, route: Route) {
        self.remove(&route.id);
        let id = route.id.clone();
        self.by_destination.entry(route.destination.trunc()).or_default().insert(id.clone());
        match (&route.node, &route.provider_id) {
            (Some(node), _) => drop(self.by_node.entry(node.clone()).or_default().insert(id.clone())),
            (None, Some(machine)) => drop(self.by_machine.entry(machine.clone()).or_default().insert(id.clone())),
            (None, None) => {}
        }
        if let (None, Some(hop)) = (&route.node, route.next_hop) {
            self.by_next_hop.entry(hop).or_default().insert(id.clone());
        }
        self.routes.insert(id, route);
    }

    /// It is gone.
    pub fn remove(&mut self, id: &str) {
        let Some(route) = self.routes.remove(id) else { return };
        self.ours.remove(id);
        take_out(&mut self.by_destination, &route.destination.trunc(), id);
        match (&route.node, &route.provider_id) {
            (Some(node), _) => take_out(&mut self.by_node, node, id),
            (None, Some(machine)) => take_out(&mut self.by_machine, machine, id),
            (None, None) => {}
        }
        if let (None, Some(hop)) = (&route.node, &route.next_hop) {
            take_out(&mut self.by_next_hop, hop, id);
        }
    }
}

impl FromIterator<Route> for Table {
    fn from_iter<I: IntoIterator<Item = Route>>(routes: I) -> Table {
        let mut table = Table::default();
        routes.into_iter().for_each(|route| table.insert(route));
        table
    }
}

/// An index must not keep what is empty: nodes come and go for years.
fn take_out<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<String>>, key: &K, id: &str) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
