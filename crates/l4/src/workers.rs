//! The threads that carry traffic.
//!
//! Each has a single-threaded runtime of its own, so that a connection is accepted, connected and copied on one thread,
//! without anything being handed about. Without threads of its own, a data plane carries traffic on the runtime on which it
//! was made.

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The runtimes that carry traffic. Their threads end when this is dropped.
pub(crate) struct Workers {
    runtimes: Vec<Handle>,
    _stop: DropGuard,
}

impl Workers {
    /// So many threads; with 0, or if none can be started, `home` carries the traffic.
    pub(crate) fn start(threads: usize, home: &Handle) -> Workers {
        let stop = CancellationToken::new();
        let mut runtimes: Vec<Handle> = (0..threads).map_while(|_| start_one(stop.clone())).collect();
        if runtimes.is_empty() {
            runtimes.push(home.clone());
        }
        Workers { runtimes, _stop: stop.drop_guard() }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Handle] {
        &self.runtimes
    }

    /// The same one for the same number.
    pub(crate) fn one(&self, number: usize) -> Option<&Handle> {
        self.runtimes.get(number.checked_rem(self.runtimes.len())?)
    }
}

fn start_one(stop: CancellationToken) -> Option<Handle> {
    let started = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name("l4".to_owned());
        thread.spawn(move || runtime.block_on(stop.cancelled()))?;
        Ok(handle)
    });
    started.inspect_err(|error| tracing::warn!(%error, "cannot start a thread for traffic")).ok()
}
