//! Whether a request may go on.

use super::policy::Dangling;
use super::{Attributes, MASTERS, User, joined};
use crate::options::AuthorizationMode;
use crate::state::State;
use crate::status::{ApiError, ApiResult, Named};

/// An answer, with the reason that access reviews show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) allowed: bool,
    pub(super) reason: String,
}

/// Lets the request pass or answers 403.
pub(crate) fn authorize(state: &State, user: &User, wants: &Attributes) -> ApiResult<()> {
    if is_unlimited(state, user) {
        return Ok(());
    }
    match state.auth.policy(state).grant(user, wants) {
        Ok(_) => Ok(()),
        Err(dangling) => Err(forbidden(user, wants, &reason_against(&dangling))),
    }
}

/// The same, for those who only want to know.
pub(super) fn decide(state: &State, user: &User, wants: &Attributes) -> Decision {
    if is_unlimited(state, user) {
        return Decision { allowed: true, reason: String::new() };
    }
    match state.auth.policy(state).grant(user, wants) {
        Ok(grant) => Decision { allowed: true, reason: format!("RBAC: allowed by {grant}") },
        Err(dangling) => Decision { allowed: false, reason: reason_against(&dangling) },
    }
}

/// No rules are looked at for this user.
pub(super) fn is_unlimited(state: &State, user: &User) -> bool {
    state.auth.mode == AuthorizationMode::AlwaysAllow || user.in_group(MASTERS)
}

/// A refusal needs no reason, but it says so if a binding could not be followed.
fn reason_against(dangling: &[Dangling]) -> String {
    match dangling {
        [] => String::new(),
        // upstream: the chain of authorizers puts the name of each before what it says.
        problems => {
            let texts: Vec<String> = problems.iter().map(Dangling::for_authorizer).collect();
            format!("rbac: RBAC: {}", joined(&texts))
        }
    }
}

/// The 403 for a request.
pub(super) fn forbidden(user: &User, wants: &Attributes, reason: &str) -> ApiError {
    // upstream: errors must not look like HTML.
    let message = wants.refusal(user).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let why = if reason.is_empty() { message } else { format!("{message}: {reason}") };
    ApiError::forbidden(Named { group: &wants.group, kind: &wants.resource }, &wants.name, &why)
}

impl Attributes {
    pub(super) fn is_path(&self) -> bool {
        self.resource.is_empty() && !self.path.is_empty()
    }

    fn refusal(&self, user: &User) -> String {
        let Attributes { verb, group, resource, subresource, namespace, path, .. } = self;
        if self.is_path() {
            return format!("User {:?} cannot {verb} path {path:?}", user.name);
        }
        let resource = match subresource.as_str() {
            "" => resource.clone(),
            subresource => format!("{resource}/{subresource}"),
        };
        let place = match namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        format!("User {:?} cannot {verb} resource {resource:?} in API group {group:?} {place}", user.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::fixture::{account, allow, open_state, remove, state, store, user};
    use serde_json::json;

    /// `VERB [GROUP/]RESOURCE[:SUB][@NAMESPACE] [NAME]`, or `VERB /path`.
    fn wants(text: &str) -> Attributes {
        let mut words = text.split(' ');
        let (verb, what) = (words.next().unwrap().to_owned(), words.next().unwrap());
        if what.starts_with('/') {
            return Attributes { verb, path: what.to_owned(), ..Attributes::default() };
        }
        let (what, namespace) = what.split_once('@').unwrap_or((what, ""));
        let (what, subresource) = what.split_once(':').unwrap_or((what, ""));
        let (group, resource) = what.split_once('/').unwrap_or(("", what));
        let [group, resource, subresource, namespace, name] =
            [group, resource, subresource, namespace, words.next().unwrap_or_default()].map(str::to_owned);
        Attributes { verb, group, resource, subresource, namespace, name, ..Attributes::default() }
    }

    fn refusal(state: &State, user: &User, text: &str) -> String {
        authorize(state, user, &wants(text)).unwrap_err().message
    }

    fn bot() -> User {
        user(
            "system:serviceaccount:n:bot",
            &["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
        )
    }

    #[test]
    fn refusals_use_the_recorded_words() {
        let state = state();
        let cases = [
            (
                "list configmaps@n",
                r#"configmaps is forbidden: User "system:serviceaccount:n:bot" cannot list resource "configmaps" in API group "" in the namespace "n""#,
            ),
            (
                "get nodes x",
                r#"nodes "x" is forbidden: User "system:serviceaccount:n:bot" cannot get resource "nodes" in API group "" at the cluster scope"#,
            ),
            (
                "patch services:status@n a",
                r#"services "a" is forbidden: User "system:serviceaccount:n:bot" cannot patch resource "services/status" in API group "" in the namespace "n""#,
            ),
            (
                "get coordination.k8s.io/leases@n x",
                r#"leases.coordination.k8s.io "x" is forbidden: User "system:serviceaccount:n:bot" cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "n""#,
            ),
            ("get /metrics", r#"forbidden: User "system:serviceaccount:n:bot" cannot get path "/metrics""#),
            ("get /a<b>&c", r#"forbidden: User "system:serviceaccount:n:bot" cannot get path "/a&lt;b&gt;&amp;c""#),
        ];
        for (asked, message) in cases {
            assert_eq!(refusal(&state, &bot(), asked), message);
        }
    }

    #[test]
    fn the_default_roles_allow_what_they_allow_upstream() {
        let state = state();
        let anonymous = user("system:anonymous", &["system:unauthenticated"]);
        let manager = user("system:kube-controller-manager", &["system:authenticated"]);
        let cases = [
            (&anonymous, "get /version", true),
            (&anonymous, "get /healthz", true),
            (&anonymous, "get /api", false),
            (&anonymous, "list nodes", false),
            (&bot(), "get /api/v1", true),
            (&bot(), "get /openid/v1/jwks", true),
            (&bot(), "create authorization.k8s.io/selfsubjectaccessreviews", true),
            (&bot(), "create authentication.k8s.io/tokenreviews", false),
            (&manager, "list some.group/things", true),
            (&manager, "update coordination.k8s.io/leases@kube-system any", true),
            (&manager, "update coordination.k8s.io/leases@default any", false),
            (&manager, "get configmaps@kube-system extension-apiserver-authentication", true),
            (&user("root", &["system:masters"]), "delete nodes x", true),
        ];
        for (who, asked, allowed) in cases {
            assert_eq!(authorize(&state, who, &wants(asked)).is_ok(), allowed, "{} {asked}", who.name);
        }
    }

    #[test]
    fn a_role_binding_reaches_its_namespace_only() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}));
        let jane = user("jane", &[]);
        assert!(authorize(&state, &jane, &wants("delete secrets@n x")).is_ok());
        for asked in ["delete secrets@m x", "list secrets", "list nodes", "get /metrics"] {
            assert!(authorize(&state, &jane, &wants(asked)).is_err(), "{asked}");
        }
    }

    #[test]
    fn changes_count_from_the_next_request_on() {
        let state = state();
        let jane = user("jane", &[]);
        assert!(authorize(&state, &jane, &wants("get nodes x")).is_err());
        allow(&state, "", "jane", json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}));
        assert!(authorize(&state, &jane, &wants("get nodes x")).is_ok());
        allow(&state, "", "jane", json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}));
        assert!(authorize(&state, &jane, &wants("get nodes x")).is_err());
        assert!(authorize(&state, &jane, &wants("list nodes")).is_ok());
        remove(&state, "clusterrolebindings", "", "for-jane");
        assert!(authorize(&state, &jane, &wants("list nodes")).is_err());
    }

    #[test]
    fn a_binding_without_its_role_is_named_in_the_refusal() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}));
        remove(&state, "roles", "n", "for-jane");
        let message = refusal(&state, &user("jane", &[]), "get nodes@n x");
        assert!(
            message
                .ends_with(r#"in the namespace "n": rbac: RBAC: role.rbac.authorization.k8s.io "for-jane" not found"#),
            "{message}"
        );
    }

    #[test]
    fn collected_roles_have_the_rules_of_their_parts() {
        let state = state();
        let api = "rbac.authorization.k8s.io/v1";
        store(
            &state,
            json!({"kind": "RoleBinding", "apiVersion": api, "metadata": {"name": "b", "namespace": "n"},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
                   "subjects": [{"kind": "ServiceAccount", "name": "bot"}]}),
        );
        // Of its own part, of edit's and of view's.
        for asked in ["create rbac.authorization.k8s.io/roles@n", "create services@n", "get pods:log@n x"] {
            assert!(authorize(&state, &bot(), &wants(asked)).is_ok(), "{asked}");
        }
        assert!(authorize(&state, &bot(), &wants("get example.org/widgets@n x")).is_err());
        store(
            &state,
            json!({"kind": "ClusterRole", "apiVersion": api,
                   "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
                   "rules": [{"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["get"]}]}),
        );
        assert!(authorize(&state, &bot(), &wants("get example.org/widgets@n x")).is_ok());
    }

    #[test]
    fn a_decision_says_which_binding_decided() {
        let state = state();
        account(&state, "n", "bot");
        store(
            &state,
            json!({"kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1",
                   "metadata": {"name": "b", "namespace": "n"},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                   "subjects": [{"kind": "User", "name": "x"}, {"kind": "ServiceAccount", "name": "bot"}]}),
        );
        let cases = [
            ("get pods@n x", r#"RBAC: allowed by RoleBinding "b/n" of ClusterRole "view" to ServiceAccount "bot/n""#),
            (
                "get /api",
                r#"RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated""#,
            ),
        ];
        for (asked, reason) in cases {
            let decision = decide(&state, &bot(), &wants(asked));
            assert_eq!((decision.allowed, decision.reason.as_str()), (true, reason));
        }
        assert_eq!(decide(&state, &bot(), &wants("get nodes x")), Decision::default());
        let root = decide(&state, &user("x", &["system:masters"]), &wants("get nodes x"));
        assert_eq!(root, Decision { allowed: true, reason: String::new() });
    }

    #[test]
    fn without_rules_everything_is_allowed() {
        let state = open_state();
        assert!(authorize(&state, &user("system:anonymous", &[]), &wants("delete nodes x")).is_ok());
    }
}
