//! RBAC: Role, ClusterRole, RoleBinding and ClusterRoleBinding.
//!
//! [`crate::auth`] evaluates them, and prevents privilege escalation when they are written.

use serde_json::Value;

use super::check::{ErrorList, Path};
use super::{Strategy, WriteCx};
use crate::auth;
use crate::field_error::{FieldError, go_struct};
use crate::status::ApiResult;
use crate::validation;
use crate::value::Json;

const GROUP: &str = "rbac.authorization.k8s.io";

fn check_escalation(cx: &WriteCx<'_>, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    auth::check_escalation(cx.state, cx.resource, cx.user, cx.namespace, new, old)
}

// === Roles ===

/// Role and ClusterRole.
pub(crate) struct Role;

impl Strategy for Role {
    fn admit_create(&self, cx: &WriteCx<'_>, obj: &mut Value) -> ApiResult<()> {
        check_escalation(cx, obj, None)
    }

    fn admit_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) -> ApiResult<()> {
        check_escalation(cx, new, Some(old))
    }

    fn validate_create(&self, cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        validate_role(obj, cx.resource.namespaced)
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        validate_role(new, cx.resource.namespaced)
    }

    fn validate_name(&self, name: &str, _prefix: bool) -> Vec<String> {
        validation::path_segment(name, false)
    }
}

fn validate_role(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let rules = Path::new("rules");
    for (i, rule) in role.list("rules").iter().enumerate() {
        validate_rule(rule, namespaced, rules.index(i), &mut errors);
    }
    if let Some(aggregation) = role.get("aggregationRule") {
        validate_aggregation(aggregation, &mut errors);
    }
    // upstream: this is declarative validation, whose errors come last.
    for (i, rule) in role.list("rules").iter().enumerate() {
        if rule.list("verbs").is_empty() {
            errors.required(rules.index(i).child("verbs"), "");
        }
    }
    errors.into_vec()
}

fn validate_rule(rule: &Value, namespaced: bool, at: Path<'_>, errors: &mut ErrorList) {
    let given = |field: &str| !rule.list(field).is_empty();
    if given("nonResourceURLs") {
        let mut reject = |detail: &str| {
            errors.invalid(at.child("nonResourceURLs"), rule.at("nonResourceURLs").clone(), detail);
        };
        if namespaced {
            reject("namespaced rules cannot apply to non-resource URLs");
        }
        if given("apiGroups") || given("resources") || given("resourceNames") {
            reject("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if !given("apiGroups") {
        errors.required(at.child("apiGroups"), "resource rules must supply at least one api group");
    }
    if !given("resources") {
        errors.required(at.child("resources"), "resource rules must supply at least one resource");
    }
}

fn validate_aggregation(aggregation: &Value, errors: &mut ErrorList) {
    let at = Path::new("aggregationRule.clusterRoleSelectors");
    let selectors = aggregation.list("clusterRoleSelectors");
    if selectors.is_empty() {
        errors.required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (i, selector) in selectors.iter().enumerate() {
        let selector_errors = validation::label_selector(&at.index(i).to_string(), selector);
        let is_valid = selector_errors.is_empty();
        errors.extend(selector_errors);
        if !is_valid {
            errors.invalid(at.index(i), Value::Null, "invalid label selector.");
        }
    }
}

// === Bindings ===

/// RoleBinding and ClusterRoleBinding.
pub(crate) struct Binding;

impl Strategy for Binding {
    fn apply_defaults(&self, obj: &mut Value) {
        if obj.text("roleRef.apiGroup").is_empty() {
            obj.put("roleRef.apiGroup", GROUP);
        }
        for subject in obj.list_mut("subjects").into_iter().flatten() {
            if matches!(subject.text("kind"), "User" | "Group") && subject.text("apiGroup").is_empty() {
                subject.put("apiGroup", GROUP);
            }
        }
    }

    fn admit_create(&self, cx: &WriteCx<'_>, obj: &mut Value) -> ApiResult<()> {
        check_escalation(cx, obj, None)
    }

    fn admit_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) -> ApiResult<()> {
        check_escalation(cx, new, Some(old))
    }

    fn validate_create(&self, cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        validate_binding(obj, None, cx.resource.namespaced)
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_binding(new, Some(old), cx.resource.namespaced)
    }

    fn validate_name(&self, name: &str, _prefix: bool) -> Vec<String> {
        validation::path_segment(name, false)
    }
}

fn validate_binding(binding: &Value, old: Option<&Value>, namespaced: bool) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let reference = binding.at("roleRef");
    let at = Path::new("roleRef");
    errors.one_of(at.child("apiGroup"), reference.text("apiGroup"), &[GROUP]);
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    errors.one_of(at.child("kind"), reference.text("kind"), kinds);
    let name = reference.text("name");
    if !name.is_empty() {
        errors.invalid_each(at.child("name"), name, validation::path_segment(name, false));
    }
    let subjects = Path::new("subjects");
    for (i, subject) in binding.list("subjects").iter().enumerate() {
        validate_subject(subject, namespaced, subjects.index(i), &mut errors);
    }
    if old.is_some_and(|old| old.at("roleRef") != reference) {
        errors.push(FieldError::invalid_as(at, format_reference(reference), validation::FIELD_IMMUTABLE));
    }
    // upstream: these are declarative validations, whose errors come last.
    for (i, subject) in binding.list("subjects").iter().enumerate() {
        if subject.text("name").is_empty() {
            errors.required(subjects.index(i).child("name"), "");
        }
    }
    if name.is_empty() {
        errors.required(at.child("name"), "");
    }
    errors.into_vec()
}

fn validate_subject(subject: &Value, namespaced: bool, at: Path<'_>, errors: &mut ErrorList) {
    let (name, group) = (subject.text("name"), subject.text("apiGroup"));
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_each(at.child("name"), name, validation::dns_subdomain(name));
            }
            errors.one_of(at.child("apiGroup"), group, &[""]);
            if !namespaced && subject.text("namespace").is_empty() {
                errors.required(at.child("namespace"), "");
            }
        }
        "User" | "Group" => errors.one_of(at.child("apiGroup"), group, &[GROUP]),
        kind => errors.one_of(at.child("kind"), kind, &["ServiceAccount", "User", "Group"]),
    }
}

fn format_reference(reference: &Value) -> String {
    go_struct(&[
        ("APIGroup", reference.text("apiGroup").into()),
        ("Kind", reference.text("kind").into()),
        ("Name", reference.text("name").into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn binding(kind: &str, subjects: Value) -> Value {
        let mut binding = json!({"roleRef": {"kind": kind, "name": "a", "apiGroup": ""}, "subjects": subjects});
        Binding.apply_defaults(&mut binding);
        binding
    }

    #[test]
    fn rules_need_verbs_and_resources() {
        let check = |rule: Value, namespaced: bool| texts(validate_role(&json!({"rules": [rule]}), namespaced));
        assert_eq!(
            check(json!({"apiGroups": [""], "resources": ["secrets"], "verbs": []}), true),
            ["rules[0].verbs: Required value"]
        );
        assert_eq!(
            check(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), true),
            ["rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs"]
        );
        assert_eq!(check(json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), false), Vec::<String>::new());
        assert_eq!(
            check(json!({}), false),
            [
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                "rules[0].verbs: Required value"
            ]
        );
    }

    #[test]
    fn aggregation_needs_selectors() {
        let check = |rule: Value| texts(validate_role(&json!({"aggregationRule": rule}), false)).len();
        assert_eq!(check(json!({})), 1);
        assert_eq!(check(json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})), 0);
        assert_eq!(check(json!({"clusterRoleSelectors": [{"matchLabels": {"a": "not a label"}}]})), 2);
    }

    #[test]
    fn api_group_of_users_and_groups_is_defaulted() {
        let got = binding("Role", json!([{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]));
        assert_eq!(got["roleRef"]["apiGroup"], GROUP);
        assert_eq!(got["subjects"][0]["apiGroup"], GROUP);
        assert_eq!(got["subjects"][1], json!({"kind": "ServiceAccount", "name": "s"}));
    }

    #[test]
    fn binding_errors_match_the_recordings() {
        let got = binding("Bogus", json!([{"kind": "Bogus", "name": "x"}]));
        assert_eq!(
            texts(validate_binding(&got, None, true)),
            [
                "roleRef.kind: Unsupported value: \"Bogus\": supported values: \"Role\", \"ClusterRole\"",
                "subjects[0].kind: Unsupported value: \"Bogus\": supported values: \"ServiceAccount\", \"User\", \"Group\""
            ]
        );
        let account = binding("Role", json!([{"kind": "ServiceAccount", "name": "x"}]));
        assert_eq!(texts(validate_binding(&account, None, true)), Vec::<String>::new());
        let cluster = binding("ClusterRole", json!([{"kind": "ServiceAccount", "name": "x"}]));
        assert_eq!(texts(validate_binding(&cluster, None, false)), ["subjects[0].namespace: Required value"]);
    }

    #[test]
    fn role_reference_is_immutable() {
        let old = binding("Role", json!([]));
        let mut new = old.clone();
        new["roleRef"]["name"] = "b".into();
        assert_eq!(
            texts(validate_binding(&new, Some(&old), true)),
            ["roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"b\"}: \
              field is immutable"]
        );
    }

    #[test]
    fn names_are_path_segments() {
        assert!(Role.validate_name("system:node:x", false).is_empty());
        assert!(!Role.validate_name("a/b", false).is_empty());
    }
}
