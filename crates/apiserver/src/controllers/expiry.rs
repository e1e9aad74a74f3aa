//! What ends by itself: events after an hour, and pods whose grace period is over.
//!
//! A real kubelet ends its pods; here nobody runs them, so a pod that is marked for deletion goes when its time has
//! come.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Hands, kind};
use crate::resources::Resource;
use crate::store::{Change, Key, Verb};
use crate::value::Json;
use crate::verbs::DeleteOptions;

const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// When an object ends, and which one is meant: another may have its name by then.
struct End {
    time: Timestamp,
    uid: Box<str>,
}

/// When each object ends.
#[derive(Default)]
pub(super) struct Expiry {
    events: BTreeMap<Key, End>,
    pods: BTreeMap<Key, End>,
}

impl Expiry {
    pub(super) fn fold(&mut self, resource: &Resource, change: &Change) {
        let key = change.object.key.clone();
        let gone = change.verb == Verb::Deleted;
        let end = |time| End { time, uid: change.object.uid.clone() };
        match resource.storage {
            "events" if gone => {
                self.events.remove(&key);
            }
            // upstream: the hour starts anew with every write.
            "events" => {
                self.events.insert(key, end(Timestamp::now() + EVENT_LIFE));
            }
            "pods" if gone => {
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

    pub(super) fn work(&mut self, hands: &Hands) {
        let now = Timestamp::now();
        for (resource, due) in [(kind("v1", "Event"), &mut self.events), (kind("v1", "Pod"), &mut self.pods)] {
            let over: Vec<Key> = due.iter().filter(|(_, end)| end.time <= now).map(|(key, _)| key.clone()).collect();
            for key in over {
                let uid = due.get(&key).map(|end| end.uid.to_string());
                let options = DeleteOptions { grace: Some(0), uid, ..DeleteOptions::default() };
                let write = hands.write(resource, &key.namespace, None);
                // Already gone is as good; held by a finalizer means it is not ours to end.
                let _ = crate::verbs::delete_object(&write, &key.name, &options);
                due.remove(&key);
            }
        }
    }
}
