//! Removal of a load balancer.

use bowline_core::{Plan, Step, Verb};

use super::super::names::Names;
use super::super::{Change, LbServiceState, State};
use super::{deletions, release, service_lock};
use crate::config::nsx::{LbService, LoadBalancerConfig};
use crate::nsx::{MONITORS, POOLS, SERVICES, VIRTUAL_SERVERS};

pub(super) fn removal(config: &LoadBalancerConfig, names: &Names<'_>, state: &State) -> Plan<Change> {
    let objects = &state.objects;
    let mut plan = Plan::of(deletions(&VIRTUAL_SERVERS, &objects.virtual_servers, &[]));
    if let Some((step, lock)) = delete_service(config, names, state) {
        plan.steps.push(step);
        plan.locks.extend(lock);
    }
    plan.steps.extend(deletions(&POOLS, &objects.pools, &[]));
    plan.steps.extend(deletions(&MONITORS, &objects.monitors, &[]));
    plan.steps.extend(objects.allocations.iter().map(release));
    plan
}

/// Deletes the LB service after the last virtual server of the cluster. Other Services may delete theirs at the same time, so the step
/// itself checks which is the last one, after its own virtual servers are gone. The lock is needed only if this seems to be it:
/// deletions would wait for each other, and of two that delete the LB service, the second one finds none.
fn delete_service(
    config: &LoadBalancerConfig,
    names: &Names<'_>,
    state: &State,
) -> Option<(Step<Change>, Option<String>)> {
    let LbService::Managed { tier1 } = &config.service else { return None };
    let LbServiceState::Found { id, path, is_own: true } = &state.lookups.service else { return None };
    let has_others = state.lookups.has_others;
    if state.objects.is_empty() || state.objects.virtual_servers.is_empty() && has_others {
        return None;
    }
    let change = Change::DeleteService { id: id.clone(), path: path.clone(), marks: names.cluster_marks() };
    let name = format!("{} if no virtual server uses it", names.of_cluster());
    let lock = (!has_others).then(|| service_lock(tier1));
    Some((Step::new(Verb::Delete, SERVICES.kind, name, Vec::new(), change), lock))
}
