//! The playground as the environment of its tour.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bowline_core::well_known::ALLOW_DELETION;
use bowline_local::{CloudError, Fault, FaultSpec};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::machines::machine;
use crate::objects::{Node, Pod, Service, create};
use crate::tour::{Environment, POD, POD_PORT, StepRun, TourAction};
use crate::traffic::{self, Probe, ProbeResult, ProbeResults};
use crate::{CLUSTER, Playground, PlaygroundError, Snapshot};

/// Number of attempts to create the first Pod, and the pause between two.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of Nodes whose health-check node port is probed.
const CHECKED_NODES: usize = 10;

impl Environment for Playground {
    async fn perform(&mut self, action: &TourAction) -> Result<(), String> {
        match action {
            TourAction::CreatePod => self.create_pod().await.map_err(to_message),
            TourAction::StartControllers => self.start_controllers().await.map_err(to_message),
            TourAction::Apply(manifest, ports) => {
                manifest.apply(*ports, &self.server.in_process_client()).await.map(drop)
            }
            TourAction::DeletePod(name) => self.delete_pod(name).await.map_err(to_message),
            TourAction::SetPolicyLocal(name) => self.set_policy_local(name).await.map_err(to_message),
            TourAction::DeleteService(name) => self.delete_service(name).await.map_err(to_message),
            TourAction::DeleteRoutes => self.delete_routes().map_err(to_message),
            TourAction::Stop(id) => self.cloud.stop(id).map_err(to_message),
            TourAction::HideMachines => {
                let spec = FaultSpec::always(Fault::Empty);
                self.cloud.inject(spec);
                Ok(())
            }
            TourAction::RestoreAndStart(id) => {
                self.cloud.repair_all();
                self.cloud.start(id).map_err(to_message)
            }
            TourAction::Delete(id) => self.cloud.delete(id).map_err(to_message),
            TourAction::DeleteMany(numbers) => {
                let id = |number| machine(number, self.subnet()).id;
                numbers.clone().try_for_each(|number| self.cloud.delete(&id(number))).map_err(to_message)
            }
            TourAction::AllowDeletion => self.allow_deletion().await.map_err(to_message),
            TourAction::Add(machine) => self.cloud.add((**machine).clone()).map(drop).map_err(to_message),
        }
    }

    async fn observe(&mut self, probes: &BTreeSet<Probe>) -> Result<Snapshot, String> {
        let client = self.server.in_process_client();
        let all = ListParams::default();
        let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(to_message)?.items;
        let pods = Api::<Pod>::default_namespaced(client.clone()).list(&all).await.map_err(to_message)?.items;
        let services = Api::<Service>::default_namespaced(client).list(&all).await.map_err(to_message)?.items;
        self.record_addresses(&services);
        let mut results = ProbeResults::new();
        for probe in probes {
            results.insert(probe.clone(), self.run_probe(probe, &services, &pods).await);
        }
        let (routes, machines) = (self.cloud.routes(CLUSTER), self.cloud.fleet());
        let faults = self.cloud.faults().into_iter().map(|(_, fault)| fault).collect();
        Ok(Snapshot { nodes, pods, services, routes, machines, faults, results })
    }

    fn report(&mut self, run: &StepRun<'_>) {
        self.progress.record(run);
    }

    fn failure(&mut self) -> impl Future<Output = PlaygroundError> + Send {
        Playground::failure(self)
    }
}

impl Playground {
    /// Records the addresses of Services, to check after their deletion that nothing answers there.
    fn record_addresses(&mut self, services: &[Service]) {
        let addresses = services.iter().filter_map(|service| Some((service.name_any(), service.address()?)));
        self.addresses.extend(addresses);
    }

    async fn run_probe(&self, probe: &Probe, services: &[Service], pods: &[Pod]) -> Vec<ProbeResult> {
        if let Probe::Health(name) = probe {
            let service = services.iter().find(|service| service.name_any() == *name);
            let port = service.map(|service| service.spec.health_check_node_port).filter(|port| *port != 0);
            return match port {
                Some(port) => traffic::probe_health(self.checked_nodes(), port).await,
                None => Vec::new(),
            };
        }
        let address = match probe {
            Probe::Pod(name, _) => {
                pods.iter().find(|pod| pod.name_any() == *name).and_then(|pod| pod.addresses().next())
            }
            _ => self.addresses.get(probe.object()).copied(),
        };
        match address {
            Some(address) => traffic::send(probe, address).await,
            None => Vec::new(),
        }
    }

    /// Returns the first Nodes and their addresses; a few of thousands are enough.
    fn checked_nodes(&self) -> Vec<(String, IpAddr)> {
        let numbers = 1..=self.options.nodes.min(CHECKED_NODES);
        numbers.map(|number| (machine(number, self.subnet()).name, self.subnet().machine(number).into())).collect()
    }

    /// Deletes all routes directly in the cloud, without the controllers.
    fn delete_routes(&self) -> Result<(), CloudError> {
        self.cloud.routes(CLUSTER).iter().try_for_each(|route| self.cloud.remove_route(CLUSTER, &route.id))
    }

    async fn delete_pod(&self, name: &str) -> kube::Result<()> {
        let pods = Api::<Pod>::default_namespaced(self.server.in_process_client());
        pods.delete(name, &DeleteParams::default()).await.map(drop)
    }

    async fn set_policy_local(&self, name: &str) -> kube::Result<()> {
        let services = Api::<Service>::default_namespaced(self.server.in_process_client());
        let patch = Patch::Merge(json!({"spec": {"externalTrafficPolicy": "Local"}}));
        services.patch(name, &PatchParams::default(), &patch).await.map(drop)
    }

    async fn delete_service(&self, name: &str) -> kube::Result<()> {
        let services = Api::<Service>::default_namespaced(self.server.in_process_client());
        services.delete(name, &DeleteParams::default()).await.map(drop)
    }

    async fn allow_deletion(&self) -> kube::Result<()> {
        let nodes = Api::<Node>::all(self.server.in_process_client());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ALLOW_DELETION: "true"}}}));
        for node in nodes.list_metadata(&ListParams::default()).await? {
            nodes.patch_metadata(&node.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn create_pod(&self) -> kube::Result<()> {
        let ports = json!([{"containerPort": POD_PORT}]);
        let container = json!({"name": POD, "image": "registry.example/web:1", "ports": ports});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": POD, "labels": {"app": POD}},
            "spec": {"containers": [container]},
        });
        let client = self.server.in_process_client();
        for _ in 0..ATTEMPTS {
            match create::<Pod>(&client, Some("default"), &pod).await {
                // In a new cluster it takes a moment until the namespace has its service account.
                Err(kube::Error::Api(status)) if status.code == 403 => tokio::time::sleep(PAUSE).await,
                created => return created.map(drop),
            }
        }
        create::<Pod>(&client, Some("default"), &pod).await.map(drop)
    }
}

fn to_message(error: impl std::fmt::Display) -> String {
    error.to_string()
}
