//! Reads the Events about one object.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Resource as _;
use kube::api::ListParams;
use serde_json::Value;

use super::{Cluster, WriteError, invalid_request};

/// Maximum number of Events that are returned.
const LAST: usize = 10;

/// Event about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenEvent {
    /// Time of the last occurrence.
    pub time: Option<Timestamp>,
    /// `Normal` or `Warning`.
    pub kind: String,
    /// Machine-readable reason.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// Component that reported the Event.
    pub source: String,
    /// Number of occurrences.
    pub count: u64,
}

impl Cluster {
    /// Returns the last Events about an object, newest first. Events about cluster-scoped objects may be in any namespace.
    pub async fn events(&self, kind: &str, namespace: Option<&str>, name: &str) -> Result<Vec<SeenEvent>, WriteError> {
        let events = kube::core::Request::new(Event::url_path(&(), namespace));
        let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let request = events.list(&ListParams::default().fields(&about)).map_err(invalid_request)?;
        let list: Value = serde_json::from_slice(&self.send_read(&request).await?).unwrap_or_default();
        let mut seen: Vec<_> = list["items"].as_array().into_iter().flatten().map(SeenEvent::read).collect();
        seen.sort_by_key(|event| std::cmp::Reverse(event.time));
        seen.truncate(LAST);
        Ok(seen)
    }
}

impl SeenEvent {
    /// Reads both formats: events.k8s.io/v1 has a series and a reporting controller, core/v1 a count and a source.
    fn read(event: &Value) -> SeenEvent {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let first = |pointers: &[&str]| pointers.iter().find_map(|pointer| text(pointer)).unwrap_or_default();
        let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        let counts = ["/series/count", "/count"];
        SeenEvent {
            time: first(&times).parse().ok(),
            kind: first(&["/type"]).to_owned(),
            reason: first(&["/reason"]).to_owned(),
            message: first(&["/message"]).to_owned(),
            source: first(&["/reportingComponent", "/source/component"]).to_owned(),
            count: counts.iter().find_map(|pointer| event.pointer(pointer)?.as_u64()).unwrap_or(1),
        }
    }
}
