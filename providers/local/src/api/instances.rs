//! Machines over the API: what users ask, and what the owner does.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cloud::{CloudError, LocalCloud, Machine, NewMachine, World};
use crate::fleet::Fleet;
use crate::pod_ranges;

use super::Query;
use super::reply::{Outcome, Refusal, done, good};
use super::users::{look, order};

/// Which machines to look for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FindRequest {
    pub(crate) ids: BTreeSet<String>,
    pub(crate) names: BTreeSet<String>,
}

/// An answer for every key that was asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FindReply {
    pub(crate) answers: Vec<Answer>,
}

/// What became of one key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) result: Finding,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) instances: Vec<Arc<Machine>>,
}

/// By what a machine is looked for: `"id": "i-0001"` or `"name": "node-1"`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Key {
    Id(String),
    Name(String),
}

/// Whether there is such a machine. It is said in so many words, so that a reply that was cut short says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Finding {
    Found,
    Missing,
}

/// Some machines.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListReply {
    pub(crate) instances: Vec<Arc<Machine>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// Which pod range to lead to which machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssignRequest {
    pub(crate) machine: Key,
    pub(crate) range: IpNet,
}

/// A tag to put on a machine, or to take off.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TagRequest {
    pub(crate) machine: Key,
    pub(crate) tag: String,
    pub(crate) present: bool,
}

// ---- calls of the cloud's users

pub(super) async fn list(cloud: &LocalCloud, query: &Query) -> Outcome {
    let limit = query.limit.unwrap_or(usize::MAX).min(cloud.page_size());
    let page = |world: &World| page(&world.fleet, query.page.as_deref(), limit);
    let show = |world: Option<&World>| good(&cloud.view(world, page));
    if query.owner {
        return show(None);
    }
    look(cloud, "list", show, || good(&ListReply { instances: Vec::new(), next: None })).await
}

fn page(fleet: &Fleet, after: Option<&str>, limit: usize) -> ListReply {
    let (instances, more) = fleet.page(after, limit);
    let next = instances.last().filter(|_| more).map(|last| last.spec.id.clone());
    ListReply { instances, next }
}

pub(super) async fn find(cloud: &LocalCloud, asked: FindRequest) -> Outcome {
    let (count, most) = (asked.ids.len() + asked.names.len(), cloud.page_size());
    if count > most {
        return Err(Refusal::too_many_keys(count, most));
    }
    let found = |world: &World| found(&world.fleet, &asked);
    look(cloud, "find", |world| good(&cloud.view(world, found)), || good(&FindReply { answers: Vec::new() })).await
}

fn found(fleet: &Fleet, asked: &FindRequest) -> FindReply {
    let by_id = asked.ids.iter().map(|id| Answer::new(Key::Id(id.clone()), fleet.get(id).ok().into_iter()));
    let by_name = asked.names.iter().map(|name| Answer::new(Key::Name(name.clone()), fleet.named(name)));
    FindReply { answers: by_id.chain(by_name).collect() }
}

impl Answer {
    fn new<'a>(key: Key, machines: impl Iterator<Item = &'a Arc<Machine>>) -> Answer {
        let instances: Vec<_> = machines.cloned().collect();
        let result = if instances.is_empty() { Finding::Missing } else { Finding::Found };
        Answer { key, result, instances }
    }
}

pub(super) async fn get(cloud: &LocalCloud, id: &str, owner: bool) -> Outcome {
    let machine = |world: &World| world.fleet.get(id).cloned();
    let show = |world: Option<&World>| good(&cloud.view(world, machine)?);
    if owner {
        return show(None);
    }
    look(cloud, "get", show, || Err(CloudError::NoSuchMachine(id.to_owned()).into())).await
}

pub(super) async fn assign(cloud: &LocalCloud, asked: AssignRequest) -> Outcome {
    order(cloud, pod_ranges::ASSIGN, async { done(cloud.assign(&asked.machine, asked.range)) }).await
}

/// Name under which the call is counted and faults are injected.
pub(crate) const TAG: &str = "change-tag";

pub(super) async fn tag(cloud: &LocalCloud, asked: TagRequest) -> Outcome {
    order(cloud, TAG, async { done(cloud.tag(&asked.machine, &asked.tag, asked.present)) }).await
}

// ---- the owner's

pub(super) fn replace(cloud: &LocalCloud, id: &str, mut spec: NewMachine) -> Outcome {
    if spec.id.is_empty() {
        id.clone_into(&mut spec.id);
    }
    good(&cloud.change(id, |old| *old = spec)?)
}

pub(super) fn patch(cloud: &LocalCloud, id: &str, patch: Value) -> Outcome {
    if !patch.is_object() {
        return Err(Refusal::invalid("the body is not an object with the fields to change".to_owned()));
    }
    good(&cloud.try_change(id, |spec| patched(spec, patch))?)
}

fn patched(spec: &NewMachine, patch: Value) -> Result<NewMachine, CloudError> {
    let invalid = |error: serde_json::Error| {
        CloudError::Invalid(format!(
            "the patched machine would make no sense: {error}; stop and start change the state"
        ))
    };
    let mut value = serde_json::to_value(spec).map_err(invalid)?;
    merge(&mut value, patch);
    serde_json::from_value(value).map_err(invalid)
}

/// RFC 7396: objects are merged, null removes, all else replaces. As deep as the parser lets a body be.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else { return *target = patch };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (key, value) in patch {
        match value {
            Value::Null => drop(fields.remove(&key)),
            value => merge(fields.entry(key).or_insert(Value::Null), value),
        }
    }
}
