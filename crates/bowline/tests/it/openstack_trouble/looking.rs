//! The commands that look: `plan`, `orphans` and `check`, on an OpenStack.

use bowline_openstack_simulator::{Fault, FaultSpec, Kind, Options, Service as Part};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::openstack_trouble::scene::{Scene, text};

/// The exit code, and what was printed for people.
fn told(scene: &Scene, command: &str, flags: &[&str]) -> (Option<i32>, String) {
    let output = scene.run(command, flags);
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}

/// The Service has its balancer, and the manager is gone.
async fn made(scene: &Scene, test: &str) {
    let mut manager = scene.manager(test);
    scene.create("web").await;
    scene.address(&manager, "web").await;
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.said());
    scene.cloud.forget_calls();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_the_changes_of_octavia_and_neutron_and_makes_none() {
    let scene = Scene::new("plan").await;
    scene.create("web").await;
    let (code, said) = told(&scene, "plan", &[]);
    assert_eq!(code, Some(2), "{said}");
    for part in
        ["Service default/web (openstack)", "kube_service_kubernetes_default_web", "floating IP", "security group"]
    {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
    assert_eq!(scene.cloud.writes(), []);

    let mut manager = scene.manager("plan");
    scene.address(&manager, "web").await;
    assert_eq!(manager.stop("-TERM").code(), Some(0), "{}", manager.said());
    scene.cloud.forget_calls();
    let (code, said) = told(&scene, "plan", &[]);
    assert_eq!((code, said.as_str()), (Some(0), "Nothing would change.\n"));
    scene.annotate("web", "connection-limit", "100").await;
    let (code, said) = told(&scene, "plan", &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("listener") && said.contains("100"), "{said}");

    // What is stuck is told, and is no plan.
    scene.set_status(&scene.balancer("web"), "ERROR");
    let (code, said) = told(&scene, "plan", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not ACTIVE"), "{said}");
    assert_eq!(scene.cloud.writes(), []);
}

/// Takes the finalizer off and deletes the Service, as somebody in a hurry does.
async fn abandon(scene: &Scene, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scene.services().patch(name, &PatchParams::default(), &patch).await.unwrap();
    scene.services().delete(name, &DeleteParams::default()).await.unwrap();
}

/// The line about the security group of the Service.
fn group(scene: &Scene) -> String {
    format!("delete security group {}\n", text(&scene.only(Kind::SecurityGroup)["name"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_left_of_a_service_is_shown_and_removed_when_told_to() {
    let scene = Scene::new("orphans").await;
    made(&scene, "orphans").await;
    let (code, said) = told(&scene, "orphans", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("No Service of the cluster kubernetes has left anything behind."), "{said}");

    abandon(&scene, "web").await;
    let neighbour = json!({"name": "kube_service_another_default_web", "vip_subnet_id": scene.cloud.fixture().subnet});
    let neighbour = scene.cloud.add_balancer(neighbour).unwrap();
    let (code, said) = told(&scene, "orphans", &[]);
    assert_eq!(code, Some(0), "{said}");
    let (address, group) = (text(&scene.only(Kind::FloatingIp)["floating_ip_address"]), group(&scene));
    let balancer = "delete load balancer kube_service_kubernetes_default_web\n";
    for part in ["default/web in openstack\n", balancer, &format!("delete floating IP {address}\n"), &group] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
    assert!(!said.contains("kube_service_another"), "{said}");
    assert_eq!(scene.cloud.writes(), []);
    let (code, said) = told(&scene, "orphans", &["--delete", "--yes", "--cluster-name=kubernetes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(scene.cloud.remove(Kind::LoadBalancer, &neighbour), "it is another cluster's");
    scene.is_clean();
}

/// Somebody has deleted the balancer alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_floating_ip_and_a_security_group_alone_are_leftovers_too() {
    let scene = Scene::new("leftovers").await;
    made(&scene, "leftovers").await;
    abandon(&scene, "web").await;
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
    let (code, said) = told(&scene, "orphans", &[]);
    assert_eq!(code, Some(0), "{said}");
    let sentence = "1 Service of the cluster kubernetes has left something behind.\n";
    for part in ["default/web in openstack\n", &format!("delete floating IP {address}\n"), &group(&scene), sentence] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
    let (code, said) = told(&scene, "orphans", &["--delete", "--yes", "--cluster-name=kubernetes"]);
    assert_eq!(code, Some(0), "{said}");
    scene.is_clean();
}

/// What was found under this name, each as `about: detail`, and the exit code.
fn found(scene: &Scene, id: &str) -> (Option<i32>, Vec<String>) {
    let output = scene.run("check", &["-o=json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = document["findings"].as_array().unwrap().iter().filter(|finding| finding["id"] == id);
    let line = |found: &Value| format!("{}: {}", text(&found["about"]), text(&found["detail"]));
    let lines: Vec<_> = findings.flat_map(|finding| finding["found"].as_array().unwrap().iter().map(line)).collect();
    (output.status.code(), lines)
}

/// Something is found, at this place of the cloud and with these words.
fn complains(scene: &Scene, id: &str, words: &[&str]) {
    let (code, lines) = found(scene, id);
    assert_eq!(code, Some(2), "{id}: {lines:#?}");
    assert!(lines.iter().any(|line| words.iter().all(|word| line.contains(word))), "{id} {words:?}: {lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_nothing_wrong_with_a_sound_cloud() {
    let scene = Scene::new("check").await;
    let (code, said) = told(&scene, "check", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("0 errors, 0 warnings.\n"), "{said}");
    assert_eq!(scene.cloud.writes(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_wrong_credentials_missing_endpoints_and_missing_roles() {
    let scene = Scene::new("check-access").await;
    scene.configure_as("wrong", &scene.lines());
    complains(&scene, "cloud-credentials", &["HTTP 401", "/auth/tokens"]);
    scene.configure(&scene.lines());

    let forbidden = r#"{"faultcode": "Client", "faultstring": "Policy does not allow this request to be performed."}"#;
    let forbidden = FaultSpec::always(Fault::Answer(403, forbidden.to_owned())).of(Part::LoadBalancer);
    let number = scene.cloud.inject(forbidden);
    complains(&scene, "cloud-rights", &["load-balancer", "role needed=load-balancer_member"]);
    scene.cloud.repair(number);

    scene.cloud.configure(|options| options.roles = vec!["reader".to_owned()]);
    complains(&scene, "cloud-rights", &["roles", "reader"]);
    scene.cloud.configure(|options| options.roles = Options::default().roles);

    scene.cloud.configure(|options| options.catalog.retain(|endpoint| endpoint.kind != "load-balancer"));
    complains(&scene, "cloud-configuration", &["endpoint load-balancer", "catalog"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_tells_ids_that_are_unknown_and_quotas_that_are_used_up() {
    let scene = Scene::new("check-ids").await;
    scene.configure(
        "[LoadBalancer]\nsubnet-id = no-subnet\nfloating-network-id = no-network\n[Route]\nrouter-id = no-router\n",
    );
    for (place, id) in [
        ("subnet-id in [LoadBalancer]", "no-subnet"),
        ("floating-network-id in [LoadBalancer]", "no-network"),
        ("router-id in [Route]", "no-router"),
    ] {
        complains(&scene, "cloud-configuration", &[place, id]);
    }
    scene.configure(&scene.lines());
    scene.cloud.set_quota("load_balancer", Some(0));
    complains(&scene, "quota-exhausted", &["load balancers", "0"]);
}
