//! The commands `plan`, `explain`, `orphans` and `check` with DigitalOcean.

use serde_json::json;

use crate::digitalocean::scene::{FIREWALL, ID, Scene, text};
use crate::support::report::{expect_finding, printed};

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_and_an_explanation_show_the_load_balancer_and_the_loops_and_write_nothing() {
    let scene = Scene::new("plan").await;
    scene.create("web").await;
    let plan = || printed(scene.run(&["plan"], &FIREWALL));
    let explain = || printed(scene.run(&["explain", "service/default/web"], &FIREWALL));
    let (code, text) = plan();
    assert_eq!(code, Some(3), "{text}");
    for part in ["Service default/web (digitalocean)", "create load balancer a", "Loop firewall (digitalocean)"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    let (code, text) = explain();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("Service default/web\n  cloud: digitalocean"), "{text}");
    assert_eq!(scene.cloud.writes(), []);

    let mut manager = scene.manager_with("plan", &FIREWALL, &[]);
    let address = scene.address(&manager, "web").await;
    let rule = format!("tcp 10256 {}", scene.get_annotation("web", ID).await.unwrap());
    let is_open = || async { scene.inbound_rules().is_some_and(|rules| rules.contains(&rule)).then_some(()) };
    scene.eventually(&manager, "the rule of the health check", is_open).await;
    scene.stop(&mut manager);
    scene.cloud.forget_calls();
    assert_eq!(plan(), (Some(0), "No changes.\n".to_owned()));
    let (code, text) = explain();
    assert!(code == Some(0) && text.contains(&address), "{text}");
    scene.patch("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    let (code, text) = plan();
    assert_eq!(code, Some(3), "{text}");
    for part in ["update load balancer a", "tcp 81 to tcp 81", "update firewall public", "tcp 81 (0.0.0.0/0 ::/0)"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert_eq!(scene.cloud.writes(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_load_balancers_are_listed_and_deleted_on_request() {
    let scene = Scene::new("orphans").await;
    let id = scene.balanced("orphans", "web").await;
    let name = text(&scene.load_balancer()["name"]);
    let orphans =
        |flags: &[&str], variables: &[(&str, &str)]| printed(scene.run(&[&["orphans"], flags].concat(), variables));
    let (code, text) = orphans(&[], &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("No orphaned resources of Services in cluster kubernetes."), "{text}");

    let (code, text) = orphans(&[], &[("DO_CLUSTER_ID", "")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("set DO_CLUSTER_ID"), "{text}");

    scene.abandon("web").await;
    let others = [json!(["k8s:c2"]), json!([])].map(|tags| {
        scene.cloud.put("load_balancers", json!({"name": format!("other-{}", tags.to_string().len()), "tags": tags}))
    });
    let (code, text) = orphans(&[], &[]);
    assert_eq!(code, Some(0), "{text}");
    let title = format!("load balancer {name} (ID {id}) in digitalocean\n");
    assert!(text.contains(&format!("{title}    delete load balancer {name}\n")), "{text}");
    assert!(!text.contains("other-"), "{text}");
    assert_eq!(scene.cloud.writes(), []);
    let (code, text) = orphans(&["--delete", "--yes", "--cluster-name=kubernetes"], &[]);
    assert_eq!(code, Some(0), "{text}");
    let left: Vec<_> = scene.load_balancers().iter().map(|one| self::text(&one["id"])).collect();
    assert_eq!(left, others);
    assert_eq!(scene.writes(), ["DELETE load_balancers/{id}"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_nothing_wrong_with_a_sound_account() {
    let scene = Scene::new("check").await;
    let vpc = scene.cloud.vpc();
    let variables: Vec<_> = FIREWALL.into_iter().chain([("DO_CLUSTER_VPC_ID", vpc.as_str())]).collect();
    let (code, text) = printed(scene.run(&["check"], &variables));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("0 errors, 0 warnings.\n"), "{text}");
    assert_eq!(scene.cloud.writes(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_reports_a_wrong_token_region_vpc_and_a_missing_scope() {
    let scene = Scene::new("check-access").await;
    let check = |variable: &str, value: &str| scene.run(&["check", "-o=json"], &[(variable, value)]);
    expect_finding(&check("DO_ACCESS_TOKEN", "wrong"), "cloud-credentials", &["401", "Unable to authenticate you."]);
    let words = ["invalid region specified: moon1", "nyc3"];
    expect_finding(&check("REGION", "moon1"), "cloud-configuration", &words);
    let words = ["VPC", "there is no VPC 0000", "DO_CLUSTER_VPC_ID"];
    expect_finding(&check("DO_CLUSTER_VPC_ID", "0000"), "cloud-configuration", &words);
    scene.cloud.configure(|options| options.withheld_scopes = ["certificate:read".to_owned()].into());
    let words = ["scope certificate:read", "scope needed=certificate:read"];
    expect_finding(&check("DO_CLUSTER_ID", "c1"), "cloud-rights", &words);
    assert_eq!(scene.cloud.writes(), []);
}
