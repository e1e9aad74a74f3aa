//! Reloads credentials when their files change.
//!
//! The content of the files is polled every few seconds: a mounted Secret is updated by swapping a symlink, which a watch of the
//! file does not notice, and a file that is written in place is incomplete for a while. New content is used once two consecutive
//! polls have read the same. The [`Reloadable`] validates it before it replaces the old credentials. Invalid credentials are
//! reported once and retried with exponential back-off, while the old ones stay in use: many clouds lock an account after repeated
//! attempts with a wrong password.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use prometheus::{IntCounterVec, Registry};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{Component, Metric, Shutdown, metrics};

/// Poll interval of the files.
const PERIOD: Duration = Duration::from_secs(5);

/// Maximum back-off between two attempts with invalid credentials.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

metrics! {
    /// Metrics of credential reloads.
    pub METRICS;
    RELOADS = Metric::counter(
        "bowline_credential_reloads_total",
        "Reloads of changed credentials, by purpose and result (success, error).",
    ).labels(&["what", "result"]);
}

/// Credentials that were read from files and can be reloaded.
pub trait Reloadable: Send + Sync {
    /// Returns the files of the credentials; empty if they cannot change.
    fn files(&self) -> Vec<PathBuf>;

    /// Returns the fingerprint of the files from before they were first read, so that a change right after that is not missed.
    fn fingerprint(&self) -> Fingerprint;

    /// Returns descriptions of sources other than files: a Secret, the service account of the pod.
    fn other_sources(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the expiry of the credentials in use, if it is known.
    fn expires(&self) -> Option<Timestamp> {
        None
    }

    /// Returns whether a reload is due although no file has changed.
    fn is_due(&self) -> bool {
        false
    }

    /// Reads and validates the credentials, and only then replaces the old ones. The error gives the reason why the old ones stay
    /// in use, without any secret.
    fn reload(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// Watches credentials, and reloads and counts changes.
#[derive(Clone)]
pub struct Reloader {
    period: Duration,
    count: IntCounterVec,
    states: Arc<Mutex<HashMap<String, State>>>,
}

impl Reloader {
    /// Creates a reloader, and registers its metrics.
    pub fn register(metrics: &Registry) -> prometheus::Result<Reloader> {
        Ok(Reloader { period: PERIOD, count: RELOADS.register(metrics)?, states: Arc::default() })
    }

    /// Sets the poll interval.
    pub fn with_period(self, period: Duration) -> Reloader {
        Reloader { period, ..self }
    }

    /// Returns the component for the status board: sources, age and last reload of these credentials, without secrets. It is always
    /// healthy, because the old credentials stay in use.
    pub fn component(&self, what: &str) -> Arc<dyn Component> {
        Arc::new(Watched(self.clone(), what.to_owned()))
    }

    /// Returns the result of the last reload; `null` if there was none.
    pub fn last_reload(&self, what: &str) -> Value {
        self.status(what, Timestamp::now())["lastRenewal"].take()
    }

    fn status(&self, what: &str, now: Timestamp) -> Value {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.get(what).map_or_else(|| json!({}), |state| state.status(now))
    }

    fn update(&self, what: &str, update: impl FnOnce(&mut State)) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        update(states.entry(what.to_owned()).or_default());
    }

    /// Watches `subject` until shutdown is requested. `what` is its name in logs and metrics.
    pub async fn watch(self, what: String, subject: Arc<dyn Reloadable>, shutdown: Shutdown) {
        let mut files = Files { in_use: subject.fingerprint(), changed: None, rejected: None };
        self.update(&what, |state| state.observe(&*subject));
        while shutdown.or(tokio::time::sleep(self.period)).await.is_some() {
            let content = Fingerprint::of(&subject.files());
            self.update(&what, |state| state.observe(&*subject));
            if !files.needs_reload(content) && !subject.is_due() {
                continue;
            }
            let Some(outcome) = shutdown.or(subject.reload()).await else { return };
            match outcome {
                Ok(()) => (files.in_use, files.rejected) = (content, None),
                Err(_) if files.reject(content, self.period) => {}
                Err(_) => continue,
            }
            self.report(&what, outcome);
        }
    }

    fn report(&self, what: &str, outcome: Result<(), String>) {
        let result = if outcome.is_ok() { "success" } else { "error" };
        match &outcome {
            Ok(()) => tracing::info!(what, "reloaded changed credentials"),
            Err(error) => tracing::error!(what, error, "cannot use changed credentials; the previous ones stay in use"),
        }
        self.count.with_label_values(&[what, result]).inc();
        self.update(what, |state| state.record_reload(outcome));
    }
}

/// Component of the credentials with this name.
struct Watched(Reloader, String);

impl Component for Watched {
    fn status(&self) -> Value {
        self.0.status(&self.1, Timestamp::now())
    }
}

/// Status of credentials, for the board.
struct State {
    /// Names of the sources, with the modification time of files.
    sources: Vec<(String, Option<Timestamp>)>,
    in_use_since: Timestamp,
    expires: Option<Timestamp>,
    last: Option<(Timestamp, Result<(), String>)>,
}

impl Default for State {
    fn default() -> State {
        State { sources: Vec::new(), in_use_since: Timestamp::now(), expires: None, last: None }
    }
}

impl State {
    fn observe(&mut self, subject: &dyn Reloadable) {
        let written = |file: &PathBuf| file.metadata().and_then(|file| file.modified()).ok();
        let file = |file: PathBuf| {
            let written = written(&file).and_then(|time| Timestamp::try_from(time).ok());
            (file.display().to_string(), written)
        };
        let others = subject.other_sources().into_iter().map(|source| (source, None));
        self.sources = subject.files().into_iter().map(file).chain(others).collect();
        self.expires = subject.expires();
    }

    fn record_reload(&mut self, outcome: Result<(), String>) {
        let now = Timestamp::now();
        if outcome.is_ok() {
            self.in_use_since = now;
        }
        self.last = Some((now, outcome));
    }

    fn status(&self, now: Timestamp) -> Value {
        let ago = |time: Timestamp| now.duration_since(time).as_secs_f64();
        let source =
            |(name, written): &(String, Option<Timestamp>)| json!({"key": name, "writtenSecondsAgo": written.map(ago)});
        let last = self.last.as_ref().map(|(time, outcome)| {
            let result = if outcome.is_ok() { "success" } else { "error" };
            json!({"time": time.to_string(), "secondsAgo": ago(*time), "result": result, "error": outcome.as_ref().err()})
        });
        json!({
            "sources": self.sources.iter().map(source).collect::<Vec<_>>(),
            "inUseSeconds": ago(self.in_use_since),
            "expires": self.expires.map(|end| end.to_string()),
            "lastRenewal": last,
        })
    }
}

/// Fingerprints of a set of files.
struct Files {
    /// Content in use.
    in_use: Fingerprint,
    /// Different content of the last poll.
    changed: Option<Fingerprint>,
    /// Content that was rejected.
    rejected: Option<Rejected>,
}

struct Rejected {
    content: Fingerprint,
    /// Time until the next attempt.
    backoff: Duration,
    since: Instant,
}

impl Files {
    /// Returns whether this content is new, was the same in the previous poll (and so is written completely), and is not in
    /// back-off after a rejection.
    fn needs_reload(&mut self, content: Fingerprint) -> bool {
        let is_stable = self.changed == Some(content);
        self.changed = (content != self.in_use).then_some(content);
        let in_backoff = self.rejection_of(content).is_some_and(|rejected| rejected.since.elapsed() < rejected.backoff);
        is_stable && self.changed.is_some() && !in_backoff
    }

    /// Records a rejection: the content is retried after a back-off, which doubles each time. Returns whether this is the first
    /// rejection.
    fn reject(&mut self, content: Fingerprint, first_backoff: Duration) -> bool {
        let before = self.rejection_of(content).map(|rejected| rejected.backoff);
        let backoff = before.map_or(first_backoff, |backoff| (backoff * 2).min(MAX_BACKOFF));
        self.rejected = Some(Rejected { content, backoff, since: Instant::now() });
        before.is_none()
    }

    fn rejection_of(&self, content: Fingerprint) -> Option<&Rejected> {
        self.rejected.as_ref().filter(|rejected| rejected.content == content)
    }
}

/// Hash of the names and contents of a set of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Returns the fingerprint of these files. A missing file has one, too.
    pub fn of(files: &[PathBuf]) -> Fingerprint {
        let mut hasher = DefaultHasher::new();
        for file in files {
            (file, std::fs::read(file).ok()).hash(&mut hasher);
        }
        Fingerprint(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;

    use super::*;

    /// Accepts the content of its file, unless that is `bad`.
    struct Subject {
        file: PathBuf,
        content: Mutex<String>,
        attempts: AtomicUsize,
    }

    impl Reloadable for Subject {
        fn files(&self) -> Vec<PathBuf> {
            vec![self.file.clone()]
        }

        fn fingerprint(&self) -> Fingerprint {
            Fingerprint::of(&self.files())
        }

        fn other_sources(&self) -> Vec<String> {
            vec!["Secret kube-system/it".to_owned()]
        }

        fn expires(&self) -> Option<Timestamp> {
            "2030-01-01T00:00:00Z".parse().ok()
        }

        fn reload(&self) -> BoxFuture<'_, Result<(), String>> {
            async {
                self.attempts.fetch_add(1, Ordering::SeqCst);
                match std::fs::read_to_string(&self.file) {
                    Ok(text) if text != "bad" => *self.content.lock().unwrap() = text,
                    _ => return Err("invalid".to_owned()),
                }
                Ok(())
            }
            .boxed()
        }
    }

    struct World {
        subject: Arc<Subject>,
        reloader: Reloader,
        directory: PathBuf,
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    impl World {
        /// Creates a file with the content `old`, which is a symlink as in a mounted Secret.
        async fn new(name: &str) -> World {
            let directory = std::env::temp_dir().join(format!("bowline-reload-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let file = directory.join("token");
            let subject = Subject { file, content: Mutex::new("old".to_owned()), attempts: AtomicUsize::new(0) };
            let reloader = Reloader::register(&Registry::new()).unwrap();
            let world = World { subject: Arc::new(subject), reloader, directory };
            world.swap("old");
            tokio::spawn(world.reloader.clone().watch("it".into(), world.subject.clone(), Shutdown::new()));
            world.polls(1).await;
            world
        }

        /// Points the symlink to a new file with this content.
        fn swap(&self, content: &str) {
            let (target, link) = (self.directory.join(format!("..{content}")), self.directory.join("..link"));
            std::fs::write(&target, content).unwrap();
            std::os::unix::fs::symlink(&target, &link).unwrap();
            std::fs::rename(&link, &self.subject.file).unwrap();
        }

        async fn polls(&self, count: u32) {
            tokio::time::sleep(PERIOD * count + PERIOD / 2).await;
        }

        fn content(&self) -> String {
            self.subject.content.lock().unwrap().clone()
        }

        fn count_of(&self, result: &str) -> u64 {
            self.reloader.count.with_label_values(&["it", result]).get()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_content_behind_a_symlink_is_loaded_once_it_is_stable() {
        let world = World::new("link").await;
        world.polls(4).await;
        assert_eq!(world.subject.attempts.load(Ordering::SeqCst), 0, "nothing has changed");
        world.swap("new");
        world.polls(2).await;
        assert_eq!((world.content().as_str(), world.count_of("success")), ("new", 1));
        world.polls(4).await;
        assert_eq!(world.subject.attempts.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_content_is_reported_once_and_retried() {
        let world = World::new("bad").await;
        world.swap("bad");
        world.polls(8).await;
        assert_eq!((world.content().as_str(), world.count_of("error")), ("old", 1));
        assert!(world.subject.attempts.load(Ordering::SeqCst) > 2);
        assert_eq!(world.reloader.last_reload("it")["error"], "invalid");
        world.swap("good");
        world.polls(3).await;
        assert_eq!((world.content().as_str(), world.count_of("success")), ("good", 1));
        assert_eq!(world.reloader.last_reload("it")["result"], "success");
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_shows_the_sources_and_no_content() {
        let world = World::new("board").await;
        let component = world.reloader.component("it");
        let status = component.status();
        assert_eq!(status["sources"][0]["key"], world.subject.file.display().to_string());
        assert!(status["sources"][0]["writtenSecondsAgo"].as_f64().is_some_and(|ago| ago < 600.0), "{status}");
        assert_eq!(status["sources"][1], json!({"key": "Secret kube-system/it", "writtenSecondsAgo": null}));
        assert_eq!((&status["expires"], &status["lastRenewal"]), (&json!("2030-01-01T00:00:00Z"), &Value::Null));
        assert!(status["inUseSeconds"].is_number(), "{status}");
        world.swap("bad");
        world.polls(2).await;
        assert_eq!(component.status()["lastRenewal"]["result"], "error");
        world.swap("new-password");
        world.polls(2).await;
        let status = component.status();
        assert_eq!(status["lastRenewal"]["result"], "success", "{status}");
        assert!(!status.to_string().contains("new-password"), "{status}");
        assert_eq!(component.health(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_content_is_retried_with_backoff_and_new_content_at_once() {
        let world = World::new("locked").await;
        let attempts = || world.subject.attempts.load(Ordering::SeqCst);
        world.swap("bad");
        world.polls(2).await;
        assert_eq!(attempts(), 1);
        // After 5, 10, 20, 40, 80, 160 and 300 seconds.
        world.polls(63).await;
        assert_eq!(attempts(), 7);
        world.polls(60).await;
        assert_eq!(attempts(), 8);
        world.polls(12 * 60).await;
        assert_eq!(attempts(), 20, "every five minutes");
        world.swap("good");
        world.polls(2).await;
        assert_eq!((world.content().as_str(), attempts()), ("good", 21));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reverted_change_is_not_loaded() {
        let world = World::new("back").await;
        world.swap("bad");
        world.polls(3).await;
        world.swap("old");
        world.polls(1).await;
        let attempts = world.subject.attempts.load(Ordering::SeqCst);
        world.polls(5).await;
        assert_eq!(world.subject.attempts.load(Ordering::SeqCst), attempts);
    }

    #[test]
    fn content_that_changes_with_every_poll_is_not_loaded() {
        let mut files = Files { in_use: Fingerprint(0), changed: None, rejected: None };
        assert!([1, 2, 3].iter().all(|content| !files.needs_reload(Fingerprint(*content))));
        assert!(files.needs_reload(Fingerprint(3)));
    }
}
