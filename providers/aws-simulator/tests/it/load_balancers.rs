//! Load balancers of both APIs.

use std::time::Duration;

use bowline_aws_simulator::{Fields, Limits, Options, Work};
use serde_json::json;

use crate::client::{Client, text, texts};

/// Creates a TCP target group and returns its ARN.
async fn target_group(client: &Client, name: &str) -> String {
    let vpc = client.cloud.fixture().vpc;
    let form = [("Name", name), ("Protocol", "TCP"), ("Port", "30080"), ("VpcId", vpc.as_str())];
    text(&client.ok("elbv2 CreateTargetGroup", &form).await, "TargetGroupArn")
}

/// Creates a TCP listener and returns the error code.
async fn listen(client: &Client, balancer: &str, port: &str, group: &str) -> String {
    let form = [
        ("LoadBalancerArn", balancer),
        ("Protocol", "TCP"),
        ("Port", port),
        ("DefaultActions.member.1.Type", "forward"),
        ("DefaultActions.member.1.TargetGroupArn", group),
    ];
    client.code("elbv2 CreateListener", &form).await.1
}

async fn register(client: &Client, group: &str, id: &str) -> String {
    let form = [("TargetGroupArn", group), ("Targets.member.1.Id", id)];
    client.code("elbv2 RegisterTargets", &form).await.1
}

async fn health(client: &Client, group: &str) -> Vec<String> {
    texts(&client.ok("elbv2 DescribeTargetHealth", &[("TargetGroupArn", group)]).await, "State")
}

#[tokio::test]
async fn a_network_load_balancer_is_provisioned_or_fails() {
    let client = Client::new(Options { work: Work::Manual, ..Options::default() });
    client.cloud.fail_work(1);
    client.network_load_balancer("first", &[]).await;
    client.network_load_balancer("second", &[]).await;
    let states = async || {
        let body = client.ok("elbv2 DescribeLoadBalancers", &[]).await;
        let mut states = texts(&body, "Code");
        states.sort();
        states
    };
    assert_eq!(states().await, ["provisioning", "provisioning"]);
    client.cloud.finish_work();
    assert_eq!(states().await, ["active", "failed"]);
}

#[tokio::test]
async fn a_deregistered_target_drains() {
    tokio::time::pause();
    let client = Client::new(Options { draining: Duration::from_secs(30), ..Options::default() });
    let balancer = client.network_load_balancer("web", &[]).await;
    let group = target_group(&client, "web").await;
    assert_eq!(register(&client, &group, &client.nodes[0]).await, "");
    assert_eq!(health(&client, &group).await, ["unused"]);
    assert_eq!(listen(&client, &balancer, "80", &group).await, "");
    assert_eq!(health(&client, &group).await, ["healthy"]);
    let form = [("TargetGroupArn", group.as_str()), ("Targets.member.1.Id", &client.nodes[0])];
    client.ok("elbv2 DeregisterTargets", &form).await;
    client.ok("elbv2 DeregisterTargets", &form).await;
    assert_eq!(health(&client, &group).await, ["draining"]);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(health(&client, &group).await, Vec::<String>::new());
}

#[tokio::test]
async fn only_running_instances_become_targets() {
    let client = Client::new(Options { limits: Limits { targets: 1, ..Limits::default() }, ..Options::default() });
    let group = target_group(&client, "web").await;
    client.cloud.set_state(&client.nodes[0], "stopped");
    assert_eq!(register(&client, &group, &client.nodes[0]).await, "InvalidTarget");
    client.cloud.set_state(&client.nodes[0], "running");
    assert_eq!(register(&client, &group, &client.nodes[0]).await, "");
    assert_eq!(register(&client, &group, &client.nodes[1]).await, "TooManyTargets");
    assert_eq!(client.cloud.target_groups()[0]["_targets"], json!([{"Id": client.nodes[0], "Port": "30080"}]));
    client.cloud.terminate(&client.nodes[0]);
    assert_eq!(client.cloud.target_groups()[0]["_targets"], json!([]));
}

#[tokio::test]
async fn a_target_group_belongs_to_one_load_balancer() {
    let client = Client::new(Options { limits: Limits { listeners: 1, ..Limits::default() }, ..Options::default() });
    let [one, two] = [client.network_load_balancer("one", &[]).await, client.network_load_balancer("two", &[]).await];
    let group = target_group(&client, "web").await;
    assert_eq!(listen(&client, &one, "80", &group).await, "");
    assert_eq!(listen(&client, &one, "80", &group).await, "");
    assert_eq!(listen(&client, &one, "81", &group).await, "TooManyListeners");
    assert_eq!(listen(&client, &two, "80", &group).await, "TargetGroupAssociationLimit");
    assert_eq!(client.cloud.target_groups()[0]["LoadBalancerArns"], json!([one]));
    client.ok("elbv2 DeleteLoadBalancer", &[("LoadBalancerArn", &one)]).await;
    assert_eq!(client.cloud.listeners().len(), 0);
    client.ok("elbv2 DeleteTargetGroup", &[("TargetGroupArn", &group)]).await;
}

#[tokio::test]
async fn a_listener_changes_its_protocol() {
    let client = Client::new(Options::default());
    let balancer = client.network_load_balancer("web", &[]).await;
    let group = target_group(&client, "web").await;
    listen(&client, &balancer, "80", &group).await;
    let arn = client.cloud.listeners()[0].text("ListenerArn").to_owned();
    let certificate = client.cloud.fixture().certificate;
    let secure =
        [("ListenerArn", arn.as_str()), ("Protocol", "TLS"), ("Certificates.member.1.CertificateArn", &certificate)];
    let body = client.ok("elbv2 ModifyListener", &secure).await;
    assert_eq!(
        (text(&body, "SslPolicy"), text(&body, "Port")),
        ("ELBSecurityPolicy-2016-08".to_owned(), "80".to_owned())
    );
    let body = client.ok("elbv2 ModifyListener", &[("ListenerArn", &arn), ("Protocol", "TCP")]).await;
    assert_eq!((text(&body, "SslPolicy"), texts(&body, "CertificateArn").len()), (String::new(), 0));
}

#[tokio::test]
async fn load_balancers_have_quotas() {
    let limits = Limits { load_balancers: 1, target_groups: 1, classic_load_balancers: 1, ..Limits::default() };
    let client = Client::new(Options { limits, ..Options::default() });
    client.network_load_balancer("one", &[]).await;
    client.classic_load_balancer("one", &[]).await;
    target_group(&client, "one").await;
    let (vpc, subnet) = (client.cloud.fixture().vpc, client.cloud.fixture().public_subnets[0].clone());
    let form = [("Name", "two"), ("Type", "network"), ("Subnets.member.1", subnet.as_str())];
    assert_eq!(client.code("elbv2 CreateLoadBalancer", &form).await.1, "TooManyLoadBalancers");
    let form = [("Name", "two"), ("Protocol", "TCP"), ("Port", "1"), ("VpcId", vpc.as_str())];
    assert_eq!(client.code("elbv2 CreateTargetGroup", &form).await.1, "TooManyTargetGroups");
    let limits = client.ok("elbv2 DescribeAccountLimits", &[]).await;
    assert_eq!(text(&limits, "Max"), "1");
}

#[tokio::test]
async fn an_elastic_address_has_one_load_balancer() {
    let client = Client::new(Options::default());
    let (subnet, allocation) = (client.cloud.fixture().public_subnets[1].clone(), client.cloud.fixture().allocation);
    let create = async |name: &str, scheme: &str| {
        let mapping = ("SubnetMappings.member.1.SubnetId", subnet.as_str());
        let address = ("SubnetMappings.member.1.AllocationId", allocation.as_str());
        let form = [("Name", name), ("Type", "network"), ("Scheme", scheme), mapping, address];
        client.code("elbv2 CreateLoadBalancer", &form).await.1
    };
    assert_eq!(create("inner", "internal").await, "InvalidConfigurationRequest");
    assert_eq!(create("one", "internet-facing").await, "");
    assert_eq!(create("two", "internet-facing").await, "ResourceInUse");
}

#[tokio::test]
async fn resources_made_by_hand_are_shown() {
    let client = Client::new(Options::default());
    let tags = [("kubernetes.io/cluster/other", "owned")];
    let balancer = client.cloud.put_load_balancer("other", "network", &tags);
    let group = client.cloud.put_target_group("other", 30080, &tags);
    client.cloud.put_listener(&balancer, 80, &group, &tags);
    client.cloud.put_load_balancer("web", "application", &[]);
    let listener =
        json!([{"Protocol": "TCP", "LoadBalancerPort": "80", "InstanceProtocol": "TCP", "InstancePort": "30080"}]);
    client.cloud.put_classic_load_balancer("old", listener, &tags);
    let body = client.ok("elbv2 DescribeLoadBalancers", &[]).await;
    assert_eq!((texts(&body, "Code"), texts(&body, "Type").len()), (vec!["active".to_owned(); 2], 2));
    assert_eq!(texts(&client.ok("elbv2 DescribeListeners", &[("LoadBalancerArn", &balancer)]).await, "Port"), ["80"]);
    let body = client
        .ok("elbv2 DescribeTags", &[("ResourceArns.member.1", &balancer), ("ResourceArns.member.2", &group)])
        .await;
    assert_eq!(texts(&body, "Value"), ["owned", "owned"]);
    let body = client.ok("elb DescribeLoadBalancers", &[("LoadBalancerNames.member.1", "old")]).await;
    assert_eq!((text(&body, "InstancePort"), text(&body, "Target")), ("30080".to_owned(), "TCP:30080".to_owned()));
    assert_eq!(client.cloud.classic_load_balancers()[0]["_tags"][0]["Value"], json!("owned"));
}

#[tokio::test]
async fn a_terminated_instance_leaves_a_classic_load_balancer() {
    let client = Client::new(Options::default());
    client.classic_load_balancer("web", &[]).await;
    let [one, two] = &client.nodes;
    let form =
        [("LoadBalancerName", "web"), ("Instances.member.1.InstanceId", one), ("Instances.member.2.InstanceId", two)];
    client.ok("elb RegisterInstancesWithLoadBalancer", &form).await;
    client.cloud.terminate(one);
    let body = client.ok("elb DescribeLoadBalancers", &[]).await;
    assert_eq!(texts(&body, "InstanceId"), std::slice::from_ref(two));
    assert_eq!(client.code("elb RegisterInstancesWithLoadBalancer", &form).await.1, "InvalidInstance");
}
