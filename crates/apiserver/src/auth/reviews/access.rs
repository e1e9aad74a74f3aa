//! Access reviews: SubjectAccessReview, LocalSubjectAccessReview and SelfSubjectAccessReview.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::authorize::decide;
use super::super::{Attributes, User};
use super::selectors;
use crate::field_error::FieldError;
use crate::state::State;
use crate::status::{ApiError, ApiResult, Named};
use crate::value::Json;

const EXACTLY_ONE: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";

/// SubjectAccessReview.
pub(super) fn subject(state: &State, review: Value) -> ApiResult<Value> {
    let mut errors = check_spec(&review);
    errors.extend(check_metadata(&review, &["managedFields"], "must be empty"));
    evaluate(state, &user_of(&review), review, errors)
}

/// LocalSubjectAccessReview, which is limited to one namespace.
pub(super) fn local(state: &State, review: Value) -> ApiResult<Value> {
    let mut errors = check_spec(&review);
    errors.extend(check_metadata(&review, &["managedFields", "namespace"], "must be empty except for namespace"));
    let requested = review.text("spec.resourceAttributes.namespace");
    if review.has("spec.resourceAttributes") && requested != review.text("metadata.namespace") {
        let field = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(field, requested, "must match metadata.namespace"));
    }
    if review.has("spec.nonResourceAttributes") {
        let (field, why) = ("spec.nonResourceAttributes", "disallowed on this kind of request");
        errors.push(FieldError::invalid(field, path_attributes(&review), why));
    }
    evaluate(state, &user_of(&review), review, errors)
}

/// SelfSubjectAccessReview.
pub(super) fn self_subject(state: &State, user: &User, review: Value) -> ApiResult<Value> {
    let mut errors = check_attributes(&review);
    errors.extend(selectors::validate(&review));
    errors.extend(check_metadata(&review, &["managedFields"], "must be empty"));
    evaluate(state, user, review, errors)
}

fn evaluate(state: &State, user: &User, mut review: Value, errors: Vec<FieldError>) -> ApiResult<Value> {
    if !errors.is_empty() {
        // upstream: the kind is unknown here, so the error has none.
        let what = Named { group: "authorization.k8s.io", kind: "" };
        return Err(ApiError::invalid(what, "", &errors));
    }
    let decision = decide(state, user, &attributes(&review));
    let mut status = json!({"allowed": decision.allowed});
    let evaluation = selectors::evaluation_error(&review);
    for (key, text) in [("reason", decision.reason), ("evaluationError", evaluation)] {
        if !text.is_empty() {
            status[key] = text.into();
        }
    }
    review.put("status", status);
    Ok(review)
}

// === Parsing ===

fn user_of(review: &Value) -> User {
    let texts = |path: &str| review.texts(path).into_iter().map(str::to_owned).collect();
    let extra = review.map("spec.extra").into_iter().flatten();
    let values = |v: &Value| v.as_array().into_iter().flatten().filter_map(|v| Some(v.as_str()?.to_owned())).collect();
    User {
        name: review.text("spec.user").to_owned(),
        uid: review.text("spec.uid").to_owned(),
        groups: texts("spec.groups"),
        extra: extra.map(|(k, v)| (k.clone(), values(v))).collect::<BTreeMap<_, _>>(),
    }
}

fn attributes(review: &Value) -> Attributes {
    if !review.has("spec.resourceAttributes") {
        let text = |field: &str| review.at("spec.nonResourceAttributes").text(field).to_owned();
        return Attributes { verb: text("verb"), path: text("path"), ..Attributes::default() };
    }
    let text = |field: &str| review.at("spec.resourceAttributes").text(field).to_owned();
    Attributes {
        verb: text("verb"),
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: String::new(),
    }
}

// === Validation ===

fn check_spec(review: &Value) -> Vec<FieldError> {
    let mut errors = check_attributes(review);
    if review.text("spec.user").is_empty() && review.list("spec.groups").is_empty() {
        errors.push(FieldError::invalid("spec.user", "", "at least one of user or group must be specified"));
    }
    errors.extend(selectors::validate(review));
    errors
}

fn check_attributes(review: &Value) -> Vec<FieldError> {
    match review.has("spec.resourceAttributes") == review.has("spec.nonResourceAttributes") {
        true => vec![FieldError::invalid("spec", path_attributes(review), EXACTLY_ONE)],
        false => Vec::new(),
    }
}

/// upstream: the error prints the field names of the internal type.
fn path_attributes(review: &Value) -> Value {
    match review.at("spec.nonResourceAttributes") {
        Value::Null => Value::Null,
        given => json!({"Path": given.text("path"), "Verb": given.text("verb")}),
    }
}

fn check_metadata(review: &Value, allowed: &[&str], why: &str) -> Option<FieldError> {
    let empty = Map::new();
    let metadata = review.map("metadata").unwrap_or(&empty);
    let extra = metadata.keys().any(|key| !allowed.contains(&key.as_str()));
    extra.then(|| FieldError::invalid("metadata", review.at("metadata").clone(), why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{state, user};
    use crate::auth::reviews::tests::post;

    fn status(plural: &str, spec: Value) -> Value {
        let jane = user("jane", &["system:authenticated"]);
        post(&state(), &jane, plural, json!({"spec": spec})).unwrap()["status"].clone()
    }

    fn rejection(plural: &str, body: Value) -> String {
        post(&state(), &user("jane", &[]), plural, body).unwrap_err().message
    }

    #[test]
    fn reviews_return_the_recorded_status() {
        let nodes = json!({"verb": "get", "resource": "nodes"});
        let discovery = r#"RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated""#;
        let api = json!({"verb": "get", "path": "/api"});
        let cases = [
            ("subjectaccessreviews", json!({"user": "nobody", "resourceAttributes": nodes}), json!({"allowed": false})),
            (
                "subjectaccessreviews",
                json!({"user": "x", "groups": ["system:masters"], "resourceAttributes": nodes}),
                json!({"allowed": true}),
            ),
            (
                "subjectaccessreviews",
                json!({"groups": ["system:authenticated"], "nonResourceAttributes": api}),
                json!({"allowed": true, "reason": discovery}),
            ),
            (
                "selfsubjectaccessreviews",
                json!({"nonResourceAttributes": api}),
                json!({"allowed": true, "reason": discovery}),
            ),
            ("selfsubjectaccessreviews", json!({"resourceAttributes": nodes}), json!({"allowed": false})),
            (
                "localsubjectaccessreviews",
                json!({"user": "x", "resourceAttributes": {"namespace": "n", "verb": "get", "resource": "pods"}}),
                json!({"allowed": false}),
            ),
        ];
        for (plural, spec, expected) in cases {
            assert_eq!(status(plural, spec.clone()), expected, "{plural} {spec}");
        }
    }

    #[test]
    fn incomplete_reviews_are_rejected_as_recorded() {
        const ONE: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let head = ".authorization.k8s.io \"\" is invalid: ";
        let cases = [
            (
                "subjectaccessreviews",
                json!({}),
                format!("[spec: Invalid value: null: {ONE}, spec.user: Invalid value: \"\": at least one of user or group must be specified]"),
            ),
            ("selfsubjectaccessreviews", json!({}), format!("spec: Invalid value: null: {ONE}")),
            (
                "subjectaccessreviews",
                json!({"user": "x", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}}),
                format!("spec: Invalid value: {{\"Path\":\"/\",\"Verb\":\"\"}}: {ONE}"),
            ),
            (
                "localsubjectaccessreviews",
                json!({"user": "x", "resourceAttributes": {"namespace": "other", "verb": "get", "resource": "pods"}}),
                "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace".to_owned(),
            ),
            (
                "localsubjectaccessreviews",
                json!({"user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"}}),
                "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/\",\"Verb\":\"get\"}: disallowed on this kind of request".to_owned(),
            ),
        ];
        for (plural, spec, message) in cases {
            assert_eq!(rejection(plural, json!({"spec": spec})), format!("{head}{message}"));
        }
    }

    #[test]
    fn review_metadata_must_be_empty() {
        let spec = json!({"user": "x", "nonResourceAttributes": {"path": "/", "verb": "get"}});
        let body = json!({"metadata": {"name": "x", "uid": "7"}, "spec": spec});
        assert_eq!(
            rejection("subjectaccessreviews", body),
            ".authorization.k8s.io \"\" is invalid: metadata: Invalid value: {\"name\":\"x\"}: must be empty"
        );
        let elsewhere = json!({"metadata": {"namespace": "m"}, "spec": spec});
        assert_eq!(
            rejection("localsubjectaccessreviews", elsewhere),
            "the namespace of the provided object does not match the namespace sent on the request"
        );
    }

    #[test]
    fn selectors_are_validated_and_then_ignored() {
        let review = |selectors: Value| {
            let mut spec = json!({"resourceAttributes": {"verb": "list", "resource": "nodes"}});
            for (key, value) in selectors.as_object().unwrap() {
                spec["resourceAttributes"][key] = value.clone();
            }
            json!({"spec": spec})
        };
        let path = "spec.resourceAttributes.";
        let empty = format!(
            "{path}labelSelector.requirements: Required value: when {path}labelSelector is specified, requirements or rawSelector is required"
        );
        let both = format!(
            "{path}fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements"
        );
        let in_list = json!({"key": "a", "operator": "In", "values": ["b"]});
        let no_values = format!(
            "{path}fieldSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
        );
        let cases = [
            (json!({"labelSelector": {}}), empty),
            (json!({"fieldSelector": {"rawSelector": "a=b", "requirements": [in_list]}}), both),
            (json!({"fieldSelector": {"requirements": [{"key": "a", "operator": "In"}]}}), no_values),
        ];
        for (selectors, message) in cases {
            let rejected = rejection("selfsubjectaccessreviews", review(selectors));
            assert_eq!(rejected, format!(".authorization.k8s.io \"\" is invalid: {message}"));
        }
        let odd = json!({"key": "a", "operator": "Near", "values": ["b"]});
        let cases = [
            (json!({"fieldSelector": {"rawSelector": "a=b,c!=d\\,e"}}), None),
            (json!({"fieldSelector": {"rawSelector": "a"}}), Some("fieldSelector ignored")),
            (json!({"fieldSelector": {"rawSelector": "a=b=c"}}), Some("fieldSelector ignored")),
            (json!({"fieldSelector": {"requirements": [in_list]}}), None),
            (json!({"fieldSelector": {"requirements": [in_list, odd]}}), Some("fieldSelector partially ignored")),
            (json!({"labelSelector": {"requirements": [odd]}}), Some("labelSelector ignored")),
        ];
        for (selectors, problem) in cases {
            let response = post(&state(), &user("jane", &[]), "selfsubjectaccessreviews", review(selectors)).unwrap();
            let expected = problem.map_or(Value::Null, |p| format!("{path}{p} due to parse error").into());
            assert_eq!(response["status"].get("evaluationError").cloned().unwrap_or_default(), expected);
        }
    }
}
