//! The document as a client knows it: a map of items that changes are applied to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Position;

/// [`Changes`](crate::Changes), as a client receives them. Unknown fields are ignored, and items are not interpreted: a newer manager
/// may have more.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedChanges {
    /// Identifies the publisher.
    pub epoch: String,
    /// Revision of this response.
    pub revision: u64,
    /// Whether `items` is the whole document.
    pub complete: bool,
    /// Time of the manager.
    pub time: Timestamp,
    /// New and changed items by key, `KIND/NAME`.
    pub items: BTreeMap<String, Value>,
    /// Keys of items that no longer exist.
    #[serde(default)]
    pub removed: Vec<String>,
}

/// All items that a client has received.
#[derive(Debug, Clone, Default)]
pub struct View {
    position: Position,
    time: Option<Timestamp>,
    /// Items by kind and name.
    kinds: BTreeMap<String, BTreeMap<String, Value>>,
}

impl View {
    /// Creates an empty view, whose position asks for the complete document.
    pub fn new() -> View {
        View::default()
    }

    /// Applies the response to a request with [`position`](View::position).
    pub fn apply(&mut self, changes: ReceivedChanges) {
        if changes.complete {
            self.kinds.clear();
        }
        for key in &changes.removed {
            let (kind, name) = split(key);
            if let Some(items) = self.kinds.get_mut(kind) {
                items.remove(name);
            }
        }
        for (key, item) in changes.items {
            let (kind, name) = split(&key);
            self.kinds.entry(kind.to_owned()).or_default().insert(name.to_owned(), item);
        }
        self.position = Position { epoch: changes.epoch, revision: changes.revision };
        self.time = Some(changes.time);
    }

    /// Position for the next request.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Time of the manager at the last response, for ages.
    pub fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// Kinds of items, sorted.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    /// Items of a kind with their names, sorted.
    pub fn items(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        self.kinds.get(kind).into_iter().flatten().map(|(name, item)| (name.as_str(), item))
    }

    /// One item.
    pub fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.kinds.get(kind)?.get(name)
    }

    /// The complete document, in the form of a complete response.
    pub fn to_json(&self) -> Value {
        let items = self
            .kinds
            .iter()
            .flat_map(|(kind, items)| items.iter().map(move |(name, item)| (format!("{kind}/{name}"), item.clone())));
        json!({
            "epoch": self.position.epoch,
            "revision": self.position.revision,
            "complete": true,
            "time": self.time.map(|time| time.to_string()),
            "items": items.collect::<Map<_, _>>(),
        })
    }
}

/// Splits a key at the first slash: names may contain more.
fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or((key, ""))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bowline_runtime::Clock;

    use super::*;
    use crate::document::{Fault, Service};
    use crate::{Document, Publisher, Sources};

    /// A manager whose document the test changes, and a client of it.
    struct Fixture {
        document: Arc<Mutex<Document>>,
        publisher: Publisher,
        view: View,
    }

    impl Fixture {
        fn new() -> Fixture {
            let (document, sources) = (Arc::new(Mutex::new(Document::default())), Sources::new());
            let source = document.clone();
            sources.add(move |document: &mut Document| *document = source.lock().unwrap().clone());
            Fixture {
                document,
                publisher: Publisher::new(sources, Clock::from_tokio("2026-01-01T00:00:00Z".parse().unwrap())),
                view: View::new(),
            }
        }

        fn change(&self, change: impl FnOnce(&mut Document)) {
            change(&mut self.document.lock().unwrap());
        }

        /// Reads the changes, and returns whether they were the complete document.
        async fn poll(&mut self) -> bool {
            // Until the publisher reads its sources again.
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
            let changes = self.publisher.changes(self.view.position()).unwrap();
            let changes: ReceivedChanges = serde_json::from_slice(&serde_json::to_vec(&changes).unwrap()).unwrap();
            let complete = changes.complete;
            self.view.apply(changes);
            complete
        }

        fn names(&self, kind: &str) -> Vec<String> {
            self.view.items(kind).map(|(name, _)| name.to_owned()).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_follows_a_publisher() {
        let mut fixture = Fixture::new();
        fixture.change(|document| {
            document.fault.insert("slow".to_owned(), Fault::default());
            document.service.insert("default/web".to_owned(), Service::default());
        });
        assert!(fixture.poll().await);
        assert_eq!(
            (fixture.names("service"), fixture.names("fault")),
            (vec!["default/web".to_owned()], vec!["slow".to_owned()])
        );
        fixture.change(|document| {
            document.fault.clear();
            document.service.entry("default/web".to_owned()).or_default().kind = "LoadBalancer".to_owned();
        });
        assert!(!fixture.poll().await);
        assert!(fixture.names("fault").is_empty());
        assert_eq!(fixture.view.get("service", "default/web").unwrap()["type"], "LoadBalancer");
        assert_eq!(
            fixture.view.to_json()["items"].as_object().unwrap().keys().collect::<Vec<_>>(),
            ["service/default/web"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn another_publisher_replaces_all_items() {
        let mut fixture = Fixture::new();
        fixture.change(|document| drop(document.fault.insert("old".to_owned(), Fault::default())));
        fixture.poll().await;
        let mut other = Fixture { view: fixture.view, ..Fixture::new() };
        other.change(|document| drop(document.fault.insert("new".to_owned(), Fault::default())));
        assert!(other.poll().await);
        assert_eq!(other.names("fault"), ["new"]);
    }
}
