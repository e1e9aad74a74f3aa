//! Rules about listeners.

use bowline_core::{DesiredLoadBalancer, LoadBalancerSpec, PortSpec, Protocol, TargetNode};

use crate::context::{CaseContext, CaseResult, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, port, with_spec};

/// The same Service with these port numbers and the protocol of its first port.
fn with_ports(desired: &DesiredLoadBalancer, capabilities: &[u16]) -> DesiredLoadBalancer {
    with_spec(desired, |spec| {
        let protocol = spec.ports.first().map_or(Protocol::Tcp, |port| port.protocol);
        spec.ports = capabilities.iter().map(|number| port(*number, protocol)).collect();
    })
}

fn edit_first(desired: &DesiredLoadBalancer, edit: impl FnOnce(&mut PortSpec)) -> DesiredLoadBalancer {
    with_spec(desired, |spec| {
        if let Some(first) = spec.ports.first_mut() {
            edit(first);
        }
    })
}

/// Syncs these states one after the other, and verifies each and that the addresses stay.
async fn sync_in_order(fixture: &LoadBalancerFixture<'_>, wanted: &[DesiredLoadBalancer]) -> CaseResult {
    let mut addresses = Vec::new();
    for desired in wanted {
        fixture.sync_and_verify(desired).await?;
        fixture.verify_no_changes(desired).await?;
        let now = fixture.load_balancer(&desired.key).await?.addresses;
        require(addresses.is_empty() || addresses == now, || {
            format!("the addresses changed from {addresses:?} to {now:?}")
        })?;
        addresses = now;
    }
    Ok(())
}

pub(in crate::cases) async fn ports_follow_the_service(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let plain = fixture.desired("web", &[fixture.node("node-1").await, fixture.node("node-2").await])?;
    let limit = fixture.kind()?.max_ports.unwrap_or(usize::MAX);
    let lists: [&[u16]; 6] = [&[0], &[0, 1], &[0, 1, 2], &[2], &[3, 2, 4], &[5]];
    let mut wanted: Vec<_> =
        lists.into_iter().filter(|list| list.len() <= limit).map(|list| with_ports(&plain, list)).collect();
    // Another node port for the same port, and the same node port for another port.
    wanted.push(edit_first(&with_ports(&plain, &[5]), |port| port.node_port = Some(31001)));
    wanted.push(edit_first(&with_ports(&plain, &[6]), |port| port.node_port = Some(31001)));
    sync_in_order(&fixture, &wanted).await?;
    fixture.delete_and_verify(&plain).await
}

pub(in crate::cases) async fn port_names_change_nothing(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    fixture.sync_and_verify(&desired).await?;
    let before = resource_ids(&fixture, &desired).await;
    fixture.sync_and_verify(&edit_first(&desired, |port| port.name = "renamed".to_owned())).await?;
    let after = resource_ids(&fixture, &desired).await;
    require(before == after, || format!("renaming a port changed the resources from {before:?} to {after:?}"))
}

/// Kinds and IDs of all resources of a Service.
async fn resource_ids(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer) -> Vec<(String, String)> {
    fixture.owned_by(&desired.key).await.into_iter().map(|one| (one.kind, one.id)).collect()
}

pub(in crate::cases) async fn tcp_is_balanced(context: &CaseContext) -> CaseResult {
    verify_protocol(context, Protocol::Tcp).await
}

pub(in crate::cases) async fn udp_is_balanced(context: &CaseContext) -> CaseResult {
    verify_protocol(context, Protocol::Udp).await
}

pub(in crate::cases) async fn sctp_is_balanced(context: &CaseContext) -> CaseResult {
    verify_protocol(context, Protocol::Sctp).await
}

async fn verify_protocol(context: &CaseContext, protocol: Protocol) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = with_protocol(&fixture.desired("web", &[fixture.node("node-1").await])?, protocol);
    fixture.sync_and_verify(&desired).await?;
    fixture.verify_no_changes(&desired).await?;
    fixture.delete_and_verify(&desired).await
}

fn with_protocol(desired: &DesiredLoadBalancer, protocol: Protocol) -> DesiredLoadBalancer {
    with_spec(desired, |spec| spec.ports.iter_mut().for_each(|port| port.protocol = protocol))
}

pub(in crate::cases) async fn protocol_changes(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    let (tcp, udp) = (with_protocol(&desired, Protocol::Tcp), with_protocol(&desired, Protocol::Udp));
    sync_in_order(&fixture, &[tcp.clone(), udp, tcp]).await
}

pub(in crate::cases) async fn protocols_mix_on_one_port(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("dns", &[fixture.node("node-1").await])?;
    let caps = fixture.kind()?;
    let protocols = [(caps.tcp, Protocol::Tcp), (caps.udp, Protocol::Udp), (caps.sctp, Protocol::Sctp)];
    let protocols: Vec<_> = protocols.into_iter().filter(|(can, _)| *can).map(|(_, protocol)| protocol).collect();
    require(protocols.len() > 1, || format!("mixed protocols are claimed, but only {protocols:?} is supported"))?;
    let both = with_spec(&desired, |spec| spec.ports = protocols.iter().take(2).map(|one| port(0, *one)).collect());
    let second = with_spec(&both, |spec| drop(spec.ports.remove(0)));
    sync_in_order(&fixture, &[both.clone(), second, both.clone()]).await?;
    fixture.delete_and_verify(&both).await
}

pub(in crate::cases) async fn node_ports_are_optional(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = fixture.desired("web", &[fixture.node("node-1").await])?;
    let bare = edit_first(&desired, |port| port.node_port = None);
    sync_in_order(&fixture, &[bare.clone(), desired, bare]).await
}

pub(in crate::cases) async fn port_limit_is_reached(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let limit = fixture.kind()?.max_ports.unwrap_or_default();
    require(limit > 0, || "max_ports is 0, so no Service could have a load balancer".to_owned())?;
    let capabilities: Vec<u16> = (0..).take(limit.min(200)).collect();
    let desired = with_ports(&fixture.desired("web", &[fixture.node("node-1").await])?, &capabilities);
    fixture.sync_and_verify(&desired).await?;
    fixture.delete_and_verify(&desired).await
}

pub(in crate::cases) async fn target_limit_is_reached(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let limit = fixture.kind()?.max_targets.unwrap_or_default();
    require(limit > 0, || "max_targets is 0, so no load balancer could have a target".to_owned())?;
    let mut nodes: Vec<TargetNode> = Vec::new();
    for number in 0..limit.min(200) {
        nodes.push(fixture.node(&format!("node-{number}")).await);
    }
    let targets = |spec: &mut LoadBalancerSpec| spec.targets = nodes.clone().into();
    let desired = with_spec(&fixture.desired("web", &[])?, targets);
    fixture.sync_and_verify(&desired).await?;
    fixture.delete_and_verify(&desired).await
}
