//! A simulated account, and a bench for its Droplets.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{BuildInputs, CloudProvider};
use bowline_config::Environment;
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, LoopBench, WantedMachine};
use bowline_core::{Address, AddressType, ClusterName, Instance, ProviderId};
use bowline_digitalocean::{Config, DigitalOcean};
use bowline_digitalocean_simulator::{
    Fault, FaultSpec, NewDroplet, Options, REGION, Server, Simulator, TOKEN, error_fault,
};
use bowline_http::{Client, Options as HttpOptions, Proxies, Tls};

/// Timeout, longer than any call here.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Cluster of the suite.
const CLUSTER: &str = "conformance";

/// Items on one page of a list, few enough that the suite can fill several.
pub(super) const PAGE: usize = 5;

/// Name of the managed firewall.
pub(super) const FIREWALL: &str = "k8s-public-access";

/// A provider on a simulated account.
pub(super) struct SimulatedBench {
    pub(super) cloud: Simulator,
    pub(super) default_type: &'static str,
    client: Client,
    url: String,
    provider: Arc<dyn CloudProvider>,
    /// Provider of another cluster in the same account.
    other: Arc<dyn CloudProvider>,
    /// Whether lists show new resources only after [`settle`](LoadBalancerBench::settle).
    pub(super) is_stale: Mutex<bool>,
    _server: Option<Server>,
}

impl SimulatedBench {
    /// Without a socket.
    pub(super) async fn in_process(default_type: &'static str) -> SimulatedBench {
        let cloud = Simulator::new(Options::default());
        let client = cloud.client(TIMEOUT);
        SimulatedBench::new(cloud, client, "http://do.test".to_owned(), default_type, None).await
    }

    /// Over loopback.
    pub(super) async fn over_http(default_type: &'static str) -> SimulatedBench {
        let cloud = Simulator::new(Options::default());
        let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let options = HttpOptions { tls: Tls::default(), proxies: Proxies::default(), timeout: TIMEOUT };
        let url = server.url();
        SimulatedBench::new(cloud, Client::new(options).unwrap(), url, default_type, Some(server)).await
    }

    async fn new(
        cloud: Simulator,
        client: Client,
        url: String,
        default_type: &'static str,
        server: Option<Server>,
    ) -> SimulatedBench {
        cloud.configure(|options| (options.hourly_limit, options.max_page) = (1_000_000, PAGE));
        let other = provider(&client, &url, default_type, "other-cluster").await;
        let provider = provider(&client, &url, default_type, CLUSTER).await;
        cloud.forget_calls();
        SimulatedBench {
            cloud,
            default_type,
            client,
            url,
            provider,
            other,
            is_stale: Mutex::default(),
            _server: server,
        }
    }
}

/// Builds and starts a provider whose cluster ID is the name of the cluster.
async fn provider(client: &Client, url: &str, default_type: &str, cluster: &str) -> Arc<dyn CloudProvider> {
    let variables = [
        ("DO_ACCESS_TOKEN", TOKEN),
        ("DO_OVERRIDE_URL", url),
        ("DO_CLUSTER_ID", cluster),
        ("REGION", REGION),
        ("DEFAULT_LB_TYPE", default_type),
        ("PUBLIC_ACCESS_FIREWALL_NAME", FIREWALL),
        ("PUBLIC_ACCESS_FIREWALL_TAGS", "k8s:worker"),
    ];
    let inputs = BuildInputs { environment: Environment::from_iter(variables), ..BuildInputs::default() };
    let cluster: ClusterName = cluster.into();
    let config = Config::read(&inputs.context(None, &cluster)).unwrap();
    let provider = DigitalOcean::over(config, client.clone(), &cluster).unwrap();
    // A case may begin with a broken cloud, and then starts the provider itself.
    let _ = provider.start().await;
    Arc::new(provider)
}

#[async_trait]
impl Bench for SimulatedBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        provider(&self.client, &self.url, self.default_type, CLUSTER).await
    }

    fn of_cluster(&self, cluster: &ClusterName) -> Arc<dyn CloudProvider> {
        if cluster.as_str() == CLUSTER { self.provider.clone() } else { self.other.clone() }
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned()]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn loops(&self) -> Option<&dyn LoopBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let of_kind = |kind| machine.addresses.iter().filter(move |one| one.kind == kind);
        let private = of_kind(AddressType::InternalIP).filter_map(|one| one.address.parse().ok());
        let public = of_kind(AddressType::ExternalIP).filter_map(|one| one.address.parse::<IpAddr>().ok());
        let mut droplet =
            NewDroplet { private: private.collect(), public: public.collect(), ..NewDroplet::named(&machine.name) };
        let [_, _, high, low] = u32::try_from(self.cloud.records("droplets").len()).unwrap().to_be_bytes();
        if droplet.private.is_empty() {
            droplet.private.push([10, 108, high + 1, low].into());
        }
        if droplet.public.is_empty() {
            droplet.public.push([198, 18, high + 1, low].into());
        }
        let internal = Address::new(AddressType::InternalIP, droplet.private[0].to_string());
        // A Droplet has one public address of each family.
        let first = |is_v4: bool| droplet.public.iter().find(move |ip| ip.is_ipv4() == is_v4);
        let external = [first(true), first(false)].into_iter().flatten();
        let external: Vec<_> = external.map(|ip| Address::new(AddressType::ExternalIP, ip.to_string())).collect();
        let hostname = Address::new(AddressType::Hostname, machine.name.clone());
        let id = self.cloud.add_droplet(droplet).to_string();
        Instance {
            provider_id: Some(ProviderId::of("digitalocean", &id)),
            id,
            name: machine.name.clone(),
            instance_type: "s-2vcpu-4gb".to_owned(),
            region: REGION.to_owned(),
            addresses: [hostname, internal].into_iter().chain(external).collect(),
            ..Instance::default()
        }
    }

    async fn stop(&self, instance: &Instance) {
        self.cloud.set_droplet(instance.id.parse().unwrap(), "status", "off");
    }

    async fn start(&self, instance: &Instance) {
        self.cloud.set_droplet(instance.id.parse().unwrap(), "status", "active");
    }

    async fn delete(&self, instance: &Instance) {
        self.cloud.delete_droplet(instance.id.parse().unwrap());
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.cloud.set_droplet(instance.id.parse().unwrap(), "name", name);
        true
    }

    /// A Droplet with a GPU is not listed.
    async fn unlist(&self, instance: &Instance) -> BenchResult {
        self.cloud.set_droplet(instance.id.parse().unwrap(), "size_slug", "gpu-h100x1-80gb");
        BenchResult::Done
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.cloud.repair_all();
        let fault = match fault {
            None => return true,
            Some(InducedFault::Unauthenticated) => error_fault(401, "Unable to authenticate you."),
            Some(InducedFault::Forbidden) => error_fault(403, "You are not authorized to perform this operation"),
            Some(InducedFault::Throttled(wait)) => Fault::Throttled(Some(wait)),
            Some(InducedFault::Broken) => error_fault(503, "Service Unavailable"),
            Some(InducedFault::Garbled) => Fault::Garbled,
            Some(InducedFault::Empty) => Fault::Empty,
            Some(InducedFault::NotFound(body)) => Fault::Answer(404, body.to_owned()),
            Some(InducedFault::Slow(delay)) => Fault::Slow(delay),
        };
        self.cloud.inject(FaultSpec::always(fault));
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        match calls {
            Some(calls) => self.cloud.crash_after(calls),
            None => self.cloud.repair_all(),
        }
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.cloud.calls())
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        vec![
            ProviderId::of("digitalocean", &format!("+{}", instance.id)),
            ProviderId::of("digitalocean", &format!("0{}", instance.id)),
        ]
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "0", "-1", "x", "1x", "1/../2", "99999999999999999999"]
            .map(|rest| ProviderId::of("digitalocean", rest))
            .into()
    }
}
