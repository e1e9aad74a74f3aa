//! Questions to the API server about people: how patient they are.

use std::time::Duration;

/// How long all attempts together may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first pause; each is half as long again as the one before.
const PAUSE: Duration = Duration::from_millis(500);

/// How often it is tried.
const ATTEMPTS: u32 = 5;

/// Tries until there is an answer, or an error that another attempt would not cure.
pub(crate) async fn patiently<T, F>(attempt: impl Fn() -> F) -> Result<T, String>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let all = async {
        let mut pause = PAUSE;
        for _ in 1..ATTEMPTS {
            match attempt().await {
                Err(error) if may_pass(&error) => tracing::debug!(%error, "a review failed, and is tried again"),
                done => return done,
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = pause.mul_f64(1.5);
        }
        attempt().await
    };
    match tokio::time::timeout(PATIENCE, all).await {
        Ok(outcome) => outcome.map_err(|error| told(&error)),
        Err(_) => Err(format!("the API server did not answer within {PATIENCE:?}")),
    }
}

/// The API server's own words where there are some, else the error with what caused it.
pub(crate) fn told(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return status.message.clone();
    }
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Up to a fifth more, so that many do not come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    pause.mul_f64(1.0 + f64::from(nanos % 1000) / 5000.0)
}

/// The server was not reached, or is not itself at the moment.
fn may_pass(error: &kube::Error) -> bool {
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
    async fn what_may_pass_is_tried_again_five_times_in_all() {
        let tried = AtomicU32::new(0);
        let fails = |code| {
            let tried = &tried;
            move || {
                tried.fetch_add(1, Ordering::SeqCst);
                async move { Err::<(), _>(error(code)) }
            }
        };
        assert!(patiently(fails(503)).await.is_err());
        assert_eq!(tried.swap(0, Ordering::SeqCst), 5);
        assert!(patiently(fails(403)).await.is_err());
        assert_eq!(tried.swap(0, Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends() {
        let outcome = patiently(std::future::pending::<Result<(), kube::Error>>).await;
        assert_eq!(outcome, Err("the API server did not answer within 10s".to_owned()));
    }
}
