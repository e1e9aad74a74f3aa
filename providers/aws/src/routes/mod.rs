//! Routes of one VPC route table, from pod CIDRs to instances.
//!
//! ```text
//!  list:   table ──► instances of its routes ──► routes, without those whose instance does not exist
//!  create: table, instances ──► source/destination checks off ──► blackhole of the CIDR deleted ──► route created
//!  delete: table ──► route deleted, if it is still the listed one
//! ```
//!
//! A batch reads table and instances once. Each write is a call of its own, and concerns one route only, so writes need no lock.
//!
//! Routes have no marks: all routes of the table are listed; those with a CIDR of the cluster are ours. The check of an instance
//! drops packets of Pods, so it is disabled before the route exists.

mod table;

use std::collections::{BTreeMap, HashSet};

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, Result, Retry, RouteCapabilities, Routes};
use bowline_core::{ClusterName, InstanceRef, IpFamily, Route, RouteSpec, canonical_cidr};
use futures::stream::{self, StreamExt as _};
use ipnet::IpNet;

use crate::Aws;
use crate::api::Filter;
use crate::api::ec2::Instance;
use crate::cluster_tags::LEGACY_TAG;
use crate::instances::{Found, Machine, is_fargate, provider_id};
use table::{Entry, Existing, Table};

const CREATE: &str = "create route";

/// Maximum number of routes in a batch, which shares one read of the table and of the instances.
const BATCH: usize = 50;

/// Maximum number of concurrent writes of a batch.
const PARALLEL: usize = 4;

/// Returns what AWS supports. The limit of a table, 50 routes by default, is a quota that the API does not show.
pub(crate) fn route_capabilities() -> RouteCapabilities {
    let ip_families = vec![IpFamily::IPv4];
    RouteCapabilities {
        ip_families,
        max_routes: None,
        max_parallel: 2,
        batch: BATCH,
        marks_cluster_uid: false,
        knows_machines: true,
    }
}

/// A desired route whose instance exists.
struct Wanted {
    destination: IpNet,
    instance: Box<Instance>,
    existing: Existing,
}

#[async_trait]
impl Routes for Aws {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        let table = self.route_table(cluster).await?;
        let existing = self.describe_existing(&table.instances()).await?;
        let listed = |entry: &Entry| match existing.get(&entry.instance) {
            _ if entry.is_blackhole => Some(entry.to_route(None)),
            Some(instance) => Some(entry.to_route(Some(id_of(instance)))),
            // upstream: one such route fails the whole list. EC2 soon turns it into a blackhole.
            None => None,
        };
        Ok(table.listed().filter_map(listed).collect())
    }

    async fn create(&self, cluster: &ClusterName, specs: &[RouteSpec]) -> Vec<Result<Route>> {
        let targets: Vec<_> = specs.iter().map(|spec| self.target(spec)).collect();
        let identities = targets.iter().flatten().cloned().collect::<HashSet<_>>();
        let table = match self.route_table(cluster).await {
            Ok(table) => table,
            Err(error) => return specs.iter().map(|_| Err(error.clone().not_executed())).collect(),
        };
        let found = self.look_up(identities).await;
        let wanted = |(spec, target): (&RouteSpec, Result<Identity>)| wanted(spec, &target?, &found, &table);
        let wanted: Vec<_> = specs.iter().zip(targets).map(wanted).collect();
        let checks = self.disable_checks(&wanted).await;
        let create = |(spec, wanted): (&RouteSpec, Result<Wanted>)| {
            let (node, checks, table) = (spec.node.clone(), &checks, &table);
            async move {
                let created = async { self.create_one(cluster, table, &wanted?, checks).await }.await;
                created.map_err(|error| error.context("node", node.as_str()))
            }
        };
        let writes: Vec<_> = specs.iter().zip(wanted).map(create).collect();
        stream::iter(writes).buffered(PARALLEL).collect().await
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        let table = match self.route_table(cluster).await {
            Ok(table) => table,
            Err(error) => return routes.iter().map(|_| Err(error.clone().not_executed())).collect(),
        };
        let delete = |route: &Route| {
            let entry = table.to_delete(route).cloned();
            let table = &table.id;
            async move {
                let Some(entry) = entry else { return Ok(()) };
                let failed = |error: Error| error.during(format!("error deleting AWS route ({})", entry.text));
                self.delete_at(table, &entry.text).await.map_err(failed)
            }
        };
        let writes: Vec<_> = routes.iter().map(delete).collect();
        stream::iter(writes).buffered(PARALLEL).collect().await
    }
}

impl Aws {
    /// Reads the route table: the configured one, or the one with the tag of the cluster.
    async fn route_table(&self, cluster: &ClusterName) -> Result<Table> {
        let (tags, configured) = (&self.identity()?.cluster, &self.config.route_table_id);
        let filter = match configured.is_empty() {
            true => Filter::new("tag-key", [tags.key(), LEGACY_TAG]),
            false => Filter::new("route-table-id", [configured]),
        };
        let read = self.ec2.route_tables(&[filter]).await;
        let mut found = read.map_err(|error| error.during("error listing AWS route tables"))?;
        found.retain(|table| !configured.is_empty() || tags.is_tagged(&table.tags));
        match (found.pop(), found.is_empty()) {
            (Some(table), true) => Ok(Table::new(table)),
            (None, _) => Err(no_table(format!("unable to find route table for AWS cluster: {cluster}"), tags.key())),
            (Some(_), false) => {
                let message = format!("found multiple matching AWS route tables for AWS cluster: {cluster}");
                Err(no_table(message, tags.key()))
            }
        }
    }

    /// Returns the instance that a route is to lead to.
    fn target(&self, spec: &RouteSpec) -> Result<Identity> {
        let (node, provider_id) = (spec.node.clone(), spec.provider_id.clone());
        let rejected = |kind, message: &str| Err(Error::new(kind, CREATE, message));
        match bowline_cloud::Instances::identify(self, &InstanceRef { node, provider_id, system_uuid: None })? {
            Identity::NotMine => rejected(ErrorKind::InvalidConfig, "the Node is not an instance of this region"),
            Identity::Id(id) if is_fargate(&id) => rejected(ErrorKind::Unsupported, "Fargate Nodes have no routes"),
            identity => Ok(identity),
        }
    }

    /// Disables the checks of instances that get a route. Returns the result for each of them that needed it.
    async fn disable_checks(&self, wanted: &[Result<Wanted>]) -> BTreeMap<String, Result<()>> {
        let checked = wanted.iter().flatten().filter(|one| one.needs_no_check());
        let ids: HashSet<_> = checked.map(|one| one.instance.instance_id.clone()).collect();
        let disable = |id: String| async move {
            let disabled = self.ec2.disable_source_dest_check(&id).await;
            let failed = |error: Error| error.during(format!("error configuring source-dest-check on instance {id}"));
            (id.clone(), disabled.map_err(failed))
        };
        stream::iter(ids).map(disable).buffer_unordered(PARALLEL).collect().await
    }

    async fn create_one(
        &self,
        cluster: &ClusterName,
        table: &Table,
        wanted: &Wanted,
        checks: &BTreeMap<String, Result<()>>,
    ) -> Result<Route> {
        let instance = &wanted.instance.instance_id;
        let cidr = wanted.destination.to_string();
        let route = Entry::to(wanted.destination, instance).to_route(Some(id_of(&wanted.instance)));
        checks.get(instance).cloned().unwrap_or(Ok(()))?;
        match &wanted.existing {
            Existing::Absent => {}
            Existing::Same => return Ok(route),
            Existing::Taken(other) => return Err(taken(&cidr, other)),
            Existing::Blackhole(text) => {
                let deleted = self.delete_at(&table.id, text).await;
                deleted.map_err(|error| error.during(format!("error deleting blackholed AWS route ({cidr})")))?;
            }
        }
        match self.ec2.create_route(&table.id, &cidr, instance).await {
            Ok(()) => Ok(route),
            // An earlier attempt, whose response was lost, may have created it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match self.route_table(cluster).await?.existing(wanted.destination, instance) {
                    Existing::Same => Ok(route),
                    Existing::Taken(other) => Err(taken(&cidr, &other)),
                    Existing::Absent | Existing::Blackhole(_) => Err(creating(&cidr, error)),
                }
            }
            Err(error) => Err(creating(&cidr, error)),
        }
    }

    /// Deletes the route of a destination. One that is gone is a success.
    // upstream: an error.
    async fn delete_at(&self, table: &str, destination: &str) -> Result<()> {
        match self.ec2.delete_route(table, destination).await {
            Err(error) if error.code() == Some("InvalidRoute.NotFound") => Ok(()),
            deleted => deleted,
        }
    }
}

impl Wanted {
    /// Returns whether the check of the instance has to be disabled. No call is made for a CIDR that is taken.
    // upstream: disables it each time.
    fn needs_no_check(&self) -> bool {
        match self.existing {
            Existing::Taken(_) => false,
            Existing::Same => self.instance.source_dest_check == Some(true),
            Existing::Absent | Existing::Blackhole(_) => self.instance.source_dest_check != Some(false),
        }
    }
}

fn wanted(spec: &RouteSpec, target: &Identity, found: &Found, table: &Table) -> Result<Wanted> {
    let destination = canonical_cidr(spec.destination);
    if matches!(destination, IpNet::V6(_)) {
        let message = format!("routes of the IPv6 CIDR {destination} are not supported");
        return Err(Error::new(ErrorKind::Unsupported, CREATE, message));
    }
    let missing = || Error::new(ErrorKind::NotFound, CREATE, "instance not found");
    match found.get(target) {
        Some(Ok(Some(Machine::Instance(instance)))) => {
            let existing = table.existing(destination, &instance.instance_id);
            Ok(Wanted { destination, instance: instance.clone(), existing })
        }
        Some(Err(error)) => Err(error.clone().not_executed()),
        _ => Err(missing()),
    }
}

fn id_of(instance: &Instance) -> bowline_core::ProviderId {
    provider_id(&instance.placement.availability_zone, &instance.instance_id)
}

fn creating(cidr: &str, error: Error) -> Error {
    error.during(format!("error creating AWS route ({cidr})"))
}

fn taken(cidr: &str, target: &str) -> Error {
    let message = format!("the route table has a route of this CIDR to {target}");
    Error::new(ErrorKind::AlreadyExists, format!("error creating AWS route ({cidr})"), message)
}

/// Returns the error of a cluster without a route table, or with several.
fn no_table(message: String, tag: &str) -> Error {
    let advice = format!("; set RouteTableID, or add the tag {tag} to exactly one route table");
    // No event reports that an operator fixed this: retry.
    Error::new(ErrorKind::InvalidConfig, "find route table", message + &advice).retry(Retry::Backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted_with(existing: Existing, check: Option<bool>) -> Wanted {
        let instance = Box::new(Instance { source_dest_check: check, ..Instance::default() });
        Wanted { destination: "10.1.1.0/24".parse().expect("a CIDR"), instance, existing }
    }

    #[test]
    fn the_check_is_disabled_only_if_needed() {
        let taken = || Existing::Taken("i-9".to_owned());
        let blackhole = || Existing::Blackhole("10.1.1.0/24".to_owned());
        for (existing, check, expected) in [
            (Existing::Absent, Some(true), true),
            (Existing::Absent, None, true),
            (Existing::Absent, Some(false), false),
            (blackhole(), Some(true), true),
            (Existing::Same, Some(true), true),
            (Existing::Same, None, false),
            (Existing::Same, Some(false), false),
            (taken(), Some(true), false),
        ] {
            assert_eq!(wanted_with(existing.clone(), check).needs_no_check(), expected, "{existing:?} {check:?}");
        }
    }
}
