//! From a Service to what is wished of a cloud.

use std::sync::Arc;

use ipnet::IpNet;

use super::source_ranges::{self, RangeError, leave_everybody_in};
use super::{Service, ServicePort, ServiceType};
use crate::annotations::{self, LoadBalancerSettings, Mistake, POLICY, Unknown};
use crate::{
    ClusterName, HealthCheck, LoadBalancerKey, LoadBalancerSpec, LoadBalancerWish, PortSpec, TargetNode, TrafficPolicy,
};

/// The characters that a balancer's name may have by default.
const NAME_LENGTH: usize = 32;

/// What a Service's annotations say.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The settings, or all that is wrong with them.
    pub settings: Result<LoadBalancerSettings, Vec<Mistake>>,
    /// What counts when the balancer is to go. Only a policy that cannot be read holds that back: nobody knows then what
    /// is to become of the balancer. Whatever else cannot be read is as if it were not there.
    pub cleanup: Result<LoadBalancerSettings, Vec<Mistake>>,
    /// Keys with our prefix that mean nothing here: worth a warning each.
    pub unknown: Vec<Unknown>,
}

/// Reads the annotations of a Service and its source ranges.
pub fn read(service: &Service) -> Reading {
    let (settings, mut mistakes) = annotations::read_leniently(&service.annotations);
    let about_policy: Vec<Mistake> = mistakes.iter().filter(|mistake| mistake.place == POLICY).cloned().collect();
    let (_, wrong_ranges) = source_ranges::find(service);
    // Those of our own annotation are there already.
    mistakes.extend(wrong_ranges.iter().filter(|wrong| wrong.place != annotations::SOURCE_RANGES).map(Mistake::from));
    Reading {
        cleanup: unless_any(about_policy, settings.clone()),
        settings: unless_any(mistakes, settings),
        unknown: annotations::unknown(&service.annotations),
    }
}

fn unless_any<T>(mistakes: Vec<Mistake>, value: T) -> Result<T, Vec<Mistake>> {
    if mistakes.is_empty() { Ok(value) } else { Err(mistakes) }
}

/// What is wished for a Service that wants a balancer, with these settings and targets. Source ranges that leave everybody
/// in are none. The error says what is wrong with the Service itself.
pub fn wish(
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
    targets: Vec<TargetNode>,
) -> Result<LoadBalancerWish, Vec<Mistake>> {
    let spec = LoadBalancerSpec {
        ports: service.ports.iter().map(port).collect(),
        targets,
        source_ranges: limited_to(service)?,
        requested_address: requested_address(service),
        ip_families: service.ip_families.clone(),
        session_affinity: service.session_affinity,
        traffic_policy: service.traffic_policy,
        health_check: health_check(service),
    };
    Ok(LoadBalancerWish { spec: Some(Arc::new(spec)), ..cleanup_wish(cluster, service, settings) })
}

fn port(port: &ServicePort) -> PortSpec {
    PortSpec {
        name: port.name.clone(),
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
        app_protocol: port.app_protocol.clone(),
    }
}

/// Who may connect; empty means everybody.
fn limited_to(service: &Service) -> Result<Vec<IpNet>, Vec<Mistake>> {
    let (ranges, wrong) = source_ranges::find(service);
    let ranges = unless_any(wrong.iter().map(Mistake::from).collect(), ranges)?;
    let is_limit = !leave_everybody_in(&ranges, &service.ip_families);
    Ok(ranges.into_iter().filter(|_| is_limit).collect())
}

fn requested_address(service: &Service) -> Option<String> {
    let address = service.load_balancer_ip.as_deref().map(str::trim);
    address.filter(|address| !address.is_empty()).map(str::to_owned)
}

/// What is wished for a Service that is to have no balancer any more.
pub fn cleanup_wish(cluster: &ClusterName, service: &Service, settings: &LoadBalancerSettings) -> LoadBalancerWish {
    LoadBalancerWish {
        key: LoadBalancerKey {
            cluster: cluster.clone(),
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            uid: service.uid.clone(),
        },
        annotations: Arc::clone(&service.annotations),
        settings: Arc::new(settings.clone()),
        spec: None,
    }
}

/// The policy is Local, on a Service that has node ports at all (H5, H6).
pub fn wants_only_local_traffic(service: &Service) -> bool {
    let has_node_ports = matches!(service.kind, ServiceType::LoadBalancer | ServiceType::NodePort);
    has_node_ports && service.traffic_policy == TrafficPolicy::Local
}

/// How a node says whether it wants traffic (H7).
pub fn health_check(service: &Service) -> Option<HealthCheck> {
    let is_needed = service.kind == ServiceType::LoadBalancer && wants_only_local_traffic(service);
    let port = service.health_check_node_port.filter(|port| is_needed && *port != 0)?;
    Some(HealthCheck { path: "/healthz".to_owned(), port })
}

/// The name that the Go library gives a balancer by default (H10): `a` and the UID without dashes, cut to 32 characters.
pub fn default_balancer_name(uid: &str) -> String {
    std::iter::once('a').chain(uid.chars().filter(|letter| *letter != '-')).take(NAME_LENGTH).collect()
}

impl From<&RangeError> for Mistake {
    fn from(wrong: &RangeError) -> Mistake {
        Mistake { place: wrong.place.to_owned(), message: wrong.message() }
    }
}
