//! Process metrics from `/proc`, under the standard names of Prometheus clients. They are read for each scrape; a metric that
//! cannot be read is omitted.

use std::fs;

use bowline_runtime::{Instrument, Metric, metrics};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Registry};

metrics! {
    /// Process metrics.
    pub METRICS;
    CPU = Metric::counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.").without_stability();
    OPEN_FILES = Metric::gauge("process_open_fds", "Number of open file descriptors.").without_stability();
    MAX_FILES = Metric::gauge("process_max_fds", "Maximum number of open file descriptors.").without_stability();
    VIRTUAL = Metric::gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.").without_stability();
    MAX_VIRTUAL = Metric::gauge(
        "process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.",
    ).without_stability();
    RESIDENT = Metric::gauge("process_resident_memory_bytes", "Resident memory size in bytes.").without_stability();
    START = Metric::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.").without_stability();
    RECEIVED = Metric::counter(
        "process_network_receive_bytes_total", "Number of bytes received by the process over the network.",
    ).without_stability();
    SENT = Metric::counter(
        "process_network_transmit_bytes_total", "Number of bytes sent by the process over the network.",
    ).without_stability();
}

/// Clock ticks per second of CPU times in `/proc`, on every architecture.
const TICKS: f64 = 100.0;

/// Value of an unlimited resource.
// upstream: Go's largest unsigned integer.
const UNLIMITED: f64 = 18_446_744_073_709_551_615.0;

/// Registers the metrics; there are none without `/proc`.
pub fn register(registry: &Registry) -> prometheus::Result<()> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let gauge = |metric: &Metric, read: fn() -> Option<f64>| -> prometheus::Result<Kernel> {
        Ok(Kernel { read, value: Value::Gauge(Gauge::make(metric, None)?) })
    };
    let counter = |metric: &Metric, read: fn() -> Option<f64>| -> prometheus::Result<Kernel> {
        Ok(Kernel { read, value: Value::Counter(Counter::make(metric, None)?) })
    };
    let all = [
        counter(&CPU, cpu_seconds)?,
        gauge(&OPEN_FILES, open_files)?,
        gauge(&MAX_FILES, || limit("Max open files"))?,
        gauge(&VIRTUAL, || status("VmSize:"))?,
        gauge(&MAX_VIRTUAL, || limit("Max address space"))?,
        gauge(&RESIDENT, || status("VmRSS:"))?,
        gauge(&START, start_time)?,
        counter(&RECEIVED, || octets("InOctets"))?,
        counter(&SENT, || octets("OutOctets"))?,
    ];
    all.into_iter().try_for_each(|kernel| registry.register(Box::new(kernel)))
}

/// Collector that reads its value for each scrape.
struct Kernel {
    read: fn() -> Option<f64>,
    value: Value,
}

enum Value {
    Gauge(Gauge),
    Counter(Counter),
}

impl Collector for Kernel {
    fn desc(&self) -> Vec<&Desc> {
        match &self.value {
            Value::Gauge(gauge) => gauge.desc(),
            Value::Counter(counter) => counter.desc(),
        }
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(now) = (self.read)() else { return Vec::new() };
        match &self.value {
            Value::Gauge(gauge) => {
                gauge.set(now);
                gauge.collect()
            }
            Value::Counter(counter) => {
                // The value only grows; concurrent scrapes may read it in either order.
                counter.inc_by((now - counter.get()).max(0.0));
                counter.collect()
            }
        }
    }
}

/// Reads the fields of `/proc/self/stat` after the program name, which may contain any character. The first is the state.
fn stat() -> Option<Vec<f64>> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    Some(behind.split_ascii_whitespace().map(|field| field.parse().unwrap_or_default()).collect())
}

fn cpu_seconds() -> Option<f64> {
    let stat = stat()?;
    Some((stat.get(11)? + stat.get(12)?) / TICKS)
}

/// Start of this process, in seconds since the Unix epoch.
pub fn start_time() -> Option<f64> {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + stat()?.get(19)? / TICKS)
}

fn open_files() -> Option<f64> {
    // Without the descriptor of the directory itself.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

/// Reads a soft limit.
fn limit(name: &str) -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(UNLIMITED),
        number => number.parse().ok(),
    }
}

/// Reads a value in bytes from `/proc/self/status`.
fn status(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_ascii_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

/// Reads the bytes received or sent in this network namespace.
fn octets(name: &str) -> Option<f64> {
    let netstat = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(found, _)| *found == name)?.1.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn all_metrics_are_read_with_plausible_values() {
        let registry = Registry::new();
        register(&registry).unwrap();
        let families = registry.gather();
        let names: Vec<_> = families.iter().map(|family| family.name().to_owned()).collect();
        let mut declared: Vec<_> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
        declared.sort();
        assert_eq!(names, declared);
        let value = |name: &str| {
            let sample = families.iter().find(|family| family.name() == name).unwrap().get_metric()[0].clone();
            sample.get_gauge().get_value() + sample.get_counter().get_value()
        };
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        assert!((now - value("process_start_time_seconds")).abs() < 24.0 * 3600.0);
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") < value("process_max_fds"));
    }
}
