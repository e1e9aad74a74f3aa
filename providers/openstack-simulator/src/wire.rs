//! Requests as the services read them, and answers as they write them.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::records::{Record, object};

/// A service of OpenStack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Neutron.
    Network,
    /// Octavia.
    LoadBalancer,
    /// Barbican.
    KeyManager,
}

impl Service {
    /// All of them.
    pub const ALL: [Service; 5] =
        [Service::Identity, Service::Compute, Service::Network, Service::LoadBalancer, Service::KeyManager];

    /// What it is called in a catalog, and where it is below the simulator's root.
    pub fn kind(self) -> &'static str {
        match self {
            Service::Identity => "identity",
            Service::Compute => "compute",
            Service::Network => "network",
            Service::LoadBalancer => "load-balancer",
            Service::KeyManager => "key-manager",
        }
    }
}

/// A request, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) service: Service,
    /// Scheme and authority that it was sent to.
    pub(crate) origin: String,
    /// Below the service's root.
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    /// `None` if no service is there. A first segment that names none is a prefix, as of a region or a proxy.
    pub(crate) fn read(request: Request<Bytes>) -> Option<Call> {
        let (parts, body) = request.into_parts();
        let origin = origin(&parts);
        let mut path: Vec<String> = parts.uri.path().split('/').map(decoded).collect();
        path.retain(|segment| !segment.is_empty());
        let (at, service) = path.iter().take(2).enumerate().find_map(|(at, segment)| {
            Some((at, Service::ALL.into_iter().find(|service| service.kind() == segment)?))
        })?;
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let path = path.split_off(at + 1);
        Some(Call { method: parts.method, service, origin, path, query, headers: parts.headers, body })
    }

    /// The path without the version: `["pools", "1234", "members"]`.
    pub(crate) fn resource(&self) -> Vec<&str> {
        let is_version = |segment: &&String| segment.starts_with('v') && segment.contains(|c: char| c.is_ascii_digit());
        let skipped = self.path.iter().take(1).filter(is_version).count();
        let rest = self.path.iter().skip(skipped).map(String::as_str);
        rest.skip_while(|segment| *segment == "lbaas").collect()
    }

    /// What kind of call it is: `pools/{id}/members`.
    pub(crate) fn template(&self) -> String {
        let segments = self.resource();
        let shown = segments.iter().enumerate().map(|(at, segment)| match at {
            0 => segment,
            _ if WORDS.contains(segment) => segment,
            _ => "{id}",
        });
        shown.collect::<Vec<_>>().join("/")
    }

    /// The URL of a resource of this service.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{}/{path}", self.origin, self.service.kind())
    }

    pub(crate) fn is_read(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The values of a query parameter, which may be given several times.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a query parameter.
    pub(crate) fn value<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.values(name).next()
    }

    /// The object of this name in the body; `None` if the body is no JSON or has none.
    pub(crate) fn object(&self, name: &str) -> Option<Record> {
        self.json()?.get(name).filter(|value| value.is_object()).cloned().map(object)
    }

    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// What follows an ID, or stands in place of one.
const WORDS: [&str; 13] = [
    "detail",
    "members",
    "tags",
    "add_extraroutes",
    "remove_extraroutes",
    "details.json",
    "details",
    "tokens",
    "catalog",
    "status",
    "stats",
    "action",
    "defaults",
];

fn origin(parts: &http::request::Parts) -> String {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = parts.uri.authority().map(|authority| authority.as_str()).or(host).unwrap_or("openstack.invalid");
    format!("{}://{authority}", parts.uri.scheme_str().unwrap_or("http"))
}

/// A path segment without `%41`.
fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

/// What is in an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Nothing,
    Json(Value),
    Text(String),
}

/// An answer, or one that says why not.
pub(crate) type Outcome = Result<Reply, Reply>;

impl Reply {
    pub(crate) fn json(status: u16, body: Value) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Json(body) }
    }

    pub(crate) fn text(status: u16, body: impl Into<String>) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Text(body.into()) }
    }

    pub(crate) fn empty(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Nothing }
    }

    pub(crate) fn with(mut self, header: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((header, value.into()));
        self
    }

    pub(crate) fn into_response(self) -> Response<Bytes> {
        let (kind, body) = match self.body {
            Body::Nothing => (None, Bytes::new()),
            Body::Json(body) => (Some("application/json"), Bytes::from(body.to_string())),
            Body::Text(body) => (Some("text/plain; charset=UTF-8"), Bytes::from(body)),
        };
        let mut builder = Response::builder().status(self.status);
        for (name, value) in kind.map(|kind| ("content-type", kind.to_owned())).into_iter().chain(self.headers) {
            builder = builder.header(name, value);
        }
        builder.body(body).unwrap_or_else(|_| {
            let mut broken = Response::new(Bytes::new());
            *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            broken
        })
    }
}
