//! Tests of client identity from client certificates.

use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::Failure;

#[tokio::test]
async fn a_client_certificate_contains_every_group() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let cases: [&[&str]; 3] =
        [&[], &["solo"], &["system:serviceaccounts", "grün, O=\"x\"", "system:serviceaccounts:kube-system"]];
    for groups in cases {
        let reviews: Api<SelfSubjectReview> = Api::all(server.client_for("jane, CN=root", groups).await?);
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
        let user = review.status.and_then(|status| status.user_info).ok_or("no user")?;
        assert_eq!(user.username.as_deref(), Some("jane, CN=root"));
        let expected: Vec<&str> = groups.iter().copied().chain(["system:authenticated"]).collect();
        assert_eq!(user.groups.unwrap_or_default(), expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_binding_to_any_group_of_the_user_applies() -> Result<(), Failure> {
    let options = Options { authorization: AuthorizationMode::Rbac, ..Options::default() };
    let server = ApiServer::start(options).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client().await?);
    let binding = json!({
        "metadata": {"name": "first-may-view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "first"}],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    for (groups, allowed) in [(["first", "second"], true), (["second", "first"], true), (["second", "third"], false)] {
        let nodes: Api<Node> = Api::all(server.client_for("jane", &groups).await?);
        assert_eq!(nodes.list(&ListParams::default()).await.is_ok(), allowed, "{groups:?}");
    }
    Ok(())
}
