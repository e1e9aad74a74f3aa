//! A simulated NSX manager, and a provider with its load balancers and routes alone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Calls, Capabilities, CheckResult, CloudProvider, LoadBalancers, ProviderInfo, Result, Routes};
use bowline_config::Secret;
use bowline_core::testing::{addresses, annotated, service};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerState, Plan, ProviderId, Service, TargetNode};
use bowline_simulator::drive::Driver;
use bowline_vsphere_simulator::nsx::{Entry, Options, PASSWORD, Record, Simulator, USER};
use serde_json::Value;

use crate::config::Config;
use crate::config::nsx::{
    AppProfile, IpPool, LbService, LoadBalancerClass, LoadBalancerConfig, NsxConfig, NsxCredentials, PasswordScheme,
};
use crate::nsx::{Clients, Nsx, NsxFeatures};

pub(super) const TIER1: &str = "/infra/tier-1s/edge";
pub(super) const CLUSTER: &str = "kubernetes";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Load balancers and routes of NSX, without vCenter.
pub(super) struct NsxOnly {
    info: ProviderInfo,
    capabilities: Capabilities,
    features: NsxFeatures,
}

/// User and password of the Secret.
pub(super) type SecretLogin = Arc<Mutex<Option<(String, Secret)>>>;

/// Configuration of a manager with this password.
pub(super) fn manager(credentials: NsxCredentials) -> NsxConfig {
    NsxConfig { host: "nsx.test".to_owned(), credentials, ..NsxConfig::default() }
}

pub(super) fn password() -> NsxCredentials {
    NsxCredentials::Password { user: USER.to_owned(), password: PASSWORD.into(), scheme: PasswordScheme::Basic }
}

fn clients(cloud: &Simulator) -> Clients {
    let http = cloud.client(TIMEOUT);
    Clients { manager: http.clone(), tokens: http }
}

fn secret_login(secret: &SecretLogin) -> crate::nsx::SecretLogin {
    let secret = secret.clone();
    Arc::new(move || secret.lock().unwrap().clone())
}

/// Creates a client for the simulated manager.
pub(super) fn client(cloud: &Simulator, credentials: NsxCredentials, secret: &SecretLogin) -> Nsx {
    Nsx::new(&manager(credentials), clients(cloud), secret_login(secret), &Calls::default(), &[]).unwrap()
}

/// Managed mode with the class `default` in the pool `vips`.
pub(super) fn balancers() -> LoadBalancerConfig {
    LoadBalancerConfig {
        size: "SMALL".to_owned(),
        service: LbService::Managed { tier1: TIER1.to_owned() },
        snat_disabled: false,
        tags: [].into(),
        classes: [("default".to_owned(), class("vips")), ("public".to_owned(), class("public-vips"))].into(),
    }
}

/// Class with a pool by ID and profiles by path.
pub(super) fn class(pool: &str) -> LoadBalancerClass {
    LoadBalancerClass {
        pool: IpPool::Id(pool.to_owned()),
        tcp_profile: AppProfile::Path("/infra/lb-app-profiles/default-tcp-lb-app-profile".to_owned()),
        udp_profile: AppProfile::Path("/infra/lb-app-profiles/default-udp-lb-app-profile".to_owned()),
    }
}

/// Returns the configuration of load balancers and routes.
pub(super) fn config(balancers: LoadBalancerConfig, router: &str) -> Config {
    Config { load_balancers: Some(balancers), router_path: Some(router.to_owned()), ..Config::default() }
}

impl NsxOnly {
    pub(super) fn new(cloud: &Simulator, config: &Config) -> NsxOnly {
        let (clients, login) = (clients(cloud), secret_login(&SecretLogin::default()));
        let manager = manager(password());
        let features = NsxFeatures::new(&manager, config, clients, login, &Calls::default(), &[]).unwrap();
        NsxOnly {
            info: ProviderInfo { name: "vsphere".to_owned(), id_prefixes: vec!["vsphere".to_owned()] },
            capabilities: Capabilities {
                instances: None,
                load_balancers: features.load_balancer_capabilities(),
                routes: features.route_capabilities(),
            },
            features,
        }
    }
}

#[async_trait]
impl CloudProvider for NsxOnly {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.features.load_balancers()
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.features.routes()
    }

    async fn check(&self) -> Result<()> {
        self.features.check().await
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.features.diagnose().await
    }
}

/// Creates a manager with a gateway and two pools of ten addresses.
pub(super) fn simulator(options: Options) -> Simulator {
    let cloud = Simulator::new(options);
    cloud.add_tier1("edge");
    cloud.add_ip_pool("vips", "10.0.8.1-10.0.8.10");
    cloud.add_ip_pool("public-vips", "198.51.100.1-198.51.100.10");
    cloud
}

/// A manager, a provider and two Nodes.
pub(super) struct World {
    pub(super) cloud: Simulator,
    pub(super) provider: NsxOnly,
    pub(super) nodes: Vec<TargetNode>,
}

impl World {
    pub(super) fn new() -> World {
        World::with(balancers())
    }

    pub(super) fn with(config: LoadBalancerConfig) -> World {
        // A paused clock puts the calls of many syncs into one second.
        let cloud = simulator(Options { rate_limit: u32::MAX, ..Options::default() });
        let provider = provider(&cloud, config);
        World { cloud, provider, nodes: vec![node("node-1", "10.1.0.1"), node("node-2", "10.1.0.2")] }
    }

    /// Replaces the provider, as after a restart with another configuration.
    pub(super) fn restart(&mut self, config: LoadBalancerConfig) {
        self.provider = provider(&self.cloud, config);
    }

    pub(super) fn desired(&self, service: &Service) -> DesiredLoadBalancer {
        let settings = bowline_core::annotations::read_leniently(&service.annotations).0;
        let cluster = ClusterName::from(CLUSTER);
        bowline_core::service::desired(&cluster, service, &settings, self.nodes.clone().into()).unwrap()
    }

    pub(super) fn driver(&self) -> Driver<'_> {
        Driver::new(self.provider.load_balancers().unwrap())
    }

    /// Syncs until the plan is empty.
    pub(super) async fn sync(&self, service: &Service) -> Result<Option<LoadBalancerState>> {
        self.driver().settle(&mut self.desired(service)).await.map(|settled| settled.state)
    }

    /// Syncs, and returns the address.
    pub(super) async fn synced(&self, service: &Service) -> String {
        let state = self.sync(service).await.unwrap().unwrap();
        state.status.ingress.first().and_then(|one| one.ip.clone()).unwrap_or_default()
    }

    pub(super) async fn plan(&self, service: &Service) -> Result<Plan> {
        self.driver().plan(&mut self.desired(service)).await.map(|(_, plan)| plan)
    }

    pub(super) async fn delete(&self, service: &Service) -> Result<()> {
        let mut desired = DesiredLoadBalancer { spec: None, ..self.desired(service) };
        self.driver().settle(&mut desired).await.map(drop)
    }

    /// Objects of a load balancer that exist, as `collection` and number.
    pub(super) fn counts(&self) -> [usize; 5] {
        ["ip-allocations", "lb-services", "lb-monitor-profiles", "lb-pools", "lb-virtual-servers"]
            .map(|collection| self.cloud.objects(collection).len())
    }

    /// Single object of a collection.
    pub(super) fn only(&self, collection: &str) -> Record {
        let mut all = self.cloud.objects(collection);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Method and path of all calls since the last time.
    pub(super) fn calls(&self) -> Vec<String> {
        let calls = self.cloud.journal().iter().map(call).collect();
        self.cloud.forget_calls();
        calls
    }

    /// The same of writes.
    pub(super) fn writes(&self) -> Vec<String> {
        let writes = self.cloud.writes().iter().map(call).collect();
        self.cloud.forget_calls();
        writes
    }
}

fn call(entry: &Entry) -> String {
    format!("{} {}", entry.method, entry.template)
}

pub(super) fn provider(cloud: &Simulator, config: LoadBalancerConfig) -> NsxOnly {
    NsxOnly::new(cloud, &self::config(config, TIER1))
}

pub(super) fn node(name: &str, address: &str) -> TargetNode {
    TargetNode {
        node: name.into(),
        provider_id: Some(ProviderId::of("vsphere", name)),
        addresses: addresses(&format!("I{address} E203.0.113.9")),
        draining: false,
    }
}

/// Service `default/web` with TCP port 80, in this class.
pub(super) fn web() -> Service {
    service("default/web")
}

pub(super) fn of_class(service: Service, class: &str) -> Service {
    annotated(service, &[("loadbalancer.vmware.io/class", class)])
}

pub(super) fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
