//! Tests of PodDisruptionBudgets: every verb, and validation.

use bowline_apiserver::{ApiServer, Options};
use futures::StreamExt as _;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::Failure;

fn budget(spec: Value) -> Result<PodDisruptionBudget, Failure> {
    Ok(serde_json::from_value(json!({"metadata": {"name": "crew"}, "spec": spec}))?)
}

async fn budgets() -> Result<(ApiServer, Api<PodDisruptionBudget>), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let budgets = Api::namespaced(server.client().await?, "default");
    Ok((server, budgets))
}

/// The message of a 422 error.
fn rejection<T: std::fmt::Debug>(result: kube::Result<T>) -> String {
    match result {
        Err(kube::Error::Api(status)) if status.code == 422 => status.message,
        other => format!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn a_budget_supports_all_verbs() -> Result<(), Failure> {
    let (_server, budgets) = budgets().await?;
    let selector = json!({"matchLabels": {"app": "bowline"}});
    let created =
        budgets.create(&PostParams::default(), &budget(json!({"maxUnavailable": 1, "selector": selector}))?).await?;
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(
        created.status.and_then(|status| status.disruptions_allowed),
        Some(0),
        "the status has counts from the start"
    );
    let version = created.metadata.resource_version.unwrap_or_default();
    let mut watch = std::pin::pin!(budgets.watch(&WatchParams::default(), &version).await?);

    // A strategic merge patch replaces the whole selector, unlike other objects.
    let patch = json!({"spec": {"selector": {"matchLabels": {"role": "standby"}}}});
    let patched = budgets.patch("crew", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let labels = patched.spec.as_ref().and_then(|spec| spec.selector.as_ref()?.match_labels.clone());
    assert_eq!(labels.map(|labels| labels.into_keys().collect::<Vec<_>>()), Some(vec!["role".to_owned()]));
    assert_eq!(patched.metadata.generation, Some(2), "the spec has changed");
    match watch.next().await {
        Some(Ok(WatchEvent::Modified(seen))) => assert_eq!(seen.metadata.generation, Some(2)),
        other => panic!("{other:?}"),
    }

    let status = json!({"status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
        "spec": {"maxUnavailable": 7}});
    let seen = budgets.patch_status("crew", &PatchParams::default(), &Patch::Merge(status)).await?;
    assert_eq!(
        (seen.status.and_then(|status| status.disruptions_allowed), seen.metadata.generation),
        (Some(1), Some(2))
    );
    let mut wanted = budgets.get("crew").await?;
    assert_eq!(serde_json::to_value(&wanted.spec)?["maxUnavailable"], 1, "/status changes only the status");
    wanted.status = None;
    wanted.metadata.resource_version = None;
    let unconditional = budgets.replace("crew", &PostParams::default(), &wanted).await;
    assert!(
        rejection(unconditional).contains("metadata.resourceVersion: Invalid value"),
        "a PUT requires a resourceVersion"
    );
    wanted.metadata.resource_version = seen.metadata.resource_version;
    let put = budgets.replace("crew", &PostParams::default(), &wanted).await?;
    assert_eq!(put.status.and_then(|status| status.disruptions_allowed), Some(1), "a PUT does not change the status");

    assert_eq!(budgets.list(&ListParams::default()).await?.items.len(), 1);
    budgets.delete("crew", &DeleteParams::default()).await?;
    assert!(budgets.get_opt("crew").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn an_invalid_budget_is_rejected() -> Result<(), Failure> {
    let (_server, budgets) = budgets().await?;
    let cases = [
        (json!({"minAvailable": 1, "maxUnavailable": 1}), "minAvailable and maxUnavailable cannot be both set"),
        (json!({"minAvailable": "150%"}), "spec.minAvailable: Invalid value: \"150%\": must not be greater than 100%"),
        (json!({"maxUnavailable": -1}), "spec.maxUnavailable: Invalid value: -1"),
        (json!({"unhealthyPodEvictionPolicy": "Never"}), "supported values: \"AlwaysAllow\", \"IfHealthyBudget\""),
    ];
    for (spec, expected) in cases {
        let message = rejection(budgets.create(&PostParams::default(), &budget(spec)?).await);
        assert!(message.contains(expected), "{message}");
    }
    budgets.create(&PostParams::default(), &budget(json!({"minAvailable": "50%"}))?).await?;
    let status = json!({"status": {"disruptionsAllowed": -1}});
    let message = rejection(budgets.patch_status("crew", &PatchParams::default(), &Patch::Merge(status)).await);
    assert!(message.contains("status.disruptionsAllowed: Invalid value: -1"), "{message}");
    Ok(())
}
