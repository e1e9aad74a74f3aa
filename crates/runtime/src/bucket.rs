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
        self.promise().1
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
        let (full_at, wait) = self.promise();
        let mut promise = Promise { bucket: self, full_at, kept: wait.is_zero() };
        if !promise.kept {
            time::sleep(wait).await;
            promise.kept = true;
        }
        wait
    }

    /// Takes a token: when the bucket is full from then on, and the wait for it.
    fn promise(&self) -> (u128, Duration) {
        let mut full_at = self.lock();
        let (then, wait) = self.with_one_less(*full_at);
        *full_at = then;
        (then, wait)
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
        if self.kept {
            return;
        }
        let mut full_at = self.bucket.lock();
        if *full_at == self.full_at {
            *full_at = full_at.saturating_sub(self.bucket.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    fn reserve(bucket: &TokenBucket, count: usize) -> Vec<u128> {
        (0..count).map(|_| bucket.reserve().as_millis()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_then_the_rate_counts() {
        let bucket = TokenBucket::new(10.0, 3);
        assert_eq!(reserve(&bucket, 6), [0, 0, 0, 100, 200, 300]);
        advance(Duration::from_millis(350)).await;
        assert_eq!(reserve(&bucket, 1), [50], "what was reserved is owed, no more");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_pile_up_to_the_burst_and_no_further() {
        let bucket = TokenBucket::new(10.0, 3);
        reserve(&bucket, 3);
        advance(Duration::from_millis(200)).await;
        assert_eq!(reserve(&bucket, 3), [0, 0, 100]);
        advance(Duration::from_secs(3600)).await;
        assert_eq!(reserve(&bucket, 4), [0, 0, 0, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn trying_takes_only_what_is_there_and_owes_nothing() {
        let bucket = TokenBucket::new(1.0, 1);
        assert!(bucket.try_take());
        assert!(!bucket.try_take() && !bucket.try_take());
        advance(Duration::from_millis(999)).await;
        assert!(!bucket.try_take());
        advance(Duration::from_millis(1)).await;
        assert!(bucket.try_take());
    }

    #[tokio::test(start_paused = true)]
    async fn taking_waits_for_as_long_as_it_says() {
        let (bucket, start) = (TokenBucket::new(4.0, 1), Instant::now());
        let waits = [bucket.take().await, bucket.take().await, bucket.take().await];
        assert_eq!(waits.map(|wait| wait.as_millis()), [0, 250, 250]);
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_gives_the_token_back_unless_others_come_after() {
        let bucket = TokenBucket::new(1.0, 1);
        bucket.reserve();
        assert!(timeout(Duration::ZERO, bucket.take()).await.is_err());
        assert_eq!(reserve(&bucket, 1), [1000], "given back");
        let mut waiting = Box::pin(bucket.take());
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
        assert_eq!(reserve(&bucket, 1), [3000]);
        drop(waiting);
        assert_eq!(reserve(&bucket, 1), [4000], "the promise made meanwhile stays free of others");
    }

    #[tokio::test(start_paused = true)]
    async fn odd_rates_neither_panic_nor_block() {
        for unlimited in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(reserve(&TokenBucket::new(unlimited, 1), 3), [0, 0, 0], "rate {unlimited}");
        }
        let glacial = TokenBucket::new(f64::MIN_POSITIVE, u32::MAX);
        glacial.reserve();
        assert!(!TokenBucket::new(f64::MIN_POSITIVE, 0).try_take());
    }
}
