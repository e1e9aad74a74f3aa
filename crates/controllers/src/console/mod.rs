//! What the manager contributes to the console's document.
//!
//! ```text
//!  Process   manager, clouds and their calls; on a standby, too
//!  Manager ─► nodes, services: items from the watch caches
//!         ├─► parts: each controller completes the items of its objects: work, plans, what is held back ...
//!         └─► remaining: what follows from all of them
//! ```
//!
//! Nothing here is kept between two documents: every item is derived from the state that the controllers have anyway, so that the
//! console and the controllers cannot disagree.

mod calls;
mod nodes;
mod process;
mod remaining;
mod services;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Clouds;
use bowline_console::document::{self, Document, Health, Level, Loop, Work, WorkState, text};
use bowline_console::{Source, Sources};
use bowline_core::service::format_timestamp;
use bowline_core::{Node, Service};
use bowline_kube::{EventSink, EventType, RecentEvent, Store, WatchStatus};
use bowline_runtime::{Anchor, Clock, Component, KeyState, KeyStatus, LoopStatus, Queue, Timeline};

pub use process::Process;

/// Maximum number of keys in the item of a queue.
const MAX_KEYS: usize = 50;

/// Contributions of the controllers. Clones share them.
#[derive(Clone)]
pub struct Parts {
    sources: Sources,
    timeline: Arc<Timeline>,
}

impl Parts {
    /// Creates an empty list.
    pub fn new(clock: Clock) -> Parts {
        Parts { sources: Sources::new(), timeline: Arc::new(Timeline::new(clock)) }
    }

    /// Registers the contribution of `owner`, as long as that exists. Instants are converted with the given anchor.
    pub(crate) fn add<T: Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        fill: impl Fn(&T, &mut Document, Anchor) + Send + Sync + 'static,
    ) {
        let (owner, timeline) = (Arc::downgrade(owner), self.timeline.clone());
        self.sources.add(move |document: &mut Document| {
            if let Some(owner) = owner.upgrade() {
                fill(&owner, document, timeline.anchor());
            }
        });
    }
}

/// Source of everything that only a manager with running controllers knows.
pub(crate) struct Manager {
    pub(crate) nodes: Store<Node>,
    pub(crate) services: Store<Service>,
    /// Whether Services are watched.
    pub(crate) watches_services: bool,
    pub(crate) clouds: Clouds,
    pub(crate) events: EventSink,
    pub(crate) parts: Parts,
    pub(crate) enabled: remaining::Enabled,
}

pub(crate) use remaining::Enabled;

impl Source for Manager {
    fn fill(&self, document: &mut Document) {
        let anchor = self.parts.timeline.anchor();
        document.watch.insert("nodes".to_owned(), watch(&self.nodes.watch_status(), anchor));
        nodes::add(document, &self.nodes, &self.clouds);
        if self.watches_services {
            document.watch.insert("services".to_owned(), watch(&self.services.watch_status(), anchor));
            services::add(document, &self.services);
        }
        document.event.extend(self.events.recent().into_iter().map(event));
        self.parts.sources.fill(document);
        remaining::complete(document, self.enabled);
    }
}

fn watch(status: &WatchStatus, anchor: Anchor) -> document::Watch {
    let error = status.last_error.as_deref().unwrap_or("the reason is unknown");
    let health = match (status.synced, status.interrupted_since) {
        (_, Some(_)) => {
            let message = format!(
                "The watch is interrupted and restarted until it works: {error}. The last known state is in use."
            );
            Health::new(Level::Warning, "Interrupted", message)
        }
        (false, None) => Health::new(Level::Progressing, "Listing", "The objects are being listed for the first time."),
        (true, None) => Health::ok(),
    };
    let interrupted = status.interrupted_since.map(|since| anchor.at(since));
    document::Watch { health, objects: status.objects, interrupted, restarts: status.restarts }
}

fn event(event: RecentEvent) -> (String, document::Event) {
    let kind = match event.kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    let item = document::Event {
        at: event.at,
        kind: kind.to_owned(),
        reason: text(event.reason),
        message: text(event.message),
        controller: event.component.to_owned(),
        object_kind: event.object_kind,
        object: event.object,
        count: event.count,
    };
    (event.number.to_string(), item)
}

// ---- queues and loops

/// Adds the item of a queue, and returns the work of each key that the queue knows.
pub(crate) fn add_queue<K>(document: &mut Document, name: &str, queue: &Queue<K>, anchor: Anchor) -> HashMap<K, Work>
where
    K: Clone + Eq + Hash + fmt::Display + Send + Sync + 'static,
{
    let status = queue.snapshot();
    let is_shown = |one: &KeyStatus| one.state == KeyState::InWork || one.error.is_some();
    let mut shown: Vec<_> = status.keys.iter().filter(|(_, one)| is_shown(one)).collect();
    // Keys in work first, the longest before the others.
    shown.sort_by_cached_key(|(key, one)| (one.since.is_none(), one.since, key.to_string()));
    let keys = shown.into_iter().take(MAX_KEYS).map(|(key, one)| (key.to_string(), work(one, anchor))).collect();
    let item = document::Queue {
        health: Health::of(queue.health(), "Stalled"),
        waiting: status.waiting,
        in_work: status.in_work,
        delayed: status.delayed,
        finished: status.finished,
        failed: status.failed,
        oldest: status.oldest.map(|since| anchor.at(since)),
        keys,
    };
    document.queue.insert(name.to_owned(), item);
    status.keys.into_iter().map(|(key, one)| (key, work(&one, anchor))).collect()
}

fn work(status: &KeyStatus, anchor: Anchor) -> Work {
    let state = match status.state {
        KeyState::Idle => WorkState::Idle,
        KeyState::Waiting => WorkState::Waiting,
        KeyState::InWork => WorkState::InWork,
        KeyState::Delayed => WorkState::Delayed,
    };
    let last = status.last.as_ref();
    Work {
        state,
        since: status.since.map(|since| anchor.at(since)),
        failures: status.failures,
        next: status.next.map(|next| anchor.at(next)),
        last: last.map(|last| anchor.at(last.ended)),
        took_ms: last.map(|last| milliseconds(last.took)),
        error: status.error.as_deref().map(text),
    }
}

/// Item of a loop with this status and health.
pub(crate) fn loop_item(status: LoopStatus, health: Result<(), String>, anchor: Anchor) -> Loop {
    Loop {
        health: Health::of(health, "Stalled"),
        running: status.running,
        since: status.since.map(|since| anchor.at(since)),
        runs: status.runs,
        took_ms: status.took.map(milliseconds),
        next: status.next.map(|next| anchor.at(next)),
        summary: None,
    }
}

/// Adds loops to the item of their controller.
pub(crate) fn add_loops(document: &mut Document, controller: &str, loops: impl IntoIterator<Item = (String, Loop)>) {
    if let Some(controller) = document.controller.get_mut(controller) {
        controller.loops.extend(loops);
    }
}

// ---- texts

fn milliseconds(duration: Duration) -> u32 {
    duration.as_millis().try_into().unwrap_or(u32::MAX)
}

/// Appends the time of the next try to a message about a failure, if there is one.
pub(crate) fn with_next_try(message: &str, work: &Work) -> String {
    let message = message.trim_end_matches('.');
    match work.next {
        Some(next) => format!("{message}. Next try at {}.", format_timestamp(next)),
        None => format!("{message}."),
    }
}
