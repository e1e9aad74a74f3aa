//! Classic Load Balancers: listeners, health checks, attributes, tags, and the order of the calls.

use bowline_aws_simulator::{Fields as _, Options};
use bowline_core::service::ServicePort;
use bowline_core::testing::service_port;
use bowline_core::{Protocol, Service, SessionAffinity, TrafficPolicy};
use serde_json::Value;

use crate::world::{NAME, NLB, UID, World, instance, node, tag_map, tags, web};

/// Returns the Service with these ports, each with a name.
fn with_ports(service: Service, ports: &[(&str, u16)]) -> Service {
    let port =
        |(name, port): &(&str, u16)| ServicePort { name: (*name).to_owned(), ..service_port(Protocol::Tcp, *port) };
    Service { ports: ports.iter().map(port).collect(), ..service }
}

/// Returns the Service with this node port.
fn on_node_port(service: Service, node_port: u16) -> Service {
    let ports = vec![ServicePort { node_port: Some(node_port), ..service_port(Protocol::Tcp, 80) }];
    Service { ports, ..service }
}

fn local(service: Service, port: u16) -> Service {
    Service { traffic_policy: TrafficPolicy::Local, health_check_node_port: Some(port), ..service }
}

/// Creates the load balancer of a Service, and returns its listeners: `SSL 443 -> TCP 30443`.
async fn listeners(service: Service) -> Vec<String> {
    let world = World::new().await;
    let certificate = world.cloud.fixture().certificate;
    let mut kept = world.kept(service);
    let annotations = std::sync::Arc::make_mut(&mut kept.service.annotations);
    annotations.values_mut().filter(|value| *value == "CERT").for_each(|value| value.clone_from(&certificate));
    world.synced(&mut kept).await;
    let listeners = world.classic()["ListenerDescriptions"].as_array().unwrap().clone();
    let shown = |listener: &Value| {
        let field = |name: &str| listener["Listener"][name].as_str().unwrap_or_default().to_owned();
        let secured = if field("SSLCertificateId") == certificate { " with certificate" } else { "" };
        let [front, port, back, node_port] =
            ["Protocol", "LoadBalancerPort", "InstanceProtocol", "InstancePort"].map(field);
        format!("{front} {port} -> {back} {node_port}{secured}")
    };
    listeners.iter().map(shown).collect()
}

/// Creates the load balancer of a Service, and returns its health check.
async fn health_check(service: Service, lines: &str) -> String {
    let world = World::with(Options::default(), lines).await;
    world.synced(&mut world.kept(service)).await;
    let classic = world.classic();
    let field = |name: &str| classic["HealthCheck"][name].as_str().unwrap_or_default().to_owned();
    let numbers = ["HealthyThreshold", "UnhealthyThreshold", "Timeout", "Interval"].map(field);
    format!("{} {}", field("Target"), numbers.join("/"))
}

// ---- listeners

#[tokio::test(start_paused = true)]
async fn aws_12_and_15_to_18_certificate_ports_and_backend_protocol_decide_the_listeners() {
    let cert = ("ssl-cert", "CERT");
    for (annotations, ports, expected, case) in [
        (&[cert, ("ssl-ports", "443,https")][..], &[("", 443)][..], "SSL 443 -> TCP 30443 with certificate", "AWS-12"),
        (
            &[cert, ("ssl-ports", "1,https")],
            &[("https", 8443)],
            "SSL 8443 -> TCP 38443 with certificate",
            "AWS-12, by name",
        ),
        (&[("backend-protocol", "https")], &[("", 443)], "TCP 443 -> TCP 30443", "AWS-15"),
        (&[cert, ("ssl-ports", "1234,5678")], &[("", 443)], "TCP 443 -> TCP 30443", "AWS-17"),
        (&[cert, ("ssl-ports", "foo,bar")], &[("bar", 1234)], "SSL 1234 -> TCP 31234 with certificate", "AWS-18"),
    ] {
        assert_eq!(listeners(with_ports(web(annotations), ports)).await, [expected], "{case}");
    }
    let world = World::new().await;
    let error = world.error(web(&[cert, ("backend-protocol", "bacon")])).await;
    let expected =
        "Invalid backend protocol bacon for CERT in service.beta.kubernetes.io/aws-load-balancer-backend-protocol";
    assert!(error.contains(expected), "AWS-16: {error}");
    assert_eq!(world.writes(), Vec::<String>::new());
}

// ---- health checks

#[tokio::test(start_paused = true)]
async fn aws_19_to_22_the_health_check_follows_protocol_and_path() {
    let protocol = |protocol| ("healthcheck-protocol", protocol);
    let path = ("healthcheck-path", "/healthz");
    for (annotations, node_port, target, case) in [
        (&[][..], 8080, "TCP:8080", "AWS-19"),
        (&[protocol("SSL"), path], 3124, "SSL:3124", "AWS-20"),
        (&[protocol("HTTPS"), path], 31224, "HTTPS:31224/healthz", "AWS-21"),
        (&[protocol("HTTP")], 30080, "HTTP:30080/", "AWS-22"),
    ] {
        let check = health_check(on_node_port(web(annotations), node_port), "").await;
        assert_eq!(check, format!("{target} 2/6/5/10"), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn aws_23_an_invalid_interval_is_an_error_that_names_the_load_balancer() {
    let world = World::new().await;
    let error = world.error(web(&[("healthcheck-interval", "abc")])).await;
    let expected =
        format!("cannot update health check for load balancer \"{NAME}\": \"failed parsing health check annotation");
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!(world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn aws_40_and_43_a_local_service_and_the_mode_shared_have_their_own_port() {
    let port = |port| ("healthcheck-port", port);
    let shared = "ClusterServiceLoadBalancerHealthProbeMode = Shared\n";
    for (service, lines, target, case) in [
        (local(web(&[port("traffic-port")]), 32000), "", "HTTP:30080/healthz", "AWS-40"),
        (local(web(&[]), 32000), "", "HTTP:32000/healthz", "Local"),
        (web(&[]), shared, "HTTP:10256/healthz", "Shared"),
        (web(&[port("8001")]), shared, "HTTP:8001/healthz", "AWS-43"),
    ] {
        assert_eq!(health_check(service, lines).await, format!("{target} 2/6/5/10"), "{case}");
    }
}

// ---- schemes and tags

#[tokio::test(start_paused = true)]
async fn aws_10_only_false_and_nothing_mean_internet_facing() {
    for (value, scheme) in [
        ("false", "internet-facing"),
        ("", "internet-facing"),
        ("true", "internal"),
        ("0.0.0.0/0", "internal"),
        ("no", "internal"),
    ] {
        for kind in [None, Some(NLB)] {
            let world = World::new().await;
            let annotations: Vec<_> = kind.into_iter().chain([("internal", value)]).collect();
            world.create(&annotations).await;
            let record = if kind.is_some() { world.network() } else { world.classic() };
            assert_eq!(record.text("Scheme"), scheme, "{value:?} {kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn aws_11_scheme_and_subnets_stay_and_an_event_says_so() {
    for kind in [None, Some(NLB)] {
        let world = World::new().await;
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.create(&annotations).await;
        let record = || if kind.is_some() { world.network() } else { world.classic() };
        let before = record();
        let annotations: Vec<_> = kind.into_iter().chain([("internal", "true")]).collect();
        service.service = web(&annotations);
        let plan = world.planned(&mut service).await.unwrap();
        assert_eq!(plan.steps.len(), 0, "{plan}");
        let warnings: Vec<_> = plan.warnings.iter().map(|warning| warning.message.as_str()).collect();
        assert!(warnings.iter().any(|text| text.contains("fixed at creation")), "{warnings:?}");
        world.sync(&mut service).await.unwrap();
        assert_eq!(record(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn aws_13_and_14_additional_tags_are_split_as_the_go_manager_does() {
    let odd = "K=V K1=V2,Key1========, =====, ======Val, =Val, , 234,";
    for (text, expected) in
        [("Key1=Val1,Key2=", &[("Key1", "Val1"), ("Key2", "")][..]), (odd, &[("K", "V K1"), ("Key1", ""), ("234", "")])]
    {
        let world = World::new().await;
        world.create(&[("additional-resource-tags", text)]).await;
        let own = [("kubernetes.io/cluster/demo", "owned"), ("kubernetes.io/service-name", "default/web")];
        let all: Vec<_> = expected.iter().copied().chain(own).collect();
        assert_eq!(tags(&world.classic()), tag_map(&all), "{text}");
        let group = world.group(&format!("k8s-elb-{NAME}")).unwrap();
        assert_eq!(tags(&group), tag_map(&all[..all.len() - 1]), "a security group has no name of a Service");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_additional_tags_are_added_in_one_call_and_none_is_removed() {
    let world = World::new().await;
    let mut service = world.create(&[("additional-resource-tags", "a=1")]).await;
    service.service = web(&[("additional-resource-tags", "b=2")]);
    world.synced(&mut service).await;
    assert_eq!(world.writes(), ["AddTags"]);
    let tags = tags(&world.classic());
    assert_eq!((tags["a"].as_str(), tags["b"].as_str()), ("1", "2"));
}

// ---- targets

#[tokio::test(start_paused = true)]
async fn aws_35_a_classic_load_balancer_registers_instances_before_it_deregisters_others() {
    let world = World::new().await;
    let mut service = world.create(&[]).await;
    service.nodes = vec![world.nodes[1].clone(), node(&world.cloud, "node-3")];
    world.synced(&mut service).await;
    assert_eq!(world.writes(), ["RegisterInstancesWithLoadBalancer", "DeregisterInstancesFromLoadBalancer"]);
    let mut expected: Vec<_> = service.nodes.iter().map(instance).collect();
    expected.sort();
    let found = world.classic()["Instances"].as_array().unwrap().clone();
    let mut found: Vec<_> = found.iter().map(|one| one["InstanceId"].as_str().unwrap().to_owned()).collect();
    found.sort();
    assert_eq!(found, expected);
}

// ---- changes from outside

#[tokio::test(start_paused = true)]
async fn aws_7_a_load_balancer_deleted_by_hand_is_created_again_with_the_same_name() {
    for kind in [None, Some(NLB)] {
        let world = World::new().await;
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.create(&annotations).await;
        let before = world.synced(&mut service).await.status;
        match kind {
            None => assert!(world.cloud.remove("classic", NAME)),
            Some(_) => assert!(world.cloud.remove("load_balancer", world.network().text("id"))),
        }
        service.nodes.push(node(&world.cloud, "node-3"));
        let after = world.synced(&mut service).await.status;
        assert_eq!((before.ingress.len(), after.ingress.len()), (1, 1));
        assert_ne!(before, after, "another host name");
        let name = if kind.is_some() { world.network() } else { world.classic() };
        assert_eq!(name.text("LoadBalancerName"), NAME);
        assert!(world.planned(&mut service).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn aws_46_the_type_cannot_be_changed_and_a_deletion_deletes_both_kinds() {
    for (first, second, kind) in [
        (&[][..], &[NLB][..], "NLB"),
        (&[NLB], &[], "Classic Load Balancer"),
        (&[NLB], &[("type", "NLB")], "Classic Load Balancer"),
    ] {
        let world = World::new().await;
        let mut service = world.create(first).await;
        service.service = web(second);
        let error = world.sync(&mut service).await.unwrap_err().to_string();
        let expected = format!(
            "cannot update Load Balancer Type annotation \"service.beta.kubernetes.io/aws-load-balancer-type\" after creation for {kind}"
        );
        assert!(error.contains(&expected), "{error}");
        assert_eq!(world.writes(), Vec::<String>::new());
        world.delete(&mut service).await.unwrap();
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn other_types_belong_to_another_controller_and_their_deletion_writes_nothing() {
    let world = World::new().await;
    for kind in ["nlb-ip", "external"] {
        let mut service = world.kept(web(&[("type", kind)]));
        let error = world.sync(&mut service).await.unwrap_err();
        assert_eq!(error.kind(), bowline_cloud::ErrorKind::ImplementedElsewhere, "{kind}");
        world.delete(&mut service).await.unwrap();
        assert_eq!(world.writes(), Vec::<String>::new(), "{kind}");
    }
}

// ---- checks

#[tokio::test(start_paused = true)]
async fn what_no_load_balancer_supports_is_reported_in_the_order_of_the_go_manager() {
    let world = World::new().await;
    let udp = Service { ports: vec![service_port(Protocol::Udp, 53)], ..web(&[]) };
    let mixed = vec![service_port(Protocol::Tcp, 80), service_port(Protocol::Udp, 53)];
    let sticky = SessionAffinity::ClientIp { timeout_seconds: 1 };
    let address = |service: Service| Service { load_balancer_ip: Some("10.0.0.1".to_owned()), ..service };
    let bacon = [("ssl-cert", "CERT"), ("backend-protocol", "bacon")];
    let bad_check = [NLB, ("healthcheck-port", "http")];
    let long_key = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol";
    for (service, expected) in [
        (web(&[NLB, ("extra-security-groups", "")]), "BYO extra security group annotation"),
        (web(&[("target-group-attributes", "")]), "target group attributes annotation is only supported for NLB"),
        (
            Service { session_affinity: sticky, ports: mixed.clone(), ..web(&[]) },
            "unsupported load balancer affinity: ClientIP",
        ),
        (Service { ports: mixed, ..address(web(&[])) }, "mixed protocol is not supported for LoadBalancer"),
        (address(udp), "Protocol UDP not supported by LoadBalancer"),
        (address(web(&bacon)), "Invalid backend protocol bacon for CERT"),
        (address(web(&bad_check)), "Invalid health check port 'http'"),
        (address(web(&[("proxy-protocol", "yes")])), "LoadBalancerIP cannot be specified for AWS ELB"),
        (
            address(web(&[NLB, ("cross-zone-load-balancing-enabled", "x")])),
            "LoadBalancerIP cannot be specified for AWS ELB",
        ),
        (
            web(&[("proxy-protocol", "yes"), ("cross-zone-load-balancing-enabled", "x")]),
            &format!("annotation \"{long_key}\"=\"yes\" detected, but the only value supported currently is '*'"),
        ),
        (
            web(&[("cross-zone-load-balancing-enabled", "x"), ("subnets", "")]),
            "error parsing service annotation: service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled=x",
        ),
        (web(&[("subnets", "")]), "unable to resolve empty subnet slice"),
    ] {
        let error = world.error(service).await;
        assert!(error.contains(expected), "{expected:?}: {error}");
        assert_eq!(world.writes(), Vec::<String>::new(), "{expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_name_is_the_letter_a_and_the_uid_without_dashes() {
    let world = World::new().await;
    world.create(&[]).await;
    let expected: String = format!("a{}", UID.replace('-', "")).chars().take(32).collect();
    assert_eq!(world.classic().text("LoadBalancerName"), expected);
}
