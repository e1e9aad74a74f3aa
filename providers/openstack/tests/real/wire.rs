//! What stands between the provider and the services: it counts, lets the cloud go wrong, and asks again where Octavia did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_conformance::InducedFault;
use bowline_http::{Client, Failure, Handler, Options, Proxies, Tls};
use bytes::Bytes;
use http::{Request, Response};

/// How often a request is sent that Octavia fails by itself.
const TRIES: usize = 10;

/// How often Octavia failed by itself, in all cases together.
pub(crate) static OCTAVIAS_OWN: AtomicU64 = AtomicU64::new(0);

/// Everything that the provider sends goes through one of these.
pub(crate) struct Wire {
    services: Client,
    calls: AtomicU64,
    writes: AtomicU64,
    trouble: Mutex<Option<InducedFault>>,
    /// So many calls are still carried out before the manager is dead; `None` as long as it lives.
    left_to_live: Mutex<Option<u64>>,
}

/// What becomes of a call.
enum Fate {
    Answered,
    /// It is carried out, and nobody hears of it.
    AnswerLost,
    Lost,
}

impl Wire {
    pub(crate) fn new(timeout: Duration) -> Arc<Wire> {
        let options = Options { tls: Tls::default(), proxies: Proxies::default(), timeout };
        Arc::new(Wire {
            services: Client::new(options).unwrap(),
            calls: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            trouble: Mutex::new(None),
            left_to_live: Mutex::new(None),
        })
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

    pub(crate) fn make(&self, trouble: Option<InducedFault>) {
        *self.trouble.lock().unwrap() = trouble;
    }

    /// The manager dies with the answer of the last of so many calls; `None` brings it back.
    pub(crate) fn crash_after(&self, calls: Option<u64>) {
        *self.left_to_live.lock().unwrap() = calls;
    }

    fn fate(&self) -> Fate {
        let mut left = self.left_to_live.lock().unwrap();
        let fate = match *left {
            None | Some(2..) => Fate::Answered,
            Some(1) => Fate::AnswerLost,
            Some(0) => Fate::Lost,
        };
        *left = left.map(|left| left.saturating_sub(1));
        fate
    }

    /// What the cloud answers instead, if it is in trouble.
    fn instead(&self, request: &Request<Bytes>) -> Option<Response<Bytes>> {
        let asks_keystone = request.uri().path().ends_with("/auth/tokens");
        let trouble = (*self.trouble.lock().unwrap())?;
        let answer = Response::builder().header("content-type", "application/json");
        let (answer, body) = match trouble {
            InducedFault::Unauthenticated => {
                (answer.status(401), r#"{"error": {"code": 401, "title": "Unauthorized"}}"#)
            }
            // Keystone has no rights to refuse, and nothing to show or to hide.
            InducedFault::Forbidden | InducedFault::Empty | InducedFault::NotFound(_) if asks_keystone => return None,
            InducedFault::Forbidden => (answer.status(403), r#"{"forbidden": {"code": 403, "message": "Policy"}}"#),
            InducedFault::Throttled(after) => {
                (answer.status(429).header("retry-after", after.as_secs()), r#"{"overLimit": {"code": 429}}"#)
            }
            InducedFault::Broken => (answer.status(503), "no server is available"),
            InducedFault::Garbled => (answer.status(200), "<html>welcome</html>"),
            InducedFault::NotFound(body) => (answer.status(404), body),
            InducedFault::Slow(_) => return None,
            InducedFault::Empty => return answer.status(200).body(Bytes::from(nothing(request.uri().path()))).ok(),
        };
        answer.body(Bytes::from_static(body.as_bytes())).ok()
    }

    /// The services' answer.
    ///
    /// Octavia 11 fails a balancer that is made together with listeners that have allowed CIDRs about once in five times:
    /// it gives the VIP its address past SQLAlchemy's session, and then finds the VIP without one if the session still holds
    /// it. All is rolled back then. The layers around a provider ask again; the suite has none, and what it has to say is about
    /// the provider, so this does it for them.
    async fn pass_on(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        let trouble = *self.trouble.lock().unwrap();
        if let Some(InducedFault::Slow(delay)) = trouble {
            tokio::time::sleep(delay).await;
        }
        for _ in 1..TRIES {
            let answer = self.services.send(request.clone()).await?;
            if !is_octavias_own(&answer) {
                return Ok(answer);
            }
            OCTAVIAS_OWN.fetch_add(1, Ordering::SeqCst);
        }
        self.services.send(request).await
    }
}

fn is_octavias_own(answer: &Response<Bytes>) -> bool {
    let says = "None does not appear to be an IPv4 or IPv6 address";
    answer.status() == 500 && String::from_utf8_lossy(answer.body()).contains(says)
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
        if let Some(answer) = self.instead(&request) {
            return Ok(answer);
        }
        let gone = || Err(Failure::Broken("the manager is dead".to_owned()));
        match self.fate() {
            Fate::Answered => self.pass_on(request).await,
            Fate::AnswerLost => self.pass_on(request).await.and_then(|_| gone()),
            Fate::Lost => gone(),
        }
    }
}
