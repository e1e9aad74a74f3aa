//! Memory for answers, bounded for the process as a whole: each answer has a limit of its own, but a cloud with many endless
//! answers, or several clouds with large ones, would reach many times that limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all answers of the process may take at once.
pub(crate) const BUDGET: usize = 96 << 20;

/// Bytes that answers take now.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Part of the budget that one answer takes, given back when the last clone is dropped.
#[derive(Clone, Default)]
pub(crate) struct Share(Arc<Taken>);

#[derive(Default)]
struct Taken(AtomicUsize);

impl Share {
    /// Takes this many bytes more; `false` if the budget does not have them.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let within = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= BUDGET);
        let is_taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok();
        if is_taken {
            self.0.0.fetch_add(bytes, Ordering::Relaxed);
        }
        is_taken
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        TAKEN.fetch_sub(*self.0.get_mut(), Ordering::Relaxed);
    }
}
