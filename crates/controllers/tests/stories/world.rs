//! Test fixture: API server, local clouds and manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_apiserver::{ApiServer, AuthorizationMode, Effect, FaultRule, Options as ServerOptions};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CallPolicy, Calls, CloudProvider, Clouds};
use bowline_console::Sources;
use bowline_controllers::Permissions;
use bowline_controllers::manager::{self, Dependencies, ManagerError, ManagerOptions};
use bowline_core::testing::address;
use bowline_kube::Permission;
use bowline_local::{CloudOptions, Config, LocalCloud, LocalProvider, NewMachine};
use bowline_runtime::{Clock, Shutdown, StatusBoard};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use prometheus::proto::{Metric, MetricType};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::identity;

pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Wraps a provider below its layers.
pub(crate) type Wrap = Box<dyn Fn(Arc<dyn CloudProvider>) -> Arc<dyn CloudProvider> + Send + Sync>;

/// Timeout of [`World::eventually`]; free on paused time.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Pause between the first two polls.
const POLL: Duration = Duration::from_millis(50);

/// An API server, one or more local clouds, and a manager that the story starts.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) nodes: Api<Node>,
    pub(crate) services: Api<Service>,
    pub(crate) clouds: Vec<(Config, LocalCloud)>,
    pub(crate) options: ManagerOptions,
    pub(crate) layers: LayerOptions,
    pub(crate) calls: CallPolicy,
    pub(crate) metrics: prometheus::Registry,
    pub(crate) board: StatusBoard,
    /// Sources of the console's document.
    pub(crate) sources: Sources,
    /// Wrapper of each provider below its layers; the identity by default.
    pub(crate) wrap: Wrap,
    /// RBAC permissions of the manager. Default: exactly those that its controllers declare.
    pub(crate) permissions: Option<Vec<Permission>>,
    manager: Option<(Shutdown, JoinHandle<Result<(), ManagerError>>)>,
}

impl World {
    /// One cloud, whose IDs start with `local://`.
    pub(crate) async fn new() -> World {
        World::with_prefixes(&["local"]).await
    }

    /// One cloud for each prefix, in this order.
    pub(crate) async fn with_prefixes(prefixes: &[&str]) -> World {
        let options = ServerOptions { authorization: AuthorizationMode::Rbac, ..ServerOptions::default() };
        let server = ApiServer::start(options).await.unwrap();
        let nodes = Api::all(server.in_process_client());
        let services = Api::namespaced(server.in_process_client(), "default");
        let clouds = prefixes
            .iter()
            .map(|prefix| {
                let config = Config { id_prefix: (*prefix).to_owned(), ..Config::default() };
                (config, LocalCloud::open(CloudOptions::default()).unwrap())
            })
            .collect();
        World {
            server,
            nodes,
            services,
            clouds,
            options: ManagerOptions::default(),
            layers: LayerOptions::default(),
            calls: CallPolicy::default(),
            metrics: prometheus::Registry::new(),
            board: StatusBoard::new(),
            sources: Sources::new(),
            wrap: Box::new(|provider| provider),
            permissions: None,
            manager: None,
        }
    }

    /// The first cloud.
    pub(crate) fn cloud(&self) -> &LocalCloud {
        &self.clouds[0].1
    }

    // ---- the manager

    pub(crate) fn start(&mut self) {
        let clouds = self.layered_clouds(&self.metrics);
        let shutdown = Shutdown::new();
        let dependencies = Dependencies::new(
            identity::client(&self.server),
            clouds,
            Clock::from_tokio(Timestamp::now()),
            self.metrics.clone(),
        );
        let dependencies = Dependencies { board: self.board.clone(), sources: self.sources.clone(), ..dependencies };
        let permissions = self.permissions.clone().unwrap_or_else(|| Permissions::of(&self.options).of_one());
        let granted = identity::grant(self.server.in_process_client(), permissions);
        let running = manager::run(dependencies, self.options.clone(), shutdown.clone());
        let running = tokio::spawn(async move {
            granted.await;
            running.await
        });
        self.manager = Some((shutdown, running));
    }

    /// The clouds with the layers that the manager and the plan use.
    pub(crate) fn layered_clouds(&self, metrics: &prometheus::Registry) -> Clouds {
        let providers = self.clouds.iter().map(|(config, cloud)| {
            let calls = Calls::new(self.calls.clone());
            let provider = LocalProvider::in_process_past(cloud.clone(), config, &calls);
            (self.wrap)(Arc::new(provider))
        });
        Clouds::with_layers(providers, &self.layers, metrics)
    }

    /// Stops the manager, which must end without an error.
    pub(crate) async fn stop(&mut self) {
        if let Some((shutdown, running)) = self.manager.take() {
            shutdown.request();
            running.await.unwrap().unwrap();
        }
        self.metrics = prometheus::Registry::new();
    }

    /// Waits until the manager ends by itself, and returns its result.
    pub(crate) async fn end(&mut self) -> Result<(), ManagerError> {
        match self.manager.take() {
            Some((_, running)) => running.await.unwrap(),
            None => panic!("there is no manager"),
        }
    }

    /// Kills the manager without a shutdown, like a crash.
    pub(crate) async fn kill(&mut self) {
        if let Some((_, running)) = self.manager.take() {
            running.abort();
            let _ = running.await;
        }
        self.metrics = prometheus::Registry::new();
    }

    // ---- nodes

    /// Registers a Node as a kubelet does: not ready, with the init taint.
    pub(crate) async fn register(&self, name: &str) -> Node {
        self.register_with(name, json!({})).await
    }

    /// Registers a Node with `changes` merged into it.
    pub(crate) async fn register_with(&self, name: &str, changes: Value) -> Node {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
            "status": {"addresses": [{"type": "Hostname", "address": name}]},
        });
        merge(&mut node, &changes);
        let status = json!({"status": node["status"]});
        let node: Node = serde_json::from_value(node).unwrap();
        self.nodes.create(&PostParams::default(), &node).await.unwrap();
        // The API server drops the status of a created object; the kubelet writes it right after.
        self.nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap()
    }

    /// Registers a Node that is already initialised.
    pub(crate) async fn join(&self, name: &str, provider_id: &str, ready: &str) -> Node {
        let labels = json!({"node.kubernetes.io/instance-type": "small"});
        let node = json!({"metadata": {"labels": labels}, "spec": {"taints": null, "providerID": provider_id}});
        self.register_with(name, node).await;
        self.set_ready(name, ready).await
    }

    /// Sets the condition Ready, as the kubelet or the node monitor does.
    pub(crate) async fn set_ready(&self, name: &str, status: &str) -> Node {
        let condition = json!({"type": "Ready", "status": status, "reason": "Story", "message": "set by the test"});
        let patch = json!({"status": {"conditions": [condition]}});
        self.nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Node {
        self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Node> {
        self.nodes.get_opt(name).await.unwrap()
    }

    pub(crate) async fn node(&self, name: &str) -> Node {
        self.get(name).await.unwrap_or_else(|| panic!("there is no node {name}"))
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.nodes.delete(name, &DeleteParams::default()).await.unwrap();
    }

    // ---- waiting

    /// Polls `check` until it returns a value. The poll interval grows, because paused time is free and every poll is not.
    pub(crate) async fn eventually<T>(&self, what: &str, check: impl AsyncFn() -> Option<T>) -> T {
        let begin = tokio::time::Instant::now();
        while begin.elapsed() < TIMEOUT {
            if let Some(answer) = check().await {
                return answer;
            }
            tokio::time::sleep(POLL.max(begin.elapsed() / 50)).await;
        }
        panic!("{what}: not within {TIMEOUT:?}; events: {:#?}", self.events().await)
    }

    /// Waits until the Node has lost its init taint and its Event is out.
    pub(crate) async fn wait_until_initialized(&self, name: &str) -> Node {
        self.eventually(&format!("{name} is initialised"), async || {
            // Reading one Node is cheaper than reading all Events, so most polls end here.
            self.get(name).await.filter(|node| !has_taint(node, UNINITIALIZED))?;
            self.event(name, "Synced").await?;
            // The addresses are written after the taint and before the Event.
            self.get(name).await
        })
        .await
    }

    /// Waits until the Node is deleted.
    pub(crate) async fn wait_until_deleted(&self, name: &str) {
        self.eventually(&format!("{name} is gone"), async || self.get(name).await.is_none().then_some(())).await;
    }

    /// Lets time pass.
    pub(crate) async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    // ---- Events, requests and metrics

    pub(crate) async fn events(&self) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.server.in_process_client());
        events.list(&ListParams::default()).await.unwrap().items
    }

    /// The Event about this Node with this reason.
    pub(crate) async fn event(&self, name: &str, reason: &str) -> Option<Event> {
        let about = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        };
        self.events().await.into_iter().find(about)
    }

    /// Successful writes about Nodes, by verb and subresource.
    pub(crate) fn node_writes(&self) -> BTreeMap<String, u64> {
        let mut writes = BTreeMap::new();
        for (kind, count) in self.server.requests() {
            let writes_something = matches!(kind.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
            if kind.resource == "nodes" && writes_something && kind.code < 300 {
                let what = format!("{} {}", kind.verb, kind.subresource);
                *writes.entry(what.trim_end().to_owned()).or_default() += count;
            }
        }
        writes
    }

    /// Number of requests of this kind that the API server answered with this code.
    pub(crate) fn response_count(&self, verb: &str, resource: &str, code: u16) -> u64 {
        let matching = |(kind, _): &(&bowline_apiserver::RequestKind, &u64)| {
            kind.verb == verb && kind.resource == resource && kind.code == code
        };
        self.server.requests().iter().filter(matching).map(|(_, count)| count).sum()
    }

    /// Values of a metric of the manager, by label values; the sample count of a histogram. Empty if there is no such metric.
    pub(crate) fn metric(&self, name: &str) -> BTreeMap<String, f64> {
        let families = self.metrics.gather();
        let Some(family) = families.iter().find(|family| family.name() == name) else { return BTreeMap::new() };
        let read = |sample| (labels(sample), value(family.get_field_type(), sample));
        family.get_metric().iter().map(read).collect()
    }

    /// Number of calls to the first cloud.
    pub(crate) fn cloud_calls(&self) -> u64 {
        self.cloud().calls().values().sum()
    }

    /// Makes requests of this kind fail, at most `times` times.
    pub(crate) fn fail(&self, verb: &str, resource: &str, code: u16, times: Option<u64>) {
        self.server.faults().add(FaultRule {
            verb: Some(verb.to_owned()),
            resource: Some(resource.to_owned()),
            effect: Effect::Status {
                code: StatusCode::from_u16(code).unwrap(),
                message: "injected fault".to_owned(),
                retry_after: None,
            },
            times,
            ..FaultRule::default()
        });
    }
}

// ---- reading objects

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    taints(node).iter().any(|(found, _)| found == key)
}

/// Keys and effects, in order, without the taint that the API server adds to every new Node.
pub(crate) fn taints(node: &Node) -> Vec<(String, String)> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let taints = taints.into_iter().filter(|taint| taint.key != "node.kubernetes.io/not-ready");
    taints.map(|taint| (taint.key, taint.effect)).collect()
}

pub(crate) fn label(node: &Node, key: &str) -> Option<String> {
    node.metadata.labels.as_ref()?.get(key).cloned()
}

pub(crate) fn provider_id(node: &Node) -> Option<String> {
    node.spec.as_ref()?.provider_id.clone()
}

/// `Type address`, in order.
pub(crate) fn addresses(node: &Node) -> Vec<String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone()).unwrap_or_default();
    addresses.into_iter().map(|address| format!("{} {}", address.type_, address.address)).collect()
}

pub(crate) fn version(node: &Node) -> String {
    node.metadata.resource_version.clone().unwrap_or_default()
}

// ---- reading metrics

fn labels(sample: &Metric) -> String {
    sample.get_label().iter().map(|label| label.value()).collect::<Vec<_>>().join(" ")
}

fn value(kind: MetricType, sample: &Metric) -> f64 {
    match kind {
        MetricType::COUNTER => sample.get_counter().get_value(),
        MetricType::HISTOGRAM => sample.get_histogram().get_sample_count() as f64,
        _ => sample.get_gauge().get_value(),
    }
}

// ---- machines

/// Machine with this name and ID, and these addresses: `I10.0.0.1`, `E8.8.8.8`, `Hname`.
pub(crate) fn machine(name: &str, id: &str, addresses: &[&str]) -> NewMachine {
    NewMachine {
        name: name.to_owned(),
        id: id.to_owned(),
        addresses: addresses.iter().map(|text| address(text)).collect(),
        ..NewMachine::default()
    }
}

/// JSON merge patch: objects are merged, other values replaced, null removes.
pub(crate) fn merge(target: &mut Value, changes: &Value) {
    match (target, changes) {
        (Value::Object(target), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key.clone()).or_insert(Value::Null), change);
                }
            }
        }
        (target, changes) => *target = changes.clone(),
    }
}
