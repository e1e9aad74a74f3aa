//! Panics of syncs, which run as separate tasks.

use tokio::task::JoinError;

/// Propagates the panic of a sync: the manager exits, instead of running on with a key that no worker processes.
pub(crate) fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
