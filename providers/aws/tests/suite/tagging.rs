//! The controller `tagging`, over HTTP.

use std::sync::Arc;

use bowline_aws_simulator::{ACCESS_KEY, Fields as _, Options, Record, SECRET_KEY, Server, Simulator};
use bowline_cloud::{BuildInputs, CloudProvider, ClusterSnapshot, FlagValues, LoopPlan, ProviderLoop};
use bowline_config::{ConfigFile, Environment};
use bowline_core::testing::node;
use bowline_core::{Node, ProviderId};

use crate::world::{CLUSTER_TAG, counts, tags};

const LABEL: &str = "k8s.io/cloud-provider-aws";

struct Tagging {
    cloud: Simulator,
    one: Arc<dyn ProviderLoop>,
    _server: Server,
}

impl Tagging {
    async fn new() -> Tagging {
        let cloud = Simulator::new(Options::default());
        let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let url = server.url();
        let variables = [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_ENDPOINT_URL", url.as_str()),
        ];
        let flags = [("tags", "a=1,b=2"), ("resources", "instance")];
        let flags = flags.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]));
        let flags = FlagValues::new(flags).with_controllers(["tagging"]);
        let inputs = BuildInputs { environment: Environment::from_iter(variables), flags, ..BuildInputs::default() };
        let vpc = cloud.fixture().vpc;
        let lines =
            format!("[Global]\nRegion = us-east-1\nVPC = {vpc}\nSubnetID = subnet-1\nKubernetesClusterID = demo\n");
        let (file, cluster) = (ConfigFile::from_text("aws.conf", lines), "kubernetes".into());
        let provider: Arc<dyn CloudProvider> =
            (bowline_aws::factory().build)(&inputs.context(Some(&file), &cluster)).unwrap();
        provider.start().await.unwrap();
        let one = provider.loops().remove(0);
        cloud.forget_calls();
        Tagging { cloud, one, _server: server }
    }

    /// Plans and applies, and returns the plan.
    async fn run(&self, nodes: &[Node]) -> LoopPlan {
        let nodes = nodes.iter().cloned().map(Arc::new).collect();
        let snapshot = ClusterSnapshot { name: "kubernetes".into(), nodes, paused: Vec::new(), services: Vec::new() };
        let plan = self.one.plan(&snapshot).await.unwrap();
        for step in &plan.plan.steps {
            self.one.apply(step).await.unwrap();
        }
        plan
    }

    fn node(&self, at: usize) -> Node {
        let target = crate::world::node(&self.cloud, "node");
        Node { provider_id: target.provider_id, ..node(&format!("node-{at}")) }
    }

    fn record(&self, node: &Node) -> Record {
        let id = node.provider_id.as_ref().unwrap().to_string();
        self.cloud.records("instance").into_iter().find(|one| id.ends_with(one.text("instanceId"))).unwrap()
    }
}

fn with_id(name: &str, id: &str) -> Node {
    Node { provider_id: ProviderId::new(id), ..node(name) }
}

#[tokio::test]
async fn aws_38_nodes_with_invented_ids_are_dropped_and_the_others_are_tagged() {
    let tagging = Tagging::new().await;
    let good = tagging.node(0);
    let nodes = [
        good.clone(),
        with_id("malformed", "aws:///us-east-1a/i-kwok"),
        with_id("unknown", "aws:///us-east-1a/i-0aaaaaaaaaaaaaaaa"),
        with_id("no-instance", "aws:///us-east-1a/kwok-node-0"),
        with_id("fargate", "aws:///us-east-1a/fargate-ip-10-0-0-1.ec2.internal"),
        node("without-id"),
    ];
    let plan = tagging.run(&nodes).await;
    let tags = tags(&tagging.record(&good));
    assert_eq!((tags["a"].as_str(), tags["b"].as_str()), ("1", "2"));
    assert_eq!(tags[CLUSTER_TAG], "owned", "other tags stay");
    let labels: Vec<_> = plan.labels.iter().map(|(node, labels)| (node.as_str(), labels[LABEL].as_str())).collect();
    assert_eq!(labels, [("node-0", "9dc867b7f2bf1e40160f90e46628512e")]);
}

#[tokio::test]
async fn fifty_nodes_are_tagged_in_the_calls_of_the_guide() {
    let tagging = Tagging::new().await;
    let mut nodes: Vec<_> = (0..50).map(|at| tagging.node(at)).collect();
    tagging.run(&nodes).await;
    assert_eq!(counts(&tagging.cloud), crate::calls::of_guide("tags of 50 Nodes"));
    assert!(nodes.iter().all(|node| tags(&tagging.record(node)).contains_key("a")));
    let label =
        |node: &mut Node| drop(node.labels.insert(LABEL.to_owned(), "9dc867b7f2bf1e40160f90e46628512e".to_owned()));
    nodes.iter_mut().for_each(label);
    tagging.cloud.forget_calls();
    tagging.run(&nodes).await;
    assert_eq!(tagging.cloud.calls(), 0, "the label says so");
}

#[tokio::test]
async fn an_instance_loses_the_tags_when_its_node_is_removed() {
    let tagging = Tagging::new().await;
    let (kept, removed) = (tagging.node(0), tagging.node(1));
    tagging.run(&[kept.clone(), removed.clone()]).await;
    tagging.run(std::slice::from_ref(&kept)).await;
    assert!(tags(&tagging.record(&kept)).contains_key("a"));
    let left = tags(&tagging.record(&removed));
    assert!(!left.contains_key("a") && left.contains_key(CLUSTER_TAG), "{left:?}");
}
