//! Buffer pool. A connection holds a buffer only between reading bytes and having written them.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Large enough that a busy connection needs few system calls, small enough for the CPU cache.
const SIZE: usize = 64 * 1024;
/// Maximum number of spare buffers per thread.
const MAX_SPARE: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer with unspecified content. Returns to the pool when dropped.
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    /// Takes a spare buffer, or allocates one.
    pub(crate) fn take() -> Buffer {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        Buffer(spare.unwrap_or_else(|| vec![0; SIZE].into_boxed_slice()))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // When the thread exits, the thread-local pool may be destroyed already.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE {
                spare.push(bytes);
            }
        });
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_reused() {
        let mut first = Buffer::take();
        first[0] = 7;
        drop(first);
        assert_eq!(Buffer::take()[0], 7);
    }
}
