//! Non-resource paths: discovery, OpenAPI, version, health and metrics.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::debug;
use super::negotiate::{MediaRange, Negotiated, Offer, accept};
use super::path::{self, Target};
use super::query::Query;
use super::respond::{Body, bytes_response, full, response, text_response, value_response};
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::{auth, discovery, go_text, metrics, openapi};

/// A request for a non-resource path.
pub(super) struct NonResourceRequest<'a> {
    pub(super) state: &'a State,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: &'a Query,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
}

pub(super) fn serve(request: &NonResourceRequest<'_>, target: Target) -> ApiResult<Response<Body>> {
    if let (Target::NoSuchResource | Target::Other, Some(why)) = (&target, path::unsupported(request.path)) {
        return Err(ApiError::not_implemented(why));
    }
    match target {
        Target::NoSuchResource => Err(ApiError::no_such_resource()),
        Target::CoreVersions => request.discovery(true),
        Target::Groups => request.discovery(false),
        Target::Group(name) => match discovery::group(&name) {
            Some(group) => request.value(&group),
            None => Ok(not_found()),
        },
        Target::Resources { group, version } => {
            request.check_route(Offer::Object)?;
            match discovery::resource_list(&group, &version) {
                Some(list) => request.value(&list),
                None => Err(ApiError::no_such_resource()),
            }
        }
        Target::Resource(_) | Target::Proxy(..) | Target::Other => request.other(),
    }
}

/// The 404 of upstream's router.
pub(super) fn not_found() -> Response<Body> {
    text_response(StatusCode::NOT_FOUND, "404 page not found\n")
}

impl NonResourceRequest<'_> {
    /// Checks method and Accept header as upstream's router does: it accepts GET only, not HEAD.
    fn check_route(&self, offer: Offer) -> ApiResult<()> {
        match *self.method {
            Method::GET => offer.check(self.headers),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// An object in the negotiated representation.
    fn value(&self, value: &Value) -> ApiResult<Response<Body>> {
        let negotiated = Negotiated::untransformed(self.headers, self.query)?;
        Ok(value_response(StatusCode::OK, &negotiated, self.headers, value))
    }

    /// Indented JSON regardless of the Accept header, as upstream sends documents that are not API objects.
    fn raw(&self, value: &Value) -> Response<Body> {
        let negotiated = Negotiated { pretty: true, ..Negotiated::default() };
        value_response(StatusCode::OK, &negotiated, self.headers, value)
    }

    fn other(&self) -> ApiResult<Response<Body>> {
        match self.path {
            "/" | "/index.html" => Ok(self.raw(&json!({"paths": PATHS}))),
            "/version" | "/version/" => {
                self.check_route(Offer::Json)?;
                Ok(self.raw(&VERSION))
            }
            "/metrics" => Ok(self.metrics()),
            "/openapi/v2" | "/openapi/v2/" => Ok(self.openapi_v2()),
            "/openapi/v3" | "/openapi/v3/" => Ok(self.openapi_index()),
            "/.well-known/openid-configuration" => {
                self.check_route(Offer::Json)?;
                Ok(self.issuer_document("application/json", &auth::openid_configuration(self.state)))
            }
            "/openid/v1/jwks" => {
                self.check_route(Offer::KeySet)?;
                Ok(self.issuer_document("application/jwk-set+json", &auth::jwks(self.state)))
            }
            path if path.starts_with("/openapi/v3/") => Ok(self.openapi_document(&path["/openapi/v3/".len()..])),
            path if path.starts_with("/debug/") && self.state.options.debug_endpoints => {
                debug::serve(self.state, self.method, path.trim_end_matches('/'), self.body)
            }
            path => Ok(self.health(path).unwrap_or_else(not_found)),
        }
    }

    /// One of the two OpenID Connect documents of the token issuer, which clients may cache for an hour.
    fn issuer_document(&self, content_type: &'static str, document: &Value) -> Response<Body> {
        let mut response = bytes_response(StatusCode::OK, content_type, self.headers, document.to_string().into());
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        response
    }

    // === Discovery ===

    fn discovery(&self, core: bool) -> ApiResult<Response<Body>> {
        if core {
            self.check_route(Offer::Object)?;
        }
        if self.wants_aggregated() {
            return Ok(self.aggregated(core));
        }
        match core {
            true => self.value(&discovery::api_versions(&self.state.address)),
            false => self.value(&discovery::group_list()),
        }
    }

    fn wants_aggregated(&self) -> bool {
        accept(self.headers).iter().any(|range| {
            range.param("as") == "APIGroupDiscoveryList"
                && range.param("g") == "apidiscovery.k8s.io"
                && range.param("v") == "v2"
        })
    }

    fn aggregated(&self, core: bool) -> Response<Body> {
        const TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let (document, tag) = &AGGREGATED[usize::from(core)];
        let unchanged = self.headers.get(IF_NONE_MATCH).is_some_and(|given| given == tag);
        let mut response = match unchanged {
            true => without_type(StatusCode::NOT_MODIFIED),
            false => bytes_response(StatusCode::OK, TYPE, self.headers, document.clone()),
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, tag.clone());
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        response
    }

    // === OpenAPI ===

    fn openapi_v2(&self) -> Response<Body> {
        let version = VERSION["gitVersion"].as_str().unwrap_or_default();
        let Some((media_type, document)) = openapi::v2::document(&accept(self.headers), version) else {
            return without_type(StatusCode::NOT_ACCEPTABLE);
        };
        let mut response = bytes_response(StatusCode::OK, media_type, self.headers, document);
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response
    }

    fn openapi_index(&self) -> Response<Body> {
        bytes_response(StatusCode::OK, "text/plain; charset=utf-8", self.headers, openapi::index())
    }

    fn openapi_document(&self, path: &str) -> Response<Body> {
        let Some((document, hash)) = openapi::document(path) else {
            return without_type(StatusCode::NOT_FOUND);
        };
        if !accept(self.headers).iter().any(MediaRange::allows_json) && self.headers.contains_key(ACCEPT) {
            return without_type(StatusCode::NOT_ACCEPTABLE);
        }
        let mut response = match self.query.get("hash").filter(|given| !given.is_empty()) {
            Some(given) if given != hash => moved(&format!("/openapi/v3/{path}?hash={hash}")),
            given => self.cached_document(document, hash, given.is_some()),
        };
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
        response.headers_mut().insert(ETAG, quoted(hash));
        response
    }

    /// The document, or 304 if the client has it. A document requested by its hash is immutable.
    fn cached_document(&self, document: Bytes, hash: &str, immutable: bool) -> Response<Body> {
        let mut response = match self.client_has(&quoted(hash)) {
            true => without_type(StatusCode::NOT_MODIFIED),
            false => bytes_response(StatusCode::OK, "application/json", self.headers, document),
        };
        if immutable {
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        }
        response
    }

    fn client_has(&self, tag: &HeaderValue) -> bool {
        let given = self.headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()).unwrap_or_default();
        given.split(',').map(str::trim).any(|given| given == "*" || given.trim_start_matches("W/") == tag)
    }

    // === Health and metrics ===

    fn metrics(&self) -> Response<Body> {
        const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
        let mut response = response(StatusCode::OK, TYPE);
        *response.body_mut() = full(Bytes::from(metrics::render(self.state)));
        response
    }

    /// `/healthz`, `/livez` and `/readyz`, with their single check `ping`.
    fn health(&self, path: &str) -> Option<Response<Body>> {
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let name = parts.next().filter(|n| matches!(*n, "healthz" | "livez" | "readyz"))?;
        let text = match parts.next() {
            None if self.query.get("verbose").is_some() => self.checks(name),
            None | Some("ping") => "ok".to_owned(),
            Some(_) => return None,
        };
        Some(text_response(StatusCode::OK, text))
    }
}

impl NonResourceRequest<'_> {
    /// The verbose output: each check, excluded checks, and a warning about unknown checks in `exclude`.
    fn checks(&self, name: &str) -> String {
        let excluded: BTreeSet<&str> = self.query.all("exclude").into_iter().collect();
        let ping = if excluded.contains("ping") { "[+]ping excluded: ok\n" } else { "[+]ping ok\n" };
        let unknown: Vec<String> = excluded.into_iter().filter(|e| *e != "ping").map(go_text::quote).collect();
        let warning = match unknown.is_empty() {
            true => String::new(),
            false => {
                let unknown = unknown.join(",");
                format!("warn: some health checks cannot be excluded: no matches for {unknown}\n")
            }
        };
        format!("{ping}{warning}{name} check passed\n")
    }
}

/// A response without a body.
fn without_type(code: StatusCode) -> Response<Body> {
    let mut response = response(code, "");
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// A permanent redirect.
fn moved(to: &str) -> Response<Body> {
    let mut response = response(StatusCode::MOVED_PERMANENTLY, "text/html; charset=utf-8");
    if let Ok(location) = HeaderValue::from_str(to) {
        response.headers_mut().insert(LOCATION, location);
    }
    *response.body_mut() = full(Bytes::from(format!("<a href=\"{to}\">Moved Permanently</a>.\n\n")));
    response
}

/// An entity tag.
fn quoted(text: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{text}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Document and ETag of aggregated discovery: groups, then core.
static AGGREGATED: LazyLock<[(Bytes, HeaderValue); 2]> = LazyLock::new(|| [aggregated(false), aggregated(true)]);

fn aggregated(core: bool) -> (Bytes, HeaderValue) {
    let document = Bytes::from(discovery::aggregated(core).to_string());
    let hash = ring::digest::digest(&ring::digest::SHA256, &document);
    let hex: String = hash.as_ref().iter().map(|b| format!("{b:02X}")).collect();
    (document, quoted(&hex))
}

/// Minor version of the Kubernetes 1.x API server that this server emulates and reports.
pub const KUBERNETES_MINOR: u32 = 38;

/// The Kubernetes version that this server emulates.
static VERSION: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "major": "1",
        "minor": KUBERNETES_MINOR.to_string(),
        "emulationMajor": "1",
        "emulationMinor": KUBERNETES_MINOR.to_string(),
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": (KUBERNETES_MINOR - 1).to_string(),
        "gitVersion": format!("v1.{KUBERNETES_MINOR}.0-bowline.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": concat!("linux/", "amd64"),
    })
});

const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/readyz/ping",
    "/version",
];
