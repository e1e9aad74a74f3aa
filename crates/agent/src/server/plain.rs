//! Listener of metrics and health checks, without TLS.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::Shutdown;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::router::Api;

/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 32;

/// Timeout of the request head, and therefore of an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// Serves until shutdown is requested.
pub(crate) async fn serve_plain(listener: TcpListener, api: Arc<Api>, shutdown: Shutdown) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Some(accepted) = shutdown.or(listener.accept()).await else { return };
        let (Ok((stream, _)), Ok(permit)) = (accepted, connections.clone().try_acquire_owned()) else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let (api, shutdown) = (api.clone(), shutdown.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let reply = answer(&api, request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(reply) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            let _ = shutdown.or(builder.serve_connection(TokioIo::new(stream), service)).await;
            drop(permit);
        });
    }
}

fn answer(api: &Api, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => readiness(api),
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, api.metrics()),
        (_, "/healthz" | "/readyz" | "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "the paths are /metrics, /healthz and /readyz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// A standby is ready, too: it can take over.
fn readiness(api: &Api) -> (StatusCode, String) {
    let inner = api.group.inner();
    match (inner.leaving, inner.fenced, inner.writable) {
        (true, ..) => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned()),
        (_, Some(fenced), _) => (StatusCode::SERVICE_UNAVAILABLE, format!("{fenced}\n")),
        (.., false) => (StatusCode::SERVICE_UNAVAILABLE, "the state file cannot be written\n".to_owned()),
        _ => (StatusCode::OK, "ok\n".to_owned()),
    }
}
