//! Context that the steps of the tour are built from.

use std::time::Duration;

use bowline_local::NewMachine;

use super::{Step, TourAction};
use crate::assertion::Assertion;
use crate::machines::machine;
use crate::manifest::Ports;
use crate::pod_network::PodNetwork;
use crate::subnet::Subnet;
use crate::timing::Timing;

/// Extra time for a step. Generous, because the machine may be busy.
const EXTRA_TIME: Duration = Duration::from_secs(20);

/// Time for each Node in a step: several components write to each Node, one after the other.
const TIME_PER_NODE: Duration = Duration::from_millis(50);

/// Properties of the playground that the steps depend on.
pub(super) struct Context {
    pub(super) nodes: usize,
    pub(super) timing: Timing,
    pub(super) subnet: Subnet,
    pub(super) pods: PodNetwork,
    /// Ports of the Service `hello`.
    pub(super) ports: Ports,
}

impl Context {
    pub(super) fn machine(&self, number: usize) -> NewMachine {
        machine(number, self.subnet)
    }

    /// Returns the name of the last Node, which the steps change.
    pub(super) fn node(&self) -> String {
        self.machine(self.nodes).name
    }

    /// Returns the machine ID of that Node.
    pub(super) fn id(&self) -> String {
        self.machine(self.nodes).id
    }

    /// Returns the deadline of a step: time to update every Node, and to notice missing heartbeats.
    pub(super) fn deadline(&self) -> Duration {
        self.timing.grace_period * 2 + TIME_PER_NODE * self.nodes.try_into().unwrap_or(u32::MAX) + EXTRA_TIME
    }

    pub(super) fn step(
        &self,
        title: &str,
        description: String,
        action: TourAction,
        [commands, views]: [Vec<String>; 2],
        assertions: Vec<Assertion>,
    ) -> Step {
        let (title, deadline, duration) = (title.to_owned(), self.deadline(), Duration::ZERO);
        Step { title, description, commands, views, action, assertions, deadline, duration }
    }
}
