//! Instances, routes and security groups.

use std::time::Duration;

use bowline_aws_simulator::{Fields, Limits, NewInstance, NewInterface, Options};
use serde_json::json;

use crate::client::{Client, text, texts};

#[tokio::test]
async fn a_terminated_instance_is_listed_and_leaves_a_blackhole() {
    let client = Client::new(Options::default());
    let (id, table) = (client.nodes[0].clone(), client.cloud.fixture().node_table);
    let form = [("RouteTableId", table.as_str()), ("DestinationCidrBlock", "10.244.1.7/24"), ("InstanceId", &id)];
    client.ok("ec2 CreateRoute", &form).await;
    let routes = client.cloud.routes(&table);
    assert_eq!((&routes[1]["destinationCidrBlock"], &routes[1]["state"]), (&json!("10.244.1.0/24"), &json!("active")));
    assert_eq!((&routes[1]["instanceId"], routes.len()), (&json!(id), 2));
    client.cloud.terminate(&id);
    assert_eq!(
        (&client.cloud.routes(&table)[1]["state"], &client.cloud.routes(&table)[1]["instanceId"]),
        (&json!("blackhole"), &json!(null))
    );
    let body = client.ok("ec2 DescribeInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!((texts(&body, "name"), texts(&body, "privateIpAddress").len()), (vec!["terminated".to_owned()], 0));
    assert_eq!(client.code("ec2 CreateRoute", &form).await.1, "InvalidInstanceID");
    client.cloud.remove("instance", &id);
    assert_eq!(client.code("ec2 DescribeInstances", &[("InstanceId.1", &id)]).await.1, "InvalidInstanceID.NotFound");
}

#[tokio::test]
async fn route_tables_have_a_limit() {
    let limits = Limits { routes: 1, ..Limits::default() };
    let client = Client::new(Options { limits, ..Options::default() });
    let table = client.cloud.fixture().node_table;
    let put = async |cidr: &str| {
        let form = [("RouteTableId", table.as_str()), ("DestinationCidrBlock", cidr), ("InstanceId", &client.nodes[0])];
        client.code("ec2 CreateRoute", &form).await.1
    };
    assert_eq!(put("10.244.1.0/24").await, "");
    assert_eq!(put("10.244.2.0/24").await, "RouteLimitExceeded");
    assert_eq!(put("10.20.0.0/16").await, "RouteAlreadyExists");
}

#[tokio::test]
async fn instances_have_the_given_fields() {
    let client = Client::new(Options { region: "ap-southeast-2".to_owned(), ..Options::default() });
    let interfaces = vec![
        NewInterface { ipv4: vec![[10, 20, 64, 50].into()], ipv6: vec!["2001:db8::5".parse().unwrap()] },
        NewInterface { ipv4: vec![[10, 20, 64, 51].into()], ipv6: Vec::new() },
    ];
    let id =
        client.cloud.add_instance(NewInstance { interfaces, state: "pending".to_owned(), ..NewInstance::named("two") });
    client.cloud.rename(&id, "renamed");
    let body = client.ok("ec2 DescribeInstances", &[("InstanceId.1", &id)]).await;
    assert_eq!(texts(&body, "deviceIndex"), ["0", "1"]);
    assert_eq!(text(&body, "ipv6Address"), "2001:db8::5");
    assert_eq!(text(&body, "privateDnsName"), "ip-10-20-64-50.ap-southeast-2.compute.internal");
    assert_eq!((texts(&body, "name"), texts(&body, "value")), (vec!["pending".to_owned()], vec!["renamed".to_owned()]));
    let zones = client.ok("ec2 DescribeAvailabilityZones", &[]).await;
    assert_eq!(texts(&zones, "zoneId"), ["apse2-az1", "apse2-az2", "apse2-az3"]);
    let check = [("InstanceId", id.as_str()), ("SourceDestCheck.Value", "false")];
    assert_eq!(client.code("ec2 ModifyInstanceAttribute", &check).await.1, "InvalidInstanceID");
}

#[tokio::test]
async fn an_account_may_have_no_control_plane() {
    let client = Client::new(Options { control_plane: false, ..Options::default() });
    assert_eq!(client.cloud.records("instance").len(), 2);
    assert_eq!(client.cloud.fixture().control_plane, "");
}

#[tokio::test]
async fn rules_have_a_limit_for_each_family() {
    let limits = Limits { rules: 1, ..Limits::default() };
    let client = Client::new(Options { limits, ..Options::default() });
    let id = client.group("web").await;
    assert!(client.cloud.put_rule(&id, "0.0.0.0/0", 80, 80, Some("by hand")));
    assert!(client.cloud.put_rule(&id, "::/0", 80, 80, None));
    assert!(!client.cloud.put_rule(&id, "10.0.0.0/8", 80, 80, None));
    let own =
        [("GroupId", id.as_str()), ("IpPermissions.1.IpProtocol", "-1"), ("IpPermissions.1.Groups.1.GroupId", &id)];
    assert_eq!(client.code("ec2 AuthorizeSecurityGroupIngress", &own).await.1, "RulesPerSecurityGroupLimitExceeded");
    client.cloud.configure(|options| options.limits.rules = 2);
    client.ok("ec2 AuthorizeSecurityGroupIngress", &own).await;
    let groups = client.cloud.security_groups();
    let group = groups.iter().find(|group| group.text("groupName") == "web").unwrap();
    assert_eq!(
        group["ipPermissions"][0]["ipRanges"],
        json!([{"cidrIp": "0.0.0.0/0", "description": "by hand", "userId": null}])
    );
    assert_eq!(group["ipPermissions"][1]["groups"][0]["groupId"], json!(id));
    client.ok("ec2 DeleteSecurityGroup", &[("GroupId", &id)]).await;
}

#[tokio::test]
async fn a_group_stays_in_use_after_its_load_balancer_is_deleted() {
    tokio::time::pause();
    let client = Client::new(Options { lingering: Duration::from_secs(60), ..Options::default() });
    let id = client.group("web").await;
    client.classic_load_balancer("web", &[("SecurityGroups.member.1", &id)]).await;
    let delete = async || client.code("ec2 DeleteSecurityGroup", &[("GroupId", &id)]).await.1;
    assert_eq!(delete().await, "DependencyViolation");
    client.ok("elb DeleteLoadBalancer", &[("LoadBalancerName", "web")]).await;
    assert_eq!(delete().await, "DependencyViolation");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(delete().await, "");
}

#[tokio::test]
async fn records_can_be_created_by_hand() {
    let client = Client::new(Options::default());
    let vpc = client.cloud.fixture().vpc;
    client
        .cloud
        .put("zone", json!({"zoneName": "us-east-1-bos-1a", "zoneId": "use1-bos1-az1", "zoneType": "local-zone"}));
    let tags = json!([{"key": "kubernetes.io/cluster/other", "value": "owned"}]);
    let subnet =
        json!({"vpcId": vpc, "cidrBlock": "10.20.48.0/24", "availabilityZone": "us-east-1-bos-1a", "tagSet": tags});
    let id = client.cloud.put("subnet", subnet);
    let filter = [("Filter.1.Name", "availability-zone"), ("Filter.1.Value.1", "us-east-1-bos-*")];
    assert_eq!(texts(&client.ok("ec2 DescribeSubnets", &filter).await, "subnetId"), [id]);
    let form = [("Filter.1.Name", "zone-type"), ("Filter.1.Value.1", "local-zone")];
    assert_eq!(texts(&client.ok("ec2 DescribeAvailabilityZones", &form).await, "zoneName"), ["us-east-1-bos-1a"]);
    let fargate = json!({"vpcId": vpc, "status": "in-use", "privateIpAddress": "10.20.64.99", "availabilityZone": "us-east-1a",
        "attachment": {"status": "attached"}, "privateIpAddressesSet": [{"privateIpAddress": "10.20.64.99", "primary": true}]});
    let interface = client.cloud.put("network_interface", fargate);
    let filter = [("Filter.1.Name", "private-ip-address"), ("Filter.1.Value.1", "10.20.64.99")];
    assert_eq!(texts(&client.ok("ec2 DescribeNetworkInterfaces", &filter).await, "networkInterfaceId"), [interface]);
}
