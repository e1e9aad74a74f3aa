//! A simulated cloud, its provider, and a driver that syncs load balancers as the controller does. Time is paused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::layers::PendingCreates;
use bowline_cloud::{CallPolicy, Calls, Error, LoadBalancers};
use bowline_core::annotations::{DeletionPolicy, LoadBalancerSettings};
use bowline_core::{
    Address, AddressType, DesiredLoadBalancer, HealthCheck, Ingress, IpFamily, LoadBalancerKey, LoadBalancerSpec,
    LoadBalancerState, Plan, PortSpec, Protocol, ProviderId, SessionAffinity, TargetNode, TrafficPolicy,
};
use bowline_openstack::config::{Credential, Domain, Global, LoadBalancer, Scope, User};
use bowline_openstack::{Config, OpenStack};
use bowline_openstack_simulator::{Detail, Golden, Kind, NewServer, Options, Record, Simulator};
use bowline_simulator::drive::{self, Driver, Settled};
use serde_json::{Value, json};

/// Golden journals of all tests.
const JOURNALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/balancers_end_to_end/journals.txt");

pub(crate) const LB_ID: &str = "loadbalancer.openstack.org/load-balancer-id";
pub(crate) const LB_ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";
pub(crate) const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

pub(crate) struct World {
    pub(crate) cloud: Simulator,
    pub(crate) provider: OpenStack,
    config: Config,
    outcome_unknown: Arc<PendingCreates>,
    pub(crate) nodes: Vec<TargetNode>,
    _golden: Golden,
}

/// A Service, as far as the provider needs it.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) key: LoadBalancerKey,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Settings of the common annotations.
    pub(crate) common: LoadBalancerSettings,
    pub(crate) spec: LoadBalancerSpec,
}

/// Result of a sync.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) ingress: Vec<Ingress>,
    pub(crate) warnings: Vec<String>,
    pub(crate) state: Option<LoadBalancerState>,
}

impl World {
    /// Two nodes, and a configured external network.
    pub(crate) fn new() -> World {
        World::with(Options::default(), |_, _| ())
    }

    /// The same with a changed configuration.
    pub(crate) fn with(options: Options, change: impl FnOnce(&mut Config, &Simulator)) -> World {
        let cloud = Simulator::new(options);
        let mut config = config(&cloud);
        change(&mut config, &cloud);
        let nodes = ["node-1", "node-2"].iter().map(|name| add_node(&cloud, name)).collect();
        let golden = cloud.golden(JOURNALS, Detail::Exact);
        let outcome_unknown = Arc::default();
        World { provider: provider(&config, &cloud), config, outcome_unknown, cloud, nodes, _golden: golden }
    }

    /// Restarts the provider with empty caches.
    pub(crate) fn restart(&mut self) {
        self.provider = provider(&self.config, &self.cloud);
        self.outcome_unknown = Arc::default();
    }

    /// Enables retries of calls, as in the program.
    pub(crate) fn retry(&mut self) {
        let calls = Calls::new(CallPolicy::default());
        self.provider = OpenStack::past(self.config.clone(), &self.cloud.client(Duration::from_secs(60)), &calls);
    }

    /// Restarts with another configuration.
    pub(crate) fn reconfigure(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        self.restart();
    }

    /// A floating IP that was created by hand.
    pub(crate) fn floating_ip_by_hand(&self, address: &str) -> String {
        let network = self.cloud.fixture().external_network;
        let fields = json!({"floating_network_id": network, "floating_ip_address": address, "description": "mine"});
        self.cloud.add(Kind::FloatingIp, fields)
    }

    /// `default/web`, with TCP port 80.
    pub(crate) fn service(&self) -> Service {
        self.named("web")
    }

    pub(crate) fn named(&self, name: &str) -> Service {
        let spec = LoadBalancerSpec {
            ports: vec![port(Protocol::Tcp, 80, 30080)],
            targets: self.nodes.clone().into(),
            source_ranges: Vec::new(),
            requested_address: None,
            ip_families: vec![IpFamily::IPv4],
            session_affinity: SessionAffinity::None,
            traffic_policy: TrafficPolicy::Cluster,
            health_check: None,
        };
        let uid = format!("0123abcd-4567-89ab-cdef-{:0>12}", name.len());
        let (namespace, service) = ("default".to_owned(), name.to_owned());
        let key = LoadBalancerKey { cluster: "kubernetes".into(), namespace, service, uid };
        Service { key, annotations: BTreeMap::new(), common: LoadBalancerSettings::default(), spec }
    }

    // ---- syncs

    /// Syncs until the Service has the desired state.
    pub(crate) async fn ensure(&self, service: &mut Service) -> Result<Outcome, Error> {
        self.sync(service, true).await
    }

    /// Syncs until nothing of the Service is left.
    pub(crate) async fn remove(&self, service: &mut Service) -> Result<Outcome, Error> {
        self.sync(service, false).await
    }

    async fn sync(&self, service: &mut Service, wanted: bool) -> Result<Outcome, Error> {
        let Settled { state, warnings } = self.driver().settle(&mut Desired { world: self, service, wanted }).await?;
        let ingress = state.iter().flat_map(|state| state.status.ingress.clone()).collect();
        Ok(Outcome { ingress, warnings, state })
    }

    fn driver(&self) -> Driver<'_> {
        Driver::new(&self.provider).with_pending_creates(&self.outcome_unknown)
    }

    /// Applies one plan once, and returns the reasons of all skipped steps.
    pub(crate) async fn once(&self, service: &mut Service) -> Result<Vec<String>, Error> {
        let desired = &mut Desired { world: self, service, wanted: true };
        let (_, plan) = self.driver().plan(desired).await?;
        let left_out = self.driver().apply_all(desired, &plan).await?;
        Ok(left_out.into_iter().filter_map(|step| step.best_effort).collect())
    }

    /// Releases the load balancer, and returns the Services that are still listed.
    pub(crate) async fn released(&self, service: &mut Service) -> Vec<String> {
        service.common.policy = DeletionPolicy::Retain;
        self.remove(service).await.unwrap();
        let left = self.provider.list(&service.key.cluster).await.unwrap();
        left.into_iter().map(|key| key.service).collect()
    }

    /// Returns the plan; annotations of the observed state are recorded.
    pub(crate) async fn plan(
        &self,
        service: &mut Service,
        wanted: bool,
    ) -> Result<(Option<LoadBalancerState>, Plan), Error> {
        self.driver().plan(&mut Desired { world: self, service, wanted }).await
    }

    /// Applies one step until its operation ends.
    pub(crate) async fn apply(&self, service: &mut Service, step: &bowline_core::Step) -> Result<(), Error> {
        self.driver().apply(&mut Desired { world: self, service, wanted: true }, step).await.map(drop)
    }

    pub(crate) fn desired(&self, service: &Service, wanted: bool) -> DesiredLoadBalancer {
        let settings = self.provider.settings(&service.annotations, service.common.clone()).unwrap();
        DesiredLoadBalancer {
            key: service.key.clone(),
            annotations: Arc::new(service.annotations.clone()),
            settings: Arc::new(settings),
            spec: wanted.then(|| Arc::new(service.spec.clone())),
        }
    }

    // ---- resources of the cloud

    pub(crate) fn only(&self, kind: Kind) -> Record {
        let records = self.cloud.records(kind);
        assert_eq!(records.len(), 1, "{kind:?}: {records:?}");
        records.into_iter().next().unwrap()
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.cloud.records(kind).len()
    }

    /// Returns the security groups of Services.
    pub(crate) fn groups(&self) -> Vec<Record> {
        let groups = self.cloud.records(Kind::SecurityGroup).into_iter();
        groups.filter(|group| text(group, "name").starts_with("lb-sg-")).collect()
    }

    /// Returns all writes: `POST loadbalancers`.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.cloud.writes().iter().map(|entry| format!("{} {}", entry.method, entry.template)).collect()
    }

    /// Returns the body of the last write of this kind.
    pub(crate) fn sent(&self, call: &str) -> Value {
        let writes = self.cloud.writes();
        let found = writes.iter().rfind(|entry| format!("{} {}", entry.method, entry.template) == call);
        found.unwrap_or_else(|| panic!("no {call} in {:?}", self.writes())).body.clone()
    }

    /// Asserts that no resources of Services are left.
    pub(crate) fn assert_empty(&self) {
        for kind in
            [Kind::LoadBalancer, Kind::Listener, Kind::Pool, Kind::Member, Kind::HealthMonitor, Kind::FloatingIp]
        {
            assert_eq!(self.cloud.records(kind), Vec::<Record>::new(), "{kind:?}");
        }
        assert_eq!(self.groups(), Vec::<Record>::new());
    }
}

/// A Service whose load balancer is desired, or to be deleted.
struct Desired<'a> {
    world: &'a World,
    service: &'a mut Service,
    wanted: bool,
}

impl drive::Desired for Desired<'_> {
    fn desired(&self) -> DesiredLoadBalancer {
        self.world.desired(self.service, self.wanted)
    }

    fn annotate(&mut self, annotations: BTreeMap<String, String>) {
        self.service.annotations.extend(annotations);
    }
}

impl Service {
    pub(crate) fn annotate(&mut self, key: &str, value: &str) -> &mut Service {
        let key = if key.contains('/') { key.to_owned() } else { format!("loadbalancer.openstack.org/{key}") };
        self.annotations.insert(key, value.to_owned());
        self
    }

    /// Adopts an existing load balancer.
    pub(crate) fn adopt(&mut self, name: &str) -> &mut Service {
        self.common.adopt = Some(name.to_owned());
        self
    }

    pub(crate) fn request_address(&mut self, address: &str) -> &mut Service {
        self.spec.requested_address = Some(address.to_owned());
        self
    }

    /// Sets the traffic policy Local.
    pub(crate) fn local(&mut self, port: u16) -> &mut Service {
        self.spec.traffic_policy = TrafficPolicy::Local;
        self.spec.health_check = Some(HealthCheck { path: "/healthz".to_owned(), port });
        self
    }

    pub(crate) fn ports(&mut self, ports: &[(Protocol, u16, u16)]) -> &mut Service {
        self.spec.ports =
            ports.iter().map(|&(protocol, number, node_port)| port(protocol, number, node_port)).collect();
        self
    }
}

impl Outcome {
    /// Returns the only address in the status.
    pub(crate) fn ip(&self) -> &str {
        match self.ingress.as_slice() {
            [Ingress { ip: Some(ip), hostname: None, .. }] => ip,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a text field of a record; empty if it is none.
pub(crate) fn text<'a>(record: &'a Record, field: &str) -> &'a str {
    record.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn port(protocol: Protocol, port: u16, node_port: u16) -> PortSpec {
    PortSpec { name: String::new(), protocol, port, node_port: Some(node_port), app_protocol: None }
}

/// `default/web`, with its load balancer.
pub(crate) async fn created(world: &World) -> Service {
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    web
}

/// Returns the writes of a sync.
pub(crate) async fn writes_of(world: &World, service: &mut Service) -> Vec<String> {
    world.cloud.forget_calls();
    world.ensure(service).await.unwrap();
    world.writes()
}

/// Adds a server and returns its node.
pub(crate) fn add_node(cloud: &Simulator, name: &str) -> TargetNode {
    let id = cloud.add_server(NewServer::named(name));
    let ports = cloud.records(Kind::Port).into_iter().filter(|port| text(port, "device_id") == id);
    let fixed = ports.filter_map(|port| port.get("fixed_ips")?.get(0)?.get("ip_address")?.as_str().map(str::to_owned));
    let addresses = fixed.map(|address| Address { kind: AddressType::InternalIP, address }).collect();
    TargetNode {
        node: name.into(),
        provider_id: ProviderId::new(&format!("openstack:///{id}")),
        addresses,
        draining: false,
    }
}

fn provider(config: &Config, cloud: &Simulator) -> OpenStack {
    OpenStack::over(config.clone(), cloud.client(Duration::from_secs(60)))
}

fn config(cloud: &Simulator) -> Config {
    let fixture = cloud.fixture();
    let mut load_balancer = LoadBalancer::default();
    load_balancer.placement.subnet_id = fixture.subnet;
    load_balancer.placement.floating_network_id = fixture.external_network;
    let user = User::Name("k8s".to_owned(), Domain::Id("default".to_owned()));
    Config {
        global: Global {
            auth_url: "http://cloud/identity/v3".to_owned(),
            credential: Credential::Password { user, password: fixture.password.as_str().into() },
            scope: Scope::ProjectId(fixture.project),
            ..Global::default()
        },
        load_balancer,
        ..Config::default()
    }
}
