//! Warnings about fields that are ignored, as the Go manager did, and about misspelled annotations.

use bowline_core::{DesiredLoadBalancer, IpFamily, LoadBalancerSpec, SessionAffinity, TrafficPolicy, Warning};

use super::super::names::{CLASS, IP_POOL, PORT, port_tag};
use super::super::objects::family_of;
use super::super::{Allocated, Objects, State, annotations};
use super::name_with_port;
use crate::nsx::Record;

/// Reason of the Event for an ignored field or annotation.
const IGNORED: &str = "LoadBalancerSettingIgnored";

const LOCAL_POLICY: &str = "spec.externalTrafficPolicy Local: Nodes without a Pod of the Service are excluded by the TCP monitors, \
                            and not at all for UDP; the health check node port is ignored";

pub(super) fn warnings(
    desired: &DesiredLoadBalancer,
    spec: &LoadBalancerSpec,
    state: &State,
    class: &str,
) -> Vec<Warning> {
    let unknown = annotations::TABLE.unknown(&desired.annotations).into_iter().map(|unknown| unknown.to_string());
    let all = ignored(spec, &state.objects)
        .chain(kept_pool(state, class))
        .chain(not_allocated(&state.objects))
        .chain(moved(spec, &state.objects));
    all.chain(unknown).map(|message| Warning { reason: IGNORED.to_owned(), message }).collect()
}

fn ignored(spec: &LoadBalancerSpec, objects: &Objects) -> impl Iterator<Item = String> {
    let all = [
        (!spec.source_ranges.is_empty(), "spec.loadBalancerSourceRanges is ignored: all clients may connect"),
        (spec.session_affinity != SessionAffinity::None, "spec.sessionAffinity is ignored"),
        (spec.traffic_policy == TrafficPolicy::Local, LOCAL_POLICY),
        (spec.requested_address.is_some(), "spec.loadBalancerIP is ignored: the address comes from the IP pool"),
        (
            is_other_family(spec, objects),
            "spec.ipFamilies is ignored: the family of the address is that of the IP pool",
        ),
    ];
    all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text.to_owned())
}

fn is_other_family(spec: &LoadBalancerSpec, objects: &Objects) -> bool {
    let family = spec.ip_families.first().copied();
    match objects.address().and_then(|address| address.parse().ok()) {
        Some(address) => family.is_some_and(|family| family != family_of(&address)),
        None => family == Some(IpFamily::IPv6),
    }
}

/// Virtual servers with another address than that of the load balancer.
fn moved(spec: &LoadBalancerSpec, objects: &Objects) -> Vec<String> {
    let Some(address) = objects.served_address() else { return Vec::new() };
    let is_kept = |server: &&Record| spec.ports.iter().any(|port| server.tag(PORT) == Some(&port_tag(port)));
    let others = objects.virtual_servers.iter().filter(is_kept);
    let others = others.filter(|server| !["", address].contains(&server.text("ip_address")));
    let message = |server: &Record| {
        let (name, old) = (name_with_port(server), server.text("ip_address"));
        format!(
            "virtual server {name} moves from {old} to {address}, the address of the load balancer; clients of {old} lose it"
        )
    };
    others.map(message).collect()
}

/// The requested class has another pool than the load balancer.
fn kept_pool(state: &State, class: &str) -> Option<String> {
    let first = state.objects.virtual_servers.first()?;
    let (pool, existing) = (first.tag(IP_POOL)?, first.tag(CLASS).unwrap_or_default());
    let requested = state.lookups.ip_pool.as_ref()?.as_ref().ok()?;
    (requested != pool).then(|| {
        format!(
            "the load balancer keeps the address of class {existing}; to get one of class {class}, recreate the Service"
        )
    })
}

fn not_allocated(objects: &Objects) -> Option<String> {
    let address = objects.served_address()?;
    let may_have = |one: &Allocated| one.realization.is_none() || one.address() == Some(address);
    if objects.allocations.iter().any(may_have) {
        return None;
    }
    Some(format!(
        "the address {address} of the virtual servers has no IP allocation; allocate it in the IP pool, or another object may get it"
    ))
}
