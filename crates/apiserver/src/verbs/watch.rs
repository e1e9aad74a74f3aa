//! Watch of a collection: a stream of events from a position in its history.
//!
//! A watcher has a position, not a queue. It reads the next changes from the store, keeps those that match its selectors, and
//! writes lines that are shared with all watchers of the same representation.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch as signal;
use tokio::time::Instant;

use super::Call;
use super::list::{namespace, parse_version, reach};
use crate::connections::ResponseDeadline;
use crate::http::negotiate::{Negotiated, Shape};
use crate::http::query::ListOptions;
use crate::http::respond::{self, Body, Object, partial};
use crate::resources::Resource;
use crate::schema;
use crate::selectors::FieldSelector;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::store::{Change, Read, Snapshot, Stored, Subscription, Verb};
use crate::table::{self, Include};
use crate::value::Json;

/// Maximum number of changes read from the store at once.
const BATCH: usize = 64;

/// Minimum interval between two sends of a busy watch; changes in between are batched. The first event after a pause is sent
/// immediately. Without batching, every change would cost every watcher a separate packet.
const BATCH_INTERVAL: Duration = Duration::from_millis(5);

/// Interval of bookmarks for clients that requested them.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum timeout of a watch in seconds if the client sets none: 30 to 60 minutes, randomised so that watches do not all end
/// at once.
const MIN_TIMEOUT_SECONDS: u64 = 1800;

pub(super) async fn watch(call: &mut Call) -> ApiResult<Response<Body>> {
    let negotiated = Negotiated::negotiate_watch(&call.headers, &call.query)?;
    let options = options(call)?;
    let include = negotiated.include(&call.query)?;
    let start = start(call, &options).await?;
    let watcher = Watcher::new(call, negotiated.shape, include, options, start);
    let mut response = respond::response(StatusCode::OK, "application/json");
    // The watcher enforces its deadline only while the client reads; for other clients the connection has to enforce it.
    response.extensions_mut().insert(ResponseDeadline(watcher.deadline));
    *response.body_mut() = respond::stream_body(stream::unfold(watcher, |mut watcher| async move {
        let item = watcher.next().await?;
        Some((item, watcher))
    }));
    Ok(response)
}

/// The options of the query; the deprecated `/watch/` paths also name an object.
fn options(call: &Call) -> ApiResult<ListOptions> {
    let mut options = ListOptions::parse(call.resource(), &call.query)?;
    let name = call.path.name.as_str();
    if name.is_empty() {
        return Ok(options);
    }
    match options.fields.exact_name() {
        Some(selected) if selected == name => {}
        None if options.fields.is_empty() => options.fields = FieldSelector::by_name(name),
        _ => return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name")),
    }
    Ok(options)
}

/// Start of a watch.
enum Start {
    /// The current objects, then changes.
    Snapshot(Snapshot, Subscription),
    /// Changes after a revision.
    After(u64, Subscription),
    /// One ERROR event, then the stream ends.
    Failed(ApiError),
}

async fn start(call: &Call, options: &ListOptions) -> ApiResult<Start> {
    let (store, storage) = (&call.state.store, call.resource().storage);
    let revision = match options.resource_version.as_str() {
        "" | "0" => 0,
        text => parse_version(text).map_err(ApiError::plain)?,
    };
    match options.send_initial_events {
        Some(true) => {
            if let Err(error) = reach(call, revision).await {
                return Ok(Start::Failed(error));
            }
            let (snapshot, subscription) = store.list_and_subscribe(storage, namespace(call));
            return Ok(Start::Snapshot(snapshot, subscription));
        }
        Some(false) if revision == 0 => {
            let (snapshot, subscription) = store.list_and_subscribe(storage, namespace(call));
            return Ok(Start::After(snapshot.revision, subscription));
        }
        _ => {}
    }
    if revision == 0 {
        let (snapshot, subscription) = store.list_and_subscribe(storage, namespace(call));
        return Ok(Start::Snapshot(snapshot, subscription));
    }
    match store.subscribe(storage, revision) {
        Ok(subscription) => Ok(Start::After(revision, subscription)),
        Err(too_old) => {
            let message = format!("too old resource version: {revision} ({})", too_old.oldest);
            Ok(Start::Failed(ApiError::expired(message)))
        }
    }
}

struct Watcher {
    state: Arc<State>,
    resource: &'static Resource,
    namespace: Option<String>,
    options: ListOptions,
    representation: Representation,
    subscription: Option<Subscription>,
    /// The initial objects that are still to be sent; serialised one by one.
    initial: std::vec::IntoIter<Arc<Stored>>,
    /// Whether to send a bookmark after the initial events.
    send_initial_end: bool,
    /// Changes up to this revision are skipped.
    after: u64,
    /// Lines ready to be sent.
    ready: VecDeque<Bytes>,
    deadline: Instant,
    bookmark_at: Instant,
    /// Time of the last read of changes.
    sent_at: Instant,
    cuts: signal::Receiver<u64>,
    /// Close the connection in the middle of the next line.
    truncate: bool,
    ended: bool,
}

impl Watcher {
    fn new(call: &Call, shape: Shape, include: Include, options: ListOptions, start: Start) -> Watcher {
        let seconds = match options.timeout_seconds {
            // upstream: a negative timeout ends the watch immediately.
            Some(seconds) if seconds != 0 => u64::try_from(seconds).unwrap_or(0),
            _ => MIN_TIMEOUT_SECONDS + u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * MIN_TIMEOUT_SECONDS / 256,
        };
        let begin = Instant::now();
        let mut cuts = call.state.watch_cuts.subscribe();
        cuts.mark_unchanged();
        let mut watcher = Watcher {
            state: call.state.clone(),
            resource: call.resource(),
            namespace: namespace(call).map(str::to_owned),
            representation: Representation { resource: call.resource(), shape, include, columns_sent: false },
            send_initial_end: options.send_initial_events == Some(true) && options.bookmarks,
            options,
            subscription: None,
            initial: Vec::new().into_iter(),
            after: 0,
            ready: VecDeque::new(),
            deadline: begin + Duration::from_secs(seconds.min(1 << 31)),
            bookmark_at: begin + BOOKMARK_INTERVAL,
            sent_at: begin - BATCH_INTERVAL,
            cuts,
            truncate: call.truncate_watch,
            ended: false,
        };
        watcher.begin(start);
        watcher
    }

    fn begin(&mut self, start: Start) {
        match start {
            Start::Failed(error) => {
                self.ready.push_back(error_line(&error));
                self.ended = true;
            }
            Start::After(revision, subscription) => {
                self.after = revision;
                self.subscription = Some(subscription);
            }
            Start::Snapshot(snapshot, subscription) => {
                self.after = snapshot.revision;
                self.subscription = Some(subscription);
                self.initial = snapshot.objects.into_iter();
            }
        }
    }

    /// The next chunk of the stream; `None` at its end.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(self.chunk_of(line));
            }
            if self.ended {
                return None;
            }
            match self.next_initial() {
                Some(line) => self.ready.push_back(line),
                None => self.advance().await,
            }
        }
    }

    /// The next initial event, or the bookmark after the last one.
    fn next_initial(&mut self) -> Option<Bytes> {
        let options = &self.options;
        if let Some(object) = self.initial.find(|o| options.matches(o)) {
            return Some(self.representation.line(Verb::Added, &object));
        }
        let send_initial_end = std::mem::take(&mut self.send_initial_end);
        let after = self.after;
        send_initial_end.then(|| self.bookmark(after, true))
    }

    /// Returns the line, or half of it and then an error if a fault rule truncates the watch.
    fn chunk_of(&mut self, line: Bytes) -> io::Result<Bytes> {
        if !self.truncate {
            return Ok(line);
        }
        if self.ended {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "truncated by a fault rule"));
        }
        self.ended = true;
        let half = line.slice(..line.len() / 2);
        self.ready.clear();
        self.ready.push_back(Bytes::new());
        Ok(half)
    }

    /// Reads new changes, or waits for them.
    async fn advance(&mut self) {
        let Some(subscription) = self.subscription.as_mut() else {
            self.ended = true;
            return;
        };
        match self.state.store.next_changes(subscription, BATCH) {
            Read::Lagged => self.ended = true,
            Read::Changes { changes, caught_up } if changes.is_empty() => {
                self.wait(caught_up).await;
                tokio::time::sleep_until(self.sent_at + BATCH_INTERVAL).await;
            }
            Read::Changes { changes, .. } => {
                self.sent_at = Instant::now();
                for change in changes {
                    if let Some(line) = self.event(&change) {
                        self.ready.push_back(line);
                    }
                }
            }
        }
    }

    async fn wait(&mut self, caught_up: Option<u64>) {
        let Some(subscription) = self.subscription.as_mut() else { return };
        let wake = self.deadline.min(if self.options.bookmarks { self.bookmark_at } else { self.deadline });
        tokio::select! {
            () = subscription.changed() => {}
            _ = self.cuts.changed() => self.ended = true,
            () = tokio::time::sleep_until(wake) => self.on_timer(caught_up),
        }
    }

    fn on_timer(&mut self, caught_up: Option<u64>) {
        let now = Instant::now();
        self.ended = now >= self.deadline;
        if self.options.bookmarks {
            self.bookmark_at = now + BOOKMARK_INTERVAL;
            if let Some(revision) = caught_up {
                let bookmark = self.bookmark(revision, false);
                self.ready.push_back(bookmark);
            }
        }
    }

    /// The event of a change for this watcher, if it matches.
    fn event(&mut self, change: &Change) -> Option<Bytes> {
        let object = &change.object;
        if object.revision <= self.after || self.namespace.as_deref().is_some_and(|ns| *ns != *object.key.namespace) {
            return None;
        }
        let matched_before = change.previous.as_deref().is_some_and(|p| self.options.matches(p));
        let matches_now = change.verb != Verb::Deleted && self.options.matches(object);
        match (matched_before, matches_now) {
            (false, false) => None,
            (false, true) => Some(self.representation.line(Verb::Added, object)),
            (true, true) => Some(self.representation.line(Verb::Modified, object)),
            (true, false) if change.verb == Verb::Deleted => Some(self.representation.line(Verb::Deleted, object)),
            // The object no longer matches: send its last matching state with the revision of this change.
            (true, false) => {
                let last = change.previous.as_deref()?.at_revision(object.revision, Verb::Deleted);
                Some(self.representation.line(Verb::Deleted, &Arc::new(last)))
            }
        }
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = self.representation.shape_object(bare_object(self.resource, metadata));
        line("BOOKMARK", &object)
    }
}

/// An object with only metadata and the fields that its type always has.
fn bare_object(resource: &Resource, metadata: Value) -> Value {
    let text = json!({"metadata": metadata}).to_string();
    let mut object = schema::decode_json(resource.type_id(), text.as_bytes()).map_or_else(|_| json!({}), |d| d.value);
    object.put("kind", resource.kind);
    object.put("apiVersion", resource.api_version());
    object
}

fn line(event_type: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n"))
}

fn error_line(error: &ApiError) -> Bytes {
    line("ERROR", &error.to_status())
}

/// Representation of events for one watcher.
struct Representation {
    resource: &'static Resource,
    shape: Shape,
    include: Include,
    columns_sent: bool,
}

impl Representation {
    fn line(&mut self, verb: Verb, object: &Arc<Stored>) -> Bytes {
        match (&self.shape, self.resource.view) {
            (Shape::Object, None) => object.line_of(verb),
            _ => line(verb.event_type(), &self.shape_object(self.to_view(object))),
        }
    }

    /// The object in the negotiated representation; a Table has its columns only in the first event.
    fn shape_object(&mut self, object: Value) -> Value {
        match &self.shape {
            Shape::Object => object,
            Shape::Partial { version, .. } => partial(&object, version),
            Shape::Table { version } => {
                let metadata = json!({"resourceVersion": object.text("metadata.resourceVersion")});
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                table::render(self.resource, &[object], metadata, self.include, with_columns, version)
            }
        }
    }

    fn to_view(&self, object: &Arc<Stored>) -> Value {
        Object::Stored(object.clone()).into_value(self.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn a_bookmark_has_the_required_fields_of_its_type() {
        let bare = |plural: &str| {
            let resource = RESOURCES.iter().find(|r| r.plural == plural).unwrap();
            bare_object(resource, json!({"resourceVersion": "5"}))
        };
        let configmap = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}});
        assert_eq!(bare("configmaps"), configmap);
        let service = bare("services");
        assert_eq!((&service["spec"], &service["status"]), (&json!({}), &json!({"loadBalancer": {}})));
        assert_eq!(bare("nodes")["status"]["nodeInfo"]["machineID"], "");
    }
}
