//! `--metrics-listen`: what the manager tells about itself, in plain HTTP, to this machine only.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bowline_runtime::Shutdown;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::exposition;

/// A client that has not sent its request by then is gone or means no good.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a connection could not be taken, which is when there are too many.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address that is taken, and what is told there.
pub(crate) struct Admin {
    listener: TcpListener,
    metrics: prometheus::Registry,
}

impl Admin {
    /// Takes the address.
    pub(crate) async fn bind(address: SocketAddr, metrics: prometheus::Registry) -> anyhow::Result<Admin> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr().unwrap_or(address);
        tracing::info!(%address, "serving /metrics");
        Ok(Admin { listener, metrics })
    }

    /// Answers until shutdown is requested.
    pub(crate) async fn serve(self, shutdown: Shutdown) -> Result<(), Infallible> {
        while let Some(accepted) = shutdown.or(self.listener.accept()).await {
            match accepted {
                Ok((stream, _)) => drop(tokio::spawn(converse(stream, self.metrics.clone(), shutdown.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection");
                    shutdown.or(tokio::time::sleep(ACCEPT_PAUSE)).await;
                }
            }
        }
        Ok(())
    }
}

/// One connection. How it ends is the client's affair.
async fn converse(stream: TcpStream, metrics: prometheus::Registry, shutdown: Shutdown) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &metrics);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let _ = shutdown.or(http.serve_connection(TokioIo::new(stream), service)).await;
}

fn answer(method: &Method, path: &str, metrics: &prometheus::Registry) -> Response<Full<Bytes>> {
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => tell(metrics),
        (_, "/metrics") => text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n"),
        _ => text(StatusCode::NOT_FOUND, "there is only /metrics here\n"),
    }
}

fn tell(metrics: &prometheus::Registry) -> Response<Full<Bytes>> {
    with_type(StatusCode::OK, prometheus::TEXT_FORMAT, exposition::text(&metrics.gather()).into())
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", body.into())
}

fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    async fn said(method: Method, path: &str) -> (u16, String) {
        let metrics = prometheus::Registry::new();
        let counter = prometheus::IntCounter::new("knots_total", "Knots tied.").unwrap();
        metrics.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(7);
        let response = answer(&method, path, &metrics);
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_are_told_in_the_format_that_prometheus_reads() {
        let (status, body) = said(Method::GET, "/metrics").await;
        assert_eq!(
            (status, body.as_str()),
            (200, "# HELP knots_total Knots tied.\n# TYPE knots_total counter\nknots_total 7\n")
        );
    }

    #[tokio::test]
    async fn nothing_else_is_served() {
        assert_eq!(said(Method::GET, "/").await.0, 404);
        assert_eq!(said(Method::POST, "/metrics").await.0, 405);
    }
}
