//! The manager does what the plan said, all of it and nothing else, and then there is nothing left to plan.

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

use crate::balancing::{FINALIZER, finalizers, ingress};
use crate::noted::Notes;
use crate::world::World;
use crate::wrappers::Steered;

const WHILE: Duration = Duration::from_secs(60);

/// Two nodes and a cloud of which every step is noted.
async fn world() -> (World, Arc<Notes>) {
    noted(World::with_nodes(&["a", "b"]).await)
}

fn noted(mut world: World) -> (World, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let taken = notes.clone();
    world.wrap = Box::new(move |inner| taken.about(inner));
    (world, notes)
}

/// The same, with a Service `web` that an earlier manager has served.
async fn served() -> (World, Arc<Notes>) {
    let (mut world, notes) = world().await;
    world.serve("web").await;
    run(&mut world).await;
    (world, notes)
}

/// A manager works until all is quiet.
async fn run(world: &mut World) {
    world.start();
    world.pass(WHILE).await;
    world.stop().await;
}

async fn plan(world: &World) -> Forecast {
    let cluster = Cluster::new(world.server.in_process_client());
    let nodes = cluster.list_nodes().await.unwrap();
    let snapshot =
        Snapshot { nodes, services: cluster.list_services().await.unwrap(), cluster_uid: cluster.uid().await.unwrap() };
    let now = Moment { instant: Instant::now(), wall: Timestamp::now() };
    let clouds = world.layered_clouds(&prometheus::Registry::new());
    forecast(&snapshot, &clouds, &world.options, now).await.unwrap()
}

/// Takes the plan and lets a manager work. Every step and every write was planned, in that order, and came to be; nothing
/// is left to do. Says how many steps and writes that were.
async fn comes_true(world: &mut World, notes: &Notes) -> (usize, usize) {
    let planned = plan(world).await;
    let summary = planned.summary();
    notes.forget();
    let before = world.patches();
    run(world).await;
    assert_eq!(by_service(notes.steps()), by_service(steps(&planned)), "in the cloud");
    assert_eq!(world.patches() - before, summary.in_cluster as u64, "in the cluster: {planned:#?}");
    for item in &planned.items {
        has_come_true(world, item).await;
    }
    let left = plan(world).await;
    assert!(left.summary().is_unchanged(), "{left:#?}");
    (summary.in_clouds, summary.in_cluster)
}

/// The planned steps, each with its Service.
fn steps(forecast: &Forecast) -> Vec<(String, String)> {
    let of = |item: &Item| {
        let service = format!("{}/{}", item.object.namespace.as_deref().unwrap_or_default(), item.object.name);
        let steps = item.in_cloud.steps.iter();
        steps.map(|step| (service.clone(), step.to_string())).collect::<Vec<_>>()
    };
    forecast.items.iter().flat_map(of).collect()
}

/// Services are worked on side by side; the order of steps is one for each.
fn by_service(steps: Vec<(String, String)>) -> BTreeMap<String, Vec<String>> {
    let mut services: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (service, step) in steps {
        services.entry(service).or_default().push(step);
    }
    services
}

/// The Service, if it is still there, says what the plan said that it would.
async fn has_come_true(world: &World, item: &Item) {
    let Some(service) = world.services.get_opt(&item.object.name).await.unwrap() else { return };
    for FieldChange { field, to, .. } in item.in_cluster.steps.iter().flat_map(|step| &step.changes) {
        match field.as_str() {
            "finalizer" => assert_eq!(finalizers(&service).contains(&FINALIZER.to_owned()), to.is_some()),
            "status.loadBalancer" => assert_eq!(ingress(&service).is_empty(), to.is_none()),
            "condition bowline.dev/LoadBalancerReady" => {
                let condition = world.condition(&item.object.name).await;
                let told = condition.map(|(status, _, message)| [status, message]);
                assert!(told.as_ref().map_or(to.is_none(), |told| told.iter().any(|told| Some(told) == to.as_ref())));
            }
            field => panic!("nobody writes {field}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_service_is_served_as_planned() {
    let (mut world, notes) = world().await;
    world.serve("web").await;
    assert_eq!(comes_true(&mut world, &notes).await, (2, 2));
}

#[tokio::test(start_paused = true)]
async fn other_ports_are_as_planned() {
    let (mut world, notes) = served().await;
    let ports = json!([{"name": "tls", "port": 443}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    world.patch_service("web", json!({"spec": {"ports": ports}})).await;
    assert_eq!(comes_true(&mut world, &notes).await, (1, 1), "the local cloud lists ports in the status");
    world.patch_service("web", json!({"spec": {"sessionAffinity": "ClientIP"}})).await;
    assert_eq!(comes_true(&mut world, &notes).await, (1, 0));
}

#[tokio::test(start_paused = true)]
async fn another_ip_mode_is_one_write_as_planned() {
    let (mut world, notes) = served().await;
    world.annotate("web", "bowline.dev/ip-mode", Some("VIP")).await;
    assert_eq!(comes_true(&mut world, &notes).await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn another_type_takes_the_balancer_away_as_planned() {
    let (mut world, notes) = served().await;
    world.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    assert_eq!(comes_true(&mut world, &notes).await, (2, 1));
    world.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    assert_eq!(comes_true(&mut world, &notes).await, (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_as_planned_even_if_somebody_else_holds_the_service() {
    let (mut world, notes) = served().await;
    world.serve_with("held", json!({"metadata": {"finalizers": ["example.com/audit"]}})).await;
    run(&mut world).await;
    world.delete_service("web").await;
    world.delete_service("held").await;
    assert_eq!(comes_true(&mut world, &notes).await, (4, 2));
    assert_eq!(finalizers(&world.service("held").await), ["example.com/audit"]);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_that_is_to_stay_stays_as_planned() {
    let (mut world, notes) = served().await;
    world.serve_with("kept", json!({"metadata": {"annotations": {"bowline.dev/policy": "protect"}}})).await;
    run(&mut world).await;
    world.annotate("web", "bowline.dev/policy", Some("retain")).await;
    world.delete_service("web").await;
    world.delete_service("kept").await;
    comes_true(&mut world, &notes).await;
    assert_eq!(world.cloud().balancers().len(), 2);
    world.service_gone("web").await;
    assert_eq!(finalizers(&world.service("kept").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_refused_as_planned_and_so_is_what_is_refused_for_another_reason() {
    let (mut world, notes) = served().await;
    world.serve_with("odd", json!({"metadata": {"annotations": {"bowline.dev/internal": "perhaps"}}})).await;
    world.annotate("web", "bowline.dev/idle-timeout", Some("soon")).await;
    assert_eq!(comes_true(&mut world, &notes).await, (0, 2), "two conditions");
    world.annotate("odd", "bowline.dev/internal", Some("maybe")).await;
    assert_eq!(comes_true(&mut world, &notes).await, (0, 1), "other words");
    assert_eq!(plan(&world).await.summary().refused, 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_somebody_elses_is_left_alone_as_planned() {
    let (mut world, notes) = noted(World::with_prefixes(&["east", "west"]).await);
    world.options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    world.serve_with("foreign", json!({"spec": {"loadBalancerClass": "example.com/other"}})).await;
    world.serve("classless").await;
    let retyped = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"type": "ClusterIP"}});
    world.serve_with("retyped", retyped).await;
    assert_eq!(comes_true(&mut world, &notes).await, (0, 0));
    assert_eq!(finalizers(&world.service("retyped").await), [FINALIZER]);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_our_class_that_changes_its_type_is_cleaned_up_in_its_cloud_as_planned() {
    let (mut world, notes) = noted(World::with_prefixes(&["east", "west"]).await);
    world.options.service.as_mut().unwrap().default_cloud = DefaultCloud::None;
    world.serve_with("mine", json!({"spec": {"loadBalancerClass": "bowline.dev/local-west"}})).await;
    comes_true(&mut world, &notes).await;
    world.patch_service("mine", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await;
    let planned = plan(&world).await;
    assert_eq!(planned.items[0].cloud.as_deref(), Some("local-west"));
    assert_eq!(comes_true(&mut world, &notes).await, (2, 1));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_does_in_the_cloud_is_left_to_them_as_planned() {
    let (mut world, notes) = world().await;
    let taken = notes.clone();
    world.wrap = Box::new(move |inner| {
        let steer = Arc::new(|_: &str| Some(Error::new(ErrorKind::ImplementedElsewhere, "observe", "elsewhere")));
        Steered::around(taken.about(inner), steer)
    });
    world.serve("web").await;
    assert_eq!(comes_true(&mut world, &notes).await, (0, 1), "the finalizer");
    world.delete_service("web").await;
    assert_eq!(comes_true(&mut world, &notes).await, (0, 1), "and its end");
    world.service_gone("web").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_and_go_are_as_planned() {
    let (mut world, notes) = served().await;
    world.serve("other").await;
    run(&mut world).await;
    world.join_machine("c", 7).await;
    let (steps, writes) = comes_true(&mut world, &notes).await;
    assert!(steps >= 2 && writes == 0, "{steps} steps, {writes} writes");
    world.delete("a").await;
    let (steps, writes) = comes_true(&mut world, &notes).await;
    assert!(steps >= 2 && writes == 0, "{steps} steps, {writes} writes");
}

/// What would be done about each object, in a few words.
fn in_words(forecast: &Forecast) -> Vec<String> {
    let all = forecast.items.iter().flat_map(|item| {
        let steps = item.in_cloud.steps.iter().chain(&item.in_cluster.steps);
        steps.map(|step| format!("{}: {} {} {}", item.object.title(), step.verb, step.kind, step.name))
    });
    all.collect()
}

#[tokio::test(start_paused = true)]
async fn routes_come_and_go_as_planned() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.lead("10.120.0.0/24", "c");
    world.lead("10.120.5.0/24", "b");
    world.lead("10.120.6.0/24", "c");
    world.lead("192.168.0.0/24", "c");
    let planned = plan(&world).await;
    assert_eq!(
        in_words(&planned),
        [
            "Node a: delete route 10.120.0.0/24",
            "Node a: create route 10.120.0.0/24",
            "Node a: update Node a",
            "Node b: create route 10.120.1.0/24",
            "Node b: delete route 10.120.5.0/24",
            "Node b: update Node b",
            // Not that of Node a's range: it is gone by then.
            "Route 10.120.6.0/24: delete route 10.120.6.0/24",
        ]
    );
    world.cloud().reset_calls();
    run(&mut world).await;
    assert_eq!(world.cloud().writes(), planned.summary().in_clouds as u64);
    assert_eq!(world.led(), ["10.120.0.0/24 a", "10.120.1.0/24 b", "192.168.0.0/24 c"]);
    assert_eq!(in_words(&plan(&world).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_route_to_a_machine_that_is_gone_is_planned() {
    let world = World::with_routes(&["a", "b"]).await;
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.cloud().delete("id-b").unwrap();
    let planned = plan(&world).await;
    assert_eq!(in_words(&planned), ["Node a: create route 10.120.0.0/24", "Node a: update Node a"]);
    assert_eq!(planned.items[1].remarks[0].message, "no route is created: its machine is gone");
}

#[tokio::test(start_paused = true)]
async fn routes_that_the_brake_keeps_are_planned_as_held_back() {
    let world = World::with_routes(&["a", "b"]).await;
    world.lead("10.120.0.0/24", "a");
    world.lead("10.120.1.0/24", "b");
    let planned = plan(&world).await;
    assert_eq!((in_words(&planned).len(), planned.summary().held_back), (0, 2));
    assert!(planned.items[0].remarks[0].message.contains("no nodes at all"), "{planned:?}");
}

#[tokio::test(start_paused = true)]
async fn pod_ranges_are_handed_out_as_planned() {
    let mut world = World::with_routes(&["a", "b", "c"]).await;
    world.options.route = None;
    let range = ClusterCidr::new("10.120.0.0/22".parse().unwrap(), 24).unwrap();
    world.options.node_ipam = Some(node_ipam::Options {
        ranges: vec![range],
        services: vec!["10.120.3.0/24".parse().unwrap()],
        allocator: node_ipam::AllocatorType::Range,
    });
    world.join_with_ranges("b", &["10.120.1.0/24"]).await;
    world.join_with_ranges("a", &[]).await;
    world.join_with_ranges("c", &[]).await;
    world.join_with_ranges("d", &[]).await;
    let planned = plan(&world).await;
    let fields = planned.items.iter().flat_map(|item| &item.in_cluster.steps).flat_map(|step| &step.changes);
    let given: Vec<_> = fields.map(|change| change.to.clone().unwrap()).collect();
    assert_eq!(given, ["10.120.0.0/24", "10.120.2.0/24"]);
    assert_eq!(planned.summary().refused, 1, "there is none left for the third");
    run(&mut world).await;
    let after = plan(&world).await;
    assert_eq!((in_words(&after).len(), after.summary().refused), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_whose_routes_cannot_be_listed_is_planned_as_failed() {
    let mut world = World::with_routes(&["a"]).await;
    world.calls.max_attempts = 1;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("list-routes"));
    let planned = plan(&world).await;
    assert_eq!((in_words(&planned).len(), planned.summary().failed), (0, 1));
    assert_eq!(planned.items[0].object.title(), "Routes local");
}
