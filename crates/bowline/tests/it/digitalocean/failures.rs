//! Rejected requests, limits, and load balancers that disappear. Each failure is reported, leaks nothing, and needs no restart.

use std::time::Duration;

use bowline_digitalocean_simulator::{Fault, FaultSpec, error_fault};
use futures::future::join_all;
use http::Method;
use serde_json::json;

use crate::digitalocean::access::{revoked_token, unreachable};
use crate::digitalocean::scene::{FAILED, ID, Scene, text};

/// A failure that affects the Service `web`, and its Event.
struct Failure {
    test: &'static str,
    breaks: fn(&Scene),
    repairs: fn(&Scene),
    /// Parts of the Event's message.
    words: &'static [&'static str],
}

const CREATE: &str = "failed to create load-balancer: POST http://";

/// Failures of a creation.
const FAILURES: [Failure; 5] = [
    Failure {
        test: "scope",
        breaks: |scene| {
            scene.cloud.configure(|options| options.withheld_scopes = ["load_balancer:create".to_owned()].into());
        },
        repairs: |scene| scene.cloud.configure(|options| options.withheld_scopes.clear()),
        words: &[CREATE, "403 (request ", "You are not authorized to perform this operation. Grant "],
    },
    Failure {
        test: "limit",
        breaks: |scene| scene.cloud.configure(|options| options.load_balancer_limit = Some(0)),
        repairs: |scene| scene.cloud.configure(|options| options.load_balancer_limit = None),
        words: &[CREATE, "422 (request ", "will exceed your load balancer limit. Raise the account's quota"],
    },
    Failure {
        test: "throttled",
        breaks: |scene| {
            let fault = Fault::Throttled(Some(Duration::from_secs(1)));
            scene.cloud.inject(FaultSpec::always(fault).on(Method::POST, "load_balancers"));
        },
        repairs: |scene| scene.cloud.repair_all(),
        words: &[CREATE, "429"],
    },
    Failure {
        test: "broken",
        breaks: |scene| {
            let fault = error_fault(500, "Server was unable to give you a response.");
            scene.cloud.inject(FaultSpec::always(fault).on(Method::GET, "load_balancers"));
        },
        repairs: |scene| scene.cloud.repair_all(),
        words: &["500 (request \"injected\") Server was unable to give you a response."],
    },
    Failure {
        test: "maintenance",
        breaks: |scene| {
            let fault = Fault::Answer(503, "<html>Service Unavailable</html>".to_owned());
            scene.cloud.inject(FaultSpec::always(fault).on(Method::POST, "load_balancers"));
        },
        repairs: |scene| scene.cloud.repair_all(),
        words: &["POST http://", "503"],
    },
];

/// Checks that the failure is reported, creates no duplicates, and that the Service recovers.
async fn check_failure(failure: &Failure) {
    let scene = Scene::new(failure.test).await;
    (failure.breaks)(&scene);
    let mut manager = scene.manager(failure.test);
    scene.create("web").await;
    scene.warned(&manager, "web", FAILED, failure.words).await;
    assert_eq!(scene.load_balancers(), []);
    (failure.repairs)(&scene);
    scene.address(&manager, "web").await;
    assert_eq!(scene.load_balancers().len(), 1, "there are no duplicates");
    scene.end(&mut manager, "web").await;
}

/// A load balancer that failed is reported, and replaced once it is deleted.
async fn errored() {
    let scene = Scene::new("errored").await;
    scene.cloud.fail_work(1);
    let mut manager = scene.manager("errored");
    scene.create("web").await;
    let words = ["load-balancer has unexpected status \"errored\"", "delete it"];
    scene.warned(&manager, "web", FAILED, &words).await;
    let failed = text(&scene.load_balancer()["id"]);
    assert!(scene.cloud.remove("load_balancers", &failed));
    scene.address(&manager, "web").await;
    scene.end(&mut manager, "web").await;
}

/// An invalid port is reported in the words of the API, until the user changes it.
async fn invalid_port() {
    let scene = Scene::new("invalid").await;
    let mut manager = scene.manager("invalid");
    scene.create_with("web", 50053, &[]).await;
    let message = scene.warned(&manager, "web", FAILED, &["422 (request ", "entry port is invalid"]).await;
    let start =
        format!("failed to create load-balancer: POST {}/v2/load_balancers: 422 (request \"", scene.cloud.url());
    assert!(message.contains(&start), "{message}");
    assert_eq!(scene.load_balancers(), []);
    scene.patch("web", json!({"spec": {"ports": [{"port": 80}]}})).await;
    scene.address(&manager, "web").await;
    scene.end(&mut manager, "web").await;
}

/// The cases run concurrently, because each waits for retries.
#[tokio::test(flavor = "multi_thread")]
async fn every_failure_is_reported_and_ends_without_a_restart() {
    let rejected = join_all(FAILURES.iter().map(check_failure));
    tokio::join!(rejected, invalid_port(), errored(), revoked_token(), unreachable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_creates_no_duplicate() {
    let scene = Scene::new("answer-lost").await;
    scene.cloud.inject(FaultSpec::always(Fault::AnswerLost).on(Method::POST, "load_balancers").times(1));
    let mut manager = scene.manager("answer-lost");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    assert_eq!(scene.cloud.counts()["POST load_balancers"], 1);
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balancer_that_was_deleted_by_hand_is_created_again() {
    let scene = Scene::new("by-hand").await;
    let mut manager = scene.manager_with("by-hand", &[], &["--load-balancer-refresh-period=1s"]);
    scene.create("web").await;
    let old = scene.address(&manager, "web").await;
    let id = scene.get_annotation("web", ID).await.unwrap();
    assert!(scene.cloud.remove("load_balancers", &id));
    let is_replaced = || async { scene.get_annotation("web", ID).await.filter(|new| *new != id) };
    let new = scene.eventually(&manager, "another load balancer", is_replaced).await;
    assert_eq!(text(&scene.load_balancer()["id"]), new);
    let has_moved = || async { Some(scene.address(&manager, "web").await).filter(|address| *address != old) };
    scene.eventually(&manager, "another address", has_moved).await;
    assert_eq!(scene.warnings("web").await, []);
    scene.end(&mut manager, "web").await;
}
