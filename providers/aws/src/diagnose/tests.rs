//! Tests of `bowline check`.

use bowline_cloud::CloudProvider as _;

use super::*;
use crate::testing::Account;

const SUBNETS: &str = "<R><subnetSet>\
    <item><subnetId>s-1</subnetId><tagSet><item><key>kubernetes.io/role/elb</key><value>1</value></item></tagSet></item>\
    <item><subnetId>s-2</subnetId></item>\
    <item><subnetId>s-3</subnetId><tagSet><item><key>kubernetes.io/cluster/other</key><value>owned</value></item></tagSet></item>\
    </subnetSet></R>";

const TABLES: &str = "<R><routeTableSet><item><routeTableId>rtb-1</routeTableId><tagSet><item>\
    <key>kubernetes.io/cluster/demo</key><value>owned</value></item></tagSet></item></routeTableSet></R>";

/// An account that allows everything: dry runs fail with `DryRunOperation`, other calls of EC2 succeed.
fn account() -> Account {
    let account = Account::new();
    for action in ACTIONS.iter().filter(|action| !action.is_read()) {
        account.refuse(action.name, 412, "DryRunOperation");
    }
    for action in ACTIONS.iter().filter(|action| action.is_read() && action.name != "DescribeInstances") {
        account.refuse(action.name, 412, "DryRunOperation");
    }
    account.answer("DescribeSubnets", SUBNETS);
    account.answer("DescribeRouteTables", TABLES);
    account.refuse("DescribeLoadBalancerAttributes", 400, "LoadBalancerNotFound");
    account
}

async fn report(account: &Account, lines: &str) -> Vec<String> {
    let results = account.provider(lines).diagnose().await;
    let shown = |result: &CheckResult| match &result.outcome {
        Ok(text) => format!("{}: {text}", result.subject),
        Err(error) => format!("{}: ERROR {error}", result.subject),
    };
    results.iter().map(shown).collect()
}

#[tokio::test]
async fn everything_that_the_manager_needs_is_reported() {
    let account = account();
    account.supports_dry_runs();
    let report = report(&account, "").await;
    assert_eq!(
        report,
        [
            "credentials: account 111122223333, arn:aws:sts::111122223333:role/ccm, from the environment",
            "region, VPC and cluster: vpc-1 in eu-west-1, cluster \"demo\", from instance i-1",
            "permissions of EC2: 13 actions are allowed; AWS gave no answer about ec2:DescribeRouteTables, ec2:DescribeSubnets",
            "permissions of Elastic Load Balancing: 10 actions are allowed; those to write cannot be checked",
            "subnets of internet-facing load balancers: s-1 have the tag kubernetes.io/role/elb",
            "subnets of internal load balancers: none of 2 has the tag kubernetes.io/role/internal-elb, so any suitable one is used",
            "route table: rtb-1 has the tag of the cluster",
        ]
    );
    assert_eq!(account.writes(), 0, "{:?}", account.requests());
}

#[tokio::test]
async fn each_missing_action_is_named_with_its_purpose() {
    let account = account();
    account.supports_dry_runs();
    // The controller tagging is disabled.
    account.refuse("DeleteTags", 403, "UnauthorizedOperation");
    account.refuse("CreateRoute", 403, "UnauthorizedOperation");
    account.refuse("DescribeTargetGroupAttributes", 403, "AccessDenied");
    let report = report(&account, "").await;
    assert!(
        report[2].contains("ERROR check permissions: the IAM policy does not allow ec2:CreateRoute (routes); see"),
        "{report:?}"
    );
    assert!(
        report[3].contains("does not allow elasticloadbalancing:DescribeTargetGroupAttributes (load balancers); see"),
        "{report:?}"
    );
}

#[tokio::test]
async fn nothing_is_written_to_an_emulator_that_ignores_dry_runs() {
    let account = account();
    let report = report(&account, "").await;
    assert!(report[2].contains("AWS gave no answer about ec2:AuthorizeSecurityGroupIngress"), "{report:?}");
    assert!(!account.requests().iter().any(|request| request.starts_with("Create")), "{:?}", account.requests());
}

#[tokio::test]
async fn rejected_credentials_and_a_failed_start_stop_the_report() {
    let account = account();
    account.refuse("GetCallerIdentity", 403, "InvalidClientTokenId");
    account.refuse("DescribeInstances", 401, "AuthFailure");
    let report = report(&account, "").await;
    assert_eq!(report.len(), 2, "{report:?}");
    assert!(
        report[0].starts_with("credentials: ERROR GetCallerIdentity: api error InvalidClientTokenId"),
        "{report:?}"
    );
    let account = self::account();
    account.fail("/latest/meta-data/instance-id", 404);
    let report = self::report(&account, "").await;
    assert!(report[1].starts_with("region, VPC and cluster: ERROR error fetching instance-id"), "{report:?}");
}

#[tokio::test]
async fn a_network_without_sts_is_no_error() {
    let account = account();
    account.fail("GetCallerIdentity", 503);
    let report = report(&account, "").await;
    assert_eq!(report[0], "credentials: from the environment; STS cannot be reached, so the account is unknown");
}

#[tokio::test]
async fn subnets_and_the_route_table_must_exist() {
    let account = account();
    account.answer("DescribeSubnets", "<R><subnetSet/></R>");
    account.answer("DescribeRouteTables", "<R><routeTableSet/></R>");
    let unnamed = report(&account, "").await;
    assert!(
        unnamed[4].contains("ERROR check the network: vpc-1 of eu-west-1 has no subnet for this cluster"),
        "{unnamed:?}"
    );
    assert!(unnamed[6].starts_with("route table: none has the tag kubernetes.io/cluster/demo"), "{unnamed:?}");
    let named = report(&account, "RouteTableID=rtb-9").await;
    assert!(named[6].ends_with("there is no route table rtb-9; set RouteTableID"), "{named:?}");
}
