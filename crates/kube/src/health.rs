//! Health check of the API server.

use std::time::Duration;

use bowline_core::with_causes;
use http::{Request, StatusCode};
use kube::client::Body;
use tokio::time::{sleep, timeout};

/// Maximum time to wait for a healthy API server.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two health checks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The API server did not become healthy in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the API server did not become healthy within {TIMEOUT:?}: /healthz: {0}")]
pub struct NotReady(String);

/// Polls `/healthz` until the API server is healthy, for at most 10 seconds.
///
/// A 401 or 403 counts as healthy: the API server is up and only denies access to the endpoint.
pub async fn wait_until_ready(client: &kube::Client) -> Result<(), NotReady> {
    let mut last = "no answer".to_owned();
    let healthy = async {
        while let Err(error) = check(client).await {
            last = error;
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(TIMEOUT, healthy).await.map_err(|_| NotReady(last))
}

async fn check(client: &kube::Client) -> Result<(), String> {
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

    /// API server that responds with these status codes in order, and then always with the last one.
    fn answering(codes: &'static [u16]) -> kube::Client {
        let requests = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let service = service_fn(move |_: Request<Body>| {
            let count = requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let code = codes.get(count).or(codes.last()).copied().unwrap_or(500);
            async move { Ok::<_, BoxError>(Response::builder().status(code).body(Body::empty())?) }
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_has_ten_seconds_to_become_healthy() {
        assert_eq!(wait_until_ready(&answering(&[200])).await, Ok(()));
        assert_eq!(wait_until_ready(&answering(&[500, 503, 200])).await, Ok(()));
        assert_eq!(wait_until_ready(&answering(&[403])).await, Ok(()));
        let start = tokio::time::Instant::now();
        assert_eq!(wait_until_ready(&answering(&[500])).await, Err(NotReady("500 Internal Server Error".to_owned())));
        assert_eq!(start.elapsed(), TIMEOUT);
    }
}
