//! Privilege escalation prevention: users cannot grant permissions they do not hold.
//!
//! Writing a role requires all permissions in it or the verb `escalate` on it. Writing a binding requires all permissions
//! of its role or the verb `bind` on that role.

use serde_json::{Map, Value};

use super::authorize::{decide, is_allowed_everything};
use super::policy::{GROUP, Policy, RoleRef, RoleRefError};
use super::rule::{Rule, missing, rules_of};
use super::{Attributes, User, joined, quoted};
use crate::resources::Resource;
use crate::state::State;
use crate::status::{ApiError, ApiResult, Named};
use crate::value::Json;

/// Rejects a role or binding that grants permissions its author does not hold.
pub(crate) fn check_escalation(
    state: &State,
    resource: &'static Resource,
    user: &User,
    namespace: &str,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    if resource.group != GROUP
        || is_allowed_everything(state, user)
        || old.is_some_and(|old| only_changes_gc_fields(new, old))
    {
        return Ok(());
    }
    let check = Check { state, resource, user, namespace, name: new.text("metadata.name") };
    match resource.kind {
        "Role" | "ClusterRole" => check.role(new, old),
        "RoleBinding" | "ClusterRoleBinding" => check.binding(new),
        _ => Ok(()),
    }
}

/// The write of a role or binding under check.
struct Check<'a> {
    state: &'a State,
    resource: &'static Resource,
    user: &'a User,
    namespace: &'a str,
    name: &'a str,
}

impl Check<'_> {
    fn role(&self, new: &Value, old: Option<&Value>) -> ApiResult<()> {
        // A create request has no name at authorization time, so only `escalate` without resourceNames applies.
        let name = if old.is_some() { self.name } else { "" };
        if self.is_allowed("escalate", self.resource.plural, GROUP, name) {
            return Ok(());
        }
        let policy = self.state.auth.policy(self.state);
        self.require_permissions(&policy, &rules_of(new))?;
        if [Some(new), old].into_iter().flatten().any(is_aggregated)
            && self.require_permissions(&policy, &Rule::full_authority()).is_err()
        {
            return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn binding(&self, new: &Value) -> ApiResult<()> {
        let role = RoleRef::read(new);
        let resource = match role.kind.as_str() {
            "Role" => "roles",
            "ClusterRole" => "clusterroles",
            kind => return Err(ApiError::plain(RoleRefError::UnsupportedKind(kind.to_owned()).registry_message())),
        };
        if self.is_allowed("bind", resource, &role.group, &role.name) {
            return Ok(());
        }
        let policy = self.state.auth.policy(self.state);
        match policy.rules_of_role(&role, self.namespace) {
            Ok(rules) => self.require_permissions(&policy, rules),
            Err(RoleRefError::NamespaceRequired) => {
                Err(ApiError::bad_request(RoleRefError::NamespaceRequired.registry_message()))
            }
            Err(_) => Err(ApiError::not_found(Named { group: GROUP, kind: resource }, &role.name)),
        }
    }

    fn is_allowed(&self, verb: &str, resource: &str, group: &str, name: &str) -> bool {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        decide(self.state, self.user, &attributes).allowed
    }

    fn require_permissions(&self, policy: &Policy, wanted: &[Rule]) -> ApiResult<()> {
        let (held, errors) = policy.rules_for(self.user, self.namespace);
        let missing = missing(&held, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            self.user.name,
            quoted(&self.user.groups),
            missing.join("\n")
        );
        if !errors.is_empty() {
            let texts: Vec<String> = errors.iter().map(RoleRefError::registry_message).collect();
            why.push_str(&format!("; resolution errors: [{}]", joined(&texts)));
        }
        Err(self.forbidden(&why))
    }

    fn forbidden(&self, why: &str) -> ApiError {
        ApiError::forbidden(self.resource.named(), self.name, why)
    }
}

/// Whether the role aggregates the rules of other roles.
fn is_aggregated(role: &Value) -> bool {
    !role.list("aggregationRule.clusterRoleSelectors").is_empty()
}

/// Whether only fields changed that garbage collection writes: owner references and finalizers.
fn only_changes_gc_fields(new: &Value, old: &Value) -> bool {
    const GC_FIELDS: &[&str] = &["ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion"];
    let same = |new: Option<&Map<String, Value>>, old: Option<&Map<String, Value>>, ignored: &[&str]| {
        new.zip(old).is_some_and(|(new, old)| equal_except(new, old, ignored))
    };
    same(new.as_object(), old.as_object(), &["metadata"]) && same(new.map("metadata"), old.map("metadata"), GC_FIELDS)
}

/// Whether two objects are equal apart from the keys in `ignored`.
fn equal_except(new: &Map<String, Value>, old: &Map<String, Value>, ignored: &[&str]) -> bool {
    let differs = |one: &Map<String, Value>, other: &Map<String, Value>| {
        one.iter().any(|(key, value)| !ignored.contains(&key.as_str()) && other.get(key) != Some(value))
    };
    !differs(new, old) && !differs(old, new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{allow, always_allow_state, remove, state, store, user};
    use crate::resources::find;
    use serde_json::json;

    const API: &str = "rbac.authorization.k8s.io/v1";

    fn check(state: &State, who: &str, plural: &str, new: &Value, old: Option<&Value>) -> Result<(), String> {
        let resource = find(GROUP, "v1", plural).unwrap();
        let namespace = new.text("metadata.namespace");
        let user = user(who, &["dev", "system:authenticated"]);
        check_escalation(state, resource, &user, namespace, new, old).map_err(|e| e.message)
    }

    fn role(verbs: &[&str]) -> Value {
        json!({"kind": "Role", "apiVersion": API, "metadata": {"name": "r", "namespace": "n"},
               "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]})
    }

    fn binding(kind: &str, name: &str) -> Value {
        json!({"kind": "RoleBinding", "apiVersion": API, "metadata": {"name": "b", "namespace": "n"},
               "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name}, "subjects": []})
    }

    #[test]
    fn a_role_may_grant_what_its_author_holds() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}));
        assert_eq!(check(&state, "jane", "roles", &role(&["get"]), None), Ok(()));
        assert_eq!(
            check(&state, "jane", "roles", &role(&["get", "list", "watch"]), None),
            Err("roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"jane\" (groups=[\"dev\" \"system:authenticated\"]) \
                 is attempting to grant RBAC permissions not currently held:\n\
                 {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"list\" \"watch\"]}"
                .to_owned())
        );
    }

    #[test]
    fn the_error_lists_bindings_without_a_role() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}));
        remove(&state, "roles", "n", "for-jane");
        let message = check(&state, "jane", "roles", &role(&["get"]), None).unwrap_err();
        let tail = "; resolution errors: [roles.rbac.authorization.k8s.io \"for-jane\" not found]";
        assert!(message.ends_with(tail), "{message}");
    }

    #[test]
    fn the_verb_escalate_allows_any_role() {
        let state = state();
        let rule = |names: Value| json!({"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"], "resourceNames": names});
        allow(&state, "n", "jane", rule(json!(["r"])));
        let (old, new) = (role(&["get"]), role(&["*"]));
        assert!(check(&state, "jane", "roles", &new, None).is_err());
        assert_eq!(check(&state, "jane", "roles", &new, Some(&old)), Ok(()));
        allow(&state, "n", "jane", rule(Value::Null));
        assert_eq!(check(&state, "jane", "roles", &new, None), Ok(()));
    }

    #[test]
    fn a_binding_may_grant_what_its_author_holds_or_may_bind() {
        let state = state();
        store(&state, role(&["get"]));
        let rejected = check(&state, "jane", "rolebindings", &binding("Role", "r"), None).unwrap_err();
        assert!(rejected.starts_with("rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user"), "{rejected}");
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}));
        assert_eq!(check(&state, "jane", "rolebindings", &binding("Role", "r"), None), Ok(()));
        let rule =
            json!({"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["view"]});
        allow(&state, "n", "jim", rule);
        assert_eq!(check(&state, "jim", "rolebindings", &binding("ClusterRole", "view"), None), Ok(()));
        assert!(check(&state, "jim", "rolebindings", &binding("ClusterRole", "edit"), None).is_err());
    }

    #[test]
    fn a_binding_to_an_unknown_role_is_rejected() {
        let state = state();
        let cases = [
            ("Role", r#"roles.rbac.authorization.k8s.io "gone" not found"#),
            ("ClusterRole", r#"clusterroles.rbac.authorization.k8s.io "gone" not found"#),
            ("Bogus", r#"unsupported role reference kind: "Bogus""#),
        ];
        for (kind, message) in cases {
            let rejected = check(&state, "jane", "rolebindings", &binding(kind, "gone"), None);
            assert_eq!(rejected, Err(message.to_owned()));
        }
        let mut cluster = binding("Role", "r");
        cluster.take_at("metadata.namespace");
        let rejected = check(&state, "jane", "clusterrolebindings", &cluster, None);
        assert_eq!(rejected, Err("Namespace parameter required.".to_owned()));
    }

    #[test]
    fn only_cluster_admins_may_write_aggregated_roles() {
        let state = state();
        let role = json!({"kind": "ClusterRole", "apiVersion": API, "metadata": {"name": "c"}, "rules": null,
                          "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
        let rejected = check(&state, "jane", "clusterroles", &role, None).unwrap_err();
        assert!(rejected.ends_with("is forbidden: must have cluster-admin privileges to use the aggregationRule"));
        let mut binding = binding("ClusterRole", "cluster-admin");
        binding["kind"] = "ClusterRoleBinding".into();
        binding["subjects"] = json!([{"kind": "User", "name": "jane"}]);
        binding.take_at("metadata.namespace");
        store(&state, binding);
        assert_eq!(check(&state, "jane", "clusterroles", &role, None), Ok(()));
    }

    #[test]
    fn garbage_collection_may_update_any_role() {
        let state = state();
        let mut old = role(&["*"]);
        old.put("metadata.finalizers", json!(["x/y"]));
        assert_eq!(check(&state, "jane", "roles", &role(&["*"]), Some(&old)), Ok(()));
        old.put("metadata.labels", json!({"a": "b"}));
        assert!(check(&state, "jane", "roles", &role(&["*"]), Some(&old)).is_err());
    }

    #[test]
    fn always_allow_skips_the_escalation_check() {
        assert_eq!(check(&always_allow_state(), "jane", "roles", &role(&["*"]), None), Ok(()));
    }
}
