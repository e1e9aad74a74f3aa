//! Server state for unit tests of this module, without a running server.

use serde_json::{Value, json};

use super::{User, request_token};
use crate::options::{AuthorizationMode, Options};
use crate::resources;
use crate::state::State;
use crate::store::{Draft, Expect};
use crate::value::Json;

/// State with RBAC and only the default roles.
pub(super) fn state() -> State {
    let state = new_state(AuthorizationMode::Rbac);
    for object in super::bootstrap_objects() {
        store(&state, object);
    }
    state
}

/// Empty state with `AlwaysAllow`.
pub(super) fn always_allow_state() -> State {
    new_state(AuthorizationMode::AlwaysAllow)
}

fn new_state(authorization: AuthorizationMode) -> State {
    let options = Options { authorization, ..Options::default() };
    State::new(options, "127.0.0.1:6443".to_owned())
}

/// Creates or replaces an object. Its UID defaults to its name.
pub(super) fn store(state: &State, mut object: Value) {
    let resource = resources::find_kind(object.text("apiVersion"), object.text("kind")).unwrap();
    if !object.has("metadata.uid") {
        let name = object.text("metadata.name").to_owned();
        object.put("metadata.uid", name);
    }
    let present = state.store.get(resource.storage, object.text("metadata.namespace"), object.text("metadata.name"));
    let expect = present.map_or(Expect::Absent, |found| Expect::Revision(found.revision));
    state.store.put(resource.storage, expect, Draft::new(resource, &object)).unwrap();
}

/// Deletes an object.
pub(super) fn remove(state: &State, storage: &'static str, namespace: &str, name: &str) {
    let found = state.store.get(storage, namespace, name).unwrap();
    state.store.delete(storage, &found.key, found.revision).unwrap();
}

/// Stores a service account.
pub(super) fn account(state: &State, namespace: &str, name: &str) {
    let metadata = json!({"name": name, "namespace": namespace});
    store(state, json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": metadata}));
}

/// Requests a new token for a service account.
pub(super) fn token(state: &State, namespace: &str, name: &str) -> String {
    let request = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": {}});
    request_token(state, namespace, name, request).unwrap().text("status.token").to_owned()
}

/// Creates a role with one rule and binds it to a user, in a namespace or, if it is empty, cluster-wide.
pub(super) fn allow(state: &State, namespace: &str, user: &str, rule: Value) {
    let prefix = if namespace.is_empty() { "Cluster" } else { "" };
    let metadata = json!({"name": format!("for-{user}"), "namespace": namespace});
    let api = "rbac.authorization.k8s.io/v1";
    store(state, json!({"kind": format!("{prefix}Role"), "apiVersion": api, "metadata": metadata, "rules": [rule]}));
    store(
        state,
        json!({
            "kind": format!("{prefix}RoleBinding"),
            "apiVersion": api,
            "metadata": metadata,
            "roleRef": {"apiGroup": super::policy::GROUP, "kind": format!("{prefix}Role"), "name": format!("for-{user}")},
            "subjects": [{"kind": "User", "name": user}],
        }),
    );
}

pub(super) fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
}
