//! A cluster of two Nodes on EC2 instances.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Output};

use bowline_aws_simulator::{
    ACCESS_KEY, Detail, Entry, Fields as _, Golden, NewInstance, Options, REGION, Record, SECRET_KEY, Simulator,
};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::support::Program;
use crate::support::cluster::Cluster;
use crate::support::simulated::{QUICK, Served, output, program};

pub(crate) const FAILED: &str = "SyncLoadBalancerFailed";
pub(crate) const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";

/// ID of the cluster in tags.
pub(crate) const CLUSTER: &str = "demo";
pub(crate) const CLUSTER_TAG: &str = "kubernetes.io/cluster/demo";

/// Kinds of writes of each test.
const JOURNALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/aws/journals.txt");

/// Kinds of records that a Service may leave.
const KINDS: [&str; 5] = ["classic", "load_balancer", "listener", "target_group", "security_group"];

pub(crate) struct Scene {
    pub(crate) cloud: Served<Simulator>,
    cluster: Cluster,
    /// Records before the first Service.
    before: BTreeMap<&'static str, Vec<Record>>,
    /// `None` if the writes depend on how soon the cloud shows new resources.
    _golden: Option<Golden>,
}

impl Deref for Scene {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Scene {
    /// Starts with two Nodes.
    pub(crate) async fn new(test: &str) -> Scene {
        Scene::with(test, Options::default()).await
    }

    pub(crate) async fn with(test: &str, options: Options) -> Scene {
        let scene = Scene::without_nodes(test, options).await;
        for name in ["node-1", "node-2"] {
            scene.node(name).await;
        }
        scene
    }

    pub(crate) async fn without_nodes(test: &str, options: Options) -> Scene {
        let is_delayed = options.hidden_reads > 0;
        let cloud = Simulator::new(options);
        let golden = (!is_delayed).then(|| cloud.golden(JOURNALS, Detail::Kinds));
        let (before, cluster) = (records(&cloud), Cluster::start(test).await);
        let scene = Scene { cloud: Served::start(cloud).await, cluster, before, _golden: golden };
        scene.configure("");
        scene
    }

    // ---- configuration

    pub(crate) fn config(&self) -> PathBuf {
        self.server.scratch.path("aws.conf")
    }

    /// Writes the configuration file, with further lines of `[Global]`.
    pub(crate) fn configure(&self, lines: &str) {
        let fixture = self.cloud.fixture();
        let global = format!(
            "[Global]\nZone = {REGION}a\nVPC = {}\nSubnetID = {}\nKubernetesClusterID = {CLUSTER}\n{lines}",
            fixture.vpc, fixture.public_subnets[0]
        );
        let overrides = ["ec2", "elasticloadbalancing"].map(|service| {
            format!(
                "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = {REGION}\nURL = {}\nSigningRegion = {REGION}\n",
                self.cloud.url()
            )
        });
        self.server.scratch.file("aws.conf", global + &overrides.concat());
    }

    /// Returns the command with the environment of the manager, and nothing else that the AWS tools read.
    pub(crate) fn command(&self, variables: &[(&str, &str)]) -> Command {
        let (nothing, sts) = (self.server.scratch.path("none").display().to_string(), self.cloud.url());
        let defaults = [
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_CONFIG_FILE", &nothing),
            ("AWS_SHARED_CREDENTIALS_FILE", &nothing),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AWS_ENDPOINT_URL_STS", &sts),
        ];
        program(|name| name.starts_with("AWS_"), &defaults, variables)
    }

    pub(crate) fn flags(&self) -> [String; 4] {
        [
            "--cloud-provider=aws".to_owned(),
            format!("--cloud-config={}", self.config().display()),
            format!("--kubeconfig={}", self.server.kubeconfig().display()),
            "--configure-cloud-routes=false".to_owned(),
        ]
    }

    pub(crate) fn manager(&self, test: &str) -> Program {
        self.manager_with(test, &[], &[])
    }

    /// Starts the manager with further variables and flags. Nodes of terminated instances are deleted within seconds.
    pub(crate) fn manager_with(&self, test: &str, variables: &[(&str, &str)], flags: &[&str]) -> Program {
        let mut command = self.command(variables);
        Program::start_command(test, command.args(self.flags()).args(QUICK).args(flags))
    }

    /// Runs a command with further variables.
    pub(crate) fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        output(self.command(variables).args(words).args(self.flags()))
    }
}

// ---- cluster

impl Scene {
    /// Creates an instance and its initialised Node; returns the ID of the instance.
    pub(crate) async fn node(&self, name: &str) -> String {
        let id = self.instance(name);
        let ready = json!({"type": "Ready", "status": "True"});
        self.create_node(json!({
            "metadata": {"name": name},
            "spec": {"providerID": format!("aws:///{REGION}a/{id}")},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.20.128.9"}], "conditions": [ready]},
        }))
        .await;
        id
    }

    /// Creates an instance of the cluster whose private DNS name is that of its Node.
    pub(crate) fn instance(&self, name: &str) -> String {
        let new = NewInstance { private_dns_name: name.to_owned(), ..NewInstance::named(name) };
        self.cloud.add_instance(new.tagged(CLUSTER_TAG, "owned"))
    }

    /// Waits for the host name in the status of a Service.
    pub(crate) async fn hostname(&self, manager: &Program, name: &str) -> String {
        let ask = || async { hostname(&self.services().get(name).await.unwrap()) };
        self.eventually(manager, &format!("a host name of {name}"), ask).await
    }

    /// Creates a Service with a Network Load Balancer.
    pub(crate) async fn create_nlb(&self, name: &str) -> Service {
        self.create_with(name, 80, &[(TYPE, "nlb")]).await
    }

    /// Ends the test: deletes the Service, checks that nothing is left, and stops the manager.
    pub(crate) async fn end(&self, manager: &mut Program, name: &str) {
        self.delete(manager, name).await;
        self.is_clean();
        self.stop(manager);
    }

    /// Checks that the account is as before the first Service.
    pub(crate) fn is_clean(&self) {
        assert_eq!(records(&self.cloud), self.before);
    }

    pub(crate) fn stop(&self, manager: &mut Program) {
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
        assert!(!manager.output().contains(SECRET_KEY), "{}", manager.output());
    }
}

pub(crate) fn hostname(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.hostname.clone()
}

/// Name of a Service's load balancer.
pub(crate) fn name_of(service: &Service) -> String {
    format!("a{}", service.metadata.uid.as_ref().unwrap().replace('-', "")).chars().take(32).collect()
}

pub(crate) fn node_port(service: &Service) -> i32 {
    service.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port.unwrap()
}

// ---- cloud

impl Scene {
    /// The only record of a kind, besides those that existed before.
    pub(crate) fn only(&self, kind: &'static str) -> Record {
        let before = self.before.get(kind).into_iter().flatten().map(|record| record.text("id").to_owned());
        let before: Vec<_> = before.collect();
        let mut all: Vec<_> =
            self.cloud.records(kind).into_iter().filter(|one| !before.contains(&one.text("id").to_owned())).collect();
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    /// Number of load balancers of both kinds.
    pub(crate) fn count(&self) -> usize {
        self.cloud.records("classic").len() + self.cloud.records("load_balancer").len()
    }

    /// Instances behind the only load balancer, of either kind.
    pub(crate) fn targets(&self) -> Vec<String> {
        let (kind, field, id) = match self.cloud.records("classic").is_empty() {
            true => ("target_group", "_targets", "Id"),
            false => ("classic", "Instances", "InstanceId"),
        };
        let mut ids: Vec<_> =
            self.only(kind)[field].as_array().unwrap().iter().map(|target| text(&target[id])).collect();
        ids.sort();
        ids
    }

    /// Rules of the Nodes' security group for load balancers: `tcp 30080-30080 0.0.0.0/0`.
    pub(crate) fn node_rules(&self) -> Vec<String> {
        let id = self.cloud.fixture().node_group;
        let groups = self.cloud.security_groups();
        let group = groups.iter().find(|group| group.text("groupId") == id).unwrap();
        let rules = group["_rules"].as_array().unwrap().iter();
        let mut rules: Vec<_> = rules
            .map(|rule| {
                format!("{} {}-{} {}", text(&rule["protocol"]), rule["from"], rule["to"], text(&rule["source"]))
            })
            .collect();
        rules.sort();
        rules
    }

    /// Write calls since the last time: `elb CreateLoadBalancer`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let line = |entry: &Entry| entry.template.clone();
        self.cloud.writes().iter().map(line).collect()
    }
}

fn records(cloud: &Simulator) -> BTreeMap<&'static str, Vec<Record>> {
    KINDS.into_iter().map(|kind| (kind, cloud.records(kind))).collect()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
