//! What is wished: small Services, and the largest that a provider claims to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::LoadBalancerKind;
use bowline_core::annotations::{self, LoadBalancerSettings};
use bowline_core::{
    DesiredLoadBalancer, HealthCheck, IpFamily, LoadBalancerKey, LoadBalancerSpec, PortSpec, Protocol, SessionAffinity,
    TargetNode, TrafficPolicy,
};

use super::Balancing;
use crate::scene::{CaseResult, broken};

/// The cluster that all Services are in, unless a case says otherwise.
const CLUSTER: &str = "conformance";

/// The first port that anything listens on. Not a privileged one: a simulator may really open it.
const PORT: u16 = 18080;
const NODE_PORT: u16 = 30080;

/// Whose balancer the one of the Service of this name is.
pub(crate) fn key(service: &str) -> LoadBalancerKey {
    LoadBalancerKey {
        cluster: CLUSTER.into(),
        namespace: "default".to_owned(),
        service: service.to_owned(),
        uid: format!("4f7a2b6c-0000-4000-8000-{:0>12}", hex(service)),
    }
}

/// Letters that are fit for a UID, another for each name.
fn hex(name: &str) -> String {
    let hex: String = name.bytes().map(|byte| format!("{byte:x}")).collect();
    hex.chars().rev().take(12).collect()
}

/// The same Service with another spec.
pub(crate) fn change(desired: &DesiredLoadBalancer, change: impl FnOnce(&mut LoadBalancerSpec)) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    if let Some(spec) = &mut desired.spec {
        change(Arc::make_mut(spec));
    }
    desired
}

/// The same Service with other annotations.
pub(crate) fn set(desired: &DesiredLoadBalancer, set: impl FnOnce(&mut LoadBalancerSettings)) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    set(Arc::make_mut(&mut desired.settings));
    desired
}

/// The same Service, which says this as well.
pub(crate) fn annotated(desired: &DesiredLoadBalancer, annotations: &BTreeMap<String, String>) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    Arc::make_mut(&mut desired.annotations).extend(annotations.clone());
    desired
}

/// The same Service, which wants no balancer any more.
pub(crate) fn gone(desired: &DesiredLoadBalancer) -> DesiredLoadBalancer {
    DesiredLoadBalancer { spec: None, ..desired.clone() }
}

impl Balancing<'_> {
    /// The plainest Service: one port, the first family, nothing special.
    pub(crate) fn desired(&self, service: &str, targets: &[TargetNode]) -> CaseResult<DesiredLoadBalancer> {
        let caps = self.caps()?;
        let protocols = [(caps.tcp, Protocol::Tcp), (caps.udp, Protocol::Udp), (caps.sctp, Protocol::Sctp)];
        let Some((_, protocol)) = protocols.into_iter().find(|(can, _)| *can) else {
            return broken("it claims no protocol, so no Service could have a balancer");
        };
        let Some(family) = caps.ip_families.first() else {
            return broken("it claims no family of addresses, so no Service could have a balancer");
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
        self.requesting(service, caps, spec)
    }

    /// A Service that requests this kind of load balancer by its annotations.
    pub(crate) fn requesting(
        &self,
        service: &str,
        kind: &LoadBalancerKind,
        spec: LoadBalancerSpec,
    ) -> CaseResult<DesiredLoadBalancer> {
        let annotations: BTreeMap<_, _> =
            kind.requested_by.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let provider = self.provider()?;
        let settings = annotations::read(&annotations).and_then(|common| provider.settings(&annotations, common));
        let settings = settings.or_else(|mistakes| broken(format!("its own annotations are refused: {mistakes:?}")))?;
        Ok(DesiredLoadBalancer {
            key: key(service),
            annotations: Arc::new(annotations),
            settings: Arc::new(settings),
            spec: Some(Arc::new(spec)),
        })
    }

    /// A Service that wants all that the provider claims and that goes together.
    pub(crate) fn everything(&self, service: &str, targets: &[TargetNode]) -> CaseResult<DesiredLoadBalancer> {
        let caps = self.caps()?.clone();
        let plain = self.desired(service, targets)?;
        let desired = change(&plain, |spec| {
            let first = spec.ports.first().map_or(Protocol::Tcp, |port| port.protocol);
            let other = if caps.mixed_protocols && caps.udp { Protocol::Udp } else { first };
            spec.ports = vec![port(0, first), port(1, first), port(2, other)];
            spec.ports.truncate(caps.max_ports.unwrap_or(usize::MAX));
            if caps.source_ranges {
                spec.source_ranges = vec![range("192.0.2.0/24"), range("10.0.0.0/8")];
            }
            if caps.session_affinity {
                spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 10800 };
            }
            if caps.local_traffic_policy {
                local(spec, 31234);
            }
            if caps.dual_stack {
                spec.ip_families = vec![IpFamily::IPv4, IpFamily::IPv6];
            }
        });
        Ok(set(&desired, |settings| {
            // Some clouds know the PROXY protocol for TCP alone, or do not combine it; it has a case of its own.
            settings.idle_timeout = caps.idle_timeout.then(|| Duration::from_secs(300));
            settings.health_check_interval = caps.health_check_settings.then(|| Duration::from_secs(7));
        }))
    }

    /// The same Service, changed in all that the provider claims to change.
    pub(crate) fn otherwise(
        &self,
        desired: &DesiredLoadBalancer,
        targets: &[TargetNode],
    ) -> CaseResult<DesiredLoadBalancer> {
        let caps = self.caps()?.clone();
        let changed = change(desired, |spec| {
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
            spec.source_ranges.extend(caps.source_ranges.then(|| range("198.51.100.0/24")));
            spec.session_affinity = SessionAffinity::None;
            spec.traffic_policy = TrafficPolicy::Cluster;
            spec.health_check = None;
        });
        Ok(set(&changed, |settings| {
            settings.proxy_protocol = None;
            settings.health_check_interval = None;
            settings.idle_timeout = caps.idle_timeout.then(|| Duration::from_secs(60));
        }))
    }
}

/// The port of this number.
pub(crate) fn port(number: u16, protocol: Protocol) -> PortSpec {
    PortSpec {
        name: format!("port-{number}"),
        protocol,
        port: PORT + number,
        node_port: Some(NODE_PORT + number),
        app_protocol: None,
    }
}

/// Only nodes with a pod take traffic, and say so on this port.
pub(crate) fn local(spec: &mut LoadBalancerSpec, port: u16) {
    spec.traffic_policy = TrafficPolicy::Local;
    spec.health_check = Some(HealthCheck { path: "/healthz".to_owned(), port });
}

/// A range of addresses; those in this crate are sound.
pub(crate) fn range(text: &str) -> ipnet::IpNet {
    text.parse().unwrap_or_default()
}
