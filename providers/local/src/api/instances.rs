//! API of machines: user calls and management calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cloud::{CloudError, LocalCloud, Machine, NewMachine, World};
use crate::fleet::Fleet;
use crate::pod_cidrs;

use super::UrlQuery;
use super::reply::{ApiError, ApiResult, empty, ok};
use super::users::{read, write};

/// Machines to look up.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FindRequest {
    pub(crate) ids: BTreeSet<String>,
    pub(crate) names: BTreeSet<String>,
}

/// One answer for every requested key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FindReply {
    pub(crate) answers: Vec<Answer>,
}

/// Answer for one key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) result: Finding,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) instances: Vec<Arc<Machine>>,
}

/// Key of a machine: `"id": "i-0001"` or `"name": "node-1"`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Key {
    Id(String),
    Name(String),
}

/// Whether the machine exists. The answer is explicit, so that a truncated reply does not count as absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Finding {
    Found,
    Missing,
}

/// Page of machines.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListReply {
    pub(crate) instances: Vec<Arc<Machine>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// Pod CIDR to assign to a machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssignRequest {
    pub(crate) machine: Key,
    pub(crate) range: IpNet,
}

/// Tag to add to a machine or to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TagRequest {
    pub(crate) machine: Key,
    pub(crate) tag: String,
    pub(crate) present: bool,
}

// ---- user calls

pub(super) async fn list(cloud: &LocalCloud, query: &UrlQuery) -> ApiResult {
    let limit = query.limit.unwrap_or(usize::MAX).min(cloud.page_size());
    let page = |world: &World| page(&world.fleet, query.page.as_deref(), limit);
    let show = |world: Option<&World>| ok(&cloud.view(world, page));
    if query.owner {
        return show(None);
    }
    read(cloud, "list", show, || ok(&ListReply { instances: Vec::new(), next: None })).await
}

fn page(fleet: &Fleet, after: Option<&str>, limit: usize) -> ListReply {
    let (instances, more) = fleet.page(after, limit);
    let next = instances.last().filter(|_| more).map(|last| last.spec.id.clone());
    ListReply { instances, next }
}

pub(super) async fn find(cloud: &LocalCloud, request: FindRequest) -> ApiResult {
    let (count, limit) = (request.ids.len() + request.names.len(), cloud.page_size());
    if count > limit {
        return Err(ApiError::too_many_keys(count, limit));
    }
    let found = |world: &World| found(&world.fleet, &request);
    read(cloud, "find", |world| ok(&cloud.view(world, found)), || ok(&FindReply { answers: Vec::new() })).await
}

fn found(fleet: &Fleet, request: &FindRequest) -> FindReply {
    let by_id = request.ids.iter().map(|id| Answer::new(Key::Id(id.clone()), fleet.get(id).ok().into_iter()));
    let by_name = request.names.iter().map(|name| Answer::new(Key::Name(name.clone()), fleet.named(name)));
    FindReply { answers: by_id.chain(by_name).collect() }
}

impl Answer {
    fn new<'a>(key: Key, machines: impl Iterator<Item = &'a Arc<Machine>>) -> Answer {
        let instances: Vec<_> = machines.cloned().collect();
        let result = if instances.is_empty() { Finding::Missing } else { Finding::Found };
        Answer { key, result, instances }
    }
}

pub(super) async fn get(cloud: &LocalCloud, id: &str, owner: bool) -> ApiResult {
    let machine = |world: &World| world.fleet.get(id).cloned();
    let show = |world: Option<&World>| ok(&cloud.view(world, machine)?);
    if owner {
        return show(None);
    }
    read(cloud, "get", show, || Err(CloudError::NoSuchMachine(id.to_owned()).into())).await
}

pub(super) async fn assign(cloud: &LocalCloud, request: AssignRequest) -> ApiResult {
    write(cloud, pod_cidrs::ASSIGN, async { empty(cloud.assign(&request.machine, request.range)) }).await
}

/// Name under which the call is counted and faults are injected.
pub(crate) const TAG: &str = "change-tag";

pub(super) async fn tag(cloud: &LocalCloud, request: TagRequest) -> ApiResult {
    write(cloud, TAG, async { empty(cloud.tag(&request.machine, &request.tag, request.present)) }).await
}

// ---- management calls

pub(super) fn replace(cloud: &LocalCloud, id: &str, mut spec: NewMachine) -> ApiResult {
    if spec.id.is_empty() {
        id.clone_into(&mut spec.id);
    }
    ok(&cloud.change(id, |old| *old = spec)?)
}

pub(super) fn patch(cloud: &LocalCloud, id: &str, patch: Value) -> ApiResult {
    if !patch.is_object() {
        return Err(ApiError::invalid("the body must be an object with the fields to change".to_owned()));
    }
    ok(&cloud.try_change(id, |spec| patched(spec, patch))?)
}

fn patched(spec: &NewMachine, patch: Value) -> Result<NewMachine, CloudError> {
    let invalid = |error: serde_json::Error| {
        CloudError::Invalid(format!("the patched machine is invalid: {error}; use stop and start to change the state"))
    };
    let mut value = serde_json::to_value(spec).map_err(invalid)?;
    merge(&mut value, patch);
    serde_json::from_value(value).map_err(invalid)
}

/// JSON merge patch (RFC 7396). The parser limits the recursion depth.
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
