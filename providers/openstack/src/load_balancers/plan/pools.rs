//! Pools of listeners.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::{PortSpec, Verb};
use serde_json::{Value, json};

use super::super::change::{Change, ListenerRef, PoolRef};
use super::super::names::Part;
use super::super::observation::PoolState;
use super::listeners::{created, text};
use super::{Context, Draft, PLAN, field, members, monitors};
use crate::api::octavia::{Listener, POOLS, Pool};

/// Session persistence by client address.
pub(super) const BY_ADDRESS: &str = "SOURCE_IP";

/// Adds the steps for the pool of a port, with members and health monitor.
pub(super) fn steps(
    context: &Context<'_>,
    index: usize,
    port: &PortSpec,
    listener: Option<&Listener>,
    reference: ListenerRef,
    draft: &mut Draft,
) -> Result<()> {
    let seen = listener.map(|listener| of_listener(context, listener)).transpose()?.flatten();
    let protocol = context.settings.pool_protocol(port.protocol);
    let matching = seen.filter(|seen| seen.pool.protocol == protocol);
    if let Some(stale) = seen.filter(|seen| seen.pool.protocol != protocol) {
        check_unshared(&stale.pool, protocol)?;
        let changes = vec![field("protocol", Some(stale.pool.protocol.clone()), Some(protocol.to_owned()))];
        draft.delete(POOLS.resource, &stale.pool.id, &stale.pool.name, changes);
    }
    let pool = match matching {
        Some(seen) => {
            update(context, &seen.pool, draft);
            PoolRef::Id(seen.pool.id.clone())
        }
        None => create(context, index, port, reference, draft),
    };
    members::steps(context, index, port, matching, &pool, draft);
    monitors::steps(context, index, port, matching, listener, &pool, draft);
    Ok(())
}

/// Returns the pool of a listener.
pub(super) fn of_listener<'a>(context: &Context<'a>, listener: &Listener) -> Result<Option<&'a PoolState>> {
    let seen: &'a [PoolState] = &context.seen.pools;
    let mut pools = seen.iter().filter(|seen| seen.pool.listeners.iter().any(|one| one.id == listener.id));
    let first = pools.next();
    if pools.next().is_some() {
        let message =
            format!("listener {} ({}) has more than one pool; delete all but one", listener.name, listener.id);
        return Err(Error::new(ErrorKind::Unexpected, PLAN, message));
    }
    Ok(first)
}

/// Fails if several listeners use the pool: it cannot be replaced for one of them.
fn check_unshared(stale: &Pool, protocol: &str) -> Result<()> {
    if stale.listeners.len() < 2 {
        return Ok(());
    }
    let Pool { id, name, protocol: now, .. } = stale;
    let message = format!(
        "pool {name} ({id}) must be deleted to change its protocol from {now} to {protocol}, and {} listeners send to it; give each of \
         the others a pool of its own",
        stale.listeners.len()
    );
    Err(Error::new(ErrorKind::InvalidConfig, PLAN, message).retry(Retry::Backoff))
}

/// Returns the request body of a new pool, without members and health monitor.
pub(super) fn body(context: &Context<'_>, index: usize, port: &PortSpec) -> Value {
    let (settings, name) = (context.settings, context.names.part(Part::Pool, index));
    let protocol = settings.pool_protocol(port.protocol);
    let mut body = json!({"name": name, "protocol": protocol, "lb_algorithm": settings.method});
    if settings.sticky {
        body["session_persistence"] = json!({"type": BY_ADDRESS});
    }
    body
}

fn create(context: &Context<'_>, index: usize, port: &PortSpec, listener: ListenerRef, draft: &mut Draft) -> PoolRef {
    let body = body(context, index, port);
    let change = Change::CreatePool { listener: listener.clone(), body: body.clone() };
    let changes = created(&body);
    draft.octavia(Verb::Create, POOLS.resource.name, &context.names.part(Part::Pool, index), changes, change);
    PoolRef::Of(listener)
}

/// Updates each field in its own step: Octavia may reject one of them, and the others must be applied nevertheless.
fn update(context: &Context<'_>, pool: &Pool, draft: &mut Draft) {
    let mut put = |key: &str, now: Value, then: Value, reason: &str| {
        let changes = vec![field(key, Some(text(&now)), Some(text(&then)))];
        draft.update(POOLS.resource, &pool.id, &pool.name, changes, json!({key: then}));
        draft.mark_best_effort(reason);
    };
    let method = &context.settings.method;
    if pool.lb_algorithm != *method {
        put("lb_algorithm", json!(pool.lb_algorithm), json!(method), "LoadBalancerLbMethodUnknown");
    }
    let kind =
        pool.session_persistence.as_ref().map(|persistence| persistence.kind.as_str()).filter(|kind| !kind.is_empty());
    let then = if context.settings.sticky { json!({"type": BY_ADDRESS}) } else { Value::Null };
    // Cookies that were set up by hand stay: the Service does not contradict them.
    if context.settings.sticky && kind != Some(BY_ADDRESS) || !context.settings.sticky && kind == Some(BY_ADDRESS) {
        let now = kind.map(|kind| json!({"type": kind})).unwrap_or_default();
        put("session_persistence", now, then, "LoadBalancerSessionAffinityUnknown");
    }
}
