//! Ownership, names and sharing of load balancers.

use bowline_cloud::{ErrorKind, Retry};
use bowline_core::Protocol;
use bowline_openstack_simulator::{Kind, Options, Record};
use serde_json::{Value, json};

use crate::balancers_end_to_end::world::{INTERNAL, LB_ID, Service, World, created, text, writes_of};

const LB_NAME: &str = "kube_service_kubernetes_default_web";

fn balancers(world: &World) -> Vec<Record> {
    world.cloud.records(Kind::LoadBalancer)
}

/// A second Service that uses the load balancer of the first.
fn sharing(world: &World, first: &Service, name: &str, port: u16) -> Service {
    let mut second = world.named(name);
    second.annotate(LB_ID, &first.annotations[LB_ID]);
    second.ports(&[(Protocol::Tcp, port, 30000 + port)]);
    second
}

#[tokio::test(start_paused = true)]
async fn case_061_a_new_service_takes_one_request_and_gets_the_annotation() {
    let world = World::new();
    let web = created(&world).await;
    assert_eq!(world.writes(), ["POST loadbalancers", "POST floatingips"]);
    let subnet = world.cloud.fixture().subnet;
    let member = |node: &bowline_core::TargetNode| {
        json!({
            "name": node.node, "address": node.addresses[0].address, "protocol_port": 30080, "subnet_id": subnet,
        })
    };
    let expected = json!({"loadbalancer": {
        "name": LB_NAME, "description": "Kubernetes external service default/web from cluster kubernetes",
        "provider": "amphora", "tags": [LB_NAME], "vip_subnet_id": subnet,
        "listeners": [{
            "name": format!("listener_0_{LB_NAME}"), "protocol": "TCP", "protocol_port": 80, "connection_limit": -1,
            "tags": [LB_NAME], "allowed_cidrs": ["0.0.0.0/0"], "timeout_client_data": 50000,
            "timeout_member_connect": 5000, "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
            "default_pool": {
                "name": format!("pool_0_{LB_NAME}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
                "members": world.nodes.iter().map(member).collect::<Vec<_>>(),
            },
        }],
    }});
    assert_eq!(world.sent("POST loadbalancers"), expected);
    assert_eq!(web.annotations[LB_ID], text(&world.only(Kind::LoadBalancer), "id"));
}

#[tokio::test(start_paused = true)]
async fn case_062_an_octavia_without_tags_gets_none_and_shares_nothing() {
    let world = World::with(Options { octavia_minor: 4, ..Options::default() }, |_, _| ());
    let web = created(&world).await;
    let body = world.sent("POST loadbalancers")["loadbalancer"].clone();
    assert_eq!((body.get("tags"), body["listeners"][0].get("tags")), (None, None));
    world.cloud.forget_calls();
    let error = world.ensure(&mut sharing(&world, &web, "other", 81)).await.unwrap_err();
    assert_eq!((error.kind(), world.writes()), (ErrorKind::Unsupported, vec![]));
}

#[tokio::test(start_paused = true)]
async fn case_063_after_a_crash_the_load_balancer_is_found_by_name() {
    let mut world = World::new();
    let mut web = created(&world).await;
    web.annotations.clear();
    world.restart();
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
    assert_eq!(balancers(&world).len(), 1);
    assert_eq!(web.annotations[LB_ID], text(&world.only(Kind::LoadBalancer), "id"));
}

/// The name is the only identification of the owner, so each cluster of a project needs a unique name.
#[tokio::test(start_paused = true)]
async fn case_069_clusters_with_the_same_name_share_load_balancers_of_the_same_service() {
    let world = World::new();
    let web = created(&world).await;
    let mut theirs = world.service();
    theirs.key.uid = "fedcba98-7654-3210-fedc-ba9876543210".to_owned();
    assert_eq!(writes_of(&world, &mut theirs).await, [""; 0]);
    assert_eq!(balancers(&world).len(), 1);
    assert_eq!(theirs.annotations[LB_ID], web.annotations[LB_ID]);
}

#[tokio::test(start_paused = true)]
async fn case_064_a_load_balancer_of_the_legacy_name_is_used_and_keeps_its_name() {
    let world = World::new();
    let mut web = created(&world).await;
    let legacy = bowline_core::service::default_load_balancer_name(&web.key.uid);
    world.cloud.edit(Kind::LoadBalancer, &web.annotations[LB_ID], |balancer| {
        balancer.insert("name".to_owned(), json!(legacy));
        balancer.insert("tags".to_owned(), json!([]));
    });
    web.annotations.clear();
    assert_eq!(writes_of(&world, &mut web).await, ["PUT loadbalancers/{id}"]);
    assert_eq!(world.sent("PUT loadbalancers/{id}"), json!({"loadbalancer": {"tags": [LB_NAME]}}));
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name"), legacy);
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
}

/// Another load balancer of the same name.
fn duplicate(world: &World, status: &str) -> String {
    world
        .cloud
        .add(Kind::LoadBalancer, json!({"name": LB_NAME, "provisioning_status": status, "vip_address": "10.10.9.9"}))
}

#[tokio::test(start_paused = true)]
async fn case_065_a_load_balancer_that_is_being_deleted_is_ignored() {
    let world = World::new();
    let mut web = created(&world).await;
    let own = web.annotations.remove(LB_ID).unwrap();
    duplicate(&world, "PENDING_DELETE");
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
    assert_eq!(web.annotations[LB_ID], own);
    let other = World::new();
    let deleting = duplicate(&other, "PENDING_DELETE");
    let web = created(&other).await;
    assert_ne!(web.annotations[LB_ID], deleting);
}

#[tokio::test(start_paused = true)]
async fn case_066_two_load_balancers_of_the_name_are_not_changed() {
    let world = World::new();
    duplicate(&world, "ACTIVE");
    duplicate(&world, "ACTIVE");
    let error = world.ensure(&mut world.service()).await.unwrap_err();
    assert_eq!((error.kind(), world.writes()), (ErrorKind::AlreadyExists, vec![]));
}

#[tokio::test(start_paused = true)]
async fn case_067_a_load_balancer_deleted_by_hand_is_an_error_until_the_annotation_is_removed() {
    let world = World::new();
    let mut web = created(&world).await;
    assert!(world.cloud.remove(Kind::LoadBalancer, &web.annotations[LB_ID]));
    world.cloud.forget_calls();
    for _ in 0..2 {
        let error = world.ensure(&mut web).await.unwrap_err();
        assert_eq!((error.kind(), world.writes()), (ErrorKind::NotFound, vec![]));
    }
    web.annotations.clear();
    assert!(writes_of(&world, &mut web).await.contains(&"POST loadbalancers".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn case_070_and_071_all_names_are_updated_after_a_cluster_rename_even_if_interrupted() {
    for calls in 0..40 {
        let mut world = World::with(Options::default(), |config, _| config.load_balancer.create_monitor = true);
        let mut web = world.service();
        web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443)]);
        world.ensure(&mut web).await.unwrap();
        web.key.cluster = "c2".into();
        world.cloud.forget_calls();
        world.cloud.crash_after(calls);
        let interrupted = world.ensure(&mut web).await.is_err();
        world.cloud.repair_all();
        world.restart();
        let outcome = world.ensure(&mut web).await.unwrap();
        assert_names(&world, "kube_service_c2_default_web");
        assert_eq!(world.count(Kind::LoadBalancer), 1, "after {calls} calls");
        if !interrupted {
            let part = ["PUT healthmonitors/{id}", "PUT pools/{id}", "PUT listeners/{id}"];
            assert_eq!(world.writes(), [&part[..], &part, &["PUT loadbalancers/{id}"]].concat());
            assert_eq!(outcome.warnings, [""; 0], "no warning is left");
            return;
        }
    }
    panic!("the rename never completes");
}

fn assert_names(world: &World, name: &str) {
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name"), name);
    for (kind, prefix) in [(Kind::Listener, "listener"), (Kind::Pool, "pool"), (Kind::HealthMonitor, "monitor")] {
        let mut names: Vec<_> = world.cloud.records(kind).iter().map(|one| text(one, "name").to_owned()).collect();
        names.sort();
        assert_eq!(names, [0, 1].map(|index| format!("{prefix}_{index}_{name}")));
    }
    for kind in [Kind::LoadBalancer, Kind::Listener] {
        assert!(world.cloud.records(kind).iter().all(|one| one.get("tags") == Some(&json!([name]))), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_untagged_listener_is_tagged_and_its_members_are_not_changed() {
    let world = World::new();
    let mut web = created(&world).await;
    world.cloud.edit(Kind::Listener, text(&world.only(Kind::Listener), "id"), |listener| {
        listener.insert("tags".to_owned(), json!([""]));
    });
    assert_eq!(writes_of(&world, &mut web).await, ["PUT listeners/{id}"]);
}

#[tokio::test(start_paused = true)]
async fn case_070_a_rename_causes_a_warning() {
    let world = World::new();
    let mut web = created(&world).await;
    web.key.cluster = "c2".into();
    assert_eq!(world.ensure(&mut web).await.unwrap().warnings, ["LoadBalancerRename"]);
}

#[tokio::test(start_paused = true)]
async fn a_tag_added_after_the_plan_is_kept_by_rename_release_and_adoption() {
    for occasion in ["rename", "release", "adopt"] {
        let world = World::new();
        let mut web = created(&world).await;
        let wanted = occasion != "release";
        match occasion {
            "rename" => web.key.cluster = "c2".into(),
            "release" => web.common.policy = bowline_core::annotations::DeletionPolicy::Retain,
            _ => {
                world.released(&mut web).await;
                web = world.named("heir");
                web.adopt("kubernetes_default_web");
            }
        }
        let (_, plan) = world.plan(&mut web, wanted).await.unwrap();
        world.cloud.edit(Kind::LoadBalancer, text(&world.only(Kind::LoadBalancer), "id"), |balancer| {
            balancer.get_mut("tags").and_then(Value::as_array_mut).unwrap().push(json!("late"));
        });
        for step in &plan.steps {
            world.apply(&mut web, step).await.unwrap();
        }
        let tags = world.only(Kind::LoadBalancer)["tags"].clone();
        assert!(tags.as_array().unwrap().contains(&json!("late")), "{occasion}: {tags}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_072_without_the_annotation_a_renamed_cluster_creates_a_load_balancer() {
    let world = World::new();
    let mut web = created(&world).await;
    web.annotations.clear();
    web.key.cluster = "c2".into();
    world.ensure(&mut web).await.unwrap();
    let names: Vec<_> = balancers(&world).iter().map(|one| text(one, "name").to_owned()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn case_073_to_075_and_080_to_081_two_services_share_a_load_balancer_and_a_third_is_rejected() {
    let world = World::new();
    let mut web = created(&world).await;
    let mut other = sharing(&world, &web, "other", 81);
    assert_eq!(
        writes_of(&world, &mut other).await,
        ["POST listeners", "POST pools", "PUT pools/{id}/members", "PUT loadbalancers/{id}"]
    );
    let tag = "kube_service_kubernetes_default_other";
    assert_eq!(world.sent("PUT loadbalancers/{id}"), json!({"loadbalancer": {"tags": [LB_NAME, tag]}}));
    assert_eq!(world.sent("POST listeners")["listener"]["tags"], json!([tag]));
    let addresses = [world.ensure(&mut web).await.unwrap(), world.ensure(&mut other).await.unwrap()];
    assert_eq!(addresses[0].ip(), addresses[1].ip());
    world.cloud.forget_calls();
    let error = world.ensure(&mut sharing(&world, &web, "third", 82)).await.unwrap_err();
    assert!(error.message().contains("already shared with 2 Services"), "74: {error}");
    let mut clash = sharing(&world, &web, "other", 80);
    assert_eq!(world.ensure(&mut clash).await.unwrap_err().kind(), ErrorKind::AlreadyExists, "75");
    assert_eq!(world.writes(), [""; 0]);
    world.remove(&mut web).await.unwrap();
    assert_eq!((world.count(Kind::Listener), world.count(Kind::FloatingIp)), (1, 1), "80");
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name"), LB_NAME);
    assert_eq!(writes_of(&world, &mut other).await, [""; 0], "80");
    world.remove(&mut other).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn the_sharing_limit_holds_for_services_that_join_concurrently() {
    let world = World::new();
    let web = created(&world).await;
    let mut others = [sharing(&world, &web, "second", 81), sharing(&world, &web, "third", 82)];
    let mut plans = Vec::new();
    for other in &mut others {
        plans.push(world.plan(other, true).await.unwrap().1);
    }
    world.apply(&mut others[0], &plans[0].steps[0]).await.unwrap();
    let error = world.apply(&mut others[1], &plans[1].steps[0]).await.unwrap_err();
    assert!(error.message().contains("already shared with 2 Services"), "{error}");
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Backoff));
    assert_eq!(world.count(Kind::Listener), 2);
    // Its existing listener does not count twice.
    world.ensure(&mut others[0]).await.unwrap();
}

/// Each plan was made with the tag of the other Service.
#[tokio::test(start_paused = true)]
async fn the_last_of_two_services_that_planned_to_leave_a_load_balancer_deletes_it() {
    for order in [[0, 1], [1, 0]] {
        let world = World::new();
        let web = created(&world).await;
        let mut services = [web.clone(), sharing(&world, &web, "other", 81)];
        world.ensure(&mut services[1]).await.unwrap();
        let mut plans = Vec::new();
        for service in &mut services {
            plans.push(world.plan(service, false).await.unwrap().1);
        }
        for index in order {
            assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp)), (1, 1), "{order:?}");
            for step in &plans[index].steps {
                world.apply(&mut services[index], step).await.unwrap();
            }
            world.remove(&mut services[index]).await.unwrap();
        }
        let left = [Kind::LoadBalancer, Kind::Listener, Kind::Pool, Kind::FloatingIp].map(|kind| world.count(kind));
        assert_eq!(left, [0; 4], "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_floating_ip_is_kept_if_another_service_uses_the_load_balancer_by_then() {
    let world = World::new();
    let mut web = created(&world).await;
    let (_, removal) = world.plan(&mut web, false).await.unwrap();
    world.ensure(&mut sharing(&world, &web, "other", 81)).await.unwrap();
    let error = world.apply(&mut web, &removal.steps[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("kube_service_kubernetes_default_other"), "{error}");
    assert_eq!(world.count(Kind::FloatingIp), 1);
    // A load balancer deleted meanwhile does not prevent deleting the floating IP.
    let world = World::new();
    let mut web = created(&world).await;
    let (_, removal) = world.plan(&mut web, false).await.unwrap();
    world.cloud.remove(Kind::LoadBalancer, &web.annotations[LB_ID]);
    world.apply(&mut web, &removal.steps[0]).await.unwrap();
    assert_eq!(world.count(Kind::FloatingIp), 0);
}

#[tokio::test(start_paused = true)]
async fn case_076_and_076a_listeners_conflict_within_a_transport_protocol() {
    let world = World::new();
    let mut web = world.service();
    web.ports(&[(Protocol::Tcp, 53, 30053)]);
    world.ensure(&mut web).await.unwrap();
    let mut other = sharing(&world, &web, "other", 53);
    other.ports(&[(Protocol::Udp, 53, 30153)]);
    world.ensure(&mut other).await.unwrap();
    assert_eq!(world.count(Kind::Listener), 2);
    let http = World::new();
    let mut web = http.service();
    web.annotate("x-forwarded-for", "true");
    http.ensure(&mut web).await.unwrap();
    http.cloud.forget_calls();
    let error = http.ensure(&mut sharing(&http, &web, "other", 80)).await.unwrap_err();
    assert_eq!((error.kind(), http.writes()), (ErrorKind::AlreadyExists, vec![]), "76a");
}

#[tokio::test(start_paused = true)]
async fn case_077_an_internal_service_cannot_share() {
    let world = World::new();
    let web = created(&world).await;
    world.cloud.forget_calls();
    let mut other = sharing(&world, &web, "other", 81);
    other.annotate(INTERNAL, "true");
    let error = world.ensure(&mut other).await.unwrap_err();
    assert!(error.message().contains("internal Service cannot share"), "{error}");
    assert_eq!(world.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn case_078_and_079_a_sharing_service_does_not_expose_an_internal_load_balancer() {
    let world = World::new();
    let mut web = world.service();
    web.annotate(INTERNAL, "true");
    world.ensure(&mut web).await.unwrap();
    let error = world.ensure(&mut sharing(&world, &web, "other", 81)).await.unwrap_err();
    assert!(error.message().contains("floating IP"), "78: {error}");
    assert_eq!((world.count(Kind::Listener), world.count(Kind::FloatingIp)), (2, 0), "its listeners exist by then");
    let corp = World::new();
    let mut first = corp.service();
    first.annotate(INTERNAL, "true");
    corp.ensure(&mut first).await.unwrap();
    corp.cloud.edit(Kind::LoadBalancer, &first.annotations[LB_ID], |balancer| {
        balancer.insert("name".to_owned(), json!("corp-lb"));
        balancer.insert("tags".to_owned(), json!([]));
    });
    assert!(corp.ensure(&mut sharing(&corp, &first, "other", 81)).await.is_err(), "79");
    assert_eq!((corp.count(Kind::Listener), corp.count(Kind::FloatingIp)), (2, 0), "79");
}

#[tokio::test(start_paused = true)]
async fn case_083_a_load_balancer_of_another_cluster_is_shared_and_keeps_its_name() {
    let world = World::new();
    let web = created(&world).await;
    let mut other = sharing(&world, &web, "other", 81);
    other.key.cluster = "c2".into();
    let outcome = world.ensure(&mut other).await.unwrap();
    assert_eq!(outcome.warnings, [""; 0]);
    let balancer = world.only(Kind::LoadBalancer);
    assert_eq!(text(&balancer, "name"), LB_NAME);
    assert_eq!(balancer.get("tags"), Some(&json!([LB_NAME, "kube_service_c2_default_other"])));
}

#[tokio::test(start_paused = true)]
async fn case_084_a_long_name_is_truncated_and_found_again() {
    let mut world = World::new();
    let mut web = world.named(&"s".repeat(253));
    world.ensure(&mut web).await.unwrap();
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name").len(), 255);
    web.annotations.clear();
    world.restart();
    assert_eq!(writes_of(&world, &mut web).await, [""; 0]);
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_retained_load_balancer_can_be_adopted() {
    let world = World::with(Options::default(), |config, _| config.load_balancer.manage_security_groups = true);
    let mut web = created(&world).await;
    let id = web.annotations[LB_ID].clone();
    let retained = world.released(&mut web).await;
    assert_eq!(retained, Vec::<String>::new(), "nothing is owned any more");
    let balancer = world.only(Kind::LoadBalancer);
    assert_eq!((text(&balancer, "name"), text(&balancer, "description")), ("kubernetes_default_web", ""));
    assert_eq!((world.count(Kind::Listener), world.count(Kind::FloatingIp)), (1, 1));
    let mut adopter = world.named("heir");
    adopter.adopt("kubernetes_default_web");
    world.ensure(&mut adopter).await.unwrap();
    assert_eq!(adopter.annotations[LB_ID], id);
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name"), "kube_service_kubernetes_default_heir");
    let tags: Vec<Value> = world.cloud.records(Kind::Listener).iter().map(|one| one["tags"].clone()).collect();
    assert_eq!(tags, [json!(["kube_service_kubernetes_default_heir"])]);
}
