//! Deletes the load balancer of a Service.
//!
//! ```text
//!  created for a Service, and used by no other ──► floating IP (if created for a Service, and not to be kept)
//!                                                  ──► the load balancer with all its parts, or part by part
//!  shared, or created by hand ───────────────────► the Service's listeners and tag
//!  in both cases ────────────────────────────────► its security group
//! ```

use bowline_cloud::Result;
use bowline_core::{DesiredLoadBalancer, Verb};

use super::super::annotations::{KEEP_FLOATING_IP, TABLE};
use super::super::change::{BalancerRef, Change, Sole};
use super::super::names::{Names, SERVICE_PREFIX};
use super::super::observation::{Found, Observation, PoolState, Stray};
use super::super::tracker::{ERROR, check_active};
use super::{Draft, PLAN, field, floating, ownership, security, several};
use crate::Config;
use crate::api::octavia::{HEALTH_MONITORS, LISTENERS, Listener, LoadBalancer, POOLS};

const BALANCER: &str = "load balancer";

pub(super) fn steps(
    config: &Config,
    desired: &DesiredLoadBalancer,
    seen: &Observation,
    draft: &mut Draft,
) -> Result<()> {
    match &seen.found {
        Found::Nothing | Found::Missing(_) => {}
        Found::Several(ids) => return Err(several(Names::of(&desired.key), ids)),
        Found::One { balancer, .. } if is_deleted_with(desired, balancer, &seen.listeners) => {
            delete(config, desired, balancer, seen, draft)?
        }
        Found::One { balancer, .. } => leave(desired, balancer, seen, draft)?,
    }
    for leftover in &seen.floating.leftovers {
        floating::delete_leftover(leftover, draft);
    }
    security::removal(&seen.security, draft);
    Ok(())
}

/// Returns whether the load balancer is deleted with the Service: it was created for a Service, this one uses it, and no other
/// does. A Service may refer to the load balancer of another one and never have used it.
pub(in super::super) fn is_deleted_with(
    desired: &DesiredLoadBalancer,
    balancer: &LoadBalancer,
    listeners: &[Listener],
) -> bool {
    let own = Names::of(&desired.key).balancer();
    let is_used = balancer.name == own || balancer.tags.contains(&own);
    is_created_for_service(balancer) && is_used && other_service(&own, balancer, listeners).is_none()
}

/// Returns whether it was created for a Service, and is deleted with the last one that uses it.
pub(in super::super) fn is_created_for_service(balancer: &LoadBalancer) -> bool {
    balancer.name.starts_with(SERVICE_PREFIX)
}

/// Returns the tag of another Service that uses the load balancer.
pub(in super::super) fn other_service<'a>(
    own: &str,
    balancer: &'a LoadBalancer,
    listeners: &'a [Listener],
) -> Option<&'a String> {
    ownership::service_tags(balancer, listeners).find(|tag| *tag != own)
}

/// Deletes one that failed before it was ever in service. It cannot be changed, so it is deleted with all its parts.
pub(super) fn discard(balancer: &LoadBalancer, draft: &mut Draft) {
    draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
    let changes = vec![field("provisioning_status", Some(ERROR.to_owned()), None)];
    draft.octavia(Verb::Delete, BALANCER, &balancer.name, changes, Change::DiscardLoadBalancer);
}

// ---- the whole load balancer

fn delete(
    config: &Config,
    desired: &DesiredLoadBalancer,
    balancer: &LoadBalancer,
    seen: &Observation,
    draft: &mut Draft,
) -> Result<()> {
    let has_failed = balancer.provisioning_status == ERROR;
    if !has_failed {
        check_active(PLAN, balancer)?;
    }
    draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
    let keep = TABLE.reader(&desired.annotations).get(&KEEP_FLOATING_IP).unwrap_or_default();
    let own = Names::of(&desired.key).balancer();
    if let Some(attached) = seen.floating.attached.as_ref().filter(|attached| floating::is_ours(attached) && !keep) {
        floating::delete_with(attached, Sole { balancer: balancer.id.clone(), tag: own.clone() }, draft);
    }
    // One in ERROR can only be deleted with all its parts.
    let cascade = config.load_balancer.cascade_delete || has_failed;
    if !cascade {
        let all: Vec<_> = seen.listeners.iter().collect();
        delete_parts(&all, &seen.pools, draft);
        let has_no_listener = |pool: &&PoolState| pool.pool.listeners.is_empty();
        seen.pools.iter().filter(has_no_listener).for_each(|pool| delete_pool(pool, draft));
    }
    let change = Change::DeleteLoadBalancer { cascade, tag: own };
    draft.octavia(Verb::Delete, BALANCER, &balancer.name, Vec::new(), change);
    Ok(())
}

/// Deletes health monitors first, as upstream does, then each listener after its pool.
fn delete_parts(listeners: &[&Listener], pools: &[PoolState], draft: &mut Draft) {
    let is_ours = |pool: &PoolState| {
        // A pool that another Service's listener uses as well stays.
        let all_deleted =
            pool.pool.listeners.iter().all(|served| listeners.iter().any(|listener| listener.id == served.id));
        !pool.pool.listeners.is_empty() && all_deleted
    };
    let deleted: Vec<&PoolState> = pools.iter().filter(|pool| is_ours(pool)).collect();
    for monitor in deleted.iter().filter_map(|pool| pool.monitor.as_ref()) {
        draft.delete(HEALTH_MONITORS.resource, &monitor.id, &monitor.name, Vec::new());
    }
    for listener in listeners {
        let of_listener = |pool: &&&PoolState| pool.pool.listeners.first().is_some_and(|first| first.id == listener.id);
        deleted.iter().filter(of_listener).for_each(|pool| delete_pool(pool, draft));
        draft.delete(LISTENERS.resource, &listener.id, &listener.name, Vec::new());
    }
}

fn delete_pool(pool: &PoolState, draft: &mut Draft) {
    draft.delete(POOLS.resource, &pool.pool.id, &pool.pool.name, Vec::new());
}

// ---- the Service's part of it

fn leave(desired: &DesiredLoadBalancer, balancer: &LoadBalancer, seen: &Observation, draft: &mut Draft) -> Result<()> {
    if balancer.is_pending() {
        // Its listeners were not read: one of them may belong to the Service and be created just now.
        check_active(PLAN, balancer)?;
    }
    let own = Names::of(&desired.key).balancer();
    let listeners = listeners_of(&own, &seen.listeners);
    let is_tagged = balancer.tags.contains(&own);
    if listeners.is_empty() && !is_tagged {
        return Ok(());
    }
    check_active(PLAN, balancer)?;
    draft.balancer = Some(BalancerRef::Id(balancer.id.clone()));
    delete_parts(&listeners, &seen.pools, draft);
    if is_tagged {
        let changes = vec![field("tags", Some(own.clone()), None)];
        draft.octavia(Verb::Update, BALANCER, &balancer.name, changes, Change::LeaveLoadBalancer { tag: own });
    }
    Ok(())
}

/// Deletes the Service's listeners on a load balancer that does not serve it.
pub(super) fn leave_stray(own: &str, stray: &Stray, draft: &mut Draft) {
    draft.balancer = Some(BalancerRef::Id(stray.balancer.id.clone()));
    delete_parts(&listeners_of(own, &stray.listeners), &stray.pools, draft);
}

fn listeners_of<'a>(own: &str, listeners: &'a [Listener]) -> Vec<&'a Listener> {
    listeners.iter().filter(|listener| listener.tags.iter().any(|tag| tag == own)).collect()
}
