//! Baseline cost of the manager: size of the program, time from start to lease, idle memory and CPU time, and failover time.
//!
//! `cargo bench -p bowline --profile image --bench daemon [-- size start idle failover]`
//!
//! ```text
//!  bowline apiserver (a process, TLS) ◄── the manager, or two of them (processes) ── lease, serving, nothing to do
//!                                     ◄── this program: watches the lease
//! ```
//!
//! `BOWLINE_PROGRAM` selects another build of the manager, such as the static one of the image. `BOWLINE_PEER` is the command of
//! another manager to compare with, such as one in Go (`/bin/cloud-controller-manager --cloud-provider=…`); the required flags are
//! added. Times are for comparison only, because machines are shared. The size of an optimised build has a limit.

mod figures;
mod manager;
mod watch;

#[path = "../../tests/support/mod.rs"]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unused_imports, reason = "made for tests")]
mod support;

use std::time::{Duration, Instant};

use figures::{Summary, mebibytes};
use manager::{Kind, Manager};
use support::Server;
use watch::LeaseWatch;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Maximum size of the stripped program with all providers.
const MAX_SIZE: u64 = 25 * 1024 * 1024;

/// Number of measured starts.
const STARTS: usize = 10;

/// Pause until the manager counts as idle, and the time for which it is then measured.
const SETTLE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let selected: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |name: &str| selected.is_empty() || selected.iter().any(|word| word == name);
    for kind in Kind::all() {
        println!("{}", kind.name());
        if wants("size") {
            size(&kind)?;
        }
        if wants("start") {
            start(&kind).await?;
        }
        if wants("idle") {
            idle(&kind).await?;
        }
        if wants("failover") {
            failover(&kind, "-TERM", "clean stop").await?;
            failover(&kind, "-KILL", "killed").await?;
        }
    }
    Ok(())
}

/// Fails if our release build is too large; other build profiles are not shipped.
fn size(kind: &Kind) -> Result<(), Failure> {
    let bytes = std::fs::metadata(kind.program())?.len();
    println!("  size: {bytes} bytes, {:.2} MiB", mebibytes(bytes));
    let is_limited = matches!(kind, Kind::Ours) && !cfg!(debug_assertions);
    if is_limited && bytes > MAX_SIZE {
        return Err(format!("the program is larger than {:.0} MiB", mebibytes(MAX_SIZE)).into());
    }
    Ok(())
}

/// Measures from process start until the lease is acquired, and the time of a minimal client for the same requests.
async fn start(kind: &Kind) -> Result<(), Failure> {
    let server = Server::start("bench-start", &[]);
    let (mut ours, mut bare) = (Summary::default(), Summary::default());
    for number in 0..STARTS {
        bare.add(watch::bare_acquisition(&server.kubeconfig(), number).await?);
        let lease = format!("bench-{number}");
        let mut watch = LeaseWatch::open(&server.kubeconfig(), &lease).await?;
        let begin = Instant::now();
        let _manager = Manager::start(kind, &server, &lease)?;
        watch.next_holder(None).await?;
        ours.add(begin.elapsed());
    }
    println!("  start to leader: {ours}; minimal client (connect, get the lease, create it): {bare}");
    Ok(())
}

/// Measures an idle leader.
async fn idle(kind: &Kind) -> Result<(), Failure> {
    let server = Server::start("bench-idle", &[]);
    let mut watch = LeaseWatch::open(&server.kubeconfig(), "bench").await?;
    let manager = Manager::start(kind, &server, "bench")?;
    watch.next_holder(None).await?;
    tokio::time::sleep(SETTLE).await;
    let before = manager.usage()?;
    tokio::time::sleep(IDLE).await;
    let after = manager.usage()?;
    println!("  idle memory: {}", after.memory);
    println!("  idle CPU: {}", after.since(&before, IDLE));
    Ok(())
}

/// Sends a signal to the leader of two managers and measures the failover.
async fn failover(kind: &Kind, signal: &str, what: &str) -> Result<(), Failure> {
    let server = Server::start("bench-failover", &[]);
    let mut watch = LeaseWatch::open(&server.kubeconfig(), "bench").await?;
    let mut first = Manager::start(kind, &server, "bench")?;
    let holder = watch.next_holder(None).await?;
    let _second = Manager::start(kind, &server, "bench")?;
    // Time for the standby to observe the leader.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begin = Instant::now();
    first.stop(signal);
    watch.next_holder(Some(&holder)).await?;
    println!("  failover, {what}: {:.2} s", begin.elapsed().as_secs_f64());
    Ok(())
}
