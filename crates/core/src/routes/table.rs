//! Known routes of a cloud: a listing, updated with each own write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Address, Node, NodeName, ProviderId, Route};

/// Routes of one cloud, indexed by target and destination.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    routes: BTreeMap<String, Route>,
    by_node: HashMap<NodeName, BTreeSet<String>>,
    by_machine: HashMap<ProviderId, BTreeSet<String>>,
    by_next_hop: HashMap<IpAddr, BTreeSet<String>>,
    by_destination: HashMap<IpNet, BTreeSet<String>>,
    /// IDs of the routes that have led to a Node of this cluster at any time.
    ours: BTreeSet<String>,
}

impl RouteTable {
    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Returns whether the table contains this route. Some clouds reuse the ID of a deleted route for the next one of the same
    /// destination; a route to another Node is therefore a different route.
    pub fn has(&self, route: &Route) -> bool {
        let is_same = |known: &Route| match (&known.node, &route.node) {
            (Some(one), Some(other)) => one == other,
            // Its machine may have been deleted since.
            _ => true,
        };
        self.routes
            .get(&route.id)
            .is_some_and(|known| known.destination.trunc() == route.destination.trunc() && is_same(known))
    }

    /// Returns whether the table has a route with this ID or destination, so that the fate of the route is known.
    pub fn accounts_for(&self, route: &Route) -> bool {
        self.routes.contains_key(&route.id) || self.to(route.destination).next().is_some()
    }

    /// Iterates over all routes, sorted by ID.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.values()
    }

    /// Returns the routes to this Node, by its name, or by its machine for clouds that do not know names.
    pub fn for_node<'a>(&'a self, node: &Node) -> impl Iterator<Item = &'a Route> + use<'a> {
        let by_name = self.by_node.get(&node.name);
        let by_machine = node.provider_id.as_ref().and_then(|id| self.by_machine.get(id));
        by_name.into_iter().chain(by_machine).flatten().filter_map(|id| self.routes.get(id))
    }

    /// Returns the routes that have no target Node and an address of this Node as next hop. Their target may be the machine of
    /// another Node.
    pub fn for_addresses<'a>(&'a self, node: &Node) -> impl Iterator<Item = &'a Route> + use<'a> {
        let hops = node.addresses.iter().filter_map(Address::ip);
        let ids = hops.filter_map(|ip| self.by_next_hop.get(&ip)).flatten().collect::<BTreeSet<_>>();
        ids.into_iter().filter_map(|id| self.routes.get(id))
    }

    /// Returns the routes with this destination.
    pub fn to(&self, destination: IpNet) -> impl Iterator<Item = &Route> {
        self.by_destination.get(&destination.trunc()).into_iter().flatten().filter_map(|id| self.routes.get(id))
    }

    /// Returns whether the route has led to a Node of this cluster at any time.
    pub fn was_ours(&self, id: &str) -> bool {
        self.ours.contains(id)
    }

    /// Records that these routes lead to a Node of this cluster.
    pub fn claim(&mut self, ids: impl IntoIterator<Item = String>) {
        self.ours.extend(ids.into_iter().filter(|id| self.routes.contains_key(id)));
    }

    /// Takes over from an older table which routes have led to a Node of this cluster.
    pub fn inherit(&mut self, older: &RouteTable) {
        self.claim(older.ours.iter().cloned());
    }

    /// Adds or replaces a route.
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

    /// Removes a route.
    pub fn remove(&mut self, id: &str) {
        let Some(route) = self.routes.remove(id) else { return };
        self.ours.remove(id);
        remove_from_index(&mut self.by_destination, &route.destination.trunc(), id);
        match (&route.node, &route.provider_id) {
            (Some(node), _) => remove_from_index(&mut self.by_node, node, id),
            (None, Some(machine)) => remove_from_index(&mut self.by_machine, machine, id),
            (None, None) => {}
        }
        if let (None, Some(hop)) = (&route.node, &route.next_hop) {
            remove_from_index(&mut self.by_next_hop, hop, id);
        }
    }
}

impl FromIterator<Route> for RouteTable {
    fn from_iter<I: IntoIterator<Item = Route>>(routes: I) -> RouteTable {
        let mut table = RouteTable::default();
        routes.into_iter().for_each(|route| table.insert(route));
        table
    }
}

/// Removes an ID from an index, and its entry if that is empty: otherwise the index would grow with every Node over the years.
fn remove_from_index<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<String>>, key: &K, id: &str) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
