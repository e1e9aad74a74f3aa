//! Which of the things that happen become Events, and which raise the count of one that is there (EV-2 to EV-4).
//!
//! Pure: what is the time is said by whoever calls.

use std::borrow::Cow;
use std::collections::HashSet;

use jiff::Timestamp;
use uuid::Uuid;

use super::recent::Recent;
use super::{EventType, ObjectRef};

/// Entries of each memory.
const REMEMBERED: usize = 4096;
/// So many different messages, and they are combined.
const DIFFERENT: usize = 10;
/// Messages further apart than this are not similar any more.
const APART_SECONDS: f64 = 600.0;
/// What stands before a message that stands for several.
const COMBINED: &str = "(combined from similar events): ";
/// So many Events of a type about an object at once.
const BURST: f64 = 25.0;
/// And one more in so many seconds.
const REFILL_SECONDS: f64 = 300.0;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub(super) component: &'static str,
    pub(super) object: ObjectRef,
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) message: String,
}

/// An Event as it is to be in the cluster: to be created if `count` is 1, and else to be brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) what: Occurrence,
    pub(super) name: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// Who speaks about what, and how it is meant: what the spam filter goes by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Speaker(&'static str, ObjectRef, EventType);

/// What is similar: all but the message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Similar(Speaker, Cow<'static, str>);

/// What is the same Event: similar, and with this message; `None` is the one that stands for several.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Same(Similar, Option<String>);

/// Different messages that were similar, and when the last one was.
struct Messages(HashSet<String>, Timestamp);

/// An Event that is there: its name, its count, and since when.
struct Counted(String, i32, Timestamp);

/// The spam filter's tokens, and as of when.
struct Tokens(f64, Timestamp);

/// Remembers what happened of late.
pub(super) struct Correlator {
    messages: Recent<Similar, Messages>,
    counts: Recent<Same, Counted>,
    tokens: Recent<Speaker, Tokens>,
    /// The number in the latest name; names are never given twice.
    latest: i128,
}

impl Correlator {
    pub(super) fn new() -> Correlator {
        Correlator {
            messages: Recent::new(REMEMBERED),
            counts: Recent::new(REMEMBERED),
            tokens: Recent::new(REMEMBERED),
            latest: 0,
        }
    }

    /// What is to be in the cluster now that this has happened; `None` if there are too many of the kind.
    pub(super) fn correlate(&mut self, mut what: Occurrence, now: Timestamp) -> Option<Record> {
        let speaker = Speaker(what.component, what.object.identity(), what.kind);
        let similar = Similar(speaker.clone(), what.reason.clone());
        let same = if self.is_one_of_many(&similar, &what.message, now) {
            what.message = format!("{COMBINED}{}", what.message);
            Same(similar, None)
        } else {
            Same(similar, Some(what.message.clone()))
        };
        // upstream: counted before it is filtered, so the count that is seen later includes what was not sent.
        let record = self.count(same, what, now);
        self.is_let_through(speaker, now).then_some(record)
    }

    /// EV-3. Of many similar messages, the first nine keep Events of their own.
    fn is_one_of_many(&mut self, similar: &Similar, message: &str, now: Timestamp) -> bool {
        let known = self.messages.take(similar).filter(|Messages(_, last)| seconds(*last, now) <= APART_SECONDS);
        let mut messages = known.map_or_else(HashSet::new, |Messages(messages, _)| messages);
        let many = messages.len() + 1 >= DIFFERENT && !messages.contains(message);
        if !many {
            messages.insert(message.to_owned());
        }
        self.messages.put(similar.clone(), Messages(messages, now));
        many
    }

    /// EV-2.
    fn count(&mut self, same: Same, what: Occurrence, now: Timestamp) -> Record {
        let Counted(name, count, first) = match self.counts.take(&same) {
            Some(Counted(name, count, first)) => Counted(name, count.saturating_add(1), first),
            None => Counted(self.new_name(&what.object.name, now), 1, now),
        };
        self.counts.put(same, Counted(name.clone(), count, first));
        Record { what, name, count, first, last: now }
    }

    /// EV-4.
    fn is_let_through(&mut self, speaker: Speaker, now: Timestamp) -> bool {
        let Tokens(left, last) = self.tokens.take(&speaker).unwrap_or(Tokens(BURST, now));
        let left = (left + seconds(last, now) / REFILL_SECONDS).min(BURST);
        let passes = left >= 1.0;
        self.tokens.put(speaker, Tokens(if passes { left - 1.0 } else { left }, now));
        passes
    }

    /// EV-1.
    fn new_name(&mut self, object: &str, now: Timestamp) -> String {
        self.latest = now.as_nanosecond().max(self.latest + 1);
        let name = format!("{object}.{:x}", self.latest);
        if is_subdomain(&name) { name } else { Uuid::new_v4().to_string() }
    }
}

/// The time passed; none if the clock went back.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// The form of the names of most objects: labels of lower-case letters, digits and inner hyphens, joined by dots.
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
    fn ev1_names_are_the_objects_and_the_time_in_hex_and_never_given_twice() {
        let mut correlator = Correlator::new();
        let first = correlator.correlate(about("n", "a"), at(0)).unwrap();
        let second = correlator.correlate(about("n", "b"), at(0)).unwrap();
        assert_eq!((first.name.as_str(), second.name.as_str()), ("n.17979cfe362a0000", "n.17979cfe362a0001"));
    }

    #[test]
    fn ev1_a_name_that_would_not_be_valid_is_a_uuid() {
        for object in ["n".repeat(240), "N".into(), "-n".into(), "a..b".into(), String::new()] {
            let record = Correlator::new().correlate(about(&object, "a"), at(0)).unwrap();
            assert!(Uuid::parse_str(&record.name).is_ok(), "{}", record.name);
        }
    }

    #[test]
    fn ev2_the_same_about_a_later_state_of_the_object_is_the_same() {
        let mut correlator = Correlator::new();
        let what = about("n", "a");
        let later = Occurrence { object: what.object.clone().at("7"), ..what.clone() };
        correlator.correlate(what, at(0)).unwrap();
        assert_eq!(correlator.correlate(later, at(1)).unwrap().count, 2);
    }

    #[test]
    fn ev2_the_same_again_raises_the_count_of_the_first() {
        let mut correlator = Correlator::new();
        let first = correlator.correlate(about("n", "a"), at(0)).unwrap();
        assert_eq!((first.count, first.first, first.last), (1, at(0), at(0)));
        let other = correlator.correlate(about("m", "a"), at(1)).unwrap();
        assert_eq!(other.count, 1, "another object is another Event");
        let second = correlator.correlate(about("n", "a"), at(5)).unwrap();
        assert_eq!(second, Record { count: 2, last: at(5), ..first });
    }

    #[test]
    fn ev3_the_tenth_different_message_and_those_after_it_are_one_event() {
        let mut correlator = Correlator::new();
        let records: Vec<Record> =
            (0..12).map(|i| correlator.correlate(about("n", &format!("message {i}")), at(i * 600)).unwrap()).collect();
        let (own, combined) = records.split_at(9);
        assert!(own.iter().all(|record| record.count == 1 && record.what.message.starts_with("message ")));
        let counts: Vec<i32> = combined.iter().map(|record| record.count).collect();
        assert_eq!(counts, [1, 2, 3]);
        assert!(combined.iter().all(|record| record.name == combined[0].name));
        assert_eq!(combined[2].what.message, "(combined from similar events): message 11");
        let known = correlator.correlate(about("n", "message 3"), at(11 * 600)).unwrap();
        assert_eq!((known.what.message.as_str(), known.count), ("message 3", 2));
    }

    #[test]
    fn ev3_messages_more_than_ten_minutes_apart_are_not_similar() {
        let mut correlator = Correlator::new();
        for i in 0..9 {
            correlator.correlate(about("n", &format!("message {i}")), at(i)).unwrap();
        }
        let late = correlator.correlate(about("n", "message 9"), at(8 + 601)).unwrap();
        assert_eq!(late.what.message, "message 9");
    }

    #[test]
    fn ev4_after_a_burst_of_25_one_event_in_300_seconds_passes() {
        let mut correlator = Correlator::new();
        let passed = (0..30).filter(|_| correlator.correlate(about("n", "a"), at(0)).is_some()).count();
        assert_eq!(passed, 25);
        assert!(correlator.correlate(about("m", "a"), at(0)).is_some(), "another object has its own burst");
        assert!(correlator.correlate(about("n", "a"), at(299)).is_none());
        let record = correlator.correlate(about("n", "a"), at(301)).unwrap();
        assert_eq!(record.count, 32, "those that were not sent are counted");
        assert!(correlator.correlate(about("n", "a"), at(302)).is_none());
    }

    #[test]
    fn ev4_a_clock_that_goes_back_gives_no_tokens_and_takes_none() {
        let mut correlator = Correlator::new();
        assert!(correlator.correlate(about("n", "a"), at(1000)).is_some());
        assert_eq!((0..30).filter(|_| correlator.correlate(about("n", "a"), at(0)).is_some()).count(), 24);
    }
}
