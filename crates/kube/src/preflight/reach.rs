//! Whether the API server answers, and if not, how far one gets.

use std::time::Duration;

use bowline_core::with_causes;
use http::{Request, StatusCode, Uri};
use serde_json::{Value, json};

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The API server, as it presents itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub address: String,
    /// Its version, such as `v1.36.1`.
    pub version: String,
    /// Whom it takes this process for; `None` if it is too old to say.
    pub user: Option<String>,
}

/// How far one gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectFailure {
    /// Its name leads nowhere.
    #[error("the name of {address} leads nowhere: {why}")]
    Name {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// Nobody accepts a connection.
    #[error("nobody accepts a connection at {address}: {why}")]
    Connection {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// Somebody accepts a connection, but no conversation comes of it: certificates, or another protocol.
    #[error("no conversation comes of the connection to {address}: {why}")]
    Conversation {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// It does not know who this is.
    #[error("the API server at {address} does not accept the credentials: {why}")]
    Unauthenticated {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// It answers with an error.
    #[error("the API server at {address} answers with an error: {why}")]
    NotReady {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
}

/// Whom an API server sees in a request without credentials.
const ANONYMOUS: &str = "system:anonymous";

pub(super) async fn server(address: &Uri, client: &kube::Client) -> Result<Server, ConnectFailure> {
    let shown = address.to_string().trim_end_matches('/').to_owned();
    let (version, user) = match conversation(client).await {
        Ok(answers) => answers,
        Err(Failure::Answered(StatusCode::UNAUTHORIZED, why)) => {
            return Err(ConnectFailure::Unauthenticated { address: shown, why });
        }
        // Whoever does not understand so plain a question speaks another protocol: a TLS port that is sent HTTP, above all.
        Err(Failure::Answered(StatusCode::BAD_REQUEST, why)) => {
            return Err(ConnectFailure::Conversation { address: shown, why });
        }
        Err(Failure::Answered(_, why)) => return Err(ConnectFailure::NotReady { address: shown, why }),
        // Only now is it of interest how far one gets: through a proxy, the address itself need not be within reach.
        Err(Failure::PendingCreates(why)) => return Err(how_far(address, shown, why).await),
    };
    Ok(Server { address: shown, version, user })
}

enum Failure {
    Answered(StatusCode, String),
    PendingCreates(String),
}

/// The version, which everybody may ask for, and who is asking.
async fn conversation(client: &kube::Client) -> Result<(String, Option<String>), Failure> {
    let version = ask(client, Request::get("/version").body(Vec::new())).await?;
    let version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.into_bytes());
    match ask(client, request).await {
        Ok(review) => {
            Ok((version, review.pointer("/status/userInfo/username").and_then(Value::as_str).map(str::to_owned)))
        }
        // The usual roles let every user ask this, and an anonymous one not.
        Err(Failure::Answered(StatusCode::FORBIDDEN, why)) if why.contains(ANONYMOUS) => {
            Ok((version, Some(ANONYMOUS.to_owned())))
        }
        Err(Failure::Answered(StatusCode::NOT_FOUND | StatusCode::FORBIDDEN, _)) => Ok((version, None)),
        Err(failure) => Err(failure),
    }
}

async fn ask(client: &kube::Client, request: http::Result<Request<Vec<u8>>>) -> Result<Value, Failure> {
    let request = request.map_err(|error| Failure::PendingCreates(error.to_string()))?;
    match tokio::time::timeout(PATIENCE, client.request(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Err(Failure::Answered(code, status.message.clone()))
        }
        Ok(Err(error)) => Err(Failure::PendingCreates(with_causes(&error))),
        Err(_) => Err(Failure::PendingCreates(format!("no answer within {PATIENCE:?}"))),
    }
}

/// Takes the steps of a connection one by one, to see which one fails.
async fn how_far(uri: &Uri, address: String, why: String) -> ConnectFailure {
    let default_port = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let target = (host, uri.port_u16().unwrap_or(default_port));
    let found: Vec<_> = match tokio::time::timeout(PATIENCE, tokio::net::lookup_host(target)).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => return ConnectFailure::Name { address, why: error.to_string() },
        Err(_) => return ConnectFailure::Name { address, why: format!("no answer within {PATIENCE:?}") },
    };
    match tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(&found[..])).await {
        Ok(Ok(_)) => ConnectFailure::Conversation { address, why },
        Ok(Err(error)) => ConnectFailure::Connection { address, why: error.to_string() },
        Err(_) => ConnectFailure::Connection { address, why: format!("no answer within {PATIENCE:?}") },
    }
}
