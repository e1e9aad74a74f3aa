//! `bowline plan` and `--dry-run`, beside an API server and a cloud that are processes, too: what is told, the exit codes,
//! and that nothing is written anywhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::process::Output;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use support::{Program, Server, bowline};

/// An API server and a cloud, and the flags that reach both.
struct World {
    server: Server,
    _cloud: Program,
    endpoint: String,
    reach: Vec<String>,
    client: kube::Client,
}

impl World {
    async fn start(test: &str) -> World {
        let server = Server::start(test, &["--debug-endpoints"]);
        let mut cloud = Program::start(test, &["cloud", "--listen=127.0.0.1:0"]);
        let endpoint = cloud.says("cloud ready at ");
        let config = server.scratch.file("local.yaml", format!("endpoint: {endpoint}\n"));
        let reach = vec![
            "--cloud-provider=local".to_owned(),
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", server.kubeconfig().display()),
        ];
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        World { server, _cloud: cloud, endpoint, reach, client: kube::Client::try_from(config).unwrap() }
    }

    fn run(&self, command: &str, flags: &[&str]) -> Output {
        let words = [command].into_iter().chain(self.reach.iter().map(String::as_str)).chain(flags.iter().copied());
        bowline(&words.collect::<Vec<_>>())
    }

    fn manager(&self, test: &str, flags: &[&str]) -> Program {
        let words = self.reach.iter().map(String::as_str).chain(["--leader-elect=false"]).chain(flags.iter().copied());
        Program::start(test, &words.collect::<Vec<_>>())
    }

    fn cloud(&self, arguments: &[&str]) -> String {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let words = ["cloud"].iter().chain(arguments).copied().chain([endpoint.as_str()]);
        let output = bowline(&words.collect::<Vec<_>>());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn create_node(&self, name: &str) {
        let taint = json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": name}, "spec": {"taints": [taint]}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    /// Every Node and Event, with the state that it is in.
    async fn versions(&self) -> Vec<String> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let nodes = nodes.items.into_iter().map(|node| node.metadata);
        let all = nodes.chain(events.items.into_iter().map(|event| event.metadata));
        all.map(|object| format!("{:?} {:?}", object.name, object.resource_version)).collect()
    }

    /// The calls that changed something in the cloud since the last time that this was asked.
    fn cloud_writes(&self) -> Vec<String> {
        let is_read =
            |line: &&str| ["find", "list", "get", "balancers", "observe"].iter().any(|read| line.starts_with(read));
        let calls = self.cloud(&["calls", "--reset"]);
        calls.lines().filter(|line| !is_read(line)).map(str::to_owned).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_tells_what_would_change_and_changes_nothing() {
    let world = World::start("plan").await;
    let quiet = world.run("plan", &[]);
    assert_eq!(
        (quiet.status.code(), text(&quiet.stdout)),
        (Some(0), "Nothing would change.\n".to_owned()),
        "{quiet:?}"
    );

    world.cloud(&["add", "worker-1", "--id=one", "--zone=quay-1", "--address=InternalIP=10.0.0.1"]);
    world.create_node("worker-1").await;
    world.create_node("stranger").await;
    world.cloud_writes();
    let before = world.versions().await;

    let plan = world.run("plan", &[]);
    assert_eq!(plan.status.code(), Some(2), "{plan:?}");
    let told = text(&plan.stdout);
    for part in [
        "Node worker-1 (local)\n  in the cluster:\n    update Node worker-1\n",
        "spec.providerID: local://one\n",
        "label topology.kubernetes.io/zone: quay-1\n",
        "status.addresses: InternalIP=10.0.0.1\n",
        "Node stranger\n  refused: no cloud here knows a machine of this name",
        "0 things would change in clouds, 2 objects in the cluster; 1 refused.\n",
    ] {
        assert!(told.contains(part), "{part:?} is missing in {told}");
    }

    let json = world.run("plan", &["-o", "json"]);
    assert_eq!(json.status.code(), Some(2));
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["version"], 1);
    assert_eq!(
        document["items"][1]["inCluster"][0]["changes"][0],
        json!({"field": "spec.providerID", "to": "local://one"})
    );

    assert_eq!(world.versions().await, before, "nothing is written to the cluster");
    assert_eq!(world.cloud_writes(), [""; 0], "nothing is written to the cloud");

    // What was planned is what is done, and then there is nothing left to plan.
    let mut manager = world.manager("plan", &[]);
    let nodes: Api<Node> = Api::all(world.client.clone());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while nodes.get_status("worker-1").await.unwrap().status.is_none_or(|status| status.addresses.is_none()) {
        assert!(tokio::time::Instant::now() < deadline, "{}", manager.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(manager.stop("-TERM").code(), Some(0));
    let settled = world.run("plan", &[]);
    assert_eq!(settled.status.code(), Some(0), "{}", text(&settled.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_with_a_plan_is_one() {
    let world = World::start("plan-wrong").await;
    world.cloud(&["add", "worker-1", "--id=one"]);
    world.create_node("worker-1").await;
    world.cloud(&["fault", "failing=403"]);
    let plan = world.run("plan", &[]);
    assert_eq!(plan.status.code(), Some(1), "{plan:?}");
    assert!(text(&plan.stdout).contains("failed: ") && text(&plan.stdout).contains("1 failed."), "{plan:?}");

    // Two would mean that something changes.
    for flags in
        [&["--knots=8"][..], &["--node-monitor-period=1d"], &["--load-balancer-default-cloud=moon"], &["-o", "xml"]]
    {
        let plan = world.run("plan", flags);
        assert_eq!((plan.status.code(), plan.stdout.len()), (Some(1), 0), "{flags:?}: {plan:?}");
    }
    let help = bowline(&["plan", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    let nowhere = bowline(&["plan", "--cloud-provider=local", "--master=http://127.0.0.1:1"]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert!(text(&nowhere.stderr).contains("cannot list Nodes"), "{nowhere:?}");
    drop(world.server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_it_would_do_and_writes_nothing() {
    let world = World::start("dry-run").await;
    world.cloud(&["add", "worker-1", "--id=one", "--address=InternalIP=10.0.0.1"]);
    world.create_node("worker-1").await;
    world.cloud_writes();
    let before = world.versions().await;
    let mut manager = world.manager("dry-run", &["--dry-run"]);
    manager.says("dry run: nothing is changed");
    // The decision was made, and its Event told, in the log alone.
    manager.says("Node synced successfully");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.said());
    assert_eq!(world.versions().await, before, "{}", manager.said());
    assert_eq!(world.cloud_writes(), [""; 0]);
}
