//! The cloud as a whole: it takes a request, applies faults, and asks the service.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bowline_http::{Client, Failure, Handler};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;

use crate::faults::{Fault, FaultSpec, Faults, Mishap};
use crate::golden::{Detail, Golden};
use crate::journal::{Entry, Journal};
use crate::records::View;
use crate::service::Service;
use crate::wire::{Call, Reply};

/// A simulated cloud. Clones are the same cloud.
///
/// [`answer`](Simulator::answer) is the cloud's side of the wire: such calls are delayed, fail and are counted. All other
/// methods belong to the test: they take effect at once, never fail on purpose and are not counted.
pub struct Simulator<S> {
    inner: Arc<Mutex<Inner<S>>>,
}

impl<S> Clone for Simulator<S> {
    fn clone(&self) -> Simulator<S> {
        Simulator { inner: Arc::clone(&self.inner) }
    }
}

/// The connection broke before there was an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection broke before there was an answer")
    }
}

impl std::error::Error for Lost {}

pub(crate) struct Inner<S> {
    service: S,
    faults: Faults,
    journal: Journal,
    latency: Duration,
    closes_connections: bool,
}

/// The service, locked.
pub struct Locked<'a, S>(MutexGuard<'a, Inner<S>>);

impl<S> Deref for Locked<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.service
    }
}

impl<S> DerefMut for Locked<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0.service
    }
}

impl<S: Service> Simulator<S> {
    /// A cloud of this service, without faults.
    pub fn new(service: S) -> Simulator<S> {
        let (faults, journal) = (Faults::default(), Journal::default());
        let inner = Inner { service, faults, journal, latency: Duration::ZERO, closes_connections: false };
        Simulator { inner: Arc::new(Mutex::new(inner)) }
    }

    /// The service. It must not be held across an await.
    pub fn service(&self) -> Locked<'_, S> {
        Locked(self.lock())
    }

    /// A client that asks this cloud in this process.
    pub fn client(&self, timeout: Duration) -> Client {
        Client::in_process(Arc::new(self.clone()), timeout)
    }

    /// Answers as the cloud would.
    pub async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Lost> {
        let call = Call::read(request);
        let (number, mishap) = self.begin(&call);
        if !mishap.delay.is_zero() {
            tokio::time::sleep(mishap.delay).await;
        }
        let reply = self.meet(&call, mishap.ending).await?;
        self.lock().journal.answered(number, reply.status);
        Ok(reply.into_response())
    }

    /// Records the call and decides which faults apply to it.
    fn begin(&self, call: &Call) -> (usize, Mishap) {
        let inner = &mut *self.lock();
        let operation = inner.service.operation(call);
        let mut mishap = inner.faults.strike(&call.method, &operation);
        mishap.delay = mishap.delay.saturating_add(inner.latency);
        (inner.journal.note(call, operation), mishap)
    }

    async fn meet(&self, call: &Call, ending: Option<Fault>) -> Result<Reply, Lost> {
        let serve = || self.lock().serve(call, View::Frozen);
        Ok(match ending {
            None | Some(Fault::Slow(_)) => serve(),
            Some(Fault::Answer(status, body)) => failing(status, body),
            Some(Fault::Throttled(after)) => throttled(after),
            Some(Fault::Lost) => return Err(Lost),
            Some(Fault::AnswerLost) => {
                serve();
                return Err(Lost);
            }
            Some(Fault::Garbled) => {
                serve();
                Reply::text(200, "{\"serv")
            }
            Some(Fault::Empty) => self.lock().serve_nothing(call),
            Some(Fault::Hanging) => std::future::pending().await,
        })
    }

    /// Nothing here leaves the state half changed, so a panic elsewhere under the lock spoils nothing.
    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Freezes what readers see at this moment; writes still take effect. `false` ends it.
    pub fn freeze_view(&self, frozen: bool) {
        let inner = &mut *self.lock();
        inner.service.settle();
        if let Some(views) = inner.service.views() {
            views.freeze(frozen);
        }
    }

    /// Sets the time that every call takes.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Closes each connection after one answer, as behind uWSGI.
    pub fn close_connections(&self, close: bool) {
        self.lock().closes_connections = close;
    }

    pub(crate) fn closes_connections(&self) -> bool {
        self.lock().closes_connections
    }
}

// ---- faults

impl<S: Service> Simulator<S> {
    /// Adds a fault to those in force; the number takes it back.
    pub fn inject(&self, fault: FaultSpec) -> u64 {
        self.lock().faults.inject(fault)
    }

    /// Takes a fault back.
    pub fn repair(&self, number: u64) {
        self.lock().faults.repair(number);
    }

    /// Takes all faults back.
    pub fn repair_all(&self) {
        self.lock().faults.repair_all();
    }

    /// Crashes the caller: this many more calls take effect, and the answer of the last is lost. Every call after it fails
    /// and has no effect. [`repair_all`](Simulator::repair_all) is the restart.
    pub fn crash_after(&self, calls: u64) {
        let answered = calls.saturating_sub(1);
        if calls > 0 {
            self.inject(FaultSpec::always(Fault::AnswerLost).after(answered).times(1));
        }
        self.inject(FaultSpec::always(Fault::Lost).after(calls));
    }
}

// ---- the journal

impl<S: Service> Simulator<S> {
    /// The calls so far, in order.
    pub fn journal(&self) -> Vec<Entry> {
        self.lock().journal.entries().to_vec()
    }

    /// All calls, in order, also those that were forgotten.
    pub fn all_calls(&self) -> Vec<Entry> {
        self.lock().journal.all().to_vec()
    }

    /// How often each kind of call was made: `GET ports`, `PUT pools/{id}/members`.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.lock().journal.counts()
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.lock().journal.entries().len() as u64
    }

    /// The calls so far that changed something, or would have.
    pub fn writes(&self) -> Vec<Entry> {
        self.lock().journal.entries().iter().filter(|entry| entry.is_write).cloned().collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.lock().journal.forget();
    }

    /// Compares the calls of the current test with its section in this file once the result is dropped.
    pub fn golden(&self, file: impl Into<PathBuf>, detail: Detail) -> Golden {
        let cloud = self.clone();
        Golden::new(file.into(), detail, Box::new(move || cloud.all_calls()))
    }
}

#[async_trait]
impl<S: Service> Handler for Simulator<S> {
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        self.answer(request).await.map_err(|lost| Failure::Broken(lost.to_string()))
    }
}

impl<S: Service> Inner<S> {
    /// Answers, with what readers are shown in this view.
    fn serve(&mut self, call: &Call, view: View) -> Reply {
        self.service.settle();
        self.show(if call.is_read() { view } else { View::Now });
        let reply = self.service.answer(call);
        self.show(View::Now);
        reply
    }

    /// Answers as if there were nothing: lists are empty, and so is the answer about a single object.
    fn serve_nothing(&mut self, call: &Call) -> Reply {
        let reply = self.serve(call, View::Nothing);
        if call.is_read() && reply.status == 404 { Reply::json(200, json!({})) } else { reply }
    }

    fn show(&mut self, view: View) {
        if let Some(views) = self.service.views() {
            views.show(view);
        }
    }
}

/// A body that is given is sent as it is; without one there is what a proxy would say.
fn failing(status: u16, body: String) -> Reply {
    if body.is_empty() {
        let title = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let title = title.unwrap_or("Unknown");
        return Reply::json(status, json!({"error": {"code": status, "title": title, "message": title}}));
    }
    match serde_json::from_str(&body) {
        Ok(value) => Reply::json(status, value),
        Err(_) => Reply::text(status, body),
    }
}

fn throttled(after: Option<Duration>) -> Reply {
    let reply = Reply::text(429, "Too Many Requests");
    match after {
        Some(after) => reply.with("retry-after", after.as_secs().to_string()),
        None => reply,
    }
}
