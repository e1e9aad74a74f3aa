//! The fixed table of the demonstration (CL-35 to CL-46): every answer is what `cloud-provider-cloudlycke` returns, as far as the
//! contract can express it.
//!
//! `node-c2-1` is stopped for ever. Provider IDs are compared as whole texts, so that an ID of another form belongs to no machine. A
//! Node without a provider ID whose name is not in the table is initialised without addresses and type, and with the empty ID
//! `cloudlycke://`, which no machine has.

use std::sync::Arc;

use bowline_cloud::{Identity, Result};
use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};

use crate::NAME;
use crate::identity::Names;
use crate::machine::{Candidate, Details, Rules};

/// A row of the table.
struct Row {
    name: &'static str,
    id: &'static str,
    address: [u8; 4],
    memory_mib: u64,
    cpus: u64,
    state: &'static str,
}

const MACHINES: [Row; 2] = [
    Row { name: "master-c2-1", id: "m-c2-1", address: [192, 168, 20, 10], memory_mib: 512, cpus: 1, state: "running" },
    // upstream: this machine is reported as stopped, whatever its state is.
    Row { name: "node-c2-1", id: "n-c2-1", address: [192, 168, 20, 11], memory_mib: 1024, cpus: 2, state: "poweroff" },
];

/// The table.
pub(crate) struct Demo {
    machines: Vec<InstanceState>,
    location: String,
}

impl Row {
    fn read(&self) -> (Names, Details) {
        let configured = Some(self.id.to_owned());
        let details = Details {
            state: self.state.to_owned(),
            memory_mib: Some(self.memory_mib),
            cpus: Some(self.cpus),
            addresses: vec![Candidate { address: self.address.into(), is_default: true }],
            ..Details::default()
        };
        (Names { name: self.name.to_owned(), configured, ..Names::default() }, details)
    }
}

impl Demo {
    /// Creates the table. Machines of the configuration are added, and replace one of the same name.
    pub(crate) fn new(rules: &Rules) -> Result<Demo> {
        let fixed = MACHINES.iter().filter(|row| !rules.overrides.contains_key(row.name)).map(Row::read);
        let further = rules.overrides.iter().map(|(name, own)| {
            let names = Names { name: name.clone(), configured: own.id.clone(), ..Names::default() };
            (names, Details { state: "running".to_owned(), ..Details::default() })
        });
        let state = |(names, details): (Names, Details)| rules.state(&names, &details);
        let machines = fixed.chain(further).map(state).collect::<Result<_>>()?;
        Ok(Demo { machines, location: rules.location.clone() })
    }

    /// Returns the state of a machine.
    pub(crate) fn find(&self, asked: &InstanceRef) -> InstanceState {
        log(asked);
        let is_it = |instance: &Instance| match &asked.provider_id {
            Some(id) => instance.provider_id.as_ref() == Some(id),
            None => instance.name == *asked.node.as_str(),
        };
        let found = self.machines.iter().find(|state| state.instance().is_some_and(|instance| is_it(instance)));
        match (found, &asked.provider_id) {
            (Some(state), _) => state.clone(),
            (None, Some(_)) => InstanceState::Gone,
            (None, None) => InstanceState::Running(Arc::new(self.unknown(asked))),
        }
    }

    /// Returns all machines.
    pub(crate) fn list(&self) -> Vec<InstanceState> {
        self.machines.clone()
    }

    /// upstream: an unknown name has no addresses and no type, without an error, but a zone, and the empty ID.
    fn unknown(&self, asked: &InstanceRef) -> Instance {
        Instance {
            provider_id: Some(ProviderId::of(NAME, "")),
            name: asked.node.to_string(),
            zone: self.location.clone(),
            region: self.location.clone(),
            ..Instance::default()
        }
    }
}

/// Returns whether the table decides about a provider ID: one with the prefix, or without any.
pub(crate) fn owns(id: &ProviderId) -> bool {
    id.prefix().is_none_or(|prefix| prefix == NAME)
}

/// Returns the key of a machine. The part after the prefix is not interpreted. The layers combine lookups with one key, so an ID without
/// the prefix, which no machine has, needs another key than that with the prefix.
pub(crate) fn identify(asked: &InstanceRef) -> Identity {
    match &asked.provider_id {
        None => Identity::Name(asked.node.to_string()),
        Some(id) if !owns(id) => Identity::NotMine,
        Some(id) => Identity::Id(id.rest().map_or_else(|| format!(":{id}"), str::to_owned)),
    }
}

/// Logs the methods of the demonstration that a lookup replaces, with its wording: its users follow this log.
fn log(asked: &InstanceRef) {
    const BY_ID: [&str; 4] = [
        "InstanceExistsByProviderID",
        "InstanceShutdownByProviderID",
        "NodeAddressesByProviderID",
        "GetZoneByProviderID",
    ];
    const BY_NAME: [&str; 4] = ["InstanceID", "NodeAddresses", "InstanceType", "GetZoneByNodeName"];
    let (methods, argument) = match &asked.provider_id {
        Some(id) => (BY_ID, id.as_str()),
        None => (BY_NAME, asked.node.as_str()),
    };
    methods.iter().for_each(|method| tracing::debug!("{method}({argument})"));
}
