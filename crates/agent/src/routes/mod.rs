//! Routes of clusters: one table per cluster, each route from a pod CIDR to a Node.
//!
//! A plain value with the rules about destinations, IDs and limits; it knows nothing of files, time or kernels. An agent does not
//! know machines: a Node is identified by its provider ID, or by its name if it has none.

pub(crate) mod host;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bowline_agent_client::{CreateRouteRequest, RouteRecord};
use bowline_core::canonical_cidr;
use ipnet::IpNet;

use crate::balancers::check_name;
use crate::error::AgentError;

/// Prefix of route IDs.
const PREFIX: &str = "rt-";

/// One table per cluster with routes. Clones share the records, so an old version is cheap to keep.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteTable {
    clusters: BTreeMap<String, Cluster>,
    /// Number of the last generated ID.
    last: u64,
}

/// Routes of one cluster, indexed by destination and ID.
#[derive(Debug, Clone, Default)]
struct Cluster {
    routes: BTreeMap<IpNet, Arc<RouteRecord>>,
    ids: HashMap<String, IpNet>,
}

impl RouteTable {
    /// Restores routes with their clusters; `last` is the number of the last generated ID.
    pub(crate) fn restore(
        routes: impl IntoIterator<Item = (String, Arc<RouteRecord>)>,
        last: u64,
    ) -> Result<RouteTable, AgentError> {
        let mut table = RouteTable { last, ..RouteTable::default() };
        for (cluster, route) in routes {
            if canonical_cidr(route.destination) != route.destination {
                return Err(AgentError::Invalid(format!("the destination {} has host bits", route.destination)));
            }
            if table.has_id(&route.id) || table.at(&cluster, &route.destination).is_some() {
                return Err(AgentError::Invalid(format!("duplicate route {:?} or {}", route.id, route.destination)));
            }
            table.put(&cluster, route);
        }
        Ok(table)
    }

    /// Number of the last generated ID.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// All routes, with their clusters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<RouteRecord>)> {
        let all = self.clusters.iter();
        all.flat_map(|(name, cluster)| cluster.routes.values().map(move |route| (name.as_str(), route)))
    }

    /// Routes of a cluster, by destination.
    pub(crate) fn of(&self, cluster: &str) -> impl Iterator<Item = &Arc<RouteRecord>> {
        self.clusters.get(cluster).into_iter().flat_map(|cluster| cluster.routes.values())
    }

    /// Creates a route. An existing route to the same Node is updated instead.
    pub(crate) fn create(&mut self, request: CreateRouteRequest) -> Result<Arc<RouteRecord>, AgentError> {
        let CreateRouteRequest { cluster, name, destination, node, provider_id, addresses, cluster_uid, limit } =
            request;
        let (cluster, destination) = (cluster.as_str(), canonical_cidr(destination));
        check_name(cluster)?;
        check_name(node.as_str())?;
        let route = RouteRecord { id: String::new(), name, destination, node, provider_id, addresses, cluster_uid };
        let id = match self.at(cluster, &destination) {
            Some(existing) if is_same_node(existing, &route) => existing.id.clone(),
            Some(existing) => return Err(AgentError::DestinationTaken(existing.clone())),
            None => {
                self.check_limit(cluster, limit)?;
                self.last = self.last.saturating_add(1);
                format!("{PREFIX}{:04}", self.last)
            }
        };
        let route = Arc::new(RouteRecord { id, ..route });
        self.put(cluster, route.clone());
        Ok(route)
    }

    /// Deletes the route with this ID.
    pub(crate) fn delete(&mut self, cluster: &str, id: &str) -> Result<(), AgentError> {
        let destination = self.clusters.get(cluster).and_then(|cluster| cluster.ids.get(id)).copied();
        let destination = destination.ok_or_else(|| AgentError::NoSuchRoute(id.to_owned()))?;
        self.remove(cluster, &destination);
        Ok(())
    }

    /// Applies the changes of another table.
    pub(crate) fn patch(&mut self, set: &[(String, Arc<RouteRecord>)], remove: &[(String, IpNet)], last: u64) {
        remove.iter().for_each(|(cluster, destination)| self.remove(cluster, destination));
        set.iter().for_each(|(cluster, route)| self.put(cluster, route.clone()));
        self.last = last;
    }

    pub(crate) fn at(&self, cluster: &str, destination: &IpNet) -> Option<&Arc<RouteRecord>> {
        self.clusters.get(cluster)?.routes.get(destination)
    }

    fn has_id(&self, id: &str) -> bool {
        self.clusters.values().any(|cluster| cluster.ids.contains_key(id))
    }

    fn check_limit(&self, cluster: &str, limit: Option<usize>) -> Result<(), AgentError> {
        let count = self.clusters.get(cluster).map_or(0, |cluster| cluster.routes.len());
        match limit.filter(|limit| count >= *limit) {
            Some(limit) => Err(AgentError::Exhausted(format!(
                "the route table of the cluster {cluster:?} has {count} routes, and at most {limit} are allowed"
            ))),
            None => Ok(()),
        }
    }

    fn put(&mut self, cluster: &str, route: Arc<RouteRecord>) {
        self.remove(cluster, &route.destination);
        let cluster = self.clusters.entry(cluster.to_owned()).or_default();
        cluster.ids.insert(route.id.clone(), route.destination);
        cluster.routes.insert(route.destination, route);
    }

    fn remove(&mut self, name: &str, destination: &IpNet) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Some(old) = cluster.routes.remove(destination) else { return };
        cluster.ids.remove(&old.id);
        if cluster.routes.is_empty() {
            self.clusters.remove(name);
        }
    }
}

/// Whether both routes lead to the same Node. A replaced Node may have the name of the old one, but not its provider ID.
fn is_same_node(one: &RouteRecord, other: &RouteRecord) -> bool {
    match (&one.provider_id, &other.provider_id) {
        (Some(one), Some(other)) => one == other,
        _ => one.node == other.node,
    }
}
