//! Octavia with pending operations, errors, rejections and without responses: nothing is leaked, the error kind is right, and the
//! sync succeeds without a restart once the cloud recovers.

use std::time::Duration;

use bowline_cloud::{ErrorKind, LoadBalancers, Retry};
use bowline_core::Protocol;
use bowline_openstack_simulator::{Fault, FaultSpec, Kind, Options, Service as Part, Work};
use http::Method;
use serde_json::json;

use crate::balancers_end_to_end::world::{LB_ID, World, text};

fn status(world: &World, status: &str) {
    let id = text(&world.only(Kind::LoadBalancer), "id").to_owned();
    world.cloud.edit(Kind::LoadBalancer, &id, |balancer| {
        balancer.insert("provisioning_status".to_owned(), json!(status));
    });
}

fn taking(time: Duration) -> Options {
    Options { work: Work::Taking(time), ..Options::default() }
}

#[tokio::test(start_paused = true)]
async fn case_151_a_new_load_balancer_in_error_is_deleted_and_created_again_without_an_annotation() {
    for (work, cascade) in [(0, true), (0, false), (30, true)] {
        let work = Duration::from_secs(work);
        let options = if work.is_zero() { Options::default() } else { taking(work) };
        let world = World::with(options, |config, _| config.load_balancer.cascade_delete = cascade);
        world.cloud.fail_work(1);
        let mut web = world.service();
        let error = world.ensure(&mut web).await.unwrap_err();
        // Not retried at once: the rest of the plan is about a deleted load balancer.
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Conflict, Retry::Backoff));
        assert!(error.message().contains("ERROR") && error.message().contains("will be tried again"), "{error}");
        assert!(!web.annotations.contains_key(LB_ID));
        // The old one may still be PENDING_DELETE.
        world.ensure(&mut web).await.unwrap();
        tokio::time::sleep(work).await;
        assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp)), (1, 1));
        assert_eq!(web.annotations[LB_ID], text(&world.only(Kind::LoadBalancer), "id"));
    }
}

#[tokio::test(start_paused = true)]
async fn case_152_an_existing_load_balancer_in_error_is_not_changed() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    status(&world, "ERROR");
    world.cloud.forget_calls();
    let error = world.ensure(&mut web).await.unwrap_err();
    assert!(error.message().contains("not ACTIVE"), "{error}");
    assert_eq!(world.writes(), Vec::<String>::new());
    status(&world, "ACTIVE");
    world.ensure(&mut web).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_153_a_pending_load_balancer_is_not_changed_and_a_stuck_one_is_reported() {
    for wanted in [true, false] {
        let world = World::new();
        let mut web = world.service();
        world.ensure(&mut web).await.unwrap();
        status(&world, "PENDING_UPDATE");
        world.cloud.forget_calls();
        let error = if wanted { world.ensure(&mut web).await } else { world.remove(&mut web).await };
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
        assert!(error.message().contains("timed out") && error.message().contains("PENDING_UPDATE"), "{error}");
        assert_eq!(world.writes(), Vec::<String>::new());
        status(&world, "ACTIVE");
        if wanted {
            world.ensure(&mut web).await.unwrap();
        } else {
            world.remove(&mut web).await.unwrap();
            world.assert_empty();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn case_154_a_load_balancer_in_error_is_deleted_with_all_parts() {
    for cascade in [true, false] {
        let world = World::with(Options::default(), |config, _| config.load_balancer.cascade_delete = cascade);
        let mut web = world.service();
        world.ensure(&mut web).await.unwrap();
        status(&world, "ERROR");
        world.remove(&mut web).await.unwrap();
        world.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn case_155_a_creation_of_six_minutes_times_out_and_is_found_by_name() {
    let mut world = World::with(taking(Duration::from_secs(360)), |_, _| ());
    let mut web = world.service();
    let error = world.ensure(&mut web).await.unwrap_err();
    assert!(error.message().contains("timed out"), "{error}");
    world.restart();
    world.ensure(&mut web).await.unwrap();
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn case_156_the_timeout_is_configurable() {
    for (steps, lasts) in [(23, 271), (30, 984)] {
        let world = World::with(taking(Duration::from_secs(100_000)), |config, _| config.wait_active_steps = steps);
        let start = tokio::time::Instant::now();
        world.ensure(&mut world.service()).await.unwrap_err();
        let waited = start.elapsed().as_secs();
        assert!((lasts..lasts + 20).contains(&waited), "{steps}: {waited}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_157_a_concurrent_change_is_a_conflict_and_is_retried() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    let immutable = r#"{"faultcode": "Client", "faultstring": "Load Balancer x is immutable and cannot be updated."}"#;
    let fault = FaultSpec::always(Fault::Answer(409, immutable.to_owned())).on(Method::PUT, "listeners/{id}").times(1);
    world.cloud.inject(fault);
    web.annotate("connection-limit", "100");
    let error = world.ensure(&mut web).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Conflict, Retry::Backoff));
    assert!(error.message().contains("is immutable"), "{error}");
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.only(Kind::Listener)["connection_limit"], 100);
}

#[tokio::test(start_paused = true)]
async fn case_161_without_cascade_each_part_is_deleted_separately() {
    let world = World::with(Options::default(), |config, _| {
        config.load_balancer.cascade_delete = false;
        config.load_balancer.create_monitor = true;
    });
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.cloud.forget_calls();
    world.remove(&mut web).await.unwrap();
    let expected = [
        "DELETE floatingips/{id}",
        "DELETE healthmonitors/{id}",
        "DELETE pools/{id}",
        "DELETE listeners/{id}",
        "DELETE loadbalancers/{id}",
    ];
    assert_eq!(world.writes(), expected);
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn case_162_while_the_floating_ip_cannot_be_deleted_the_load_balancer_is_kept() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.cloud.forget_calls();
    let number =
        world.cloud.inject(FaultSpec::always(Fault::Answer(503, String::new())).on(Method::DELETE, "floatingips/{id}"));
    assert_eq!(world.remove(&mut web).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(world.writes(), ["DELETE floatingips/{id}"]);
    world.cloud.repair(number);
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn case_163_and_164_a_certificate_must_exist_in_barbican_unless_the_store_is_external() {
    let mut world = World::new();
    let mut web = world.service();
    web.annotate("default-tls-container-ref", "https://kms/v1/orders/1");
    let error = world.ensure(&mut web).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    web.annotate("default-tls-container-ref", "https://kms/v1/containers/8a4d1f3c-1111-4222-8333-444455556666");
    assert_eq!(world.ensure(&mut web).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.writes(), Vec::<String>::new());
    let id = world.cloud.add_secret(Kind::Container, "web");
    web.annotate("default-tls-container-ref", &format!("https://kms/v1/containers/{id}"));
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.only(Kind::Listener)["protocol"], "TERMINATED_HTTPS");
    world.reconfigure(|config| config.load_balancer.container_store = "external".to_owned());
    let calls = world.cloud.counts().get("GET containers/{id}").copied();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.cloud.counts().get("GET containers/{id}").copied(), calls);
}

#[tokio::test(start_paused = true)]
async fn case_165_an_unsupported_availability_zone_is_ignored() {
    let world = World::with(Options { octavia_minor: 13, ..Options::default() }, |_, _| ());
    let mut web = world.service();
    web.annotate("availability-zone", "az1");
    let outcome = world.ensure(&mut web).await.unwrap();
    assert!(outcome.warnings.contains(&"LoadBalancerAvailabilityZonesIgnored".to_owned()), "{:?}", outcome.warnings);
    assert!(world.sent("POST loadbalancers")["loadbalancer"].get("availability_zone").is_none());
}

#[tokio::test(start_paused = true)]
async fn case_166_port_id_takes_precedence_over_subnet_and_network() {
    let world = World::new();
    let fixture = world.cloud.fixture();
    let fixed = json!([{"subnet_id": fixture.subnet, "ip_address": "10.10.99.9"}]);
    let port = world.cloud.add(Kind::Port, json!({"network_id": fixture.network, "fixed_ips": fixed}));
    let mut web = world.service();
    web.annotate("port-id", &port).annotate("subnet-id", &fixture.subnet);
    world.ensure(&mut web).await.unwrap();
    let sent = world.sent("POST loadbalancers")["loadbalancer"].clone();
    assert_eq!(
        (&sent["vip_port_id"], sent.get("vip_subnet_id"), sent.get("vip_network_id")),
        (&json!(port), None, None)
    );
}

#[tokio::test(start_paused = true)]
async fn case_167_the_detected_subnet_is_that_of_the_nodes_server_despite_duplicate_addresses() {
    let world = World::with(Options::default(), |config, cloud| {
        config.load_balancer.placement.subnet_id = String::new();
        let (network, subnet) = cloud.add_network("elsewhere", "10.10.0.0/16", false);
        // The address of the first node, in a network that is listed before its own.
        for last in 1..20 {
            let fixed = json!([{"subnet_id": subnet, "ip_address": format!("10.10.0.{last}")}]);
            let id = format!("00000000-0000-4000-8000-0000000000{last:02}");
            cloud.add(Kind::Port, json!({"id": id, "network_id": network, "fixed_ips": fixed}));
        }
    });
    world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(world.sent("POST loadbalancers")["loadbalancer"]["vip_subnet_id"], world.cloud.fixture().subnet);
}

// ---- faults

#[tokio::test(start_paused = true)]
async fn an_expired_or_revoked_token_is_renewed() {
    let world =
        World::with(Options { token_lifetime: Duration::from_secs(90), ..taking(Duration::from_secs(60)) }, |_, _| ());
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.cloud.revoke_tokens();
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn exceeded_octavia_quotas_and_a_full_subnet_are_reported_and_leave_no_orphans() {
    for quota in ["load_balancer", "listener", "pool", "member"] {
        let world = World::new();
        world.cloud.set_quota(quota, Some(0));
        let mut web = world.service();
        let error = world.ensure(&mut web).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{quota}: {error}");
        world.assert_empty();
        world.cloud.set_quota(quota, None);
        world.ensure(&mut web).await.unwrap();
    }
    let world = World::new();
    world.cloud.exhaust(&world.cloud.fixture().subnet, true);
    let mut web = world.service();
    let error = world.ensure(&mut web).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::QuotaExceeded | ErrorKind::Unavailable), "{error}");
    world.assert_empty();
    world.cloud.exhaust(&world.cloud.fixture().subnet, false);
    world.ensure(&mut web).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn exhausted_floating_ips_are_reported_and_retried() {
    let world = World::new();
    world.cloud.exhaust(&world.cloud.fixture().external_subnet, true);
    let mut web = world.service();
    let error = world.ensure(&mut web).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    world.cloud.exhaust(&world.cloud.fixture().external_subnet, false);
    world.ensure(&mut web).await.unwrap();
    assert_eq!((world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_response_causes_no_duplicate() {
    let calls = ["loadbalancers", "floatingips", "security-groups", "security-group-rules"];
    for call in calls {
        let world = World::with(Options::default(), |config, _| config.load_balancer.manage_security_groups = true);
        world.cloud.inject(FaultSpec::always(Fault::AnswerLost).on(Method::POST, call).times(1));
        let mut web = world.service();
        assert_eq!(world.ensure(&mut web).await.unwrap_err().kind(), ErrorKind::Unavailable, "{call}");
        world.ensure(&mut web).await.unwrap();
        let counts = (world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp), world.groups().len());
        assert_eq!(counts, (1, 1, 1), "{call}");
        world.remove(&mut web).await.unwrap();
        world.assert_empty();
    }
}

/// Failures that leave the outcome of a call unknown. The call was not executed.
fn unknown_outcomes() -> [Fault; 4] {
    [Fault::Answer(504, "<html>Gateway Time-out</html>".to_owned()), bad_gateway(), Fault::Lost, Fault::Hanging]
}

fn bad_gateway() -> Fault {
    Fault::Answer(502, "<html>Bad Gateway</html>".to_owned())
}

fn posts(world: &World, path: &str) -> usize {
    world.writes().iter().filter(|call| **call == format!("POST {path}")).count()
}

#[tokio::test(start_paused = true)]
async fn a_creation_with_an_unknown_outcome_is_not_repeated_while_it_may_succeed() {
    for fault in unknown_outcomes() {
        let world = World::new();
        world.cloud.inject(FaultSpec::always(fault.clone()).on(Method::POST, "loadbalancers").times(1));
        let mut web = world.service();
        let (_, plan) = world.plan(&mut web, true).await.unwrap();
        let create = &plan.steps[0];
        // Applied again without an observation in between.
        for kind in [ErrorKind::Unavailable, ErrorKind::Conflict, ErrorKind::InProgress, ErrorKind::InProgress] {
            let error = world.apply(&mut web, create).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        }
        tokio::time::sleep(Duration::from_secs(90)).await;
        world.apply(&mut web, create).await.unwrap_err();
        world.cloud.add_balancer(world.sent("POST loadbalancers")["loadbalancer"].clone()).unwrap();
        world.ensure(&mut web).await.unwrap();
        assert_eq!((posts(&world, "loadbalancers"), world.count(Kind::LoadBalancer)), (1, 1), "{fault:?}");
        world.remove(&mut web).await.unwrap();
        world.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_with_an_unknown_outcome_is_reported_and_repeated_after_a_while() {
    for (call, kind) in [("loadbalancers", Kind::LoadBalancer), ("security-groups", Kind::SecurityGroup)] {
        let world = World::with(Options::default(), |config, _| config.load_balancer.manage_security_groups = true);
        let before = world.count(kind);
        world.cloud.inject(FaultSpec::always(bad_gateway()).on(Method::POST, call).times(1));
        let mut web = world.service();
        assert_eq!(world.ensure(&mut web).await.unwrap_err().kind(), ErrorKind::Unavailable, "{call}");
        let error = world.ensure(&mut web).await.unwrap_err();
        assert!(error.message().contains("it is unknown whether") && error.message().contains("HTTP 502"), "{error}");
        let start = tokio::time::Instant::now();
        world.ensure(&mut web).await.unwrap();
        assert!((100..140).contains(&start.elapsed().as_secs()), "{call}: {:?}", start.elapsed());
        assert_eq!((posts(&world, call), world.count(kind)), (2, before + 1), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_octavia_failed_is_repeated_at_once() {
    let world = World::new();
    let fault = r#"{"faultcode": "Server", "faultstring": "An unknown exception occurred.", "debuginfo": null}"#;
    world
        .cloud
        .inject(FaultSpec::always(Fault::Answer(500, fault.to_owned())).on(Method::POST, "loadbalancers").times(2));
    let mut web = world.service();
    let start = tokio::time::Instant::now();
    for _ in 0..2 {
        assert_eq!(world.ensure(&mut web).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    world.ensure(&mut web).await.unwrap();
    assert_eq!((posts(&world, "loadbalancers"), start.elapsed()), (3, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_creation_is_not_repeated() {
    let world = World::new();
    world.cloud.inject(FaultSpec::always(Fault::Hanging).on(Method::POST, "loadbalancers").times(1));
    let mut web = world.service();
    let (_, plan) = world.plan(&mut web, true).await.unwrap();
    let mut same = web.clone();
    let applied = world.apply(&mut same, &plan.steps[0]);
    assert!(tokio::time::timeout(Duration::from_secs(1), applied).await.is_err());
    for kind in [ErrorKind::Conflict, ErrorKind::InProgress] {
        assert_eq!(world.apply(&mut web, &plan.steps[0]).await.unwrap_err().kind(), kind);
    }
    // The manager deletes its own load balancer that fails before it was in service.
    let id = world.cloud.add_balancer(world.sent("POST loadbalancers")["loadbalancer"].clone()).unwrap();
    status(&world, "ERROR");
    assert!(world.ensure(&mut web).await.unwrap_err().message().contains("it was deleted"));
    world.ensure(&mut web).await.unwrap();
    assert_ne!(text(&world.only(Kind::LoadBalancer), "id"), id);
    assert_eq!(posts(&world, "loadbalancers"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_service_is_not_removed_while_its_load_balancer_may_still_be_created() {
    for (call, comes) in [("loadbalancers", true), ("loadbalancers", false), ("security-groups", false)] {
        let world = World::with(Options::default(), |config, _| config.load_balancer.manage_security_groups = true);
        world.cloud.inject(FaultSpec::always(bad_gateway()).on(Method::POST, call).times(1));
        let mut web = world.service();
        world.ensure(&mut web).await.unwrap_err();
        if call == "security-groups" {
            // Existing resources are deleted without delay.
            assert_eq!(world.remove(&mut web).await.unwrap_err().kind(), ErrorKind::Conflict);
            assert_eq!(world.count(Kind::LoadBalancer), 0);
        }
        if call == "loadbalancers" {
            let error = world.plan(&mut web, false).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
        if comes {
            world.cloud.add_balancer(world.sent("POST loadbalancers")["loadbalancer"].clone()).unwrap();
        }
        let start = tokio::time::Instant::now();
        world.remove(&mut web).await.unwrap();
        assert_eq!(start.elapsed() >= Duration::from_secs(110), !comes, "{call}: {:?}", start.elapsed());
        world.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn the_manager_may_crash_after_any_call() {
    for wanted in [true, false] {
        for calls in 1.. {
            let mut world = World::with(Options::default(), |config, _| {
                config.load_balancer.manage_security_groups = true;
                config.load_balancer.create_monitor = true;
            });
            let mut web = world.service();
            if !wanted {
                world.ensure(&mut web).await.unwrap();
            }
            let work = async { if wanted { world.ensure(&mut web).await } else { world.remove(&mut web).await } };
            let (_, crashed) = world.cloud.crashing(calls, work).await;
            world.restart();
            // Annotations that the manager would have written are lost with it.
            web.annotations.clear();
            if wanted {
                world.ensure(&mut web).await.unwrap();
                let counts = (world.count(Kind::LoadBalancer), world.count(Kind::FloatingIp), world.groups().len());
                assert_eq!(counts, (1, 1, 1), "after {calls} calls");
            }
            world.remove(&mut web).await.unwrap();
            world.assert_empty();
            if !crashed {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_known_features_no_load_balancer_is_created() {
    let world = World::new();
    let number = world.cloud.inject(FaultSpec::always(Fault::Answer(503, String::new())).of(Part::LoadBalancer));
    let mut web = world.service();
    web.spec.source_ranges = vec!["198.51.100.0/24".parse().unwrap()];
    assert_eq!(world.ensure(&mut web).await.unwrap_err().kind(), ErrorKind::Unavailable);
    world.cloud.repair(number);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.only(Kind::Listener)["allowed_cidrs"], json!(["198.51.100.0/24"]));
}

fn version_fault(status: u16, body: &str) -> FaultSpec {
    FaultSpec::always(Fault::Answer(status, body.to_owned())).of(Part::LoadBalancer).on(Method::GET, "")
}

#[tokio::test(start_paused = true)]
async fn an_octavia_without_a_version_listing_has_no_features() {
    for (status, body) in [(404, ""), (302, ""), (200, "<html>welcome</html>")] {
        let world = World::new();
        world.cloud.inject(version_fault(status, body));
        let mut web = world.service();
        world.ensure(&mut web).await.unwrap_or_else(|error| panic!("{status}: {error}"));
        assert!(world.sent("POST loadbalancers")["loadbalancer"].get("tags").is_none(), "{status}");
        world.remove(&mut web).await.unwrap();
        world.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn without_known_features_existing_load_balancers_are_synced() {
    let mut world = World::new();
    let mut web = world.service();
    web.spec.source_ranges = vec!["198.51.100.0/24".parse().unwrap()];
    world.ensure(&mut web).await.unwrap();
    let mut other = world.named("other");
    other.annotate(LB_ID, &web.annotations[LB_ID]).ports(&[(Protocol::Tcp, 81, 30081)]);
    world.ensure(&mut other).await.unwrap();
    world.restart();
    let number = world.cloud.inject(version_fault(503, ""));
    world.cloud.forget_calls();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.writes(), [""; 0]);
    web.spec.targets.edit(Vec::pop);
    web.annotate("availability-zone", "az1");
    assert_eq!(world.ensure(&mut web).await.unwrap().warnings, [""; 0]);
    assert_eq!(world.writes(), ["PUT pools/{id}/members"]);
    // Another listener proves that source ranges are supported.
    web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443)]);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.sent("POST listeners")["listener"]["allowed_cidrs"], json!(["198.51.100.0/24"]));
    // Nothing proves the features for a new load balancer.
    let mut late = world.named("late");
    assert_eq!(world.ensure(&mut late).await.unwrap_err().kind(), ErrorKind::Unavailable);
    // One that is found by its tag is deleted as well.
    other.annotations.clear();
    world.remove(&mut other).await.unwrap();
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
    world.cloud.repair(number);
    world.ensure(&mut late).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_known_features_no_unrestricted_listener_is_created() {
    let mut world = World::with(Options { octavia_minor: 11, ..Options::default() }, |_, _| ());
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.restart();
    let number = world.cloud.inject(version_fault(503, ""));
    web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443)]);
    web.spec.source_ranges = vec!["198.51.100.0/24".parse().unwrap()];
    let error = world.ensure(&mut web).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("open to all clients"), "{error}");
    assert_eq!(world.count(Kind::Listener), 1);
    world.cloud.repair(number);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.count(Kind::Listener), 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_load_balancer_that_is_not_listed_yet_is_not_created_twice() {
    let world = World::new();
    let mut web = world.service();
    let (_, plan) = world.plan(&mut web, true).await.unwrap();
    world.cloud.freeze_view(true);
    for _ in 0..2 {
        world.provider.apply(&web.key, &plan.steps[0], None).await.unwrap();
    }
    world.cloud.freeze_view(false);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.count(Kind::LoadBalancer), 1);
}

#[tokio::test(start_paused = true)]
async fn a_part_deleted_during_an_observation_is_read_again() {
    let missing = || Fault::Answer(404, r#"{"faultcode": "Client", "faultstring": "not found"}"#.to_owned());
    for (part, template) in [("monitor", "healthmonitors/{id}"), ("members", "pools/{id}/members")] {
        let world = World::with(Options::default(), |config, _| config.load_balancer.create_monitor = true);
        let mut web = world.service();
        world.ensure(&mut web).await.unwrap();
        world.cloud.inject(FaultSpec::always(missing()).on(Method::GET, template).times(1));
        world.ensure(&mut web).await.unwrap_or_else(|error| panic!("{part}: {error}"));
        world.cloud.inject(FaultSpec::always(missing()).on(Method::GET, template).times(2));
        assert_eq!(world.ensure(&mut web).await.unwrap_err().kind(), ErrorKind::NotFound, "{part}");
    }
}

#[tokio::test(start_paused = true)]
async fn for_a_pending_load_balancer_nothing_else_is_read() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    status(&world, "PENDING_UPDATE");
    world.cloud.forget_calls();
    for wanted in [true, false] {
        let desired = world.desired(&web, wanted);
        let state = world.provider.observe(std::slice::from_ref(&desired)).await.remove(0).unwrap();
        assert_eq!(world.provider.plan(&desired, state.as_ref()).unwrap_err().kind(), ErrorKind::InProgress);
    }
    assert_eq!(world.cloud.counts().into_iter().collect::<Vec<_>>(), [("GET loadbalancers/{id}".to_owned(), 2)]);
}
