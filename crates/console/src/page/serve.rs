//! Server of the page.

use std::net::SocketAddr;

use bowline_runtime::Shutdown;
use bowline_serving::answer::{self, Answer};
use bowline_serving::{AccessControl, BindError, IncomingRequest, READ_METHODS, Router, Server};
use http::header::{CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY, X_FRAME_OPTIONS};
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

/// Methods of an action.
const POST: &[Method] = &[Method::POST];

/// A bound server of the page.
pub struct PageServer {
    server: Server,
    token: String,
    options: PageOptions,
}

impl PageServer {
    /// Binds a loopback address. Must be called in a Tokio runtime.
    pub fn bind(address: SocketAddr, options: PageOptions) -> Result<PageServer, BindError> {
        let server = Server::bind_plain(address)?;
        Ok(PageServer { server, token: random_token(), options })
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
        let router = router(&self.options, &guard);
        let Ok(()) = self.server.serve(router, AccessControl::open(), shutdown).await;
    }
}

/// 160 random bits in hexadecimal digits.
fn random_token() -> String {
    let mut random = [0_u8; 20];
    // The generator of the operating system, because the token is a credential.
    if ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random).is_err() {
        fastrand::fill(&mut random);
    }
    random.iter().map(|byte| format!("{byte:02x}")).collect()
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

    /// Rejects a request without the token.
    fn check(&self, request: &IncomingRequest) -> Result<(), Box<Answer>> {
        self.check_host(request)?;
        let token = request.headers.get(TOKEN_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
        // Comparing digests takes the same time wherever the tokens differ.
        let digest = |token: &[u8]| ring::digest::digest(&ring::digest::SHA256, token);
        match digest(token).as_ref() == digest(self.token.as_bytes()).as_ref() {
            true => Ok(()),
            false => Err(rejection(StatusCode::UNAUTHORIZED, "open the URL with the token that the program printed")),
        }
    }
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
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    headers.into_iter().fold(answer::no_sniff(answer), |answer, (name, value)| answer::with_header(answer, name, value))
}

fn router(options: &PageOptions, guard: &Guard) -> Router {
    let mut router = Router::new();
    for asset in ASSETS {
        let guard = guard.clone();
        router = router.at(asset.path, READ_METHODS, move |request| {
            let file = || secured(answer::of_type(StatusCode::OK, asset.content_type, asset.body));
            std::future::ready(guard.check_host(&request).map_or_else(|rejection| *rejection, |()| file()))
        });
    }
    let (session, check) = (options.session.clone(), guard.clone());
    router = router.at("/session", READ_METHODS, move |request| {
        let session = || secured(answer::json(StatusCode::OK, &json!(session)));
        std::future::ready(check.check(&request).map_or_else(|rejection| *rejection, |()| session()))
    });
    let (feed, check) = (options.feed.clone(), guard.clone());
    router = router.at("/document", READ_METHODS, move |request| {
        let (feed, check) = (feed.clone(), check.clone());
        async move {
            match check.check(&request) {
                Ok(()) => document(feed.changes(&position(&request)).await),
                Err(rejection) => *rejection,
            }
        }
    });
    let (actions, check) = (options.actions.clone(), guard.clone());
    router.at("/actions", POST, move |request| {
        let (actions, check) = (actions.clone(), check.clone());
        async move {
            if let Err(rejection) = check.check(&request) {
                return *rejection;
            }
            let action = serde_json::from_slice::<Action>(&request.body);
            match (actions, action) {
                (None, _) => {
                    *rejection(StatusCode::NOT_FOUND, "this page is read-only; use kubectl and the cloud's own tools")
                }
                (_, Err(error)) => *rejection(StatusCode::BAD_REQUEST, &format!("invalid action: {error}")),
                (Some(actions), Ok(action)) => match actions.perform(action).await {
                    Ok(message) => secured(answer::json(StatusCode::OK, &json!({ "message": message }))),
                    Err(error) => *rejection(StatusCode::CONFLICT, &error),
                },
            }
        }
    })
}

/// Position in the query of a request. Without a valid one, the client gets the complete document.
pub(crate) fn position(request: &IncomingRequest) -> Position {
    let value = |name: &str| request.query.get(name).and_then(|values| values.last()).cloned().unwrap_or_default();
    Position { epoch: value("epoch"), revision: value("since").parse().unwrap_or_default() }
}

fn document(changes: Result<bytes::Bytes, FeedError>) -> Answer {
    match changes {
        Ok(json) => secured(answer::of_type(StatusCode::OK, "application/json", json)),
        Err(FeedError(error)) => *rejection(StatusCode::BAD_GATEWAY, &error),
    }
}
