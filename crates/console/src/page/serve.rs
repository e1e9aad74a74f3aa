//! Server of the page.

use std::net::SocketAddr;
use std::sync::Arc;

use bowline_runtime::Shutdown;
use bowline_serving::answer::{self, Answer};
use bowline_serving::{ANY, AccessControl, BindError, IncomingRequest, READ_METHODS, Router, Server};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, X_FRAME_OPTIONS,
};
use http::{Method, StatusCode};
use serde_json::json;

use super::assets::ASSETS;
use super::{Action, FeedError, PageOptions};
use crate::Position;

/// Header with the token of the page's URL.
pub const TOKEN_HEADER: &str = "x-bowline-token";

/// The page loads its own files and nothing else, has no inline code, and cannot be embedded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Maximum size of an action in bytes.
const MAX_ACTION: usize = 4096;

/// A failure to serve the page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Without random numbers, the token could be guessed.
    #[error("the operating system returned no random numbers for the token of the page")]
    NoRandomNumbers,
}

/// A bound server of the page.
pub struct PageServer {
    server: Server,
    token: String,
    options: PageOptions,
}

impl PageServer {
    /// Binds a loopback address. Must be called in a Tokio runtime.
    pub fn bind(address: SocketAddr, options: PageOptions) -> Result<PageServer, PageError> {
        let server = Server::bind_plain(address)?;
        Ok(PageServer { server, token: random_token()?, options })
    }

    /// Returns the URL with the token, for the user who started the program.
    pub fn url(&self) -> String {
        format!("http://{}/#token={}", self.server.address(), self.token)
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Serves until shutdown is requested.
    pub async fn serve(self, shutdown: Shutdown) {
        let guard = Guard { token: self.token, port: self.server.address().port() };
        let site = Arc::new(Site { guard, options: self.options });
        let oversized = || *rejection(StatusCode::PAYLOAD_TOO_LARGE, "the action is too large");
        // One route for all paths, so that a response to an unknown one has the same headers.
        let router = Router::new().oversized(oversized).under("/", ANY, move |request| {
            let site = site.clone();
            async move { site.answer(request).await.unwrap_or_else(|rejection| *rejection) }
        });
        let Ok(()) = self.server.serve(router, AccessControl::open(), shutdown).await;
    }
}

/// 160 random bits in hexadecimal digits.
fn random_token() -> Result<String, PageError> {
    let mut random = [0_u8; 20];
    // The generator of the operating system, because the token is a credential.
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random);
    filled.map_err(|_| PageError::NoRandomNumbers)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Checks of each request.
#[derive(Clone)]
struct Guard {
    token: String,
    port: u16,
}

impl Guard {
    /// Rejects a request that was addressed to another host: a browser was directed here by DNS rebinding.
    fn check_host(&self, request: &IncomingRequest) -> Result<(), Box<Answer>> {
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let port = format!(":{}", self.port);
        let name = host.strip_suffix(port.as_str()).unwrap_or_default();
        match matches!(name, "localhost" | "[::1]")
            || name.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        {
            true => Ok(()),
            false => Err(rejection(StatusCode::MISDIRECTED_REQUEST, "open the page at its loopback address")),
        }
    }

    /// Rejects a request without the token, and one that a page of another origin sends.
    fn check(&self, request: &IncomingRequest) -> Result<(), Box<Answer>> {
        let token = request.headers.get(TOKEN_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        // Comparing digests takes the same time wherever the tokens differ.
        let digest = |token: &[u8]| ring::digest::digest(&ring::digest::SHA256, token);
        if digest(token).as_ref() != digest(self.token.as_bytes()).as_ref() {
            return Err(rejection(StatusCode::UNAUTHORIZED, "open the URL with the token that the program printed"));
        }
        match is_same_origin(request) {
            true => Ok(()),
            false => Err(rejection(StatusCode::FORBIDDEN, "only this page may send requests")),
        }
    }
}

/// Whether the request comes from this page, or from a program that is no browser. No other page knows the token; the headers that
/// browsers add are a second line of defence, for a token that was disclosed.
fn is_same_origin(request: &IncomingRequest) -> bool {
    let header = |name: HeaderName| request.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = header(HOST).unwrap_or_default();
    let is_own = header(ORIGIN).is_none_or(|origin| origin.strip_prefix("http://") == Some(host));
    let site = header(HeaderName::from_static("sec-fetch-site"));
    is_own && site.is_none_or(|site| matches!(site, "same-origin" | "none"))
}

fn rejection(status: StatusCode, message: &str) -> Box<Answer> {
    Box::new(secured(answer::json(status, &json!({ "error": message }))))
}

/// Adds the headers that every response has.
fn secured(answer: Answer) -> Answer {
    let headers = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_FRAME_OPTIONS, "DENY"),
        // The next program at this address may be another version.
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    headers.into_iter().fold(answer::no_sniff(answer), |answer, (name, value)| answer::with_header(answer, name, value))
}

/// What is served.
struct Site {
    guard: Guard,
    options: PageOptions,
}

impl Site {
    async fn answer(&self, request: IncomingRequest) -> Result<Answer, Box<Answer>> {
        self.guard.check_host(&request)?;
        match request.path.as_str() {
            "/session" => {
                allow(&request, READ_METHODS)?;
                self.guard.check(&request)?;
                Ok(secured(answer::json(StatusCode::OK, &json!(self.options.session))))
            }
            "/document" => {
                allow(&request, READ_METHODS)?;
                self.guard.check(&request)?;
                Ok(document(self.options.feed.changes(&Position::of_query(&request.query)).await))
            }
            "/actions" => {
                allow(&request, &[Method::POST])?;
                self.guard.check(&request)?;
                self.act(&request).await
            }
            path => {
                let asset = ASSETS.iter().find(|asset| asset.path == path);
                let asset = asset.ok_or_else(|| rejection(StatusCode::NOT_FOUND, "there is no such file"))?;
                allow(&request, READ_METHODS)?;
                Ok(secured(answer::of_type(StatusCode::OK, asset.content_type, asset.body)))
            }
        }
    }

    /// Performs the action in the body of a request.
    async fn act(&self, request: &IncomingRequest) -> Result<Answer, Box<Answer>> {
        let message = "this page is read-only; use kubectl and the cloud's own tools";
        let actions = self.options.actions.as_ref().ok_or_else(|| rejection(StatusCode::NOT_FOUND, message))?;
        if !is_json(request) {
            // A form of another page can be sent without a preflight request, JSON cannot.
            return Err(rejection(StatusCode::UNSUPPORTED_MEDIA_TYPE, "an action is application/json"));
        }
        if request.body.len() > MAX_ACTION {
            return Err(rejection(StatusCode::PAYLOAD_TOO_LARGE, "the action is too large"));
        }
        let action = serde_json::from_slice::<Action>(&request.body);
        let action = action.map_err(|error| rejection(StatusCode::BAD_REQUEST, &format!("invalid action: {error}")))?;
        match actions.perform(action).await {
            Ok(message) => Ok(secured(answer::json(StatusCode::OK, &json!({ "message": message })))),
            Err(error) => Err(rejection(StatusCode::CONFLICT, &error)),
        }
    }
}

/// Rejects a request with another method.
fn allow(request: &IncomingRequest, methods: &[Method]) -> Result<(), Box<Answer>> {
    if methods.contains(&request.method) {
        return Ok(());
    }
    let mut answer = rejection(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed");
    let names = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    answer.headers_mut().extend(HeaderValue::from_str(&names).map(|names| (ALLOW, names)));
    Err(answer)
}

fn is_json(request: &IncomingRequest) -> bool {
    let content_type = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn document(changes: Result<bytes::Bytes, FeedError>) -> Answer {
    match changes {
        Ok(json) => secured(answer::of_type(StatusCode::OK, "application/json", json)),
        Err(FeedError(error)) => *rejection(StatusCode::BAD_GATEWAY, &error),
    }
}
