//! The commands `plan`, `orphans`, `explain` and `check` with vSphere.

use crate::support::report::{expect_finding, printed};
use crate::vsphere::scene::{Scene, add, machine};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_nodes_and_load_balancers_and_writes_nothing() {
    let scene = Scene::new("vsphere-plan").await;
    let uuid = add(&scene.one, machine("node-3", "10.10.1.13"));
    scene.register_vm("node-3", &uuid).await;
    scene.create("web").await;
    let plan = || printed(scene.run(&["plan"]));
    let (code, text) = plan();
    assert_eq!(code, Some(3), "{text}");
    for part in ["Node node-3", &uuid, "Service default/web (vsphere)", "server pool", "virtual server"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert_eq!(scene.nsx.writes(), []);

    let mut manager = scene.manager("vsphere-plan");
    scene.initialised(&manager, "node-3").await;
    scene.address(&manager, "web").await;
    let all = || async { (scene.members().len() == 3).then_some(()) };
    scene.eventually(&manager, "three members", all).await;
    scene.stop(&mut manager);
    scene.nsx.forget_calls();
    assert_eq!(plan(), (Some(0), "No changes.\n".to_owned()));
    assert_eq!(scene.nsx.writes(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_load_balancers_are_listed_and_deleted_on_request() {
    let scene = Scene::new("vsphere-orphans").await;
    let mut manager = scene.manager("vsphere-orphans");
    scene.create("web").await;
    scene.address(&manager, "web").await;
    scene.stop(&mut manager);
    let orphans = |flags: &[&str]| printed(scene.run(&[&["orphans"], flags].concat()));
    let (code, text) = orphans(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("No orphaned resources of Services in cluster kubernetes."), "{text}");

    scene.nsx.put("/infra/lb-pools/by-hand", json!({"display_name": "cluster:kubernetes:default/web"}));
    scene.abandon("web").await;
    let (code, text) = orphans(&[]);
    assert_eq!(code, Some(0), "{text}");
    for part in ["default/web", "virtual server", "server pool"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert!(!text.contains("by-hand"), "{text}");
    let (code, text) = orphans(&["--delete", "--yes", "--cluster-name=kubernetes"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(scene.nsx_objects(), ["/infra/lb-pools/by-hand"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_nothing_wrong_with_sound_vcenters() {
    let scene = Scene::new("vsphere-check").await;
    let (code, text) = printed(scene.run(&["check"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("0 errors, 0 warnings.\n"), "{text}");
    assert_eq!((scene.one.sessions(), scene.two.sessions()), ((0, 0), (0, 0)), "it logs out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_reports_what_is_wrong_with_each_vcenter() {
    let mut scene = Scene::new("vsphere-wrong").await;
    let mut settings = scene.settings();
    settings["vcenter"]["one"]["password"] = json!("wrong-word");
    settings["vcenter"]["two"]["datacenters"] = json!(["DC0", "DC7"]);
    settings["labels"]["zone"] = json!("k8s-zones");
    scene.configure(&settings);
    let output = scene.run(&["check", "-o=json"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    expect_finding(&output, "cloud-credentials", &["one", "rejected the login"]);
    for words in [["two", "DC7"], ["two", "k8s-zones"]] {
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    }
    assert!(!text.contains("wrong-word"), "{text}");
    scene.one.close();
    let output = scene.run(&["check", "-o=json"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Connection refused"), "{text}");
    assert_eq!(scene.two.sessions(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_explained_with_its_vcenter() {
    let scene = Scene::new("vsphere-explain").await;
    let (code, text) = printed(scene.run(&["explain", "node/node-2"]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("vsphere") && text.contains("10.10.1.12"), "{text}");
}
