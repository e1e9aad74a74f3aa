//! Reflector: lists and watches a resource into a store.
//!
//! ```text
//!          ┌──── 410: resource version expired, or the API server was down ────┐
//!          ▼                                                                    │
//!   list, in pages ──► watch from its version ──disconnect──► watch from the last version
//! ```
//!
//! * An API server that was down may return with older data, for instance from a backup, in which the last resource version
//!   means something else. It is therefore listed again. A disconnect after which a new watch starts at once needs no list.
//! * While disconnected, the store keeps the last known state.
//! * A relist notifies listeners of differences only; the store compares.
//! * An outage is logged when it starts, every minute while it lasts, and when it ends, not on every attempt.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use bowline_core::{Node, Service, with_causes};
use bowline_runtime::Shutdown;
use futures::{Stream, StreamExt};
use kube::Api;
use kube::runtime::watcher;
use tokio::time::Instant;

use crate::Store;
use crate::permissions::Permission;
use crate::store::Stored;
use crate::wire::{Wire, WireNode, WireService};

/// Objects per page. A page is in memory as JSON while it is parsed, and a Node is easily 20 kB of JSON.
const PAGE: u32 = 250;
/// Back-off after the first failure; it doubles.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Maximum back-off, short enough that Nodes do not wait long once the API server is back.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(10);
/// A watch that is not rejected for this long after a list works, even without events.
const WATCH_ESTABLISHED_AFTER: Duration = Duration::from_secs(5);
/// A failure this long after the previous one starts a new outage.
const NEW_OUTAGE_AFTER: Duration = Duration::from_secs(60);

/// Interval at which a lasting outage is logged again, because its cause may have changed.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Permission for [`watch_nodes`].
pub const WATCH_NODES: Permission = Permission::core("nodes", &["list", "watch"], "watch Nodes");

/// Watches all Nodes into `store` until shutdown is requested.
pub async fn watch_nodes(client: kube::Client, store: Store<Node>, shutdown: Shutdown) {
    watch::<WireNode>(client, store, shutdown).await;
}

/// Permission for [`watch_services`].
pub const WATCH_SERVICES: Permission = Permission::core("services", &["list", "watch"], "watch Services");

/// Watches all Services into `store` until shutdown is requested.
pub async fn watch_services(client: kube::Client, store: Store<Service>, shutdown: Shutdown) {
    watch::<WireService>(client, store, shutdown).await;
}

/// Watches all objects of a kind into `store` until shutdown is requested.
pub(crate) async fn watch<W: Wire>(client: kube::Client, store: Store<W::Domain>, shutdown: Shutdown) {
    shutdown.or(reflect::<W>(client, store)).await;
}

async fn reflect<W: Wire>(client: kube::Client, store: Store<W::Domain>) {
    let config = watcher::Config::default().page_size(PAGE);
    let api = Api::<W>::all(client);
    let mut reflector = Reflector::<W>::new(store);
    loop {
        reflector.run(watcher(api.clone(), config.clone())).await;
    }
}

/// Applies watch events to a store.
struct Reflector<W: Wire> {
    store: Store<W::Domain>,
    /// Keys of the list in progress.
    listed: HashSet<Box<str>>,
    outage: Outage,
}

impl<W: Wire> Reflector<W> {
    fn new(store: Store<W::Domain>) -> Reflector<W> {
        Reflector { store, listed: HashSet::new(), outage: Outage::new(W::plural(&()).into_owned()) }
    }

    /// Applies events until a relist is needed that the watcher would not start itself.
    async fn run(&mut self, events: impl Stream<Item = watcher::Result<watcher::Event<W>>>) {
        let mut events = pin!(events);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = self.outage.until_watch_established() => {
                    self.outage.end();
                    continue;
                }
            };
            match event {
                None => return,
                Some(Ok(event)) => self.apply(event),
                Some(Err(error)) => {
                    let pause = self.outage.record_failure(&error);
                    self.store.record_interruption(cause(&error));
                    tokio::time::sleep(pause).await;
                    if needs_relist(&error) {
                        return;
                    }
                }
            }
        }
    }

    fn apply(&mut self, event: watcher::Event<W>) {
        match event {
            // A list is about to be requested, which does not mean that the API server responds.
            watcher::Event::Init => return self.listed.clear(),
            watcher::Event::InitApply(object) => {
                let key = self.put(object);
                self.listed.extend(key);
            }
            watcher::Event::InitDone => {
                self.store.complete(&std::mem::take(&mut self.listed));
                self.outage.record_list();
            }
            watcher::Event::Apply(object) => {
                self.put(object);
                self.outage.end();
            }
            watcher::Event::Delete(object) => {
                self.remove(object);
                self.outage.end();
            }
        }
        self.store.record_event();
    }

    /// Stores the object and returns its key, if it is valid.
    fn put(&self, object: W) -> Option<Box<str>> {
        let object = convert(object)?;
        let key = object.key().into();
        self.store.put(object);
        Some(key)
    }

    fn remove(&self, object: W) {
        if let Some(object) = convert(object) {
            self.store.remove(&object.key(), object.uid());
        }
    }
}

/// Whether the watch cannot continue from the last resource version, or not safely. An overloaded API server (429, 5xx) still has
/// its history.
fn needs_relist(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code < 500 && status.code != 429,
        watcher::Error::WatchStartFailed(_) => true,
        // For these errors, kube's watcher itself relists or continues.
        _ => false,
    }
}

/// Converts the object; an invalid one is skipped and does not fail the list.
fn convert<W: Wire>(object: W) -> Option<W::Domain> {
    let uid = object.meta().uid.clone().unwrap_or_default();
    let converted = object.into_domain();
    if converted.is_none() {
        tracing::warn!(resource = %W::plural(&()), uid, "ignoring an object without a name from the API server");
    }
    converted
}

/// Outage of a watch: computes the back-off and limits the log lines.
struct Outage {
    resource: String,
    failures: u32,
    /// Start of the outage, and time of its last failure.
    times: Option<(Instant, Instant)>,
    /// Time at which it was last logged.
    last_logged: Option<Instant>,
    /// Time from which the watch after the last list counts as established.
    established_at: Option<Instant>,
}

impl Outage {
    fn new(resource: String) -> Outage {
        Outage { resource, failures: 0, times: None, last_logged: None, established_at: None }
    }

    /// Records a failure and returns the back-off.
    fn record_failure(&mut self, error: &watcher::Error) -> Duration {
        let now = Instant::now();
        self.established_at = None;
        self.times = self.times.filter(|(_, last)| now.duration_since(*last) < NEW_OUTAGE_AFTER);
        let cause = cause(error);
        match self.times {
            Some((begin, _)) => {
                self.failures = self.failures.saturating_add(1);
                self.times = Some((begin, now));
                self.log_continued(begin, now, &cause);
            }
            None => {
                self.failures = 1;
                self.times = Some((now, now));
                self.last_logged = Some(now);
                self.log_start(error, &cause);
            }
        }
        pause(self.failures)
    }

    fn log_start(&self, error: &watcher::Error, cause: &str) {
        let resource = &self.resource;
        match error {
            watcher::Error::WatchError(status) if status.code == 410 => {
                tracing::info!(resource, "the resource version of the watch has expired; relisting");
            }
            _ => tracing::warn!(resource, error = cause, "watch interrupted; using the last known state"),
        }
    }

    fn log_continued(&mut self, begin: Instant, now: Instant, cause: &str) {
        let (resource, failures, since) = (&self.resource, self.failures, now.duration_since(begin));
        if self.last_logged.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL) {
            self.last_logged = Some(now);
            tracing::warn!(
                resource,
                error = cause,
                failures,
                ?since,
                "watch still interrupted; using the last known state"
            );
        } else {
            tracing::debug!(resource, error = cause, failures, ?since, "watch still interrupted");
        }
    }

    /// Records a complete list. It does not end the outage, because the watch after it may fail: a user that may list but not watch
    /// would otherwise list several times a second.
    fn record_list(&mut self) {
        self.established_at = self.times.map(|_| Instant::now() + WATCH_ESTABLISHED_AFTER);
    }

    /// Waits until the watch after a list is established; forever if there is no outage or no list yet.
    async fn until_watch_established(&self) {
        match self.established_at {
            Some(time) => tokio::time::sleep_until(time).await,
            None => std::future::pending().await,
        }
    }

    /// Ends the outage: the watch delivered an event or is established.
    fn end(&mut self) {
        self.established_at = None;
        if let Some((begin, _)) = self.times.take() {
            let (resource, failures) = (&self.resource, self.failures);
            tracing::info!(resource, failures, duration = ?begin.elapsed(), "watch restored");
        }
        self.failures = 0;
    }
}

/// Cause of an error, with the fix if it is known.
pub(crate) fn cause(error: &watcher::Error) -> String {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let status = match error {
        WatchError(status) => status,
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => status,
        other => return with_causes(other),
    };
    let advice = match status.code {
        401 => "; check the credentials in the kubeconfig or of the service account",
        403 => "; grant this user the list and watch permissions",
        _ => "",
    };
    format!("the API server returned {} {}: {}{advice}", status.code, status.reason, status.message)
}

fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (FIRST_PAUSE * 2_u32.pow(doublings)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> watcher::Error {
        watcher::Error::NoResourceVersion
    }

    #[tokio::test(start_paused = true)]
    async fn the_back_off_doubles_up_to_a_maximum_and_resets_with_an_event() {
        let mut outage = Outage::new("nodes".into());
        let pauses: Vec<u128> = (0..8).map(|_| outage.record_failure(&failure()).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        outage.end();
        assert_eq!(outage.record_failure(&failure()), FIRST_PAUSE);
    }

    /// Client whose lists return the status `list` and whose watches are forbidden; counts both.
    fn forbidding(list: u16, counts: std::sync::Arc<[std::sync::atomic::AtomicUsize; 2]>) -> kube::Client {
        let answer = move |request: http::Request<kube::client::Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            counts[usize::from(is_watch)].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let code = if is_watch { 403 } else { list };
            let body = match code {
                200 => r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#,
                _ => r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}"#,
            };
            let answer =
                http::Response::builder().status(code).body(kube::client::Body::from(body.as_bytes().to_vec()));
            std::future::ready(answer.map_err(tower::BoxError::from))
        };
        kube::Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_that_may_list_but_not_watch_lists_with_back_off() {
        for (list, expected) in [(200, [11, 11]), (403, [11, 0])] {
            let counts = std::sync::Arc::new([0, 0].map(std::sync::atomic::AtomicUsize::new));
            let client = forbidding(list, counts.clone());
            let watching = watch::<WireNode>(client, Store::new(), Shutdown::new());
            assert!(tokio::time::timeout(Duration::from_secs(60), watching).await.is_err());
            let counted = counts.each_ref().map(|count| count.load(std::sync::atomic::Ordering::SeqCst));
            assert_eq!(
                counted, expected,
                "at 0, 0.2, 0.6, 1.4, 3, 6.2, 12.6 seconds, and every 10 from then on: {list}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_established_watch_after_a_list_ends_the_outage() {
        let mut outage = Outage::new("nodes".into());
        outage.record_list();
        assert!(
            tokio::time::timeout(WATCH_ESTABLISHED_AFTER * 2, outage.until_watch_established()).await.is_err(),
            "there is no outage"
        );
        outage.record_failure(&failure());
        outage.record_list();
        tokio::time::timeout(WATCH_ESTABLISHED_AFTER * 2, outage.until_watch_established()).await.unwrap();
        outage.record_failure(&failure());
        assert!(
            tokio::time::timeout(WATCH_ESTABLISHED_AFTER * 2, outage.until_watch_established()).await.is_err(),
            "no list yet"
        );
    }

    #[test]
    fn a_forbidden_list_is_reported_with_the_fix() {
        let status = kube::core::Status::failure("nodes is forbidden", "Forbidden").with_code(403);
        assert_eq!(
            cause(&watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))),
            "the API server returned 403 Forbidden: nodes is forbidden; grant this user the list and watch permissions"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_long_after_the_previous_one_is_a_new_outage() {
        let mut outage = Outage::new("nodes".into());
        outage.record_failure(&failure());
        outage.record_failure(&failure());
        tokio::time::advance(NEW_OUTAGE_AFTER).await;
        assert_eq!(outage.record_failure(&failure()), FIRST_PAUSE);
    }
}
