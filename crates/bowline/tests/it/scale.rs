//! Budgets for many Services on many Nodes, on counts and bytes: `benches/scale` has the times.

#[path = "../../benches/scale/process.rs"]
mod process;
#[path = "../../benches/scale/world.rs"]
mod world;

use std::time::Duration;

use process::Manager;
use world::World;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const POLL: Duration = Duration::from_millis(20);

const NODES: usize = 1_000;
const JOINING: usize = 100;
const SERVICES: usize = 20;

/// Bytes of the longest line that may be logged.
const LONGEST_LINE: usize = 400;

/// Bytes that may be logged for each Node that joins and each load balancer that changes: a few lines.
const LOG_EACH: usize = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_and_logs_grow_with_changes_only_and_a_restart_writes_nothing() -> Result<(), Failure> {
    let world = World::with_nodes(NODES).await?;
    let mut manager = Manager::start(&world)?;
    world.create_services(SERVICES).await?;
    world.all_addressed(SERVICES).await?;
    world.settle().await;
    let created = manager.usage()?;
    assert!(created.longest_line < LONGEST_LINE && created.log < (SERVICES + 10) * LOG_EACH, "{created}");

    world.reset();
    manager.reset()?;
    world.register(NODES..NODES + JOINING, true).await?;
    world.initialised(NODES..NODES + JOINING).await?;
    world.updated(SERVICES as u64).await?;
    world.settle().await;
    world.check_targets(NODES + JOINING)?;
    let joined = manager.usage()?;
    assert!(joined.longest_line < LONGEST_LINE && joined.log < (SERVICES + JOINING) * LOG_EACH, "{joined}");
    assert_eq!(world.writes(), SERVICES as u64, "{:?}", world.calls());
    let (sent, _) = world.bytes();
    assert!(sent < (SERVICES * (JOINING * 130 + 1_000) + JOINING * 200) as u64, "{sent} bytes");

    manager.stop()?;
    world.reset();
    let manager = Manager::start(&world)?;
    world.settle().await;
    let observed = world.calls().get("observe-balancers").copied().unwrap_or_default();
    assert_eq!((observed > 0, world.writes(), manager.warnings()?, world.warning_events().await?), (true, 0, 0, 0));
    Ok(())
}
