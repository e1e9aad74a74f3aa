//! Cost of many Services on many Nodes: 200 new Services, 100 Nodes that join, and a restart.
//!
//! `cargo bench -p bowline --bench scale [-- NODES SERVICES]`
//!
//! ```text
//!  this process: API server ◄── manager (a process) ──► local cloud over HTTP, 20 ms a call
//! ```
//!
//! All figures are of the manager process alone. `BOWLINE_PROGRAM` selects another build of the manager. Times are for comparison
//! only, because machines are shared; the benchmark fails on counts: writes per load balancer, and warnings after a restart.

mod process;
mod world;

use std::time::{Duration, Instant};

use process::{Manager, Usage};
use world::World;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Nodes that join.
const JOINING: usize = 100;

/// Size for which a manager in Go was measured.
const MEASURED: (usize, usize) = (5_000, 200);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (nodes, services) = match arguments[..] {
        [] => MEASURED,
        [nodes, services] => (nodes, services),
        _ => return Err("expected two numbers: NODES and SERVICES".into()),
    };
    let world = World::with_nodes(nodes).await?;
    println!("{nodes} Nodes, {services} Services, {:?} a cloud call", world::LATENCY);
    let mut manager = Manager::start(&world)?;
    world.settle().await;
    report("start with Nodes alone", &manager.usage()?, &world, None);
    let go = |figures: &'static str| Some(figures).filter(|_| (nodes, services) == MEASURED);
    create(&world, &manager, services, go("2.5 s, 2.2 CPU s, 284 MiB")).await?;
    join(&world, &manager, (nodes, services), go("11.8 s, 23 CPU s, 410 MiB; log 2.2 MB, longest line 294 B")).await?;
    manager.stop()?;
    restart(&world, services).await
}

/// From the first Service that is created until the last one has its address.
async fn create(world: &World, manager: &Manager, services: usize, go: Option<&str>) -> Result<(), Failure> {
    let begin = begin(world, manager)?;
    world.create_services(services).await?;
    world.all_addressed(services).await?;
    let took = begin.elapsed();
    report(&format!("{services} new Services: {:.1} s", took.as_secs_f64()), &manager.usage()?, world, go);
    Ok(())
}

/// From the first Node that is registered until the last load balancer has all of them.
async fn join(
    world: &World,
    manager: &Manager,
    (nodes, services): (usize, usize),
    go: Option<&str>,
) -> Result<(), Failure> {
    world.settle().await;
    let begin = begin(world, manager)?;
    let initialised = world.initialised(nodes..nodes + JOINING);
    let (registered, initialised) = tokio::join!(world.register(nodes..nodes + JOINING, true), initialised);
    let (_, initialised) = (registered?, initialised?);
    let updated = world.updated(services as u64).await?;
    let usage = manager.usage()?;
    let (took, late) = ((updated - begin).as_secs_f64(), (updated - initialised).as_secs_f64());
    let what = format!("{JOINING} Nodes join: {took:.1} s, {late:.1} s after the last one was initialised");
    world.settle().await;
    report(&what, &usage, world, go);
    let updates = world.calls().get("update-targets").copied().unwrap_or_default();
    if updates != services as u64 {
        return Err(format!("{updates} updates for {services} load balancers").into());
    }
    world.check_targets(nodes + JOINING)
}

async fn restart(world: &World, services: usize) -> Result<(), Failure> {
    world.reset();
    let manager = Manager::start(world)?;
    world.settle().await;
    report(&format!("restart with {services} Services"), &manager.usage()?, world, None);
    let warnings = manager.warnings()? + world.warning_events().await?;
    if world.writes() > 0 || warnings > 0 {
        return Err(format!("{} writes and {warnings} warnings after a restart", world.writes()).into());
    }
    Ok(())
}

/// Resets all counters.
fn begin(world: &World, manager: &Manager) -> Result<Instant, Failure> {
    world.reset();
    manager.reset()?;
    Ok(Instant::now())
}

fn report(what: &str, usage: &Usage, world: &World, go: Option<&str>) {
    println!("{what}");
    println!("  {usage}");
    let (sent, received) = world.bytes();
    println!("  cloud calls: {:?}; sent {:.1} MB, received {:.1} MB", world.calls(), mega(sent), mega(received));
    if let Some(figures) = go {
        println!("  Go, measured earlier: {figures}");
    }
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Pause between two checks of a condition.
const POLL: Duration = Duration::from_millis(20);
