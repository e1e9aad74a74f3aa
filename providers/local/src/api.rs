//! The cloud's API: a request goes in, a response comes out. The HTTP server and the client in the same process both
//! come through here, so both see the same cloud with the same faults; the latter skips nothing but the socket.
//!
//! ```text
//!  GET    /v1/instances?page=TOKEN&limit=N     some machines, by ID; with as=owner as the owner
//!  POST   /v1/instances/find                   {"ids":[…],"names":[…]}: an answer for every key
//!  POST   /v1/instances                        makes one
//!  GET, PUT, PATCH, DELETE /v1/instances/ID    reads, replaces, merges into, removes one
//!  POST   /v1/instances/ID/stop, …/start
//!  GET, POST, DELETE /v1/faults                what goes wrong; DELETE also as /v1/faults/NUMBER
//!  GET, DELETE /v1/calls                       counts by kind
//!  GET, PUT /v1/latency                        {"millis":20}
//! ```
//!
//! `find`, `list` and `get` are what a cloud's users call: they are counted and take the cloud's time, and faults strike
//! them. All else is the owner's: faults pass it by, for it is what mends them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cloud::{CloudError, LocalCloud, Machine, NewMachine};
use crate::faults::{Ending, Fault, FaultSpec};
use crate::fleet::{Fleet, is_id};

/// The kinds of calls that faults can strike.
const CALLS: [&str; 3] = ["find", "list", "get"];

/// What the cloud answers when it makes no sense: not JSON, JSON of another shape, JSON that breaks off.
const NONSENSE: [&str; 3] = ["<html><body>It works!</body></html>", r#"{"instances":"many"}"#, r#"{"answers":[{"id":"#];

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

/// What went wrong, for programs and for people.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ErrorReply {
    pub(crate) error: ErrorBody,
}

/// See [`ErrorReply`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorBody {
    pub(crate) code: String,
    pub(crate) message: String,
    /// As Retry-After, which knows whole seconds only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_millis: Option<u64>,
}

/// How long every call takes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Latency {
    pub(crate) millis: u64,
}

/// The number of a fault.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FaultNumber {
    pub(crate) number: u64,
}

/// A fault in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultInForce {
    /// What takes it back.
    pub number: u64,
    /// As it was asked for.
    pub spec: FaultSpec,
    /// How many times it still strikes; `None` for ever.
    pub left: Option<u64>,
}

/// Why a request is refused.
struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

type Reply = Response<Bytes>;
type Outcome = Result<Reply, Refusal>;

/// What the path names.
enum Place<'a> {
    Instances,
    Find,
    Instance(&'a str),
    Stop(&'a str),
    Start(&'a str),
    Faults,
    Fault(u64),
    Calls,
    Latency,
}

/// Answers a request, in the cloud's own time.
pub(crate) async fn answer(cloud: &LocalCloud, request: Request<Bytes>) -> Reply {
    handle(cloud, &request).await.unwrap_or_else(Refusal::into_reply)
}

async fn handle(cloud: &LocalCloud, request: &Request<Bytes>) -> Outcome {
    let place = place(request.uri().path())?;
    let query = Query::parse(request.uri().query().unwrap_or_default(), &place)?;
    match (request.method(), &place) {
        (&Method::GET, Place::Instances) => list(cloud, &query).await,
        (&Method::POST, Place::Find) => find(cloud, parse(request.body())?).await,
        (&Method::GET, Place::Instance(id)) => get(cloud, id, query.owner).await,
        (method, place) => manage(cloud, method, place, request.body()),
    }
}

/// The owner's calls.
fn manage(cloud: &LocalCloud, method: &Method, place: &Place<'_>, body: &Bytes) -> Outcome {
    match (method, place) {
        (&Method::POST, Place::Instances) => made(&cloud.add(parse(body)?)?),
        (&Method::PUT, Place::Instance(id)) => replace(cloud, id, parse(body)?),
        (&Method::PATCH, Place::Instance(id)) => patch(cloud, id, parse(body)?),
        (&Method::DELETE, Place::Instance(id)) => done(cloud.delete(id)),
        (&Method::POST, Place::Stop(id)) => done(cloud.stop(id)),
        (&Method::POST, Place::Start(id)) => done(cloud.start(id)),
        (&Method::GET, Place::Faults) => good(&faults_in_force(cloud)),
        (&Method::POST, Place::Faults) => inject(cloud, parse(body)?),
        (&Method::DELETE, Place::Faults) => repair_all(cloud),
        (&Method::DELETE, Place::Fault(number)) => repair(cloud, *number),
        (&Method::GET, Place::Calls) => good(&cloud.calls()),
        (&Method::DELETE, Place::Calls) => reset_calls(cloud),
        (&Method::GET, Place::Latency) => good(&Latency { millis: cloud.latency().as_millis() as u64 }),
        (&Method::PUT, Place::Latency) => set_latency(cloud, &parse(body)?),
        (method, place) => Err(Refusal::wrong_method(method, place.methods())),
    }
}

// ---- what is asked for

fn place(path: &str) -> Result<Place<'_>, Refusal> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    Ok(match segments.as_slice() {
        ["v1", "instances"] => Place::Instances,
        ["v1", "instances", "find"] => Place::Find,
        ["v1", "instances", id] => Place::Instance(id),
        ["v1", "instances", id, "stop"] => Place::Stop(id),
        ["v1", "instances", id, "start"] => Place::Start(id),
        ["v1", "faults"] => Place::Faults,
        ["v1", "faults", number] => Place::Fault(number.parse().map_err(|_| Refusal::no_fault(number))?),
        ["v1", "calls"] => Place::Calls,
        ["v1", "latency"] => Place::Latency,
        _ => return Err(Refusal::no_such_path(path)),
    })
}

impl Place<'_> {
    /// What can be done there, as in the header field Allow.
    fn methods(&self) -> &'static str {
        match self {
            Place::Instances => "GET, POST",
            Place::Find | Place::Stop(_) | Place::Start(_) => "POST",
            Place::Instance(_) => "GET, PUT, PATCH, DELETE",
            Place::Faults => "GET, POST, DELETE",
            Place::Fault(_) => "DELETE",
            Place::Calls => "GET, DELETE",
            Place::Latency => "GET, PUT",
        }
    }

    /// The parameters that make sense there.
    fn parameters(&self) -> &'static [&'static str] {
        match self {
            Place::Instances => &["page", "limit", "as"],
            Place::Instance(_) => &["as"],
            _ => &[],
        }
    }
}

#[derive(Default)]
struct Query {
    page: Option<String>,
    limit: Option<usize>,
    owner: bool,
}

impl Query {
    fn parse(text: &str, place: &Place<'_>) -> Result<Query, Refusal> {
        let mut query = Query::default();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            if !place.parameters().contains(&&*key) {
                return Err(Refusal::invalid(format!("there is no parameter {key:?} here")));
            }
            query.set(&key, &value)?;
        }
        Ok(query)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        match (key, value) {
            ("page", "") => self.page = None,
            // A token is the last ID of the page before.
            ("page", token) if is_id(token) => self.page = Some(token.to_owned()),
            ("page", token) => return Err(Refusal::invalid(format!("{token:?} is no token for a page"))),
            ("as", "owner") => self.owner = true,
            ("as", other) => return Err(Refusal::invalid(format!("as={other:?}: only as=owner is known"))),
            (_, number) => match number.parse() {
                Ok(limit) if limit > 0 => self.limit = Some(limit),
                _ => return Err(Refusal::invalid(format!("limit={number:?}: a number from 1 is wanted"))),
            },
        }
        Ok(())
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("the body is not what is wanted: {error}")))
}

// ---- calls of the cloud's users

/// Counts the call, lets it take its time, and shows it the machines that it gets to see: the present ones, or what a
/// fault makes of them.
async fn look(
    cloud: &LocalCloud,
    call: &str,
    show: impl Fn(&Fleet) -> Outcome,
    empty: impl Fn() -> Outcome,
) -> Outcome {
    let mishap = cloud.begin(call);
    if !mishap.delay.is_zero() {
        tokio::time::sleep(mishap.delay).await;
    }
    match mishap.ending {
        None => cloud.read(show),
        Some(Ending::Stale(past)) => show(&past),
        Some(Ending::Empty) => empty(),
        Some(Ending::Hanging) => std::future::pending().await,
        Some(Ending::Throttled(after)) => Err(Refusal::throttled(after)),
        Some(Ending::Failing(status)) => Err(Refusal::failing(status)),
        Some(Ending::Garbled(kind)) => Ok(nonsense(kind)),
    }
}

async fn list(cloud: &LocalCloud, query: &Query) -> Outcome {
    let limit = query.limit.unwrap_or(usize::MAX).min(cloud.page_size());
    let show = |fleet: &Fleet| good(&page(fleet, query.page.as_deref(), limit));
    if query.owner {
        return cloud.read(show);
    }
    look(cloud, "list", show, || good(&ListReply { instances: Vec::new(), next: None })).await
}

fn page(fleet: &Fleet, after: Option<&str>, limit: usize) -> ListReply {
    let (instances, more) = fleet.page(after, limit);
    let next = instances.last().filter(|_| more).map(|last| last.spec.id.clone());
    ListReply { instances, next }
}

async fn find(cloud: &LocalCloud, asked: FindRequest) -> Outcome {
    let (count, most) = (asked.ids.len() + asked.names.len(), cloud.page_size());
    if count > most {
        return Err(Refusal::too_many_keys(count, most));
    }
    look(cloud, "find", |fleet| good(&found(fleet, &asked)), || good(&FindReply { answers: Vec::new() })).await
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

async fn get(cloud: &LocalCloud, id: &str, owner: bool) -> Outcome {
    let show = |fleet: &Fleet| good(fleet.get(id)?);
    if owner {
        return cloud.read(show);
    }
    look(cloud, "get", show, || Err(CloudError::NoSuchMachine(id.to_owned()).into())).await
}

fn nonsense(kind: usize) -> Reply {
    let text = NONSENSE.get(kind % NONSENSE.len()).copied().unwrap_or_default();
    reply(StatusCode::OK, Bytes::from_static(text.as_bytes()))
}

// ---- the owner's

fn replace(cloud: &LocalCloud, id: &str, mut spec: NewMachine) -> Outcome {
    if spec.id.is_empty() {
        id.clone_into(&mut spec.id);
    }
    good(&cloud.change(id, |old| *old = spec)?)
}

fn patch(cloud: &LocalCloud, id: &str, patch: Value) -> Outcome {
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

fn inject(cloud: &LocalCloud, spec: FaultSpec) -> Outcome {
    if !spec.call.is_empty() && !CALLS.contains(&spec.call.as_str()) {
        return Err(Refusal::invalid(format!("call {:?}: one of {} is wanted", spec.call, CALLS.join(", "))));
    }
    if !(0.0..=1.0).contains(&spec.probability) {
        return Err(Refusal::invalid(format!("probability {}: a number from 0 to 1 is wanted", spec.probability)));
    }
    if let Fault::Failing(status) = spec.fault
        && !(400..=599).contains(&status)
    {
        return Err(Refusal::invalid(format!("failing {status}: a status from 400 to 599 is wanted")));
    }
    made(&FaultNumber { number: cloud.inject(spec) })
}

fn repair(cloud: &LocalCloud, number: u64) -> Outcome {
    if cloud.repair(number) { done(Ok(())) } else { Err(Refusal::no_fault(&number.to_string())) }
}

fn repair_all(cloud: &LocalCloud) -> Outcome {
    cloud.repair_all();
    done(Ok(()))
}

fn reset_calls(cloud: &LocalCloud) -> Outcome {
    cloud.reset_calls();
    done(Ok(()))
}

fn set_latency(cloud: &LocalCloud, latency: &Latency) -> Outcome {
    cloud.set_latency(Duration::from_millis(latency.millis));
    done(Ok(()))
}

fn faults_in_force(cloud: &LocalCloud) -> Value {
    let faults = cloud.injected().into_iter();
    let faults = faults.map(|fault| FaultInForce { number: fault.number, left: fault.left, spec: fault.spec });
    json!({ "faults": faults.collect::<Vec<_>>() })
}

// ---- what is answered

fn good(value: &impl Serialize) -> Outcome {
    respond(StatusCode::OK, value)
}

fn made(value: &impl Serialize) -> Outcome {
    respond(StatusCode::CREATED, value)
}

fn done(outcome: Result<(), CloudError>) -> Outcome {
    outcome?;
    good(&json!({}))
}

fn respond(status: StatusCode, value: &impl Serialize) -> Outcome {
    let body = serde_json::to_vec(value)
        .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok(reply(status, body.into()))
}

fn reply(status: StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    reply
}

/// A body that is larger than the server reads.
pub(crate) fn too_large(limit: usize) -> Reply {
    let message = format!("the body is larger than {limit} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_reply()
}

/// A body that broke off.
pub(crate) fn broken_body(error: &str) -> Reply {
    Refusal::invalid(format!("the body cannot be read: {error}")).into_reply()
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: String) -> Refusal {
        Refusal { status, code, message, retry_after: None, allow: None }
    }

    fn invalid(message: String) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    fn too_many_keys(count: usize, most: usize) -> Refusal {
        let message = format!("{count} machines in one lookup, and at most {most} may be asked for");
        Refusal::new(StatusCode::BAD_REQUEST, "too_many_keys", message)
    }

    fn no_fault(number: &str) -> Refusal {
        let message = format!("there is no fault {number:?}; GET /v1/faults tells the numbers of those in force");
        Refusal::new(StatusCode::NOT_FOUND, "no_such_fault", message)
    }

    fn no_such_path(path: &str) -> Refusal {
        let message = format!(
            "there is no {path:?}; there are /v1/instances, /v1/instances/find, /v1/instances/ID, \
             /v1/instances/ID/stop, /v1/instances/ID/start, /v1/faults, /v1/calls and /v1/latency"
        );
        Refusal::new(StatusCode::NOT_FOUND, "no_such_path", message)
    }

    fn wrong_method(method: &Method, allow: &'static str) -> Refusal {
        let message = format!("{method} cannot be done here; {allow} can");
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message);
        Refusal { allow: Some(allow), ..refusal }
    }

    fn throttled(retry_after: Option<Duration>) -> Refusal {
        let message = "too many calls".to_owned();
        Refusal { retry_after, ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, "throttled", message) }
    }

    fn failing(status: u16) -> Refusal {
        let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 400);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Refusal::new(status, "injected", "the cloud was told to fail like this".to_owned())
    }

    fn into_reply(self) -> Reply {
        let retry_after_millis = self.retry_after.map(|after| after.as_millis() as u64);
        let error = ErrorBody { code: self.code.to_owned(), message: self.message, retry_after_millis };
        let body = serde_json::to_vec(&ErrorReply { error }).unwrap_or_default();
        let mut reply = reply(self.status, body.into());
        if let Some(after) = self.retry_after {
            // Whole seconds, and never less than was meant.
            let seconds = after.as_millis().div_ceil(1000) as u64;
            reply.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(allow) = self.allow {
            reply.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
        }
        reply
    }
}

impl From<CloudError> for Refusal {
    fn from(error: CloudError) -> Refusal {
        let (status, code) = match &error {
            CloudError::NoSuchMachine(_) => (StatusCode::NOT_FOUND, "no_such_machine"),
            CloudError::Exists(_) => (StatusCode::CONFLICT, "exists"),
            CloudError::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            CloudError::Snapshot(..) => (StatusCode::INTERNAL_SERVER_ERROR, "snapshot"),
        };
        Refusal::new(status, code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::CloudOptions;

    const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    const PATHS: [&str; 9] = [
        "/v1/instances",
        "/v1/instances/find",
        "/v1/instances/i-0001",
        "/v1/instances/i-0001/stop",
        "/v1/instances/i-0001/start",
        "/v1/faults",
        "/v1/faults/1",
        "/v1/calls",
        "/v1/latency",
    ];
    const ENDINGS: [&str; 8] = ["", "", "", "", "/", "/..", "%2F", "/é"];
    const QUERIES: [&str; 7] = ["", "?limit=2", "?page=i-0001", "?as=owner", "?%ff=%", "?&&=&", "?limit=2&limit=x"];
    const BODIES: [&str; 12] = [
        "",
        "{}",
        "null",
        "[[[",
        "\u{0}",
        r#"{"name":"a"}"#,
        r#"{"name":"a","id":"i-999999999999"}"#,
        r#"{"ids":["i-0001",""],"names":["a"]}"#,
        r#"{"fault":"empty","times":0}"#,
        r#"{"fault":{"slow":0},"probability":0.5}"#,
        r#"{"millis":0}"#,
        r#"{"labels":{"a":{"b":null}},"addresses":null}"#,
    ];

    fn any_request(chance: &mut fastrand::Rng) -> Option<Request<Bytes>> {
        // Most of the time the path is right and there is no query, or few requests would come far.
        let query = if chance.bool() { "" } else { chance.choice(QUERIES)? };
        let target = format!("{}{}{query}", chance.choice(PATHS)?, chance.choice(ENDINGS)?);
        let request = Request::builder().method(chance.choice(METHODS)?).uri(target);
        request.body(Bytes::from_static(chance.choice(BODIES)?.as_bytes())).ok()
    }

    #[tokio::test]
    async fn any_request_has_an_answer_in_json() {
        let cloud = LocalCloud::open(CloudOptions { page_size: 3, ..CloudOptions::default() }).unwrap();
        let mut chance = fastrand::Rng::with_seed(7);
        let mut good = 0;
        for _ in 0..20_000 {
            let Some(request) = any_request(&mut chance) else { continue };
            let told = format!("{} {} {:?}", request.method(), request.uri(), request.body());
            let reply = answer(&cloud, request).await;
            let body: Value = serde_json::from_slice(reply.body()).unwrap();
            let (status, refused) = (reply.status(), body["error"]["code"].is_string());
            assert!(status.is_success() != refused && !status.is_server_error(), "{told}: {status} {body}");
            good += usize::from(status.is_success());
        }
        assert!(good > 500, "only {good} requests made sense");
    }
}
