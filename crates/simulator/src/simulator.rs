//! The simulated cloud: records a request, applies faults, and calls the service.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bowline_http::{Client, Handler, RequestError};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;

use crate::faults::{Fault, FaultEffect, FaultSpec, Faults};
use crate::golden::{Detail, Golden};
use crate::journal::{Entry, Journal};
use crate::records::View;
use crate::service::Service;
use crate::wire::{Call, Reply};

/// A simulated cloud. Clones share the same cloud.
///
/// Calls of [`answer`](Simulator::answer) come from clients: they are recorded, delayed and may fail. All other methods are controls
/// for the test: they take effect at once and are not recorded.
pub struct Simulator<S> {
    inner: Arc<Mutex<Inner<S>>>,
}

impl<S> Clone for Simulator<S> {
    fn clone(&self) -> Simulator<S> {
        Simulator { inner: Arc::clone(&self.inner) }
    }
}

/// Connection lost before the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection lost before the response")
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
    /// Creates a cloud without faults.
    pub fn new(service: S) -> Simulator<S> {
        let (faults, journal) = (Faults::default(), Journal::default());
        let inner = Inner { service, faults, journal, latency: Duration::ZERO, closes_connections: false };
        Simulator { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Locks the service. The lock must not be held across an await.
    pub fn service(&self) -> Locked<'_, S> {
        Locked(self.lock())
    }

    /// HTTP client that calls this cloud in the same process.
    pub fn client(&self, timeout: Duration) -> Client {
        Client::in_process(Arc::new(self.clone()), timeout)
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Lost> {
        let call = Call::read(request);
        let (number, effect) = self.begin(&call);
        if !effect.delay.is_zero() {
            tokio::time::sleep(effect.delay).await;
        }
        let reply = self.serve_with_fault(&call, effect.fault).await?;
        self.lock().journal.answered(number, reply.status);
        Ok(reply.into_response())
    }

    /// Records the call and decides which faults apply to it.
    fn begin(&self, call: &Call) -> (usize, FaultEffect) {
        let inner = &mut *self.lock();
        let operation = inner.service.operation(call);
        let mut effect = inner.faults.apply(&call.method, &operation);
        effect.delay = effect.delay.saturating_add(inner.latency);
        (inner.journal.record(call, operation), effect)
    }

    async fn serve_with_fault(&self, call: &Call, fault: Option<Fault>) -> Result<Reply, Lost> {
        let serve = || self.lock().serve(call, View::Frozen);
        Ok(match fault {
            None | Some(Fault::Slow(_)) => serve(),
            Some(Fault::Answer(status, body)) => error_reply(status, body),
            Some(Fault::Throttled(after)) => throttled_reply(after),
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

    /// Ignores a poisoned lock: no method here leaves the state half changed.
    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Freezes the view of readers at this moment; writes still take effect. `false` ends it.
    pub fn freeze_view(&self, frozen: bool) {
        let inner = &mut *self.lock();
        inner.service.settle();
        if let Some(views) = inner.service.views() {
            views.freeze(frozen);
        }
    }

    /// Sets the latency of every call.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Closes each connection after one response, as uWSGI does.
    pub fn close_connections(&self, close: bool) {
        self.lock().closes_connections = close;
    }

    pub(crate) fn closes_connections(&self) -> bool {
        self.lock().closes_connections
    }
}

// ---- faults

impl<S: Service> Simulator<S> {
    /// Injects a fault, and returns its number for [`repair`](Simulator::repair).
    pub fn inject(&self, fault: FaultSpec) -> u64 {
        self.lock().faults.inject(fault)
    }

    /// Removes a fault.
    pub fn repair(&self, number: u64) {
        self.lock().faults.repair(number);
    }

    /// Removes all faults.
    pub fn repair_all(&self) {
        self.lock().faults.repair_all();
    }

    /// Simulates a crash of the client: this many more calls take effect, and the response to the last is lost. Every later call fails
    /// without effect. [`repair_all`](Simulator::repair_all) is the restart.
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
    /// Calls since the last [`forget_calls`](Simulator::forget_calls), in order.
    pub fn journal(&self) -> Vec<Entry> {
        self.lock().journal.entries().to_vec()
    }

    /// All calls, in order, including forgotten ones.
    pub fn all_calls(&self) -> Vec<Entry> {
        self.lock().journal.all().to_vec()
    }

    /// Number of calls of each kind: `GET ports`, `PUT pools/{id}/members`.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.lock().journal.counts()
    }

    /// Number of calls.
    pub fn calls(&self) -> u64 {
        self.lock().journal.entries().len() as u64
    }

    /// Write calls, including failed ones.
    pub fn writes(&self) -> Vec<Entry> {
        self.lock().journal.entries().iter().filter(|entry| entry.is_write).cloned().collect()
    }

    /// Forgets the calls so far.
    pub fn forget_calls(&self) {
        self.lock().journal.forget();
    }

    /// Compares the calls of the current test with its section in this file when the returned value is dropped.
    pub fn golden(&self, file: impl Into<PathBuf>, detail: Detail) -> Golden {
        let cloud = self.clone();
        Golden::new(file.into(), detail, Box::new(move || cloud.all_calls()))
    }
}

#[async_trait]
impl<S: Service> Handler for Simulator<S> {
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        self.answer(request).await.map_err(|lost| RequestError::Broken(lost.to_string()))
    }
}

impl<S: Service> Inner<S> {
    /// Answers a call; reads get this view.
    fn serve(&mut self, call: &Call, view: View) -> Reply {
        self.service.settle();
        self.show(if self.service.is_read(call) { view } else { View::Now });
        let reply = self.service.answer(call);
        self.show(View::Now);
        reply
    }

    /// Answers as if the cloud were empty: with empty lists, and with `{}` for a single object.
    fn serve_nothing(&mut self, call: &Call) -> Reply {
        let reply = self.serve(call, View::Nothing);
        if self.service.is_read(call) && reply.status == 404 { Reply::json(200, json!({})) } else { reply }
    }

    fn show(&mut self, view: View) {
        if let Some(views) = self.service.views() {
            views.show(view);
        }
    }
}

/// Error response with this body, or with a generic one if the body is empty.
fn error_reply(status: u16, body: String) -> Reply {
    if body.is_empty() {
        let title = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let title = title.unwrap_or("Unknown");
        return Reply::json(status, json!({"error": {"code": status, "title": title, "message": title}}));
    }
    match serde_json::from_str(&body) {
        Ok(value) => Reply::json(status, value),
        Err(_) if body.starts_with("<?xml") => Reply::xml(status, body),
        Err(_) => Reply::text(status, body),
    }
}

fn throttled_reply(after: Option<Duration>) -> Reply {
    let reply = Reply::text(429, "Too Many Requests");
    match after {
        Some(after) => reply.with("retry-after", after.as_secs().to_string()),
        None => reply,
    }
}
