//! Client for one service of a cloud: base URL, credentials, error decoder and calls.
//!
//! ```text
//!  Api::call(name, method, path) ──► CallBuilder: query, headers, body ──► send
//!                                                                          │
//!     credentials (Authorize) ──► Calls: pauses, rate, fence, retries ──► Client ──► the cloud
//!        ▲ once, if the cloud rejects them                                │
//!        └────────────── Error (ErrorDecoder) ◄── error status ◄──────────┴──► ApiResponse: JSON, XML, text
//! ```

mod authorize;
mod builder;
mod decode;
mod omit;
mod pages;
mod rate_limit;
mod response;
mod retry_after;
#[cfg(test)]
mod tests;
mod user_agent;

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{CallBudget, Calls};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

pub use authorize::{Authorize, Bearer, Rejection};
pub use builder::CallBuilder;
pub use decode::{ByStatus, ErrorDecoder, ErrorResponse};
pub use omit::omit_empty;
pub use pages::{Page, all_pages};
pub use rate_limit::rate_limit_until_epoch;
pub use response::{ApiResponse, Fields};
pub use retry_after::retry_after;
pub use user_agent::user_agent;

use crate::Client;

/// The client times out before the call layer does, because its error has more details.
const MARGIN: Duration = Duration::from_secs(1);

/// One service of a cloud. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    client: Client,
    calls: Calls,
    service: &'static str,
    base: Arc<str>,
    authorize: Option<Arc<dyn Authorize>>,
    decoder: Arc<dyn ErrorDecoder>,
    headers: Vec<(HeaderName, HeaderValue)>,
    budget: fn(&HeaderMap) -> Option<CallBudget>,
}

impl Api {
    /// Creates a client for the service of this name. All calls pass through `calls`, which pauses each service on its own.
    pub fn new(client: Client, calls: &Calls, service: &'static str) -> Api {
        let calls = calls.with_timeout(client.timeout().saturating_add(MARGIN));
        let decoder = Arc::new(ByStatus);
        Api { client, calls, service, base: "".into(), authorize: None, decoder, headers: Vec::new(), budget: |_| None }
    }

    /// Sets the base URL, to which paths are appended.
    pub fn base(mut self, url: &str) -> Api {
        self.base = url.into();
        self
    }

    /// Sets the credentials.
    pub fn authorize(mut self, authorize: impl Authorize + 'static) -> Api {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// Sets the decoder of error responses.
    pub fn errors(mut self, decoder: impl ErrorDecoder + 'static) -> Api {
        self.decoder = Arc::new(decoder);
        self
    }

    /// Adds a header to every call.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Api {
        self.headers.push((name, value));
        self
    }

    /// Sets the function that reads from the headers of a response how many calls the cloud still accepts.
    pub fn budget(mut self, budget: fn(&HeaderMap) -> Option<CallBudget>) -> Api {
        self.budget = budget;
        self
    }

    /// Creates a call; `name` is its name in metrics. Each segment of the path is escaped.
    pub fn call(&self, name: &'static str, method: Method, path: &[&str]) -> CallBuilder<'_> {
        CallBuilder::new(self, name, method, path)
    }
}
