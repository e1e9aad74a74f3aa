//! All machines of a cloud at one moment, found by ID and by name.
//!
//! A plain value: every rule about IDs, names and the order of pages is here, and nothing of files, time or faults.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bowline_core::canonical_cidr;
use ipnet::IpNet;

use crate::api::Key;
use crate::cloud::{CloudError, Machine, MachineState, NewMachine};
use crate::kernel::check_namespace;
use crate::pod_ranges::PodRanges;

/// As long as a name in Kubernetes may be.
const LONGEST: usize = 253;

/// IDs that look like ours and have more digits than this are somebody's own; we never count that far.
const DIGITS: usize = 12;

/// All machines. Cloning it is cheap enough to keep an old one beside the present one: machines are shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    machines: BTreeMap<String, Arc<Machine>>,
    names: BTreeMap<String, BTreeSet<String>>,
    pods: PodRanges,
    /// The number of the last ID that was made up.
    last: u64,
}

impl Fleet {
    /// These machines; `last` is the number of the last ID that was made up.
    pub(crate) fn restore(machines: Vec<Machine>, last: u64) -> Result<Fleet, CloudError> {
        let mut fleet = Fleet { last, ..Fleet::default() };
        for mut machine in machines {
            canonical(&mut machine.spec);
            fleet.check_new(&machine.spec)?;
            fleet.put(machine);
        }
        Ok(fleet)
    }

    /// The number of the last ID that was made up.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// All machines, by ID.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Machine>> {
        self.machines.values()
    }

    /// The machine of this ID.
    pub(crate) fn get(&self, id: &str) -> Result<&Arc<Machine>, CloudError> {
        self.machines.get(id).ok_or_else(|| CloudError::NoSuchMachine(id.to_owned()))
    }

    /// The machines of this name: none, one, or more than one.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Arc<Machine>> {
        self.names.get(name).into_iter().flatten().filter_map(|id| self.machines.get(id))
    }

    /// The one machine that this is the ID or the name of.
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

    /// At most `limit` machines whose IDs come after this one, and whether there are more. The ID need not exist any
    /// more, so a listing goes on where it was, whatever comes and goes meanwhile.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> (Vec<Arc<Machine>>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.machines.range::<str, _>((start, Bound::Unbounded)).map(|(_, machine)| machine.clone());
        let page = rest.by_ref().take(limit).collect();
        (page, rest.next().is_some())
    }

    /// Makes a machine, running, with an ID of its own.
    pub(crate) fn add(&mut self, mut spec: NewMachine) -> Result<Machine, CloudError> {
        // Numbers only go up, so an ID is never given twice.
        let mut last = self.last;
        while spec.id.is_empty() || last > self.last && self.machines.contains_key(&spec.id) {
            last = last.saturating_add(1);
            spec.id = format!("i-{last:04}");
        }
        canonical(&mut spec);
        self.check_new(&spec)?;
        self.last = last;
        let machine = Machine { spec, state: MachineState::Running };
        self.put(machine.clone());
        Ok(machine)
    }

    /// Replaces what the machine of this ID is made with; the ID itself stays.
    pub(crate) fn change(
        &mut self,
        id: &str,
        change: impl FnOnce(&NewMachine) -> Result<NewMachine, CloudError>,
    ) -> Result<Machine, CloudError> {
        let old = self.get(id)?;
        let mut machine = Machine { spec: change(&old.spec)?, state: old.state };
        canonical(&mut machine.spec);
        if machine.spec.id != id {
            return Err(CloudError::Invalid(format!("the ID of a machine stays: {id:?}, not {:?}", machine.spec.id)));
        }
        check_spec(&machine.spec)?;
        self.pods.check(&machine.spec)?;
        self.put(machine.clone());
        Ok(machine)
    }

    /// Leads this pod range to the machine, beside those that it has; once more changes nothing.
    pub(crate) fn assign(&mut self, key: &Key, range: IpNet) -> Result<(), CloudError> {
        let spec = &self.only(key)?.spec;
        let (id, range) = (spec.id.clone(), canonical_cidr(range));
        if spec.pod_ranges.contains(&range) {
            return Ok(());
        }
        let pod_ranges = spec.pod_ranges.iter().copied().chain([range]).collect();
        self.change(&id, |spec| Ok(NewMachine { pod_ranges, ..spec.clone() })).map(drop)
    }

    /// Puts this tag on the machine or takes it off; once more changes nothing.
    pub(crate) fn tag(&mut self, key: &Key, tag: &str, present: bool) -> Result<(), CloudError> {
        let mut spec = self.only(key)?.spec.clone();
        let changes = if present { spec.tags.insert(tag.to_owned()) } else { spec.tags.remove(tag) };
        if !changes {
            return Ok(());
        }
        self.change(&spec.id.clone(), |_| Ok(spec)).map(drop)
    }

    /// Stops or starts the machine of this ID; once more changes nothing.
    pub(crate) fn set_state(&mut self, id: &str, state: MachineState) -> Result<Machine, CloudError> {
        let machine = Machine { state, ..Machine::clone(self.get(id)?) };
        self.put(machine.clone());
        Ok(machine)
    }

    /// Removes the machine of this ID.
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
        self.pods.check(spec)
    }

    fn put(&mut self, machine: Machine) {
        let id = machine.spec.id.clone();
        self.forget(&id);
        // An ID that was given by hand and looks like ours counts, so that ours never meets it, not even after its
        // machine is gone.
        if let Some(number) = made_up_number("i-", &id) {
            self.last = self.last.max(number);
        }
        self.pods.put(&machine.spec);
        self.names.entry(machine.spec.name.clone()).or_default().insert(id.clone());
        self.machines.insert(id, Arc::new(machine));
    }

    fn forget(&mut self, id: &str) {
        let Some(machine) = self.machines.remove(id) else { return };
        self.pods.forget(&machine.spec);
        if let Some(ids) = self.names.get_mut(&machine.spec.name) {
            ids.remove(id);
            if ids.is_empty() {
                self.names.remove(&machine.spec.name);
            }
        }
    }
}

/// However a range is written, it is the same range.
fn canonical(spec: &mut NewMachine) {
    spec.pod_ranges.iter_mut().for_each(|range| *range = canonical_cidr(*range));
}

/// The number in an ID of the form that we make up.
pub(crate) fn made_up_number(prefix: &str, id: &str) -> Option<u64> {
    let digits = id.strip_prefix(prefix)?;
    (digits.len() <= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Whether this could be the ID of a machine: it goes into provider IDs and addresses as it is.
pub(crate) fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !id.is_empty() && id.len() <= LONGEST && id.bytes().all(plain) && !id.bytes().all(|byte| byte == b'.')
}

fn check_id(id: &str) -> Result<(), CloudError> {
    // The API has this word in the place of an ID.
    if id == "find" {
        return Err(CloudError::Invalid("\"find\" cannot be an ID".to_owned()));
    }
    if is_id(id) {
        return Ok(());
    }
    Err(CloudError::Invalid(format!("the ID {id:?} must be 1 to {LONGEST} letters, digits, '-', '_' and '.'")))
}

fn check_spec(spec: &NewMachine) -> Result<(), CloudError> {
    check_name(&spec.name)?;
    spec.network_namespace.as_deref().map_or(Ok(()), check_namespace)
}

pub(crate) fn check_name(name: &str) -> Result<(), CloudError> {
    if name.is_empty() || name.len() > LONGEST || name.chars().any(char::is_control) {
        return Err(CloudError::Invalid(format!("the name {name:?} must have 1 to {LONGEST} printable characters")));
    }
    Ok(())
}
