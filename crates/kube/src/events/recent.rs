//! The most recent Events of this process, for the console. Their number is fixed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::EventType;

/// Maximum number of Events.
const MAX_EVENTS: usize = 200;

/// An Event that this process has emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentEvent {
    /// Number, in the order in which the Events were first emitted.
    pub number: u64,
    /// Time when it was last emitted.
    pub at: Timestamp,
    /// Type.
    pub kind: EventType,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Component that emitted it.
    pub component: &'static str,
    /// Kind of the object.
    pub object_kind: String,
    /// `namespace/name` of the object, or its name if it is cluster-scoped.
    pub object: String,
    /// Number of times that it was emitted.
    pub count: u32,
}

/// The most recent Events, oldest first.
#[derive(Default)]
pub(super) struct RecentEvents(Mutex<State>);

#[derive(Default)]
struct State {
    events: VecDeque<RecentEvent>,
    next: u64,
}

impl RecentEvents {
    /// Records an Event, whose number and count are ignored. One that repeats an Event of the list is counted there.
    pub(super) fn record(&self, event: RecentEvent) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = state.events.iter_mut().rev().find(|known| known.is_repeated_by(&event)) {
            (known.at, known.count) = (event.at, known.count.saturating_add(1));
            return;
        }
        if state.events.len() >= MAX_EVENTS {
            state.events.pop_front();
        }
        let number = state.next;
        state.next += 1;
        state.events.push_back(RecentEvent { number, count: 1, ..event });
    }

    /// Returns the Events, oldest first.
    pub(super) fn all(&self) -> Vec<RecentEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).events.iter().cloned().collect()
    }
}

impl RecentEvent {
    fn is_repeated_by(&self, other: &RecentEvent) -> bool {
        self.object == other.object
            && self.reason == other.reason
            && self.message == other.message
            && (self.kind, self.component) == (other.kind, other.component)
            && self.object_kind == other.object_kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(object: &str, second: i64) -> RecentEvent {
        RecentEvent {
            number: 0,
            at: Timestamp::from_second(second).unwrap(),
            kind: EventType::Normal,
            reason: "Synced".to_owned(),
            message: "Node synced".to_owned(),
            component: "test",
            object_kind: "Node".to_owned(),
            object: object.to_owned(),
            count: 0,
        }
    }

    #[test]
    fn repeated_events_are_counted_and_at_most_two_hundred_are_kept() {
        let recent = RecentEvents::default();
        for second in 0..5 {
            recent.record(event("a", second));
        }
        recent.record(RecentEvent { message: "another".to_owned(), ..event("a", 9) });
        let first = recent.all().into_iter().map(|event| (event.number, event.at.as_second(), event.count));
        assert_eq!(first.collect::<Vec<_>>(), [(0, 4, 5), (1, 9, 1)]);
        for number in 0..1_000 {
            recent.record(event(&number.to_string(), number));
        }
        let all = recent.all();
        assert_eq!((all.len(), all[0].object.as_str(), all[0].number), (MAX_EVENTS, "800", 802));
    }
}
