//! What is looked up: a machine by its UUID, or the machine of a Node by UUID and name.

use std::fmt;
use std::net::IpAddr;

use bowline_cloud::Result;
use bowline_core::InstanceRef;

use super::hits::Match;
use super::{MachineUuid, own_id, parse_id};
use crate::vcenter::{Criterion, Machine};

/// A machine to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The machine of this provider ID.
    Id(MachineUuid),
    /// The machine of a Node without a provider ID: the one with its system UUID, otherwise the one with its name.
    Node { name: String, uuid: Option<MachineUuid> },
}

impl Wanted {
    /// Returns what to find; `None` for a machine of another provider.
    pub(super) fn of(machine: &InstanceRef) -> Result<Option<Wanted>> {
        match &machine.provider_id {
            Some(id) => own_id(id).map(|id| parse_id(id).map(Wanted::Id)).transpose(),
            None => {
                let uuid = machine.system_uuid.as_deref().and_then(MachineUuid::of_system);
                Ok(Some(Wanted::Node { name: machine.node.as_str().to_owned(), uuid }))
            }
        }
    }

    pub(super) fn uuid(&self) -> Option<&MachineUuid> {
        match self {
            Wanted::Id(uuid) => Some(uuid),
            Wanted::Node { uuid, .. } => uuid.as_ref(),
        }
    }

    /// Returns the name to find if no machine has the UUID.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Wanted::Id(_) => None,
            Wanted::Node { name, .. } => Some(name),
        }
    }

    /// Returns the address to find: some Nodes are named after theirs.
    fn address(&self) -> Option<IpAddr> {
        self.name()?.parse().ok()
    }

    /// Returns the best match that is possible.
    pub(super) fn best_match(&self) -> Match {
        self.uuid().map_or(Match::HostName, |_| Match::Uuid)
    }

    /// Returns the searches in the index, each with the match that it proves. The most likely one comes first.
    pub(super) fn criteria(&self) -> Vec<(Criterion, Match)> {
        let mut forms: Vec<_> = self.uuid().into_iter().flat_map(MachineUuid::forms).collect();
        if matches!(self, Wanted::Node { .. }) {
            // The kubelet reports the byte order of the firmware.
            forms.reverse();
        }
        let by_uuid = forms.into_iter().map(|form| (Criterion::Uuid(form.to_owned()), Match::Uuid));
        let by_name = self.name().map(|name| (Criterion::HostName(name.to_lowercase()), Match::HostName));
        by_uuid.chain(by_name).collect()
    }

    /// Returns the search by address, for a Node that is named after its address.
    pub(super) fn address_criterion(&self) -> Option<(Criterion, Match)> {
        Some((Criterion::Address(self.address()?), Match::Address))
    }

    /// Returns how well a machine matches; `None` if it is another one. Templates never match.
    pub(super) fn matches(&self, uuid: &str, host_name: &str, is_template: bool) -> Option<Match> {
        if is_template {
            return None;
        }
        if self.uuid().is_some_and(|wanted| wanted.matches(uuid)) {
            return Some(Match::Uuid);
        }
        let name = self.name()?;
        let first_label = host_name.split('.').next().unwrap_or(host_name);
        match () {
            () if host_name.is_empty() => None,
            () if host_name.eq_ignore_ascii_case(name) => Some(Match::HostName),
            // With a UUID, the machine would have been found by it.
            () if self.uuid().is_none() && first_label.eq_ignore_ascii_case(name) => Some(Match::FirstLabel),
            () => None,
        }
    }

    /// Returns whether a machine that was found by this search has what was searched.
    pub(super) fn is_still(&self, quality: Match, machine: &Machine) -> bool {
        let has_address = |address: IpAddr| {
            let all = machine.nics.iter().flat_map(|nic| &nic.addresses);
            all.filter_map(|text| text.parse::<IpAddr>().ok()).any(|known| known == address)
        };
        match quality {
            Match::Address => !machine.is_template && self.address().is_some_and(has_address),
            _ => self.matches(&machine.uuid, &machine.host_name, machine.is_template) == Some(quality),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Id(uuid) => f.write_str(uuid.given()),
            Wanted::Node { name, .. } => f.write_str(name),
        }
    }
}
