//! Connects to the API server, and diagnoses why that fails.

use std::time::Duration;

use bowline_core::with_causes;
use http::{Request, StatusCode, Uri};
use serde_json::{Value, json};

/// Timeout of each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Address.
    pub address: String,
    /// Version, such as `v1.36.1`.
    pub version: String,
    /// User that this process is authenticated as; `None` if the API server has no SelfSubjectReview.
    pub user: Option<String>,
}

/// Step of the connection that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFailure {
    /// The host name cannot be resolved.
    #[error("cannot resolve the host name of {address}: {why}")]
    Dns {
        /// Address of the API server.
        address: String,
        /// Cause.
        why: String,
    },
    /// The TCP connection failed.
    #[error("cannot connect to {address}: {why}")]
    Connection {
        /// Address of the API server.
        address: String,
        /// Cause.
        why: String,
    },
    /// The TCP connection works, but TLS or HTTP fails: an untrusted certificate, or another protocol.
    #[error("connected to {address}, but the TLS handshake or the HTTP request failed: {why}")]
    Handshake {
        /// Address of the API server.
        address: String,
        /// Cause.
        why: String,
    },
    /// The API server rejects the credentials.
    #[error("the API server at {address} rejects the credentials: {why}")]
    Unauthenticated {
        /// Address of the API server.
        address: String,
        /// Cause.
        why: String,
    },
    /// The API server returns an error.
    #[error("the API server at {address} returned an error: {why}")]
    NotReady {
        /// Address of the API server.
        address: String,
        /// Cause.
        why: String,
    },
}

/// User of a request without credentials.
const ANONYMOUS: &str = "system:anonymous";

pub(super) async fn query(address: &Uri, client: &kube::Client) -> Result<Server, ConnectFailure> {
    let shown = address.to_string().trim_end_matches('/').to_owned();
    let (version, user) = match version_and_user(client).await {
        Ok(found) => found,
        Err(Failure::Answered(StatusCode::UNAUTHORIZED, why)) => {
            return Err(ConnectFailure::Unauthenticated { address: shown, why });
        }
        // A 400 for such a simple request means another protocol: usually plain HTTP to a TLS port.
        Err(Failure::Answered(StatusCode::BAD_REQUEST, why)) => {
            return Err(ConnectFailure::Handshake { address: shown, why });
        }
        Err(Failure::Answered(_, why)) => return Err(ConnectFailure::NotReady { address: shown, why }),
        // Diagnosed only now: behind a proxy, the address itself need not be reachable.
        Err(Failure::NoAnswer(why)) => return Err(diagnose(address, shown, why).await),
    };
    Ok(Server { address: shown, version, user })
}

enum Failure {
    Answered(StatusCode, String),
    NoAnswer(String),
}

/// Reads the version, which every user may read, and the user.
async fn version_and_user(client: &kube::Client) -> Result<(String, Option<String>), Failure> {
    let version = send(client, Request::get("/version").body(Vec::new())).await?;
    let version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.into_bytes());
    match send(client, request).await {
        Ok(review) => {
            Ok((version, review.pointer("/status/userInfo/username").and_then(Value::as_str).map(str::to_owned)))
        }
        // The default roles allow this to every authenticated user, but not to anonymous ones.
        Err(Failure::Answered(StatusCode::FORBIDDEN, why)) if why.contains(ANONYMOUS) => {
            Ok((version, Some(ANONYMOUS.to_owned())))
        }
        Err(Failure::Answered(StatusCode::NOT_FOUND | StatusCode::FORBIDDEN, _)) => Ok((version, None)),
        Err(failure) => Err(failure),
    }
}

async fn send(client: &kube::Client, request: http::Result<Request<Vec<u8>>>) -> Result<Value, Failure> {
    let request = request.map_err(|error| Failure::NoAnswer(error.to_string()))?;
    match tokio::time::timeout(STEP_TIMEOUT, client.request(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(kube::Error::Api(status))) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Err(Failure::Answered(code, status.message.clone()))
        }
        Ok(Err(error)) => Err(Failure::NoAnswer(with_causes(&error))),
        Err(_) => Err(Failure::NoAnswer(format!("no answer within {STEP_TIMEOUT:?}"))),
    }
}

/// Takes the steps of a connection one by one, to find the one that fails.
async fn diagnose(uri: &Uri, address: String, why: String) -> ConnectFailure {
    let default_port = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let target = (host, uri.port_u16().unwrap_or(default_port));
    let addresses: Vec<_> = match tokio::time::timeout(STEP_TIMEOUT, tokio::net::lookup_host(target)).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => return ConnectFailure::Dns { address, why: error.to_string() },
        Err(_) => return ConnectFailure::Dns { address, why: format!("no answer within {STEP_TIMEOUT:?}") },
    };
    match tokio::time::timeout(STEP_TIMEOUT, tokio::net::TcpStream::connect(&addresses[..])).await {
        Ok(Ok(_)) => ConnectFailure::Handshake { address, why },
        Ok(Err(error)) => ConnectFailure::Connection { address, why: error.to_string() },
        Err(_) => ConnectFailure::Connection { address, why: format!("no answer within {STEP_TIMEOUT:?}") },
    }
}
