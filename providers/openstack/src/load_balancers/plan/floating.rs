//! The floating IP of a balancer: how clients outside of the cloud reach it.
//!
//! ```text
//!  internal ──► one that is there goes: deleted if it was made for a Service and is not to be kept, else detached
//!  external ──► one at the VIP is used, whatever address is asked for
//!               the one of the address that is asked for, if nobody has it ──► attached
//!               a new one, from the external network; without such a network the balancer stays internal
//! ```

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::{FieldChange, Verb, Warning};
use serde_json::{Map, Value};

use super::super::change::{Change, Sole};
use super::super::names::FLOATING_IP_MARK;
use super::{Context, Draft, PLAN, field};
use crate::api::network::{FLOATING_IPS, FloatingIp};

pub(in super::super) const FLOATING_IP: &str = FLOATING_IPS.resource.name;

pub(super) fn steps(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    if let Some(problem) = &context.seen.errors.floating {
        return Err(problem.clone().into());
    }
    let seen = &context.seen.floating;
    if context.settings.is_ipv6(context.balancer) {
        draft.warn([skipped(context)]);
        return Ok(());
    }
    match &seen.attached {
        Some(attached) if context.settings.internal && context.owner => take_off(context, attached, draft),
        None if context.settings.internal => {}
        // upstream: a change of the address that is asked for comes to nothing while there is one.
        Some(_) => {}
        None if !context.owner => refuse(context, draft),
        None => give(context, draft)?,
    }
    Ok(())
}

/// It was made for a Service, by us or the Go manager. Whatever is not is never deleted.
pub(super) fn is_ours(floating: &FloatingIp) -> bool {
    floating.description.contains(FLOATING_IP_MARK)
}

/// A step that deletes it, before the balancer that it leads to.
pub(super) fn delete_with(floating: &FloatingIp, sole: Sole, draft: &mut Draft) {
    delete_because(floating, Vec::new(), Some(sole), draft);
}

/// A step that deletes one whose Service is gone. One that was kept on purpose looks just the same, so whoever is asked whether
/// it shall go is told.
pub(super) fn delete_leftover(floating: &FloatingIp, draft: &mut Draft) {
    delete_because(floating, vec![field("perhaps kept on purpose (keep-floatingip)", None, None)], None, draft);
}

fn delete_because(floating: &FloatingIp, changes: Vec<FieldChange>, leads_to: Option<Sole>, draft: &mut Draft) {
    let change = Change::DeleteFloatingIp { id: floating.id.clone(), port: floating.port_id.clone(), leads_to };
    draft.push(None, Verb::Delete, FLOATING_IP, &floating.floating_ip_address, changes, change);
}

// ---- internal

fn take_off(context: &Context<'_>, attached: &FloatingIp, draft: &mut Draft) {
    if is_ours(attached) && !context.settings.floating.keep {
        return delete_because(attached, Vec::new(), None, draft);
    }
    let changes = vec![field("port_id", Some(attached.port_id.clone()), None)];
    let change = Change::DetachFloatingIp { id: attached.id.clone(), port: attached.port_id.clone() };
    draft.push(None, Verb::Update, FLOATING_IP, &attached.floating_ip_address, changes, change);
}

// ---- external

fn give(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    let seen = &context.seen.floating;
    match (&seen.requested, &seen.network_id) {
        (Some(requested), _) if requested.port_id.is_empty() => attach(context, requested, draft),
        (Some(requested), _) => return Err(taken(PLAN, requested)),
        (None, Some(network)) => create(context, network, draft),
        (None, None) => draft.warn([forced_internal(context)]),
    }
    Ok(())
}

fn attach(context: &Context<'_>, requested: &FloatingIp, draft: &mut Draft) {
    let (address, id) = (&requested.floating_ip_address, requested.id.clone());
    let port = context.balancer.map(|balancer| balancer.vip_port_id.clone());
    let changes = vec![field("port_id", None, Some(port.clone().unwrap_or_else(|| "that of the balancer".to_owned())))];
    // The port of a new balancer is known once it is made.
    let waits_for = port.is_none().then(|| context.balancer_ref());
    draft.push(waits_for, Verb::Update, FLOATING_IP, address, changes, Change::AttachFloatingIp { id, port });
}

/// Made at the port with one call, so that none is left over if that does not work.
fn create(context: &Context<'_>, network: &str, draft: &mut Draft) {
    let requested = context.spec.requested_address.as_deref().filter(|address| !address.is_empty());
    let mut body = Map::new();
    body.insert("floating_network_id".to_owned(), network.into());
    body.insert("description".to_owned(), context.names.floating_ip_description().into());
    if let Some(address) = requested {
        body.insert("floating_ip_address".to_owned(), address.into());
    }
    if let Some(balancer) = context.balancer {
        body.insert("port_id".to_owned(), balancer.vip_port_id.clone().into());
    }
    let subnets = context.seen.floating.subnets.clone();
    let mut changes = vec![field("floating_network_id", None, Some(network.to_owned()))];
    changes.extend((!subnets.is_empty()).then(|| field("subnet_id", None, Some(subnets.join(" or ")))));
    let (body, name) = (Value::Object(body), requested.unwrap_or("(new)"));
    // A balancer that is there has its port already, and can be at work meanwhile.
    let waits_for = context.balancer.is_none().then(|| context.balancer_ref());
    draft.push(waits_for, Verb::Create, FLOATING_IP, name, changes, Change::CreateFloatingIp { body, subnets });
}

// ---- what stands in the way

/// The listeners are made all the same, as upstream does: the address may come to the balancer later, from its owner.
fn refuse(context: &Context<'_>, draft: &mut Draft) {
    let (namespace, service) = (&context.desired.key.namespace, &context.desired.key.service);
    let balancer = context.balancer.map(|balancer| balancer.name.as_str()).unwrap_or_default();
    let message = format!(
        "load balancer {balancer} has no floating IP, and {namespace}/{service}, which shares it, must not give it one: that \
         would open what is internal; attach a floating IP to the balancer, or remove the annotation load-balancer-id"
    );
    let error = Error::new(ErrorKind::InvalidConfig, PLAN, message).retry(Retry::Backoff);
    draft.fail([error.about(FLOATING_IP)]);
}

/// Somebody else has the address that is asked for.
pub(in super::super) fn taken(operation: &str, requested: &FloatingIp) -> Error {
    let FloatingIp { floating_ip_address, port_id, .. } = requested;
    let message = format!(
        "floating IP {floating_ip_address} is not available: it is at port {port_id}; detach it there, or ask for another in \
         spec.loadBalancerIP"
    );
    Error::new(ErrorKind::AlreadyExists, operation, message).retry(Retry::Backoff)
}

// ---- what is worth a warning

fn skipped(context: &Context<'_>) -> Warning {
    let (namespace, service) = (&context.desired.key.namespace, &context.desired.key.service);
    let message =
        format!("the address of {namespace}/{service} is of IPv6, where floating IPs do not exist: it has none");
    Warning { reason: "LoadBalancerFloatingIPSkipped".to_owned(), message }
}

fn forced_internal(context: &Context<'_>) -> Warning {
    let (namespace, service) = (&context.desired.key.namespace, &context.desired.key.service);
    let message = format!(
        "no external network is known, so {namespace}/{service} has no floating IP and is reached from inside only; set \
         floating-network-id in cloud.conf, in the class or as an annotation, or make the Service internal"
    );
    Warning { reason: "LoadBalancerForcedInternal".to_owned(), message }
}
