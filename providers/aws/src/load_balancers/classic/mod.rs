//! Classic Load Balancers.
//!
//! ```text
//!  Service ──desired──► listeners, attributes, health check, policies, groups ─┐
//!  DescribeLoadBalancers, tags, attributes ──► Observed ────────────────────────┴──plan──► steps ──apply──► one call each
//! ```
//!
//! The first version of the API changes a load balancer in parts, so each part has its own step, in the order of the Go manager.

mod apply;
mod attributes;
mod desired;
mod group_users;
mod groups;
mod health_check;
mod listeners;
mod plan;
mod policies;
#[cfg(test)]
mod tests;

use bowline_cloud::{LoadBalancerKind, Result};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{IpFamily, Warning};

use super::group_steps::GroupRef;
use super::{IGNORED, Kind, annotations, kind_name};
use crate::Aws;
use crate::api::{Tags, elb};

pub(super) use group_users::GroupUsers;
pub(super) use plan::{plan, removal};

/// A Classic Load Balancer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Observed {
    pub(crate) load_balancer: elb::LoadBalancer,
    pub(crate) tags: Tags,
    pub(crate) attributes: elb::Attributes,
}

/// Change of a Classic Load Balancer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Creates it with these security groups.
    Create(Box<elb::NewLoadBalancer>, Vec<GroupRef>),
    /// Removes subnets.
    DetachSubnets(Vec<String>),
    /// Adds subnets.
    AttachSubnets(Vec<String>),
    /// Replaces its security groups.
    SetSecurityGroups(Vec<GroupRef>),
    /// Deletes the listeners on these ports.
    DeleteListeners(Vec<u16>),
    /// Creates listeners.
    CreateListeners(Vec<elb::Listener>),
    /// Creates the policy for the PROXY protocol.
    CreateProxyProtocolPolicy,
    /// Replaces the policies of an instance port.
    SetBackendPolicies(u16, Vec<String>),
    /// Adds or replaces tags.
    AddTags(Tags),
    /// Sets attributes.
    SetAttributes(Box<elb::Attributes>),
    /// Creates a TLS policy.
    CreateTlsPolicy(elb::NewPolicy),
    /// Sets the TLS policy of the listener on this port.
    SetTlsPolicy(u16, String),
    /// Sets the health check.
    SetHealthCheck(elb::HealthCheck),
    /// Registers instances.
    Register(Vec<String>),
    /// Deregisters instances.
    Deregister(Vec<String>),
    /// Deletes it.
    Delete,
}

/// Annotations that request an internal load balancer.
const REQUESTED_BY: &[(&str, &str)] = &[(annotations::INTERNAL.key, "true")];

/// Returns the capabilities.
pub(crate) fn capabilities(internal: bool) -> LoadBalancerKind {
    LoadBalancerKind {
        name: kind_name(Kind::Classic, internal),
        requested_by: if internal { REQUESTED_BY } else { &[] },
        checks_spec: true,
        tcp: true,
        source_ranges: true,
        local_traffic_policy: true,
        proxy_protocol: vec![ProxyProtocol::V1],
        internal,
        idle_timeout: true,
        health_check_settings: true,
        ip_families: vec![IpFamily::IPv4],
        ..LoadBalancerKind::default()
    }
}

/// Creates the warning about a setting without effect.
fn ignored(message: String) -> Warning {
    Warning { reason: IGNORED.to_owned(), message }
}

impl Aws {
    /// Reads what the listing does not contain. A load balancer that is to be deleted needs nothing.
    pub(super) async fn observe_classic(
        &self,
        one: &elb::LoadBalancer,
        tags: &Tags,
        is_desired: bool,
    ) -> Result<Observed> {
        let attributes = if is_desired { self.elb.attributes(&one.name).await? } else { elb::Attributes::default() };
        Ok(Observed { load_balancer: one.clone(), tags: tags.clone(), attributes })
    }
}
