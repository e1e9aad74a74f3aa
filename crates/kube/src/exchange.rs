//! One request and its answer, asked for again where that can do no harm.
//!
//! Every request that goes through here can be sent twice: a patch with a resourceVersion, a deletion with a UID and a
//! creation under a fixed name are refused the second time, and the other patches change nothing the second time.

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
use crate::rest::Again;

/// A hung API server must not hold up whoever waits for it for ever.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a client comes back when the API server asks it to (CL-2).
const COME_BACK: u32 = 10;
/// The longest that we let the API server send us away for.
const LONGEST_AWAY: Duration = Duration::from_secs(60);
/// How long to stay away from a busy API server that does not say.
const UNTOLD_AWAY: Duration = Duration::from_secs(1);
/// How often a request is sent if there is no answer, or one that says that something broke.
const TRIES: u32 = 4;
/// The wait before the second try; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Why there is no good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The API server says no, or, with a status of 500 and above or 429, not now.
    Answered {
        /// The HTTP status.
        code: StatusCode,
        /// What the API server says.
        message: String,
        /// The fields that it complains about, if it names any.
        fields: Vec<String>,
        /// There was no good answer to an earlier try, so that one may have been carried out, or yet be.
        in_doubt: bool,
    },
    /// The API server cannot be reached, or does not answer.
    PendingCreates(String),
}

/// What came of one try.
enum Outcome {
    Done(Vec<u8>),
    /// Asking again is of no use.
    Final(Failure),
    /// The API server asks us to come back after this time.
    Later(Duration, Failure),
    /// There is no answer, or one that says that something broke.
    Broken(Failure),
}

/// Sends the request until there is an answer that stays the same, or patience ends. Once shutdown is requested, what is
/// under way is finished, and nothing is sent again.
pub(crate) async fn exchange(
    client: &kube::Client,
    request: &Request<Vec<u8>>,
    shutdown: &Shutdown,
) -> Result<Vec<u8>, Failure> {
    let (mut away, mut broken, mut is_in_doubt) = (0, 0, false);
    let mut request = request.clone();
    loop {
        let (pause, failure) = match once(client, request.clone()).await {
            Outcome::Done(body) => return Ok(body),
            Outcome::Final(failure) => return Err(failure.after(is_in_doubt)),
            Outcome::Later(pause, failure) => {
                away += 1;
                (pause, failure)
            }
            Outcome::Broken(failure) => {
                broken += 1;
                (FIRST_PAUSE * 2_u32.pow(broken - 1), failure)
            }
        };
        if away > COME_BACK || broken >= TRIES {
            return Err(failure);
        }
        is_in_doubt |= failure.leaves_doubt();
        let attempt = away + broken;
        tracing::debug!(method = %request.method(), path = request.uri().path(), attempt, error = ?failure, ?pause, "asking again");
        if shutdown.or(tokio::time::sleep(pause)).await.is_none() {
            return Err(failure);
        }
        request.extensions_mut().insert(Again(failure.code()));
    }
}

impl Failure {
    /// The HTTP status, if there was any answer.
    fn code(&self) -> Option<StatusCode> {
        match self {
            Failure::Answered { code, .. } => Some(*code),
            Failure::PendingCreates(_) => None,
        }
    }

    /// Whether the request was carried out is not known. A server that is too busy has not begun.
    fn leaves_doubt(&self) -> bool {
        match self {
            Failure::Answered { code, .. } => code.is_server_error(),
            Failure::PendingCreates(_) => true,
        }
    }

    fn after(self, is_in_doubt: bool) -> Failure {
        match self {
            Failure::Answered { code, message, fields, .. } => {
                Failure::Answered { code, message, fields, in_doubt: is_in_doubt }
            }
            outcome_unknown @ Failure::PendingCreates(_) => outcome_unknown,
        }
    }
}

async fn once(client: &kube::Client, request: Request<Vec<u8>>) -> Outcome {
    match tokio::time::timeout(ANSWER_WITHIN, send(client, request)).await {
        Ok(Ok((response, body))) => judge(&response, body),
        // It will not be another time: the process has lost its right to write, and ends.
        Ok(Err(error)) if is_fenced(&error) => Outcome::Final(Failure::PendingCreates(with_causes(&error))),
        Ok(Err(error)) => Outcome::Broken(Failure::PendingCreates(with_causes(&error))),
        // Whoever asked has waited long enough.
        Err(_) => Outcome::Final(Failure::PendingCreates(format!("there is no answer within {ANSWER_WITHIN:?}"))),
    }
}

async fn send(client: &kube::Client, request: Request<Vec<u8>>) -> kube::Result<(Response<()>, Vec<u8>)> {
    let (parts, body) = client.send(request.map(Body::from)).await?.into_parts();
    tracing::Span::current().record("code", parts.status.as_u16());
    let body = body.collect().await?.to_bytes().to_vec();
    Ok((Response::from_parts(parts, ()), body))
}

fn judge(response: &Response<()>, body: Vec<u8>) -> Outcome {
    let code = response.status();
    if code.is_success() {
        return Outcome::Done(body);
    }
    let failure = refusal(code, &body);
    match (retry_after(response.headers()), code) {
        (Some(pause), _) if code.is_server_error() => Outcome::Later(pause, failure),
        (pause, StatusCode::TOO_MANY_REQUESTS) => Outcome::Later(pause.unwrap_or(UNTOLD_AWAY), failure),
        _ if code.is_server_error() => Outcome::Broken(failure),
        _ => Outcome::Final(failure),
    }
}

/// Kubernetes gives it in seconds, never as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_AWAY))
}

/// What a `Status` says, or else the start of whatever the body is: proxies answer in their own words.
fn refusal(code: StatusCode, body: &[u8]) -> Failure {
    #[derive(Deserialize, Default)]
    struct Status {
        #[serde(default)]
        message: String,
        #[serde(default)]
        details: Value,
    }
    let said = serde_json::from_slice(body).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(body).trim().chars().take(200).collect(),
        ..Status::default()
    });
    let untold = said.message.is_empty();
    let message = if untold { format!("the API server answered {code}") } else { said.message };
    Failure::Answered { code, message, fields: fields(&said.details), in_doubt: false }
}

fn fields(details: &Value) -> Vec<String> {
    let causes = details.get("causes").and_then(Value::as_array).into_iter().flatten();
    causes.filter_map(|cause| cause.get("field")?.as_str()).map(str::to_owned).collect()
}
