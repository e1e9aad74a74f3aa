//! API server and cloud, with Nodes and Services in them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options};
use bowline_core::{Address, AddressType};
use bowline_local::{CloudOptions, LocalCloud, NewMachine, Server};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::process::Folder;
use super::{Failure, POLL};

/// Duration of a cloud call.
pub(crate) const LATENCY: Duration = Duration::from_millis(20);

/// The manager has settled after this time without cloud calls.
const QUIET: Duration = Duration::from_secs(4);

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Maximum number of concurrent requests of the benchmark.
const MAX_CONCURRENT: usize = 32;

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

pub(crate) struct World {
    server: ApiServer,
    cloud: LocalCloud,
    folder: Folder,
    endpoint: Server,
}

impl World {
    /// Starts with initialised Nodes and their machines.
    pub(crate) async fn with_nodes(count: usize) -> Result<World, Failure> {
        let server = ApiServer::start(Options::default()).await?;
        let cloud = LocalCloud::open(CloudOptions { latency: LATENCY, ..CloudOptions::default() })?;
        let endpoint = bowline_local::serve(cloud.clone(), "127.0.0.1:0".parse()?).await?;
        let world = World { server, cloud, folder: Folder::new("scale")?, endpoint };
        world.register(0..count, false).await?;
        Ok(world)
    }

    /// Creates machines with uninitialised or initialised Nodes.
    pub(crate) async fn register(&self, numbers: Range<usize>, tainted: bool) -> Result<(), Failure> {
        let registrations = stream::iter(numbers).map(|number| self.register_one(number, tainted));
        registrations.buffer_unordered(MAX_CONCURRENT).try_collect().await
    }

    async fn register_one(&self, number: usize, tainted: bool) -> Result<(), Failure> {
        let (name, id) = (node_name(number), format!("i-{number:05}"));
        let address = format!("10.{}.{}.{}", number / 60_000, number / 240 % 250, number % 240 + 1);
        let addresses = vec![Address::new(AddressType::InternalIP, &address)];
        self.cloud.add(NewMachine { name: name.clone(), id: id.clone(), addresses, ..NewMachine::default() })?;
        let taints = json!([{"key": UNINITIALIZED, "effect": "NoSchedule"}]);
        let spec = if tainted { json!({"taints": taints}) } else { json!({"providerID": format!("local://{id}")}) };
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
        let nodes = self.nodes();
        nodes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}],
        }});
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    pub(crate) async fn create_services(&self, count: usize) -> Result<(), Failure> {
        let create = async |number: usize| {
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("web-{number:04}")},
                "spec": {"type": "LoadBalancer", "selector": {"app": "x"}, "ports": [{"port": 80}]},
            });
            self.services().create(&PostParams::default(), &serde_json::from_value(service)?).await?;
            Ok::<(), Failure>(())
        };
        stream::iter(0..count).map(create).buffer_unordered(MAX_CONCURRENT).try_collect().await
    }

    pub(crate) async fn all_addressed(&self, count: usize) -> Result<(), Failure> {
        let has_address = |service: &Service| {
            let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
            status.and_then(|status| status.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
        };
        until("all Services have addresses", async || {
            // Most Services have an address once the cloud has a load balancer for each; listing earlier would take CPU time from
            // the manager.
            let made = self.calls().get("create-balancer").copied().unwrap_or_default();
            if made < count as u64 {
                return Ok(false);
            }
            let all = self.services().list(&ListParams::default()).await?.items;
            Ok(all.iter().filter(|service| has_address(service)).count() == count)
        })
        .await
    }

    /// Waits until the last of these Nodes has no taint.
    pub(crate) async fn initialised(&self, numbers: Range<usize>) -> Result<Instant, Failure> {
        for number in numbers {
            let is_initialised = async || {
                let node = self.nodes().get_opt(&node_name(number)).await?;
                let taints = node.and_then(|node| node.spec).map(|spec| spec.taints.unwrap_or_default());
                Ok(taints.is_some_and(|taints| taints.iter().all(|taint| taint.key != UNINITIALIZED)))
            };
            until("the Nodes are initialised", is_initialised).await?;
        }
        Ok(Instant::now())
    }

    /// Waits until the cloud has received this number of target updates.
    pub(crate) async fn updated(&self, count: u64) -> Result<Instant, Failure> {
        let is_updated = async || Ok(self.calls().get("update-targets").is_some_and(|updates| *updates >= count));
        until("all load balancers are updated", is_updated).await?;
        Ok(Instant::now())
    }

    pub(crate) fn check_targets(&self, wanted: usize) -> Result<(), Failure> {
        let wrong = self.cloud.balancers().iter().filter(|balancer| balancer.targets.len() != wanted).count();
        if wrong == 0 { Ok(()) } else { Err(format!("{wrong} load balancers do not have all targets").into()) }
    }

    /// Waits until the manager makes no more cloud calls.
    pub(crate) async fn settle(&self) {
        let (mut last, mut since) = (self.bytes(), Instant::now());
        while since.elapsed() < QUIET {
            tokio::time::sleep(POLL).await;
            let bytes = self.bytes();
            if bytes != last {
                (last, since) = (bytes, Instant::now());
            }
        }
    }

    /// Resets the call counters.
    pub(crate) fn reset(&self) {
        self.cloud.reset_calls();
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        self.cloud.calls()
    }

    pub(crate) fn writes(&self) -> u64 {
        self.cloud.writes()
    }

    /// Bytes of requests to the cloud, and of its responses.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        self.cloud.bytes()
    }

    pub(crate) async fn warning_events(&self) -> Result<usize, Failure> {
        let events: Api<Event> = Api::all(self.server.in_process_client());
        let warnings = events.list(&ListParams::default().fields("type=Warning")).await?.items;
        Ok(warnings.len())
    }

    /// Path of a file of this name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    pub(crate) fn kubeconfig(&self) -> Result<PathBuf, Failure> {
        self.file("kubeconfig", &self.server.kubeconfig())
    }

    pub(crate) fn cloud_config(&self) -> Result<PathBuf, Failure> {
        self.file("local.yaml", &format!("endpoint: http://{}\n", self.endpoint.address()))
    }

    fn file(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.server.in_process_client())
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.server.in_process_client(), "default")
    }
}

fn node_name(number: usize) -> String {
    format!("node-{number:05}.cluster.example.com")
}

async fn until(what: &str, mut check: impl AsyncFnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begin = Instant::now();
    while !check().await? {
        if begin.elapsed() > TIMEOUT {
            return Err(format!("{what}: timed out after {TIMEOUT:?}").into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
