//! Trace log of every request to the API server.

use std::time::Instant;

use http::{Method, Request, Response, Uri};
use kube::client::Body;
use tower::BoxError;
use tracing::level_filters::LevelFilter;

/// Response header with the ID of the request in the API server's audit log.
const AUDIT_ID: &str = "audit-id";

/// A request in flight, recorded only while trace logging is enabled.
pub(crate) struct RequestLog {
    method: Method,
    uri: Uri,
    started: Instant,
}

impl RequestLog {
    pub(crate) fn start(request: &Request<Body>) -> Option<RequestLog> {
        let started = Instant::now();
        // Not `enabled!`: with several layers that each have a filter, tracing stores its result for the thread, and a layer that
        // filters this event would skip the next span, too. Traces would miss that span.
        (LevelFilter::current() == LevelFilter::TRACE).then(|| RequestLog {
            method: request.method().clone(),
            uri: request.uri().clone(),
            started,
        })
    }

    /// Logs the response status. Headers and bodies are not logged: they may contain credentials.
    pub(crate) fn finish(self, response: &Result<Response<Body>, BoxError>) {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let (method, duration) = (self.method.as_str(), self.started.elapsed());
        match response {
            Ok(response) => {
                let audit = response.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok());
                tracing::trace!(
                    method,
                    path,
                    code = response.status().as_u16(),
                    ?duration,
                    auditID = audit,
                    "sent a request to the API server"
                );
            }
            Err(error) => tracing::trace!(method, path, ?duration, %error, "sent a request to the API server"),
        }
    }
}
