//! A simulated cloud with a dual-stack network, and a bench for its servers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::CloudProvider;
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, RouteBench, WantedMachine};
use bowline_core::{Address, AddressType, Instance, ProviderId};
use bowline_http::{Client, Options as HttpOptions, Proxies, Tls};
use bowline_openstack::config::{Class, Credential, Global, LoadBalancer, Scope};
use bowline_openstack::{Config, OpenStack};
use bowline_openstack_simulator::{
    Fault, FaultSpec, Fixture, Kind, NewPort, NewServer, Options, REGION, Server, Service, Simulator,
};
use serde_json::json;

/// Timeout, longer than any call here.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Configuration of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// All features.
    Everything,
    /// All features, and every load balancer is internal (`internal-lb`).
    InternalOnly,
    /// Neither load balancers nor routes.
    MachinesOnly,
    /// Routes, and no load balancers.
    Routes,
    /// The same with a Neutron that writes all routes of a router at once.
    ClassicRoutes,
}

/// A provider on a simulated cloud.
pub(crate) struct SimulatedBench {
    pub(crate) cloud: Simulator,
    pub(crate) fixture: Fixture,
    pub(crate) networks: Networks,
    /// Addresses of servers.
    used: Mutex<BTreeSet<IpAddr>>,
    setting: Setting,
    client: Client,
    auth_url: String,
    provider: Arc<dyn CloudProvider>,
    _server: Option<Server>,
}

/// Network of the servers, with a subnet for each IP family.
pub(crate) struct Networks {
    pub(crate) v4: String,
    pub(crate) v6: String,
    router: String,
}

impl SimulatedBench {
    /// Without a socket.
    pub(crate) fn in_process(setting: Setting) -> SimulatedBench {
        let cloud = Simulator::new(Options::default());
        let client = cloud.client(TIMEOUT);
        SimulatedBench::new(setting, cloud, client, "http://openstack.test/identity/v3".to_owned(), None)
    }

    /// Over loopback, with connections that are closed after each response.
    pub(crate) async fn over_http(setting: Setting) -> SimulatedBench {
        let cloud = Simulator::new(Options { close_connections: true, ..Options::default() });
        let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let options = HttpOptions { tls: Tls::default(), proxies: Proxies::default(), timeout: TIMEOUT };
        let auth_url = server.url() + "/identity/v3";
        SimulatedBench::new(setting, cloud, Client::new(options).unwrap(), auth_url, Some(server))
    }

    fn new(
        setting: Setting,
        cloud: Simulator,
        client: Client,
        auth_url: String,
        server: Option<Server>,
    ) -> SimulatedBench {
        if setting == Setting::ClassicRoutes {
            cloud.configure(|options| options.extensions.retain(|alias| alias != "extraroute-atomic"));
        }
        let (fixture, networks) = (cloud.fixture(), create_network(&cloud));
        let provider = provider(setting, &client, &auth_url, &fixture, &networks);
        let used = Mutex::default();
        SimulatedBench { cloud, fixture, networks, used, setting, client, auth_url, provider, _server: server }
    }

    /// Returns the expected description of a server.
    fn expected(id: String, machine: &WantedMachine, ips: &[IpAddr]) -> Instance {
        let internal = ips.iter().map(|ip| Address::new(AddressType::InternalIP, ip.to_string()));
        let mut addresses: Vec<Address> = internal.collect();
        addresses.extend(machine.addresses.iter().filter(|one| one.kind == AddressType::ExternalIP).cloned());
        addresses.extend(machine.addresses.iter().filter(|one| one.kind == AddressType::Hostname).cloned());
        Instance {
            provider_id: Some(ProviderId::of("openstack", &format!("/{id}"))),
            id,
            name: machine.name.clone(),
            instance_type: "m1.tiny".to_owned(),
            zone: "az-1".to_owned(),
            region: REGION.to_owned(),
            addresses,
            ..Instance::default()
        }
    }

    /// Returns a port for each address, so that each is in a subnet of its family. A used address is replaced by another, as in any
    /// cloud.
    fn ports(&self, machine: &WantedMachine) -> Vec<NewPort> {
        let internal = machine.addresses.iter().filter(|one| one.kind == AddressType::InternalIP);
        let mut ips: Vec<IpAddr> = internal.map(|one| self.free(one.address.parse().unwrap())).collect();
        if ips.is_empty() {
            ips.push(self.free([10, 0, 0, 1].into()));
        }
        let tail = format!("0000-0000-4000-8000-{:012x}", self.used.lock().unwrap().len());
        let port = |(number, ip): (usize, &IpAddr)| NewPort {
            // Neutron lists ports by ID.
            id: format!("{number:04}{tail}"),
            subnet: if ip.is_ipv4() { self.networks.v4.clone() } else { self.networks.v6.clone() },
            addresses: vec![*ip],
            ..NewPort::default()
        };
        ips.iter().enumerate().map(port).collect()
    }

    fn free(&self, wanted: IpAddr) -> IpAddr {
        let used = &mut *self.used.lock().unwrap();
        if used.insert(wanted) {
            return wanted;
        }
        let number = u16::try_from(used.len()).unwrap();
        let [high, low] = number.to_be_bytes();
        let other = match wanted {
            IpAddr::V4(_) => [10, 0, 128 + high, low].into(),
            IpAddr::V6(_) => [0xfd00, 0, 0, 0, 0, 0, 2, number].into(),
        };
        used.insert(other);
        other
    }
}

/// Creates a dual-stack network behind the cloud's router.
fn create_network(cloud: &Simulator) -> Networks {
    let network = cloud.add(Kind::Network, json!({"name": "nodes"}));
    let subnet = |version, cidr, gateway, start, end| {
        cloud.add(
            Kind::Subnet,
            json!({"network_id": network, "ip_version": version, "cidr": cidr, "gateway_ip": gateway,
                "allocation_pools": [{"start": start, "end": end}]}),
        )
    };
    let v4 = subnet(4, "10.0.0.0/16", "10.0.255.254", "10.0.1.0", "10.0.127.255");
    let v6 = subnet(6, "fd00::/64", "fd00::ffff:ffff", "fd00::1:0", "fd00::1:ffff");
    let router = cloud.fixture().router;
    for subnet in [&v4, &v6] {
        cloud.add_interface(&router, subnet);
    }
    Networks { v4, v6, router }
}

/// A provider with a minimal configuration, so that it has to detect subnets.
fn provider(
    setting: Setting,
    client: &Client,
    auth_url: &str,
    fixture: &Fixture,
    networks: &Networks,
) -> Arc<dyn CloudProvider> {
    let internal = setting == Setting::InternalOnly;
    let (id, secret) = (fixture.application_credential.clone(), fixture.application_secret.as_str().into());
    let global = Global {
        auth_url: auth_url.to_owned(),
        credential: Credential::ApplicationCredentialId { id, secret },
        scope: Scope::Implied,
        region: REGION.to_owned(),
        interface: "public".to_owned(),
        ..Global::default()
    };
    let floating_network_id = fixture.external_network.clone();
    let load_balancer = LoadBalancer {
        placement: Class { floating_network_id, ..Class::default() },
        enabled: internal || setting == Setting::Everything,
        internal,
        create_monitor: true,
        manage_security_groups: true,
        ..LoadBalancer::default()
    };
    let router_id = (setting != Setting::MachinesOnly).then(|| networks.router.clone());
    Arc::new(OpenStack::over(Config { global, load_balancer, router_id, ..Config::default() }, client.clone()))
}

#[async_trait]
impl Bench for SimulatedBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        provider(self.setting, &self.client, &self.auth_url, &self.fixture, &self.networks)
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.fixture.application_secret.clone()]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let ports = self.ports(machine);
        let ips: Vec<IpAddr> = ports.iter().flat_map(|port| port.addresses.clone()).collect();
        let text = |kind| machine.addresses.iter().find(|one| one.kind == kind).map(|one| one.address.clone());
        let hostname = text(AddressType::Hostname).map(|name| ("hostname".to_owned(), name));
        let access = (text(AddressType::ExternalIP).unwrap_or_default(), String::new());
        let metadata = hostname.into_iter().collect();
        let server = NewServer { name: machine.name.clone(), ports, metadata, access, ..NewServer::default() };
        SimulatedBench::expected(self.cloud.add_server(server), machine, &ips)
    }

    async fn stop(&self, instance: &Instance) {
        self.cloud.stop_server(&instance.id);
    }

    async fn start(&self, instance: &Instance) {
        self.cloud.start_server(&instance.id);
    }

    async fn delete(&self, instance: &Instance) {
        self.cloud.delete_server(&instance.id);
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.cloud.rename_server(&instance.id, name);
        true
    }

    async fn unlist(&self, instance: &Instance) -> BenchResult {
        self.cloud.set_server_status(&instance.id, "SOFT_DELETED");
        BenchResult::Done
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.cloud.repair_all();
        let Some(fault) = fault else { return true };
        let answer = |status| FaultSpec::always(Fault::Answer(status, String::new()));
        let of_all = |fault: FaultSpec| {
            Service::ALL.into_iter().skip(1).for_each(|service| {
                self.cloud.inject(fault.clone().of(service));
            })
        };
        match fault {
            InducedFault::Unauthenticated => drop(self.cloud.inject(answer(401))),
            InducedFault::Forbidden => of_all(answer(403)),
            InducedFault::Throttled(after) => of_all(FaultSpec::always(Fault::Throttled(Some(after)))),
            InducedFault::Broken => of_all(answer(503)),
            InducedFault::Empty => of_all(FaultSpec::always(Fault::Empty)),
            InducedFault::Garbled => of_all(FaultSpec::always(Fault::Garbled)),
            InducedFault::NotFound(body) => of_all(FaultSpec::always(Fault::Answer(404, body.to_owned()))),
            InducedFault::Slow(delay) => of_all(FaultSpec::always(Fault::Slow(delay))),
        }
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        self.cloud.repair_all();
        if let Some(calls) = calls {
            self.cloud.crash_after(calls);
        }
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud.calls())
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        vec![ProviderId::of("openstack", &format!("{REGION}/{}", instance.id))]
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "/", "a/b/c", "/a/b"].map(|rest| ProviderId::of("openstack", rest)).into()
    }
}
