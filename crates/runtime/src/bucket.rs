//! Token bucket: a rate limiter with a rate and a burst.
//!
//! The bucket does not count tokens. It stores the time at which it will be full again, in whole nanoseconds, so delays are exact
//! multiples of the interval and no rounding error accumulates.
//!
//! ```text
//!   full_at - now   0 ............ burst·interval ............►
//!                   tokens available │ wait for the next token
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{self, Instant};

/// Token bucket with a constant rate and a maximum burst.
#[derive(Debug)]
pub struct TokenBucket {
    /// Nanoseconds between two tokens; zero if there is no limit.
    interval: u128,
    /// Nanoseconds in which an empty bucket fills up.
    capacity: u128,
    epoch: Instant,
    /// Time at which the bucket is full if no more tokens are taken: nanoseconds since `epoch`.
    full_at: Mutex<u128>,
}

impl TokenBucket {
    /// Creates a bucket with `rate` tokens per second and this burst. A rate of zero or less means no limit.
    pub fn new(rate: f64, burst: u32) -> TokenBucket {
        let interval = if rate > 0.0 { (1e9 / rate).round() as u128 } else { 0 };
        let capacity = interval.saturating_mul(u128::from(burst));
        TokenBucket { interval, capacity, epoch: Instant::now(), full_at: Mutex::new(0) }
    }

    /// Returns the number of tokens per second; `None` for no limit.
    pub fn rate(&self) -> Option<f64> {
        (self.interval > 0).then(|| 1e9 / self.interval as f64)
    }

    /// Takes a token, possibly a future one, and returns the time to wait for it.
    pub fn reserve(&self) -> Duration {
        self.take_token().1
    }

    /// Takes a token only if one is available.
    pub fn try_take(&self) -> bool {
        let mut full_at = self.lock();
        let (then, wait) = self.after_taking(*full_at);
        if wait.is_zero() {
            *full_at = then;
        }
        wait.is_zero()
    }

    /// Waits for a token, and returns the time waited. Dropping the future returns the token, unless later tokens were reserved
    /// meanwhile.
    pub async fn take(&self) -> Duration {
        let (full_at, wait) = self.take_token();
        let mut reservation = Reservation { bucket: self, full_at, is_used: wait.is_zero() };
        if !reservation.is_used {
            time::sleep(wait).await;
            reservation.is_used = true;
        }
        wait
    }

    /// Takes a token. Returns the new time at which the bucket is full, and the time to wait.
    fn take_token(&self) -> (u128, Duration) {
        let mut full_at = self.lock();
        let (then, wait) = self.after_taking(*full_at);
        *full_at = then;
        (then, wait)
    }

    /// Returns the time at which the bucket is full after one more token is taken, and the time to wait for that token.
    fn after_taking(&self, full_at: u128) -> (u128, Duration) {
        let now = self.epoch.elapsed().as_nanos();
        let then = full_at.max(now).saturating_add(self.interval);
        let wait = then.saturating_sub(self.capacity).saturating_sub(now);
        (then, Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    fn lock(&self) -> MutexGuard<'_, u128> {
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reserved token, which is returned when it is dropped unused.
struct Reservation<'a> {
    bucket: &'a TokenBucket,
    full_at: u128,
    is_used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.is_used {
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
    async fn after_the_burst_the_rate_applies() {
        let bucket = TokenBucket::new(10.0, 3);
        assert_eq!(reserve(&bucket, 6), [0, 0, 0, 100, 200, 300]);
        advance(Duration::from_millis(350)).await;
        assert_eq!(reserve(&bucket, 1), [50], "only the reserved tokens are owed");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_accumulate_up_to_the_burst() {
        let bucket = TokenBucket::new(10.0, 3);
        reserve(&bucket, 3);
        advance(Duration::from_millis(200)).await;
        assert_eq!(reserve(&bucket, 3), [0, 0, 100]);
        advance(Duration::from_secs(3600)).await;
        assert_eq!(reserve(&bucket, 4), [0, 0, 0, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn try_take_takes_only_available_tokens() {
        let bucket = TokenBucket::new(1.0, 1);
        assert!(bucket.try_take());
        assert!(!bucket.try_take() && !bucket.try_take());
        advance(Duration::from_millis(999)).await;
        assert!(!bucket.try_take());
        advance(Duration::from_millis(1)).await;
        assert!(bucket.try_take());
    }

    #[tokio::test(start_paused = true)]
    async fn take_waits_for_the_returned_time() {
        let (bucket, start) = (TokenBucket::new(4.0, 1), Instant::now());
        let waits = [bucket.take().await, bucket.take().await, bucket.take().await];
        assert_eq!(waits.map(|wait| wait.as_millis()), [0, 250, 250]);
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_take_returns_its_token_unless_later_ones_are_reserved() {
        let bucket = TokenBucket::new(1.0, 1);
        bucket.reserve();
        assert!(timeout(Duration::ZERO, bucket.take()).await.is_err());
        assert_eq!(reserve(&bucket, 1), [1000], "the token was returned");
        let mut waiting = Box::pin(bucket.take());
        assert!(timeout(Duration::ZERO, &mut waiting).await.is_err());
        assert_eq!(reserve(&bucket, 1), [3000]);
        drop(waiting);
        assert_eq!(reserve(&bucket, 1), [4000], "later reservations keep their time");
    }

    #[tokio::test(start_paused = true)]
    async fn extreme_rates_neither_panic_nor_block() {
        for unlimited in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(reserve(&TokenBucket::new(unlimited, 1), 3), [0, 0, 0], "rate {unlimited}");
        }
        let glacial = TokenBucket::new(f64::MIN_POSITIVE, u32::MAX);
        glacial.reserve();
        assert!(!TokenBucket::new(f64::MIN_POSITIVE, 0).try_take());
    }
}
