//! Bench for load balancers: Classic and Network Load Balancers, target groups, security groups and their rules.
//!
//! A load balancer is marked by the tags of its cluster and its Service, and by its name, which has the UID. Every other resource is
//! attributed to the load balancer that it names: a listener and a target group by an ARN, a security group by its name, a rule of a
//! node group by its description or its source group. A target group without load balancer has the tag of its Service.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use async_trait::async_trait;
use bowline_conformance::{
    BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource,
    SeenTarget,
};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{LoadBalancerKey, Protocol};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::bench::{CLUSTER, MotoBench, PAGE};
use super::moto::{list, text};

/// Prefix of the tag of a cluster.
const CLUSTER_TAG: &str = "kubernetes.io/cluster/";

/// Tag with namespace and name of a Service.
const SERVICE_TAG: &str = "kubernetes.io/service-name";

/// Prefix of the name of a Classic Load Balancer's security group.
const GROUP: &str = "k8s-elb-";

/// Prefix of the descriptions of rules for Network Load Balancers.
const RULE: &str = "kubernetes.io/rule/nlb/";

/// Port of kube-proxy's health check.
const SHARED_PORT: u16 = 10256;

/// Returns the name of a Service's load balancer.
pub(crate) fn name_of(key: &LoadBalancerKey) -> String {
    match key.name_only() {
        Some(name) => name.to_owned(),
        None => format!("a{}", key.uid.replace('-', "")).chars().take(32).collect(),
    }
}

/// Tags by key.
type Tags = BTreeMap<String, String>;

fn tags(tags: &Value) -> Tags {
    list(tags).iter().map(|tag| (text(&tag["Key"]), text(&tag["Value"]))).collect()
}

/// Returns the cluster in the tags.
fn cluster(tags: &Tags) -> Option<&str> {
    tags.keys().find_map(|key| key.strip_prefix(CLUSTER_TAG))
}

/// Returns the mark of a resource that names a load balancer which does not exist.
fn mark(cluster: &str, name: &str) -> LoadBalancerKey {
    LoadBalancerKey { cluster: cluster.into(), namespace: String::new(), service: name.to_owned(), uid: String::new() }
}

/// Returns the owner in the tags, with this UID.
fn owner(tags: &Tags, uid: &str) -> Option<LoadBalancerKey> {
    let (namespace, service) = tags.get(SERVICE_TAG)?.split_once('/')?;
    let (namespace, service, uid) = (namespace.to_owned(), service.to_owned(), uid.to_owned());
    Some(LoadBalancerKey { cluster: cluster(tags)?.into(), namespace, service, uid })
}

/// Returns an address for the name of a load balancer, which does not resolve: different ones for different names.
fn address(dns_name: &str) -> IpAddr {
    let hash = dns_name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    Ipv4Addr::from_bits(hash & 0x00ff_ffff | 0x0a00_0000).into()
}

/// All resources of the account that serve load balancers, as boto3 shows them.
struct Account {
    classic: Vec<Value>,
    network: Vec<Value>,
    /// By the ARN of the load balancer.
    listeners: BTreeMap<String, Vec<Value>>,
    target_groups: Vec<Value>,
    /// Targets by the ARN of the target group.
    targets: BTreeMap<String, Vec<Value>>,
    security_groups: Vec<Value>,
    /// Tags by ARN, or by the name of a Classic Load Balancer.
    tags: BTreeMap<String, Tags>,
}

impl MotoBench {
    async fn account(&self) -> Account {
        let call = async |api: &str, operation: &str, parameters: Value, field: &str| {
            list(&self.moto.call_if_exists(api, operation, parameters).await[field]).to_vec()
        };
        let classic = call("elb", "describe_load_balancers", json!({}), "LoadBalancerDescriptions").await;
        let network = call("elbv2", "describe_load_balancers", json!({}), "LoadBalancers").await;
        let target_groups = call("elbv2", "describe_target_groups", json!({}), "TargetGroups").await;
        let (mut listeners, mut targets, mut all_tags) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for one in &classic {
            let name = text(&one["LoadBalancerName"]);
            let found = call("elb", "describe_tags", json!({"LoadBalancerNames": [name]}), "TagDescriptions").await;
            all_tags.insert(name, tags(&found[0]["Tags"]));
        }
        for one in &network {
            let arn = text(&one["LoadBalancerArn"]);
            let found = call("elbv2", "describe_listeners", json!({"LoadBalancerArn": arn}), "Listeners").await;
            listeners.insert(arn, found);
        }
        for one in &target_groups {
            let arn = text(&one["TargetGroupArn"]);
            let parameters = json!({"TargetGroupArn": arn});
            let found = call("elbv2", "describe_target_health", parameters, "TargetHealthDescriptions").await;
            targets.insert(arn, found);
        }
        for arn in listeners.keys().chain(targets.keys()) {
            let found = call("elbv2", "describe_tags", json!({"ResourceArns": [arn]}), "TagDescriptions").await;
            all_tags.insert(arn.clone(), tags(&found[0]["Tags"]));
        }
        let security_groups = call("ec2", "describe_security_groups", json!({}), "SecurityGroups").await;
        Account { classic, network, listeners, target_groups, targets, security_groups, tags: all_tags }
    }

    /// Returns an attribute of a target group.
    async fn attribute(&self, arn: &str, key: &str) -> Option<String> {
        let parameters = json!({"TargetGroupArn": arn});
        let found = self.moto.call_if_exists("elbv2", "describe_target_group_attributes", parameters).await;
        let attribute = list(&found["Attributes"]).iter().find(|one| one["Key"] == key)?;
        Some(text(&attribute["Value"]))
    }

    async fn idle_timeout(&self, name: &str) -> Option<Duration> {
        let parameters = json!({"LoadBalancerName": name});
        let found = self.moto.call_if_exists("elb", "describe_load_balancer_attributes", parameters).await;
        found["LoadBalancerAttributes"]["ConnectionSettings"]["IdleTimeout"].as_u64().map(Duration::from_secs)
    }
}

// ---- resources with their owners

impl Account {
    fn tags(&self, of: &str) -> Tags {
        self.tags.get(of).cloned().unwrap_or_default()
    }

    /// Returns the owner of a load balancer, from the tags of this ARN or name; none if it has none of a Service.
    fn owner_of(&self, of: &str, name: &str) -> Vec<LoadBalancerKey> {
        name.strip_prefix('a').and_then(|uid| owner(&self.tags(of), uid)).into_iter().collect()
    }

    /// Returns the owner of the load balancer with this name, or a key with the name alone if there is none.
    fn owner_of_name(&self, name: &str) -> LoadBalancerKey {
        let of_name = |one: &&Value| one["LoadBalancerName"] == name;
        let classic = self.classic.iter().find(of_name).map(|_| name.to_owned());
        let network = || self.network.iter().find(of_name).map(|one| text(&one["LoadBalancerArn"]));
        let found = classic.or_else(network).and_then(|of| self.owner_of(&of, name).pop());
        found.unwrap_or_else(|| mark(CLUSTER, name))
    }

    fn resources(&self) -> Vec<SeenResource> {
        let classic = self.classic.iter().map(|one| {
            let name = text(&one["LoadBalancerName"]);
            resource("classic load balancer", &text(&one["DNSName"]), &name, self.owner_of(&name, &name), one)
        });
        let network = self.network.iter().flat_map(|one| self.of_network(one));
        let target_groups = self.target_groups.iter().map(|one| self.target_group(one));
        let groups = self.security_groups.iter().flat_map(|one| self.of_security_group(one));
        classic.chain(network).chain(target_groups).chain(groups).collect()
    }

    /// A Network Load Balancer and its listeners.
    fn of_network(&self, one: &Value) -> Vec<SeenResource> {
        let (arn, name) = (text(&one["LoadBalancerArn"]), text(&one["LoadBalancerName"]));
        let owners = self.owner_of(&arn, &name);
        let mut steady = one.clone();
        // It becomes active by itself.
        steady["State"] = Value::Null;
        let listener =
            |listener: &Value| resource("listener", &text(&listener["ListenerArn"]), "", owners.clone(), listener);
        let listeners = self.listeners.get(&arn).into_iter().flatten().map(listener);
        let own = resource("network load balancer", &arn, &name, owners.clone(), &steady);
        [own].into_iter().chain(listeners).collect()
    }

    fn target_group(&self, one: &Value) -> SeenResource {
        let (arn, name) = (text(&one["TargetGroupArn"]), text(&one["TargetGroupName"]));
        let user = self.network.iter().find(|used| list(&one["LoadBalancerArns"]).contains(&used["LoadBalancerArn"]));
        let owners = match user {
            Some(user) => self.owner_of(&text(&user["LoadBalancerArn"]), &text(&user["LoadBalancerName"])),
            None => owner(&self.tags(&arn), "").into_iter().collect(),
        };
        let mut content = one.clone();
        content["Targets"] = self.targets.get(&arn).into_iter().flatten().map(|one| one["Target"].clone()).collect();
        resource("target group", &arn, &name, owners, &content)
    }

    /// The security group of a load balancer, or the rules for load balancers in another group.
    fn of_security_group(&self, group: &Value) -> Vec<SeenResource> {
        let (id, name) = (text(&group["GroupId"]), text(&group["GroupName"]));
        if let Some(load_balancer) = name.strip_prefix(GROUP) {
            return vec![resource("security group", &id, &name, vec![self.owner_of_name(load_balancer)], group)];
        }
        let rule = |(permission, source): (&Value, &Value)| {
            let owner = self.owner_of_name(&self.name_in_rule(source)?);
            let ports = format!("{} {}-{}", permission["IpProtocol"], permission["FromPort"], permission["ToPort"]);
            let summary = json!([name, ports, source]);
            Some(resource("rule", &summary.to_string(), "", vec![owner], &summary))
        };
        list(&group["IpPermissions"]).iter().flat_map(sources).filter_map(rule).collect()
    }

    /// Returns the name of the load balancer that a rule is for.
    fn name_in_rule(&self, source: &Value) -> Option<String> {
        if let Some(description) = source["Description"].as_str().and_then(|text| text.strip_prefix(RULE)) {
            return Some(description.split_once('=')?.1.to_owned());
        }
        let of_group = |group: &&Value| group["GroupId"] == source["GroupId"] && source["GroupId"].is_string();
        let name = text(&self.security_groups.iter().find(of_group)?["GroupName"]);
        name.strip_prefix(GROUP).map(str::to_owned)
    }
}

/// Returns the sources of a permission, each with it.
fn sources(permission: &Value) -> Vec<(&Value, &Value)> {
    let fields = ["IpRanges", "Ipv6Ranges", "UserIdGroupPairs"];
    fields.iter().flat_map(|field| list(&permission[*field])).map(|source| (permission, source)).collect()
}

fn resource(kind: &str, id: &str, name: &str, owners: Vec<LoadBalancerKey>, content: &Value) -> SeenResource {
    let (kind, id, name) = (kind.to_owned(), id.to_owned(), name.to_owned());
    SeenResource { kind, id, name, owners, summary: content.to_string() }
}

// ---- what a load balancer does

fn number(value: &Value) -> u16 {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default();
    u16::try_from(number).unwrap()
}

/// CIDRs of rules; none if all clients may connect.
fn ranges<'a>(sources: impl Iterator<Item = &'a Value>) -> Vec<IpNet> {
    let cidr = |source: &Value| source["CidrIp"].as_str().or(source["CidrIpv6"].as_str())?.parse().ok();
    let mut ranges: Vec<IpNet> = sources.filter_map(cidr).collect();
    ranges.sort();
    ranges.dedup();
    ranges.retain(|range| range.prefix_len() > 0);
    ranges
}

/// Returns an HTTP health check, unless it is the one that every load balancer has.
fn health_check(protocol: &str, port: u16, path: &str, interval: &Value) -> Option<SeenHealthCheck> {
    let is_default = port == SHARED_PORT && path == "/healthz";
    (protocol.starts_with("HTTP") && !is_default).then(|| SeenHealthCheck {
        path: path.to_owned(),
        port,
        interval: interval.as_u64().map(Duration::from_secs),
    })
}

impl Account {
    /// Returns whether a load balancer has the tag of the cluster.
    fn is_of(&self, of: &str, key: &LoadBalancerKey) -> bool {
        cluster(&self.tags(of)) == Some(key.cluster.as_str())
    }

    fn classic(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let name = name_of(key);
        let own = self.classic.iter().find(|one| one["LoadBalancerName"] == name && self.is_of(&name, key))?;
        let listeners = list(&own["ListenerDescriptions"]).iter().map(|one| &one["Listener"]);
        let listener = |one: &Value| SeenListener {
            protocol: Protocol::Tcp,
            port: number(&one["LoadBalancerPort"]),
            node_port: Some(number(&one["InstancePort"])),
        };
        let target = |one: &Value| SeenTarget { machine: text(&one["InstanceId"]), draining: false };
        // `HTTP:31000/healthz`
        let check = text(&own["HealthCheck"]["Target"]);
        let (protocol, rest) = check.split_once(':').unwrap_or_default();
        let (port, path) = rest.split_once('/').unwrap_or((rest, ""));
        let group = self.security_groups.iter().find(|one| one["GroupName"] == format!("{GROUP}{name}"));
        let permissions = group.iter().flat_map(|group| list(&group["IpPermissions"]));
        let of_ports = permissions.filter(|one| one["IpProtocol"] == "tcp").flat_map(sources);
        let policies = list(&own["BackendServerDescriptions"]).iter().flat_map(|one| list(&one["PolicyNames"]));
        Some(SeenLoadBalancer {
            id: text(&own["DNSName"]),
            name,
            addresses: vec![address(&text(&own["DNSName"]))],
            listeners: listeners.map(listener).collect(),
            targets: list(&own["Instances"]).iter().map(target).collect(),
            source_ranges: ranges(of_ports.map(|(_, source)| source)),
            health_check: health_check(
                protocol,
                port.parse().unwrap_or_default(),
                &format!("/{path}"),
                &own["HealthCheck"]["Interval"],
            ),
            proxy_protocol: policies.into_iter().next().map(|_| ProxyProtocol::V1),
            internal: Some(own["Scheme"] == "internal"),
            ..SeenLoadBalancer::default()
        })
    }

    /// Returns the load balancer, and the ARNs of its target groups.
    fn network(&self, key: &LoadBalancerKey) -> Option<(SeenLoadBalancer, Vec<String>)> {
        let name = name_of(key);
        let is_ours = |arn: &Value| self.is_of(&text(arn), key);
        let own =
            self.network.iter().find(|one| one["LoadBalancerName"] == name && is_ours(&one["LoadBalancerArn"]))?;
        let arn = text(&own["LoadBalancerArn"]);
        let listeners = self.listeners.get(&arn)?;
        let forwards = |one: &Value| text(&one["DefaultActions"][0]["TargetGroupArn"]);
        let groups: Vec<&Value> = listeners.iter().filter_map(|one| self.group(&forwards(one))).collect();
        let listener = |one: &Value| SeenListener {
            protocol: if one["Protocol"] == "UDP" { Protocol::Udp } else { Protocol::Tcp },
            port: number(&one["Port"]),
            node_port: self.group(&forwards(one)).map(|group| number(&group["Port"])),
        };
        let arns: Vec<String> = groups.iter().map(|group| text(&group["TargetGroupArn"])).collect();
        let mut targets: Vec<SeenTarget> = arns.iter().flat_map(|arn| self.seen_targets(arn)).collect();
        targets.sort();
        targets.dedup();
        // EC2 has each rule once, with the description of the load balancer that needed it first.
        let node_port = groups.first().map(|group| group["Port"].clone());
        let permissions = self.security_groups.iter().flat_map(|group| list(&group["IpPermissions"]));
        let of_port = permissions.filter(|one| node_port.as_ref() == Some(&one["FromPort"]));
        let is_client = |source: &&Value| text(&source["Description"]).starts_with(&format!("{RULE}client="));
        let of_clients = of_port.flat_map(sources).map(|(_, source)| source).filter(is_client);
        let source_ranges = if targets.is_empty() { Vec::new() } else { ranges(of_clients) };
        let seen = SeenLoadBalancer {
            id: arn,
            name,
            addresses: vec![address(&text(&own["DNSName"]))],
            listeners: listeners.iter().map(listener).collect(),
            targets,
            source_ranges,
            health_check: groups.first().and_then(|group| {
                let (protocol, path) = (text(&group["HealthCheckProtocol"]), text(&group["HealthCheckPath"]));
                // `traffic-port` is the node port.
                let port = match group["HealthCheckPort"].as_str() {
                    Some("traffic-port") => number(&group["Port"]),
                    _ => number(&group["HealthCheckPort"]),
                };
                health_check(&protocol, port, &path, &group["HealthCheckIntervalSeconds"])
            }),
            internal: Some(own["Scheme"] == "internal"),
            ..SeenLoadBalancer::default()
        };
        Some((seen, arns))
    }

    fn group(&self, arn: &str) -> Option<&Value> {
        self.target_groups.iter().find(|group| group["TargetGroupArn"] == arn)
    }

    /// Returns the registered targets of a group, which are those that are not deregistering.
    fn seen_targets(&self, arn: &str) -> Vec<SeenTarget> {
        let all = self.targets.get(arn).into_iter().flatten();
        let registered = all.filter(|one| one["TargetHealth"]["Reason"] != "Target.DeregistrationInProgress");
        registered.map(|one| SeenTarget { machine: text(&one["Target"]["Id"]), draining: false }).collect()
    }
}

#[async_trait]
impl LoadBalancerBench for MotoBench {
    async fn resources(&self) -> Vec<SeenResource> {
        self.account().await.resources()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let account = self.account().await;
        if let Some((mut seen, groups)) = account.network(key) {
            let mut versions = Vec::new();
            for arn in groups {
                versions.push(self.attribute(&arn, "proxy_protocol_v2.enabled").await);
            }
            let is_enabled = versions.iter().any(|value| value.as_deref() == Some("true"));
            seen.proxy_protocol = is_enabled.then_some(ProxyProtocol::V2);
            return Some(seen);
        }
        let mut seen = account.classic(key)?;
        seen.idle_timeout = self.idle_timeout(&seen.name).await;
        Some(seen)
    }

    fn list_page(&self) -> Option<usize> {
        Some(PAGE)
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let name = &foreign.name;
        let mut tags: Vec<Value> = Vec::new();
        if let Some(owner) = &foreign.owner {
            tags.push(json!({"Key": format!("{CLUSTER_TAG}{}", owner.cluster), "Value": "owned"}));
            tags.push(json!({"Key": SERVICE_TAG, "Value": format!("{}/{}", owner.namespace, owner.service)}));
        }
        // An empty list of tags is rejected.
        tags.push(json!({"Key": "created-by", "Value": "another client"}));
        let (kind, subnet) = (foreign.kind.unwrap_or_default(), self.id("subnet-public-a"));
        let scheme = if kind.ends_with("internal") { "internal" } else { "internet-facing" };
        if kind.starts_with("network") {
            let load_balancer =
                json!({"Name": name, "Type": "network", "Subnets": [subnet], "Scheme": scheme, "Tags": tags});
            self.moto.call("elbv2", "create_load_balancer", load_balancer).await;
        } else {
            let listener =
                json!({"Protocol": "TCP", "LoadBalancerPort": 443, "InstanceProtocol": "TCP", "InstancePort": 30443});
            let mut load_balancer = json!({"LoadBalancerName": name, "Listeners": [listener], "Subnets": [subnet],
                "SecurityGroups": [self.id("sg-extra")], "Tags": tags});
            if scheme == "internal" {
                load_balancer["Scheme"] = json!(scheme);
            }
            self.moto.call("elb", "create_load_balancer", load_balancer).await;
        }
        let is_new = |one: &SeenResource| one.kind.ends_with("load balancer") && one.name == *name;
        self.resources().await.into_iter().find(is_new)
    }

    fn source_ranges_need_targets(&self, kind: Option<&str>) -> bool {
        kind.is_some_and(|kind| kind.starts_with("network"))
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.moto.totals().await.1)
    }

    /// AWS may show a new resource late, and moto cannot.
    async fn stale(&self) -> BenchResult {
        BenchResult::Cannot
    }

    /// Every change takes effect at once. A Network Load Balancer that is being provisioned has its host name already.
    async fn slow(&self) -> BenchResult {
        BenchResult::Never
    }

    async fn fail_next(&self, _: u64) -> BenchResult {
        BenchResult::Never
    }
}
