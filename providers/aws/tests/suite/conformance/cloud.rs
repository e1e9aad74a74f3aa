//! A simulated account, and a bench for its instances.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_aws::{Aws, Config};
use bowline_aws_simulator::{
    ACCESS_KEY, Fault, FaultSpec, Fields as _, NewInstance, NewInterface, Options, REGION, SECRET_KEY, Server,
    Simulator, ec2_fault,
};
use bowline_cloud::{BuildInputs, CloudProvider};
use bowline_config::{ConfigFile, Environment};
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, RouteBench, WantedMachine};
use bowline_core::{Address, AddressType, ClusterName, Instance, ProviderId};
use bowline_http::{Client, Options as HttpOptions, Proxies, Tls};

/// Timeout, longer than any call here.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Cluster of the suite.
const CLUSTER: &str = "conformance";

/// Items on one page of a list of the load balancer APIs, few enough that the suite can fill several.
pub(super) const PAGE: usize = 5;

/// Line of `[Global]` for own security groups of Network Load Balancers.
pub(super) const MANAGED: &str = "NLBSecurityGroupMode = Managed\n";

const ZONE: &str = "us-east-1a";

/// A provider on a simulated account.
pub(super) struct SimulatedBench {
    pub(super) cloud: Simulator,
    client: Client,
    /// URL of the APIs, and further lines of `[Global]`.
    url: (String, &'static str),
    provider: Arc<dyn CloudProvider>,
    /// Provider of another cluster in the same account.
    other: Arc<dyn CloudProvider>,
    /// Number of instances so far.
    instances: AtomicU32,
    /// Whether lists show new resources only after [`settle`](LoadBalancerBench::settle).
    pub(super) is_stale: Mutex<bool>,
    _server: Option<Server>,
}

impl SimulatedBench {
    /// Whether Network Load Balancers have security groups of their own.
    pub(super) fn is_managed(&self) -> bool {
        self.url.1 == MANAGED
    }

    /// Without a socket.
    pub(super) async fn in_process() -> SimulatedBench {
        let cloud = Simulator::new(options());
        let client = cloud.client(TIMEOUT);
        SimulatedBench::new(cloud, client, "http://aws.test".to_owned(), "", None).await
    }

    /// Over loopback, with a security group for each Network Load Balancer.
    pub(super) async fn over_http() -> SimulatedBench {
        let cloud = Simulator::new(options());
        let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let options = HttpOptions { tls: Tls::default(), proxies: Proxies::default(), timeout: TIMEOUT };
        let url = server.url();
        SimulatedBench::new(cloud, Client::new(options).unwrap(), url, MANAGED, Some(server)).await
    }

    async fn new(
        cloud: Simulator,
        client: Client,
        url: String,
        lines: &'static str,
        server: Option<Server>,
    ) -> SimulatedBench {
        let url = (url, lines);
        let other = provider(&cloud, &client, &url, "other-cluster").await;
        let provider = provider(&cloud, &client, &url, CLUSTER).await;
        cloud.forget_calls();
        SimulatedBench {
            cloud,
            client,
            url,
            provider,
            other,
            is_stale: Mutex::default(),
            instances: AtomicU32::default(),
            _server: server,
        }
    }
}

fn options() -> Options {
    let options = Options { cluster: CLUSTER.to_owned(), control_plane: false, elb_page: PAGE, ..Options::default() };
    let limits = options.limits.clone();
    let limits = bowline_aws_simulator::Limits {
        classic_load_balancers: 1000,
        load_balancers: 1000,
        listeners: 200,
        rules: 1000,
        ..limits
    };
    Options { limits, ..options }
}

/// Configuration outside AWS: the VPC, and the ID of the cluster.
fn file(cloud: &Simulator, (url, lines): &(String, &str), cluster: &str) -> String {
    let fixture = cloud.fixture();
    let global = format!(
        "[Global]\nZone = {ZONE}\nVPC = {}\nSubnetID = {}\nKubernetesClusterID = {cluster}\nRouteTableID = {}\n{lines}",
        fixture.vpc, fixture.public_subnets[0], fixture.node_table
    );
    let overrides = ["ec2", "elasticloadbalancing"].map(|service| {
        format!(
            "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = {REGION}\nURL = {url}\nSigningRegion = {REGION}\n"
        )
    });
    global + &overrides.concat()
}

/// Builds and starts the provider of a cluster.
async fn provider(cloud: &Simulator, client: &Client, url: &(String, &str), cluster: &str) -> Arc<dyn CloudProvider> {
    let variables = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];
    let inputs = BuildInputs { environment: Environment::from_iter(variables), ..BuildInputs::default() };
    let (file, cluster): (_, ClusterName) =
        (ConfigFile::from_text("aws.conf", file(cloud, url, cluster)), cluster.into());
    let config = Config::read(&inputs.context(Some(&file), &cluster)).unwrap();
    let provider = Aws::over(config, client.clone(), &cluster).unwrap();
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
        provider(&self.cloud, &self.client, &self.url, CLUSTER).await
    }

    fn of_cluster(&self, cluster: &ClusterName) -> Arc<dyn CloudProvider> {
        if cluster.as_str() == CLUSTER { self.provider.clone() } else { self.other.clone() }
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET_KEY.to_owned()]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let of_kind = |kind| machine.addresses.iter().filter(move |one| one.kind == kind);
        let internal: Vec<IpAddr> =
            of_kind(AddressType::InternalIP).filter_map(|one| one.address.parse().ok()).collect();
        let mut ipv4: Vec<_> =
            internal.iter().filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None }).collect();
        let [_, _, high, low] = self.instances.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        if ipv4.is_empty() {
            ipv4.push([10, 20, high + 200, low].into());
        }
        let public = of_kind(AddressType::ExternalIP).find_map(|one| match one.address.parse() {
            Ok(IpAddr::V4(ip)) => Some(ip),
            _ => None,
        });
        let new = NewInstance {
            private_dns_name: machine.name.clone(),
            interfaces: vec![NewInterface { ipv4: ipv4.clone(), ipv6: Vec::new() }],
            public,
            ..NewInstance::named(&machine.name)
        };
        let id = self.cloud.add_instance(new.tagged(&format!("kubernetes.io/cluster/{CLUSTER}"), "owned"));
        let public_name = public.map(|ip| format!("ec2-{}.compute-1.amazonaws.com", ip.to_string().replace('.', "-")));
        let mut addresses: Vec<_> =
            ipv4.iter().map(|ip| Address::new(AddressType::InternalIP, ip.to_string())).collect();
        addresses.extend(public.map(|ip| Address::new(AddressType::ExternalIP, ip.to_string())));
        addresses.push(Address::new(AddressType::InternalDNS, machine.name.clone()));
        addresses.push(Address::new(AddressType::Hostname, machine.name.clone()));
        addresses.extend(public_name.map(|name| Address::new(AddressType::ExternalDNS, name)));
        Instance {
            provider_id: Some(provider_id(&id)),
            name: machine.name.clone(),
            instance_type: "t3.medium".to_owned(),
            zone: ZONE.to_owned(),
            region: REGION.to_owned(),
            addresses,
            labels: [("topology.k8s.aws/zone-id".to_owned(), "use1-az1".to_owned())].into(),
            id,
            ..Instance::default()
        }
    }

    async fn stop(&self, instance: &Instance) {
        self.cloud.set_state(&instance.id, "stopped");
    }

    async fn start(&self, instance: &Instance) {
        self.cloud.set_state(&instance.id, "running");
    }

    /// AWS shows a terminated instance for an hour.
    async fn delete(&self, instance: &Instance) {
        self.cloud.terminate(&instance.id);
        self.cloud.remove("instance", &instance.id);
    }

    /// The private DNS name of a stopped instance can be changed.
    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.cloud.edit("instance", &instance.id, |record| record.set("privateDnsName", name))
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.cloud.repair_all();
        let fault = match fault {
            None => return true,
            Some(InducedFault::Unauthenticated) => {
                ec2_fault(401, "AuthFailure", "AWS was not able to validate the provided access credentials")
            }
            Some(InducedFault::Forbidden) => {
                ec2_fault(403, "UnauthorizedOperation", "You are not authorized to perform this operation.")
            }
            Some(InducedFault::Throttled(wait)) => Fault::Throttled(Some(wait)),
            Some(InducedFault::Broken) => ec2_fault(503, "Unavailable", "The service is unavailable."),
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
        let id = &instance.id;
        [format!("aws:////{id}"), format!("aws://account/{ZONE}/{id}"), format!("aws:///{ZONE}/{id}/"), id.clone()]
            .iter()
            .map(|text| ProviderId::new(text).unwrap())
            .collect()
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["aws:///", "aws:///us-east-1a/vol-1", "aws:///us-east-1a/i-1/extra", "aws:///a/i-%zz"]
            .map(|text| ProviderId::new(text).unwrap())
            .into()
    }
}

fn provider_id(id: &str) -> ProviderId {
    ProviderId::new(&format!("aws:///{ZONE}/{id}")).unwrap()
}
