//! Desired states: minimal Services, and Services with every feature that the provider claims.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::LoadBalancerKind;
use bowline_core::annotations::{self, LoadBalancerSettings};
use bowline_core::{
    DesiredLoadBalancer, HealthCheck, IpFamily, LoadBalancerKey, LoadBalancerSpec, PortSpec, Protocol, SessionAffinity,
    TargetNode, TrafficPolicy,
};

use super::LoadBalancerFixture;
use crate::context::{CaseResult, fail};

/// Cluster of all Services, unless a case uses another.
const CLUSTER: &str = "conformance";

/// First listener port. Not a privileged port, because a simulator may really open it.
const PORT: u16 = 18080;
const NODE_PORT: u16 = 30080;

/// Key of the Service with this name.
pub(crate) fn key(service: &str) -> LoadBalancerKey {
    LoadBalancerKey {
        cluster: CLUSTER.into(),
        namespace: "default".to_owned(),
        service: service.to_owned(),
        // Names in some clouds have no room for the last digit, which is therefore always the same.
        uid: format!("4f7a2b6c-0000-4000-8000-{:0>11}0", hex(service)),
    }
}

/// Hexadecimal digits for a UID, derived from the name.
fn hex(name: &str) -> String {
    let hex: String = name.bytes().map(|byte| format!("{byte:x}")).collect();
    hex.chars().rev().take(11).collect()
}

/// The same Service with a changed spec.
pub(crate) fn with_spec(
    desired: &DesiredLoadBalancer,
    change: impl FnOnce(&mut LoadBalancerSpec),
) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    if let Some(spec) = &mut desired.spec {
        change(Arc::make_mut(spec));
    }
    desired
}

/// The same Service with changed settings.
pub(crate) fn with_settings(
    desired: &DesiredLoadBalancer,
    change: impl FnOnce(&mut LoadBalancerSettings),
) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    change(Arc::make_mut(&mut desired.settings));
    desired
}

/// The same Service with additional annotations.
pub(crate) fn with_annotations(
    desired: &DesiredLoadBalancer,
    annotations: &BTreeMap<String, String>,
) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    Arc::make_mut(&mut desired.annotations).extend(annotations.clone());
    desired
}

/// The same Service without a desired load balancer.
pub(crate) fn without_spec(desired: &DesiredLoadBalancer) -> DesiredLoadBalancer {
    DesiredLoadBalancer { spec: None, ..desired.clone() }
}

/// Desired state of a Service whose key alone is known: its load balancer is to be deleted.
pub(crate) fn by_key(key: &LoadBalancerKey) -> DesiredLoadBalancer {
    DesiredLoadBalancer { key: key.clone(), annotations: Arc::default(), settings: Arc::default(), spec: None }
}

impl LoadBalancerFixture<'_> {
    /// Minimal Service: one port, the first IP family, default settings.
    pub(crate) fn desired(&self, service: &str, targets: &[TargetNode]) -> CaseResult<DesiredLoadBalancer> {
        let caps = self.kind()?;
        let protocols = [(caps.tcp, Protocol::Tcp), (caps.udp, Protocol::Udp), (caps.sctp, Protocol::Sctp)];
        let Some((_, protocol)) = protocols.into_iter().find(|(can, _)| *can) else {
            return fail("the provider claims no protocol, so no Service could have a load balancer");
        };
        let Some(family) = caps.ip_families.first() else {
            return fail("the provider claims no IP family, so no Service could have a load balancer");
        };
        let spec = LoadBalancerSpec {
            ports: vec![port(0, protocol)],
            targets: targets.to_vec().into(),
            source_ranges: Vec::new(),
            requested_address: None,
            ip_families: vec![*family],
            session_affinity: SessionAffinity::None,
            traffic_policy: TrafficPolicy::Cluster,
            health_check: None,
        };
        self.desired_of_kind(service, caps, spec)
    }

    /// Service that requests this kind of load balancer by its annotations.
    pub(crate) fn desired_of_kind(
        &self,
        service: &str,
        kind: &LoadBalancerKind,
        spec: LoadBalancerSpec,
    ) -> CaseResult<DesiredLoadBalancer> {
        let annotations: BTreeMap<_, _> =
            kind.requested_by.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let provider = self.provider()?;
        let settings = annotations::read(&annotations).and_then(|common| provider.settings(&annotations, common));
        let settings =
            settings.or_else(|mistakes| fail(format!("the provider rejects its own annotations: {mistakes:?}")))?;
        Ok(DesiredLoadBalancer {
            key: key(service),
            annotations: Arc::new(annotations),
            settings: Arc::new(settings),
            spec: Some(Arc::new(spec)),
        })
    }

    /// Service that uses every feature that the provider claims and that can be combined.
    pub(crate) fn full_featured(&self, service: &str, targets: &[TargetNode]) -> CaseResult<DesiredLoadBalancer> {
        let caps = self.kind()?.clone();
        let plain = self.desired(service, targets)?;
        let desired = with_spec(&plain, |spec| {
            let first = spec.ports.first().map_or(Protocol::Tcp, |port| port.protocol);
            let other = if caps.mixed_protocols && caps.udp { Protocol::Udp } else { first };
            spec.ports = vec![port(0, first), port(1, first), port(2, other)];
            spec.ports.truncate(caps.max_ports.unwrap_or(usize::MAX));
            if caps.source_ranges {
                spec.source_ranges = vec![cidr("192.0.2.0/24"), cidr("10.0.0.0/8")];
            }
            if caps.session_affinity {
                spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 10800 };
            }
            if caps.local_traffic_policy {
                set_local_policy(spec, 31234);
            }
            if caps.dual_stack {
                spec.ip_families = vec![IpFamily::IPv4, IpFamily::IPv6];
            }
        });
        Ok(with_settings(&desired, |settings| {
            // Some clouds support the PROXY protocol only for TCP, or not in combination; it has its own case.
            settings.idle_timeout = caps.idle_timeout.then(|| Duration::from_secs(300));
            settings.health_check_interval = caps.health_check_settings.then(|| Duration::from_secs(7));
        }))
    }

    /// The same Service with a change of every feature that the provider claims.
    pub(crate) fn changed(
        &self,
        desired: &DesiredLoadBalancer,
        targets: &[TargetNode],
    ) -> CaseResult<DesiredLoadBalancer> {
        let caps = self.kind()?.clone();
        let changed = with_spec(desired, |spec| {
            let protocol = spec.ports.first().map_or(Protocol::Tcp, |port| port.protocol);
            if let Some(first) = spec.ports.first_mut() {
                first.node_port = Some(NODE_PORT + 100);
            }
            if spec.ports.len() > 1 {
                spec.ports.pop();
                spec.ports.push(port(7, protocol));
            }
            spec.targets = targets.to_vec().into();
            spec.source_ranges.clear();
            spec.source_ranges.extend(caps.source_ranges.then(|| cidr("198.51.100.0/24")));
            spec.session_affinity = SessionAffinity::None;
            spec.traffic_policy = TrafficPolicy::Cluster;
            spec.health_check = None;
        });
        Ok(with_settings(&changed, |settings| {
            settings.proxy_protocol = None;
            settings.health_check_interval = None;
            settings.idle_timeout = caps.idle_timeout.then(|| Duration::from_secs(60));
        }))
    }
}

/// Service port with this number.
pub(crate) fn port(number: u16, protocol: Protocol) -> PortSpec {
    PortSpec {
        name: format!("port-{number}"),
        protocol,
        port: PORT + number,
        node_port: Some(NODE_PORT + number),
        app_protocol: None,
    }
}

/// Sets `externalTrafficPolicy: Local` with a health check on this port.
pub(crate) fn set_local_policy(spec: &mut LoadBalancerSpec, port: u16) {
    spec.traffic_policy = TrafficPolicy::Local;
    spec.health_check = Some(HealthCheck { path: "/healthz".to_owned(), port });
}

/// Parses a CIDR; all CIDRs in this crate are valid.
pub(crate) fn cidr(text: &str) -> ipnet::IpNet {
    text.parse().unwrap_or_default()
}
