//! Removal, sharing, and orphans of deleted Services.

use std::time::Duration;

use bowline_cloud::LoadBalancers;
use bowline_core::ClusterName;
use bowline_openstack_simulator::{Kind, Options, Work};
use serde_json::json;

use crate::balancers_end_to_end::world::{INTERNAL, LB_ID, Service, World, text};

async fn listed(world: &World) -> Vec<String> {
    let keys = LoadBalancers::list(&world.provider, &ClusterName::from("kubernetes")).await.unwrap();
    keys.iter().map(|key| format!("{}/{}/{}", key.namespace, key.service, key.uid)).collect()
}

/// The Service as `list` returns it.
fn forgotten(mut service: Service) -> Service {
    service.key.uid.clear();
    service.annotations.clear();
    service
}

#[tokio::test(start_paused = true)]
async fn case_068_deleting_a_missing_load_balancer_is_a_success() {
    let world = World::new();
    let mut web = world.service();
    world.remove(&mut web).await.unwrap();
    web.annotate(LB_ID, "8a4d1f3c-1111-4222-8333-444455556666");
    assert!(world.remove(&mut web).await.unwrap().state.is_none());
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn orphans_of_a_service_are_listed_and_deleted() {
    let all = [Kind::Member, Kind::HealthMonitor, Kind::Pool, Kind::Listener, Kind::LoadBalancer];
    let world = World::with(Options::default(), |config, _| config.load_balancer.manage_security_groups = true);
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(listed(&world).await, ["default/web/"]);
    assert!(LoadBalancers::list(&world.provider, &ClusterName::from("other")).await.unwrap().is_empty());
    world.remove(&mut forgotten(web.clone())).await.unwrap();
    world.assert_empty();
    // Only an unattached floating IP and a security group.
    world.ensure(&mut web).await.unwrap_err();
    web.annotations.clear();
    world.ensure(&mut web).await.unwrap();
    for kind in all {
        for record in world.cloud.records(kind) {
            world.cloud.remove(kind, text(&record, "id"));
        }
    }
    let id = text(&world.only(Kind::FloatingIp), "id").to_owned();
    world.cloud.edit(Kind::FloatingIp, &id, |floating| {
        floating.insert("port_id".to_owned(), json!(null));
    });
    assert_eq!(listed(&world).await, ["default/web/"]);
    world.remove(&mut forgotten(web)).await.unwrap();
    world.assert_empty();
    assert!(listed(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_080_and_081_a_shared_load_balancer_is_deleted_with_the_last_service() {
    let world = World::new();
    let (mut a, mut b) = about_to_share(&world).await;
    let shared = world.ensure(&mut b).await.unwrap();
    assert_eq!(shared.ip(), text(&world.only(Kind::FloatingIp), "floating_ip_address"));
    assert_eq!(listed(&world).await, ["default/a/", "default/bb/"]);
    world.remove(&mut a).await.unwrap();
    assert_eq!((world.count(Kind::Listener), world.count(Kind::FloatingIp)), (1, 1));
    assert_eq!(listed(&world).await, ["default/bb/"]);
    assert_eq!(world.only(Kind::LoadBalancer)["tags"], json!(["kube_service_kubernetes_default_bb"]));
    world.remove(&mut b).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_sharing_service_without_a_known_id_is_found_by_its_tag() {
    let world = World::new();
    let (mut a, mut b) = about_to_share(&world).await;
    world.ensure(&mut b).await.unwrap();
    world.remove(&mut forgotten(b)).await.unwrap();
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::Listener)), (1, 1));
    assert_eq!(listed(&world).await, ["default/a/"]);
    world.ensure(&mut a).await.unwrap();
}

/// Two Services; the second is about to share the load balancer of the first.
async fn about_to_share(world: &World) -> (Service, Service) {
    let (mut a, mut b) = (world.named("a"), world.named("bb"));
    world.ensure(&mut a).await.unwrap();
    b.annotate(LB_ID, &a.annotations[LB_ID]);
    b.ports(&[(bowline_core::Protocol::Tcp, 8080, 30808)]);
    (a, b)
}

/// Two Services; the second has only its listener on the load balancer of the first.
async fn partly_shared(world: &World) -> (Service, Service) {
    let (a, mut b) = about_to_share(world).await;
    let (_, plan) = world.plan(&mut b, true).await.unwrap();
    world.provider.apply(&b.key, &plan.steps[0], None).await.unwrap();
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn case_153_a_service_deleted_while_its_listener_is_created_leaves_no_orphan() {
    let world = World::with(Options { work: Work::Taking(Duration::from_secs(30)), ..Options::default() }, |_, _| ());
    let (_, mut b) = partly_shared(&world).await;
    assert_eq!(
        (world.count(Kind::Listener), &world.only(Kind::LoadBalancer)["provisioning_status"]),
        (2, &json!("PENDING_UPDATE"))
    );
    world.remove(&mut b).await.unwrap();
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::Listener)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn case_080_a_load_balancer_that_gets_a_second_user_after_its_deletion_was_planned_is_kept() {
    for steps in [1, 4] {
        let world = World::new();
        let (mut a, mut b) = (world.named("a"), world.named("bb"));
        world.ensure(&mut a).await.unwrap();
        let (_, deletion) = world.plan(&mut a, false).await.unwrap();
        b.annotate(LB_ID, &a.annotations[LB_ID]);
        b.ports(&[(bowline_core::Protocol::Tcp, 8080, 30808)]);
        for step in world.plan(&mut b, true).await.unwrap().1.steps.iter().take(steps) {
            world.apply(&mut b, step).await.unwrap();
        }
        let error = world.apply(&mut a, deletion.steps.last().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), bowline_cloud::ErrorKind::Conflict, "{error}");
        world.remove(&mut a).await.unwrap();
        assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::Listener)), (1, 1), "after {steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_listener_is_listed_and_deleted() {
    let world = World::new();
    let (mut a, b) = partly_shared(&world).await;
    assert_eq!(listed(&world).await, ["default/a/", "default/bb/"]);
    world.remove(&mut forgotten(b)).await.unwrap();
    assert_eq!(listed(&world).await, ["default/a/"]);
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::Listener)), (1, 1));
    world.ensure(&mut a).await.unwrap();
}

/// Two Services; the second was rejected on the internal load balancer of the first, where its listener stays.
async fn rejected(world: &World) -> (Service, Service) {
    let mut a = world.named("a");
    a.annotate(INTERNAL, "true");
    world.ensure(&mut a).await.unwrap();
    let mut b = world.named("bb");
    b.annotate(LB_ID, &a.annotations[LB_ID]);
    b.ports(&[(bowline_core::Protocol::Tcp, 8080, 30808)]);
    world.ensure(&mut b).await.unwrap_err();
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn a_service_that_was_refused_leaves_no_stray_listeners_after_it_moves() {
    let world = World::new();
    let (mut a, mut b) = rejected(&world).await;
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::Listener)), (1, 2));
    let (mut c, id) = (world.named("ccc"), b.annotations.remove(LB_ID));
    world.ensure(&mut b).await.unwrap();
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::Listener), world.count(Kind::Pool)), (2, 2, 2));
    // The same on the load balancer of another Service.
    world.ensure(&mut c).await.unwrap();
    let mut d = world.named("dddd");
    d.ports(&[(bowline_core::Protocol::Tcp, 8080, 30808)]);
    d.annotate(LB_ID, &id.unwrap());
    world.ensure(&mut d).await.unwrap_err();
    d.annotate(LB_ID, &c.annotations[LB_ID]);
    world.ensure(&mut d).await.unwrap();
    world.remove(&mut a).await.unwrap();
    assert_eq!(
        (world.count(Kind::LoadBalancer), world.count(Kind::Listener)),
        (2, 3),
        "nothing keeps it from being deleted"
    );
    for service in [&mut b, &mut c, &mut d] {
        world.remove(service).await.unwrap();
    }
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn stray_listeners_are_found_if_the_project_is_listed() {
    let world = World::new();
    let mut settled = world.named("bb");
    settled.ports(&[(bowline_core::Protocol::Tcp, 8080, 30808)]);
    world.ensure(&mut settled).await.unwrap();
    let (a, _) = rejected(&world).await;
    world.cloud.forget_calls();
    let wanted = [world.desired(&settled, true), world.desired(&a, true)];
    let planned = |seen: Vec<bowline_cloud::Result<Option<_>>>| {
        let seen = seen.into_iter().next().unwrap().unwrap();
        let plan = world.provider.plan(&wanted[0], seen.as_ref()).unwrap();
        plan.steps.iter().map(|step| format!("{} {}", step.verb, step.kind)).collect::<Vec<_>>()
    };
    assert_eq!(
        planned(world.provider.observe(&wanted[..1]).await),
        [""; 0],
        "it would take one more call in every sync"
    );
    assert_eq!(planned(world.provider.observe(&wanted).await), ["delete pool", "delete listener"]);
}

/// Clients may still use that address.
#[tokio::test(start_paused = true)]
async fn listeners_that_were_in_service_on_another_load_balancer_are_kept() {
    let world = World::new();
    let (_, mut b) = about_to_share(&world).await;
    world.ensure(&mut b).await.unwrap();
    b.annotations.clear();
    world.ensure(&mut b).await.unwrap();
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::Listener)), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn annotations_of_a_deleted_load_balancer_are_reported_and_those_of_the_user_are_not() {
    let world = World::new();
    let (mut a, mut b) = about_to_share(&world).await;
    world.ensure(&mut b).await.unwrap();
    let (state, _) = world.plan(&mut b, false).await.unwrap();
    assert!(state.unwrap().annotations.is_empty());
    world.remove(&mut b).await.unwrap();
    let (state, _) = world.plan(&mut a, false).await.unwrap();
    assert_eq!(state.unwrap().annotations, a.annotations);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_observed_with_fewer_calls_and_the_same_result() {
    let world = World::new();
    let mut services: Vec<_> = ["a", "bb", "ccc", "dddd"].iter().map(|name| world.named(name)).collect();
    for service in &mut services {
        world.ensure(service).await.unwrap();
    }
    world.cloud.forget_calls();
    let mut alone = Vec::new();
    for service in &services {
        alone.extend(world.provider.observe(&[world.desired(service, true)]).await);
    }
    let calls_alone = world.cloud.calls();
    world.cloud.forget_calls();
    let wanted: Vec<_> = services.iter().map(|service| world.desired(service, true)).collect();
    let together = world.provider.observe(&wanted).await;
    assert!(world.cloud.calls() * 2 < calls_alone, "{} {calls_alone}", world.cloud.calls());
    let states = |seen: Vec<Result<Option<_>, _>>| seen.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(states(together), states(alone));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_service_that_never_used_an_annotated_load_balancer_does_not_change_it() {
    for minor in [4, 26] {
        let world = World::with(Options { octavia_minor: minor, ..Options::default() }, |_, _| ());
        let (mut a, mut b) = (world.named("a"), world.named("bb"));
        world.ensure(&mut a).await.unwrap();
        b.annotate(LB_ID, &a.annotations[LB_ID]);
        // The same port, or no tags for sharing.
        world.ensure(&mut b).await.unwrap_err();
        world.cloud.forget_calls();
        world.remove(&mut b).await.unwrap();
        assert_eq!(world.writes(), Vec::<String>::new(), "v2.{minor}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attached_floating_ip_is_no_orphan_whatever_its_description() {
    let world = World::new();
    let web = world.service();
    let fields = json!({
        "floating_network_id": world.cloud.fixture().external_network,
        "floating_ip_address": "203.0.113.77",
        "description": "Floating IP for Kubernetes external service default/web from cluster kubernetes",
        "port_id": "8a4d1f3c-1111-4222-8333-444455556666",
    });
    world.cloud.add(Kind::FloatingIp, fields);
    assert!(listed(&world).await.is_empty());
    assert!(world.remove(&mut forgotten(web)).await.unwrap().state.is_none());
    assert_eq!((world.count(Kind::FloatingIp), world.writes().len()), (1, 0));
}
