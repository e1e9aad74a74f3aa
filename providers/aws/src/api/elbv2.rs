//! Elastic Load Balancing 2015-12-01: Network Load Balancers.

mod records;

use bowline_cloud::Result;
use bowline_http::{Page, all_pages};
use serde::Deserialize;

use super::elb::Limit;
use super::xml::{Members, member_tags, token};
use super::{Query, Service, Tags};
use records::timeout_for;
#[cfg(test)]
pub(crate) use records::{Action, Certificate, Health, State, Zone};
pub(crate) use records::{
    Address, Attributes, GroupHealthCheck, HealthCheckChange, Listener, ListenerSettings, LoadBalancer,
    NewLoadBalancer, NewTargetGroup, SubnetMapping, Target, TargetGroup, TargetHealth,
};

/// Name in the call layer, and version of the API.
pub(crate) const API: (&str, &str) = ("elbv2", "2015-12-01");

/// Maximum number of resources in one request for tags, and of names in one for load balancers.
pub(crate) const BATCH: usize = 20;

/// Maximum number of targets in one request.
// upstream: 100.
pub(crate) const TARGETS_BATCH: usize = 100;

/// Lists of tags and of attributes in a request.
const TAGS: &str = "Tags.member";
const ATTRIBUTES: &str = "Attributes.member";

/// Client of the API. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ElbV2(pub(crate) Service);

// ---- responses

/// Declares a response: its result element, and the list in it.
macro_rules! listing {
    ($response:ident, $result:literal, $item:ty) => {
        #[derive(Deserialize)]
        struct $response {
            #[serde(rename = $result)]
            result: Listing<$item>,
        }

        impl From<$response> for Page<$item> {
            fn from(response: $response) -> Page<$item> {
                Page { items: response.result.list.items, next: response.result.next }
            }
        }
    };
}

/// The only list of a result, and the marker of the next page.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Listing<T> {
    #[serde(
        alias = "LoadBalancers",
        alias = "Listeners",
        alias = "TargetGroups",
        alias = "TargetHealthDescriptions",
        alias = "TagDescriptions",
        alias = "Attributes",
        alias = "Limits"
    )]
    list: Members<T>,
    #[serde(rename = "NextMarker", default, deserialize_with = "token")]
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TagDescription {
    resource_arn: String,
    #[serde(default, deserialize_with = "member_tags")]
    tags: Tags,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    key: String,
    #[serde(default)]
    value: String,
}

listing!(DescribeLoadBalancers, "DescribeLoadBalancersResult", LoadBalancer);
listing!(CreateLoadBalancer, "CreateLoadBalancerResult", LoadBalancer);
listing!(DescribeListeners, "DescribeListenersResult", Listener);
listing!(DescribeTargetGroups, "DescribeTargetGroupsResult", TargetGroup);
listing!(CreateTargetGroup, "CreateTargetGroupResult", TargetGroup);
listing!(DescribeTargetHealth, "DescribeTargetHealthResult", TargetHealth);
listing!(DescribeTags, "DescribeTagsResult", TagDescription);
listing!(LoadBalancerAttributes, "DescribeLoadBalancerAttributesResult", Attribute);
listing!(TargetGroupAttributes, "DescribeTargetGroupAttributesResult", Attribute);
listing!(DescribeAccountLimits, "DescribeAccountLimitsResult", Limit);

// ---- calls

impl ElbV2 {
    /// Reads at most [`BATCH`] load balancers by name. AWS rejects the whole request if one does not exist.
    pub(crate) async fn load_balancers_by_name(&self, names: &[String]) -> Result<Vec<LoadBalancer>> {
        self.load_balancers_matching(Query::read("DescribeLoadBalancers").with_members("Names", names)).await
    }

    /// Reads all load balancers of the region.
    pub(crate) async fn load_balancers(&self) -> Result<Vec<LoadBalancer>> {
        self.load_balancers_matching(Query::read("DescribeLoadBalancers")).await
    }

    async fn load_balancers_matching(&self, query: Query) -> Result<Vec<LoadBalancer>> {
        all_pages(query.action, |token| async {
            let response: DescribeLoadBalancers = self.0.send(query.clone().with_some("Marker", token)).await?;
            Ok(Page::from(response))
        })
        .await
    }

    /// Reads the tags of at most [`BATCH`] load balancers, target groups or listeners, by ARN.
    pub(crate) async fn tags(&self, arns: &[String]) -> Result<Vec<(String, Tags)>> {
        let query = Query::read("DescribeTags").with_members("ResourceArns", arns);
        let response: DescribeTags = self.0.send(query).await?;
        Ok(Page::from(response).items.into_iter().map(|tags| (tags.resource_arn, tags.tags)).collect())
    }

    /// Removes the tags with these keys.
    pub(crate) async fn remove_tags(&self, arns: &[String], keys: &[String]) -> Result<()> {
        let query = Query::write("RemoveTags").with_members("ResourceArns", arns);
        self.0.execute(query.with_members("TagKeys", keys)).await
    }

    /// Adds tags, and replaces those with the same keys.
    pub(crate) async fn add_tags(&self, arns: &[String], tags: &Tags) -> Result<()> {
        let query = Query::write("AddTags").with_members("ResourceArns", arns);
        self.0.execute(query.with_pairs(TAGS, tags)).await
    }

    /// Creates a Network Load Balancer. AWS returns the existing one if it has the same name and settings.
    pub(crate) async fn create(&self, new: &NewLoadBalancer) -> Result<Option<LoadBalancer>> {
        let query = Query::create("CreateLoadBalancer").with("Name", &new.name).with("Type", "network");
        let query = query.with_some("Scheme", new.internal.then_some("internal"));
        let query = query.with_each("SubnetMappings.member", &new.subnets, |query, item, subnet| {
            query
                .with(format!("{item}.SubnetId"), &subnet.subnet_id)
                .with_some(format!("{item}.AllocationId"), subnet.allocation_id.as_ref())
                .with_some(format!("{item}.PrivateIPv4Address"), subnet.private_ipv4_address.as_ref())
        });
        let query = query.with_members("SecurityGroups", &new.security_groups);
        let response: CreateLoadBalancer = self.0.send(query.with_pairs(TAGS, &new.tags)).await?;
        Ok(Page::from(response).items.pop())
    }

    /// Deletes a load balancer; one that does not exist is a success.
    pub(crate) async fn delete(&self, arn: &str) -> Result<()> {
        self.0.execute(Query::write("DeleteLoadBalancer").with("LoadBalancerArn", arn)).await
    }

    /// Replaces the security groups.
    pub(crate) async fn set_security_groups(&self, arn: &str, groups: &[String]) -> Result<()> {
        let query = Query::write("SetSecurityGroups").with("LoadBalancerArn", arn);
        self.0.execute(query.with_members("SecurityGroups", groups)).await
    }

    /// Reads the attributes of a load balancer.
    pub(crate) async fn attributes(&self, arn: &str) -> Result<Attributes> {
        let query = Query::read("DescribeLoadBalancerAttributes").with("LoadBalancerArn", arn);
        self.0.send::<LoadBalancerAttributes>(query).await.map(|response| by_key(Page::from(response).items))
    }

    /// Sets attributes of a load balancer; the others stay.
    pub(crate) async fn modify_attributes(&self, arn: &str, attributes: &Attributes) -> Result<()> {
        let query = Query::write("ModifyLoadBalancerAttributes").with("LoadBalancerArn", arn);
        self.0.execute(query.with_pairs(ATTRIBUTES, attributes)).await
    }

    /// Reads the listeners of a load balancer.
    pub(crate) async fn listeners(&self, arn: &str) -> Result<Vec<Listener>> {
        let query = Query::read("DescribeListeners").with("LoadBalancerArn", arn);
        all_pages(query.action, |token| async {
            let response: DescribeListeners = self.0.send(query.clone().with_some("Marker", token)).await?;
            Ok(Page::from(response))
        })
        .await
    }

    /// Creates a listener. AWS rejects a second one on the same port and protocol.
    pub(crate) async fn create_listener(&self, arn: &str, new: &ListenerSettings, tags: &Tags) -> Result<()> {
        let query = with_listener(Query::create("CreateListener").with("LoadBalancerArn", arn), new);
        self.0.execute(query.with_pairs(TAGS, tags)).await
    }

    /// Changes a listener.
    pub(crate) async fn modify_listener(&self, listener: &str, settings: &ListenerSettings) -> Result<()> {
        let query = Query::write("ModifyListener").with("ListenerArn", listener);
        self.0.execute(with_listener(query, settings)).await
    }

    /// Deletes a listener.
    pub(crate) async fn delete_listener(&self, listener: &str) -> Result<()> {
        self.0.execute(Query::write("DeleteListener").with("ListenerArn", listener)).await
    }

    /// Reads target groups by name. AWS rejects the whole request if one does not exist.
    pub(crate) async fn target_groups_by_name(&self, names: &[String]) -> Result<Vec<TargetGroup>> {
        self.target_groups_matching(Query::read("DescribeTargetGroups").with_members("Names", names)).await
    }

    /// Reads all target groups of the region.
    pub(crate) async fn target_groups(&self) -> Result<Vec<TargetGroup>> {
        self.target_groups_matching(Query::read("DescribeTargetGroups")).await
    }

    async fn target_groups_matching(&self, query: Query) -> Result<Vec<TargetGroup>> {
        all_pages(query.action, |token| async {
            let response: DescribeTargetGroups = self.0.send(query.clone().with_some("Marker", token)).await?;
            Ok(Page::from(response))
        })
        .await
    }

    /// Creates a target group for instances, and returns its ARN. AWS returns the existing one if it has the same name and settings.
    pub(crate) async fn create_target_group(&self, new: &NewTargetGroup) -> Result<Option<TargetGroup>> {
        let check = &new.health_check;
        let query = Query::create("CreateTargetGroup").with("Name", &new.name).with("VpcId", &new.vpc_id);
        let query = query.with("Protocol", &new.protocol).with("Port", new.port).with("TargetType", "instance");
        let query = query
            .with("HealthCheckProtocol", &check.protocol)
            .with("HealthCheckPort", &check.port)
            .with_some("HealthCheckPath", check.path.as_ref())
            .with("HealthCheckIntervalSeconds", check.interval)
            .with_some("HealthCheckTimeoutSeconds", timeout_for(check.interval))
            .with("HealthyThresholdCount", check.healthy_threshold)
            .with("UnhealthyThresholdCount", check.unhealthy_threshold);
        let response: CreateTargetGroup = self.0.send(query.with_pairs(TAGS, &new.tags)).await?;
        Ok(Page::from(response).items.pop())
    }

    /// Changes the health check of a target group.
    pub(crate) async fn modify_target_group(&self, group: &str, change: &HealthCheckChange) -> Result<()> {
        let query = Query::write("ModifyTargetGroup")
            .with("TargetGroupArn", group)
            .with_some("HealthCheckProtocol", change.protocol.as_ref())
            .with_some("HealthCheckPort", change.port.as_ref())
            .with_some("HealthCheckPath", change.path.as_ref())
            .with_some("HealthCheckIntervalSeconds", change.interval)
            .with_some("HealthCheckTimeoutSeconds", change.interval.and_then(timeout_for))
            .with_some("HealthyThresholdCount", change.healthy_threshold)
            .with_some("UnhealthyThresholdCount", change.unhealthy_threshold);
        self.0.execute(query).await
    }

    /// Deletes a target group that no listener uses; one that does not exist is a success.
    pub(crate) async fn delete_target_group(&self, group: &str) -> Result<()> {
        self.0.execute(Query::write("DeleteTargetGroup").with("TargetGroupArn", group)).await
    }

    /// Reads the attributes of a target group.
    pub(crate) async fn target_group_attributes(&self, group: &str) -> Result<Attributes> {
        let query = Query::read("DescribeTargetGroupAttributes").with("TargetGroupArn", group);
        self.0.send::<TargetGroupAttributes>(query).await.map(|response| by_key(Page::from(response).items))
    }

    /// Sets attributes of a target group; the others stay.
    pub(crate) async fn modify_target_group_attributes(&self, group: &str, attributes: &Attributes) -> Result<()> {
        let query = Query::write("ModifyTargetGroupAttributes").with("TargetGroupArn", group);
        self.0.execute(query.with_pairs(ATTRIBUTES, attributes)).await
    }

    /// Reads the targets of a target group.
    pub(crate) async fn targets(&self, group: &str) -> Result<Vec<TargetHealth>> {
        let query = Query::read("DescribeTargetHealth").with("TargetGroupArn", group);
        self.0.send::<DescribeTargetHealth>(query).await.map(|response| Page::from(response).items)
    }

    /// Registers at most [`TARGETS_BATCH`] targets.
    pub(crate) async fn register_targets(&self, group: &str, targets: &[Target]) -> Result<()> {
        self.0.execute(with_targets("RegisterTargets", group, targets)).await
    }

    /// Deregisters at most [`TARGETS_BATCH`] targets.
    pub(crate) async fn deregister_targets(&self, group: &str, targets: &[Target]) -> Result<()> {
        self.0.execute(with_targets("DeregisterTargets", group, targets)).await
    }

    /// Reads the limits of the account.
    pub(crate) async fn limits(&self) -> Result<Vec<Limit>> {
        let response: DescribeAccountLimits = self.0.send(Query::read("DescribeAccountLimits")).await?;
        Ok(Page::from(response).items)
    }
}

fn by_key(attributes: Vec<Attribute>) -> Attributes {
    attributes.into_iter().map(|attribute| (attribute.key, attribute.value)).collect()
}

fn with_targets(action: &'static str, group: &str, targets: &[Target]) -> Query {
    Query::write(action).with("TargetGroupArn", group).with_each("Targets.member", targets, |query, item, target| {
        query.with(format!("{item}.Id"), &target.id).with(format!("{item}.Port"), target.port)
    })
}

fn with_listener(query: Query, listener: &ListenerSettings) -> Query {
    query
        .with("Port", listener.port)
        .with("Protocol", &listener.protocol)
        .with("DefaultActions.member.1.Type", "forward")
        .with("DefaultActions.member.1.TargetGroupArn", &listener.target_group_arn)
        .with_some("Certificates.member.1.CertificateArn", listener.certificate.as_ref())
        .with_some("SslPolicy", listener.ssl_policy.as_ref())
}
