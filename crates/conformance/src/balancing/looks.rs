//! What the cloud really has, held against what was wished.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;

use bowline_core::{
    DesiredLoadBalancer, IpFamily, LoadBalancerKey, LoadBalancerSpec, LoadBalancerState, SessionAffinity,
};

use super::Balancing;
use crate::bench::{SeenListener, SeenLoadBalancer, SeenResource, SeenTarget};
use crate::scene::{CaseResult, broken, require};

/// How many things of each kind there are.
pub(crate) type Shape = BTreeMap<String, usize>;

impl Balancing<'_> {
    /// All that the cloud has, in an order that does not matter.
    pub(crate) async fn resources(&self) -> Vec<SeenResource> {
        let mut all = self.hands.resources().await;
        all.sort_by(|one, other| (&one.kind, &one.id).cmp(&(&other.kind, &other.id)));
        all
    }

    /// What bears the mark of this Service.
    pub(crate) async fn owned(&self, key: &LoadBalancerKey) -> Vec<SeenResource> {
        let mut all = self.resources().await;
        all.retain(|resource| resource.owners.iter().any(|mark| mark.marks(key)));
        all
    }

    /// How many things of each kind bear its mark.
    pub(crate) async fn shape(&self, key: &LoadBalancerKey) -> Shape {
        let mut shape = Shape::new();
        for resource in self.owned(key).await {
            *shape.entry(resource.kind).or_default() += 1;
        }
        shape
    }

    /// The cloud has what it had then, and nothing else.
    pub(crate) async fn nothing_changed_since(&self, before: &[SeenResource]) -> CaseResult {
        let after = self.resources().await;
        for old in before {
            require(after.contains(old), || {
                let now = after.iter().find(|new| (&new.kind, &new.id) == (&old.kind, &old.id));
                format!("{old:?} became {now:?}")
            })?;
        }
        let new: Vec<_> = after.iter().filter(|new| !before.contains(new)).collect();
        require(new.is_empty(), || format!("this is left: {new:?}"))
    }

    /// The balancer of this Service, which must be there.
    pub(crate) async fn seen(&self, key: &LoadBalancerKey) -> CaseResult<SeenLoadBalancer> {
        let seen = self.hands.balancer(key).await;
        seen.map_or_else(|| broken(format!("{} has no balancer in the cloud", key.service)), Ok)
    }

    /// The balancer does what is wished, and the status says where.
    pub(crate) async fn is_as_wished(&self, desired: &DesiredLoadBalancer, state: &LoadBalancerState) -> CaseResult {
        let Some(spec) = desired.spec.as_deref() else { return broken("nothing is wished") };
        let seen = self.seen(&desired.key).await?;
        let targets = self.targets(spec)?;
        listeners_are_as_wished(&seen, spec, &targets)?;
        // Without a node port there may be no way to a node.
        let is_led = spec.ports.iter().any(|port| port.node_port.is_some()) || !seen.targets.is_empty();
        same("targets", sorted(seen.targets.clone()), if is_led { targets } else { Vec::new() })?;
        same("source ranges", set(&seen.source_ranges), set(&spec.source_ranges))?;
        self.affinity_is_as_wished(seen.affinity.unwrap_or(SessionAffinity::None), spec.session_affinity)?;
        health_check_is_as_wished(&seen, desired, spec)?;
        settings_are_as_wished(&seen, desired)?;
        let families = if self.caps()?.serves_first_family() { 1 } else { spec.ip_families.len() };
        addresses_are_as_wished(&seen, spec, families, state)
    }

    fn affinity_is_as_wished(&self, seen: SessionAffinity, wished: SessionAffinity) -> CaseResult {
        let is_sticky = |affinity: SessionAffinity| affinity != SessionAffinity::None;
        if self.hands.affinity_is_timed() {
            same("affinity", seen, wished)
        } else {
            same("affinity", is_sticky(seen), is_sticky(wished))
        }
    }

    fn targets(&self, spec: &LoadBalancerSpec) -> CaseResult<Vec<SeenTarget>> {
        let drain = self.caps()?.drain;
        let wanted = spec.targets.iter().filter(|target| drain || !target.draining);
        let seen = |target: &bowline_core::TargetNode| SeenTarget {
            machine: self.machine(&target.node),
            draining: target.draining,
        };
        Ok(sorted(wanted.map(seen).collect()))
    }
}

fn same<T: PartialEq + Debug>(what: &str, seen: T, wanted: T) -> CaseResult {
    require(seen == wanted, || format!("the {what} are {seen:?}, and {wanted:?} is wished"))
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

fn set<T: Ord + Clone>(items: &[T]) -> BTreeSet<T> {
    items.iter().cloned().collect()
}

/// Where a port goes on a node may hang on the node: without any, it cannot be seen.
fn listeners_are_as_wished(seen: &SeenLoadBalancer, spec: &LoadBalancerSpec, targets: &[SeenTarget]) -> CaseResult {
    let mut wished = listeners(spec);
    let is_blind = targets.is_empty() && seen.listeners.iter().all(|listener| listener.node_port.is_none());
    if is_blind {
        wished.iter_mut().for_each(|listener| listener.node_port = None);
    }
    same("listeners", sorted(seen.listeners.clone()), wished)
}

fn listeners(spec: &LoadBalancerSpec) -> Vec<SeenListener> {
    let listener = |port: &bowline_core::PortSpec| SeenListener {
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
    };
    sorted(spec.ports.iter().map(listener).collect())
}

/// What the Service says about it goes for what the annotations do not say.
fn health_check_is_as_wished(
    seen: &SeenLoadBalancer,
    desired: &DesiredLoadBalancer,
    spec: &LoadBalancerSpec,
) -> CaseResult {
    let (settings, check) = (&desired.settings, spec.health_check.as_ref());
    let path = settings.health_check_path.clone().or(check.map(|check| check.path.clone()));
    let port = settings.health_check_port.or(check.map(|check| check.port));
    let found = seen.health_check.as_ref();
    if path.is_none() && port.is_none() {
        return require(found.is_none(), || format!("no health check is wished, and there is {found:?}"));
    }
    let found_path = found.map(|check| check.path.clone());
    require(path.is_none() || found_path == path, || format!("the path of the check is {found_path:?}, not {path:?}"))?;
    let found_port = found.map(|check| check.port);
    let is_blind = seen.targets.is_empty() && found_port == Some(0);
    require(port.is_none() || is_blind || found_port == port, || {
        format!("the port of the check is {found_port:?}, not {port:?}")
    })?;
    let (found, wanted) = (found.and_then(|check| check.interval), settings.health_check_interval);
    require(wanted.is_none() || found == wanted, || format!("the interval of the check is {found:?}, not {wanted:?}"))
}

fn settings_are_as_wished(seen: &SeenLoadBalancer, desired: &DesiredLoadBalancer) -> CaseResult {
    same("versions of the PROXY protocol", seen.proxy_protocol, desired.settings.proxy_protocol)?;
    let internal = seen.internal.unwrap_or(desired.settings.internal);
    same("sides that it is reached from (internal)", internal, desired.settings.internal)?;
    let timeout = desired.settings.idle_timeout;
    require(timeout.is_none() || seen.idle_timeout == timeout, || {
        format!("silent connections are closed after {:?}, and {timeout:?} is wished", seen.idle_timeout)
    })
}

/// Of the families that are wished, the first so many are served.
fn addresses_are_as_wished(
    seen: &SeenLoadBalancer,
    spec: &LoadBalancerSpec,
    served: usize,
    state: &LoadBalancerState,
) -> CaseResult {
    let family = |address: &IpAddr| if address.is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 };
    let families: Vec<_> = seen.addresses.iter().map(family).collect();
    let wished = spec.ip_families.get(..served).unwrap_or(&spec.ip_families);
    same("families of its addresses", set(&families), set(wished))?;
    let ingress = &state.status.ingress;
    let told: BTreeSet<IpAddr> = ingress.iter().filter_map(|entry| entry.ip.as_ref()?.parse().ok()).collect();
    if told.is_empty() {
        let named = ingress.iter().any(|entry| entry.hostname.is_some());
        return require(named, || "the status names no address and no host".to_owned());
    }
    same("addresses of the status", told, set(&seen.addresses))?;
    let wanted = spec.requested_address.as_ref().and_then(|address| address.parse().ok());
    require(wanted.is_none_or(|wanted| seen.addresses.contains(&wanted)), || {
        format!("{wanted:?} was asked for, and {:?} was given", seen.addresses)
    })
}
