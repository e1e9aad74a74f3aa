//! Services whose load balancer an annotation of the cloud excludes from management.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Applied, CloudProvider, LoadBalancers, Result};
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Plan, Step};
use serde_json::json;

use crate::load_balancers::{FINALIZER, finalizers, ingress, ports};
use crate::plans::plan;
use crate::test_providers::{Wrapped, load_balancers_of};
use crate::world::World;

const SETTLE: Duration = Duration::from_secs(60);
const DISOWN: &str = "local.example/disown";

/// Load balancers with an annotation that excludes them from management, and the number of calls.
struct Disowned {
    inner: Arc<dyn CloudProvider>,
    calls: Arc<AtomicUsize>,
}

#[async_trait]
impl LoadBalancers for Disowned {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        let unmanaged = annotations.get(DISOWN).is_some_and(|value| value == "true");
        Ok(LoadBalancerSettings { unmanaged, ..common })
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        load_balancers_of(&self.inner).observe(wanted).await
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        load_balancers_of(&self.inner).list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        load_balancers_of(&self.inner).plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        load_balancers_of(&self.inner).apply(key, step, polled).await
    }
}

/// World with one Node and such a cloud, and the number of calls for load balancers.
async fn world() -> (World, Arc<AtomicUsize>) {
    let (mut world, calls) = (World::with_nodes(&["a"]).await, Arc::new(AtomicUsize::new(0)));
    let counter = calls.clone();
    world.wrap = Box::new(move |inner| Wrapped::balancers(inner.clone(), Disowned { inner, calls: counter.clone() }));
    world.start();
    (world, calls)
}

/// The same, with a Service `web` that had a managed load balancer before.
async fn with_disowned_service() -> (World, Arc<AtomicUsize>) {
    let (world, calls) = world().await;
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.annotate("web", DISOWN, Some("true")).await;
    world.sleep(SETTLE).await;
    calls.store(0, Ordering::SeqCst);
    (world, calls)
}

fn calls(calls: &AtomicUsize) -> usize {
    calls.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn an_unmanaged_service_keeps_load_balancer_and_status_without_a_call() {
    let (world, made) = with_disowned_service().await;
    let (before, events) = (world.service("web").await, world.reasons("web").await);
    assert_eq!((events["EnsuringLoadBalancer"], events["EnsuredLoadBalancer"]), (2, 2), "{events:?}");
    world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    world.join_machine("b", 1).await;
    world.sleep(SETTLE * 20).await;
    let (balancer, service) = (world.load_balancer(), world.service("web").await);
    assert_eq!((ports(&balancer), balancer.targets.len()), (vec![("Tcp".to_owned(), 80)], 1));
    assert_eq!((ingress(&service), finalizers(&service)), (ingress(&before), vec![FINALIZER.to_owned()]));
    let events = world.reasons("web").await;
    assert_eq!((events["EnsuringLoadBalancer"], events["EnsuredLoadBalancer"]), (3, 3), "{events:?}");
    let (status, reason, _) = world.condition("web").await.unwrap();
    assert_eq!((status.as_str(), reason.as_str(), calls(&made)), ("Unknown", "Unmanaged", 0));
    // Managed again, it gets everything that was left out.
    world.annotate("web", DISOWN, None).await;
    world.wait_for_targets(&["a", "b"]).await;
    world.sleep(SETTLE).await;
    assert_eq!(ports(&world.load_balancer()), [("Tcp".to_owned(), 81)]);
    assert_eq!(world.condition("web").await.unwrap().0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_unmanaged_from_the_start_gets_no_load_balancer() {
    let (world, made) = world().await;
    // An invalid common annotation makes no difference.
    let annotations = json!({DISOWN: "true", "bowline.dev/policy": "maybe"});
    world.create_service_with("web", json!({"metadata": {"annotations": annotations}})).await;
    world.wait_for_event("web", "EnsuredLoadBalancer").await;
    world.sleep(SETTLE * 20).await;
    let service = world.service("web").await;
    assert_eq!((ingress(&service), finalizers(&service)), (vec![], vec![FINALIZER.to_owned()]));
    assert_eq!((calls(&made), world.cloud().balancers().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_an_unmanaged_service_leaves_the_load_balancer() {
    let (world, made) = with_disowned_service().await;
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    world.sleep(SETTLE * 20).await;
    assert_eq!((calls(&made), world.cloud().balancers().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unmanaged_service_of_another_type_loses_its_address_and_leaves_the_load_balancer() {
    let (world, made) = with_disowned_service().await;
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    world.sleep(SETTLE).await;
    let service = world.service("web").await;
    assert!(ingress(&service).is_empty() && finalizers(&service).is_empty(), "{service:?}");
    assert_eq!((calls(&made), world.cloud().balancers().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_load_balancer_of_an_unmanaged_service_stays_if_its_finalizer_is_removed() {
    let (world, made) = with_disowned_service().await;
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.delete_service("web").await;
    world.wait_until_service_deleted("web").await;
    world.sleep(SETTLE * 20).await;
    assert_eq!((calls(&made), world.cloud().balancers().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_forecast_says_that_a_load_balancer_is_unmanaged_and_plans_nothing_for_it() {
    let (mut world, made) = with_disowned_service().await;
    world.stop().await;
    world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    for is_deleted in [false, true] {
        if is_deleted {
            world.delete_service("web").await;
        }
        let forecast = plan(&world).await;
        let item = forecast.items.iter().find(|item| item.object.name == "web").unwrap();
        let note =
            "The load balancer is unmanaged, by an annotation of the Service: nothing is read or changed in local.";
        assert_eq!(item.notices.iter().map(|notice| notice.message.as_str()).collect::<Vec<_>>(), [note]);
        assert_eq!((item.in_cloud.steps.len(), item.in_cluster.steps.len()), (0, usize::from(is_deleted)), "{item:?}");
        assert_eq!(calls(&made), 0);
    }
}
