//! Many concurrent Services, and Services that share a load balancer.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_openstack_simulator::{Entry, Kind};
use futures::future::join_all;
use kube::api::DeleteParams;

use crate::openstack_trouble::scene::{Scene, taking};
use crate::support::Program;

/// Waits until these Services are deleted.
async fn wait_for_deletion(scene: &Scene, manager: &Program, names: &[String]) {
    for name in names {
        scene.service_deleted(manager, name).await;
    }
}

/// Creates ten Services at once and deletes them; returns the calls of both.
async fn create_and_delete_ten(test: &str, without: &str) -> (Vec<Entry>, Vec<Entry>) {
    let scene = Scene::with(test, taking(Duration::from_secs(2))).await;
    scene.cloud.set_latency(Duration::from_millis(30));
    scene.configure(&scene.lines().replace(without, ""));
    let mut manager = scene.manager(test);
    // The first Service is not counted: with it, the manager authenticates and detects the features of Octavia.
    scene.create("web").await;
    scene.address(&manager, "web").await;
    scene.cloud.forget_calls();
    let names: Vec<String> = (0..10).map(|number| format!("crowd-{number}")).collect();
    join_all(names.iter().map(|name| scene.create(name))).await;
    for name in &names {
        scene.address(&manager, name).await;
    }
    // Waits for all remaining calls.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let created = scene.cloud.journal();
    scene.cloud.forget_calls();
    let (services, how) = (scene.services(), DeleteParams::default());
    join_all(names.iter().map(|name| services.delete(name, &how))).await;
    wait_for_deletion(&scene, &manager, &names).await;
    let deleted = scene.cloud.journal();
    scene.end(&mut manager, "web").await;
    (created, deleted)
}

/// Each kind of call with its number, the most frequent first.
fn counted(calls: &[Entry]) -> Vec<(usize, String)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in calls {
        *counts.entry(format!("{} {}", call.method, call.template)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().map(|(call, count)| (count, call)).collect();
    counts.sort();
    counts.into_iter().rev().collect()
}

/// The Go manager needs 132 calls to create ten Services and 159 to delete them.
#[tokio::test(flavor = "multi_thread")]
async fn ten_concurrent_services_need_no_more_calls_than_the_go_manager() {
    let (created, deleted) = create_and_delete_ten("crowd", "manage-security-groups = true\n").await;
    assert!(created.len() <= 132, "{} {:#?}", created.len(), counted(&created));
    assert!(deleted.len() <= 159, "{} {:#?}", deleted.len(), counted(&deleted));
}

/// Each Service writes to the ports of both nodes.
#[tokio::test(flavor = "multi_thread")]
async fn ten_concurrent_services_update_each_port_once_without_conflicts() {
    let (created, deleted) = create_and_delete_ten("crowd-groups", "nothing").await;
    assert!(created.len() <= 350, "{} {:#?}", created.len(), counted(&created));
    assert!(deleted.len() <= 230, "{} {:#?}", deleted.len(), counted(&deleted));
    for calls in [created, deleted] {
        let writes: Vec<_> =
            calls.iter().filter(|call| call.method == "PUT" && call.template == "ports/{id}").collect();
        assert_eq!(writes.len(), 20, "{:#?}", counted(&calls));
        assert!(writes.iter().all(|call| call.status == Some(200)), "{writes:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_share_a_load_balancer_and_are_deleted_without_a_manager_leave_nothing() {
    let scene = Scene::with("shared", taking(Duration::from_millis(300))).await;
    let mut manager = scene.manager("shared");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    let balancer = scene.balancer("web");
    scene.create_with("other", 81, &[("loadbalancer.openstack.org/load-balancer-id", &balancer)]).await;
    scene.address(&manager, "other").await;
    let tags =
        || scene.cloud.record(Kind::LoadBalancer, &balancer).map(|record| record["tags"].as_array().unwrap().len());
    scene.eventually(&manager, "two tags", || async { (tags() == Some(2)).then_some(()) }).await;
    assert_eq!(manager.stop("-TERM").code(), Some(0));
    let names = ["web", "other"].map(str::to_owned);
    for name in &names {
        scene.services().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let mut manager = scene.manager("shared-again");
    wait_for_deletion(&scene, &manager, &names).await;
    scene.is_clean();
    assert_eq!(manager.stop("-TERM").code(), Some(0));
}
