//! Deletes Events after an hour and Pods after their grace period.
//!
//! In a real cluster the kubelet removes a terminated Pod. No kubelet runs here, so this controller deletes a Pod once its
//! deletionTimestamp has passed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Writer, kind};
use crate::resources::Resource;
use crate::store::{Change, Key, Verb};
use crate::value::Json;
use crate::verbs::DeleteOptions;

const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);

/// Expiry time of an object, with its UID because a new object may have the same name by then.
struct Deadline {
    time: Timestamp,
    uid: Box<str>,
}

/// Expiry times by object.
#[derive(Default)]
pub(super) struct Expiry {
    events: BTreeMap<Key, Deadline>,
    pods: BTreeMap<Key, Deadline>,
}

impl Expiry {
    pub(super) fn on_change(&mut self, resource: &Resource, change: &Change) {
        let key = change.object.key.clone();
        let deleted = change.verb == Verb::Deleted;
        let end = |time| Deadline { time, uid: change.object.uid.clone() };
        match resource.storage {
            "events" if deleted => {
                self.events.remove(&key);
            }
            // upstream: every write restarts the hour.
            "events" => {
                self.events.insert(key, end(Timestamp::now() + EVENT_TTL));
            }
            "pods" if deleted => {
                self.pods.remove(&key);
            }
            "pods" if change.object.deleting => {
                if let Ok(time) = change.object.value().text("metadata.deletionTimestamp").parse() {
                    self.pods.insert(key, end(time));
                }
            }
            _ => {}
        }
    }

    pub(super) fn reconcile(&mut self, writer: &Writer) {
        let now = Timestamp::now();
        for (resource, due) in [(kind("v1", "Event"), &mut self.events), (kind("v1", "Pod"), &mut self.pods)] {
            let expired: Vec<Key> = due.iter().filter(|(_, end)| end.time <= now).map(|(key, _)| key.clone()).collect();
            for key in expired {
                let uid = due.get(&key).map(|end| end.uid.to_string());
                let options = DeleteOptions { grace: Some(0), uid, ..DeleteOptions::default() };
                let write = writer.context(resource, &key.namespace, None);
                // Errors are ignored: the object may be deleted already, and a finalizer's owner has to remove it.
                let _ = crate::verbs::delete_object(&write, &key.name, &options);
                due.remove(&key);
            }
        }
    }
}
