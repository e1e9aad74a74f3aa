//! The local provider runs the behaviour suite: in the same process and over HTTP, with everything on and with each
//! capability off.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{Bench, Report, Trouble, WantedMachine, cases, run};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use bowline_local::{
    CloudOptions, Config, Fault, FaultSpec, LocalCloud, LocalProvider, Machine, NewMachine, Server, serve,
};

struct LocalBench {
    cloud: LocalCloud,
    provider: Arc<dyn CloudProvider>,
    config: Config,
    _server: Option<Server>,
}

impl LocalBench {
    fn cloud() -> LocalCloud {
        LocalCloud::open(CloudOptions { page_size: 7, ..CloudOptions::default() }).unwrap()
    }

    async fn in_process(config: Config) -> Box<dyn Bench> {
        let cloud = LocalBench::cloud();
        let provider = Arc::new(LocalProvider::in_process(cloud.clone(), &config));
        Box::new(LocalBench { cloud, provider, config, _server: None })
    }

    async fn over_http(mut config: Config) -> Box<dyn Bench> {
        let cloud = LocalBench::cloud();
        let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
        config.endpoint = format!("http://{}", server.address());
        config.batch_lookup = config.batch_lookup.min(7);
        let provider = Arc::new(LocalProvider::over_http(&config).unwrap());
        Box::new(LocalBench { cloud, provider, config, _server: Some(server) })
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
    }
}

#[async_trait]
impl Bench for LocalBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
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

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud.calls().values().sum())
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "/", "i 1", "a/b", "i-1?x=y", "..", "\u{fc}"]
            .map(|rest| ProviderId::of(&self.config.id_prefix, rest))
            .into()
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
    skipped: &'static [&'static str],
}

/// With everything on, the rules for what is missing say nothing.
const NOTHING_MISSING: [&str; 2] = ["without_name_lookup_nothing_is_claimed", "without_listing_it_is_unsupported"];

fn settings() -> Vec<Setting> {
    let all = Config::default;
    vec![
        Setting { config: all(), skipped: &NOTHING_MISSING },
        Setting { config: Config { id_prefix: "other-cloud".to_owned(), ..all() }, skipped: &NOTHING_MISSING },
        Setting { config: Config { page_size: 2, ..all() }, skipped: &NOTHING_MISSING },
        Setting {
            config: Config { listing: false, ..all() },
            skipped: &[
                "without_name_lookup_nothing_is_claimed",
                "listing_agrees_with_find",
                "pages_are_complete",
                "listing_errors_have_a_kind",
            ],
        },
        Setting {
            config: Config { batch_lookup: 1, ..all() },
            skipped: &[
                "without_name_lookup_nothing_is_claimed",
                "batch_limit_is_honoured",
                "without_listing_it_is_unsupported",
            ],
        },
        Setting {
            config: Config { lookup_by_name: false, ..all() },
            skipped: &["name_finds_the_machine", "two_of_one_name_is_an_error", "without_listing_it_is_unsupported"],
        },
        Setting {
            config: Config { shutdown_state: false, zones: false, additional_labels: false, max_parallel: 1, ..all() },
            skipped: &[
                "stopped_is_told",
                "without_name_lookup_nothing_is_claimed",
                "zones_are_told",
                "labels_are_told",
                "concurrent_questions",
                "without_listing_it_is_unsupported",
            ],
        },
    ]
}

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
    for setting in settings() {
        check(&run(|| LocalBench::over_http(setting.config.clone())).await, &setting);
    }
}

#[tokio::test]
async fn a_slow_cloud_conforms_as_well() {
    let bench = || async {
        let cloud = LocalCloud::open(CloudOptions { latency: Duration::from_millis(1), ..CloudOptions::default() });
        let (cloud, config) = (cloud.unwrap(), Config::default());
        let provider = Arc::new(LocalProvider::in_process(cloud.clone(), &config));
        Box::new(LocalBench { cloud, provider, config, _server: None }) as Box<dyn Bench>
    };
    assert_eq!(run(bench).await.complaints(), []);
}
