//! API of the cloud, from request to response. The HTTP server and the in-process client share it, so both have the same faults
//! and the same responses; the in-process client only skips the socket.
//!
//! ```text
//!  GET    /v1/instances?page=TOKEN&limit=N     page of machines, by ID; as=owner: management call
//!  POST   /v1/instances/find                   {"ids":[…],"names":[…]}: an answer for every key
//!  POST   /v1/instances                        creates one
//!  GET, PUT, PATCH, DELETE /v1/instances/ID    reads, replaces, patches, deletes one
//!  POST   /v1/instances/ID/stop, …/start
//!  POST   /v1/balancers/find                   {"asking":[…]}: the resources of each Service
//!  POST   /v1/balancers/owners                 {"cluster":…,"after":…,"limit":N}: owners of load balancers and addresses
//!  POST   /v1/balancers/change                 {"asking":…,"change":{"call":"create-balancer",…}}: one change of one resource
//!  GET, POST /v1/balancers                     all, with their status; creates one
//!  GET, DELETE /v1/balancers/ID                reads, deletes one
//!  GET    /v1/addresses                        all addresses of load balancers
//!  POST   /v1/routes/list                      {"cluster":…}: its routes, by destination
//!  POST   /v1/routes/create                    {"cluster":…,"machine":{"id":…},"node":…,"destination":…}: the route
//!  POST   /v1/routes/delete                    {"cluster":…,"id":…}
//!  GET    /v1/routes?cluster=NAME              all tables, or one, and the problems of kernel routes
//!  POST   /v1/routes?cluster=NAME              creates one
//!  DELETE /v1/routes/ID?cluster=NAME           deletes one
//!  POST   /v1/pod-ranges/assign                {"machine":{"id":…},"range":…}
//!  POST   /v1/tags/change                      {"machine":{"id":…},"tag":…,"present":true}
//!  GET, POST, DELETE /v1/faults                faults; DELETE also as /v1/faults/NUMBER
//!  GET, DELETE /v1/calls                       call counters by kind
//!  GET, PUT /v1/latency                        {"millis":20}
//! ```
//!
//! User calls are `find`, `list` and `get` of instances, `find`, `owners` and `change` of load balancers, `list`, `create` and
//! `delete` of routes, `assign` of pod CIDRs and `change` of tags. They are counted, have latency, are subject to faults, and may
//! require a user token (`Authorization: Bearer TOKEN`). All other calls are management calls, which faults do not affect because
//! they also remove faults. Over HTTP, their writes require the owner's token in the same header (`access_control`).

mod balancers;
mod instances;
mod owner;
mod reply;
mod routes;
mod users;

use bytes::Bytes;
use http::{Method, Request};

use crate::access_control::AccessControl;
use crate::cloud::LocalCloud;
use crate::fleet::is_id;

pub use balancers::BalancerView;
pub(crate) use balancers::{ListAddressesReply, ListBalancersReply};
pub(crate) use instances::{Answer, AssignRequest, FindReply, FindRequest, Finding, Key, ListReply, TAG, TagRequest};
pub use owner::FaultInForce;
pub(crate) use owner::{FaultNumber, Latency};
pub(crate) use reply::{ApiError, too_large, truncated_body};
use reply::{ApiResult, Reply, created, empty, ok, parse};
pub(crate) use routes::{
    CreateRouteRequest, DeleteRouteRequest, ListRoutesReply, ListRoutesRequest, RouteTablesReply, RouteView,
};

/// Resource of a path.
enum Resource<'a> {
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
    AssignPodCidr,
    ChangeTag,
    Faults,
    Fault(u64),
    Calls,
    Latency,
}

/// Responds to an in-process request.
pub(crate) async fn respond(cloud: &LocalCloud, request: Request<Bytes>) -> Reply {
    counted(cloud, None, &request).await
}

/// Responds to an HTTP request, after access control.
pub(crate) async fn respond_over_http(access: &AccessControl, cloud: &LocalCloud, request: Request<Bytes>) -> Reply {
    counted(cloud, Some(access), &request).await
}

async fn counted(cloud: &LocalCloud, access: Option<&AccessControl>, request: &Request<Bytes>) -> Reply {
    let reply = handle(cloud, access, request).await.unwrap_or_else(ApiError::into_reply);
    cloud.count_bytes(request.body().len(), reply.body().len());
    reply
}

async fn handle(cloud: &LocalCloud, access: Option<&AccessControl>, request: &Request<Bytes>) -> ApiResult {
    access.map_or(Ok(()), |access| access.reject_web_pages(request))?;
    let resource = resource(request.uri().path())?;
    let query = UrlQuery::parse(request.uri().query().unwrap_or_default(), &resource)?;
    let (method, headers) = (request.method(), request.headers());
    match (access, resource.is_user_call(method, &query)) {
        // With kernel routes but without user tokens, only the owner may make user calls.
        (Some(access), true) if access.always && cloud.token_file().is_none() => {
            access.authenticate_owner(method, headers)?
        }
        (_, true) => users::authenticate(cloud, headers)?,
        (Some(access), false) => access.authenticate_owner(method, headers)?,
        (None, false) => {}
    }
    match (request.method(), &resource) {
        (&Method::GET, Resource::Instances) => instances::list(cloud, &query).await,
        (&Method::POST, Resource::Find) => instances::find(cloud, parse(request.body())?).await,
        (&Method::GET, Resource::Instance(id)) => instances::get(cloud, id, query.owner).await,
        (&Method::POST, Resource::FindBalancers) => balancers::find(cloud, parse(request.body())?).await,
        (&Method::POST, Resource::Owners) => balancers::owners(cloud, parse(request.body())?).await,
        (&Method::POST, Resource::Change) => balancers::change(cloud, parse(request.body())?).await,
        (&Method::POST, Resource::ListRoutes) => routes::list(cloud, parse(request.body())?).await,
        (&Method::POST, Resource::CreateRoute) => routes::create(cloud, parse(request.body())?).await,
        (&Method::POST, Resource::DeleteRoute) => routes::delete(cloud, parse(request.body())?).await,
        (&Method::POST, Resource::AssignPodCidr) => instances::assign(cloud, parse(request.body())?).await,
        (&Method::POST, Resource::ChangeTag) => instances::tag(cloud, parse(request.body())?).await,
        (method, Resource::Routes | Resource::Route(_)) => {
            routes::manage(cloud, method, &resource, &query, request.body())
        }
        (method, resource) => manage(cloud, method, resource, request.body()),
    }
}

/// Management calls.
fn manage(cloud: &LocalCloud, method: &Method, resource: &Resource<'_>, body: &Bytes) -> ApiResult {
    match (method, resource) {
        (&Method::POST, Resource::Instances) => created(&cloud.add(parse(body)?)?),
        (&Method::PUT, Resource::Instance(id)) => instances::replace(cloud, id, parse(body)?),
        (&Method::PATCH, Resource::Instance(id)) => instances::patch(cloud, id, parse(body)?),
        (&Method::DELETE, Resource::Instance(id)) => empty(cloud.delete(id)),
        (&Method::POST, Resource::Stop(id)) => empty(cloud.stop(id)),
        (&Method::POST, Resource::Start(id)) => empty(cloud.start(id)),
        (&Method::GET, Resource::Balancers) => ok(&balancers::all(cloud)),
        (&Method::POST, Resource::Balancers) => created(&cloud.add_balancer(parse(body)?)?),
        (&Method::GET, Resource::Balancer(id)) => ok(&balancers::view(cloud, cloud.balancer(id)?)),
        (&Method::DELETE, Resource::Balancer(id)) => empty(cloud.delete_balancer(id)),
        (&Method::GET, Resource::Addresses) => ok(&ListAddressesReply { addresses: cloud.addresses() }),
        (&Method::GET, Resource::Faults) => ok(&owner::faults_in_force(cloud)),
        (&Method::POST, Resource::Faults) => owner::inject(cloud, parse(body)?),
        (&Method::DELETE, Resource::Faults) => owner::repair_all(cloud),
        (&Method::DELETE, Resource::Fault(number)) => owner::repair(cloud, *number),
        (&Method::GET, Resource::Calls) => ok(&cloud.calls()),
        (&Method::DELETE, Resource::Calls) => owner::reset_calls(cloud),
        (&Method::GET, Resource::Latency) => ok(&Latency { millis: cloud.latency().as_millis() as u64 }),
        (&Method::PUT, Resource::Latency) => owner::set_latency(cloud, &parse(body)?),
        (method, resource) => Err(ApiError::wrong_method(method, resource.methods())),
    }
}

// ---- routing

fn resource(path: &str) -> Result<Resource<'_>, ApiError> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    Ok(match segments.as_slice() {
        ["v1", "instances"] => Resource::Instances,
        ["v1", "instances", "find"] => Resource::Find,
        ["v1", "instances", id] => Resource::Instance(id),
        ["v1", "instances", id, "stop"] => Resource::Stop(id),
        ["v1", "instances", id, "start"] => Resource::Start(id),
        ["v1", "balancers"] => Resource::Balancers,
        ["v1", "balancers", "find"] => Resource::FindBalancers,
        ["v1", "balancers", "owners"] => Resource::Owners,
        ["v1", "balancers", "change"] => Resource::Change,
        ["v1", "balancers", id] => Resource::Balancer(id),
        ["v1", "addresses"] => Resource::Addresses,
        ["v1", "routes"] => Resource::Routes,
        ["v1", "routes", "list"] => Resource::ListRoutes,
        ["v1", "routes", "create"] => Resource::CreateRoute,
        ["v1", "routes", "delete"] => Resource::DeleteRoute,
        ["v1", "routes", id] => Resource::Route(id),
        ["v1", "pod-ranges", "assign"] => Resource::AssignPodCidr,
        ["v1", "tags", "change"] => Resource::ChangeTag,
        ["v1", "faults"] => Resource::Faults,
        ["v1", "faults", number] => Resource::Fault(number.parse().map_err(|_| ApiError::no_fault(number))?),
        ["v1", "calls"] => Resource::Calls,
        ["v1", "latency"] => Resource::Latency,
        _ => return Err(ApiError::no_such_path(path)),
    })
}

impl Resource<'_> {
    /// Supported methods, for the header `Allow`.
    fn methods(&self) -> &'static str {
        match self {
            Resource::Instances | Resource::Balancers | Resource::Routes => "GET, POST",
            Resource::Find | Resource::Stop(_) | Resource::Start(_) => "POST",
            Resource::FindBalancers | Resource::Owners | Resource::Change => "POST",
            Resource::ListRoutes | Resource::CreateRoute | Resource::DeleteRoute => "POST",
            Resource::AssignPodCidr | Resource::ChangeTag => "POST",
            Resource::Balancer(_) => "GET, DELETE",
            Resource::Addresses => "GET",
            Resource::Instance(_) => "GET, PUT, PATCH, DELETE",
            Resource::Faults => "GET, POST, DELETE",
            Resource::Fault(_) | Resource::Route(_) => "DELETE",
            Resource::Calls => "GET, DELETE",
            Resource::Latency => "GET, PUT",
        }
    }

    /// Whether it is a user call.
    fn is_user_call(&self, method: &Method, query: &UrlQuery) -> bool {
        match self {
            Resource::Instances | Resource::Instance(_) => method == Method::GET && !query.owner,
            Resource::Find | Resource::FindBalancers | Resource::Owners | Resource::Change => true,
            Resource::ListRoutes | Resource::CreateRoute | Resource::DeleteRoute => true,
            Resource::AssignPodCidr | Resource::ChangeTag => true,
            _ => false,
        }
    }

    /// Supported query parameters.
    fn parameters(&self) -> &'static [&'static str] {
        match self {
            Resource::Instances => &["page", "limit", "as"],
            Resource::Instance(_) => &["as"],
            Resource::Routes | Resource::Route(_) => &["cluster"],
            _ => &[],
        }
    }
}

/// Query parameters of a request.
#[derive(Default)]
struct UrlQuery {
    page: Option<String>,
    limit: Option<usize>,
    owner: bool,
    cluster: Option<String>,
}

impl UrlQuery {
    fn parse(text: &str, resource: &Resource<'_>) -> Result<UrlQuery, ApiError> {
        let mut query = UrlQuery::default();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            if !resource.parameters().contains(&&*key) {
                return Err(ApiError::invalid(format!("unknown query parameter {key:?}")));
            }
            query.set(&key, &value)?;
        }
        Ok(query)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ApiError> {
        match (key, value) {
            ("page", "") => self.page = None,
            // The page token is the last ID of the previous page.
            ("page", token) if is_id(token) => self.page = Some(token.to_owned()),
            ("page", token) => return Err(ApiError::invalid(format!("invalid page token {token:?}"))),
            ("cluster", name) => self.cluster = Some(name.to_owned()),
            ("as", "owner") => self.owner = true,
            ("as", other) => return Err(ApiError::invalid(format!("as={other:?}: only as=owner is supported"))),
            (_, number) => match number.parse() {
                Ok(limit) if limit > 0 => self.limit = Some(limit),
                _ => return Err(ApiError::invalid(format!("limit={number:?}: must be a number of at least 1"))),
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
    async fn with_kernel_routes_every_call_requires_a_token() {
        let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
        let calls = [
            ("GET", "/v1/instances", ""),
            ("GET", "/v1/calls", ""),
            ("POST", "/v1/instances/find", r#"{"names":["a"]}"#),
            ("POST", "/v1/routes/list", r#"{"cluster":"c"}"#),
        ];
        for (always, token, status) in [(true, "Bearer 0ther", 401), (true, "Bearer 0wner", 200), (false, "", 200)] {
            let access = AccessControl::new("0wner".to_owned(), always);
            for (method, target, body) in calls {
                let request = Request::builder().method(method).uri(target).header("host", "localhost");
                let request = request.header("content-type", "application/json").header("authorization", token);
                let reply =
                    respond_over_http(&access, &cloud, request.body(Bytes::from_static(body.as_bytes())).unwrap())
                        .await;
                assert_eq!(reply.status(), status, "{method} {target} {token:?}");
            }
        }
    }

    fn any_request(rng: &mut fastrand::Rng) -> Option<Request<Bytes>> {
        // Most requests have a valid path and no query, or few would be valid.
        let query = if rng.bool() { "" } else { rng.choice(QUERIES)? };
        let target = format!("{}{}{query}", rng.choice(PATHS)?, rng.choice(ENDINGS)?);
        let request = Request::builder().method(rng.choice(METHODS)?).uri(target);
        request.body(Bytes::from_static(rng.choice(BODIES)?.as_bytes())).ok()
    }

    #[tokio::test]
    async fn any_request_has_a_json_response() {
        let cloud = LocalCloud::open(CloudOptions { page_size: 3, ..CloudOptions::default() }).unwrap();
        let mut rng = fastrand::Rng::with_seed(7);
        let mut successes = 0;
        for _ in 0..40_000 {
            let Some(request) = any_request(&mut rng) else { continue };
            let summary = format!("{} {} {:?}", request.method(), request.uri(), request.body());
            let reply = respond(&cloud, request).await;
            let body: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
            let (status, is_error) = (reply.status(), body["error"]["code"].is_string());
            assert!(status.is_success() != is_error && !status.is_server_error(), "{summary}: {status} {body}");
            successes += usize::from(status.is_success());
        }
        assert!(successes > 500, "only {successes} requests succeeded");
    }
}
