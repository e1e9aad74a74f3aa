//! One service of a cloud: its address, credentials and errors, and the calls that are made to it.
//!
//! ```text
//!  Api::call(name, method, path) ──► CallBuilder: query, headers, body ──► send
//!                                                                          │
//!     credentials (Authorize) ──► Calls: pauses, rate, fence, retries ──► Client ──► the cloud
//!        ▲ once, after a 401                                              │
//!        └────────────── Error (ErrorDecoder) ◄── no success ◄────────────┴──► Answer: JSON, XML, text
//! ```

mod answer;
mod authorize;
mod builder;
mod decode;
mod pages;
mod retry_after;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Calls;
use http::{HeaderName, HeaderValue, Method};

pub use answer::ApiResponse;
pub use authorize::{Authorize, Bearer};
pub use builder::CallBuilder;
pub use decode::{ByStatus, ErrorDecoder, ErrorResponse};
pub use pages::{Page, all_pages};
pub use retry_after::retry_after;

use crate::Client;

/// The client gives up before the gate does, and says more in its error.
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
}

impl Api {
    /// The service of this name, called through `client` past the gate `calls`. Services are paused one by one.
    pub fn new(client: Client, calls: &Calls, service: &'static str) -> Api {
        let calls = calls.with_timeout(client.timeout().saturating_add(MARGIN));
        let decoder = Arc::new(ByStatus);
        Api { client, calls, service, base: "".into(), authorize: None, decoder, headers: Vec::new() }
    }

    /// With this base URL; paths are appended to it.
    pub fn base(mut self, url: &str) -> Api {
        self.base = url.into();
        self
    }

    /// With these credentials.
    pub fn authorize(mut self, authorize: impl Authorize + 'static) -> Api {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// With errors that are read by `decoder`.
    pub fn errors(mut self, decoder: impl ErrorDecoder + 'static) -> Api {
        self.decoder = Arc::new(decoder);
        self
    }

    /// With this header on every call.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Api {
        self.headers.push((name, value));
        self
    }

    /// A call that is counted under `name`. Each segment of the path is escaped.
    pub fn call(&self, name: &'static str, method: Method, path: &[&str]) -> CallBuilder<'_> {
        CallBuilder::new(self, name, method, path)
    }
}
