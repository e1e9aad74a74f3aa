//! The commands `plan`, `orphans` and `check` with AWS.

use serde_json::json;

use crate::aws::scene::{Scene, TYPE, name_of};
use crate::support::report::{expect_finding, printed};

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_the_load_balancers_and_writes_nothing() {
    let scene = Scene::new("plan").await;
    scene.create("web").await;
    scene.create_nlb("net").await;
    let plan = || printed(scene.run(&["plan"], &[]));
    let (code, text) = plan();
    assert_eq!(code, Some(3), "{text}");
    for part in [
        "Service default/web (aws)",
        "create security group k8s-elb-a",
        "create Classic Load Balancer a",
        "create Network Load Balancer a",
        "create target group k8s-default-net-",
        "all from k8s-elb-a",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert_eq!(scene.cloud.writes(), []);

    let mut manager = scene.manager("plan");
    scene.hostname(&manager, "web").await;
    scene.hostname(&manager, "net").await;
    scene.stop(&mut manager);
    scene.cloud.forget_calls();
    assert_eq!(plan(), (Some(0), "No changes.\n".to_owned()));
    scene.patch("net", json!({"spec": {"ports": [{"port": 81}]}})).await;
    let (code, text) = plan();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("create listener") && text.contains("delete listener"), "{text}");
    assert_eq!(scene.cloud.writes(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_load_balancers_are_listed_and_deleted_on_request() {
    let scene = Scene::new("orphans").await;
    let mut manager = scene.manager("orphans");
    let (web, net) = (scene.create("web").await, scene.create_with("net", 80, &[(TYPE, "nlb")]).await);
    scene.hostname(&manager, "web").await;
    scene.hostname(&manager, "net").await;
    scene.stop(&mut manager);
    let orphans = |flags: &[&str]| printed(scene.run(&[&["orphans"], flags].concat(), &[]));
    let (code, text) = orphans(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("No orphaned resources of Services in cluster kubernetes."), "{text}");

    let foreign =
        scene.cloud.put_classic_load_balancer("by-hand", json!([]), &[("kubernetes.io/cluster/other", "owned")]);
    scene.abandon("web").await;
    scene.abandon("net").await;
    let (code, text) = orphans(&[]);
    assert_eq!(code, Some(0), "{text}");
    for part in
        ["default/web", "default/net", &name_of(&web), &name_of(&net), "delete target group", "delete security group"]
    {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    assert!(!text.contains("by-hand"), "{text}");
    let (code, text) = orphans(&["--delete", "--yes", "--cluster-name=kubernetes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(scene.cloud.remove("classic", &foreign));
    scene.is_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_nothing_wrong_with_a_sound_account() {
    let scene = Scene::new("check").await;
    let (code, text) = printed(scene.run(&["check"], &[]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("0 errors, 0 warnings.\n"), "{text}");
    assert!(text.contains("123456789012"), "the identity is shown: {text}");
    assert_eq!(scene.cloud.writes(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_reports_wrong_keys_a_missing_permission_and_subnets_without_tags() {
    let scene = Scene::new("check-access").await;
    let words = ["AWS_ACCESS_KEY_ID"];
    let wrong = scene.run(&["check", "-o=json"], &[("AWS_ACCESS_KEY_ID", "AKIAWRONG")]);
    expect_finding(&wrong, "cloud-credentials", &words[..0]);
    scene.cloud.deny("ec2:CreateTags");
    let missing = scene.run(&["check", "-o=json"], &[]);
    expect_finding(&missing, "cloud-rights", &["ec2:CreateTags"]);
    scene.cloud.allow("ec2:CreateTags");
    assert_eq!(scene.cloud.writes(), []);
}
