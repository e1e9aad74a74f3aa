//! Rejected requests: quotas, exhausted address pools, rate limits, and internal errors.

use std::time::Duration;

use bowline_openstack_simulator::{Fault, FaultSpec, Kind};
use http::Method;

use crate::openstack_trouble::scene::Scene;

/// A failure that affects the Service `web`, and its Event.
struct Failure {
    test: &'static str,
    breaks: fn(&Scene),
    repairs: fn(&Scene),
    /// Parts of the Event's message.
    words: &'static [&'static str],
    /// Whether the load balancer is created; a later sync finds it by the annotation.
    has_balancer: bool,
}

/// Checks that the failure is reported, creates no duplicates, and that the Service recovers.
async fn check_failure(failure: Failure) {
    let scene = Scene::new(failure.test).await;
    (failure.breaks)(&scene);
    let mut manager = scene.manager(failure.test);
    scene.create("web").await;
    let message = scene.warned(&manager, "web", "SyncLoadBalancerFailed", failure.words).await;
    assert!(message.matches("HTTP ").count() <= 1, "the message is repeated: {message}");
    assert_eq!(scene.created(Kind::LoadBalancer), usize::from(failure.has_balancer), "{message}");
    if failure.has_balancer {
        let ask = || async { scene.annotation("web", "load-balancer-id").await };
        assert_eq!(scene.eventually(&manager, "the annotation", ask).await, scene.balancer("web"));
    }
    (failure.repairs)(&scene);
    scene.address(&manager, "web").await;
    let counts = [Kind::LoadBalancer, Kind::Listener, Kind::Pool, Kind::HealthMonitor, Kind::FloatingIp];
    assert_eq!(counts.map(|kind| scene.created(kind)), [1; 5], "there are no duplicates");
    scene.end(&mut manager, "web").await;
}

/// Fix for exhausted quotas and addresses.
const ADVICE: &str =
    "Raise the account's quota or free some of it; if the subnet is out of addresses, enlarge it or add one.";

#[tokio::test(flavor = "multi_thread")]
async fn the_load_balancer_quota_is_exhausted() {
    check_failure(Failure {
        test: "quota-balancer",
        breaks: |scene| scene.cloud.set_quota("load_balancer", Some(0)),
        repairs: |scene| scene.cloud.set_quota("load_balancer", None),
        words: &["POST http://", "/loadbalancers", "Quota has been met for resources: Load Balancer", ADVICE],
        has_balancer: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_158_the_floating_ip_quota_is_exhausted() {
    check_failure(Failure {
        test: "quota-floating",
        breaks: |scene| scene.cloud.set_quota("floatingip", Some(0)),
        repairs: |scene| scene.cloud.set_quota("floatingip", None),
        words: &["POST http://", "/floatingips", "Quota exceeded for resources: ['floatingip']", ADVICE],
        has_balancer: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_security_group_quota_is_exhausted() {
    check_failure(Failure {
        test: "quota-group",
        breaks: |scene| scene.cloud.set_quota("security_group", Some(0)),
        repairs: |scene| scene.cloud.set_quota("security_group", None),
        words: &["/security-groups", "Quota exceeded for resources: ['security_group']", ADVICE],
        has_balancer: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_floating_ip_pool_is_exhausted() {
    check_failure(Failure {
        test: "pool-empty",
        breaks: |scene| scene.cloud.exhaust(&scene.cloud.fixture().external_subnet, true),
        repairs: |scene| scene.cloud.exhaust(&scene.cloud.fixture().external_subnet, false),
        words: &["/floatingips", "No more IP addresses available", ADVICE],
        has_balancer: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_balancer_subnet_is_full() {
    check_failure(Failure {
        test: "subnet-full",
        breaks: |scene| scene.cloud.exhaust(&scene.cloud.fixture().subnet, true),
        repairs: |scene| scene.cloud.exhaust(&scene.cloud.fixture().subnet, false),
        words: &["/loadbalancers", "No more IP addresses available", ADVICE],
        has_balancer: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn octavia_is_rate_limiting() {
    check_failure(Failure {
        test: "throttled",
        breaks: |scene| {
            let fault = Fault::Throttled(Some(Duration::from_secs(1)));
            scene.cloud.inject(FaultSpec::always(fault).on(Method::POST, "loadbalancers"));
        },
        repairs: |scene| scene.cloud.repair_all(),
        words: &["/loadbalancers", "HTTP 429"],
        has_balancer: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn octavia_has_an_internal_error() {
    check_failure(Failure {
        test: "broken",
        breaks: |scene| {
            let body = r#"{"faultcode": "Server", "faultstring": "An unknown exception occurred.", "debuginfo": null}"#;
            let fault = Fault::Answer(500, body.to_owned());
            scene.cloud.inject(FaultSpec::always(fault).on(Method::POST, "loadbalancers"));
        },
        repairs: |scene| scene.cloud.repair_all(),
        words: &["/loadbalancers", "HTTP 500", "An unknown exception occurred."],
        has_balancer: false,
    })
    .await;
}

/// The load balancer is created, but the response is lost: the manager finds it by its name before it would report a failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_creates_no_duplicate() {
    let scene = Scene::new("answer-lost").await;
    scene.cloud.inject(FaultSpec::always(Fault::AnswerLost).on(Method::POST, "loadbalancers").times(1));
    let mut manager = scene.manager("answer-lost");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    assert_eq!(scene.cloud.counts()["POST loadbalancers"], 1);
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}
