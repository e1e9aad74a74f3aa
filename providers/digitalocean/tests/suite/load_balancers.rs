//! Load balancers of Services: how they are found, created, changed, adopted and deleted.

use bowline_cloud::{CloudProvider as _, ErrorKind, LoadBalancers as _, Retry};
use bowline_core::testing::{addresses, annotated, service_port, status};
use bowline_core::{ClusterName, LoadBalancerStatus, Protocol, Service, TargetNode};
use bowline_digitalocean_simulator::{FaultSpec, Fields as _, Options, Work, error_fault};
use http::Method;
use serde_json::json;

use crate::world::{ID, Kept, LB, NAME, TYPE, World, node, provider, web};

/// Request of the Service `web` with these Droplets, as the Go manager sends it without a cluster ID.
fn created_by_go(droplets: &[u64]) -> serde_json::Value {
    json!({"name": NAME, "algorithm": "round_robin", "region": "nyc3", "type": "REGIONAL_NETWORK",
        "forwarding_rules": [{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80}],
        "health_check": {"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3,
            "response_timeout_seconds": 5, "healthy_threshold": 5, "unhealthy_threshold": 3, "proxy_protocol": false},
        "sticky_sessions": {"type": "none"}, "droplet_ids": droplets, "disable_lets_encrypt_dns_records": false,
        "firewall": {}, "network": "EXTERNAL", "network_stack": "IPV4"})
}

fn droplets(world: &World) -> Vec<u64> {
    let id = |target: &TargetNode| target.provider_id.as_ref().unwrap().rest().unwrap().parse().unwrap();
    world.nodes.iter().map(id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_service_costs_one_write_and_a_synced_one_a_single_read() {
    let world = World::new().await;
    let mut web = world.kept(web(&[]));
    let state = world.synced(&mut web).await;
    assert_eq!(state.status, status(&[world.load_balancer().text("ip")]));
    assert_eq!(world.load_balancer().texts("tags"), ["k8s:c1"]);
    assert_eq!(
        (web.annotation(ID), web.annotation(TYPE)),
        (Some(world.load_balancer().text("id")), Some("REGIONAL_NETWORK"))
    );
    assert_eq!(world.writes(), ["POST load_balancers"]);
    world.synced(&mut web).await;
    assert_eq!(world.calls(), ["GET load_balancers/{id}"], "DO-5: without the PUT of the Go manager");
}

#[tokio::test(start_paused = true)]
async fn do_3_a_load_balancer_of_the_go_manager_is_adopted_without_a_write() {
    let world = World::new().await;
    (0..60).for_each(|index| drop(world.cloud.put("load_balancers", json!({"name": format!("other-{index}")}))));
    let id = world.cloud.put("load_balancers", created_by_go(&droplets(&world)));
    let mut by_name = world.kept(web(&[]));
    world.synced(&mut by_name).await;
    assert_eq!((by_name.annotation(ID), by_name.annotation(TYPE)), (Some(id.as_str()), Some("REGIONAL_NETWORK")));
    let mut by_id = world.kept(annotated(web(&[]), &[(ID, &id), (TYPE, "REGIONAL_NETWORK")]));
    world.synced(&mut by_id).await;
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn do_4_a_failed_lookup_creates_nothing() {
    let world = World::new().await;
    world.cloud.inject(FaultSpec::always(error_fault(500, "boom")).on(Method::GET, "load_balancers/{id}"));
    let mut web = world.kept(annotated(web(&[]), &[(ID, "lb-1")]));
    let error = world.sync(&mut web).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "failed to get load-balancer by ID lb-1: GET http://do.test/v2/load_balancers/lb-1: 500 (request"
        ),
        "{text}"
    );
    assert!(text.contains("boom"), "{text}");
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_failed_listing_creates_nothing_and_says_what_failed() {
    let world = World::new().await;
    world.cloud.inject(FaultSpec::always(error_fault(500, "boom")).on(Method::GET, "load_balancers"));
    let error = world.sync(&mut world.kept(web(&[]))).await.unwrap_err().to_string();
    let expected = "failed to list load-balancers: GET http://do.test/v2/load_balancers";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn do_15_a_service_without_nodes_is_not_invalid() {
    let world = World::new().await;
    let mut web = Kept { nodes: Vec::new(), ..world.kept(web(&[])) };
    let plan = world.planned(&mut web).await.unwrap();
    let error = &plan.errors[0];
    assert_eq!((error.kind, error.retry, plan.steps.len()), (ErrorKind::NotFound, Retry::Backoff, 0));
    web.nodes = world.nodes.clone();
    world.synced(&mut web).await;
}

#[tokio::test(start_paused = true)]
async fn do_6_and_15c_a_disowned_service_is_unmanaged() {
    let world = World::new().await;
    let disowned = annotated(web(&[]), &[("service.kubernetes.io/do-loadbalancer-disown", "true")]);
    let settings = world.provider.settings(&disowned.annotations, Default::default()).unwrap();
    assert!(settings.unmanaged, "DO-6: the controller makes no call");
    let id = world.cloud.put("load_balancers", created_by_go(&[]));
    let mut deleted = Kept { is_deleted: true, ..world.kept(annotated(disowned, &[(ID, &id)])) };
    let plan = world.planned(&mut deleted).await.unwrap();
    assert!(plan.is_empty(), "DO-15c: {plan}");
}

#[tokio::test(start_paused = true)]
async fn do_7_an_invalid_disown_annotation_is_an_error_and_deletes_nothing() {
    let world = World::new().await;
    let service = annotated(web(&[]), &[("service.kubernetes.io/do-loadbalancer-disown", "yes")]);
    let errors = world.provider.settings(&service.annotations, Default::default()).unwrap_err();
    let message = "failed to get disown LB configuration setting: cannot convert value \"yes\" for annotation \
                   \"service.kubernetes.io/do-loadbalancer-disown\" to bool: strconv.ParseBool: parsing \"yes\": invalid syntax";
    assert_eq!((errors.len(), errors[0].message.as_str()), (1, message));
    let id = world.cloud.put("load_balancers", created_by_go(&[]));
    let mut deleted = Kept { is_deleted: true, ..world.kept(annotated(service, &[(ID, &id)])) };
    let error = world.planned(&mut deleted).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidConfig, message));
}

#[tokio::test(start_paused = true)]
async fn do_8_a_load_balancer_that_failed_is_reported_and_can_be_deleted() {
    let world = World::with(Options { work: Work::Manual, ..Options::default() }, &[]).await;
    world.cloud.fail_work(1);
    let mut web = world.kept(web(&[]));
    let state = world.driver().plan(&mut web).await.unwrap();
    world.driver().apply_all(&mut web, &state.1).await.unwrap();
    world.cloud.finish_work();
    let error = world.sync(&mut web).await.unwrap_err();
    assert!(error.to_string().contains("load-balancer has unexpected status \"errored\""), "{error}");
    web.is_deleted = true;
    assert!(world.sync(&mut web).await.unwrap().state.is_none());
    assert_eq!(world.cloud.records("load_balancers").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn do_9_and_10_the_status_has_both_addresses_or_the_host_name() {
    let world = World::new().await;
    let mut web_service = world.kept(web(&[("type", "REGIONAL")]));
    let state = world.synced(&mut web_service).await;
    let own = world.load_balancer();
    assert_eq!(state.status, status(&[own.text("ip"), own.text("ipv6")]), "DO-9");
    let mut named = world.kept(annotated(web_service.service, &[(&format!("{LB}hostname"), "Foo.Example.COM")]));
    let state = world.synced(&mut named).await;
    let hosts: Vec<_> =
        state.status.ingress.iter().map(|ingress| (ingress.hostname.as_deref(), ingress.ip.as_deref())).collect();
    assert_eq!(hosts, [(Some("foo.example.com"), None)], "DO-10");
}

#[tokio::test(start_paused = true)]
async fn do_11_the_type_of_an_existing_load_balancer_is_set_back() {
    let world = World::new().await;
    let mut web = world.kept(web(&[("type", "REGIONAL")]));
    world.synced(&mut web).await;
    world.cloud.forget_calls();
    web.service = annotated(web.service, &[(TYPE, "REGIONAL_NETWORK")]);
    world.synced(&mut web).await;
    assert_eq!((web.annotation(TYPE), world.load_balancer().text("type")), (Some("REGIONAL"), "REGIONAL"));
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn do_12_and_13_a_load_balancer_that_is_gone_is_deleted() {
    let world = World::new().await;
    let mut gone =
        Kept { is_deleted: true, ..world.kept(annotated(web(&[]), &[(ID, "6f0a1b2c-0000-4000-8000-000000000000")])) };
    assert!(world.sync(&mut gone).await.unwrap().state.is_none());
    assert_eq!(world.writes(), Vec::<String>::new(), "DO-12");
    let mut web = world.kept(web(&[]));
    world.synced(&mut web).await;
    web.is_deleted = true;
    let (_, plan) = world.driver().plan(&mut web).await.unwrap();
    world.cloud.remove("load_balancers", world.load_balancer().text("id"));
    world.driver().apply_all(&mut web, &plan).await.unwrap();
    assert!(world.sync(&mut web).await.unwrap().state.is_none(), "DO-13");
}

/// Upstream drops the error of an update silently. Level-triggered, the load balancer is created again.
#[tokio::test(start_paused = true)]
async fn do_14_a_load_balancer_that_was_deleted_by_hand_is_created_again() {
    let world = World::new().await;
    let mut web = world.kept(web(&[]));
    world.synced(&mut web).await;
    let old = world.load_balancer().text("id").to_owned();
    world.cloud.remove("load_balancers", &old);
    world.synced(&mut web).await;
    assert_ne!(world.load_balancer().text("id"), old);
    assert_eq!(web.annotation(ID), Some(world.load_balancer().text("id")));
}

#[tokio::test(start_paused = true)]
async fn do_15a_and_15b_a_new_load_balancer_is_pending_until_it_is_active() {
    let world = World::with(Options { work: Work::Manual, ..Options::default() }, &[]).await;
    let mut web = world.kept(web(&[]));
    let (_, plan) = world.driver().plan(&mut web).await.unwrap();
    world.driver().apply_all(&mut web, &plan).await.unwrap();
    let state = world.driver().observe(&bowline_simulator::drive::Desired::desired(&web)).await.unwrap().unwrap();
    assert_eq!(state.annotations.get(ID).map(String::as_str), Some(world.load_balancer().text("id")), "DO-15a");
    assert_eq!(state.pending.unwrap().description, "load-balancer is currently being created");
    assert_eq!(state.status, LoadBalancerStatus::default());
    // DO-15b: the annotations could not be written, and the load balancer is found by its name.
    assert_eq!(web.annotation(ID), None);
    world.cloud.finish_work();
    world.synced(&mut web).await;
    assert_eq!(world.writes(), ["POST load_balancers"]);
}

#[tokio::test(start_paused = true)]
async fn do_15d_a_service_without_an_id_is_deleted_by_its_name() {
    let world = World::new().await;
    world.cloud.put("load_balancers", created_by_go(&droplets(&world)));
    let mut web = Kept { is_deleted: true, ..world.kept(web(&[])) };
    assert!(world.sync(&mut web).await.unwrap().state.is_none());
    assert_eq!(world.writes(), ["DELETE load_balancers/{id}"]);
}

/// Whether a Node is Ready is not a property of a target, so it cannot matter.
#[tokio::test(start_paused = true)]
async fn do_15e_targets_follow_the_nodes_with_one_write() {
    let mut world = World::new().await;
    let mut web = world.kept(web(&[]));
    world.synced(&mut web).await;
    world.cloud.forget_calls();
    world.nodes.push(node(&world.cloud, "node-3"));
    let mut grown = world.kept(web.service);
    world.synced(&mut grown).await;
    assert_eq!(world.load_balancer()["droplet_ids"], json!(droplets(&world)));
    assert_eq!(world.writes(), ["PUT load_balancers/{id}"]);
}

#[tokio::test(start_paused = true)]
async fn do_37_and_38_certificates_are_found_by_name_and_the_id_takes_precedence() {
    let world = World::new().await;
    let certificate = world.cloud.put("certificates", json!({"name": "cert", "type": "custom"}));
    let https = |annotations: &[(&str, &str)]| Service {
        ports: vec![service_port(Protocol::Tcp, 443)],
        ..web(&[&[("type", "REGIONAL")], annotations].concat())
    };
    let mut unknown = world.kept(https(&[("certificate-name", "nope")]));
    let error = world.sync(&mut unknown).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to build load-balancer request: certificate with name: \"nope\" not found",
        "DO-37"
    );
    world.cloud.forget_calls();
    let mut both = world.kept(https(&[("certificate-id", &certificate), ("certificate-name", "nope")]));
    world.synced(&mut both).await;
    assert!(!world.calls().iter().any(|call| call.contains("certificates")), "DO-38");
    let mut named = world.kept(https(&[("certificate-name", "cert")]));
    world.synced(&mut named).await;
    assert_eq!(world.load_balancer()["forwarding_rules"][0]["certificate_id"], json!(certificate));
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lets_encrypt_certificate_is_kept_and_annotated() {
    let world = World::new().await;
    let old = world.cloud.put("certificates", json!({"name": "le", "type": "lets_encrypt"}));
    let key = format!("{LB}certificate-id");
    let service = Service {
        ports: vec![service_port(Protocol::Tcp, 443)],
        ..web(&[("type", "REGIONAL"), ("certificate-id", &old)])
    };
    let mut web = world.kept(service);
    world.synced(&mut web).await;
    let new = world.cloud.renew_certificate("le").unwrap();
    world.cloud.forget_calls();
    world.synced(&mut web).await;
    assert_eq!(web.annotation(&key), Some(new.as_str()));
    assert_eq!(world.writes(), Vec::<String>::new());
    world.synced(&mut web).await;
    assert_eq!(world.calls(), ["GET load_balancers/{id}"], "the renewal is known now");
    // The user chooses another certificate.
    let other = world.cloud.put("certificates", json!({"name": "other", "type": "custom"}));
    web.service = annotated(web.service, &[(&key, &other)]);
    world.synced(&mut web).await;
    assert_eq!(world.load_balancer()["forwarding_rules"][0]["certificate_id"], json!(other));
}

#[tokio::test(start_paused = true)]
async fn the_network_is_fixed_and_the_error_says_what_to_do() {
    let world = World::new().await;
    let mut web = world.kept(web(&[]));
    world.synced(&mut web).await;
    web.service = annotated(web.service, &[(&format!("{LB}network"), "INTERNAL")]);
    let error = world.sync(&mut web).await.unwrap_err();
    assert!(error.to_string().contains("the network of a load balancer is fixed at creation"), "{error}");
    assert!(error.to_string().contains("EXTERNAL"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_custom_name_renames_the_load_balancer_and_another_clusters_is_left_alone() {
    let world = World::new().await;
    let mut web = world.kept(web(&[]));
    world.synced(&mut web).await;
    world.cloud.forget_calls();
    web.service = annotated(web.service, &[(&format!("{LB}name"), "shop")]);
    world.synced(&mut web).await;
    assert_eq!(
        (world.load_balancer().text("name"), world.writes()),
        ("shop", vec!["PUT load_balancers/{id}".to_owned()])
    );

    let other = World::new().await;
    let foreign = other.cloud.put("load_balancers", json!({"name": "shop", "tags": ["k8s:c2"]}));
    let mut blocked = other.kept(crate::world::web(&[("name", "shop")]));
    let error = other.sync(&mut blocked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("k8s:c2") && error.to_string().contains(&foreign), "{error}");
    // The documented hand-over names the load balancer by its ID.
    let mut taken = other.kept(annotated(blocked.service, &[(ID, &foreign)]));
    other.synced(&mut taken).await;
    assert_eq!(other.load_balancer().text("id"), foreign);
}

#[tokio::test(start_paused = true)]
async fn nodes_without_a_provider_id_are_found_by_name_or_address() {
    let mut world = World::new().await;
    let private = world.cloud.records("droplets")[1]["networks"]["v4"][0]["ip_address"].as_str().unwrap().to_owned();
    let ids = droplets(&world);
    world.nodes[0].provider_id = None;
    world.nodes[1] = TargetNode { node: private.as_str().into(), provider_id: None, ..world.nodes[1].clone() };
    world.nodes.push(TargetNode {
        node: "unknown".into(),
        provider_id: None,
        addresses: addresses("I10.0.0.1 E198.18.0.1"),
        draining: false,
    });
    world.nodes.sort_by(|a, b| a.node.cmp(&b.node));
    world.synced(&mut world.kept(web(&[]))).await;
    let mut found: Vec<u64> = serde_json::from_value(world.load_balancer()["droplet_ids"].clone()).unwrap();
    found.sort_unstable();
    assert_eq!(found, ids);
}

#[tokio::test(start_paused = true)]
async fn ignored_fields_and_misspelled_annotations_are_warnings() {
    let world = World::new().await;
    let service = Service {
        load_balancer_ip: Some("203.0.113.9".to_owned()),
        session_affinity: bowline_core::SessionAffinity::ClientIp { timeout_seconds: 60 },
        ..web(&[("protocl", "http")])
    };
    let plan = world.planned(&mut world.kept(service)).await.unwrap();
    let text = plan.warnings.iter().map(|warning| warning.message.as_str()).collect::<Vec<_>>().join("\n");
    assert_eq!(plan.warnings.len(), 3, "{text}");
    for part in ["spec.sessionAffinity", "spec.loadBalancerIP", "do-loadbalancer-protocol"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_load_balancers_are_observed_with_one_listing() {
    let world = World::new().await;
    let services: Vec<_> = (0..100).map(|index| Service { uid: format!("{index:032x}"), ..web(&[]) }).collect();
    for service in &services {
        world.synced(&mut world.kept(service.clone())).await;
    }
    world.cloud.forget_calls();
    let desired: Vec<_> =
        services.iter().map(|one| bowline_simulator::drive::Desired::desired(&world.kept(one.clone()))).collect();
    assert!(world.provider.observe(&desired).await.into_iter().all(|state| state.unwrap().is_some()));
    assert_eq!(world.calls(), ["GET load_balancers"]);
}

#[tokio::test(start_paused = true)]
async fn load_balancers_of_a_cluster_are_listed_by_its_tag() {
    let world = World::new().await;
    world.synced(&mut world.kept(web(&[]))).await;
    world.cloud.put("load_balancers", json!({"name": "other", "tags": ["k8s:c2"]}));
    let cluster = ClusterName::from("kubernetes");
    let listed = world.provider.list(&cluster).await.unwrap();
    assert_eq!(
        listed.iter().map(|key| (key.namespace.as_str(), key.service.as_str())).collect::<Vec<_>>(),
        [("", NAME)]
    );
    let own = bowline_simulator::drive::Desired::desired(&world.kept(web(&[])));
    assert!(world.provider.is_owner(&listed[0], &own));
    let id = listed[0].uid.clone();
    let by_id = bowline_simulator::drive::Desired::desired(
        &world.kept(annotated(Service { uid: "x".into(), ..web(&[]) }, &[(ID, &id)])),
    );
    assert!(world.provider.is_owner(&listed[0], &by_id), "a Service names it by its ID");

    let untagged = provider(&world.cloud, &[]);
    untagged.start().await.unwrap();
    let error = untagged.list(&cluster).await.unwrap_err();
    assert!(error.to_string().contains("DO_CLUSTER_ID"), "{error}");
}
