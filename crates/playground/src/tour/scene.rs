//! What the steps of all acts are made from.

use std::time::Duration;

use bowline_local::NewMachine;

use super::{Act, Step};
use crate::claim::Claim;
use crate::machines::machine;
use crate::manifest::Ports;
use crate::pod_network::PodNetwork;
use crate::subnet::Subnet;
use crate::time::Pace;

/// How long a step may take beyond what the playground's own pace makes it take. Generous: machines can be busy.
const MARGIN: Duration = Duration::from_secs(20);

/// How long a step may take for each Node: several parts write to each, one after the other.
const PER_NODE: Duration = Duration::from_millis(50);

/// What the steps are made from.
pub(super) struct Scene<'a> {
    pub(super) nodes: usize,
    pub(super) pace: Pace,
    pub(super) cloud: &'a str,
    pub(super) subnet: Subnet,
    pub(super) pods: PodNetwork,
    /// Of the Service `hello`.
    pub(super) ports: Ports,
}

impl Scene<'_> {
    pub(super) fn machine(&self, number: usize) -> NewMachine {
        machine(number, self.subnet)
    }

    /// The Node that things happen to: the last one.
    pub(super) fn node(&self) -> String {
        self.machine(self.nodes).name
    }

    /// Its machine.
    pub(super) fn id(&self) -> String {
        self.machine(self.nodes).id
    }

    /// Time to do something for every Node, and to notice silence.
    pub(super) fn deadline(&self) -> Duration {
        self.pace.silence * 2 + PER_NODE * self.nodes.try_into().unwrap_or(u32::MAX) + MARGIN
    }

    pub(super) fn post(&self, path: &str, body: &str) -> String {
        let data = if body.is_empty() { String::new() } else { format!(" -d '{body}'") };
        format!("curl -sS -X POST {}/v1/{path}{data}", self.cloud)
    }

    pub(super) fn delete_call(&self, path: &str) -> String {
        format!("curl -sS -X DELETE {}/v1/{path}", self.cloud)
    }

    pub(super) fn step(&self, title: &str, what: String, act: Act, commands: Vec<String>, claims: Vec<Claim>) -> Step {
        let (title, deadline, lasting) = (title.to_owned(), self.deadline(), Duration::ZERO);
        Step { title, what, commands, act, claims, deadline, lasting }
    }
}
