//! Verification of the cloud's own state against the desired state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;

use bowline_core::{
    DesiredLoadBalancer, IpFamily, LoadBalancerKey, LoadBalancerSpec, LoadBalancerState, SessionAffinity,
};

use super::LoadBalancerFixture;
use super::desired::by_key;
use crate::bench::{SeenListener, SeenLoadBalancer, SeenResource, SeenTarget};
use crate::context::{CaseResult, fail, require};

/// Number of resources by kind.
pub(crate) type ResourceCounts = BTreeMap<String, usize>;

impl LoadBalancerFixture<'_> {
    /// All resources of the cloud, sorted.
    pub(crate) async fn resources(&self) -> Vec<SeenResource> {
        let mut all = self.controls.resources().await;
        all.sort_by(|one, other| (&one.kind, &one.id).cmp(&(&other.kind, &other.id)));
        all
    }

    /// Resources with the mark of this Service.
    pub(crate) async fn owned_by(&self, key: &LoadBalancerKey) -> Vec<SeenResource> {
        let mut all = self.resources().await;
        all.retain(|resource| resource.owners.iter().any(|mark| self.is_mark_of(mark, key)));
        all
    }

    /// Whether the mark on a resource is that of this Service. What a name, or a part of a UID, means is up to the provider.
    pub(crate) fn is_mark_of(&self, mark: &LoadBalancerKey, key: &LoadBalancerKey) -> bool {
        let is_owner = |provider: &dyn bowline_cloud::LoadBalancers| provider.is_owner(mark, &by_key(key));
        mark.matches(key) || self.provider.load_balancers().is_some_and(is_owner)
    }

    /// Number of resources by kind with the mark of this Service.
    pub(crate) async fn resource_counts(&self, key: &LoadBalancerKey) -> ResourceCounts {
        let mut counts = ResourceCounts::new();
        for resource in self.owned_by(key).await {
            *counts.entry(resource.kind).or_default() += 1;
        }
        counts
    }

    /// Verifies that the cloud has exactly the resources that it had before.
    pub(crate) async fn verify_unchanged(&self, before: &[SeenResource]) -> CaseResult {
        let after = self.resources().await;
        for old in before {
            require(after.contains(old), || {
                let now = after.iter().find(|new| (&new.kind, &new.id) == (&old.kind, &old.id));
                format!("{old:?} became {now:?}")
            })?;
        }
        let new: Vec<_> = after.iter().filter(|new| !before.contains(new)).collect();
        require(new.is_empty(), || format!("unexpected resources are left: {new:?}"))
    }

    /// Load balancer of this Service, which must exist.
    pub(crate) async fn load_balancer(&self, key: &LoadBalancerKey) -> CaseResult<SeenLoadBalancer> {
        let seen = self.controls.load_balancer(key).await;
        seen.map_or_else(|| fail(format!("{} has no load balancer in the cloud", key.service)), Ok)
    }

    /// Verifies that the load balancer matches the desired state and that the status has its addresses.
    pub(crate) async fn verify_matches(&self, desired: &DesiredLoadBalancer, state: &LoadBalancerState) -> CaseResult {
        let Some(spec) = desired.spec.as_deref() else { return fail("the desired state has no spec") };
        let seen = self.load_balancer(&desired.key).await?;
        let targets = self.targets(spec)?;
        let uses_node_ports = self.controls.uses_node_ports(Some(self.kind()?.name));
        verify_listeners(&seen, spec, &targets, uses_node_ports)?;
        // Without a node port a load balancer may have no targets.
        let has_targets = spec.ports.iter().any(|port| port.node_port.is_some()) || !seen.targets.is_empty();
        same("targets", sorted(seen.targets.clone()), if has_targets { targets } else { Vec::new() })?;
        let hides_ranges = self.controls.source_ranges_need_targets(Some(self.kind()?.name)) && seen.targets.is_empty();
        let ranges = if hides_ranges { &[][..] } else { &spec.source_ranges };
        same("source ranges", set(&seen.source_ranges), set(ranges))?;
        self.verify_affinity(seen.affinity.unwrap_or(SessionAffinity::None), spec.session_affinity)?;
        verify_health_check(&seen, desired, spec)?;
        verify_settings(&seen, desired)?;
        let families = if self.kind()?.serves_first_family() { 1 } else { spec.ip_families.len() };
        verify_families(&seen, spec, families, self.kind()?.checks_spec)?;
        verify_addresses(&seen, spec, state)
    }

    fn verify_affinity(&self, seen: SessionAffinity, desired: SessionAffinity) -> CaseResult {
        let is_sticky = |affinity: SessionAffinity| affinity != SessionAffinity::None;
        if self.controls.affinity_is_timed() {
            same("session affinity", seen, desired)
        } else {
            same("session affinity", is_sticky(seen), is_sticky(desired))
        }
    }

    fn targets(&self, spec: &LoadBalancerSpec) -> CaseResult<Vec<SeenTarget>> {
        let drain = self.kind()?.drain;
        let wanted = spec.targets.iter().filter(|target| drain || !target.draining);
        let seen = |target: &bowline_core::TargetNode| SeenTarget {
            machine: self.machine(&target.node),
            draining: target.draining,
        };
        Ok(sorted(wanted.map(seen).collect()))
    }
}

fn same<T: PartialEq + Debug>(what: &str, seen: T, desired: T) -> CaseResult {
    require(seen == desired, || format!("{what}: desired {desired:?}, got {seen:?}"))
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

fn set<T: Ord + Clone>(items: &[T]) -> BTreeSet<T> {
    items.iter().cloned().collect()
}

/// Verifies the listeners. Clouds that keep node ports in their targets do not show them without targets.
fn verify_listeners(
    seen: &SeenLoadBalancer,
    spec: &LoadBalancerSpec,
    targets: &[SeenTarget],
    uses_node_ports: bool,
) -> CaseResult {
    let mut desired = listeners(spec);
    let has_none = seen.listeners.iter().all(|listener| listener.node_port.is_none());
    let is_hidden = (targets.is_empty() || !uses_node_ports) && has_none;
    if is_hidden {
        desired.iter_mut().for_each(|listener| listener.node_port = None);
    }
    same("listeners", sorted(seen.listeners.clone()), desired)
}

fn listeners(spec: &LoadBalancerSpec) -> Vec<SeenListener> {
    let listener = |port: &bowline_core::PortSpec| SeenListener {
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
    };
    sorted(spec.ports.iter().map(listener).collect())
}

/// Verifies the health check. The Service's health check node port applies to what the annotations leave open.
fn verify_health_check(seen: &SeenLoadBalancer, desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> CaseResult {
    let (settings, check) = (&desired.settings, spec.health_check.as_ref());
    let path = settings.health_check_path.clone().or(check.map(|check| check.path.clone()));
    let port = settings.health_check_port.or(check.map(|check| check.port));
    let found = seen.health_check.as_ref();
    if path.is_none() && port.is_none() {
        return require(found.is_none(), || format!("unexpected health check: {found:?}"));
    }
    let found_path = found.map(|check| check.path.clone());
    require(path.is_none() || found_path == path, || {
        format!("health check path: desired {path:?}, got {found_path:?}")
    })?;
    let found_port = found.map(|check| check.port);
    let is_hidden = seen.targets.is_empty() && found_port == Some(0);
    require(port.is_none() || is_hidden || found_port == port, || {
        format!("health check port: desired {port:?}, got {found_port:?}")
    })?;
    let (found, wanted) = (found.and_then(|check| check.interval), settings.health_check_interval);
    require(wanted.is_none() || found == wanted, || format!("health check interval: desired {wanted:?}, got {found:?}"))
}

fn verify_settings(seen: &SeenLoadBalancer, desired: &DesiredLoadBalancer) -> CaseResult {
    same("PROXY protocol", seen.proxy_protocol, desired.settings.proxy_protocol)?;
    let internal = seen.internal.unwrap_or(desired.settings.internal);
    same("internal", internal, desired.settings.internal)?;
    let timeout = desired.settings.idle_timeout;
    require(timeout.is_none() || seen.idle_timeout == timeout, || {
        format!("idle timeout: desired {timeout:?}, got {:?}", seen.idle_timeout)
    })
}

/// Verifies the IP families. `served` is the number of desired families that the cloud serves, from the first. A provider that
/// checks the spec itself may serve further families, as the manager that it replaces does.
fn verify_families(seen: &SeenLoadBalancer, spec: &LoadBalancerSpec, served: usize, may_add: bool) -> CaseResult {
    let family = |address: &IpAddr| if address.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 };
    let families = set(&seen.addresses.iter().map(family).collect::<Vec<_>>());
    let desired = set(spec.ip_families.get(..served).unwrap_or(&spec.ip_families));
    let is_served = families == desired || may_add && families.is_superset(&desired);
    require(is_served, || format!("IP families: desired {desired:?}, got {families:?}"))
}

/// Verifies that the status has the addresses, and that the load balancer has the requested one.
fn verify_addresses(seen: &SeenLoadBalancer, spec: &LoadBalancerSpec, state: &LoadBalancerState) -> CaseResult {
    let ingress = &state.status.ingress;
    let reported: BTreeSet<IpAddr> = ingress.iter().filter_map(|entry| entry.ip.as_ref()?.parse().ok()).collect();
    if reported.is_empty() {
        let has_hostname = ingress.iter().any(|entry| entry.hostname.is_some());
        return require(has_hostname, || "the status has neither an address nor a hostname".to_owned());
    }
    require(reported == set(&seen.addresses), || {
        format!("the status has the addresses {reported:?}, the load balancer {:?}", seen.addresses)
    })?;
    let wanted = spec.requested_address.as_ref().and_then(|address| address.parse().ok());
    require(wanted.is_none_or(|wanted| seen.addresses.contains(&wanted)), || {
        format!("requested address: desired {wanted:?}, got {:?}", seen.addresses)
    })
}
