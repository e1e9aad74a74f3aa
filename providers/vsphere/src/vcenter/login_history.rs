//! Failed logins of all vCenters in this process, so that no account is locked.
//!
//! ```text
//!  attempt ──► this API of this server failed with this login a short while ago? ──► its error, without a call
//!     │        two APIs rejected this login in three minutes? ──────────────────────► their error, without a call
//!     ▼
//!  log in ──► rejected: pause of three minutes, then longer │ failed otherwise: pause of five seconds, then longer
//! ```
//!
//! vCenter locks an account after five rejected logins in three minutes. Several entries of the configuration may have the same account:
//! one server under several names, or linked vCenters. So rejections count for the login, whichever server they came from.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, Result, Retry};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::credentials::Login;
use crate::soap::{code, is_fault};

/// Period in which vCenter counts rejected logins.
const WINDOW: Duration = Duration::from_secs(180);

/// Maximum number of rejections of one login in this period. The next leader and `bowline check` may send the same login as well.
const LIMIT: usize = 2;

/// Longest pause after a rejection.
const MAX_PAUSE: Duration = Duration::from_secs(900);

/// First and longest pause after any other failure. Each attempt may have opened a session that no one closes.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Time after which a failure is forgotten.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// Failed logins. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LoginHistory(Arc<Shared>);

#[derive(Default)]
struct Shared {
    records: Mutex<Vec<Record>>,
    /// Notified at the end of each attempt.
    ended: Notify,
}

/// Attempts with one login.
struct Record {
    login: Login,
    in_progress: usize,
    /// The last failure of each place.
    failures: Vec<Failure>,
}

#[derive(Clone)]
struct Failure {
    /// API of a server.
    place: String,
    error: Error,
    is_rejection: bool,
    at: Instant,
    pause: Duration,
}

/// An attempt in progress.
struct Attempt<'a> {
    history: &'a LoginHistory,
    login: &'a Login,
}

impl LoginHistory {
    /// Logs in with `attempt` at an API of a server, unless this login has to pause.
    pub(super) async fn attempt<T>(
        &self,
        place: &str,
        login: &Login,
        attempt: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let _in_progress = self.begin(place, login).await?;
        match attempt.await {
            Ok(session) => {
                self.with(login, |record| record.failures.retain(|failure| failure.place != place));
                Ok(session)
            }
            Err(error) => Err(self.with(login, |record| record.fail(place, error))),
        }
    }

    /// Fails while this login has to pause.
    pub(super) fn check(&self, place: &str, login: &Login) -> Result<()> {
        self.with(login, |record| record.check(place, Instant::now(), 0).map(drop))
    }

    /// Waits while the attempts in progress might all be rejected and reach the limit.
    async fn begin<'a>(&'a self, place: &str, login: &'a Login) -> Result<Attempt<'a>> {
        loop {
            let ended = self.0.ended.notified();
            let is_free = self.with(login, |record| -> Result<bool> {
                let is_free = record.check(place, Instant::now(), record.in_progress)?;
                record.in_progress += usize::from(is_free);
                Ok(is_free)
            })?;
            if is_free {
                return Ok(Attempt { history: self, login });
            }
            ended.await;
        }
    }

    /// Changes the record of a login.
    fn with<T>(&self, login: &Login, change: impl FnOnce(&mut Record) -> T) -> T {
        let mut records = self.records();
        records.retain(|record| record.login == *login || !record.is_over());
        if let Some(record) = records.iter_mut().find(|record| record.login == *login) {
            return change(record);
        }
        let mut record = Record { login: login.clone(), in_progress: 0, failures: Vec::new() };
        let outcome = change(&mut record);
        records.push(record);
        outcome
    }

    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.history.with(self.login, |record| record.in_progress = record.in_progress.saturating_sub(1));
        self.history.0.ended.notify_waiters();
    }
}

impl Record {
    /// Fails during a pause. Returns whether a further attempt beside those in progress keeps the limit.
    fn check(&self, place: &str, now: Instant, in_progress: usize) -> Result<bool> {
        let paused = self.failures.iter().find(|failure| failure.place == place && now < failure.at + failure.pause);
        if let Some(failure) = paused {
            return Err(failure.error.clone());
        }
        let mut recent = self.failures.iter().filter(|failure| failure.is_rejection && now < failure.at + WINDOW);
        match recent.next() {
            None => Ok(in_progress < LIMIT),
            Some(first) => match 1 + recent.count() {
                LIMIT.. => Err(first.error.clone()),
                rejections => Ok(rejections + in_progress < LIMIT),
            },
        }
    }

    /// Records a failure, and returns its error. Callers need not wait for the end of the pause: attempts until then make no call, and
    /// new credentials are used at once.
    fn fail(&mut self, place: &str, error: Error) -> Error {
        let is_rejection = is_fault(&error, code::INVALID_LOGIN);
        let (first, longest) = if is_rejection { (WINDOW, MAX_PAUSE) } else { BACK_OFF };
        let last = self.failures.iter().find(|failure| failure.place == place && failure.is_rejection == is_rejection);
        let pause = last.map_or(first, |last| (last.pause * 2).min(longest));
        // A vCenter that is throttled says for how long.
        let (error, pause) = match error.retry_advice() {
            Retry::After(requested) if !is_rejection => (error, pause.max(requested)),
            _ => (error.retry(Retry::Backoff), pause),
        };
        self.failures.retain(|failure| failure.place != place);
        let place = place.to_owned();
        self.failures.push(Failure { place, error: error.clone(), is_rejection, at: Instant::now(), pause });
        error
    }

    /// Returns whether nothing of it matters any more.
    fn is_over(&self) -> bool {
        self.in_progress == 0 && self.failures.iter().all(|failure| failure.at.elapsed() > MAX_AGE)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use bowline_cloud::ErrorKind;
    use tokio::time::{advance, timeout};

    use super::*;

    fn login(password: &str) -> Login {
        Login::Password { user: "user".to_owned(), password: password.into() }
    }

    fn rejected() -> Error {
        Error::new(ErrorKind::Unauthenticated, "log in", "rejected").with_code(code::INVALID_LOGIN)
    }

    fn full() -> Error {
        Error::new(ErrorKind::Unavailable, "log in", "too many sessions")
    }

    /// Makes an attempt that fails with this error; returns whether it was made.
    async fn is_sent(history: &LoginHistory, place: &str, error: Error) -> bool {
        let mut is_sent = false;
        let attempt = async {
            is_sent = true;
            Err::<(), _>(error)
        };
        let _ = history.attempt(place, &login("wrong"), attempt).await;
        is_sent
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_login_pauses_for_the_requested_time() {
        let history = LoginHistory::default();
        let requested = Retry::After(Duration::from_secs(7));
        let throttled = || Error::new(ErrorKind::RateLimited, "log in", "too many requests").retry(requested);
        let failed = history.attempt("a", &login("wrong"), ready(Err::<(), _>(throttled()))).await;
        assert_eq!(failed.unwrap_err().retry_advice(), requested);
        advance(Duration::from_secs(6)).await;
        assert!(!is_sent(&history, "a", throttled()).await);
        advance(Duration::from_secs(1)).await;
        assert!(is_sent(&history, "a", throttled()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_login_pauses_for_three_minutes_and_then_longer() {
        let history = LoginHistory::default();
        for minutes in [3, 6, 12, 15, 15] {
            assert!(is_sent(&history, "a", rejected()).await);
            advance(Duration::from_secs(minutes * 60 - 1)).await;
            assert!(!is_sent(&history, "a", rejected()).await);
            advance(Duration::from_secs(1)).await;
        }
        assert!(history.attempt("a", &login("right"), ready(Ok(()))).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_is_rejected_twice_in_three_minutes_whatever_the_server() {
        let history = LoginHistory::default();
        let mut sent = 0;
        for second in 0..360 {
            for place in ["a", "b", "c", "d", "e"] {
                sent += usize::from(is_sent(&history, place, rejected()).await);
            }
            assert!(sent <= 2 * (1 + second / 180), "{sent} after {second} s");
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(sent, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn another_server_that_rejects_a_login_does_not_stop_the_one_that_accepts_it() {
        let history = LoginHistory::default();
        assert!(is_sent(&history, "a", rejected()).await);
        for _ in 0..3 {
            assert!(history.attempt("b", &login("wrong"), ready(Ok(()))).await.is_ok());
        }
        assert!(!is_sent(&history, "a", rejected()).await, "it stays paused at the first one");
    }

    #[tokio::test(start_paused = true)]
    async fn any_other_failure_pauses_only_its_own_server() {
        let history = LoginHistory::default();
        for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert!(is_sent(&history, "a", full()).await);
            assert!(!is_sent(&history, "a", full()).await);
            advance(Duration::from_secs(pause)).await;
        }
        for place in ["b", "c", "d"] {
            assert!(is_sent(&history, place, full()).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_in_progress_count_as_rejected_until_they_end() {
        let history = LoginHistory::default();
        let wrong = login("wrong");
        let hang = |place| history.attempt::<()>(place, &wrong, pending());
        let (mut first, mut second) = (Box::pin(hang("a")), Box::pin(hang("b")));
        for attempt in [&mut first, &mut second] {
            assert!(timeout(Duration::from_secs(1), attempt).await.is_err());
        }
        let mut third = Box::pin(history.attempt("c", &wrong, ready(Ok(()))));
        assert!(timeout(Duration::from_secs(1), &mut third).await.is_err());
        drop(first);
        assert!(third.await.is_ok());
        assert!(history.attempt("d", &login("other"), ready(Ok(()))).await.is_ok());
    }
}
