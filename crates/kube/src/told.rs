//! Every request to the API server in the log, where requests are shown.

use std::time::Instant;

use http::{Method, Request, Response, Uri};
use kube::client::Body;
use tower::BoxError;
use tracing::level_filters::LevelFilter;

/// By this the API server's own audit log knows a request.
const AUDIT_ID: &str = "audit-id";

/// A request under way. There is none unless somebody wants to read of it.
pub(crate) struct Told {
    method: Method,
    uri: Uri,
    begun: Instant,
}

impl Told {
    pub(crate) fn begin(request: &Request<Body>) -> Option<Told> {
        let begun = Instant::now();
        // Not `enabled!`: where several listen, each with a filter of its own, its answer sticks to the thread, and the next span
        // counts as unwanted by whoever did not want this event. Traces would miss it.
        (LevelFilter::current() == LevelFilter::TRACE).then(|| Told {
            method: request.method().clone(),
            uri: request.uri().clone(),
            begun,
        })
    }

    /// The answer has begun. Headers and bodies are not told: there may be credentials in them.
    pub(crate) fn end(self, answer: &Result<Response<Body>, BoxError>) {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let (method, duration) = (self.method.as_str(), self.begun.elapsed());
        match answer {
            Ok(answer) => {
                let audit = answer.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok());
                tracing::trace!(
                    method,
                    path,
                    code = answer.status().as_u16(),
                    ?duration,
                    auditID = audit,
                    "asked the API server"
                );
            }
            Err(error) => tracing::trace!(method, path, ?duration, %error, "asked the API server"),
        }
    }
}
