//! A cluster of two Nodes on Droplets.

use std::ops::Deref;
use std::process::{Command, Output};

use bowline_digitalocean_simulator::{
    Detail, Entry, Fields as _, Golden, NewDroplet, Options, REGION, Record, Simulator, TOKEN,
};
use serde_json::{Value, json};

use crate::support::Program;
use crate::support::cluster::Cluster;
use crate::support::simulated::{QUICK, Served, output, program};

pub(crate) const ID: &str = "kubernetes.digitalocean.com/load-balancer-id";
pub(crate) const TYPE: &str = "service.beta.kubernetes.io/do-loadbalancer-type";
pub(crate) const FAILED: &str = "SyncLoadBalancerFailed";

/// Tag of the cluster's load balancers.
pub(crate) const TAG: &str = "k8s:c1";

/// Variables for a managed firewall.
pub(crate) const FIREWALL: [(&str, &str); 2] =
    [("PUBLIC_ACCESS_FIREWALL_NAME", "public"), ("PUBLIC_ACCESS_FIREWALL_TAGS", "k8s:worker")];

/// Variables of the manager that a developer may have set.
const VARIABLES: [&str; 11] = [
    "DEBUG_ADDR",
    "DEFAULT_LB_TYPE",
    "DO_ACCESS_TOKEN",
    "DO_API_RATE_LIMIT_QPS",
    "DO_CLUSTER_ID",
    "DO_CLUSTER_VPC_ID",
    "DO_OVERRIDE_URL",
    "METRICS_ADDR",
    "PUBLIC_ACCESS_FIREWALL_NAME",
    "PUBLIC_ACCESS_FIREWALL_TAGS",
    "REGION",
];

/// Kinds of writes of each test.
const JOURNALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/digitalocean/journals.txt");

pub(crate) struct Scene {
    pub(crate) cloud: Served<Simulator>,
    cluster: Cluster,
    _golden: Golden,
}

impl Deref for Scene {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Scene {
    /// Starts with two Nodes, and load balancers that are active at once.
    pub(crate) async fn new(test: &str) -> Scene {
        let scene = Scene::without_nodes(test, Options::default()).await;
        for name in ["node-1", "node-2"] {
            scene.node(name).await;
        }
        scene
    }

    pub(crate) async fn without_nodes(test: &str, options: Options) -> Scene {
        let cloud = Simulator::new(options);
        let golden = cloud.golden(JOURNALS, Detail::Kinds);
        Scene { cloud: Served::start(cloud).await, cluster: Cluster::start(test).await, _golden: golden }
    }

    /// Returns the command with the environment of the manager. An empty value unsets a variable.
    fn command(&self, variables: &[(&str, &str)]) -> Command {
        let url = self.cloud.url();
        let defaults =
            [("DO_ACCESS_TOKEN", TOKEN), ("DO_OVERRIDE_URL", &url), ("DO_CLUSTER_ID", "c1"), ("REGION", REGION)];
        program(|name| VARIABLES.contains(&name), &defaults, variables)
    }

    fn flags(&self) -> [String; 2] {
        ["--cloud-provider=digitalocean".to_owned(), format!("--kubeconfig={}", self.server.kubeconfig().display())]
    }

    pub(crate) fn manager(&self, test: &str) -> Program {
        self.manager_with(test, &[], &[])
    }

    /// Starts the manager with further variables and flags. Nodes of deleted Droplets are deleted within seconds.
    pub(crate) fn manager_with(&self, test: &str, variables: &[(&str, &str)], flags: &[&str]) -> Program {
        let mut command = self.command(variables);
        Program::start_command(test, command.args(self.flags()).args(QUICK).args(flags))
    }

    /// Runs a command with further variables and flags.
    pub(crate) fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        output(self.command(variables).args(words).args(self.flags()))
    }

    /// Starts the admission server on a free port.
    pub(crate) fn admission_server(&self, test: &str, certificates: &str) -> Program {
        let mut command = self.command(&[]);
        command.args(["admission-server", "--cloud-provider=digitalocean", "--bind-address=127.0.0.1", "--port=0"]);
        Program::start_command(test, command.arg(format!("--cert-dir={certificates}")))
    }
}

// ---- cluster

impl Scene {
    /// Creates a Droplet and its initialised Node; returns the ID of the Droplet.
    pub(crate) async fn node(&self, name: &str) -> u64 {
        let id = self.cloud.add_droplet(NewDroplet::named(name));
        let mut addresses = vec![json!({"type": "Hostname", "address": name})];
        for (kind, address) in [("InternalIP", "private"), ("ExternalIP", "public")] {
            addresses.push(json!({"type": kind, "address": self.ip(id, address)}));
        }
        let ready = json!({"type": "Ready", "status": "True"});
        self.create_node(json!({
            "metadata": {"name": name},
            "spec": {"providerID": format!("digitalocean://{id}")},
            "status": {"addresses": addresses, "conditions": [ready]},
        }))
        .await;
        id
    }

    /// First IPv4 address of this type of a Droplet.
    pub(crate) fn ip(&self, droplet: u64, kind: &str) -> String {
        let droplets = self.cloud.records("droplets");
        let droplet = droplets.iter().find(|record| record["id"] == droplet).unwrap();
        let networks = droplet["networks"]["v4"].as_array().unwrap();
        text(&networks.iter().find(|network| network["type"] == kind).unwrap()["ip_address"])
    }

    /// Creates a Service and runs a manager until it has a load balancer; returns the ID of that.
    pub(crate) async fn balanced(&self, test: &str, name: &str) -> String {
        let mut manager = self.manager(test);
        self.create(name).await;
        self.address(&manager, name).await;
        self.stop(&mut manager);
        self.cloud.forget_calls();
        self.get_annotation(name, ID).await.unwrap()
    }

    /// Ends the test: deletes the Service, checks that nothing is left, and stops the manager.
    pub(crate) async fn end(&self, manager: &mut Program, name: &str) {
        self.delete(manager, name).await;
        assert_eq!(self.load_balancers(), []);
        self.stop(manager);
    }

    pub(crate) fn stop(&self, manager: &mut Program) {
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
        assert!(!manager.output().contains(TOKEN), "{}", manager.output());
    }
}

// ---- cloud

impl Scene {
    pub(crate) fn load_balancers(&self) -> Vec<Record> {
        self.cloud.records("load_balancers")
    }

    /// The only load balancer.
    pub(crate) fn load_balancer(&self) -> Record {
        let mut all = self.load_balancers();
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    /// IDs of the Droplets of the only load balancer.
    pub(crate) fn targets(&self) -> Vec<u64> {
        let targets = self.load_balancer()["droplet_ids"].clone();
        targets.as_array().unwrap().iter().filter_map(Value::as_u64).collect()
    }

    /// Inbound rules of the only firewall: `tcp 80 0.0.0.0/0 ::/0`; `None` if there is no firewall.
    pub(crate) fn inbound_rules(&self) -> Option<Vec<String>> {
        let firewalls = self.cloud.records("firewalls");
        assert!(firewalls.len() < 2, "{firewalls:#?}");
        let rules = firewalls.first()?["inbound_rules"].as_array()?.clone();
        Some(rules.iter().map(described_rule).collect())
    }

    /// Waits until the cloud has received this kind of call, such as `GET firewalls`.
    pub(crate) async fn called(&self, manager: &Program, call: &str) {
        let called = || async { self.cloud.counts().contains_key(call).then_some(()) };
        self.eventually(manager, call, called).await;
    }

    /// Write calls since the last time: `PUT load_balancers/{id}`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let line = |entry: &Entry| format!("{} {}", entry.method, entry.template);
        self.cloud.writes().iter().map(line).collect()
    }
}

fn described_rule(rule: &Value) -> String {
    let sources = ["addresses", "load_balancer_uids"].into_iter().filter_map(|field| rule["sources"][field].as_array());
    let head = [text(&rule["protocol"]), text(&rule["ports"])];
    head.into_iter().chain(sources.flatten().map(text)).collect::<Vec<_>>().join(" ")
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Tags of a record.
pub(crate) fn tags(record: &Record) -> Vec<String> {
    record.texts("tags").into_iter().map(str::to_owned).collect()
}
