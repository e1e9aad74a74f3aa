//! The read-only commands `plan`, `orphans` and `check` with OpenStack.

use bowline_openstack_simulator::{Fault, FaultSpec, Kind, Options, Service as Part};
use serde_json::{Value, json};

use crate::openstack_trouble::scene::{Scene, text};
use crate::support::report::{self, printed};

/// Runs a command; returns exit code and output.
fn run(scene: &Scene, command: &str, flags: &[&str]) -> (Option<i32>, String) {
    printed(scene.run(command, flags))
}

/// Creates the Service with its load balancer, and stops the manager.
async fn create_web(scene: &Scene, test: &str) {
    let mut manager = scene.manager(test);
    scene.create("web").await;
    scene.address(&manager, "web").await;
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    scene.cloud.forget_calls();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_prints_octavia_and_neutron_changes_and_writes_nothing() {
    let scene = Scene::new("plan").await;
    scene.create("web").await;
    let (code, printed) = run(&scene, "plan", &[]);
    assert_eq!(code, Some(3), "{printed}");
    for part in
        ["Service default/web (openstack)", "kube_service_kubernetes_default_web", "floating IP", "security group"]
    {
        assert!(printed.contains(part), "{part:?} is missing: {printed}");
    }
    assert_eq!(scene.cloud.writes(), []);

    let mut manager = scene.manager("plan");
    scene.address(&manager, "web").await;
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.output());
    scene.cloud.forget_calls();
    let (code, printed) = run(&scene, "plan", &[]);
    assert_eq!((code, printed.as_str()), (Some(0), "No changes.\n"));
    scene.annotate("web", "connection-limit", "100").await;
    let (code, printed) = run(&scene, "plan", &[]);
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("listener") && printed.contains("100"), "{printed}");

    // A load balancer in ERROR is a failure.
    scene.set_status(&scene.balancer("web"), "ERROR");
    let (code, printed) = run(&scene, "plan", &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("not ACTIVE"), "{printed}");
    assert_eq!(scene.cloud.writes(), []);
}

/// Plan step for the Service's security group.
fn group(scene: &Scene) -> String {
    format!("delete security group {}\n", text(&scene.only(Kind::SecurityGroup)["name"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_resources_of_a_service_are_listed_and_deleted_on_request() {
    let scene = Scene::new("orphans").await;
    create_web(&scene, "orphans").await;
    let (code, printed) = run(&scene, "orphans", &[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("No orphaned resources of Services in cluster kubernetes."), "{printed}");

    scene.abandon("web").await;
    let neighbour = json!({"name": "kube_service_another_default_web", "vip_subnet_id": scene.cloud.fixture().subnet});
    let neighbour = scene.cloud.add_balancer(neighbour).unwrap();
    let (code, printed) = run(&scene, "orphans", &[]);
    assert_eq!(code, Some(0), "{printed}");
    let (address, group) = (text(&scene.only(Kind::FloatingIp)["floating_ip_address"]), group(&scene));
    let balancer = "delete load balancer kube_service_kubernetes_default_web\n";
    for part in ["default/web in openstack\n", balancer, &format!("delete floating IP {address}\n"), &group] {
        assert!(printed.contains(part), "{part:?} is missing: {printed}");
    }
    assert!(!printed.contains("kube_service_another"), "{printed}");
    assert_eq!(scene.cloud.writes(), []);
    let (code, printed) = run(&scene, "orphans", &["--delete", "--yes", "--cluster-name=kubernetes"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(scene.cloud.remove(Kind::LoadBalancer, &neighbour), "it belongs to another cluster");
    scene.is_clean();
}

/// Only the load balancer was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_floating_ip_and_a_security_group_alone_are_orphans_too() {
    let scene = Scene::new("leftovers").await;
    create_web(&scene, "leftovers").await;
    scene.abandon("web").await;
    for kind in [Kind::Member, Kind::HealthMonitor, Kind::Pool, Kind::Listener, Kind::LoadBalancer] {
        for record in scene.cloud.records(kind) {
            scene.cloud.remove(kind, &text(&record["id"]));
        }
    }
    let floating = scene.only(Kind::FloatingIp);
    scene.cloud.edit(Kind::FloatingIp, &text(&floating["id"]), |record| {
        drop(record.insert("port_id".to_owned(), Value::Null))
    });
    let address = text(&floating["floating_ip_address"]);
    let (code, printed) = run(&scene, "orphans", &[]);
    assert_eq!(code, Some(0), "{printed}");
    let sentence = "Orphaned resources of 1 Service in cluster kubernetes.\n";
    for part in ["default/web in openstack\n", &format!("delete floating IP {address}\n"), &group(&scene), sentence] {
        assert!(printed.contains(part), "{part:?} is missing: {printed}");
    }
    let (code, printed) = run(&scene, "orphans", &["--delete", "--yes", "--cluster-name=kubernetes"]);
    assert_eq!(code, Some(0), "{printed}");
    scene.is_clean();
}

/// Checks that `bowline check` fails with this finding and these words.
fn expect_finding(scene: &Scene, id: &str, words: &[&str]) {
    report::expect_finding(&scene.run("check", &["-o=json"]), id, words);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_nothing_wrong_with_a_sound_cloud() {
    let scene = Scene::new("check").await;
    let (code, printed) = run(&scene, "check", &[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.ends_with("0 errors, 0 warnings.\n"), "{printed}");
    assert_eq!(scene.cloud.writes(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_reports_wrong_credentials_missing_endpoints_and_missing_roles() {
    let scene = Scene::new("check-access").await;
    scene.configure_as("wrong", &scene.lines());
    expect_finding(&scene, "cloud-credentials", &["HTTP 401", "/auth/tokens"]);
    scene.configure(&scene.lines());

    let forbidden = r#"{"faultcode": "Client", "faultstring": "Policy does not allow this request to be performed."}"#;
    let forbidden = FaultSpec::always(Fault::Answer(403, forbidden.to_owned())).of(Part::LoadBalancer);
    let number = scene.cloud.inject(forbidden);
    expect_finding(&scene, "cloud-rights", &["load-balancer", "role needed=load-balancer_member"]);
    scene.cloud.repair(number);

    scene.cloud.configure(|options| options.roles = vec!["reader".to_owned()]);
    expect_finding(&scene, "cloud-rights", &["roles", "reader"]);
    scene.cloud.configure(|options| options.roles = Options::default().roles);

    scene.cloud.configure(|options| options.catalog.retain(|endpoint| endpoint.kind != "load-balancer"));
    expect_finding(&scene, "cloud-configuration", &["endpoint load-balancer", "catalog"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_reports_unknown_ids_and_exhausted_quotas() {
    let scene = Scene::new("check-ids").await;
    scene.configure(
        "[LoadBalancer]\nsubnet-id = no-subnet\nfloating-network-id = no-network\n[Route]\nrouter-id = no-router\n",
    );
    for (place, id) in [
        ("subnet-id in [LoadBalancer]", "no-subnet"),
        ("floating-network-id in [LoadBalancer]", "no-network"),
        ("router-id in [Route]", "no-router"),
    ] {
        expect_finding(&scene, "cloud-configuration", &[place, id]);
    }
    scene.configure(&scene.lines());
    scene.cloud.set_quota("load_balancer", Some(0));
    expect_finding(&scene, "quota-exhausted", &["load balancers", "0"]);
}
