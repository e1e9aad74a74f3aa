//! Leftovers of background loops: everything that the next run of a loop would remove. They are only listed, because the manager
//! removes them without this command.

use std::sync::Arc;

use anyhow::Context as _;
use bowline_cloud::{Clouds, Error};
use bowline_controllers::forecast::{self, PlannedLoop, Snapshot};
use bowline_controllers::manager::ManagerOptions;
use bowline_core::{Plan, Service, Step};
use bowline_kube::Cluster;

/// Removals of one loop.
pub(super) struct LoopLeftovers {
    pub(super) cloud: Arc<str>,
    pub(super) name: String,
    /// Steps of its plan, reduced to what they remove.
    pub(super) removals: Plan,
}

/// Leftovers of all loops.
#[derive(Default)]
pub(super) struct Leftovers {
    /// Loops with removals.
    pub(super) loops: Vec<LoopLeftovers>,
    /// Clouds with a loop that could not be planned.
    pub(super) failed: Vec<(Arc<str>, Error)>,
}

impl Leftovers {
    /// Number of removals.
    pub(super) fn count(&self) -> usize {
        self.loops.iter().map(|one| one.removals.steps.len()).sum()
    }

    fn add(&mut self, PlannedLoop { cloud, name, plan, .. }: PlannedLoop) {
        match plan {
            Ok(planned) => {
                let steps: Vec<_> = planned.plan.steps.into_iter().filter_map(Step::into_removal).collect();
                if !steps.is_empty() {
                    self.loops.push(LoopLeftovers { cloud: cloud.name().clone(), name, removals: Plan::of(steps) });
                }
            }
            Err(error) => self.failed.push((cloud.name().clone(), error.context("loop", name))),
        }
    }
}

/// Plans all loops; `None` if there are no loops.
pub(super) async fn find(
    clouds: &Clouds,
    cluster: &Cluster,
    options: &ManagerOptions,
    services: &[Arc<Service>],
) -> anyhow::Result<Option<Leftovers>> {
    if options.provider_loops.is_none() {
        return Ok(None);
    }
    let nodes = cluster.list_nodes().await.context("cannot list Nodes, so background loops cannot be planned")?;
    let snapshot = Snapshot { nodes, services: services.to_vec(), cluster_uid: None };
    let mut found = Leftovers::default();
    for planned in forecast::plan_loops(&snapshot, clouds, options).await? {
        found.add(planned);
    }
    Ok(Some(found))
}
