//! EC2 instances and Fargate Pods as machines of Nodes.
//!
//! ```text
//!  find ──► IDs, names, Fargate addresses: one call for many ──┬─► zone IDs and topology, which are kept
//!  list ──► a page of instances ──► describe ──────────────────┘      └─► addresses, labels ──► results
//! ```
//!
//! DescribeInstances alone decides whether an instance exists and runs. If only its zone or topology cannot be read, the description
//! fails, with [`Error::with_known_state`].

mod addresses;
mod fargate;
mod id;
mod lookup;
mod topology;
mod zones;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{
    Absence, Error, ErrorKind, Identity, InstanceCapabilities, InstancePage, Instances, KnownState, PageToken, Result,
};
use bowline_core::{Instance, InstanceRef, InstanceState, Opaque, ProviderId};

use crate::Aws;
use crate::api::ec2::{self, AvailabilityZone, NetworkInterface};
use id::INSTANCE;
pub(crate) use id::{instance_id, is_fargate, owns, provider_id};
use lookup::{BATCH, TERMINATED, filters_of};
pub(crate) use lookup::{Found, Machine, is_about_ids, split_named};
use topology::{Labels, Topology};
use zones::Zones;

const FIND: &str = "find instances";

/// State in which an instance counts as stopped.
const STOPPED: &str = "stopped";

/// Label with the ID of the zone.
const ZONE_ID: &str = "topology.k8s.aws/zone-id";

/// Zones and topology, which do not change.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) zones: Zones,
    topology: Topology,
}

/// Returns what AWS supports.
pub(crate) fn capabilities() -> InstanceCapabilities {
    InstanceCapabilities {
        batch_lookup: BATCH,
        list_page: Some(ec2::PAGE),
        // Instances without the tag of the cluster are found by ID, and neither listed nor found by name.
        absence: Absence::ProofForNames,
        max_parallel: 4,
        lookup_by_name: true,
        unique_ids: true,
        shutdown_state: true,
        zones: true,
        additional_labels: true,
        ..InstanceCapabilities::default()
    }
}

#[async_trait]
impl Instances for Aws {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        self.describe(&[], refs).await
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let cluster = &self.identity()?.cluster;
        let page = self.ec2.instances_page(&filters_of(cluster), page.map(|token| token.0.clone())).await?;
        let listed: Vec<_> = page.items.into_iter().filter(|one| cluster.is_tagged(&one.tags)).collect();
        let instances = listed.iter().map(summary).collect();
        let brief = listed.into_iter().map(|one| (one.instance_id.clone(), Opaque::new(one))).collect();
        Ok(InstancePage { instances, next: page.next.map(PageToken), brief, ..InstancePage::default() })
    }

    async fn describe(&self, brief: &[Opaque], refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let listed: Vec<Option<&ec2::Instance>> = brief.iter().map(Opaque::get).collect();
        let identities: Vec<_> = refs.iter().map(|asked| self.identify(asked)).collect();
        let found = self.look_up(identities.iter().flatten().cloned().collect()).await;
        let machines = found.values().flatten().flatten();
        let places = self.read_places(&listed.iter().copied().flatten().collect::<Vec<_>>(), machines).await;
        let answer = |(identity, asked): (Result<Identity>, &InstanceRef)| match found.get(&identity?) {
            None => Ok(InstanceState::NotMine),
            Some(Ok(None)) => Ok(InstanceState::Gone),
            Some(Ok(Some(Machine::Instance(one)))) => self.state(one, &places),
            Some(Ok(Some(Machine::Fargate(pod)))) => self.fargate_state(pod, asked, &places),
            Some(Err(error)) => Err(error.clone()),
        };
        let listed = listed.into_iter().map(|one| self.state(one.ok_or_else(not_listed)?, &places));
        listed.chain(identities.into_iter().zip(refs).map(answer)).collect()
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        identify(asked, &self.identity()?.region)
    }
}

/// Returns the identity of a machine in this region.
fn identify(asked: &InstanceRef, region: &str) -> Result<Identity> {
    let node = asked.node.as_str();
    let Some(id) = &asked.provider_id else {
        let instance = node.split('.').next().filter(|first| first.starts_with(INSTANCE));
        return Ok(instance.map_or_else(|| Identity::Name(node.to_owned()), |id| Identity::Id(id.to_owned())));
    };
    // upstream: an instance of another region does not exist, so that its Node is deleted.
    let parsed = id::parse(id).map_err(|why| id::invalid(node, why))?.filter(|parsed| parsed.may_be_in(region));
    Ok(parsed.map_or(Identity::NotMine, |parsed| Identity::Id(parsed.machine)))
}

/// Zone IDs and topology of machines, or the errors that prevented reading them.
struct PlacesOf {
    zones: Result<BTreeMap<String, AvailabilityZone>>,
    topology: HashMap<String, Result<Labels>>,
}

impl Aws {
    /// Reads what DescribeInstances does not return.
    async fn read_places<'a>(
        &self,
        listed: &[&'a ec2::Instance],
        found: impl Iterator<Item = &'a Machine>,
    ) -> PlacesOf {
        let (mut instances, mut zones, mut seen) = (Vec::new(), HashSet::new(), HashSet::new());
        let found = found.map(|machine| match machine {
            Machine::Instance(one) => (one.placement.availability_zone.as_str(), Some(&**one)),
            Machine::Fargate(pod) => (pod.availability_zone.as_str(), None),
        });
        let listed = listed.iter().map(|one| (one.placement.availability_zone.as_str(), Some(*one)));
        for (zone, instance) in listed.chain(found) {
            zones.insert(zone);
            // A machine may be requested by ID and by name.
            instances.extend(instance.filter(|one| seen.insert(one.instance_id.as_str())));
        }
        let zones = self.places.zones.read(&self.ec2, zones);
        let topology = self.places.topology.read(&self.ec2, &instances, self.config.topology_types.as_ref());
        let (zones, topology) = futures::join!(zones, topology);
        PlacesOf { zones, topology }
    }

    /// Returns the state of an instance. It is returned even if its description fails.
    fn state(&self, one: &ec2::Instance, places: &PlacesOf) -> Result<InstanceState> {
        let described = self.instance(one, places).map(Arc::new);
        match one.instance_state.name.as_str() {
            TERMINATED => Ok(InstanceState::Gone),
            STOPPED => {
                described.map(InstanceState::Stopped).map_err(|error| error.with_known_state(KnownState::Stopped))
            }
            _ => described.map(InstanceState::Running).map_err(|error| error.with_known_state(KnownState::Running)),
        }
    }

    fn instance(&self, one: &ec2::Instance, places: &PlacesOf) -> Result<Instance> {
        let id = &one.instance_id;
        let zone = &one.placement.availability_zone;
        let invalid = |why| {
            let operation = format!("failed to get node addresses for instance {id}");
            Error::new(ErrorKind::Unexpected, operation, why)
        };
        let topology = places.topology.get(id).cloned().unwrap_or_else(|| Ok(Labels::new()))?;
        Ok(Instance {
            id: id.clone(),
            name: one.private_dns_name.clone(),
            provider_id: Some(provider_id(zone, id)),
            instance_type: one.instance_type.clone(),
            zone: zone.clone(),
            region: self.identity()?.region.clone(),
            addresses: addresses::of_instance(one, &self.config.node_ip_families).map_err(invalid)?,
            labels: topology.into_iter().chain(zone_label(places, zone)?).collect(),
            ..Instance::default()
        })
    }

    /// Returns the state of a Fargate Node, which is never stopped.
    // upstream: a Fargate Node that exists gets the taint of a stopped one while it is not ready.
    fn fargate_state(&self, pod: &NetworkInterface, asked: &InstanceRef, places: &PlacesOf) -> Result<InstanceState> {
        let described = self.fargate_instance(pod, asked, places).map(Arc::new);
        described.map(InstanceState::Running).map_err(|error| error.with_known_state(KnownState::Running))
    }

    fn fargate_instance(&self, pod: &NetworkInterface, asked: &InstanceRef, places: &PlacesOf) -> Result<Instance> {
        let Identity::Id(id) = self.identify(asked)? else { return Err(not_listed()) };
        let zone = &pod.availability_zone;
        Ok(Instance {
            id,
            name: pod.private_dns_name.clone(),
            provider_id: asked.provider_id.clone(),
            zone: zone.clone(),
            region: self.identity()?.region.clone(),
            addresses: addresses::of_fargate(pod, &self.config.node_ip_families),
            labels: zone_label(places, zone)?.into_iter().collect(),
            ..Instance::default()
        })
    }
}

fn zone_label(places: &PlacesOf, zone: &str) -> Result<Option<(String, String)>> {
    Ok(zones::id_of(&places.zones, zone)?.map(|id| (ZONE_ID.to_owned(), id)))
}

/// Returns ID, name and state of an instance on a page.
fn summary(one: &ec2::Instance) -> InstanceState {
    let provider_id: Option<ProviderId> = Some(provider_id(&one.placement.availability_zone, &one.instance_id));
    let name = one.private_dns_name.clone();
    let instance = Arc::new(Instance { id: one.instance_id.clone(), name, provider_id, ..Instance::default() });
    match one.instance_state.name.as_str() {
        STOPPED => InstanceState::Stopped(instance),
        _ => InstanceState::Running(instance),
    }
}

fn not_listed() -> Error {
    Error::new(ErrorKind::Unexpected, FIND, "the machine is not from a listing of this provider")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(node: &str, id: &str) -> Result<Identity> {
        let asked = InstanceRef { node: node.into(), provider_id: ProviderId::new(id), system_uuid: None };
        identify(&asked, "us-east-1")
    }

    #[test]
    fn a_provider_id_takes_precedence_over_the_name() {
        let (id, name) = (|id: &str| Identity::Id(id.to_owned()), |name: &str| Identity::Name(name.to_owned()));
        for (node, provider_id, expected) in [
            ("ip-10-0-0-4.ec2.internal", "", name("ip-10-0-0-4.ec2.internal")),
            ("i-0abc", "", id("i-0abc")),
            ("i-0abc.eu-west-1.compute.internal", "", id("i-0abc")),
            ("i-0abc.example.org", "aws:///us-east-1a/i-1", id("i-1")),
            ("fargate-ip-10-0-0-1", "", name("fargate-ip-10-0-0-1")),
            ("n", "aws:///us-east-1a/fargate-10.0.0.1", id("fargate-10.0.0.1")),
            ("n", "i-1", id("i-1")),
            ("n", "aws:///us-east-1-bos-1a/i-1", id("i-1")),
            ("n", "aws:///us-west-2a/i-1", Identity::NotMine),
            ("n", "eks-hybrid:///us-east-1/c/n", Identity::NotMine),
            ("n", "gce://p/z/i-1", Identity::NotMine),
        ] {
            assert_eq!(identity(node, provider_id).unwrap(), expected, "{node} {provider_id}");
        }
        let error = identity("n", "aws:///us-east-1a/vol-1").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        let expected = "failed to map provider ID to AWS instance ID for node n: \
                        Invalid format for AWS instance (aws:///us-east-1a/vol-1)";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_page_shows_which_instances_are_stopped() {
        for (state, stopped) in [("running", false), ("stopping", false), ("shutting-down", false), (STOPPED, true)] {
            let mut one = ec2::Instance { instance_id: "i-1".to_owned(), ..ec2::Instance::default() };
            one.instance_state.name = state.to_owned();
            one.placement.availability_zone = "us-east-1a".to_owned();
            let seen = summary(&one);
            assert_eq!(matches!(seen, InstanceState::Stopped(_)), stopped, "{state}");
            let id = seen.instance().and_then(|one| one.provider_id.clone()).map(|id| id.to_string());
            assert_eq!(id.as_deref(), Some("aws:///us-east-1a/i-1"));
        }
    }
}
