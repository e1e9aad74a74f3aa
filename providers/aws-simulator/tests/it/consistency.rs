//! Eventual consistency, faults and the journal.

use bowline_aws_simulator::{Fault, FaultSpec, Options, ec2_fault, elb_fault, parameters};
use http::Method;

use crate::client::{Client, text, texts};

#[tokio::test]
async fn a_new_group_is_hidden_from_the_first_reads() {
    let client = Client::new(Options { hidden_reads: 2, ..Options::default() });
    let id = client.group("hidden").await;
    client.ok("ec2 DescribeSubnets", &[]).await;
    assert_eq!(client.code("ec2 DescribeSecurityGroups", &[("GroupId.1", &id)]).await.1, "InvalidGroup.NotFound");
    let filter = [("Filter.1.Name", "group-name"), ("Filter.1.Value.1", "hidden")];
    assert!(!client.ok("ec2 DescribeSecurityGroups", &filter).await.contains(&id));
    assert!(client.ok("ec2 DescribeSecurityGroups", &filter).await.contains(&id));
}

#[tokio::test]
async fn new_load_balancers_and_target_groups_are_hidden_until_the_work_is_finished() {
    let client = Client::new(Options { hidden_reads: 100, ..Options::default() });
    client.network_load_balancer("web", &[]).await;
    let names = [("Names.member.1", "web")];
    assert_eq!(client.code("elbv2 DescribeLoadBalancers", &names).await.1, "LoadBalancerNotFound");
    let vpc = client.cloud.fixture().vpc;
    let form = [("Name", "group"), ("Protocol", "TCP"), ("Port", "80"), ("VpcId", vpc.as_str())];
    let arn = text(&client.ok("elbv2 CreateTargetGroup", &form).await, "TargetGroupArn");
    let read = [("TargetGroupArn", arn.as_str())];
    assert_eq!(client.code("elbv2 DescribeTargetHealth", &read).await.1, "TargetGroupNotFound");
    client.cloud.finish_work();
    client.ok("elbv2 DescribeTargetHealth", &read).await;
    assert_eq!(text(&client.ok("elbv2 DescribeLoadBalancers", &names).await, "Code"), "active");
}

#[tokio::test]
async fn a_frozen_view_shows_the_past_to_reads_only() {
    let client = Client::new(Options::default());
    client.cloud.freeze_view(true);
    let id = client.group("late").await;
    assert!(!client.ok("ec2 DescribeSecurityGroups", &[]).await.contains(&id));
    let vpc = client.cloud.fixture().vpc;
    let again = [("GroupName", "late"), ("GroupDescription", "test"), ("VpcId", vpc.as_str())];
    assert_eq!(client.code("ec2 CreateSecurityGroup", &again).await.1, "InvalidGroup.Duplicate");
    client.cloud.freeze_view(false);
    assert!(client.ok("ec2 DescribeSecurityGroups", &[]).await.contains(&id));
}

#[tokio::test]
async fn an_empty_cloud_answers_lookups_with_empty_lists() {
    let client = Client::new(Options::default());
    client.cloud.inject(FaultSpec::always(Fault::Empty));
    for (call, name, value) in [
        ("ec2 DescribeInstances", "InstanceId.1", client.nodes[0].as_str()),
        ("ec2 DescribeSecurityGroups", "GroupId.1", "sg-0123456789abcdef0"),
        ("elb DescribeLoadBalancers", "LoadBalancerNames.member.1", "web"),
        ("elbv2 DescribeLoadBalancers", "Names.member.1", "web"),
        ("elbv2 DescribeTargetGroups", "Names.member.1", "web"),
    ] {
        let body = client.ok(call, &[(name, value)]).await;
        assert!(!body.contains("<item>") && !body.contains("<member>"), "{body}");
    }
}

#[tokio::test]
async fn faults_have_the_format_of_their_api() {
    let client = Client::new(Options::default());
    client.cloud.inject(FaultSpec::always(ec2_fault(503, "RequestLimitExceeded", "slow <down>")).of("ec2").times(1));
    client.cloud.inject(FaultSpec::always(elb_fault(400, "Throttling", "Rate exceeded")).of("elbv2"));
    let (status, body) = client.send_with("ec2 DescribeInstances", &[], &[]).await;
    assert_eq!(
        (status, text(&body, "Code"), text(&body, "Message")),
        (503, "RequestLimitExceeded".to_owned(), "slow &lt;down&gt;".to_owned())
    );
    assert!(body.contains("<Response><Errors><Error>"), "{body}");
    let (_, body) = client.send_with("elbv2 DescribeLoadBalancers", &[], &[]).await;
    assert!(body.contains("<Error><Type>Sender</Type><Code>Throttling</Code>"), "{body}");
    client.ok("elb DescribeLoadBalancers", &[]).await;
    client.ok("ec2 DescribeInstances", &[]).await;
    client.cloud.inject(FaultSpec::always(ec2_fault(500, "InternalError", "")).on(Method::POST, "ec2 DescribeSubnets"));
    assert_eq!(client.code("ec2 DescribeSubnets", &[]).await.0, 500);
    assert_eq!(client.cloud.counts()["POST ec2 DescribeInstances"], 2);
}

#[tokio::test]
async fn the_journal_names_api_and_action() {
    let client = Client::new(Options::default());
    client.ok("ec2 DescribeInstances", &[("InstanceId.1", &client.nodes[0])]).await;
    client.group("web").await;
    let entries = client.cloud.journal();
    let seen: Vec<_> = entries.iter().map(|entry| (entry.part, entry.template.as_str(), entry.is_write)).collect();
    assert_eq!(seen, [("ec2", "ec2 DescribeInstances", false), ("ec2", "ec2 CreateSecurityGroup", true)]);
    assert_eq!(parameters(&entries[0])["InstanceId.1"], client.nodes[0]);
    assert_eq!(client.cloud.writes().len(), 1);
}

#[tokio::test]
async fn requests_are_strict() {
    let client = Client::new(Options::default());
    for (call, form, code) in [
        ("ec2 DescribeEverything", &[][..], "InvalidAction"),
        ("elb DescribeListeners", &[], "InvalidAction"),
        ("ec2 DescribeInstances", &[("InstanceIds.1", "i-1")], "UnknownParameter"),
        ("ec2 DescribeInstances", &[("InstanceId.member.1", "i-1")], "UnknownParameter"),
        ("elb DescribeLoadBalancers", &[("LoadBalancerNames.1", "a")], "UnknownParameter"),
        ("ec2 DeleteRoute", &[("DestinationCidrBlock", "10.0.0.0/8")], "MissingParameter"),
        ("elbv2 DeleteListener", &[], "ValidationError"),
        ("ec2 DescribeInstances", &[("MaxResults", "ten")], "InvalidParameterValue"),
    ] {
        assert_eq!(client.code(call, form).await, (400, code.to_owned()), "{call} {form:?}");
    }
}

#[tokio::test]
async fn lists_have_pages_even_if_the_client_asks_for_none() {
    let client = Client::new(Options { ec2_page: 2, elb_page: 1, ..Options::default() });
    let body = client.ok("ec2 DescribeInstances", &[]).await;
    let token = text(&body, "nextToken");
    assert_eq!(texts(&body, "instanceId").len(), 2);
    let body = client.ok("ec2 DescribeInstances", &[("NextToken", &token)]).await;
    assert_eq!((texts(&body, "instanceId").len(), text(&body, "nextToken")), (1, String::new()));
    for name in ["one", "two"] {
        client.network_load_balancer(name, &[]).await;
        client.classic_load_balancer(name, &[]).await;
    }
    for (call, element) in
        [("elbv2 DescribeLoadBalancers", "LoadBalancerArn"), ("elb DescribeLoadBalancers", "DNSName")]
    {
        let body = client.ok(call, &[]).await;
        let marker = text(&body, "NextMarker");
        assert_eq!(texts(&body, element).len(), 1);
        let body = client.ok(call, &[("Marker", &marker)]).await;
        assert_eq!((texts(&body, element).len(), text(&body, "NextMarker")), (1, String::new()));
    }
}
