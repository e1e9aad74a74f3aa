//! Credentials that are read again when their files change.
//!
//! Files are compared by content, a few seconds apart: a mounted Secret is exchanged by swapping a symlink, which no watch of
//! a file sees, and a file that is written in place is half there for a while. New content counts once it was the same in two
//! looks; whether it is any good is for the [`Reloadable`] to find out, before it puts it in the place of the old. What is no
//! good is told once, tried again, and harms nobody: the old stays. It is tried less and less often: many a cloud locks the
//! account of whoever comes with a wrong password again and again.

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

use crate::{Metric, Part, Shutdown, metrics};

/// The pause between two looks at the files.
const PERIOD: Duration = Duration::from_secs(5);

/// The longest pause between two tries of what is no good.
const LONGEST_REST: Duration = Duration::from_secs(300);

metrics! {
    /// What is counted of credentials.
    pub METRICS;
    RELOADS = Metric::counter(
        "bowline_credential_reloads_total",
        "Changed credentials that were read again, by what they are for and whether they were taken (success, error).",
    ).labels(&["what", "result"]);
}

/// Something that was made from files, and can be made anew.
pub trait Reloadable: Send + Sync {
    /// The files that it was made from, as far as is known now; none if nothing of it can change.
    fn files(&self) -> Vec<PathBuf>;

    /// What was in them, from before they were read for the first time: a change right after that must not be missed.
    fn made_from(&self) -> Fingerprint;

    /// Sources other than files, in words for people: a Secret, the service account of the pod.
    fn other_sources(&self) -> Vec<String> {
        Vec::new()
    }

    /// When the credentials in use expire, as far as is known.
    fn expires(&self) -> Option<Timestamp> {
        None
    }

    /// Whether it must be made anew although no file has changed.
    fn is_due(&self) -> bool {
        false
    }

    /// Makes it anew, tries it, and only then puts it in the place of the old. The error says why the old one stays, without
    /// any secret.
    fn renew(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// Looks after what can be renewed, and counts how that goes.
#[derive(Clone)]
pub struct Reloader {
    period: Duration,
    count: IntCounterVec,
    states: Arc<Mutex<HashMap<String, State>>>,
}

impl Reloader {
    /// Counts in these metrics.
    pub fn register(metrics: &Registry) -> prometheus::Result<Reloader> {
        Ok(Reloader { period: PERIOD, count: RELOADS.register(metrics)?, states: Arc::default() })
    }

    /// With another pause between two looks.
    pub fn every(self, period: Duration) -> Reloader {
        Reloader { period, ..self }
    }

    /// For the board: where these credentials come from, how old they are and how the last renewal went, and never a secret. They
    /// are healthy in any case, as the old ones stay in use.
    pub fn part(&self, what: &str) -> Arc<dyn Part> {
        Arc::new(Watched(self.clone(), what.to_owned()))
    }

    /// How the last renewal of this went; `null` if there was none.
    pub fn last(&self, what: &str) -> Value {
        self.status(what, Timestamp::now())["lastRenewal"].take()
    }

    fn status(&self, what: &str, now: Timestamp) -> Value {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.get(what).map_or_else(|| json!({}), |state| state.status(now))
    }

    fn note(&self, what: &str, note: impl FnOnce(&mut State)) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        note(states.entry(what.to_owned()).or_default());
    }

    /// Looks after `subject` until shutdown is requested. `what` names it in logs and metrics.
    pub async fn watch(self, what: String, subject: Arc<dyn Reloadable>, shutdown: Shutdown) {
        let mut files = Files { taken: subject.made_from(), seen: None, refused: None };
        self.note(&what, |state| state.see(&*subject));
        while shutdown.or(tokio::time::sleep(self.period)).await.is_some() {
            let content = Fingerprint::of(&subject.files());
            self.note(&what, |state| state.see(&*subject));
            if !files.want_renewal(content) && !subject.is_due() {
                continue;
            }
            let Some(outcome) = shutdown.or(subject.renew()).await else { return };
            match outcome {
                Ok(()) => (files.taken, files.refused) = (content, None),
                Err(_) if files.refuse(content, self.period) => {}
                Err(_) => continue,
            }
            self.tell(&what, outcome);
        }
    }

    fn tell(&self, what: &str, outcome: Result<(), String>) {
        let result = if outcome.is_ok() { "success" } else { "error" };
        match &outcome {
            Ok(()) => tracing::info!(what, "credentials have changed, and the new ones are in use"),
            Err(error) => tracing::error!(what, error, "credentials have changed, but the new ones are no good"),
        }
        self.count.with_label_values(&[what, result]).inc();
        self.note(what, |state| state.renewed(outcome));
    }
}

/// Credentials that are looked after, by what they are for.
struct Watched(Reloader, String);

impl Part for Watched {
    fn status(&self) -> Value {
        self.0.status(&self.1, Timestamp::now())
    }
}

/// What is known of credentials, for the board.
struct State {
    /// Names, and when each file was last written.
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
    fn see(&mut self, subject: &dyn Reloadable) {
        let written = |file: &PathBuf| file.metadata().and_then(|file| file.modified()).ok();
        let file = |file: PathBuf| {
            let written = written(&file).and_then(|time| Timestamp::try_from(time).ok());
            (file.display().to_string(), written)
        };
        let others = subject.other_sources().into_iter().map(|source| (source, None));
        self.sources = subject.files().into_iter().map(file).chain(others).collect();
        self.expires = subject.expires();
    }

    fn renewed(&mut self, outcome: Result<(), String>) {
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

/// Contents of a set of files.
struct Files {
    /// In use.
    taken: Fingerprint,
    /// In the last look, if another one.
    seen: Option<Fingerprint>,
    /// Tried, and no good.
    refused: Option<Refused>,
}

struct Refused {
    content: Fingerprint,
    /// How long it is not tried again.
    rest: Duration,
    since: Instant,
}

impl Files {
    /// Whether this is new and was so in the look before, as what is half written is so only once; and whether it has rested, if
    /// it was no good.
    fn want_renewal(&mut self, content: Fingerprint) -> bool {
        let is_settled = self.seen == Some(content);
        self.seen = (content != self.taken).then_some(content);
        let rests = self.refusal_of(content).is_some_and(|refused| refused.since.elapsed() < refused.rest);
        is_settled && self.seen.is_some() && !rests
    }

    /// Notes that this is no good: it is tried again after a pause, which doubles each time. Whether that is news.
    fn refuse(&mut self, content: Fingerprint, first_rest: Duration) -> bool {
        let before = self.refusal_of(content).map(|refused| refused.rest);
        let rest = before.map_or(first_rest, |rest| (rest * 2).min(LONGEST_REST));
        self.refused = Some(Refused { content, rest, since: Instant::now() });
        before.is_none()
    }

    fn refusal_of(&self, content: Fingerprint) -> Option<&Refused> {
        self.refused.as_ref().filter(|refused| refused.content == content)
    }
}

/// What is in a set of files, as far as telling it from something else goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Of names and contents. A file that is missing has one, too.
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

    /// Takes what its file says, unless that is `bad`.
    struct Subject {
        file: PathBuf,
        inside: Mutex<String>,
        tries: AtomicUsize,
    }

    impl Reloadable for Subject {
        fn files(&self) -> Vec<PathBuf> {
            vec![self.file.clone()]
        }

        fn made_from(&self) -> Fingerprint {
            Fingerprint::of(&self.files())
        }

        fn other_sources(&self) -> Vec<String> {
            vec!["Secret kube-system/it".to_owned()]
        }

        fn expires(&self) -> Option<Timestamp> {
            "2030-01-01T00:00:00Z".parse().ok()
        }

        fn renew(&self) -> BoxFuture<'_, Result<(), String>> {
            async {
                self.tries.fetch_add(1, Ordering::SeqCst);
                match std::fs::read_to_string(&self.file) {
                    Ok(text) if text != "bad" => *self.inside.lock().unwrap() = text,
                    _ => return Err("no good".to_owned()),
                }
                Ok(())
            }
            .boxed()
        }
    }

    struct World {
        subject: Arc<Subject>,
        renewals: Reloader,
        directory: PathBuf,
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    impl World {
        /// With a file that says `old`, which is a link, as in a mounted Secret.
        async fn new(name: &str) -> World {
            let directory = std::env::temp_dir().join(format!("bowline-renewal-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let file = directory.join("token");
            let subject = Subject { file, inside: Mutex::new("old".to_owned()), tries: AtomicUsize::new(0) };
            let renewals = Reloader::register(&Registry::new()).unwrap();
            let world = World { subject: Arc::new(subject), renewals, directory };
            world.swap("old");
            tokio::spawn(world.renewals.clone().watch("it".into(), world.subject.clone(), Shutdown::new()));
            world.looks(1).await;
            world
        }

        /// The link leads to a new file with this content.
        fn swap(&self, content: &str) {
            let (target, link) = (self.directory.join(format!("..{content}")), self.directory.join("..link"));
            std::fs::write(&target, content).unwrap();
            std::os::unix::fs::symlink(&target, &link).unwrap();
            std::fs::rename(&link, &self.subject.file).unwrap();
        }

        async fn looks(&self, count: u32) {
            tokio::time::sleep(PERIOD * count + PERIOD / 2).await;
        }

        fn inside(&self) -> String {
            self.subject.inside.lock().unwrap().clone()
        }

        fn counted(&self, result: &str) -> u64 {
            self.renewals.count.with_label_values(&["it", result]).get()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_content_behind_a_link_is_taken_once_it_stays() {
        let world = World::new("link").await;
        world.looks(4).await;
        assert_eq!(world.subject.tries.load(Ordering::SeqCst), 0, "nothing has changed");
        world.swap("new");
        world.looks(2).await;
        assert_eq!((world.inside().as_str(), world.counted("success")), ("new", 1));
        world.looks(4).await;
        assert_eq!(world.subject.tries.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_good_is_told_once_and_tried_again() {
        let world = World::new("bad").await;
        world.swap("bad");
        world.looks(8).await;
        assert_eq!((world.inside().as_str(), world.counted("error")), ("old", 1));
        assert!(world.subject.tries.load(Ordering::SeqCst) > 2);
        assert_eq!(world.renewals.last("it")["error"], "no good");
        world.swap("good");
        world.looks(3).await;
        assert_eq!((world.inside().as_str(), world.counted("success")), ("good", 1));
        assert_eq!(world.renewals.last("it")["result"], "success");
    }

    #[tokio::test(start_paused = true)]
    async fn the_board_shows_where_credentials_come_from_and_no_content() {
        let world = World::new("board").await;
        let part = world.renewals.part("it");
        let status = part.status();
        assert_eq!(status["sources"][0]["key"], world.subject.file.display().to_string());
        assert!(status["sources"][0]["writtenSecondsAgo"].as_f64().is_some_and(|ago| ago < 600.0), "{status}");
        assert_eq!(status["sources"][1], json!({"key": "Secret kube-system/it", "writtenSecondsAgo": null}));
        assert_eq!((&status["expires"], &status["lastRenewal"]), (&json!("2030-01-01T00:00:00Z"), &Value::Null));
        assert!(status["inUseSeconds"].is_number(), "{status}");
        world.swap("bad");
        world.looks(2).await;
        assert_eq!(part.status()["lastRenewal"]["result"], "error");
        world.swap("new-password");
        world.looks(2).await;
        let status = part.status();
        assert_eq!(status["lastRenewal"]["result"], "success", "{status}");
        assert!(!status.to_string().contains("new-password"), "{status}");
        assert_eq!(part.health(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_good_is_tried_less_and_less_often_and_what_is_new_at_once() {
        let world = World::new("locked").await;
        let tries = || world.subject.tries.load(Ordering::SeqCst);
        world.swap("bad");
        world.looks(2).await;
        assert_eq!(tries(), 1);
        // After 5, 10, 20, 40, 80, 160 and 300 seconds.
        world.looks(63).await;
        assert_eq!(tries(), 7);
        world.looks(60).await;
        assert_eq!(tries(), 8);
        world.looks(12 * 60).await;
        assert_eq!(tries(), 20, "every five minutes for ever");
        world.swap("good");
        world.looks(2).await;
        assert_eq!((world.inside().as_str(), tries()), ("good", 21));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_taken_back_is_none() {
        let world = World::new("back").await;
        world.swap("bad");
        world.looks(3).await;
        world.swap("old");
        world.looks(1).await;
        let tries = world.subject.tries.load(Ordering::SeqCst);
        world.looks(5).await;
        assert_eq!(world.subject.tries.load(Ordering::SeqCst), tries);
    }

    #[test]
    fn content_that_changes_with_every_look_is_still_being_written() {
        let mut files = Files { taken: Fingerprint(0), seen: None, refused: None };
        assert!([1, 2, 3].iter().all(|content| !files.want_renewal(Fingerprint(*content))));
        assert!(files.want_renewal(Fingerprint(3)));
    }
}
