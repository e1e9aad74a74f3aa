//! The manager as a process, with API server and cloud in separate processes.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{BOWLINE, Program, Scratch, Server, bowline, exposition, refused, within};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// API server, cloud and manager, each in its own process.
struct Processes {
    server: Server,
    manager: Program,
    cloud: Program,
    endpoint: String,
}

impl Processes {
    fn start(test: &str, flags: &[&str]) -> Processes {
        Processes::start_with(test, "", flags)
    }

    /// Starts with additional lines in the cloud configuration.
    fn start_with(test: &str, lines: &str, flags: &[&str]) -> Processes {
        let server = Server::start(test, &["--debug-endpoints"]);
        let mut cloud = Program::start(test, &["cloud", "--listen=127.0.0.1:0"]);
        let endpoint = cloud.wait_for("cloud ready at ");
        let config = server.scratch.file("local.yaml", format!("# address\nendpoint: {endpoint}\n{lines}"));
        let config = format!("--cloud-config={}", config.display());
        let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
        let routes = "--configure-cloud-routes=false";
        let (election, serving) = ("--leader-elect=false", "--secure-port=0");
        let arguments = ["--cloud-provider=local", &config, &kubeconfig, election, serving, routes];
        let arguments: Vec<_> = arguments.iter().chain(flags).copied().collect();
        Processes { manager: Program::start(test, &arguments), server, cloud, endpoint }
    }

    /// Creates a machine.
    fn add(&self, arguments: &[&str]) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        let arguments: Vec<_> = ["cloud", "add", &endpoint].iter().chain(arguments).copied().collect();
        assert!(bowline(&arguments).status.success());
    }

    async fn nodes(&self) -> Api<Node> {
        Api::all(client(&self.server.kubeconfig()).await)
    }
}

/// Creates a tainted Node, lets the API server delay the write that initialises it, and waits until that write is in progress.
async fn write_in_progress(all: &Processes, milliseconds: u64) -> Api<Node> {
    let client = client(&all.server.kubeconfig()).await;
    let effect = serde_json::json!({ "latencyMilliseconds": milliseconds });
    let rule =
        serde_json::json!({ "verb": "patch", "resource": "nodes", "subresource": "", "effect": effect, "times": 1 });
    debug(&client, "POST", "/debug/faults", rule.to_string()).await;
    all.add(&["worker-1", "--id=one", "--address=InternalIP=10.0.0.1"]);
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &tainted("worker-1")).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    // A used rule is removed.
    while debug(&client, "GET", "/debug/faults", String::new()).await != "[]" {
        assert!(tokio::time::Instant::now() < deadline, "no write; log: {}", all.manager.output());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    nodes
}

/// Calls a debug endpoint of the API server.
async fn debug(client: &kube::Client, method: &str, path: &str, body: String) -> String {
    let request = hyper::Request::builder().method(method).uri(path).body(body.into_bytes()).unwrap();
    client.request_text(request).await.unwrap()
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// A Node as a kubelet with `--cloud-provider=external` registers it.
fn tainted(name: &str) -> Node {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name },
        "spec": { "taints": [
            { "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule" },
        ] },
    }))
    .unwrap()
}

/// Waits until the Node is initialised.
async fn initialised(nodes: &Api<Node>, name: &str, manager: &Program) -> Node {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let node = nodes.get(name).await.unwrap();
        if !is_tainted(&node) && addresses(&node) > 0 {
            return node;
        }
        assert!(tokio::time::Instant::now() < deadline, "still tainted; log: {}", manager.output());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether the Node still waits for initialisation.
fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == "node.cloudprovider.kubernetes.io/uninitialized")
}

fn addresses(node: &Node) -> usize {
    node.status.as_ref().and_then(|status| status.addresses.as_ref()).map_or(0, Vec::len)
}

/// Response of `http://ADDRESS/metrics`.
fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bowline\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tainted_node_is_initialised_and_a_signal_stops_the_manager_cleanly() {
    let mut all = Processes::start("initialised", &["--metrics-listen=127.0.0.1:0", "-v=1"]);
    all.add(&["worker-1", "--id=one", "--zone=quay-1", "--type=small", "--address=InternalIP=10.0.0.1"]);
    let nodes = all.nodes().await;
    nodes.create(&PostParams::default(), &tainted("worker-1")).await.unwrap();

    let node = initialised(&nodes, "worker-1", &all.manager).await;
    assert_eq!(node.spec.unwrap().provider_id.as_deref(), Some("local://one"));
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels.get("topology.kubernetes.io/zone").map(String::as_str), Some("quay-1"));
    assert_eq!(labels.get("node.kubernetes.io/instance-type").map(String::as_str), Some("small"));

    let address = all.manager.wait_for("\"serving /metrics\" address=").trim_matches('"').to_owned();
    let response = within(Duration::from_secs(20), || {
        Some(metrics(&address)).filter(|response| response.contains("workqueue_adds_total"))
    });
    let response = response.unwrap_or_else(|| panic!("{}", metrics(&address)));
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let families = exposition::read(body).unwrap_or_else(|error| panic!("{error}"));
    let waits = &families["workqueue_queue_duration_seconds"].samples;
    let bounds: Vec<_> = waits.iter().filter_map(|wait| wait.labels.iter().find(|(name, _)| name == "le")).collect();
    assert_eq!(bounds.first().map(|(_, bound)| bound.as_str()), Some("1e-08"), "in Go's format");
    compare_with_reference(&families);
    assert!(all.manager.output().contains("FLAG: --cloud-provider=\"local\""), "{}", all.manager.output());

    assert_eq!(all.manager.stop("-TERM").code(), Some(0), "{}", all.manager.output());
    assert!(all.cloud.stop("-TERM").success());
}

/// Every exposed metric is on the reference page with its type, and every metric on the page without labels is exposed.
fn compare_with_reference(families: &BTreeMap<String, exposition::Family>) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.split(" | ").collect();
        let name = cells.first()?.strip_prefix("| `")?.strip_suffix('`')?;
        Some((name, (*cells.get(1)?, cells.get(2)?.is_empty())))
    });
    let rows: BTreeMap<_, _> = rows.collect();
    for (name, family) in families {
        let (kind, _) = rows.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not on the page"));
        assert_eq!(*kind, family.kind, "{name}");
    }
    // Metrics of disabled controllers, here and in other providers.
    let absent = ["bowline_pod_range_", "tagging_controller_"];
    let is_absent = |name: &str| absent.iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in rows.iter().filter(|(name, (_, is_unlabelled))| *is_unlabelled && !is_absent(name)) {
        assert!(families.contains_key(*name), "{name} is on the page and not exposed");
    }
}

#[test]
fn the_parser_rejects_invalid_expositions() {
    let good = "# HELP a b\n# TYPE a counter\na{b=\"c\\\"}\",d=\"\"} 1e+06\na 0\n";
    assert!(exposition::read(good).is_ok(), "{:?}", exposition::read(good));
    let bad = [
        "a 1\n",
        "# HELP a b\n# TYPE a counter\na 1",
        "# HELP a b\n# TYPE a counter\n",
        "# HELP a b\n# TYPE a counter\na 1\na 1\n",
        "# HELP a b\n# TYPE a counter\nb 1\n",
        "# HELP a b\n# TYPE a counter\na{b=\"c} 1\n",
        "# HELP a b\n# TYPE a counter\na{b=\"c\"\"} 1\n",
        "# HELP a b\n# TYPE a counter\na 1000000\n",
        "# HELP a b\n# TYPE a counter\na 0.00001\n",
        "# HELP a b\n# TYPE a counter\na\n",
        "# HELP a b\n# TYPE a histogram\na_bucket{le=\"0.00000001\"} 1\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# HELP a b\n# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
    ];
    for text in bad {
        assert!(exposition::read(text).is_err(), "{text}");
    }
}

/// Starts a cloud with one machine, and returns the path of its configuration.
fn cloud_with(machine: &str, prefix: &str, scratch: &Scratch) -> (Program, String) {
    let mut cloud = Program::start("one-of-two", &["cloud", "--listen=127.0.0.1:0"]);
    let endpoint = cloud.wait_for("cloud ready at ");
    let address = ["--address=InternalIP=10.0.0.1", "--id=one", &format!("--endpoint={endpoint}")].map(str::to_owned);
    let arguments: Vec<_> = ["cloud", "add", machine].into_iter().chain(address.iter().map(String::as_str)).collect();
    assert!(bowline(&arguments).status.success());
    let config = scratch.file(&format!("{prefix}.yaml"), format!("endpoint: {endpoint}\nidPrefix: {prefix}\n"));
    (cloud, config.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_two_clouds_are_initialised_in_one_cluster() {
    let server = Server::start("two-clouds", &[]);
    let (_north, north) = cloud_with("worker-1", "north", &server.scratch);
    let (_south, south) = cloud_with("worker-2", "south", &server.scratch);
    let configs = format!("--cloud-config=local={north},local={south}");
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let flags =
        ["--cloud-provider=local,local", &configs, &kubeconfig, "--configure-cloud-routes=false", "--secure-port=0"];
    let mut manager = Program::start("two-clouds", &flags);
    let nodes: Api<Node> = Api::all(client(&server.kubeconfig()).await);
    for (name, id) in [("worker-1", "north://one"), ("worker-2", "south://one")] {
        nodes.create(&PostParams::default(), &tainted(name)).await.unwrap();
        let node = initialised(&nodes, name, &manager).await;
        assert_eq!(node.spec.unwrap().provider_id.as_deref(), Some(id));
    }
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
}

/// Waits until the Node matches the condition.
async fn node_that(nodes: &Api<Node>, name: &str, manager: &Program, is_so: impl Fn(&Node) -> bool) -> Node {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let node = nodes.get(name).await.unwrap();
        if is_so(&node) {
            return node;
        }
        assert!(tokio::time::Instant::now() < deadline, "timed out; log: {}", manager.output());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Pod CIDRs of a Node.
fn pod_cidrs(node: &Node) -> Vec<String> {
    node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default()
}

/// Reason of the NetworkUnavailable condition.
fn network(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable")?.reason.as_deref()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_pod_cidrs_and_routes() {
    let flags = ["--configure-cloud-routes", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56"];
    let mut all = Processes::start("pod-ranges", &flags);
    all.add(&["worker-1", "--id=one", "--address=InternalIP=10.0.0.1"]);
    let nodes = all.nodes().await;
    nodes.create(&PostParams::default(), &tainted("worker-1")).await.unwrap();
    let node = node_that(&nodes, "worker-1", &all.manager, |node| network(node) == Some("RouteCreated")).await;
    assert_eq!(pod_cidrs(&node), ["10.244.0.0/24", "fd00:10:244::/64"]);
    let routes = bowline(&["cloud", "routes", &format!("--endpoint={}", all.endpoint)]);
    let routes = String::from_utf8(routes.stdout).unwrap();
    for cidr in pod_cidrs(&node) {
        let is_routed = |line: &str| line.contains(&cidr) && line.contains("one") && line.contains("active");
        assert!(routes.lines().any(is_routed), "{cidr} is missing in {routes}");
    }
    assert_eq!(all.manager.stop("-TERM").code(), Some(0), "{}", all.manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_the_pod_cidr_of_its_machine_in_the_cloud() {
    let flags = ["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", "--cluster-cidr=10.244.0.0/16"];
    let mut all = Processes::start_with("cloud-ranges", "podRanges: true\n", &flags);
    all.add(&["worker-1", "--id=one", "--pod-range=10.244.7.0/24"]);
    let nodes = all.nodes().await;
    nodes.create(&PostParams::default(), &tainted("worker-1")).await.unwrap();
    let node = node_that(&nodes, "worker-1", &all.manager, |node| !pod_cidrs(node).is_empty()).await;
    assert_eq!(pod_cidrs(&node), ["10.244.7.0/24"]);
    assert_eq!(all.manager.stop("-TERM").code(), Some(0), "{}", all.manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_progress_finishes_after_a_signal() {
    let mut all = Processes::start("in-hand", &[]);
    let nodes = write_in_progress(&all, 500).await;
    assert_eq!(all.manager.stop("-TERM").code(), Some(0), "{}", all.manager.output());
    let node = nodes.get("worker-1").await.unwrap();
    assert!(!is_tainted(&node) && addresses(&node) > 0, "{}", all.manager.output());
    let events: Api<Event> = Api::namespaced(nodes.into_client(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert_eq!(reasons, ["Synced"], "Events of the last writes are emitted, too: {}", all.manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_errors_are_logged_by_bowline_only() {
    let all = Processes::start("own-words", &[]);
    let client = client(&all.server.kubeconfig()).await;
    let nodes = all.nodes().await;
    let effects = [
        serde_json::json!("partialWatchLine"),
        serde_json::json!("reset"),
        serde_json::json!({ "status": { "code": 403 } }),
        serde_json::json!({ "status": { "code": 500 } }),
    ];
    for (number, effect) in effects.iter().enumerate() {
        let name = format!("worker-{number}");
        all.add(&[&name, "--address=InternalIP=10.0.0.1"]);
        let rule = serde_json::json!({ "verb": "watch", "resource": "nodes", "effect": effect, "times": 1 });
        debug(&client, "POST", "/debug/faults", rule.to_string()).await;
        debug(&client, "POST", "/debug/cut-watches", String::new()).await;
        nodes.create(&PostParams::default(), &tainted(&name)).await.unwrap();
        initialised(&nodes, &name, &all.manager).await;
    }
    let printed = all.manager.output();
    let foreign: Vec<_> = printed.lines().filter(|line| line.contains(" kube_") || line.contains(" hyper")).collect();
    assert!(foreign.is_empty(), "{foreign:#?}");
    assert!(printed.contains("watch interrupted") && printed.contains("watch restored"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_exits_without_waiting_for_writes() {
    let mut all = Processes::start("second-signal", &[]);
    write_in_progress(&all, 20_000).await;
    all.manager.signal("-TERM");
    all.manager.wait_for("shutting down");
    // Exit code that shells report for SIGTERM.
    assert_eq!(all.manager.stop("-TERM").code(), Some(143), "{}", all.manager.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_controller_does_not_change_nodes() {
    let mut all = Processes::start("switched-off", &["--controllers=*,-cloud-node"]);
    all.manager.wait_for("\"cloud-node-controller\" is disabled");
    all.add(&["worker-1"]);
    let nodes = all.nodes().await;
    nodes.create(&PostParams::default(), &tainted("worker-1")).await.unwrap();
    assert_eq!(all.manager.stop("-INT").code(), Some(0), "{}", all.manager.output());
    assert!(nodes.get("worker-1").await.unwrap().spec.unwrap().provider_id.is_none());
}

#[test]
fn the_manager_retries_while_api_server_and_cloud_are_unreachable() {
    let nowhere = unused_address();
    let scratch = Scratch::new("nowhere");
    let config = scratch.file("local.yaml", format!("endpoint: http://{nowhere}\n"));
    let config = format!("--cloud-config={}", config.display());
    let master = format!("--master=http://{nowhere}");
    let routes = "--configure-cloud-routes=false";
    let mut manager =
        Program::start("nowhere", &["--cloud-provider=local", &config, &master, routes, "--secure-port=0"]);
    manager.wait_for("starting");
    manager.wait_for("failed to acquire the lease; retrying");
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
}

/// Unused address.
fn unused_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn an_address_in_use_exits_with_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (listen, master) = (format!("--metrics-listen={address}"), format!("--master=http://{}", unused_address()));
    refused(&["--cloud-provider=local", "--configure-cloud-routes=false", &listen, &master], 1, &[&address]);
}

/// API server and cloud that fail the test if the manager connects to them.
struct NoConnections {
    listener: TcpListener,
    scratch: Scratch,
}

impl NoConnections {
    fn new() -> NoConnections {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        NoConnections { listener, scratch: Scratch::new("no-connections") }
    }

    /// Runs the manager with every address pointing here. It must exit with 1, print all of these texts, and open no connection.
    /// Returns the error output.
    fn expect_error(&self, flags: &[&str], expected: &[&str]) -> String {
        let address = self.listener.local_addr().unwrap();
        let master = format!("--master=http://{address}");
        let arguments: Vec<_> = [master.as_str()].iter().chain(flags).copied().collect();
        let text = refused(&arguments, 1, expected);
        let text = text.lines().filter(|line| !line.starts_with("Usage: ")).collect::<Vec<_>>().join("\n");
        assert!(text.starts_with("Error: "), "FLAG-4: {text}");
        assert!(self.listener.accept().is_err(), "{flags:?}: the manager opened a connection");
        text
    }

    /// Creates a configuration file with the endpoint and these lines; returns the value of `--cloud-config`.
    fn config(&self, name: &str, lines: &str) -> String {
        let text = format!("endpoint: http://{}\n{lines}", self.listener.local_addr().unwrap());
        self.scratch.file(name, text).display().to_string()
    }
}

#[test]
fn invalid_flags_and_files_exit_with_1_before_the_start() {
    let by = NoConnections::new();
    let config = |name: &str, lines: &str| format!("--cloud-config={}", by.config(name, lines));
    let missing = format!("--cloud-config={}", by.scratch.path("missing.yaml").display());
    let directory = format!("--cloud-config={}", by.scratch.path("").display());
    let binary = format!("--cloud-config={}", by.scratch.file("binary.yaml", b"a: b\nc: \xff\n").display());
    let local = "--cloud-provider=local";
    let no_routes = "--configure-cloud-routes=false";
    let cases: [(&[&str], &[&str]); 17] = [
        (&["--cluster-name=harbour"], &["--cloud-provider cannot be empty"]),
        (&["--cloud-provider="], &["--cloud-provider cannot be empty"]),
        (&["--cloud-provider=locl"], &["unknown cloud provider \"locl\"; did you mean local?"]),
        (&["--cloud-provider=external"], &["unknown cloud provider \"external\"", "kubelet"]),
        (&[local, &missing], &["missing.yaml: no such file"]),
        (&[local, &directory], &["is a directory; name a file in it"]),
        (&[local, &binary], &["binary.yaml:2: is not UTF-8 text"]),
        (&[local, &config("typo.yaml", "idPrefx: a\n")], &["typo.yaml:2: idPrefx", "did you mean idPrefix?"]),
        (
            &[local, &config("type.yaml", "listing: perhaps\n")],
            &["type.yaml:2: listing", "\"perhaps\" is neither true nor false"],
        ),
        (&[local, &config("yaml.yaml", "idPrefix: [a\n")], &["yaml.yaml:2"]),
        (&[local, "--knots=8"], &["--knots: unknown flag"]),
        (&[local, "--cloud-qsp=8"], &["--cloud-qsp: unknown flag; did you mean --cloud-qps?"]),
        (&[local, "--node-monitor-period=1d"], &["--node-monitor-period: invalid value \"1d\"", "write 24h"]),
        (&[local, "--concurrent-node-syncs", "0"], &["concurrent-node-syncs must be a positive number"]),
        (
            &[local, no_routes, "--load-balancer-default-cloud=moon"],
            &["--load-balancer-default-cloud: there is no cloud \"moon\""],
        ),
        (&[local, "sail"], &["\"bowline\" does not take any arguments, got [\"sail\"]"]),
        (&["--cloud-provider=local,local"], &["both local and local claim nodes", "\"local://\""]),
    ];
    for (flags, expected) in cases {
        by.expect_error(flags, expected);
    }
}

#[test]
fn invalid_pod_cidrs_exit_with_1_before_the_start() {
    let by = NoConnections::new();
    let config = format!("--cloud-config={}", by.config("local.yaml", ""));
    let local = ["--cloud-provider=local", &config, "--allocate-node-cidrs"];
    let cases: [(&[&str], &[&str]); 9] = [
        (
            &["--cluster-cidr=10.0.0.0/16, fd00::/48"],
            &["R25", "invalid CIDR[1]: invalid CIDR address: \" fd00::/48\"", "remove the space"],
        ),
        (&["--cluster-cidr=10.0.0.0/16,10.1.0.0/16"], &["IPAM-2", "--cluster-cidr", "not configured as dual stack"]),
        (&["--cluster-cidr="], &["IPAM-2", "--cluster-cidr: required", "--cluster-cidr=<pod network>"]),
        (
            &["--service-cluster-ip-range=10.0.0.0/16,fd00::/108,10.1.0.0/16", "--cluster-cidr=10.244.0.0/16"],
            &["IPAM-1", "--service-cluster-ip-range can not contain more than two entries"],
        ),
        (
            &["--service-cluster-ip-range=10.0.0.0/8", "--cluster-cidr=10.244.0.0/16"],
            &["nothing left", "10.0.0.0/8 covers the whole of --cluster-cidr 10.244.0.0/16"],
        ),
        (&["--cluster-cidr=2001:db8::/32", "--node-cidr-mask-size=49"], &["I12", "the node CIDR size is too big"]),
        (
            &["--cluster-cidr=10.244.0.0/16,fd00::/48", "--node-cidr-mask-size=24"],
            &["I21", "usage of --node-cidr-mask-size is not allowed with dual-stack clusters"],
        ),
        (
            &["--cluster-cidr=10.244.0.0/16", "--node-cidr-mask-size-ipv6=64"],
            &["I22", "usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster"],
        ),
        (&["--cluster-cidr=10.244.0.0/16", "--feature-gates=Knots=1"], &["4.5", "unrecognized feature gate: Knots"]),
    ];
    for (flags, case) in cases {
        // The first element is the ID of the case.
        let text = by.expect_error(&[&local[..], flags].concat(), &case[1..]);
        assert_eq!(text.lines().count(), 1, "{}: one error is one line: {text}", case[0]);
    }
}

#[test]
fn conflicts_of_cloud_and_pod_cidrs_are_reported_with_all_errors() {
    let by = NoConnections::new();
    let config = format!("--cloud-config={}", by.config("local.yaml", ""));
    let local = ["--cloud-provider=local", &config];
    let fix = "set --cluster-cidr=<pod network>, such as 10.244.0.0/16, or --configure-cloud-routes=false";
    let r24 = format!("--cluster-cidr: required, because the cloud local has routes; {fix}");
    by.expect_error(&local, &[&r24]);
    let ranges = ["--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16"];
    // I23
    let i23 = "--cidr-allocator-type: invalid CIDR allocator type: CloudAllocator; the cloud local does not support it";
    by.expect_error(&[&local[..], &ranges, &["--cidr-allocator-type=CloudAllocator"]].concat(), &[i23]);
    let several = ["--node-monitor-period=1d", "--feature-gates=Knots=1", "--knots=8"];
    let expected = ["4 configuration errors; nothing was started", &r24, "--node-monitor-period", "Knots", "--knots"];
    let text = by.expect_error(&[&local[..], &several].concat(), &expected);
    assert_eq!(text.lines().count(), expected.len(), "one line for each: {text}");
}

#[test]
fn an_unusable_kubeconfig_is_a_configuration_error() {
    let by = NoConnections::new();
    let missing = format!("--kubeconfig={}", by.scratch.path("missing-kubeconfig").display());
    let broken = format!("--kubeconfig={}", by.scratch.file("broken-kubeconfig", "clusters: {").display());
    by.expect_error(&["--cloud-provider=local", &missing], &["--kubeconfig", "missing-kubeconfig"]);
    by.expect_error(&["--cloud-provider=local", &broken], &["--kubeconfig", "broken-kubeconfig"]);
}

#[test]
fn a_full_standard_error_does_not_keep_it_from_exiting() {
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // Fills the pipe completely.
    writer.write_all(&[b'x'; 1 << 16]).unwrap();
    let mut manager = Command::new(BOWLINE).args(["--kubeconfig=/nowhere/config"]).stderr(writer).spawn().unwrap();
    let status = within(Duration::from_secs(20), || manager.try_wait().unwrap());
    manager.kill().unwrap();
    manager.wait().unwrap();
    assert_eq!(status.expect("the manager should have exited").code(), Some(1));
}

/// A Keystone that rejects all credentials.
#[cfg(feature = "provider-openstack")]
fn rejecting_keystone() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A partial request is sufficient.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 9\r\n\r\nwho's it?");
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    format!("http://{address}")
}

#[cfg(feature = "provider-openstack")]
#[test]
fn rejected_credentials_are_logged_and_do_not_stop_the_manager() {
    let scratch = Scratch::new("refusing-keystone");
    let lines = "user-id = u\npassword = s3cret\ntenant-id = t\n";
    let config = scratch.file("cloud.conf", format!("[Global]\nauth-url = {}\n{lines}", rejecting_keystone()));
    let config = format!("--cloud-config={}", config.display());
    let server = Server::start("refusing-keystone", &[]);
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let flags = ["--cloud-provider=openstack", &config, &kubeconfig, "--secure-port=0", "--leader-elect=false"];
    let flags = [&flags[..], &["--configure-cloud-routes=false"]].concat();
    let mut manager = Program::start("refusing-keystone", &flags);
    let printed = manager.wait_for("the cloud cannot be used yet");
    assert!(
        printed.contains("HTTP 401: who's it?") && printed.contains("Check the provider's credentials"),
        "{printed}"
    );
    manager.wait_for("the cloud cannot be used yet");
    assert_eq!(manager.ended(), None, "{}", manager.output());
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    assert!(!manager.output().contains("s3cret"), "{}", manager.output());
}

#[test]
fn all_errors_are_reported_at_once() {
    let by = NoConnections::new();
    let one = by.config("one.yaml", "endpont: x\n");
    let two = by.config("two.yaml", "listing: perhaps\n");
    let configs = format!("--cloud-config=local={one},local={two},harbour=x");
    let flags = [
        "--cloud-provider=local,local,opnstack",
        &configs,
        "--knots=8",
        "--controllers=red-controller",
        "--node-monitor-period=-1s",
        "--concurrent-node-lifecycle-syncs=0",
        "--leader-elect=maybe",
        "sail",
    ];
    let expected = [
        "10 configuration errors; nothing was started",
        "one.yaml:2: endpont",
        "two.yaml:2: listing",
        "\"harbour\" is not in --cloud-provider",
        "unknown cloud provider \"opnstack\"",
        "--knots",
        "\"red-controller\" is not in the list of known controllers",
        "--node-monitor-period",
        "concurrent-node-lifecycle-syncs must be at least 1, but got 0",
        "--leader-elect",
        "got [\"sail\"]",
    ];
    let text = by.expect_error(&flags, &expected);
    assert_eq!(text.lines().count(), expected.len(), "one line for each: {text}");
}
