//! Start, credentials and `bowline check` on a simulated account.

use std::time::Duration;

use bowline_aws::{Aws, Config};
use bowline_aws_simulator::{ACCESS_KEY, Fields as _, Options, SECRET_KEY, Simulator, WEB_IDENTITY_TOKEN};
use bowline_cloud::{BuildInputs, CloudProvider as _, ErrorKind, Facts};
use bowline_config::{ConfigFile, Environment};

const STATIC: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];

fn provider(cloud: &Simulator, variables: &[(&str, &str)], lines: &str) -> Aws {
    let environment = Environment::from_iter(variables.iter().copied());
    let inputs = BuildInputs { environment, ..BuildInputs::default() };
    let (file, cluster) = (ConfigFile::from_text("aws.conf", format!("[Global]\n{lines}")), "kubernetes".into());
    let config = Config::read(&inputs.context(Some(&file), &cluster)).unwrap();
    Aws::over(config, cloud.client(Duration::from_secs(60)), &cluster).unwrap()
}

/// Returns the subject and the text of each check.
async fn report(provider: &Aws) -> Vec<(String, String)> {
    let results = provider.diagnose().await.into_iter();
    let text = |outcome: bowline_cloud::Result<String>| outcome.unwrap_or_else(|error| format!("ERROR {error}"));
    results.map(|result| (result.subject, text(result.outcome))).collect()
}

#[tokio::test(start_paused = true)]
async fn on_an_instance_no_configuration_is_needed() {
    let cloud = Simulator::new(Options::default());
    let provider = provider(&cloud, &[], "");
    let facts: Facts = provider.start().await.unwrap();
    assert_eq!((facts.region.as_deref(), facts.cluster_id.as_deref()), (Some("us-east-1"), Some("demo")));
    assert_eq!(facts.details["VPC"], cloud.fixture().vpc);
    provider.check().await.unwrap();
    assert_eq!(provider.start().await.unwrap(), facts);
    assert!(report(&provider).await[0].1.contains(":assumed-role/control-plane/i-"));
}

#[tokio::test(start_paused = true)]
async fn aws_30_tags_of_two_clusters_on_the_own_instance_are_an_error() {
    let cloud = Simulator::new(Options::default());
    let own = cloud.fixture().control_plane;
    let tags = ["a", "b"].map(|id| serde_json::json!({"key": format!("kubernetes.io/cluster/{id}"), "value": "owned"}));
    cloud.edit("instance", &own, |record| record.set("tagSet", tags.as_slice()));
    let error = provider(&cloud, &[], "").start().await.unwrap_err();
    let expected = "Found multiple cluster tags with prefix kubernetes.io/cluster/ (\"a\" and \"b\")";
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    // The file decides.
    provider(&cloud, &[], "KubernetesClusterID = a\n").start().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn expired_credentials_of_the_instance_are_renewed() {
    let cloud = Simulator::new(Options::default());
    let provider = provider(&cloud, &[], "");
    provider.start().await.unwrap();
    for _ in 0..3 {
        cloud.expire_sessions();
        provider.check().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_web_identity_gives_the_credentials_of_its_role() {
    let cloud = Simulator::new(Options::default());
    let token = std::env::temp_dir().join(format!("bowline-aws-web-identity-{}", std::process::id()));
    std::fs::write(&token, WEB_IDENTITY_TOKEN).unwrap();
    let variables = [
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/ccm"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
    ];
    let provider = provider(&cloud, &variables, "");
    provider.start().await.unwrap();
    cloud.expire_sessions();
    provider.check().await.unwrap();
    assert!(report(&provider).await[0].1.contains(":assumed-role/ccm/aws-cloud-provider"));
    cloud.expire_sessions();
    std::fs::write(&token, "wrong").unwrap();
    let error = provider.check().await.unwrap_err();
    std::fs::remove_file(&token).unwrap();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("InvalidIdentityToken"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_role_of_the_file_is_used_for_all_calls() {
    let cloud = Simulator::new(Options::default());
    let provider = provider(&cloud, &STATIC, "RoleARN=arn:aws:iam::123456789012:role/ccm\nSourceARN=arn:aws:eks:x\n");
    provider.start().await.unwrap();
    assert!(report(&provider).await[0].1.contains(":assumed-role/ccm/"));
}

#[tokio::test(start_paused = true)]
async fn the_report_names_missing_permissions_and_writes_nothing() {
    let cloud = Simulator::new(Options::default());
    let provider = provider(&cloud, &STATIC, "");
    let records = || ["instance", "security_group", "route_table"].map(|kind| format!("{:?}", cloud.records(kind)));
    let before = records();
    let whole = report(&provider).await;
    for (subject, text) in &whole {
        assert!(!text.contains("ERROR") && !text.contains("gave no answer"), "{subject}: {text}");
    }
    for action in ["ec2:CreateTags", "ec2:DeleteRoute", "elasticloadbalancing:DescribeTargetHealth"] {
        cloud.deny(action);
    }
    let denied = report(&provider).await;
    let missing =
        "does not allow ec2:CreateTags (load balancers, the controller `tagging`), ec2:DeleteRoute (routes); see";
    assert!(denied[2].1.contains(missing), "{denied:?}");
    let missing = "does not allow elasticloadbalancing:DescribeTargetHealth (load balancers); see";
    assert!(denied[3].1.contains(missing), "{denied:?}");
    assert_eq!(records(), before);
}

#[tokio::test(start_paused = true)]
async fn quotas_come_from_both_load_balancer_apis() {
    let cloud = Simulator::new(Options::default());
    cloud.put_load_balancer("n", "network", &[]);
    let provider = provider(&cloud, &STATIC, "");
    provider.start().await.unwrap();
    let quotas = provider.quotas().await.unwrap();
    let shown: Vec<_> =
        quotas.iter().map(|quota| format!("{} {}/{}", quota.resource, quota.used, quota.limit)).collect();
    assert_eq!(shown, ["Classic Load Balancers 0/20", "Network Load Balancers 1/50", "target groups 0/3000"]);
}
