//! The cloud itself: machines, their states, and a count of every call.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bowline_core::Address;
use serde::{Deserialize, Serialize};

use crate::faults::{Fault, FaultSpec};

/// How a cloud is set up.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    /// Where its state survives a restart; `None` keeps it in memory only.
    pub snapshot: Option<PathBuf>,
    /// What every call takes.
    pub latency: Duration,
    /// How many machines one page of a listing holds, and how many one lookup may name.
    pub page_size: usize,
    /// What makes chance repeatable.
    pub seed: u64,
}

/// A machine to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NewMachine {
    /// Its name; Nodes without provider ID are looked for by it.
    pub name: String,
    /// Its key; made up if empty.
    pub id: String,
    /// The kind of machine.
    pub instance_type: String,
    /// The failure domain.
    pub zone: String,
    /// The region.
    pub region: String,
    /// In the order that Nodes should have them.
    pub addresses: Vec<Address>,
    /// Further labels for the Node.
    pub labels: BTreeMap<String, String>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// All that it was made with; the ID is never empty.
    #[serde(flatten)]
    pub spec: NewMachine,
    /// Whether it runs.
    pub state: MachineState,
}

/// Whether a machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// It runs.
    Running,
    /// It is stopped.
    Stopped,
}

/// A cloud. Clones are the same cloud. Methods here are the owner's hands: they are instant, never fail on purpose and are
/// not counted. Calls through the provider or over HTTP are slow, fail and are counted as the cloud is told to.
#[derive(Clone)]
pub struct LocalCloud {}

/// Why the cloud cannot do that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// There is no such machine.
    #[error("there is no machine {0:?}")]
    NoSuchMachine(String),
    /// There is one with that ID already.
    #[error("there is a machine with the ID {0:?} already")]
    Exists(String),
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The snapshot cannot be read or written.
    #[error("the snapshot {0}: {1}")]
    Snapshot(PathBuf, String),
}

impl LocalCloud {
    /// A cloud with the machines of its snapshot, if it has one.
    pub fn open(options: CloudOptions) -> Result<LocalCloud, CloudError> {
        let _ = options;
        todo!()
    }

    /// Makes a machine, running.
    pub fn add(&self, machine: NewMachine) -> Result<Machine, CloudError> {
        let _ = machine;
        todo!()
    }

    /// Stops the machine of this ID.
    pub fn stop(&self, id: &str) -> Result<(), CloudError> {
        let _ = id;
        todo!()
    }

    /// Starts the machine of this ID.
    pub fn start(&self, id: &str) -> Result<(), CloudError> {
        let _ = id;
        todo!()
    }

    /// Removes the machine of this ID.
    pub fn delete(&self, id: &str) -> Result<(), CloudError> {
        let _ = id;
        todo!()
    }

    /// Replaces what the machine of this ID was made with.
    pub fn change(&self, id: &str, change: impl FnOnce(&mut NewMachine)) -> Result<Machine, CloudError> {
        let _ = (id, change);
        todo!()
    }

    /// All machines, by ID.
    pub fn machines(&self) -> Vec<Machine> {
        todo!()
    }

    /// From now on, goes wrong like this, beside what it does already; the number takes it back.
    pub fn inject(&self, fault: FaultSpec) -> u64 {
        let _ = fault;
        todo!()
    }

    /// Takes a fault back.
    pub fn repair(&self, number: u64) {
        let _ = number;
        todo!()
    }

    /// Takes all faults back.
    pub fn repair_all(&self) {
        todo!()
    }

    /// How long every call takes from now on.
    pub fn set_latency(&self, latency: Duration) {
        let _ = latency;
        todo!()
    }

    /// How often each kind of call was made (`find`, `list`), failed ones included.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        todo!()
    }

    /// Counts from zero again.
    pub fn reset_calls(&self) {
        todo!()
    }

    /// The faults in force.
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        todo!()
    }
}
