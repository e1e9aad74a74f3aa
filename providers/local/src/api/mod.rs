//! The cloud's API: a request goes in, a response comes out. The HTTP server and the client in the same process both
//! come through here, so both see the same cloud with the same faults; the latter skips nothing but the socket.
//!
//! ```text
//!  GET    /v1/instances?page=TOKEN&limit=N     some machines, by ID; with as=owner as the owner
//!  POST   /v1/instances/find                   {"ids":[…],"names":[…]}: an answer for every key
//!  POST   /v1/instances                        makes one
//!  GET, PUT, PATCH, DELETE /v1/instances/ID    reads, replaces, merges into, removes one
//!  POST   /v1/instances/ID/stop, …/start
//!  POST   /v1/balancers/find                   {"asking":[…]}: all that there is for each asker
//!  POST   /v1/balancers/owners                 {"cluster":…,"after":…,"limit":N}: whose balancers and addresses there are
//!  POST   /v1/balancers/change                 {"asking":…,"change":{"call":"create-balancer",…}}: one change of one thing
//!  GET, POST /v1/balancers                     all, with how they are doing; makes one by hand
//!  GET, DELETE /v1/balancers/ID                reads, removes one by hand
//!  GET    /v1/addresses                        all addresses of balancers
//!  POST   /v1/routes/list                      {"cluster":…}: its routes, by range
//!  POST   /v1/routes/create                    {"cluster":…,"machine":{"id":…},"node":…,"destination":…}: the route
//!  POST   /v1/routes/delete                    {"cluster":…,"id":…}
//!  GET    /v1/routes?cluster=NAME              all tables, or one, and what is wrong in the kernel
//!  POST   /v1/routes?cluster=NAME              makes one by hand
//!  DELETE /v1/routes/ID?cluster=NAME           removes one by hand
//!  POST   /v1/pod-ranges/assign                {"machine":{"id":…},"range":…}
//!  POST   /v1/tags/change                      {"machine":{"id":…},"tag":…,"present":true}
//!  GET, POST, DELETE /v1/faults                what goes wrong; DELETE also as /v1/faults/NUMBER
//!  GET, DELETE /v1/calls                       counts by kind
//!  GET, PUT /v1/latency                        {"millis":20}
//! ```
//!
//! `find`, `list` and `get` of instances, `find`, `owners` and `change` of balancers, `list`, `create` and `delete` of routes
//! `assign` of pod ranges and `change` of tags are what a cloud's users call: they are counted and take the cloud's time, and faults strike
//! them, and the cloud may want to know whose they are (`Authorization: Bearer TOKEN`). All else is the owner's: faults pass it
//! by, for it is what mends them. Over HTTP its writes take the owner's token, in the same header (`door`).

mod balancers;
mod instances;
mod owner;
mod reply;
mod routes;
mod users;

use bytes::Bytes;
use http::{Method, Request};

use crate::cloud::LocalCloud;
use crate::door::Door;
use crate::fleet::is_id;

pub use balancers::BalancerView;
pub(crate) use balancers::{
    ChangeRequest, FindBalancersReply, FindBalancersRequest, ListAddressesReply, ListBalancersReply, OwnersReply,
    OwnersRequest,
};
pub(crate) use instances::{Answer, AssignRequest, FindReply, FindRequest, Finding, Key, ListReply, TAG, TagRequest};
pub use owner::FaultInForce;
pub(crate) use owner::{FaultNumber, Latency};
pub(crate) use reply::Refusal;
pub(crate) use reply::{ErrorBody, ErrorReply, broken_body, too_large};
use reply::{Outcome, Reply, done, good, made, parse};
pub(crate) use routes::{
    CreateRouteRequest, DeleteRouteRequest, ListRoutesReply, ListRoutesRequest, RouteTablesReply, RouteView,
};

/// What the path names.
enum Place<'a> {
    Instances,
    Find,
    Instance(&'a str),
    Stop(&'a str),
    Start(&'a str),
    Balancers,
    FindBalancers,
    Owners,
    Change,
    Balancer(&'a str),
    Addresses,
    Routes,
    ListRoutes,
    CreateRoute,
    DeleteRoute,
    Route(&'a str),
    AssignPodRange,
    ChangeTag,
    Faults,
    Fault(u64),
    Calls,
    Latency,
}

/// Answers a request, in the cloud's own time.
pub(crate) async fn answer(cloud: &LocalCloud, request: Request<Bytes>) -> Reply {
    counted(cloud, None, &request).await
}

/// The same for a request that came through this door.
pub(crate) async fn answer_at(door: &Door, cloud: &LocalCloud, request: Request<Bytes>) -> Reply {
    counted(cloud, Some(door), &request).await
}

async fn counted(cloud: &LocalCloud, door: Option<&Door>, request: &Request<Bytes>) -> Reply {
    let reply = handle(cloud, door, request).await.unwrap_or_else(Refusal::into_reply);
    cloud.count_bytes(request.body().len(), reply.body().len());
    reply
}

async fn handle(cloud: &LocalCloud, door: Option<&Door>, request: &Request<Bytes>) -> Outcome {
    door.map_or(Ok(()), |door| door.refuse_pages(request))?;
    let place = place(request.uri().path())?;
    let query = Query::parse(request.uri().query().unwrap_or_default(), &place)?;
    let (method, headers) = (request.method(), request.headers());
    match (door, place.is_users(method, &query)) {
        // Users who are not told apart are the owner where what they order happens in the kernel.
        (Some(door), true) if door.always && cloud.token_file().is_none() => door.recognise_owner(method, headers)?,
        (_, true) => users::recognise(cloud, headers)?,
        (Some(door), false) => door.recognise_owner(method, headers)?,
        (None, false) => {}
    }
    match (request.method(), &place) {
        (&Method::GET, Place::Instances) => instances::list(cloud, &query).await,
        (&Method::POST, Place::Find) => instances::find(cloud, parse(request.body())?).await,
        (&Method::GET, Place::Instance(id)) => instances::get(cloud, id, query.owner).await,
        (&Method::POST, Place::FindBalancers) => balancers::find(cloud, parse(request.body())?).await,
        (&Method::POST, Place::Owners) => balancers::owners(cloud, parse(request.body())?).await,
        (&Method::POST, Place::Change) => balancers::change(cloud, parse(request.body())?).await,
        (&Method::POST, Place::ListRoutes) => routes::list(cloud, parse(request.body())?).await,
        (&Method::POST, Place::CreateRoute) => routes::create(cloud, parse(request.body())?).await,
        (&Method::POST, Place::DeleteRoute) => routes::delete(cloud, parse(request.body())?).await,
        (&Method::POST, Place::AssignPodRange) => instances::assign(cloud, parse(request.body())?).await,
        (&Method::POST, Place::ChangeTag) => instances::tag(cloud, parse(request.body())?).await,
        (method, Place::Routes | Place::Route(_)) => routes::manage(cloud, method, &place, &query, request.body()),
        (method, place) => manage(cloud, method, place, request.body()),
    }
}

/// The owner's calls.
fn manage(cloud: &LocalCloud, method: &Method, place: &Place<'_>, body: &Bytes) -> Outcome {
    match (method, place) {
        (&Method::POST, Place::Instances) => made(&cloud.add(parse(body)?)?),
        (&Method::PUT, Place::Instance(id)) => instances::replace(cloud, id, parse(body)?),
        (&Method::PATCH, Place::Instance(id)) => instances::patch(cloud, id, parse(body)?),
        (&Method::DELETE, Place::Instance(id)) => done(cloud.delete(id)),
        (&Method::POST, Place::Stop(id)) => done(cloud.stop(id)),
        (&Method::POST, Place::Start(id)) => done(cloud.start(id)),
        (&Method::GET, Place::Balancers) => good(&balancers::all(cloud)),
        (&Method::POST, Place::Balancers) => made(&cloud.add_balancer(parse(body)?)?),
        (&Method::GET, Place::Balancer(id)) => good(&balancers::view(cloud, cloud.balancer(id)?)),
        (&Method::DELETE, Place::Balancer(id)) => done(cloud.delete_balancer(id)),
        (&Method::GET, Place::Addresses) => good(&ListAddressesReply { addresses: cloud.addresses() }),
        (&Method::GET, Place::Faults) => good(&owner::faults_in_force(cloud)),
        (&Method::POST, Place::Faults) => owner::inject(cloud, parse(body)?),
        (&Method::DELETE, Place::Faults) => owner::repair_all(cloud),
        (&Method::DELETE, Place::Fault(number)) => owner::repair(cloud, *number),
        (&Method::GET, Place::Calls) => good(&cloud.calls()),
        (&Method::DELETE, Place::Calls) => owner::reset_calls(cloud),
        (&Method::GET, Place::Latency) => good(&Latency { millis: cloud.latency().as_millis() as u64 }),
        (&Method::PUT, Place::Latency) => owner::set_latency(cloud, &parse(body)?),
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
        ["v1", "balancers"] => Place::Balancers,
        ["v1", "balancers", "find"] => Place::FindBalancers,
        ["v1", "balancers", "owners"] => Place::Owners,
        ["v1", "balancers", "change"] => Place::Change,
        ["v1", "balancers", id] => Place::Balancer(id),
        ["v1", "addresses"] => Place::Addresses,
        ["v1", "routes"] => Place::Routes,
        ["v1", "routes", "list"] => Place::ListRoutes,
        ["v1", "routes", "create"] => Place::CreateRoute,
        ["v1", "routes", "delete"] => Place::DeleteRoute,
        ["v1", "routes", id] => Place::Route(id),
        ["v1", "pod-ranges", "assign"] => Place::AssignPodRange,
        ["v1", "tags", "change"] => Place::ChangeTag,
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
            Place::Instances | Place::Balancers | Place::Routes => "GET, POST",
            Place::Find | Place::Stop(_) | Place::Start(_) => "POST",
            Place::FindBalancers | Place::Owners | Place::Change => "POST",
            Place::ListRoutes | Place::CreateRoute | Place::DeleteRoute => "POST",
            Place::AssignPodRange | Place::ChangeTag => "POST",
            Place::Balancer(_) => "GET, DELETE",
            Place::Addresses => "GET",
            Place::Instance(_) => "GET, PUT, PATCH, DELETE",
            Place::Faults => "GET, POST, DELETE",
            Place::Fault(_) | Place::Route(_) => "DELETE",
            Place::Calls => "GET, DELETE",
            Place::Latency => "GET, PUT",
        }
    }

    /// Whether it is a call of a user of the cloud, not of its owner.
    fn is_users(&self, method: &Method, query: &Query) -> bool {
        match self {
            Place::Instances | Place::Instance(_) => method == Method::GET && !query.owner,
            Place::Find | Place::FindBalancers | Place::Owners | Place::Change => true,
            Place::ListRoutes | Place::CreateRoute | Place::DeleteRoute => true,
            Place::AssignPodRange | Place::ChangeTag => true,
            _ => false,
        }
    }

    /// The parameters that make sense there.
    fn parameters(&self) -> &'static [&'static str] {
        match self {
            Place::Instances => &["page", "limit", "as"],
            Place::Instance(_) => &["as"],
            Place::Routes | Place::Route(_) => &["cluster"],
            _ => &[],
        }
    }
}

#[derive(Default)]
struct Query {
    page: Option<String>,
    limit: Option<usize>,
    owner: bool,
    cluster: Option<String>,
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
            ("cluster", name) => self.cluster = Some(name.to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::CloudOptions;

    const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    const PATHS: [&str; 22] = [
        "/v1/instances",
        "/v1/instances/find",
        "/v1/instances/i-0001",
        "/v1/instances/i-0001/stop",
        "/v1/instances/i-0001/start",
        "/v1/balancers",
        "/v1/balancers/find",
        "/v1/balancers/owners",
        "/v1/balancers/change",
        "/v1/balancers/lb-0001",
        "/v1/addresses",
        "/v1/routes",
        "/v1/routes/list",
        "/v1/routes/create",
        "/v1/routes/delete",
        "/v1/routes/rt-0001",
        "/v1/pod-ranges/assign",
        "/v1/tags/change",
        "/v1/faults",
        "/v1/faults/1",
        "/v1/calls",
        "/v1/latency",
    ];
    const ENDINGS: [&str; 8] = ["", "", "", "", "/", "/..", "%2F", "/é"];
    const QUERIES: [&str; 8] =
        ["", "?limit=2", "?page=i-0001", "?as=owner", "?%ff=%", "?&&=&", "?limit=2&limit=x", "?cluster=c"];
    const BODIES: [&str; 17] = [
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
        r#"{"cluster":"c"}"#,
        r#"{"name":"b","podRanges":["10.1.2.3/16"]}"#,
        r#"{"machine":{"id":"i-0001"},"range":"10.2.0.0/16"}"#,
        r#"{"cluster":"c","machine":{"name":"a"},"node":"n","destination":"10.1.2.3/24"}"#,
        r#"{"destination":"fd00::/64","machine":"i-0001"}"#,
        r#"{"labels":{"a":{"b":null}},"addresses":null}"#,
    ];

    #[tokio::test]
    async fn with_routes_of_the_kernel_every_call_takes_a_token() {
        let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
        let calls = [
            ("GET", "/v1/instances", ""),
            ("GET", "/v1/calls", ""),
            ("POST", "/v1/instances/find", r#"{"names":["a"]}"#),
            ("POST", "/v1/routes/list", r#"{"cluster":"c"}"#),
        ];
        for (always, shown, status) in [(true, "Bearer 0ther", 401), (true, "Bearer 0wner", 200), (false, "", 200)] {
            let door = Door::new("0wner".to_owned(), always);
            for (method, target, body) in calls {
                let request = Request::builder().method(method).uri(target).header("host", "localhost");
                let request = request.header("content-type", "application/json").header("authorization", shown);
                let reply = answer_at(&door, &cloud, request.body(Bytes::from_static(body.as_bytes())).unwrap()).await;
                assert_eq!(reply.status(), status, "{method} {target} {shown:?}");
            }
        }
    }

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
        for _ in 0..40_000 {
            let Some(request) = any_request(&mut chance) else { continue };
            let told = format!("{} {} {:?}", request.method(), request.uri(), request.body());
            let reply = answer(&cloud, request).await;
            let body: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
            let (status, refused) = (reply.status(), body["error"]["code"].is_string());
            assert!(status.is_success() != refused && !status.is_server_error(), "{told}: {status} {body}");
            good += usize::from(status.is_success());
        }
        assert!(good > 500, "only {good} requests made sense");
    }
}
