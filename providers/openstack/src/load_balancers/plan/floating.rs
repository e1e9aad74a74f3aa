//! Floating IP of a load balancer, by which clients outside of the cloud reach it.
//!
//! ```text
//!  internal ──► an attached one is deleted if it was created for a Service and is not to be kept, otherwise detached
//!  external ──► an attached one is used, whatever address is requested
//!               the requested one, if it is at no port ──► attached
//!               a new one from the external network; without such a network the load balancer stays internal
//! ```

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::{FieldChange, Verb, Warning};
use serde_json::json;

use super::super::change::{Change, Sole};
use super::super::names::FLOATING_IP_MARK;
use super::{Context, Draft, PLAN, field};
use crate::api::network::{FLOATING_IPS, FloatingIp};

pub(in super::super) const FLOATING_IP: &str = FLOATING_IPS.resource.name;

pub(super) fn steps(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    if let Some(error) = &context.seen.errors.floating {
        return Err(error.clone().into());
    }
    let seen = &context.seen.floating;
    if context.settings.is_ipv6(context.balancer) {
        draft.warn([skipped(context)]);
        return Ok(());
    }
    match &seen.attached {
        Some(attached) if context.settings.internal && context.owner => detach_or_delete(context, attached, draft),
        None if context.settings.internal => {}
        // upstream: a changed requested address has no effect while a floating IP is attached.
        Some(_) => {}
        None if !context.owner => refuse_to_expose(context, draft),
        None => attach_or_create(context, draft)?,
    }
    Ok(())
}

/// Returns whether it was created for a Service, by Bowline or the Go manager. Others are never deleted.
pub(super) fn is_ours(floating: &FloatingIp) -> bool {
    floating.description.contains(FLOATING_IP_MARK)
}

/// Adds a step that deletes it, before the load balancer behind it.
pub(super) fn delete_with(floating: &FloatingIp, sole: Sole, draft: &mut Draft) {
    delete_because(floating, Vec::new(), Some(sole), draft);
}

/// Adds a step that deletes one whose Service does not exist. The plan says that it may have been kept on purpose, which the record does
/// not show.
pub(super) fn delete_leftover(floating: &FloatingIp, draft: &mut Draft) {
    delete_because(floating, vec![field("perhaps kept on purpose (keep-floatingip)", None, None)], None, draft);
}

fn delete_because(floating: &FloatingIp, changes: Vec<FieldChange>, leads_to: Option<Sole>, draft: &mut Draft) {
    let change = Change::DeleteFloatingIp { id: floating.id.clone(), port: floating.port_id.clone(), leads_to };
    draft.push(None, Verb::Delete, FLOATING_IP, &floating.floating_ip_address, changes, change);
}

// ---- internal

fn detach_or_delete(context: &Context<'_>, attached: &FloatingIp, draft: &mut Draft) {
    if is_ours(attached) && !context.settings.floating.keep {
        return delete_because(attached, Vec::new(), None, draft);
    }
    let changes = vec![field("port_id", Some(attached.port_id.clone()), None)];
    let change = Change::DetachFloatingIp { id: attached.id.clone(), port: attached.port_id.clone() };
    draft.push(None, Verb::Update, FLOATING_IP, &attached.floating_ip_address, changes, change);
}

// ---- external

fn attach_or_create(context: &Context<'_>, draft: &mut Draft) -> Result<()> {
    let seen = &context.seen.floating;
    match (&seen.requested, &seen.network_id) {
        (Some(requested), _) if requested.port_id.is_empty() => attach(context, requested, draft),
        (Some(requested), _) => return Err(in_use(PLAN, requested)),
        (None, Some(network)) => create(context, network, draft),
        (None, None) => draft.warn([forced_internal(context)]),
    }
    Ok(())
}

fn attach(context: &Context<'_>, requested: &FloatingIp, draft: &mut Draft) {
    let (address, id) = (&requested.floating_ip_address, requested.id.clone());
    let port = context.balancer.map(|balancer| balancer.vip_port_id.clone());
    let changes =
        vec![field("port_id", None, Some(port.clone().unwrap_or_else(|| "that of the load balancer".to_owned())))];
    // The port of a new load balancer is known once it is created.
    let waits_for = port.is_none().then(|| context.balancer_ref());
    draft.push(waits_for, Verb::Update, FLOATING_IP, address, changes, Change::AttachFloatingIp { id, port });
}

/// Creates it at the port with one call, so that a failure leaves no orphan.
fn create(context: &Context<'_>, network: &str, draft: &mut Draft) {
    let requested = context.spec.requested_address.as_deref().filter(|address| !address.is_empty());
    let mut body = json!({"floating_network_id": network, "description": context.names.floating_ip_description()});
    if let Some(address) = requested {
        body["floating_ip_address"] = json!(address);
    }
    if let Some(balancer) = context.balancer {
        body["port_id"] = json!(balancer.vip_port_id);
    }
    let subnets = context.seen.floating.subnets.clone();
    let mut changes = vec![field("floating_network_id", None, Some(network.to_owned()))];
    changes.extend((!subnets.is_empty()).then(|| field("subnet_id", None, Some(subnets.join(" or ")))));
    let name = requested.unwrap_or("(new)");
    // An existing load balancer has its port already, and need not be ACTIVE.
    let waits_for = context.balancer.is_none().then(|| context.balancer_ref());
    draft.push(waits_for, Verb::Create, FLOATING_IP, name, changes, Change::CreateFloatingIp { body, subnets });
}

// ---- errors

/// Refuses to add a floating IP for a Service that shares the load balancer. Its listeners are created nevertheless, as upstream
/// does: the owner may attach a floating IP later.
fn refuse_to_expose(context: &Context<'_>, draft: &mut Draft) {
    let (namespace, service) = (&context.desired.key.namespace, &context.desired.key.service);
    let balancer = context.balancer.map(|balancer| balancer.name.as_str()).unwrap_or_default();
    let message = format!(
        "load balancer {balancer} has no floating IP, and {namespace}/{service}, which shares it, must not add one: that would expose \
         an internal load balancer; attach a floating IP to it, or remove the annotation load-balancer-id"
    );
    let error = Error::new(ErrorKind::InvalidConfig, PLAN, message).retry(Retry::Backoff);
    draft.fail([error.to_plan_error(FLOATING_IP)]);
}

/// The requested address is at another port.
pub(in super::super) fn in_use(operation: &str, requested: &FloatingIp) -> Error {
    let FloatingIp { floating_ip_address, port_id, .. } = requested;
    let message = format!(
        "floating IP {floating_ip_address} is not available: it is attached to port {port_id}; detach it, or request another in \
         spec.loadBalancerIP"
    );
    Error::new(ErrorKind::AlreadyExists, operation, message).retry(Retry::Backoff)
}

// ---- warnings

fn skipped(context: &Context<'_>) -> Warning {
    let (namespace, service) = (&context.desired.key.namespace, &context.desired.key.service);
    let message =
        format!("{namespace}/{service} has an IPv6 address and gets no floating IP: Neutron has them for IPv4 only");
    Warning { reason: "LoadBalancerFloatingIPSkipped".to_owned(), message }
}

fn forced_internal(context: &Context<'_>) -> Warning {
    let (namespace, service) = (&context.desired.key.namespace, &context.desired.key.service);
    let message = format!(
        "no external network is known, so {namespace}/{service} has no floating IP and is internal; set floating-network-id in \
         cloud.conf, in the class or as an annotation, or make the Service internal"
    );
    Warning { reason: "LoadBalancerForcedInternal".to_owned(), message }
}
