//! A rate: so many per second, and so many at once before that counts.
//!
//! The bucket does not count tokens. It remembers when it will be full again, in whole nanoseconds, so waits are exact
//! multiples of the interval and nothing is lost to rounding however long it runs.
//!
//! ```text
//!   full_at - now   0 ............ burst·interval ............►
//!                   tokens are there │ the next one is to come
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{self, Instant};

/// Tokens that come at a steady rate and pile up to a bound.
#[derive(Debug)]
pub struct TokenBucket {
    /// Nanoseconds from one token to the next; none if there is no limit.
    interval: u128,
    /// Nanoseconds that an empty bucket takes to fill.
    capacity: u128,
    epoch: Instant,
    /// When the bucket is full if nobody takes any more: nanoseconds since `epoch`.
    full_at: Mutex<u128>,
}

impl TokenBucket {
    /// `rate` per second, `burst` at once. A rate that is not above zero means that there is no limit.
    pub fn new(rate: f64, burst: u32) -> TokenBucket {
        let interval = if rate > 0.0 { (1e9 / rate).round() as u128 } else { 0 };
        let capacity = interval.saturating_mul(u128::from(burst));
        TokenBucket { interval, capacity, epoch: Instant::now(), full_at: Mutex::new(0) }
    }

    /// Takes a token, if need be one that is still to come, and says how long to wait for it.
    pub fn reserve(&self) -> Duration {
        let mut full_at = self.lock();
        let (then, wait) = self.with_one_less(*full_at);
        *full_at = then;
        wait
    }

    /// Takes a token only if one is there.
    pub fn try_take(&self) -> bool {
        let mut full_at = self.lock();
        let (then, wait) = self.with_one_less(*full_at);
        if wait.is_zero() {
            *full_at = then;
        }
        wait.is_zero()
    }

    /// Waits for a token and says how long that took. Whoever stops waiting gives the token back, unless others have
    /// since been promised later ones.
    pub async fn take(&self) -> Duration {
        let mut promise = Promise { bucket: self, full_at: 0, kept: false };
        let wait = {
            let mut full_at = self.lock();
            let (then, wait) = self.with_one_less(*full_at);
            *full_at = then;
            promise.full_at = then;
            wait
        };
        if !wait.is_zero() {
            time::sleep(wait).await;
        }
        promise.kept = true;
        wait
    }

    /// When the bucket is full once a token is gone from it, and the wait for that token.
    fn with_one_less(&self, full_at: u128) -> (u128, Duration) {
        let now = self.epoch.elapsed().as_nanos();
        let then = full_at.max(now).saturating_add(self.interval);
        let wait = then.saturating_sub(self.capacity).saturating_sub(now);
        (then, Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    fn lock(&self) -> MutexGuard<'_, u128> {
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token that somebody waits for.
struct Promise<'a> {
    bucket: &'a TokenBucket,
    full_at: u128,
    kept: bool,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut full_at = self.bucket.lock();
        if !self.kept && *full_at == self.full_at {
            *full_at = full_at.saturating_sub(self.bucket.interval);
        }
    }
}
