//! Authorization: decides whether a user may send a request.

use super::policy::RoleRefError;
use super::{Attributes, MASTERS, User, joined};
use crate::options::AuthorizationMode;
use crate::state::State;
use crate::status::{ApiError, ApiResult, Named};

/// The outcome of an authorization check, with the reason that access reviews return.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) allowed: bool,
    pub(super) reason: String,
}

/// Returns 403 Forbidden unless the user may send the request.
pub(crate) fn authorize(state: &State, user: &User, attributes: &Attributes) -> ApiResult<()> {
    if is_allowed_everything(state, user) {
        return Ok(());
    }
    match state.auth.policy(state).grant(user, attributes) {
        Ok(_) => Ok(()),
        Err(errors) => Err(forbidden(user, attributes, &denial_reason(&errors))),
    }
}

/// Evaluates the same rules as [`authorize`] without rejecting anything, for access reviews.
pub(super) fn decide(state: &State, user: &User, attributes: &Attributes) -> Decision {
    if is_allowed_everything(state, user) {
        return Decision { allowed: true, reason: String::new() };
    }
    match state.auth.policy(state).grant(user, attributes) {
        Ok(grant) => Decision { allowed: true, reason: format!("RBAC: allowed by {grant}") },
        Err(errors) => Decision { allowed: false, reason: denial_reason(&errors) },
    }
}

/// Whether the user is allowed everything without an RBAC check.
pub(super) fn is_allowed_everything(state: &State, user: &User) -> bool {
    state.auth.mode == AuthorizationMode::AlwaysAllow || user.in_group(MASTERS)
}

/// The reason of a denial: empty unless a binding refers to a role that cannot be resolved.
fn denial_reason(errors: &[RoleRefError]) -> String {
    match errors {
        [] => String::new(),
        // upstream: the authorizer chain prefixes each message with the name of its authorizer.
        errors => {
            let texts: Vec<String> = errors.iter().map(RoleRefError::authorizer_message).collect();
            format!("rbac: RBAC: {}", joined(&texts))
        }
    }
}

/// The 403 error for a request.
pub(super) fn forbidden(user: &User, attributes: &Attributes, reason: &str) -> ApiError {
    // upstream: errors escape HTML characters.
    let message = attributes.denial(user).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let why = if reason.is_empty() { message } else { format!("{message}: {reason}") };
    ApiError::forbidden(Named { group: &attributes.group, kind: &attributes.resource }, &attributes.name, &why)
}

impl Attributes {
    pub(super) fn is_path(&self) -> bool {
        self.resource.is_empty() && !self.path.is_empty()
    }

    fn denial(&self, user: &User) -> String {
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
    use crate::auth::fixture::{account, allow, always_allow_state, remove, state, store, user};
    use serde_json::json;

    /// `VERB [GROUP/]RESOURCE[:SUB][@NAMESPACE] [NAME]`, or `VERB /path`.
    fn attributes(text: &str) -> Attributes {
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

    fn denial(state: &State, user: &User, text: &str) -> String {
        authorize(state, user, &attributes(text)).unwrap_err().message
    }

    fn bot() -> User {
        user(
            "system:serviceaccount:n:bot",
            &["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
        )
    }

    #[test]
    fn denials_match_the_recorded_messages() {
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
        for (request, message) in cases {
            assert_eq!(denial(&state, &bot(), request), message);
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
        for (who, request, allowed) in cases {
            assert_eq!(authorize(&state, who, &attributes(request)).is_ok(), allowed, "{} {request}", who.name);
        }
    }

    #[test]
    fn a_role_binding_grants_permissions_only_in_its_namespace() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}));
        let jane = user("jane", &[]);
        assert!(authorize(&state, &jane, &attributes("delete secrets@n x")).is_ok());
        for request in ["delete secrets@m x", "list secrets", "list nodes", "get /metrics"] {
            assert!(authorize(&state, &jane, &attributes(request)).is_err(), "{request}");
        }
    }

    #[test]
    fn changes_apply_from_the_next_request() {
        let state = state();
        let jane = user("jane", &[]);
        assert!(authorize(&state, &jane, &attributes("get nodes x")).is_err());
        allow(&state, "", "jane", json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}));
        assert!(authorize(&state, &jane, &attributes("get nodes x")).is_ok());
        allow(&state, "", "jane", json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}));
        assert!(authorize(&state, &jane, &attributes("get nodes x")).is_err());
        assert!(authorize(&state, &jane, &attributes("list nodes")).is_ok());
        remove(&state, "clusterrolebindings", "", "for-jane");
        assert!(authorize(&state, &jane, &attributes("list nodes")).is_err());
    }

    #[test]
    fn a_denial_names_the_missing_role_of_a_binding() {
        let state = state();
        allow(&state, "n", "jane", json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}));
        remove(&state, "roles", "n", "for-jane");
        let message = denial(&state, &user("jane", &[]), "get nodes@n x");
        assert!(
            message
                .ends_with(r#"in the namespace "n": rbac: RBAC: role.rbac.authorization.k8s.io "for-jane" not found"#),
            "{message}"
        );
    }

    #[test]
    fn aggregated_roles_have_the_rules_of_the_selected_roles() {
        let state = state();
        let api = "rbac.authorization.k8s.io/v1";
        store(
            &state,
            json!({"kind": "RoleBinding", "apiVersion": api, "metadata": {"name": "b", "namespace": "n"},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
                   "subjects": [{"kind": "ServiceAccount", "name": "bot"}]}),
        );
        // One rule each from the roles that aggregate to admin, edit and view.
        for request in ["create rbac.authorization.k8s.io/roles@n", "create services@n", "get pods:log@n x"] {
            assert!(authorize(&state, &bot(), &attributes(request)).is_ok(), "{request}");
        }
        assert!(authorize(&state, &bot(), &attributes("get example.org/widgets@n x")).is_err());
        store(
            &state,
            json!({"kind": "ClusterRole", "apiVersion": api,
                   "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
                   "rules": [{"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["get"]}]}),
        );
        assert!(authorize(&state, &bot(), &attributes("get example.org/widgets@n x")).is_ok());
    }

    #[test]
    fn a_decision_names_the_binding_that_allowed_it() {
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
        for (request, reason) in cases {
            let decision = decide(&state, &bot(), &attributes(request));
            assert_eq!((decision.allowed, decision.reason.as_str()), (true, reason));
        }
        assert_eq!(decide(&state, &bot(), &attributes("get nodes x")), Decision::default());
        let root = decide(&state, &user("x", &["system:masters"]), &attributes("get nodes x"));
        assert_eq!(root, Decision { allowed: true, reason: String::new() });
    }

    #[test]
    fn always_allow_allows_everything() {
        let state = always_allow_state();
        assert!(authorize(&state, &user("system:anonymous", &[]), &attributes("delete nodes x")).is_ok());
    }
}
