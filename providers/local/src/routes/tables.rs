//! All routes of a cloud at one moment.
//!
//! A plain value, as [`Fleet`] is: every rule about ranges, IDs and limits is here, and nothing of
//! files, time, faults or packets.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bowline_core::canonical_cidr;
use ipnet::IpNet;

use super::records::{NewRoute, RouteRecord};
use crate::cloud::CloudError;
use crate::fleet::{Fleet, check_name, made_up_number};

/// What the IDs of routes start with.
const PREFIX: &str = "rt-";

/// A table for each cluster that has routes. Cloning it is cheap enough to keep an old one beside the present one: records
/// are shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteTables {
    tables: BTreeMap<String, Table>,
    /// The number of the last ID that was made up, for all tables.
    last: u64,
}

/// The routes of one cluster, found by range, by ID and by the machine that they lead to.
#[derive(Debug, Clone, Default)]
struct Table {
    routes: BTreeMap<IpNet, Arc<RouteRecord>>,
    ids: HashMap<String, IpNet>,
    machines: HashMap<String, BTreeSet<IpNet>>,
}

impl RouteTables {
    /// These; `last` is the number of the last ID that was made up.
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
        route.spec = checked(route.spec)?;
        if self.tables.values().any(|table| table.ids.contains_key(&route.id)) {
            return Err(CloudError::Invalid(format!("there are two routes {:?}", route.id)));
        }
        self.check_free(cluster, &route.spec)?;
        // Ours must never meet it, even if the count in the file is wrong.
        self.last = self.last.max(made_up_number(PREFIX, &route.id).unwrap_or_default());
        self.tables.entry(cluster.to_owned()).or_default().put(route);
        Ok(())
    }

    /// The number of the last ID that was made up.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// All routes with the names of their clusters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<RouteRecord>)> {
        let all = self.tables.iter();
        all.flat_map(|(cluster, table)| table.routes.values().map(move |route| (cluster.as_str(), route)))
    }

    /// The same, by the clusters' names.
    pub(crate) fn by_cluster(&self) -> BTreeMap<String, Vec<&RouteRecord>> {
        let mut tables = BTreeMap::<String, Vec<&RouteRecord>>::new();
        for (cluster, route) in self.iter() {
            tables.entry(cluster.to_owned()).or_default().push(route);
        }
        tables
    }

    /// The routes of this cluster, by range.
    pub(crate) fn of(&self, cluster: &str) -> impl Iterator<Item = &Arc<RouteRecord>> {
        self.tables.get(cluster).into_iter().flat_map(|table| table.routes.values())
    }

    /// Makes a route, for a table of at most so many.
    pub(crate) fn add(
        &mut self,
        cluster: &str,
        route: NewRoute,
        most: Option<usize>,
    ) -> Result<Arc<RouteRecord>, CloudError> {
        check_name(cluster)?;
        let spec = checked(route)?;
        self.check_free(cluster, &spec)?;
        self.check_room(cluster, most)?;
        self.last = self.last.saturating_add(1);
        let id = format!("{PREFIX}{:04}", self.last);
        let route = RouteRecord { id, spec, node: None, blackhole: false };
        Ok(self.tables.entry(cluster.to_owned()).or_default().put(route))
    }

    /// The same for a node, unless the range is led to that machine already; then it is this node's from now on.
    pub(crate) fn lead(
        &mut self,
        cluster: &str,
        route: NewRoute,
        node: &str,
        most: Option<usize>,
    ) -> Result<Arc<RouteRecord>, CloudError> {
        let route = match self.at(cluster, &route.destination) {
            Some(there) if there.leads_to(&route.machine) => there.clone(),
            _ => self.add(cluster, route, most)?,
        };
        let named = RouteRecord { node: Some(node.to_owned()), ..RouteRecord::clone(&route) };
        Ok(self.tables.entry(cluster.to_owned()).or_default().put(named))
    }

    /// Removes the route of this ID.
    pub(crate) fn remove(&mut self, cluster: &str, id: &str) -> Result<(), CloudError> {
        let missing = || CloudError::NoSuchRoute(id.to_owned());
        let table = self.tables.get_mut(cluster).ok_or_else(missing)?;
        let destination = table.ids.get(id).copied().ok_or_else(missing)?;
        table.take(&destination);
        if table.routes.is_empty() {
            self.tables.remove(cluster);
        }
        Ok(())
    }

    /// A machine is gone: what led to it leads nowhere now, also if another one gets its ID.
    pub(crate) fn lose(&mut self, machine: &str) {
        for table in self.tables.values_mut() {
            for destination in table.machines.get(machine).cloned().unwrap_or_default() {
                let Some(route) = table.routes.get(&destination) else { continue };
                let lost = RouteRecord { blackhole: true, ..RouteRecord::clone(route) };
                table.put(lost);
            }
        }
    }

    fn at(&self, cluster: &str, destination: &IpNet) -> Option<&Arc<RouteRecord>> {
        self.tables.get(cluster)?.routes.get(&canonical_cidr(*destination))
    }

    fn check_free(&self, cluster: &str, route: &NewRoute) -> Result<(), CloudError> {
        match self.at(cluster, &route.destination) {
            Some(there) => Err(CloudError::DestinationTaken(there.clone())),
            None => Ok(()),
        }
    }

    fn check_room(&self, cluster: &str, most: Option<usize>) -> Result<(), CloudError> {
        let there = self.tables.get(cluster).map_or(0, |table| table.routes.len());
        match most.filter(|most| there >= *most) {
            Some(most) => Err(CloudError::Exhausted(format!(
                "the route table of the cluster {cluster:?} has {there} routes, and at most {most} are allowed"
            ))),
            None => Ok(()),
        }
    }
}

impl Table {
    fn put(&mut self, route: RouteRecord) -> Arc<RouteRecord> {
        let destination = route.spec.destination;
        self.take(&destination);
        self.ids.insert(route.id.clone(), destination);
        // A blackhole is found no more by the machine that it led to.
        if !route.blackhole {
            self.machines.entry(route.spec.machine.clone()).or_default().insert(destination);
        }
        let route = Arc::new(route);
        self.routes.insert(destination, route.clone());
        route
    }

    fn take(&mut self, destination: &IpNet) {
        let Some(old) = self.routes.remove(destination) else { return };
        self.ids.remove(&old.id);
        let Some(ranges) = self.machines.get_mut(&old.spec.machine) else { return };
        ranges.remove(destination);
        if ranges.is_empty() {
            self.machines.remove(&old.spec.machine);
        }
    }
}

/// The same with its range written in the one way: however it is written, it is the same range.
fn checked(route: NewRoute) -> Result<NewRoute, CloudError> {
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

    /// The routes of a table, as text.
    fn told(tables: &RouteTables, cluster: &str) -> Vec<String> {
        let one = |route: &Arc<RouteRecord>| {
            let nowhere = if route.blackhole { " nowhere" } else { "" };
            format!("{} {} {}{nowhere}", route.id, route.spec.destination, route.spec.machine)
        };
        tables.of(cluster).map(one).collect()
    }

    #[test]
    fn a_table_has_a_range_once_however_it_is_written() {
        let mut tables = RouteTables::default();
        tables.add("a", route("10.1.2.3/16", "i-1"), None).unwrap();
        for written in ["10.1.0.0/16", "10.1.255.255/16", "::ffff:10.1.0.0/112"] {
            let taken = tables.add("a", route(written, "i-2"), None);
            assert!(matches!(taken, Err(CloudError::DestinationTaken(there)) if there.id == "rt-0001"), "{written}");
        }
        // Another length is another range, and another cluster has a table of its own.
        tables.add("a", route("10.1.0.0/24", "i-2"), None).unwrap();
        tables.add("b", route("10.1.0.0/16", "i-2"), None).unwrap();
        assert_eq!(told(&tables, "a"), ["rt-0001 10.1.0.0/16 i-1", "rt-0002 10.1.0.0/24 i-2"]);
        assert_eq!(told(&tables, "b"), ["rt-0003 10.1.0.0/16 i-2"]);
    }

    #[test]
    fn ids_are_never_given_twice() {
        let mut tables = RouteTables::default();
        for _ in 0..3 {
            let id = tables.add("a", route("10.1.0.0/16", "i-1"), None).unwrap().id.clone();
            tables.remove("a", &id).unwrap();
            assert_eq!(tables.remove("a", &id), Err(CloudError::NoSuchRoute(id)));
        }
        assert_eq!(tables.add("a", route("10.1.0.0/16", "i-1"), None).unwrap().id, "rt-0004");
    }

    #[test]
    fn what_is_led_there_already_is_not_led_there_again() {
        let mut tables = RouteTables::default();
        let made = tables.lead("a", route("fd00:1::/64", "i-1"), "n", Some(1)).unwrap();
        assert_eq!(tables.lead("a", route("fd00:1::7/64", "i-1"), "n", Some(1)), Ok(made));
        let other = tables.lead("a", route("fd00:1::/64", "i-2"), "n", None);
        assert!(matches!(other, Err(CloudError::DestinationTaken(_))), "{other:?}");
        assert!(matches!(tables.lead("a", route("fd00:2::/64", "i-1"), "n", Some(1)), Err(CloudError::Exhausted(_))));
        assert_eq!(tables.lead("b", route("fd00:2::/64", "i-1"), "n", Some(1)).unwrap().id, "rt-0002");
    }

    #[test]
    fn routes_of_a_lost_machine_lead_nowhere_even_if_another_gets_its_id() {
        let mut tables = RouteTables::default();
        for (range, machine) in [("10.1.0.0/24", "i-1"), ("10.2.0.0/24", "i-2"), ("fd00:1::/64", "i-1")] {
            tables.add("a", route(range, machine), None).unwrap();
        }
        tables.lose("i-1");
        let wanted = ["rt-0001 10.1.0.0/24 i-1 nowhere", "rt-0002 10.2.0.0/24 i-2", "rt-0003 fd00:1::/64 i-1 nowhere"];
        assert_eq!(told(&tables, "a"), wanted);
        let again = tables.lead("a", route("10.1.0.0/24", "i-1"), "n", None);
        assert!(matches!(again, Err(CloudError::DestinationTaken(_))), "{again:?}");
        tables.remove("a", "rt-0001").unwrap();
        assert_eq!(tables.lead("a", route("10.1.0.0/24", "i-1"), "n", None).unwrap().id, "rt-0004");
    }

    /// What a table is without any index: ranges, machines, and whether the machine is gone.
    type Model = BTreeMap<(String, IpNet), (String, bool)>;

    fn modelled(tables: &RouteTables) -> Model {
        let one = |(cluster, route): (&str, &Arc<RouteRecord>)| {
            ((cluster.to_owned(), route.spec.destination), (route.spec.machine.clone(), route.blackhole))
        };
        tables.iter().map(one).collect()
    }

    #[test]
    fn whatever_happens_a_table_is_what_it_is_without_its_indexes() {
        let (mut tables, mut model, mut chance) = (RouteTables::default(), Model::new(), fastrand::Rng::with_seed(5));
        let mut ids = BTreeSet::new();
        for step in 0..20_000 {
            let cluster = ["a", "b"][chance.usize(..2)];
            let (range, machine) = (format!("10.0.{}.0/24", chance.u8(..6)), format!("i-{}", chance.u8(..3)));
            let key = (cluster.to_owned(), range.parse().unwrap());
            match chance.u8(..5) {
                0 => {
                    tables.lose(&machine);
                    model.values_mut().filter(|(holder, _)| *holder == machine).for_each(|(_, gone)| *gone = true);
                }
                1 | 2 => {
                    let there = tables.of(cluster).find(|route| route.spec.destination == key.1).cloned();
                    let removed = there.map(|route| tables.remove(cluster, &route.id));
                    assert_eq!(removed, model.remove(&key).map(|_| Ok(())), "{step}");
                }
                _ => {
                    let led = tables.lead(cluster, route(&range, &machine), "n", None);
                    let wanted = model.entry(key).or_insert_with(|| (machine.clone(), false));
                    assert_eq!(led.is_ok(), *wanted == (machine, false), "{step}: {led:?} {wanted:?}");
                    ids.extend(led.map(|route| route.id.clone()));
                }
            }
            assert_eq!(modelled(&tables), model, "{step}");
        }
        assert_eq!(ids.len() as u64, tables.last());
    }
}
