//! IAM actions that the manager needs, and the policies that allow them.

use serde_json::{Value, json};

use crate::endpoints::ApiName;

/// What an action is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Start and Nodes.
    Nodes,
    LoadBalancers,
    Routes,
    /// Loop `tagging`.
    Tagging,
    /// Only `bowline check` and metrics of quotas.
    Check,
}

/// An action of an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Action {
    pub(crate) api: ApiName,
    pub(crate) name: &'static str,
    pub(crate) purposes: &'static [Purpose],
}

use ApiName::{Ec2, Elb, ElbV2};
use Purpose::{Check, LoadBalancers, Nodes, Routes, Tagging};

/// Actions that the code calls, each once. A test compares them with the clients of the APIs.
pub(crate) const ACTIONS: &[Action] = &[
    action(Ec2, "DescribeInstances", &[Nodes, LoadBalancers, Routes]),
    action(Ec2, "DescribeInstanceTopology", &[Nodes]),
    action(Ec2, "DescribeNetworkInterfaces", &[Nodes]),
    action(Ec2, "DescribeAvailabilityZones", &[Nodes, LoadBalancers]),
    action(Ec2, "DescribeSubnets", &[LoadBalancers]),
    action(Ec2, "DescribeRouteTables", &[LoadBalancers, Routes]),
    action(Ec2, "DescribeSecurityGroups", &[LoadBalancers]),
    action(Ec2, "CreateSecurityGroup", &[LoadBalancers]),
    action(Ec2, "DeleteSecurityGroup", &[LoadBalancers]),
    action(Ec2, "AuthorizeSecurityGroupIngress", &[LoadBalancers]),
    action(Ec2, "RevokeSecurityGroupIngress", &[LoadBalancers]),
    action(Ec2, "CreateTags", &[LoadBalancers, Tagging]),
    action(Ec2, "DeleteTags", &[Tagging]),
    action(Ec2, "CreateRoute", &[Routes]),
    action(Ec2, "DeleteRoute", &[Routes]),
    action(Ec2, "ModifyInstanceAttribute", &[Routes]),
    action(Elb, "DescribeLoadBalancers", LB),
    action(Elb, "DescribeTags", LB),
    action(Elb, "AddTags", LB),
    action(Elb, "CreateLoadBalancer", LB),
    action(Elb, "DeleteLoadBalancer", LB),
    action(Elb, "CreateLoadBalancerListeners", LB),
    action(Elb, "DeleteLoadBalancerListeners", LB),
    action(Elb, "AttachLoadBalancerToSubnets", LB),
    action(Elb, "DetachLoadBalancerFromSubnets", LB),
    action(Elb, "ApplySecurityGroupsToLoadBalancer", LB),
    action(Elb, "ConfigureHealthCheck", LB),
    action(Elb, "DescribeLoadBalancerAttributes", LB),
    action(Elb, "ModifyLoadBalancerAttributes", LB),
    action(Elb, "CreateLoadBalancerPolicy", LB),
    action(Elb, "SetLoadBalancerPoliciesForBackendServer", LB),
    action(Elb, "SetLoadBalancerPoliciesOfListener", LB),
    action(Elb, "RegisterInstancesWithLoadBalancer", LB),
    action(Elb, "DeregisterInstancesFromLoadBalancer", LB),
    action(Elb, "DescribeAccountLimits", &[Check]),
    action(ElbV2, "DescribeLoadBalancers", LB),
    action(ElbV2, "DescribeTags", LB),
    action(ElbV2, "AddTags", LB),
    action(ElbV2, "RemoveTags", LB),
    action(ElbV2, "CreateLoadBalancer", LB),
    action(ElbV2, "DeleteLoadBalancer", LB),
    action(ElbV2, "SetSecurityGroups", LB),
    action(ElbV2, "DescribeLoadBalancerAttributes", LB),
    action(ElbV2, "ModifyLoadBalancerAttributes", LB),
    action(ElbV2, "DescribeListeners", LB),
    action(ElbV2, "CreateListener", LB),
    action(ElbV2, "ModifyListener", LB),
    action(ElbV2, "DeleteListener", LB),
    action(ElbV2, "DescribeTargetGroups", LB),
    action(ElbV2, "CreateTargetGroup", LB),
    action(ElbV2, "ModifyTargetGroup", LB),
    action(ElbV2, "DeleteTargetGroup", LB),
    action(ElbV2, "DescribeTargetGroupAttributes", LB),
    action(ElbV2, "ModifyTargetGroupAttributes", LB),
    action(ElbV2, "DescribeTargetHealth", LB),
    action(ElbV2, "RegisterTargets", LB),
    action(ElbV2, "DeregisterTargets", LB),
    action(ElbV2, "DescribeAccountLimits", &[Check]),
];

const LB: &[Purpose] = &[LoadBalancers];

const fn action(api: ApiName, name: &'static str, purposes: &'static [Purpose]) -> Action {
    Action { api, name, purposes }
}

impl Action {
    /// Returns the name in an IAM policy.
    pub(crate) fn iam(&self) -> String {
        format!("{}:{}", self.api.signing_name(), self.name)
    }

    /// Returns whether the action changes nothing.
    pub(crate) fn is_read(&self) -> bool {
        self.name.starts_with("Describe")
    }

    /// Returns what the action is needed for, as text.
    pub(crate) fn purposes(&self) -> String {
        self.purposes.iter().map(|purpose| purpose.description()).collect::<Vec<_>>().join(", ")
    }

    fn is_for(&self, purposes: &[Purpose]) -> bool {
        self.purposes.iter().any(|purpose| purposes.contains(purpose))
    }
}

/// Returns a policy for these purposes.
fn policy(purposes: &[Purpose]) -> Value {
    let statement = |id: &str, is_read: bool| {
        let actions = ACTIONS.iter().filter(|action| action.is_read() == is_read && action.is_for(purposes));
        let mut names: Vec<_> = actions.map(Action::iam).collect();
        names.sort();
        // Both load balancer APIs have actions of the same name.
        names.dedup();
        json!({"Sid": id, "Effect": "Allow", "Action": names, "Resource": "*"})
    };
    let mut statements = vec![statement("Read", true), statement("Write", false)];
    if purposes.contains(&LoadBalancers) {
        statements.push(json!({
            "Sid": "ServiceLinkedRole",
            "Effect": "Allow",
            "Action": ["iam:CreateServiceLinkedRole"],
            "Resource": "*",
            "Condition": {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}},
        }));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// Returns the reference page.
pub(crate) fn reference() -> String {
    let shown = |policy: &Value| format!("```json\n{policy:#}\n```\n");
    let all = policy(&[Nodes, LoadBalancers, Routes, Tagging, Check]);
    let without = policy(&[Nodes, Routes, Tagging]);
    let rows: String = ACTIONS.iter().map(row).collect();
    [HEAD, &shown(&all), WITHOUT, &shown(&without), ACTIONS_HEAD, &rows].concat()
}

fn row(action: &Action) -> String {
    format!("| `{}` | {} | {} |\n", action.iam(), action.api.identifier(), action.purposes())
}

impl Purpose {
    fn description(self) -> &'static str {
        match self {
            Nodes => "Nodes",
            LoadBalancers => "load balancers",
            Routes => "routes",
            Tagging => "the controller `tagging`",
            Check => "`bowline check` only",
        }
    }
}

const HEAD: &str = "\
# AWS: IAM policy

<!-- Generated by `cargo xtask generate` from providers/aws/src/policy.rs; edit that file instead. -->

The manager needs the actions on this page, and no others. `bowline check --cloud-provider=aws` names each one that is missing, as far \
as AWS reports it without a change. With `RoleARN` in the configuration, the credentials of the manager also need `sts:AssumeRole` for \
that role, and the role needs the policy.

The policies have no conditions on the tag of the cluster: load balancers and security groups of Nodes that existed before may lack \
it, and AWS compares no tags for some of these actions. The service-linked role of Elastic Load Balancing is created once for each \
account; without the last statement, create it with `aws iam create-service-linked-role --aws-service-name \
elasticloadbalancing.amazonaws.com`.

## All features

";

const WITHOUT: &str = "
## Without load balancers

For a manager with `--controllers=*,-service-lb-controller`.

";

const ACTIONS_HEAD: &str = "
## Actions

Remove the actions of features that you do not use. Routes need `--configure-cloud-routes`, tags the controller `tagging`.

| action | API | needed for |
|---|---|---|
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use regex::Regex;

    use super::*;

    const SOURCES: [(ApiName, &str); 6] = [
        (Ec2, include_str!("api/ec2/mod.rs")),
        (Ec2, include_str!("api/ec2/instances.rs")),
        (Ec2, include_str!("api/ec2/network.rs")),
        (Ec2, include_str!("api/ec2/security_groups.rs")),
        (Elb, include_str!("api/elb.rs")),
        (ElbV2, include_str!("api/elbv2.rs")),
    ];

    /// Returns the actions in the source text: the first argument of a function, other than the name of a parameter.
    fn called() -> BTreeSet<(ApiName, String)> {
        let verbs = "Describe|Create|Delete|Modify|Set|Add|Remove|Register|Deregister|Attach|Detach|Apply|Configure|Authorize|Revoke";
        let call = Regex::new(&format!(r#"(\.?\w+)\(\s*"((?:{verbs})[A-Z]\w*)""#)).unwrap();
        let of_source = |(api, text): (ApiName, &'static str)| {
            let text = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
            let found = call.captures_iter(text).filter(|found| !found[1].starts_with(".with"));
            found.map(|found| (api, found[2].to_owned())).collect::<Vec<_>>()
        };
        SOURCES.into_iter().flat_map(of_source).collect()
    }

    #[test]
    fn every_action_that_the_code_calls_is_declared_once_and_no_other() {
        let declared: Vec<_> = ACTIONS.iter().map(|action| (action.api, action.name.to_owned())).collect();
        let unique: BTreeSet<_> = declared.iter().cloned().collect();
        assert_eq!(unique.len(), declared.len());
        let called = called();
        assert!(called.len() > 50, "{called:?}");
        assert_eq!(called.symmetric_difference(&unique).collect::<Vec<_>>(), Vec::<&(ApiName, String)>::new());
    }

    #[test]
    fn the_policy_without_load_balancers_has_none_of_their_actions() {
        let (all, without) =
            (policy(&[Nodes, LoadBalancers, Routes, Tagging, Check]), policy(&[Nodes, Routes, Tagging]));
        assert!(all.to_string().contains("elasticloadbalancing:ModifyTargetGroupAttributes"));
        assert!(!without.to_string().contains("elasticloadbalancing"), "{without}");
        assert_eq!(all["Statement"].as_array().unwrap().len(), 3);
        for action in ["ec2:DeleteTags", "ec2:DescribeNetworkInterfaces", "ec2:CreateRoute"] {
            assert!(without.to_string().contains(action), "{action}");
        }
        let page = reference();
        assert!(page.contains("| `ec2:DeleteTags` | EC2 | the controller `tagging` |"), "{page}");
    }
}
