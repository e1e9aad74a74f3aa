//! Token, access and self reviews: kinds that support only create and are never stored.
//!
//! Reviews use the same authentication and authorization code as requests.

mod access;
mod selectors;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::authenticate::authenticate_token;
use super::policy::RoleRefError;
use super::rule::Rule;
use super::{User, joined};
use crate::options::AuthorizationMode;
use crate::resources::Resource;
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::value::Json;

/// Evaluates a token, access or self review and returns it with its status. `review` is decoded and canonical.
pub(crate) fn review(
    state: &State,
    resource: &'static Resource,
    namespace: &str,
    user: &User,
    mut review: Value,
) -> ApiResult<Value> {
    prepare_metadata(resource, namespace, &mut review)?;
    match resource.kind {
        "TokenReview" => token_review(state, review),
        "SelfSubjectReview" => Ok(self_review(user, review)),
        "SelfSubjectRulesReview" => rules_review(state, user, review),
        "SubjectAccessReview" => access::subject(state, review),
        "LocalSubjectAccessReview" => access::local(state, review),
        "SelfSubjectAccessReview" => access::self_subject(state, user, review),
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Prepares the metadata as every create request does.
fn prepare_metadata(resource: &Resource, namespace: &str, review: &mut Value) -> ApiResult<()> {
    for key in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        review.take_at(&format!("metadata.{key}"));
    }
    if !resource.namespaced {
        review.take_at("metadata.namespace");
        return Ok(());
    }
    match review.text("metadata.namespace") {
        "" => review.put("metadata.namespace", namespace),
        given if given == namespace => {}
        _ => {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(why));
        }
    }
    Ok(())
}

fn token_review(state: &State, mut review: Value) -> ApiResult<Value> {
    let token = review.text("spec.token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences: Vec<String> = review.texts("spec.audiences").into_iter().map(str::to_owned).collect();
    if audiences.is_empty() {
        audiences = state.auth.audiences().to_vec();
    }
    let status = match authenticate_token(state, token, &audiences) {
        Ok(found) => json!({"authenticated": true, "user": found.user.to_info(), "audiences": found.audiences}),
        Err(error) => json!({"error": error, "user": {}}),
    };
    review.put("status", status);
    Ok(review)
}

fn self_review(user: &User, review: Value) -> Value {
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    json!({
        "kind": review["kind"],
        "apiVersion": review["apiVersion"],
        "metadata": {"creationTimestamp": now.to_string()},
        "status": {"userInfo": user.to_info()},
    })
}

fn rules_review(state: &State, user: &User, review: Value) -> ApiResult<Value> {
    let namespace = review.text("spec.namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    // upstream: the response is a new object without the spec of the request.
    Ok(json!({
        "kind": review["kind"],
        "apiVersion": review["apiVersion"],
        "metadata": {},
        "spec": {},
        "status": rules_status(state, user, namespace),
    }))
}

fn rules_status(state: &State, user: &User, namespace: &str) -> Value {
    let policy = state.auth.policy(state);
    let everything = Rule::full_authority();
    let (rules, errors) = match state.auth.mode {
        AuthorizationMode::AlwaysAllow => (everything.iter().collect(), Vec::new()),
        AuthorizationMode::Rbac => policy.rules_for(user, namespace),
    };
    let mut status = json!({
        "resourceRules": rules.iter().filter_map(|rule| rule.resource_rule()).collect::<Vec<_>>(),
        "nonResourceRules": rules.iter().filter_map(|rule| rule.url_rule()).collect::<Vec<_>>(),
        "incomplete": false,
    });
    if !errors.is_empty() {
        let texts: Vec<String> = errors.iter().map(RoleRefError::authorizer_message).collect();
        status["evaluationError"] = joined(&texts).into();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{account, allow, always_allow_state, remove, state, token, user};
    use crate::resources::find;

    /// Creates a review as user `who` and returns the response.
    pub(super) fn post(state: &State, who: &User, plural: &str, body: Value) -> ApiResult<Value> {
        let group =
            if plural.contains("access") || plural.contains("rules") { "authorization" } else { "authentication" };
        let resource = find(&format!("{group}.k8s.io"), "v1", plural).unwrap();
        let decoded = crate::schema::decode(resource.type_id(), &body).unwrap().value;
        review(state, resource, if resource.namespaced { "n" } else { "" }, who, decoded)
    }

    #[test]
    fn a_valid_token_is_reviewed_as_recorded() {
        let state = state();
        account(&state, "n", "bot");
        let body = json!({"spec": {"token": token(&state, "n", "bot")}});
        let response = post(&state, &User::default(), "tokenreviews", body).unwrap();
        let id = &response["status"]["user"]["extra"]["authentication.kubernetes.io/credential-id"];
        assert_eq!(
            response["status"],
            json!({
                "audiences": ["https://kubernetes.default.svc"],
                "authenticated": true,
                "user": {
                    "extra": {"authentication.kubernetes.io/credential-id": id},
                    "groups": ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
                    "uid": "bot",
                    "username": "system:serviceaccount:n:bot",
                },
            })
        );
        assert_eq!(response["metadata"], json!({}));
    }

    #[test]
    fn an_invalid_token_is_reviewed_as_recorded() {
        let state = state();
        account(&state, "n", "bot");
        let good = token(&state, "n", "bot");
        let elsewhere = r#"[invalid bearer token, token audiences ["https://kubernetes.default.svc"] is invalid for the target audiences ["other"]]"#;
        let cases = [
            (json!({"token": "garbage"}), "invalid bearer token"),
            (json!({"token": good, "audiences": ["other"]}), elsewhere),
        ];
        for (spec, error) in cases {
            let response = post(&state, &User::default(), "tokenreviews", json!({"spec": spec})).unwrap();
            assert_eq!(response["status"], json!({"error": error, "user": {}}));
            assert_eq!(response["spec"], spec);
        }
        let rejected = post(&state, &User::default(), "tokenreviews", json!({"spec": {}})).unwrap_err();
        assert_eq!(rejected, ApiError::bad_request("token is required for TokenReview in authentication"));
    }

    #[test]
    fn any_user_may_create_a_self_subject_review() {
        let jane = user("jane", &["dev"]);
        let response = post(&state(), &jane, "selfsubjectreviews", json!({"metadata": {"name": "x"}})).unwrap();
        assert_eq!(response["status"], json!({"userInfo": {"username": "jane", "groups": ["dev"]}}));
        let metadata = response.map("metadata").unwrap();
        assert_eq!(metadata.keys().collect::<Vec<_>>(), ["creationTimestamp"]);
    }

    #[test]
    fn a_rules_review_lists_the_rules_of_the_user() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}));
        let jane = user("jane", &["system:unauthenticated"]);
        let response = post(&state, &jane, "selfsubjectrulesreviews", json!({"spec": {"namespace": "n"}})).unwrap();
        assert_eq!((&response["spec"], &response["metadata"]), (&json!({}), &json!({})));
        assert_eq!(
            response["status"],
            json!({
                "incomplete": false,
                "nonResourceRules": [{
                    "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
                    "verbs": ["get"],
                }],
                "resourceRules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
            })
        );
        remove(&state, "roles", "n", "for-jane");
        let response = post(&state, &jane, "selfsubjectrulesreviews", json!({"spec": {"namespace": "n"}})).unwrap();
        let error = r#"role.rbac.authorization.k8s.io "for-jane" not found"#;
        assert_eq!(response["status"]["evaluationError"], error);
        let rejected = post(&state, &jane, "selfsubjectrulesreviews", json!({"spec": {}})).unwrap_err();
        assert_eq!(rejected, ApiError::bad_request("no namespace on request"));
    }

    #[test]
    fn always_allow_lists_full_authority() {
        let body = json!({"spec": {"namespace": "n"}});
        let response = post(&always_allow_state(), &user("jane", &[]), "selfsubjectrulesreviews", body).unwrap();
        assert_eq!(
            response["status"]["resourceRules"],
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
        );
        assert_eq!(response["status"]["nonResourceRules"], json!([{"nonResourceURLs": ["*"], "verbs": ["*"]}]));
    }
}
