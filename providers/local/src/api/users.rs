//! How the calls of the cloud's users go: counted, slow, and wrong as faults have it.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use crate::cloud::{LocalCloud, World};
use crate::faults::Ending;

use super::reply::{Outcome, Refusal, Reply, reply};

/// What the cloud answers when it makes no sense: not JSON, JSON of another shape, JSON that breaks off.
const NONSENSE: [&str; 3] = ["<html><body>It works!</body></html>", r#"{"instances":"many"}"#, r#"{"answers":[{"id":"#];

/// Refuses who shows no token of those in the cloud's file, which is read for each call: whoever is taken out of it is refused
/// from then on.
pub(super) fn recognise(cloud: &LocalCloud, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(path) = cloud.token_file() else { return Ok(()) };
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match shown.and_then(|value| value.strip_prefix("Bearer ")) {
        None => Err(Refusal::unknown("the call shows no token")),
        Some(token) if !token.is_empty() && known.lines().any(|line| line.trim() == token) => Ok(()),
        Some(_) => Err(Refusal::unknown("the token is not known here")),
    }
}

/// Counts a question, lets it take its time, and shows it what it gets to see: what there is (`None`), what there was, or
/// what a fault makes of that.
pub(super) async fn look(
    cloud: &LocalCloud,
    call: &str,
    show: impl Fn(Option<&World>) -> Outcome,
    empty: impl Fn() -> Outcome,
) -> Outcome {
    match begin(cloud, call).await {
        None => show(None),
        Some(Ending::AnswerLost) => Err(Refusal::answer_lost()),
        Some(Ending::Stale(past)) => show(Some(&past)),
        Some(Ending::Empty) => empty(),
        Some(Ending::Hanging) => std::future::pending().await,
        Some(Ending::Throttled(after)) => Err(Refusal::throttled(after)),
        Some(Ending::Failing(status)) => Err(Refusal::failing(status)),
        Some(Ending::Foreign(status, body)) => Ok(foreign(status, body)),
        Some(Ending::Garbled(kind)) => Ok(nonsense(kind)),
    }
}

/// Counts an order, lets it take its time, and carries it out unless a fault prevents that.
pub(super) async fn order(cloud: &LocalCloud, call: &str, carry_out: impl Future<Output = Outcome>) -> Outcome {
    match begin(cloud, call).await {
        None | Some(Ending::Stale(_)) => carry_out.await,
        Some(Ending::AnswerLost) => carry_out.await.and(Err(Refusal::answer_lost())),
        Some(Ending::Empty) => carry_out.await.map(|_| nonsense(1)),
        Some(Ending::Garbled(kind)) => carry_out.await.map(|_| nonsense(kind)),
        Some(Ending::Hanging) => std::future::pending().await,
        Some(Ending::Throttled(after)) => Err(Refusal::throttled(after)),
        Some(Ending::Failing(status)) => Err(Refusal::failing(status)),
        Some(Ending::Foreign(status, body)) => Ok(foreign(status, body)),
    }
}

/// The call begins and takes its time; how it ends if not well.
async fn begin(cloud: &LocalCloud, call: &str) -> Option<Ending> {
    let mishap = cloud.begin(call);
    if !mishap.delay.is_zero() {
        tokio::time::sleep(mishap.delay).await;
    }
    mishap.ending
}

fn foreign(status: u16, body: String) -> Reply {
    reply(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY), body.into())
}

fn nonsense(kind: usize) -> Reply {
    let text = NONSENSE.get(kind % NONSENSE.len()).copied().unwrap_or_default();
    reply(StatusCode::OK, Bytes::from_static(text.as_bytes()))
}
