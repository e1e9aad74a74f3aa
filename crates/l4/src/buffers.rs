//! Buffers for bytes on their way. A connection has one only between reading bytes and having written them.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Big enough that a busy connection needs few system calls, small enough to stay in a processor's cache.
const SIZE: usize = 64 * 1024;
/// So many are kept for the next one, by each thread.
const KEPT: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of which only what the holder filled in means anything. Goes to the next one who needs it when dropped.
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    /// One that is not in use.
    pub(crate) fn take() -> Buffer {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        Buffer(spare.unwrap_or_else(|| vec![0; SIZE].into_boxed_slice()))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // When a thread ends, its spare ones may be gone already.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
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
    fn a_buffer_is_used_again() {
        let mut first = Buffer::take();
        first[0] = 7;
        drop(first);
        assert_eq!(Buffer::take()[0], 7);
    }
}
