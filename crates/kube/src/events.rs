//! Events (EV-1 to EV-5): what people read with `kubectl describe`.
//!
//! ```text
//!  EventSource.emit ──► log line
//!                   └─► combine similar (EV-3) ──► count identical (EV-2) ──► filter spam (EV-4)
//!                              └─► one of several queues, by object ──► API server
//! ```
//!
//! Emitting never waits and never fails. Events about one object are written in their order; those about several objects
//! are written side by side, so that the first minute of a large cluster does not take an hour to tell.

mod correlate;
mod post;
mod recent;

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_core::{Node, Service};
use bowline_runtime::{Clock, Metric, Shutdown, metrics};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use prometheus::{IntCounterVec, Registry};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::permissions::Permission;
use correlate::{Correlator, Occurrence, Record};

/// Events in flight, and queues.
const QUEUES: usize = 8;
/// Events in a queue. All queues together hold several for each node of the largest clusters; upstream's 1000 do not.
const QUEUE_LENGTH: usize = 8192;
/// How long writing may go on after the wish to end.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// The longest message: those of the newer API for Events have the same bound.
const LONGEST_MESSAGE: usize = 1024;

metrics! {
    /// What the writing of Events counts.
    pub(crate) METRICS;
    DROPPED = Metric::counter("bowline_events_dropped_total", "Events that were lost, by cause.").labels(&["cause"]);
}

/// What an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// `v1`.
    pub api_version: String,
    /// `Node`, `Service`, …
    pub kind: String,
    /// `None` for objects without one; their Events live in `default`.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// The state of the object that the Event is about, if it is about one. Events that differ in it alone are the same.
    pub resource_version: Option<String>,
}

/// How an Event is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Takes Events and writes them. Clones are the same sink.
#[derive(Clone)]
pub struct EventSink {
    shared: Arc<Sink>,
    client: kube::Client,
    dry_run: bool,
}

/// An [`EventSink`] with the name of who speaks.
#[derive(Clone)]
pub struct EventSource {
    sink: EventSink,
    component: &'static str,
}

struct Sink {
    correlator: Mutex<Correlator>,
    queues: Vec<mpsc::Sender<Letter>>,
    clock: Clock,
    dropped: Dropped,
    /// That Events are lost has been said in the log.
    is_full: AtomicBool,
}

/// A record, and through which client it is to be written.
struct Letter {
    record: Record,
    client: kube::Client,
}

/// Counts Events that are lost, by cause.
#[derive(Clone)]
struct Dropped(Option<IntCounterVec>);

impl EventSink {
    /// For what the sink writes. Events lie in the namespaces of what they are about, those about Nodes in `default`.
    pub const PERMISSION: Permission = Permission::core(
        "events",
        &["create", "patch"],
        "to tell people what happens, and to count what happens again",
    );

    /// A sink and the task that writes what it takes; on shutdown the task writes what is left, for a bounded time.
    pub fn new(
        client: kube::Client,
        clock: Clock,
        metrics: &Registry,
    ) -> (EventSink, impl FnOnce(Shutdown) -> BoxFuture<'static, ()> + use<>) {
        let (queues, ends): (Vec<_>, Vec<_>) = (0..QUEUES).map(|_| mpsc::channel(QUEUE_LENGTH)).unzip();
        let dropped = Dropped::register(metrics);
        let sink = Sink {
            correlator: Mutex::new(Correlator::new()),
            queues,
            clock,
            dropped: dropped.clone(),
            is_full: AtomicBool::new(false),
        };
        let task = move |shutdown| write_all(ends, dropped, shutdown).boxed();
        (EventSink { shared: Arc::new(sink), client, dry_run: false }, task)
    }

    /// The same sink, but what is told to it here is written through this client.
    pub fn through(self, client: kube::Client) -> EventSink {
        EventSink { client, ..self }
    }

    /// Events are logged and not written.
    pub fn dry_run(self, dry_run: bool) -> EventSink {
        EventSink { dry_run, ..self }
    }

    /// For a controller: `component` is what `source.component` says.
    pub fn source(&self, component: &'static str) -> EventSource {
        EventSource { sink: self.clone(), component }
    }
}

impl EventSource {
    /// Says `message` about `object`, in the log and as an Event.
    pub fn emit(
        &self,
        object: &ObjectRef,
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl fmt::Display,
    ) {
        let (reason, message) = (reason.into(), one_line(&message.to_string()));
        if self.sink.dry_run {
            return self.log(object, kind, &reason, &format!("dry run: {message}"));
        }
        self.log(object, kind, &reason, &message);
        let what = Occurrence { component: self.component, object: object.clone(), kind, reason, message };
        self.sink.shared.take(what, &self.sink.client);
    }

    fn log(&self, object: &ObjectRef, kind: EventType, reason: &str, message: &str) {
        let (controller, key) = (self.component, object.key());
        match kind {
            EventType::Normal => {
                tracing::info!(controller, kind = object.kind, %key, reason, note = message, "Event occurred")
            }
            EventType::Warning => {
                tracing::warn!(controller, kind = object.kind, %key, reason, note = message, "Event occurred")
            }
        }
    }
}

/// Writes one Event about something good that happens so rarely that nothing needs to be counted or combined.
pub(crate) async fn announce(
    client: &kube::Client,
    component: &'static str,
    object: ObjectRef,
    reason: &'static str,
    message: String,
    now: Timestamp,
) {
    let what = Occurrence { component, object, kind: EventType::Normal, reason: reason.into(), message };
    if let Some(record) = Correlator::new().correlate(what, now) {
        post::announce(client, &record).await;
    }
}

/// Messages quote what others wrote: IDs, labels, answers of clouds. None of that may look like lines of ours, or be longer
/// than somebody would read.
fn one_line(message: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = message.chars().map(plain).collect();
    if line.len() > LONGEST_MESSAGE {
        line.truncate(line.floor_char_boundary(LONGEST_MESSAGE - '…'.len_utf8()));
        line.push('…');
    }
    line
}

impl Sink {
    fn take(&self, what: Occurrence, client: &kube::Client) {
        // Held until the record is in its queue, so that what raises a count comes after what it raises.
        let mut correlator = self.correlator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = correlator.correlate(what, self.clock.now()) {
            self.enqueue(Letter { record, client: client.clone() });
        }
    }

    fn enqueue(&self, letter: Letter) {
        let Some(queue) = self.queue_of(&letter.record) else { return };
        match queue.try_send(letter) {
            Ok(()) if queue.capacity() > QUEUE_LENGTH / 2 => self.is_full.store(false, Ordering::Relaxed),
            Err(TrySendError::Full(_)) => self.lose(),
            // Closed: the task has ended, and nobody wants Events any more.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
        }
    }

    /// An Event finds no room. That is said once, until there is plenty of room again.
    fn lose(&self) {
        self.dropped.count("queue_full");
        if !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!("too many Events wait for the API server; further ones are only logged");
        }
    }

    /// The same queue for the same object, so that its Events stay in their order.
    fn queue_of(&self, record: &Record) -> Option<&mpsc::Sender<Letter>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(record.what.object.identity());
        let index = usize::try_from(hash % QUEUES as u64).unwrap_or_default();
        self.queues.get(index)
    }
}

impl Dropped {
    fn register(registry: &Registry) -> Dropped {
        let registered = DROPPED.register(registry);
        Dropped(registered.inspect_err(|error| tracing::warn!(%error, "lost Events are not counted")).ok())
    }

    fn count(&self, cause: &str) {
        if let Some(counter) = &self.0 {
            counter.with_label_values(&[cause]).inc();
        }
    }
}

/// Writes what comes until shutdown, and then what is left.
async fn write_all(ends: Vec<mpsc::Receiver<Letter>>, dropped: Dropped, shutdown: Shutdown) {
    let posts = ends.into_iter().map(|end| post::post_all(end, dropped.clone(), shutdown.clone()));
    let patience = async {
        shutdown.requested().await;
        tokio::time::sleep(FLUSH_WITHIN).await;
    };
    tokio::select! {
        _ = join_all(posts) => {}
        () = patience => tracing::warn!("some Events could not be written before the end"),
    }
}

impl ObjectRef {
    /// This Node.
    pub fn node(node: &Node) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            namespace: None,
            name: node.name.to_string(),
            uid: node.uid.clone(),
            resource_version: None,
        }
    }

    /// This Service.
    pub fn service(service: &Service) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            namespace: Some(service.namespace.clone()),
            name: service.name.clone(),
            uid: service.uid.clone(),
            resource_version: None,
        }
    }

    /// The Lease of this name.
    pub fn lease(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef {
            api_version: "coordination.k8s.io/v1".to_owned(),
            kind: "Lease".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            uid: String::new(),
            resource_version: None,
        }
    }

    /// The same object, in this state.
    pub fn at(self, resource_version: &str) -> ObjectRef {
        ObjectRef { resource_version: Some(resource_version.to_owned()), ..self }
    }

    /// The same object, in whatever state.
    fn identity(&self) -> ObjectRef {
        ObjectRef { resource_version: None, ..self.clone() }
    }

    /// Its name, with its namespace before it if it has one.
    fn key(&self) -> Cow<'_, str> {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name).into(),
            None => self.name.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        assert_eq!(one_line("a\nERROR b\u{1b}[31m"), "a ERROR b [31m");
        for long in ["x".repeat(5000), "🚢".repeat(5000)] {
            let line = one_line(&long);
            assert!(line.len() <= LONGEST_MESSAGE && line.ends_with('…'), "{}", line.len());
        }
        assert_eq!(one_line(&"x".repeat(LONGEST_MESSAGE)).len(), LONGEST_MESSAGE);
    }
}
