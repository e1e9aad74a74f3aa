//! A cloud that does not give what is asked for: quotas, full pools, too many requests, and errors of its own.

use std::time::Duration;

use bowline_openstack_simulator::{Fault, FaultSpec, Kind};
use http::Method;

use crate::openstack_trouble::scene::Scene;

/// What is in the way of the Service `web`, and what is told of it.
struct Story {
    test: &'static str,
    breaks: fn(&Scene),
    repairs: fn(&Scene),
    /// All in one Event.
    words: &'static [&'static str],
    /// Whether a load balancer exists nevertheless; it is found again by the annotation.
    has_balancer: bool,
}

/// The Service meets the fault, which is told once and leaves nothing too many; then it is repaired.
async fn told(story: Story) {
    let scene = Scene::new(story.test).await;
    (story.breaks)(&scene);
    let mut manager = scene.manager(story.test);
    scene.create("web").await;
    let message = scene.warned(&manager, "web", "SyncLoadBalancerFailed", story.words).await;
    assert!(message.matches("HTTP ").count() <= 1, "the same thing is said twice: {message}");
    assert_eq!(scene.made(Kind::LoadBalancer), usize::from(story.has_balancer), "{message}");
    if story.has_balancer {
        let ask = || async { scene.annotation("web", "load-balancer-id").await };
        assert_eq!(scene.eventually(&manager, "the annotation", ask).await, scene.balancer("web"));
    }
    (story.repairs)(&scene);
    scene.address(&manager, "web").await;
    let counts = [Kind::LoadBalancer, Kind::Listener, Kind::Pool, Kind::HealthMonitor, Kind::FloatingIp];
    assert_eq!(counts.map(|kind| scene.made(kind)), [1; 5], "nothing is there twice");
    scene.end(&mut manager, "web").await;
}

/// What helps, for quotas and for addresses.
const ADVICE: &str =
    "Raise the account's quota, or free some of it; where addresses have run out, the subnet needs more.";

#[tokio::test(flavor = "multi_thread")]
async fn no_more_balancers() {
    told(Story {
        test: "quota-balancer",
        breaks: |scene| scene.cloud.set_quota("load_balancer", Some(0)),
        repairs: |scene| scene.cloud.set_quota("load_balancer", None),
        words: &["POST http://", "/loadbalancers", "Quota has been met for resources: Load Balancer", ADVICE],
        has_balancer: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_158_no_more_floating_ips() {
    told(Story {
        test: "quota-floating",
        breaks: |scene| scene.cloud.set_quota("floatingip", Some(0)),
        repairs: |scene| scene.cloud.set_quota("floatingip", None),
        words: &["POST http://", "/floatingips", "Quota exceeded for resources: ['floatingip']", ADVICE],
        has_balancer: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_security_groups() {
    told(Story {
        test: "quota-group",
        breaks: |scene| scene.cloud.set_quota("security_group", Some(0)),
        repairs: |scene| scene.cloud.set_quota("security_group", None),
        words: &["/security-groups", "Quota exceeded for resources: ['security_group']", ADVICE],
        has_balancer: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_of_floating_ips_is_empty() {
    told(Story {
        test: "pool-empty",
        breaks: |scene| scene.cloud.exhaust(&scene.cloud.fixture().external_subnet, true),
        repairs: |scene| scene.cloud.exhaust(&scene.cloud.fixture().external_subnet, false),
        words: &["/floatingips", "No more IP addresses available", ADVICE],
        has_balancer: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subnet_of_the_balancers_is_full() {
    told(Story {
        test: "subnet-full",
        breaks: |scene| scene.cloud.exhaust(&scene.cloud.fixture().subnet, true),
        repairs: |scene| scene.cloud.exhaust(&scene.cloud.fixture().subnet, false),
        words: &["/loadbalancers", "No more IP addresses available", ADVICE],
        has_balancer: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn octavia_asks_for_fewer_calls() {
    told(Story {
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
async fn octavia_has_an_error_of_its_own() {
    told(Story {
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

/// The balancer is made, and nobody knows of it but Octavia: it is found by its name, so quickly that there is nothing to tell.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_leaves_no_double() {
    let scene = Scene::new("answer-lost").await;
    scene.cloud.inject(FaultSpec::always(Fault::AnswerLost).on(Method::POST, "loadbalancers").times(1));
    let mut manager = scene.manager("answer-lost");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    assert_eq!(scene.cloud.counts()["POST loadbalancers"], 1);
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}
