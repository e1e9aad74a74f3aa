//! Retries for TokenReviews and SubjectAccessReviews.

use std::time::Duration;

/// Deadline for all attempts together.
const DEADLINE: Duration = Duration::from_secs(10);

/// First back-off; each further one is 1.5 times as long.
const BACKOFF: Duration = Duration::from_millis(500);

/// Maximum number of attempts.
const ATTEMPTS: u32 = 5;

/// Retries until the attempt succeeds or fails with a permanent error.
pub(crate) async fn with_retries<T, F>(attempt: impl Fn() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let all = async {
        let mut backoff = BACKOFF;
        for _ in 1..ATTEMPTS {
            match attempt().await {
                Err(error) if is_transient(&error) => tracing::debug!(%error, "a review failed, retrying"),
                done => return done,
            }
            tokio::time::sleep(with_jitter(backoff)).await;
            backoff = backoff.mul_f64(1.5);
        }
        attempt().await
    };
    match tokio::time::timeout(DEADLINE, all).await {
        Ok(outcome) => outcome.map_err(|error| to_message(&error)),
        Err(_) => Err(format!("the API server did not answer within {DEADLINE:?}")),
    }
}

/// Returns the message of the API server's status, or the error with its causes.
pub(crate) fn to_message(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Adds up to 20% of jitter, so that many clients do not retry at the same moment.
fn with_jitter(backoff: Duration) -> Duration {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    backoff.mul_f64(1.0 + f64::from(nanos % 1000) / 5000.0)
}

/// Whether the API server was unreachable, overloaded or failed.
fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 500 | 503 | 504),
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn error(code: u16) -> kube::Error {
        let status = kube::core::Status { code, message: "no".to_owned(), ..kube::core::Status::default() };
        kube::Error::Api(Box::new(status))
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_error_is_retried_up_to_five_attempts() {
        let tried = AtomicU32::new(0);
        let fails = |code| {
            let tried = &tried;
            move || {
                tried.fetch_add(1, Ordering::SeqCst);
                async move { Err::<(), _>(error(code)) }
            }
        };
        assert!(with_retries(fails(503)).await.is_err());
        assert_eq!(tried.swap(0, Ordering::SeqCst), 5);
        assert!(with_retries(fails(403)).await.is_err());
        assert_eq!(tried.swap(0, Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_end_at_the_deadline() {
        let outcome = with_retries(std::future::pending::<Result<(), kube::Error>>).await;
        assert_eq!(outcome, Err("the API server did not answer within 10s".to_owned()));
    }
}
