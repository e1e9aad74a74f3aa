//! Machines of a cloud, indexed by ID and by name.
//!
//! A plain value with the rules about IDs, names and the order of pages; it knows nothing of files, time or faults.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bowline_core::canonical_cidr;
use ipnet::IpNet;

use crate::api::Key;
use crate::cloud::{CloudError, Machine, MachineState, NewMachine};
use crate::kernel::check_namespace;
use crate::pod_cidrs::PodCidrs;

/// Maximum length of IDs, as that of names.
const MAX_LENGTH: usize = bowline_agent::MAX_NAME_LENGTH;

/// Maximum number of digits of a generated ID. Longer ones are set by users.
const MAX_DIGITS: usize = 12;

/// All machines. Clones share the machines, so an old version is cheap to keep.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    machines: BTreeMap<String, Arc<Machine>>,
    names: BTreeMap<String, BTreeSet<String>>,
    pod_cidrs: PodCidrs,
    /// Number of the last generated ID.
    last: u64,
}

impl Fleet {
    /// Restores machines; `last` is the number of the last generated ID.
    pub(crate) fn restore(machines: Vec<Machine>, last: u64) -> Result<Fleet, CloudError> {
        let mut fleet = Fleet { last, ..Fleet::default() };
        for mut machine in machines {
            canonicalize(&mut machine.spec);
            fleet.check_new(&machine.spec)?;
            fleet.put(machine);
        }
        Ok(fleet)
    }

    /// Number of the last generated ID.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// All machines, by ID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Machine>> {
        self.machines.values()
    }

    /// Returns the machine with this ID.
    pub(crate) fn get(&self, id: &str) -> Result<&Arc<Machine>, CloudError> {
        self.machines.get(id).ok_or_else(|| CloudError::NoSuchMachine(id.to_owned()))
    }

    /// Returns the machines with this name: none, one or several.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Arc<Machine>> {
        self.names.get(name).into_iter().flatten().filter_map(|id| self.machines.get(id))
    }

    /// Returns the only machine with this ID or name.
    pub(crate) fn only(&self, key: &Key) -> Result<&Arc<Machine>, CloudError> {
        let name = match key {
            Key::Id(id) => return self.get(id),
            Key::Name(name) => name,
        };
        let mut machines = self.named(name);
        match (machines.next(), machines.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(CloudError::NoSuchMachine(name.clone())),
            (Some(_), Some(_)) => {
                let ids = self.named(name).map(|machine| machine.spec.id.clone()).collect();
                Err(CloudError::Ambiguous(name.clone(), ids))
            }
        }
    }

    /// Returns at most `limit` machines with IDs after this one, and whether there are more. The ID need not exist, so a list
    /// continues correctly while machines are created and deleted.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> (Vec<Arc<Machine>>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.machines.range::<str, _>((start, Bound::Unbounded)).map(|(_, machine)| machine.clone());
        let page = rest.by_ref().take(limit).collect();
        (page, rest.next().is_some())
    }

    /// Creates a running machine and generates its ID if it has none.
    pub(crate) fn add(&mut self, mut spec: NewMachine) -> Result<Machine, CloudError> {
        // Numbers only increase, so IDs are never reused.
        let mut last = self.last;
        while spec.id.is_empty() || last > self.last && self.machines.contains_key(&spec.id) {
            last = last.saturating_add(1);
            spec.id = format!("i-{last:04}");
        }
        canonicalize(&mut spec);
        self.check_new(&spec)?;
        self.last = last;
        let machine = Machine { spec, state: MachineState::Running };
        self.put(machine.clone());
        Ok(machine)
    }

    /// Changes the properties of the machine with this ID, except the ID.
    pub(crate) fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&NewMachine) -> Result<NewMachine, CloudError>,
    ) -> Result<Machine, CloudError> {
        let old = self.get(id)?;
        let mut machine = Machine { spec: change(&old.spec)?, state: old.state };
        canonicalize(&mut machine.spec);
        if machine.spec.id != id {
            return Err(CloudError::Invalid(format!(
                "the ID of the machine {id:?} cannot be changed to {:?}",
                machine.spec.id
            )));
        }
        check_spec(&machine.spec)?;
        self.pod_cidrs.check(&machine.spec)?;
        self.put(machine.clone());
        Ok(machine)
    }

    /// Adds a pod CIDR to the machine. Idempotent.
    pub(crate) fn assign(&mut self, key: &Key, cidr: IpNet) -> Result<(), CloudError> {
        let spec = &self.only(key)?.spec;
        let (id, cidr) = (spec.id.clone(), canonical_cidr(cidr));
        if spec.pod_ranges.contains(&cidr) {
            return Ok(());
        }
        let pod_ranges = spec.pod_ranges.iter().copied().chain([cidr]).collect();
        self.change(&id, |spec| Ok(NewMachine { pod_ranges, ..spec.clone() })).map(drop)
    }

    /// Adds a tag to the machine or removes it. Idempotent.
    pub(crate) fn tag(&mut self, key: &Key, tag: &str, present: bool) -> Result<(), CloudError> {
        let mut spec = self.only(key)?.spec.clone();
        let changes = if present { spec.tags.insert(tag.to_owned()) } else { spec.tags.remove(tag) };
        if !changes {
            return Ok(());
        }
        self.change(&spec.id.clone(), |_| Ok(spec)).map(drop)
    }

    /// Stops or starts the machine with this ID. Idempotent.
    pub(crate) fn set_state(&mut self, id: &str, state: MachineState) -> Result<Machine, CloudError> {
        let machine = Machine { state, ..Machine::clone(self.get(id)?) };
        self.put(machine.clone());
        Ok(machine)
    }

    /// Removes the machine with this ID.
    pub(crate) fn remove(&mut self, id: &str) -> Result<(), CloudError> {
        self.get(id)?;
        self.forget(id);
        Ok(())
    }

    fn check_new(&self, spec: &NewMachine) -> Result<(), CloudError> {
        check_id(&spec.id)?;
        check_spec(spec)?;
        if self.machines.contains_key(&spec.id) {
            return Err(CloudError::Exists(spec.id.clone()));
        }
        self.pod_cidrs.check(spec)
    }

    fn put(&mut self, machine: Machine) {
        let id = machine.spec.id.clone();
        self.forget(&id);
        // A user-set ID in the form of a generated one counts, so that it is never generated, even after its machine is deleted.
        if let Some(number) = generated_number("i-", &id) {
            self.last = self.last.max(number);
        }
        self.pod_cidrs.put(&machine.spec);
        self.names.entry(machine.spec.name.clone()).or_default().insert(id.clone());
        self.machines.insert(id, Arc::new(machine));
    }

    fn forget(&mut self, id: &str) {
        let Some(machine) = self.machines.remove(id) else { return };
        self.pod_cidrs.forget(&machine.spec);
        if let Some(ids) = self.names.get_mut(&machine.spec.name) {
            ids.remove(id);
            if ids.is_empty() {
                self.names.remove(&machine.spec.name);
            }
        }
    }
}

/// Removes the host bits of the pod CIDRs.
fn canonicalize(spec: &mut NewMachine) {
    spec.pod_ranges.iter_mut().for_each(|cidr| *cidr = canonical_cidr(*cidr));
}

/// Number of an ID in the form of a generated one.
pub(crate) fn generated_number(prefix: &str, id: &str) -> Option<u64> {
    let digits = id.strip_prefix(prefix)?;
    (digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Whether the ID is valid: provider IDs and URLs contain it unescaped.
pub(crate) fn is_id(id: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !id.is_empty() && id.len() <= MAX_LENGTH && id.bytes().all(is_valid) && !id.bytes().all(|byte| byte == b'.')
}

fn check_id(id: &str) -> Result<(), CloudError> {
    // Path segment of the API in the position of an ID.
    if id == "find" {
        return Err(CloudError::Invalid("\"find\" cannot be an ID".to_owned()));
    }
    if is_id(id) {
        return Ok(());
    }
    Err(CloudError::Invalid(format!("the ID {id:?} must be 1 to {MAX_LENGTH} letters, digits, '-', '_' and '.'")))
}

fn check_spec(spec: &NewMachine) -> Result<(), CloudError> {
    bowline_agent::check_name(&spec.name)?;
    spec.network_namespace.as_deref().map_or(Ok(()), check_namespace)
}
