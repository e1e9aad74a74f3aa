//! Rules about what a balancer listens on.

use bowline_core::{DesiredLoadBalancer, LoadBalancerSpec, PortSpec, Protocol, TargetNode};

use crate::balancing::{Balancing, change, port};
use crate::scene::{CaseResult, Scene, require};

/// A Service with the ports of these numbers and the protocol of the first.
fn with_ports(desired: &DesiredLoadBalancer, numbers: &[u16]) -> DesiredLoadBalancer {
    change(desired, |spec| {
        let protocol = spec.ports.first().map_or(Protocol::Tcp, |port| port.protocol);
        spec.ports = numbers.iter().map(|number| port(*number, protocol)).collect();
    })
}

fn edit_first(desired: &DesiredLoadBalancer, edit: impl FnOnce(&mut PortSpec)) -> DesiredLoadBalancer {
    change(desired, |spec| {
        if let Some(first) = spec.ports.first_mut() {
            edit(first);
        }
    })
}

/// Each is made so in turn, is so in the cloud, and keeps its address.
async fn in_turn(work: &Balancing<'_>, wanted: &[DesiredLoadBalancer]) -> CaseResult {
    let mut addresses = Vec::new();
    for desired in wanted {
        work.fulfil(desired).await?;
        work.rests(desired).await?;
        let now = work.seen(&desired.key).await?.addresses;
        require(addresses.is_empty() || addresses == now, || format!("its addresses were {addresses:?}, now {now:?}"))?;
        addresses = now;
    }
    Ok(())
}

pub(in crate::cases) async fn ports_follow_the_service(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let plain = work.desired("web", &[work.node("node-1").await, work.node("node-2").await])?;
    let most = work.caps()?.max_ports.unwrap_or(usize::MAX);
    let lists: [&[u16]; 6] = [&[0], &[0, 1], &[0, 1, 2], &[2], &[3, 2, 4], &[5]];
    let mut wanted: Vec<_> =
        lists.into_iter().filter(|list| list.len() <= most).map(|list| with_ports(&plain, list)).collect();
    // Another node port behind the same port, and the same node port behind another port.
    wanted.push(edit_first(&with_ports(&plain, &[5]), |port| port.node_port = Some(31001)));
    wanted.push(edit_first(&with_ports(&plain, &[6]), |port| port.node_port = Some(31001)));
    in_turn(&work, &wanted).await?;
    work.remove(&plain).await
}

pub(in crate::cases) async fn port_names_change_nothing(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    work.fulfil(&desired).await?;
    let before = things(&work, &desired).await;
    work.fulfil(&edit_first(&desired, |port| port.name = "renamed".to_owned())).await?;
    let after = things(&work, &desired).await;
    require(before == after, || format!("a port was renamed, and {before:?} became {after:?}"))
}

/// Kind and ID of all that there is for a Service.
async fn things(work: &Balancing<'_>, desired: &DesiredLoadBalancer) -> Vec<(String, String)> {
    work.owned(&desired.key).await.into_iter().map(|one| (one.kind, one.id)).collect()
}

pub(in crate::cases) async fn tcp_is_balanced(scene: &Scene) -> CaseResult {
    speaks(scene, Protocol::Tcp).await
}

pub(in crate::cases) async fn udp_is_balanced(scene: &Scene) -> CaseResult {
    speaks(scene, Protocol::Udp).await
}

pub(in crate::cases) async fn sctp_is_balanced(scene: &Scene) -> CaseResult {
    speaks(scene, Protocol::Sctp).await
}

async fn speaks(scene: &Scene, protocol: Protocol) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = speaking(&work.desired("web", &[work.node("node-1").await])?, protocol);
    work.fulfil(&desired).await?;
    work.rests(&desired).await?;
    work.remove(&desired).await
}

fn speaking(desired: &DesiredLoadBalancer, protocol: Protocol) -> DesiredLoadBalancer {
    change(desired, |spec| spec.ports.iter_mut().for_each(|port| port.protocol = protocol))
}

pub(in crate::cases) async fn protocol_changes(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    let (tcp, udp) = (speaking(&desired, Protocol::Tcp), speaking(&desired, Protocol::Udp));
    in_turn(&work, &[tcp.clone(), udp, tcp]).await
}

pub(in crate::cases) async fn protocols_mix_on_one_port(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("dns", &[work.node("node-1").await])?;
    let caps = work.caps()?;
    let speaks = [(caps.tcp, Protocol::Tcp), (caps.udp, Protocol::Udp), (caps.sctp, Protocol::Sctp)];
    let speaks: Vec<_> = speaks.into_iter().filter(|(can, _)| *can).map(|(_, protocol)| protocol).collect();
    require(speaks.len() > 1, || format!("it claims to mix protocols, and speaks {speaks:?} only"))?;
    let both = change(&desired, |spec| spec.ports = speaks.iter().take(2).map(|one| port(0, *one)).collect());
    let second = change(&both, |spec| drop(spec.ports.remove(0)));
    in_turn(&work, &[both.clone(), second, both.clone()]).await?;
    work.remove(&both).await
}

pub(in crate::cases) async fn node_ports_are_not_needed(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = work.desired("web", &[work.node("node-1").await])?;
    let bare = edit_first(&desired, |port| port.node_port = None);
    in_turn(&work, &[bare.clone(), desired, bare]).await
}

pub(in crate::cases) async fn port_limit_is_reached(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let most = work.caps()?.max_ports.unwrap_or_default();
    require(most > 0, || "max_ports is 0: no Service could have a balancer".to_owned())?;
    let numbers: Vec<u16> = (0..).take(most.min(200)).collect();
    let desired = with_ports(&work.desired("web", &[work.node("node-1").await])?, &numbers);
    work.fulfil(&desired).await?;
    work.remove(&desired).await
}

pub(in crate::cases) async fn target_limit_is_reached(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let most = work.caps()?.max_targets.unwrap_or_default();
    require(most > 0, || "max_targets is 0: a balancer could lead nowhere".to_owned())?;
    let mut nodes: Vec<TargetNode> = Vec::new();
    for number in 0..most.min(200) {
        nodes.push(work.node(&format!("node-{number}")).await);
    }
    let targets = |spec: &mut LoadBalancerSpec| spec.targets = nodes.clone().into();
    let desired = change(&work.desired("web", &[])?, targets);
    work.fulfil(&desired).await?;
    work.remove(&desired).await
}
