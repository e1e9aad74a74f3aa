//! Service account and RBAC roles of the manager. The API server denies everything that no role allows.

use bowline_apiserver::ApiServer;
use bowline_kube::{Permission, roles};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// Service account of the manager, as in the manifests.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "cloud-controller-manager";

/// Returns a client for the manager's service account.
pub(crate) fn client(server: &ApiServer) -> kube::Client {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    server.in_process_client_for(&format!("system:serviceaccount:{NAMESPACE}:{NAME}"), &groups)
}

/// Grants the manager these permissions and no others.
pub(crate) async fn grant(admin: kube::Client, permissions: Vec<Permission>) {
    for role in roles(&permissions) {
        let (kind, binding) = match role.namespace {
            None => ("ClusterRole", "ClusterRoleBinding"),
            Some(_) => ("Role", "RoleBinding"),
        };
        let namespace = role.namespace.as_deref();
        apply(&admin, kind, namespace, json!({"rules": role.rules})).await;
        let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME});
        let subjects = json!([{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": NAME}]);
        apply(&admin, binding, namespace, json!({"roleRef": role_ref, "subjects": subjects})).await;
    }
}

async fn apply(admin: &kube::Client, kind: &str, namespace: Option<&str>, mut object: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind));
    let api: Api<DynamicObject> = match namespace {
        None => Api::all_with(admin.clone(), &resource),
        Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
    };
    object["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    object["kind"] = kind.into();
    object["metadata"] = json!({"name": NAME});
    api.patch(NAME, &PatchParams::apply("story").force(), &Patch::Apply(&object)).await.unwrap();
}
