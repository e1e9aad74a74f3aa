//! Event correlator: decides which occurrences become new Events and which update the count of an existing one (EV-2 to EV-4).
//!
//! Pure code: the caller passes the time.

use std::borrow::Cow;
use std::collections::HashSet;

use jiff::Timestamp;
use uuid::Uuid;

use super::lru::LruMap;
use super::{EventType, ObjectRef};

/// Capacity of each LRU map.
const MAX_LRU_ENTRIES: usize = 4096;
/// Number of different messages from which on similar Events are aggregated.
const AGGREGATE_MAX_EVENTS: usize = 10;
/// Maximum time between two similar messages, in seconds.
const AGGREGATE_INTERVAL_SECONDS: f64 = 600.0;
/// Prefix of the message of an aggregated Event.
const AGGREGATE_PREFIX: &str = "(combined from similar events): ";
/// Burst of the spam filter: Events of one type about one object.
const BURST: f64 = 25.0;
/// Time in which the spam filter refills one token, in seconds.
const REFILL_SECONDS: f64 = 300.0;

/// Occurrence that a component reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub(super) component: &'static str,
    pub(super) object: ObjectRef,
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
}

/// Event to write: created if `count` is 1, otherwise updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) occurrence: Occurrence,
    pub(super) name: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// Key of the spam filter: component, object and type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SpamKey(&'static str, ObjectRef, EventType);

/// Key of similar Events: everything except the message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AggregateKey(SpamKey, Cow<'static, str>);

/// Key of identical Events: similar, with the same message; `None` for the aggregated Event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct EventKey(AggregateKey, Option<String>);

/// Different messages of similar Events, and the time of the last one.
struct Messages(HashSet<String>, Timestamp);

/// Existing Event: name, count and time of the first occurrence.
struct Counted(String, i32, Timestamp);

/// Tokens of the spam filter, and the time of the last update.
struct Tokens(f64, Timestamp);

/// Correlates an occurrence with recent ones.
pub(super) struct Correlator {
    messages: LruMap<AggregateKey, Messages>,
    counts: LruMap<EventKey, Counted>,
    tokens: LruMap<SpamKey, Tokens>,
    /// Number in the latest name, so that names are unique.
    latest: i128,
}

impl Correlator {
    pub(super) fn new() -> Correlator {
        Correlator {
            messages: LruMap::new(MAX_LRU_ENTRIES),
            counts: LruMap::new(MAX_LRU_ENTRIES),
            tokens: LruMap::new(MAX_LRU_ENTRIES),
            latest: 0,
        }
    }

    /// Returns the Event to write; `None` if the spam filter drops it.
    pub(super) fn correlate(&mut self, mut occurrence: Occurrence, now: Timestamp) -> Option<Record> {
        let spam_key = SpamKey(occurrence.component, occurrence.object.identity(), occurrence.kind);
        let aggregate_key = AggregateKey(spam_key.clone(), occurrence.reason.clone());
        let event_key = if self.is_aggregated(&aggregate_key, &occurrence.message, now) {
            occurrence.message = format!("{AGGREGATE_PREFIX}{}", occurrence.message);
            EventKey(aggregate_key, None)
        } else {
            EventKey(aggregate_key, Some(occurrence.message.clone()))
        };
        // upstream: counted before it is filtered, so later counts include dropped Events.
        let record = self.count(event_key, occurrence, now);
        self.passes_spam_filter(spam_key, now).then_some(record)
    }

    /// EV-3: of many similar messages, the first nine have separate Events.
    fn is_aggregated(&mut self, key: &AggregateKey, message: &str, now: Timestamp) -> bool {
        let known =
            self.messages.take(key).filter(|Messages(_, last)| seconds(*last, now) <= AGGREGATE_INTERVAL_SECONDS);
        let mut messages = known.map_or_else(HashSet::new, |Messages(messages, _)| messages);
        let is_aggregated = messages.len() + 1 >= AGGREGATE_MAX_EVENTS && !messages.contains(message);
        if !is_aggregated {
            messages.insert(message.to_owned());
        }
        self.messages.put(key.clone(), Messages(messages, now));
        is_aggregated
    }

    /// EV-2: identical Events share a name and a count.
    fn count(&mut self, key: EventKey, occurrence: Occurrence, now: Timestamp) -> Record {
        let Counted(name, count, first) = match self.counts.take(&key) {
            Some(Counted(name, count, first)) => Counted(name, count.saturating_add(1), first),
            None => Counted(self.new_name(&occurrence.object.name, now), 1, now),
        };
        self.counts.put(key, Counted(name.clone(), count, first));
        Record { occurrence, name, count, first, last: now }
    }

    /// EV-4: token bucket per component, object and type.
    fn passes_spam_filter(&mut self, key: SpamKey, now: Timestamp) -> bool {
        let Tokens(left, last) = self.tokens.take(&key).unwrap_or(Tokens(BURST, now));
        let left = (left + seconds(last, now) / REFILL_SECONDS).min(BURST);
        let passes = left >= 1.0;
        self.tokens.put(key, Tokens(if passes { left - 1.0 } else { left }, now));
        passes
    }

    /// EV-1: object name and time in hexadecimal, or a UUID if that is not a valid name.
    fn new_name(&mut self, object: &str, now: Timestamp) -> String {
        self.latest = now.as_nanosecond().max(self.latest + 1);
        let name = format!("{object}.{:x}", self.latest);
        if is_subdomain(&name) { name } else { Uuid::new_v4().to_string() }
    }
}

/// Elapsed seconds; zero if the clock went back.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// RFC 1123 subdomain: labels of lower-case letters, digits and inner hyphens, joined by dots.
fn is_subdomain(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use jiff::SignedDuration;

    fn about(object: &str, message: &str) -> Occurrence {
        let object = ObjectRef {
            api_version: "v1".into(),
            kind: "Node".into(),
            namespace: None,
            name: object.into(),
            uid: "u".into(),
            resource_version: None,
        };
        Occurrence {
            component: "test",
            object,
            kind: EventType::Normal,
            reason: "Happened".into(),
            message: message.into(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn ev1_names_are_object_name_and_time_in_hex_and_unique() {
        let mut correlator = Correlator::new();
        let first = correlator.correlate(about("n", "a"), at(0)).unwrap();
        let second = correlator.correlate(about("n", "b"), at(0)).unwrap();
        assert_eq!((first.name.as_str(), second.name.as_str()), ("n.17979cfe362a0000", "n.17979cfe362a0001"));
    }

    #[test]
    fn ev1_an_invalid_name_is_replaced_by_a_uuid() {
        for object in ["n".repeat(240), "N".into(), "-n".into(), "a..b".into(), String::new()] {
            let record = Correlator::new().correlate(about(&object, "a"), at(0)).unwrap();
            assert!(Uuid::parse_str(&record.name).is_ok(), "{}", record.name);
        }
    }

    #[test]
    fn ev2_events_that_differ_only_in_resource_version_are_identical() {
        let mut correlator = Correlator::new();
        let first = about("n", "a");
        let later = Occurrence { object: first.object.clone().at("7"), ..first.clone() };
        correlator.correlate(first, at(0)).unwrap();
        assert_eq!(correlator.correlate(later, at(1)).unwrap().count, 2);
    }

    #[test]
    fn ev2_an_identical_event_increments_the_count_of_the_first() {
        let mut correlator = Correlator::new();
        let first = correlator.correlate(about("n", "a"), at(0)).unwrap();
        assert_eq!((first.count, first.first, first.last), (1, at(0), at(0)));
        let other = correlator.correlate(about("m", "a"), at(1)).unwrap();
        assert_eq!(other.count, 1, "another object is another Event");
        let second = correlator.correlate(about("n", "a"), at(5)).unwrap();
        assert_eq!(second, Record { count: 2, last: at(5), ..first });
    }

    #[test]
    fn ev3_the_tenth_different_message_and_later_ones_are_aggregated() {
        let mut correlator = Correlator::new();
        let records: Vec<Record> =
            (0..12).map(|i| correlator.correlate(about("n", &format!("message {i}")), at(i * 600)).unwrap()).collect();
        let (separate, combined) = records.split_at(9);
        assert!(separate.iter().all(|record| record.count == 1 && record.occurrence.message.starts_with("message ")));
        let counts: Vec<i32> = combined.iter().map(|record| record.count).collect();
        assert_eq!(counts, [1, 2, 3]);
        assert!(combined.iter().all(|record| record.name == combined[0].name));
        assert_eq!(combined[2].occurrence.message, "(combined from similar events): message 11");
        let known = correlator.correlate(about("n", "message 3"), at(11 * 600)).unwrap();
        assert_eq!((known.occurrence.message.as_str(), known.count), ("message 3", 2));
    }

    #[test]
    fn ev3_messages_more_than_ten_minutes_apart_are_not_similar() {
        let mut correlator = Correlator::new();
        for i in 0..9 {
            correlator.correlate(about("n", &format!("message {i}")), at(i)).unwrap();
        }
        let late = correlator.correlate(about("n", "message 9"), at(8 + 601)).unwrap();
        assert_eq!(late.occurrence.message, "message 9");
    }

    #[test]
    fn ev4_after_a_burst_of_25_one_event_in_300_seconds_passes() {
        let mut correlator = Correlator::new();
        let passed = (0..30).filter(|_| correlator.correlate(about("n", "a"), at(0)).is_some()).count();
        assert_eq!(passed, 25);
        assert!(correlator.correlate(about("m", "a"), at(0)).is_some(), "another object has its own burst");
        assert!(correlator.correlate(about("n", "a"), at(299)).is_none());
        let record = correlator.correlate(about("n", "a"), at(301)).unwrap();
        assert_eq!(record.count, 32, "dropped Events are counted");
        assert!(correlator.correlate(about("n", "a"), at(302)).is_none());
    }

    #[test]
    fn ev4_a_clock_that_goes_back_neither_adds_nor_removes_tokens() {
        let mut correlator = Correlator::new();
        assert!(correlator.correlate(about("n", "a"), at(1000)).is_some());
        assert_eq!((0..30).filter(|_| correlator.correlate(about("n", "a"), at(0)).is_some()).count(), 24);
    }
}
