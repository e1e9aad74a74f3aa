//! Whether the API server is well.

use std::time::Duration;

use bowline_core::with_causes;
use http::{Request, StatusCode};
use kube::client::Body;
use tokio::time::{sleep, timeout};

/// How long it may take until it is.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// The API server was not well for all of the time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no good answer from /healthz within {PATIENCE:?}: {0}")]
pub struct NotReady(String);

/// Waits until the API server says that it is well, but not for ever.
///
/// One that will not tell us is well, too: who answers that is at work.
pub async fn wait_until_ready(client: &kube::Client) -> Result<(), NotReady> {
    let mut last = "it does not answer".to_owned();
    let well = async {
        while let Err(error) = ask(client).await {
            last = error;
            sleep(BETWEEN_TRIES).await;
        }
    };
    timeout(PATIENCE, well).await.map_err(|_| NotReady(last))
}

async fn ask(client: &kube::Client) -> Result<(), String> {
    let request = Request::get("/healthz").body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| with_causes(&error))?;
    match answer.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(()),
        status if status.is_success() => Ok(()),
        status => Err(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tower::{BoxError, service_fn};

    use super::*;

    /// An API server that answers with these, and then with the last one for ever.
    fn answering(codes: &'static [u16]) -> kube::Client {
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let service = service_fn(move |_: Request<Body>| {
            let count = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let code = codes.get(count).or(codes.last()).copied().unwrap_or(500);
            async move { Ok::<_, BoxError>(Response::builder().status(code).body(Body::empty())?) }
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_has_ten_seconds_to_become_well() {
        assert_eq!(wait_until_ready(&answering(&[200])).await, Ok(()));
        assert_eq!(wait_until_ready(&answering(&[500, 503, 200])).await, Ok(()));
        assert_eq!(wait_until_ready(&answering(&[403])).await, Ok(()));
        let begun = tokio::time::Instant::now();
        assert_eq!(wait_until_ready(&answering(&[500])).await, Err(NotReady("500 Internal Server Error".to_owned())));
        assert_eq!(begun.elapsed(), PATIENCE);
    }
}
