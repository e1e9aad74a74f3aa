//! The built-in controllers, as a client sees their work: everything through the API, every wait bounded.

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

/// Much longer than a controller takes, so that a busy machine fails no test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Long enough for several passes of the controllers, to see that they leave something alone.
const SEVERAL_PASSES: Duration = Duration::from_millis(300);

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

    fn inside<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn namespace(&self, name: &str) -> Result<(), Failure> {
        make::<Namespace>(&self.all(), json!({"metadata": {"name": name}})).await?;
        Ok(())
    }
}

async fn make<K>(api: &Api<K>, object: Value) -> Result<K, Failure>
where
    K: Clone + Debug + DeserializeOwned + serde::Serialize,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

/// Asks until the answer is yes.
async fn until<F>(what: &str, mut ask: impl FnMut() -> F) -> Result<(), Failure>
where
    F: Future<Output = Result<bool, kube::Error>>,
{
    let begin = Instant::now();
    while !ask().await? {
        if begin.elapsed() > PATIENCE {
            return Err(format!("waited in vain: {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn gone<K>(api: &Api<K>, name: &str) -> Result<(), Failure>
where
    K: Clone + Debug + DeserializeOwned,
{
    until(&format!("{name} goes"), || async { Ok(api.get_opt(name).await?.is_none()) }).await
}

async fn stays<K>(api: &Api<K>, name: &str) -> Result<K, Failure>
where
    K: Clone + Debug + DeserializeOwned,
{
    tokio::time::sleep(SEVERAL_PASSES).await;
    Ok(api.get(name).await?)
}

async fn let_go<K>(api: &Api<K>, name: &str) -> Result<(), Failure>
where
    K: Clone + Debug + DeserializeOwned,
{
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// An owner reference to an object, blocking it.
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
    let (namespaces, maps) = (cluster.all::<Namespace>(), cluster.inside::<ConfigMap>("a"));
    make(&maps, json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})).await?;
    make(&maps, json!({"metadata": {"name": "orphaned", "finalizers": ["orphan"]}})).await?;
    make(&maps, json!({"metadata": {"name": "free"}})).await?;
    namespaces.delete("a", &DeleteParams::default()).await?;
    gone(&maps, "free").await?;
    gone(&maps, "orphaned").await?;
    gone(&cluster.inside::<ServiceAccount>("a"), "default").await?;
    let held = stays(&maps, "held").await?;
    assert!(held.metadata.deletion_timestamp.is_some());
    let phase = stays(&namespaces, "a").await?.status.and_then(|status| status.phase);
    assert_eq!(phase.as_deref(), Some("Terminating"));
    let late = make(&maps, json!({"metadata": {"name": "late"}})).await;
    assert!(late.is_err_and(|e| e.to_string().contains("because it is being terminated")));
    let_go(&maps, "held").await?;
    gone(&namespaces, "a").await
}

#[tokio::test]
async fn an_empty_namespace_still_waits_for_its_own_finalizer() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let namespaces = cluster.all::<Namespace>();
    make(&namespaces, json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await?;
    namespaces.delete("a", &DeleteParams::default()).await?;
    until("the namespace is empty", || async {
        Ok(namespaces.get("a").await?.spec.is_none_or(|spec| spec.finalizers.unwrap_or_default().is_empty()))
    })
    .await?;
    stays(&namespaces, "a").await?;
    let_go(&namespaces, "a").await?;
    gone(&namespaces, "a").await
}

// === Garbage ===

#[tokio::test]
async fn what_nobody_owns_any_more_goes_in_the_background() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let (maps, secrets) = (cluster.inside::<ConfigMap>("default"), cluster.inside::<Secret>("default"));
    let owner = make(&maps, owned("owner", &[])).await?;
    let other = make(&maps, owned("other", &[])).await?;
    let child = make(&secrets, owned("child", &[reference(&owner)])).await?;
    make(&secrets, owned("grandchild", &[reference(&child)])).await?;
    make(&secrets, owned("shared", &[reference(&owner), reference(&other)])).await?;
    stays(&secrets, "child").await?;
    maps.delete("owner", &DeleteParams::background()).await?;
    gone(&secrets, "child").await?;
    gone(&secrets, "grandchild").await?;
    until("the dead reference is dropped", || async { Ok(owners(secrets.get("shared").await?.meta()) == ["other"]) })
        .await
}

#[tokio::test]
async fn an_owner_is_known_by_its_uid_not_by_its_name() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.inside::<ConfigMap>("default");
    let mut stale = reference(&make(&maps, owned("owner", &[])).await?);
    stale["uid"] = "00000000-0000-0000-0000-000000000001".into();
    make(&maps, owned("child", &[stale])).await?;
    gone(&maps, "child").await?;
    stays(&maps, "owner").await?;
    Ok(())
}

#[tokio::test]
async fn owners_in_another_scope_are_judged_only_where_they_can_be_found() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let (nodes, leases) = (cluster.all::<Node>(), cluster.inside::<Lease>("kube-node-lease"));
    let maps = cluster.inside::<ConfigMap>("default");
    let node = make(&nodes, owned("owner", &[])).await?;
    make(&leases, owned("owner", &[reference(&node)])).await?;
    let map = make(&maps, owned("inside", &[])).await?;
    make(&nodes, owned("outside", &[reference(&map)])).await?;
    let mut unknown = reference(&map);
    unknown["kind"] = "Widget".into();
    make(&maps, owned("of-unknown", &[unknown])).await?;
    stays(&leases, "owner").await?;
    nodes.delete("owner", &DeleteParams::default()).await?;
    gone(&leases, "owner").await?;
    maps.delete("inside", &DeleteParams::default()).await?;
    stays(&nodes, "outside").await?;
    maps.get("of-unknown").await?;
    Ok(())
}

#[tokio::test]
async fn an_owner_deleted_in_the_foreground_goes_after_its_dependents() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.inside::<ConfigMap>("default");
    let owner = make(&maps, owned("owner", &[])).await?;
    let other = make(&maps, owned("other", &[])).await?;
    let child = make(&maps, owned("child", &[reference(&owner)])).await?;
    let mut held = owned("grandchild", &[reference(&child)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    make(&maps, held).await?;
    make(&maps, owned("shared", &[reference(&owner), reference(&other)])).await?;
    let mut free = reference(&owner);
    free["blockOwnerDeletion"] = false.into();
    make(&maps, owned("free", &[free])).await?;
    maps.delete("owner", &DeleteParams::foreground()).await?;
    gone(&maps, "free").await?;
    until("the other owner is left", || async { Ok(owners(maps.get("shared").await?.meta()) == ["other"]) }).await?;
    assert_eq!(stays(&maps, "owner").await?.finalizers(), ["foregroundDeletion"]);
    assert_eq!(maps.get("child").await?.finalizers(), ["foregroundDeletion"]);
    let_go(&maps, "grandchild").await?;
    for name in ["grandchild", "child", "owner"] {
        gone(&maps, name).await?;
    }
    maps.get("shared").await?;
    Ok(())
}

#[tokio::test]
async fn owners_of_each_other_do_not_wait_forever() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.inside::<ConfigMap>("default");
    let a = make(&maps, owned("a", &[])).await?;
    let b = make(&maps, owned("b", &[reference(&a)])).await?;
    let c = make(&maps, owned("c", &[reference(&b)])).await?;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [reference(&c)]}}));
    maps.patch("a", &PatchParams::default(), &patch).await?;
    stays(&maps, "a").await?;
    maps.delete("a", &DeleteParams::foreground()).await?;
    for name in ["a", "b", "c"] {
        gone(&maps, name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn orphans_live_on_without_the_reference() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let maps = cluster.inside::<ConfigMap>("default");
    let owner = make(&maps, owned("owner", &[])).await?;
    make(&maps, owned("child", &[reference(&owner)])).await?;
    maps.delete(
        "owner",
        &DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..DeleteParams::default() },
    )
    .await?;
    gone(&maps, "owner").await?;
    assert!(owners(stays(&maps, "child").await?.meta()).is_empty());
    Ok(())
}

// === What every namespace has ===

#[tokio::test]
async fn the_default_account_and_the_authority_come_back() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    cluster.namespace("a").await?;
    let (accounts, maps) = (cluster.inside::<ServiceAccount>("a"), cluster.inside::<ConfigMap>("a"));
    until("the account is made", || async { Ok(accounts.get_opt("default").await?.is_some()) }).await?;
    until("the authority is told", || async { Ok(maps.get_opt("kube-root-ca.crt").await?.is_some()) }).await?;
    let first = accounts.get("default").await?.uid();
    accounts.delete("default", &DeleteParams::default()).await?;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await?;
    until("the account is made anew", || async {
        Ok(accounts.get_opt("default").await?.is_some_and(|account| account.uid() != first))
    })
    .await?;
    until("the authority is told anew", || async { Ok(maps.get_opt("kube-root-ca.crt").await?.is_some()) }).await?;
    let told = maps.get("kube-root-ca.crt").await?.data;
    let forged = Patch::Merge(json!({"data": {"ca.crt": "forged", "more": "x"}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &forged).await?;
    until("the authority is put right", || async { Ok(maps.get("kube-root-ca.crt").await?.data == told) }).await
}

// === Pods and their endpoints ===

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}],
        },
    })
}

async fn run(pods: &Api<Pod>, name: &str, ip: &str, ready: bool) -> Result<(), Failure> {
    let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
    let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    Ok(())
}

/// The addresses of a Service's only slice, each with its readiness.
async fn endpoints(slices: &Api<EndpointSlice>) -> Result<Vec<(String, bool)>, kube::Error> {
    let found = slices.list(&ListParams::default().labels("kubernetes.io/service-name=web")).await?;
    let endpoints = found.items.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
    let shown = endpoints.map(|e| (e.addresses.concat(), e.conditions.and_then(|c| c.ready) == Some(true)));
    Ok(shown.collect())
}

#[tokio::test]
async fn an_endpoint_slice_follows_the_pods_of_its_service() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    let (services, pods) = (cluster.inside::<Service>("default"), cluster.inside::<Pod>("default"));
    let slices = cluster.inside::<EndpointSlice>("default");
    make(&cluster.all::<Node>(), json!({"metadata": {"name": "node", "labels": {"topology.kubernetes.io/zone": "z"}}}))
        .await?;
    until("the account is there", || async {
        Ok(cluster.inside::<ServiceAccount>("default").get_opt("default").await?.is_some())
    })
    .await?;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"name": "w", "port": 80, "targetPort": "http"}]});
    make(&services, json!({"metadata": {"name": "web", "labels": {"team": "x"}}, "spec": spec})).await?;
    make(&pods, pod("a")).await?;
    make(&pods, pod("b")).await?;
    run(&pods, "a", "10.1.0.1", true).await?;
    run(&pods, "b", "10.1.0.2", false).await?;
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
    let leaving = wanted(&[("10.1.0.1", false), ("10.1.0.2", false)]);
    until("a leaving pod is not ready", || async { Ok(endpoints(&slices).await? == leaving) }).await?;
    pods.delete("a", &DeleteParams::default().grace_period(0)).await?;
    let last = wanted(&[("10.1.0.2", false)]);
    until("a pod that is gone is not listed", || async { Ok(endpoints(&slices).await? == last) }).await?;
    services.delete("web", &DeleteParams::default()).await?;
    until("the slice goes with its service", || async { Ok(slices.get_opt(&slice.name_any()).await?.is_none()) }).await
}

#[tokio::test]
async fn a_pod_goes_when_its_grace_period_is_over() -> Result<(), Failure> {
    let cluster = Cluster::start().await?;
    cluster.namespace("a").await?;
    let (accounts, pods) = (cluster.inside::<ServiceAccount>("a"), cluster.inside::<Pod>("a"));
    until("the account is there", || async { Ok(accounts.get_opt("default").await?.is_some()) }).await?;
    make(&pods, pod("slow")).await?;
    make(&pods, pod("quick")).await?;
    pods.delete("slow", &DeleteParams::default().grace_period(600)).await?;
    pods.delete("quick", &DeleteParams::default().grace_period(1)).await?;
    gone(&pods, "quick").await?;
    pods.get("slow").await?;
    pods.delete("slow", &DeleteParams::default().grace_period(1)).await?;
    gone(&pods, "slow").await
}
