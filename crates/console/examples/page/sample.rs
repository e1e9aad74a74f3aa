//! Documents of invented clusters: one with an example of everything that the page shows, and large ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bowline_console::document::{
    Budget, CallInterval, Calls, Cloud, Condition, Controller, Event, Fault, Health, HeldDeletion, LastPlan, Level,
    Listener, ListenerTarget, LoadBalancer, Loop, Machine, Manager, Node, Observed, PlanStep, Queue, RecentCall, Route,
    Service, Target, TourStep, Watch, Work, WorkState,
};
use bowline_console::{Document, Publisher, Sources};
use bowline_runtime::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// A document that can be changed while clients follow it.
#[derive(Clone)]
pub(crate) struct Sample(Arc<Mutex<Document>>);

impl Sample {
    /// A sample with this document.
    pub(crate) fn new(document: Document) -> Sample {
        Sample(Arc::new(Mutex::new(document)))
    }

    /// The document, to change it.
    pub(crate) fn document(&self) -> MutexGuard<'_, Document> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A publisher of the document, with an epoch of its own.
    pub(crate) fn publisher(&self) -> Publisher {
        let (sources, shared) = (Sources::new(), self.clone());
        sources.add(move |document: &mut Document| *document = shared.document().clone());
        Publisher::new(sources, Clock::system())
    }
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::now() - SignedDuration::from_secs(seconds)
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn map<T>(entries: impl IntoIterator<Item = (&'static str, T)>) -> BTreeMap<String, T> {
    entries.into_iter().map(|(name, item)| (name.to_owned(), item)).collect()
}

/// A small cluster with an example of everything.
pub(crate) fn small() -> Document {
    Document {
        manager: map([("self", manager())]),
        cloud: map([("local", cloud())]),
        machine: machines(),
        node: nodes(),
        service: map([
            ("shop/web", web()),
            ("shop/checkout", pending()),
            ("media/stream", quota()),
            ("default/hello", creating()),
        ]),
        load_balancer: map([("local/lb-7f3a-web", load_balancer())]),
        route: routes(),
        controller: controllers(),
        queue: queues(),
        watch: map([
            ("nodes", Watch { health: Health::ok(), objects: 5, ..Watch::default() }),
            ("services", Watch { health: Health::ok(), objects: 9, ..Watch::default() }),
        ]),
        event: events(),
        step: steps(),
        fault: faults(),
    }
}

fn manager() -> Manager {
    let lease = json!({ "holder": "bowline-6d9f7_1b2c", "leader": true, "renewed": ago(1), "deadline": ago(-9) });
    Manager {
        health: Health::ok(),
        version: "v0.1.0".to_owned(),
        started: Some(ago(7_380)),
        cluster: Some("playground".to_owned()),
        leader: true,
        leases: map([("kube-system/cloud-controller-manager", lease)]),
        dry_run: false,
    }
}

fn cloud() -> Cloud {
    let wave = |index: i64| (6.0 + 5.0 * (index as f64 / 6.0).sin()) as u32;
    let interval = |index: i64| CallInterval {
        // As in a manager, whose intervals begin ten seconds apart, at any second.
        at: (ago(0).as_second() / 10 - 60 + index) * 10 - 3,
        calls: wave(index),
        failed: u32::from(index > 48) * (wave(index) / 3),
        throttled: u32::from(index > 52),
        mean_ms: 24 + wave(index) * 3,
        max_ms: 60 + wave(index) * 14,
    };
    let call = |index: i64| RecentCall {
        at: ago(index * 3),
        service: if index % 4 == 0 { "compute" } else { "network" },
        call: ["list_machines", "get_load_balancer", "update_targets", "create_load_balancer"][index as usize % 4],
        outcome: if index % 7 == 2 { "QuotaExceeded" } else { "ok" },
        ms: (20 + index * 37 % 400) as u32,
        error: (index % 7 == 2).then(|| "quota exceeded for load balancers: 10 of 10".to_owned()),
    };
    Cloud {
        health: Health::new(
            Level::Warning,
            "Throttled",
            "The cloud rejects some calls because of its rate limit; they are retried.",
        ),
        provider: "local".to_owned(),
        region: Some("playground".to_owned()),
        details: map([("API", "http://127.0.0.1:41873".to_owned()), ("version", "1".to_owned())]),
        capabilities: texts(&["instances", "loadBalancers", "routes", "podCidrs"]),
        calls: Calls {
            in_progress: 2,
            intervals: (0..60).map(interval).collect(),
            recent: (0..40).map(call).collect(),
            rate_limit: Some(20.0),
            paused_until: Some(ago(-14)),
            budgets: map([("network", Budget { limit: 5_000, remaining: 1_280, resets: ago(-1_500) })]),
        },
    }
}

/// Name, machine type, zone and last byte of the addresses of the machines.
const MACHINES: [(&str, &str, &str, u8); 5] = [
    ("worker-1", "small", "zone-a", 11),
    ("worker-2", "small", "zone-b", 12),
    ("worker-3", "large", "zone-a", 13),
    ("worker-4", "large", "zone-b", 14),
    ("worker-5", "small", "zone-c", 15),
];

fn machines() -> BTreeMap<String, Machine> {
    let machine = |(name, kind, zone, byte): &(&str, &str, &str, u8)| {
        let is_stopped = *name == "worker-3";
        let health = match is_stopped {
            true => Health::new(Level::Warning, "Stopped", "The machine was stopped in the cloud."),
            false => Health::ok(),
        };
        let id = format!("m-{byte:04x}");
        let machine = Machine {
            health,
            cloud: "local".to_owned(),
            id: id.clone(),
            node: (*name).to_owned(),
            state: if is_stopped { "stopped" } else { "running" }.to_owned(),
            hidden: false,
            instance_type: (*kind).to_owned(),
            zone: (*zone).to_owned(),
            addresses: vec![format!("10.0.0.{byte}")],
        };
        (format!("local/{id}"), machine)
    };
    MACHINES.iter().map(machine).collect()
}

fn nodes() -> BTreeMap<String, Node> {
    let node = |(name, kind, zone, byte): &(&str, &str, &str, u8)| {
        let mut node = Node {
            health: Health::ok(),
            cloud: Some("local".to_owned()),
            provider_id: Some(format!("local://m-{byte:04x}")),
            machine: Some(format!("m-{byte:04x}")),
            machine_state: "running".to_owned(),
            instance_type: Some((*kind).to_owned()),
            zone: Some((*zone).to_owned()),
            region: Some("playground".to_owned()),
            ready: "True".to_owned(),
            addresses: vec![
                format!("InternalIP 10.0.0.{byte}"),
                format!("ExternalIP 203.0.113.{byte}"),
                format!("Hostname {name}"),
            ],
            pod_cidrs: vec![format!("10.244.{byte}.0/24")],
            created: Some(ago(7_000)),
            work: map([(
                "cloud-node-controller",
                Work {
                    last: Some(ago(40)),
                    took_ms: Some(12),
                    next: Some(ago(-260)),
                    state: WorkState::Delayed,
                    ..Work::default()
                },
            )]),
            ..Node::default()
        };
        match *name {
            "worker-3" => stop(&mut node),
            "worker-4" => lose(&mut node),
            "worker-5" => join(&mut node),
            _ => {}
        }
        ((*name).to_owned(), node)
    };
    MACHINES.iter().map(node).collect()
}

fn stop(node: &mut Node) {
    let message = "The machine is stopped, so the kubelet does not report. Start the machine, or delete it; Pods move to other Nodes.";
    node.health = Health::new(Level::Warning, "MachineStopped", message);
    node.machine_state = "stopped".to_owned();
    node.ready = "Unknown".to_owned();
    node.taints =
        texts(&["node.cloudprovider.kubernetes.io/shutdown:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]);
}

fn lose(node: &mut Node) {
    let message = "The cloud does not know the machine, but too many Nodes seem to be gone at once: 3 of 5 exceed the limit of 1.";
    node.health = Health::new(
        Level::Error,
        "DeletionHeld",
        "The machine seems to be gone; the Node is kept until an operator decides.",
    );
    node.machine_state = "gone".to_owned();
    node.ready = "Unknown".to_owned();
    node.held = Some(HeldDeletion {
        reason: "TooManyNodes".to_owned(),
        message: message.to_owned(),
        command: Some("kubectl annotate node worker-4 bowline.dev/release-deletion=true".to_owned()),
    });
}

fn join(node: &mut Node) {
    node.health = Health::new(
        Level::Progressing,
        "Uninitialized",
        "Waits for the addresses of its machine; the cloud assigns them while the machine boots.",
    );
    node.ready = "False".to_owned();
    node.addresses = Vec::new();
    node.uninitialized = true;
    node.created = Some(ago(48));
    node.taints = texts(&[
        "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
        "node.kubernetes.io/not-ready:NoSchedule",
    ]);
    let error = "machine m-000f has no addresses yet";
    let work = Work {
        state: WorkState::Delayed,
        failures: 3,
        next: Some(ago(-18)),
        last: Some(ago(6)),
        took_ms: Some(31),
        error: Some(error.to_owned()),
        ..Work::default()
    };
    node.work = map([("cloud-node-controller", work)]);
}

fn targets() -> Vec<Target> {
    ["worker-1", "worker-2"].map(|node| Target { node: node.to_owned(), draining: false }).into()
}

fn step(verb: &str, kind: &str, name: &str, done: bool) -> PlanStep {
    PlanStep { verb: verb.to_owned(), kind: kind.to_owned(), name: name.to_owned(), changes: Vec::new(), done }
}

fn web() -> Service {
    Service {
        health: Health::ok(),
        cloud: Some("local".to_owned()),
        kind: "LoadBalancer".to_owned(),
        ports: texts(&["http TCP 80 → 30080", "https TCP 443 → 30443"]),
        traffic_policy: "Cluster".to_owned(),
        created: Some(ago(5_400)),
        finalizer: true,
        addresses: texts(&["203.0.113.200"]),
        condition: Some(Condition {
            status: "True".to_owned(),
            reason: "Synced".to_owned(),
            message: "The load balancer serves all ports.".to_owned(),
        }),
        load_balancer: Some("lb-7f3a-web".to_owned()),
        targets: targets(),
        target_count: 2,
        left_out: Some("worker-3: not ready; worker-4: not ready; worker-5: not initialised".to_owned()),
        plan: Some(LastPlan {
            at: ago(620),
            trigger: "nodes".to_owned(),
            steps: vec![PlanStep {
                changes: texts(&["+ worker-2", "- worker-3"]),
                ..step("update", "targets", "lb-7f3a-web", true)
            }],
            outcome: "applied".to_owned(),
            ..LastPlan::default()
        }),
        observed: Some(Observed { at: ago(30), exists: true, ..Observed::default() }),
        work: Work { last: Some(ago(30)), took_ms: Some(44), ..Work::default() },
        ..Service::default()
    }
}

fn pending() -> Service {
    let message = "Port 443 has no certificate: the Secret shop/checkout-tls does not exist. Create it, or remove the annotation bowline.dev/tls-secret.";
    Service {
        health: Health::new(Level::Error, "InvalidConfig", message),
        cloud: Some("local".to_owned()),
        kind: "LoadBalancer".to_owned(),
        ports: texts(&["https TCP 443 → 31443"]),
        traffic_policy: "Local".to_owned(),
        created: Some(ago(310)),
        finalizer: true,
        condition: Some(Condition {
            status: "False".to_owned(),
            reason: "InvalidConfig".to_owned(),
            message: message.to_owned(),
        }),
        work: Work {
            state: WorkState::Delayed,
            failures: 6,
            next: Some(ago(-95)),
            last: Some(ago(33)),
            took_ms: Some(18),
            error: Some(message.to_owned()),
            ..Work::default()
        },
        ..Service::default()
    }
}

fn quota() -> Service {
    let message = "The quota for load balancers is used up: 10 of 10. Delete one, or ask for a larger quota.";
    Service {
        health: Health::new(Level::Error, "QuotaExceeded", message),
        cloud: Some("local".to_owned()),
        kind: "LoadBalancer".to_owned(),
        ports: texts(&["rtmp TCP 1935 → 31935", "media UDP 5004 → 31504"]),
        traffic_policy: "Cluster".to_owned(),
        created: Some(ago(900)),
        finalizer: true,
        plan: Some(LastPlan {
            at: ago(20),
            trigger: "userChange".to_owned(),
            steps: vec![
                step("create", "security group", "media-stream", true),
                step("create", "load balancer", "lb-19c0-stream", false),
                step("create", "listener", "tcp-1935", false),
                step("create", "listener", "udp-5004", false),
            ],
            warnings: texts(&["the annotation bowline.dev/flavor is not supported by this cloud and has no effect"]),
            outcome: "failed".to_owned(),
            error: Some(message.to_owned()),
            step_count: 4,
            ended: Some(ago(19)),
        }),
        observed: Some(Observed { at: ago(20), exists: false, ..Observed::default() }),
        work: Work {
            state: WorkState::Delayed,
            failures: 4,
            next: Some(ago(-42)),
            last: Some(ago(20)),
            took_ms: Some(730),
            error: Some(message.to_owned()),
            ..Work::default()
        },
        ..Service::default()
    }
}

fn creating() -> Service {
    Service {
        health: Health::new(Level::Progressing, "Creating", "Waits for the cloud to start the load balancer."),
        cloud: Some("local".to_owned()),
        kind: "LoadBalancer".to_owned(),
        ports: texts(&["http TCP 80 → 30981"]),
        traffic_policy: "Cluster".to_owned(),
        created: Some(ago(9)),
        finalizer: true,
        load_balancer: Some("lb-55aa-hello".to_owned()),
        targets: targets(),
        target_count: 2,
        left_out: Some("worker-3: not ready; worker-4: not ready; worker-5: not initialised".to_owned()),
        plan: Some(LastPlan {
            at: ago(8),
            trigger: "userChange".to_owned(),
            steps: vec![
                step("create", "load balancer", "lb-55aa-hello", true),
                step("create", "targets", "lb-55aa-hello", false),
            ],
            outcome: "inProgress".to_owned(),
            ..LastPlan::default()
        }),
        observed: Some(Observed {
            at: ago(2),
            exists: true,
            pending: Some("PENDING_CREATE".to_owned()),
            ..Observed::default()
        }),
        work: Work { state: WorkState::InWork, since: Some(ago(2)), ..Work::default() },
        ..Service::default()
    }
}

fn load_balancer() -> LoadBalancer {
    let target = |node: &str, byte: u8, state: &str| ListenerTarget {
        node: node.to_owned(),
        address: format!("10.0.0.{byte}:30080"),
        state: state.to_owned(),
    };
    LoadBalancer {
        health: Health::ok(),
        cloud: "local".to_owned(),
        service: Some("shop/web".to_owned()),
        addresses: texts(&["203.0.113.200"]),
        listeners: vec![Listener {
            port: "TCP 80".to_owned(),
            targets: vec![
                target("worker-1", 11, "healthy"),
                target("worker-2", 12, "healthy"),
                target("worker-3", 13, "unhealthy"),
            ],
        }],
        connections: 18_203,
        bytes: 92_113_002,
    }
}

fn routes() -> BTreeMap<String, Route> {
    let route = |(name, _, _, byte): &(&str, &str, &str, u8)| {
        let destination = format!("10.244.{byte}.0/24");
        let health = match *name {
            "worker-5" => Health::new(Level::Progressing, "Creating", "The Node has no address yet."),
            _ => Health::ok(),
        };
        let route =
            Route { health, cloud: "local".to_owned(), destination: destination.clone(), node: (*name).to_owned() };
        (format!("local/{destination}"), route)
    };
    MACHINES.iter().map(route).collect()
}

fn controllers() -> BTreeMap<String, Controller> {
    let names = [
        "cloud-node-controller",
        "cloud-node-lifecycle-controller",
        "service-lb-controller",
        "node-ipam-controller",
        "node-route-controller",
    ];
    let mut controllers =
        map(names.map(|name| (name, Controller { health: Health::ok(), running: true, loops: BTreeMap::new() })));
    let nodes = Loop {
        health: Health::ok(),
        runs: 812,
        took_ms: Some(31),
        next: Some(ago(-170)),
        summary: Some("5 Nodes compared, 1 changed".to_owned()),
        ..Loop::default()
    };
    if let Some(controller) = controllers.get_mut("cloud-node-lifecycle-controller") {
        controller.loops.insert("machines".to_owned(), nodes);
    }
    controllers
}

fn queues() -> BTreeMap<String, Queue> {
    let failing = |name: &'static str, service: Service| (name, service.work);
    let service = Queue {
        health: Health::ok(),
        waiting: 3,
        in_work: 1,
        delayed: 2,
        finished: 1_290,
        failed: 41,
        oldest: Some(ago(2)),
        keys: map([
            failing("shop/checkout", pending()),
            failing("media/stream", quota()),
            failing("default/hello", creating()),
        ]),
    };
    let node = Queue { health: Health::ok(), delayed: 5, finished: 803, failed: 12, ..Queue::default() };
    map([
        ("service", service),
        ("Nodes", node),
        ("Routes", Queue { health: Health::ok(), finished: 96, ..Queue::default() }),
    ])
}

fn events() -> BTreeMap<String, Event> {
    let event = |number: i64| {
        let is_warning = number % 3 == 0;
        let event = Event {
            count: if is_warning { 4 } else { 1 },
            at: ago(20 * number),
            kind: if is_warning { "Warning" } else { "Normal" }.to_owned(),
            reason: if is_warning { "SyncLoadBalancerFailed" } else { "EnsuredLoadBalancer" }.to_owned(),
            message: if is_warning {
                "The quota for load balancers is used up: 10 of 10."
            } else {
                "Ensured load balancer"
            }
            .to_owned(),
            controller: "service-lb-controller".to_owned(),
            object_kind: "Service".to_owned(),
            object: if is_warning { "media/stream" } else { "shop/web" }.to_owned(),
        };
        (number.to_string(), event)
    };
    (1..=30).map(event).collect()
}

fn steps() -> BTreeMap<String, TourStep> {
    let step = |title: &str, text: &str, state: &str, checks: &[(&str, bool)]| TourStep {
        title: title.to_owned(),
        text: text.to_owned(),
        state: state.to_owned(),
        checks: checks.iter().map(|(check, is_true)| ((*check).to_owned(), *is_true)).collect(),
        commands: texts(&["bowline playground example hello | kubectl apply -f -"]),
        views: texts(&["kubectl get services --watch"]),
        result: (state == "passed").then(|| "The step passed in 3 s.".to_owned()),
    };
    map([
        (
            "01",
            step(
                "Machines become Nodes",
                "The kubelets register Nodes, and the manager initialises them.",
                "passed",
                &[("All Nodes have a provider ID", true), ("No Node has the taint uninitialized", true)],
            ),
        ),
        (
            "02",
            step(
                "A Service gets an address",
                "The example hello is of type LoadBalancer. The manager creates a load balancer in the cloud and publishes its address.",
                "running",
                &[
                    ("The cloud has a load balancer", true),
                    ("The Service has an address", false),
                    ("The address answers", false),
                ],
            ),
        ),
        (
            "03",
            step(
                "A machine is stopped",
                "Stop a machine, and watch its Node.",
                "todo",
                &[("The Node has the taint shutdown", false)],
            ),
        ),
        ("04", step("The cloud throttles", "The manager slows down and recovers.", "todo", &[])),
    ])
}

fn faults() -> BTreeMap<String, Fault> {
    map([
        ("slow", Fault { text: "Each call takes two seconds longer.".to_owned(), on: false }),
        ("throttle", Fault { text: "Every third call is rejected with 429.".to_owned(), on: true }),
        ("outage", Fault { text: "The API does not accept connections.".to_owned(), on: false }),
    ])
}

/// A large cluster in two clouds, with some items that are not as desired.
pub(crate) fn large(nodes: usize, services: usize) -> Document {
    let mut document = small();
    document.cloud.insert(
        "remote".to_owned(),
        Cloud { health: Health::ok(), provider: "openstack".to_owned(), ..Cloud::default() },
    );
    (document.machine, document.step, document.fault) = Default::default();
    (document.load_balancer, document.route, document.service, document.node) = Default::default();
    for number in 0..nodes {
        let (name, node) = large_node(number);
        for destination in &node.pod_cidrs {
            let cloud = node.cloud.clone().unwrap_or_default();
            let route = Route {
                health: Health::ok(),
                cloud: cloud.clone(),
                destination: destination.clone(),
                node: name.clone(),
            };
            document.route.insert(format!("{cloud}/{destination}"), route);
        }
        document.node.insert(name, node);
    }
    for number in 0..services {
        let mut service = if number % 97 == 5 { quota() } else { web() };
        service.load_balancer = Some(format!("lb-{number:04}"));
        service.addresses =
            if number % 97 == 5 { Vec::new() } else { vec![format!("198.51.{}.{}", number / 250, number % 250)] };
        service.targets =
            (0..20).map(|index| Target { node: large_name((number * 20 + index) % nodes), draining: false }).collect();
        document.service.insert(format!("team-{:02}/service-{number:04}", number % 20), service);
    }
    document
}

fn large_name(number: usize) -> String {
    format!("node-{number:05}.example.internal")
}

fn large_node(number: usize) -> (String, Node) {
    let mut node = Node {
        health: Health::ok(),
        cloud: Some(if number % 5 == 4 { "remote" } else { "local" }.to_owned()),
        provider_id: Some(format!("local://m-{number:06x}")),
        machine: Some(format!("m-{number:06x}")),
        machine_state: "running".to_owned(),
        instance_type: Some("standard-8".to_owned()),
        zone: Some(format!("zone-{}", ["a", "b", "c"][number % 3])),
        ready: "True".to_owned(),
        addresses: vec![format!("InternalIP 10.{}.{}.{}", number / 65_536, number / 256 % 256, number % 256)],
        pod_cidrs: vec![format!("10.{}.{}.0/24", 100 + number / 256, number % 256)],
        created: Some(ago(86_400)),
        ..Node::default()
    };
    match number % 500 {
        7 => stop(&mut node),
        11 => join(&mut node),
        _ => {}
    }
    (large_name(number), node)
}
