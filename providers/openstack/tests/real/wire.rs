//! HTTP proxy between the provider and the real services: counts calls, injects faults, and retries a known bug of Octavia.
//!
//! The fault injection of `bowline-simulator` does not fit here: its `Service::answer` is a synchronous function on local state, and
//! an empty answer is a view of that state. Here the answer comes from a real service, and an empty one is made up from the path.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_conformance::InducedFault;
use bowline_http::{Client, Handler, Options, Proxies, RequestError, Tls};
use bytes::Bytes;
use http::{Request, Response};

/// Maximum number of attempts for a request that fails with Octavia's bug.
const ATTEMPTS: usize = 10;

/// Number of requests that failed with Octavia's bug, in all cases.
pub(crate) static OCTAVIA_FAILURES: AtomicU64 = AtomicU64::new(0);

/// Proxy for all requests of a provider.
pub(crate) struct Wire {
    services: Client,
    calls: AtomicU64,
    writes: AtomicU64,
    fault: Mutex<Option<InducedFault>>,
    /// Number of calls left before the simulated crash; `None` without a crash.
    calls_to_crash: Mutex<Option<u64>>,
}

/// Effect of a simulated crash on a call.
enum CrashEffect {
    None,
    /// The call is executed and its response is lost.
    ResponseLost,
    /// The call is not sent.
    Lost,
}

impl Wire {
    pub(crate) fn new(timeout: Duration) -> Arc<Wire> {
        let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout };
        Arc::new(Wire {
            services: Client::new(options).unwrap(),
            calls: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            fault: Mutex::new(None),
            calls_to_crash: Mutex::new(None),
        })
    }

    /// HTTP client that uses this proxy.
    pub(crate) fn client(self: &Arc<Wire>, timeout: Duration) -> Client {
        Client::in_process(self.clone(), timeout)
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Number of write calls, without token requests.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    pub(crate) fn set_fault(&self, fault: Option<InducedFault>) {
        *self.fault.lock().unwrap() = fault;
    }

    /// Simulates a crash: the response to the last of this many calls is lost, and later calls fail. `None` ends it.
    pub(crate) fn crash_after(&self, calls: Option<u64>) {
        *self.calls_to_crash.lock().unwrap() = calls;
    }

    fn crash_effect(&self) -> CrashEffect {
        let mut left = self.calls_to_crash.lock().unwrap();
        let effect = match *left {
            None | Some(2..) => CrashEffect::None,
            Some(1) => CrashEffect::ResponseLost,
            Some(0) => CrashEffect::Lost,
        };
        *left = left.map(|left| left.saturating_sub(1));
        effect
    }

    /// Response in place of the cloud's, if a fault is injected.
    fn fault_response(&self, request: &Request<Bytes>) -> Option<Response<Bytes>> {
        let is_token_request = request.uri().path().ends_with("/auth/tokens");
        let fault = (*self.fault.lock().unwrap())?;
        let answer = Response::builder().header("content-type", "application/json");
        let (answer, body) = match fault {
            InducedFault::Unauthenticated => {
                (answer.status(401), r#"{"error": {"code": 401, "title": "Unauthorized"}}"#)
            }
            // Keystone checks no permissions for a token request, and has no resources to list.
            InducedFault::Forbidden | InducedFault::Empty | InducedFault::NotFound(_) if is_token_request => {
                return None;
            }
            InducedFault::Forbidden => (answer.status(403), r#"{"forbidden": {"code": 403, "message": "Policy"}}"#),
            InducedFault::Throttled(after) => {
                (answer.status(429).header("retry-after", after.as_secs()), r#"{"overLimit": {"code": 429}}"#)
            }
            InducedFault::Broken => (answer.status(503), "no server is available"),
            InducedFault::Garbled => (answer.status(200), "<html>welcome</html>"),
            InducedFault::NotFound(body) => (answer.status(404), body),
            InducedFault::Slow(_) => return None,
            InducedFault::Empty => return answer.status(200).body(Bytes::from(empty_body(request.uri().path()))).ok(),
        };
        answer.body(Bytes::from_static(body.as_bytes())).ok()
    }

    /// Sends the request to the services, and retries Octavia's bug.
    ///
    /// Octavia 11 fails about one in five creations of a load balancer together with listeners that have allowed CIDRs: it sets the
    /// VIP's address outside of SQLAlchemy's session, and then reads the VIP without an address if the session still holds it. The
    /// request is rolled back. The layers around a provider retry it; the suite runs without layers and tests the provider, so
    /// this retries in their place.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        let fault = *self.fault.lock().unwrap();
        if let Some(InducedFault::Slow(delay)) = fault {
            tokio::time::sleep(delay).await;
        }
        for _ in 1..ATTEMPTS {
            let answer = self.services.send(request.clone()).await?;
            if !is_octavia_failure(&answer) {
                return Ok(answer);
            }
            OCTAVIA_FAILURES.fetch_add(1, Ordering::SeqCst);
        }
        self.services.send(request).await
    }
}

fn is_octavia_failure(answer: &Response<Bytes>) -> bool {
    let message = "None does not appear to be an IPv4 or IPv6 address";
    answer.status() == 500 && String::from_utf8_lossy(answer.body()).contains(message)
}

/// Body of an empty answer: an empty list, or `{}` for a single object.
fn empty_body(path: &str) -> String {
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
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if !request.method().is_safe() && !request.uri().path().ends_with("/auth/tokens") {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(answer) = self.fault_response(&request) {
            return Ok(answer);
        }
        let crashed = || Err(RequestError::Broken("the manager has crashed".to_owned()));
        match self.crash_effect() {
            CrashEffect::None => self.send(request).await,
            CrashEffect::ResponseLost => self.send(request).await.and_then(|_| crashed()),
            CrashEffect::Lost => crashed(),
        }
    }
}
