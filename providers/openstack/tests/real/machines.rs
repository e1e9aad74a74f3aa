//! Bench for machines: servers of the real Nova, on ports of the real Neutron.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::BuildInputs;
use bowline_cloud::{
    Capabilities, CheckResult, CloudProvider, Instances, LoadBalancers, ProviderInfo, Quota, Result, Routes,
};
use bowline_config::ConfigFile;
use bowline_conformance::{Bench, BenchResult, InducedFault, LoadBalancerBench, RouteBench, WantedMachine};
use bowline_core::{Address, AddressType, ClusterName, Instance, ProviderId};
use bowline_openstack::{Config, OpenStack};
use http::Method;
use serde_json::{Value, json};

use super::cloud::Service::{Compute, Network};
use super::cloud::{list, text, until};
use super::project::Project;
use super::wire::Wire;

/// Timeout, longer than any request on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A project of the real cloud, and its provider.
pub(crate) struct RealBench {
    pub(crate) project: Arc<Project>,
    pub(crate) wire: Arc<Wire>,
    provider: Arc<SmallLimits>,
    kinds: usize,
}

/// The provider with smaller limits: a case creates as many machines as a page has, and real ones are slow.
struct SmallLimits {
    provider: OpenStack,
    capabilities: Capabilities,
}

impl RealBench {
    /// Uses this many kinds of load balancers: a case runs once for each, and real ones are slow.
    pub(crate) fn new(project: Arc<Project>, kinds: usize) -> RealBench {
        let wire = Wire::new(TIMEOUT);
        let provider = provider(&project, &wire, kinds);
        RealBench { project, wire, provider, kinds }
    }

    /// Returns the address to request, if it is free.
    async fn fixed_ip(&self, address: &Address) -> Option<Value> {
        let internal = address.kind == AddressType::InternalIP;
        let family = usize::from(address.address.contains(':'));
        let subnet = self.project.subnets.get(family).filter(|_| internal)?;
        let used = self.project.cloud.list(Network, &format!("/ports?fixed_ips=ip_address={}", address.address)).await;
        Some(match used.is_empty() {
            true => json!({"subnet_id": subnet, "ip_address": address.address}),
            false => json!({"subnet_id": subnet}),
        })
    }

    /// Creates a port with the requested addresses, or with one that Neutron chooses.
    async fn port(&self, machine: &WantedMachine) -> Value {
        let mut fixed_ips = Vec::new();
        for address in &machine.addresses {
            fixed_ips.extend(self.fixed_ip(address).await);
        }
        if fixed_ips.is_empty() {
            fixed_ips.push(json!({"subnet_id": self.project.subnets[0]}));
        }
        let port = json!({"port": {"network_id": self.project.network, "fixed_ips": fixed_ips}});
        self.project.cloud.post(Network, "/ports", port).await["port"].clone()
    }

    async fn server(&self, machine: &WantedMachine, port: &Value) -> Value {
        let cloud = &self.project.cloud;
        let hostname = machine.addresses.iter().find(|address| address.kind == AddressType::Hostname);
        let metadata = hostname.map_or(json!({}), |hostname| json!({"hostname": hostname.address}));
        let server = json!({"server": {"name": machine.name, "imageRef": cloud.id("image"), "flavorRef": cloud.id("flavor"),
            "networks": [{"port": port["id"]}], "availability_zone": "az-1", "metadata": metadata}});
        let id = text(&cloud.post(Compute, "/servers", server).await["server"]["id"]);
        self.wait_for_status(&id, "ACTIVE").await
    }

    /// Waits until the server has this status and no task.
    async fn wait_for_status(&self, id: &str, status: &str) -> Value {
        until(&format!("server {id} to be {status}"), || async {
            let server = self.project.cloud.get(Compute, &format!("/servers/{id}")).await["server"].clone();
            assert!(status == "ERROR" || server["status"] != "ERROR", "{server}");
            let is_idle = server["OS-EXT-STS:task_state"].is_null() && server["status"] == status;
            (is_idle && !list(&server["addresses"]["nodes"]).is_empty()).then_some(server)
        })
        .await
    }

    async fn act(&self, instance: &Instance, action: &str, status: &str) {
        let path = format!("/servers/{}/action", instance.id);
        let body = json!({action: null});
        let answer = self.project.cloud.try_call(Method::POST, Compute, &path, Some(&body)).await;
        // It may have that status already.
        assert!(matches!(answer.status, 202 | 409), "{action}: {} {}", answer.status, answer.body);
        self.wait_for_status(&instance.id, status).await;
    }
}

/// Returns a minimal configuration, so that the provider has to detect the subnets.
fn config(project: &Project) -> Config {
    let outside = project.cloud.id("external_network");
    let balancing = format!("floating-network-id = {outside}\ncreate-monitor = true\nmanage-security-groups = true\n");
    let text = format!("{}[LoadBalancer]\n{balancing}[Route]\nrouter-id = {}\n", project.credentials(), project.router);
    let file = ConfigFile::from_text("cloud.conf", text);
    Config::read(&BuildInputs::default().context(Some(&file), &ClusterName::from("conformance"))).unwrap()
}

fn provider(project: &Project, wire: &Arc<Wire>, kinds: usize) -> Arc<SmallLimits> {
    let provider = OpenStack::over(config(project), wire.client(TIMEOUT));
    let mut capabilities = provider.capabilities().clone();
    if let Some(instances) = &mut capabilities.instances {
        // More than the calls of a batch.
        instances.batch_lookup = 8;
        instances.list_page = Some(2);
        instances.max_parallel = 3;
    }
    if let Some(balancers) = &mut capabilities.load_balancers {
        balancers.batch_observe = 3;
        balancers.kinds.truncate(kinds);
    }
    Arc::new(SmallLimits { provider, capabilities })
}

/// Returns the expected description of a server with this port.
fn expected(server: &Value, port: &Value) -> Instance {
    let fixed =
        list(&port["fixed_ips"]).iter().map(|ip| Address::new(AddressType::InternalIP, text(&ip["ip_address"])));
    let hostname = server["metadata"]["hostname"].as_str();
    let id = text(&server["id"]);
    Instance {
        provider_id: Some(ProviderId::of("openstack", &format!("/{id}"))),
        id,
        name: text(&server["name"]),
        instance_type: "m1.tiny".to_owned(),
        zone: "az-1".to_owned(),
        region: "RegionOne".to_owned(),
        addresses: fixed.chain(hostname.map(|name| Address::new(AddressType::Hostname, name))).collect(),
        ..Instance::default()
    }
}

#[async_trait]
impl Bench for RealBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider.clone()
    }

    async fn restarted(&self) -> Arc<dyn CloudProvider> {
        provider(&self.project, &self.wire, self.kinds)
    }

    fn timeout(&self) -> Duration {
        // Each change takes Octavia seconds, and minutes on a busy machine; some cases restart after every single call.
        Duration::from_secs(3600)
    }

    fn secrets(&self) -> Vec<String> {
        vec![self.project.cloud.password()]
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancerBench> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn RouteBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let port = self.port(machine).await;
        expected(&self.server(machine, &port).await, &port)
    }

    async fn stop(&self, instance: &Instance) {
        self.act(instance, "os-stop", "SHUTOFF").await;
    }

    async fn start(&self, instance: &Instance) {
        self.act(instance, "os-start", "ACTIVE").await;
    }

    async fn delete(&self, instance: &Instance) {
        let (cloud, path) = (&self.project.cloud, format!("/servers/{}", instance.id));
        let ports = cloud.list(Network, &format!("/ports?device_id={}", instance.id)).await;
        cloud.delete(Compute, &path).await;
        until("the deletion of a server", || async {
            (cloud.try_call(Method::GET, Compute, &path, None).await.status == 404).then_some(())
        })
        .await;
        // A port that was passed to Nova outlives its server.
        for port in ports {
            cloud.delete(Network, &format!("/ports/{}", text(&port["id"]))).await;
        }
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        let path = format!("/servers/{}", instance.id);
        self.project.cloud.put(Compute, &path, json!({"server": {"name": name}})).await;
        true
    }

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.wire.set_fault(fault);
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        self.wire.crash_after(calls);
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.wire.calls())
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        vec![ProviderId::of("openstack", &format!("RegionOne/{}", instance.id))]
    }

    fn malformed_ids(&self) -> Vec<ProviderId> {
        ["", "/", "a/b/c", "/a/b"].map(|rest| ProviderId::of("openstack", rest)).into()
    }
}

#[async_trait]
impl CloudProvider for SmallLimits {
    fn info(&self) -> &ProviderInfo {
        self.provider.info()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn owns(&self, id: &ProviderId) -> bool {
        self.provider.owns(id)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.provider.instances()
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.provider.load_balancers()
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.provider.routes()
    }

    async fn start(&self) -> Result<bowline_cloud::Facts> {
        self.provider.start().await
    }

    async fn check(&self) -> Result<()> {
        self.provider.check().await
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.provider.diagnose().await
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        self.provider.quotas().await
    }
}
