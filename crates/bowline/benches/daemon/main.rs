//! What the manager costs before it has anything to do: the size of the program, the time from its start to its lease, its
//! memory and processor time at rest, and how long a successor takes.
//!
//! `cargo bench -p bowline --profile image --bench daemon [-- size start idle failover]`
//!
//! ```text
//!  bowline apiserver (a process, TLS) ◄── the manager, or two of them (processes) ── lease, serving, nothing to do
//!                                     ◄── this program: watches the lease
//! ```
//!
//! `BOWLINE_PROGRAM` names another build of the manager to measure, such as the static one of the image. `BOWLINE_PEER` is the
//! command of another manager to measure beside it, such as one in Go (`/bin/cloud-controller-manager --cloud-provider=…`);
//! the flags that the figures need are added. Machines are shared, so figures are for comparing, and nothing fails on a time.
//! The size of an optimised build is a count and has a limit.

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

/// What the program may weigh, stripped, with all providers.
const LARGEST: u64 = 25 * 1024 * 1024;

/// How often the start is measured.
const STARTS: usize = 10;

/// How long the manager settles before it counts as idle, and how long it is looked at then.
const SETTLE: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |name: &str| chosen.is_empty() || chosen.iter().any(|word| word == name);
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

/// Fails if ours is too large. Another build profile is not what is shipped.
fn size(kind: &Kind) -> Result<(), Failure> {
    let bytes = std::fs::metadata(kind.program())?.len();
    println!("  size: {bytes} bytes, {:.2} MiB", mebibytes(bytes));
    let counts = matches!(kind, Kind::Ours) && !cfg!(debug_assertions);
    if counts && bytes > LARGEST {
        return Err(format!("the program is larger than {:.0} MiB", mebibytes(LARGEST)).into());
    }
    Ok(())
}

/// From the start of the process until the API server has its lease, and what a bare client takes for the same requests.
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
    println!("  start to leader: {ours}; of a bare client (connect, ask for the lease, make it): {bare}");
    Ok(())
}

/// Leading, serving, nothing to do.
async fn idle(kind: &Kind) -> Result<(), Failure> {
    let server = Server::start("bench-idle", &[]);
    let mut watch = LeaseWatch::open(&server.kubeconfig(), "bench").await?;
    let manager = Manager::start(kind, &server, "bench")?;
    watch.next_holder(None).await?;
    tokio::time::sleep(SETTLE).await;
    let before = manager.usage()?;
    tokio::time::sleep(REST).await;
    let after = manager.usage()?;
    println!("  idle memory: {}", after.memory);
    println!("  idle processor: {}", after.since(&before, REST));
    Ok(())
}

/// Two of them; the one that leads gets a signal.
async fn failover(kind: &Kind, signal: &str, what: &str) -> Result<(), Failure> {
    let server = Server::start("bench-failover", &[]);
    let mut watch = LeaseWatch::open(&server.kubeconfig(), "bench").await?;
    let mut first = Manager::start(kind, &server, "bench")?;
    let holder = watch.next_holder(None).await?;
    let _second = Manager::start(kind, &server, "bench")?;
    // So that it has seen who leads.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begin = Instant::now();
    first.stop(signal);
    watch.next_holder(Some(&holder)).await?;
    println!("  failover, {what}: {:.2} s", begin.elapsed().as_secs_f64());
    Ok(())
}
