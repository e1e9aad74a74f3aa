//! Choice of the subnets of a load balancer.
//!
//! ```text
//!  annotation ──► by ID or name, in its order
//!  otherwise: subnets of this cluster, or of none ──► public ones, unless internal ──► one in each zone, preferred by tags
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::annotations::items;
use crate::Aws;
use crate::api::Filter;
use crate::api::ec2::{AvailabilityZone, RouteTable, Subnet};
use crate::cluster_tags::{ClusterTags, has_any};

/// Tags of subnets for load balancers of each scheme.
const EXTERNAL_ROLE: &str = "kubernetes.io/role/elb";
const INTERNAL_ROLE: &str = "kubernetes.io/role/internal-elb";

/// Kind of zones that have load balancers.
const ZONE: &str = "availability-zone";

const OPERATION: &str = "find subnets";

/// Time for which the network is reused, so that Services that are synced together read it once.
const VALID: Duration = Duration::from_secs(10);

/// The network that was read last, and when. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct NetworkCache(Arc<Mutex<Option<LastRead>>>);

type LastRead = (Arc<Network>, Instant);

/// Network of the cluster: its VPC, and the zones of the region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) subnets: Vec<Subnet>,
    pub(super) route_tables: Vec<RouteTable>,
    pub(super) zones: Vec<AvailabilityZone>,
}

/// Identifiers in the annotation, by ID or by the tag `Name`, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requested(Vec<String>);

impl Requested {
    pub(super) fn parse(text: &str) -> Requested {
        Requested(items(text))
    }

    /// Returns the IDs.
    pub(super) fn ids(&self) -> Vec<String> {
        self.0.iter().filter(|item| is_id(item)).cloned().collect()
    }

    /// Selects the requested subnets among those that were found, in the order of the annotation, because addresses are assigned to
    /// subnets by their place.
    // upstream: first all IDs, then all names, each in the order of the response.
    pub(super) fn select(&self, found: &[Subnet]) -> Result<Vec<Subnet>> {
        if self.0.is_empty() {
            return Err(invalid("unable to resolve empty subnet slice"));
        }
        let is_named = |subnet: &Subnet, name: &str| subnet.tags.get("Name").is_some_and(|it| it == name);
        let matches =
            |subnet: &Subnet, item: &str| if is_id(item) { subnet.id == item } else { is_named(subnet, item) };
        let selected: Vec<Subnet> =
            self.0.iter().flat_map(|item| found.iter().filter(move |subnet| matches(subnet, item)).cloned()).collect();
        match selected.len() == self.0.len() {
            true => Ok(selected),
            false => {
                let message = format!(
                    "expected to find {}, but found {} subnets for {}",
                    self.0.len(),
                    selected.len(),
                    self.0.join(", ")
                );
                Err(invalid(&message))
            }
        }
    }
}

impl Aws {
    /// Reads the network, unless it was read a moment ago. Concurrent callers share one read.
    pub(super) async fn network(&self) -> Result<Arc<Network>> {
        let mut cached = self.network_cache.0.lock().await;
        if let Some((network, _)) = cached.as_ref().filter(|(_, at)| at.elapsed() < VALID) {
            return Ok(network.clone());
        }
        let in_vpc = [Filter::new("vpc-id", [&self.identity()?.vpc_id])];
        let (subnets, route_tables, zones) = futures::try_join!(
            self.ec2.subnets(&in_vpc),
            self.ec2.route_tables(&in_vpc),
            self.ec2.availability_zones()
        )?;
        let network = Arc::new(Network { subnets, route_tables, zones });
        *cached = Some((network.clone(), Instant::now()));
        Ok(network)
    }
}

fn is_id(item: &str) -> bool {
    item.starts_with("subnet-")
}

impl Network {
    /// Selects one subnet in each zone, sorted by zone. `own` is the subnet of this instance, the last resort.
    pub(super) fn select(&self, cluster: &ClusterTags, own: &str, internal: bool) -> Result<Vec<Subnet>> {
        let mut chosen: BTreeMap<&str, &Subnet> = BTreeMap::new();
        for subnet in self.of_cluster(cluster, own) {
            if !self.is_public(subnet)? && !internal {
                continue;
            }
            let zone = subnet.availability_zone.as_str();
            let is_better = |old: &&Subnet| rank(subnet, cluster, internal) < rank(old, cluster, internal);
            if self.has_load_balancers(zone) && chosen.get(zone).is_none_or(is_better) {
                chosen.insert(zone, subnet);
            }
        }
        Ok(chosen.into_values().cloned().collect())
    }

    fn of_cluster(&self, cluster: &ClusterTags, own: &str) -> Vec<&Subnet> {
        let is_usable = |subnet: &&Subnet| cluster.is_tagged(&subnet.tags) || !has_any(&subnet.tags);
        let usable: Vec<_> = self.subnets.iter().filter(is_usable).collect();
        match usable.is_empty() {
            true => self.subnets.iter().filter(|subnet| subnet.id == own).collect(),
            false => usable,
        }
    }

    /// Whether packets from the subnet reach the internet through an internet gateway.
    fn is_public(&self, subnet: &Subnet) -> Result<bool> {
        let explicit =
            self.route_tables.iter().find(|table| table.associations.iter().any(|it| it.subnet_id == subnet.id));
        let main = || self.route_tables.iter().find(|table| table.associations.iter().any(|it| it.main));
        let Some(table) = explicit.or_else(main) else {
            return Err(invalid(&format!("could not locate routing table for subnet {}", subnet.id)));
        };
        Ok(table.routes.iter().any(|route| route.gateway_id.starts_with("igw")))
    }

    /// Whether the zone is no local or wavelength zone. One that AWS does not list counts as a zone.
    fn has_load_balancers(&self, zone: &str) -> bool {
        self.zones.iter().find(|known| known.name == zone).is_none_or(|known| known.kind == ZONE)
    }
}

/// Returns the key by which subnets of one zone are sorted, the best first.
fn rank<'a>(subnet: &'a Subnet, cluster: &ClusterTags, internal: bool) -> (bool, bool, &'a str) {
    let role = if internal { INTERNAL_ROLE } else { EXTERNAL_ROLE };
    (!subnet.tags.contains_key(role), !cluster.is_tagged(&subnet.tags), &subnet.id)
}

/// Error for a network that lacks something. It may change at any time, so the sync is retried.
fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, OPERATION, message).retry(Retry::Backoff)
}

/// Returns the error for a load balancer without any subnet.
pub(super) fn none_found(internal: bool) -> Error {
    let (role, kind) = if internal { (INTERNAL_ROLE, "subnet") } else { (EXTERNAL_ROLE, "public subnet") };
    invalid(&format!(
        "could not find any suitable subnets for creating the ELB; tag a {kind} in each zone with {role}, or name subnets with {}",
        super::annotations::SUBNETS.key
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ec2::{Association, Route};

    fn subnet(id: &str, zone: &str, tags: &[&str]) -> Subnet {
        let tags = tags.iter().map(|tag| tag.split_once('=').unwrap_or((tag, "")));
        Subnet {
            id: id.to_owned(),
            vpc_id: "vpc-1".to_owned(),
            availability_zone: zone.to_owned(),
            cidr_block: String::new(),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }

    /// Subnets whose IDs begin with `pub` have a route to an internet gateway.
    fn network(subnets: Vec<Subnet>) -> Network {
        let table = |prefix: &str, gateway: &str| RouteTable {
            id: format!("rtb-{prefix}"),
            associations: subnets
                .iter()
                .filter(|subnet| subnet.id.starts_with(prefix))
                .map(|subnet| Association { main: false, subnet_id: subnet.id.clone() })
                .collect(),
            routes: vec![Route { gateway_id: gateway.to_owned(), ..Route::default() }],
            ..RouteTable::default()
        };
        let zone = |name: &str, kind: &str| AvailabilityZone {
            name: name.to_owned(),
            id: String::new(),
            kind: kind.to_owned(),
        };
        let route_tables = vec![table("pub", "igw-1"), table("priv", "local")];
        Network { subnets, route_tables, zones: vec![zone("a", ZONE), zone("lax", "local-zone")] }
    }

    fn ids(selected: &[Subnet]) -> Vec<&str> {
        selected.iter().map(|subnet| subnet.id.as_str()).collect()
    }

    #[test]
    fn one_subnet_of_each_zone_is_chosen_by_role_cluster_and_id() {
        let cluster = ClusterTags::new("demo", false);
        let own = "kubernetes.io/cluster/demo=shared";
        let network = network(vec![
            subnet("pub-4", "b", &[]),
            subnet("pub-3", "a", &[EXTERNAL_ROLE]),
            subnet("pub-2", "a", &[own]),
            subnet("pub-1", "a", &[]),
            subnet("pub-0", "a", &["kubernetes.io/cluster/other=owned", EXTERNAL_ROLE]),
            subnet("pub-5", "lax", &[]),
            subnet("priv-1", "c", &[INTERNAL_ROLE]),
            subnet("priv-0", "b", &[own]),
        ]);
        assert_eq!(ids(&network.select(&cluster, "", false).unwrap()), ["pub-3", "pub-4"]);
        assert_eq!(ids(&network.select(&cluster, "", true).unwrap()), ["pub-2", "priv-0", "priv-1"]);
    }

    #[test]
    fn without_usable_subnets_the_own_one_is_the_last_resort() {
        let cluster = ClusterTags::new("demo", false);
        let network = network(vec![subnet("pub-1", "a", &["kubernetes.io/cluster/other=owned"])]);
        assert_eq!(ids(&network.select(&cluster, "pub-1", false).unwrap()), ["pub-1"]);
        assert_eq!(ids(&network.select(&cluster, "", false).unwrap()), [""; 0]);
    }

    #[test]
    fn a_subnet_without_a_route_table_is_an_error_and_the_main_table_is_the_default() {
        let cluster = ClusterTags::new("demo", false);
        let lost = Network { subnets: vec![subnet("s-1", "a", &[])], ..Network::default() };
        let error = lost.select(&cluster, "", true).unwrap_err();
        assert!(error.message().contains("could not locate routing table for subnet s-1"), "{error}");
        let main = RouteTable {
            associations: vec![Association { main: true, subnet_id: String::new() }],
            routes: vec![Route { gateway_id: "igw-1".to_owned(), ..Route::default() }],
            ..RouteTable::default()
        };
        let network = Network { route_tables: vec![main], ..lost };
        assert_eq!(ids(&network.select(&cluster, "", false).unwrap()), ["s-1"]);
    }

    #[test]
    fn the_annotation_selects_by_id_and_name_in_its_order() {
        let found = [subnet("subnet-1", "a", &["Name=one"]), subnet("subnet-2", "b", &["Name=two"])];
        let requested = Requested::parse(" two, subnet-1 ,");
        assert_eq!(requested.ids(), ["subnet-1"]);
        assert_eq!(ids(&requested.select(&found).unwrap()), ["subnet-2", "subnet-1"]);
        let missing = Requested::parse("subnet-1,three").select(&found).unwrap_err();
        assert!(missing.message().starts_with("expected to find 2, but found 1 subnets"), "{missing}");
        let empty = Requested::parse(" ").select(&found).unwrap_err();
        assert_eq!(empty.message(), "unable to resolve empty subnet slice");
    }
}
