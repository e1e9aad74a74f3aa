//! Shared sessions: a session manager issues a ticket with which its session is cloned.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_config::Secret;
use bowline_http::Client;
use bytes::Bytes;
use http::{Method, Request, Uri, header};
use serde::Deserialize;
use tokio::time::timeout;

/// Token of the pod's service account, with which the session manager is called if no other is configured.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

const CALL: &str = "get a session from the session manager";

#[derive(Deserialize)]
struct Answer {
    token: Secret,
}

/// Timeout of the call, from connecting to the last byte of the response. As in the Go manager.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Gets a clone ticket. The URL may contain credentials, so no error quotes more of it than the host.
pub(super) async fn clone_ticket(http: &Client, url: &str, token: Option<&Secret>) -> Result<Secret> {
    let token = match token {
        Some(token) => token.clone(),
        None => service_account_token().await?,
    };
    let host = host_of(url)?;
    let request = Request::builder()
        .method(Method::GET)
        .uri(url)
        .header(header::AUTHORIZATION, format!("Bearer {}", token.reveal().trim()))
        .body(Bytes::new())
        .map_err(|_| invalid(format!("the token for {host} is invalid; fix: correct the Secret")))?;
    let failed = |reason: String| {
        Error::new(ErrorKind::Unavailable, CALL, format!("failed calling vc session manager: {host}: {reason}"))
    };
    let response = timeout(TIMEOUT, http.send(request)).await;
    let response = response.map_err(|_| failed(format!("no response within {} s", TIMEOUT.as_secs())))?;
    let response = response.map_err(|error| failed(error.to_string()))?;
    if response.status() != 200 {
        let kind = Error::from_status(CALL, response.status().as_u16(), "", None).kind();
        let status = response.status();
        return Err(Error::new(kind, CALL, format!("invalid vc session manager response: {status} from {host}")));
    }
    // The error of the decoder could quote the ticket.
    let answer: Answer = serde_json::from_slice(response.body()).map_err(|_| {
        let message = "failed decoding vc session manager response: JSON with the key token is expected";
        Error::new(ErrorKind::Unexpected, CALL, message)
    })?;
    match answer.token.reveal() {
        "" => Err(Error::new(ErrorKind::Unexpected, CALL, "returned vc session token is empty")),
        _ => Ok(answer.token),
    }
}

/// Returns the host of an HTTP URL.
fn host_of(url: &str) -> Result<String> {
    let uri = url.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let host = uri.and_then(|uri| uri.host().map(str::to_owned)).filter(|host| !host.is_empty());
    host.ok_or_else(|| invalid("the URL of the session manager is invalid; fix: correct the Secret".to_owned()))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, CALL, message)
}

async fn service_account_token() -> Result<Secret> {
    let read = tokio::task::spawn_blocking(|| std::fs::read_to_string(SERVICE_ACCOUNT_TOKEN)).await;
    let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    read.map(Secret::from).map_err(|error| {
        let message = format!("failed reading token from service account: {SERVICE_ACCOUNT_TOKEN}: {error}");
        Error::new(ErrorKind::InvalidConfig, CALL, message)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use http::Response;

    use super::*;

    /// Returns the outcome for an answer of the session manager, and the header with which it was called.
    async fn outcome(status: u16, body: &'static str, token: Option<&str>) -> (Result<String>, Option<String>) {
        let header = Arc::new(Mutex::new(None));
        let seen = header.clone();
        let handler = move |request: Request<Bytes>| {
            let value = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            *seen.lock().unwrap() = value;
            async move { Ok(Response::builder().status(status).body(Bytes::from(body)).unwrap()) }
        };
        let client = Client::in_process(Arc::new(handler), Duration::from_secs(5));
        let token = token.map(Secret::from);
        let ticket = clone_ticket(&client, "https://manager.example.com/session", token.as_ref()).await;
        let header = header.lock().unwrap().clone();
        (ticket.map(|ticket| ticket.reveal().to_owned()), header)
    }

    /// VS-46
    #[tokio::test]
    async fn only_200_with_a_token_is_a_ticket() {
        let (ticket, header) = outcome(200, r#"{"token": "ticket"}"#, Some("t")).await;
        assert_eq!((ticket.unwrap().as_str(), header.as_deref()), ("ticket", Some("Bearer t")));
        for (status, body, text) in [
            (201, r#"{"token": "ticket"}"#, "invalid vc session manager response: 201"),
            (403, "", "invalid vc session manager response: 403"),
            (200, r#"{"token": ""}"#, "returned vc session token is empty"),
            (200, "ticket", "failed decoding vc session manager response"),
        ] {
            let error = outcome(status, body, Some("t")).await.0.unwrap_err();
            assert!(error.message().starts_with(text) && !error.message().contains("ticket"), "{error}");
        }
    }

    /// VS-30
    #[tokio::test]
    async fn without_a_token_that_of_the_service_account_is_used() {
        let (ticket, header) = outcome(200, r#"{"token": "ticket"}"#, None).await;
        // The tests may run in a pod.
        match std::fs::read_to_string(SERVICE_ACCOUNT_TOKEN) {
            Ok(token) => assert_eq!((ticket.unwrap(), header), ("ticket".to_owned(), Some(format!("Bearer {token}")))),
            Err(_) => {
                let error = ticket.unwrap_err();
                let text = format!("failed reading token from service account: {SERVICE_ACCOUNT_TOKEN}: ");
                assert!(error.message().starts_with(&text) && header.is_none(), "{error}");
            }
        }
    }
}
