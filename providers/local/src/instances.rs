//! `Instances` trait: machines of the cloud.
//!
//! ```text
//!  refs ──► resolved without a call (foreign, malformed, no key) ──────────────────┐
//!       └─► keys ──► one find ──► a result for each key, or an error for each ─────┴─► in the order of `refs`
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_agent_client::invalid_response;
use bowline_cloud::{Error, ErrorKind, Identity, InstancePage, Instances, PageToken, Result, Retry};
use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};
use ipnet::IpNet;

use crate::LocalProvider;
use crate::api::{Answer, AssignRequest, FindReply, FindRequest, Finding, Key};
use crate::cloud::{Machine, MachineState};
use crate::fleet::is_id;

const FIND: &str = "find instances";
const LIST: &str = "list instances";
const ASSIGN: &str = "assign pod CIDR";

#[async_trait]
impl Instances for LocalProvider {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let identities: Vec<_> = refs.iter().map(|instance| self.identify(instance)).collect();
        let answers = self.look_up(request(&identities)).await;
        let resolve = |identity| match identity {
            Err(error) => Err(error),
            Ok(Identity::NotMine) => Ok(InstanceState::NotMine),
            Ok(Identity::Id(id)) => self.state(&Key::Id(id), &answers),
            Ok(Identity::Name(name)) => self.state(&Key::Name(name), &answers),
        };
        identities.into_iter().map(resolve).collect()
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let Some(limit) = self.list_page() else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                LIST,
                "listing is disabled in the configuration (listing: false)",
            ));
        };
        let page = page.map(|token| token.0.as_str());
        let reply = self.client.list(page, limit).await.map_err(|error| error.during(LIST))?;
        let instances = reply.instances.iter().map(|machine| self.describe(machine)).collect();
        Ok(InstancePage { instances, next: reply.next.map(PageToken), ..InstancePage::default() })
    }

    async fn assign_pod_cidrs(&self, instance: &InstanceRef, cidr: IpNet) -> Result<()> {
        let with_node = |error: Error| error.context("node", instance.node.as_str());
        if !self.config.pod_ranges {
            let message = "pod CIDRs are disabled in the configuration (podRanges: false)";
            return Err(with_node(Error::new(ErrorKind::Unsupported, ASSIGN, message)));
        }
        let request = AssignRequest { machine: self.key_of(instance, ASSIGN)?, range: cidr };
        self.client.assign_pod_cidrs(&request).await.map_err(|error| with_node(error.during(ASSIGN)))
    }

    fn identify(&self, instance: &InstanceRef) -> Result<Identity> {
        match &instance.provider_id {
            Some(id) => self.identify_by_id(id),
            None if self.config.lookup_by_name => Ok(Identity::Name(instance.node.as_str().to_owned())),
            None => Ok(Identity::NotMine),
        }
    }
}

impl LocalProvider {
    /// Key of the machine, for calls that need one.
    pub(crate) fn key_of(&self, instance: &InstanceRef, operation: &str) -> Result<Key> {
        match self.identify(instance)? {
            Identity::Id(id) => Ok(Key::Id(id)),
            Identity::Name(name) => Ok(Key::Name(name)),
            Identity::NotMine => {
                let error = Error::new(ErrorKind::NotFound, operation, "the Node is not a machine of this cloud");
                Err(error.context("node", instance.node.as_str()))
            }
        }
    }

    fn identify_by_id(&self, id: &ProviderId) -> Result<Identity> {
        if id.prefix() != Some(self.config.id_prefix.as_str()) {
            return Ok(Identity::NotMine);
        }
        match id.rest() {
            Some(rest) if is_id(rest) => Ok(Identity::Id(rest.to_owned())),
            _ => Err(Error::new(
                ErrorKind::InvalidConfig,
                FIND,
                format!("invalid provider ID {id:?}; expected the form {}://i-0001", self.config.id_prefix),
            )),
        }
    }

    /// Looks up the keys. Makes no call if there are none.
    async fn look_up(&self, request: FindRequest) -> Result<HashMap<Key, Answer>> {
        if request.ids.is_empty() && request.names.is_empty() {
            return Ok(HashMap::new());
        }
        let reply = self.client.find(&request).await.map_err(|error| error.during(FIND))?;
        by_key(reply)
    }

    fn state(&self, key: &Key, answers: &Result<HashMap<Key, Answer>>) -> Result<InstanceState> {
        let answer = match answers {
            Ok(answers) => answers.get(key).ok_or_else(|| bad_answer(key, "is missing"))?,
            Err(error) => return Err(error.clone()),
        };
        match (answer.result, answer.instances.as_slice()) {
            (Finding::Missing, []) => Ok(InstanceState::Gone),
            (Finding::Found, [machine]) if key.matches(machine) => Ok(self.describe(machine)),
            (Finding::Found, [_, _, ..]) if matches!(key, Key::Name(_)) => Err(ambiguous(key, &answer.instances)),
            _ => Err(bad_answer(key, "is contradictory")),
        }
    }

    /// Converts a machine, with the properties that the configuration enables.
    fn describe(&self, machine: &Machine) -> InstanceState {
        let (config, spec) = (&self.config, &machine.spec);
        let if_enabled = |enabled: bool, text: &String| if enabled { text.clone() } else { String::new() };
        let instance = Arc::new(Instance {
            id: spec.id.clone(),
            name: spec.name.clone(),
            provider_id: Some(ProviderId::of(&config.id_prefix, &spec.id)),
            instance_type: spec.instance_type.clone(),
            zone: if_enabled(config.zones, &spec.zone),
            region: if_enabled(config.zones, &spec.region),
            addresses: spec.addresses.clone(),
            labels: if config.additional_labels { spec.labels.clone() } else { Default::default() },
            annotations: if config.additional_annotations { spec.annotations.clone() } else { Default::default() },
            pod_cidrs: if config.pod_ranges { spec.pod_ranges.clone() } else { Vec::new() },
        });
        match machine.state {
            MachineState::Stopped if config.shutdown_state => InstanceState::Stopped(instance),
            MachineState::Stopped | MachineState::Running => InstanceState::Running(instance),
        }
    }
}

/// Builds the lookup request, with each key once.
fn request(identities: &[Result<Identity>]) -> FindRequest {
    let mut request = FindRequest::default();
    for identity in identities.iter().flatten() {
        match identity {
            Identity::Id(id) => drop(request.ids.insert(id.clone())),
            Identity::Name(name) => drop(request.names.insert(name.clone())),
            Identity::NotMine => {}
        }
    }
    request
}

/// Indexes the answers by key. Two answers for one key are an error.
fn by_key(reply: FindReply) -> Result<HashMap<Key, Answer>> {
    let mut answers = HashMap::with_capacity(reply.answers.len());
    for answer in reply.answers {
        if let Some(duplicate) = answers.insert(answer.key.clone(), answer) {
            return Err(invalid_response(FIND, &format!("two answers for {}", duplicate.key)));
        }
    }
    Ok(answers)
}

impl Key {
    fn matches(&self, machine: &Machine) -> bool {
        match self {
            Key::Id(id) => machine.spec.id == *id,
            Key::Name(name) => machine.spec.name == *name,
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Id(id) => write!(f, "ID {id:?}"),
            Key::Name(name) => write!(f, "name {name:?}"),
        }
    }
}

/// Error for an unusable answer, which does not mean that the machine does not exist.
fn bad_answer(key: &Key, what: &str) -> Error {
    Error::new(ErrorKind::Unexpected, FIND, format!("the cloud's answer for the {key} {what}"))
}

fn ambiguous(key: &Key, machines: &[Arc<Machine>]) -> Error {
    let ids: Vec<_> = machines.iter().map(|machine| machine.spec.id.as_str()).collect();
    let message = format!("the {key} matches {} machines: {}; rename all but one", ids.len(), ids.join(", "));
    // The fix, a rename in the cloud, is visible only to a retry.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}
