//! Tests of the start and of quotas.

use bowline_cloud::CloudProvider as _;

use super::*;
use crate::testing::{Account, tags};

async fn start(account: &Account, file: &str) -> std::result::Result<Facts, String> {
    account.provider(file).start().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn on_an_instance_everything_comes_from_it() {
    let account = Account::new();
    let provider = account.provider("");
    let facts = provider.start().await.unwrap();
    assert_eq!((facts.region.as_deref(), facts.cluster_id.as_deref()), (Some("eu-west-1"), Some("demo")));
    assert_eq!(facts.details["VPC"], "vpc-1");
    let identity = provider.identity().unwrap().clone();
    let expected = Identity {
        region: "eu-west-1".to_owned(),
        vpc_id: "vpc-1".to_owned(),
        subnet_id: "subnet-1".to_owned(),
        instance_id: Some("i-1".to_owned()),
        node_name: Some("ip-10-0-0-1.ec2.internal".to_owned()),
        cluster: ClusterTags::new("demo", false),
    };
    assert_eq!(identity, expected);
    assert_eq!(provider.start().await.unwrap(), facts, "repeatable");
    assert_eq!(account.writes(), 0);
}

#[tokio::test]
async fn network_of_the_file_is_ignored_unless_the_file_is_complete() {
    let account = Account::new();
    let provider = account.provider("VPC=vpc-9\nSubnetID=subnet-9\n");
    provider.start().await.unwrap();
    assert_eq!(provider.identity().unwrap().vpc_id, "vpc-1");
    let account = Account::new();
    account.fail("169.254.169.254", 500);
    let provider = account.provider("Zone=us-east-1a\nVPC=vpc-9\nSubnetID=subnet-9\nKubernetesClusterID=other\n");
    let facts = provider.start().await.unwrap();
    assert_eq!((facts.region.as_deref(), facts.cluster_id.as_deref()), (Some("us-east-1"), Some("other")));
    let identity = provider.identity().unwrap();
    assert_eq!(
        (identity.vpc_id.as_str(), identity.subnet_id.as_str(), &identity.instance_id),
        ("vpc-9", "subnet-9", &None)
    );
    assert_eq!(account.requests(), Vec::<String>::new(), "no call is needed");
}

#[test]
fn the_cluster_is_that_of_the_file_or_of_the_tags() {
    let config =
        |tag: &str, id: &str| Config { cluster_tag: tag.to_owned(), cluster_id: id.to_owned(), ..Config::default() };
    let own = tags(&[("kubernetes.io/cluster/own", "owned")]);
    let legacy = tags(&[("KubernetesCluster", "own")]);
    let both = tags(&[("KubernetesCluster", "own"), ("kubernetes.io/cluster/own", "shared")]);
    for (config, tags, expected) in [
        (config("a", ""), &own, ClusterTags::new("a", true)),
        (config("", "b"), &own, ClusterTags::new("b", false)),
        (config("c", "c"), &own, ClusterTags::new("c", true)),
        (config("", ""), &own, ClusterTags::new("own", false)),
        (config("", ""), &legacy, ClusterTags::new("own", true)),
        (config("", ""), &both, ClusterTags::new("own", true)),
    ] {
        assert_eq!(cluster(&config, tags).unwrap(), expected);
    }
}

#[test]
fn tags_without_one_cluster_are_errors_with_the_texts_of_the_go_manager() {
    for (pairs, expected) in [
        (&[][..], "AWS cloud failed to find ClusterID"),
        (&[("Name", "x")], "AWS cloud failed to find ClusterID"),
        (
            &[("kubernetes.io/cluster/a", "owned"), ("kubernetes.io/cluster/b", "owned")],
            "Found multiple cluster tags with prefix kubernetes.io/cluster/ (\"a\" and \"b\")",
        ),
        (
            &[("kubernetes.io/cluster/a", "owned"), ("KubernetesCluster", "b")],
            "clusterID tags did not match: \"a\" vs \"b\"",
        ),
    ] {
        let error = cluster_of(&tags(pairs)).unwrap_err();
        assert_eq!((error.message(), error.kind()), (expected, ErrorKind::InvalidConfig));
        assert!(error.to_string().contains("fix="), "{error}");
    }
}

#[tokio::test]
async fn a_failed_start_says_what_to_do() {
    for (fails, status, expected) in [
        ("/latest/dynamic/instance-identity/document", 404, "find the AWS region: "),
        ("/latest/dynamic/instance-identity/document", 404, "fix=set Region in the file of --cloud-config"),
        ("/latest/meta-data/instance-id", 404, "error fetching instance-id from ec2 metadata service: "),
        ("/latest/meta-data/instance-id", 404, "set VPC, SubnetID and KubernetesClusterID"),
        ("DescribeInstances", 403, "error finding instance i-1: error listing AWS instances: "),
    ] {
        let account = Account::new();
        account.fail(fails, status);
        let error = start(&account, "").await.unwrap_err();
        assert!(error.contains(expected), "{fails}: {error}");
    }
    let account = Account::new();
    account.answer("DescribeInstances", "<R><reservationSet/></R>");
    let error = start(&account, "").await.unwrap_err();
    assert!(error.contains("error finding instance i-1: AWS does not list it; check Region"), "{error}");
}

#[tokio::test]
async fn the_kind_of_a_failed_start_is_that_of_its_cause() {
    for (status, code, kind) in [
        (401, "AuthFailure", ErrorKind::Unauthenticated),
        (403, "UnauthorizedOperation", ErrorKind::PermissionDenied),
        (503, "Unavailable", ErrorKind::Unavailable),
    ] {
        let account = Account::new();
        account.refuse("DescribeInstances", status, code);
        assert_eq!(account.provider("").start().await.unwrap_err().kind(), kind);
        account.refuse("DescribeAvailabilityZones", status, code);
        assert_eq!(account.provider("Region=eu-west-1").check().await.unwrap_err().kind(), kind);
    }
}

#[tokio::test]
async fn quotas_have_used_and_maximum_numbers() {
    let account = Account::new();
    let list = |name: &str, of: &str, items: &str| format!("<R><{name}Result><{of}>{items}</{of}></{name}Result></R>");
    let limit = |name: &str, max: u32| format!("<member><Name>{name}</Name><Max>{max}</Max></member>");
    let limits =
        limit("classic-load-balancers", 20) + &limit("network-load-balancers", 50) + &limit("target-groups", 3000);
    account.answer("DescribeAccountLimits", &list("DescribeAccountLimits", "Limits", &limits));
    let classic = "<LoadBalancerDescriptions><member><LoadBalancerName>a</LoadBalancerName><DNSName>d</DNSName></member></LoadBalancerDescriptions>";
    let balancer = |kind: &str| {
        format!(
            "<member><LoadBalancerArn>a</LoadBalancerArn><LoadBalancerName>n</LoadBalancerName><Type>{kind}</Type></member>"
        )
    };
    let network = format!("<LoadBalancers>{}{}</LoadBalancers>", balancer("network"), balancer("application"));
    account.answer(
        "DescribeLoadBalancers",
        &format!("<R><DescribeLoadBalancersResult>{classic}{network}</DescribeLoadBalancersResult></R>"),
    );
    account.answer("DescribeTargetGroups", &list("DescribeTargetGroups", "TargetGroups", ""));
    let quotas = account.provider("Region=eu-west-1").quotas().await.unwrap();
    let shown: Vec<_> =
        quotas.iter().map(|quota| format!("{} {}/{}", quota.resource, quota.used, quota.limit)).collect();
    assert_eq!(shown, ["Classic Load Balancers 1/20", "Network Load Balancers 1/50", "target groups 0/3000"]);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_api_slows_down_the_others_but_not_sts() {
    let account = Account::new();
    account.refuse("DescribeAvailabilityZones", 503, "RequestLimitExceeded");
    let provider = account.provider("Region=eu-west-1");
    let begun = tokio::time::Instant::now();
    assert_eq!(provider.check().await.unwrap_err().kind(), ErrorKind::RateLimited);
    provider.sts.caller_identity().await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 0);
    assert!(provider.elb.limits().await.is_err(), "the account has no response for it");
    assert_eq!(begun.elapsed().as_secs(), 2);
}
