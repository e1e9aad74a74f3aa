//! Desired state of a Classic Load Balancer, from its Service and the configuration.

use bowline_cloud::Result;
use bowline_core::{IpFamily, Step, Warning};

use super::super::annotations as keys;
use super::super::checks;
use super::super::group_steps::GroupRef;
use super::super::{Change, Inputs};
use super::{Observed, attributes, groups, health_check, ignored, listeners, policies};
use crate::api::Tags;
use crate::api::elb::{
    Attributes, HealthCheck, InstanceId, Listener, ListenerDescription, LoadBalancer, NewLoadBalancer, NewPolicy,
};

/// Scheme of an internal load balancer.
const INTERNAL: &str = "internal";

/// Desired state.
pub(super) struct Desired {
    pub(super) internal: bool,
    /// Listeners in the order of the Service's ports.
    pub(super) listeners: Vec<Listener>,
    pub(super) proxy_protocol: bool,
    pub(super) tls_policy: Option<NewPolicy>,
    pub(super) attributes: Attributes,
    pub(super) health_check: HealthCheck,
    /// Subnets; `None` leaves those that it has.
    pub(super) subnets: Option<Vec<String>>,
    /// Security groups, the source group first.
    pub(super) groups: Vec<GroupRef>,
    /// Steps for its own security group.
    pub(super) own_group: Vec<Step<Change>>,
    /// Tags of a new load balancer.
    pub(super) tags: Tags,
    /// Tags that an existing load balancer gets.
    pub(super) additional_tags: Tags,
    pub(super) instances: Vec<String>,
    pub(super) warnings: Vec<Warning>,
}

impl Desired {
    /// Collects the desired state. The order of the checks is that of upstream.
    pub(super) fn read(inputs: &Inputs<'_>, observed: Option<&Observed>) -> Result<Desired> {
        let listeners = listeners::desired(inputs)?;
        checks::requested_address(inputs.spec)?;
        let proxy_protocol = policies::has_proxy_protocol(inputs)?;
        let attributes = attributes::desired(inputs)?;
        let internal = inputs.is_internal();
        let observed = observed.map(|it| &it.load_balancer);
        let keeps_subnets = observed.is_some_and(|it| keeps_subnets(inputs, it, internal));
        let subnets = || Result::Ok(inputs.subnets()?.into_iter().map(|subnet| subnet.id).collect());
        let subnets = (!keeps_subnets).then(subnets).transpose()?;
        let (groups, own_group) = groups::desired(inputs)?;
        let observed_check = observed.and_then(|it| it.health_check.as_ref());
        let health_check = health_check::desired(inputs, &listeners, observed_check)?;
        let tags = inputs.tags();
        let additional_tags = additional_tags(inputs, &tags);
        Ok(Desired {
            warnings: warnings(inputs, observed, &listeners, &health_check),
            tls_policy: policies::tls(inputs, &listeners),
            instances: inputs.context.instances.keys().cloned().collect(),
            internal,
            listeners,
            proxy_protocol,
            attributes,
            health_check,
            subnets,
            groups,
            own_group,
            tags,
            additional_tags,
        })
    }

    /// Returns the load balancer to create.
    pub(super) fn to_new(&self, name: &str) -> NewLoadBalancer {
        let mut listeners = self.listeners.clone();
        listeners.sort();
        NewLoadBalancer {
            name: name.to_owned(),
            listeners,
            subnets: self.subnets.clone().unwrap_or_default(),
            security_groups: Vec::new(),
            internal: self.internal,
            tags: self.tags.clone(),
        }
    }

    /// Returns the state right after the creation: the further steps start from it.
    pub(super) fn created(&self, name: &str) -> Observed {
        let described =
            |listener: &Listener| ListenerDescription { listener: listener.clone(), policy_names: Vec::new() };
        let load_balancer = LoadBalancer {
            name: name.to_owned(),
            listeners: self.listeners.iter().map(described).collect(),
            ..LoadBalancer::default()
        };
        Observed { load_balancer, tags: self.tags.clone(), attributes: attributes::of_new() }
    }
}

/// Whether an existing load balancer keeps its subnets: its scheme cannot be changed, and those of the other scheme would be wrong.
// upstream: the subnets are chosen for the requested scheme.
fn keeps_subnets(inputs: &Inputs<'_>, observed: &LoadBalancer, internal: bool) -> bool {
    inputs.values.text(&keys::SUBNETS).is_none() && (observed.scheme == INTERNAL) != internal
}

/// Returns the additional tags, without those that identify the load balancer.
fn additional_tags(inputs: &Inputs<'_>, all: &Tags) -> Tags {
    let additional = inputs.values.text(&keys::ADDITIONAL_TAGS).map(keys::pairs).unwrap_or_default();
    additional.into_iter().filter(|(key, value)| all.get(key) == Some(value)).collect()
}

/// Returns the instances of a load balancer, sorted.
pub(super) fn instances(observed: &LoadBalancer) -> Vec<String> {
    let mut ids: Vec<_> = observed.instances.iter().map(|InstanceId { instance_id }| instance_id.clone()).collect();
    ids.sort();
    ids
}

fn warnings(
    inputs: &Inputs<'_>,
    observed: Option<&LoadBalancer>,
    desired: &[Listener],
    check: &HealthCheck,
) -> Vec<Warning> {
    let scheme = observed.and_then(|observed| scheme_warning(inputs, observed));
    let has_v6 = inputs.spec.ip_families.contains(&IpFamily::IPv6);
    let families =
        has_v6.then(|| ignored("spec.ipFamilies: a Classic Load Balancer has IPv4 addresses only".to_owned()));
    let of_network = [keys::EIP_ALLOCATIONS.key, keys::PRIVATE_IPV4_ADDRESSES.key].into_iter();
    let of_network = of_network.filter(|key| inputs.values.0.contains_key(*key)).map(|key| {
        let kind = keys::TYPE.key;
        ignored(format!("{key} has no effect on a Classic Load Balancer; a Network Load Balancer has {kind}: nlb"))
    });
    let others = scheme.into_iter().chain(families).chain(of_network);
    let others = others.chain(policies::warning(inputs, desired)).chain(health_check::warning(inputs, check));
    listeners::warnings(inputs).into_iter().chain(others).collect()
}

/// Returns the warning about a requested scheme that differs from the existing one.
fn scheme_warning(inputs: &Inputs<'_>, observed: &LoadBalancer) -> Option<Warning> {
    let requested = if inputs.is_internal() { INTERNAL } else { "internet-facing" };
    let is_changed = (observed.scheme == INTERNAL) != inputs.is_internal();
    is_changed.then(|| {
        let (name, scheme) = (&observed.name, &observed.scheme);
        ignored(format!(
            "load balancer {name} is {scheme} and the Service requests {requested}, but the scheme is fixed at creation; create the \
             Service again, or set {} back",
            keys::INTERNAL.key
        ))
    })
}
