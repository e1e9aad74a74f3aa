//! Route tables of a cloud.
//!
//! A plain value, as [`Fleet`] is, with the rules about destinations, IDs and limits; it knows nothing of files, time, faults or
//! packets.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bowline_agent::check_name;
use bowline_core::canonical_cidr;
use ipnet::IpNet;

use super::records::{NewRoute, RouteRecord};
use crate::cloud::CloudError;
use crate::fleet::{Fleet, generated_number};

/// Prefix of route IDs.
const PREFIX: &str = "rt-";

/// One table per cluster with routes. Clones share the records, so an old version is cheap to keep.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteTables {
    tables: BTreeMap<String, Table>,
    /// Number of the last generated ID of all tables.
    last: u64,
}

/// Routes of one cluster, indexed by destination, ID and machine.
#[derive(Debug, Clone, Default)]
struct Table {
    routes: BTreeMap<IpNet, Arc<RouteRecord>>,
    ids: HashMap<String, IpNet>,
    machines: HashMap<String, BTreeSet<IpNet>>,
}

impl RouteTables {
    /// Restores tables; `last` is the number of the last generated ID.
    pub(crate) fn restore(
        tables: BTreeMap<String, Vec<RouteRecord>>,
        last: u64,
        fleet: &Fleet,
    ) -> Result<RouteTables, CloudError> {
        let mut all = RouteTables { last, ..RouteTables::default() };
        for (cluster, routes) in tables {
            check_name(&cluster)?;
            for route in routes {
                all.restore_route(&cluster, route, fleet)?;
            }
        }
        Ok(all)
    }

    fn restore_route(&mut self, cluster: &str, mut route: RouteRecord, fleet: &Fleet) -> Result<(), CloudError> {
        if !route.blackhole {
            fleet.get(&route.spec.machine)?;
        }
        route.spec = validated(route.spec)?;
        if self.tables.values().any(|table| table.ids.contains_key(&route.id)) {
            return Err(CloudError::Invalid(format!("duplicate route {:?}", route.id)));
        }
        self.check_free(cluster, &route.spec)?;
        // A generated ID must not collide, even if the number in the file is wrong.
        self.last = self.last.max(generated_number(PREFIX, &route.id).unwrap_or_default());
        self.tables.entry(cluster.to_owned()).or_default().put(route);
        Ok(())
    }

    /// Number of the last generated ID.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// All routes, with their cluster names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<RouteRecord>)> {
        let all = self.tables.iter();
        all.flat_map(|(cluster, table)| table.routes.values().map(move |route| (cluster.as_str(), route)))
    }

    /// All routes, by cluster name.
    pub(crate) fn by_cluster(&self) -> BTreeMap<String, Vec<&RouteRecord>> {
        let mut tables = BTreeMap::<String, Vec<&RouteRecord>>::new();
        for (cluster, route) in self.iter() {
            tables.entry(cluster.to_owned()).or_default().push(route);
        }
        tables
    }

    /// Routes of a cluster, by destination.
    pub(crate) fn of(&self, cluster: &str) -> impl Iterator<Item = &Arc<RouteRecord>> {
        self.tables.get(cluster).into_iter().flat_map(|table| table.routes.values())
    }

    /// Creates a route, if the table has fewer than `limit` routes.
    pub(crate) fn add(
        &mut self,
        cluster: &str,
        route: NewRoute,
        limit: Option<usize>,
    ) -> Result<Arc<RouteRecord>, CloudError> {
        check_name(cluster)?;
        let spec = validated(route)?;
        self.check_free(cluster, &spec)?;
        self.check_limit(cluster, limit)?;
        self.last = self.last.saturating_add(1);
        let id = format!("{PREFIX}{:04}", self.last);
        let route = RouteRecord { id, spec, node: None, blackhole: false };
        Ok(self.tables.entry(cluster.to_owned()).or_default().put(route))
    }

    /// Creates a route for a Node. An existing route to the same machine is assigned to the Node instead.
    pub(crate) fn create_for_node(
        &mut self,
        cluster: &str,
        route: NewRoute,
        node: &str,
        limit: Option<usize>,
    ) -> Result<Arc<RouteRecord>, CloudError> {
        let route = match self.at(cluster, &route.destination) {
            Some(existing) if existing.leads_to(&route.machine) => existing.clone(),
            _ => self.add(cluster, route, limit)?,
        };
        let named = RouteRecord { node: Some(node.to_owned()), ..RouteRecord::clone(&route) };
        Ok(self.tables.entry(cluster.to_owned()).or_default().put(named))
    }

    /// Deletes the route with this ID.
    pub(crate) fn remove(&mut self, cluster: &str, id: &str) -> Result<(), CloudError> {
        let missing = || CloudError::NoSuchRoute(id.to_owned());
        let table = self.tables.get_mut(cluster).ok_or_else(missing)?;
        let destination = table.ids.get(id).copied().ok_or_else(missing)?;
        table.remove(&destination);
        if table.routes.is_empty() {
            self.tables.remove(cluster);
        }
        Ok(())
    }

    /// Turns the routes of a deleted machine into blackholes, even if another machine gets its ID.
    pub(crate) fn mark_blackholes(&mut self, machine: &str) {
        for table in self.tables.values_mut() {
            for destination in table.machines.get(machine).cloned().unwrap_or_default() {
                let Some(route) = table.routes.get(&destination) else { continue };
                let blackhole = RouteRecord { blackhole: true, ..RouteRecord::clone(route) };
                table.put(blackhole);
            }
        }
    }

    fn at(&self, cluster: &str, destination: &IpNet) -> Option<&Arc<RouteRecord>> {
        self.tables.get(cluster)?.routes.get(&canonical_cidr(*destination))
    }

    fn check_free(&self, cluster: &str, route: &NewRoute) -> Result<(), CloudError> {
        match self.at(cluster, &route.destination) {
            Some(existing) => Err(CloudError::DestinationTaken(existing.clone())),
            None => Ok(()),
        }
    }

    fn check_limit(&self, cluster: &str, limit: Option<usize>) -> Result<(), CloudError> {
        let count = self.tables.get(cluster).map_or(0, |table| table.routes.len());
        match limit.filter(|limit| count >= *limit) {
            Some(limit) => Err(CloudError::Exhausted(format!(
                "the route table of the cluster {cluster:?} has {count} routes, and at most {limit} are allowed"
            ))),
            None => Ok(()),
        }
    }
}

impl Table {
    fn put(&mut self, route: RouteRecord) -> Arc<RouteRecord> {
        let destination = route.spec.destination;
        self.remove(&destination);
        self.ids.insert(route.id.clone(), destination);
        // A blackhole is not indexed by machine.
        if !route.blackhole {
            self.machines.entry(route.spec.machine.clone()).or_default().insert(destination);
        }
        let route = Arc::new(route);
        self.routes.insert(destination, route.clone());
        route
    }

    fn remove(&mut self, destination: &IpNet) {
        let Some(old) = self.routes.remove(destination) else { return };
        self.ids.remove(&old.id);
        let Some(destinations) = self.machines.get_mut(&old.spec.machine) else { return };
        destinations.remove(destination);
        if destinations.is_empty() {
            self.machines.remove(&old.spec.machine);
        }
    }
}

/// Validates the route, and removes the host bits of its destination.
fn validated(route: NewRoute) -> Result<NewRoute, CloudError> {
    if !route.name.is_empty() {
        check_name(&route.name)?;
    }
    Ok(NewRoute { destination: canonical_cidr(route.destination), ..route })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, machine: &str) -> NewRoute {
        let destination = destination.parse().unwrap();
        NewRoute {
            name: String::new(),
            destination,
            machine: machine.to_owned(),
            addresses: None,
            stamped: false,
            cluster_uid: None,
        }
    }

    /// Routes of a table, as text.
    fn texts(tables: &RouteTables, cluster: &str) -> Vec<String> {
        let one = |route: &Arc<RouteRecord>| {
            let blackhole = if route.blackhole { " blackhole" } else { "" };
            format!("{} {} {}{blackhole}", route.id, route.spec.destination, route.spec.machine)
        };
        tables.of(cluster).map(one).collect()
    }

    #[test]
    fn a_destination_is_unique_in_a_table_whatever_its_host_bits() {
        let mut tables = RouteTables::default();
        tables.add("a", route("10.1.2.3/16", "i-1"), None).unwrap();
        for written in ["10.1.0.0/16", "10.1.255.255/16", "::ffff:10.1.0.0/112"] {
            let taken = tables.add("a", route(written, "i-2"), None);
            assert!(
                matches!(taken, Err(CloudError::DestinationTaken(existing)) if existing.id == "rt-0001"),
                "{written}"
            );
        }
        // Another prefix length is another destination, and another cluster has its own table.
        tables.add("a", route("10.1.0.0/24", "i-2"), None).unwrap();
        tables.add("b", route("10.1.0.0/16", "i-2"), None).unwrap();
        assert_eq!(texts(&tables, "a"), ["rt-0001 10.1.0.0/16 i-1", "rt-0002 10.1.0.0/24 i-2"]);
        assert_eq!(texts(&tables, "b"), ["rt-0003 10.1.0.0/16 i-2"]);
    }

    #[test]
    fn ids_are_never_reused() {
        let mut tables = RouteTables::default();
        for _ in 0..3 {
            let id = tables.add("a", route("10.1.0.0/16", "i-1"), None).unwrap().id.clone();
            tables.remove("a", &id).unwrap();
            assert_eq!(tables.remove("a", &id), Err(CloudError::NoSuchRoute(id)));
        }
        assert_eq!(tables.add("a", route("10.1.0.0/16", "i-1"), None).unwrap().id, "rt-0004");
    }

    #[test]
    fn creating_a_route_is_idempotent() {
        let mut tables = RouteTables::default();
        let created = tables.create_for_node("a", route("fd00:1::/64", "i-1"), "n", Some(1)).unwrap();
        assert_eq!(tables.create_for_node("a", route("fd00:1::7/64", "i-1"), "n", Some(1)), Ok(created));
        let other = tables.create_for_node("a", route("fd00:1::/64", "i-2"), "n", None);
        assert!(matches!(other, Err(CloudError::DestinationTaken(_))), "{other:?}");
        assert!(matches!(
            tables.create_for_node("a", route("fd00:2::/64", "i-1"), "n", Some(1)),
            Err(CloudError::Exhausted(_))
        ));
        assert_eq!(tables.create_for_node("b", route("fd00:2::/64", "i-1"), "n", Some(1)).unwrap().id, "rt-0002");
    }

    #[test]
    fn routes_of_a_deleted_machine_are_blackholes_even_if_another_gets_its_id() {
        let mut tables = RouteTables::default();
        for (range, machine) in [("10.1.0.0/24", "i-1"), ("10.2.0.0/24", "i-2"), ("fd00:1::/64", "i-1")] {
            tables.add("a", route(range, machine), None).unwrap();
        }
        tables.mark_blackholes("i-1");
        let expected =
            ["rt-0001 10.1.0.0/24 i-1 blackhole", "rt-0002 10.2.0.0/24 i-2", "rt-0003 fd00:1::/64 i-1 blackhole"];
        assert_eq!(texts(&tables, "a"), expected);
        let again = tables.create_for_node("a", route("10.1.0.0/24", "i-1"), "n", None);
        assert!(matches!(again, Err(CloudError::DestinationTaken(_))), "{again:?}");
        tables.remove("a", "rt-0001").unwrap();
        assert_eq!(tables.create_for_node("a", route("10.1.0.0/24", "i-1"), "n", None).unwrap().id, "rt-0004");
    }

    /// Model of the tables without indexes: destination to machine and blackhole.
    type Model = BTreeMap<(String, IpNet), (String, bool)>;

    fn modelled(tables: &RouteTables) -> Model {
        let one = |(cluster, route): (&str, &Arc<RouteRecord>)| {
            ((cluster.to_owned(), route.spec.destination), (route.spec.machine.clone(), route.blackhole))
        };
        tables.iter().map(one).collect()
    }

    #[test]
    fn random_operations_match_a_model_without_indexes() {
        let (mut tables, mut model, mut rng) = (RouteTables::default(), Model::new(), fastrand::Rng::with_seed(5));
        let mut ids = BTreeSet::new();
        for step in 0..20_000 {
            let cluster = ["a", "b"][rng.usize(..2)];
            let (range, machine) = (format!("10.0.{}.0/24", rng.u8(..6)), format!("i-{}", rng.u8(..3)));
            let key = (cluster.to_owned(), range.parse().unwrap());
            match rng.u8(..5) {
                0 => {
                    tables.mark_blackholes(&machine);
                    model.values_mut().filter(|(holder, _)| *holder == machine).for_each(|(_, gone)| *gone = true);
                }
                1 | 2 => {
                    let existing = tables.of(cluster).find(|route| route.spec.destination == key.1).cloned();
                    let removed = existing.map(|route| tables.remove(cluster, &route.id));
                    assert_eq!(removed, model.remove(&key).map(|_| Ok(())), "{step}");
                }
                _ => {
                    let created = tables.create_for_node(cluster, route(&range, &machine), "n", None);
                    let expected = model.entry(key).or_insert_with(|| (machine.clone(), false));
                    assert_eq!(created.is_ok(), *expected == (machine, false), "{step}: {created:?} {expected:?}");
                    ids.extend(created.map(|route| route.id.clone()));
                }
            }
            assert_eq!(modelled(&tables), model, "{step}");
        }
        assert_eq!(ids.len() as u64, tables.last());
    }
}
