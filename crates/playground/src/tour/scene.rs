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
    pub(super) cloud: &'a CloudAccess,
    pub(super) subnet: Subnet,
    pub(super) pods: PodNetwork,
    /// Of the Service `hello`.
    pub(super) ports: Ports,
}

/// How the commands of the tour reach the cloud.
#[derive(Debug, Clone)]
pub struct CloudAccess {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// The file with the owner's token, as a line of the head of a request.
    pub token: String,
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
        let data = match body {
            "" => String::new(),
            body => format!(" -H 'Content-Type: application/json' -d '{body}'"),
        };
        format!("{} -X POST {}/v1/{path}{data}", self.curl_as_owner(), self.cloud.url)
    }

    pub(super) fn delete_call(&self, path: &str) -> String {
        format!("{} -X DELETE {}/v1/{path}", self.curl_as_owner(), self.cloud.url)
    }

    /// What changes the cloud takes the owner's token.
    pub(super) fn curl_as_owner(&self) -> String {
        format!("curl -sS -H @{}", self.cloud.token)
    }

    pub(super) fn step(&self, title: &str, what: String, act: Act, commands: Vec<String>, claims: Vec<Claim>) -> Step {
        let (title, deadline, lasting) = (title.to_owned(), self.deadline(), Duration::ZERO);
        Step { title, what, commands, act, claims, deadline, lasting }
    }
}
