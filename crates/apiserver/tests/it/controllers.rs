//! Tests of the built-in controllers through the API, with bounded waits.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use bowline_apiserver::{ApiServer, Options};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Failure;

/// Timeout that is much longer than a controller takes, so that tests pass on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Long enough for several syncs of the controllers, to check that they do not change an object.
const SEVERAL_SYNCS: Duration = Duration::from_millis(300);

struct Cluster {
    _server: ApiServer,
    client: Client,
}

impl Cluster {
    async fn start() -> Result<Cluster, Failure> {
        let server = ApiServer::start(Options::default()).await?;
        let client = server.client().await?;
        Ok(Cluster { _server: server, client })
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn namespaced<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn namespace(&self, name: &str) -> Result<(), Failure> {
        create::<Namespace>(&self.all(), json!({"metadata": {"name": name}})).await?;
        Ok(())
    }
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K, Failure>
where
    K: Clone + Debug + DeserializeOwned + serde::Serialize,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// Polls a condition until it is true.
async fn until<F>(what: &str, mut condition: impl FnMut() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<bool, kube::Error>>,
{
    let begin = Instant::now();
    while !condition().await? {
        if begin.elapsed() > TIMEOUT {
            return Err(format!("timed out waiting until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn until_deleted<K>(api: &Api<K>, name: &str) -> Result<(), Failure>
where
    K: Clone + Debug + DeserializeOwned,
{
    until(&format!("{name} is deleted"), || async { Ok(api.get_opt(name).await?.is_none()) }).await
}

async fn still_exists<K>(api: &Api<K>, name: &str) -> Result<K, Failure>
where
    K: Clone + Debug + DeserializeOwned,
{
    tokio::time::sleep(SEVERAL_SYNCS).await;
    Ok(api.get(name).await?)
}

async fn remove_finalizers<K>(api: &Api<K>, name: &str) -> Result<(), Failure>
where
    K: Clone + Debug + DeserializeOwned,
{
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// An owner reference to an object with `blockOwnerDeletion`.
fn reference<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": owner.meta().name,
        "uid": owner.meta().uid,
        "blockOwnerDeletion": true,
    })
}

fn owned(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

fn owners(meta: &ObjectMeta) -> Vec<&str> {
    meta.owner_references.iter().flatten().map(|owner| owner.name.as_str()).collect()
}

// === Namespaces ===

#[tokio::test]
async fn a_deleted_namespace_waits_for_the_finalizers_of_its_content() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    cluster.namespace("a").await?;
    let (namespaces, maps) = (cluster.all::<Namespace>(), cluster.namespaced::<ConfigMap>("a"));
    create(&maps, json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})).await?;
    create(&maps, json!({"metadata": {"name": "orphaned", "finalizers": ["orphan"]}})).await?;
    create(&maps, json!({"metadata": {"name": "free"}})).await?;
    namespaces.delete("a", &DeleteParams::default()).await?;
    until_deleted(&maps, "free").await?;
    until_deleted(&maps, "orphaned").await?;
    until_deleted(&cluster.namespaced::<ServiceAccount>("a"), "default").await?;
    let held = still_exists(&maps, "held").await?;
    assert!(held.metadata.deletion_timestamp.is_some());
    let phase = still_exists(&namespaces, "a").await?.status.and_then(|status| status.phase);
    assert_eq!(phase.as_deref(), Some("Terminating"));
    let late = create(&maps, json!({"metadata": {"name": "late"}})).await;
    assert!(late.is_err_and(|e| e.to_string().contains("because it is being terminated")));
    remove_finalizers(&maps, "held").await?;
    until_deleted(&namespaces, "a").await
}

#[tokio::test]
async fn an_empty_namespace_still_waits_for_its_own_finalizer() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let namespaces = cluster.all::<Namespace>();
    create(&namespaces, json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await?;
    namespaces.delete("a", &DeleteParams::default()).await?;
    until("the namespace is empty", || async {
        Ok(namespaces.get("a").await?.spec.is_none_or(|spec| spec.finalizers.unwrap_or_default().is_empty()))
    })
    .await?;
    still_exists(&namespaces, "a").await?;
    remove_finalizers(&namespaces, "a").await?;
    until_deleted(&namespaces, "a").await
}

// === Garbage collection ===

#[tokio::test]
async fn dependents_of_a_deleted_owner_are_deleted_in_the_background() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let (maps, secrets) = (cluster.namespaced::<ConfigMap>("default"), cluster.namespaced::<Secret>("default"));
    let owner = create(&maps, owned("owner", &[])).await?;
    let other = create(&maps, owned("other", &[])).await?;
    let child = create(&secrets, owned("child", &[reference(&owner)])).await?;
    create(&secrets, owned("grandchild", &[reference(&child)])).await?;
    create(&secrets, owned("shared", &[reference(&owner), reference(&other)])).await?;
    still_exists(&secrets, "child").await?;
    maps.delete("owner", &DeleteParams::background()).await?;
    until_deleted(&secrets, "child").await?;
    until_deleted(&secrets, "grandchild").await?;
    until("the reference to the deleted owner is removed", || async {
        Ok(owners(secrets.get("shared").await?.meta()) == ["other"])
    })
    .await
}

#[tokio::test]
async fn an_owner_is_identified_by_its_uid() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.namespaced::<ConfigMap>("default");
    let mut stale = reference(&create(&maps, owned("owner", &[])).await?);
    stale["uid"] = "00000000-0000-0000-0000-000000000001".into();
    create(&maps, owned("child", &[stale])).await?;
    until_deleted(&maps, "child").await?;
    still_exists(&maps, "owner").await?;
    Ok(())
}

#[tokio::test]
async fn owners_of_unknown_kinds_or_other_scopes_count_as_existing() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let (nodes, leases) = (cluster.all::<Node>(), cluster.namespaced::<Lease>("kube-node-lease"));
    let maps = cluster.namespaced::<ConfigMap>("default");
    let node = create(&nodes, owned("owner", &[])).await?;
    create(&leases, owned("owner", &[reference(&node)])).await?;
    let map = create(&maps, owned("inside", &[])).await?;
    create(&nodes, owned("outside", &[reference(&map)])).await?;
    let mut unknown = reference(&map);
    unknown["kind"] = "Widget".into();
    create(&maps, owned("of-unknown", &[unknown])).await?;
    still_exists(&leases, "owner").await?;
    nodes.delete("owner", &DeleteParams::default()).await?;
    until_deleted(&leases, "owner").await?;
    maps.delete("inside", &DeleteParams::default()).await?;
    still_exists(&nodes, "outside").await?;
    maps.get("of-unknown").await?;
    Ok(())
}

#[tokio::test]
async fn foreground_deletion_deletes_dependents_before_the_owner() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.namespaced::<ConfigMap>("default");
    let owner = create(&maps, owned("owner", &[])).await?;
    let other = create(&maps, owned("other", &[])).await?;
    let child = create(&maps, owned("child", &[reference(&owner)])).await?;
    let mut held = owned("grandchild", &[reference(&child)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&maps, held).await?;
    create(&maps, owned("shared", &[reference(&owner), reference(&other)])).await?;
    let mut free = reference(&owner);
    free["blockOwnerDeletion"] = false.into();
    create(&maps, owned("free", &[free])).await?;
    maps.delete("owner", &DeleteParams::foreground()).await?;
    until_deleted(&maps, "free").await?;
    until("only the other owner remains", || async { Ok(owners(maps.get("shared").await?.meta()) == ["other"]) })
        .await?;
    assert_eq!(still_exists(&maps, "owner").await?.finalizers(), ["foregroundDeletion"]);
    assert_eq!(maps.get("child").await?.finalizers(), ["foregroundDeletion"]);
    remove_finalizers(&maps, "grandchild").await?;
    for name in ["grandchild", "child", "owner"] {
        until_deleted(&maps, name).await?;
    }
    maps.get("shared").await?;
    Ok(())
}

#[tokio::test]
async fn circular_owners_do_not_block_foreground_deletion() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.namespaced::<ConfigMap>("default");
    let a = create(&maps, owned("a", &[])).await?;
    let b = create(&maps, owned("b", &[reference(&a)])).await?;
    let c = create(&maps, owned("c", &[reference(&b)])).await?;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [reference(&c)]}}));
    maps.patch("a", &PatchParams::default(), &patch).await?;
    still_exists(&maps, "a").await?;
    maps.delete("a", &DeleteParams::foreground()).await?;
    for name in ["a", "b", "c"] {
        until_deleted(&maps, name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn orphaned_dependents_lose_their_owner_reference() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.namespaced::<ConfigMap>("default");
    let owner = create(&maps, owned("owner", &[])).await?;
    create(&maps, owned("child", &[reference(&owner)])).await?;
    maps.delete(
        "owner",
        &DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..DeleteParams::default() },
    )
    .await?;
    until_deleted(&maps, "owner").await?;
    assert!(owners(still_exists(&maps, "child").await?.meta()).is_empty());
    Ok(())
}

// === Default objects of a namespace ===

#[tokio::test]
async fn the_default_service_account_and_root_ca_are_recreated() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    cluster.namespace("a").await?;
    let (accounts, maps) = (cluster.namespaced::<ServiceAccount>("a"), cluster.namespaced::<ConfigMap>("a"));
    until("the service account is created", || async { Ok(accounts.get_opt("default").await?.is_some()) }).await?;
    until("the root CA ConfigMap is created", || async { Ok(maps.get_opt("kube-root-ca.crt").await?.is_some()) })
        .await?;
    let first = accounts.get("default").await?.uid();
    accounts.delete("default", &DeleteParams::default()).await?;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await?;
    until("the service account is recreated", || async {
        Ok(accounts.get_opt("default").await?.is_some_and(|account| account.uid() != first))
    })
    .await?;
    until("the root CA ConfigMap is recreated", || async { Ok(maps.get_opt("kube-root-ca.crt").await?.is_some()) })
        .await?;
    let root_ca = maps.get("kube-root-ca.crt").await?.data;
    let forged = Patch::Merge(json!({"data": {"ca.crt": "forged", "more": "x"}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &forged).await?;
    until("the root CA ConfigMap is restored", || async { Ok(maps.get("kube-root-ca.crt").await?.data == root_ca) })
        .await
}

// === Pods and endpoints ===

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}],
        },
    })
}

async fn set_running(pods: &Api<Pod>, name: &str, ip: &str, ready: bool) -> Result<(), Failure> {
    let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
    let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}

/// The addresses of a Service's endpoint slice with their readiness.
async fn endpoints(slices: &Api<EndpointSlice>) -> Result<Vec<(String, bool)>, kube::Error> {
    let found = slices.list(&ListParams::default().labels("kubernetes.io/service-name=web")).await?;
    let endpoints = found.items.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
    let described = endpoints.map(|e| (e.addresses.concat(), e.conditions.and_then(|c| c.ready) == Some(true)));
    Ok(described.collect())
}

#[tokio::test]
async fn an_endpoint_slice_tracks_the_pods_of_its_service() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let (services, pods) = (cluster.namespaced::<Service>("default"), cluster.namespaced::<Pod>("default"));
    let slices = cluster.namespaced::<EndpointSlice>("default");
    create(
        &cluster.all::<Node>(),
        json!({"metadata": {"name": "node", "labels": {"topology.kubernetes.io/zone": "z"}}}),
    )
    .await?;
    until("the service account exists", || async {
        Ok(cluster.namespaced::<ServiceAccount>("default").get_opt("default").await?.is_some())
    })
    .await?;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"name": "w", "port": 80, "targetPort": "http"}]});
    create(&services, json!({"metadata": {"name": "web", "labels": {"team": "x"}}, "spec": spec})).await?;
    create(&pods, pod("a")).await?;
    create(&pods, pod("b")).await?;
    set_running(&pods, "a", "10.1.0.1", true).await?;
    set_running(&pods, "b", "10.1.0.2", false).await?;
    let wanted = |list: &[(&str, bool)]| list.iter().map(|(ip, ready)| ((*ip).to_owned(), *ready)).collect::<Vec<_>>();
    let both = wanted(&[("10.1.0.1", true), ("10.1.0.2", false)]);
    until("both pods are listed", || async { Ok(endpoints(&slices).await? == both) }).await?;
    let slice = slices.list(&ListParams::default().labels("team=x")).await?.items.remove(0);
    assert_eq!(
        slice.ports.iter().flatten().map(|p| (p.name.as_deref(), p.port)).collect::<Vec<_>>(),
        [(Some("w"), Some(8080))]
    );
    let first = slice.endpoints.iter().flatten().next().ok_or("no endpoint")?;
    assert_eq!(first.zone.as_deref(), Some("z"));
    assert_eq!(first.target_ref.as_ref().and_then(|t| t.name.as_deref()), Some("a"));
    pods.delete("a", &DeleteParams::default()).await?;
    let terminating = wanted(&[("10.1.0.1", false), ("10.1.0.2", false)]);
    until("a terminating pod is not ready", || async { Ok(endpoints(&slices).await? == terminating) }).await?;
    pods.delete("a", &DeleteParams::default().grace_period(0)).await?;
    let last = wanted(&[("10.1.0.2", false)]);
    until("a deleted pod is not listed", || async { Ok(endpoints(&slices).await? == last) }).await?;
    services.delete("web", &DeleteParams::default()).await?;
    until("the slice is deleted with its service", || async { Ok(slices.get_opt(&slice.name_any()).await?.is_none()) })
        .await
}

#[tokio::test]
async fn a_pod_is_deleted_after_its_grace_period() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    cluster.namespace("a").await?;
    let (accounts, pods) = (cluster.namespaced::<ServiceAccount>("a"), cluster.namespaced::<Pod>("a"));
    until("the service account exists", || async { Ok(accounts.get_opt("default").await?.is_some()) }).await?;
    create(&pods, pod("slow")).await?;
    create(&pods, pod("quick")).await?;
    pods.delete("slow", &DeleteParams::default().grace_period(600)).await?;
    pods.delete("quick", &DeleteParams::default().grace_period(1)).await?;
    until_deleted(&pods, "quick").await?;
    pods.get("slow").await?;
    pods.delete("slow", &DeleteParams::default().grace_period(1)).await?;
    until_deleted(&pods, "slow").await
}
