//! The small helpers that a real cluster has elsewhere.

use std::sync::Arc;

use tokio::sync::watch;

use crate::state::State;

/// Runs the helpers until the server stops.
pub(crate) async fn run(_state: Arc<State>, mut stopped: watch::Receiver<bool>, _authority: String) {
    let _ = stopped.wait_for(|stop| *stop).await;
}
