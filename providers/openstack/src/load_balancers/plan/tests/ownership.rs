//! 7.3: ownership, naming, sharing.

use bowline_cloud::{ErrorKind, Retry};
use bowline_core::Protocol;
use serde_json::{Value, json};

use crate::api::Resource;
use crate::api::octavia::{LISTENERS, LOAD_BALANCERS, LoadBalancer};
use crate::load_balancers::change::{Change, TagChange};
use crate::load_balancers::observation::Found;
use crate::load_balancers::testing::{LB_NAME, Scene};

/// The load balancer of `default/web`, created and annotated.
fn applied() -> Scene {
    Scene::new().applied().annotated_with_id()
}

fn update(resource: Resource, id: &str, body: Value, tags: TagChange) -> Change {
    Change::Update { resource, id: id.to_owned(), body, tags }
}

fn external(scene: Scene) -> Scene {
    scene.configured(|section| section.internal = false)
}

#[test]
fn case_061_a_new_service_takes_one_request_with_all_parts() {
    let scene = Scene::new();
    assert_eq!(scene.steps(), [format!("create load balancer {LB_NAME}")]);
    let expected = json!({
        "name": LB_NAME,
        "description": "Kubernetes external service default/web from cluster kubernetes",
        "provider": "amphora",
        "tags": [LB_NAME],
        "vip_subnet_id": "subnet",
        "listeners": [{
            "name": format!("listener_0_{LB_NAME}"), "protocol": "TCP", "protocol_port": 80, "connection_limit": -1,
            "tags": [LB_NAME],
            "timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000,
            "timeout_tcp_inspect": 0,
            "allowed_cidrs": ["0.0.0.0/0"],
            "default_pool": {
                "name": format!("pool_0_{LB_NAME}"), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
                "members": [
                    {"name": "n1", "address": "10.0.0.1", "protocol_port": 30080, "subnet_id": "subnet"},
                    {"name": "n2", "address": "10.0.0.2", "protocol_port": 30080, "subnet_id": "subnet"},
                ],
            },
        }],
    });
    assert_eq!(scene.body("create load balancer"), expected);
}

#[test]
fn case_061_the_request_contains_all_settings() {
    let scene = Scene::new()
        .configured(|section| {
            section.create_monitor = true;
            section.flavor_id = "flavor".to_owned();
            section.availability_zone = "az1".to_owned();
        })
        .ports(&[(Protocol::Tcp, 443), (Protocol::Udp, 53)])
        .local(31000)
        .sticky()
        .changed(|service| service.load_balancer_ip = Some("10.0.0.77".to_owned()));
    let body = scene.body("create load balancer");
    assert_eq!(
        json!([body["flavor_id"], body["availability_zone"], body["vip_address"]]),
        json!(["flavor", "az1", "10.0.0.77"])
    );
    let pool = &body["listeners"][1]["default_pool"];
    assert_eq!(pool["session_persistence"], json!({"type": "SOURCE_IP"}));
    assert_eq!(pool["members"][0]["monitor_port"], 31000);
    let monitor = json!({
        "name": format!("monitor_1_{LB_NAME}"), "type": "HTTP", "delay": 5, "timeout": 3, "max_retries": 1,
        "max_retries_down": 3, "url_path": "/healthz", "http_method": "GET", "expected_codes": "200",
    });
    assert_eq!(pool["healthmonitor"], monitor);
}

#[test]
fn case_062_an_octavia_without_tags_gets_none_and_shares_nothing() {
    let old = Scene::new().octavia("v2.4");
    let body = old.body("create load balancer");
    assert!(body.get("tags").is_none() && body["listeners"][0].get("tags").is_none(), "{body}");
    assert_eq!(old.clone().applied().steps(), [""; 0]);
    let refused = external(old.applied()).joined_by("other").plan_error();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[test]
fn case_063_a_load_balancer_of_the_name_is_used() {
    assert_eq!(Scene::new().applied().steps(), [""; 0]);
}

#[test]
fn case_064_a_load_balancer_of_the_legacy_name_is_tagged_and_keeps_its_name() {
    let old = Scene::new().applied().touched_balancer(|balancer| {
        balancer.name = "auidofweb".to_owned();
        balancer.tags.clear();
    });
    let tags = TagChange { add: vec![LB_NAME.to_owned()], remove: vec![] };
    assert_eq!(old.changes(), [update(LOAD_BALANCERS.resource, "lb", json!({}), tags)]);
    // It still belongs to the Service once the annotation has its ID.
    assert_eq!(old.applied().annotated_with_id().with("x-forwarded-for", "false").steps(), [""; 0]);
}

#[test]
fn case_066_two_load_balancers_of_the_name_are_not_changed() {
    let two = Scene::new().touched(|seen| seen.found = Found::Several(vec!["a".to_owned(), "b".to_owned()]));
    // Neither of them is deleted.
    let removal = super::super::plan(&two.config, &two.desired_removal(), two.seen.clone()).unwrap_err();
    for error in [two.plan_error(), removal] {
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::AlreadyExists, Retry::Backoff));
        assert!(error.message().contains("(a, b)") && !error.message().contains("  "), "{error}");
    }
}

#[test]
fn case_067_an_annotated_load_balancer_that_does_not_exist_is_an_error() {
    let error = Scene::new().touched(|seen| seen.found = Found::Missing("gone".to_owned())).plan_error();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::NotFound, Retry::Backoff));
    assert!(error.message().contains("load-balancer-id"), "{error}");
}

fn renamed(scene: Scene) -> Scene {
    scene.configured(|section| section.create_monitor = true).applied().annotated_with_id().in_cluster("c2")
}

#[test]
fn case_070_all_names_are_updated_when_the_cluster_is_renamed() {
    let scene = renamed(Scene::new());
    let updates = [
        format!("update health monitor monitor_0_{LB_NAME}"),
        format!("update pool pool_0_{LB_NAME}"),
        format!("update listener listener_0_{LB_NAME}"),
        format!("update load balancer {LB_NAME}"),
    ];
    assert_eq!(scene.steps(), updates);
    assert_eq!(scene.warnings(), ["LoadBalancerRename"]);
    let new = "kube_service_c2_default_web";
    assert_eq!(scene.body("update load balancer"), json!({"name": new}));
    assert_eq!(scene.body("update listener"), json!({"name": format!("listener_0_{new}")}));
    assert_eq!(scene.body("update pool"), json!({"name": format!("pool_0_{new}")}));
    assert_eq!(scene.body("update health monitor"), json!({"name": format!("monitor_0_{new}")}));
    let after = scene.applied();
    assert_eq!(
        (&after.balancer().tags[..], &after.seen.listeners[0].tags[..]),
        (&[new.to_owned()][..], &[new.to_owned()][..])
    );
    assert_eq!((after.steps(), after.warnings()), (vec![], vec![]));
}

#[test]
fn case_071_an_interrupted_rename_is_continued() {
    let two_ports = [(Protocol::Tcp, 80), (Protocol::Tcp, 443)];
    let scene = renamed(Scene::new().ports(&two_ports));
    assert_eq!(scene.steps().len(), 7);
    for done in 0..7 {
        let rest = scene.clone().applied_partly(done);
        assert_eq!(rest.steps(), scene.steps().split_off(done), "after {done} steps");
        assert_eq!(rest.warnings(), ["LoadBalancerRename"]);
    }
}

#[test]
fn the_tags_of_a_listener_with_another_name_are_updated_when_the_cluster_is_renamed() {
    let scene = renamed(Scene::new()).touched(|seen| seen.listeners[0].name = "front end".to_owned());
    let tags = TagChange { add: vec!["kube_service_c2_default_web".to_owned()], remove: vec![LB_NAME.to_owned()] };
    let update = update(LISTENERS.resource, &scene.seen.listeners[0].id, json!({}), tags);
    assert!(scene.changes().contains(&update), "{:?}", scene.steps());
    let after = scene.applied();
    assert_eq!(after.seen.listeners[0].name, "front end");
    assert_eq!(after.steps(), [""; 0]);
}

#[test]
fn a_rename_does_not_duplicate_a_tag() {
    let new = "kube_service_c2_default_web";
    let scene = renamed(Scene::new()).touched_balancer(|balancer| balancer.tags.push(new.to_owned()));
    assert_eq!(scene.applied().balancer().tags, [new]);
}

#[test]
fn case_072_without_the_annotation_a_renamed_cluster_creates_a_load_balancer() {
    let new = Scene::new().in_cluster("c2");
    assert_eq!(new.steps(), ["create load balancer kube_service_c2_default_web"]);
}

#[test]
fn a_rename_replaces_only_the_cluster_part_of_a_name() {
    let scene = renamed(Scene::new().in_cluster("kube"));
    let new = "kube_service_c2_default_web";
    assert_eq!(scene.body("update listener"), json!({"name": format!("listener_0_{new}")}));
    assert_eq!(scene.applied().seen.listeners[0].tags, [new]);
}

#[test]
fn case_073_a_sharing_service_adds_its_listeners_and_tags() {
    let second = external(applied()).joined_by("other").touched(|seen| {
        seen.floating.attached = Some(crate::api::network::FloatingIp {
            id: "fip".to_owned(),
            floating_ip_address: "203.0.113.10".to_owned(),
            port_id: "vip-port".to_owned(),
            ..Default::default()
        });
    });
    let other = "kube_service_kubernetes_default_other";
    let expected = [
        format!("create listener listener_0_{other}"),
        format!("create pool pool_0_{other}"),
        format!("update members pool_0_{other}"),
        format!("update load balancer {LB_NAME}"),
    ];
    assert_eq!(second.steps(), expected);
    assert_eq!(second.body("create listener")["tags"], json!([other]));
    let after = second.applied();
    assert_eq!(after.balancer().tags, [LB_NAME, other]);
    assert_eq!(after.steps(), [""; 0]);
}

#[test]
fn case_074_a_third_service_exceeds_the_sharing_limit() {
    let full = external(applied())
        .touched_balancer(|balancer| balancer.tags.push("kube_service_kubernetes_default_b".to_owned()))
        .joined_by("c");
    let error = full.plan_error();
    assert!(error.message().contains("already shared with 2 Services"), "{error}");
    assert_eq!(error.retry_advice(), Retry::Backoff, "one of the others may be deleted");
    // A Service that shares it already does not count, nor do foreign tags.
    let plain =
        |balancer: &mut LoadBalancer| balancer.tags = vec![LB_NAME.to_owned(), "blue".to_owned(), "red".to_owned()];
    assert!(external(applied()).touched_balancer(plain).joined_by("b").planned().is_ok());
    assert!(full.named("b").planned().is_ok());
    // A Service with only a listener there counts.
    let coming = external(applied()).touched(|seen| {
        seen.listeners[0].tags.push("kube_service_kubernetes_default_b".to_owned());
    });
    assert!(coming.joined_by("c").plan_error().message().contains("already shared with 2 Services"));
}

#[test]
fn case_075_a_port_of_another_service_is_an_error() {
    let second = external(applied()).joined_by("other").ports(&[(Protocol::Tcp, 80)]);
    let error = second.plan_error();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains("listener port 80 already exists"), "{error}");
    assert!(error.message().contains(LB_NAME), "{error}");
}

#[test]
fn case_076_the_same_port_of_another_transport_protocol_is_free() {
    let first = external(Scene::new().ports(&[(Protocol::Tcp, 53)]).applied().annotated_with_id());
    for protocol in [Protocol::Udp, Protocol::Sctp] {
        let second = first.clone().joined_by("other").ports(&[(protocol, 53)]);
        assert!(second.steps().iter().any(|step| step.starts_with("create listener")), "{protocol}");
    }
}

#[test]
fn case_076a_an_http_listener_conflicts_with_a_tcp_listener() {
    for (key, value) in [("x-forwarded-for", "true"), ("default-tls-container-ref", "https://kms/v1/secrets/1")] {
        let first = Scene::new().with(key, value).applied().annotated_with_id();
        let second = external(first).joined_by("other").ports(&[(Protocol::Tcp, 80)]);
        assert_eq!(second.plan_error().kind(), ErrorKind::AlreadyExists, "{key}");
    }
}

#[test]
fn case_077_an_internal_service_cannot_share() {
    let error = applied().joined_by("other").plan_error();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("internal Service cannot share"), "{error}");
}

#[test]
fn case_083_a_load_balancer_of_another_cluster_is_shared_and_not_renamed() {
    let foreign = external(applied()).joined_by("other").in_cluster("c2");
    let steps = foreign.steps();
    assert!(steps.iter().all(|step| !step.starts_with("update listener") && !step.contains("monitor")), "{steps:?}");
    assert_eq!(foreign.warnings().iter().filter(|reason| *reason == "LoadBalancerRename").count(), 0);
    let after = foreign.applied();
    assert_eq!(after.balancer().name, LB_NAME);
    assert!(after.seen.listeners.iter().any(|listener| listener.tags == [LB_NAME]));
}

#[test]
fn case_083_a_load_balancer_shared_under_the_old_cluster_name_is_renamed_and_keeps_its_owner() {
    let other = "kube_service_kubernetes_default_other";
    let shared = external(applied()).touched_balancer(|balancer| balancer.tags.push(other.to_owned()));
    let scene = shared.joined_by("other").in_cluster("c2");
    let after = scene.applied();
    let tags = ["kube_service_c2_default_web", "kube_service_c2_default_other"];
    assert_eq!((after.balancer().name.as_str(), &after.balancer().tags[..]), (tags[0], &tags.map(str::to_owned)[..]));
}

#[test]
fn case_084_a_truncated_name_is_stable() {
    let name = "s".repeat(250);
    let scene = Scene::new().named(&name).applied().annotated_with_id();
    assert_eq!(scene.balancer().name.len(), 255);
    assert_eq!(scene.steps(), [""; 0]);
}

#[test]
fn case_115_without_nodes_nothing_is_created_unless_a_selector_excludes_them() {
    let error = Scene::new().nodes(&[]).plan_error();
    assert!(error.message().contains("there are no nodes"), "{error}");
    assert!(Scene::new().nodes(&[]).with("node-selector", "env=prod").planned().is_ok(), "116");
    assert!(Scene::new().applied().nodes(&[]).planned().is_ok(), "an existing one is emptied");
}

#[test]
fn case_151_a_new_load_balancer_in_error_is_discarded() {
    let failed = Scene::new().applied().touched(|seen| {
        if let Found::One { balancer, fresh, .. } = &mut seen.found {
            (balancer.provisioning_status, *fresh) = ("ERROR".to_owned(), true);
        }
    });
    assert_eq!(failed.changes(), [Change::DiscardLoadBalancer]);
}

#[test]
fn case_152_and_153_a_load_balancer_that_is_not_active_is_not_changed() {
    let with =
        |status: &str| Scene::new().applied().touched_balancer(|one| one.provisioning_status = status.to_owned());
    let failed = with("ERROR").plan_error();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert!(failed.message().contains("not ACTIVE"), "{failed}");
    // Its state has the pending operation, so it gets no plan.
    assert!(with("PENDING_UPDATE").plan_error().message().contains("PENDING_UPDATE"));
}

// ---- adoption and release

fn adopted(balancer: LoadBalancer) -> Scene {
    Scene::new().with("bowline.dev/adopt", "corp-lb").touched(|seen| {
        seen.found = Found::One { balancer: Box::new(balancer), by_id: false, adopted: true, fresh: false };
    })
}

fn corp() -> LoadBalancer {
    LoadBalancer {
        id: "lb".to_owned(),
        name: "corp-lb".to_owned(),
        provisioning_status: "ACTIVE".to_owned(),
        vip_address: "10.0.0.100".to_owned(),
        tags: vec!["blue".to_owned()],
        ..LoadBalancer::default()
    }
}

#[test]
fn an_adopted_load_balancer_is_renamed_tagged_and_updated() {
    let scene = adopted(corp());
    assert_eq!(scene.steps()[0], "update load balancer corp-lb");
    let body = json!({
        "name": LB_NAME,
        "description": "Kubernetes external service default/web from cluster kubernetes",
    });
    assert_eq!(scene.body("update load balancer"), body);
    let mut after = scene.applied();
    assert_eq!(after.balancer().tags, ["blue", LB_NAME]);
    if let Found::One { adopted, .. } = &mut after.seen.found {
        *adopted = false;
    }
    assert_eq!(after.steps(), [""; 0]);
}

#[test]
fn a_foreign_or_missing_load_balancer_is_not_adopted() {
    let named = LoadBalancer { name: "kube_service_kubernetes_default_a".to_owned(), ..corp() };
    let tagged = LoadBalancer { tags: vec!["kube_service_kubernetes_default_a".to_owned()], ..corp() };
    for taken in [named, tagged] {
        let error = adopted(taken).plan_error();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.message().contains("kube_service_kubernetes_default_a"), "{error}");
    }
    assert_eq!(Scene::new().with("bowline.dev/adopt", "nothing").plan_error().kind(), ErrorKind::NotFound);
}

#[test]
fn a_retained_load_balancer_loses_only_our_marks() {
    let scene = applied().with("bowline.dev/policy", "retain");
    let released = super::super::plan(&scene.config, &scene.desired_removal(), scene.seen.clone()).unwrap();
    let changes: Vec<Change> = released.steps.iter().map(|step| step.payload.change.clone()).collect();
    let tags = TagChange { add: vec![], remove: vec![LB_NAME.to_owned()] };
    let expected = [
        update(LISTENERS.resource, "listener-TCP-80", json!({}), tags.clone()),
        update(LOAD_BALANCERS.resource, "lb", json!({"name": "kubernetes_default_web", "description": ""}), tags),
    ];
    assert_eq!(changes, expected);
}
