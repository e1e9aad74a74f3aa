//! `bowline check`: identity, permissions, subnets and route table.
//!
//! EC2 checks a permission without a change: a request with `DryRun` fails with `DryRunOperation` if it is allowed. The load balancer
//! APIs have no such parameter, so only their reads are checked.

use bowline_cloud::{CheckResult, Error, ErrorKind, Result, Retry};
use serde::de::IgnoredAny;

use crate::Aws;
use crate::api::ec2::Subnet;
use crate::api::{Filter, Query};
use crate::cluster_tags;
use crate::endpoints::{ApiName, partition_of};
use crate::policy::{ACTIONS, Action, Purpose};
use crate::provider::Identity;

/// Name of resources in requests that AWS only checks.
const PROBE: &str = "bowline-check";

const ROLES: [(&str, &str); 2] =
    [("internet-facing", "kubernetes.io/role/elb"), ("internal", "kubernetes.io/role/internal-elb")];

/// Answer of AWS about a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    Allowed,
    Missing,
    /// AWS rejected the request for another reason.
    Unknown,
}

impl Aws {
    /// Checks everything that the configuration names. If there are no credentials, or AWS rejects them, reports only that.
    pub(crate) async fn diagnose_all(&self) -> Vec<CheckResult> {
        let started = self.start_up().await;
        let source = self.credentials.source().await;
        let (caller, account) = match &source {
            Ok(source) => self.diagnose_credentials(source).await,
            Err(error) => (Err(error.clone()), String::new()),
        };
        // Without credentials, or with rejected ones, every other call fails in the same way.
        let is_rejected = caller.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unauthenticated);
        let stops = source.is_err() || is_rejected;
        let mut results = vec![CheckResult::new("credentials", caller)];
        let identity = match started.and_then(|_| self.identity()) {
            Ok(identity) if !stops => identity,
            Ok(_) => return results,
            Err(error) => {
                results.push(CheckResult::new("region, VPC and cluster", Err(error)));
                return results;
            }
        };
        results.push(CheckResult::new("region, VPC and cluster", Ok(described(identity))));
        results.push(CheckResult::new("permissions of EC2", self.diagnose_ec2(identity).await));
        results.push(CheckResult::new(
            "permissions of Elastic Load Balancing",
            self.diagnose_load_balancing(identity, &account).await,
        ));
        let subnets = self.ec2.subnets(&[Filter::new("vpc-id", [&identity.vpc_id])]).await;
        for (kind, role) in ROLES {
            let outcome = subnets.clone().and_then(|subnets| described_subnets(identity, &subnets, role));
            results.push(CheckResult::new(format!("subnets of {kind} load balancers"), outcome));
        }
        results.push(CheckResult::new("route table", self.diagnose_route_table(identity).await));
        results
    }

    /// Returns a description of the caller, and its account.
    async fn diagnose_credentials(&self, source: &str) -> (Result<String>, String) {
        match self.sts.caller_identity().await {
            Ok(caller) => (Ok(format!("account {}, {}, from {source}", caller.account, caller.arn)), caller.account),
            // A network without an endpoint of STS can do everything else.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                (Ok(format!("from {source}; STS cannot be reached, so the account is unknown")), String::new())
            }
            Err(error) => (Err(error.context("credentials", format!("from {source}"))), String::new()),
        }
    }

    // ---- permissions

    /// Returns the actions that the manager may need with its flags, as far as the provider knows them.
    fn needed_actions(&self) -> impl Iterator<Item = Action> {
        let has_tagging = self.tagging.is_some();
        let is_needed = move |purpose: &Purpose| match purpose {
            Purpose::Tagging => has_tagging,
            Purpose::Check => false,
            Purpose::Nodes | Purpose::LoadBalancers | Purpose::Routes => true,
        };
        ACTIONS.iter().copied().filter(move |action| action.purposes.iter().any(is_needed))
    }

    async fn diagnose_ec2(&self, identity: &Identity) -> Result<String> {
        let supports_dry_run = self.dry_run("DescribeInstances", identity).await? != Permission::Unknown;
        let mut found = Vec::new();
        for action in self.needed_actions().filter(|action| action.api == ApiName::Ec2) {
            let permission = match supports_dry_run || action.is_read() {
                true => self.dry_run(action.name, identity).await?,
                // An emulator that ignores the parameter would execute the request.
                false => Permission::Unknown,
            };
            found.push((action, permission));
        }
        described_permissions(&found)
    }

    async fn dry_run(&self, name: &'static str, identity: &Identity) -> Result<Permission> {
        let outcome = self.ec2.0.send::<IgnoredAny>(dry_run_query(name, identity)).await;
        match outcome {
            Ok(_) => Ok(Permission::Unknown),
            Err(error) if error.code() == Some("DryRunOperation") => Ok(Permission::Allowed),
            Err(error) => permission(error, Permission::Unknown),
        }
    }

    async fn diagnose_load_balancing(&self, identity: &Identity, account: &str) -> Result<String> {
        let mut found = Vec::new();
        for action in self.needed_actions().filter(|action| action.api != ApiName::Ec2 && action.is_read()) {
            let query = read_query(action, identity, account);
            let outcome = match action.api {
                ApiName::Elb => self.elb.0.send::<IgnoredAny>(query).await,
                _ => self.elbv2.0.send::<IgnoredAny>(query).await,
            };
            // AWS checks the permission first, and then whether the resource exists.
            let permission =
                outcome.map_or_else(|error| permission(error, Permission::Allowed), |_| Ok(Permission::Allowed));
            found.push((action, permission?));
        }
        described_permissions(&found).map(|text| format!("{text}; those to write cannot be checked"))
    }

    // ---- network

    async fn diagnose_route_table(&self, identity: &Identity) -> Result<String> {
        let id = &self.config.route_table_id;
        let filters =
            if id.is_empty() { Filter::new("vpc-id", [&identity.vpc_id]) } else { Filter::new("route-table-id", [id]) };
        let tables = self.ec2.route_tables(&[filters]).await?;
        if !id.is_empty() {
            return match tables.is_empty() {
                true => Err(invalid(format!("there is no route table {id}; set RouteTableID"))),
                false => Ok(format!("{id} exists")),
            };
        }
        let tagged: Vec<_> = tables.iter().filter(|table| identity.cluster.is_tagged(&table.tags)).collect();
        Ok(match tagged.as_slice() {
            [table] => format!("{} has the tag of the cluster", table.id),
            [] => format!("none has the tag {}; routes to pod CIDRs need one, or RouteTableID", identity.cluster.key()),
            several => format!("{} have the tag of the cluster; routes to pod CIDRs need RouteTableID", several.len()),
        })
    }
}

/// Returns what an error says about a permission; an error that says nothing, because the call did not reach the API or the
/// credentials are invalid, stays an error.
fn permission(error: Error, otherwise: Permission) -> Result<Permission> {
    match error.kind() {
        ErrorKind::PermissionDenied => Ok(Permission::Missing),
        ErrorKind::Unauthenticated | ErrorKind::Unavailable | ErrorKind::RateLimited => Err(error),
        _ if error.code().is_some() => Ok(otherwise),
        _ => Err(error),
    }
}

fn described(identity: &Identity) -> String {
    let Identity { region, vpc_id, instance_id, cluster, .. } = identity;
    let place = instance_id.as_ref().map_or("the configuration".to_owned(), |id| format!("instance {id}"));
    format!("{vpc_id} in {region}, cluster {:?}, from {place}", cluster.id())
}

fn described_permissions(found: &[(Action, Permission)]) -> Result<String> {
    let of = |wanted: Permission, name: fn(&Action) -> String| {
        let names = found.iter().filter(|(_, permission)| *permission == wanted).map(|(action, _)| name(action));
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
    };
    let missing = of(Permission::Missing, |action| format!("{} ({})", action.iam(), action.purposes()));
    if !missing.is_empty() {
        let message = format!("the IAM policy does not allow {missing}; see docs/reference/aws-iam-policy.md");
        return Err(Error::new(ErrorKind::PermissionDenied, "check permissions", message));
    }
    let (allowed, unknown) =
        (found.iter().filter(|(_, found)| *found == Permission::Allowed).count(), of(Permission::Unknown, Action::iam));
    Ok(match unknown.is_empty() {
        true => format!("{allowed} actions are allowed"),
        false => format!("{allowed} actions are allowed; AWS gave no answer about {unknown}"),
    })
}

fn described_subnets(identity: &Identity, subnets: &[Subnet], role: &str) -> Result<String> {
    let cluster = &identity.cluster;
    let is_usable = |subnet: &&Subnet| cluster.is_tagged(&subnet.tags) || !cluster_tags::has_any(&subnet.tags);
    let usable: Vec<_> = subnets.iter().filter(is_usable).collect();
    if usable.is_empty() {
        let message = format!(
            "{} of {} has no subnet for this cluster: all are tagged for others, or there is none",
            identity.vpc_id, identity.region
        );
        return Err(invalid(message));
    }
    let with_role: Vec<_> =
        usable.iter().filter(|subnet| subnet.tags.contains_key(role)).map(|subnet| subnet.id.as_str()).collect();
    Ok(match with_role.is_empty() {
        true => format!("none of {} has the tag {role}, so any suitable one is used", usable.len()),
        false => format!("{} have the tag {role}", with_role.join(", ")),
    })
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, "check the network", message).retry(Retry::Backoff)
}

// ---- requests

/// Returns a complete request that only checks the permission. Resources that it would change do not exist, as far as AWS accepts that.
fn dry_run_query(name: &'static str, identity: &Identity) -> Query {
    const GROUP: &str = "sg-00000000000000000";
    const TABLE: &str = "rtb-00000000000000000";
    const CIDR: &str = "192.0.2.0/24";
    let query = Query::read(name).with("DryRun", true);
    let instance = identity.instance_id.as_deref().unwrap_or("i-00000000000000000");
    match name {
        "CreateSecurityGroup" => {
            let query = query.with("GroupName", PROBE).with("GroupDescription", PROBE);
            query.with("VpcId", &identity.vpc_id)
        }
        "DeleteSecurityGroup" => query.with("GroupId", GROUP),
        "AuthorizeSecurityGroupIngress" | "RevokeSecurityGroupIngress" => {
            let query = query.with("GroupId", GROUP).with("IpPermissions.1.IpProtocol", "tcp");
            let query = query.with("IpPermissions.1.FromPort", 1).with("IpPermissions.1.ToPort", 1);
            query.with("IpPermissions.1.IpRanges.1.CidrIp", CIDR)
        }
        "CreateTags" | "DeleteTags" => {
            let query = query.with("ResourceId.1", instance);
            query.with("Tag.1.Key", PROBE).with("Tag.1.Value", PROBE)
        }
        "CreateRoute" => {
            let query = query.with("RouteTableId", TABLE).with("DestinationCidrBlock", CIDR);
            query.with("InstanceId", instance)
        }
        "DeleteRoute" => query.with("RouteTableId", TABLE).with("DestinationCidrBlock", CIDR),
        "ModifyInstanceAttribute" => query.with("InstanceId", instance).with("SourceDestCheck.Value", false),
        _ => query,
    }
}

/// Returns a read of a load balancer that does not exist.
fn read_query(action: Action, identity: &Identity, account: &str) -> Query {
    let Identity { region, .. } = identity;
    let account = if account.is_empty() { "000000000000" } else { account };
    let partition = partition_of(region);
    let arn =
        |kind: &str| format!("arn:{partition}:elasticloadbalancing:{region}:{account}:{kind}/{PROBE}/0000000000000000");
    let query = Query::read(action.name);
    match (action.api, action.name) {
        (_, "DescribeAccountLimits") | (ApiName::Elb, "DescribeLoadBalancers") => query,
        (ApiName::Elb, "DescribeTags") => query.with_members("LoadBalancerNames", [PROBE]),
        (ApiName::Elb, _) => query.with("LoadBalancerName", PROBE),
        (_, "DescribeLoadBalancers") => query.with("PageSize", 1),
        (_, "DescribeTags") => query.with_members("ResourceArns", [arn("loadbalancer/net")]),
        (_, "DescribeTargetGroups" | "DescribeListeners" | "DescribeLoadBalancerAttributes") => {
            query.with("LoadBalancerArn", arn("loadbalancer/net"))
        }
        _ => query.with("TargetGroupArn", arn("targetgroup")),
    }
}

#[cfg(test)]
mod tests;
