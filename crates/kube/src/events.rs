//! Events (EV-1 to EV-5): what people read with `kubectl describe`.
//!
//! ```text
//!  EventSource.emit ──► log line
//!                   └─► queue ──► combine similar (EV-3) ──► count identical (EV-2) ──► filter spam (EV-4) ──► API server
//! ```
//!
//! Emitting never waits and never fails.

use std::fmt;

use bowline_core::Node;
use bowline_runtime::{Clock, Shutdown};

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
pub struct EventSink {}

/// An [`EventSink`] with the name of who speaks.
#[derive(Clone)]
pub struct EventSource {}

impl EventSink {
    /// A sink and the task that writes what it takes; on shutdown the task writes what is left, for a bounded time.
    pub fn new(
        client: kube::Client,
        clock: Clock,
        metrics: &prometheus::Registry,
    ) -> (EventSink, impl FnOnce(Shutdown) -> futures::future::BoxFuture<'static, ()>) {
        let _ = (client, clock, metrics);
        (EventSink {}, |_shutdown| -> futures::future::BoxFuture<'static, ()> { todo!() })
    }

    /// For a controller: `component` is what `source.component` says.
    pub fn source(&self, component: &'static str) -> EventSource {
        let _ = component;
        todo!()
    }
}

impl EventSource {
    /// Says `message` about `object`, in the log and as an Event.
    pub fn emit(&self, object: &ObjectRef, kind: EventType, reason: &'static str, message: impl fmt::Display) {
        let _ = (object, kind, reason, message.to_string());
        todo!()
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
        }
    }
}
