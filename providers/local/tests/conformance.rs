//! The local provider runs the behaviour suite: in the same process and over HTTP, with everything on and with each
//! capability off.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{
    BalancerBench, Bench, ForeignBalancer, Hand, Report, SeenBalancer, SeenHealthCheck, SeenListener, SeenResource,
    SeenTarget, Trouble, WantedMachine, cases, run,
};
use bowline_core::{Address, AddressType, Instance, IpFamily, LoadBalancerKey, Protocol, ProviderId, SessionAffinity};
use bowline_local::{
    Balancer, BalancerOptions, BalancerSettings, BalancerTarget, CloudAddress, CloudOptions, Config, Fault, FaultSpec,
    Listener, LoadBalancerConfig, LocalCloud, LocalProvider, Machine, NewBalancer, NewMachine, Server, serve,
};

struct LocalBench {
    cloud: LocalCloud,
    provider: Arc<dyn CloudProvider>,
    config: Config,
    /// It is late in showing what was made.
    late: AtomicBool,
    _server: Option<Server>,
}

impl LocalBench {
    fn cloud() -> LocalCloud {
        LocalCloud::open(CloudOptions { page_size: 7, balancers: records(), ..CloudOptions::default() }).unwrap()
    }

    async fn in_process(config: Config) -> Box<dyn Bench> {
        let cloud = LocalBench::cloud();
        let provider = Arc::new(LocalProvider::in_process(cloud.clone(), &config));
        Box::new(LocalBench { cloud, provider, config, late: AtomicBool::default(), _server: None })
    }

    async fn over_http(mut config: Config) -> Box<dyn Bench> {
        let cloud = LocalBench::cloud();
        let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
        config.endpoint = format!("http://{}", server.address());
        config.batch_lookup = config.batch_lookup.min(7);
        config.load_balancers.batch_observe = config.load_balancers.batch_observe.min(7);
        let provider = Arc::new(LocalProvider::over_http(&config).unwrap());
        Box::new(LocalBench { cloud, provider, config, late: AtomicBool::default(), _server: Some(server) })
    }

    /// What the provider should say of a machine, as far as it is configured to.
    fn expected(&self, machine: Machine) -> Instance {
        let spec = machine.spec;
        let config = &self.config;
        Instance {
            provider_id: Some(ProviderId::of(&config.id_prefix, &spec.id)),
            id: spec.id,
            name: spec.name,
            instance_type: spec.instance_type,
            zone: if config.zones { spec.zone } else { String::new() },
            region: if config.zones { spec.region } else { String::new() },
            addresses: spec.addresses,
            labels: if config.additional_labels { spec.labels } else { Default::default() },
            pod_ranges: Vec::new(),
        }
    }
}

fn wanted(machine: &WantedMachine) -> NewMachine {
    let mut addresses = machine.addresses.clone();
    if addresses.is_empty() {
        addresses.push(Address::new(AddressType::InternalIP, "10.0.0.1"));
    }
    NewMachine {
        name: machine.name.clone(),
        id: String::new(),
        instance_type: "small".to_owned(),
        zone: "zone-a".to_owned(),
        region: "here".to_owned(),
        addresses,
        labels: [("example.com/rack".to_owned(), "r1".to_owned())].into(),
        pod_ranges: Vec::new(),
    }
}

#[async_trait]
impl Bench for LocalBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        match self._server {
            None => Arc::new(LocalProvider::in_process(self.cloud.clone(), &self.config)),
            Some(_) => Arc::new(LocalProvider::over_http(&self.config).unwrap()),
        }
    }

    fn balancers(&self) -> Option<&dyn BalancerBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        self.expected(self.cloud.add(wanted(machine)).unwrap())
    }

    async fn stop(&self, instance: &Instance) {
        self.cloud.stop(&instance.id).unwrap();
    }

    async fn start(&self, instance: &Instance) {
        self.cloud.start(&instance.id).unwrap();
    }

    async fn delete(&self, instance: &Instance) {
        self.cloud.delete(&instance.id).unwrap();
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.cloud.change(&instance.id, |spec| spec.name = name.to_owned()).is_ok()
    }

    async fn trouble(&self, trouble: Option<Trouble>) -> bool {
        self.cloud.repair_all();
        if let Some(trouble) = trouble {
            self.cloud.inject(FaultSpec::always(fault(trouble)));
        }
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> Hand {
        self.cloud.repair_all();
        if let Some(calls) = calls {
            self.cloud.inject(FaultSpec::always(Fault::AnswerLost).after(calls - 1).times(1));
            self.cloud.inject(FaultSpec::always(Fault::Failing(500)).after(calls));
        }
        Hand::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud.calls().values().sum())
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "/", "i 1", "a/b", "i-1?x=y", "..", "\u{fc}"]
            .map(|rest| ProviderId::of(&self.config.id_prefix, rest))
            .into()
    }
}

/// Balancers as records, with enough addresses of both families.
fn records() -> BalancerOptions {
    let nets = |nets: [&str; 2]| nets.map(|net| net.parse().unwrap()).into();
    BalancerOptions {
        pool: nets(["127.0.32.0/20", "fd00:1::/112"]),
        internal_pool: nets(["127.0.48.0/20", "fd00:2::/112"]),
        ..BalancerOptions::default()
    }
}

#[async_trait]
impl BalancerBench for LocalBench {
    async fn resources(&self) -> Vec<SeenResource> {
        let balancers = self.cloud.balancers().into_iter().map(balancer_resource);
        balancers.chain(self.cloud.addresses().into_iter().map(address_resource)).collect()
    }

    async fn balancer(&self, key: &LoadBalancerKey) -> Option<SeenBalancer> {
        let balancer = self.cloud.balancers().into_iter().find(|balancer| balancer.owner.as_ref() == Some(key))?;
        let addresses = self.cloud.addresses();
        let ip = |id: &String| addresses.iter().find(|address| address.id == *id).map(|address| address.ip);
        Some(SeenBalancer { addresses: balancer.addresses.iter().filter_map(ip).collect(), ..seen(balancer) })
    }

    async fn put_foreign(&self, foreign: &ForeignBalancer) -> Option<SeenResource> {
        let listener = Listener { protocol: Protocol::Tcp, port: 443, node_port: 30443 };
        let new = NewBalancer {
            name: foreign.name.clone(),
            owner: foreign.owner.clone(),
            ip: foreign.address,
            families: self.config.load_balancers.ip_families.iter().copied().take(1).collect(),
            settings: BalancerSettings { listeners: vec![listener], ..BalancerSettings::default() },
            ..NewBalancer::default()
        };
        Some(balancer_resource(self.cloud.add_balancer(new).ok()?))
    }

    async fn free_address(&self) -> Option<IpAddr> {
        let v4 = self.config.load_balancers.ip_families.contains(&IpFamily::IPv4);
        Some(if v4 { [127, 0, 40, 77].into() } else { "fd00:1::77".parse().unwrap() })
    }

    async fn writes(&self) -> Option<u64> {
        Some(self.cloud.writes())
    }

    async fn stale(&self) -> Hand {
        self.late.store(true, Ordering::SeqCst);
        self.settle().await;
        Hand::Done
    }

    async fn slow(&self) -> Hand {
        self.cloud.set_work_time(Duration::from_secs(3600));
        Hand::Done
    }

    async fn settle(&self) {
        self.cloud.finish_work();
        if self.late.load(Ordering::SeqCst) {
            self.cloud.repair_all();
            self.cloud.inject(FaultSpec::always(Fault::Stale));
        }
    }
}

fn balancer_resource(balancer: Balancer) -> SeenResource {
    let Balancer { id, name, owner, addresses, settings, targets } = balancer;
    let summary = format!("{addresses:?} {settings:?} {targets:?}");
    SeenResource { kind: "balancer".to_owned(), id, name, owners: owner.into_iter().collect(), summary }
}

fn address_resource(address: CloudAddress) -> SeenResource {
    let CloudAddress { id, ip, internal, share_group, owners } = address;
    let summary = format!("{ip} internal={internal} {share_group:?}");
    SeenResource { kind: "address".to_owned(), id, name: String::new(), owners, summary }
}

fn seen(balancer: Balancer) -> SeenBalancer {
    let settings = balancer.settings;
    let listener =
        |one: &Listener| SeenListener { protocol: one.protocol, port: one.port, node_port: Some(one.node_port) };
    let target = |one: BalancerTarget| SeenTarget { machine: one.machine.unwrap_or(one.name), draining: one.draining };
    let first = settings.listeners.first().map_or(0, |first| first.node_port);
    let health_check = settings.health_check.and_then(|check| {
        let interval = Some(Duration::from_millis(check.interval_millis));
        Some(SeenHealthCheck { path: check.path?, port: check.port.unwrap_or(first), interval })
    });
    let affinity = |timeout_seconds| SessionAffinity::ClientIp { timeout_seconds };
    SeenBalancer {
        id: balancer.id,
        name: balancer.name,
        addresses: Vec::new(),
        listeners: settings.listeners.iter().map(listener).collect(),
        targets: balancer.targets.into_iter().map(target).collect(),
        source_ranges: settings.source_ranges,
        affinity: Some(settings.affinity_seconds.map_or(SessionAffinity::None, affinity)),
        health_check,
        proxy_protocol: settings.proxy_protocol,
        idle_timeout: settings.idle_timeout_millis.map(Duration::from_millis),
        internal: settings.internal,
    }
}

fn fault(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::Unauthenticated => Fault::Failing(401),
        Trouble::Forbidden => Fault::Failing(403),
        Trouble::Throttled(after) => Fault::Throttled(Some(after)),
        Trouble::Broken => Fault::Failing(503),
        Trouble::Empty => Fault::Empty,
        Trouble::Garbled => Fault::Garbled,
    }
}

/// A setting, and the cases that it rules out.
struct Setting {
    config: Config,
    skipped: Vec<&'static str>,
}

/// What the balancers of this cloud never do, and what they have no limit for.
const NEVER_BALANCED: [&str; 5] = [
    "sctp_is_balanced",
    "node_ports_are_not_needed",
    "port_limit_is_reached",
    "target_limit_is_reached",
    "without_draining_a_leaving_node_goes",
];

impl Setting {
    /// A setting of what is told of machines; balancers can do all that they can.
    fn machines(config: Config, skipped: &[&'static str]) -> Setting {
        Setting { config, skipped: [skipped, &NEVER_BALANCED].concat() }
    }

    /// A setting of what balancers do; all is told of machines.
    fn balancers(load_balancers: LoadBalancerConfig, skipped: &[&'static str]) -> Setting {
        let config = Config { load_balancers, ..Config::default() };
        Setting { config, skipped: [&NOTHING_MISSING, skipped].concat() }
    }
}

/// With everything on, the rules for what is missing say nothing.
const NOTHING_MISSING: [&str; 2] = ["without_name_lookup_nothing_is_claimed", "without_listing_it_is_unsupported"];

fn settings() -> Vec<Setting> {
    let all = Config::default;
    vec![
        Setting::machines(all(), &NOTHING_MISSING),
        Setting::machines(Config { id_prefix: "other-cloud".to_owned(), ..all() }, &NOTHING_MISSING),
        Setting::machines(Config { page_size: 2, ..all() }, &NOTHING_MISSING),
        Setting::machines(
            Config { listing: false, ..all() },
            &[
                "without_name_lookup_nothing_is_claimed",
                "listing_agrees_with_find",
                "pages_are_complete",
                "listing_errors_have_a_kind",
            ],
        ),
        Setting::machines(
            Config { batch_lookup: 1, ..all() },
            &["without_name_lookup_nothing_is_claimed", "batch_limit_is_honoured", "without_listing_it_is_unsupported"],
        ),
        Setting::machines(
            Config { lookup_by_name: false, ..all() },
            &["name_finds_the_machine", "two_of_one_name_is_an_error", "without_listing_it_is_unsupported"],
        ),
        Setting::machines(
            Config { shutdown_state: false, zones: false, additional_labels: false, max_parallel: 1, ..all() },
            &[
                "stopped_is_told",
                "without_name_lookup_nothing_is_claimed",
                "zones_are_told",
                "labels_are_told",
                "concurrent_questions",
                "without_listing_it_is_unsupported",
            ],
        ),
        Setting::balancers(
            LoadBalancerConfig { max_ports: Some(3), max_targets: Some(4), batch_observe: 1, drain: false, ..able() },
            &[
                "observing_many_saves_calls",
                "sctp_is_balanced",
                "node_ports_are_not_needed",
                "a_leaving_node_is_drained",
            ],
        ),
        Setting::balancers(
            LoadBalancerConfig { udp: false, ip_families: vec![IpFamily::IPv6], shared: false, ..able() },
            &[
                "udp_is_balanced",
                "sctp_is_balanced",
                "protocol_changes",
                "protocols_mix_on_one_port",
                "node_ports_are_not_needed",
                "port_limit_is_reached",
                "target_limit_is_reached",
                "without_draining_a_leaving_node_goes",
                "ipv4_address_is_given",
                "dual_stack_has_both",
                "a_group_shares_an_address",
                "a_group_has_a_port_once",
            ],
        ),
        Setting::balancers(least(), &LEAST_SKIPPED),
        // Without the group there is nothing to say about it.
        Setting::balancers(LoadBalancerConfig { enabled: false, ..able() }, &[]),
    ]
}

fn able() -> LoadBalancerConfig {
    LoadBalancerConfig::default()
}

/// Every switch off that leaves anything to balance.
fn least() -> LoadBalancerConfig {
    LoadBalancerConfig {
        enabled: true,
        tcp: true,
        udp: false,
        mixed_protocols: false,
        source_ranges: false,
        session_affinity: false,
        local_traffic_policy: false,
        proxy_protocol: false,
        requested_address: false,
        drain: false,
        shared: false,
        internal: false,
        idle_timeout: false,
        health_check_settings: false,
        adoption: false,
        retention: false,
        ip_families: vec![IpFamily::IPv4],
        dual_stack: false,
        batch_observe: 1,
        max_ports: None,
        max_targets: None,
    }
}

const LEAST_SKIPPED: [&str; 26] = [
    "observing_many_saves_calls",
    "udp_is_balanced",
    "sctp_is_balanced",
    "protocol_changes",
    "protocols_mix_on_one_port",
    "node_ports_are_not_needed",
    "port_limit_is_reached",
    "target_limit_is_reached",
    "a_leaving_node_is_drained",
    "source_ranges_are_enforced",
    "affinity_is_kept",
    "local_policy_asks_the_node",
    "proxy_protocol_is_spoken",
    "internal_stays_inside",
    "idle_timeout_is_set",
    "health_check_is_as_chosen",
    "ipv6_address_is_given",
    "dual_stack_has_both",
    "requested_address_is_given",
    "a_group_shares_an_address",
    "a_group_has_a_port_once",
    "only_adoption_takes_over",
    "the_owned_is_not_adopted",
    "retained_is_released",
    "release_survives_every_crash",
    "adoption_survives_every_crash",
];

fn check(report: &Report, setting: &Setting) {
    println!("{report}\n");
    assert_eq!(report.complaints(), [], "{report}\n{:?}", setting.config);
    assert_eq!(report.skipped(), setting.skipped, "{:?}", setting.config);
    assert_eq!(report.outcomes().len(), cases().len());
}

#[tokio::test]
async fn the_provider_conforms_in_process() {
    for setting in settings() {
        check(&run(|| LocalBench::in_process(setting.config.clone())).await, &setting);
    }
}

#[tokio::test]
async fn the_provider_conforms_over_http() {
    // What a setting switches off is the same over HTTP; every fourth is enough to show that.
    for setting in settings().into_iter().step_by(4) {
        check(&run(|| LocalBench::over_http(setting.config.clone())).await, &setting);
    }
}

#[tokio::test]
async fn a_slow_cloud_conforms_as_well() {
    let bench = || async {
        let cloud = LocalCloud::open(CloudOptions {
            latency: Duration::from_millis(1),
            balancers: records(),
            ..CloudOptions::default()
        });
        let (cloud, config) = (cloud.unwrap(), Config::default());
        let provider = Arc::new(LocalProvider::in_process(cloud.clone(), &config));
        Box::new(LocalBench { cloud, provider, config, late: AtomicBool::default(), _server: None }) as Box<dyn Bench>
    };
    assert_eq!(run(bench).await.complaints(), []);
}
