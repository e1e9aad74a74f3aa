//! Event recorder (EV-1 to EV-5), with the correlation rules of client-go.
//!
//! ```text
//!  EventSource.emit ──► log line
//!                   └─► aggregate similar (EV-3) ──► count identical (EV-2) ──► spam filter (EV-4)
//!                              └─► one of several queues, by object ──► API server
//! ```
//!
//! Emitting never blocks and never fails. Events about one object are written in order. Events about different objects are
//! written concurrently, so that the start of a large cluster does not queue Events for an hour.

mod correlate;
mod lru;
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
use recent::RecentEvents;

pub use recent::RecentEvent;

/// Number of queues, and of Events written concurrently.
const QUEUES: usize = 8;
/// Capacity of each queue. Together the queues hold several Events per Node of the largest clusters; upstream's 1000 do not.
const QUEUE_LENGTH: usize = 8192;
/// Maximum time to write queued Events after shutdown is requested.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of a message in bytes, as in events.k8s.io/v1.
const MAX_MESSAGE_LENGTH: usize = 1024;

metrics! {
    /// Metrics of the Event recorder.
    pub(crate) METRICS;
    DROPPED = Metric::counter("bowline_events_dropped_total", "Events that were dropped, by cause.").labels(&["cause"]);
}

/// Object that an Event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// API version, such as `v1`.
    pub api_version: String,
    /// Kind: `Node`, `Service`, …
    pub kind: String,
    /// Namespace; `None` for cluster-scoped objects, whose Events are in `default`.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Resource version of the object, if the Event is about one. Events that differ only in it are identical.
    pub resource_version: Option<String>,
}

/// Type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Informational.
    Normal,
    /// A user may have to act.
    Warning,
}

/// Queues Events and writes them to the API server. Clones share the queues.
#[derive(Clone)]
pub struct EventSink {
    shared: Arc<Sink>,
    client: kube::Client,
    dry_run: bool,
}

/// Emits the Events of one component through an [`EventSink`].
#[derive(Clone)]
pub struct EventSource {
    sink: EventSink,
    component: &'static str,
}

struct Sink {
    correlator: Mutex<Correlator>,
    queues: Vec<mpsc::Sender<QueuedEvent>>,
    clock: Clock,
    dropped: Dropped,
    recent: RecentEvents,
    /// The log has reported that a queue is full.
    is_full: AtomicBool,
}

/// Record, with the client that writes it.
struct QueuedEvent {
    record: Record,
    client: kube::Client,
}

/// Counter of dropped Events, by cause.
#[derive(Clone)]
struct Dropped(Option<IntCounterVec>);

impl EventSink {
    /// Permission of the sink. Events are in the namespace of their object, Events about Nodes in `default`.
    pub const PERMISSION: Permission =
        Permission::core("events", &["create", "patch"], "create Events and update the count of repeated ones");

    /// Creates a sink and the task that writes its Events. On shutdown the task writes the queued Events, for a bounded time.
    pub fn new(
        client: kube::Client,
        clock: Clock,
        metrics: &Registry,
    ) -> (EventSink, impl FnOnce(Shutdown) -> BoxFuture<'static, ()> + use<>) {
        let (queues, receivers): (Vec<_>, Vec<_>) = (0..QUEUES).map(|_| mpsc::channel(QUEUE_LENGTH)).unzip();
        let dropped = Dropped::register(metrics);
        let sink = Sink {
            correlator: Mutex::new(Correlator::new()),
            queues,
            clock,
            dropped: dropped.clone(),
            recent: RecentEvents::default(),
            is_full: AtomicBool::new(false),
        };
        let task = move |shutdown| write_all(receivers, dropped, shutdown).boxed();
        (EventSink { shared: Arc::new(sink), client, dry_run: false }, task)
    }

    /// Writes the Events of this clone with another client.
    pub fn with_client(self, client: kube::Client) -> EventSink {
        EventSink { client, ..self }
    }

    /// Logs Events without writing them.
    pub fn dry_run(self, dry_run: bool) -> EventSink {
        EventSink { dry_run, ..self }
    }

    /// Returns the 200 most recent Events of all clones, oldest first. Those of a dry run are among them.
    pub fn recent(&self) -> Vec<RecentEvent> {
        self.shared.recent.all()
    }

    /// Creates the source of a controller; `component` becomes `source.component`.
    pub fn source(&self, component: &'static str) -> EventSource {
        EventSource { sink: self.clone(), component }
    }
}

impl EventSource {
    /// Logs `message` and queues it as an Event about `object`.
    pub fn emit(
        &self,
        object: &ObjectRef,
        kind: EventType,
        reason: impl Into<Cow<'static, str>>,
        message: impl fmt::Display,
    ) {
        let (reason, message) = (reason.into(), one_line(&message.to_string()));
        if self.sink.dry_run {
            return self.log(object, kind, &reason, format!("dry run: {message}"));
        }
        self.log(object, kind, &reason, message.clone());
        let occurrence = Occurrence { component: self.component, object: object.clone(), kind, reason, message };
        self.sink.shared.take(occurrence, &self.sink.client);
    }

    /// Logs the Event, and records it as a recent one.
    fn log(&self, object: &ObjectRef, kind: EventType, reason: &str, message: String) {
        let (controller, key) = (self.component, object.key());
        match kind {
            EventType::Normal => {
                tracing::info!(controller, kind = object.kind, %key, reason, note = message, "Event occurred")
            }
            EventType::Warning => {
                tracing::warn!(controller, kind = object.kind, %key, reason, note = message, "Event occurred")
            }
        }
        self.sink.shared.recent.record(RecentEvent {
            number: 0,
            at: self.sink.shared.clock.now(),
            kind,
            reason: reason.to_owned(),
            message,
            component: self.component,
            object_kind: object.kind.clone(),
            object: key.into_owned(),
            count: 1,
        });
    }
}

/// Writes one Normal Event without correlation, for rare occurrences.
pub(crate) async fn announce(
    client: &kube::Client,
    component: &'static str,
    object: ObjectRef,
    reason: &'static str,
    message: String,
    now: Timestamp,
) {
    let occurrence = Occurrence { component, object, kind: EventType::Normal, reason: reason.into(), message };
    if let Some(record) = Correlator::new().correlate(occurrence, now) {
        post::announce(client, &record).await;
    }
}

/// Replaces control characters and truncates the message. Messages quote untrusted text, such as labels and cloud responses, which
/// must not forge log lines.
fn one_line(message: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = message.chars().map(plain).collect();
    if line.len() > MAX_MESSAGE_LENGTH {
        line.truncate(line.floor_char_boundary(MAX_MESSAGE_LENGTH - '…'.len_utf8()));
        line.push('…');
    }
    line
}

impl Sink {
    fn take(&self, occurrence: Occurrence, client: &kube::Client) {
        // Locked until the record is queued, so that an update of a count is queued after the Event it updates.
        let mut correlator = self.correlator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = correlator.correlate(occurrence, self.clock.now()) {
            self.enqueue(QueuedEvent { record, client: client.clone() });
        }
    }

    fn enqueue(&self, event: QueuedEvent) {
        let Some(queue) = self.queue_for(&event.record) else { return };
        match queue.try_send(event) {
            Ok(()) if queue.capacity() > QUEUE_LENGTH / 2 => self.is_full.store(false, Ordering::Relaxed),
            Err(TrySendError::Full(_)) => self.report_full(),
            // Closed: the task has ended after shutdown.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
        }
    }

    /// Counts a dropped Event. Logs it once until the queue is at most half full again.
    fn report_full(&self) {
        self.dropped.count("queue_full");
        if !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!("the Event queue is full; further Events are only logged");
        }
    }

    /// Returns the queue of the object, so that its Events stay in order.
    fn queue_for(&self, record: &Record) -> Option<&mpsc::Sender<QueuedEvent>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(record.occurrence.object.identity());
        let index = usize::try_from(hash % QUEUES as u64).unwrap_or_default();
        self.queues.get(index)
    }
}

impl Dropped {
    fn register(registry: &Registry) -> Dropped {
        let registered = DROPPED.register(registry);
        Dropped(
            registered.inspect_err(|error| tracing::warn!(%error, "cannot register the metric of dropped Events")).ok(),
        )
    }

    fn count(&self, cause: &str) {
        if let Some(counter) = &self.0 {
            counter.with_label_values(&[cause]).inc();
        }
    }
}

/// Writes Events until shutdown, and then the queued ones.
async fn write_all(receivers: Vec<mpsc::Receiver<QueuedEvent>>, dropped: Dropped, shutdown: Shutdown) {
    let posts = receivers.into_iter().map(|receiver| post::post_all(receiver, dropped.clone(), shutdown.clone()));
    let deadline = async {
        shutdown.requested().await;
        tokio::time::sleep(FLUSH_TIMEOUT).await;
    };
    tokio::select! {
        _ = join_all(posts) => {}
        () = deadline => tracing::warn!("shutdown: not all queued Events were written within {FLUSH_TIMEOUT:?}"),
    }
}

impl ObjectRef {
    /// Reference to a Node.
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

    /// Reference to a Service.
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

    /// Reference to a Lease.
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

    /// Sets the resource version.
    pub fn at(self, resource_version: &str) -> ObjectRef {
        ObjectRef { resource_version: Some(resource_version.to_owned()), ..self }
    }

    /// Reference without the resource version.
    fn identity(&self) -> ObjectRef {
        ObjectRef { resource_version: None, ..self.clone() }
    }

    /// `namespace/name`, or the name of a cluster-scoped object.
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
            assert!(line.len() <= MAX_MESSAGE_LENGTH && line.ends_with('…'), "{}", line.len());
        }
        assert_eq!(one_line(&"x".repeat(MAX_MESSAGE_LENGTH)).len(), MAX_MESSAGE_LENGTH);
    }
}
