//! A cluster without machines: an API server process, and the Nodes, Services and Events in it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::{Program, Server};

/// Timeout of every wait: retries take seconds, and the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Taint set by a kubelet with `--cloud-provider=external`.
pub(crate) const UNINITIALISED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) client: kube::Client,
}

impl Cluster {
    pub(crate) async fn start(test: &str) -> Cluster {
        Cluster::start_with(test, &[]).await
    }

    /// Starts an API server with these flags.
    pub(crate) async fn start_with(test: &str, flags: &[&str]) -> Cluster {
        let server = Server::start(test, flags);
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Cluster { server, client: kube::Client::try_from(config).unwrap() }
    }

    /// Polls until there is a result; on timeout, panics with log and Events.
    pub(crate) async fn eventually<F: Future<Output = Option<T>>, T>(
        &self,
        manager: &Program,
        what: &str,
        poll: impl Fn() -> F,
    ) -> T {
        let end = tokio::time::Instant::now() + TIMEOUT;
        loop {
            if let Some(result) = poll().await {
                return result;
            }
            if tokio::time::Instant::now() > end {
                panic!("timed out waiting for {what}\n{}\n{:#?}", manager.output(), self.all_warnings().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

// ---- Nodes

impl Cluster {
    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates a Node with its status.
    pub(crate) async fn create_node(&self, node: Value) {
        let created = serde_json::from_value(node.clone()).unwrap();
        let created = self.nodes().create(&PostParams::default(), &created).await.unwrap();
        let patch = Patch::Merge(json!({"status": node["status"]}));
        self.nodes().patch_status(&created.metadata.name.unwrap(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates an uninitialised Node, as its kubelet registers it.
    pub(crate) async fn register(&self, name: &str) {
        let taint = json!({"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"});
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        self.create_node(json!({"metadata": {"name": name}, "spec": {"taints": [taint]}, "status": status})).await;
    }

    /// Waits until the Node is initialised and has its addresses, which the manager writes last.
    pub(crate) async fn initialised(&self, manager: &Program, name: &str) -> Node {
        let has_addresses = |node: &Node| node.status.as_ref().is_some_and(|status| status.addresses.is_some());
        let initialised = || async {
            let node = self.nodes().get(name).await.unwrap();
            Some(node).filter(|node| !taints(node).contains(&UNINITIALISED.to_owned()) && has_addresses(node))
        };
        self.eventually(manager, &format!("{name} to be initialised"), initialised).await
    }

    /// Sets the Ready condition of a Node, as its kubelet or the node-lifecycle-controller of Kubernetes does.
    pub(crate) async fn set_ready(&self, name: &str, ready: &str) {
        let patch = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}));
        self.nodes().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the Node is deleted.
    pub(crate) async fn node_deleted(&self, manager: &Program, name: &str) {
        let deleted = || async { self.nodes().get_opt(name).await.unwrap().is_none().then_some(()) };
        self.eventually(manager, &format!("deletion of {name}"), deleted).await;
    }
}

/// Keys of the Node's taints.
pub(crate) fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.into_iter().map(|taint| taint.key).collect()
}

// ---- Services

/// A Service of type LoadBalancer with one port.
pub(crate) fn service(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]},
    })
}

/// First address in the status of a Service.
pub(crate) fn address(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.ip.clone()
}

impl Cluster {
    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create(&self, name: &str) -> Service {
        self.create_with(name, 80, &[]).await
    }

    /// Creates a Service with this port and these annotations.
    pub(crate) async fn create_with(&self, name: &str, port: u16, annotations: &[(&str, &str)]) -> Service {
        let mut service = service(name);
        service["spec"]["ports"][0]["port"] = json!(port);
        service["metadata"]["annotations"] =
            annotations.iter().copied().collect::<BTreeMap<_, _>>().into_iter().collect();
        let service = serde_json::from_value(service).unwrap();
        self.services().create(&PostParams::default(), &service).await.unwrap()
    }

    /// Applies a merge patch to a Service.
    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn set_annotation(&self, name: &str, key: &str, value: &str) {
        self.patch(name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub(crate) async fn get_annotation(&self, name: &str, key: &str) -> Option<String> {
        self.services().get(name).await.unwrap().metadata.annotations?.get(key).cloned()
    }

    /// Waits for the address in the status.
    pub(crate) async fn address(&self, manager: &Program, name: &str) -> String {
        let ask = || async { address(&self.services().get(name).await.unwrap()) };
        self.eventually(manager, &format!("an address of {name}"), ask).await
    }

    /// Deletes the Service and waits until it does not exist.
    pub(crate) async fn delete(&self, manager: &Program, name: &str) {
        self.services().delete(name, &DeleteParams::default()).await.unwrap();
        self.service_deleted(manager, name).await;
    }

    /// Waits until the Service does not exist.
    pub(crate) async fn service_deleted(&self, manager: &Program, name: &str) {
        let deleted = || async { self.services().get_opt(name).await.unwrap().is_none().then_some(()) };
        self.eventually(manager, &format!("deletion of {name}"), deleted).await;
    }

    /// Removes the finalizer and deletes the Service, so that its load balancer is orphaned.
    pub(crate) async fn abandon(&self, name: &str) {
        self.patch(name, json!({"metadata": {"finalizers": null}})).await;
        self.services().delete(name, &DeleteParams::default()).await.unwrap();
    }
}

// ---- Events

impl Cluster {
    /// Waits for a Warning Event of this object that contains all these words, and returns its message.
    pub(crate) async fn warned(&self, manager: &Program, name: &str, reason: &str, words: &[&str]) -> String {
        let ask = || async {
            let matches = |message: &&String| words.iter().all(|word| message.contains(word));
            let warnings = self.warnings(name).await;
            warnings.iter().filter(|(known, _)| known == reason).map(|(_, message)| message).find(matches).cloned()
        };
        self.eventually(manager, &format!("{reason} of {name} with {words:?}"), ask).await
    }

    /// Reason and message of all Warning Events of this object.
    pub(crate) async fn warnings(&self, name: &str) -> Vec<(String, String)> {
        let warnings = self.all_warnings().await.into_iter();
        warnings.filter(|(object, ..)| object == name).map(|(_, reason, message)| (reason, message)).collect()
    }

    /// Object, reason and message of all Warning Events.
    async fn all_warnings(&self) -> Vec<(String, String, String)> {
        let events: Api<Event> = Api::all(self.client.clone());
        let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let parts = |event: Event| {
            let texts = (event.involved_object.name, event.reason, event.message);
            (texts.0.unwrap_or_default(), texts.1.unwrap_or_default(), texts.2.unwrap_or_default())
        };
        events.filter(|event| event.type_.as_deref() == Some("Warning")).map(parts).collect()
    }
}
