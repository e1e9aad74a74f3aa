//! Where a listener sends traffic.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::{PortSpec, Verb};
use serde_json::{Map, Value, json};

use super::super::change::{Change, ListenerRef, PoolRef};
use super::super::names::Part;
use super::super::observation::SeenPool;
use super::listeners::text;
use super::{Context, Draft, PLAN, field, members, monitors};
use crate::api::octavia::{Listener, POOLS, Pool};

/// What keeps connections of one client together.
pub(super) const BY_ADDRESS: &str = "SOURCE_IP";

/// The pool of a port, with members and monitor.
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
    let fitting = seen.filter(|seen| seen.pool.protocol == protocol);
    if let Some(stale) = seen.filter(|seen| seen.pool.protocol != protocol) {
        check_unshared(&stale.pool, protocol)?;
        let changes = vec![field("protocol", Some(stale.pool.protocol.clone()), Some(protocol.to_owned()))];
        draft.delete(POOLS.resource, &stale.pool.id, &stale.pool.name, changes);
    }
    let pool = match fitting {
        Some(seen) => {
            update(context, &seen.pool, draft);
            PoolRef::Id(seen.pool.id.clone())
        }
        None => create(context, index, port, reference, draft),
    };
    members::steps(context, index, port, fitting, &pool, draft);
    monitors::steps(context, index, port, fitting, listener, &pool, draft);
    Ok(())
}

/// The pool that a listener sends to.
pub(super) fn of_listener<'a>(context: &Context<'a>, listener: &Listener) -> Result<Option<&'a SeenPool>> {
    let seen: &'a [SeenPool] = &context.seen.pools;
    let mut pools = seen.iter().filter(|seen| seen.pool.listeners.iter().any(|one| one.id == listener.id));
    let first = pools.next();
    if pools.next().is_some() {
        let message =
            format!("listener {} ({}) has more than one pool; delete all but one", listener.name, listener.id);
        return Err(Error::new(ErrorKind::Unexpected, PLAN, message));
    }
    Ok(first)
}

/// One that several listeners send to cannot be replaced for one of them alone.
fn check_unshared(stale: &Pool, protocol: &str) -> Result<()> {
    if stale.listeners.len() < 2 {
        return Ok(());
    }
    let Pool { id, name, protocol: now, .. } = stale;
    let message = format!(
        "pool {name} ({id}) is to be of {protocol} instead of {now}, which means to delete it, and {} listeners send to it; give \
         each of the others a pool of its own",
        stale.listeners.len()
    );
    Err(Error::new(ErrorKind::InvalidConfig, PLAN, message).retry(Retry::Backoff))
}

/// All that a new one is made of, without what is behind it.
pub(super) fn body(context: &Context<'_>, index: usize, port: &PortSpec) -> Map<String, Value> {
    let settings = context.settings;
    let mut body = Map::new();
    body.insert("name".to_owned(), json!(context.names.part(Part::Pool, index)));
    body.insert("protocol".to_owned(), json!(settings.pool_protocol(port.protocol)));
    body.insert("lb_algorithm".to_owned(), json!(settings.method));
    if settings.sticky {
        body.insert("session_persistence".to_owned(), json!({"type": BY_ADDRESS}));
    }
    body
}

fn create(context: &Context<'_>, index: usize, port: &PortSpec, listener: ListenerRef, draft: &mut Draft) -> PoolRef {
    let body = body(context, index, port);
    let told = body.iter().filter(|(key, _)| key.as_str() != "name");
    let changes = told.map(|(key, value)| field(key, None, Some(text(value)))).collect();
    let change = Change::CreatePool { listener: listener.clone(), body: Value::Object(body) };
    draft.octavia(Verb::Create, POOLS.resource.name, &context.names.part(Part::Pool, index), changes, change);
    PoolRef::Of(listener)
}

/// Each field by itself: Octavia may refuse one of them, and the rest must not suffer for that.
fn update(context: &Context<'_>, pool: &Pool, draft: &mut Draft) {
    let mut put = |key: &str, now: Value, then: Value, reason: &str| {
        let changes = vec![field(key, Some(text(&now)), Some(text(&then)))];
        draft.update(POOLS.resource, &pool.id, &pool.name, changes, json!({key: then}));
        draft.is_dispensable(reason);
    };
    let method = &context.settings.method;
    if pool.lb_algorithm != *method {
        put("lb_algorithm", json!(pool.lb_algorithm), json!(method), "LoadBalancerLbMethodUnknown");
    }
    let kind =
        pool.session_persistence.as_ref().map(|persistence| persistence.kind.as_str()).filter(|kind| !kind.is_empty());
    let then = if context.settings.sticky { json!({"type": BY_ADDRESS}) } else { Value::Null };
    // Cookies that somebody set up by hand are left alone: the Service says nothing against them.
    if context.settings.sticky && kind != Some(BY_ADDRESS) || !context.settings.sticky && kind == Some(BY_ADDRESS) {
        let now = kind.map(|kind| json!({"type": kind})).unwrap_or_default();
        put("session_persistence", now, then, "LoadBalancerSessionAffinityUnknown");
    }
}
