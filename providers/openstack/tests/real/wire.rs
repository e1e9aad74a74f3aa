//! What stands between the provider and the services: it counts, and lets the cloud go wrong.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_conformance::Trouble;
use bowline_http::{Client, Failure, Handler, Options, Proxies, Tls};
use bytes::Bytes;
use http::{Request, Response};

/// Everything that the provider sends goes through one of these.
pub(crate) struct Wire {
    services: Client,
    calls: AtomicU64,
    writes: AtomicU64,
    trouble: Mutex<Option<Trouble>>,
}

impl Wire {
    pub(crate) fn new(timeout: Duration) -> Arc<Wire> {
        let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout };
        let (calls, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Wire { services: Client::new(options).unwrap(), calls, writes, trouble: Mutex::new(None) })
    }

    /// A client that goes through this.
    pub(crate) fn client(self: &Arc<Wire>, timeout: Duration) -> Client {
        Client::in_process(self.clone(), timeout)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Calls that change something. A token is not something of the cloud's.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    pub(crate) fn make(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().unwrap() = trouble;
    }

    /// What the cloud answers instead, if it is in trouble.
    fn instead(&self, request: &Request<Bytes>) -> Option<Response<Bytes>> {
        let asks_keystone = request.uri().path().ends_with("/auth/tokens");
        let trouble = (*self.trouble.lock().unwrap())?;
        let answer = Response::builder().header("content-type", "application/json");
        let (answer, body) = match trouble {
            Trouble::Unauthenticated => (answer.status(401), r#"{"error": {"code": 401, "title": "Unauthorized"}}"#),
            // Keystone has no rights to refuse, and nothing to show or to hide.
            Trouble::Forbidden | Trouble::Empty if asks_keystone => return None,
            Trouble::Forbidden => (answer.status(403), r#"{"forbidden": {"code": 403, "message": "Policy"}}"#),
            Trouble::Throttled(after) => {
                (answer.status(429).header("retry-after", after.as_secs()), r#"{"overLimit": {"code": 429}}"#)
            }
            Trouble::Broken => (answer.status(503), "no server is available"),
            Trouble::Garbled => (answer.status(200), "<html>welcome</html>"),
            Trouble::Empty => return answer.status(200).body(Bytes::from(nothing(request.uri().path()))).ok(),
        };
        answer.body(Bytes::from_static(body.as_bytes())).ok()
    }
}

/// What a service says that shows nothing: an empty list, or an object without what was asked for.
fn nothing(path: &str) -> String {
    let mut segments = path.rsplit('/').filter(|segment| !segment.is_empty());
    let last = segments.next().unwrap_or_default();
    let kind = if last == "detail" { segments.next().unwrap_or_default() } else { last };
    match kind.ends_with('s') {
        true => format!(r#"{{"{}": []}}"#, kind.replace('-', "_")),
        false => "{}".to_owned(),
    }
}

#[async_trait]
impl Handler for Wire {
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if !request.method().is_safe() && !request.uri().path().ends_with("/auth/tokens") {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        match self.instead(&request) {
            Some(answer) => Ok(answer),
            None => self.services.send(request).await,
        }
    }
}
