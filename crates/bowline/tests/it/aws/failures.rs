//! Rejected requests, limits, and load balancers that disappear. Each failure is reported, leaks nothing, and needs no restart.

use std::time::Duration;

use bowline_aws_simulator::{Fault, FaultSpec, Options, ec2_fault, elb_fault};
use futures::future::join_all;
use http::Method;
use serde_json::json;

use crate::aws::access::{expired_credentials, unreachable};
use crate::aws::scene::{FAILED, Scene, TYPE, name_of};

const LB: &str = "service.beta.kubernetes.io/aws-load-balancer-";

/// A failure that affects the Service `web`, and its Event.
struct Failure {
    test: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    breaks: fn(&Scene),
    repairs: fn(&Scene),
    /// Parts of the Event's message.
    words: &'static [&'static str],
}

const NLB: &[(&str, &str)] = &[(TYPE, "nlb")];

fn fault(scene: &Scene, fault: Fault, operation: &'static str) {
    scene.cloud.inject(FaultSpec::always(fault).on(Method::POST, operation));
}

/// Failures of a creation.
const FAILURES: &[Failure] = &[
    Failure {
        test: "permission",
        annotations: &[],
        breaks: |scene| scene.cloud.deny("elasticloadbalancing:CreateLoadBalancer"),
        repairs: |scene| scene.cloud.allow("elasticloadbalancing:CreateLoadBalancer"),
        words: &["api error AccessDenied", "is not authorized to perform: elasticloadbalancing:CreateLoadBalancer"],
    },
    Failure {
        test: "permission-ec2",
        annotations: NLB,
        breaks: |scene| scene.cloud.deny("ec2:AuthorizeSecurityGroupIngress"),
        repairs: |scene| scene.cloud.allow("ec2:AuthorizeSecurityGroupIngress"),
        words: &["api error UnauthorizedOperation", "ec2:AuthorizeSecurityGroupIngress"],
    },
    Failure {
        test: "limit",
        annotations: NLB,
        breaks: |scene| scene.cloud.configure(|options| options.limits.load_balancers = 0),
        repairs: |scene| scene.cloud.configure(|options| options.limits.load_balancers = 50),
        words: &["error creating load balancer", "api error TooManyLoadBalancers", "Raise the account's quota"],
    },
    Failure {
        test: "rules",
        annotations: &[],
        breaks: |scene| scene.cloud.configure(|options| options.limits.rules = 0),
        repairs: |scene| scene.cloud.configure(|options| options.limits.rules = 60),
        words: &["api error RulesPerSecurityGroupLimitExceeded"],
    },
    Failure {
        test: "throttled",
        annotations: &[],
        breaks: |scene| {
            let limit = ec2_fault(503, "RequestLimitExceeded", "Request limit exceeded.");
            fault(scene, limit, "ec2 DescribeSecurityGroups");
        },
        repairs: |scene| scene.cloud.repair_all(),
        words: &["api error RequestLimitExceeded"],
    },
    Failure {
        test: "broken",
        annotations: NLB,
        breaks: |scene| fault(scene, elb_fault(500, "InternalFailure", "Try again."), "elbv2 DescribeLoadBalancers"),
        repairs: |scene| scene.cloud.repair_all(),
        words: &["error describing load balancer", "api error InternalFailure"],
    },
    Failure {
        test: "maintenance",
        annotations: NLB,
        breaks: |scene| {
            fault(
                scene,
                Fault::Answer(503, "<html>Service Unavailable</html>".to_owned()),
                "elbv2 DescribeLoadBalancers",
            );
        },
        repairs: |scene| scene.cloud.repair_all(),
        words: &["503"],
    },
];

/// Checks that the failure is reported, creates no duplicates, and that the Service recovers.
async fn check_failure(failure: &Failure) {
    let scene = Scene::new(failure.test).await;
    (failure.breaks)(&scene);
    let mut manager = scene.manager(failure.test);
    scene.create_with("web", 80, failure.annotations).await;
    scene.warned(&manager, "web", FAILED, failure.words).await;
    (failure.repairs)(&scene);
    // An annotation ends the back-off after failures that do not pass by themselves.
    scene.set_annotation("web", "example.com/retry", "now").await;
    scene.hostname(&manager, "web").await;
    assert_eq!(scene.count(), 1, "there are no duplicates");
    scene.end(&mut manager, "web").await;
}

/// Annotations and networks that AWS or the manager rejects, until they are corrected: AWS-33, AWS-46 and others.
async fn invalid_annotations() {
    let scene = Scene::new("invalid").await;
    let mut manager = scene.manager("invalid");
    let allocations = format!("{LB}eip-allocations");
    scene.create_with("web", 80, &[(TYPE, "nlb"), (&allocations, "eipalloc-1")]).await;
    let words = ["Must have same number of EIP AllocationIDs (1) and SubnetIDs (3)"];
    scene.warned(&manager, "web", FAILED, &words).await;
    assert_eq!(scene.count(), 0);
    scene.patch("web", json!({"metadata": {"annotations": {allocations: null}}})).await;
    scene.hostname(&manager, "web").await;

    scene.set_annotation("web", TYPE, "").await;
    let words = ["cannot update Load Balancer Type annotation", "after creation for Classic Load Balancer"];
    scene.warned(&manager, "web", FAILED, &words).await;
    assert_eq!(scene.count(), 1, "nothing is replaced");
    scene.set_annotation("web", TYPE, "nlb").await;
    scene.end(&mut manager, "web").await;
}

/// Without a public subnet, there is no load balancer until a subnet has a route to the internet.
async fn no_subnets() {
    let scene = Scene::new("subnets").await;
    let table = scene.cloud.fixture().public_table;
    let mut routes = None;
    scene.cloud.edit("route_table", &table, |record| routes = record.insert("_routes".to_owned(), json!([])));
    let mut manager = scene.manager("subnets");
    scene.create("web").await;
    let words = ["could not find any suitable subnets for creating the ELB", "kubernetes.io/role/elb"];
    scene.warned(&manager, "web", FAILED, &words).await;
    scene.cloud.edit("route_table", &table, |record| {
        record.insert("_routes".to_owned(), routes.unwrap());
    });
    scene.set_annotation("web", "example.com/retry", "now").await;
    scene.hostname(&manager, "web").await;
    scene.end(&mut manager, "web").await;
}

/// A security group that network interfaces of the deleted load balancer still use is deleted later.
async fn group_in_use() {
    let options = Options { lingering: Duration::from_secs(4), ..Options::default() };
    let scene = Scene::with("in-use", options).await;
    let mut manager = scene.manager("in-use");
    scene.create("web").await;
    scene.hostname(&manager, "web").await;
    scene.end(&mut manager, "web").await;
    assert!(scene.cloud.counts()["POST ec2 DeleteSecurityGroup"] > 1);
}

/// A security group that was just created is not found at first.
async fn eventual_consistency() {
    let scene = Scene::with("hidden", Options { hidden_reads: 2, ..Options::default() }).await;
    let mut manager = scene.manager("hidden");
    scene.create("web").await;
    scene.create_nlb("net").await;
    scene.hostname(&manager, "web").await;
    scene.hostname(&manager, "net").await;
    assert_eq!(scene.count(), 2, "there are no duplicates");
    scene.delete(&manager, "net").await;
    scene.end(&mut manager, "web").await;
}

/// The cases run concurrently, because each waits for retries.
#[tokio::test(flavor = "multi_thread")]
async fn every_failure_is_reported_and_ends_without_a_restart() {
    join_all(FAILURES.iter().map(check_failure)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_services_and_lagging_clouds_need_no_restart() {
    tokio::join!(
        invalid_annotations(),
        no_subnets(),
        group_in_use(),
        eventual_consistency(),
        expired_credentials(),
        unreachable()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_creates_no_duplicate() {
    let scene = Scene::new("answer-lost").await;
    for operation in
        ["elb CreateLoadBalancer", "elbv2 CreateLoadBalancer", "elbv2 CreateTargetGroup", "ec2 CreateSecurityGroup"]
    {
        scene.cloud.inject(FaultSpec::always(Fault::AnswerLost).on(Method::POST, operation).times(1));
    }
    let mut manager = scene.manager("answer-lost");
    scene.create("web").await;
    scene.create_nlb("net").await;
    scene.hostname(&manager, "web").await;
    scene.hostname(&manager, "net").await;
    assert_eq!((scene.count(), scene.cloud.target_groups().len()), (2, 1));
    scene.delete(&manager, "net").await;
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_was_deleted_by_hand_is_created_again() {
    let scene = Scene::new("by-hand").await;
    let mut manager = scene.manager_with("by-hand", &[], &["--load-balancer-refresh-period=1s"]);
    let service = scene.create("web").await;
    scene.hostname(&manager, "web").await;
    assert!(scene.cloud.remove("classic", &name_of(&service)));
    let is_replaced = || async { (scene.count() == 1).then_some(()) };
    scene.eventually(&manager, "another load balancer", is_replaced).await;
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}
