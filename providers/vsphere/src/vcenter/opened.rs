//! The session that is open, recorded as soon as vCenter opened it, so that closing leaves none behind.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};

/// Time limit for closing a session. One that cannot be closed ends when it is idle.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The session of one API. A renewed session replaces the last one, which has ended.
pub(super) struct Opened<T>(Mutex<State<T>>);

enum State<T> {
    Open(Option<T>),
    Closed,
}

impl<T> Default for Opened<T> {
    fn default() -> Opened<T> {
        Opened(Mutex::new(State::Open(None)))
    }
}

impl<T> Opened<T> {
    /// Records a new session. Returns it if it must be closed at once.
    pub(super) fn record(&self, session: T) -> std::result::Result<(), T> {
        match &mut *self.state() {
            State::Open(current) => {
                *current = Some(session);
                Ok(())
            }
            State::Closed => Err(session),
        }
    }

    /// Fails if no session may be opened any more.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.state() {
            State::Open(_) => Ok(()),
            State::Closed => Err(closed()),
        }
    }

    /// Lets no further session open, and returns the last one.
    pub(super) fn close(&self) -> Option<T> {
        match std::mem::replace(&mut *self.state(), State::Closed) {
            State::Open(session) => session,
            State::Closed => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of a login during or after closing.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, super::session::LOG_IN, "the provider is closed")
}
