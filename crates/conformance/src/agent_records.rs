//! What benches see of the records of L4 agents and of the local cloud, which uses the same ones.

use std::time::Duration;

use bowline_agent_client::{Balancer, BalancerTarget, CloudAddress, Listener};
use bowline_core::SessionAffinity;

use crate::{SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource, SeenTarget};

/// Resource of a load balancer.
pub fn balancer_resource(balancer: Balancer) -> SeenResource {
    let Balancer { id, name, owner, addresses, settings, targets } = balancer;
    let summary = format!("{addresses:?} {settings:?} {targets:?}");
    SeenResource { kind: "balancer".to_owned(), id, name, owners: owner.into_iter().collect(), summary }
}

/// Resource of an address.
pub fn address_resource(address: CloudAddress) -> SeenResource {
    let CloudAddress { id, ip, internal, share_group, owners } = address;
    let summary = format!("{ip} internal={internal} {share_group:?}");
    SeenResource { kind: "address".to_owned(), id, name: String::new(), owners, summary }
}

/// Load balancer without its addresses, which only the list of all addresses has.
pub fn seen_load_balancer(balancer: Balancer) -> SeenLoadBalancer {
    let settings = balancer.settings;
    let listener =
        |one: &Listener| SeenListener { protocol: one.protocol, port: one.port, node_port: Some(one.node_port) };
    let target = |one: BalancerTarget| SeenTarget { machine: one.machine.unwrap_or(one.name), draining: one.draining };
    let first = settings.listeners.first().map_or(0, |first| first.node_port);
    let health_check = settings.health_check.and_then(|check| {
        let interval = Some(Duration::from_millis(check.interval_millis));
        Some(SeenHealthCheck { path: check.path?, port: check.port.unwrap_or(first), interval })
    });
    let affinity = |timeout_seconds| SessionAffinity::ClientIp { timeout_seconds };
    SeenLoadBalancer {
        id: balancer.id,
        name: balancer.name,
        addresses: Vec::new(),
        listeners: settings.listeners.iter().map(listener).collect(),
        targets: balancer.targets.iter().cloned().map(target).collect(),
        source_ranges: settings.source_ranges,
        affinity: Some(settings.affinity_seconds.map_or(SessionAffinity::None, affinity)),
        health_check,
        proxy_protocol: settings.proxy_protocol,
        idle_timeout: settings.idle_timeout_millis.map(Duration::from_millis),
        internal: Some(settings.internal),
    }
}
