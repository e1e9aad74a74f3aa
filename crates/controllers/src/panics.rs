//! Panics of passes, which run as tasks of their own.

use tokio::task::JoinError;

/// A pass that panicked takes the manager down, rather than leaving something that nobody works on any more.
pub(crate) fn pass_on_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
