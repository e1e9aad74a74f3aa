//! Adaptive rate limit, for services that throttle without saying for how long.
//!
//! ```text
//!  rate      ╱ no limit before the first throttled call
//!           ╱│
//!          ╱ │ 0.7 of the measured rate       ╱ beyond it, if the cloud accepts that
//!         ╱  └─┐                  ___________╱
//!              └╮  ______________╱ back to the rate at which the cloud throttled, and slowly past it
//!               ╰─╯
//! ```
//!
//! The curve is that of CUBIC (RFC 9438), with the constants of the adaptive retry mode of the AWS SDKs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Share of the measured rate after a throttled call.
const BETA: f64 = 0.7;
/// Steepness of the curve, in calls per second, by the third power of seconds.
const SCALE: f64 = 0.4;
/// Weight of the newest measurement in the measured rate.
const SMOOTHING: f64 = 0.8;
/// Duration of one measurement, in seconds.
const PERIOD: f64 = 0.5;
/// Minimum rate, in calls per second.
const MIN_RATE: f64 = 0.5;
/// Minimum capacity of the bucket, in calls.
const MIN_CAPACITY: f64 = 1.0;

/// An adaptive rate limit.
pub(super) struct AdaptiveRate {
    /// Held by the caller that waits for the next token, so that tokens are given out in order.
    turn: tokio::sync::Mutex<()>,
    epoch: Instant,
    state: Mutex<State>,
}

/// All times are seconds since the epoch, and all rates are calls per second.
#[derive(Default)]
struct State {
    /// Limit; `None` before the first throttled call.
    limit: Option<Limit>,
    measured: Measured,
}

struct Limit {
    rate: f64,
    tokens: f64,
    refilled: f64,
    /// Rate at which the cloud throttled, and the time of that.
    throttled_rate: f64,
    throttled: f64,
}

/// Rate at which calls are made.
#[derive(Default)]
struct Measured {
    rate: f64,
    calls: f64,
    /// Begin of the measurement.
    since: f64,
}

impl AdaptiveRate {
    pub(super) fn new() -> AdaptiveRate {
        AdaptiveRate { turn: tokio::sync::Mutex::default(), epoch: Instant::now(), state: Mutex::default() }
    }

    /// Waits for a token.
    pub(super) async fn take(&self) {
        if self.state().limit.is_none() {
            return;
        }
        let _turn = self.turn.lock().await;
        // The rate may change while the caller waits.
        loop {
            let now = self.now();
            let wait = self.state().limit.as_mut().and_then(|limit| limit.take(now));
            match wait {
                Some(wait) => sleep(wait).await,
                None => return,
            }
        }
    }

    /// Records the response to a call.
    pub(super) fn record(&self, is_throttled: bool) {
        let now = self.now();
        let mut state = self.state();
        state.measured.count(now);
        let measured = state.measured.rate;
        match (&mut state.limit, is_throttled) {
            (Some(limit), true) => limit.fall(now, measured),
            (None, true) => state.limit = Some(Limit::after_throttling(now, measured)),
            (Some(limit), false) => limit.grow(now, measured),
            (None, false) => {}
        }
    }

    /// Returns the current limit, if there is one.
    pub(super) fn rate(&self) -> Option<f64> {
        self.state().limit.as_ref().map(|limit| limit.rate)
    }

    fn now(&self) -> f64 {
        self.epoch.elapsed().as_secs_f64()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limit {
    fn after_throttling(now: f64, rate: f64) -> Limit {
        let mut limit = Limit { rate, tokens: 0.0, refilled: now, throttled_rate: rate, throttled: now };
        limit.fall(now, rate);
        limit
    }

    /// Takes a token, or returns the time until there is one.
    fn take(&mut self, now: f64) -> Option<Duration> {
        self.refill(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return None;
        }
        // A nanosecond more, so that the token is whole then.
        Some(Duration::from_secs_f64((1.0 - self.tokens) / self.rate) + Duration::from_nanos(1))
    }

    fn refill(&mut self, now: f64) {
        let capacity = self.rate.max(MIN_CAPACITY);
        self.tokens = (self.tokens + (now - self.refilled).max(0.0) * self.rate).min(capacity);
        self.refilled = now;
    }

    fn fall(&mut self, now: f64, measured: f64) {
        self.throttled_rate = self.rate.min(measured);
        self.throttled = now;
        self.set(now, self.throttled_rate * BETA, measured);
    }

    /// Follows the curve: it reaches the rate at which the cloud throttled after a plateau around `plateau` seconds.
    fn grow(&mut self, now: f64, measured: f64) {
        let plateau = (self.throttled_rate * (1.0 - BETA) / SCALE).cbrt();
        let rate = SCALE * (now - self.throttled - plateau).powi(3) + self.throttled_rate;
        self.set(now, rate, measured);
    }

    /// Sets the rate. A rate far above the one that is used would say nothing about what the cloud accepts.
    fn set(&mut self, now: f64, rate: f64, measured: f64) {
        self.refill(now);
        self.rate = rate.min(2.0 * measured).max(MIN_RATE);
        self.tokens = self.tokens.min(self.rate.max(MIN_CAPACITY));
    }
}

impl Measured {
    fn count(&mut self, now: f64) {
        self.calls += 1.0;
        let period = (now / PERIOD).floor() * PERIOD;
        if period > self.since {
            self.rate = self.calls / (period - self.since) * SMOOTHING + self.rate * (1.0 - SMOOTHING);
            (self.calls, self.since) = (0.0, period);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Makes calls one after the other for this time, each of which takes a millisecond; the cloud throttles above this rate.
    /// Returns the number of accepted and of throttled calls.
    async fn call(rate: &AdaptiveRate, takes: Duration, accepted_rate: f64) -> (u32, u32) {
        let (begun, mut tokens, mut last) = (Instant::now(), accepted_rate, Instant::now());
        let (mut accepted, mut throttled) = (0, 0);
        while begun.elapsed() < takes {
            rate.take().await;
            sleep(MILLISECOND).await;
            tokens = (tokens + last.elapsed().as_secs_f64() * accepted_rate).min(accepted_rate);
            last = Instant::now();
            let is_throttled = tokens < 1.0;
            if is_throttled {
                throttled += 1
            } else {
                (accepted, tokens) = (accepted + 1, tokens - 1.0)
            }
            rate.record(is_throttled);
        }
        (accepted, throttled)
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_no_limit_before_the_first_throttled_call() {
        let rate = AdaptiveRate::new();
        let (accepted, throttled) = call(&rate, Duration::from_secs(2), 1e9).await;
        assert_eq!((rate.rate(), throttled), (None, 0));
        assert!(accepted > 900, "{accepted}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_settles_at_what_the_cloud_accepts() {
        let rate = AdaptiveRate::new();
        call(&rate, Duration::from_secs(10), 20.0).await;
        let (accepted, throttled) = call(&rate, Duration::from_secs(60), 20.0).await;
        let per_second = f64::from(accepted) / 60.0;
        assert!((13.0..=21.0).contains(&per_second), "{per_second} calls per second");
        assert!(throttled * 10 < accepted, "{throttled} of {accepted} were throttled");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_grows_again_when_the_cloud_accepts_more() {
        let rate = AdaptiveRate::new();
        call(&rate, Duration::from_secs(30), 5.0).await;
        let before = rate.rate().unwrap_or_default();
        call(&rate, Duration::from_secs(60), 500.0).await;
        let after = rate.rate().unwrap_or_default();
        assert!(before < 10.0 && after > 4.0 * before, "{before} {after}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_at_least_one_call_in_two_seconds() {
        let rate = AdaptiveRate::new();
        for _ in 0..50 {
            rate.record(true);
        }
        let begun = Instant::now();
        for _ in 0..5 {
            rate.take().await;
        }
        assert_eq!((rate.rate(), begun.elapsed().as_secs()), (Some(MIN_RATE), 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_stops_waiting_takes_no_token() {
        let rate = AdaptiveRate::new();
        rate.record(true);
        let begun = Instant::now();
        for _ in 0..5 {
            assert!(tokio::time::timeout(MILLISECOND, rate.take()).await.is_err());
        }
        rate.take().await;
        assert_eq!(begun.elapsed().as_secs(), 2);
    }
}
