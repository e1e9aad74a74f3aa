//! The paths that are not about resources: discovery, OpenAPI, version, health, metrics.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};

use super::negotiate::{Wants, accept};
use super::path::Target;
use super::query::Query;
use super::respond::{Body, bytes_response, full, response, text_response, value_response};
use super::{debug, is_read};
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::{discovery, metrics, openapi};

/// What these endpoints look at.
pub(super) struct SiteRequest<'a> {
    pub(super) state: &'a State,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: &'a Query,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
}

pub(super) fn serve(request: &SiteRequest<'_>, target: Target) -> ApiResult<Response<Body>> {
    match target {
        Target::NoSuchResource => Err(ApiError::no_such_resource()),
        Target::CoreVersions => request.discovery(true),
        Target::Groups => request.discovery(false),
        Target::Group(name) => match discovery::group(&name) {
            Some(group) => request.value(&group),
            None => Ok(not_found()),
        },
        Target::Resources { group, version } => {
            request.only_reads()?;
            match discovery::resource_list(&group, &version) {
                Some(list) => request.value(&list),
                None => Err(ApiError::no_such_resource()),
            }
        }
        Target::Resource(_) | Target::Other => request.other(),
    }
}

/// The router's own 404.
pub(super) fn not_found() -> Response<Body> {
    text_response(StatusCode::NOT_FOUND, "404 page not found\n")
}

impl SiteRequest<'_> {
    fn only_reads(&self) -> ApiResult<()> {
        if is_read(self.method) { Ok(()) } else { Err(ApiError::method_not_allowed()) }
    }

    fn value(&self, value: &Value) -> ApiResult<Response<Body>> {
        let wants = Wants::for_errors(self.headers, self.query);
        Ok(value_response(StatusCode::OK, &wants, self.headers, value))
    }

    fn other(&self) -> ApiResult<Response<Body>> {
        let path = self.path.trim_end_matches('/');
        match path {
            "" | "/index.html" => self.value(&json!({"paths": PATHS})),
            "/version" => {
                self.only_reads()?;
                self.value(&VERSION)
            }
            "/metrics" => Ok(self.metrics()),
            "/openapi/v3" => Ok(self.openapi_index()),
            "/.well-known/openid-configuration" => self.value(&crate::auth::openid_configuration(self.state)),
            "/openid/v1/jwks" => self.value(&crate::auth::jwks(self.state)),
            _ if path.starts_with("/openapi/v3/") => Ok(self.openapi_document(&path["/openapi/v3/".len()..])),
            _ if path.starts_with("/debug/") && self.state.options.debug_endpoints => {
                debug::serve(self.state, self.method, path, self.body)
            }
            _ => Ok(self.health(path).unwrap_or_else(not_found)),
        }
    }

    // === Discovery ===

    fn discovery(&self, core: bool) -> ApiResult<Response<Body>> {
        if core {
            self.only_reads()?;
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
        accept(self.headers).first().is_some_and(|range| {
            range.param("as") == "APIGroupDiscoveryList"
                && range.param("g") == "apidiscovery.k8s.io"
                && range.param("v") == "v2"
        })
    }

    fn aggregated(&self, core: bool) -> Response<Body> {
        const TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let (document, tag) = &AGGREGATED[usize::from(core)];
        let unchanged = self.headers.get(IF_NONE_MATCH).is_some_and(|given| given == tag);
        let mut answer = if unchanged {
            response(StatusCode::NOT_MODIFIED, TYPE)
        } else {
            bytes_response(StatusCode::OK, TYPE, self.headers, document.clone())
        };
        let headers = answer.headers_mut();
        headers.insert(ETAG, tag.clone());
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        answer
    }

    // === OpenAPI ===

    fn openapi_index(&self) -> Response<Body> {
        bytes_response(StatusCode::OK, "text/plain; charset=utf-8", self.headers, openapi::index())
    }

    fn openapi_document(&self, path: &str) -> Response<Body> {
        match openapi::document(path) {
            Some(document) => {
                let mut answer = bytes_response(StatusCode::OK, "application/json", self.headers, document);
                if self.query.get("hash").is_some() {
                    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
                }
                answer
            }
            None => {
                let mut answer = response(StatusCode::NOT_FOUND, "text/plain; charset=utf-8");
                answer.headers_mut().remove(CONTENT_TYPE);
                answer
            }
        }
    }

    // === Health and metrics ===

    fn metrics(&self) -> Response<Body> {
        const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
        let mut answer = response(StatusCode::OK, TYPE);
        *answer.body_mut() = full(Bytes::from(metrics::render(self.state)));
        answer
    }

    /// `/healthz`, `/livez`, `/readyz`, and the one check each has.
    fn health(&self, path: &str) -> Option<Response<Body>> {
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        let name = parts.next().filter(|n| matches!(*n, "healthz" | "livez" | "readyz"))?;
        let text = match parts.next() {
            None if self.query.get("verbose").is_some() => format!("[+]ping ok\n{name} check passed\n"),
            None | Some("ping") => "ok".to_owned(),
            Some(_) => return None,
        };
        Some(text_response(StatusCode::OK, text))
    }
}

/// Document and ETag of aggregated discovery: groups, then core.
static AGGREGATED: LazyLock<[(Bytes, HeaderValue); 2]> = LazyLock::new(|| [aggregated(false), aggregated(true)]);

fn aggregated(core: bool) -> (Bytes, HeaderValue) {
    let document = Bytes::from(discovery::aggregated(core).to_string());
    let hash = ring::digest::digest(&ring::digest::SHA256, &document);
    let hex: String = hash.as_ref().iter().map(|b| format!("{b:02X}")).collect();
    let tag = HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""));
    (document, tag)
}

/// The Kubernetes version this server speaks like.
static VERSION: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "major": "1",
        "minor": "38",
        "emulationMajor": "1",
        "emulationMinor": "38",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "37",
        "gitVersion": concat!("v1.38.0-bowline.", env!("CARGO_PKG_VERSION")),
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
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/readyz/ping",
    "/version",
];
