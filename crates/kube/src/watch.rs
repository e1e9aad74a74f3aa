//! Watching: list, watch, and again after a cut, a 410 or a restart of the API server.
//!
//! ```text
//!          ┌────── 410: history is gone, or the API server was away ──────┐
//!          ▼                                                               │
//!   list, in pages ──► watch from there ──cut──► watch from the last change seen
//! ```
//!
//! * An API server that was away may come back with older data (restored from a backup, say), in which the version to go
//!   on from means something else; so everything is listed then. A cut that a new watch mends at once needs no list.
//!
//! * While there is no connection, the store keeps the last state.
//! * A list after the first one tells only what has changed since; the store sees to that.
//! * An outage is logged when it begins, every minute while it lasts, and when it is over, however many tries lie between.

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

/// Objects per page. A page is in memory as text while it is parsed, and a Node is easily 20 kB of text.
const PAGE: u32 = 250;
/// The wait after the first failure; it doubles.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest wait: when the API server is back, nodes should not wait long for us.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A watch that was not refused for this long after a list holds, even if nothing has happened in it yet.
const HOLDS_AFTER: Duration = Duration::from_secs(5);
/// A watch that held for this long was fine, even if nothing happened in it.
const FINE_AFTER: Duration = Duration::from_secs(60);

/// How often an outage that lasts is told again: what keeps it going may be something else than what began it.
const REMIND_AFTER: Duration = Duration::from_secs(60);

/// For [`watch_nodes`].
pub const WATCH_NODES: Permission = Permission::core("nodes", &["list", "watch"], "to follow all Nodes");

/// Feeds `store` with all Nodes until shutdown is requested.
pub async fn watch_nodes(client: kube::Client, store: Store<Node>, shutdown: Shutdown) {
    watch::<WireNode>(client, store, shutdown).await;
}

/// For [`watch_services`].
pub const WATCH_SERVICES: Permission = Permission::core("services", &["list", "watch"], "to follow all Services");

/// Feeds `store` with all Services until shutdown is requested.
pub async fn watch_services(client: kube::Client, store: Store<Service>, shutdown: Shutdown) {
    watch::<WireService>(client, store, shutdown).await;
}

/// Feeds `store` with all objects of a kind until shutdown is requested.
pub(crate) async fn watch<W: Wire>(client: kube::Client, store: Store<W::Kept>, shutdown: Shutdown) {
    shutdown.or(feed::<W>(client, store)).await;
}

async fn feed<W: Wire>(client: kube::Client, store: Store<W::Kept>) {
    let config = watcher::Config::default().page_size(PAGE);
    let api = Api::<W>::all(client);
    let mut feed = Feed::<W>::new(store);
    loop {
        feed.run(watcher(api.clone(), config.clone())).await;
    }
}

/// What goes from a watch into a store.
struct Feed<W: Wire> {
    store: Store<W::Kept>,
    /// The keys of the list that is coming in.
    listed: HashSet<Box<str>>,
    outage: Outage,
}

impl<W: Wire> Feed<W> {
    fn new(store: Store<W::Kept>) -> Feed<W> {
        Feed { store, listed: HashSet::new(), outage: Outage::new(W::plural(&()).into_owned()) }
    }

    /// Takes events until a new list is needed that the watch would not ask for.
    async fn run(&mut self, events: impl Stream<Item = watcher::Result<watcher::Event<W>>>) {
        let mut events = pin!(events);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = self.outage.ends() => {
                    self.outage.over();
                    continue;
                }
            };
            match event {
                None => return,
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => {
                    let pause = self.outage.failed(&error);
                    self.store.interrupted(cause(&error));
                    tokio::time::sleep(pause).await;
                    if calls_for_list(&error) {
                        return;
                    }
                }
            }
        }
    }

    fn take(&mut self, event: watcher::Event<W>) {
        match event {
            // Says only that a list is about to be asked for; that is no sign that the API server is there.
            watcher::Event::Init => return self.listed.clear(),
            watcher::Event::InitApply(object) => {
                let key = self.put(object);
                self.listed.extend(key);
            }
            watcher::Event::InitDone => {
                self.store.complete(&std::mem::take(&mut self.listed));
                self.outage.listed();
            }
            watcher::Event::Apply(object) => {
                self.put(object);
                self.outage.over();
            }
            watcher::Event::Delete(object) => {
                self.remove(object);
                self.outage.over();
            }
        }
        self.store.heard();
    }

    /// Stores the object; its key, if it can be stored.
    fn put(&self, object: W) -> Option<Box<str>> {
        let object = kept(object)?;
        let key = object.key().into();
        self.store.put(object);
        Some(key)
    }

    fn remove(&self, object: W) {
        if let Some(object) = kept(object) {
            self.store.remove(&object.key(), object.uid());
        }
    }
}

/// Going on from the last change seen is no use, or not safe. A server that is only busy still knows its history.
fn calls_for_list(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code < 500 && status.code != 429,
        watcher::Error::WatchStartFailed(_) => true,
        // The watcher itself lists anew, or goes on, whichever is right.
        _ => false,
    }
}

/// What is kept of the object; leaves one that cannot be stored out, rather than all of them.
fn kept<W: Wire>(object: W) -> Option<W::Kept> {
    let uid = object.meta().uid.clone().unwrap_or_default();
    let kept = object.kept();
    if kept.is_none() {
        tracing::warn!(resource = %W::plural(&()), uid, "the API server sent an object without a name; it is ignored");
    }
    kept
}

/// The times without a connection: how long to wait, and what is worth a line in the log.
struct Outage {
    resource: String,
    failures: u32,
    /// When this outage began, and when its last failure was.
    times: Option<(Instant, Instant)>,
    /// When it was last told.
    told: Option<Instant>,
    /// When the watch that follows the last list will have shown that it holds.
    ends_at: Option<Instant>,
}

impl Outage {
    fn new(resource: String) -> Outage {
        Outage { resource, failures: 0, times: None, told: None, ends_at: None }
    }

    /// Notes a failure, and says how long to wait after it.
    fn failed(&mut self, error: &watcher::Error) -> Duration {
        let now = Instant::now();
        self.ends_at = None;
        self.times = self.times.filter(|(_, last)| now.duration_since(*last) < FINE_AFTER);
        let cause = cause(error);
        match self.times {
            Some((begin, _)) => {
                self.failures = self.failures.saturating_add(1);
                self.times = Some((begin, now));
                self.remind(begin, now, &cause);
            }
            None => {
                self.failures = 1;
                self.times = Some((now, now));
                self.told = Some(now);
                self.report(error, &cause);
            }
        }
        pause(self.failures)
    }

    fn report(&self, error: &watcher::Error, cause: &str) {
        let resource = &self.resource;
        match error {
            watcher::Error::WatchError(status) if status.code == 410 => {
                tracing::info!(resource, "the API server has forgotten the history that the watch needs: listing anew");
            }
            _ => tracing::warn!(resource, error = cause, "the watch is interrupted; the last known state stays in use"),
        }
    }

    fn remind(&mut self, begin: Instant, now: Instant, cause: &str) {
        let (resource, failures, since) = (&self.resource, self.failures, now.duration_since(begin));
        if self.told.is_none_or(|told| now.duration_since(told) >= REMIND_AFTER) {
            self.told = Some(now);
            tracing::warn!(
                resource,
                error = cause,
                failures,
                ?since,
                "still no watch; the last known state stays in use"
            );
        } else {
            tracing::debug!(resource, error = cause, failures, ?since, "still no watch");
        }
    }

    /// A list has arrived. That says nothing of the watch after it, which may be what fails: whoever may list and not watch
    /// would otherwise list several times a second.
    fn listed(&mut self) {
        self.ends_at = self.times.map(|_| Instant::now() + HOLDS_AFTER);
    }

    /// Waits until the watch after a list has held for long enough; for ever, if nothing was wrong or there is no list yet.
    async fn ends(&self) {
        match self.ends_at {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    }

    /// The watch has told something, or held for long enough.
    fn over(&mut self) {
        self.ends_at = None;
        if let Some((begin, _)) = self.times.take() {
            let (resource, failures) = (&self.resource, self.failures);
            tracing::info!(resource, failures, duration = ?begin.elapsed(), "the watch works again");
        }
        self.failures = 0;
    }
}

/// What is wrong, and what to do if that is known.
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
        403 => "; give this user the right to list and watch",
        _ => "",
    };
    format!("the API server answers {} {}: {}{advice}", status.code, status.reason, status.message)
}

fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> watcher::Error {
        watcher::Error::NoResourceVersion
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_a_bound_and_start_over_when_something_arrives() {
        let mut outage = Outage::new("nodes".into());
        let waits: Vec<u128> = (0..8).map(|_| outage.failed(&failure()).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        outage.over();
        assert_eq!(outage.failed(&failure()), FIRST_PAUSE);
    }

    /// Answers lists with `list`, and refuses watches; counts both.
    fn refusing(list: u16, counts: std::sync::Arc<[std::sync::atomic::AtomicUsize; 2]>) -> kube::Client {
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
    async fn whoever_may_list_and_not_watch_lists_less_and_less_often() {
        for (list, wanted) in [(200, [11, 11]), (403, [11, 0])] {
            let counts = std::sync::Arc::new([0, 0].map(std::sync::atomic::AtomicUsize::new));
            let client = refusing(list, counts.clone());
            let watching = watch::<WireNode>(client, Store::new(), Shutdown::new());
            assert!(tokio::time::timeout(Duration::from_secs(60), watching).await.is_err());
            let counted = counts.each_ref().map(|count| count.load(std::sync::atomic::Ordering::SeqCst));
            assert_eq!(counted, wanted, "at 0, 0.2, 0.6, 1.4, 3, 6.2, 12.6 seconds, and every 10 from then on: {list}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_not_refused_after_a_list_ends_the_outage() {
        let mut outage = Outage::new("nodes".into());
        outage.listed();
        assert!(tokio::time::timeout(HOLDS_AFTER * 2, outage.ends()).await.is_err(), "there is none");
        outage.failed(&failure());
        outage.listed();
        tokio::time::timeout(HOLDS_AFTER * 2, outage.ends()).await.unwrap();
        outage.failed(&failure());
        assert!(tokio::time::timeout(HOLDS_AFTER * 2, outage.ends()).await.is_err(), "no list yet");
    }

    #[test]
    fn a_refusal_is_told_with_what_to_do() {
        let status = kube::core::Status::failure("nodes is forbidden", "Forbidden").with_code(403);
        assert_eq!(
            cause(&watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))),
            "the API server answers 403 Forbidden: nodes is forbidden; give this user the right to list and watch"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_long_after_the_last_one_is_a_new_outage() {
        let mut outage = Outage::new("nodes".into());
        outage.failed(&failure());
        outage.failed(&failure());
        tokio::time::advance(FINE_AFTER).await;
        assert_eq!(outage.failed(&failure()), FIRST_PAUSE);
    }
}
