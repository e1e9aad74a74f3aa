//! Virtual machines as machines of Nodes.
//!
//! ```text
//!  find ──► machines seen before: read by reference ─────────────────────────────────┐
//!      └──► others: search index (few) or listing (many), in all vCenters at once ───┴─► Machine ──► addresses, zone, type
//! ```
//!
//! A machine is gone only if every vCenter answered, every configured datacenter was listed, and no machine was unreadable. A machine
//! whose VMware Tools report no address yet exists; only its description fails.

mod addresses;
mod find;
mod hits;
mod instance_type;
mod known;
mod listings;
mod metadata;
mod search_index;
mod uuid;
mod wanted;

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Identity, InstanceCapabilities, Instances, Result, Retry};
use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};

use crate::vcenter::{Machine, Power};
use crate::zones::Placement;
use crate::{NAME, Vsphere};
pub(crate) use find::{Found, time_limit};
pub(crate) use known::KnownMachines;
use uuid::MachineUuid;
use wanted::Wanted;

const FIND: &str = "find instances";

/// Maximum number of machines in one lookup. One lookup reads a listing at most once, so it should have all Nodes of a cluster.
const BATCH: usize = 10_000;

/// Returns what vSphere supports.
pub(crate) fn capabilities(zones: bool, labels: bool) -> InstanceCapabilities {
    InstanceCapabilities {
        batch_lookup: BATCH,
        max_parallel: 4,
        lookup_by_name: true,
        unique_ids: true,
        shutdown_state: true,
        zones,
        additional_labels: labels,
        ..InstanceCapabilities::default()
    }
}

#[async_trait]
impl Instances for Vsphere {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let mut wanted = Vec::with_capacity(refs.len());
        let mut results: Vec<Option<Result<InstanceState>>> = Vec::with_capacity(refs.len());
        for machine in refs {
            let outcome = Wanted::of(machine);
            results.push(match outcome {
                Ok(Some(one)) => {
                    wanted.push((results.len(), one));
                    None
                }
                Ok(None) => Some(Ok(InstanceState::NotMine)),
                Err(error) => Some(Err(error)),
            });
        }
        let (positions, wanted): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
        let found = if wanted.is_empty() { Vec::new() } else { self.search(&wanted).await };
        let described = self.describe_all(&wanted, found).await;
        for (position, state) in positions.into_iter().zip(described) {
            if let Some(result) = results.get_mut(position) {
                *result = Some(state);
            }
        }
        let lost = || Err(Error::new(ErrorKind::Unexpected, FIND, "the lookup has no result"));
        results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
    }

    fn identify(&self, machine: &InstanceRef) -> Result<Identity> {
        let Some(id) = &machine.provider_id else { return Ok(Identity::Name(machine.node.as_str().to_owned())) };
        Ok(match own_id(id) {
            Some(id) => Identity::Id(parse_id(id)?.key().to_owned()),
            None => Identity::NotMine,
        })
    }
}

/// Returns the part of a provider ID that should be a UUID; `None` for the ID of another provider.
// upstream: the prefix may be missing.
pub(crate) fn own_id(id: &ProviderId) -> Option<&str> {
    match id.prefix() {
        Some(NAME) => id.rest(),
        Some(_) => None,
        None => Some(id.as_str()).filter(|id| MachineUuid::parse(id).is_some()),
    }
}

fn parse_id(id: &str) -> Result<MachineUuid> {
    let invalid = || {
        let message = match id.trim() {
            "" => format!("nodeID is empty: the provider ID has no UUID after {NAME}://"),
            _ => format!("the provider ID has no valid UUID after {NAME}://: {id:?}"),
        };
        Error::new(ErrorKind::InvalidConfig, FIND, message)
    };
    MachineUuid::parse(id).ok_or_else(invalid)
}

impl Vsphere {
    /// Returns the states of machines, with zones that are read for all of them at once.
    async fn describe_all(&self, wanted: &[Wanted], found: Vec<Result<Option<Found>>>) -> Vec<Result<InstanceState>> {
        let machines: Vec<_> = found.iter().flatten().flatten().collect();
        let mut zones = self.zones_of(&machines).await.into_iter();
        let states = wanted.iter().zip(found).map(|(wanted, found)| match found? {
            None => self.gone(wanted),
            Some(found) => self.state(wanted, &found, zones.next()),
        });
        states.collect()
    }

    fn gone(&self, wanted: &Wanted) -> Result<InstanceState> {
        if !self.config.skip_node_deletion {
            return Ok(InstanceState::Gone);
        }
        let message = format!(
            "No VM found for {wanted}; the Node is kept, because SKIP_NODE_DELETION is set; fix: delete the Node yourself, or unset \
             SKIP_NODE_DELETION"
        );
        Err(Error::new(ErrorKind::NotFound, FIND, message).retry(Retry::Backoff))
    }

    /// Returns the state of a machine. If only its description fails, the error says that the machine exists.
    fn state(&self, wanted: &Wanted, found: &Found, zone: Option<Result<Placement>>) -> Result<InstanceState> {
        let machine = &found.machine;
        let incomplete = |error: Error| {
            let error = error.with_known_state(machine.known_state()).context("vm", machine.name.clone());
            error.context("vcenter", self.vcenter_name(found.vcenter))
        };
        let zone = zone.unwrap_or_else(|| Ok(Placement::default())).map_err(incomplete)?;
        let addresses = match self.addresses(wanted, found) {
            Ok(addresses) => addresses,
            // A stopped machine reports nothing, which is no error: its Node keeps its addresses.
            Err(_) if machine.power != Power::On => Vec::new(),
            Err(message) => return Err(incomplete(Error::new(ErrorKind::Unavailable, FIND, message))),
        };
        let id = MachineUuid::parse(&machine.uuid).map(|uuid| uuid.key().to_owned());
        let instance = Arc::new(Instance {
            id: id.unwrap_or_else(|| machine.uuid.clone()),
            name: name_of(wanted, machine),
            provider_id: Some(ProviderId::of(NAME, &machine.uuid)),
            instance_type: instance_type::instance_type(machine),
            zone: zone.zone,
            region: zone.region,
            addresses,
            labels: self.labels.clone(),
            ..Instance::default()
        });
        Ok(match machine.power {
            Power::On => InstanceState::Running(instance),
            Power::Off | Power::Suspended => InstanceState::Stopped(instance),
        })
    }

    /// Returns the addresses, or the reason why there are none yet.
    fn addresses(&self, wanted: &Wanted, found: &Found) -> std::result::Result<Vec<bowline_core::Address>, String> {
        let machine = &found.machine;
        if machine.host_name.is_empty() {
            return Err("VM Guest hostname is empty; VMware Tools must run in the VM".to_owned());
        }
        if machine.nics.is_empty() {
            return Err("VM GuestNicInfo is empty; VMware Tools have not reported any address yet".to_owned());
        }
        let families = self.vcenters.get(found.vcenter).map_or(&[][..], |vcenter| &vcenter.config.ip_families);
        addresses::select(machine, &self.config.addresses, families, &wanted.to_string())
    }
}

/// Returns the name of the Node whose machine it is, or the host name that VMware Tools report.
fn name_of(wanted: &Wanted, machine: &Machine) -> String {
    match wanted {
        Wanted::Node { name, .. } => name.clone(),
        Wanted::Id(_) => machine.host_name.clone(),
    }
}
