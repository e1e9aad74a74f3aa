//! What the suite reads of load balancers, target groups and rules in the simulator, past the provider.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use async_trait::async_trait;
use bowline_aws_simulator::{Fields, Record};
use bowline_conformance::{
    BenchResult, ForeignLoadBalancer, LoadBalancerBench, SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource,
    SeenTarget,
};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{LoadBalancerKey, Protocol};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::cloud::{PAGE, SimulatedBench};

const CLUSTER_TAG: &str = "kubernetes.io/cluster/";
const SERVICE_TAG: &str = "kubernetes.io/service-name";

/// Name of a Service's load balancer.
fn name_of(key: &LoadBalancerKey) -> String {
    match key.name_only() {
        Some(name) => name.to_owned(),
        None => format!("a{}", key.uid.replace('-', "")).chars().take(32).collect(),
    }
}

fn tag<'a>(record: &'a Record, of: &str) -> Option<&'a str> {
    let tags = record["_tags"].as_array()?.iter();
    tags.filter(|tag| tag["Key"] == of).find_map(|tag| tag["Value"].as_str())
}

fn cluster_of(record: &Record) -> Option<&str> {
    let tags = record["_tags"].as_array()?.iter().filter_map(|tag| tag["Key"].as_str());
    tags.filter_map(|key| key.strip_prefix(CLUSTER_TAG)).next()
}

/// Mark of a load balancer: the tags of its cluster and its Service, and the UID in its name.
fn owner(record: &Record) -> Option<LoadBalancerKey> {
    let (namespace, service) = tag(record, SERVICE_TAG)?.split_once('/')?;
    let uid = record.text("LoadBalancerName").strip_prefix('a')?.to_owned();
    let (namespace, service) = (namespace.to_owned(), service.to_owned());
    Some(LoadBalancerKey { cluster: cluster_of(record)?.into(), namespace, service, uid })
}

fn resource(kind: &str, id: &str, name: &str, record: &Record, owner: Option<LoadBalancerKey>) -> SeenResource {
    let mut rest = record.clone();
    rest.remove("_tags");
    let owners = owner.into_iter().collect();
    SeenResource {
        kind: kind.to_owned(),
        id: id.to_owned(),
        name: name.to_owned(),
        owners,
        summary: Value::Object(rest).to_string(),
    }
}

/// An address for a load balancer, which has only a host name: it differs for different load balancers.
fn address(dns_name: &str) -> IpAddr {
    let hash = dns_name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    Ipv4Addr::from_bits(hash & 0x00ff_ffff | 0x0a00_0000).into()
}

fn number(value: &Value) -> u16 {
    value.as_str().map_or_else(|| value.as_u64().and_then(|n| n.try_into().ok()), |text| text.parse().ok()).unwrap_or(0)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl SimulatedBench {
    fn records_named(&self, kind: &'static str, name: &str) -> Option<Record> {
        let mut all = self.cloud.records(kind).into_iter();
        all.find(|one| one.text("LoadBalancerName") == name)
    }

    /// Key of the load balancer of this name, or a key with the name alone if there is none.
    fn key_of(&self, kinds: &[&'static str], name: &str) -> LoadBalancerKey {
        let found = kinds.iter().find_map(|kind| self.records_named(kind, name));
        found.as_ref().and_then(owner).unwrap_or_else(|| LoadBalancerKey {
            cluster: "conformance".into(),
            namespace: String::new(),
            service: name.to_owned(),
            uid: String::new(),
        })
    }

    fn target_group_owner(&self, group: &Record) -> Option<LoadBalancerKey> {
        let user = items(&group["LoadBalancerArns"]).filter_map(Value::as_str).next();
        let user = self.cloud.load_balancers().into_iter().find(|one| Some(one.text("LoadBalancerArn")) == user);
        if let Some(user) = user {
            return owner(&user);
        }
        let (namespace, service) = tag(group, SERVICE_TAG)?.split_once('/')?;
        let (namespace, service) = (namespace.to_owned(), service.to_owned());
        Some(LoadBalancerKey { cluster: cluster_of(group)?.into(), namespace, service, uid: String::new() })
    }

    /// Security groups of load balancers, and rules for load balancers in other groups.
    fn group_resources(&self) -> Vec<SeenResource> {
        let groups = self.cloud.security_groups();
        let own_name = |id: &str| {
            let group = groups.iter().find(|group| group.text("groupId") == id);
            group.and_then(|group| group.text("groupName").strip_prefix("k8s-elb-").map(str::to_owned))
        };
        let own = groups.iter().filter_map(|group| {
            let id = group.text("groupId");
            let key = self.key_of(&["classic"], &own_name(id)?);
            Some(resource("security group", id, group.text("groupName"), group, Some(key)))
        });
        let rules = groups.iter().filter(|group| own_name(group.text("groupId")).is_none()).flat_map(|group| {
            items(&group["_rules"]).filter_map(|rule| {
                let description = rule["description"].as_str().unwrap_or_default();
                let network = description.strip_prefix("kubernetes.io/rule/nlb/").and_then(|text| text.split_once('='));
                let key = match (network, own_name(rule["source"].as_str().unwrap_or_default())) {
                    (Some((_, name)), _) => self.key_of(&["load_balancer"], name),
                    (None, Some(name)) => self.key_of(&["classic"], &name),
                    (None, None) => return None,
                };
                let record = Record::from_iter([("rule".to_owned(), rule.clone())]);
                let id = format!("{} {rule}", group.text("groupId"));
                Some(resource("rule", &id, "", &record, Some(key)))
            })
        });
        own.chain(self.managed_groups(&groups)).chain(rules).collect()
    }

    /// Own security groups of Network Load Balancers.
    fn managed_groups(&self, groups: &[Record]) -> Vec<SeenResource> {
        let balancers = self.cloud.load_balancers();
        let is_managed = |group: &&Record| group.text("groupDescription").starts_with("[k8s] Managed");
        let seen = |group: &Record| {
            let id = group.text("groupId");
            let user = balancers.iter().find(|one| one.texts("SecurityGroups").contains(&id));
            resource("security group", id, group.text("groupName"), group, user.and_then(owner))
        };
        groups.iter().filter(is_managed).map(seen).collect()
    }

    fn classic(&self, key: &LoadBalancerKey, own: &Record) -> SeenLoadBalancer {
        let listeners = items(&own["ListenerDescriptions"]).map(|it| &it["Listener"]);
        let listeners = listeners.map(|it| SeenListener {
            protocol: Protocol::Tcp,
            port: number(&it["LoadBalancerPort"]),
            node_port: Some(number(&it["InstancePort"])),
        });
        let groups = self.cloud.security_groups();
        let group = groups.iter().find(|it| it.text("groupName") == format!("k8s-elb-{}", name_of(key)));
        let rules = group.map(|group| items(&group["_rules"]).cloned().collect::<Vec<_>>()).unwrap_or_default();
        let ranges = rules.iter().filter(|rule| rule["protocol"] == "tcp").filter_map(|rule| rule["source"].as_str());
        let check = &own["HealthCheck"];
        let target = check["Target"].as_str().unwrap_or_default();
        let path = target.strip_prefix("HTTP:").and_then(|text| text.split_once('/'));
        let policies = items(&own["BackendServerDescriptions"]).flat_map(|it| items(&it["PolicyNames"]));
        SeenLoadBalancer {
            id: own.text("LoadBalancerName").to_owned(),
            name: own.text("LoadBalancerName").to_owned(),
            addresses: vec![address(own.text("DNSName"))],
            listeners: listeners.collect(),
            targets: items(&own["Instances"])
                .map(|it| SeenTarget { machine: it["InstanceId"].as_str().unwrap().to_owned(), draining: false })
                .collect(),
            source_ranges: ranges.filter(|range| *range != "0.0.0.0/0").filter_map(|it| it.parse().ok()).collect(),
            health_check: path.map(|(port, path)| SeenHealthCheck {
                path: format!("/{path}"),
                port: port.parse().unwrap(),
                interval: Some(Duration::from_secs(number(&check["Interval"]).into())),
            }),
            proxy_protocol: (policies.count() > 0).then_some(ProxyProtocol::V1),
            idle_timeout: Some(Duration::from_secs(
                number(&own["_attributes"]["ConnectionSettings"]["IdleTimeout"]).into(),
            )),
            internal: Some(own.text("Scheme") == "internal"),
            ..SeenLoadBalancer::default()
        }
    }

    /// Clients in the rules of a load balancer's own security group.
    fn group_ranges(&self, own: &Record) -> Vec<IpNet> {
        let groups = self.cloud.security_groups();
        let id = own.get("SecurityGroups").and_then(|groups| groups[0].as_str()).unwrap_or_default();
        let rules = groups.iter().filter(|group| group.text("groupId") == id).flat_map(|group| items(&group["_rules"]));
        let ranges = rules.filter(|rule| rule["protocol"] != "icmp").filter_map(|rule| rule["source"].as_str());
        ranges.filter(|range| *range != "0.0.0.0/0").filter_map(|range| range.parse().ok()).collect()
    }

    fn network(&self, own: &Record) -> SeenLoadBalancer {
        let (arn, name) = (own.text("LoadBalancerArn"), own.text("LoadBalancerName"));
        let listeners: Vec<_> =
            self.cloud.listeners().into_iter().filter(|it| it.text("LoadBalancerArn") == arn).collect();
        let groups = self.cloud.target_groups();
        let group_of = |listener: &Record| {
            let arn = listener["DefaultActions"][0]["TargetGroupArn"].as_str().unwrap_or_default().to_owned();
            groups.iter().find(|group| group.text("TargetGroupArn") == arn).cloned().unwrap_or_default()
        };
        let used: Vec<Record> = listeners.iter().map(group_of).collect();
        let seen = listeners.iter().zip(&used).map(|(it, group)| SeenListener {
            protocol: if it.text("Protocol") == "UDP" { Protocol::Udp } else { Protocol::Tcp },
            port: number(&it["Port"]),
            node_port: Some(number(&group["Port"])),
        });
        let first = used.first().cloned().unwrap_or_default();
        let targets = items(first.get("_targets").unwrap_or(&Value::Null));
        let targets: Vec<_> =
            targets.map(|it| SeenTarget { machine: it["Id"].as_str().unwrap().to_owned(), draining: false }).collect();
        // EC2 has each rule once, with the description of the load balancer that needed it first.
        let port = number(&first["Port"]);
        let groups = self.cloud.security_groups();
        let rules = groups.iter().flat_map(|group| items(&group["_rules"]));
        let is_client = |rule: &&Value| {
            let description = rule["description"].as_str().unwrap_or_default();
            rule["from"] == port && description.starts_with("kubernetes.io/rule/nlb/client=")
        };
        let ranges = rules.filter(is_client).filter_map(|rule| rule["source"].as_str());
        let ranges: Vec<IpNet> =
            ranges.filter(|range| *range != "0.0.0.0/0").filter_map(|it| it.parse().ok()).collect();
        let is_http = first.get("HealthCheckProtocol").is_some_and(|protocol| protocol == "HTTP");
        let is_proxied = first.get("_attributes").is_some_and(|it| it["proxy_protocol_v2.enabled"] == "true");
        SeenLoadBalancer {
            id: arn.to_owned(),
            name: name.to_owned(),
            addresses: vec![address(own.text("DNSName"))],
            listeners: seen.collect(),
            source_ranges: if self.is_managed() { self.group_ranges(own) } else { ranges_of(&targets, ranges) },
            targets,
            health_check: is_http.then(|| SeenHealthCheck {
                path: first.text("HealthCheckPath").to_owned(),
                port: number(&first["HealthCheckPort"]),
                interval: Some(Duration::from_secs(number(&first["HealthCheckIntervalSeconds"]).into())),
            }),
            proxy_protocol: is_proxied.then_some(ProxyProtocol::V2),
            internal: Some(own.text("Scheme") == "internal"),
            ..SeenLoadBalancer::default()
        }
    }
}

/// Without targets, no Node enforces the ranges.
fn ranges_of(targets: &[SeenTarget], ranges: Vec<IpNet>) -> Vec<IpNet> {
    if targets.is_empty() { Vec::new() } else { ranges }
}

#[async_trait]
impl LoadBalancerBench for SimulatedBench {
    async fn resources(&self) -> Vec<SeenResource> {
        let classic = self.cloud.classic_load_balancers();
        let classic = classic.iter().map(|it| {
            let name = it.text("LoadBalancerName");
            resource("classic load balancer", name, name, it, owner(it))
        });
        let network = self.cloud.load_balancers();
        let network = network.iter().map(|it| {
            resource("load balancer", it.text("LoadBalancerArn"), it.text("LoadBalancerName"), it, owner(it))
        });
        let listeners = self.cloud.listeners();
        let listeners = listeners.iter().map(|it| {
            let mut used = self.cloud.load_balancers().into_iter();
            let user = used.find(|one| one.text("LoadBalancerArn") == it.text("LoadBalancerArn"));
            resource("listener", it.text("ListenerArn"), "", it, user.as_ref().and_then(owner))
        });
        let groups = self.cloud.target_groups();
        let groups = groups.iter().map(|it| {
            let (arn, name) = (it.text("TargetGroupArn"), it.text("TargetGroupName"));
            resource("target group", arn, name, it, self.target_group_owner(it))
        });
        classic.chain(network).chain(listeners).chain(groups).chain(self.group_resources()).collect()
    }

    async fn load_balancer(&self, key: &LoadBalancerKey) -> Option<SeenLoadBalancer> {
        let name = name_of(key);
        let is_ours = |record: &Record| cluster_of(record) == Some(key.cluster.as_str());
        if let Some(own) = self.records_named("classic", &name).filter(is_ours) {
            return Some(self.classic(key, &own));
        }
        self.records_named("load_balancer", &name).filter(is_ours).map(|own| self.network(&own))
    }

    async fn put_foreign(&self, foreign: &ForeignLoadBalancer) -> Option<SeenResource> {
        let owner = foreign.owner.as_ref();
        let cluster = owner.map(|owner| format!("{CLUSTER_TAG}{}", owner.cluster));
        let service = owner.map(|owner| format!("{}/{}", owner.namespace, owner.service));
        let name = &foreign.name;
        let mut tags = Vec::new();
        tags.extend(cluster.as_deref().map(|key| (key, "owned")));
        tags.extend(service.as_deref().map(|value| (SERVICE_TAG, value)));
        let is_network = foreign.kind.is_some_and(|kind| kind.starts_with("network"));
        let id = if is_network {
            let id = self.cloud.put_load_balancer(name, "network", &tags);
            if foreign.kind == Some("network-internal") {
                self.cloud.edit("load_balancer", &id, |record| record.set("Scheme", "internal"));
            }
            id
        } else {
            let listener = json!({"Protocol": "TCP", "LoadBalancerPort": "443", "InstanceProtocol": "TCP", "InstancePort": "30443"});
            let id = self.cloud.put_classic_load_balancer(name, json!([listener]), &tags);
            if foreign.kind == Some("classic-internal") {
                self.cloud.edit("classic", &id, |record| record.set("Scheme", "internal"));
            }
            id
        };
        self.resources().await.into_iter().find(|one| one.id == id)
    }

    fn list_page(&self) -> Option<usize> {
        Some(PAGE)
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud.writes().len() as u64)
    }

    async fn stale(&self) -> BenchResult {
        self.cloud.freeze_view(true);
        *self.is_stale.lock().unwrap() = true;
        BenchResult::Done
    }

    /// A load balancer that is still `provisioning` can be changed, and has its host name.
    async fn slow(&self) -> BenchResult {
        BenchResult::Never
    }

    async fn fail_next(&self, _: u64) -> BenchResult {
        BenchResult::Never
    }

    fn source_ranges_need_targets(&self, kind: Option<&str>) -> bool {
        kind.is_some_and(|kind| kind.starts_with("network")) && !self.is_managed()
    }

    async fn settle(&self) {
        self.cloud.finish_work();
        if *self.is_stale.lock().unwrap() {
            self.cloud.freeze_view(false);
            self.cloud.freeze_view(true);
        }
    }
}
