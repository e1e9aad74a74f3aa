//! The manager applies exactly the forecast plan, and the next plan is empty.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_cloud::{Error, ErrorKind};
use bowline_controllers::forecast::{Forecast, Item, Snapshot, forecast};
use bowline_controllers::node_ipam;
use bowline_controllers::service::DefaultCloud;
use bowline_core::FieldChange;
use bowline_core::ipam::ClusterCidr;
use bowline_core::lifecycle::Moment;
use bowline_kube::Cluster;
use bowline_local::{Fault, FaultSpec};
use jiff::Timestamp;
use serde_json::json;

use crate::load_balancers::{FINALIZER, finalizers, ingress};
use crate::recorder::Recorder;
use crate::test_providers::FaultInjector;
use crate::world::World;

const SETTLE: Duration = Duration::from_secs(60);

/// World with two Nodes and a cloud whose steps are recorded.
async fn world() -> (World, Arc<Recorder>) {
    recorded(World::with_nodes(&["a", "b"]).await)
}

fn recorded(mut world: World) -> (World, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let wrapper = recorder.clone();
    world.wrap = Box::new(move |inner| wrapper.wrap(inner));
    (world, recorder)
}

/// The same, with a Service `web` whose load balancer exists.
async fn world_with_service() -> (World, Arc<Recorder>) {
    let (mut world, recorder) = world().await;
    world.create_service("web").await;
    run(&mut world).await;
    (world, recorder)
}

/// Runs a manager until it has settled.
async fn run(world: &mut World) {
    world.start();
    world.sleep(SETTLE).await;
    world.stop().await;
}

/// Forecasts what a manager would change now.
pub(crate) async fn plan(world: &World) -> Forecast {
    let cluster = Cluster::new(world.server.in_process_client());
    let nodes = cluster.list_nodes().await.unwrap();
    let snapshot =
        Snapshot { nodes, services: cluster.list_services().await.unwrap(), cluster_uid: cluster.uid().await.unwrap() };
    let now = Moment { instant: Instant::now(), wall: Timestamp::now() };
    let clouds = world.layered_clouds(&prometheus::Registry::new());
    forecast(&snapshot, &clouds, &world.options, now).await.unwrap()
}

/// Plans, runs a manager, and asserts that exactly the planned steps and writes were made, in that order, and that the next plan is
/// empty. Returns the number of steps and of writes.
async fn assert_applied_as_planned(world: &mut World, recorder: &Recorder) -> (usize, usize) {
    let planned = plan(world).await;
    let summary = planned.summary();
    recorder.forget();
    let before = world.patches();
    run(world).await;
    assert_eq!(by_service(recorder.steps()), by_service(steps(&planned)), "in the cloud");
    assert_eq!(world.patches() - before, summary.in_cluster as u64, "in the cluster: {planned:#?}");
    for item in &planned.items {
        assert_written(world, item).await;
    }
    let left = plan(world).await;
    assert!(left.summary().is_unchanged(), "{left:#?}");
    (summary.in_clouds, summary.in_cluster)
}

/// Planned steps, each with its Service.
fn steps(forecast: &Forecast) -> Vec<(String, String)> {
    let of = |item: &Item| {
        let service = format!("{}/{}", item.object.namespace.as_deref().unwrap_or_default(), item.object.name);
        let steps = item.in_cloud.steps.iter();
        steps.map(|step| (service.clone(), step.to_string())).collect::<Vec<_>>()
    };
    forecast.items.iter().flat_map(of).collect()
}

/// Groups steps by Service: Services are synced concurrently, so that only the order per Service is defined.
fn by_service(steps: Vec<(String, String)>) -> BTreeMap<String, Vec<String>> {
    let mut services: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (service, step) in steps {
        services.entry(service).or_default().push(step);
    }
    services
}

/// Asserts that the Service, if it still exists, has the planned fields.
async fn assert_written(world: &World, item: &Item) {
    let Some(service) = world.services.get_opt(&item.object.name).await.unwrap() else { return };
    for FieldChange { field, to, .. } in item.in_cluster.steps.iter().flat_map(|step| &step.changes) {
        match field.as_str() {
            "finalizer" => assert_eq!(finalizers(&service).contains(&FINALIZER.to_owned()), to.is_some()),
            "status.loadBalancer" => assert_eq!(ingress(&service).is_empty(), to.is_none()),
            "condition bowline.dev/LoadBalancerReady" => {
                let condition = world.condition(&item.object.name).await;
                let texts = condition.map(|(status, _, message)| [status, message]);
                assert!(
                    texts.as_ref().map_or(to.is_none(), |texts| texts.iter().any(|text| Some(text) == to.as_ref()))
                );
            }
            field => panic!("no controller writes {field}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_service_gets_its_load_balancer_as_planned() {
    let (mut world, recorder) = world().await;
    world.create_service("web").await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (2, 2));
}

#[tokio::test(start_paused = true)]
async fn changed_ports_are_applied_as_planned() {
    let (mut world, recorder) = world_with_service().await;
    let ports = json!([{"name": "tls", "port": 443}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    world.patch_service("web", json!({"spec": {"ports": ports}})).await;
    assert_eq!(
        assert_applied_as_planned(&mut world, &recorder).await,
        (1, 1),
        "the local cloud lists ports in the status"
    );
    world.patch_service("web", json!({"spec": {"sessionAffinity": "ClientIP"}})).await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_changed_ip_mode_is_one_write_as_planned() {
    let (mut world, recorder) = world_with_service().await;
    world.annotate("web", "bowline.dev/ip-mode", Some("VIP")).await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_changed_type_deletes_the_load_balancer_as_planned() {
    let (mut world, recorder) = world_with_service().await;
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (2, 1));
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_applied_as_planned_even_with_a_foreign_finalizer() {
    let (mut world, recorder) = world_with_service().await;
    world.create_service_with("held", json!({"metadata": {"finalizers": ["example.com/audit"]}})).await;
    run(&mut world).await;
    world.delete_service("web").await;
    world.delete_service("held").await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (4, 2));
    assert_eq!(finalizers(&world.service("held").await), ["example.com/audit"]);
}

#[tokio::test(start_paused = true)]
async fn a_retained_or_protected_load_balancer_stays_as_planned() {
    let (mut world, recorder) = world_with_service().await;
    world.create_service_with("kept", json!({"metadata": {"annotations": {"bowline.dev/policy": "protect"}}})).await;
    run(&mut world).await;
    world.annotate("web", "bowline.dev/policy", Some("retain")).await;
    world.delete_service("web").await;
    world.delete_service("kept").await;
    assert_applied_as_planned(&mut world, &recorder).await;
    assert_eq!(world.cloud().balancers().len(), 2);
    world.wait_until_service_deleted("web").await;
    assert_eq!(finalizers(&world.service("kept").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_service_is_refused_as_planned_and_so_is_one_with_another_error() {
    let (mut world, recorder) = world_with_service().await;
    world.create_service_with("odd", json!({"metadata": {"annotations": {"bowline.dev/internal": "perhaps"}}})).await;
    world.annotate("web", "bowline.dev/idle-timeout", Some("soon")).await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (0, 2), "two conditions");
    world.annotate("odd", "bowline.dev/internal", Some("maybe")).await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (0, 1), "another message");
    assert_eq!(plan(&world).await.summary().refused, 2);
}

#[tokio::test(start_paused = true)]
async fn services_of_other_controllers_are_unchanged_as_planned() {
    let (mut world, recorder) = recorded(World::with_prefixes(&["east", "west"]).await);
    world.options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    world.create_service_with("foreign", json!({"spec": {"loadBalancerClass": "example.com/other"}})).await;
    world.create_service("classless").await;
    let retyped = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"type": "ClusterIP"}});
    world.create_service_with("retyped", retyped).await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (0, 0));
    assert_eq!(finalizers(&world.service("retyped").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_our_class_that_changes_its_type_is_cleaned_up_in_its_cloud_as_planned() {
    let (mut world, recorder) = recorded(World::with_prefixes(&["east", "west"]).await);
    world.options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    world.create_service_with("mine", json!({"spec": {"loadBalancerClass": "bowline.dev/local-west"}})).await;
    assert_applied_as_planned(&mut world, &recorder).await;
    world.patch_service("mine", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await;
    let planned = plan(&world).await;
    assert_eq!(planned.items[0].cloud.as_deref(), Some("local-west"));
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_implemented_elsewhere_is_unchanged_as_planned() {
    let (mut world, recorder) = world().await;
    let wrapper = recorder.clone();
    world.wrap = Box::new(move |inner| {
        let error_source =
            Arc::new(|_: &str| Some(Error::new(ErrorKind::ImplementedElsewhere, "observe", "elsewhere")));
        FaultInjector::wrap(wrapper.wrap(inner), error_source)
    });
    world.create_service("web").await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (0, 1), "the finalizer");
    world.delete_service("web").await;
    assert_eq!(assert_applied_as_planned(&mut world, &recorder).await, (0, 1), "its removal");
    world.wait_until_service_deleted("web").await;
}

#[tokio::test(start_paused = true)]
async fn added_and_deleted_nodes_change_targets_as_planned() {
    let (mut world, recorder) = world_with_service().await;
    world.create_service("other").await;
    run(&mut world).await;
    world.join_machine("c", 7).await;
    let (steps, writes) = assert_applied_as_planned(&mut world, &recorder).await;
    assert!(steps >= 2 && writes == 0, "{steps} steps, {writes} writes");
    world.delete("a").await;
    let (steps, writes) = assert_applied_as_planned(&mut world, &recorder).await;
    assert!(steps >= 2 && writes == 0, "{steps} steps, {writes} writes");
}

/// One line per planned step.
fn step_lines(forecast: &Forecast) -> Vec<String> {
    let all = forecast.items.iter().flat_map(|item| {
        let steps = item.in_cloud.steps.iter().chain(&item.in_cluster.steps);
        steps.map(|step| format!("{}: {} {} {}", item.object.title(), step.verb, step.kind, step.name))
    });
    all.collect()
}

#[tokio::test(start_paused = true)]
async fn routes_are_created_and_deleted_as_planned() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.create_route_by_hand("10.120.0.0/24", "c");
    world.create_route_by_hand("10.120.5.0/24", "b");
    world.create_route_by_hand("10.120.6.0/24", "c");
    world.create_route_by_hand("192.168.0.0/24", "c");
    let planned = plan(&world).await;
    assert_eq!(
        step_lines(&planned),
        [
            "Node a: delete route 10.120.0.0/24",
            "Node a: create route 10.120.0.0/24",
            "Node a: update Node a",
            "Node b: create route 10.120.1.0/24",
            "Node b: delete route 10.120.5.0/24",
            "Node b: update Node b",
            // Not the old route to Node a's pod CIDR, which is deleted for Node a.
            "Route 10.120.6.0/24: delete route 10.120.6.0/24",
        ]
    );
    world.cloud().reset_calls();
    run(&mut world).await;
    assert_eq!(world.cloud().writes(), planned.summary().in_clouds as u64);
    assert_eq!(world.routes(), ["10.120.0.0/24 a", "10.120.1.0/24 b", "192.168.0.0/24 c"]);
    assert_eq!(step_lines(&plan(&world).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_route_to_a_deleted_machine_is_planned() {
    let world = World::with_routes(&["a", "b"]).await;
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.cloud().delete("id-b").unwrap();
    let planned = plan(&world).await;
    assert_eq!(step_lines(&planned), ["Node a: create route 10.120.0.0/24", "Node a: update Node a"]);
    assert_eq!(planned.items[1].notices[0].message, "no route is created, because its machine is gone");
}

#[tokio::test(start_paused = true)]
async fn routes_that_the_brake_holds_back_are_planned_as_held_back() {
    let world = World::with_routes(&["a", "b"]).await;
    world.create_route_by_hand("10.120.0.0/24", "a");
    world.create_route_by_hand("10.120.1.0/24", "b");
    let planned = plan(&world).await;
    assert_eq!((step_lines(&planned).len(), planned.summary().held_back), (0, 2));
    assert!(planned.items[0].notices[0].message.contains("no nodes at all"), "{planned:?}");
}

#[tokio::test(start_paused = true)]
async fn pod_cidrs_are_allocated_as_planned() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    world.options.route = None;
    let range = ClusterCidr::new("10.120.0.0/22".parse().unwrap(), 24).unwrap();
    world.options.node_ipam = Some(node_ipam::Options {
        cluster_cidrs: vec![range],
        service_cidrs: vec!["10.120.3.0/24".parse().unwrap()],
        allocator: node_ipam::AllocatorType::Range,
    });
    world.join_with_cidrs("b", &["10.120.1.0/24"]).await;
    world.join_with_cidrs("a", &[]).await;
    world.join_with_cidrs("c", &[]).await;
    world.join_with_cidrs("d", &[]).await;
    let planned = plan(&world).await;
    let fields = planned.items.iter().flat_map(|item| &item.in_cluster.steps).flat_map(|step| &step.changes);
    let given: Vec<_> = fields.map(|change| change.to.clone().unwrap()).collect();
    assert_eq!(given, ["10.120.0.0/24", "10.120.2.0/24"]);
    assert_eq!(planned.summary().refused, 1, "no block is left for the third Node");
    run(&mut world).await;
    let after = plan(&world).await;
    assert_eq!((step_lines(&after).len(), after.summary().refused), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_whose_routes_cannot_be_listed_is_planned_as_failed() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("list-routes"));
    let planned = plan(&world).await;
    assert_eq!((step_lines(&planned).len(), planned.summary().failed), (0, 1));
    assert_eq!(planned.items[0].object.title(), "Routes local");
}
