//! Records of Network Load Balancers, their listeners and target groups.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::api::Tags;
use crate::api::xml::members;

/// A load balancer of this API: network, application or gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LoadBalancer {
    #[serde(rename = "LoadBalancerArn")]
    pub(crate) arn: String,
    #[serde(rename = "LoadBalancerName")]
    pub(crate) name: String,
    #[serde(rename = "DNSName", default)]
    pub(crate) dns_name: String,
    #[serde(default)]
    pub(crate) scheme: String,
    #[serde(default)]
    pub(crate) vpc_id: String,
    #[serde(default)]
    pub(crate) state: State,
    /// `network`, `application` or `gateway`.
    #[serde(rename = "Type", default)]
    pub(crate) kind: String,
    #[serde(rename = "AvailabilityZones", default, deserialize_with = "members")]
    pub(crate) zones: Vec<Zone>,
    #[serde(default, deserialize_with = "members")]
    pub(crate) security_groups: Vec<String>,
}

/// State of a load balancer: `provisioning`, `active`, `active_impaired` or `failed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct State {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) reason: String,
}

/// Zone of a load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Zone {
    #[serde(default)]
    pub(crate) subnet_id: String,
    #[serde(rename = "LoadBalancerAddresses", default, deserialize_with = "members")]
    pub(crate) addresses: Vec<Address>,
}

/// Address of a load balancer in a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Address {
    /// Elastic IP address; empty for an address that AWS has assigned.
    #[serde(default)]
    pub(crate) allocation_id: String,
    #[serde(rename = "PrivateIPv4Address", default)]
    pub(crate) private_ipv4_address: String,
}

/// A listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Listener {
    #[serde(rename = "ListenerArn")]
    pub(crate) arn: String,
    pub(crate) port: u16,
    /// `TCP`, `UDP`, `TCP_UDP` or `TLS`.
    pub(crate) protocol: String,
    #[serde(default, deserialize_with = "members")]
    pub(crate) certificates: Vec<Certificate>,
    #[serde(default)]
    pub(crate) ssl_policy: String,
    #[serde(default, deserialize_with = "members")]
    pub(crate) default_actions: Vec<Action>,
}

/// Certificate of a listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Certificate {
    #[serde(default)]
    pub(crate) certificate_arn: String,
}

/// Action of a listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Action {
    #[serde(default)]
    pub(crate) target_group_arn: String,
}

/// A target group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TargetGroup {
    #[serde(rename = "TargetGroupArn")]
    pub(crate) arn: String,
    #[serde(rename = "TargetGroupName")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) protocol: String,
    #[serde(default)]
    pub(crate) port: u16,
    #[serde(default)]
    pub(crate) vpc_id: String,
    #[serde(default)]
    pub(crate) health_check_protocol: String,
    #[serde(default)]
    pub(crate) health_check_port: String,
    #[serde(default)]
    pub(crate) health_check_path: String,
    #[serde(rename = "HealthCheckIntervalSeconds", default)]
    pub(crate) health_check_interval: i32,
    #[serde(rename = "HealthyThresholdCount", default)]
    pub(crate) healthy_threshold: i32,
    #[serde(rename = "UnhealthyThresholdCount", default)]
    pub(crate) unhealthy_threshold: i32,
    #[serde(default, deserialize_with = "members")]
    pub(crate) load_balancer_arns: Vec<String>,
}

/// A target.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Target {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) port: u16,
}

/// Health of a target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TargetHealth {
    pub(crate) target: Target,
    #[serde(rename = "TargetHealth", default)]
    pub(crate) health: Health,
}

/// State of a target, such as `healthy` or `draining`, with its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Health {
    #[serde(default)]
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) reason: String,
}

/// Attributes by key.
pub(crate) type Attributes = BTreeMap<String, String>;

/// A load balancer to create.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NewLoadBalancer {
    pub(crate) name: String,
    pub(crate) internal: bool,
    pub(crate) subnets: Vec<SubnetMapping>,
    pub(crate) security_groups: Vec<String>,
    pub(crate) tags: Tags,
}

/// Subnet of a load balancer, with the address that it gets there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SubnetMapping {
    pub(crate) subnet_id: String,
    pub(crate) allocation_id: Option<String>,
    pub(crate) private_ipv4_address: Option<String>,
}

/// Settings of a target group. Those that differ can be changed, but not `port`, `protocol`, `vpc_id` and `name`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NewTargetGroup {
    pub(crate) name: String,
    pub(crate) vpc_id: String,
    pub(crate) protocol: String,
    pub(crate) port: u16,
    pub(crate) health_check: GroupHealthCheck,
    pub(crate) tags: Tags,
}

/// Health check of a target group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupHealthCheck {
    pub(crate) protocol: String,
    /// A number, or `traffic-port`.
    pub(crate) port: String,
    /// Path, if the protocol is HTTP or HTTPS.
    pub(crate) path: Option<String>,
    pub(crate) interval: i32,
    pub(crate) healthy_threshold: i32,
    pub(crate) unhealthy_threshold: i32,
}

/// Longest default timeout of a health check in seconds: that of TCP and HTTPS.
const MAX_DEFAULT_TIMEOUT: i32 = 10;

/// Shortest default timeout in seconds: that of HTTP.
const MIN_DEFAULT_TIMEOUT: i32 = 6;

/// Returns the timeout of a health check with this interval; `None` for the default one. AWS rejects a timeout that is longer than
/// the interval.
// upstream: sets no timeout, so that AWS rejects a short interval.
pub(super) fn timeout_for(interval: i32) -> Option<i32> {
    (interval < MAX_DEFAULT_TIMEOUT).then(|| interval.min(MIN_DEFAULT_TIMEOUT))
}

/// Changes of a target group's health check; those without a value stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HealthCheckChange {
    pub(crate) protocol: Option<String>,
    pub(crate) port: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) interval: Option<i32>,
    pub(crate) healthy_threshold: Option<i32>,
    pub(crate) unhealthy_threshold: Option<i32>,
}

/// Settings of a listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListenerSettings {
    pub(crate) port: u16,
    pub(crate) protocol: String,
    pub(crate) target_group_arn: String,
    /// ARN of the certificate, for TLS.
    pub(crate) certificate: Option<String>,
    /// TLS policy; `None` for the default of AWS.
    pub(crate) ssl_policy: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_a_health_check_is_not_longer_than_its_interval() {
        assert_eq!([5, 7, 9].map(timeout_for), [Some(5), Some(6), Some(6)]);
        assert_eq!([10, 30].map(timeout_for), [None, None]);
    }
}
