//! Access keys, sessions, permissions and the metadata service.

use std::time::Duration;

use bowline_aws_simulator::{CONTAINER_TOKEN, Options, Simulator};
use http::{Method, Request};

use crate::client::{Client, text};

fn failure(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn a_session_expires() {
    tokio::time::pause();
    let mut client = Client::new(Options::default());
    let form =
        [("RoleArn", "arn:aws:iam::123456789012:role/ccm"), ("RoleSessionName", "test"), ("DurationSeconds", "900")];
    let answer = client.ok("sts AssumeRole", &form).await;
    (client.key, client.token) = (text(&answer, "AccessKeyId"), text(&answer, "SessionToken"));
    client.ok("ec2 DescribeInstances", &[]).await;
    tokio::time::advance(Duration::from_secs(900)).await;
    assert_eq!(client.code("ec2 DescribeInstances", &[]).await, failure(400, "RequestExpired"));
    assert_eq!(client.code("elb DescribeLoadBalancers", &[]).await, failure(403, "ExpiredToken"));
}

#[tokio::test]
async fn sessions_can_be_expired_and_keys_rotated() {
    let mut client = Client::new(Options::default());
    client.cloud.rotate_access_key("AKIANEXT", "next");
    assert_eq!(client.code("ec2 DescribeInstances", &[]).await, failure(401, "AuthFailure"));
    assert_eq!(client.code("elbv2 DescribeLoadBalancers", &[]).await, failure(403, "InvalidClientTokenId"));
    client.key = "AKIANEXT".to_owned();
    assert_eq!(client.cloud.secret_key("AKIANEXT").as_deref(), Some("next"));
    let form = [("RoleArn", "arn:aws:iam::123456789012:role/ccm"), ("RoleSessionName", "test")];
    let answer = client.ok("sts AssumeRole", &form).await;
    client.cloud.expire_sessions();
    client.ok("ec2 DescribeInstances", &[]).await;
    (client.key, client.token) = (text(&answer, "AccessKeyId"), text(&answer, "SessionToken"));
    assert_eq!(client.code("sts GetCallerIdentity", &[]).await, failure(403, "ExpiredToken"));
}

#[tokio::test]
async fn a_scope_must_match() {
    let mut client = Client::new(Options { region: "eu-west-1".to_owned(), ..Options::default() });
    client.ok("ec2 DescribeInstances", &[]).await;
    client.region = "us-east-1".to_owned();
    assert_eq!(client.code("ec2 DescribeInstances", &[]).await, failure(401, "AuthFailure"));
    assert_eq!(client.code("elb DescribeLoadBalancers", &[]).await, failure(403, "SignatureDoesNotMatch"));
    client.ok("sts GetCallerIdentity", &[]).await;
    client.key = String::new();
    assert_eq!(client.code("ec2 DescribeInstances", &[]).await, failure(403, "MissingAuthenticationToken"));
}

#[tokio::test]
async fn clocks_may_differ_unless_the_options_limit_it() {
    let client = Client::new(Options::default());
    client.ok("ec2 DescribeInstances", &[]).await;
    client.cloud.configure(|options| options.clock_skew = Some(Duration::from_secs(300)));
    assert_eq!(client.code("ec2 DescribeInstances", &[]).await, failure(400, "RequestExpired"));
    assert_eq!(client.code("elb DescribeLoadBalancers", &[]).await, failure(403, "SignatureDoesNotMatch"));
}

#[tokio::test]
async fn assume_role_checks_the_external_id_and_records_the_source() {
    let client = Client::new(Options { external_id: Some("x-1".to_owned()), ..Options::default() });
    let form = [("RoleArn", "arn:aws:iam::123456789012:role/ccm"), ("RoleSessionName", "test")];
    assert_eq!(client.code("sts AssumeRole", &form).await, failure(403, "AccessDenied"));
    let headers = [
        ("x-amz-source-account", "123456789012"),
        ("x-amz-source-arn", "arn:aws:eks:us-east-1:123456789012:cluster/demo"),
    ];
    let (status, _) =
        client.send_with("sts AssumeRole", &[&form[..], &[("ExternalId", "x-1")]].concat(), &headers).await;
    assert_eq!(status, 200);
    let entry = client.cloud.journal().pop().unwrap();
    let recorded = |name: &str| entry.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.clone());
    assert_eq!(recorded("x-amz-source-account").unwrap(), "123456789012");
    assert_eq!(recorded("x-amz-source-arn").unwrap(), headers[1].1);
    assert_eq!((entry.is_write, recorded("authorization")), (false, None));
    let form = [("RoleArn", "role/ccm"), ("RoleSessionName", "test"), ("ExternalId", "x-1")];
    assert_eq!(client.code("sts AssumeRole", &form).await, failure(400, "ValidationError"));
}

#[tokio::test]
async fn a_denied_action_fails_with_and_without_dry_run() {
    let client = Client::new(Options::default());
    let form = [("ResourceId.1", client.nodes[0].as_str()), ("Tag.1.Key", "a"), ("Tag.1.Value", "b")];
    let dry = [&form[..], &[("DryRun", "true")]].concat();
    assert_eq!(client.code("ec2 CreateTags", &dry).await, failure(412, "DryRunOperation"));
    client.cloud.deny("ec2:CreateTags");
    client.cloud.deny("elasticloadbalancing:DescribeLoadBalancers");
    assert_eq!(client.code("ec2 CreateTags", &dry).await, failure(403, "UnauthorizedOperation"));
    assert_eq!(client.code("ec2 CreateTags", &form).await, failure(403, "UnauthorizedOperation"));
    assert_eq!(client.code("elb DescribeLoadBalancers", &[]).await, failure(403, "AccessDenied"));
    assert_eq!(client.code("elbv2 DescribeLoadBalancers", &[]).await, failure(403, "AccessDenied"));
    client.cloud.allow("ec2:CreateTags");
    client.ok("ec2 CreateTags", &form).await;
}

async fn metadata(cloud: &Simulator, method: Method, path: &str, header: (&str, &str)) -> (u16, String) {
    let request =
        Request::builder().method(method).uri(format!("http://169.254.169.254{path}")).header(header.0, header.1);
    let answer = cloud.answer(request.body(Vec::new().into()).unwrap()).await.unwrap();
    (answer.status().as_u16(), String::from_utf8(answer.body().to_vec()).unwrap())
}

#[tokio::test]
async fn the_metadata_service_requires_a_token() {
    tokio::time::pause();
    let cloud = Simulator::new(Options::default());
    let ttl = "x-aws-ec2-metadata-token-ttl-seconds";
    assert_eq!(metadata(&cloud, Method::PUT, "/latest/api/token", (ttl, "0")).await.0, 400);
    let (_, token) = metadata(&cloud, Method::PUT, "/latest/api/token", (ttl, "60")).await;
    let header = ("x-aws-ec2-metadata-token", token.as_str());
    let id = cloud.fixture().control_plane;
    let get = async |path: &'static str| metadata(&cloud, Method::GET, path, header).await;
    assert_eq!(get("/latest/meta-data/instance-id").await, (200, id.clone()));
    assert_eq!(get("/latest/meta-data/placement/availability-zone").await, (200, "us-east-1a".to_owned()));
    let document: serde_json::Value =
        serde_json::from_str(&get("/latest/dynamic/instance-identity/document").await.1).unwrap();
    assert_eq!((&document["instanceId"], &document["region"]), (&id.into(), &"us-east-1".into()));
    let mac = get("/latest/meta-data/mac").await.1;
    let path = format!("/latest/meta-data/network/interfaces/macs/{mac}/vpc-id");
    assert_eq!(metadata(&cloud, Method::GET, &path, header).await.1, cloud.fixture().vpc);
    assert_eq!(get("/latest/meta-data/none").await.0, 404);
    assert_eq!(metadata(&cloud, Method::GET, "/latest/meta-data/instance-id", ("x", "y")).await.0, 401);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(get("/latest/meta-data/instance-id").await.0, 401);
    assert_eq!(cloud.counts()["GET imds meta-data/instance-id"], 3);
    assert!(cloud.writes().is_empty());
}

#[tokio::test]
async fn instances_and_containers_get_session_credentials() {
    let mut client = Client::new(Options::default());
    let (status, _) = metadata(&client.cloud, Method::GET, "/v2/credentials", ("authorization", "other")).await;
    assert_eq!(status, 401);
    let (_, body) = metadata(&client.cloud, Method::GET, "/v2/credentials", ("authorization", CONTAINER_TOKEN)).await;
    let issued: serde_json::Value = serde_json::from_str(&body).unwrap();
    client.key = issued["AccessKeyId"].as_str().unwrap().to_owned();
    assert_eq!(client.code("ec2 DescribeInstances", &[]).await, failure(401, "AuthFailure"));
    client.token = issued["Token"].as_str().unwrap().to_owned();
    client.ok("ec2 DescribeInstances", &[]).await;
}
