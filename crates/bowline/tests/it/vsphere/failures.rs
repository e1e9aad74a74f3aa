//! vCenters and NSX managers that fail, hang or refuse. Each failure is reported, leaks nothing, and needs no restart.

use std::time::{Duration, Instant};

use bowline_vsphere_simulator::nsx::{Fault, FaultSpec, error_fault, html_fault};
use http::Method;
use serde_json::json;

use crate::vsphere::scene::{Scene, add, machine};

const FAILED: &str = "SyncLoadBalancerFailed";

/// VS-40: a vCenter that accepts connections and does not answer delays only its own Nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_vcenter_that_hangs_delays_only_its_own_nodes() {
    let scene = Scene::new("hangs").await;
    scene.two.inject(FaultSpec::always(Fault::Hanging));
    let mut manager = scene.manager("hangs");
    let uuid = add(&scene.one, machine("node-3", "10.10.1.13"));
    scene.register_vm("node-3", &uuid).await;
    let begin = Instant::now();
    scene.initialised(&manager, "node-3").await;
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    scene.set_ready("node-2", "Unknown").await;
    let uuid = add(&scene.two, machine("node-4", "10.10.1.14"));
    scene.register_vm("node-4", &uuid).await;
    scene.warned(&manager, "node-4", "CloudUnavailable", &["two"]).await;
    assert!(scene.nodes().get_opt("node-2").await.unwrap().is_some());
    scene.two.repair_all();
    scene.initialised(&manager, "node-4").await;
    assert!(scene.nodes().get_opt("node-2").await.unwrap().is_some());
    scene.stop(&mut manager);
}

/// A failure that affects the Service `web`, and its Event.
struct Failure {
    test: &'static str,
    breaks: fn(&Scene),
    repairs: fn(&Scene),
    /// Parts of the Event's message.
    words: &'static [&'static str],
}

const FAILURES: &[Failure] = &[
    Failure {
        test: "nsx-html",
        breaks: |scene| _ = scene.nsx.inject(FaultSpec::always(html_fault(502))),
        repairs: |scene| scene.nsx.repair_all(),
        words: &["502"],
    },
    Failure {
        test: "nsx-locked",
        breaks: |scene| {
            let locked = "The credentials were incorrect or the account specified has been locked.";
            scene.nsx.inject(FaultSpec::always(error_fault(403, 403, locked)));
        },
        repairs: |scene| scene.nsx.repair_all(),
        words: &["The credentials were incorrect", "403"],
    },
    Failure {
        test: "nsx-pool",
        breaks: |scene| {
            let put = scene.nsx.add_ip_pool("vips", "203.0.113.10");
            assert_eq!(put, "/infra/ip-pools/vips");
            scene.nsx.put("/infra/ip-pools/vips/ip-allocations/taken", json!({"display_name": "of another owner"}));
        },
        repairs: |scene| assert!(scene.nsx.remove("/infra/ip-pools/vips/ip-allocations/taken")),
        words: &["Insufficient free IP addresses"],
    },
    Failure {
        test: "nsx-refused",
        breaks: |scene| {
            let fault = FaultSpec::always(error_fault(400, 500012, "The path is invalid."));
            scene.nsx.inject(fault.on(Method::PUT, "infra/lb-virtual-servers/{id}"));
        },
        repairs: |scene| scene.nsx.repair_all(),
        words: &["The path is invalid."],
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_of_nsx_is_reported_and_recovers() {
    for failure in FAILURES {
        reported_and_recovered(failure).await;
    }
}

async fn reported_and_recovered(failure: &Failure) {
    let scene = Scene::new(failure.test).await;
    (failure.breaks)(&scene);
    let mut manager = scene.manager(failure.test);
    scene.create("web").await;
    scene.warned(&manager, "web", FAILED, failure.words).await;
    (failure.repairs)(&scene);
    scene.set_annotation("web", "example.com/retry", "now").await;
    scene.address(&manager, "web").await;
    scene.delete(&manager, "web").await;
    let left: Vec<_> = scene.nsx_objects();
    assert_eq!(left, Vec::<String>::new(), "{}", failure.test);
    scene.stop(&mut manager);
}

/// VS-102: Nodes are served while the NSX manager is unreachable.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_served_without_nsx() {
    let mut scene = Scene::new("without-nsx").await;
    scene.nsx.close();
    let mut manager = scene.manager("without-nsx");
    let uuid = add(&scene.one, machine("node-3", "10.10.1.13"));
    scene.register_vm("node-3", &uuid).await;
    scene.initialised(&manager, "node-3").await;
    scene.create("web").await;
    scene.warned(&manager, "web", FAILED, &["Connection refused"]).await;
    scene.nsx.open().await;
    scene.set_annotation("web", "example.com/retry", "now").await;
    scene.address(&manager, "web").await;
    scene.delete(&manager, "web").await;
    scene.stop(&mut manager);
}
