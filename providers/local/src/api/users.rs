//! User calls: counted, with latency, and subject to faults.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use crate::cloud::{LocalCloud, World};
use crate::faults::InjectedFailure;

use super::reply::{ApiError, ApiResult, Reply, reply};

/// Invalid responses: not JSON, JSON of another type, truncated JSON.
const INVALID_RESPONSES: [&str; 3] =
    ["<html><body>It works!</body></html>", r#"{"instances":"many"}"#, r#"{"answers":[{"id":"#];

/// Rejects a call without a token from the token file. The file is read on every call, so removing a token revokes it at once.
pub(super) fn authenticate(cloud: &LocalCloud, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(path) = cloud.token_file() else { return Ok(()) };
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match header.and_then(|value| value.strip_prefix("Bearer ")) {
        None => Err(ApiError::unauthenticated("the call has no token")),
        Some(token) if !token.is_empty() && known.lines().any(|line| line.trim() == token) => Ok(()),
        Some(_) => Err(ApiError::unauthenticated("unknown token")),
    }
}

/// Counts and delays a read call, and responds from the current resources (`None`), past ones, or as a fault requires.
pub(super) async fn read(
    cloud: &LocalCloud,
    call: &str,
    show: impl Fn(Option<&World>) -> ApiResult,
    empty: impl Fn() -> ApiResult,
) -> ApiResult {
    match begin(cloud, call).await {
        None => show(None),
        Some(InjectedFailure::AnswerLost) => Err(ApiError::answer_lost()),
        Some(InjectedFailure::Stale(past)) => show(Some(&past)),
        Some(InjectedFailure::Empty) => empty(),
        Some(InjectedFailure::Hanging) => std::future::pending().await,
        Some(InjectedFailure::Throttled(after)) => Err(ApiError::throttled(after)),
        Some(InjectedFailure::Failing(status)) => Err(ApiError::failing(status)),
        Some(InjectedFailure::Foreign(status, body)) => Ok(foreign(status, body)),
        Some(InjectedFailure::Garbled(kind)) => Ok(invalid_response(kind)),
    }
}

/// Counts and delays a write call, and applies it unless a fault prevents that.
pub(super) async fn write(cloud: &LocalCloud, call: &str, apply: impl Future<Output = ApiResult>) -> ApiResult {
    match begin(cloud, call).await {
        None | Some(InjectedFailure::Stale(_)) => apply.await,
        Some(InjectedFailure::AnswerLost) => apply.await.and(Err(ApiError::answer_lost())),
        Some(InjectedFailure::Empty) => apply.await.map(|_| invalid_response(1)),
        Some(InjectedFailure::Garbled(kind)) => apply.await.map(|_| invalid_response(kind)),
        Some(InjectedFailure::Hanging) => std::future::pending().await,
        Some(InjectedFailure::Throttled(after)) => Err(ApiError::throttled(after)),
        Some(InjectedFailure::Failing(status)) => Err(ApiError::failing(status)),
        Some(InjectedFailure::Foreign(status, body)) => Ok(foreign(status, body)),
    }
}

/// Starts and delays a call. Returns its injected failure, if any.
async fn begin(cloud: &LocalCloud, call: &str) -> Option<InjectedFailure> {
    let effect = cloud.begin(call);
    if !effect.delay.is_zero() {
        tokio::time::sleep(effect.delay).await;
    }
    effect.failure
}

fn foreign(status: u16, body: String) -> Reply {
    reply(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY), body.into())
}

fn invalid_response(kind: usize) -> Reply {
    let text = INVALID_RESPONSES.get(kind % INVALID_RESPONSES.len()).copied().unwrap_or_default();
    reply(StatusCode::OK, Bytes::from_static(text.as_bytes()))
}
