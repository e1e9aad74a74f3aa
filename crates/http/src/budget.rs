//! Memory budget for all responses of the process. Each response has a limit of its own, but a cloud with many endless responses,
//! or several clouds with large ones, would reach a multiple of that limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of bytes of all responses in memory.
pub(crate) const BUDGET: usize = 96 << 20;

/// Bytes of all responses in memory.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Part of the budget used by one response, released when the last clone is dropped.
#[derive(Clone, Default)]
pub(crate) struct Share(Arc<Taken>);

#[derive(Default)]
struct Taken(AtomicUsize);

impl Share {
    /// Reserves further bytes; `false` if they exceed the budget.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let within = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= BUDGET);
        let is_taken = IN_USE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok();
        if is_taken {
            self.0.0.fetch_add(bytes, Ordering::Relaxed);
        }
        is_taken
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        IN_USE.fetch_sub(*self.0.get_mut(), Ordering::Relaxed);
    }
}
