//! Signatures with each kind of credentials, which the proxy compares with those of Amazon's own library.

use bowline_cloud::{CloudProvider as _, ErrorKind, PageToken};
use bowline_core::ClusterName;
use serde_json::{Value, json};

use super::bench::CLUSTER;
use super::moto::{Moto, text};
use super::provider::{Setup, build};
use super::{ACCOUNT, open};

/// Role of the tests; moto accepts any.
const ROLE: &str = "arn:aws:iam::123456789012:role/ccm";

/// Starts a provider, and calls each API with it.
async fn call_all(moto: &Moto, setup: &Setup) -> bowline_cloud::Result<()> {
    let (provider, cluster) = (build(moto, setup), ClusterName::from(CLUSTER));
    provider.start().await?;
    provider.check().await?;
    bowline_cloud::Instances::list(&provider, None::<&PageToken>).await?;
    bowline_cloud::LoadBalancers::list(&provider, &cluster).await?;
    bowline_cloud::Routes::list(&provider, &cluster).await?;
    for result in provider.diagnose().await {
        let subject = result.subject;
        result.outcome.map_err(|error| error.context("check", subject))?;
    }
    Ok(())
}

/// Returns the numbers of calls since the reset, and checks that all signatures were right.
async fn accepted(moto: &Moto) -> Value {
    assert_eq!(moto.refused().await, Vec::<Value>::new());
    moto.counts().await
}

/// Resets the account, with the instance of the metadata service.
async fn reset(moto: &Moto) {
    moto.reset(json!({"cluster": CLUSTER, "nodes": 1})).await;
    moto.forget_refused().await;
}

#[tokio::test]
async fn all_calls_are_signed_with_the_keys_of_an_account() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    reset(&moto).await;
    call_all(&moto, &Setup::default()).await.unwrap();
    let counts = accepted(&moto).await;
    for call in
        ["ec2.DescribeInstances", "elb.DescribeLoadBalancers", "elbv2.DescribeLoadBalancers", "sts.GetCallerIdentity"]
    {
        assert!(counts[call].as_u64().is_some(), "{call}: {counts}");
    }
}

#[tokio::test]
async fn a_role_is_assumed_and_signs_with_its_session_token() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    reset(&moto).await;
    let lines = format!("RoleARN = {ROLE}\nSourceARN = arn:aws:eks:eu-west-1:123456789012:cluster/demo\n");
    call_all(&moto, &Setup { lines, ..Setup::default() }).await.unwrap();
    assert_eq!(accepted(&moto).await["sts.AssumeRole"], 1);
    let journal = moto.journal().await;
    assert_eq!(journal.iter().find(|one| one["action"] == "AssumeRole").unwrap()["params"]["RoleArn"], ROLE);
}

#[tokio::test]
async fn a_session_token_is_part_of_the_signature() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    reset(&moto).await;
    let role = moto.metadata("meta-data/iam/security-credentials/node-role").await;
    let role: Value = serde_json::from_str(&role).unwrap();
    let setup = |token: &str| {
        let keys = [
            ("AWS_ACCESS_KEY_ID", text(&role["AccessKeyId"])),
            ("AWS_SECRET_ACCESS_KEY", text(&role["SecretAccessKey"])),
            ("AWS_SESSION_TOKEN", token.to_owned()),
        ];
        let variables = keys.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Setup { variables: Some(variables), ..Setup::default() }
    };
    call_all(&moto, &setup(&text(&role["Token"]))).await.unwrap();
    accepted(&moto).await;
    let error = call_all(&moto, &setup("another")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert_eq!(moto.refused().await[0]["code"], "AuthFailure");
    moto.forget_refused().await;
}

#[tokio::test]
async fn the_role_of_the_instance_signs_all_calls() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    reset(&moto).await;
    let variables = vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), moto.endpoint("metadata"))];
    call_all(&moto, &Setup { variables: Some(variables), ..Setup::default() }).await.unwrap();
    accepted(&moto).await;
}
