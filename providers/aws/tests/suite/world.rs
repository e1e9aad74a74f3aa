//! A provider on a simulated account with two Nodes, and a Service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_aws::{Aws, Config};
use bowline_aws_simulator::{ACCESS_KEY, Entry, Fields as _, NewInstance, Options, Record, SECRET_KEY, Simulator};
use bowline_cloud::{BuildInputs, CloudProvider as _, LoadBalancers, Result};
use bowline_config::{ConfigFile, Environment};
use bowline_core::annotations::read_leniently;
use bowline_core::testing::{annotated, service, service_port};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, LoadBalancerState, Plan, Protocol, ProviderId, Service, TargetNode,
};
use bowline_simulator::drive::{Desired, Driver, Settled};
use serde_json::Value;

pub(crate) const LB: &str = "service.beta.kubernetes.io/aws-load-balancer-";
pub(crate) const UID: &str = "a0b1c2d3-e4f5-0617-2839-4a5b6c7d8e9f";

/// Name of the load balancer of [`web`].
pub(crate) const NAME: &str = "aa0b1c2d3e4f5061728394a5b6c7d8e9";

pub(crate) const CLUSTER_TAG: &str = "kubernetes.io/cluster/demo";
pub(crate) const SERVICE_TAG: &str = "kubernetes.io/service-name";

/// Annotation of a Network Load Balancer, below [`LB`].
pub(crate) const NLB: (&str, &str) = ("type", "nlb");

pub(crate) const STATIC: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];

pub(crate) struct World {
    pub(crate) cloud: Simulator,
    pub(crate) provider: Aws,
    pub(crate) nodes: Vec<TargetNode>,
}

/// The Service `default/web` with these annotations below [`LB`].
pub(crate) fn web(annotations: &[(&str, &str)]) -> Service {
    let keys: Vec<_> = annotations.iter().map(|(key, value)| (format!("{LB}{key}"), *value)).collect();
    let keys: Vec<_> = keys.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    annotated(Service { uid: UID.to_owned(), ..service("default/web") }, &keys)
}

/// The Service `default/other` on port 81 with these annotations below [`LB`].
pub(crate) fn other(annotations: &[(&str, &str)]) -> Service {
    let (uid, name) = ("11111111-e4f5-0617-2839-4a5b6c7d8e9f".to_owned(), "other".to_owned());
    Service { uid, name, ports: vec![service_port(Protocol::Tcp, 81)], ..web(annotations) }
}

/// A Service that keeps the annotations which the manager writes.
pub(crate) struct Kept {
    pub(crate) service: Service,
    pub(crate) nodes: Vec<TargetNode>,
    pub(crate) provider: Aws,
    pub(crate) is_deleted: bool,
}

impl Desired for Kept {
    fn desired(&self) -> DesiredLoadBalancer {
        let common = read_leniently(&self.service.annotations).0;
        let settings =
            LoadBalancers::settings(&self.provider, &self.service.annotations, common.clone()).unwrap_or(common);
        let cluster = ClusterName::from("kubernetes");
        match self.is_deleted {
            true => bowline_core::service::desired_cleanup(&cluster, &self.service, &settings),
            false => {
                bowline_core::service::desired(&cluster, &self.service, &settings, self.nodes.clone().into()).unwrap()
            }
        }
    }

    fn annotate(&mut self, annotations: BTreeMap<String, String>) {
        Arc::make_mut(&mut self.service.annotations).extend(annotations);
    }
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(Options::default(), "").await
    }

    /// Starts with these options and lines of `[Global]`.
    pub(crate) async fn with(options: Options, lines: &str) -> World {
        let cloud = Simulator::new(options);
        let provider = provider(&cloud, &STATIC, lines);
        provider.start().await.unwrap();
        let nodes = ["node-1", "node-2"].map(|name| node(&cloud, name)).into();
        cloud.forget_calls();
        World { cloud, provider, nodes }
    }

    pub(crate) fn kept(&self, service: Service) -> Kept {
        Kept { service, nodes: self.nodes.clone(), provider: self.provider.clone(), is_deleted: false }
    }

    pub(crate) fn driver(&self) -> Driver<'_> {
        Driver::new(&self.provider)
    }

    /// Syncs a Service until its plan is empty.
    pub(crate) async fn sync(&self, service: &mut Kept) -> Result<Settled> {
        self.driver().settle(service).await
    }

    /// Syncs a Service that must succeed.
    pub(crate) async fn synced(&self, service: &mut Kept) -> LoadBalancerState {
        self.sync(service).await.unwrap().state.unwrap()
    }

    /// Creates the load balancer of the Service `default/web` with these annotations.
    pub(crate) async fn create(&self, annotations: &[(&str, &str)]) -> Kept {
        let mut service = self.kept(web(annotations));
        self.synced(&mut service).await;
        self.cloud.forget_calls();
        service
    }

    /// Returns the text of the error with which a sync fails.
    pub(crate) async fn error(&self, service: Service) -> String {
        self.sync(&mut self.kept(service)).await.unwrap_err().to_string()
    }

    /// Deletes the load balancer of a Service.
    pub(crate) async fn delete(&self, service: &mut Kept) -> Result<Settled> {
        service.is_deleted = true;
        self.sync(service).await
    }

    pub(crate) async fn planned(&self, service: &mut Kept) -> Result<Plan> {
        self.driver().plan(service).await.map(|(_, plan)| plan)
    }

    // ---- records

    /// The only Classic Load Balancer.
    pub(crate) fn classic(&self) -> Record {
        only(self.cloud.classic_load_balancers())
    }

    /// The only Network Load Balancer.
    pub(crate) fn network(&self) -> Record {
        only(self.cloud.load_balancers())
    }

    /// The only target group.
    pub(crate) fn target_group(&self) -> Record {
        only(self.cloud.target_groups())
    }

    /// The security group with this name, if it exists.
    pub(crate) fn group(&self, name: &str) -> Option<Record> {
        self.cloud.security_groups().into_iter().find(|group| group.text("groupName") == name)
    }

    /// Rules of the security group with this name, sorted: `tcp 80 from 0.0.0.0/0`, with the description in brackets.
    pub(crate) fn rules(&self, name: &str) -> Vec<String> {
        let group = self.group(name).unwrap_or_else(|| panic!("no security group {name}"));
        let mut rules: Vec<_> = group["_rules"].as_array().unwrap().iter().map(shown).collect();
        rules.sort();
        rules
    }

    /// Returns what is left of load balancers: load balancers, target groups, listeners, own security groups, and rules of Nodes.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let kinds = ["classic", "load_balancer", "target_group", "listener"];
        let records = kinds.iter().flat_map(|kind| self.cloud.records(kind)).map(|record| record.text("id").to_owned());
        let groups = self.cloud.security_groups();
        let own = groups.iter().map(|group| group.text("groupName").to_owned()).filter(|name| name.starts_with("k8s-"));
        records.chain(own).chain(self.rules("nodes")).collect()
    }

    // ---- calls

    /// Calls since the last time, in order: `ec2 DescribeInstances`.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = self.cloud.journal().iter().map(|entry| entry.template.clone()).collect();
        self.cloud.forget_calls();
        calls
    }

    /// Writes since the last time, in order, as actions.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.cloud.writes().iter().map(action).collect();
        self.cloud.forget_calls();
        writes
    }
}

/// Number of calls of each action, of all APIs but the metadata service, since the last time they were forgotten.
pub(crate) fn counts(cloud: &Simulator) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for entry in cloud.journal().iter().filter(|entry| entry.part != "imds") {
        *counts.entry(action(entry)).or_insert(0) += 1;
    }
    counts
}

fn only(mut all: Vec<Record>) -> Record {
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Action of a call.
pub(crate) fn action(entry: &Entry) -> String {
    entry.template.split(' ').next_back().unwrap_or_default().to_owned()
}

fn shown(rule: &Value) -> String {
    let text = |field: &str| rule[field].as_str().unwrap_or_default();
    let ports = match (rule["from"].as_i64(), rule["to"].as_i64()) {
        (Some(from), Some(to)) if from != to => format!(" {from}-{to}"),
        (Some(from), _) => format!(" {from}"),
        _ => String::new(),
    };
    let description = match text("description") {
        "" => String::new(),
        description => format!(" [{description}]"),
    };
    format!("{}{ports} from {}{description}", text("protocol"), text("source"))
}

/// Tags of a record of any API.
pub(crate) fn tags(record: &Record) -> BTreeMap<String, String> {
    let list = record.get("_tags").or_else(|| record.get("tagSet")).and_then(Value::as_array).cloned();
    let text = |tag: &Value, names: [&str; 2]| names.iter().find_map(|name| tag[*name].as_str()).unwrap().to_owned();
    let pair = |tag: &Value| (text(tag, ["Key", "key"]), text(tag, ["Value", "value"]));
    list.unwrap_or_default().iter().map(pair).collect()
}

/// Tags as a map.
pub(crate) fn tag_map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Builds a provider that calls the simulator in process.
pub(crate) fn provider(cloud: &Simulator, variables: &[(&str, &str)], lines: &str) -> Aws {
    let environment = Environment::from_iter(variables.iter().copied());
    let inputs = BuildInputs { environment, ..BuildInputs::default() };
    let (file, cluster) = (ConfigFile::from_text("aws.conf", format!("[Global]\n{lines}")), "kubernetes".into());
    let config = Config::read(&inputs.context(Some(&file), &cluster)).unwrap();
    Aws::over(config, cloud.client(Duration::from_secs(60)), &cluster).unwrap()
}

/// Adds an instance with the tag of the cluster, and returns its Node.
pub(crate) fn node(cloud: &Simulator, name: &str) -> TargetNode {
    let id = cloud.add_instance(NewInstance::named(name).tagged(CLUSTER_TAG, "owned"));
    target(name, &format!("aws:///us-east-1a/{id}"))
}

/// Node with this provider ID.
pub(crate) fn target(name: &str, id: &str) -> TargetNode {
    TargetNode { node: name.into(), provider_id: ProviderId::new(id), addresses: Vec::new(), draining: false }
}

/// Instance ID of a Node.
pub(crate) fn instance(node: &TargetNode) -> String {
    let id = node.provider_id.as_ref().unwrap().to_string();
    id.rsplit('/').next().unwrap().to_owned()
}
