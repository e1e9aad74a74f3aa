//! Adoption: what the Go manager creates needs no write, and what the provider creates is the same.
//!
//! [`Go`] makes the calls of aws-cloud-controller-manager, with its parameters.

use std::fmt::Write as _;

use bowline_aws_simulator::{ACCESS_KEY, Fields as _, Options, Record, Simulator};
use bytes::Bytes;
use http::Request;
use serde_json::Value;

use crate::world::{CLUSTER_TAG, NAME, NLB, SERVICE_TAG, World, instance, tag_map, tags, web};

/// Target group of port 80 with node port 30080: the first digits of the SHA-1 sum of
/// `demodefaultweb8030080TCPinstanceTCP30`.
const TARGET_GROUP: &str = "k8s-default-web-96c77b45aa";

/// Security group of a Network Load Balancer: the first digits of the SHA-256 sum of cluster name, Service, namespace and UID.
const MANAGED_GROUP: &str = "k8s-default-web-435dd20e7c";

const MANAGED: &str = "NLBSecurityGroupMode = Managed\n";

/// Versions of the APIs.
const EC2: (&str, &str) = ("ec2", "2016-11-15");
const ELB: (&str, &str) = ("elasticloadbalancing", "2012-06-01");
const ELBV2: (&str, &str) = ("elasticloadbalancing", "2015-12-01");

/// The Go manager.
struct Go<'a> {
    cloud: &'a Simulator,
    instances: Vec<String>,
}

impl Go<'_> {
    fn of(world: &World) -> Go<'_> {
        Go { cloud: &world.cloud, instances: world.nodes.iter().map(instance).collect() }
    }

    /// Calls an action, and returns the response. `=` separates name and value of a parameter.
    async fn call(&self, (service, version): (&str, &str), action: &str, parameters: &[String]) -> String {
        let mut body = format!("Action={action}&Version={version}");
        for (name, value) in parameters.iter().filter_map(|parameter| parameter.split_once('=')) {
            let _ = write!(body, "&{name}=");
            value.bytes().for_each(|byte| {
                let _ = write!(body, "%{byte:02X}");
            });
        }
        let date = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let scope = format!("{ACCESS_KEY}/{}/us-east-1/{service}/aws4_request", &date[..8]);
        let signature = "0".repeat(64);
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature={signature}");
        let request = Request::post("http://aws.test/").header("host", "aws.test").header("x-amz-date", date);
        let request = request.header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        let request = request.header("authorization", authorization).body(Bytes::from(body)).unwrap();
        let response = self.cloud.answer(request).await.unwrap();
        let text = String::from_utf8(response.body().to_vec()).unwrap();
        assert!(response.status().is_success(), "{action}: {text}");
        text
    }

    /// Creates the security group with these rules: 80 from everywhere, and path MTU discovery.
    async fn create_group(&self, name: &str, description: &str) -> String {
        let vpc = self.cloud.fixture().vpc;
        let parameters = [
            format!("VpcId={vpc}"),
            format!("GroupName={name}"),
            format!("GroupDescription={description}"),
            "TagSpecification.1.ResourceType=security-group".to_owned(),
            format!("TagSpecification.1.Tag.1.Key={CLUSTER_TAG}"),
            "TagSpecification.1.Tag.1.Value=owned".to_owned(),
        ];
        let created = self.call(EC2, "CreateSecurityGroup", &parameters).await;
        let id = text(&created, "groupId");
        let rules = [rule(1, "tcp", 80, 80, "0.0.0.0/0", None), rule(2, "icmp", 3, 4, "0.0.0.0/0", None)].concat();
        let parameters = [vec![format!("GroupId={id}")], rules].concat();
        self.call(EC2, "AuthorizeSecurityGroupIngress", &parameters).await;
        id
    }

    fn service_tags() -> Vec<String> {
        [(SERVICE_TAG, "default/web"), (CLUSTER_TAG, "owned")]
            .iter()
            .enumerate()
            .flat_map(|(at, (key, value))| {
                [format!("Tags.member.{}.Key={key}", at + 1), format!("Tags.member.{}.Value={value}", at + 1)]
            })
            .collect()
    }

    async fn create_classic(&self) {
        let description = format!("Security group for Kubernetes ELB {NAME} (default/web)");
        let group = self.create_group(&format!("k8s-elb-{NAME}"), &description).await;
        let name = format!("LoadBalancerName={NAME}");
        let fixture = self.cloud.fixture();
        let subnets = fixture.public_subnets.iter().enumerate();
        let subnets = subnets.map(|(at, id)| format!("Subnets.member.{}={id}", at + 1));
        let listener = ["Protocol=tcp", "LoadBalancerPort=80", "InstanceProtocol=tcp", "InstancePort=30080"];
        let listener = listener.iter().map(|field| format!("Listeners.member.1.{field}"));
        let own = [name.clone(), format!("SecurityGroups.member.1={group}")];
        let parameters: Vec<_> = own.into_iter().chain(subnets).chain(listener).chain(Go::service_tags()).collect();
        self.call(ELB, "CreateLoadBalancer", &parameters).await;
        let attributes = [
            "AccessLog.Enabled=false",
            "ConnectionDraining.Enabled=false",
            "ConnectionSettings.IdleTimeout=60",
            "CrossZoneLoadBalancing.Enabled=false",
        ];
        let attributes = attributes.iter().map(|attribute| format!("LoadBalancerAttributes.{attribute}"));
        let parameters: Vec<_> = [name.clone()].into_iter().chain(attributes).collect();
        self.call(ELB, "ModifyLoadBalancerAttributes", &parameters).await;
        let check = ["Target=TCP:30080", "Interval=10", "Timeout=5", "UnhealthyThreshold=6", "HealthyThreshold=2"];
        let check = check.iter().map(|field| format!("HealthCheck.{field}"));
        let parameters: Vec<_> = [name.clone()].into_iter().chain(check).collect();
        self.call(ELB, "ConfigureHealthCheck", &parameters).await;
        let parameters = [
            format!("GroupId={}", fixture.node_group),
            "IpPermissions.1.IpProtocol=-1".to_owned(),
            format!("IpPermissions.1.Groups.1.GroupId={group}"),
        ];
        self.call(EC2, "AuthorizeSecurityGroupIngress", &parameters).await;
        let ids = self.instances.iter().enumerate();
        let ids = ids.map(|(at, id)| format!("Instances.member.{}.InstanceId={id}", at + 1));
        let parameters: Vec<_> = [name].into_iter().chain(ids).collect();
        self.call(ELB, "RegisterInstancesWithLoadBalancer", &parameters).await;
    }

    async fn create_network(&self, is_managed: bool) {
        let fixture = self.cloud.fixture();
        let description = "[k8s] Managed SecurityGroup for LoadBalancer";
        let group = if is_managed { Some(self.create_group(MANAGED_GROUP, description).await) } else { None };
        let subnets = fixture.public_subnets.iter().enumerate();
        let subnets = subnets.map(|(at, id)| format!("SubnetMappings.member.{}.SubnetId={id}", at + 1));
        let own = [format!("Name={NAME}"), "Type=network".to_owned()];
        let group = group.map(|group| format!("SecurityGroups.member.1={group}"));
        let parameters = own.into_iter().chain(group).chain(subnets).chain(Go::service_tags()).collect::<Vec<_>>();
        let created = self.call(ELBV2, "CreateLoadBalancer", &parameters).await;
        let load_balancer = text(&created, "LoadBalancerArn");
        let parameters = [
            format!("Name={TARGET_GROUP}"),
            format!("VpcId={}", fixture.vpc),
            "Protocol=TCP".to_owned(),
            "Port=30080".to_owned(),
            "TargetType=instance".to_owned(),
            "HealthCheckProtocol=TCP".to_owned(),
            "HealthCheckPort=traffic-port".to_owned(),
            "HealthCheckIntervalSeconds=30".to_owned(),
            "HealthyThresholdCount=3".to_owned(),
            "UnhealthyThresholdCount=3".to_owned(),
        ];
        let created = self.call(ELBV2, "CreateTargetGroup", &[&parameters[..], &Go::service_tags()].concat()).await;
        let group = text(&created, "TargetGroupArn");
        let target = |(at, id): (usize, &String)| {
            [format!("Targets.member.{}.Id={id}", at + 1), format!("Targets.member.{}.Port=30080", at + 1)]
        };
        let targets = self.instances.iter().enumerate().flat_map(target);
        let parameters: Vec<_> = [format!("TargetGroupArn={group}")].into_iter().chain(targets).collect();
        self.call(ELBV2, "RegisterTargets", &parameters).await;
        let parameters = [
            format!("LoadBalancerArn={load_balancer}"),
            "Port=80".to_owned(),
            "Protocol=TCP".to_owned(),
            "DefaultActions.member.1.Type=forward".to_owned(),
            format!("DefaultActions.member.1.TargetGroupArn={group}"),
        ];
        self.call(ELBV2, "CreateListener", &[&parameters[..], &Go::service_tags()].concat()).await;
        for (protocol, from, to, description) in [
            ("tcp", 30080, 30080, format!("kubernetes.io/rule/nlb/client={NAME}")),
            ("icmp", 3, 4, "kubernetes.io/rule/nlb/mtu".to_owned()),
        ] {
            let id = vec![format!("GroupId={}", fixture.node_group)];
            let rule = rule(1, protocol, from, to, "0.0.0.0/0", Some(&description));
            self.call(EC2, "AuthorizeSecurityGroupIngress", &[id, rule].concat()).await;
        }
    }
}

/// Parameters of one rule.
fn rule(at: usize, protocol: &str, from: u16, to: u16, range: &str, description: Option<&str>) -> Vec<String> {
    let prefix = format!("IpPermissions.{at}");
    let description = description.map(|text| format!("{prefix}.IpRanges.1.Description={text}"));
    let fields = [
        format!("{prefix}.IpProtocol={protocol}"),
        format!("{prefix}.FromPort={from}"),
        format!("{prefix}.ToPort={to}"),
        format!("{prefix}.IpRanges.1.CidrIp={range}"),
    ];
    fields.into_iter().chain(description).collect()
}

/// Text of the first element with this name.
fn text(xml: &str, element: &str) -> String {
    let rest = xml.split_once(&format!("<{element}>")).unwrap_or_else(|| panic!("no {element}: {xml}")).1;
    rest.split('<').next().unwrap().to_owned()
}

/// Everything that belongs to load balancers, without times, IDs of rules, and the order of rules and tags.
fn resources(world: &World) -> Vec<Record> {
    let kinds = ["classic", "load_balancer", "listener", "target_group", "security_group"];
    let mut records: Vec<_> = kinds.iter().flat_map(|kind| world.cloud.records(kind)).collect();
    for record in &mut records {
        ["CreatedTime", "ipPermissions", "LoadBalancerArns"].iter().for_each(|field| drop(record.remove(*field)));
        for list in ["_rules", "_tags", "tagSet", "_targets", "Instances"] {
            let Some(items) = record.get_mut(list).and_then(Value::as_array_mut) else { continue };
            items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| drop(item.remove("rule")));
            items.sort_by_key(ToString::to_string);
        }
    }
    records
}

/// Compares what the Go manager creates with what the provider creates, and lets each Service adopt what the Go manager has created.
async fn compare(annotations: &[(&str, &str)], lines: &str) -> World {
    let (by_go, world) = (World::with(Options::default(), lines).await, World::with(Options::default(), lines).await);
    let go = Go::of(&by_go);
    match annotations.is_empty() {
        true => go.create_classic().await,
        false => go.create_network(!lines.is_empty()).await,
    }
    let created = resources(&by_go);
    by_go.cloud.forget_calls();
    let mut service = by_go.kept(web(annotations));
    let state = by_go.synced(&mut service).await;
    assert_eq!(by_go.writes(), Vec::<String>::new(), "adopted without a write");
    assert!(state.status.ingress[0].hostname.as_ref().unwrap().starts_with(NAME));
    assert_eq!(resources(&by_go), created);
    world.create(annotations).await;
    let own = resources(&world);
    let ids = |records: &[Record]| records.iter().map(|record| record.text("id").to_owned()).collect::<Vec<_>>();
    // IDs are those of the order of creation, so they may differ.
    let unified = |records: &[Record], ids: &[String]| {
        let mut text = serde_json::to_string_pretty(records).unwrap();
        ids.iter().enumerate().for_each(|(at, id)| text = text.replace(id.as_str(), &format!("ID-{at}")));
        text
    };
    assert_eq!(unified(&own, &ids(&own)), unified(&created, &ids(&created)));
    by_go.delete(&mut service).await.unwrap();
    assert_eq!(by_go.leftovers(), Vec::<String>::new(), "and deleted completely");
    world
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_is_adopted_and_created_as_the_go_manager_does() {
    let world = compare(&[], "").await;
    let own = [(CLUSTER_TAG, "owned"), (SERVICE_TAG, "default/web")];
    assert_eq!(tags(&world.classic()), tag_map(&own), "no further tag");
    let group = world.group(&format!("k8s-elb-{NAME}")).unwrap();
    assert_eq!(tags(&group), tag_map(&own[..1]));
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_is_adopted_and_created_as_the_go_manager_does() {
    let world = compare(&[NLB], "").await;
    let own = tag_map(&[(CLUSTER_TAG, "owned"), (SERVICE_TAG, "default/web")]);
    for record in [world.network(), world.target_group(), world.cloud.listeners().remove(0)] {
        assert_eq!(tags(&record), own, "no further tag");
    }
    assert_eq!(world.target_group().text("TargetGroupName"), TARGET_GROUP);
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_in_managed_mode_is_adopted_and_created_as_the_go_manager_does() {
    let world = compare(&[NLB], MANAGED).await;
    let group = world.group(MANAGED_GROUP).unwrap();
    assert_eq!(tags(&group), tag_map(&[(CLUSTER_TAG, "owned")]));
    assert_eq!(world.rules(MANAGED_GROUP), ["icmp 3-4 from 0.0.0.0/0", "tcp 80 from 0.0.0.0/0"]);
}

#[tokio::test(start_paused = true)]
async fn the_legacy_mode_adds_the_legacy_tag_and_nothing_else() {
    for annotations in [&[][..], &[NLB]] {
        let lines = "KubernetesClusterTag = demo\nRegion = us-east-1\n";
        let world = World::with(Options::default(), lines).await;
        world.create(annotations).await;
        let record = if annotations.is_empty() { world.classic() } else { world.network() };
        let own = [(CLUSTER_TAG, "owned"), (SERVICE_TAG, "default/web"), ("KubernetesCluster", "demo")];
        assert_eq!(tags(&record), tag_map(&own));
    }
}
