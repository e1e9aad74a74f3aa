//! Floating IPs and the status.

use bowline_cloud::{ErrorKind, Retry};
use bowline_core::{Ingress, IpFamily, IpMode};
use bowline_openstack_simulator::{Fault, FaultSpec, Kind, Options};
use http::Method;
use serde_json::json;

use crate::balancers_end_to_end::world::{INTERNAL, LB_ADDRESS, LB_ID, World, text};

#[tokio::test(start_paused = true)]
async fn a_load_balancer_and_its_floating_ip_take_one_request_each_and_leave_nothing_behind() {
    let world = World::new();
    let mut web = world.service();
    let outcome = world.ensure(&mut web).await.unwrap();
    assert_eq!(world.writes(), ["POST loadbalancers", "POST floatingips"]);
    let (balancer, floating) = (world.only(Kind::LoadBalancer), world.only(Kind::FloatingIp));
    assert_eq!(text(&floating, "port_id"), text(&balancer, "vip_port_id"));
    assert_eq!(
        text(&floating, "description"),
        "Floating IP for Kubernetes external service default/web from cluster kubernetes"
    );
    let ip = Some(text(&floating, "floating_ip_address").to_owned());
    assert_eq!(outcome.ingress, [Ingress { ip, ip_mode: Some(IpMode::Vip), ..Ingress::default() }]);
    assert_eq!(web.annotations[LB_ID], text(&balancer, "id"));
    assert_eq!(web.annotations[LB_ADDRESS], outcome.ip());
    world.cloud.forget_calls();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.writes(), Vec::<String>::new());
    world.remove(&mut web).await.unwrap();
    assert_eq!(world.writes(), ["DELETE floatingips/{id}", "DELETE loadbalancers/{id}"]);
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn case_122_a_requested_unattached_floating_ip_is_attached_and_never_deleted() {
    let world = World::new();
    let id = world.floating_ip_by_hand("203.0.113.77");
    let mut web = world.service();
    web.request_address("203.0.113.77");
    assert_eq!(world.ensure(&mut web).await.unwrap().ip(), "203.0.113.77");
    assert_eq!(world.writes(), ["POST loadbalancers", "PUT floatingips/{id}"]);
    world.remove(&mut web).await.unwrap();
    let left = world.only(Kind::FloatingIp);
    assert_eq!((text(&left, "id"), text(&left, "port_id")), (id.as_str(), ""));
}

#[tokio::test(start_paused = true)]
async fn case_123_a_floating_ip_that_is_in_use_is_not_available() {
    let world = World::new();
    let network = world.cloud.fixture().external_network;
    let fields = json!({"floating_network_id": network, "floating_ip_address": "203.0.113.77", "port_id": "another"});
    world.cloud.add(Kind::FloatingIp, fields);
    let mut web = world.service();
    web.request_address("203.0.113.77");
    let error = world.ensure(&mut web).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().contains("203.0.113.77 is not available"), "{error}");
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn case_124_an_unknown_address_is_requested_from_neutron_whose_fault_is_reported() {
    let mut web = World::new().service();
    web.request_address("203.0.113.77");
    let world = World::new();
    let error = world.ensure(&mut web).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.message().contains("HTTP 403"), "{error}");
    let open = World::with(Options { floating_address_choice: true, ..Options::default() }, |_, _| ());
    assert_eq!(
        open.ensure(&mut open.service().request_address("203.0.113.77").clone()).await.unwrap().ip(),
        "203.0.113.77"
    );
    assert_eq!(open.sent("POST floatingips")["floatingip"]["floating_ip_address"], "203.0.113.77");
}

#[tokio::test(start_paused = true)]
async fn case_125_a_changed_requested_address_is_ignored_while_a_floating_ip_is_attached() {
    let world = World::new();
    let mut web = world.service();
    let before = world.ensure(&mut web).await.unwrap();
    web.request_address("203.0.113.77");
    let after = world.ensure(&mut web).await.unwrap();
    assert_eq!((before.ip(), world.writes().len()), (after.ip(), 2));
}

#[tokio::test(start_paused = true)]
async fn case_126_an_internal_load_balancer_has_the_requested_address() {
    let world = World::new();
    let mut web = world.service();
    web.request_address("10.10.200.7").annotate(INTERNAL, "true");
    assert_eq!(world.ensure(&mut web).await.unwrap().ip(), "10.10.200.7");
    assert_eq!(world.sent("POST loadbalancers")["loadbalancer"]["vip_address"], "10.10.200.7");
    assert_eq!(world.writes(), ["POST loadbalancers"]);
}

#[tokio::test(start_paused = true)]
async fn case_127_and_158_without_floating_ip_quota_the_load_balancer_is_kept_and_found_again() {
    let world = World::new();
    world.cloud.set_quota("floatingip", Some(0));
    let mut web = world.service();
    for _ in 0..3 {
        let error = world.ensure(&mut web).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert!(error.message().contains("floatingip"), "{error}");
    }
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp)), (1, 0));
    assert_eq!(web.annotations[LB_ID], text(&world.only(Kind::LoadBalancer), "id"));
    assert!(!web.annotations.contains_key(LB_ADDRESS));
    world.cloud.set_quota("floatingip", None);
    world.ensure(&mut web).await.unwrap();
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn case_128_the_first_matching_subnet_with_a_free_address_is_used() {
    let world = World::with(Options::default(), |config, cloud| {
        let network = cloud.fixture().external_network;
        let first = cloud.add_subnet(&network, "ext-1", "198.51.100.0/24");
        cloud.add_subnet(&network, "ext-2", "192.0.2.0/24");
        cloud.exhaust(&first, true);
        config.load_balancer.placement.floating_subnet.name = "ext-*".to_owned();
    });
    let mut web = world.service();
    let outcome = world.ensure(&mut web).await.unwrap();
    assert!(outcome.ip().starts_with("192.0.2."), "{}", outcome.ip());
    assert_eq!(world.count(Kind::FloatingIp), 1);
}

#[tokio::test(start_paused = true)]
async fn case_129_a_floating_subnet_of_another_network_is_an_error_before_any_write() {
    let world = World::with(Options::default(), |config, cloud| {
        config.load_balancer.placement.floating_subnet.id = cloud.fixture().subnet;
    });
    let error = world.ensure(&mut world.service()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_invisible_floating_subnet_is_used_if_its_network_lists_it() {
    let world = World::with(Options::default(), |config, cloud| {
        config.load_balancer.placement.floating_subnet.id = cloud.fixture().external_subnet;
        cloud.inject(
            FaultSpec::always(Fault::Answer(404, r#"{"NeutronError": {"type": "SubnetNotFound"}}"#.to_owned()))
                .on(Method::GET, "subnets/{id}"),
        );
    });
    world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(world.sent("POST floatingips")["floatingip"]["subnet_id"], world.cloud.fixture().external_subnet);
    let foreign = World::with(Options::default(), |config, cloud| {
        config.load_balancer.placement.floating_subnet.id = cloud.fixture().subnet;
        cloud.inject(
            FaultSpec::always(Fault::Answer(404, r#"{"NeutronError": {"type": "SubnetNotFound"}}"#.to_owned()))
                .on(Method::GET, "subnets/{id}"),
        );
    });
    assert_eq!(foreign.ensure(&mut foreign.service()).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert_eq!(foreign.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn case_130_without_an_external_network_the_service_is_internal() {
    let world = World::with(Options::default(), |config, cloud| {
        config.load_balancer.placement.floating_network_id = String::new();
        cloud.remove(Kind::Network, &cloud.fixture().external_network);
    });
    let outcome = world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(outcome.ip(), text(&world.only(Kind::LoadBalancer), "vip_address"));
    assert!(outcome.warnings.contains(&"LoadBalancerExternalNetworkSearchFailed".to_owned()), "{:?}", outcome.warnings);
    assert!(outcome.warnings.contains(&"LoadBalancerForcedInternal".to_owned()), "{:?}", outcome.warnings);
}

#[tokio::test(start_paused = true)]
async fn case_131_the_detected_external_network_has_an_ipv4_subnet() {
    let world = World::with(Options::default(), |config, cloud| {
        config.load_balancer.placement.floating_network_id = String::new();
        cloud.add_network("a-first", "2001:db8:1::/64", true);
    });
    world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(
        world.sent("POST floatingips")["floatingip"]["floating_network_id"],
        world.cloud.fixture().external_network
    );
}

#[tokio::test(start_paused = true)]
async fn case_132_and_133_becoming_internal_deletes_the_floating_ip_and_becoming_external_creates_one() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    web.annotate(INTERNAL, "true");
    let inside = world.ensure(&mut web).await.unwrap();
    assert_eq!(inside.ip(), text(&world.only(Kind::LoadBalancer), "vip_address"));
    assert_eq!(world.count(Kind::FloatingIp), 0);
    web.annotations.remove(INTERNAL);
    assert_eq!(world.ensure(&mut web).await.unwrap().ip(), text(&world.only(Kind::FloatingIp), "floating_ip_address"));
    web.annotate(INTERNAL, "true").annotate("keep-floatingip", "true");
    world.ensure(&mut web).await.unwrap();
    assert_eq!(text(&world.only(Kind::FloatingIp), "port_id"), "");
    assert_eq!(world.sent("PUT floatingips/{id}"), json!({"floatingip": {"port_id": null}}));
}

#[tokio::test(start_paused = true)]
async fn case_132_a_floating_ip_created_by_hand_is_detached() {
    let world = World::new();
    world.floating_ip_by_hand("203.0.113.77");
    let mut web = world.service();
    web.request_address("203.0.113.77");
    world.ensure(&mut web).await.unwrap();
    web.spec.requested_address = None;
    web.annotate(INTERNAL, "true");
    world.ensure(&mut web).await.unwrap();
    assert_eq!(text(&world.only(Kind::FloatingIp), "port_id"), "");
}

/// Another client attaches it to another port.
fn attach_elsewhere(world: &World) {
    let id = text(&world.only(Kind::FloatingIp), "id").to_owned();
    world.cloud.edit(Kind::FloatingIp, &id, |floating| {
        floating.insert("port_id".to_owned(), json!("8a4d1f3c-1111-4222-8333-444455556666"));
    });
}

#[tokio::test(start_paused = true)]
async fn case_123_a_floating_ip_that_is_attached_elsewhere_after_the_plan_is_not_moved() {
    for exists in [true, false] {
        let world = World::new();
        let mut web = world.service();
        if exists {
            web.annotate(INTERNAL, "true");
            world.ensure(&mut web).await.unwrap();
            web.annotations.remove(INTERNAL);
        }
        world.floating_ip_by_hand("203.0.113.77");
        web.request_address("203.0.113.77");
        let (_, plan) = world.plan(&mut web, true).await.unwrap();
        attach_elsewhere(&world);
        world.cloud.forget_calls();
        let mut error = None;
        for step in &plan.steps {
            error = world.apply(&mut web, step).await.err();
        }
        let error = error.unwrap();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::AlreadyExists, Retry::Backoff));
        assert!(error.message().contains("not available"), "{error}");
        assert!(!world.writes().contains(&"PUT floatingips/{id}".to_owned()), "{:?}", world.writes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_is_attached_elsewhere_after_the_plan_is_neither_deleted_nor_detached() {
    for keep in ["false", "true"] {
        let world = World::new();
        let mut web = world.service();
        world.ensure(&mut web).await.unwrap();
        web.annotate(INTERNAL, "true").annotate("keep-floatingip", keep);
        let (_, plan) = world.plan(&mut web, true).await.unwrap();
        attach_elsewhere(&world);
        world.cloud.forget_calls();
        let error = world.apply(&mut web, &plan.steps[0]).await.unwrap_err();
        assert_eq!((error.kind(), world.writes()), (ErrorKind::Conflict, vec![]), "keep: {keep}");
        world.ensure(&mut web).await.unwrap();
        assert_eq!(world.count(Kind::FloatingIp), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn case_134_a_floating_ip_with_keep_floatingip_outlives_its_service() {
    let world = World::new();
    let mut web = world.service();
    web.annotate("keep-floatingip", "true");
    world.ensure(&mut web).await.unwrap();
    world.remove(&mut web).await.unwrap();
    assert_eq!(world.count(Kind::LoadBalancer), 0);
    assert_eq!(text(&world.only(Kind::FloatingIp), "port_id"), "");
    // A later listing of orphans says that it may be kept on purpose.
    web.key.uid.clear();
    web.annotations.clear();
    let (_, plan) = world.plan(&mut web, false).await.unwrap();
    assert!(plan.to_string().contains("perhaps kept on purpose"), "{plan}");
}

#[tokio::test(start_paused = true)]
async fn case_135_and_138_an_ipv6_load_balancer_has_no_floating_ip() {
    let world = World::with(Options::default(), |config, cloud| {
        config.load_balancer.placement.subnet_id = cloud.add_subnet(&cloud.fixture().network, "six", "2001:db8:6::/64");
    });
    let mut web = world.service();
    web.spec.ip_families = vec![IpFamily::IPv6, IpFamily::IPv4];
    web.request_address("2001:db8:6::77");
    let outcome = world.ensure(&mut web).await.unwrap();
    assert_eq!(outcome.ip(), "2001:db8:6::77");
    assert!(outcome.warnings.contains(&"LoadBalancerFloatingIPSkipped".to_owned()), "{:?}", outcome.warnings);
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp)), (1, 0));
    assert_eq!(world.sent("POST loadbalancers")["loadbalancer"]["vip_address"], "2001:db8:6::77");
}

#[tokio::test(start_paused = true)]
async fn case_136_and_137_the_status_has_a_host_name_if_annotated_or_with_the_proxy_protocol() {
    let world = World::with(Options::default(), |config, _| config.load_balancer.ingress_hostname = true);
    let mut web = world.service();
    web.annotate("proxy-protocol", "true");
    let outcome = world.ensure(&mut web).await.unwrap();
    let ip = text(&world.only(Kind::FloatingIp), "floating_ip_address").to_owned();
    let named = |name: String| [Ingress { hostname: Some(name), ..Ingress::default() }];
    assert_eq!(outcome.ingress, named(format!("{ip}.nip.io")));
    web.annotate("hostname", "web.example.com");
    assert_eq!(world.ensure(&mut web).await.unwrap().ingress, named("web.example.com".to_owned()));
    assert_eq!(web.annotations[LB_ADDRESS], ip);
}

#[tokio::test(start_paused = true)]
async fn with_the_proxy_protocol_the_ip_mode_is_proxy() {
    let world = World::new();
    let mut web = world.service();
    web.annotate("proxy-protocol", "true");
    let outcome = world.ensure(&mut web).await.unwrap();
    assert_eq!(outcome.ingress[0].ip_mode, Some(IpMode::Proxy));
}
