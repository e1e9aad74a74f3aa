//! Failover between two manager processes: the leader is stopped, killed, or paused.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{Program, Server, bowline, within};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

const LEASE: &str = "cloud-controller-manager";
const ACQUIRED: &str = "successfully acquired lease kube-system/cloud-controller-manager";
/// Election times short enough for a test.
const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];
const TIMEOUT: Duration = Duration::from_secs(30);

/// API server and cloud, each in its own process.
struct World {
    server: Server,
    _cloud: Program,
    endpoint: String,
    client: kube::Client,
}

impl World {
    async fn start(test: &str) -> World {
        let server = Server::start(test, &["--debug-endpoints"]);
        let mut cloud = Program::start(test, &["cloud", "--listen=127.0.0.1:0"]);
        let endpoint = cloud.wait_for("cloud ready at ");
        server.scratch.file("local.yaml", format!("endpoint: {endpoint}\n"));
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        World { server, _cloud: cloud, endpoint, client: kube::Client::try_from(config).unwrap() }
    }

    /// Starts a manager with this user name.
    fn manager(&self, name: &str, flags: &[&str]) -> Program {
        let mut kubeconfig: Value =
            serde_json::to_value(Kubeconfig::read_from(self.server.kubeconfig()).unwrap()).unwrap();
        for user in kubeconfig["users"].as_array_mut().unwrap() {
            user["user"]["as"] = json!(name);
            user["user"]["as-groups"] = json!(["system:masters"]);
        }
        let path = self.server.scratch.path(&format!("{name}.kubeconfig"));
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let kubeconfig = format!("--kubeconfig={}", path.display());
        let config = format!("--cloud-config={}", self.server.scratch.path("local.yaml").display());
        let arguments =
            ["--cloud-provider=local", &config, &kubeconfig, "--configure-cloud-routes=false", "--secure-port=0"];
        Program::start(name, &arguments.iter().chain(flags).copied().collect::<Vec<_>>())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-system")
    }

    async fn holder(&self, lease: &str) -> String {
        let lease = self.leases().get(lease).await.unwrap();
        lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
    }

    /// Waits until the holder of the lease matches the condition.
    async fn held(&self, lease: &str, is_so: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let found = self.leases().get_opt(lease).await.unwrap();
            let holder = found.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            if is_so(&holder) {
                return holder;
            }
            assert!(Instant::now() < deadline, "{lease} is held by {holder:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Creates a machine and its uninitialised Node.
    async fn add_node(&self, name: &str) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        assert!(bowline(&["cloud", "add", &endpoint, name, "--address=InternalIP=10.0.0.1"]).status.success());
        let taint =
            json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" });
        let node = json!({ "metadata": { "name": name }, "spec": { "taints": [taint] } });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }

    async fn initialised(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let deadline = Instant::now() + TIMEOUT;
        while nodes.get(name).await.unwrap().spec.unwrap().provider_id.is_none() {
            assert!(Instant::now() < deadline, "{name} is not initialised");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn debug(&self, method: &str, path: &str, body: Value) -> String {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = hyper::Request::builder().method(method).uri(path).body(body).unwrap();
        self.client.request_text(request).await.unwrap()
    }

    async fn fault(&self, verb: &str, resource: &str, effect: Value) {
        self.debug("POST", "/debug/faults", json!({ "verb": verb, "resource": resource, "effect": effect })).await;
    }

    /// All requests so far, in order: user, verb and resource.
    async fn requests(&self) -> Vec<(String, String, String)> {
        let text = self.debug("GET", "/debug/requests", Value::Null).await;
        let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
        let field = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
        entries.iter().map(|entry| (field(entry, "user"), field(entry, "verb"), field(entry, "resource"))).collect()
    }

    /// Writes of `manager` after `other` acquired the lease.
    async fn writes_after_failover(&self, manager: &str, other: &str) -> Vec<(String, String, String)> {
        let requests = self.requests().await;
        let acquired = |(user, verb, resource): &(String, String, String)| {
            user == other && verb == "update" && resource == "leases"
        };
        let change = requests.iter().position(acquired).expect("the other manager is the leader");
        let is_write = |verb: &str| !matches!(verb, "get" | "list" | "watch");
        let late = requests.into_iter().skip(change).filter(|(user, verb, _)| user == manager && is_write(verb));
        late.collect()
    }
}

/// Waits until the program exits, and returns its exit code.
fn ended(program: &mut Program) -> Option<i32> {
    let status = within(TIMEOUT, || program.ended());
    status.unwrap_or_else(|| panic!("the program did not exit: {}", program.output())).code()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_clean_stop_the_standby_leads_at_once() {
    let world = World::start("clean-stop").await;
    // With the default times: waiting until the lease expires would take too long.
    let mut first = world.manager("manager-1", &[]);
    first.wait_for(ACQUIRED);
    let mut second = world.manager("manager-2", &[]);
    second.wait_for("new leader elected");
    world.add_node("worker-1").await;
    world.initialised("worker-1").await;
    let stopped = Instant::now();
    first.signal("-TERM");
    let led = within(Duration::from_secs(10), || second.output().contains(ACQUIRED).then(|| stopped.elapsed()));
    let led = led.unwrap_or_else(|| panic!("{}\n{}", first.output(), second.output()));
    eprintln!("clean stop: the standby leads after {led:?}");
    assert_eq!(ended(&mut first), Some(0), "{}", first.output());
    world.add_node("worker-2").await;
    world.initialised("worker-2").await;
    // The lease is released after the last write, followed by one Event at most.
    let late = world.writes_after_failover("manager-1", "manager-2").await;
    assert!(late.iter().all(|(_, _, resource)| resource == "events") && late.len() <= 1, "{late:?}");
    assert_eq!(stopped_leading(&world).await, 1);
    let spec = world.leases().get(LEASE).await.unwrap().spec.unwrap();
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(1), Some(15)));
}

/// Number of "stopped leading" Events.
async fn stopped_leading(world: &World) -> usize {
    let events: Api<Event> = Api::namespaced(world.client.clone(), "kube-system");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    events
        .iter()
        .filter_map(|event| event.message.as_deref())
        .filter(|message| message.ends_with("stopped leading"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_the_standby_leads_once_the_lease_expires() {
    let world = World::start("killed").await;
    let mut first = world.manager("manager-1", &SHORT);
    first.wait_for(ACQUIRED);
    let mut second = world.manager("manager-2", &SHORT);
    second.wait_for("new leader elected");
    let killed = Instant::now();
    first.signal("-KILL");
    second.wait_for(ACQUIRED);
    eprintln!("killed, with a lease of 3 s: the standby leads after {:?}", killed.elapsed());
    assert_eq!(ended(&mut first), None);
    world.add_node("worker-1").await;
    world.initialised("worker-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_writes_nothing_after_failover() {
    let world = World::start("paused").await;
    // Many concurrent syncs, each with another write to send after the next response.
    let flags: Vec<_> = SHORT.iter().copied().chain(["--concurrent-node-syncs=30"]).collect();
    let mut first = world.manager("manager-1", &flags);
    first.wait_for(ACQUIRED);
    let mut second = world.manager("manager-2", &flags);
    second.wait_for("new leader elected");
    // The responses arrive while the process is paused, and are available when it continues.
    world.fault("patch", "nodes", json!({ "latencyMilliseconds": 1500 })).await;
    for number in 0..40 {
        world.add_node(&format!("worker-{number}")).await;
    }
    let write = ("manager-1".to_owned(), "patch".to_owned(), "nodes".to_owned());
    let deadline = Instant::now() + TIMEOUT;
    while world.requests().await.iter().filter(|request| **request == write).count() < 10 {
        assert!(Instant::now() < deadline, "the leader makes no progress: {}", first.output());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.signal("-STOP");
    second.wait_for(ACQUIRED);
    for number in 40..60 {
        world.add_node(&format!("worker-{number}")).await;
    }
    world.debug("DELETE", "/debug/faults", Value::Null).await;
    world.initialised("worker-59").await;
    first.signal("-CONT");
    assert_eq!(ended(&mut first), Some(1), "{}", first.output());
    assert!(first.output().contains("leaderelection lost"), "{}", first.output());
    for number in 0..60 {
        world.initialised(&format!("worker-{number}")).await;
    }
    let late = world.writes_after_failover("manager-1", "manager-2").await;
    assert!(late.is_empty(), "{late:?}: {}", first.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_renew_exits_without_releasing_the_lease() {
    let world = World::start("refused").await;
    let mut manager = world.manager("manager-1", &SHORT);
    manager.wait_for(ACQUIRED);
    let holder = world.holder(LEASE).await;
    // The exit does not wait for a pending request.
    world.fault("patch", "nodes", json!({ "latencyMilliseconds": 60_000 })).await;
    world.add_node("worker-1").await;
    world.fault("update", "leases", json!({ "status": { "code": 500 } })).await;
    assert_eq!(ended(&mut manager), Some(1), "{}", manager.output());
    assert!(manager.output().contains("leaderelection lost"), "{}", manager.output());
    assert_eq!((world.holder(LEASE).await, stopped_leading(&world).await), (holder, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_writes_nothing_and_stops_cleanly() {
    let world = World::start("standby").await;
    let mut first = world.manager("manager-1", &SHORT);
    first.wait_for(ACQUIRED);
    let mut second = world.manager("manager-2", &SHORT);
    second.wait_for("new leader elected");
    world.add_node("worker-1").await;
    world.initialised("worker-1").await;
    assert_eq!(second.stop("-TERM").code(), Some(0), "{}", second.output());
    let changes = |(user, verb, _): &&(String, String, String)| {
        user == "manager-2" && !matches!(verb.as_str(), "get" | "list" | "watch")
    };
    assert_eq!(world.requests().await.iter().find(changes), None);
    assert_eq!(first.stop("-TERM").code(), Some(0), "{}", first.output());
    assert_eq!(world.holder(LEASE).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_during_startup_stops_it_cleanly_and_releases_leases() {
    const SECOND: &str = "cloud-provider-extraction-migration";
    let world = World::start("phases").await;
    for effect in [json!({ "status": { "code": 500 } }), json!({ "latencyMilliseconds": 60_000 })] {
        world.fault("get", "leases", effect).await;
        let mut manager = world.manager("manager-1", &SHORT);
        manager.wait_for("attempting to acquire leader lease");
        assert_eq!(manager.stop("-TERM").code(), Some(0), "no lease yet: {}", manager.output());
        world.debug("DELETE", "/debug/faults", Value::Null).await;
    }
    let held = json!({
        "metadata": { "name": SECOND },
        "spec": { "holderIdentity": "other_1", "leaseDurationSeconds": 3600 },
    });
    world.leases().create(&PostParams::default(), &serde_json::from_value(held).unwrap()).await.unwrap();
    for flag in ["--enable-leader-migration", "--controller-start-interval=1m"] {
        let flags: Vec<_> = SHORT.iter().copied().chain([flag]).collect();
        let mut manager = world.manager("manager-1", &flags);
        manager.wait_for(ACQUIRED);
        assert_eq!(manager.stop("-TERM").code(), Some(0), "{flag}: {}", manager.output());
        assert_eq!(
            (world.holder(LEASE).await.as_str(), world.holder(SECOND).await.as_str()),
            ("", "other_1"),
            "{flag}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mig4_migrating_controllers_wait_for_the_migration_lease_and_losing_it_ends_the_process() {
    const SECOND: &str = "cloud-provider-extraction-migration";
    let world = World::start("migration").await;
    let held = json!({
        "metadata": { "name": SECOND },
        "spec": { "holderIdentity": "other_1", "leaseDurationSeconds": 3600 },
    });
    world.leases().create(&PostParams::default(), &serde_json::from_value(held).unwrap()).await.unwrap();
    let flags: Vec<_> = SHORT.iter().copied().chain(["--enable-leader-migration"]).collect();
    let mut manager = world.manager("manager-1", &flags);
    manager.wait_for(ACQUIRED);
    // Controllers that do not migrate are running.
    world.add_node("worker-1").await;
    world.initialised("worker-1").await;
    let change = |holder: &str| Patch::Merge(json!({ "spec": { "holderIdentity": holder } }));
    world.leases().patch(SECOND, &PatchParams::default(), &change("")).await.unwrap();
    let holder = world.held(SECOND, |holder| !holder.is_empty()).await;
    assert_eq!(holder, world.holder(LEASE).await, "both leases have the same holder");
    world.leases().patch(SECOND, &PatchParams::default(), &change("other_2")).await.unwrap();
    assert_eq!(ended(&mut manager), Some(1), "{}", manager.output());
    assert!(manager.output().contains("migration leaderelection lost"), "{}", manager.output());
}
