//! Bench of the local cloud. The tests of the suite itself also use it, with a broken provider.
#![allow(dead_code, reason = "two test binaries use different parts")]

mod balancers;
mod loops;
mod routes;
mod secrets;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{
    Bench, BenchResult, InducedFault, LoadBalancerBench, LoopBench, RouteBench, SecretBench, WantedMachine,
};
use bowline_core::{Address, AddressType, ClusterName, Instance, ProviderId};
use bowline_local::{
    CloudOptions, Config, Fault, FaultSpec, LocalCloud, LocalProvider, Machine, NewMachine, Server, serve,
};

pub(crate) use balancers::records;
use secrets::TokenFile;

/// Token of the provider, if the cloud requires one.
pub(crate) const SECRET: &str = "swordfish-of-the-bench";

/// Label of machines that a broken provider does not list.
pub(crate) const UNLISTED: &str = "example.com/unlisted";

/// Wraps the provider.
pub(crate) type Wrap = Box<dyn Fn(LocalProvider, &LocalCloud) -> Arc<dyn CloudProvider> + Send + Sync>;

pub(crate) struct LocalBench {
    cloud: LocalCloud,
    provider: Arc<dyn CloudProvider>,
    config: Config,
    /// Wrapper of the provider; it also accepts IDs with a leading slash.
    wrap: Option<Wrap>,
    /// Whether faults can be injected.
    pub(crate) can: bool,
    /// Whether reads are stale.
    late: AtomicBool,
    server: Option<Server>,
    /// Tokens that the cloud accepts, where they come from a Secret.
    tokens: Option<TokenFile>,
}

impl LocalBench {
    fn open(token_file: Option<PathBuf>) -> LocalCloud {
        let options = CloudOptions { page_size: 7, balancers: records(), token_file, ..CloudOptions::default() };
        LocalCloud::open(options).unwrap()
    }

    /// Bench of a cloud in this process.
    pub(crate) fn in_process(cloud: LocalCloud, config: Config) -> LocalBench {
        let provider = Arc::new(LocalProvider::in_process(cloud.clone(), &config));
        let late = AtomicBool::default();
        LocalBench { cloud, provider, config, wrap: None, can: true, late, server: None, tokens: None }
    }

    /// Bench of an empty in-process cloud with small pages, which requires the token of a Secret.
    pub(crate) fn with_secret(mut config: Config) -> LocalBench {
        let tokens = TokenFile::new();
        config.token_secret = Some("kube-system/local-cloud".to_owned());
        let local = LocalBench::in_process(LocalBench::open(Some(tokens.path.clone())), config);
        tokens.deliver_to(&*local.provider);
        LocalBench { tokens: Some(tokens), ..local }
    }

    /// As [`with_secret`](LocalBench::with_secret), with a wrapped provider.
    pub(crate) fn wrapped(config: Config, wrap: Wrap) -> LocalBench {
        let mut local = LocalBench::with_secret(config);
        local.wrap = Some(wrap);
        local.provider = local.new_provider();
        local
    }

    /// Bench of a cloud over HTTP.
    pub(crate) async fn over_http(mut config: Config) -> LocalBench {
        let token_file = std::env::temp_dir().join(format!("bowline-conformance-token-{}", std::process::id()));
        std::fs::write(&token_file, SECRET).unwrap();
        let cloud = LocalBench::open(Some(token_file.clone()));
        config.token_file = Some(token_file);
        let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
        config.endpoint = format!("http://{}", server.address());
        config.batch_lookup = config.batch_lookup.min(7);
        config.load_balancers.batch_observe = config.load_balancers.batch_observe.min(7);
        let provider = Arc::new(LocalProvider::over_http(&config).unwrap());
        let late = AtomicBool::default();
        LocalBench { cloud, provider, config, wrap: None, can: true, late, server: Some(server), tokens: None }
    }

    /// Creates a provider from the configuration.
    fn new_provider(&self) -> Arc<dyn CloudProvider> {
        let provider = match self.server {
            None => LocalProvider::in_process(self.cloud.clone(), &self.config),
            Some(_) => LocalProvider::over_http(&self.config).unwrap(),
        };
        let provider = match &self.wrap {
            None => Arc::new(provider),
            Some(wrap) => wrap(provider, &self.cloud),
        };
        if let Some(tokens) = &self.tokens {
            tokens.deliver_to(&*provider);
        }
        provider
    }

    /// Instance that the provider should return, with the enabled properties.
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
            annotations: if config.additional_annotations { spec.annotations } else { Default::default() },
            pod_cidrs: if config.pod_ranges { spec.pod_ranges } else { Vec::new() },
        }
    }
}

fn new_machine(machine: &WantedMachine) -> NewMachine {
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
        annotations: [("example.com/serial".to_owned(), "s1".to_owned())].into(),
        pod_ranges: machine.pod_cidrs.clone(),
        ..NewMachine::default()
    }
}

#[async_trait]
impl Bench for LocalBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        self.new_provider()
    }

    fn of_cluster(&self, _: &ClusterName) -> Arc<dyn CloudProvider> {
        self.new_provider()
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned(), secrets::ROTATED.to_owned()]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    fn loops(&self) -> Option<&dyn LoopBench> {
        Some(self)
    }

    fn secret_store(&self) -> Option<&dyn SecretBench> {
        self.tokens.as_ref().map(|tokens| tokens as &dyn SecretBench)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        self.expected(self.cloud.add(new_machine(machine)).unwrap())
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

    /// The local cloud lists the machine; a provider with this flaw does not.
    async fn unlist(&self, instance: &Instance) -> BenchResult {
        let mark = (UNLISTED.to_owned(), String::new());
        self.cloud.change(&instance.id, |spec| spec.labels.extend([mark])).unwrap();
        BenchResult::Done
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.cloud.repair_all();
        if let Some(induced) = fault.filter(|_| self.can) {
            self.cloud.inject(FaultSpec::always(cloud_fault(induced)));
        }
        self.can
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        if !self.can {
            return BenchResult::Cannot;
        }
        self.cloud.repair_all();
        if let Some(calls) = calls {
            self.cloud.inject(FaultSpec::always(Fault::AnswerLost).after(calls - 1).times(1));
            self.cloud.inject(FaultSpec::always(Fault::Failing(500)).after(calls));
        }
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud.calls().values().sum())
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        let slash = || ProviderId::of(&self.config.id_prefix, &format!("/{}", instance.id));
        self.wrap.iter().map(|_| slash()).collect()
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "/", "i 1", "a/b", "i-1?x=y", "..", "\u{fc}"]
            .map(|rest| ProviderId::of(&self.config.id_prefix, rest))
            .into()
    }
}

fn cloud_fault(fault: InducedFault) -> Fault {
    match fault {
        InducedFault::Unauthenticated => Fault::Failing(401),
        InducedFault::Forbidden => Fault::Failing(403),
        InducedFault::Throttled(after) => Fault::Throttled(Some(after)),
        InducedFault::Broken => Fault::Failing(503),
        InducedFault::Empty => Fault::Empty,
        InducedFault::Garbled => Fault::Garbled,
        InducedFault::NotFound(body) => Fault::Foreign(404, body.to_owned()),
        InducedFault::Slow(delay) => Fault::Slow(delay),
    }
}
