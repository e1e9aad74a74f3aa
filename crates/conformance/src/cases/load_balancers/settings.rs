//! Rules about settings other than ports and targets.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind};
use bowline_core::annotations::{DeletionPolicy, ProxyProtocol};
use bowline_core::{DesiredLoadBalancer, IpFamily, Protocol, SessionAffinity, TargetNode, TargetSet, TrafficPolicy};

use crate::bench::ForeignLoadBalancer;
use crate::capability::Capability;
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, cidr, port, set_local_policy, with_settings, with_spec};

/// Minimal Service with one Node.
async fn plain(fixture: &LoadBalancerFixture<'_>) -> CaseResult<DesiredLoadBalancer> {
    let nodes = [fixture.node("node-1").await];
    fixture.desired("web", &nodes)
}

/// Syncs these states one after the other, and verifies each.
async fn sync_in_order(fixture: &LoadBalancerFixture<'_>, wanted: &[DesiredLoadBalancer]) -> CaseResult {
    for desired in wanted {
        fixture.sync_and_verify(desired).await?;
        fixture.verify_no_changes(desired).await?;
    }
    Ok(())
}

pub(in crate::cases) async fn source_ranges_are_enforced(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let open = plain(&fixture).await?;
    let from =
        |ranges: &[&str]| with_spec(&open, |spec| spec.source_ranges = ranges.iter().map(|text| cidr(text)).collect());
    let some = from(&["192.0.2.0/24", "198.51.100.7/32"]);
    sync_in_order(&fixture, &[some.clone(), from(&["203.0.113.0/24"]), open.clone(), some.clone()]).await?;
    fixture.delete_and_verify(&some).await
}

pub(in crate::cases) async fn session_affinity_is_applied(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let none = plain(&fixture).await?;
    let sticky = |timeout_seconds| {
        with_spec(&none, |spec| spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds })
    };
    sync_in_order(&fixture, &[sticky(10800), sticky(60), none.clone(), sticky(10800)]).await
}

pub(in crate::cases) async fn local_policy_uses_the_health_check_port(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let cluster = plain(&fixture).await?;
    let with_check = |port| with_spec(&cluster, |spec| set_local_policy(spec, port));
    sync_in_order(&fixture, &[with_check(31500), with_check(31501), cluster.clone(), with_check(31500)]).await
}

pub(in crate::cases) async fn proxy_protocol_is_applied(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let plain = plain(&fixture).await?;
    for version in fixture.kind()?.proxy_protocol.clone() {
        let enabled = with_settings(&plain, |settings| settings.proxy_protocol = Some(version));
        sync_in_order(&fixture, &[enabled.clone(), plain.clone(), enabled]).await?;
    }
    Ok(())
}

pub(in crate::cases) async fn internal_is_not_public(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let internal = with_settings(&plain(&fixture).await?, |settings| settings.internal = true);
    sync_in_order(&fixture, std::slice::from_ref(&internal)).await?;
    fixture.delete_and_verify(&internal).await
}

pub(in crate::cases) async fn idle_timeout_is_applied(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let plain = plain(&fixture).await?;
    let idle = |seconds| with_settings(&plain, |settings| settings.idle_timeout = Some(Duration::from_secs(seconds)));
    sync_in_order(&fixture, &[idle(120), idle(600)]).await
}

pub(in crate::cases) async fn health_check_settings_are_applied(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let plain = plain(&fixture).await?;
    let chosen = |path: &str, port, seconds| {
        with_settings(&plain, |settings| {
            settings.health_check_path = Some(path.to_owned());
            settings.health_check_port = Some(port);
            settings.health_check_interval = Some(Duration::from_secs(seconds));
        })
    };
    sync_in_order(&fixture, &[chosen("/ready", 32000, 5), chosen("/alive", 32001, 10), plain.clone()]).await
}

pub(in crate::cases) async fn ipv4_address_is_assigned(context: &CaseContext) -> CaseResult {
    families(context, &[IpFamily::IPv4]).await
}

pub(in crate::cases) async fn ipv6_address_is_assigned(context: &CaseContext) -> CaseResult {
    families(context, &[IpFamily::IPv6]).await
}

pub(in crate::cases) async fn dual_stack_has_both(context: &CaseContext) -> CaseResult {
    families(context, &[IpFamily::IPv4, IpFamily::IPv6]).await
}

pub(in crate::cases) async fn first_family_is_served(context: &CaseContext) -> CaseResult {
    for family in LoadBalancerFixture::new(context)?.kind()?.ip_families.clone() {
        let other = if family == IpFamily::IPv4 { IpFamily::IPv6 } else { IpFamily::IPv4 };
        families(context, &[family, other]).await?;
    }
    Ok(())
}

async fn families(context: &CaseContext, families: &[IpFamily]) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let desired = with_spec(&plain(&fixture).await?, |spec| spec.ip_families = families.to_vec());
    sync_in_order(&fixture, std::slice::from_ref(&desired)).await?;
    fixture.delete_and_verify(&desired).await
}

pub(in crate::cases) async fn requested_address_is_assigned(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let Some(address) = fixture.controls().free_address(context.kind()).await else {
        return Err(CaseFailure::BenchCannot("name an address to request".to_owned()));
    };
    let plain = plain(&fixture).await?;
    let desired = with_spec(&plain, |spec| {
        spec.requested_address = Some(address.to_string());
        spec.ip_families = vec![if address.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 }];
    });
    sync_in_order(&fixture, std::slice::from_ref(&desired)).await?;
    fixture.delete_and_verify(&desired).await?;
    verify_taken_address(&fixture, &desired, address).await
}

/// Verifies that a request for an address of another owner is rejected, and that the owner keeps it.
async fn verify_taken_address(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    address: std::net::IpAddr,
) -> CaseResult {
    let foreign =
        ForeignLoadBalancer { name: "foreign".to_owned(), address: Some(address), ..ForeignLoadBalancer::default() };
    if fixture.controls().put_foreign(&foreign).await.is_none() {
        return Err(CaseFailure::BenchCannot("create a load balancer of another owner".to_owned()));
    }
    let before = fixture.resources().await;
    match fixture.try_sync(desired).await? {
        Ok(_) => return fail(format!("the address {address} has another owner, but the sync succeeded")),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => {
            return fail(format!(
                "the address {address} is taken: expected `AlreadyExists`, got {:?}: {error}",
                error.kind()
            ));
        }
    }
    for old in &before {
        require(fixture.resources().await.contains(old), || {
            format!("a resource of another owner was changed: {old:?}")
        })?;
    }
    fixture.delete_and_verify(desired).await?;
    fixture.verify_unchanged(&before).await
}

pub(in crate::cases) async fn share_group_has_one_address(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let before = fixture.resources().await;
    let nodes = [fixture.node("node-1").await];
    let member = |name: &str, number| {
        let desired =
            with_settings(&fixture.desired(name, &nodes)?, |settings| settings.share_group = Some("edge".to_owned()));
        let protocol = desired.spec.iter().flat_map(|spec| &spec.ports).map(|port| port.protocol).next();
        Ok(with_spec(&desired, |spec| spec.ports = vec![port(number, protocol.unwrap_or(Protocol::Tcp))]))
    };
    let (one, other, mut outsider) = (member("one", 0)?, member("other", 1)?, member("outsider", 2)?);
    // A share group is limited to one namespace.
    outsider.key.namespace = "other".to_owned();
    for desired in [&one, &other, &outsider] {
        fixture.sync_and_verify(desired).await?;
    }
    let (first, second) =
        (fixture.load_balancer(&one.key).await?.addresses, fixture.load_balancer(&other.key).await?.addresses);
    let third = fixture.load_balancer(&outsider.key).await?.addresses;
    require(first == second, || {
        format!("two Services of one share group have different addresses: {first:?} and {second:?}")
    })?;
    require(first != third, || {
        format!("a Service of another namespace has the address of the share group: {third:?}")
    })?;
    fixture.verify_no_changes(&one).await?;
    let stays = fixture.load_balancer(&other.key).await?;
    fixture.delete_and_verify(&one).await?;
    let left = fixture.controls().load_balancer(&other.key).await;
    require(left.as_ref() == Some(&stays), || {
        format!("a member left the share group, and another changed from {stays:?} to {left:?}")
    })?;
    fixture.verify_no_changes(&other).await?;
    fixture.delete_and_verify(&other).await?;
    fixture.delete_and_verify(&outsider).await?;
    fixture.verify_unchanged(&before).await
}

pub(in crate::cases) async fn share_group_ports_are_unique(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let member = |name: &str| {
        Ok(with_settings(&fixture.desired(name, &nodes)?, |all| all.share_group = Some("edge".to_owned())))
    };
    let (first, second) = (member("first")?, member("second")?);
    fixture.sync_and_verify(&first).await?;
    match fixture.try_sync(&second).await? {
        Ok(_) => return fail("two Services of one share group have the same port"),
        Err(error) => require(error.kind() == ErrorKind::AlreadyExists, || {
            format!("the port is taken in the share group: expected `AlreadyExists`, got {:?}: {error}", error.kind())
        })?,
    }
    fixture.sync_and_verify(&first).await.map(drop)
}

pub(in crate::cases) async fn unsupported_is_rejected_without_a_call(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let plain = plain(&fixture).await?;
    let (fields, annotations) = (unclaimed_fields(&plain), unclaimed_annotations(&plain));
    let (of_provider, of_layers) = match fixture.kind()?.checks_spec {
        true => (fields, annotations),
        false => (Vec::new(), [fields, annotations].concat()),
    };
    let before = fixture.calls().await?;
    for (capability, desired) in unsupported(&fixture, of_layers)? {
        verify_unsupported(&capability.to_string(), fixture.try_sync(&desired).await?)?;
    }
    for desired in above_limits(&fixture, &plain)? {
        verify_unsupported("more than the limit", fixture.try_sync(&desired).await?)?;
    }
    let calls = fixture.calls().await? - before;
    require(calls == 0, || format!("{calls} calls for unsupported Services"))?;
    for (capability, desired) in unsupported(&fixture, of_provider)? {
        verify_reported(&fixture, capability, &desired).await?;
    }
    Ok(())
}

/// Services that each need one capability, without those that the kind claims and those that request another kind.
fn unsupported(
    fixture: &LoadBalancerFixture<'_>,
    unclaimed: Vec<(Capability, DesiredLoadBalancer)>,
) -> CaseResult<Vec<(Capability, DesiredLoadBalancer)>> {
    let (kind, mut unsupported) = (fixture.kind()?, Vec::new());
    for (capability, desired) in unclaimed {
        let is_served = match capability {
            Capability::DualStack if fixture.claims(Capability::FirstFamily)? => true,
            capability => fixture.claims(capability)?,
        };
        let is_of_other = fixture.requested_kind(&desired)?.is_ok_and(|other| other.name != kind.name);
        if !is_served && !is_of_other {
            unsupported.push((capability, desired));
        }
    }
    Ok(unsupported)
}

fn verify_unsupported<T>(what: &str, synced: Result<T, Error>) -> CaseResult {
    match synced {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(error) => fail(format!("{what} is not claimed: expected `Unsupported`, got {:?}: {error}", error.kind())),
        Ok(_) => fail(format!("{what} is not claimed: expected `Unsupported`, but the sync succeeded")),
    }
}

/// Verifies that the provider reports the field: planning fails without a write, or the plan has a warning.
async fn verify_reported(
    fixture: &LoadBalancerFixture<'_>,
    capability: Capability,
    desired: &DesiredLoadBalancer,
) -> CaseResult {
    let before = fixture.writes().await?;
    let state = fixture.state(desired).await?;
    match fixture.provider()?.plan(desired, state.as_ref()) {
        Err(error) => require(matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidConfig), || {
            format!("{capability} is not claimed: expected `Unsupported` or `InvalidConfig`, got {error}")
        })?,
        Ok(plan) => {
            let is_reported = !plan.warnings.is_empty() || (plan.steps.is_empty() && !plan.errors.is_empty());
            require(is_reported, || {
                format!("{capability} is not claimed: expected an error or a warning, got the plan {plan}")
            })?;
        }
    }
    let written = fixture.writes().await? - before;
    require(written == 0, || format!("{capability} is not claimed, and planning made {written} write calls"))
}

/// Services with a field of the spec that needs this capability.
fn unclaimed_fields(plain: &DesiredLoadBalancer) -> Vec<(Capability, DesiredLoadBalancer)> {
    let with_protocol = |protocol| with_spec(plain, |spec| spec.ports = vec![port(0, protocol)]);
    let family = |families: &[IpFamily]| with_spec(plain, |spec| spec.ip_families = families.to_vec());
    vec![
        (Capability::Tcp, with_protocol(Protocol::Tcp)),
        (Capability::Udp, with_protocol(Protocol::Udp)),
        (Capability::Sctp, with_protocol(Protocol::Sctp)),
        (
            Capability::MixedProtocols,
            with_spec(plain, |spec| spec.ports = vec![port(0, Protocol::Tcp), port(0, Protocol::Udp)]),
        ),
        (Capability::SourceRanges, with_spec(plain, |spec| spec.source_ranges = vec![cidr("192.0.2.0/24")])),
        (
            Capability::SessionAffinity,
            with_spec(plain, |spec| spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 }),
        ),
        (Capability::LocalTrafficPolicy, with_spec(plain, |spec| spec.traffic_policy = TrafficPolicy::Local)),
        (Capability::RequestedAddress, with_spec(plain, |spec| spec.requested_address = Some("192.0.2.1".to_owned()))),
        (
            Capability::WithoutNodePorts,
            with_spec(plain, |spec| spec.ports.iter_mut().for_each(|port| port.node_port = None)),
        ),
        (Capability::Ipv4, family(&[IpFamily::IPv4])),
        (Capability::Ipv6, family(&[IpFamily::IPv6])),
        (Capability::DualStack, family(&[IpFamily::IPv4, IpFamily::IPv6])),
    ]
}

/// Services with more ports or targets than the kind supports.
fn above_limits(
    fixture: &LoadBalancerFixture<'_>,
    plain: &DesiredLoadBalancer,
) -> CaseResult<Vec<DesiredLoadBalancer>> {
    let (caps, mut above) = (fixture.kind()?, Vec::new());
    if let Some(limit) = caps.max_ports {
        let ports = (0..).take(limit + 1).map(|number| port(number, Protocol::Tcp)).collect();
        above.push(with_spec(plain, |spec| spec.ports = ports));
    }
    if let Some(limit) = caps.max_targets {
        let node = plain.spec.iter().flat_map(|spec| &spec.targets).next().cloned();
        let named = |(number, node): (usize, TargetNode)| TargetNode { node: format!("node-{number}").into(), ..node };
        let targets: TargetSet = node.into_iter().cycle().take(limit + 1).enumerate().map(named).collect();
        above.push(with_spec(plain, |spec| spec.targets = targets));
    }
    Ok(above)
}

/// Services with an annotation that needs this capability.
fn unclaimed_annotations(plain: &DesiredLoadBalancer) -> Vec<(Capability, DesiredLoadBalancer)> {
    vec![
        (Capability::ProxyProtocol, with_settings(plain, |all| all.proxy_protocol = Some(ProxyProtocol::V1))),
        (Capability::Shared, with_settings(plain, |all| all.share_group = Some("edge".to_owned()))),
        (Capability::Internal, with_settings(plain, |all| all.internal = true)),
        (Capability::IdleTimeout, with_settings(plain, |all| all.idle_timeout = Some(Duration::from_secs(60)))),
        (
            Capability::HealthCheckSettings,
            with_settings(plain, |all| all.health_check_path = Some("/ready".to_owned())),
        ),
        (Capability::Adoption, with_settings(plain, |all| all.adopt = Some("existing".to_owned()))),
        (Capability::Retention, with_settings(plain, |all| all.policy = DeletionPolicy::Retain)),
    ]
}
