//! Fixture for Services and load balancers.

use std::collections::BTreeMap;

use bowline_local::Balancer;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{World, machine};

pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
pub(crate) const READY: &str = "bowline.dev/LoadBalancerReady";

impl World {
    /// World with one cloud and these Nodes, initialised and with machines.
    pub(crate) async fn with_nodes(names: &[&str]) -> World {
        let world = World::new().await;
        for (index, name) in names.iter().enumerate() {
            world.join_machine(name, index).await;
        }
        world
    }

    /// Adds a machine and its Node, initialised and ready.
    pub(crate) async fn join_machine(&self, name: &str, index: usize) {
        let address = format!("10.0.{}.{}", index / 200, index % 200 + 1);
        self.cloud().add(machine(name, &format!("i-{name}"), &[&format!("I{address}")])).unwrap();
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        let node = json!({
            "spec": {"taints": null, "providerID": format!("local://i-{name}")}, "status": {"addresses": addresses}
        });
        self.register_with(name, node).await;
        self.set_ready(name, "True").await;
    }

    // ---- Services

    /// Creates a Service of type LoadBalancer with port 80.
    pub(crate) async fn create_service(&self, name: &str) -> Service {
        self.create_service_with(name, json!({})).await
    }

    /// Creates a Service with `changes` merged into it.
    pub(crate) async fn create_service_with(&self, name: &str, changes: Value) -> Service {
        self.create_service_in("default", name, changes).await
    }

    pub(crate) async fn create_service_in(&self, namespace: &str, name: &str, changes: Value) -> Service {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]},
        });
        crate::world::merge(&mut service, &changes);
        let status = service.get("status").cloned();
        let services: Api<Service> = Api::namespaced(self.server.in_process_client(), namespace);
        let created = services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        let Some(status) = status else { return created };
        let patch = json!({"status": status});
        services.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    pub(crate) async fn patch_service(&self, name: &str, patch: Value) -> Service {
        self.services.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap()
    }

    pub(crate) async fn annotate(&self, name: &str, key: &str, value: Option<&str>) {
        self.patch_service(name, json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub(crate) async fn service(&self, name: &str) -> Service {
        self.services.get(name).await.unwrap()
    }

    pub(crate) async fn delete_service(&self, name: &str) {
        self.services.delete(name, &DeleteParams::default()).await.unwrap();
    }

    // ---- waiting

    /// Waits until the Service has an address, and returns it.
    pub(crate) async fn wait_for_address(&self, name: &str) -> String {
        self.eventually(&format!("{name} has an address"), async || ingress(&self.service(name).await).pop()).await
    }

    /// Waits until the Service is deleted.
    pub(crate) async fn wait_until_service_deleted(&self, name: &str) {
        let gone = async || self.services.get_opt(name).await.unwrap().is_none().then_some(());
        self.eventually(&format!("{name} is gone"), gone).await;
    }

    /// Waits for an Event about this object with this reason.
    pub(crate) async fn wait_for_event(&self, name: &str, reason: &str) -> Event {
        self.eventually(&format!("{name}: {reason}"), async || self.event(name, reason).await).await
    }

    /// Waits until all load balancers of the cloud have exactly these targets.
    pub(crate) async fn wait_for_targets(&self, expected: &[&str]) {
        self.eventually(&format!("targets {expected:?}"), async || {
            let balancers = self.cloud().balancers();
            (!balancers.is_empty() && balancers.iter().all(|balancer| targets(balancer) == expected)).then_some(())
        })
        .await;
    }

    // ---- Events and calls

    /// Reasons of all Events about this object, with their counts.
    pub(crate) async fn reasons(&self, name: &str) -> BTreeMap<String, i32> {
        let mut reasons = BTreeMap::new();
        for event in self.events().await {
            if event.involved_object.name.as_deref() == Some(name) {
                *reasons.entry(event.reason.unwrap_or_default()).or_default() += event.count.unwrap_or(1);
            }
        }
        reasons
    }

    /// Number of successful patches of the status of Services, which are the controller's only writes.
    pub(crate) fn patches(&self) -> u64 {
        let patches = self.server.requests().into_iter();
        let ours = patches.filter(|(kind, _)| kind.verb == "patch" && kind.resource == "services" && kind.code < 300);
        ours.filter(|(kind, _)| kind.subresource == "status").map(|(_, count)| count).sum()
    }

    /// Number of calls of this kind to the first cloud.
    pub(crate) fn call_count(&self, kind: &str) -> u64 {
        self.cloud().calls().get(kind).copied().unwrap_or_default()
    }

    /// Status, reason and message of our condition on this Service.
    pub(crate) async fn condition(&self, name: &str) -> Option<(String, String, String)> {
        let conditions = self.service(name).await.status?.conditions?;
        let ours = conditions.into_iter().find(|condition| condition.type_ == READY)?;
        Some((ours.status, ours.reason, ours.message))
    }

    /// The only load balancer of the first cloud.
    pub(crate) fn load_balancer(&self) -> Balancer {
        let mut balancers = self.cloud().balancers();
        assert_eq!(balancers.len(), 1, "{balancers:#?}");
        balancers.remove(0)
    }
}

/// Addresses in the status.
pub(crate) fn ingress(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.clone()).unwrap_or_default();
    ingress.into_iter().filter_map(|ingress| ingress.ip.or(ingress.hostname)).collect()
}

pub(crate) fn finalizers(service: &Service) -> Vec<String> {
    service.metadata.finalizers.clone().unwrap_or_default()
}

/// Names of a load balancer's targets; draining ones are marked.
pub(crate) fn targets(balancer: &Balancer) -> Vec<String> {
    let name = |draining: bool, name: &str| if draining { format!("{name} (draining)") } else { name.to_owned() };
    balancer.targets.iter().map(|target| name(target.draining, &target.name)).collect()
}

/// Ports that a load balancer listens on.
pub(crate) fn ports(balancer: &Balancer) -> Vec<(String, u16)> {
    balancer.settings.listeners.iter().map(|listener| (format!("{:?}", listener.protocol), listener.port)).collect()
}
