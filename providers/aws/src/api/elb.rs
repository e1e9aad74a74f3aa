//! Elastic Load Balancing 2012-06-01: Classic Load Balancers.

use bowline_cloud::Result;
use bowline_http::{Page, all_pages};
use serde::Deserialize;

use super::xml::{Members, member_tags, members, token};
use super::{Query, Service, Tags};

/// Name in the call layer, and version of the API.
pub(crate) const API: (&str, &str) = ("elb", "2012-06-01");

/// Maximum number of load balancers in one request for tags.
pub(crate) const TAGS_BATCH: usize = 20;

/// List of tags in a request.
const TAGS: &str = "Tags.member";

/// Client of the API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Elb(pub(crate) Service);

/// A Classic Load Balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LoadBalancer {
    #[serde(rename = "LoadBalancerName")]
    pub(crate) name: String,
    #[serde(rename = "DNSName", default)]
    pub(crate) dns_name: String,
    /// `internet-facing` or `internal`.
    #[serde(default)]
    pub(crate) scheme: String,
    #[serde(rename = "VPCId", default)]
    pub(crate) vpc_id: String,
    #[serde(default, deserialize_with = "members")]
    pub(crate) subnets: Vec<String>,
    #[serde(default, deserialize_with = "members")]
    pub(crate) security_groups: Vec<String>,
    #[serde(rename = "ListenerDescriptions", default, deserialize_with = "members")]
    pub(crate) listeners: Vec<ListenerDescription>,
    #[serde(rename = "BackendServerDescriptions", default, deserialize_with = "members")]
    pub(crate) backends: Vec<BackendDescription>,
    #[serde(default, deserialize_with = "members")]
    pub(crate) instances: Vec<InstanceId>,
    #[serde(default)]
    pub(crate) health_check: Option<HealthCheck>,
    #[serde(default)]
    pub(crate) policies: PolicyNames,
}

/// Names of the policies of a load balancer, whether they are used or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PolicyNames {
    /// Policies that are not for stickiness: for TLS and the PROXY protocol.
    #[serde(default, deserialize_with = "members")]
    pub(crate) other_policies: Vec<String>,
}

/// A listener with its policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListenerDescription {
    pub(crate) listener: Listener,
    #[serde(default, deserialize_with = "members")]
    pub(crate) policy_names: Vec<String>,
}

/// A listener.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Listener {
    #[serde(rename = "LoadBalancerPort")]
    pub(crate) port: u16,
    pub(crate) protocol: String,
    pub(crate) instance_port: u16,
    #[serde(default)]
    pub(crate) instance_protocol: String,
    /// ARN of the certificate; `None` without TLS.
    #[serde(rename = "SSLCertificateId", default)]
    pub(crate) certificate: Option<String>,
}

/// Policies of an instance port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BackendDescription {
    pub(crate) instance_port: u16,
    #[serde(default, deserialize_with = "members")]
    pub(crate) policy_names: Vec<String>,
}

/// A registered instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InstanceId {
    pub(crate) instance_id: String,
}

/// Health check of the instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HealthCheck {
    /// `TCP:30080`, `HTTP:30080/healthz`.
    pub(crate) target: String,
    pub(crate) interval: i32,
    pub(crate) timeout: i32,
    pub(crate) unhealthy_threshold: i32,
    pub(crate) healthy_threshold: i32,
}

/// Attributes of a load balancer. In a request, those without a value are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Attributes {
    #[serde(default)]
    pub(crate) cross_zone_load_balancing: Enabled,
    #[serde(default)]
    pub(crate) access_log: AccessLog,
    #[serde(default)]
    pub(crate) connection_draining: ConnectionDraining,
    #[serde(default)]
    pub(crate) connection_settings: ConnectionSettings,
}

/// A feature that is on or off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Enabled {
    #[serde(default)]
    pub(crate) enabled: bool,
}

/// Access log in a bucket of S3.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AccessLog {
    #[serde(default)]
    pub(crate) enabled: bool,
    #[serde(default)]
    pub(crate) emit_interval: Option<i32>,
    #[serde(rename = "S3BucketName", default)]
    pub(crate) bucket: Option<String>,
    #[serde(rename = "S3BucketPrefix", default)]
    pub(crate) prefix: Option<String>,
}

/// Time for which connections of a deregistered instance continue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ConnectionDraining {
    #[serde(default)]
    pub(crate) enabled: bool,
    #[serde(default)]
    pub(crate) timeout: Option<i32>,
}

/// Timeout of idle connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ConnectionSettings {
    #[serde(default)]
    pub(crate) idle_timeout: Option<i32>,
}

/// A load balancer to create.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NewLoadBalancer {
    pub(crate) name: String,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) subnets: Vec<String>,
    pub(crate) security_groups: Vec<String>,
    pub(crate) internal: bool,
    pub(crate) tags: Tags,
}

/// A policy to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewPolicy {
    pub(crate) name: String,
    /// `ProxyProtocolPolicyType` or `SSLNegotiationPolicyType`.
    pub(crate) kind: &'static str,
    /// Name and value of its attribute.
    pub(crate) attribute: (&'static str, String),
}

// ---- responses

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeLoadBalancersResponse {
    describe_load_balancers_result: LoadBalancers,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LoadBalancers {
    load_balancer_descriptions: Members<LoadBalancer>,
    #[serde(default, deserialize_with = "token")]
    next_marker: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeTagsResponse {
    describe_tags_result: TagDescriptions,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TagDescriptions {
    tag_descriptions: Members<TagDescription>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TagDescription {
    load_balancer_name: String,
    #[serde(default, deserialize_with = "member_tags")]
    tags: Tags,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateLoadBalancerResponse {
    create_load_balancer_result: Created,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "DNSName")]
    dns_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeLoadBalancerAttributesResponse {
    describe_load_balancer_attributes_result: AttributesResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributesResult {
    load_balancer_attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeAccountLimitsResponse {
    describe_account_limits_result: Limits,
}

#[derive(Deserialize)]
struct Limits {
    #[serde(rename = "Limits")]
    limits: Members<Limit>,
}

/// A limit of the account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Limit {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) max: String,
}

// ---- calls

fn of(query: Query, name: &str) -> Query {
    query.with("LoadBalancerName", name)
}

impl Elb {
    /// Reads load balancers by name. AWS rejects the whole request if one does not exist.
    pub(crate) async fn load_balancers_by_name(&self, names: &[String]) -> Result<Vec<LoadBalancer>> {
        let query = Query::read("DescribeLoadBalancers").with_members("LoadBalancerNames", names);
        self.load_balancers_matching(query).await
    }

    /// Reads all load balancers of the region.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>> {
        self.load_balancers_matching(Query::read("DescribeLoadBalancers")).await
    }

    async fn load_balancers_matching(&self, query: Query) -> Result<Vec<LoadBalancer>> {
        all_pages(query.action, |token| async {
            let response: DescribeLoadBalancersResponse = self.0.send(query.clone().with_some("Marker", token)).await?;
            let result = response.describe_load_balancers_result;
            Ok(Page { items: result.load_balancer_descriptions.items, next: result.next_marker })
        })
        .await
    }

    /// Reads the tags of at most [`TAGS_BATCH`] load balancers, by name.
    pub(crate) async fn tags(&self, names: &[String]) -> Result<Vec<(String, Tags)>> {
        let query = Query::read("DescribeTags").with_members("LoadBalancerNames", names);
        let response: DescribeTagsResponse = self.0.send(query).await?;
        let tags = response.describe_tags_result.tag_descriptions.items;
        Ok(tags.into_iter().map(|tags| (tags.load_balancer_name, tags.tags)).collect())
    }

    /// Adds tags to a load balancer, and replaces those with the same keys.
    pub(crate) async fn add_tags(&self, name: &str, tags: &Tags) -> Result<()> {
        let query = Query::write("AddTags").with("LoadBalancerNames.member.1", name);
        self.0.execute(query.with_pairs(TAGS, tags)).await
    }

    /// Creates a load balancer, and returns its DNS name.
    pub(crate) async fn create(&self, new: &NewLoadBalancer) -> Result<String> {
        let query = with_listeners(of(Query::create("CreateLoadBalancer"), &new.name), &new.listeners);
        let query = query.with_members("Subnets", &new.subnets).with_members("SecurityGroups", &new.security_groups);
        let query = query.with_some("Scheme", new.internal.then_some("internal"));
        let response: CreateLoadBalancerResponse = self.0.send(query.with_pairs(TAGS, &new.tags)).await?;
        Ok(response.create_load_balancer_result.dns_name)
    }

    /// Deletes a load balancer; one that does not exist is a success.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        self.0.execute(of(Query::write("DeleteLoadBalancer"), name)).await
    }

    /// Creates listeners.
    pub(crate) async fn create_listeners(&self, name: &str, listeners: &[Listener]) -> Result<()> {
        let query = of(Query::write("CreateLoadBalancerListeners"), name);
        self.0.execute(with_listeners(query, listeners)).await
    }

    /// Deletes the listeners on these ports.
    pub(crate) async fn delete_listeners(&self, name: &str, ports: &[u16]) -> Result<()> {
        let query = of(Query::write("DeleteLoadBalancerListeners"), name);
        self.0.execute(query.with_members("LoadBalancerPorts", ports)).await
    }

    /// Adds subnets.
    pub(crate) async fn attach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        let query = of(Query::write("AttachLoadBalancerToSubnets"), name);
        self.0.execute(query.with_members("Subnets", subnets)).await
    }

    /// Removes subnets.
    pub(crate) async fn detach_subnets(&self, name: &str, subnets: &[String]) -> Result<()> {
        let query = of(Query::write("DetachLoadBalancerFromSubnets"), name);
        self.0.execute(query.with_members("Subnets", subnets)).await
    }

    /// Replaces the security groups.
    pub(crate) async fn apply_security_groups(&self, name: &str, groups: &[String]) -> Result<()> {
        let query = of(Query::write("ApplySecurityGroupsToLoadBalancer"), name);
        self.0.execute(query.with_members("SecurityGroups", groups)).await
    }

    /// Sets the health check.
    pub(crate) async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> Result<()> {
        let query = of(Query::write("ConfigureHealthCheck"), name).with("HealthCheck.Target", &check.target);
        let query = query.with("HealthCheck.Interval", check.interval).with("HealthCheck.Timeout", check.timeout);
        let query = query.with("HealthCheck.UnhealthyThreshold", check.unhealthy_threshold);
        self.0.execute(query.with("HealthCheck.HealthyThreshold", check.healthy_threshold)).await
    }

    /// Reads the attributes.
    pub(crate) async fn attributes(&self, name: &str) -> Result<Attributes> {
        let query = of(Query::read("DescribeLoadBalancerAttributes"), name);
        let response: DescribeLoadBalancerAttributesResponse = self.0.send(query).await?;
        Ok(response.describe_load_balancer_attributes_result.load_balancer_attributes)
    }

    /// Sets attributes.
    pub(crate) async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> Result<()> {
        let key = |name: &str| format!("LoadBalancerAttributes.{name}");
        let (log, draining) = (&attributes.access_log, &attributes.connection_draining);
        let query = of(Query::write("ModifyLoadBalancerAttributes"), name)
            .with(key("CrossZoneLoadBalancing.Enabled"), attributes.cross_zone_load_balancing.enabled)
            .with(key("AccessLog.Enabled"), log.enabled)
            .with_some(key("AccessLog.EmitInterval"), log.emit_interval)
            .with_some(key("AccessLog.S3BucketName"), log.bucket.as_ref())
            .with_some(key("AccessLog.S3BucketPrefix"), log.prefix.as_ref())
            .with(key("ConnectionDraining.Enabled"), draining.enabled)
            .with_some(key("ConnectionDraining.Timeout"), draining.timeout)
            .with_some(key("ConnectionSettings.IdleTimeout"), attributes.connection_settings.idle_timeout);
        self.0.execute(query).await
    }

    /// Creates a policy. AWS rejects a second one of the same name.
    pub(crate) async fn create_policy(&self, name: &str, policy: &NewPolicy) -> Result<()> {
        let (attribute, value) = &policy.attribute;
        let query = of(Query::create("CreateLoadBalancerPolicy"), name).with("PolicyName", &policy.name);
        let query = query.with("PolicyTypeName", policy.kind);
        let query = query.with("PolicyAttributes.member.1.AttributeName", attribute);
        self.0.execute(query.with("PolicyAttributes.member.1.AttributeValue", value)).await
    }

    /// Replaces the policies of an instance port.
    pub(crate) async fn set_backend_policies(&self, name: &str, port: u16, policies: &[String]) -> Result<()> {
        let query = of(Query::write("SetLoadBalancerPoliciesForBackendServer"), name).with("InstancePort", port);
        self.0.execute(with_policies(query, policies)).await
    }

    /// Replaces the policies of a listener.
    pub(crate) async fn set_listener_policies(&self, name: &str, port: u16, policies: &[String]) -> Result<()> {
        let query = of(Query::write("SetLoadBalancerPoliciesOfListener"), name).with("LoadBalancerPort", port);
        self.0.execute(with_policies(query, policies)).await
    }

    /// Registers instances as targets.
    pub(crate) async fn register_instances(&self, name: &str, ids: &[String]) -> Result<()> {
        self.0.execute(with_instances("RegisterInstancesWithLoadBalancer", name, ids)).await
    }

    /// Deregisters instances.
    pub(crate) async fn deregister_instances(&self, name: &str, ids: &[String]) -> Result<()> {
        self.0.execute(with_instances("DeregisterInstancesFromLoadBalancer", name, ids)).await
    }

    /// Reads the limits of the account.
    pub(crate) async fn limits(&self) -> Result<Vec<Limit>> {
        let response: DescribeAccountLimitsResponse = self.0.send(Query::read("DescribeAccountLimits")).await?;
        Ok(response.describe_account_limits_result.limits.items)
    }
}

fn with_listeners(query: Query, listeners: &[Listener]) -> Query {
    query.with_each("Listeners.member", listeners, |query, item, listener| {
        query
            .with(format!("{item}.Protocol"), &listener.protocol)
            .with(format!("{item}.LoadBalancerPort"), listener.port)
            .with(format!("{item}.InstanceProtocol"), &listener.instance_protocol)
            .with(format!("{item}.InstancePort"), listener.instance_port)
            .with_some(format!("{item}.SSLCertificateId"), listener.certificate.as_ref())
    })
}

/// Adds a list of policies; an empty list must be sent, too.
fn with_policies(query: Query, policies: &[String]) -> Query {
    match policies {
        [] => query.with("PolicyNames", ""),
        policies => query.with_members("PolicyNames", policies),
    }
}

fn with_instances(action: &'static str, name: &str, ids: &[String]) -> Query {
    of(Query::write(action), name)
        .with_each("Instances.member", ids, |query, item, id| query.with(format!("{item}.InstanceId"), id))
}
