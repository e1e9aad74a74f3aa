//! A rate: so many per second, and so many at once before that counts.

use std::time::Duration;

/// Tokens that come at a steady rate and pile up to a bound.
#[derive(Debug)]
pub struct TokenBucket {}

impl TokenBucket {
    /// `rate` per second, `burst` at once.
    pub fn new(rate: f64, burst: u32) -> TokenBucket {
        let _ = (rate, burst);
        todo!()
    }

    /// Takes a token, if need be one that is still to come, and says how long to wait for it.
    pub fn reserve(&self) -> Duration {
        todo!()
    }

    /// Takes a token only if one is there.
    pub fn try_take(&self) -> bool {
        todo!()
    }

    /// Waits for a token and says how long that took.
    pub async fn take(&self) -> Duration {
        todo!()
    }
}
