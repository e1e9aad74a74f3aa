//! Nobody may hand out rights they do not hold themselves.
//!
//! Writing a role takes all the rights in it (or the verb `escalate` on it); writing a binding takes all the rights
//! of its role (or the verb `bind` on that role).

use serde_json::{Map, Value};

use super::authorize::{decide, is_unlimited};
use super::policy::{Dangling, GROUP, Policy, RoleRef};
use super::rule::{Rule, missing, rules_of};
use super::{Attributes, User, joined, quoted};
use crate::resources::Resource;
use crate::state::State;
use crate::status::{ApiError, ApiResult, Named};
use crate::value::Json;

/// Refuses to let somebody write a role or binding that grants rights they do not hold.
pub(crate) fn check_escalation(
    state: &State,
    resource: &'static Resource,
    user: &User,
    namespace: &str,
    new: &Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    if resource.group != GROUP || is_unlimited(state, user) || old.is_some_and(|old| only_housekeeping(new, old)) {
        return Ok(());
    }
    let check = Check { state, resource, user, namespace, name: new.text("metadata.name") };
    match resource.kind {
        "Role" | "ClusterRole" => check.role(new, old),
        "RoleBinding" | "ClusterRoleBinding" => check.binding(new),
        _ => Ok(()),
    }
}

/// One write under suspicion.
struct Check<'a> {
    state: &'a State,
    resource: &'static Resource,
    user: &'a User,
    namespace: &'a str,
    name: &'a str,
}

impl Check<'_> {
    fn role(&self, new: &Value, old: Option<&Value>) -> ApiResult<()> {
        // A POST does not name what it creates, so only a general right to escalate helps there.
        let name = if old.is_some() { self.name } else { "" };
        if self.may("escalate", self.resource.plural, GROUP, name) {
            return Ok(());
        }
        let policy = self.state.auth.policy(self.state);
        self.holds(&policy, &rules_of(new))?;
        if [Some(new), old].into_iter().flatten().any(collects) && self.holds(&policy, &Rule::full_authority()).is_err()
        {
            return Err(self.refused("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn binding(&self, new: &Value) -> ApiResult<()> {
        let role = RoleRef::read(new);
        let resource = match role.kind.as_str() {
            "Role" => "roles",
            "ClusterRole" => "clusterroles",
            kind => return Err(ApiError::plain(Dangling::UnknownKind(kind.to_owned()).for_registry())),
        };
        if self.may("bind", resource, &role.group, &role.name) {
            return Ok(());
        }
        let policy = self.state.auth.policy(self.state);
        match policy.rules_of_role(&role, self.namespace) {
            Ok(rules) => self.holds(&policy, rules),
            Err(Dangling::NoNamespace) => Err(ApiError::bad_request(Dangling::NoNamespace.for_registry())),
            Err(_) => Err(ApiError::not_found(Named { group: GROUP, kind: resource }, &role.name)),
        }
    }

    fn may(&self, verb: &str, resource: &str, group: &str, name: &str) -> bool {
        let wants = Attributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        decide(self.state, self.user, &wants).allowed
    }

    fn holds(&self, policy: &Policy, wanted: &[Rule]) -> ApiResult<()> {
        let (held, dangling) = policy.rules_for(self.user, self.namespace);
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
        if !dangling.is_empty() {
            let texts: Vec<String> = dangling.iter().map(Dangling::for_registry).collect();
            why.push_str(&format!("; resolution errors: [{}]", joined(&texts)));
        }
        Err(self.refused(&why))
    }

    fn refused(&self, why: &str) -> ApiError {
        ApiError::forbidden(self.resource.named(), self.name, why)
    }
}

/// The role takes in the rules of others.
fn collects(role: &Value) -> bool {
    !role.list("aggregationRule.clusterRoleSelectors").is_empty()
}

/// The change is one garbage collection makes: owners and finalizers only.
fn only_housekeeping(new: &Value, old: &Value) -> bool {
    const HOUSEKEEPING: &[&str] = &["ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion"];
    let same = |new: Option<&Map<String, Value>>, old: Option<&Map<String, Value>>, aside: &[&str]| {
        new.zip(old).is_some_and(|(new, old)| same_but(new, old, aside))
    };
    same(new.as_object(), old.as_object(), &["metadata"])
        && same(new.map("metadata"), old.map("metadata"), HOUSEKEEPING)
}

/// Two objects are equal, some members aside.
fn same_but(new: &Map<String, Value>, old: &Map<String, Value>, aside: &[&str]) -> bool {
    let differs = |one: &Map<String, Value>, other: &Map<String, Value>| {
        one.iter().any(|(key, value)| !aside.contains(&key.as_str()) && other.get(key) != Some(value))
    };
    !differs(new, old) && !differs(old, new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{allow, open_state, remove, state, store, user};
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
    fn a_role_may_hold_what_its_author_holds() {
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
    fn dangling_bindings_are_told_with_the_refusal() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}));
        remove(&state, "roles", "n", "for-jane");
        let message = check(&state, "jane", "roles", &role(&["get"]), None).unwrap_err();
        let tail = "; resolution errors: [roles.rbac.authorization.k8s.io \"for-jane\" not found]";
        assert!(message.ends_with(tail), "{message}");
    }

    #[test]
    fn the_verb_escalate_lifts_the_limit() {
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
    fn a_binding_may_give_what_its_author_holds_or_may_bind() {
        let state = state();
        store(&state, role(&["get"]));
        let refused = check(&state, "jane", "rolebindings", &binding("Role", "r"), None).unwrap_err();
        assert!(refused.starts_with("rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user"), "{refused}");
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}));
        assert_eq!(check(&state, "jane", "rolebindings", &binding("Role", "r"), None), Ok(()));
        let rule =
            json!({"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["view"]});
        allow(&state, "n", "jim", rule);
        assert_eq!(check(&state, "jim", "rolebindings", &binding("ClusterRole", "view"), None), Ok(()));
        assert!(check(&state, "jim", "rolebindings", &binding("ClusterRole", "edit"), None).is_err());
    }

    #[test]
    fn a_binding_to_nothing_is_not_found() {
        let state = state();
        let cases = [
            ("Role", r#"roles.rbac.authorization.k8s.io "gone" not found"#),
            ("ClusterRole", r#"clusterroles.rbac.authorization.k8s.io "gone" not found"#),
            ("Bogus", r#"unsupported role reference kind: "Bogus""#),
        ];
        for (kind, message) in cases {
            let refused = check(&state, "jane", "rolebindings", &binding(kind, "gone"), None);
            assert_eq!(refused, Err(message.to_owned()));
        }
        let mut cluster = binding("Role", "r");
        cluster.take_at("metadata.namespace");
        let refused = check(&state, "jane", "clusterrolebindings", &cluster, None);
        assert_eq!(refused, Err("Namespace parameter required.".to_owned()));
    }

    #[test]
    fn only_full_authority_may_collect() {
        let state = state();
        let role = json!({"kind": "ClusterRole", "apiVersion": API, "metadata": {"name": "c"}, "rules": null,
                          "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
        let refused = check(&state, "jane", "clusterroles", &role, None).unwrap_err();
        assert!(refused.ends_with("is forbidden: must have cluster-admin privileges to use the aggregationRule"));
        let mut binding = binding("ClusterRole", "cluster-admin");
        binding["kind"] = "ClusterRoleBinding".into();
        binding["subjects"] = json!([{"kind": "User", "name": "jane"}]);
        binding.take_at("metadata.namespace");
        store(&state, binding);
        assert_eq!(check(&state, "jane", "clusterroles", &role, None), Ok(()));
    }

    #[test]
    fn garbage_collection_may_let_go_of_any_role() {
        let state = state();
        let mut old = role(&["*"]);
        old.put("metadata.finalizers", json!(["x/y"]));
        assert_eq!(check(&state, "jane", "roles", &role(&["*"]), Some(&old)), Ok(()));
        old.put("metadata.labels", json!({"a": "b"}));
        assert!(check(&state, "jane", "roles", &role(&["*"]), Some(&old)).is_err());
    }

    #[test]
    fn without_rules_nothing_is_checked() {
        assert_eq!(check(&open_state(), "jane", "roles", &role(&["*"]), None), Ok(()));
    }
}
