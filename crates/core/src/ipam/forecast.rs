//! When a range will be full, and when that is worth a word.
//!
//! A range that is full is found out by the Node that gets none, which is late: a larger one needs a new cluster, or a
//! second range and new Nodes. So usage is sampled, and what it comes to is said while there is time.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::Usage;

/// Samples are at least this far apart.
const SPACING: Duration = Duration::from_secs(5 * 60);
/// Growth is measured over this time: long enough to even out a rollout, short enough to notice its end.
const WINDOW: Duration = Duration::from_secs(6 * 60 * 60);
/// Nothing is said of the future before this much of the past is known: a cluster that starts grows by all its Nodes.
const LEAST: Duration = Duration::from_secs(60 * 60);

/// Less than this until the range is full is worth a word.
const SHORT: Duration = Duration::from_secs(24 * 60 * 60);
/// More than this makes a shorter time news again.
const LONG: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// Percent of a range in use that are worth a word.
const LEVELS: [u8; 3] = [80, 90, 95];
/// So many percent below a level make it news again: a few Nodes that come and go do not.
const BACK: u8 = 5;

/// How the use of a range went lately. Bounded: a sample per five minutes, for six hours.
#[derive(Debug, Clone, Default)]
pub struct Trend {
    samples: VecDeque<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    when: Timestamp,
    used: u64,
}

/// What was said of a range, so that each level is told once until usage falls back.
#[derive(Debug, Clone, Copy, Default)]
pub struct UsageMonitor {
    told_level: Option<u8>,
    told_short: bool,
}

/// What is worth a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageWarning {
    /// How things stand.
    pub usage: Usage,
    /// The level in percent that was reached, if that is the news.
    pub level: Option<u8>,
    /// How long until the range is full, if it grows.
    pub left: Option<Duration>,
}

impl Trend {
    /// So many blocks are in use now. What comes too soon after the last sample is not kept.
    pub fn add(&mut self, now: Timestamp, used: u64) {
        // After a clock is set back, what comes from the future would keep everything else out.
        if self.samples.back().is_some_and(|last| last.when > now) {
            self.samples.clear();
        }
        if self.samples.back().is_some_and(|last| since(last.when, now) < SPACING) {
            return;
        }
        self.samples.push_back(Sample { when: now, used });
        // One sample beyond the window stays, or growth would be measured over less.
        while self.samples.get(1).is_some_and(|second| since(second.when, now) >= WINDOW) {
            self.samples.pop_front();
        }
    }

    /// How long until the range is full if it goes on like this; `None` if it does not grow, or too little is known.
    ///
    /// What grew all the time and what grew in the later half are both carried on, and the longer time counts: growth that
    /// has ended, as when a cluster was built, says nothing of the future.
    pub fn left(&self, now: Timestamp, usage: &Usage) -> Option<Duration> {
        if usage.free() == 0 {
            return Some(Duration::ZERO);
        }
        let first = self.samples.front()?;
        let past = since(first.when, now);
        if past < LEAST {
            return None;
        }
        let middle = self.samples.iter().rfind(|sample| since(sample.when, now) >= past / 2)?;
        carried_on(first, now, usage)?.max(carried_on(middle, now, usage)?).into()
    }
}

impl UsageMonitor {
    /// What there is to say now, if it has not been said.
    pub fn look(&mut self, usage: Usage, left: Option<Duration>) -> Option<UsageWarning> {
        let level = self.new_level(usage);
        let is_short = self.is_newly_short(left);
        (level.is_some() || is_short).then_some(UsageWarning { usage, level, left })
    }

    /// The highest level that was reached, if it is a new one.
    fn new_level(&mut self, usage: Usage) -> Option<u8> {
        let reached = LEVELS.into_iter().rfind(|level| is_at(usage, *level));
        // What was told holds as long as usage has not fallen back well below it.
        let still_told = LEVELS.into_iter().rfind(|level| is_at(usage, level - BACK)).min(self.told_level);
        self.told_level = reached.max(still_told);
        reached.filter(|_| reached > still_told)
    }

    fn is_newly_short(&mut self, left: Option<Duration>) -> bool {
        let was_short = self.told_short;
        self.told_short = left.is_some_and(|left| left < SHORT || (was_short && left < LONG));
        self.told_short && !was_short
    }
}

impl fmt::Display for UsageWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { range, blocks, used } = self.usage;
        write!(f, "{used} of {blocks} pod ranges of {range} are in use ({:.0} %)", self.usage.share() * 100.0)?;
        match self.left {
            Some(Duration::ZERO) => f.write_str("; none is left")?,
            Some(left) => write!(f, "; at the present rate none is left in {}", in_words(left))?,
            None => {}
        }
        f.write_str(". Nodes that find none stay without pods: remove unused nodes, or plan a larger --cluster-cidr")
    }
}

fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..7_200 => format!("{} minutes", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// How long until the range is full at the rate since this sample; `None` if there was no growth.
fn carried_on(from: &Sample, now: Timestamp, usage: &Usage) -> Option<Duration> {
    let grown = usage.used.checked_sub(from.used).filter(|grown| *grown > 0)?;
    let seconds = since(from.when, now).as_secs_f64() / grown as f64 * usage.free() as f64;
    Duration::try_from_secs_f64(seconds).ok()
}

/// At least this many percent are in use.
fn is_at(usage: Usage, percent: u8) -> bool {
    u128::from(usage.used) * 100 >= u128::from(usage.blocks) * u128::from(percent)
}

/// A clock that is set back makes no time pass.
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

    /// Samples each minute, so many blocks at each.
    fn trend(minutes: u64, used: impl Fn(u64) -> u64) -> Trend {
        let mut trend = Trend::default();
        (0..=minutes).for_each(|minute| trend.add(at(minute * MINUTE), used(minute)));
        trend
    }

    #[test]
    fn a_steady_growth_is_carried_on() {
        let trend = trend(120, |minute| minute);
        let left = trend.left(at(2 * HOUR), &usage(120, 180));
        assert_eq!(left, Some(Duration::from_secs(HOUR)), "60 more, one a minute");
        assert_eq!(trend.left(at(2 * HOUR), &usage(180, 180)), Some(Duration::ZERO), "full");
    }

    #[test]
    fn what_does_not_grow_is_never_full() {
        let cases = [("stands still", trend(120, |_| 50)), ("shrinks", trend(120, |minute| 170 - minute))];
        for (case, trend) in cases {
            assert_eq!(trend.left(at(2 * HOUR), &usage(50, 100)), None, "{case}");
        }
        assert_eq!(Trend::default().left(at(0), &usage(0, 100)), None, "nothing known");
        assert_eq!(Trend::default().left(at(0), &usage(100, 100)), Some(Duration::ZERO), "it is full already");
    }

    #[test]
    fn the_first_hour_says_nothing_and_an_old_burst_is_forgotten() {
        let burst = |minute: u64| minute.min(10) * 10;
        assert_eq!(trend(59, burst).left(at(59 * MINUTE), &usage(100, 256)), None);
        assert_eq!(trend(60, burst).left(at(HOUR), &usage(100, 256)), None, "it ended before the later half");
        assert!(trend(60, |minute| minute).left(at(HOUR), &usage(60, 256)).is_some());
        assert_eq!(trend(7 * 60, burst).left(at(7 * HOUR), &usage(100, 256)), None, "the burst is out of the window");
    }

    #[test]
    fn memory_is_bounded_and_a_clock_that_is_set_back_does_no_harm() {
        let mut trend = trend(30 * 24 * 60, |minute| minute);
        assert!(trend.samples.len() <= 74, "{}", trend.samples.len());
        trend.add(at(0), 5);
        assert_eq!(trend.left(at(0), &usage(100_000, 200_000)), None);
        (1..=120).for_each(|minute| trend.add(at(minute * MINUTE), 5 + minute));
        assert_eq!(
            trend.left(at(2 * HOUR), &usage(125, 185)),
            Some(Duration::from_secs(HOUR)),
            "it goes on from there"
        );
    }

    #[test]
    fn each_level_is_told_once_until_usage_falls_back() {
        let mut watchman = UsageMonitor::default();
        let rows = [
            (79, None, "below"),
            (80, Some(80), "reached"),
            (85, None, "told"),
            (79, None, "a little below"),
            (80, None, "still told"),
            (74, None, "well below"),
            (81, Some(80), "news again"),
            (96, Some(95), "the highest of those that were jumped"),
            (91, None, "a little below 95, and 90 is below what was told"),
            (89, None, "below 90 by little: 95 is forgotten"),
            (90, None, "90 is still told"),
            (95, Some(95), "news again"),
            (100, None, "told"),
        ];
        for (used, expected, why) in rows {
            let warning = watchman.look(usage(used, 100), None);
            assert_eq!(warning.and_then(|warning| warning.level), expected, "{used} %: {why}");
            assert_eq!(warning.is_some(), expected.is_some(), "{used} %: {why}");
        }
    }

    #[test]
    fn less_than_a_day_is_told_once_until_there_is_more_time() {
        let mut watchman = UsageMonitor::default();
        let rows = [(Some(30), false), (Some(23), true), (Some(20), false), (Some(30), false), (Some(23), false)];
        let more = [(Some(49), false), (Some(23), true), (None, false), (Some(1), true)];
        for (hours, expected) in rows.into_iter().chain(more) {
            let left = hours.map(|hours| Duration::from_secs(hours * HOUR));
            assert_eq!(watchman.look(usage(10, 100), left).is_some(), expected, "{hours:?} hours");
        }
    }

    #[test]
    fn a_warning_says_how_things_stand_and_what_to_do() {
        let left = Some(Duration::from_secs(90 * MINUTE));
        let warning = UsageMonitor::default().look(usage(205, 256), left).unwrap();
        assert_eq!(
            warning.to_string(),
            "205 of 256 pod ranges of 10.0.0.0/8 are in use (80 %); at the present rate none is left in 90 minutes. Nodes \
             that find none stay without pods: remove unused nodes, or plan a larger --cluster-cidr"
        );
    }
}
