//! Whose a balancer is, what it is called, and who may share it.

use bowline_cloud::{ErrorKind, Retry};
use bowline_core::Protocol;
use bowline_openstack_simulator::{Kind, Options, Record};
use serde_json::{Value, json};

use crate::balancers_end_to_end::world::{INTERNAL, LB_ID, Service, World, made, text, written_by};

const LB_NAME: &str = "kube_service_kubernetes_default_web";

fn balancers(world: &World) -> Vec<Record> {
    world.cloud.records(Kind::LoadBalancer)
}

/// A second Service that uses the balancer of the first.
fn sharing(world: &World, first: &Service, name: &str, port: u16) -> Service {
    let mut second = world.named(name);
    second.annotate(LB_ID, &first.annotations[LB_ID]);
    second.ports(&[(Protocol::Tcp, port, 30000 + port)]);
    second
}

#[tokio::test(start_paused = true)]
async fn case_061_a_new_service_is_one_request_and_its_annotation_names_the_balancer() {
    let world = World::new();
    let web = made(&world).await;
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
async fn case_062_an_old_octavia_gets_no_tags_and_shares_nothing() {
    let world = World::with(Options { octavia_minor: 4, ..Options::default() }, |_, _| ());
    let web = made(&world).await;
    let body = world.sent("POST loadbalancers")["loadbalancer"].clone();
    assert_eq!((body.get("tags"), body["listeners"][0].get("tags")), (None, None));
    world.cloud.forget_calls();
    let error = world.ensure(&mut sharing(&world, &web, "other", 81)).await.unwrap_err();
    assert_eq!((error.kind(), world.writes()), (ErrorKind::Unsupported, vec![]));
}

#[tokio::test(start_paused = true)]
async fn case_063_after_a_crash_the_balancer_is_found_by_its_name() {
    let mut world = World::new();
    let mut web = made(&world).await;
    web.annotations.clear();
    world.restart();
    assert_eq!(written_by(&world, &mut web).await, [""; 0]);
    assert_eq!(balancers(&world).len(), 1);
    assert_eq!(web.annotations[LB_ID], text(&world.only(Kind::LoadBalancer), "id"));
}

/// The name says all that there is to say of an owner, so that each cluster of a project needs a name of its own.
#[tokio::test(start_paused = true)]
async fn case_069_a_service_of_the_same_name_in_a_cluster_of_the_same_name_gets_the_same_balancer() {
    let world = World::new();
    let web = made(&world).await;
    let mut theirs = world.service();
    theirs.key.uid = "fedcba98-7654-3210-fedc-ba9876543210".to_owned();
    assert_eq!(written_by(&world, &mut theirs).await, [""; 0]);
    assert_eq!(balancers(&world).len(), 1);
    assert_eq!(theirs.annotations[LB_ID], web.annotations[LB_ID]);
}

#[tokio::test(start_paused = true)]
async fn case_064_a_balancer_of_the_old_name_is_taken_over_with_its_name() {
    let world = World::new();
    let mut web = made(&world).await;
    let legacy = bowline_core::service::default_load_balancer_name(&web.key.uid);
    world.cloud.edit(Kind::LoadBalancer, &web.annotations[LB_ID], |balancer| {
        balancer.insert("name".to_owned(), json!(legacy));
        balancer.insert("tags".to_owned(), json!([]));
    });
    web.annotations.clear();
    assert_eq!(written_by(&world, &mut web).await, ["PUT loadbalancers/{id}"]);
    assert_eq!(world.sent("PUT loadbalancers/{id}"), json!({"loadbalancer": {"tags": [LB_NAME]}}));
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name"), legacy);
    assert_eq!(written_by(&world, &mut web).await, [""; 0]);
}

/// Another one of the name.
fn double(world: &World, status: &str) -> String {
    world
        .cloud
        .add(Kind::LoadBalancer, json!({"name": LB_NAME, "provisioning_status": status, "vip_address": "10.10.9.9"}))
}

#[tokio::test(start_paused = true)]
async fn case_065_a_balancer_that_is_going_does_not_count() {
    let world = World::new();
    let mut web = made(&world).await;
    let own = web.annotations.remove(LB_ID).unwrap();
    double(&world, "PENDING_DELETE");
    assert_eq!(written_by(&world, &mut web).await, [""; 0]);
    assert_eq!(web.annotations[LB_ID], own);
    let other = World::new();
    let going = double(&other, "PENDING_DELETE");
    let web = made(&other).await;
    assert_ne!(web.annotations[LB_ID], going);
}

#[tokio::test(start_paused = true)]
async fn case_066_of_two_balancers_of_the_name_none_is_touched() {
    let world = World::new();
    double(&world, "ACTIVE");
    double(&world, "ACTIVE");
    let error = world.ensure(&mut world.service()).await.unwrap_err();
    assert_eq!((error.kind(), world.writes()), (ErrorKind::AlreadyExists, vec![]));
}

#[tokio::test(start_paused = true)]
async fn case_067_a_balancer_that_was_deleted_by_hand_is_an_error_until_the_annotation_goes() {
    let world = World::new();
    let mut web = made(&world).await;
    assert!(world.cloud.remove(Kind::LoadBalancer, &web.annotations[LB_ID]));
    world.cloud.forget_calls();
    for _ in 0..2 {
        let error = world.ensure(&mut web).await.unwrap_err();
        assert_eq!((error.kind(), world.writes()), (ErrorKind::NotFound, vec![]));
    }
    web.annotations.clear();
    assert!(written_by(&world, &mut web).await.contains(&"POST loadbalancers".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn case_070_and_071_all_names_follow_a_renamed_cluster_also_after_an_interruption() {
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
            assert_eq!(outcome.warnings, [""; 0], "there is nothing left to tell");
            return;
        }
    }
    panic!("it is never done");
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
async fn a_listener_that_nobody_has_marked_is_marked_and_its_members_are_left_as_they_are() {
    let world = World::new();
    let mut web = made(&world).await;
    world.cloud.edit(Kind::Listener, text(&world.only(Kind::Listener), "id"), |listener| {
        listener.insert("tags".to_owned(), json!([""]));
    });
    assert_eq!(written_by(&world, &mut web).await, ["PUT listeners/{id}"]);
}

#[tokio::test(start_paused = true)]
async fn case_070_the_rename_is_told() {
    let world = World::new();
    let mut web = made(&world).await;
    web.key.cluster = "c2".into();
    assert_eq!(world.ensure(&mut web).await.unwrap().warnings, ["LoadBalancerRename"]);
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_came_after_the_plan_stays_when_the_balancer_is_renamed_or_released_or_adopted() {
    for occasion in ["rename", "release", "adopt"] {
        let world = World::new();
        let mut web = made(&world).await;
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
        let (_, plan) = world.look(&mut web, wanted).await.unwrap();
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
async fn case_072_without_the_annotation_a_renamed_cluster_has_a_new_balancer() {
    let world = World::new();
    let mut web = made(&world).await;
    web.annotations.clear();
    web.key.cluster = "c2".into();
    world.ensure(&mut web).await.unwrap();
    let names: Vec<_> = balancers(&world).iter().map(|one| text(one, "name").to_owned()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn case_073_to_075_and_080_to_081_two_services_share_a_balancer_and_a_third_does_not() {
    let world = World::new();
    let mut web = made(&world).await;
    let mut other = sharing(&world, &web, "other", 81);
    assert_eq!(
        written_by(&world, &mut other).await,
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
    assert_eq!(written_by(&world, &mut other).await, [""; 0], "80");
    world.remove(&mut other).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn of_two_services_that_come_to_a_balancer_at_the_same_time_one_is_too_many() {
    let world = World::new();
    let web = made(&world).await;
    let mut others = [sharing(&world, &web, "second", 81), sharing(&world, &web, "third", 82)];
    let mut plans = Vec::new();
    for other in &mut others {
        plans.push(world.look(other, true).await.unwrap().1);
    }
    world.apply(&mut others[0], &plans[0].steps[0]).await.unwrap();
    let error = world.apply(&mut others[1], &plans[1].steps[0]).await.unwrap_err();
    assert!(error.message().contains("already shared with 2 Services"), "{error}");
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Backoff));
    assert_eq!(world.count(Kind::Listener), 2);
    // The listener that is there already does not count twice.
    world.ensure(&mut others[0]).await.unwrap();
}

/// Each plan was made with the tag of the other Service.
#[tokio::test(start_paused = true)]
async fn the_last_of_two_services_that_planned_to_leave_a_load_balancer_deletes_it() {
    for order in [[0, 1], [1, 0]] {
        let world = World::new();
        let web = made(&world).await;
        let mut services = [web.clone(), sharing(&world, &web, "other", 81)];
        world.ensure(&mut services[1]).await.unwrap();
        let mut plans = Vec::new();
        for service in &mut services {
            plans.push(world.look(service, false).await.unwrap().1);
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
async fn the_address_of_a_balancer_stays_if_another_service_has_come_to_use_it_meanwhile() {
    let world = World::new();
    let mut web = made(&world).await;
    let (_, removal) = world.look(&mut web, false).await.unwrap();
    world.ensure(&mut sharing(&world, &web, "other", 81)).await.unwrap();
    let error = world.apply(&mut web, &removal.steps[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("kube_service_kubernetes_default_other"), "{error}");
    assert_eq!(world.count(Kind::FloatingIp), 1);
    // A balancer that somebody has deleted meanwhile keeps nobody from deleting the address.
    let world = World::new();
    let mut web = made(&world).await;
    let (_, removal) = world.look(&mut web, false).await.unwrap();
    world.cloud.remove(Kind::LoadBalancer, &web.annotations[LB_ID]);
    world.apply(&mut web, &removal.steps[0]).await.unwrap();
    assert_eq!(world.count(Kind::FloatingIp), 0);
}

#[tokio::test(start_paused = true)]
async fn case_076_and_076a_listeners_meet_where_their_families_do() {
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
async fn case_077_an_internal_service_does_not_share() {
    let world = World::new();
    let web = made(&world).await;
    world.cloud.forget_calls();
    let mut other = sharing(&world, &web, "other", 81);
    other.annotate(INTERNAL, "true");
    let error = world.ensure(&mut other).await.unwrap_err();
    assert!(error.message().contains("internal Service cannot share"), "{error}");
    assert_eq!(world.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn case_078_and_079_a_second_service_does_not_open_an_internal_balancer_to_the_world() {
    let world = World::new();
    let mut web = world.service();
    web.annotate(INTERNAL, "true");
    world.ensure(&mut web).await.unwrap();
    let error = world.ensure(&mut sharing(&world, &web, "other", 81)).await.unwrap_err();
    assert!(error.message().contains("floating IP"), "78: {error}");
    assert_eq!((world.count(Kind::Listener), world.count(Kind::FloatingIp)), (2, 0), "its listeners are there by then");
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
async fn case_083_a_balancer_of_another_cluster_is_shared_and_keeps_its_name() {
    let world = World::new();
    let web = made(&world).await;
    let mut other = sharing(&world, &web, "other", 81);
    other.key.cluster = "c2".into();
    let outcome = world.ensure(&mut other).await.unwrap();
    assert_eq!(outcome.warnings, [""; 0]);
    let balancer = world.only(Kind::LoadBalancer);
    assert_eq!(text(&balancer, "name"), LB_NAME);
    assert_eq!(balancer.get("tags"), Some(&json!([LB_NAME, "kube_service_c2_default_other"])));
}

#[tokio::test(start_paused = true)]
async fn case_084_a_name_that_is_too_long_is_cut_and_found_again() {
    let mut world = World::new();
    let mut web = world.named(&"s".repeat(253));
    world.ensure(&mut web).await.unwrap();
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name").len(), 255);
    web.annotations.clear();
    world.restart();
    assert_eq!(written_by(&world, &mut web).await, [""; 0]);
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn what_is_retained_can_be_adopted_again() {
    let world = World::with(Options::default(), |config, _| config.load_balancer.manage_security_groups = true);
    let mut web = made(&world).await;
    let id = web.annotations[LB_ID].clone();
    let retained = world.released(&mut web).await;
    assert_eq!(retained, Vec::<String>::new(), "nothing is ours any more");
    let balancer = world.only(Kind::LoadBalancer);
    assert_eq!((text(&balancer, "name"), text(&balancer, "description")), ("kubernetes_default_web", ""));
    assert_eq!((world.count(Kind::Listener), world.count(Kind::FloatingIp)), (1, 1));
    let mut heir = world.named("heir");
    heir.adopt("kubernetes_default_web");
    world.ensure(&mut heir).await.unwrap();
    assert_eq!(heir.annotations[LB_ID], id);
    assert_eq!(text(&world.only(Kind::LoadBalancer), "name"), "kube_service_kubernetes_default_heir");
    let tags: Vec<Value> = world.cloud.records(Kind::Listener).iter().map(|one| one["tags"].clone()).collect();
    assert_eq!(tags, [json!(["kube_service_kubernetes_default_heir"])]);
}
