//! Measurements and their output.

use std::fmt;
use std::time::Duration;

use crate::Failure;

/// Converts bytes to MiB.
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// Repeated measurements of a duration.
#[derive(Default)]
pub(crate) struct Summary(Vec<Duration>);

impl Summary {
    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
        self.0.sort();
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |index: usize| self.0.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0);
        let last = self.0.len().saturating_sub(1);
        write!(f, "{:.0} ms (median of {}; {:.0} to {:.0})", at(last / 2), self.0.len(), at(0), at(last))
    }
}

/// Resource usage of a process, from /proc.
pub(crate) struct Usage {
    pub(crate) memory: Memory,
    busy: Duration,
    /// Number of voluntary context switches: each is followed by a wake-up.
    sleeps: u64,
    threads: usize,
}

/// Memory in KiB: anonymous, and pages of the executable.
pub(crate) struct Memory {
    resident: u64,
    own: u64,
    file: u64,
}

/// Resource usage while idle.
pub(crate) struct IdleUsage {
    share: f64,
    wakes: f64,
    threads: usize,
}

impl Usage {
    /// Reads the current usage of a process.
    pub(crate) fn of(process: u32) -> Result<Usage, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let memory = Memory {
            resident: field(&status, "VmRSS:")?,
            own: field(&status, "RssAnon:")?,
            file: field(&status, "RssFile:")?,
        };
        let mut usage = Usage { memory, busy: Duration::ZERO, sleeps: 0, threads: 0 };
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let directory = thread?.path();
            let nanoseconds = std::fs::read_to_string(directory.join("schedstat"))?;
            let nanoseconds = nanoseconds.split_whitespace().next().ok_or("an empty schedstat")?.parse()?;
            usage.busy += Duration::from_nanos(nanoseconds);
            let status = std::fs::read_to_string(directory.join("status"))?;
            usage.sleeps += field(&status, "voluntary_ctxt_switches:")?;
            usage.threads += 1;
        }
        Ok(usage)
    }

    /// Returns the usage since an earlier measurement.
    pub(crate) fn since(&self, before: &Usage, time: Duration) -> IdleUsage {
        let seconds = time.as_secs_f64();
        IdleUsage {
            share: self.busy.saturating_sub(before.busy).as_secs_f64() / seconds,
            wakes: self.sleeps.saturating_sub(before.sleeps) as f64 / seconds,
            threads: self.threads,
        }
    }
}

fn field(status: &str, name: &str) -> Result<u64, Failure> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name} in /proc"))?;
    Ok(line.split_whitespace().next().ok_or("an empty field in /proc")?.parse()?)
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [resident, own, file] = [self.resident, self.own, self.file].map(|kibibytes| kibibytes as f64 / 1024.0);
        write!(f, "{resident:.1} MiB resident ({own:.1} anonymous, {file:.1} of the executable)")
    }
}

impl fmt::Display for IdleUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.share * 100.0;
        write!(f, "{share:.3} % of a core, woken {:.1} times a second, {} threads", self.wakes, self.threads)
    }
}
