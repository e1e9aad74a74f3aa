//! Forecast of the exhaustion of a cluster CIDR, and warnings ahead of it.
//!
//! Exhaustion would otherwise surface only when a Node gets no pod CIDR. That is too late, because a larger cluster CIDR needs a
//! new cluster, or a second CIDR and new Nodes. The controller therefore samples the usage and warns while there is still time.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::Usage;

/// Minimum interval between two samples.
const SPACING: Duration = Duration::from_secs(5 * 60);
/// Period over which growth is measured: long enough to smooth out a rollout, short enough to notice its end.
const WINDOW: Duration = Duration::from_secs(6 * 60 * 60);
/// Minimum observed period before a forecast is made: a cluster that starts grows by all its Nodes.
const MIN_HISTORY: Duration = Duration::from_secs(60 * 60);

/// Remaining time below which a warning is emitted.
const SHORT: Duration = Duration::from_secs(24 * 60 * 60);
/// Remaining time above which the warning is re-armed.
const LONG: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// Usage levels in percent at which a warning is emitted.
const LEVELS: [u8; 3] = [80, 90, 95];
/// Hysteresis in percentage points: usage must fall this far below a level before the level is re-armed, so that a few Nodes that
/// come and go do not repeat the warning.
const HYSTERESIS: u8 = 5;

/// Recent usage of a cluster CIDR. Bounded: one sample per five minutes, for six hours.
#[derive(Debug, Clone, Default)]
pub struct Trend {
    samples: VecDeque<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    when: Timestamp,
    used: u64,
}

/// Warnings already emitted for a cluster CIDR, so that each level is reported once until usage falls below it again.
#[derive(Debug, Clone, Copy, Default)]
pub struct UsageMonitor {
    reported_level: Option<u8>,
    reported_short: bool,
}

/// Warning about the usage of a cluster CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageWarning {
    /// Current usage.
    pub usage: Usage,
    /// Level in percent that was newly reached, if any.
    pub level: Option<u8>,
    /// Estimated time until the cluster CIDR is exhausted, if usage grows.
    pub time_left: Option<Duration>,
}

impl Trend {
    /// Records the number of blocks in use. A sample too soon after the last one is dropped.
    pub fn record(&mut self, now: Timestamp, used: u64) {
        // After the clock was set back, a sample from the future would block all others.
        if self.samples.back().is_some_and(|last| last.when > now) {
            self.samples.clear();
        }
        if self.samples.back().is_some_and(|last| since(last.when, now) < SPACING) {
            return;
        }
        self.samples.push_back(Sample { when: now, used });
        // One sample beyond the window is kept, so that growth is measured over the whole window.
        while self.samples.get(1).is_some_and(|second| since(second.when, now) >= WINDOW) {
            self.samples.pop_front();
        }
    }

    /// Returns the estimated time until the cluster CIDR is exhausted; `None` if usage does not grow or the history is too short.
    ///
    /// The growth over the whole history and over its later half are both extrapolated, and the longer time is returned: growth
    /// that has ended, as after the creation of a cluster, does not predict the future.
    pub fn time_left(&self, now: Timestamp, usage: &Usage) -> Option<Duration> {
        if usage.free() == 0 {
            return Some(Duration::ZERO);
        }
        let first = self.samples.front()?;
        let past = since(first.when, now);
        if past < MIN_HISTORY {
            return None;
        }
        let middle = self.samples.iter().rfind(|sample| since(sample.when, now) >= past / 2)?;
        extrapolate(first, now, usage)?.max(extrapolate(middle, now, usage)?).into()
    }
}

impl UsageMonitor {
    /// Returns a warning if a level or the remaining time gives a new reason for one.
    pub fn check(&mut self, usage: Usage, time_left: Option<Duration>) -> Option<UsageWarning> {
        let level = self.new_level(usage);
        let is_short = self.is_newly_short(time_left);
        (level.is_some() || is_short).then_some(UsageWarning { usage, level, time_left })
    }

    /// Returns the highest level reached, if it was not reported yet.
    fn new_level(&mut self, usage: Usage) -> Option<u8> {
        let reached = LEVELS.into_iter().rfind(|level| is_at(usage, *level));
        // A reported level stays reported until usage has fallen well below it.
        let still_reported =
            LEVELS.into_iter().rfind(|level| is_at(usage, level - HYSTERESIS)).min(self.reported_level);
        self.reported_level = reached.max(still_reported);
        reached.filter(|_| reached > still_reported)
    }

    fn is_newly_short(&mut self, left: Option<Duration>) -> bool {
        let was_short = self.reported_short;
        self.reported_short = left.is_some_and(|left| left < SHORT || (was_short && left < LONG));
        self.reported_short && !was_short
    }
}

impl fmt::Display for UsageWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { range, blocks, used } = self.usage;
        write!(f, "{used} of {blocks} pod CIDRs of {range} are in use ({:.0} %)", self.usage.share() * 100.0)?;
        match self.time_left {
            Some(Duration::ZERO) => f.write_str("; none is free")?,
            Some(left) => write!(f, "; at the current rate, none will be free in {}", in_words(left))?,
            None => {}
        }
        f.write_str(". Nodes without a pod CIDR cannot run pods: remove unused nodes, or plan a larger --cluster-cidr")
    }
}

fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..7_200 => format!("{} minutes", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Extrapolates the growth since a sample to the exhaustion of the cluster CIDR; `None` without growth.
fn extrapolate(from: &Sample, now: Timestamp, usage: &Usage) -> Option<Duration> {
    let grown = usage.used.checked_sub(from.used).filter(|grown| *grown > 0)?;
    let seconds = since(from.when, now).as_secs_f64() / grown as f64 * usage.free() as f64;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns whether at least this percentage is in use.
fn is_at(usage: Usage, percent: u8) -> bool {
    u128::from(usage.used) * 100 >= u128::from(usage.blocks) * u128::from(percent)
}

/// Returns the elapsed time; zero if the clock was set back.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn usage(used: u64, blocks: u64) -> Usage {
        Usage { range: "10.0.0.0/8".parse().unwrap(), blocks, used }
    }

    /// Records one sample per minute with `used(minute)` blocks.
    fn trend(minutes: u64, used: impl Fn(u64) -> u64) -> Trend {
        let mut trend = Trend::default();
        (0..=minutes).for_each(|minute| trend.record(at(minute * MINUTE), used(minute)));
        trend
    }

    #[test]
    fn steady_growth_is_extrapolated() {
        let trend = trend(120, |minute| minute);
        let left = trend.time_left(at(2 * HOUR), &usage(120, 180));
        assert_eq!(left, Some(Duration::from_secs(HOUR)), "60 more, one a minute");
        assert_eq!(trend.time_left(at(2 * HOUR), &usage(180, 180)), Some(Duration::ZERO), "full");
    }

    #[test]
    fn usage_that_does_not_grow_has_no_forecast() {
        let cases = [("constant", trend(120, |_| 50)), ("shrinks", trend(120, |minute| 170 - minute))];
        for (case, trend) in cases {
            assert_eq!(trend.time_left(at(2 * HOUR), &usage(50, 100)), None, "{case}");
        }
        assert_eq!(Trend::default().time_left(at(0), &usage(0, 100)), None, "no samples");
        assert_eq!(Trend::default().time_left(at(0), &usage(100, 100)), Some(Duration::ZERO), "already exhausted");
    }

    #[test]
    fn there_is_no_forecast_in_the_first_hour_and_an_old_burst_is_ignored() {
        let burst = |minute: u64| minute.min(10) * 10;
        assert_eq!(trend(59, burst).time_left(at(59 * MINUTE), &usage(100, 256)), None);
        assert_eq!(trend(60, burst).time_left(at(HOUR), &usage(100, 256)), None, "it ended before the later half");
        assert!(trend(60, |minute| minute).time_left(at(HOUR), &usage(60, 256)).is_some());
        assert_eq!(
            trend(7 * 60, burst).time_left(at(7 * HOUR), &usage(100, 256)),
            None,
            "the burst is out of the window"
        );
    }

    #[test]
    fn memory_is_bounded_and_the_clock_may_be_set_back() {
        let mut trend = trend(30 * 24 * 60, |minute| minute);
        assert!(trend.samples.len() <= 74, "{}", trend.samples.len());
        trend.record(at(0), 5);
        assert_eq!(trend.time_left(at(0), &usage(100_000, 200_000)), None);
        (1..=120).for_each(|minute| trend.record(at(minute * MINUTE), 5 + minute));
        assert_eq!(
            trend.time_left(at(2 * HOUR), &usage(125, 185)),
            Some(Duration::from_secs(HOUR)),
            "the history starts again"
        );
    }

    #[test]
    fn each_level_is_reported_once_until_usage_falls_back() {
        let mut monitor = UsageMonitor::default();
        let rows = [
            (79, None, "below"),
            (80, Some(80), "reached"),
            (85, None, "already reported"),
            (79, None, "a little below"),
            (80, None, "still reported"),
            (74, None, "well below"),
            (81, Some(80), "re-armed"),
            (96, Some(95), "the highest of several new levels"),
            (91, None, "a little below 95, and 90 is below the reported level"),
            (89, None, "slightly below 90: 95 is re-armed"),
            (90, None, "90 is still reported"),
            (95, Some(95), "re-armed"),
            (100, None, "already reported"),
        ];
        for (used, expected, why) in rows {
            let warning = monitor.check(usage(used, 100), None);
            assert_eq!(warning.and_then(|warning| warning.level), expected, "{used} %: {why}");
            assert_eq!(warning.is_some(), expected.is_some(), "{used} %: {why}");
        }
    }

    #[test]
    fn less_than_a_day_is_reported_once_until_there_is_more_time() {
        let mut monitor = UsageMonitor::default();
        let rows = [(Some(30), false), (Some(23), true), (Some(20), false), (Some(30), false), (Some(23), false)];
        let more = [(Some(49), false), (Some(23), true), (None, false), (Some(1), true)];
        for (hours, expected) in rows.into_iter().chain(more) {
            let left = hours.map(|hours| Duration::from_secs(hours * HOUR));
            assert_eq!(monitor.check(usage(10, 100), left).is_some(), expected, "{hours:?} hours");
        }
    }

    #[test]
    fn a_warning_has_the_usage_and_the_remedy() {
        let left = Some(Duration::from_secs(90 * MINUTE));
        let warning = UsageMonitor::default().check(usage(205, 256), left).unwrap();
        assert_eq!(
            warning.to_string(),
            "205 of 256 pod CIDRs of 10.0.0.0/8 are in use (80 %); at the current rate, none will be free in 90 minutes. \
             Nodes without a pod CIDR cannot run pods: remove unused nodes, or plan a larger --cluster-cidr"
        );
    }
}
