//! The local provider runs the behaviour suite: in the same process and over HTTP, with everything on and with each
//! capability off.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod balancers;
mod routes;
mod settings;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{BalancerBench, Bench, Hand, Report, RouteBench, Trouble, WantedMachine, cases, run};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use bowline_local::{
    CloudOptions, Config, Fault, FaultSpec, LocalCloud, LocalProvider, Machine, NewMachine, Server, serve,
};

use balancers::records;
use settings::{Setting, settings};

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
            pod_ranges: if config.pod_ranges { spec.pod_ranges } else { Vec::new() },
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
        instance_type: "small".to_owned(),
        zone: "zone-a".to_owned(),
        region: "here".to_owned(),
        addresses,
        labels: [("example.com/rack".to_owned(), "r1".to_owned())].into(),
        pod_ranges: machine.pod_ranges.clone(),
        ..NewMachine::default()
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

    fn routes(&self) -> Option<&dyn RouteBench> {
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

fn check(report: &Report, setting: &Setting) {
    println!("{report}\n");
    assert_eq!(report.complaints(), [], "{report}\n{:?}", setting.config);
    let skipped: BTreeSet<_> = report.skipped().into_iter().collect();
    assert_eq!(skipped, setting.skipped, "{:?}", setting.config);
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
