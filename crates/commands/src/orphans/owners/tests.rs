//! Owners by UID, by name, and in a cloud whose marks are only names.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use bowline_apiserver::{ApiServer, Options};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{
    Applied, Capabilities, CloudProvider, Clouds, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers,
    ProviderInfo, Result,
};
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::testing::{annotated, service};
use bowline_core::{IpFamily, LoadBalancerState, LoadBalancerStatus, Opaque, Plan, Step, Verb};
use bowline_kube::Cluster;
use k8s_openapi::api::core::v1::Service as ApiService;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::*;
use crate::orphans::{Outcome, find, print};

const ID: &str = "cloud.example/id";
const DISOWN: &str = "cloud.example/disown";

/// Cloud whose load balancers have only a name. A Service names its load balancer with an annotation.
struct Named {
    info: ProviderInfo,
    capabilities: Capabilities,
    names: Mutex<Vec<&'static str>>,
}

impl Named {
    fn clouds(names: &[&'static str]) -> Clouds {
        let kind = LoadBalancerKind { tcp: true, ip_families: vec![IpFamily::IPv4], ..LoadBalancerKind::default() };
        let load_balancers = Some(LoadBalancerCapabilities::of(kind));
        let provider = Named {
            info: ProviderInfo { name: "named".to_owned(), id_prefixes: vec!["named".to_owned()] },
            capabilities: Capabilities { load_balancers, ..Capabilities::default() },
            names: Mutex::new(names.to_vec()),
        };
        let provider: Arc<dyn CloudProvider> = Arc::new(provider);
        Clouds::with_layers([provider], &LayerOptions::default(), &prometheus::Registry::new())
    }
}

#[async_trait]
impl CloudProvider for Named {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl LoadBalancers for Named {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        match annotations.get(DISOWN).map(String::as_str) {
            None | Some("true") => Ok(LoadBalancerSettings { unmanaged: annotations.contains_key(DISOWN), ..common }),
            Some(_) => Err(vec![FieldError { field: DISOWN.to_owned(), message: "expected true".to_owned() }]),
        }
    }

    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let names = self.names.lock().unwrap();
        let state = || LoadBalancerState::new(LoadBalancerStatus::default(), Opaque::default());
        let exists = |desired: &DesiredLoadBalancer| names.iter().any(|name| Some(*name) == desired.key.name_only());
        desired.iter().map(|desired| Ok(exists(desired).then(state))).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Ok(self.names.lock().unwrap().iter().map(|name| key(cluster.as_str(), "", name, "")).collect())
    }

    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        match listed.name_only() {
            Some(name) => desired.annotations.get(ID).is_some_and(|id| id == name),
            None => listed.matches(&desired.key),
        }
    }

    fn plan(&self, desired: &DesiredLoadBalancer, _: Option<&LoadBalancerState>) -> Result<Plan> {
        let name = desired.key.service.clone();
        Ok(Plan::of(vec![Step::new(Verb::Delete, "load balancer", name, Vec::new(), Opaque::default())]))
    }

    async fn apply(&self, key: &LoadBalancerKey, _: &Step, _: Option<&Opaque>) -> Result<Applied> {
        self.names.lock().unwrap().retain(|name| *name != key.service);
        Ok(Applied::Observed(None))
    }
}

fn key(cluster: &str, namespace: &str, service: &str, uid: &str) -> LoadBalancerKey {
    let (namespace, service, uid) = (namespace.to_owned(), service.to_owned(), uid.to_owned());
    LoadBalancerKey { cluster: cluster.into(), namespace, service, uid }
}

/// API server with Services: name, type and annotations.
async fn server(services: &[(&str, &str, serde_json::Value)]) -> (ApiServer, Cluster) {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let cluster = Cluster::new(server.in_process_client());
    for (name, kind, annotations) in services {
        create(&server, name, kind, annotations).await;
    }
    (server, cluster)
}

async fn create(server: &ApiServer, name: &str, kind: &str, annotations: &serde_json::Value) {
    let object = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"type": kind, "ports": [{"port": 80}]},
    });
    let services: Api<ApiService> = Api::namespaced(server.in_process_client(), "default");
    services.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_mark_matches_the_service_by_uid_or_without_uid_by_name() {
    let clouds = Named::clouds(&[]);
    let cloud = clouds.iter().next().unwrap();
    let web = Service { uid: "u1".to_owned(), ..service("default/web") };
    let plain = Service { uid: "u2".to_owned(), kind: ServiceType::ClusterIP, ..service("default/plain") };
    let disowned = Service { name: "disowned".to_owned(), ..annotated(plain.clone(), &[(DISOWN, "true")]) };
    let unclear = Service { name: "unclear".to_owned(), ..annotated(web.clone(), &[(DISOWN, "maybe")]) };
    let services = [web, plain, disowned, unclear].map(Arc::new);
    let owners = Owners::of(cloud, &"kubernetes".into(), &services);
    let is_owned = |name: &str, uid: &str| owners.contain(&key("kubernetes", "default", name, uid));
    assert!(is_owned("web", "u1") && is_owned("web", ""));
    assert!(!is_owned("web", "u0"), "an earlier Service with this name");
    assert!(!is_owned("gone", "") && !is_owned("plain", ""), "no Service that has, or may have, a load balancer");
    assert!(is_owned("disowned", ""), "its load balancer is unmanaged");
    assert!(is_owned("unclear", ""), "an invalid annotation makes no orphan");
    assert!(!owners.contain(&key("other", "default", "web", "u1")), "another cluster");
}

#[tokio::test]
async fn load_balancers_with_only_a_name_are_matched_by_the_provider_and_deleted_by_name() {
    let clouds = Named::clouds(&["lb-web", "lb-disowned", "lb-lost", "lb-late"]);
    let owned = |name: &str| json!({ID: name});
    let (server, cluster) = server(&[
        ("web", "LoadBalancer", owned("lb-web")),
        ("disowned", "ClusterIP", json!({ID: "lb-disowned", DISOWN: "true"})),
        ("plain", "ClusterIP", owned("lb-lost")),
    ])
    .await;
    clouds.start().await;
    let mut found =
        find(&clouds, &cluster, &"kubernetes".into(), &bowline_controllers::manager::ManagerOptions::default(), None)
            .await
            .unwrap();
    let text = print::list(&found);
    let listed = |name: &str| format!("load balancer {name} in named\n    delete load balancer {name}\n");
    assert!(text.starts_with(&(listed("lb-lost") + &listed("lb-late"))), "{text}");
    // The owner of one comes while the user is asked for confirmation.
    create(&server, "late", "LoadBalancer", &owned("lb-late")).await;
    found.delete_all(&cluster, drop).await;
    let outcomes: Vec<_> = found.orphans.iter().map(|orphan| (orphan.key.service.as_str(), &orphan.outcome)).collect();
    assert_eq!(outcomes, [("lb-lost", &Outcome::Deleted), ("lb-late", &Outcome::Owned)]);
    let orphan = &print::json(&found)["orphans"][0];
    let parts = ["namespace", "service", "uid", "loadBalancer"].map(|field| orphan[field].as_str().unwrap());
    assert_eq!(parts, ["", "", "", "lb-lost"]);
}
