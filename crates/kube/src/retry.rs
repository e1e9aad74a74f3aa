//! Sends a request with retries.
//!
//! Every request sent here is safe to repeat: the API server rejects the second copy of a patch with a resourceVersion, of a
//! deletion with a UID and of a creation with a fixed name, and the other patches are idempotent.

use std::time::Duration;

use bowline_core::with_causes;
use bowline_runtime::Shutdown;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;

use crate::fenced::is_fenced;
use crate::rest::Retry;

/// Timeout of one request, so that a hung API server does not block its caller forever.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of retries that the API server requests with `Retry-After` or a 429 (CL-2).
const MAX_REQUESTED_RETRIES: u32 = 10;
/// Upper bound of `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Pause after a 429 without `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of attempts for connection errors and 5xx responses.
const MAX_ATTEMPTS: u32 = 4;
/// Back-off before the second attempt; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The API server responded with an error status; 429 and 5xx are transient.
    Answered {
        /// HTTP status.
        code: StatusCode,
        /// Message of the API server.
        message: String,
        /// Fields named in the `causes` of the `Status`.
        fields: Vec<String>,
        /// An earlier attempt failed without a definite answer, so the API server may have executed it, or may yet.
        outcome_unknown: bool,
    },
    /// The API server is unreachable or does not answer.
    NoAnswer(String),
}

/// Result of one attempt.
enum Outcome {
    Done(Vec<u8>),
    /// A retry cannot succeed.
    Final(Failure),
    /// The API server requests a retry after this time.
    RetryAfter(Duration, Failure),
    /// Connection error or 5xx response.
    Transient(Failure),
}

/// Sends the request until it succeeds, fails permanently or runs out of attempts. Once shutdown is requested, the attempt in
/// flight finishes and no further one is made.
pub(crate) async fn send_with_retry(
    client: &kube::Client,
    request: &Request<Vec<u8>>,
    shutdown: &Shutdown,
) -> Result<Vec<u8>, Failure> {
    let (mut requested, mut transient, mut outcome_unknown) = (0, 0, false);
    let mut request = request.clone();
    loop {
        let (pause, failure) = match attempt(client, request.clone()).await {
            Outcome::Done(body) => return Ok(body),
            Outcome::Final(failure) => return Err(failure.after(outcome_unknown)),
            Outcome::RetryAfter(pause, failure) => {
                requested += 1;
                (pause, failure)
            }
            Outcome::Transient(failure) => {
                transient += 1;
                (FIRST_PAUSE * 2_u32.pow(transient - 1), failure)
            }
        };
        if requested > MAX_REQUESTED_RETRIES || transient >= MAX_ATTEMPTS {
            return Err(failure);
        }
        outcome_unknown |= failure.leaves_outcome_unknown();
        let attempt = requested + transient;
        tracing::debug!(method = %request.method(), path = request.uri().path(), attempt, error = ?failure, ?pause, "retrying the request");
        if shutdown.or(tokio::time::sleep(pause)).await.is_none() {
            return Err(failure);
        }
        request.extensions_mut().insert(Retry(failure.code()));
    }
}

impl Failure {
    /// HTTP status, if the API server responded.
    fn code(&self) -> Option<StatusCode> {
        match self {
            Failure::Answered { code, .. } => Some(*code),
            Failure::NoAnswer(_) => None,
        }
    }

    /// Whether the API server may have executed the request. A 429 is sent before execution.
    fn leaves_outcome_unknown(&self) -> bool {
        match self {
            Failure::Answered { code, .. } => code.is_server_error(),
            Failure::NoAnswer(_) => true,
        }
    }

    fn after(self, outcome_unknown: bool) -> Failure {
        match self {
            Failure::Answered { code, message, fields, .. } => {
                Failure::Answered { code, message, fields, outcome_unknown }
            }
            no_answer @ Failure::NoAnswer(_) => no_answer,
        }
    }
}

async fn attempt(client: &kube::Client, request: Request<Vec<u8>>) -> Outcome {
    match tokio::time::timeout(REQUEST_TIMEOUT, send(client, request)).await {
        Ok(Ok((response, body))) => classify(&response, body),
        // A retry cannot succeed: the process has lost its lease and exits.
        Ok(Err(error)) if is_fenced(&error) => Outcome::Final(Failure::NoAnswer(with_causes(&error))),
        Ok(Err(error)) => Outcome::Transient(Failure::NoAnswer(with_causes(&error))),
        // Not retried: the caller has waited long enough.
        Err(_) => Outcome::Final(Failure::NoAnswer(format!("no answer within {REQUEST_TIMEOUT:?}"))),
    }
}

async fn send(client: &kube::Client, request: Request<Vec<u8>>) -> kube::Result<(Response<()>, Vec<u8>)> {
    let (parts, body) = client.send(request.map(Body::from)).await?.into_parts();
    tracing::Span::current().record("code", parts.status.as_u16());
    let body = body.collect().await?.to_bytes().to_vec();
    Ok((Response::from_parts(parts, ()), body))
}

fn classify(response: &Response<()>, body: Vec<u8>) -> Outcome {
    let code = response.status();
    if code.is_success() {
        return Outcome::Done(body);
    }
    let failure = to_failure(code, &body);
    match (retry_after(response.headers()), code) {
        (Some(pause), _) if code.is_server_error() => Outcome::RetryAfter(pause, failure),
        (pause, StatusCode::TOO_MANY_REQUESTS) => Outcome::RetryAfter(pause.unwrap_or(DEFAULT_RETRY_AFTER), failure),
        _ if code.is_server_error() => Outcome::Transient(failure),
        _ => Outcome::Final(failure),
    }
}

/// Parses `Retry-After`. Kubernetes sends seconds, never a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// Parses a `Status`, or takes the first 200 characters of the body: proxies respond in other formats.
fn to_failure(code: StatusCode, body: &[u8]) -> Failure {
    #[derive(Deserialize, Default)]
    struct Status {
        #[serde(default)]
        message: String,
        #[serde(default)]
        details: Value,
    }
    let status = serde_json::from_slice(body).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(body).trim().chars().take(200).collect(),
        ..Status::default()
    });
    let message = if status.message.is_empty() { format!("the API server returned {code}") } else { status.message };
    Failure::Answered { code, message, fields: fields(&status.details), outcome_unknown: false }
}

fn fields(details: &Value) -> Vec<String> {
    let causes = details.get("causes").and_then(Value::as_array).into_iter().flatten();
    causes.filter_map(|cause| cause.get("field")?.as_str()).map(str::to_owned).collect()
}
