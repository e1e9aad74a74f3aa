//! Rules about what a Service may wish of its balancer beside ports and targets.

use std::time::Duration;

use bowline_cloud::ErrorKind;
use bowline_core::annotations::{DeletionPolicy, ProxyProtocol};
use bowline_core::{DesiredLoadBalancer, IpFamily, Protocol, SessionAffinity, TargetNode, TargetSet, TrafficPolicy};

use crate::balancing::{Balancing, change, local, port, range, set};
use crate::bench::ForeignLoadBalancer;
use crate::capability::Capability;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// The plainest Service, with one node.
async fn plain(work: &Balancing<'_>) -> CaseResult<DesiredLoadBalancer> {
    let nodes = [work.node("node-1").await];
    work.desired("web", &nodes)
}

/// Each is made so in turn, is so in the cloud, and stays so.
async fn in_turn(work: &Balancing<'_>, wanted: &[DesiredLoadBalancer]) -> CaseResult {
    for desired in wanted {
        work.fulfil(desired).await?;
        work.rests(desired).await?;
    }
    Ok(())
}

pub(in crate::cases) async fn source_ranges_are_enforced(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let open = plain(&work).await?;
    let from =
        |ranges: &[&str]| change(&open, |spec| spec.source_ranges = ranges.iter().map(|text| range(text)).collect());
    let some = from(&["192.0.2.0/24", "198.51.100.7/32"]);
    in_turn(&work, &[some.clone(), from(&["203.0.113.0/24"]), open.clone(), some.clone()]).await?;
    work.remove(&some).await
}

pub(in crate::cases) async fn affinity_is_kept(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let none = plain(&work).await?;
    let sticky =
        |timeout_seconds| change(&none, |spec| spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds });
    in_turn(&work, &[sticky(10800), sticky(60), none.clone(), sticky(10800)]).await
}

pub(in crate::cases) async fn local_policy_asks_the_node(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let cluster = plain(&work).await?;
    let asks = |port| change(&cluster, |spec| local(spec, port));
    in_turn(&work, &[asks(31500), asks(31501), cluster.clone(), asks(31500)]).await
}

pub(in crate::cases) async fn proxy_protocol_is_spoken(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let plain = plain(&work).await?;
    let spoken = set(&plain, |settings| settings.proxy_protocol = Some(ProxyProtocol::V2));
    in_turn(&work, &[spoken.clone(), plain, spoken]).await
}

pub(in crate::cases) async fn internal_stays_inside(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let inside = set(&plain(&work).await?, |settings| settings.internal = true);
    in_turn(&work, std::slice::from_ref(&inside)).await?;
    work.remove(&inside).await
}

pub(in crate::cases) async fn idle_timeout_is_set(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let plain = plain(&work).await?;
    let idle = |seconds| set(&plain, |settings| settings.idle_timeout = Some(Duration::from_secs(seconds)));
    in_turn(&work, &[idle(120), idle(600)]).await
}

pub(in crate::cases) async fn health_check_is_as_chosen(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let plain = plain(&work).await?;
    let chosen = |path: &str, port, seconds| {
        set(&plain, |settings| {
            settings.health_check_path = Some(path.to_owned());
            settings.health_check_port = Some(port);
            settings.health_check_interval = Some(Duration::from_secs(seconds));
        })
    };
    in_turn(&work, &[chosen("/ready", 32000, 5), chosen("/alive", 32001, 10), plain.clone()]).await
}

pub(in crate::cases) async fn ipv4_address_is_given(scene: &Scene) -> CaseResult {
    families(scene, &[IpFamily::IPv4]).await
}

pub(in crate::cases) async fn ipv6_address_is_given(scene: &Scene) -> CaseResult {
    families(scene, &[IpFamily::IPv6]).await
}

pub(in crate::cases) async fn dual_stack_has_both(scene: &Scene) -> CaseResult {
    families(scene, &[IpFamily::IPv4, IpFamily::IPv6]).await
}

pub(in crate::cases) async fn first_family_is_served(scene: &Scene) -> CaseResult {
    for family in Balancing::of(scene)?.caps()?.ip_families.clone() {
        let other = if family == IpFamily::IPv4 { IpFamily::IPv6 } else { IpFamily::IPv4 };
        families(scene, &[family, other]).await?;
    }
    Ok(())
}

async fn families(scene: &Scene, families: &[IpFamily]) -> CaseResult {
    let work = Balancing::of(scene)?;
    let desired = change(&plain(&work).await?, |spec| spec.ip_families = families.to_vec());
    in_turn(&work, std::slice::from_ref(&desired)).await?;
    work.remove(&desired).await
}

pub(in crate::cases) async fn requested_address_is_given(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let Some(address) = work.hands().free_address(scene.kind()).await else {
        return Err(CaseFailure::BenchCannot("name an address to ask for".to_owned()));
    };
    let plain = plain(&work).await?;
    let desired = change(&plain, |spec| {
        spec.requested_address = Some(address.to_string());
        spec.ip_families = vec![if address.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 }];
    });
    in_turn(&work, std::slice::from_ref(&desired)).await?;
    work.remove(&desired).await?;
    taken_address_is_refused(&work, &desired, address).await
}

/// Somebody else has it: nobody gets another one in its place, and the other one keeps it.
async fn taken_address_is_refused(
    work: &Balancing<'_>,
    desired: &DesiredLoadBalancer,
    address: std::net::IpAddr,
) -> CaseResult {
    let foreign = ForeignLoadBalancer { name: "somebody-elses".to_owned(), owner: None, address: Some(address) };
    if work.hands().put_foreign(&foreign).await.is_none() {
        return Err(CaseFailure::BenchCannot("put a balancer of somebody else".to_owned()));
    }
    let before = work.resources().await;
    match work.attempt(desired).await? {
        Ok(_) => return broken(format!("{address} belongs to somebody else, and it was given out")),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return broken(format!("{address} is taken, and it says {:?}: {error}", error.kind())),
    }
    for old in &before {
        require(work.resources().await.contains(old), || format!("{old:?} was changed"))?;
    }
    work.remove(desired).await?;
    work.nothing_changed_since(&before).await
}

pub(in crate::cases) async fn a_group_shares_an_address(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let before = work.resources().await;
    let nodes = [work.node("node-1").await];
    let member = |name: &str, number| {
        let desired = set(&work.desired(name, &nodes)?, |settings| settings.share_group = Some("edge".to_owned()));
        let protocol = desired.spec.iter().flat_map(|spec| &spec.ports).map(|port| port.protocol).next();
        Ok(change(&desired, |spec| spec.ports = vec![port(number, protocol.unwrap_or(Protocol::Tcp))]))
    };
    let (one, other, mut stranger) = (member("one", 0)?, member("other", 1)?, member("stranger", 2)?);
    // A group is one of a namespace.
    stranger.key.namespace = "elsewhere".to_owned();
    for desired in [&one, &other, &stranger] {
        work.fulfil(desired).await?;
    }
    let (first, second) = (work.seen(&one.key).await?.addresses, work.seen(&other.key).await?.addresses);
    let third = work.seen(&stranger.key).await?.addresses;
    require(first == second, || format!("of one group, one has {first:?} and the other {second:?}"))?;
    require(first != third, || format!("one that is not of the group has its address {third:?}"))?;
    work.rests(&one).await?;
    let stays = work.seen(&other.key).await?;
    work.remove(&one).await?;
    let left = work.hands().balancer(&other.key).await;
    require(left.as_ref() == Some(&stays), || format!("one of the group went, and {stays:?} became {left:?}"))?;
    work.rests(&other).await?;
    work.remove(&other).await?;
    work.remove(&stranger).await?;
    work.nothing_changed_since(&before).await
}

pub(in crate::cases) async fn a_group_has_a_port_once(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let member = |name: &str| Ok(set(&work.desired(name, &nodes)?, |all| all.share_group = Some("edge".to_owned())));
    let (first, second) = (member("first")?, member("second")?);
    work.fulfil(&first).await?;
    match work.attempt(&second).await? {
        Ok(_) => return broken("two of a group have the same port"),
        Err(error) => require(error.kind() == ErrorKind::AlreadyExists, || {
            format!("the port is taken by another of the group, and it says {:?}: {error}", error.kind())
        })?,
    }
    work.fulfil(&first).await.map(drop)
}

pub(in crate::cases) async fn unclaimed_is_refused_without_a_call(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let plain = plain(&work).await?;
    let (capabilities, kind) = (scene.provider().capabilities(), work.caps()?);
    let before = work.calls().await?;
    for (capability, desired) in unclaimed(&work, &plain)? {
        let is_claimed = |capability: Capability| capability.is_claimed_with(capabilities, Some(kind));
        let is_served = |capability: Capability| match capability {
            Capability::DualStack if is_claimed(Capability::FirstFamily) => true,
            capability => is_claimed(capability),
        };
        if capability.is_some_and(is_served)
            || work.requested_kind(&desired)?.is_ok_and(|other| other.name != kind.name)
        {
            continue;
        }
        let what = capability.map_or("more than the limit".to_owned(), |capability| capability.to_string());
        match work.attempt(&desired).await? {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return broken(format!("{what} is not claimed, and it says {:?}: {error}", error.kind())),
            Ok(_) => return broken(format!("{what} is not claimed, and the wish for it is not refused")),
        }
    }
    let calls = work.calls().await? - before;
    require(calls == 0, || format!("{calls} calls for what cannot be"))
}

/// For each capability, a wish that needs it; without capability, one beyond the limits.
fn unclaimed(
    work: &Balancing<'_>,
    plain: &DesiredLoadBalancer,
) -> CaseResult<Vec<(Option<Capability>, DesiredLoadBalancer)>> {
    let speaking = |protocol| change(plain, |spec| spec.ports = vec![port(0, protocol)]);
    let family = |families: &[IpFamily]| change(plain, |spec| spec.ip_families = families.to_vec());
    let mut wanted = vec![
        (Capability::Tcp, speaking(Protocol::Tcp)),
        (Capability::Udp, speaking(Protocol::Udp)),
        (Capability::Sctp, speaking(Protocol::Sctp)),
        (
            Capability::MixedProtocols,
            change(plain, |spec| spec.ports = vec![port(0, Protocol::Tcp), port(0, Protocol::Udp)]),
        ),
        (Capability::SourceRanges, change(plain, |spec| spec.source_ranges = vec![range("192.0.2.0/24")])),
        (
            Capability::SessionAffinity,
            change(plain, |spec| spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 }),
        ),
        (Capability::LocalTrafficPolicy, change(plain, |spec| spec.traffic_policy = TrafficPolicy::Local)),
        (Capability::RequestedAddress, change(plain, |spec| spec.requested_address = Some("192.0.2.1".to_owned()))),
        (
            Capability::WithoutNodePorts,
            change(plain, |spec| spec.ports.iter_mut().for_each(|port| port.node_port = None)),
        ),
        (Capability::Ipv4, family(&[IpFamily::IPv4])),
        (Capability::Ipv6, family(&[IpFamily::IPv6])),
        (Capability::DualStack, family(&[IpFamily::IPv4, IpFamily::IPv6])),
    ];
    wanted.extend(unclaimed_annotations(plain));
    let mut wanted: Vec<_> = wanted.into_iter().map(|(capability, desired)| (Some(capability), desired)).collect();
    let caps = work.caps()?;
    if let Some(most) = caps.max_ports {
        let ports = (0..).take(most + 1).map(|number| port(number, Protocol::Tcp)).collect();
        wanted.push((None, change(plain, |spec| spec.ports = ports)));
    }
    if let Some(most) = caps.max_targets {
        let node = plain.spec.iter().flat_map(|spec| &spec.targets).next().cloned();
        let named = |(number, node): (usize, TargetNode)| TargetNode { node: format!("node-{number}").into(), ..node };
        let targets: TargetSet = node.into_iter().cycle().take(most + 1).enumerate().map(named).collect();
        wanted.push((None, change(plain, |spec| spec.targets = targets)));
    }
    Ok(wanted)
}

fn unclaimed_annotations(plain: &DesiredLoadBalancer) -> Vec<(Capability, DesiredLoadBalancer)> {
    vec![
        (Capability::ProxyProtocol, set(plain, |all| all.proxy_protocol = Some(ProxyProtocol::V1))),
        (Capability::Shared, set(plain, |all| all.share_group = Some("edge".to_owned()))),
        (Capability::Internal, set(plain, |all| all.internal = true)),
        (Capability::IdleTimeout, set(plain, |all| all.idle_timeout = Some(Duration::from_secs(60)))),
        (Capability::HealthCheckSettings, set(plain, |all| all.health_check_path = Some("/ready".to_owned()))),
        (Capability::Adoption, set(plain, |all| all.adopt = Some("existing".to_owned()))),
        (Capability::Retention, set(plain, |all| all.policy = DeletionPolicy::Retain)),
    ]
}
