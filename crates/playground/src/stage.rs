//! The playground as the stage of its tour.

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
use crate::tour::{Act, POD, POD_PORT, Stage};
use crate::traffic::{self, Finding, Findings, Probe};
use crate::{CLUSTER, Playground, Snapshot};

/// How often the first Pod is tried, and the pause between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// How many Nodes are asked for their health.
const SOME: usize = 10;

impl Stage for Playground {
    async fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::CreatePod => self.create_pod().await.map_err(text),
            Act::StartControllers => self.start_controllers().await.map_err(text),
            Act::Apply(manifest, ports) => manifest.apply(*ports, &self.server.in_process_client()).await,
            Act::DeletePod(name) => self.delete_pod(name).await.map_err(text),
            Act::PolicyLocal(name) => self.make_local(name).await.map_err(text),
            Act::DeleteService(name) => self.delete_service(name).await.map_err(text),
            Act::LoseRoutes => self.lose_routes().map_err(text),
            Act::Stop(id) => self.cloud.stop(id).map_err(text),
            Act::Lie => {
                let spec = FaultSpec::always(Fault::Empty);
                self.cloud.inject(spec);
                Ok(())
            }
            Act::Recover(id) => {
                self.cloud.repair_all();
                self.cloud.start(id).map_err(text)
            }
            Act::Delete(id) => self.cloud.delete(id).map_err(text),
            Act::DeleteMany(numbers) => {
                let id = |number| machine(number, self.subnet()).id;
                numbers.clone().try_for_each(|number| self.cloud.delete(&id(number))).map_err(text)
            }
            Act::AllowDeletion => self.allow_deletion().await.map_err(text),
            Act::Add(machine) => self.cloud.add((**machine).clone()).map(drop).map_err(text),
        }
    }

    async fn look(&mut self, probes: &BTreeSet<Probe>) -> Result<Snapshot, String> {
        let client = self.server.in_process_client();
        let all = ListParams::default();
        let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(text)?.items;
        let pods = Api::<Pod>::default_namespaced(client.clone()).list(&all).await.map_err(text)?.items;
        let services = Api::<Service>::default_namespaced(client).list(&all).await.map_err(text)?.items;
        self.remember(&services);
        let mut findings = Findings::new();
        for probe in probes {
            findings.insert(probe.clone(), self.try_out(probe, &services, &pods).await);
        }
        Ok(Snapshot { nodes, pods, services, routes: self.cloud.routes(CLUSTER), findings })
    }
}

impl Playground {
    /// Addresses are remembered beyond their Services, to see that nobody answers there any more.
    fn remember(&mut self, services: &[Service]) {
        let addresses = services.iter().filter_map(|service| Some((service.name_any(), service.address()?)));
        self.addresses.extend(addresses);
    }

    async fn try_out(&self, probe: &Probe, services: &[Service], pods: &[Pod]) -> Vec<Finding> {
        if let Probe::Health(name) = probe {
            let service = services.iter().find(|service| service.name_any() == *name);
            let port = service.map(|service| service.spec.health_check_node_port).filter(|port| *port != 0);
            return match port {
                Some(port) => traffic::ask_health(self.some_nodes(), port).await,
                None => Vec::new(),
            };
        }
        let address = match probe {
            Probe::Pod(name, _) => {
                pods.iter().find(|pod| pod.name_any() == *name).and_then(|pod| pod.addresses().next())
            }
            _ => self.addresses.get(probe.whom()).copied(),
        };
        match address {
            Some(address) => traffic::ask(probe, address).await,
            None => Vec::new(),
        }
    }

    /// The first Nodes and their addresses; of thousands, a few tell enough.
    fn some_nodes(&self) -> Vec<(String, IpAddr)> {
        let numbers = 1..=self.options.nodes.min(SOME);
        numbers.map(|number| (machine(number, self.subnet()).name, self.subnet().machine(number).into())).collect()
    }

    /// As somebody with access to the cloud could do it, behind the controllers' backs.
    fn lose_routes(&self) -> Result<(), CloudError> {
        self.cloud.routes(CLUSTER).iter().try_for_each(|route| self.cloud.remove_route(CLUSTER, &route.id))
    }

    async fn delete_pod(&self, name: &str) -> kube::Result<()> {
        let pods = Api::<Pod>::default_namespaced(self.server.in_process_client());
        pods.delete(name, &DeleteParams::default()).await.map(drop)
    }

    async fn make_local(&self, name: &str) -> kube::Result<()> {
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
                // In a new cluster the namespace's service account takes a moment to come.
                Err(kube::Error::Api(status)) if status.code == 403 => tokio::time::sleep(PAUSE).await,
                created => return created.map(drop),
            }
        }
        create::<Pod>(&client, Some("default"), &pod).await.map(drop)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
