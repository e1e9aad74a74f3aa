//! Client of the peers' API.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bowline_http::Client;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::beat::{Beat, Claim};
use super::replication::Update;
use crate::config::Peer;
use crate::server::{API_HEADER, API_VERSION, CLAIM_HEADER, check_api_version};
use crate::state::Stored;

/// Timeout of a poll, and of a change.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of a complete state.
const STATE_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP client with the current certificates. Clones share it.
#[derive(Clone)]
pub(crate) struct PeerClient(Arc<RwLock<Client>>);

/// Answer to an [`Update`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted,
    /// The peer has another version, and needs the complete state.
    OutOfSync,
    /// The peer follows another agent, or has a newer state.
    Rejected(String),
    /// Nothing is known.
    Failed(String),
}

impl PeerClient {
    pub(crate) fn new(client: Client) -> PeerClient {
        PeerClient(Arc::new(RwLock::new(client)))
    }

    /// Uses a client with other certificates from now on.
    pub(crate) fn replace(&self, client: Client) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Reads the state of a peer, and reports the own claim to it.
    pub(crate) async fn beat(&self, peer: &Peer, claim: Option<&Claim>) -> Result<Beat, String> {
        let claim = claim.and_then(|claim| serde_json::to_string(claim).ok());
        let beat: Beat = self.get(peer, "/v1/peer/beat", claim, TIMEOUT).await?;
        if beat.name != peer.name {
            let message = format!("the agent at {} has the name {:?}", peer.endpoint, beat.name);
            return Err(format!("{message}, not {:?}; fix: correct `peers`, or `name` of that agent", peer.name));
        }
        Ok(beat)
    }

    /// Reads the complete state of a peer.
    pub(crate) async fn state(&self, peer: &Peer) -> Result<Stored, String> {
        self.get(peer, "/v1/peer/state", None, STATE_TIMEOUT).await
    }

    /// Sends a change or a state.
    pub(crate) async fn update(&self, peer: &Peer, update: &Update) -> Answer {
        let timeout = if matches!(update, Update::Full(_)) { STATE_TIMEOUT } else { TIMEOUT };
        let request = match post(peer, "/v1/peer/state", update) {
            Ok(request) => request,
            Err(error) => return Answer::Failed(error),
        };
        match self.send(request, timeout).await {
            Ok(response) if response.status() == StatusCode::OK => Answer::Accepted,
            Ok(response) => match (response.status(), error_of(&response)) {
                (StatusCode::CONFLICT, (code, _)) if code == "outOfSync" => Answer::OutOfSync,
                (StatusCode::CONFLICT | StatusCode::FORBIDDEN, (_, message)) => Answer::Rejected(message),
                (_, (_, message)) => Answer::Failed(message),
            },
            Err(error) => Answer::Failed(error),
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        peer: &Peer,
        path: &str,
        claim: Option<String>,
        timeout: Duration,
    ) -> Result<T, String> {
        let mut request = Request::builder().method(Method::GET).uri(uri(peer, path)).header(API_HEADER, API_VERSION);
        if let Some(claim) = claim {
            request = request.header(CLAIM_HEADER, claim);
        }
        let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
        let response = self.send(request, timeout).await?;
        if response.status() != StatusCode::OK {
            return Err(error_of(&response).1);
        }
        serde_json::from_slice(response.body()).map_err(|error| format!("invalid response: {error}"))
    }

    async fn send(&self, request: Request<Bytes>, timeout: Duration) -> Result<Response<Bytes>, String> {
        let client = self.0.read().unwrap_or_else(PoisonError::into_inner).with_timeout(timeout);
        let response = client.send(request).await.map_err(|error| error.to_string())?;
        check_api_version(response.headers(), "agent")?;
        Ok(response)
    }
}

fn uri(peer: &Peer, path: &str) -> String {
    format!("{}{path}", peer.endpoint.trim_end_matches('/'))
}

fn post(peer: &Peer, path: &str, body: &impl Serialize) -> Result<Request<Bytes>, String> {
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    let request = Request::builder().method(Method::POST).uri(uri(peer, path)).header(API_HEADER, API_VERSION);
    let request = request.header(header::CONTENT_TYPE, "application/json").body(body.into());
    request.map_err(|error| error.to_string())
}

/// Code and message of an error response.
fn error_of(response: &Response<Bytes>) -> (String, String) {
    match serde_json::from_slice::<bowline_agent_client::ErrorReply>(response.body()) {
        Ok(reply) => (reply.error.code, reply.error.message),
        Err(_) => (String::new(), format!("HTTP status {}", response.status())),
    }
}
