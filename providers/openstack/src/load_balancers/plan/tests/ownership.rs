//! 7.3: ownership, naming, sharing.

use bowline_cloud::{ErrorKind, Retry};
use bowline_core::Protocol;
use serde_json::json;

use crate::api::octavia::LoadBalancer;
use crate::load_balancers::change::{Change, Retag};
use crate::load_balancers::observation::Found;
use crate::load_balancers::testing::{LB_NAME, Scene};

/// The balancer of `default/web`, made and noted.
fn made() -> Scene {
    Scene::new().made().noted()
}

fn external(scene: Scene) -> Scene {
    scene.configured(|section| section.internal = false)
}

#[test]
fn case_061_a_new_service_is_one_request_with_everything_in_it() {
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
fn case_061_all_that_can_be_asked_for_is_in_the_request() {
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
fn case_062_without_tags_there_are_none_and_nothing_is_shared() {
    let old = Scene::new().octavia("v2.4");
    let body = old.body("create load balancer");
    assert!(body.get("tags").is_none() && body["listeners"][0].get("tags").is_none(), "{body}");
    assert_eq!(old.clone().made().steps(), [""; 0]);
    let refused = external(old.made()).joined_by("other").refusal();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[test]
fn case_063_a_balancer_of_the_name_is_taken_up() {
    assert_eq!(Scene::new().made().steps(), [""; 0]);
}

#[test]
fn case_064_a_balancer_of_the_old_name_gets_the_tag_and_keeps_its_name() {
    let old = Scene::new().made().touched_balancer(|balancer| {
        balancer.name = "auidofweb".to_owned();
        balancer.tags.clear();
    });
    let tags = Retag { add: vec![LB_NAME.to_owned()], remove: vec![] };
    let tag = Change::UpdateLoadBalancer { body: json!({}), tags };
    assert_eq!(old.changes(), [tag]);
    // The annotation names it from then on, and it is still the Service's own.
    assert_eq!(old.made().noted().with("x-forwarded-for", "false").steps(), [""; 0]);
}

#[test]
fn case_066_of_two_balancers_none_is_touched() {
    let two = Scene::new().touched(|seen| seen.found = Found::Several(vec!["a".to_owned(), "b".to_owned()]));
    // Neither is one of them deleted.
    let parting = super::super::plan(&two.config, &two.parting_wish(), two.seen.clone()).unwrap_err();
    for error in [two.refusal(), parting] {
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::AlreadyExists, Retry::Backoff));
        assert!(error.message().contains("(a, b)") && !error.message().contains("  "), "{error}");
    }
}

#[test]
fn case_067_a_balancer_that_is_named_and_gone_is_an_error_and_no_new_one() {
    let error = Scene::new().touched(|seen| seen.found = Found::Missing("gone".to_owned())).refusal();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::NotFound, Retry::Backoff));
    assert!(error.message().contains("load-balancer-id"), "{error}");
}

fn renamed(scene: Scene) -> Scene {
    scene.configured(|section| section.create_monitor = true).made().noted().in_cluster("c2")
}

#[test]
fn case_070_all_names_follow_when_the_cluster_is_renamed() {
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
    let after = scene.made();
    assert_eq!(
        (&after.balancer().tags[..], &after.seen.listeners[0].tags[..]),
        (&[new.to_owned()][..], &[new.to_owned()][..])
    );
    assert_eq!((after.steps(), after.warnings()), (vec![], vec![]));
}

#[test]
fn case_071_a_rename_goes_on_where_it_was_interrupted() {
    let two_ports = [(Protocol::Tcp, 80), (Protocol::Tcp, 443)];
    let scene = renamed(Scene::new().ports(&two_ports));
    assert_eq!(scene.steps().len(), 7);
    for done in 0..7 {
        let rest = scene.clone().made_in_part(done);
        assert_eq!(rest.steps(), scene.steps().split_off(done), "after {done} steps");
        assert_eq!(rest.warnings(), ["LoadBalancerRename"]);
    }
}

#[test]
fn the_tags_of_a_listener_follow_a_renamed_cluster_whatever_its_name() {
    let scene = renamed(Scene::new()).touched(|seen| seen.listeners[0].name = "front door".to_owned());
    let tags = Retag { add: vec!["kube_service_c2_default_web".to_owned()], remove: vec![LB_NAME.to_owned()] };
    let id = scene.seen.listeners[0].id.clone();
    assert!(scene.changes().contains(&Change::RetagListener { id, body: json!({}), tags }), "{:?}", scene.steps());
    let after = scene.made();
    assert_eq!(after.seen.listeners[0].name, "front door");
    assert_eq!(after.steps(), [""; 0]);
}

#[test]
fn a_tag_that_is_there_already_is_not_there_twice_after_a_rename() {
    let new = "kube_service_c2_default_web";
    let scene = renamed(Scene::new()).touched_balancer(|balancer| balancer.tags.push(new.to_owned()));
    assert_eq!(scene.made().balancer().tags, [new]);
}

#[test]
fn case_072_without_the_annotation_a_renamed_cluster_makes_a_new_balancer() {
    let new = Scene::new().in_cluster("c2");
    assert_eq!(new.steps(), ["create load balancer kube_service_c2_default_web"]);
}

#[test]
fn a_rename_changes_the_cluster_alone_wherever_else_its_name_stands() {
    let scene = renamed(Scene::new().in_cluster("kube"));
    let new = "kube_service_c2_default_web";
    assert_eq!(scene.body("update listener"), json!({"name": format!("listener_0_{new}")}));
    assert_eq!(scene.made().seen.listeners[0].tags, [new]);
}

#[test]
fn case_073_another_service_adds_its_listeners_and_its_tags() {
    let second = external(made()).joined_by("other").touched(|seen| {
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
    let after = second.made();
    assert_eq!(after.balancer().tags, [LB_NAME, other]);
    assert_eq!(after.steps(), [""; 0]);
}

#[test]
fn case_074_a_third_service_is_one_too_many() {
    let full = external(made())
        .touched_balancer(|balancer| balancer.tags.push("kube_service_kubernetes_default_b".to_owned()))
        .joined_by("c");
    let error = full.refusal();
    assert!(error.message().contains("already shared with 2 Services"), "{error}");
    assert_eq!(error.retry_advice(), Retry::Backoff, "one of the others may go");
    // One of the two is not a third one, and other people's tags do not count.
    let plain =
        |balancer: &mut LoadBalancer| balancer.tags = vec![LB_NAME.to_owned(), "blue".to_owned(), "red".to_owned()];
    assert!(external(made()).touched_balancer(plain).joined_by("b").planned().is_ok());
    assert!(full.named("b").planned().is_ok());
    // One that has come as far as to its listener is there.
    let coming = external(made()).touched(|seen| {
        seen.listeners[0].tags.push("kube_service_kubernetes_default_b".to_owned());
    });
    assert!(coming.joined_by("c").refusal().message().contains("already shared with 2 Services"));
}

#[test]
fn case_075_a_port_that_another_service_has_is_an_error() {
    let second = external(made()).joined_by("other").ports(&[(Protocol::Tcp, 80)]);
    let error = second.refusal();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains("listener port 80 already exists"), "{error}");
    assert!(error.message().contains(LB_NAME), "{error}");
}

#[test]
fn case_076_the_same_number_of_another_family_is_free() {
    let first = external(Scene::new().ports(&[(Protocol::Tcp, 53)]).made().noted());
    for protocol in [Protocol::Udp, Protocol::Sctp] {
        let second = first.clone().joined_by("other").ports(&[(protocol, 53)]);
        assert!(second.steps().iter().any(|step| step.starts_with("create listener")), "{protocol}");
    }
}

#[test]
fn case_076a_a_listener_for_http_is_in_the_way_of_one_for_tcp() {
    for (key, value) in [("x-forwarded-for", "true"), ("default-tls-container-ref", "https://kms/v1/secrets/1")] {
        let first = Scene::new().with(key, value).made().noted();
        let second = external(first).joined_by("other").ports(&[(Protocol::Tcp, 80)]);
        assert_eq!(second.refusal().kind(), ErrorKind::AlreadyExists, "{key}");
    }
}

#[test]
fn case_077_an_internal_service_does_not_share() {
    let error = made().joined_by("other").refusal();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("internal Service cannot share"), "{error}");
}

#[test]
fn case_083_a_balancer_of_another_cluster_is_shared_and_not_renamed() {
    let foreign = external(made()).joined_by("other").in_cluster("c2");
    let steps = foreign.steps();
    assert!(steps.iter().all(|step| !step.starts_with("update listener") && !step.contains("monitor")), "{steps:?}");
    assert_eq!(foreign.warnings().iter().filter(|reason| *reason == "LoadBalancerRename").count(), 0);
    let after = foreign.made();
    assert_eq!(after.balancer().name, LB_NAME);
    assert!(after.seen.listeners.iter().any(|listener| listener.tags == [LB_NAME]));
}

#[test]
fn case_083_what_the_service_shared_under_the_old_name_is_renamed_and_keeps_its_owner() {
    let other = "kube_service_kubernetes_default_other";
    let shared = external(made()).touched_balancer(|balancer| balancer.tags.push(other.to_owned()));
    let scene = shared.joined_by("other").in_cluster("c2");
    let after = scene.made();
    let tags = ["kube_service_c2_default_web", "kube_service_c2_default_other"];
    assert_eq!((after.balancer().name.as_str(), &after.balancer().tags[..]), (tags[0], &tags.map(str::to_owned)[..]));
}

#[test]
fn case_084_a_name_that_is_cut_is_the_same_in_every_pass() {
    let name = "s".repeat(250);
    let scene = Scene::new().named(&name).made().noted();
    assert_eq!(scene.balancer().name.len(), 255);
    assert_eq!(scene.steps(), [""; 0]);
}

#[test]
fn case_115_without_nodes_nothing_is_made_unless_they_were_left_out_on_purpose() {
    let error = Scene::new().nodes(&[]).refusal();
    assert!(error.message().contains("there are no nodes"), "{error}");
    assert!(Scene::new().nodes(&[]).with("node-selector", "env=prod").planned().is_ok(), "116");
    assert!(Scene::new().made().nodes(&[]).planned().is_ok(), "one that is there is emptied");
}

#[test]
fn case_151_one_that_was_just_made_and_failed_is_discarded() {
    let failed = Scene::new().made().touched(|seen| {
        if let Found::One { balancer, fresh, .. } = &mut seen.found {
            (balancer.provisioning_status, *fresh) = ("ERROR".to_owned(), true);
        }
    });
    assert_eq!(failed.changes(), [Change::DiscardLoadBalancer]);
}

#[test]
fn case_152_and_153_one_that_is_not_active_is_left_alone() {
    let with = |status: &str| Scene::new().made().touched_balancer(|one| one.provisioning_status = status.to_owned());
    let failed = with("ERROR").refusal();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert!(failed.message().contains("not ACTIVE"), "{failed}");
    // Its state names the operation, so that there is no plan to begin with.
    assert!(with("PENDING_UPDATE").refusal().message().contains("PENDING_UPDATE"));
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
fn a_balancer_that_is_adopted_gets_our_name_and_tag_and_is_made_to_fit() {
    let scene = adopted(corp());
    assert_eq!(scene.steps()[0], "update load balancer corp-lb");
    let body = json!({
        "name": LB_NAME,
        "description": "Kubernetes external service default/web from cluster kubernetes",
    });
    assert_eq!(scene.body("update load balancer"), body);
    let mut after = scene.made();
    assert_eq!(after.balancer().tags, ["blue", LB_NAME]);
    if let Found::One { adopted, .. } = &mut after.seen.found {
        *adopted = false;
    }
    assert_eq!(after.steps(), [""; 0]);
}

#[test]
fn what_belongs_to_another_service_is_not_adopted_and_what_is_not_there_neither() {
    let named = LoadBalancer { name: "kube_service_kubernetes_default_a".to_owned(), ..corp() };
    let tagged = LoadBalancer { tags: vec!["kube_service_kubernetes_default_a".to_owned()], ..corp() };
    for taken in [named, tagged] {
        let error = adopted(taken).refusal();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.message().contains("kube_service_kubernetes_default_a"), "{error}");
    }
    assert_eq!(Scene::new().with("bowline.dev/adopt", "nothing").refusal().kind(), ErrorKind::NotFound);
}

#[test]
fn what_is_retained_loses_our_marks_and_nothing_else() {
    let scene = made().with("bowline.dev/policy", "retain");
    let released = super::super::plan(&scene.config, &scene.parting_wish(), scene.seen.clone()).unwrap();
    let changes: Vec<Change> = released.steps.iter().map(|step| step.payload.change.clone()).collect();
    let tags = Retag { add: vec![], remove: vec![LB_NAME.to_owned()] };
    let expected = [
        Change::RetagListener { id: "listener-TCP-80".to_owned(), body: json!({}), tags: tags.clone() },
        Change::UpdateLoadBalancer { body: json!({"name": "kubernetes_default_web", "description": ""}), tags },
    ];
    assert_eq!(changes, expected);
}
